"""Statistics against NumPy and SciPy, and what happens to unfinished flows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foretail.features.records import FLOW_DTYPE, NEVER_STARTED, OCCUPANCY_DTYPE
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    flow_groups,
    mean_interval,
    occupancy_percentiles,
    paired_difference,
    summarise_flows,
)
from foretail.sim_bridge.packets.cost import slowdowns

END_NS = 10_000_000


def flows_of(rng: np.random.Generator, count: int) -> np.ndarray:
    flows = np.zeros(count, dtype=FLOW_DTYPE)
    flows["start_ns"] = rng.integers(0, END_NS, count)
    flows["ideal_fct_ns"] = rng.integers(1_000, 100_000, count)
    flows["fct_ns"] = flows["ideal_fct_ns"] * rng.integers(1, 50, count)
    flows["size_bytes"] = rng.choice([500, 99_999, 100_000, 500_000, 999_999, 1_000_000, 30_000_000], count)
    flows["query"] = np.where(rng.random(count) < 0.3, rng.integers(0, 5, count), -1)
    flows["retransmissions"] = rng.integers(0, 3, count)
    flows["timeouts"] = rng.integers(0, 2, count)
    return flows


def test_summaries_equal_numpy() -> None:
    flows = flows_of(np.random.default_rng(1), 5_000)
    summary = summarise_flows(flows, END_NS)
    ratio = flows["fct_ns"] / flows["ideal_fct_ns"]
    background = flows["query"] == -1
    expected = {
        "short": background & (flows["size_bytes"] < 100_000),
        "incast": flows["query"] != -1,
        "long": background & (flows["size_bytes"] >= 1_000_000),
        "all": np.ones(len(flows), dtype=bool),
    }
    assert set(summary) == set(expected)
    for name, mask in expected.items():
        found = summary[name]
        assert found.flows == mask.sum() > 0
        assert (found.p50, found.p95, found.p99) == tuple(np.percentile(ratio[mask], [50, 95, 99]))
        assert found.timeout_share == pytest.approx(np.mean(flows["timeouts"][mask] > 0))
        assert found.retransmissions == flows["retransmissions"][mask].sum()
        assert found.timeouts == flows["timeouts"][mask].sum()
        assert not found.lower_bound


def test_groups_do_not_overlap_and_leave_only_middle_sized_background_out() -> None:
    flows = flows_of(np.random.default_rng(2), 2_000)
    flows["start_ns"][:100] = NEVER_STARTED
    flows["fct_ns"][:100] = -1
    groups = flow_groups(flows)
    np.testing.assert_array_equal(groups.pop("all"), flows["start_ns"] >= 0)
    flows = flows[100:]
    masks = np.array([mask[100:] for mask in groups.values()])
    assert masks.sum(axis=0).max() == 1
    left_out = ~masks.any(axis=0)
    assert left_out.any()
    assert np.all((flows["query"][left_out] == -1) & (flows["size_bytes"][left_out] >= 100_000))
    assert np.all(flows["size_bytes"][left_out] < 1_000_000)


def test_an_unfinished_flow_counts_with_its_age() -> None:
    flows = np.zeros(2, dtype=FLOW_DTYPE)
    flows["query"] = -1
    flows["size_bytes"] = 1_000
    flows["ideal_fct_ns"] = 1_000
    flows["fct_ns"] = [2_000, -1]
    flows["start_ns"] = [0, END_NS - 7_000]
    assert slowdowns(flows, END_NS).tolist() == [2.0, 7.0]
    summary = summarise_flows(flows, END_NS)["short"]
    assert (summary.flows, summary.unfinished, summary.lower_bound) == (2, 1, True)
    assert summary.p50 == 4.5


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50), st.data())
def test_with_unfinished_flows_percentiles_are_lower_bounds(fct: list[int], data: st.DataObject) -> None:
    flows = np.zeros(len(fct), dtype=FLOW_DTYPE)
    flows["query"] = -1
    flows["ideal_fct_ns"] = 1_000
    flows["fct_ns"] = fct
    truth = summarise_flows(flows, 0)["all"]
    end_ns = data.draw(st.integers(0, 10**6))
    cut = flows.copy()
    cut["fct_ns"][flows["fct_ns"] > end_ns] = -1
    seen = summarise_flows(cut, end_ns)["all"]
    assert seen.flows == truth.flows
    assert seen.unfinished == np.count_nonzero(flows["fct_ns"] > end_ns)
    for name in ("p50", "p95", "p99"):
        assert getattr(seen, name) <= getattr(truth, name) * (1 + 1e-12)
        assert seen.lower_bound or getattr(seen, name) == getattr(truth, name)


def test_no_flows_give_no_percentile() -> None:
    summary = summarise_flows(np.zeros(0, dtype=FLOW_DTYPE), END_NS)["short"]
    assert (summary.flows, summary.p95, summary.timeout_share, summary.timeouts) == (0, None, None, 0)


def test_occupancy_is_a_fraction_of_each_switchs_own_buffer() -> None:
    rng = np.random.default_rng(3)
    samples = np.zeros(3_000, dtype=OCCUPANCY_DTYPE)
    samples["switch"] = rng.integers(0, 4, len(samples))
    samples["occupancy_bytes"] = rng.integers(0, 1_000, len(samples))
    found = occupancy_percentiles(samples, {0: 1_000, 2: 4_000}, (50, 99))
    fraction = np.concatenate(
        [
            samples["occupancy_bytes"][samples["switch"] == 0] / 1_000,
            samples["occupancy_bytes"][samples["switch"] == 2] / 4_000,
        ]
    )
    assert found == {"p50": np.percentile(fraction, 50), "p99": np.percentile(fraction, 99)}
    assert occupancy_percentiles(samples[:0], {0: 1_000}) == {"p50": None, "p99": None, "p99.99": None}


def test_interval_equals_scipys_t_interval() -> None:
    values = np.random.default_rng(4).normal(3, 2, 6)
    found = mean_interval(values.tolist())
    expected = stats.t.interval(0.95, 5, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.pairs == 6


def test_intervals_need_two_values() -> None:
    assert mean_interval([None]) == mean_interval([])
    assert mean_interval([]).mean is None
    one = mean_interval([None, 2.5])
    assert (one.mean, one.low, one.high, one.pairs) == (2.5, None, None, 1)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_interval([2.5, 2.5, 2.5]) == PairedDifference(2.5, 2.5, 2.5, 3)


def test_pairing_cancels_what_seeds_have_in_common() -> None:
    rng = np.random.default_rng(5)
    traffic = rng.normal(100, 30, 5)
    baseline = dict(enumerate(traffic.tolist()))
    values: dict[int, float | None] = {seed: value + 2 + rng.normal(0, 0.1) for seed, value in baseline.items()}
    found = paired_difference(values, baseline)
    assert found.low is not None
    assert found.high is not None
    assert 1.5 < found.low < found.high < 2.5
    values[0] = None
    assert paired_difference(values | {9: 1.0}, baseline).pairs == 4
