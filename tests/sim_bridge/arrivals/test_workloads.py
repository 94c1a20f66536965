from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import (
    WORKLOADS,
    AllToAll,
    CompleteSharingLowerBound,
    DtLowerBound,
    FalseNegative,
    FollowLqdLowerBound,
    Incast,
    LqdLowerBound,
    OnOff,
    Permutation,
    PoissonBursts,
    Ring,
    Uniform,
    Workload,
    ZipfBursts,
    ZipfOnOff,
    even_assignment,
    fill,
    fill_slots,
)
from tests.examples import draws
from tests.refusals import refusing

OTHERS: list[Workload] = [
    PoissonBursts(load=0.8),
    PoissonBursts(load=2.0, burst_fraction=0.01),
    OnOff(load=0.5, mean_on_slots=2.0),
    Incast(load=0.8, background_load=1.0, fan_in=2, poisson=False),
    Permutation(load=1.0, change_slots=1),
    ZipfBursts(load=0.4, exponent=2.0, burst_fraction=0.3),
    ZipfOnOff(load=0.5, mean_on_slots=30.0, exponent=0.5),
    FalseNegative(count=3),
    AllToAll(leaves=3, flow_packets=2, balance="ecmp", start_spread_slots=7, gap_slots=5),
    Ring(channels=6, order="same", sources=3, start_spread_slots=3),
]
"""Send something in some thousand slots, as the contract demands."""
VARIANTS = [*(workload() for workload in WORKLOADS.values()), *OTHERS, OnOff(load=0.02, mean_on_slots=300.0)]
UNLIMITED: list[Workload] = [PoissonBursts(at_once=True), DtLowerBound(at_once=True), Ring(sources=9)]
any_workload = st.sampled_from(VARIANTS + UNLIMITED)


def packets(workload: Workload, ports: int, buffer: int, slots: int, seed: int = 0, **size: int) -> Slotted:
    return Slotted.joined(workload.batches(ports, buffer, slots, seed, **size))


def transmitted(policy: str, ports: int, buffer: int, arrivals: Slotted, **rules: Any) -> int:
    if policy == "opt":
        return int(late_qd(ports, buffer, arrivals.slot, arrivals.port)["transmitted"])
    run = slotted(policy, ports, buffer, arrivals.slot, arrivals.port, arrivals.prediction, **rules)
    return int(run["transmitted"])


@settings(max_examples=draws(150))
@given(
    workload=any_workload,
    ports=st.integers(4, 12),
    buffer=st.integers(16, 200),
    slots=st.integers(1, 600),
    seed=st.integers(0, 2**40),
    size=st.integers(1, 5000),
)
def test_the_packets_do_not_depend_on_the_batches(
    workload: Workload, ports: int, buffer: int, slots: int, seed: int, size: int
) -> None:
    once = list(workload.batches(ports, buffer, slots, seed))
    again = list(workload.batches(ports, buffer, slots, seed, batch_packets=size))
    sizes = [len(batch) for batch in again]
    assert sizes[:-1] == [size] * (len(again) - 1)
    assert all(0 < count <= size for count in sizes)
    assert bool(again) == bool(once)
    for column in ("slot", "port", "prediction") if once else ():
        joined = getattr(Slotted.joined(once), column)
        np.testing.assert_array_equal(getattr(Slotted.joined(again), column), joined)
        assert (joined is None) == (column == "prediction" and not isinstance(workload, FalseNegative))
    if once and workload not in UNLIMITED:
        assert np.bincount(Slotted.joined(once).slot).max() <= ports


@pytest.mark.parametrize("workload", VARIANTS + UNLIMITED, ids=repr)
def test_chunks_join_without_a_seam(workload: Workload) -> None:
    """Some hundred thousand packets are several chunks: nothing is lost, doubled or out of order between them."""
    arrivals = packets(workload, 6, 40, 40_000, 3)
    assert np.all(np.diff(arrivals.slot) >= 0)
    if workload not in UNLIMITED:
        assert np.bincount(arrivals.slot).max() <= 6
    busy = np.bincount(arrivals.slot, minlength=40_000).reshape(4, -1).sum(axis=1)
    assert busy.min() > 0.3 * busy.max()


