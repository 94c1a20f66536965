"""Predictors of every kind as they decide in a simulated switch: trees, networks, functions in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature, training_columns
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import NobodyDecides, asking_policy, decides_in_replay, scorer_of
from foretail.pipelines.exporting.network import NetworkExport, NetworkInC, predictor_to_store
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge._native import function_scorer
from foretail.sim_bridge.open_loop.live import CheckedPredictor
from foretail.sim_bridge.open_loop.scores import Decider
from foretail.sim_bridge.python_policies import PythonPolicy

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


class FunctionPredictor:
    """A function in Python, a PyTorch module or an estimator that decides in this process, packet by packet."""

    def __init__(self, predictor: Any, features: Sequence[str], threshold: float | None = None) -> None:
        names = training_columns(features, own_queues=True)
        self.features = tuple(FeatureInput(name, "", feature(name).bits) for name in names)
        self._ask = CheckedPredictor(predictor, threshold)

    @classmethod
    def of_file(cls, policy: PythonPolicy) -> FunctionPredictor:
        """Return the function of a file."""
        return cls(policy.decide, policy.features)

    def exceeds(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether each row of integers [rows, features] is predicted to drop: bool[rows]."""
        return self._ask(np.ascontiguousarray(x, np.int32))

    def probability(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return 1 for each row that is predicted to drop, else 0: float64[rows]."""
        return self.exceeds(x).astype(np.float64)


AskedModel: TypeAlias = "Ensemble | NetworkInC | Network | FunctionPredictor"
"""A predictor as it decides: trees, the C of a network, the graph of a network that cannot be C, or a function."""


def asked_model(model: Ensemble | Network, store: Store) -> Ensemble | NetworkInC | Network:
    """Return a predictor as it decides; the C of a network is in the store, or made now."""
    if isinstance(model, Ensemble):
        return model
    try:
        exported = predictor_to_store(model, store)
    except ForetailError:
        return model
    assert isinstance(exported, NetworkExport)
    return NetworkInC(model, exported)


def decider_of(predictor: AskedModel, policy: str | None = None) -> Decider:
    """Return a predictor as it decides in a replay, under `policy` or the one for which it was made.

    A function decides by itself unless `policy` says otherwise. NobodyDecides when a predictor cannot decide in a
    replay, and its answers would change what it reads.
    """
    policy = policy or ("learned" if isinstance(predictor, FunctionPredictor) else asking_policy(predictor))
    if not decides_in_replay(predictor.features):
        return Decider(policy)
    if isinstance(predictor, Ensemble):
        return Decider(policy, scorer_of(predictor))
    if isinstance(predictor, NetworkInC):
        return Decider(policy, predictor.scorer())
    return Decider(
        policy, function_scorer([item.name for item in predictor.features], lambda row: predictor.exceeds(row)[0])
    )


def decider_if_any(model: Ensemble | Network, store: Store) -> Decider | None:
    """Return :func:`decider_of` a predictor; None, with a sentence at the end of the command, where nobody decides."""
    try:
        return decider_of(asked_model(model, store))
    except NobodyDecides as reason:
        say(str(reason))
        return None
