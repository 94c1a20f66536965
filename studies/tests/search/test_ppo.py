"""A rule by PPO at its small size: two rounds of 4,096 decisions, and the native network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.families.conditions import SharingPlan
from foretail_studies.search.trials import PlaySettings
from tests.composed import experiment_settings, run_of

playing = pytest.importorskip("foretail_studies.search.ppo", reason="the extra rl is not installed")
SMALL = ("size=small", "tracking=off", "jobs=1")


def rounds_in(folder: Path) -> list[Path]:
    """The rounds of a store."""
    return sorted(path for path in (folder / "store" / "ppo_round").iterdir() if not path.name.startswith("."))


@pytest.mark.slow
def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    store = f"store_dir={tmp_path / 'store'}"
    first = run_of("rule_by_ppo", tmp_path, *SMALL, store, "rounds=1").shown.rows
    (played,) = rounds_in(tmp_path)
    weights = (played / "content" / "weights.pt").read_bytes()
    result = run_of("rule_by_ppo", tmp_path, *SMALL, store)
    rows = result.shown.rows
    assert len(rounds_in(tmp_path)) == 2
    assert (played / "content" / "weights.pt").read_bytes() == weights
    assert rows.iloc[0].equals(first.iloc[0])
    assert rows["decisions"].tolist() == [4096, 8192]
    assert rows["simulated_s"].is_monotonic_increasing
    assert rows["simulated_s"].iloc[0] > 0
    assert result.document()["best"] in ("ppo_1", "ppo_2")
    tree = Ensemble.load(tmp_path / "ensemble.json")
    assert sum(one.leaves.sum() for one in tree.trees) <= 32
    assert {item.name for item in tree.features} <= set(experiment_settings("rule_by_ppo", *SMALL).observed)


@pytest.mark.slow
def test_the_rewards_of_an_episode_add_up_to_its_cost() -> None:
    settings = experiment_settings("rule_by_ppo", *SMALL, "networks=1")
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {"lqd": {}})
    networks = playing.Networks(playing.Episodes(list(plan.scenarios.values()), settings), seed=5)
    rows, earned, ended = networks.reset(), 0.0, np.zeros(1, np.bool_)
    while not ended.any():
        assert rows.dtype == np.float32
        assert ((rows >= 0) & (rows <= 1)).all()
        networks.step_async(np.zeros(1, np.int64))
        rows, rewards, ended, _ = networks.step_wait()
        earned += float(rewards[0])
    (cost,) = networks.costs
    assert 1 - cost == pytest.approx(earned, abs=1e-4)
    assert 0 < networks.simulated_ns <= settings.episode_ns


@given(st.integers(1, 254), st.integers(0, 2**32 - 1))
def test_the_tree_answers_as_a_network_that_is_a_threshold(cut: int, seed: int) -> None:
    settings = PlaySettings(observed=["message_left", "pressure"], decisions=1024, leaves=2)
    rows = np.random.default_rng(seed).integers(0, 256, (500, 2)).astype(np.int32)
    drops = rows[:, 1] > cut
    tree = playing.distilled(rows, drops, settings)
    assert tree.get_n_leaves() == 2
    assert (tree.predict(rows) == drops).all()


@pytest.mark.parametrize(
    ("override", "message"),
    [("observed=[queue]", "observed holds queue, which has more than 8 bits"), ("observed=[nobody]", "nobody")],
)
def test_a_feature_too_wide_is_refused(override: str, message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        experiment_settings("rule_by_ppo", *SMALL, override)
