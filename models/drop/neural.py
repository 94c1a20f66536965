"""Neural networks of PyTorch behind the drop predictor interface: a multilayer perceptron, and others read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError, install_command, users_code
from foretail.core.settings import setting
from foretail.models.drop.network import Layer, Network, NetworkPredictor, network_columns
from foretail.models.ensemble.ensemble import FeatureInput

try:
    import torch
    from torch.optim.lr_scheduler import LambdaLR
except ImportError:
    raise ForetailError(f"neural predictors need the package torch: {install_command('nn')}") from None

BATCH_ROWS = 1 << 16

IntRows = npt.NDArray[np.int32]


@dataclass(eq=False)
class MultilayerPerceptron(NetworkPredictor):
    """Dense layers with rectifiers over the standardised features and their logarithms.

    Training takes as many steps whatever the rows, and the learning rate falls to 0 along a half cosine. Drops are
    rare, so every batch holds as many drops as other rows, drawn by their weights with replacement; the odds of the
    training rows go back into the last bias (King and Zeng, *Logistic regression in rare events data*, Political
    Analysis 9, 2001), and probabilities are those of the weighted rows.

    Attributes
    ----------
    mean_, deviation_ : float32 [2 features], of x and of log(1 + x) on the training rows
    module_ : from the standardised columns to the logit
    """

    packages = ("torch", "onnxruntime")
    batch_rows: int = setting(1024, "Rows of a batch, half of them drops.", at_least=2, at_most=2**20)
    learning_rate: float = setting(0.01, "Learning rate of Adam at the start.", at_least=1e-6, at_most=1)
    seed: int = setting(1, "Same seed, rows, jobs and device, same network.", at_least=0, at_most=2**32 - 1)
    jobs: int = setting(1, "Threads that train.", at_least=1)
    device: Literal["cpu", "cuda"] = setting("cpu", "Where it trains; predictions are made on the CPU.")
    layers: int = setting(2, "Hidden layers.", at_least=1, at_most=16)
    width: int = setting(64, "Units of a hidden layer.", at_least=1, at_most=4096)
    steps: int = setting(4000, "Batches to learn from.", at_least=1, at_most=10**7)

    @classmethod
    def device_here(cls) -> str:
        """Return ``cuda`` where PyTorch finds a GPU."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _fit(self, x: IntRows, y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        batches = self._start(x, y, weight)
        widths = [2 * x.shape[1], *[self.width] * self.layers, 1]
        with _threads(self.jobs), _seed(self.seed):
            linear = [torch.nn.Linear(before, after) for before, after in pairwise(widths)]
            parts = [part for one in linear for part in (one, torch.nn.ReLU())]
            module = torch.nn.Sequential(*parts[:-1]).to(self.device)
            optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
            cosine = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / self.steps)) / 2)
            for step in range(self.steps):
                batch, target = next(batches)
                optimizer.zero_grad()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(module(batch).squeeze(1), target)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                cosine.step()
                if step % 100 == 0:
                    self.report(step / self.steps, f"step {step} of {self.steps}")
        with torch.no_grad():
            linear[-1].bias.add_(self._log_odds)
        self.module_ = module.to("cpu")

    def _start(
        self, x: IntRows, y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Learn the scale of the columns, and return balanced batches without end: inputs and targets."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ForetailError(
                "trainer.device=cuda finds no GPU for PyTorch: train on a machine with one and a CUDA build of torch, "
                "or set trainer.device=cpu"
            )
        self.mean_, self.deviation_ = _scale(x)
        sides = [(rows, np.cumsum(weight[rows])) for rows in (np.flatnonzero(y), np.flatnonzero(~y))]
        self._log_odds = math.log(sides[0][1][-1] / sides[1][1][-1])
        random = np.random.default_rng(self.seed)
        half = self.batch_rows // 2
        target = torch.cat([torch.ones(half), torch.zeros(half)]).to(self.device)

        def drawn(rows: npt.NDArray[np.int64], until: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
            place = np.searchsorted(until, random.random(half) * until[-1], side="right")
            chosen: npt.NDArray[np.int64] = rows[np.minimum(place, len(rows) - 1)]  # a product may round up to the end
            return chosen

        def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            while True:
                yield self._inputs(x[np.concatenate([drawn(*side) for side in sides])]).to(self.device), target

        return batches()

    def _inputs(self, x: IntRows) -> torch.Tensor:
        return torch.from_numpy((network_columns(x) - self.mean_) / self.deviation_)

    def _probability(self, x: IntRows) -> npt.NDArray[np.float64]:
        batches = (x[start : start + BATCH_ROWS] for start in range(0, len(x), BATCH_ROWS))
        with _threads(1), torch.inference_mode():
            parts = [torch.sigmoid(self.module_(self._inputs(batch))).squeeze(1) for batch in batches]
        return torch.cat(parts).numpy().astype(np.float64)

    def _network(self, features: Sequence[FeatureInput]) -> Network:
        layers = [
            Layer(part.weight.detach().numpy(), part.bias.detach().numpy())
            for part in self.module_
            if isinstance(part, torch.nn.Linear)
        ]
        return Network.of_layers(features, self.mean_, self.deviation_, layers)


def layers_of(module: torch.nn.Module) -> list[Layer]:
    """Return the dense layers of a module for :meth:`Network.of_layers`, from the graph of what `forward` computes.

    Affine steps of that graph (``torch.export``) become one layer, up to a ``relu``, ``leaky_relu``, ``hardsigmoid`` or
    ``tanh``. A ``sigmoid`` at the end is left out, as the network has its own. ForetailError on a graph with another
    step, on numbers of 16 bits, and where the layers give another logit than the module on one of 4,000 rows.

    Examples
    --------
    >>> layers = layers_of(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.LeakyReLU(), torch.nn.Linear(4, 1)))
    >>> [(layer.weight.shape, layer.activation) for layer in layers]
    [((4, 8), 'leaky_relu'), ((1, 4), 'relu')]
    """
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    tensors = list(module.state_dict().values())
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if kinds - {torch.float32, torch.float64}:
        raise ForetailError(
            f"the network computes in {', '.join(sorted(map(str, kinds)))}, which float32 does not repeat: convert it "
            "by module.float(), and judge that"
        )
    alike = "let its forward do the same steps for all rows"
    with (
        users_code(lambda reason: ForetailError(f"the network cannot be read as a graph ({reason[:160]}): {alike}")),
        warnings.catch_warnings(action="ignore"),  # of weights that a hook sets
        torch.no_grad(),
        ExitStack() as restoring,
    ):
        for part in module.modules():
            restoring.callback(setattr, part, "training", part.training)
        module.eval()  # without dropout, as it decides
        for inputs in dict.fromkeys(tensor.shape[-1] for tensor in tensors if tensor.ndim == 2):
            rows = _tried_rows(inputs).to(tensors[0].device, max(kinds, key=str))
            with suppress(RuntimeError):  # of another width
                own = module(rows)
                break
        else:
            raise ForetailError("the network takes no rows of columns: give a module of dense layers")
        reader = _GraphReader(torch.export.export(module, (rows,), strict=False), rows)
        layers = reader.read()
        again, own = (one.double().cpu().reshape(4, -1) for one in (_logits(layers, rows.double().cpu()), own))
    again = again.sigmoid() if reader.ends_in_sigmoid else again
    if not bool(((own - again).abs() <= 1e-4 * (1 + own.abs().amax(dim=1, keepdim=True))).all()):
        raise ForetailError(
            f"the layers that were read and the network differ on some of {own.numel():,} rows, so that its forward "
            "does more than its graph shows: let it be affine steps and activations alone"
        )
    return layers


def _tried_rows(inputs: int) -> torch.Tensor:
    """4,000 rows of columns: small, larger, much larger, and those of -1, 0 and 1 alone."""
    random = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, 1000, inputs, generator=random) * torch.tensor([1.0, 30.0, 1000.0])[:, None, None]
    return torch.cat([*drawn, torch.randint(-1, 2, (1000, inputs), generator=random).float()])


