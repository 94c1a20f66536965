"""Ensembles as ONNX graphs of 64-bit integers around one ``TreeEnsembleRegressor``, and reading them back.

Inputs are cast to float32, which keeps every integer below 2**24; above, the cast never crosses a cut. With a feature
of more bits inputs and cuts are float64. Either way runtimes give the sum of the leaves of all trees as float32, so
votes are cut into digits that no order of summation rounds, one target for each, and are put together again in int64.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, checker, helper, numpy_helper

from foretail.core.errors import ForetailError
from foretail.export.folder import check_name
from foretail.export.proof import ProofError, ReadBack
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.ensemble import FLOAT32_BITS, Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree, cuts_of
from foretail.models.onnx_session import session_of

IntArray = npt.NDArray[np.int64]

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8


class OnnxPredictor:
    """A rendered graph in onnxruntime, on one thread.

    `content` is what :func:`render_onnx` returns; it states `ir_sha256` and `default_tau` of itself. ForetailError when
    onnxruntime refuses the file.
    """

    def __init__(self, content: bytes) -> None:
        self._session = session_of(content)
        stated = self._session.get_modelmeta().custom_metadata_map
        self.ir_sha256: str = stated["foretail.ir_sha256"]
        self.default_tau = int(stated["foretail.default_tau"])

    def run(self, x: npt.NDArray[Any], tau: int | None = None) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Return score int64[rows] and decision bool[rows] of ``x``, integers [rows, features]; `tau` overrides."""
        inputs = {"x": np.ascontiguousarray(x, np.int64)}
        if tau is not None:
            inputs["tau"] = np.array(tau, np.int64)
        score, drop = self._session.run(["score", "drop"], inputs)
        return score, drop


def render_onnx(ensemble: Ensemble, name: str = "drop_predictor") -> bytes:
    """Return the graph of an ensemble with votes; equal ensembles and names give equal bytes.

    Inputs are ``x``, int64[rows, features], and, if wanted, ``tau``, int64, in place of the ensemble's. Outputs are
    ``score``, int64[rows], and ``drop``, bool[rows]: ``score > tau``. Values outside a feature's range count as the
    nearest value in it: negative ones as 0, those from ``2**bits`` on as ``2**bits - 1``. The metadata hold name,
    params and bits of every feature in order (JSON), the SHA-256 of the ensemble, and its tau. ForetailError on an
    unsafe name, without votes, or when votes are so wide that ONNX cannot add them in 64 bits.
    """
    check_name(name)
    _, tau = ensemble.require_votes()
    votes = [tree.require_votes() for tree in ensemble.trees]
    radix = 1 << (FLOAT32_BITS - len(votes).bit_length())  # digits below it, of that many trees, sum below 2**24
    places = 1
    while not _adds_exactly(votes, _scale(radix, places)):
        if radix**places >= 1 << 63:
            raise ForetailError("the votes fill 64 bits, which leaves ONNX no room to add them: use fewer vote bits")
        places += 1
    return _assemble(name, ensemble.features, ensemble.trees, radix, places, tau, ensemble.sha256)


