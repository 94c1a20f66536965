"""The C++ policies on unit packets against the slow model, packet by packet."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise, product
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.sim_bridge._native import SlottedRun as NativeRun
from foretail.sim_bridge._native import feature_names, slotted
from foretail.sim_bridge.policies import ASKING, KNOW_PRIORITIES, OF_ARRIVALS
from foretail.sim_bridge.policy_settings import NetworkParameters
from tests.examples import draws
from tests.sim_bridge.buffer.test_replay import begin, feed
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, Queues
from tests.sim_bridge.slow_models.features import NEVER, Averages, TrafficFeatures
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.sim_bridge.slow_models.slotted import (
    ACCEPTED,
    BUFFER_FULL,
    OVER_THRESHOLD,
    PUSHED_OUT,
    SlottedRun,
    run_slotted,
)
from tests.strategies import SlottedArrivals, schedulers, slotted_arrivals

COLUMNS = feature_names()
RULES = [
    Rules(*chosen)
    for chosen in product(("counted", "uncounted"), ("lowest_port", "highest_port"), ("tail", "tail_kept", "head"))
]
ORDERS = ("longest_queue", "lower_classes_first")
any_rules = st.sampled_from(RULES)
shift = st.integers(0, 10)
alphas = st.lists(st.sampled_from((0.1, 0.5, 1.0, 3.0)), min_size=2, max_size=3)


def run_native(
    policy: str,
    case: SlottedArrivals,
    predictions: list[int] | None = None,
    first_rtt: list[int] | None = None,
    priority: list[int] | None = None,
    rules: Rules = RULES[0],
    chosen: Settings = Settings(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> dict[str, Any]:
    columns = columns_of(case, predictions, first_rtt, priority)
    return slotted(
        policy, case.ports, case.buffer, *columns, **keywords(rules, chosen), seed=seed, features=True, cell_bytes=1024
    )


def columns_of(case: SlottedArrivals, *bits: list[int] | None) -> tuple[Any, ...]:
    optional = (None if values is None else np.array(values, np.uint8) for values in bits)
    return (np.array(case.slot, np.int64), np.array(case.port, np.int32), *optional)


def keywords(rules: Rules, chosen: Settings) -> dict[str, Any]:
    return vars(rules) | chosen.keywords("slots")


def assert_same(native: dict[str, Any], slow: SlottedRun) -> None:
    for column in ("outcome", "lqd_drop", "asked", "exposed"):
        np.testing.assert_array_equal(native[column], getattr(slow, column), column)
    for i, expected in enumerate(slow.features):
        assert native["features"][i].tolist() == expected, f"features of packet {i}"
    assert native["transmitted"] == slow.transmitted
    assert native["threshold_deficits"] == slow.threshold_deficits


@st.composite
def settings_for(draw: st.DrawFn, policy: str) -> Settings:
    """Draw parameters of all policies; several queues, with an alpha for each or one for all, where `policy` can."""
    queues = draw(st.integers(1, 3)) if policy in KNOW_PRIORITIES else 1
    scheduler, quanta = draw(schedulers(queues, (1, 2, 5)))
    alpha = draw(st.lists(st.sampled_from((1e-9, 0.1, 0.25, 0.5, 1.0, 3.0, 64.0)), min_size=queues, max_size=queues))
    return Settings(
        tuple(alpha if draw(st.booleans()) else alpha[:1]),
        draw(st.sampled_from((0.5, 2.0, 64.0))),
        draw(st.integers(1, 30)),
        average_shift=draw(st.integers(0, 10)),
        low_pass=draw(st.sampled_from((1, 2, 3, 10, 1024))),
        spare_bandwidth=draw(st.sampled_from((0.0, 0.1, 3.0))),
        bucket=draw(st.integers(0, 5)),
        spares_first_rtt=draw(st.integers(0, 1)),
        drop_budget=draw(st.sampled_from((0, 1, 3, 20))),
        answers_needed=draw(st.integers(1, 8)),
        priorities=queues,
        scheduler=scheduler,
        quanta=quanta,
    )


@settings(max_examples=draws(240))
@given(data=st.data(), case=slotted_arrivals(), rules=any_rules)
@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_a_policy_is_the_slow_model(policy: str, data: st.DataObject, case: SlottedArrivals, rules: Rules) -> None:
    """Under every scheduler and rule; thresholds and labels included."""
    chosen = data.draw(settings_for(policy))
    if chosen.priorities > 1:
        rules = replace(rules, order=data.draw(st.sampled_from(ORDERS)))
    predictions = data.draw(st.none() | bits_for(case)) if policy in ASKING else None
    first, priority = data.draw(st.none() | bits_for(case)), data.draw(priorities_for(case, chosen.priorities))
    slow = run_slotted(policy, *case, predictions, first, priority, rules=rules, settings=chosen)
    native = run_native(policy, case, predictions, first, priority, rules, chosen)
    assert_same(native, slow)
    if policy == "lqd":
        assert native["threshold_deficits"] == 0 or (rules.counting, rules.victim) != ("counted", "tail")
        np.testing.assert_array_equal(native["lqd_drop"], native["outcome"] != 0)


def test_the_thresholds_of_an_uncounted_arrival_empty_the_losers_queue_before_it_comes() -> None:
    """Its round of deficits ends there: a case that random ones seldom hit."""
    case = SlottedArrivals(2, 3, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4], [1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1])
    priority = [0, 2, 1, 1, 2, 2, 1, 2, 0, 2, 2, 2]
    chosen = Settings((0.1,), priorities=3, scheduler="deficit_round_robin", quanta=(1, 1, 2))
    rules = Rules(counting="uncounted", tie="lowest_port", order="lower_classes_first")
    slow = run_slotted("followlqd", *case, None, [0] * 12, priority, rules=rules, settings=chosen)
    assert_same(run_native("followlqd", case, None, [0] * 12, priority, rules, chosen), slow)


@pytest.mark.parametrize("ports", range(1, 13))
def test_harmonic_limits_are_exact_where_they_are_whole_numbers(ports: int) -> None:
    """Queue k may have B / (k H_n) after those before it; B is such that all these are whole."""
    harmonic = sum((Fraction(1, i) for i in range(1, ports + 1)), Fraction(0))
    parts = [1 / (k * harmonic) for k in range(1, ports + 1)]
    for times in (1, 3):
        buffer = times * lcm(*(part.denominator for part in parts))
        limits = [int(buffer * part) for part in parts]
        port = np.repeat(np.arange(ports, dtype=np.int32), np.array(limits) + 1)
        outcome = slotted("harmonic", ports, buffer, np.zeros(len(port), np.int64), port, labels=False)["outcome"]
        assert [int((outcome[port == k] == 0).sum()) for k in range(ports)] == limits


def bits_for(case: SlottedArrivals) -> st.SearchStrategy[list[int]]:
    """One bit per packet: random, mostly zeros, all of either kind."""
    n = len(case.slot)
    seeds = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from((0.0, 0.05, 0.5, 1.0)))
    return seeds.map(lambda drawn: (np.random.default_rng(drawn[0]).random(n) < drawn[1]).astype(int).tolist())


def priorities_for(case: SlottedArrivals, priorities: int) -> st.SearchStrategy[list[int]]:
    """One priority per packet: random or, as bursts have it, the same for a while."""
    n = len(case.slot)
    seeds = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from((1, 7, 40)))
    return seeds.map(
        lambda drawn: np.random.default_rng(drawn[0]).integers(0, priorities, n).repeat(drawn[1])[:n].tolist()
    )


@settings(max_examples=draws(200))
@given(case=slotted_arrivals(), counting=st.sampled_from(("counted", "uncounted")), seed=st.integers(0, 2**64 - 1))
def test_random_victims_leave_lengths_and_were_in_the_queue_that_lost(
    case: SlottedArrivals, counting: str, seed: int
) -> None:
    rules = Rules(counting, victim="random")
    native = run_native("lqd", case, rules=rules, seed=seed)
    slow = run_slotted("lqd", *case, rules=Rules(counting, victim="tail"))
    lengths = np.array(slow.features, np.int64).reshape(-1, len(COLUMNS))
    np.testing.assert_array_equal(native["features"], lengths)
    assert native["transmitted"] == slow.transmitted
    np.testing.assert_array_equal(native["lqd_drop"], native["outcome"] != 0)
    assert set(native["outcome"].tolist()) <= {0, BUFFER_FULL, PUSHED_OUT}
    assert_victims_fit(case, rules, native["outcome"].tolist())
    again = run_native("lqd", case, rules=rules, seed=seed)
    np.testing.assert_array_equal(again["outcome"], native["outcome"])


def assert_victims_fit(case: SlottedArrivals, rules: Rules, outcome: list[int]) -> None:
    """Replay the lengths that LQD must have; each loss must find a dropped packet in the queue that loses.

    Taking the one nearest to the head first finds an assignment whenever there is one: it is the next to be too late.
    """
    queues: list[list[int]] = [[] for _ in range(case.ports)]
    packet = 0
    for slot in range(max(case.slot, default=0) + case.buffer + 1):
        while packet < len(case.slot) and case.slot[packet] == slot:
            port = case.port[packet]
            full = sum(map(len, queues)) == case.buffer
            counts = [len(queue) for queue in queues]
            queues[port].append(packet)
            if rules.counting == "counted":
                counts[port] += 1
            if full:
                loser = counts.index(max(counts))
                if outcome[packet] == BUFFER_FULL:
                    victim = packet
                else:
                    victim = next(p for p in queues[loser] if outcome[p] == PUSHED_OUT)
                queues[loser].remove(victim)
            else:
                assert outcome[packet] != BUFFER_FULL
            packet += 1
        for queue in queues:
            if queue:
                assert outcome[queue.pop(0)] == 0, "a packet that was pushed out has been sent"
    assert not any(queues)


def cuts_of(data: st.DataObject, case: SlottedArrivals) -> list[tuple[int, int]]:
    """First row and end of batches, empty ones among them."""
    n = len(case.slot)
    return list(pairwise([0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]))


@settings(max_examples=draws(150))
@given(
    data=st.data(),
    case=slotted_arrivals(max_ports=6, max_buffer=30),
    rules=any_rules,
    features=st.booleans() | st.sets(st.sampled_from(COLUMNS)).map(sorted),
)
@pytest.mark.parametrize("policy", [*OF_ARRIVALS, "priorities"])
def test_batches_are_one_run_but_for_fates_that_come_later(
    policy: str, data: st.DataObject, case: SlottedArrivals, rules: Rules, features: bool | list[str]
) -> None:
    chosen = (
        Settings((0.5, 2.0), rtt=7, low_pass=10, priorities=2)
        if policy == "priorities"
        else Settings(rtt=7, low_pass=10)
    )
    policy = "abm" if policy == "priorities" else policy
    predictions, first = data.draw(bits_for(case)), data.draw(bits_for(case))
    priority = data.draw(priorities_for(case, chosen.priorities))
    slow = run_slotted(policy, *case, predictions, first, priority, rules=rules, settings=chosen)
    run = NativeRun(
        policy, case.ports, case.buffer, **keywords(rules, chosen), labels=True, features=features, cell_bytes=1024
    )
    whole = columns_of(case, predictions, first, priority)
    labels: list[int] = []
    settled_before = 0
    for first_row, end in cuts_of(data, case):
        part = run.feed(*(column[first_row:end] for column in whole))
        rows = range(first_row, end)
        assert part["outcome"].tolist() == [0 if slow.removed_at.get(i, i) >= end else slow.outcome[i] for i in rows]
        assert part["asked"].tolist() == slow.asked[first_row:end]
        assert part["exposed"].tolist() == slow.exposed[first_row:end]
        if features:  # what is not wanted is 0
            wanted = [isinstance(features, bool) or name in features for name in COLUMNS]
            expected = [
                [value * is_wanted for value, is_wanted in zip(row, wanted, strict=True)]
                for row in slow.features[first_row:end]
            ]
            assert part["features"].tolist() == expected
        labels += part["lqd_drop"].tolist()
        late = part["late_drops"].tolist()
        assert len(set(late)) == len(late)
        assert all(settled_before <= row < first_row and labels[row] == 0 for row in late)
        for row in late:
            labels[row] = 1
        assert labels == [int(slow.lqd_dropped_at.get(i, end) < end) for i in range(end)]
        assert settled_before <= part["settled"] <= end
        settled_before = part["settled"]
        assert labels[:settled_before] == slow.lqd_drop[:settled_before]
        if chosen.priorities == 1:  # of several queues one can wait for as long as others have packets
            assert settled_before >= sum(case.slot[i] + case.buffer <= case.slot[end - 1] for i in range(end))
    totals = run.finish()
    for row in totals.pop("late_drops").tolist():
        raise AssertionError(f"row {row} was dropped after the last arrival")
    n = len(case.slot)
    assert totals == {
        "turns": [],
        "transmitted": slow.transmitted,
        "arrivals": n,
        "dropped": n - slow.transmitted,
        "threshold_deficits": slow.threshold_deficits,
    }


@settings(max_examples=draws(50))
@given(data=st.data(), case=slotted_arrivals(), rules=any_rules)
@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_what_is_written_down_does_not_change_what_happens(
    policy: str, data: st.DataObject, case: SlottedArrivals, rules: Rules
) -> None:
    predictions = data.draw(bits_for(case))
    expected = run_native(policy, case, predictions, rules=rules)
    for labels, columns in product((False, True), repeat=2):
        run = NativeRun(policy, case.ports, case.buffer, **keywords(rules, Settings()), labels=labels)
        for first_row, end in cuts_of(data, case):
            part = run.feed(*(column[first_row:end] for column in columns_of(case, predictions)), columns=columns)
            if columns:
                wanted = {"outcome", "asked", "exposed"} | ({"lqd_drop", "late_drops", "settled"} if labels else set())
                assert set(part) == wanted
            else:
                assert part == {}
        assert run.finish()["transmitted"] == expected["transmitted"]


@given(case=slotted_arrivals(max_ports=6, max_buffer=30), rules=any_rules)
# credence_artifact forgets only with real departures, occamy never whose turn it was
@pytest.mark.parametrize(
    "policy", [*(name for name in OF_ARRIVALS if name not in ("credence_artifact", "occamy")), "priorities"]
)
def test_after_a_pause_of_ages_a_switch_starts_anew(policy: str, case: SlottedArrivals, rules: Rules) -> None:
    chosen = Settings((0.5, 2.0), priorities=2) if policy == "priorities" else Settings()
    policy = "abm" if policy == "priorities" else policy
    later = [slot + chosen.rtt * 2**55 for slot in case.slot]  # the same slots of a round trip
    once = run_native(policy, case, rules=rules, chosen=chosen)
    twice = case._replace(slot=case.slot + later, port=case.port * 2)
    both = run_native(policy, twice, rules=rules, chosen=chosen)
    for column in ("outcome", "lqd_drop", "exposed"):
        np.testing.assert_array_equal(both[column], np.tile(once[column], 2))
    assert both["transmitted"] == 2 * once["transmitted"]


@given(
    gaps=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**20), st.integers(0, 2**50)), min_size=1, max_size=50),
    port=st.lists(st.integers(0, 2), min_size=50, max_size=50),
    shift=st.integers(0, 24),
)
def test_rates_are_the_slow_model_over_long_gaps(gaps: list[int], port: list[int], shift: int) -> None:
    slot, chosen = list(accumulate(gaps)), port[: len(gaps)]
    traffic = TrafficFeatures(3, Settings(average_shift=shift))
    expected = []
    for now, queue in zip(slot, chosen, strict=True):
        traffic.arrive(now, queue, 1)
        expected.append(traffic.read(queue))
    columns = np.array(slot, np.int64), np.array(chosen, np.int32)
    seen = slotted("dt", 3, 10, *columns, average_shift=shift, features=True, cell_bytes=1024)["features"]
    first = COLUMNS.index("arrival_rate")
    assert seen[:, first : first + 4].tolist() == expected


CELL_BYTES = 200


def outcomes(geometry: Geometry, packets: list[Packet], chosen: Settings) -> list[int]:
    made: list[int] = feed(begin("occamy", [geometry], Rules(), chosen), packets)["outcome"].tolist()
    return made


def outcomes_cell_by_cell(geometry: Geometry, packets: list[Packet], chosen: Settings) -> list[int]:
    """The same switch with an engine that also runs between arrivals, whenever it can read another cell."""
    real = Queues(geometry, Averages(geometry.ports, chosen), chosen)
    cell_ns = int(CELL_BYTES / real.expulsion.rate)
    outcome: list[int] = []

    def run_engine(now: int) -> None:
        real.advance(now)
        real.expulsion.fill(now)
        for victim in real.expel(now):
            outcome[victim.row] = PUSHED_OUT

    before = 0
    for packet in packets:
        for now in range(before + cell_ns, packet.time_ns, cell_ns):
            run_engine(now)
        before = packet.time_ns
        run_engine(before)
        free = geometry.buffer - real.occupancy()
        if packet.size > free:
            outcome.append(BUFFER_FULL)
        elif packet.data and real.lengths()[packet.port] >= chosen.alpha[0] * free:
            outcome.append(OVER_THRESHOLD)
        else:
            outcome.append(ACCEPTED)
            real.packets[packet.port].append(packet)
            real.start(packet.port, before)
            run_engine(before)
    return outcome


def bursts(ports: int, gaps_ns: tuple[int, ...], seed: int) -> list[Packet]:
    """Bursts of 300 packets at most; each sends a part of its own to one port, with one of the gaps on average."""
    random = np.random.default_rng(seed)
    packets: list[Packet] = []
    now = 0
    while len(packets) < 1000:
        hot, part, gap_ns = random.integers(ports), random.random(), random.choice(gaps_ns)
        for _ in range(random.integers(1, 300)):
            port = hot if random.random() < part else random.integers(ports)
            packets.append(Packet(len(packets), now, int(port), int(random.choice((64, 700, 1500, 1500, 1500)))))
            now += int(random.integers(2 * gap_ns))
        now += int(random.integers(20_000))
    return packets


def differing(ports: int, gaps_ns: tuple[int, ...], alpha: float) -> tuple[float, int]:
    """Share of the packets with another fate, and packets expelled, over four seeds."""
    geometry = Geometry(15_000 * ports, (10**10,) * ports)
    chosen = Settings(
        (alpha,), spare_bandwidth=NetworkParameters.spare_bandwidth, bucket=NetworkParameters.bucket_bytes
    )
    found: list[int] = []
    other: list[int] = []
    for seed in range(4):
        packets = bursts(ports, gaps_ns, seed)
        found += outcomes(geometry, packets, chosen)
        other += outcomes_cell_by_cell(geometry, packets, chosen)
    return float(np.mean(np.array(found) != other)), found.count(PUSHED_OUT)


@pytest.mark.parametrize("alpha", [0.5, 8.0])
def test_an_engine_with_tokens_does_what_one_does_that_runs_all_the_time(alpha: float) -> None:
    share, expelled = differing(4, (400, 600, 1200), alpha)
    assert expelled > 50
    assert share == 0


@pytest.mark.parametrize(("length", "congested", "accepted"), [(321, 1, 179), (322, 2, 119), (325, 2, 117)])
def test_abm_counts_a_queue_from_nine_tenths_of_its_threshold_on(length: int, congested: int, accepted: int) -> None:
    """Two queues of `length` at the second count; alpha is 1, so the threshold is the free room, 1000 - 2 `length`."""
    fill = [1, 2] * (length + 10)
    case = SlottedArrivals(3, 1000, [0] * len(fill) + [10] * 300, fill + [0] * 300)
    first = [1] * len(fill) + [0] * 300
    chosen = Settings(alpha=(1.0,), rtt=10)
    native = run_native("abm", case, first_rtt=first, chosen=chosen)
    free = 1000 - 2 * length
    assert accepted == next(q for q in range(300) if not q < (free - q) / congested)
    assert (native["outcome"][len(fill) :] == 0).sum() == accepted
    assert_same(native, run_slotted("abm", *case, first_rtt=first, settings=chosen))


def test_time_since_a_push_out_saturates_at_never() -> None:
    late = NEVER + 5
    case = SlottedArrivals(1, 1, [0, 0, late - 10, late, late], [0] * 5)
    since = run_native("lqd", case)["features"][:, COLUMNS.index("since_push_out")]
    assert since.tolist() == [NEVER, 0, late - 10, NEVER, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["cs", "dt", "abm", "reverie", "lqd", "followlqd"])
def test_a_vast_switch_decides_like_one_without_its_idle_ports(policy: str) -> None:
    """With very many ports and a large buffer other queues hold the packets, which know bytes and link rates."""
    buffer = 70_000
    draw = np.random.default_rng(1)
    port = np.concatenate([np.zeros(buffer // 2), draw.integers(0, 8, 200_000)]).astype(np.int32)
    slot = np.concatenate([np.zeros(buffer // 2), np.repeat(np.arange(1, 5001), 40)]).astype(np.int64)
    fixed: dict[str, Any] = {"victim": "random", "seed": 5, "low_pass_slots": 3000, "alpha": [2.0]}
    small, vast = (slotted(policy, ports, buffer, slot, port, **fixed) for ports in (8, 2**15))
    assert small["lqd_drop"].any()
    np.testing.assert_array_equal(vast["lqd_drop"], small["lqd_drop"])
    assert (small["outcome"] != 0).any()
    np.testing.assert_array_equal(vast["outcome"], small["outcome"])
    assert vast["transmitted"] == small["transmitted"]
