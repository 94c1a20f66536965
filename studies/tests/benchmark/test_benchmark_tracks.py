"""The open-loop and the demand track of the benchmark at their small sizes, and their scores against a slow model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import traffic_sha256
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.mlflow.registry import Lineage, UsedDataset
from foretail.pipelines import cli
from foretail.pipelines.data.slotted_traffic import run_in
from foretail.pipelines.families.conditions import Condition
from foretail.pipelines.settings.compose import compose_settings
from foretail_studies.benchmark import frozen_tracks
from foretail_studies.benchmark.frozen_tracks import ACCEPT, LQD
from foretail_studies.benchmark.track import DEMAND, OPEN_LOOP, Track, best_of, frozen_runs, require_frozen
from tests.composed import experiment_settings, run_of

VERSIONS = {OPEN_LOOP: "benchmark_open_loop", DEMAND: "benchmark_demand"}
SMALL = ("size=small", "tracking=off", "jobs=1")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"store_dir={tmp_path_factory.mktemp('tracks') / 'store'}"


def always_accepts(folder: Path) -> Path:
    """A rule that drops nothing: no queue reaches its limits."""
    path = folder / "accept.json"
    SharingRule(message_left=-1, fill=255, pressure=255, first_rtt_pressure=255).ensemble(cell_bytes=256).save(path)
    return path


@pytest.mark.slow
def test_lqd_wins_everything_back_and_always_accepting_nothing(store: str, tmp_path: Path) -> None:
    result = run_of("benchmark_open_loop", tmp_path, *SMALL, store, "model=dt_alpha_4")
    document, rows = result.document(), result.shown.rows
    assert document["version"] == "open-loop-1-small"
    assert (document["judged"], document["tuned_threshold"]) == ("dt_alpha_4", "dt_alpha_16")
    assert set(rows["rule"]) == {"dt_alpha_4", LQD, ACCEPT, "cs", "dt_alpha_16"}
    assert set(rows.loc[rows["rule"] == LQD, "percent"]) == {100.0}
    assert set(rows.loc[rows["rule"] == ACCEPT, "percent"]) == {0.0}
    own = rows[rows["held_out"] & (rows["rule"] == "dt_alpha_4")]
    assert document["score"] == pytest.approx(own["percent"].mean())  # one held-out family
    assert document["low"] < document["score"] < document["high"]
    assert document["scores"][LQD]["score"] == 100
    assert document["reference_runs"] == frozen_runs("small", OPEN_LOOP)
    assert "dt_alpha_4 scores" in result.verdict()[0]
    assert "dt_alpha_16, the best without a prediction" in result.verdict()[1]


@pytest.mark.slow
def test_a_policy_in_python_sends_what_the_same_threshold_sends(store: str, tmp_path: Path) -> None:
    """Dynamic Thresholds with alpha 4 at 8 ports of 10 packets, each of four cells, decided live."""
    file = tmp_path / "rule.py"
    file.write_text(
        "FEATURES = ('queue', 'occupancy')\ndef decide(rows):\n    return rows[:, 0] >= 4 * (320 - rows[:, 1])\n"
    )
    result = run_of("benchmark_open_loop", tmp_path / "own", *SMALL, store, f"model={file}:decide")
    own = result.document()
    assert own["judged"] == "rule.py:decide"
    assert any("Python" in note for note in result.shown.notes)
    other = run_of("benchmark_open_loop", tmp_path / "other", *SMALL, store, "model=dt_alpha_4").document()
    assert own["scores"]["rule.py:decide"] == other["scores"]["dt_alpha_4"]


@pytest.mark.slow
def test_the_oracle_carries_all_that_the_oracle_carries(store: str, tmp_path: Path) -> None:
    result = run_of("benchmark_demand", tmp_path, *SMALL, store, "model=moving_average", "+parameters.window=3")
    document, rows = result.document(), result.shown.rows
    assert document["version"] == "demand-1-small"
    assert document["judged"] == "moving_average, window 3"
    assert set(rows.loc[rows["rule"] == "oracle", "percent"]) == {100.0}
    assert document["scores"]["oracle"]["low"] == document["scores"]["oracle"]["high"] == 100
    assert document["tuned_threshold"] in ("last_value", "moving_average of 2")
    assert document["reference_runs"] == frozen_runs("small", DEMAND)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", ["small", "full"])
def test_every_run_of_the_reference_is_frozen(version: str, size: str) -> None:
    settings = experiment_settings(VERSIONS[version], f"size={size}", "tracking=off")
    wanted = {
        (family, condition, seed, one.held_out)
        for family, one in settings.families.items()
        for condition in one.conditions
        for seed in settings.seeds
    }
    frozen = frozen_runs(size, version)
    assert {(run.family, run.condition, run.seed, run.held_out) for run in frozen} == wanted
    require_frozen(frozen, size, version)
    for wrong in (replace(frozen[0], flows_sha256="others"), replace(frozen[0], cost=frozen[0].cost + 1)):
        with pytest.raises(ForetailError, match=f"so this is not {version}: leave its"):
            require_frozen([wrong, *frozen[1:]], size, version)


def test_a_model_that_was_given_a_held_out_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = experiment_settings("benchmark_open_loop", *SMALL)
    overrides = ["source=slotted", *settings.shared, *settings.families["on_off"].overrides("load_60")]
    traffic = traffic_sha256(run_in(compose_settings(CollectConfig, overrides, "here").slotted, settings.seeds[1]))
    lineage = Lineage(("run",), (UsedDataset("mine", "train", "content", traffic),))
    monkeypatch.setattr(frozen_tracks, "lineages", lambda: [lineage])
    with pytest.raises(ForetailError, match=r"on_off load_60 on seed 602 is not a held-out run: .* of mine"):
        run_of("benchmark_open_loop", tmp_path, *SMALL, f"model={always_accepts(tmp_path)}")


def test_matrices_on_which_predictors_learn_judge_nobody(tmp_path: Path) -> None:
    overrides = '["collectives=[hybrid_parallel]","noise=0","placed_at_random=false"]'
    same = [f"families.{family}.conditions.usual={overrides}" for family in ("hybrid", "data")]
    with pytest.raises(ForetailError, match="data usual on seed 601 is not a held-out run"):
        run_of("benchmark_demand", tmp_path, *SMALL, *same)


@st.composite
def measured(draw: st.DrawFn) -> dict[Condition, dict[str, dict[int, float]]]:
    """Percents of three rules in two families of one or two conditions each, on two to five seeds."""
    seeds = range(draw(st.integers(2, 5)))
    wheres = [Condition("a", "1"), Condition("b", "1"), Condition("b", "2")][: draw(st.integers(2, 3))]
    percent = st.floats(-200, 200).map(lambda value: round(value, 3))
    return {
        where: {rule: {seed: draw(percent) for seed in seeds} for rule in ("mine", "floor", "tuned")}
        for where in wheres
    }


@given(measured())
def test_a_score_is_the_mean_over_families_with_an_interval_over_seeds(
    percents: dict[Condition, dict[str, dict[int, float]]],
) -> None:
    found = Track("v", "full", percents, {"a", "b"}, {}, "floor", "tuned", "a share")
    score = found.score("mine")
    seeds = sorted(next(iter(percents.values()))["mine"])
    families = {
        family: [[of["mine"][seed] for where, of in percents.items() if where.family == family] for seed in seeds]
        for family in ("a", "b")
    }
    by_seed = [(sum(families["a"][i]) + sum(families["b"][i]) / len(families["b"][i])) / 2 for i in range(len(seeds))]
    assert score.over_seeds.mean == pytest.approx(np.mean(by_seed), abs=1e-9)
    half = stats.t.ppf(0.975, len(seeds) - 1) * stats.sem(by_seed)
    assert score.over_seeds.high == pytest.approx(np.mean(by_seed) + half, abs=1e-6)
    for where, of in percents.items():
        less = np.array([of["mine"][seed] - of["floor"][seed] for seed in seeds])
        high = less.mean() + stats.t.ppf(1 - 0.05 / len(percents), len(less) - 1) * stats.sem(less)
        guard = found.guard(where, "mine")
        assert guard is not None
        assert guard == pytest.approx(high, abs=1e-6)
        assert (where in score.failed) == (guard < 0)
    best = best_of(percents, list(percents), ["mine", "tuned"])
    means = {rule: found.score(rule).over_seeds.mean or 0.0 for rule in ("mine", "tuned")}
    assert means[best] == max(means.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["track=nobody"], "track=nobody is unknown: choose from closed_loop, open_loop, demand"),
        (["track=open_loop", "model=lqd_last"], "lqd_last is no policy of arrivals in slots"),
        (["track=open_loop", "families.on_off.held_out=false"], "families needs one with held_out=false and one with"),
        (["track=demand", "model=nobody"], "nobody is unknown"),
        (["track=demand", "training_seeds=[601]"], "seed 601 is among training_seeds and seeds"),
        (["track=demand", "+parameters.window=3"], "parameters belong to no predictor"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["benchmark", "size=small", "tracking=off", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("track", ["benchmark", "benchmark_open_loop"])
@pytest.mark.parametrize("model", ["credence", "learned"])
def test_a_policy_that_asks_has_to_be_given_whom(track: str, model: str, store: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=f"model={model} asks a predictor and there is none: give model=MODEL"):
        run_of(track, tmp_path, *SMALL, store, f"model={model}")
