"""The contract of schedulers: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.network import circuits
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules import SCHEDULERS, RoundRobin, Scheduler
from foretail.testing import check_scheduler


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_keep_the_contract(name: str) -> None:
    check_scheduler(SCHEDULERS[name])


def test_settings_know_our_own_names() -> None:
    assert tuple(SCHEDULERS) == circuits.SCHEDULERS


@dataclass(frozen=True)
class _OfItsOwn(RoundRobin):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> Any:
        return self.changed(super().matchings(demand, degree, seed).copy(), demand)


class _ToItself(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        found[0, 0, 0] = 0
        return found


class _Far(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found.astype(np.int64) + 2**32


class _NaN(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.where(found == 1, np.nan, found)


class _Narrow(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found[:, :1]


class _List(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found.tolist()


class _Empty(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found[:0]


class _ForgetsItsSeed(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.random.default_rng().permutation(np.repeat(found, 50, axis=0))


class _Idle(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.full_like(found, -1)


class _Writes(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        demand.demand.setflags(write=True)
        demand.demand[0] = 0
        return found


class _Crashes(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        raise ZeroDivisionError("no demand")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_ToItself, "_ToItself breaks a rule: a schedule sends .* from a node to itself"),
        (_Far, r"matchings must be -1 or in \[0, 4\), not \[4294967297\]"),
        (_NaN, "matchings must be whole numbers, not float64"),
        (_Narrow, r"matchings must have shape \(slots, 2, 4\), not \(3, 1, 4\)"),
        (_List, "matchings must give an array, not a list"),
        (_Empty, r"_Empty breaks a rule: a schedule has shape \(0, 2, 4\)"),
        (_ForgetsItsSeed, "the same seed must give the same schedule"),
        (_Idle, "a schedule must have a circuit"),
        (_Writes, "_Writes breaks a rule: matchings must not change the demand"),
        (_Crashes, "matchings must give a schedule .*_Crashes fails in matchings: ZeroDivisionError: no demand"),
    ],
)
def test_the_contract_catches_schedulers_that_break_it(broken: type[Scheduler], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_scheduler(broken)
