"""A module of PyTorch as a drop predictor of Foretail: trained, tracked, scored and exported as its own are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from foretail.core.settings import setting
from foretail.models.drop.network import Network, NetworkPredictor, network_columns
from foretail.models.drop.neural import layers_of
from foretail.models.ensemble.ensemble import FeatureInput


@dataclass(eq=False)
class TorchNetwork(NetworkPredictor):
    """One hidden layer of leaky rectifiers, trained on all rows at once.

    Attributes
    ----------
    width, steps : int
        Units, and steps of Adam.
    learning_rate : float
    seed : int
    """

    width: int = setting(8, at_least=1, at_most=1024)
    steps: int = setting(200, at_least=1, at_most=100_000)
    learning_rate: float = setting(0.03, at_least=1e-6, at_most=1)
    seed: int = setting(1, at_least=0, at_most=2**31 - 1)

    packages: ClassVar[tuple[str, ...]] = ("torch",)  # another version may train another network

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        columns = network_columns(x)  # x, then log(1 + x)
        self.mean_, self.deviation_ = columns.mean(axis=0), np.maximum(columns.std(axis=0), np.float32(1e-3))
        inputs, target = self._inputs(x), torch.from_numpy(y.astype(np.float32))[:, None]
        rows = torch.from_numpy(weight.astype(np.float32))[:, None]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.module_ = torch.nn.Sequential(
                torch.nn.Linear(inputs.shape[1], self.width), torch.nn.LeakyReLU(0.1), torch.nn.Linear(self.width, 1)
            )
            optimizer = torch.optim.Adam(self.module_.parameters(), lr=self.learning_rate)
            for step in range(self.steps):
                optimizer.zero_grad()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(self.module_(inputs), target, weight=rows)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                self.report(step / self.steps, f"step {step} of {self.steps}")

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        with torch.inference_mode():
            probability: npt.NDArray[np.float64] = torch.sigmoid(self.module_(self._inputs(x))).squeeze(1).numpy()
        return probability  # float32, which Foretail takes too

    def _network(self, features: Sequence[FeatureInput]) -> Network:
        return Network.of_layers(features, self.mean_, self.deviation_, layers_of(self.module_))

    def _inputs(self, x: npt.NDArray[np.int32]) -> torch.Tensor:
        return torch.from_numpy((network_columns(x) - self.mean_) / self.deviation_)