@pytest.mark.parametrize(
    ("workload", "load", "tolerance"),
    [  # tolerances: four standard deviations, roughly
        (PoissonBursts(load=0.5), 0.5, 0.03),
        (PoissonBursts(load=0.9, burst_fraction=0.1), 0.9, 0.015),
        (PoissonBursts(load=1.2, at_once=True), 1.2, 0.05),
        (PoissonBursts(load=3.0), 1.0, 0.0005),
        (OnOff(load=0.6), 0.6, 0.01),
        (OnOff(load=0.1, mean_on_slots=200.0), 0.1, 0.02),
        (OnOff(load=0.5, mean_on_slots=2.0), 0.5, 0.004),
        (Incast(load=0.1, background_load=0.0), 0.1, 0.01),
        (Incast(load=0.1, background_load=0.0, poisson=False), 0.1, 0.001),
        (Incast(load=0.2, background_load=0.5, fan_in=5, poisson=False), 0.5 + 0.2 / 2, 0.01),
        (Permutation(load=0.7), 0.7, 0.002),
        (Uniform(load=0.3), 0.3, 0.002),
        (ZipfBursts(load=0.5, burst_fraction=0.1, exponent=0.0), 0.5, 0.015),
        (ZipfOnOff(load=0.6, exponent=0.0), 0.6, 0.01),
    ],
    ids=repr,
)
def test_the_mean_load_is_the_one_asked_for(workload: Workload, load: float, tolerance: float) -> None:
    ports, slots = 10, 100_000
    arrivals = packets(workload, ports, 100, slots, seed=5)
    assert len(arrivals) / (slots * ports) == pytest.approx(load, abs=tolerance)
    per_port = np.bincount(arrivals.port, minlength=ports) / slots
    np.testing.assert_allclose(per_port, load, atol=4 * tolerance * math.sqrt(ports / 2) + 0.12 * load)


@given(seed=st.integers(0, 1000), load=st.sampled_from((0.1, 0.8, 1.5)), buffer=st.integers(1, 40))
def test_a_burst_comes_as_fast_as_the_model_allows(seed: int, load: float, buffer: int) -> None:
    ports = 4
    late = packets(PoissonBursts(load=load), ports, buffer, 10_000, seed)
    at_once = packets(PoissonBursts(load=load, at_once=True), ports, buffer, 10_000, seed)
    np.testing.assert_array_equal(late.port, at_once.port[: len(late)])
    left: list[int] = []  # slots of a queue that N packets leave in every slot
    for slot in at_once.slot[:400].tolist():
        left.append(max(slot, left[-ports] + 1 if len(left) >= ports else 0, *left[-1:], 0))
    assert late.slot[: len(left)].tolist() == left[: len(late)]


