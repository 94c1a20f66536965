"""A multilayer perceptron on PyTorch behind the drop predictor interface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from foretail.features.errors import ForetailError
from foretail.models.ensemble import FeatureInput
from foretail.models.network import Layer, Network, NetworkPredictor
from foretail.models.predictor import Parameter

try:
    import torch
except ImportError:
    raise ForetailError(
        "neural predictors need the package torch: install it with pip install 'foretail[nn]'"
    ) from None

__all__ = ["MultilayerPerceptron"]

BATCH_ROWS = 1 << 16


class MultilayerPerceptron(NetworkPredictor):
    """Dense layers with rectifiers over the standardised features and their logarithms.

    Drops are rare, so every batch holds as many drops as other rows, drawn by their weights with replacement; the odds
    of the training rows go back into the last bias (King and Zeng, *Logistic regression in rare events data*, Political
    Analysis 9, 2001), and probabilities are those of the rows as they come. Training takes as many steps whatever the
    number of rows, on one thread.

    Parameters
    ----------
    layers : int
        Hidden layers.
    width : int
        Units of each.
    steps : int
        Batches to learn from.
    batch_rows : int
        Rows of a batch, half of them drops.
    learning_rate : float
        Of Adam at the start; it falls to 0 along a half cosine.
    seed : int
        Same seed and rows, same network.

    Attributes
    ----------
    mean_, deviation_ : float32 [2 features]
        Of x and of log(1 + x) on the training rows.
    module_ : torch.nn.Sequential
        From the standardised columns to the logit.
    """

    parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        "layers": Parameter(int, low=1, high=16),
        "width": Parameter(int, low=1, high=4096),
        "steps": Parameter(int, low=1, high=10**7),
        "batch_rows": Parameter(int, low=2, high=2**20),
        "learning_rate": Parameter(float, low=1e-6, high=1),
        "seed": Parameter(int, low=0, high=2**32 - 1),
    }

    def __init__(
        self,
        layers: int = 2,
        width: int = 64,
        steps: int = 4000,
        batch_rows: int = 1024,
        learning_rate: float = 0.01,
        seed: int = 1,
    ) -> None:
        self.layers = layers
        self.width = width
        self.steps = steps
        self.batch_rows = batch_rows
        self.learning_rate = learning_rate
        self.seed = seed

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        columns = _columns(x)
        self.mean_ = columns.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = columns.std(axis=0, dtype=np.float64).astype(np.float32)
        self.deviation_ = np.where(deviation > 0, deviation, np.float32(1))
        random = np.random.default_rng(self.seed)
        drops, others = _Draw(np.flatnonzero(y), weight), _Draw(np.flatnonzero(~y), weight)
        half = self.batch_rows // 2
        target = torch.cat([torch.ones(half), torch.zeros(half)])
        with _one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            module = _dense(columns.shape[1], self.layers, self.width)
            optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
            loss_of = torch.nn.BCEWithLogitsLoss()
            for step in range(self.steps):
                for group in optimizer.param_groups:
                    group["lr"] = self.learning_rate * (1 + math.cos(math.pi * step / self.steps)) / 2
                rows = np.concatenate([drops.rows(half, random), others.rows(half, random)])
                batch = torch.from_numpy((columns[rows] - self.mean_) / self.deviation_)
                optimizer.zero_grad()
                loss = loss_of(module(batch).squeeze(1), target)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                list(module.parameters())[-1].add_(math.log(drops.weight / others.weight))
        self.module_ = module

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        found = []
        with _one_thread(), torch.inference_mode():
            for start in range(0, len(x), BATCH_ROWS):
                z = (_columns(x[start : start + BATCH_ROWS]) - self.mean_) / self.deviation_
                found.append(torch.sigmoid(self.module_(torch.from_numpy(z))).squeeze(1).numpy())
        return np.concatenate(found).astype(np.float64)

    def _network(self, features: Sequence[FeatureInput]) -> Network:
        dense = [part for part in self.module_ if isinstance(part, torch.nn.Linear)]
        layers = [Layer(part.weight.detach().numpy(), part.bias.detach().numpy()) for part in dense]
        return Network.of_layers(features, self.mean_, self.deviation_, layers)


class _Draw:
    """Draws some rows, with replacement, each as often as it weighs."""

    def __init__(self, rows: npt.NDArray[np.int64], weight: npt.NDArray[np.float64]) -> None:
        self._rows = rows
        self._until = np.cumsum(weight[rows])
        self.weight = float(self._until[-1])

    def rows(self, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
        drawn = np.searchsorted(self._until, random.random(count) * self.weight, side="right")
        return self._rows[np.minimum(drawn, len(self._rows) - 1)]  # the product may round up to the whole weight


def _columns(x: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Features and their logarithms, float32[rows, 2 features]."""
    values = x.astype(np.float32)
    return np.concatenate([values, np.log(values + np.float32(1))], axis=1)


def _dense(inputs: int, layers: int, width: int) -> torch.nn.Sequential:
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
        inputs = width
    return torch.nn.Sequential(*parts, torch.nn.Linear(inputs, 1))


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads would add in an order of their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
