"""Bootstrap over seeds and blocks of time, against repeating flows one by one, and its intervals against the truth."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.pipelines.comparison.statistics import PERCENTILES
from foretail_studies.engines import bootstrap
from foretail_studies.engines.bootstrap import BLOCK_NS, FLOW_METRICS, FlowSample, _weighted, resample

SEEDS = (1, 2, 3, 4, 5)


def sample(slowdown: np.ndarray, per_block: int, scalar: float | None = None) -> FlowSample:
    whole = np.ones(len(slowdown), dtype=np.bool_)
    groups = {"short": whole, "incast": ~whole, "long": whole & (np.arange(len(whole)) % 2 == 0), "all": whole}
    start_ns = np.arange(len(slowdown)) // per_block * BLOCK_NS
    return FlowSample(start_ns, slowdown, slowdown > 2, groups, {"drops": scalar})


@given(
    flows=st.lists(st.tuples(st.floats(1, 100), st.booleans(), st.integers(0, 5)), max_size=30),
    drawn=st.lists(st.integers(0, 4), min_size=6, max_size=6),
    chunk=st.sampled_from([1, 3, 256]),
)
def test_weights_are_repetitions(flows: list[tuple[float, bool, int]], drawn: list[int], chunk: int) -> None:
    """Each flow as often as its block, in chunks that percentiles cross."""
    flows = sorted(flows, key=lambda flow: flow[0])
    slowdown = np.array([flow[0] for flow in flows])
    timed_out = np.array([flow[1] for flow in flows], dtype=np.bool_)
    block = np.array([flow[2] for flow in flows], dtype=np.intp)
    counts = np.array([drawn, np.ones(6)], dtype=np.int64)
    with mock.patch.object(bootstrap, "CHUNK", chunk):
        figures = _weighted(slowdown, timed_out, block, counts)
    for row, found in zip(counts[:, block], figures, strict=True):
        repeated, timeouts = np.repeat(slowdown, row), np.repeat(timed_out, row)
        if not len(repeated):
            assert np.isnan(found).all()
            continue
        assert found[:-1] == pytest.approx(np.percentile(repeated, PERCENTILES))
        assert found[-1] == pytest.approx(100 * timeouts.mean())


def test_the_first_row_is_the_mean_over_seeds_of_each_run() -> None:
    random = np.random.default_rng(1)
    runs = {seed: sample(1 + random.exponential(size=40), 4, float(seed)) for seed in SEEDS}
    found = resample({"lqd": runs}, seed=1, draws=50)
    for percentile in PERCENTILES:
        truth = np.mean([np.percentile(run.slowdown[::2], percentile) for run in runs.values()])
        assert found.values("lqd", f"p{percentile:g}.long")[0] == pytest.approx(truth)
    assert found.metrics == (*FLOW_METRICS, "drops")
    assert np.isnan(found.values("lqd", "p50.incast")).all()
    assert found.figure("lqd", "p50.incast").mean is None
    drops = found.figure("lqd", "drops")
    assert drops.mean == 3
    assert drops.low is not None
    assert drops.high is not None
    assert 1 <= drops.low < 3 < drops.high <= 5


def test_policies_are_paired() -> None:
    random = np.random.default_rng(2)
    slowdown = {seed: 1 + random.exponential(size=200) for seed in SEEDS}
    lqd = {seed: sample(values, 4) for seed, values in slowdown.items()}
    slower = {seed: sample(values + 0.25, 4) for seed, values in slowdown.items()}
    twice = {seed: sample(2 * values, 4) for seed, values in slowdown.items()}
    found = resample({"lqd": lqd, "slower": slower, "twice": twice}, seed=1, draws=200)
    for metric in ("p50.short", "p95.short", "p99.long"):
        difference = found.difference("slower", "lqd", metric)
        assert (difference.mean, difference.low, difference.high) == pytest.approx((0.25, 0.25, 0.25))
        assert found.change_percent("twice", "lqd", metric) == pytest.approx(np.full(201, 100.0))
        alone = found.figure("lqd", metric)
        assert alone.low is not None
        assert alone.high is not None
        assert alone.high - alone.low > 0.05


def test_intervals_hold_the_truth_where_flows_of_a_block_go_together() -> None:
    """Blocks of 10 flows share a shock, seeds another: the median of the true difference is 0.5; 95 % intervals."""
    random = np.random.default_rng(3)
    held, apart = 0, 0
    repeats, blocks, flows = 100, 30, 10
    for repeat in range(repeats):
        runs: dict[str, dict[int, FlowSample]] = {"lqd": {}, "dt": {}}
        for seed in SEEDS:
            shock = random.normal(0, 0.1) + np.repeat(random.normal(0, 1, blocks), flows)
            lqd = random.normal(0, 0.3, blocks * flows)
            runs["lqd"][seed] = sample(10 + lqd, flows)
            runs["dt"][seed] = sample(10.5 + lqd + shock, flows)
        difference = resample(runs, seed=repeat, draws=100).difference("dt", "lqd", "p50.short")
        assert difference.low is not None
        assert difference.high is not None
        held += difference.low <= 0.5 <= difference.high
        apart += difference.low > 0
    assert held >= 90
    assert apart >= 90
