"""Costs of wrong predictions, against the replays that they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.dataset.manifest import SwitchGeometry
from foretail.features.dataset.reader import Dataset
from foretail.features.records import FlowClass
from foretail.features.rows.labelled_rows import LABEL
from foretail.sim_bridge.open_loop.prediction_cost import prediction_costs
from foretail.sim_bridge.open_loop.replay import ReplayScores, bytes_without, feed, replay_of, replay_scores
from tests.traces import make_arrivals, write_trace

FOR_EVER = 10**18


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A congested trace whose labels are LQD's."""
    arrivals = make_arrivals(3000, seed=7)
    records = arrivals.records
    records["port"] %= 4
    changes: dict[str, Any] = {
        "switches": (SwitchGeometry(4, 9000, (10**9,) * 4),) * 2,
        "scenario": {"topology": {"wire_overhead_bytes": 2}},
    }
    first = write_trace(tmp_path_factory.mktemp("traces") / "first", arrivals, **changes)
    labels = feed(replay_of("lqd", first.manifest, features=True), records)["lqd_drop"]  # in one batch, so complete
    records["lqd_drop"] = np.where(records["flow_class"] == FlowClass.CONTROL, 0, labels)
    return write_trace(tmp_path_factory.mktemp("traces") / "labelled", arrivals, **changes)


def test_one_pass_sends_what_one_replay_each_does(dataset: Dataset) -> None:
    level = np.random.default_rng(1).integers(0, 10, dataset.manifest.rows)
    least = [0, 3, 9, 10]
    one_each = [replay_scores(dataset, level >= c).followlqd_bytes for c in least]
    assert bytes_without(dataset, level, least) == one_each
    assert len(set(one_each)) == 4
    with pytest.raises(ForetailError, match="1 predictions do not fit"):
        bytes_without(dataset, level[:1], least)


def test_costs_add_up_to_the_loss_of_the_replay(dataset: Dataset) -> None:
    lqd_drop = dataset.frame([LABEL])[LABEL].to_numpy()
    predicted = lqd_drop ^ (np.random.default_rng(2).random(len(lqd_drop)) < 0.1)
    scores: ReplayScores = replay_scores(dataset, predicted)
    right = replay_scores(dataset, lqd_drop)
    costs = prediction_costs(dataset, predicted, FOR_EVER)
    lost = right.followlqd_bytes - scores.followlqd_bytes
    assert lost > 0
    assert np.all(costs[predicted == lqd_drop] == 0)
    by_switch = costs[predicted != lqd_drop]
    assert len(np.unique(by_switch)) == 2  # one window for each switch
    assert costs.sum() == pytest.approx(lost)
    narrow = prediction_costs(dataset, predicted, 1_000_000)  # every window has a wrong prediction
    assert narrow.sum() >= lost - 1e-6  # windows that gained count 0
    assert np.all(narrow[predicted == lqd_drop] == 0)


def test_right_predictions_cost_nothing_and_doors_are_guarded(dataset: Dataset) -> None:
    lqd_drop = dataset.frame([LABEL])[LABEL].to_numpy()
    assert not prediction_costs(dataset, lqd_drop, 1000).any()
    with pytest.raises(ForetailError, match="1 predictions do not fit"):
        prediction_costs(dataset, lqd_drop[:1], 1000)
    with pytest.raises(ForetailError, match="0 ns"):
        prediction_costs(dataset, lqd_drop, 0)
