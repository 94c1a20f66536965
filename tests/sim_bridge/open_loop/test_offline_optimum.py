"""OPT three ways: an integer program, LateQD written for reading, and LateQD of the native core."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.sim_bridge._native import late_qd, slotted
from tests.examples import draws
from tests.sim_bridge.slow_models.offline_optimum import offline_optimum
from tests.sim_bridge.slow_models.slotted import parse
from tests.strategies import SlottedArrivals, slotted_arrivals


def runs_empty(length: int, now: int, future: Sequence[int]) -> int:
    """Return in which slot a queue of `length` packets runs empty that accepts all packets of slots `future`."""
    slot = now
    while True:
        length += future.count(slot)
        length -= min(length, 1)
        if length == 0:
            return slot
        slot += 1
        future = [arrival for arrival in future if arrival >= slot]


def slow_late_qd(ports: int, buffer: int, slots: Sequence[int], port_of: Sequence[int]) -> tuple[int, list[int]]:
    """Return the packets transmitted and who was dropped; victims are tails."""
    queues: list[list[int]] = [[] for _ in range(ports)]
    drop = [0] * len(slots)
    now = 0
    for packet, (slot, port) in enumerate(zip(slots, port_of, strict=True)):
        for _ in range(slot - now):
            for queue in queues:
                del queue[:1]
        now = slot
        queues[port].append(packet)
        if sum(map(len, queues)) > buffer:
            later = range(packet + 1, len(slots))
            ends = [
                runs_empty(len(queue), now, [slots[k] for k in later if port_of[k] == number]) if queue else -1
                for number, queue in enumerate(queues)
            ]
            drop[queues[ends.index(max(ends))].pop()] = 1
    return len(slots) - sum(drop), drop


def replayed(ports: int, buffer: int, slot: Sequence[int], accepted_ports: Sequence[int]) -> int:
    """Transmit what somebody accepted, refusing to overflow; return how many packets that were."""
    outcome = slotted("cs", ports, buffer, np.asarray(slot, np.int64), np.asarray(accepted_ports, np.int32))
    assert not np.any(outcome["outcome"])
    return int(outcome["transmitted"])


def native(case: SlottedArrivals) -> tuple[int, list[int]]:
    late = late_qd(case.ports, case.buffer, np.asarray(case.slot, np.int64), np.asarray(case.port, np.int32))
    return late["transmitted"], late["drop"].tolist()


@st.composite
def small_arrivals(draw: st.DrawFn) -> SlottedArrivals:
    """At most 4 ports, a buffer of 6, 12 slots with arrivals and some gaps, often more than N packets a slot."""
    ports, buffer = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    slot: list[int] = []
    port: list[int] = []
    now = 0
    for arrivals in draw(st.lists(st.lists(st.integers(0, ports - 1), max_size=2 * ports + 2), max_size=12)):
        slot += [now] * len(arrivals)
        port += arrivals
        now += draw(st.sampled_from((1, 1, 1, 1, 2, 5)))
    return SlottedArrivals(ports, buffer, slot, port)


@settings(max_examples=draws(200))
@given(case=small_arrivals())
def test_late_qd_is_optimal(case: SlottedArrivals) -> None:
    optimum = offline_optimum(*case).transmitted
    slow, _ = slow_late_qd(*case)
    fast, drop = native(case)
    assert slow == fast == optimum
    kept = [k for k, dropped in enumerate(drop) if not dropped]
    assert replayed(case.ports, case.buffer, [case.slot[k] for k in kept], [case.port[k] for k in kept]) == optimum


@settings(max_examples=draws(50))
@given(case=slotted_arrivals(max_ports=5, max_buffer=12))
def test_native_late_qd_is_the_slow_one(case: SlottedArrivals) -> None:
    slow, _ = slow_late_qd(*case)
    fast, drop = native(case)
    assert fast == slow == len(drop) - sum(drop)


@settings(max_examples=draws(50))
@given(case=small_arrivals())
def test_the_optimum_can_be_carried_out(case: SlottedArrivals) -> None:
    optimum = offline_optimum(*case)
    assert optimum.slot.tolist() == sorted(set(case.slot))
    assert optimum.accepted.shape == (len(optimum.slot), case.ports)
    step, port = np.nonzero(optimum.accepted)
    times = optimum.accepted[step, port]
    offered = [
        [sum((s, p) == (slot, other) for s, p in zip(case.slot, case.port, strict=True)) for other in range(case.ports)]
        for slot in optimum.slot.tolist()
    ]
    assert np.all(optimum.accepted <= np.reshape(offered, optimum.accepted.shape))
    sent = replayed(
        case.ports, case.buffer, np.repeat(optimum.slot[step], times).tolist(), np.repeat(port, times).tolist()
    )
    assert sent == optimum.transmitted


def test_of_two_equal_queues_the_one_that_would_last_loses() -> None:
    """Port 1 gets another packet in slot 1 and would run empty in slot 2, port 0 in slot 1, before it gets three."""
    slot, port = parse("[0011][1][000]")
    assert offline_optimum(2, 3, slot, port).transmitted == 7
    assert slow_late_qd(2, 3, slot, port) == (7, [0, 0, 0, 1, 0, 0, 0, 0])
    lqd = slotted("lqd", 2, 3, np.asarray(slot, np.int64), np.asarray(port, np.int32))
    assert (lqd["transmitted"], lqd["lqd_drop"].tolist()[:4]) == (6, [0, 1, 0, 0])
