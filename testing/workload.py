"""The contract of workloads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretail.models.drop.parameters_contract import holds, made_of
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Workload, joined

_SWITCHES = ((4, 40), (8, 160), (20, 1000))
_SLOTS, _LATER = 3000, 4000


def check_workload(workload: Workload | Callable[[], Workload]) -> None:
    """Run the contract of a :class:`foretail.sim_bridge.arrivals.workloads.Workload` on one, or on what makes one.

    AssertionError with the rule that does not hold.
    """
    made: Workload = made_of(workload, Workload, "a workload")  # type: ignore[type-abstract]
    for ports, buffer in _SWITCHES:
        for seed in (1, 2):
            with holds("chunks must give packets for any switch and seed"):
                once = _packets(made, ports, buffer, _SLOTS, seed)
                again = _packets(made, ports, buffer, _SLOTS, seed)
                longer = _packets(made, ports, buffer, _LATER, seed)
                small = list(made.batches(ports, buffer, _SLOTS, seed, batch_packets=77))
            assert once is not None, f"a workload must send a packet in {_SLOTS} slots"
            assert again is not None, "the same seed must give the same packets"
            assert _same(once, again), "the same seed must give the same packets"
            assert _same(once, joined(small)), "the packets must not depend on the size of the batches"
            assert once.slot.dtype == np.int64, "slot must be int64"
            assert once.port.dtype == np.int32, "port must be int32"
            assert np.all(np.diff(once.slot) >= 0), "slots must never decrease"
            assert once.slot[0] >= 0, "slots must begin at 0 or later"
            assert once.slot[-1] < _SLOTS, "no packet may come after the last slot"
            assert once.port.min() >= 0, "ports must be in [0, N)"
            assert once.port.max() < ports, "ports must be in [0, N)"
            assert longer is not None, "a longer run of a seed must begin with the shorter one"
            cut = int(np.searchsorted(longer.slot, _SLOTS))
            first = Slotted(longer.slot[:cut], longer.port[:cut])
            assert _same(once, first), "a longer run of a seed must begin with the shorter one"


def _packets(workload: Workload, ports: int, buffer: int, slots: int, seed: int) -> Slotted | None:
    batches = list(workload.batches(ports, buffer, slots, seed))
    return joined(batches) if batches else None


def _same(one: Slotted, other: Slotted) -> bool:
    return np.array_equal(one.slot, other.slot) and np.array_equal(one.port, other.port)
