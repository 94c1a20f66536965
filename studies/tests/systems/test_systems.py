"""The table of systems: verdicts by one rule, and the systems that compare policies and transports (ten seconds)."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiment.sweep import IN_SHAPE, NOT, REPRODUCED, UNKNOWN, verdict_of_value
from foretail.sim_bridge.ns3.messages import Message
from foretail_studies.systems.balancing import (
    COLLISION,
    ETHEREAL,
    MEMORY,
    SIRONA,
    _assignment,
    collision_loads,
    uplink_loads,
)
from foretail_studies.systems.causes import CAUSES, KINDS
from foretail_studies.systems.comparisons import System, completion_times_us
from foretail_studies.systems.experiment import OURS, SYSTEMS_BY_NAME
from foretail_studies.systems.scheduling import _TABLE, DEFAULT, RC3, UNIVERSAL
from tests.composed import run_of


@pytest.mark.parametrize(
    ("says", "ours", "low", "high", "verdict"),
    [
        (10.0, 10.4, None, None, REPRODUCED),
        (10.0, 10.6, None, None, IN_SHAPE),
        (10.0, 15.0, 9.0, 21.0, REPRODUCED),
        (10.0, 15.0, 11.0, 19.0, IN_SHAPE),
        (10.0, 5.0, None, None, IN_SHAPE),
        (10.0, 4.9, None, None, NOT),
        (0.0, 0.0, None, None, REPRODUCED),
        (0.0, 0.1, None, None, NOT),
        (10.0, None, None, None, UNKNOWN),
    ],
)
def test_verdicts_on_numbers(
    says: float, ours: float | None, low: float | None, high: float | None, verdict: str
) -> None:
    assert verdict_of_value(says, PairedDifference(ours, low, high, 1)) == verdict


def test_every_published_figure_is_there_once() -> None:
    for system in SYSTEMS_BY_NAME.values():
        quantities = [figure.quantity for figure in system.published]
        assert len(quantities) == len(set(quantities)), system.name
        assert all(np.isfinite(figure.value) for figure in system.published)


def test_every_cause_is_of_a_published_figure_that_has_no_other() -> None:
    causes = [(cause.system, quantity) for cause in CAUSES for quantity in cause.quantities]
    published = {(name, figure.quantity) for name, system in SYSTEMS_BY_NAME.items() for figure in system.published}
    assert len(causes) == len(set(causes))
    assert set(causes) <= published
    assert {cause.kind for cause in CAUSES} <= set(KINDS)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SYSTEMS_BY_NAME)
def test_one_command_gives_every_row_of_a_system(name: str, tmp_path: Path) -> None:
    given = ("size=small", f"systems=[{name}]", "tracking=off", f"store_dir={tmp_path / 'store'}")
    rows = run_of("systems", tmp_path / "run", *given).document()["rows"]
    system = SYSTEMS_BY_NAME[name]
    published = rows[: len(system.published)]
    assert [(row["quantity"], row["published"]) for row in published] == [
        (figure.quantity, figure.value) for figure in system.published
    ]
    assert {row["verdict"] for row in rows[len(published) :]} <= {OURS}
    for row in published:
        assert row["verdict"] != UNKNOWN, row["quantity"]
        assert row["seeds"] == len(system.seeds["small"])
        if row["seeds"] > 1:
            assert row["low"] <= row["ours"] <= row["high"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linc", "rotornet"])
def test_a_small_run_measures_every_published_quantity_and_repeats(name: str) -> None:
    system = SYSTEMS_BY_NAME[name]
    seed = system.seeds["small"][0]
    steps: list[str] = []
    measured = system.measure("small", seed, steps.append)
    assert {figure.quantity for figure in system.published} <= set(measured)
    assert all(math.isfinite(value) for value in measured.values())
    assert measured == system.measure("small", seed, steps.append)


@pytest.mark.slow
def test_a_permutation_of_eight_racks_on_a_complete_graph_has_four_sevenths() -> None:
    """n / (2 n - 2), and not the n / (2 n - 1) of the thesis: a rack has no circuit to itself."""
    measured = SYSTEMS_BY_NAME["rotornet"].measure("small", 1, lambda words: None)
    assert measured["throughput on a permutation, 8 racks"] == pytest.approx(8 / 14)
    assert measured["throughput on a permutation, many racks"] == pytest.approx(16 / 30)


def test_the_load_of_an_uplink_is_what_its_messages_send() -> None:
    def to(source: int, destination: int, size_bytes: int, spine: int) -> Message:
        return Message(0, 1, size_bytes, source, destination, 0, spine=spine)

    messages = [to(0, 2, 10, 1), to(1, 3, 5, 1), to(2, 0, 7, 0), to(0, 1, 99, -1)]
    assert sorted(uplink_loads(messages, 2, 2)) == [0, 0, 7, 15]  # what stays below a leaf loads no uplink


def test_a_message_without_a_spine_takes_a_random_one() -> None:
    messages = [Message(0, 1, 1, 0, 2, place) for place in range(4_000)]
    loads = uplink_loads(messages, 4, 2, seed=1)
    assert sum(loads) == 4_000
    assert np.abs(np.array(loads) - 1_000).max() < 5 * (4_000 * 0.25 * 0.75) ** 0.5


def test_the_thesis_counts_its_flows_and_subflows_in_its_own_network() -> None:
    ring = _assignment("ring", 16, 16, 16, seed=1)
    assert ring["ring: parts of a flow"] == 4
    assert ring["ring: subflows of a server"] == 16
    assert ring["ring: busiest uplink of Ethereal over spraying"] == pytest.approx(1)
    assert ring["ring: busiest uplink of ECMP over spraying"] > 1.5
    everybody = _assignment("all-to-all", 4, 4, 4, seed=1)
    assert everybody["all-to-all: flows"] == 16 * 15
    assert everybody["all-to-all: parts of a flow"] == 1
    assert everybody["all-to-all: busiest uplink of Ethereal over spraying"] == pytest.approx(1)


@pytest.mark.nightly
def test_ethereal_completes_a_ring_before_hashing_in_small() -> None:
    measured = ETHEREAL.measure("small", 1, lambda words: None)
    assert measured["ring of 1 MB: completion, Ethereal against ECMP, %"] < 0
    assert measured["ring of 1 MB: completion, Ethereal over spraying"] == pytest.approx(1, abs=0.15)
    assert measured["3 flows on 4 spines: more subflows, equal parts"] == 9


@pytest.mark.nightly
def test_rc3_is_faster_than_tcp_in_small() -> None:
    measured = RC3.measure("small", 1, lambda words: None)
    assert measured["unfinished flows"] == 0
    assert measured["mean FCT in s, RC3"] < measured["mean FCT in s, TCP"]
    changes = [value for name, value in measured.items() if name.startswith("change of mean FCT by bytes in %, ")]
    assert min(changes) < -50


def test_load_is_what_a_scene_says() -> None:
    hosts, flows = DEFAULT.draw("medium", 1)
    bits = hosts.load_of(flows.route, flows.size_bytes)[hosts.core] / hosts.network.rate_bps[hosts.core]
    assert 1e9 * bits.mean() / flows.start_ns[-1] == pytest.approx(DEFAULT.load, rel=0.01)
    between = hosts.round_trip_ns(flows.source, flows.destination)
    assert between.mean() == pytest.approx(DEFAULT.round_trip_ns, rel=0.02)


@pytest.mark.parametrize("system", [RC3, UNIVERSAL])
def test_it_refuses_another_size(system: System) -> None:
    with pytest.raises(ForetailError, match="no size full"):
        system.measure("full", 1, lambda words: None)


def slow_collision_load(leaves: int, spines: int, slow_spines: int, draw: random.Random) -> float:
    """The busiest link of one permutation, server by server."""
    half = leaves // 2
    receivers = [half + server // spines for server in range(half * spines)]
    draw.shuffle(receivers)
    load: dict[tuple[str, int, int], float] = {}
    for server, receiving_leaf in enumerate(receivers):
        spine = draw.randrange(spines)
        for link in (("up", server // spines, spine), ("down", spine, receiving_leaf)):
            load[link] = load.get(link, 0.0) + (2.0 if spine < slow_spines else 1.0)
    return max(load.values())


@pytest.mark.parametrize(("slow_spines", "percent"), [(0, 81), (8, 89)])
def test_hashing_loads_a_link_with_five_times_its_share_and_nine_times_where_spines_are_slow(
    slow_spines: int, percent: int
) -> None:
    ours = collision_loads(32, 32, slow_spines, 1_000, seed=1)
    assert round(100 * (1 - 1 / ours.mean())) == percent  # what the thesis says that Sirona takes off ECMP's maximum
    draw = random.Random(2)
    slow = [slow_collision_load(32, 32, slow_spines, draw) for _ in range(150)]
    error = 4 * (statistics.stdev(slow) / math.sqrt(150) + ours.std() / math.sqrt(1_000))
    assert abs(statistics.fmean(slow) - ours.mean()) < error


def test_completion_times_are_those_of_all_flows() -> None:
    small = ["leaves=2", "spines=2", "servers_per_leaf=4"]
    overrides = ["scenario=permutation", *(f"scenario.topology.{one}" for one in small)]
    overrides += ["scenario.collective.servers_per_group=8", "scenario.collective.size_bytes=250_000"]
    times = completion_times_us(overrides, 1, lambda words: None)
    assert len(times) == 4
    assert times.min() > 8e6 * 250_000 / 25e9  # no faster than the link


@pytest.mark.nightly
def test_sirona_is_before_hashing_and_beside_rss_in_small() -> None:
    measured = SIRONA.measure("small", 1, lambda words: None)
    assert measured["permutation, symmetric: max FCT, Sirona against ECMP, %"] < -10
    assert measured["permutation, asymmetric: max FCT, Sirona against ECMP, %"] < -10
    assert measured[MEMORY] == pytest.approx(48 / 18)
    assert measured[COLLISION] == pytest.approx(0.90625)
    assert np.isfinite(list(measured.values())).all()
    assert measured == SIRONA.measure("small", 1, lambda words: None)  # a run is the same every time


@pytest.mark.nightly
def test_shares_of_overdue_packets_are_ordered_in_small() -> None:
    measured = UNIVERSAL.measure("small", 1, lambda words: None)
    shares = [value for name, value in measured.items() if name.startswith("overdue")]
    assert all(0 <= share <= 1 for share in shares)
    for name in _TABLE:
        assert measured[f"overdue by more than T, {name}"] <= measured[f"overdue, {name}"]
    assert measured["overdue, random, by static priorities"] > measured["overdue, load 70 %"]
