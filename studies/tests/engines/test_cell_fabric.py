"""Cells over circuits: the fabric against a slow model, flow by flow, and what must hold whatever the flows."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.sim_bridge.circuits.demand import permutation, skewed_uniform
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule, round_robin, vermilion
from foretail.sim_bridge.circuits.throughput import single_hop, valiant
from foretail_studies import _native
from foretail_studies.engines.cells import CellFabric, CellFlows, Routing, SlotTime, mean_size, poisson_flows
from tests.examples import draws


class SlowCells:
    """Runs `slots` slots; `completion` per flow, and cells `admitted`, `direct`, `first_hop`, `last_hop`."""

    def __init__(
        self, schedule: Schedule, flows: CellFlows, routing: Routing, relay_cells: int | None, seed: int, slots: int
    ) -> None:
        racks = range(schedule.nodes)
        self.source: list[int] = flows.source.tolist()
        self.destination: list[int] = flows.destination.tolist()
        self.unsent: list[int] = flows.size.tolist()
        self.undelivered = flows.size.tolist()
        self.completion = [-1] * len(flows)
        self.admitted = self.direct = self.first_hop = self.last_hop = 0
        self.own: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]  # flows, the next one first
        self.relay: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]  # a flow's number per cell
        self.spray: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]
        self.turn = [0 for _ in racks]
        self.bound = float("inf") if relay_cells is None else relay_cells
        random = np.random.MT19937()
        random._legacy_seeding(seed)  # as std::mt19937
        for self.now in range(slots):
            for flow in np.flatnonzero(flows.start == self.now).tolist():
                self.own[self.source[flow]][self.destination[flow]].append(flow)
                self.admitted += int(flows.size[flow])
            if routing == "valiant":
                for rack in racks:
                    for _ in range(schedule.degree):
                        wanted = self.in_turn(rack)
                        if wanted:
                            via = [other for other in racks if other != rack]
                            drawn = via[int(random.random_raw()) * len(via) // 2**32]
                            self.turn[rack] = wanted[0] + 1
                            self.spray[rack][drawn].append(self.take(rack, wanted[0]))
            self.accepted: list[tuple[int, int]] = []
            for rack in [*racks[self.now % len(racks) :], *racks[: self.now % len(racks)]]:
                for to in schedule.matchings[self.now % schedule.period, :, rack].tolist():
                    if to != IDLE:
                        self.send(rack, to, routing)
            for rack, flow in self.accepted:
                self.relay[rack][self.destination[flow]].append(flow)

    def send(self, rack: int, to: int, routing: Routing) -> None:
        if self.relay[rack][to]:
            self.last_hop += 1
            self.deliver(self.relay[rack][to].popleft())
        elif routing == "valiant":
            if self.spray[rack][to]:
                self.send_own(self.spray[rack][to].popleft(), to)
        elif self.own[rack][to]:
            self.send_own(self.take(rack, to), to)
        elif routing == "two_hop":
            for other in self.in_turn(rack):
                if self.waiting(to, other) < self.bound:
                    self.turn[rack] = other + 1
                    self.send_own(self.take(rack, other), to)
                    return

    def send_own(self, flow: int, to: int) -> None:
        if self.destination[flow] == to:
            self.direct += 1
            self.deliver(flow)
        else:
            self.first_hop += 1
            self.accepted.append((to, flow))

    def deliver(self, flow: int) -> None:
        self.undelivered[flow] -= 1
        if self.undelivered[flow] == 0:
            self.completion[flow] = self.now

    def take(self, rack: int, to: int) -> int:
        flow = self.own[rack][to].popleft()
        self.unsent[flow] -= 1
        if self.unsent[flow]:
            self.own[rack][to].append(flow)
        return flow

    def waiting(self, rack: int, to: int) -> int:
        own = sum(self.unsent[flow] for flow in self.own[rack][to])
        accepted = sum(1 for relay, flow in self.accepted if relay == rack and self.destination[flow] == to)
        return own + len(self.relay[rack][to]) + accepted

    def in_turn(self, rack: int) -> list[int]:
        """Destinations that `rack` has unsent cells for, from its turn on."""
        all_racks = range(len(self.own))
        start = self.turn[rack] % len(all_racks)
        return [to for to in [*all_racks[start:], *all_racks[:start]] if self.own[rack][to]]


ROUTINGS: tuple[Routing, ...] = ("direct", "two_hop", "valiant")


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw matchings with idle uplinks, parallel circuits and pairs that never meet."""
    nodes, degree, period = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    matchings = np.array([draw(st.permutations(range(nodes))) for _ in range(period * degree)], np.int32)
    matchings[matchings == np.arange(nodes)] = IDLE
    return Schedule(matchings.reshape(period, degree, nodes))


