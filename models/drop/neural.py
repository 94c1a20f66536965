"""Neural networks of PyTorch behind the drop predictor interface: a multilayer perceptron, and one over arrivals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError, install_command
from foretail.models.drop.network import Layer, Network, NetworkPredictor, network_columns
from foretail.models.drop.predictor import DEVICES, parameter
from foretail.models.ensemble.ensemble import FeatureInput

try:
    import torch
except ImportError:
    raise ForetailError(f"neural predictors need the package torch: {install_command('nn')}") from None

BATCH_ROWS = 1 << 16

IntRows = npt.NDArray[np.int32]


@dataclass(eq=False)
class _Dense(NetworkPredictor):
    """Dense layers with rectifiers over the standardised features of arrivals and their logarithms.

    Drops are rare, so every batch holds as many drops as other rows, drawn by their weights with replacement; the odds
    of the training rows go back into the last bias (King and Zeng, *Logistic regression in rare events data*, Political
    Analysis 9, 2001), and probabilities are those of the weighted rows.
    """

    packages = ("torch", "onnxruntime")
    batch_rows: int = parameter(1024, low=2, high=2**20)
    learning_rate: float = parameter(0.01, low=1e-6, high=1)
    seed: int = parameter(1, low=0, high=2**32 - 1)
    jobs: int = parameter(1, low=1)
    device: Literal["cpu", "cuda"] = parameter("cpu", choices=DEVICES)

    @classmethod
    def device_here(cls) -> str:
        """Return ``cuda`` where PyTorch finds a GPU."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _start(
        self, x: IntRows, y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64], arrivals: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Learn the scale of the columns, and return balanced batches without end: inputs and targets."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ForetailError(
                "trainer.device=cuda finds no GPU for PyTorch: train on a machine with one and a CUDA build of torch, "
                "or set trainer.device=cpu"
            )
        self._arrivals = arrivals
        self.mean_, self.deviation_ = _scale(x, arrivals)
        drops, others = _Draw(np.flatnonzero(y), weight), _Draw(np.flatnonzero(~y), weight)
        self._log_odds = math.log(drops.weight / others.weight)
        random = np.random.default_rng(self.seed)
        half = self.batch_rows // 2
        target = torch.cat([torch.ones(half), torch.zeros(half)]).to(self.device)

        def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            while True:
                rows = np.concatenate([drops.rows(half, random), others.rows(half, random)])
                yield self._inputs(x[rows]).to(self.device), target

        return batches()

    def _finish(self, module: torch.nn.Module) -> None:
        with torch.no_grad():
            list(module.parameters())[-1].add_(self._log_odds)
        self.module_ = module.to("cpu")

    def _inputs(self, x: IntRows) -> torch.Tensor:
        columns = network_columns(x.reshape(-1, x.shape[1] // self._arrivals))
        return torch.from_numpy((columns - self.mean_) / self.deviation_)

    def _probability(self, x: IntRows) -> npt.NDArray[np.float64]:
        layers = []
        with _threads(1), torch.inference_mode():
            for start in range(0, len(x), BATCH_ROWS):
                layers.append(torch.sigmoid(self.module_(self._inputs(x[start : start + BATCH_ROWS]))).squeeze(1))
        return torch.cat(layers).numpy().astype(np.float64)

    def _network(self, features: Sequence[FeatureInput]) -> Network:
        dense = [part for part in self.module_.modules() if isinstance(part, torch.nn.Linear)]
        layers = [Layer(part.weight.detach().numpy(), part.bias.detach().numpy()) for part in dense]
        return Network.of_layers(features, self.mean_, self.deviation_, layers)


@dataclass(eq=False)
class MultilayerPerceptron(_Dense):
    """A multilayer perceptron on the features of the arrival; training takes as many steps whatever the rows.

    Parameters
    ----------
    layers : hidden layers
    width : units of each
    steps : batches to learn from
    batch_rows : rows of a batch, half of them drops
    learning_rate : of Adam at the start; it falls to 0 along a half cosine
    seed : same seed, rows, jobs and device, same network
    jobs : threads that train
    device : {'cpu', 'cuda'}, where it trains; predictions are made on the CPU

    Attributes
    ----------
    mean_, deviation_ : float32 [2 features], of x and of log(1 + x) on the training rows
    module_ : from the standardised columns to the logit
    """

    layers: int = parameter(2, low=1, high=16)
    width: int = parameter(64, low=1, high=4096)
    steps: int = parameter(4000, low=1, high=10**7)

    def _fit(self, x: IntRows, y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        batches = self._start(x, y, weight, arrivals=1)
        with _threads(self.jobs), _seed(self.seed):
            module = _Joining([2 * x.shape[1], *[self.width] * self.layers]).to(self.device)
            optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
            for step in range(self.steps):
                _set_rate(optimizer, self.learning_rate * (1 + math.cos(math.pi * step / self.steps)) / 2)
                _descend(module, optimizer, *next(batches))
                if step % 100 == 0:
                    self.report(step / self.steps, f"step {step} of {self.steps}")
        self._finish(module)


@dataclass(eq=False)
class SequenceNetwork(_Dense):
    """A causal convolution over the last arrivals of a switch, oldest first: what a switch with a memory could know.

    Its first layer sees each arrival alone; then each layer joins two neighbours, until one is left: the dilated
    convolutions of WaveNet (van den Oord et al., 2016) as far as the last arrival needs them.

    Training stops by the mean training loss of a round of batches, never by validation: after `patience` rounds
    without a better one the learning rate is halved, the fifth time training ends.

    Parameters
    ----------
    arrivals : arrivals in a row of x, a power of two that divides the number of columns
    width : units of a layer
    rounds : most rounds
    round_steps : batches of a round
    patience : rounds without a better loss before the learning rate is halved
    batch_rows : rows of a batch, half of them drops
    learning_rate : of Adam at the start
    seed : same seed, rows, jobs and device, same network
    jobs : threads that train
    device : {'cpu', 'cuda'}, where it trains; predictions are made on the CPU

    Attributes
    ----------
    mean_, deviation_ : float32 [2 features of an arrival], of x and of log(1 + x) on the training rows
    module_ : from the standardised columns to the logit
    losses_ : mean training loss of each round
    """

    arrivals: int = parameter(16, low=1, high=4096)
    width: int = parameter(48, low=1, high=4096)
    rounds: int = parameter(60, low=1, high=10**6)
    round_steps: int = parameter(100, low=1, high=10**6)
    patience: int = parameter(2, low=1)
    batch_rows: int = parameter(512, low=2, high=2**20)
    learning_rate: float = parameter(0.003, low=1e-6, high=1)

    def _fit(self, x: IntRows, y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        if self.arrivals & (self.arrivals - 1) or x.shape[1] % self.arrivals:
            raise ForetailError(
                f"a row of {x.shape[1]} columns is not a window of {self.arrivals} arrivals: give window.behind and "
                f"window.ahead with window.behind + 1 + window.ahead a power of two"
            )
        batches = self._start(x, y, weight, self.arrivals)
        joins = self.arrivals.bit_length() - 1
        losses: list[float] = []
        waited, rate = 0, self.learning_rate
        with _threads(self.jobs), _seed(self.seed):
            inputs = 2 * x.shape[1] // self.arrivals
            module = _Joining([inputs, self.width, *[self.width] * joins], joined=joins).to(self.device)
            optimizer = torch.optim.Adam(module.parameters(), lr=rate)
            while len(losses) < self.rounds and rate > self.learning_rate / 2**HALVINGS:
                mean = sum(_descend(module, optimizer, *next(batches)) for _ in range(self.round_steps))
                waited = 0 if mean < min(losses, default=math.inf) * self.round_steps else waited + 1
                losses.append(mean / self.round_steps)
                if waited == self.patience:
                    waited, rate = 0, rate / 2
                    _set_rate(optimizer, rate)
                self.report(len(losses) / self.rounds, f"round {len(losses)}, training loss {losses[-1]:.4f}")
        self.losses_ = tuple(losses)
        self._finish(module)


HALVINGS = 5
"""The learning rate is halved so often before training ends."""


class _Joining(torch.nn.Module):
    """Dense layers of these widths and one for the logit; the last `joined` of the former join two neighbours."""

    def __init__(self, widths: Sequence[int], joined: int = 0) -> None:
        super().__init__()
        layers = [
            torch.nn.Linear(before * (2 if index >= len(widths) - 1 - joined else 1), after)
            for index, (before, after) in enumerate(pairwise(widths))
        ]
        self._inputs = [layer.in_features for layer in layers]
        self.layers = torch.nn.ModuleList([*layers, torch.nn.Linear(widths[-1], 1)])

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        *hidden, last = self.layers
        for layer, inputs in zip(hidden, self._inputs, strict=True):
            z = torch.relu(layer(z.reshape(-1, inputs)))
        logit: torch.Tensor = last(z)
        return logit


class _Draw:
    """Draws some rows, with replacement, each as often as it weighs."""

    def __init__(self, rows: npt.NDArray[np.int64], weight: npt.NDArray[np.float64]) -> None:
        self._rows = rows
        self._until = np.cumsum(weight[rows])
        self.weight = float(self._until[-1])

    def rows(self, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
        drawn = np.searchsorted(self._until, random.random(count) * self.weight, side="right")
        return self._rows[np.minimum(drawn, len(self._rows) - 1)]  # the product may round up to the whole weight


def layers_of(module: torch.nn.Module) -> list[Layer]:
    """Return the dense layers of a module for :meth:`Network.of_layers`.

    ForetailError when it is more than ``Linear`` layers, all with a bias, and one of the activations ``ReLU``,
    ``LeakyReLU``, ``Hardsigmoid`` and ``Tanh`` between two of them; ``Dropout`` and ``Identity`` may stand anywhere.

    Examples
    --------
    >>> layers = layers_of(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.LeakyReLU(), torch.nn.Linear(4, 1)))
    >>> [(layer.weight.shape, layer.activation) for layer in layers]
    [((4, 8), 'leaky_relu'), ((1, 4), 'relu')]
    """
    layers: list[Layer] = []
    parts = [part for part in module.modules() if not list(part.children())]
    parts = [part for part in parts if not isinstance(part, (torch.nn.Dropout, torch.nn.Identity))]
    for dense, between in zip_longest(parts[::2], parts[1::2]):
        name = (
            "relu"
            if between is None
            else next((name for kind, name in _ACTIVATIONS.items() if type(between) is kind), None)
        )
        fits = isinstance(dense, torch.nn.Linear) and isinstance(dense.bias, torch.Tensor)
        if not isinstance(dense, torch.nn.Linear) or not fits or name is None or (between is parts[-1]):
            known = ", ".join(kind.__name__ for kind in _ACTIVATIONS)
            raise ForetailError(
                f"the network has {between if fits else dense} where a dense layer with a bias or an activation "
                f"belongs: let Linear layers and one of {known} alternate, from the first Linear to the last"
            )
        slope = between.negative_slope if isinstance(between, torch.nn.LeakyReLU) else Layer.slope
        layers.append(Layer(dense.weight.detach().cpu().numpy(), dense.bias.detach().cpu().numpy(), name, slope))
    return layers


_ACTIVATIONS: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.LeakyReLU: "leaky_relu",
    torch.nn.Hardsigmoid: "hard_sigmoid",
    torch.nn.Tanh: "tanh",
}


def _scale(x: IntRows, arrivals: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Mean and deviation of the columns of all arrivals, batch by batch; a constant column has deviation 1."""
    features = x.shape[1] // arrivals
    total, squares = np.zeros(2 * features), np.zeros(2 * features)
    for start in range(0, len(x), BATCH_ROWS):
        columns = network_columns(x[start : start + BATCH_ROWS].reshape(-1, features)).astype(np.float64)
        total += columns.sum(axis=0)
        squares += (columns**2).sum(axis=0)
    mean = total / (len(x) * arrivals)
    deviation = np.sqrt(np.maximum(squares / (len(x) * arrivals) - mean**2, 0)).astype(np.float32)
    return mean.astype(np.float32), np.where(deviation > 0, deviation, np.float32(1))


def _descend(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, target: torch.Tensor
) -> float:
    """Take one step and return the loss before it."""
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(module(batch).squeeze(1), target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


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
