"""A demand predictor on PyTorch that looks at the whole history: what followed when things were as they are now?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretail.core.errors import ForetailError, install_command
from foretail.core.settings import setting
from foretail.models.demand.predictor import DemandPredictor, FloatArray, finite_array, windows


@dataclass(eq=False)
class HistoryAttention(DemandPredictor):
    """The next matrix is a weighted mean of all matrices since the second, weighted by how alike the times before are.

    A small network turns the likeness of the last matrices before two times, and how long ago it was, into a weight.
    Likeness does not depend on the names of the nodes, so a job is recognised wherever it is placed, and a mean of
    matrices in the hose model is in it.

    Attributes
    ----------
    module_ : from float32[pairs, window + 1] to the logarithm of the weights
    """

    window: int = setting(4, at_least=1, at_most=1024)  #: matrices before each of two times that are compared
    width: int = setting(16, at_least=1, at_most=4096)  #: hidden units
    steps: int = setting(300, at_least=1, at_most=10**7)  #: training steps, each on one run
    learning_rate: float = setting(0.02, at_least=1e-6, at_most=1)  #: of Adam
    seed: int = setting(1, at_least=0, at_most=2**32 - 1)  #: same seed and runs, same network

    def _fit(self, runs: list[FloatArray]) -> None:
        torch = _import_torch()
        prepared = []
        for run in (run for run in runs if len(run) > 2):  # a second step has one candidate: nothing to learn
            past, level = run[:-1], float(np.mean(run**2)) or 1.0
            flat = torch.from_numpy((run / np.sqrt(level)).reshape(len(run), -1).astype(np.float32))
            comparisons = torch.from_numpy(self._comparisons(past, range(1, len(past))))
            later = torch.from_numpy(np.triu(np.ones((len(past) - 1, len(past) - 1), bool), 1))
            prepared.append((comparisons, later, flat))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more would add in an order of their own
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                module = self._untrained(torch)
            optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
            order = np.random.default_rng(self.seed)
            for _ in range(self.steps if prepared else 0):
                comparisons, later, flat = prepared[order.integers(len(prepared))]
                score = module(comparisons).squeeze(-1).masked_fill(later, -torch.inf)
                loss = ((torch.softmax(score, dim=1) @ flat[1:-1] - flat[2:]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        finally:
            torch.set_num_threads(threads)
        self.module_ = module

    def _predict(self, history: FloatArray) -> FloatArray:
        if len(history) == 1:
            return np.array(history[0])
        torch = _import_torch()
        with torch.inference_mode():
            comparisons = torch.from_numpy(self._comparisons(history, [len(history) - 1])[0])
            weight = torch.softmax(self.module_(comparisons).squeeze(-1).double(), dim=0).numpy()
        predicted: FloatArray = np.tensordot(weight, history[1:], axes=1)
        return predicted

    def learned(self) -> dict[str, Any]:
        """Return the weights of the network, float32."""
        return {name: value.tolist() for name, value in self.module_.state_dict().items()}

    def restore(self, learned: Mapping[str, Any]) -> None:
        torch = _import_torch()
        self.module_ = self._untrained(torch)
        with torch.no_grad():
            for name, value in self.module_.state_dict().items():
                given = finite_array(learned[name], tuple(value.shape))
                if np.any(np.abs(given) > np.finfo(np.float32).max):
                    raise ValueError(f"a weight in {name} beyond float32")
                value.copy_(torch.from_numpy(given))

    def _untrained(self, torch: Any) -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(self.window + 1, self.width), torch.nn.Tanh(), torch.nn.Linear(self.width, 1)
        )

    def _comparisons(self, past: FloatArray, times: Any) -> Any:
        """Likeness of the window before each of `times` and before each earlier step, and its age.

        float32[times, steps - 1, window + 1]: column a is 2 <A, B> / (<A, A> + <B, B>) of the matrices a steps before
        the two times, in [0, 1], 1 where both are zero; the last one log(age).
        """
        flat = windows(past.reshape(len(past), -1), self.window)
        now, then = flat[list(times)], flat[:-1]
        products = np.einsum("twp,swp->tsw", now, then)
        squares = (now**2).sum(axis=2)[:, np.newaxis] + (then**2).sum(axis=2)[np.newaxis]
        alike = np.divide(2 * products, squares, out=np.ones_like(products), where=squares > 0)
        age = np.maximum(np.subtract.outer(np.array(times), np.arange(len(past) - 1)), 1)
        return np.concatenate([alike, np.log(age)[..., np.newaxis]], axis=2).astype(np.float32)


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ForetailError(f"neural demand predictors need the package torch: {install_command('nn')}") from None
    return torch