@st.composite
def flows_between(draw: st.DrawFn, nodes: int) -> CellFlows:
    """Draw bursts, pauses, short and long flows."""
    flow = st.tuples(st.integers(0, 30), st.integers(0, nodes - 1), st.integers(1, nodes - 1), st.integers(1, 12))
    drawn = sorted(draw(st.lists(flow, max_size=25)), key=lambda flow: flow[0])
    start, source, hop, size = np.array(drawn, np.int64).reshape(-1, 4).T
    return flows_of(start, source, (source + hop) % nodes, size)


def flows_of(start: object, source: object, destination: object, size: object) -> CellFlows:
    return CellFlows(
        np.array(start, np.int64), np.array(source, np.int32), np.array(destination, np.int32), np.array(size, np.int64)
    )


@pytest.mark.parametrize("routing", ROUTINGS)
@settings(max_examples=draws(150))
@given(data=st.data())
def test_every_flow_is_done_when_the_slow_model_says(routing: Routing, data: st.DataObject) -> None:
    schedule = data.draw(schedules())
    flows = data.draw(flows_between(schedule.nodes))
    bound = data.draw(st.sampled_from([None, 0, 1, 2, 5]))
    seed, slots = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(0, 90))
    stop = data.draw(st.integers(0, slots))
    fabric = CellFabric(schedule, flows, routing, bound, seed)
    half, counts = fabric.advance(stop), fabric.advance(slots)
    slow = SlowCells(schedule, flows, routing, bound, seed, slots)
    assert fabric.completion().tolist() == slow.completion
    assert (counts.admitted, counts.direct, counts.first_hop, counts.last_hop) == (
        slow.admitted,
        slow.direct,
        slow.first_hop,
        slow.last_hop,
    )
    up = (schedule.matchings != IDLE).sum(axis=(1, 2))
    assert counts.circuits == sum(int(up[slot % schedule.period]) for slot in range(slots))
    later = counts.since(half)
    assert later.slots == slots - stop
    assert later.direct + half.direct == counts.direct


@pytest.mark.parametrize("routing", ROUTINGS)
@settings(max_examples=draws(60))
@given(data=st.data())
def test_cells_are_conserved(routing: Routing, data: st.DataObject) -> None:
    """All racks meet, so all cells arrive in the end, each over one hop or two."""
    nodes = data.draw(st.integers(3, 9))
    schedule = round_robin(nodes, data.draw(st.integers(1, nodes - 1)))
    flows = data.draw(flows_between(nodes))
    fabric = CellFabric(schedule, flows, routing, data.draw(st.sampled_from([None, 0, 1])))
    early = fabric.advance(12)
    assert early.delivered <= early.admitted == flows.size[flows.start < 12].sum()
    assert 0 <= early.utilisation <= early.raw_utilisation <= 1
    end = fabric.advance(20_000)
    assert end.delivered == end.admitted == flows.size.sum()
    assert end.first_hop == end.last_hop
    assert routing != "direct" or end.first_hop == 0
    done = fabric.completion()
    assert np.all(done >= flows.start)
    assert np.all(done - flows.start + 1 >= np.ceil(flows.size / schedule.degree))


def test_a_flow_alone_on_a_permanent_matching_takes_its_cells() -> None:
    shift = Schedule(np.array([[[1, 2, 3, 0]]], np.int32))
    flows = flows_of([5, 5, 10**12], [0, 1, 2], [1, 2, 3], [7, 100, 3])
    for routing in ("direct", "two_hop"):
        fabric = CellFabric(shift, flows, routing)
        fabric.advance(10**12 + 100)
        assert (fabric.completion() - flows.start + 1).tolist() == [7, 100, 3]


@pytest.mark.parametrize("k", [3, 6])
def test_vermilion_carries_its_single_hop_throughput_and_no_more(k: int) -> None:
    """In whole periods exactly: theta of the demand of every pair is through, one cell more of some pair is not."""
    demand = skewed_uniform(8, 4, 0.7, seed=3)
    schedule = vermilion(demand, 4, k)
    slots = 200 * schedule.period
    theta = single_hop(demand, schedule.capacity)
    assert (k - 1) / k <= theta < 1
    source, destination = np.nonzero(demand.demand)
    size = np.floor(theta * demand.demand[source, destination] * slots + 1e-6).astype(np.int64)
    completions = []
    for more in (0, 1):
        fabric = CellFabric(schedule, flows_of(np.zeros_like(size), source, destination, size + more), "direct")
        assert fabric.advance(slots).utilisation <= 1
        completions.append(fabric.completion())
    assert completions[0].min() >= 0
    assert completions[1].min() == -1
    endless = np.full(len(size), 10**6)
    fabric = CellFabric(schedule, flows_of(np.zeros_like(endless), source, destination, endless), "direct")
    assert fabric.advance(slots).utilisation == 1  # every pair has demand, so no circuit is without