def _logits(layers: Sequence[Layer], z: torch.Tensor) -> torch.Tensor:
    for place, layer in enumerate(layers):
        z = z @ torch.from_numpy(layer.weight).double().T + torch.from_numpy(layer.bias).double()
        if place < len(layers) - 1:
            slope = (layer.slope,) if layer.activation == "leaky_relu" else ()
            z = _ACTIVATIONS[layer.activation.replace("_sigmoid", "sigmoid")](z, *slope)
    return z


_ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch.nn.functional, name) for name in ("relu", "leaky_relu", "hardsigmoid", "tanh")
}
"""By the names of ATen."""


@dataclass(frozen=True)
class _Affine:
    """A value of a graph that is affine in the columns, or in the output of the last activation."""

    at: torch.Tensor  #: float64: its value at 0, at each unit vector, and at 2, -3, 4, ... of them together
    layer: int  #: activations before it


class _GraphReader(torch.fx.Interpreter):
    """The layers of an exported graph; what does not depend on the columns is computed."""

    def __init__(self, exported: torch.export.ExportedProgram, rows: torch.Tensor) -> None:
        super().__init__(exported.graph_module)
        self.extra_traceback = False
        self._exported, self._rows = exported, rows
        self._layers: list[Layer] = []
        self.ends_in_sigmoid = False

    def read(self) -> list[Layer]:
        """Return the layers."""
        numbers = {**self._exported.state_dict, **self._exported.constants}
        given = [numbers.get(str(spec.target)) for spec in self._exported.graph_signature.input_specs]
        columns = self._basis(self._rows.shape[1])
        last, *others = self.run(
            *(columns if one is None else one.double() if one.is_floating_point() else one for one in given)
        )
        if others or not isinstance(last, _Affine) or last.layer != len(self._layers) or last.at[0].numel() != 1:
            raise ForetailError("the network has not one output for each row, the logit: give a module that has")
        self._add_layer(last, "relu", Layer.slope)
        return self._layers

    def run_node(self, n: torch.fx.Node) -> Any:
        if str(n.target).startswith("aten.sigmoid.") and all(user.op == "output" for user in n.users):
            self.ends_in_sigmoid = True
            return self.env[n.all_input_nodes[0]]
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        values: list[_Affine] = []
        torch.fx.node.map_aggregate(args, lambda item: values.append(item) if isinstance(item, _Affine) else None)
        name = getattr(target, "__name__", str(target)).partition(".")[0].removesuffix("_")
        if name.startswith("_assert"):  # of types, where these are all float64
            return None
        if not values:
            return super().call_function(target, args, kwargs)
        layer = values[0].layer
        if name in _ACTIVATIONS and layer == len(self._layers):
            slope = (*args[1:], kwargs.get("negative_slope", Layer.slope))[0]
            self._add_layer(values[0], name.replace("hards", "hard_s"), slope)
            return self._basis(values[0].at.shape[-1])
        if any(value.layer != layer for value in values):
            raise ForetailError(
                f"the network joins values before and behind an activation ({name}), as a residual does: let Linear "
                f"layers and activations alternate"
            )

        def plain(item: Any) -> Any:
            of_rows = name in ("view", "reshape") and item == len(self._rows)  # the basis has others
            return item.at if isinstance(item, _Affine) else -1 if of_rows else item

        at = super().call_function(target, *torch.fx.node.map_aggregate((args, kwargs), plain)).double()
        units, together = (at[1:-1] - at[0]).flatten(1), (at[-1] - at[0]).flatten()
        if not torch.allclose(self._basis(len(units)).at[-1] @ units, together, 1e-5, 1e-5 * float(at.abs().max())):
            raise ForetailError(
                f"the network has the step {name}, which is neither affine nor one of {', '.join(_ACTIVATIONS)}: let "
                "Linear layers and these alternate"
            )
        return _Affine(at, layer)

    def _basis(self, width: int) -> _Affine:
        unit = torch.eye(width, dtype=torch.float64, device=self._rows.device)
        together = [(-1) ** index * (2.0 + index) for index in range(width)]
        return _Affine(torch.cat([0 * unit[:1], unit, unit.new_tensor([together])]), len(self._layers))

    def _add_layer(self, value: _Affine, activation: str, slope: float) -> None:
        at = value.at.flatten(1).cpu()
        weight, bias = (at[1:-1] - at[0]).T.float().numpy(), at[0].float().numpy()
        self._layers.append(Layer(weight, bias, activation, float(slope)))


def _scale(x: IntRows) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Mean and deviation of the columns, batch by batch; a constant column has deviation 1."""
    total, squares = np.zeros(2 * x.shape[1]), np.zeros(2 * x.shape[1])
    for start in range(0, len(x), BATCH_ROWS):
        columns = network_columns(x[start : start + BATCH_ROWS]).astype(np.float64)
        total += columns.sum(axis=0)
        squares += (columns**2).sum(axis=0)
    mean = total / len(x)
    deviation = np.sqrt(np.maximum(squares / len(x) - mean**2, 0)).astype(np.float32)
    return mean.astype(np.float32), np.where(deviation > 0, deviation, np.float32(1))


@contextmanager
def _seed(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Another number would add in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
