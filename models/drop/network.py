"""A trained neural network as an ONNX graph: the form in which one is saved, scored and exported.

Input ``x``, int64[rows, features]; output ``probability``, float32[rows]. The metadata hold the features and the
threshold. Nothing here needs the framework that trained it.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from foretail.core.digest import check_file
from foretail.core.errors import ForetailError, readable
from foretail.core.files import write_file
from foretail.core.json_text import parse_json
from foretail.core.plugins import is_foreign, require, running
from foretail.core.reading import Reading
from foretail.core.summary import Summarised
from foretail.models.drop.predictor import DropPredictor, checked_features
from foretail.models.ensemble.agreement import tried_rows
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.onnx_session import session_of

OPSET, IR_VERSION = 17, 8
BATCH_ROWS = 1 << 16

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "tanh": ("Tanh", {}),
}
"""Operator of ONNX, and its attributes, by activation."""

_FEATURES, _THRESHOLD = "foretail.features", "foretail.threshold"


@dataclass(frozen=True, eq=False, repr=False)
class Layer(Summarised):
    """A dense layer, ``weight @ z + bias``, with an activation behind it unless it is the last."""

    weight: npt.NDArray[np.floating[Any]]  #: float32[outputs, inputs]
    bias: npt.NDArray[np.floating[Any]]  #: float32[outputs]
    #: {'relu', 'leaky_relu', 'hard_sigmoid', 'tanh'}; hard_sigmoid is z / 6 + 1 / 2 between 0 and 1
    activation: str = "relu"
    slope: float = 0.01  #: of leaky_relu below 0


@dataclass(frozen=True, eq=False, repr=False)
class DenseLayers(Summarised):
    """The numbers of a network: the logit is that of `layers` over (columns - mean) / deviation."""

    mean: npt.NDArray[np.float32]  #: float32[2 features], of x, then of log(1 + x)
    deviation: npt.NDArray[np.float32]  #: float32[2 features], of x, then of log(1 + x)
    layers: tuple[Layer, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Network(Summarised):
    """A drop predictor that is an ONNX graph: drop iff ``probability > threshold``."""

    content: bytes  #: the file
    features: tuple[FeatureInput, ...]  #: inputs in column order
    threshold: float  #: in [0, 1]

    # -- files ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "the network") -> Network:
        """Read a file; `source` names it in errors. Raise ForetailError when it is no such graph."""
        try:
            model = onnx.load_from_string(content)
            metadata = {entry.key: entry.value for entry in model.metadata_props}
            features = tuple(FeatureInput(**item) for item in parse_json(metadata[_FEATURES]))
            threshold = float.fromhex(metadata[_THRESHOLD])
            signature = {
                value.name: (value.type.tensor_type.elem_type, len(value.type.tensor_type.shape.dim))
                for value in (*model.graph.input, *model.graph.output)
            }
            if signature != {"x": (TensorProto.INT64, 2), "probability": (TensorProto.FLOAT, 1)}:
                raise ValueError("it has other inputs or outputs")
            if not features or not 0 <= threshold <= 1:
                raise ValueError("its features or its threshold make no sense")
        except Exception as error:  # protobuf, JSON and the checks above have a type each
            raise ForetailError(
                f"{source} is not a network of Foretail ({' '.join(str(error).split())[:120]}): give the model.onnx "
                f"that foretail train predictor=mlp wrote, or save one of Network.of_layers (docs/guide/extend.md)"
            ) from None
        Reading(source, tuple(f"the metadata {key}" for key in metadata if key not in (_FEATURES, _THRESHOLD))).tell()
        return cls(content, features, threshold)

    @classmethod
    def load(cls, path: Path) -> Network:
        """Read the file at `path`; ForetailError as :meth:`from_bytes`, and when it cannot be read."""
        with readable(path, "pass the model.onnx that foretail train predictor=mlp wrote"):
            content = path.read_bytes()
        check_file(path, "train it again")
        return cls.from_bytes(content, str(path))

    def save(self, path: Path) -> None:
        """Write the file, which has the old content or this."""
        write_file(path, self.content)

    @cached_property
    def sha256(self) -> str:
        """Hex SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()

    @classmethod
    def of_layers(
        cls,
        features: Sequence[FeatureInput],
        mean: npt.NDArray[np.floating[Any]],
        deviation: npt.NDArray[np.floating[Any]],
        layers: Sequence[Layer],
        threshold: float = 0.5,
    ) -> Network:
        """Return dense layers over standardised inputs and their logarithms.

        The columns of the first layer are ``(network_columns(x) - mean) / deviation``: the features in order, then
        log(1 + x) of each in the same order. Every array may be float64 too, and is rounded. ForetailError on shapes
        that do not fit, and on an activation that is not known.

        Parameters
        ----------
        mean, deviation : float32[2 features], of x, then of log(1 + x)
        layers : the last has one output, the logit

        Examples
        --------
        Drop when the queue is longer than 20, or fewer are free:

        >>> inputs = [FeatureInput("queue", "", 12)]
        >>> layer = Layer(np.array([[1.0, 0.0]]), np.array([-20.0]))
        >>> Network.of_layers(inputs, np.zeros(2), np.ones(2), [layer]).exceeds([[20], [21]])
        array([False,  True])
        """
        mean, deviation = np.asarray(mean, np.float32), np.asarray(deviation, np.float32)
        layers = [
            replace(one, weight=np.asarray(one.weight, np.float32), bias=np.asarray(one.bias, np.float32))
            for one in layers
        ]
        _check_layers(features, mean, deviation, layers)
        constants = {"one": np.array(1, np.float32), "mean": mean, "deviation": deviation, "columns": np.array([1])}
        constants |= {"arrival": np.array([-1, len(mean) // 2])}
        constants |= {f"inputs_{index}": np.array([-1, layer.weight.shape[1]]) for index, layer in enumerate(layers)}
        nodes = [
            helper.make_node("Reshape", ["x", "arrival"], ["arrivals"]),
            helper.make_node("Cast", ["arrivals"], ["values"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["values", "one"], ["positive"]),
            helper.make_node("Log", ["positive"], ["logarithms"]),
            helper.make_node("Concat", ["values", "logarithms"], ["raw"], axis=1),
            helper.make_node("Sub", ["raw", "mean"], ["centred"]),
            helper.make_node("Div", ["centred", "deviation"], ["out_0"]),
        ]
        for index, layer in enumerate(layers):
            constants |= {f"weight_{index}": layer.weight, f"bias_{index}": layer.bias}
            last = index == len(layers) - 1
            dense = "logit" if last else f"dense_{index}"
            nodes.append(helper.make_node("Reshape", [f"out_{index}", f"inputs_{index}"], [f"z_{index}"]))
            nodes.append(
                helper.make_node("Gemm", [f"z_{index}", f"weight_{index}", f"bias_{index}"], [dense], transB=1)
            )
            if not last:
                operator, attributes = ACTIVATIONS[layer.activation]
                if layer.activation == "leaky_relu":
                    attributes = {"alpha": layer.slope}
                nodes.append(helper.make_node(operator, [dense], [f"out_{index + 1}"], **attributes))
        nodes += [
            helper.make_node("Sigmoid", ["logit"], ["column"]),
            helper.make_node("Squeeze", ["column", "columns"], ["probability"]),
        ]
        graph = helper.make_graph(
            nodes,
            "drop_predictor",
            [helper.make_tensor_value_info("x", TensorProto.INT64, ["rows", len(features)])],
            [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["rows"])],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        model = helper.make_model(
            graph, producer_name="foretail", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
        )
        metadata = {_FEATURES: json.dumps([asdict(feature) for feature in features]), _THRESHOLD: threshold.hex()}
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return cls.from_bytes(bytes(model.SerializeToString(deterministic=True)))

    def with_threshold(self, threshold: float) -> Network:
        """Return the network with another threshold."""
        model = onnx.load_from_string(self.content)
        (entry,) = (entry for entry in model.metadata_props if entry.key == _THRESHOLD)
        entry.value = threshold.hex()
        return Network.from_bytes(bytes(model.SerializeToString(deterministic=True)))

    def dense_layers(self) -> DenseLayers:
        """Return the numbers of a graph of :meth:`of_layers`; ForetailError for any other."""
        graph = onnx.load_from_string(self.content).graph
        constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        names = {operator: name for name, (operator, _) in ACTIVATIONS.items()}
        behind = [
            (names[node.op_type], {item.name: item.f for item in node.attribute}.get("alpha", Layer.slope))
            for node in graph.node
            if node.op_type in names
        ]
        try:
            layers = tuple(
                Layer(constants[f"weight_{index}"], constants[f"bias_{index}"], *activation)
                for index, activation in enumerate([*behind, ("relu", Layer.slope)])
            )
            dense = DenseLayers(constants["mean"], constants["deviation"], layers)
            again = self.of_layers(self.features, dense.mean, dense.deviation, dense.layers)
            same = onnx.load_from_string(again.content).graph == graph
        except (KeyError, IndexError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            same = False
        if not same:
            raise ForetailError(
                "the network is not made of dense layers as those of predictor=mlp: export no other to C"
            )
        return dense

    # -- meaning -------------------------------------------------------------------------------------------------

    def probability(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability that LQD drops each row of integers [rows, features]: float64[rows] in [0, 1].

        ForetailError on another shape, type or range, or when onnxruntime refuses the graph.
        """
        features = checked_features(x)
        if features.shape[1] != len(self.features):
            raise ForetailError(
                f"the network needs {len(self.features)} feature columns, but got {features.shape[1]}: "
                f"pass {', '.join(feature.name for feature in self.features)}"
            )
        batches = (features[start : start + BATCH_ROWS] for start in range(0, len(features), BATCH_ROWS))
        parts = [self._session.run(["probability"], {"x": batch.astype(np.int64)})[0] for batch in batches]
        return np.concatenate(parts).astype(np.float64)

    def exceeds(self, x: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return whether each row is predicted to drop: bool[rows]."""
        return self.probability(x) > self.threshold

    @cached_property
    def _session(self) -> Any:
        return session_of(self.content, "network", "train")


def network_columns(x: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Return features and their logarithms, log(1 + x), before they are standardised: float32[rows, 2 features]."""
    values = x.astype(np.float32)
    return np.concatenate([values, np.log(values + np.float32(1))], axis=1)


class NetworkPredictor(DropPredictor):
    """A drop predictor that is a network; subclasses also implement `_network`."""

    def to_network(self, features: Sequence[FeatureInput]) -> Network:
        """Return the trained network with probability threshold 0.5; ForetailError before `fit`.

        `features`: the training columns in order.
        """
        self._require_fit()
        if len(features) != self.features_in_:
            raise ForetailError(
                f"the predictor was trained on {self.features_in_} features, but {len(features)} are declared: "
                f"declare the training columns in order"
            )
        with running(self, "to_network"):
            network = self._network(features)
        require(self, isinstance(network, Network), "to_network must return a Network", f"a {type(network).__name__}")
        if not is_foreign(type(self)):
            return network
        rows = tried_rows([feature.bits for feature in features]).astype(np.int32)
        off, rounding = np.abs(network.probability(rows) - self.probability(rows)), 2e-3  # of additions in float32
        require(
            self,
            bool((off <= rounding).all()),
            "its network must give its probabilities",
            f"others on {np.count_nonzero(off > rounding):,} of {len(rows):,} rows, by up to {off.max():.3f}",
        )
        return network

    @abstractmethod
    def _network(self, features: Sequence[FeatureInput]) -> Network: ...


def _check_layers(
    features: Sequence[FeatureInput],
    mean: npt.NDArray[np.float32],
    deviation: npt.NDArray[np.float32],
    layers: Sequence[Layer],
) -> None:
    if mean.shape != (2 * len(features),) or mean.shape != deviation.shape or not features:
        raise ForetailError(
            f"mean and deviation have shapes {mean.shape} and {deviation.shape}: give two numbers for each of the "
            f"{len(features)} features, first those of x, then those of log(1 + x)"
        )
    inputs = len(mean)
    for number, layer in enumerate(layers, 1):
        if layer.activation not in ACTIVATIONS:
            raise ForetailError(
                f"layer {number} has the activation {layer.activation}: choose from {', '.join(ACTIVATIONS)}"
            )
        weight, bias = layer.weight.shape, layer.bias.shape
        if len(weight) != 2 or weight[1] != inputs or bias != weight[:1]:
            raise ForetailError(
                f"layer {number} has weights of shape {weight} and biases of shape {bias}: give [outputs, {inputs}] "
                f"and [outputs]"
            )
        inputs = weight[0]
    if inputs != 1 or not layers:
        raise ForetailError("the last layer must have one output, the logit: give layers that end in one")