def read_onnx(content: bytes, features: Sequence[FeatureInput]) -> ReadBack:
    """Return what a graph computes, read from its bytes alone.

    ProofError when the file is anything else, so that its meaning is unknown, or when float32 could round its sums.

    Parameters
    ----------
    content : a file of the form that :func:`render_onnx` writes
    features : inputs in column order, which the file must name; they bound the boxes
    """
    try:
        model = onnx.load_from_string(content)
        constants = {constant.name: numpy_helper.to_array(constant) for constant in model.graph.initializer}
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        (regressor,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor")
        attributes = {item.name: helper.get_attribute_value(item) for item in regressor.attribute}
        places = int(attributes["n_targets"])
        radix = int(constants["radix"]) if places > 1 else 2
        tau, sha256, scale = int(constants["tau"]), metadata["foretail.ir_sha256"], _scale(radix, places)
        trees = _trees(attributes, scale)
        again = _assemble(model.graph.name, features, trees, radix, places, tau, sha256)
    except (DecodeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ProofError(f"the exported ONNX cannot be read back ({error}): nothing is exported, report this") from None
    # Written again from what was read, the file is the same: there is nothing in it that was not read.
    if again != content or not all(_is_tree(tree, len(features)) for tree in trees):
        raise ProofError("the exported ONNX is more than a sum of trees of these features: report this as a bug")
    if not _adds_exactly([tree.require_votes() for tree in trees], scale):
        raise ProofError("the exported ONNX has sums that float32 rounds: nothing is exported, report this as a bug")
    checker.check_model(content, full_check=True)
    boundaries = {index: set(cuts) for index, cuts in cuts_of(trees).items()}
    return ReadBack(boundaries, tuple(leaf_boxes(tree, features) for tree in trees))


def _assemble(
    name: str,
    features: Sequence[FeatureInput],
    trees: Sequence[Tree],
    radix: int,
    places: int,
    tau: int,
    ir_sha256: str,
) -> bytes:
    """Write the file: trees with one target per digit of a vote, and Horner's rule in int64 around them.

    Trees compare in float32, or in float64 when a feature has more bits than float32 holds.
    """
    wide = any(feature.bits > FLOAT32_BITS for feature in features)
    columns = ", ".join(f"{feature.name} ({feature.bits} bits)" for feature in features)
    regressor = helper.make_node(
        "TreeEnsembleRegressor",
        ["x_float"],
        ["digits_float"],
        domain="ai.onnx.ml",
        **_attributes(trees, _scale(radix, places), wide),
    )
    # Not ReduceSum: onnxruntime's rounds int64 beyond 53 bits.
    joined, total = [], f"digit_{places - 1}"
    for place in reversed(range(places - 1)):
        joined.append(helper.make_node("Mul", [total, "radix"], [f"shifted_{place}"]))
        joined.append(helper.make_node("Add", [f"shifted_{place}", f"digit_{place}"], [f"total_{place}"]))
        total = f"total_{place}"
    constants = {f"place_{place}": place for place in range(places)}
    constants |= {"tau": tau} | ({"radix": radix} if places > 1 else {})
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["x_float"], to=TensorProto.DOUBLE if wide else TensorProto.FLOAT),
            regressor,
            helper.make_node("Cast", ["digits_float"], ["digits"], to=TensorProto.INT64),
            *(
                helper.make_node("Gather", ["digits", f"place_{place}"], [f"digit_{place}"], axis=1)
                for place in range(places)
            ),
            *joined,
            helper.make_node("Identity", [total], ["score"]),
            helper.make_node("Greater", ["score", "tau"], ["drop"]),
        ],
        name,
        [
            helper.make_tensor_value_info("x", TensorProto.INT64, ["rows", len(features)], f"columns: {columns}"),
            helper.make_tensor_value_info(
                "tau", TensorProto.INT64, [], "drop iff score > tau; its default is a constant"
            ),
        ],
        [
            helper.make_tensor_value_info("score", TensorProto.INT64, ["rows"], "sum of votes"),
            helper.make_tensor_value_info("drop", TensorProto.BOOL, ["rows"], "whether LQD is predicted to drop"),
        ],
        [numpy_helper.from_array(np.array(value, np.int64), key) for key, value in constants.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="foretail",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        doc_string="A drop predictor. Values outside a feature's range count as the nearest value in it.",
    )
    helper.set_model_props(
        model,
        {
            "foretail.features": json.dumps([asdict(feature) for feature in features]),
            "foretail.ir_sha256": ir_sha256,
            "foretail.default_tau": str(tau),
        },
    )
    return bytes(model.SerializeToString(deterministic=True))


