"""Sirona beside what its thesis prints; its run at size=small, of the nightly tier, costs thirty seconds."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail_studies.systems.balancing import COLLISION, MEMORY, SIRONA, collision_loads
from foretail_studies.systems.comparisons import change_percent, completion_times_us
from tests.composed import experiment_settings


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


def test_the_chance_of_a_collision_is_that_of_all_assignments() -> None:
    ways = [(a, b, c, d) for a in range(4) for b in range(4) for c in range(4) for d in range(4)]
    assert 1 - math.factorial(4) / 4**4 == sum(len(set(way)) < 4 for way in ways) / len(ways)


def test_a_change_is_negative_where_sirona_is_faster() -> None:
    assert change_percent(19.0, 100.0) == pytest.approx(-81.0)
    assert change_percent(103.0, 100.0) == pytest.approx(3.0)


def test_completion_times_are_those_of_all_flows() -> None:
    small = ["leaves=2", "spines=2", "servers_per_leaf=4"]
    overrides = ["scenario=permutation", *(f"scenario.topology.{one}" for one in small)]
    overrides += ["scenario.collective.servers_per_group=8", "scenario.collective.size_bytes=250_000"]
    times = completion_times_us(overrides, 1, lambda words: None)
    assert len(times) == 4
    assert times.min() > 8e6 * 250_000 / 25e9  # no faster than the link


def test_a_system_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ForetailError, match="nobody"):
        experiment_settings("systems", "size=small", "systems=[nobody]")


@pytest.mark.nightly
@pytest.mark.full
def test_sirona_is_before_hashing_and_beside_rss_in_small() -> None:
    measured = SIRONA.measure("small", 1, lambda words: None)
    published = {figure.quantity for figure in SIRONA.published}
    assert published <= set(measured)
    assert measured["permutation, symmetric: max FCT, Sirona against ECMP, %"] < -10
    assert measured["permutation, asymmetric: max FCT, Sirona against ECMP, %"] < -10
    assert measured[MEMORY] == pytest.approx(48 / 18)
    assert measured[COLLISION] == pytest.approx(0.90625)
    assert np.isfinite(list(measured.values())).all()
    assert measured == SIRONA.measure("small", 1, lambda words: None)  # a run is the same every time
