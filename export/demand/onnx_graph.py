"""Demand predictors as ONNX graphs in float64, compared with the predictor in onnxruntime.

Input ``history``, float64[steps, n, n], oldest first, of any number of steps (at least two for history_attention);
output ``prediction``, float64[n, n], before the projection into the hose model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, checker, helper, numpy_helper

from foretail.core.errors import ForetailError
from foretail.export.onnx.graph import IR_VERSION, OPSET  # says what is missing when its packages are
from foretail.export.proof import ProofError
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.regression import LinearEntries, LowRank
from foretail.models.onnx_session import session_of

TOLERANCE = 1e-5
"""Largest difference of an entry, relative to the largest of history and prediction; the network is in float32."""

_HISTORIES = 64
_END = np.iinfo(np.int64).max


@dataclass
class _Graph:
    """Nodes and constants on their way into a graph."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def add(self, kind: str, *inputs: str | npt.NDArray[Any], **attributes: Any) -> str:
        """Add a node and return its output; arrays among its inputs become constants."""
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"constant_{len(self.constants)}"
                self.constants[name] = value
                value = name
            names.append(value)
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def windows(self, flat: str, length: int) -> str:
        """``predictor.windows`` of [steps, pairs]: [steps, length, pairs]."""
        padded = self.add("Pad", flat, _integers(length - 1, 0, 0, 0), mode="edge")
        steps = self.add("Gather", self.add("Shape", flat), np.array(0))
        first = self.add("Range", np.array(0), steps, np.array(1))
        places = self.add("Add", self.add("Unsqueeze", first, _integers(1)), np.arange(length)[np.newaxis])
        return self.add("Gather", padded, places, axis=0)

    def part(self, value: str, start: int, end: int = _END) -> str:
        """``value[start:end]``."""
        return self.add("Slice", value, _integers(start), _integers(end))


def render_graph(predictor: DemandPredictor, name: str) -> bytes:
    """Return the graph of a trained :class:`LinearEntries`, :class:`LowRank` or :class:`HistoryAttention`.

    Equal predictors and names give equal bytes.
    """
    predictor.require_fit()
    graph, nodes = _Graph(), predictor.nodes_
    flat = graph.add("Reshape", "history", _integers(0, -1))
    build: dict[type[DemandPredictor], Callable[[_Graph, str, Any], str]] = {
        LinearEntries: _linear,
        LowRank: _low_rank,
        HistoryAttention: _attention,
    }
    if type(predictor) not in build:
        raise ForetailError(f"{type(predictor).__name__} has no ONNX graph")
    output = graph.add("Reshape", build[type(predictor)](graph, flat, predictor), _integers(nodes, nodes))
    positive = graph.add("Max", output, np.array(0.0))
    graph.nodes.append(helper.make_node("Mul", [positive, "off_diagonal"], ["prediction"]))
    graph.constants["off_diagonal"] = 1 - np.eye(nodes)
    made = helper.make_graph(
        graph.nodes,
        name,
        [helper.make_tensor_value_info("history", TensorProto.DOUBLE, ["steps", nodes, nodes], "uplinks")],
        [helper.make_tensor_value_info("prediction", TensorProto.DOUBLE, [nodes, nodes], "uplinks")],
        [numpy_helper.from_array(np.ascontiguousarray(value), key) for key, value in graph.constants.items()],
    )
    model = helper.make_model(
        made,
        producer_name="foretail",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        doc_string="The next demand matrix from those of the past, before the projection into the hose model.",
    )
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def compare_graph(content: bytes, predictor: DemandPredictor) -> float:
    """Run a graph and the predictor on random histories of 2 to 2 window + 2 steps and all sizes of demand.

    Returns the largest difference of an entry relative to the largest value of its history and prediction; ProofError
    when that is above `TOLERANCE`. ForetailError when onnxruntime refuses the graph.
    """
    session = session_of(content)
    random = np.random.default_rng(0)
    nodes, longest = predictor.nodes_, 2 * predictor.parameters()["window"] + 2
    worst = 0.0
    for _ in range(_HISTORIES):
        steps = int(random.integers(2, longest + 1))
        demand = random.random((steps, nodes, nodes)) * (random.random((nodes, nodes)) < 0.7) * (1 - np.eye(nodes))
        level = 2.0 ** random.integers(-10, 11)
        history = np.asarray(demand * (random.random((steps, 1, 1)) < 0.9) * level, np.float64)
        predicted = session.run(["prediction"], {"history": history})[0]
        expected = predictor.unprojected(history)
        largest = max(history.max(), expected.max(), np.finfo(np.float64).tiny)
        difference = float(np.abs(predicted - expected).max() / largest)
        worst = max(worst, difference if difference == difference else np.inf)
    if worst > TOLERANCE:
        raise ProofError(
            f"the exported ONNX is {worst:.3g} of the largest demand away from its predictor: nothing is exported, "
            f"report this as a bug"
        )
    return worst


def _linear(graph: _Graph, flat: str, predictor: LinearEntries) -> str:
    last = graph.part(graph.windows(flat, predictor.window), -1)
    weight = predictor.weight_[:1] if predictor.shared else predictor.weight_
    weighted = graph.add("Mul", last, weight[:, :-1].T[np.newaxis])
    return graph.add("Add", graph.add("ReduceSum", weighted, _integers(0, 1), keepdims=0), weight[:, -1])


def _low_rank(graph: _Graph, flat: str, predictor: LowRank) -> str:
    last = graph.add("Reshape", graph.part(graph.windows(flat, predictor.window), -1), _integers(predictor.window, -1))
    weights = graph.add("Reshape", graph.add("MatMul", last, predictor.patterns_.T), _integers(1, -1))
    following = graph.add("Add", graph.add("MatMul", weights, predictor.weight_[:-1]), predictor.weight_[-1])
    return graph.add("MatMul", following, predictor.patterns_)


def _attention(graph: _Graph, flat: str, predictor: HistoryAttention) -> str:
    """Add the nodes of ``HistoryAttention._predict``; float64 but for the network."""
    seen = graph.windows(flat, predictor.window)
    now, then = graph.part(seen, -1), graph.part(seen, 0, -1)
    products = graph.add("ReduceSum", graph.add("Mul", now, then), _integers(2), keepdims=0)
    squares = graph.add(
        "Add",
        *(graph.add("ReduceSum", graph.add("Mul", side, side), _integers(2), keepdims=0) for side in (now, then)),
    )
    alike = graph.add(
        "Where",
        graph.add("Greater", squares, np.array(0.0)),
        graph.add("Div", graph.add("Mul", products, np.array(2.0)), squares),
        np.array(1.0),
    )
    steps = graph.add("Gather", graph.add("Shape", then), np.array(0))
    age = graph.add("Cast", graph.add("Range", steps, np.array(0), np.array(-1)), to=TensorProto.DOUBLE)
    log_age = graph.add("Unsqueeze", graph.add("Log", age), _integers(1))
    layer = graph.add("Cast", graph.add("Concat", alike, log_age, axis=1), to=TensorProto.FLOAT)
    first, second = ((part.weight, part.bias) for part in (predictor.module_[0], predictor.module_[2]))
    layer = graph.add("Tanh", graph.add("Gemm", layer, *(value.detach().numpy() for value in first), transB=1))
    layer = graph.add("Gemm", layer, *(value.detach().numpy() for value in second), transB=1)
    weight = graph.add("Softmax", graph.add("Cast", layer, to=TensorProto.DOUBLE), axis=0)
    return graph.add("MatMul", graph.add("Transpose", weight, perm=[1, 0]), graph.part(flat, 1))


def _integers(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)