def _attributes(trees: Sequence[Tree], scale: Sequence[int], wide: bool) -> dict[str, Any]:
    """The trees as lists with one entry per node, and one per leaf and digit; `wide`: numbers as tensors of float64."""
    sizes = [len(tree.feature) for tree in trees]
    feature = np.concatenate([tree.feature for tree in trees])
    node = np.concatenate([np.arange(size) for size in sizes])
    number = np.repeat(np.arange(len(trees)), sizes)
    is_leaf = feature < 0
    digits = _digits(np.concatenate([tree.require_votes() for tree in trees]), scale)[is_leaf]
    numbers = {
        "nodes_values": np.concatenate([tree.cut for tree in trees]).astype(np.float64),
        "target_weights": digits.ravel().astype(np.float64),
    }
    if wide:
        stored = {f"{key}_as_tensor": numpy_helper.from_array(values) for key, values in numbers.items()}
    else:
        stored = {key: values.tolist() for key, values in numbers.items()}
    return stored | {
        "nodes_treeids": number.tolist(),
        "nodes_nodeids": node.tolist(),
        "nodes_featureids": np.maximum(feature, 0).tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_truenodeids": np.maximum(np.concatenate([tree.left for tree in trees]), 0).tolist(),
        "nodes_falsenodeids": np.maximum(np.concatenate([tree.right for tree in trees]), 0).tolist(),
        "target_treeids": np.repeat(number[is_leaf], len(scale)).tolist(),
        "target_nodeids": np.repeat(node[is_leaf], len(scale)).tolist(),
        "target_ids": np.tile(np.arange(len(scale)), len(digits)).tolist(),
        "n_targets": len(scale),
        "aggregate_function": "SUM",
        "post_transform": "NONE",
    }


def _trees(attributes: dict[str, Any], scale: Sequence[int]) -> list[Tree]:
    """The trees of the lists that :func:`_attributes` wrote; of others, trees that it writes otherwise."""
    number, is_leaf = np.array(attributes["nodes_treeids"]), np.array(attributes["nodes_modes"]) == b"LEAF"
    votes = np.zeros(len(number), np.int64)
    weights = [[int(weight) for weight in row] for row in _in_rows(_numbers(attributes, "target_weights"), len(scale))]
    votes[is_leaf] = [sum(place * digit for place, digit in zip(scale, row, strict=True)) for row in weights]
    columns = {
        "feature": np.where(is_leaf, -1, attributes["nodes_featureids"]),
        "cut": np.array([int(value) for value in _numbers(attributes, "nodes_values")]),
        "left": np.where(is_leaf, -1, attributes["nodes_truenodeids"]),
        "right": np.where(is_leaf, -1, attributes["nodes_falsenodeids"]),
        "value": np.zeros(len(number)),
        "votes": votes,
    }
    return [Tree(**{name: column[number == one] for name, column in columns.items()}) for one in np.unique(number)]


def _numbers(attributes: dict[str, Any], key: str) -> Sequence[float]:
    """Floats, or the float64 of a tensor."""
    if key in attributes:
        return list(attributes[key])
    return [float(value) for value in numpy_helper.to_array(attributes[f"{key}_as_tensor"])]


def _in_rows(values: Sequence[float], width: int) -> npt.NDArray[np.float64]:
    return np.array(values, np.float64).reshape(-1, width)


def _is_tree(tree: Tree, inputs: int) -> bool:
    """Return whether every node but the first is the child of one earlier node, and every input exists."""
    inner = np.flatnonzero(tree.feature >= 0)
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    is_tree = np.array_equal(np.sort(children), np.arange(1, len(tree.feature)))
    return is_tree and bool(np.all(children > np.tile(inner, 2)) and np.all(tree.feature < inputs))


def _scale(radix: int, places: int) -> list[int]:
    """Return the weights of digits, the lowest first."""
    if radix < 2 or not 1 <= places <= 64:
        raise ValueError(f"{places} digits to base {radix}")
    return [radix**place for place in range(places)]


def _digits(votes: IntArray, scale: Sequence[int]) -> IntArray:
    """Cut votes, int64[n], into digits, int64[n, len(scale)], that `scale` weighs; the last has the sign."""
    upper = [votes // weight for weight in scale]
    lower = [digit % (after // before) for digit, before, after in zip(upper, scale, scale[1:], strict=False)]
    return np.stack([*lower, upper[-1]], axis=1)


def _adds_exactly(votes: Sequence[IntArray], scale: Sequence[int]) -> bool:
    """Return whether no order of summation rounds a float32 or leaves an int64."""
    digits = [np.abs(_digits(vote, scale)).max(axis=0) for vote in votes]
    largest = [sum(int(digit) for digit in place) for place in zip(*digits, strict=True)]
    return max(largest) < 1 << FLOAT32_BITS and sum(w * d for w, d in zip(scale, largest, strict=True)) < 1 << 63