def test_saturated_round_robin_carries_half_of_a_permutation_over_two_hops() -> None:
    """The most is n / (2 n - 2): of n - 1 circuits one is direct, the others need a second."""
    nodes, slots = 16, 3_000
    demand = permutation(nodes, 4, seed=2)
    schedule = round_robin(nodes, 4)
    source, destination = np.nonzero(demand.demand)
    size = np.full(nodes, 10**6)
    flows = flows_of(np.zeros_like(size), source, destination, size)
    found = {}
    for routing in ROUTINGS:
        fabric = CellFabric(schedule, flows, routing, relay_cells=1 if routing == "two_hop" else None)
        warm = fabric.advance(slots // 3)
        found[routing] = fabric.advance(slots).since(warm)
    assert found["direct"].utilisation == pytest.approx(1 / (nodes - 1), abs=1e-3)  # whole periods but for one
    theta = valiant(demand, schedule.capacity)
    assert theta == pytest.approx(nodes / (2 * nodes - 2))
    for routing in ("two_hop", "valiant"):  # the rest are relays that wait for a cell
        assert 0.97 * theta < found[routing].utilisation < theta


def test_a_relay_refuses_what_is_beyond_its_bound() -> None:
    """0 and 1 meet in slot 0, 1 and 2 never: only an unbounded rack 1 takes all that 0 has for 2."""
    schedule = Schedule(np.array([[[1, 0, -1]], [[2, -1, 0]]], np.int32))
    for bound, taken in ((0, 0), (3, 3), (None, 50)):
        fabric = CellFabric(schedule, flows_of([0], [0], [2], [1000]), "two_hop", bound)
        assert fabric.advance(100).first_hop == taken


def test_poisson_flows_bring_the_load_and_the_sizes_of_the_distribution() -> None:
    demand, time = permutation(16, 4, seed=1), SlotTime(25_000_000_000, 4_500, 500)
    assert time.cell_bytes == 14_062.5
    assert time.duty_cycle == 0.9
    size_bytes, cumulative = [0, 2_000, 10_000, 1_000_000], [0.0, 0.0, 0.5, 1.0]
    slots = 50_000
    flows, sizes = poisson_flows(demand, 0.4, slots, time, size_bytes, cumulative, seed=3)
    mean = mean_size(size_bytes, cumulative)
    assert mean == 0.5 * 6_000 + 0.5 * 505_000
    expected = 0.4 * 16 * 4 * 25e9 / 8 * slots * time.slot_ns / 1e9 / mean
    assert len(flows) == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert sizes.mean() == pytest.approx(mean, rel=0.05)
    assert np.mean(sizes <= 10_000) == pytest.approx(0.5, abs=0.02)
    assert sizes.min() >= 2_000
    assert np.array_equal(flows.size, -(-2 * sizes // 28_125))
    assert flows.start.max() < slots
    assert np.array_equal(flows.destination, np.argmax(demand.demand[flows.source], axis=1))
    again, _ = poisson_flows(demand, 0.4, slots, time, size_bytes, cumulative, seed=3)
    assert np.array_equal(again.start, flows.start)
    with pytest.raises(ForetailError, match="no flow arrives"):
        poisson_flows(demand, 0.0, slots, time, size_bytes, cumulative, seed=3)


@pytest.mark.parametrize(
    ("flows", "complaint"),
    [
        (([0, 0], [0], [1], [1]), "differ in length"),
        (([3, 2], [0, 0], [1, 1], [1, 1]), "flow 1 starts before the one before it"),
        (([-1], [0], [1], [1]), "flow 0 starts before"),
        (([0], [0], [0], [1]), "flow 0 stays in its rack"),
        (([0], [0], [1], [0]), "flow 0 has no cell"),
        (([0], [-1], [1], [1]), "flow 0 is from or to no rack"),
        (([0], [0], [4], [1]), "a flow is from or to a rack outside"),
    ],
)
def test_wrong_flows_get_one_sentence(flows: tuple[list[int], ...], complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        CellFabric(round_robin(4, 1), flows_of(*flows), "direct")


def test_the_native_fabric_trusts_nobody() -> None:
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int32)

    def made(start: object = one, source: object = zero, destination: object = zero + 1, size: object = one) -> None:
        native: Any = _native.CellFabric
        native(round_robin(4, 1).matchings, start, source, destination, size, routing="direct", relay_cells=1, seed=1)

    made()
    for wrong, complaint in (
        ({"start": -one}, "start is -1"),
        ({"size": 0 * one}, "size is 0"),
        ({"source": zero + 4}, "source is 4"),
        ({"destination": zero}, "stays in its rack"),
        ({"size": np.ones(2, np.int64)}, "differ in length"),
    ):
        with pytest.raises(ValueError, match=complaint):
            made(**wrong)
    matchings = round_robin(4, 1).matchings.copy()
    with pytest.raises(ValueError, match="unknown routing 'hot_potato': choose one of direct, two_hop, valiant"):
        _native.CellFabric(matchings, one, zero, zero + 1, one, routing="hot_potato", relay_cells=1, seed=1)
    matchings[0, 0, 0] = 4
    with pytest.raises(ValueError, match="node is 4, outside -1 to 3"):
        _native.CellFabric(matchings, one, zero, zero + 1, one, routing="direct", relay_cells=1, seed=1)