def test_bursts_are_poisson() -> None:
    arrivals = packets(PoissonBursts(load=0.5, at_once=True), 10, 100, 200_000, seed=1)
    starts = arrivals.slot[::100]
    assert np.all(arrivals.slot.reshape(-1, 100) == starts[:, None])
    assert np.all(arrivals.port.reshape(-1, 100) == arrivals.port[::100, None])
    in_window = np.bincount(starts // 200, minlength=1000)  # ten expected
    assert in_window.mean() == pytest.approx(10, abs=0.4)
    assert in_window.var() == pytest.approx(10, abs=2)


def test_false_predictions_cost_credence_what_the_paper_s_figure_14_says() -> None:
    ports, buffer = 20, 500
    arrivals = packets(PoissonBursts(), ports, buffer, 100_000, seed=1)
    label = slotted("lqd", ports, buffer, arrivals.slot, arrivals.port)["lqd_drop"]
    lqd = len(label) - int(label.sum())
    draw = np.random.default_rng(0).random(len(label))

    def ratio(false_predictions: float) -> float:
        prediction = (label ^ (draw < false_predictions)).astype(np.uint8)
        flipped = Slotted(arrivals.slot, arrivals.port, prediction)
        return lqd / transmitted("credence", ports, buffer, flipped)

    ratios = [ratio(share) for share in (0, 0.1, 0.3, 0.5, 0.7, 1)]
    assert ratios[0] == 1
    assert ratios == sorted(ratios)
    assert ratios[4] < lqd / transmitted("dt", ports, buffer, arrivals)
    assert ratios[5] == pytest.approx(2.9, abs=0.3)


def test_on_times_are_geometric_and_keep_their_port() -> None:
    """A single source: runs of consecutive slots are on-times, as long as asked for, each of a single port."""
    arrivals = packets(OnOff(load=0.3, mean_on_slots=12.0), 1, 1, 300_000, seed=2)
    runs = np.diff(np.flatnonzero(np.diff(arrivals.slot, prepend=-2) > 1))
    assert runs.mean() == pytest.approx(12, abs=0.6)
    assert runs.std() == pytest.approx(math.sqrt(12 * 11), rel=0.05)
    assert (runs == 1).mean() == pytest.approx(1 / 12, abs=0.012)

    many = packets(OnOff(load=0.05, mean_on_slots=500.0), 8, 1, 100_000, seed=2)
    alone = np.bincount(many.slot, minlength=100_000)[many.slot] == 1
    same = many.port[1:] == many.port[:-1]
    follows = alone[1:] & alone[:-1] & (np.diff(many.slot) == 1)
    assert same[follows].mean() > 0.98


@pytest.mark.parametrize(
    "workload", [ZipfBursts(load=0.5, burst_fraction=0.01, exponent=1.5), ZipfOnOff(load=0.5, exponent=1.5)], ids=repr
)
def test_ports_follow_zipf(workload: Workload) -> None:
    arrivals = packets(workload, 5, 100, 200_000, seed=3)
    weights = np.array([port**-1.5 for port in range(1, 6)])
    np.testing.assert_allclose(np.bincount(arrivals.port) / len(arrivals), weights / weights.sum(), rtol=0.1)


def test_an_incast_is_complete_and_synchronised() -> None:
    arrivals = packets(Incast(load=0.05, background_load=0.0, burst_fraction=0.5, fan_in=3), 8, 100, 50_000, seed=4)
    counts = np.bincount(arrivals.slot)
    assert set(counts.tolist()) == {0, 3}
    busy = np.unique(arrivals.slot)
    bursts = arrivals.port[: len(arrivals) // 51 * 51].reshape(-1, 51)  # 17 slots of 3 packets
    assert np.all(bursts == bursts[:, :1])
    first = busy[: len(busy) // 17 * 17].reshape(-1, 17)
    assert np.all(first[:, -1] - first[:, 0] == 16)


@given(flows=st.integers(1, 200), uplinks=st.integers(1, 64))
def test_every_uplink_gets_the_same_load(flows: int, uplinks: int) -> None:
    flow, uplink, parts = (column.tolist() for column in even_assignment(flows, uplinks))
    load = [Fraction(0)] * uplinks
    whole = [0] * uplinks
    sent = [Fraction(0)] * flows
    for f, u, p in zip(flow, uplink, parts, strict=True):
        load[u] += Fraction(1, p)
        sent[f] += Fraction(1, p)
        whole[u] += p == 1
    assert set(load) == {Fraction(flows, uplinks)}
    assert set(sent) == {Fraction(1)}
    remaining = flows % uplinks
    common = math.gcd(remaining, uplinks)
    assert len(flow) - flows == remaining * (uplinks - common) // common
    assert set(parts) <= {1, uplinks // common}
    if uplinks > 1:
        assert set(whole) == {flows // uplinks}


@pytest.mark.parametrize("order", ["random", "same"])
@pytest.mark.parametrize("spread", [0, 20])
@pytest.mark.parametrize("workload", [AllToAll, Ring])
@pytest.mark.parametrize("ports", [4, 6])
def test_a_step_loads_the_uplinks_evenly(workload: type[AllToAll | Ring], ports: int, order: str, spread: int) -> None:
    """Sources of 4 racks with 5 servers each; flows of 12 packets can be split into 2, 3, 4 and 6 parts."""
    kind = workload(flow_packets=12, sources=5, order=order, start_spread_slots=spread)
    if isinstance(kind, AllToAll):
        kind = AllToAll(flow_packets=12, sources=5, order=order, start_spread_slots=spread, leaves=4)
    length = 12 * sum(kind.flows(5))
    arrivals = packets(kind, ports, 10, length + spread)
    assert len(arrivals) == 5 * length
    assert len(set(np.bincount(arrivals.port, minlength=ports).tolist())) == 1
    assert np.bincount(arrivals.slot).max() <= 5
    two = packets(kind, ports, 10, 2 * (length + spread))
    assert len(two) == 10 * length
    assert len(set(np.bincount(two.port, minlength=ports).tolist())) == 1


def rates(workload: Workload, ports: int, buffer: int, first: int, period: int, *policies: str) -> list[Fraction]:
    """Packets per slot that each policy transmits in ten periods after the first slots."""
    short, long = (packets(workload, ports, buffer, slots) for slots in (first, first + 10 * period))
    return [
        Fraction(
            transmitted(p, ports, buffer, long) - transmitted(p, ports, buffer, short),
            10 * period,
        )
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


def test_dt_s_ratio_grows_with_the_ports_when_bursts_come_at_once() -> None:
    ratios = []
    for ports, buffer in ((4, 80), (16, 320), (64, 1280), (144, 2880)):
        hot = math.isqrt(ports)
        period = (buffer - hot) // (ports - hot)
        dt, opt = rates(DtLowerBound(at_once=True), ports, buffer, 10 * period, period, "dt", "opt")
        assert opt == ports
        ratios.append(float(opt / dt))
        assert ratios[-1] == pytest.approx(ports / (hot + (ports - hot) / (1 + hot / 2)), rel=0.2)
    assert ratios == sorted(ratios)
    assert ratios[-1] > 4


def workload(kind: str, **parameters: Any) -> Workload:
    return WORKLOADS[kind](**parameters)


test_what_cannot_be_is_refused = refusing(
    (lambda: workload("poisson_bursts", load=0.0), "is out of range: it must be a number, above 0"),
    (lambda: workload("poisson_bursts", load=math.inf), "load = inf is not a finite number"),
    (lambda: workload("poisson_bursts", burst_fraction=-1.0), "burst_fraction"),
    (lambda: workload("on_off", load=1.0), "below 1"),
    (lambda: workload("on_off", load=0.9, mean_on_slots=5.0), r"at least 1 / \(1 - load\) = 10"),
    (lambda: workload("incast", background_load=1.5), "background_load = 1.5 is out of range"),
    (lambda: workload("incast", fan_in=0), "fan_in = 0 is out of range: it must be a whole number, at least 1"),
    (lambda: workload("permutation", load=1.1), "at most 1"),
    (lambda: workload("permutation", change_slots=0), "change_slots"),
    (lambda: workload("uniform", load=math.nan), "load"),
    (lambda: workload("false_negative", count=0), "count"),
    (lambda: workload("all_to_all", leaves=1), "leaves"),
    (lambda: workload("all_to_all", balance="spray"), "balance = spray is unknown: choose from ethereal, ecmp"),
    (lambda: workload("zipf_bursts", exponent=-0.1), "exponent = -0.1 is out of range"),
    (lambda: workload("zipf_bursts", load=0.0), "is out of range: it must be a number, above 0"),
    (lambda: workload("zipf_on_off", exponent=math.inf), "exponent = inf is not a finite number"),
    (lambda: workload("ring", order="none"), "order = none is unknown: choose from random, same"),
    (lambda: workload("ring", channels=0), "channels"),
    (lambda: workload("ring", flow_packets=0), "flow_packets"),
    # at the call, before the first batch
    (lambda: Uniform().batches(0, 1, 1, 0), "ports"),
    (lambda: Uniform().batches(1, 0, 1, 0), "buffer"),
    (lambda: Uniform().batches(1, 1, 0, 0), "slots"),
    (lambda: Uniform().batches(1, 1, 1, -1), "seed"),
    (lambda: Incast(fan_in=5).batches(4, 1, 1, 0), "at most the number of ports, 4"),
    (lambda: CompleteSharingLowerBound().batches(1, 1, 1, 0), "ports = 1 is out of range: it must be at least 2"),
    (lambda: FollowLqdLowerBound().batches(4, 3, 1, 0), "at least one packet per port"),
    (lambda: LqdLowerBound().batches(3, 30, 1, 0), "at least 4"),
    (lambda: FalseNegative(4).batches(4, 30, 1, 0), "below the number of ports"),
)
