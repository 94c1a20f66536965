"""Statistics against NumPy and SciPy, and what happens to unfinished flows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import Rectangle
from scipy import stats

from foretail.core.errors import ForetailError
from foretail.features.records import FLOW_DTYPE, NEVER_STARTED, OCCUPANCY_DTYPE
from foretail.pipelines.comparison.cost import run_cost
from foretail.pipelines.comparison.figures import DRAW, SLOWDOWNS
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    flow_groups,
    mean_interval,
    occupancy_percentiles,
    paired_difference,
    summarise_flows,
)
from foretail.pipelines.experiment.sweep import paired
from foretail.sim_bridge.packets.cost import link_time_ns, query_table, slowdowns
from tests.composed import run_of

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


SETTINGS: dict[str, Any] = {
    "topology": {"server_link_bps": 10_000_000_000, "wire_overhead_bytes": 2},
    "transport": {"segment_bytes": 1400},
    "traffic_ns": 1_000_000,
}


def flows_of_cost(*rows: tuple[int, int, int, int, int, int]) -> np.ndarray:
    """Flows of (start_ns, fct_ns, ideal_fct_ns, size_bytes, query, timeouts)."""
    flows = np.zeros(len(rows), FLOW_DTYPE)
    for name, column in zip(
        ("start_ns", "fct_ns", "ideal_fct_ns", "size_bytes", "query", "timeouts"), zip(*rows, strict=True), strict=True
    ):
        flows[name] = column
    return flows


@pytest.mark.parametrize(
    ("size", "expected_ns"),
    [(1, 35), (1400, 1154), (1401, 1154 + 35), (2800, 2308), (4200, 3462)],
)
def test_a_flow_occupies_the_link_for_its_packets(size: int, expected_ns: int) -> None:
    assert link_time_ns(np.array([size]), SETTINGS) == [expected_ns]


def test_a_query_ends_with_its_last_answer_and_alone_its_answers_share_one_link() -> None:
    ideal = 8_000  # of one segment: 1154 ns on the last link, the rest on the way
    flows = flows_of_cost((0, 9_000, ideal, 1400, 7, 0), (0, 20_616, ideal, 1400, 7, 2), (0, 8_000, ideal, 1400, 9, 0))
    found = query_table(flows, END_NS, SETTINGS)
    assert found.index.tolist() == [7, 9]
    assert found["slowdown"].tolist() == pytest.approx([20_616 / (ideal + 1154), 1.0])
    assert found["timeouts"].tolist() == [2, 0]


def test_what_is_unfinished_costs_its_age() -> None:
    flows = flows_of_cost((4_000_000, -1, 10_000, 50_000, -1, 1))
    found = run_cost(flows, END_NS, SETTINGS)
    assert found.short == found.cost == pytest.approx(600.0)
    assert (found.query, found.long, found.query_timeouts) == (None, None, None)
    assert (found.timeouts_percent, found.goodput_bps) == (100.0, 0.0)


sizes = st.one_of(st.integers(1, 99_999), st.integers(1_000_000, 2_000_000), st.integers(100_000, 999_999))
drawn = st.tuples(st.integers(0, 10**6), st.integers(-1, 10**7), st.integers(2_000_000, 3_000_000), sizes)


@given(st.lists(st.tuples(drawn, st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=20))
def test_the_cost_is_that_of_the_definition(rows: list[tuple[tuple[int, int, int, int], int, int]]) -> None:
    flows = flows_of_cost(*((start, fct, ideal, size, query, out) for (start, fct, ideal, size), query, out in rows))
    kinds: dict[str, list[float]] = {"query": [], "short": [], "long": []}
    queries: dict[int, list[np.void]] = {}
    for flow in flows:
        time = flow["fct_ns"] if flow["fct_ns"] >= 0 else END_NS - flow["start_ns"]
        if flow["query"] >= 0:
            queries.setdefault(int(flow["query"]), []).append(flow)
        elif flow["size_bytes"] < 100_000:
            kinds["short"].append(time / flow["ideal_fct_ns"])
        elif flow["size_bytes"] >= 1_000_000:
            kinds["long"].append(time / flow["ideal_fct_ns"])
    for answers in queries.values():
        times = [one["fct_ns"] if one["fct_ns"] >= 0 else END_NS - one["start_ns"] for one in answers]
        links = [int(link_time_ns(np.array([one["size_bytes"]]), SETTINGS)[0]) for one in answers]
        way = min(int(one["ideal_fct_ns"]) - link for one, link in zip(answers, links, strict=True))
        alone = max(*(int(one["ideal_fct_ns"]) for one in answers), way + sum(links))
        kinds["query"].append(max(times) / alone)
    means = [sum(found) / len(found) for found in kinds.values() if found]
    if not means:
        assert run_cost(flows, END_NS, SETTINGS).cost is None
        return
    if min(means) <= 0:
        return
    assert run_cost(flows, END_NS, SETTINGS).cost == pytest.approx(math.prod(means) ** (1 / len(means)))


@pytest.mark.slow
def test_the_figures_of_policies_are_drawn_from_their_numbers() -> None:
    frame = pd.DataFrame(
        {"policy": ["lqd", "lqd", "dt"], "seed": [1, 2, 1]} | {name: [1.0, 3.0, 2.0] for name in SLOWDOWNS}
    )
    figure = DRAW["slowdown_p95"](frame)
    assert [axes.get_title() for axes in figure.axes] == [title for _, title in SLOWDOWNS.values()]
    assert [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)] == [2.0, 2.0]
    without = DRAW["slowdown_p95"](frame.assign(long=np.nan))
    assert [axes.get_title() for axes in without.axes] == [t for name, (_, t) in SLOWDOWNS.items() if name != "long"]


def rows_of(**metrics: dict[tuple[str, str, int], float]) -> pd.DataFrame:
    """Rows of runs, by condition, variant and seed."""
    cases = next(iter(metrics.values()))
    columns = {name: [values[case] for case in cases] for name, values in metrics.items()}
    names = [dict(zip(("condition", "variant", "seed"), case, strict=True)) | {"way": ""} for case in cases]
    return pd.DataFrame(names).assign(**columns)


ROWS = rows_of(
    pauses={
        (where, variant, seed): value
        for where, values in {"load_20": (2.0, 1.0), "load_40": (4.0, 3.0)}.items()
        for variant, value in zip(("sonic", "reverie"), values, strict=True)
        for seed in (1, 2)
    }
)


@pytest.mark.parametrize(
    ("by", "mean"), [("percent", -37.5), ("difference", -1.0), ("change", (math.log(1 / 2) + math.log(3 / 4)) / 2)]
)
def test_changes_are_means_over_conditions_by_seed(by: str, mean: float) -> None:
    found = paired(ROWS, ["load_20", "load_40"], "pauses", ("reverie", "sonic"), by=by)
    assert (found.mean, found.low, found.high) == pytest.approx((mean, mean, mean))
    assert found.pairs == 2


def test_of_0_there_is_no_change_in_percent() -> None:
    rows = rows_of(drops={("a", "x", 1): 1.0, ("a", "y", 1): 0.0, ("b", "x", 1): 0.0, ("b", "y", 1): 0.0})
    assert paired(rows, ["a"], "drops", ("x", "y")).mean is None
    assert paired(rows, ["a", "b"], "drops", ("x", "y")).mean == 0
    assert paired(rows, ["a"], "drops", ("x", "y"), by="difference").mean == 1


@pytest.mark.slow
def test_a_metric_that_no_run_has_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"metrics names colour, which no run has: choose from .*cost"):
        run_of("recovery", tmp_path, "size=small", "tracking=off", "+metrics.colour=colour", "jobs=1")
