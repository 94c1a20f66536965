"""Sequences on which a policy loses against the optimum what its lower bound says. Costs some seconds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.workloads import (
    CompleteSharingLowerBound,
    DtLowerBound,
    FalseNegative,
    FollowLqdLowerBound,
    LqdLowerBound,
    Workload,
    fill,
    fill_slots,
)
from tests.sim_bridge.arrivals.test_workloads import packets, transmitted
from tests.sim_bridge.slow_models.offline_optimum import offline_optimum


def rates(workload: Workload, ports: int, buffer: int, first: int, period: int, *policies: str) -> list[Fraction]:
    """Packets per slot that each policy transmits in ten periods after the first slots."""
    short, long = (packets(workload, ports, buffer, slots) for slots in (first, first + 10 * period))
    return [
        Fraction(transmitted(p, ports, buffer, long) - transmitted(p, ports, buffer, short), 10 * period)
        for p in policies
    ]


@given(ports=st.integers(2, 20), length=st.integers(1, 300))
def test_filling_ends_at_just_the_length(ports: int, length: int) -> None:
    slots = fill(ports, length)
    assert slots[-1] == fill_slots(ports, length) - 1
    left = 0
    for slot in range(fill_slots(ports, length)):
        left = max(left - 1, 0) + int(np.count_nonzero(slots == slot))
        assert left <= length
    assert left == length


@pytest.mark.parametrize(("ports", "buffer"), [(2, 2), (2, 9), (4, 6), (8, 64), (16, 320)])
@pytest.mark.parametrize("periods", [1, 2, 50])
def test_followlqd_sends_2_packets_where_opt_sends_n_plus_1(ports: int, buffer: int, periods: int) -> None:
    slots = fill_slots(ports, buffer)
    empty = packets(FollowLqdLowerBound(), ports, buffer, slots)
    arrivals = packets(FollowLqdLowerBound(), ports, buffer, slots + 2 * periods)
    sent = {p: transmitted(p, ports, buffer, arrivals) for p in ("followlqd", "lqd", "opt")}
    start = buffer + slots - 1  # the filling, all of which everybody transmits
    assert {transmitted(p, ports, buffer, empty) for p in sent} == {start}
    assert sent == {
        "followlqd": start + 2 * periods,
        "lqd": start + (ports + 1) * periods,
        "opt": start + (ports + 1) * periods,
    }


def test_the_integer_program_agrees_on_followlqd_s_lower_bound() -> None:
    arrivals = packets(FollowLqdLowerBound(), 4, 9, fill_slots(4, 9) + 2 * 6)
    assert offline_optimum(4, 9, arrivals.slot, arrivals.port).transmitted == 9 + fill_slots(4, 9) - 1 + 5 * 6


@pytest.mark.parametrize(("ports", "buffer"), [(2, 2), (4, 6), (8, 64), (16, 320)])
def test_complete_sharing_sends_1_packet_where_opt_sends_n(ports: int, buffer: int) -> None:
    first = fill_slots(ports, buffer) + 1  # the slot in which LQD and OPT lose the packets that take up room
    assert rates(CompleteSharingLowerBound(), ports, buffer, first, 1, "cs", "opt", "lqd") == [1, ports, ports]


@pytest.mark.parametrize("ports", [2, 4, 8, 16])
def test_one_false_negative_costs_a_packet_in_every_slot_for_ever(ports: int) -> None:
    buffer, slots = 5 * ports, 400
    arrivals = packets(FalseNegative(), ports, buffer, slots)
    assert arrivals.prediction is not None
    lqd = slotted("lqd", ports, buffer, arrivals.slot, arrivals.port)
    wrong = lqd["lqd_drop"] != arrivals.prediction
    assert (int(wrong.sum()), int(arrivals.prediction.sum())) == (1, 0)
    assert lqd["transmitted"] == transmitted("opt", ports, buffer, arrivals) == len(arrivals) - 1
    steady = slots - fill_slots(ports, buffer)
    assert transmitted("cs", ports, buffer, arrivals) == len(arrivals) - steady
    assert transmitted("credence", ports, buffer, arrivals) >= len(arrivals) - 3


@pytest.mark.parametrize(
    ("ports", "buffer", "least"), [(4, 80, 1.19), (8, 160, 1.25), (16, 320, 1.29), (16, 1600, 1.32), (64, 12_800, 1.36)]
)
def test_lqd_loses_what_its_lower_bound_says(ports: int, buffer: int, least: float) -> None:
    cold = ports - ports // 2
    turn = (buffer - ports) // (cold * (cold - 1) // 2)
    filling = -(-buffer // cold) + 1
    period = cold * turn
    settled = filling + period * (4 * buffer // period + 1)
    lqd, opt = rates(LqdLowerBound(), ports, buffer, settled, period, "lqd", "opt")
    assert opt == ports
    assert least < opt / lqd < math.sqrt(2)


@pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0])
@pytest.mark.parametrize(("ports", "buffer"), [(4, 80), (8, 160), (16, 320)])
def test_dt_keeps_buffer_free_that_a_single_burst_could_use(ports: int, buffer: int, alpha: float) -> None:
    slots = fill_slots(ports, buffer)
    period = buffer + slots - 1
    arrivals = packets(DtLowerBound(), ports, buffer, 3 * period)
    assert transmitted("opt", ports, buffer, arrivals) == len(arrivals) == 3 * period
    # accepted while q < alpha (B - q); a packet leaves in each slot of the filling but the last
    kept = math.ceil(alpha * buffer / (1 + alpha) - 1e-9)
    assert transmitted("dt", ports, buffer, arrivals, alpha=[alpha]) == 3 * (kept + slots - 1)
