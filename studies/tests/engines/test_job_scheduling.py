"""Jobs on servers that share a link against formulas of queues. Costs five seconds."""

from __future__ import annotations

import numpy as np
import pytest

from foretail_studies.engines.inference_jobs import (
    Cluster,
    DrawnPlacements,
    FairShare,
    JobClass,
    JobGraph,
    RandomServers,
    apart,
    pollaczek_khinchine,
    run_jobs,
    together,
)
from studies.tests.engines.test_inference_jobs import DIAMOND, model_of
from tests.refusals import refusing


def test_a_link_waits_as_in_the_formula() -> None:
    """Chains of two tasks on two servers: transfers of two sizes arrive as a Poisson process."""
    pair = JobGraph((0.0, 0.0), {(0, 1): 1.0})
    large = JobGraph((0.0, 0.0), {(0, 1): 3.0})
    model = model_of((pair, 2.0), (large, 1.0), link_bps=80.0)
    split = [np.array([0.0, 1.0]), np.array([0.0, 1.0])]
    assert [choice.placements for choice in model.choices] == [((0, 0), (0, 1))] * 2
    expected = (2 * 0.1**2 + 1 * 0.3**2) / (2 * (1 - 0.5))
    assert model.wait_s(split) == pytest.approx(expected)
    found = run_jobs(model.cluster, model.classes, DrawnPlacements(model.choices, split), 60_000, 1)
    assert found.transfers == 60_000
    assert found.mean_wait_s == pytest.approx(expected, rel=0.05)
    for kind in (0, 1):
        assert found.completion_s[found.kind == kind].mean() == pytest.approx(model.completion_s(split)[kind], rel=0.05)


def test_servers_are_queues_too_and_fair_shares_know_them() -> None:
    """Jobs of one task on random servers: M/D/1 on each; by the shortest queue they wait less."""
    one = JobGraph((1.0,), {})
    classes = (JobClass(one, 2.4),)
    cluster = Cluster(4, 1.0, 1.0)
    drawn = run_jobs(cluster, classes, RandomServers(), 60_000, 1).completion_s.mean()
    assert drawn == pytest.approx(1 + pollaczek_khinchine(np.array([0.6]), np.array([1.0])), rel=0.05)
    placed = run_jobs(cluster, classes, DrawnPlacements((), ()), 60_000, 1).completion_s.mean()
    assert placed == pytest.approx(drawn, rel=0.05)
    assert run_jobs(cluster, classes, FairShare(), 20_000, 1).completion_s.mean() < 1.3


def test_a_lone_job_runs_its_branches_at_once() -> None:
    cluster = Cluster(4, 1.0, 80.0)
    classes = (JobClass(DIAMOND, 1e-6),)
    seconds = {
        name: run_jobs(cluster, classes, scheduler, 20, 1).completion_s
        for name, scheduler in {
            "together": DrawnPlacements(model_of((DIAMOND, 1.0)).choices, together(model_of((DIAMOND, 1.0)).choices)),
            "apart": DrawnPlacements(model_of((DIAMOND, 1.0)).choices, apart(model_of((DIAMOND, 1.0)).choices)),
            "fair": FairShare(),
            "spreads": FairShare(spreads=True),
        }.items()
    }
    assert np.allclose(seconds["together"], 20)
    assert np.allclose(seconds["apart"], 1 + 10 + 1)
    assert np.allclose(seconds["fair"], 1 + 10 + 1, atol=0.3)  # the last task waits for what another server has
    assert np.allclose(seconds["spreads"], 1 + 0.4 + 10 + 0.2 + 1, atol=0.3)


test_refused = refusing(
    (lambda: run_jobs(Cluster(2, 1.0, 1.0), (), RandomServers(), 1, 1), "1 jobs of 0 classes"),
)
