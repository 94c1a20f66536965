"""The contract of workloads: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, Uniform, Workload
from foretail.testing import check_workload


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_keep_the_contract(name: str) -> None:
    check_workload(WORKLOADS[name])


@dataclass(frozen=True)
class _OfItsOwn(Uniform):
    def changed(self, chunk: Slotted) -> Slotted:
        return chunk

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        for chunk in super().chunks(ports, buffer, slots, draw):
            yield self.changed(chunk)


class _Backwards(_OfItsOwn):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot[::-1].copy(), chunk.port)


class _FarPorts(_OfItsOwn):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot, chunk.port + np.int32(1))


class _WideSlots(_OfItsOwn):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot.astype(np.int32), chunk.port)


class _ForgetsItsSeed(_OfItsOwn):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot, np.random.default_rng().permutation(chunk.port))


class _LooksAtTheEnd(_OfItsOwn):
    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        draw.random(slots)
        yield from super().chunks(ports, buffer, slots, draw)


class _Crashes(_OfItsOwn):
    def changed(self, chunk: Slotted) -> Slotted:
        raise ZeroDivisionError("no load")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_Backwards, "slots must never decrease"),
        (_FarPorts, r"port must be in \[0, 4\)"),
        (_WideSlots, "slot must be int64, not int32"),
        (_ForgetsItsSeed, "the same seed must give the same packets"),
        (_LooksAtTheEnd, "a longer run of a seed must begin with the shorter one"),
        (_Crashes, "chunks must give packets.*_Crashes fails in chunks: ZeroDivisionError: no load"),
    ],
)
def test_the_contract_catches_workloads_that_break_it(broken: type[Workload], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_workload(broken)
