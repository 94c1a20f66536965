"""``foretail train`` on made-up datasets: predictors, weights of drops, and what is refused."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules
from foretail.models.drop.thresholds.adaptive_threshold import TERMS, AdaptiveThreshold, mean_log_sent
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY, scorer_of
from foretail.models.mlflow.store import imported
from foretail.models.mlflow.tracking import run_exists
from foretail.pipelines.exporting.network import decider_of
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.fitting import TrainResult
from foretail.pipelines.training.scores import judge_run
from foretail.pipelines.training.sending import LOGITS
from foretail.sim_bridge.arrivals.workloads import Incast, OnOff
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail.sim_bridge.open_loop.scores import Decider, SentScores
from tests.composed import SIDES, foretail, stage_settings
from tests.traces import Arrivals, make_arrivals, write_bursts, write_trace

pytestmark = pytest.mark.slow
QUEUE = [feature.name for feature in FEATURES].index("threshold")
SEEDS = (1, 2, 3, 4)
SHORT = ["features.names=[threshold,queue]", "tracking=off"]


def learnable(seed: int) -> Arrivals:
    """Arrivals of which those are dropped that meet a long queue."""
    arrivals = make_arrivals(1500, seed)
    data = arrivals.records["flow_class"] != 0
    arrivals.records["lqd_drop"] = data & (arrivals.records["features"][:, QUEUE] > 0.85 * 2**24)
    return arrivals


RUN: dict[str, Any] = {
    "scenario": {"topology": {"wire_overhead_bytes": 2}},
    "rules": Rules("counted", "lowest_port", "head"),  # of other labels than these, the push-outs are known
}


def written(path: Path, arrivals: Arrivals, seed: int) -> str:
    return str(write_trace(path / f"{seed}", arrivals, seed=seed, **RUN).path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def datasets(folder: Path) -> list[str]:
    return [written(folder / "runs", learnable(seed), seed) for seed in SEEDS]


def trained(folder: Path, datasets: list[str], *overrides: str) -> TrainResult:
    settings = [f"store_dir={folder / 'store'}", f"datasets=[{','.join(datasets)}]", *SHORT, *overrides]
    return train(stage_settings(TrainConfig, *settings), folder / "out")


def test_a_model_says_how_often_training_rows_reached_its_leaves(folder: Path, datasets: list[str]) -> None:
    for predictor in ("random_forest", "boosted_trees"):  # the first counts the rows of its bootstraps, the second none
        result = trained(folder, datasets, f"predictor={predictor}", "predictor.trees=2", "sampling.others=0.5")
        rows = sum(item["rows"] for item in result.document()["datasets"] if item["side"] == "train")
        visits = [tree.visits for tree in result.ensemble.trees]
        assert [0 if counts is None else counts.sum() for counts in visits] == [rows, rows]


def test_no_line_in_a_pipe_is_longer_than_80_columns(folder: Path, datasets: list[str]) -> None:
    runs = [str(Path(path).relative_to(folder)) for path in datasets]
    done = foretail(folder, "train", f"datasets=[{','.join(runs)}]", SHORT[0], "hydra.run.dir=lines")
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "result: lines/result.json" in [line.replace(f"{folder}/", "") for line in lines]
    assert any(line.startswith("MLflow run ") and line.endswith(" in outputs/mlflow.db") for line in lines)


def test_drops_that_weigh_more_are_predicted_more(folder: Path, datasets: list[str]) -> None:
    light, heavy = (
        trained(folder, datasets, "features.names=[queue]", f"drop_weight={weight}") for weight in ("1", "20")
    )
    assert isinstance(light.model, Ensemble)
    assert isinstance(heavy.model, Ensemble)
    x = np.arange(0, 2**24, 2**16)[:, None]
    assert heavy.model.probability(x).mean() > 3 * light.model.probability(x).mean()
    assert not heavy.reused


def test_boosted_trees_are_the_same_with_their_bins_in_files(folder: Path, datasets: list[str]) -> None:
    boosted = ["predictor=boosted_trees", "predictor.trees=3"]
    in_memory = trained(folder, datasets, *boosted)
    assert trained(folder, datasets, *boosted, "trainer.rows_in_memory=10").reused
    again = trained(folder, datasets, *boosted, "trainer.rows_in_memory=10", f"store_dir={folder / 'other'}")
    assert not again.reused
    assert again.ensemble == in_memory.ensemble
    assert again.outcome["sampled_others"] == 1


def test_more_rows_than_fit_into_memory_are_sampled_for_a_forest(folder: Path, datasets: list[str]) -> None:
    forest = ["predictor=random_forest", "predictor.trees=2"]
    whole = trained(folder, datasets, *forest)
    rows = int(str(whole.ensemble.origin["rows"]))
    cut = trained(folder, datasets, *forest, f"trainer.rows_in_memory={rows - 100}")
    share = cut.outcome["sampled_others"]
    assert whole.outcome["sampled_others"] == 1
    assert 0 < share < 1
    assert int(str(cut.ensemble.origin["rows"])) < rows
    assert cut.ensemble.origin["drops"] == whole.ensemble.origin["drops"]
    note = f"trained on every drop, all of the asked region and {100 * share:.3g} % of the other rows, weighted"
    assert note in cut.score_table().notes
    assert not any("of the other rows" in note for note in whole.score_table().notes)
    chosen = trained(folder, datasets, *forest, f"sampling.others={share!r}")
    assert not chosen.reused
    assert chosen.ensemble == cut.ensemble
    with pytest.raises(ForetailError, match=r"raise trainer\.rows_in_memory"):
        trained(folder, datasets, *forest, "trainer.rows_in_memory=10")


def test_threads_make_another_model_where_they_change_sums(folder: Path, datasets: list[str]) -> None:
    forest, boosted = ([f"predictor={name}", "drop_weight=3"] for name in ("random_forest", "boosted_trees"))
    for predictor, reused in ((forest, True), (boosted, False)):
        assert not trained(folder, datasets, *predictor).reused
        assert trained(folder, datasets, *predictor, "trainer.jobs=2").reused == reused


def test_a_feature_that_never_changes_is_named(folder: Path) -> None:
    def constant(seed: int) -> Arrivals:
        arrivals = learnable(seed)
        arrivals.shadow[:, SHADOW_COLUMNS.index("shadow_queue")] = 7
        return arrivals

    runs = [written(folder / "constant", constant(seed), seed) for seed in SEEDS]
    with pytest.raises(ForetailError, match=r"feature queue is 7 in all \d+ training rows, .* allow_constant_features"):
        trained(folder, runs)
    assert trained(folder, runs, "allow_constant_features=true").outcome["scores"]["test"]["whole"]["f1"] > 0.9


@pytest.mark.parametrize(
    ("poor", "drop", "says"),
    [
        (1, 0, r"rows of the train side of the split hold no drop: give it more runs"),
        (3, 0, r"rows of the validation side of the split hold no drop"),
        (4, 0, r"rows of the test side of the split hold no drop"),
        (4, 1, r"all \d+ rows of the test side of the split are drops"),
    ],
)
def test_a_side_of_one_class_is_named(tmp_path: Path, poor: int, drop: int, says: str) -> None:
    runs = []
    for seed in (1, 3, 4):
        arrivals = learnable(seed)
        if seed == poor:
            arrivals.records["lqd_drop"] = drop * (arrivals.records["flow_class"] != 0)
        runs.append(written(tmp_path, arrivals, seed))
    with pytest.raises(ForetailError, match=says):
        trained(tmp_path, runs, "split.train=[1]")


@pytest.mark.nightly
def test_a_reused_model_is_told_without_what_takes_long_to_import(folder: Path, datasets: list[str]) -> None:
    arguments = ["train", f"datasets=[{','.join(datasets)}]", SHORT[0], f"store_dir={folder / 'tracked' / 'store'}"]
    program = (
        "import sys; from foretail.pipelines.cli import main; assert main(sys.argv[1:]) == 0; "
        "slow = {'mlflow', 'pandas', 'sklearn', 'scipy', 'matplotlib', 'foretail.pipelines.data.collecting', "
        "'foretail.export.proof'}; print('loaded:', sorted(slow & sys.modules.keys()))"
    )

    def run() -> str:
        command = [sys.executable, "-c", program, *arguments, "predictor.trees=1"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    assert "is version 1 now\n" in run()
    again = run()
    assert "reused model" in again
    assert "is version 1 now, as before\n" in again
    assert again.endswith("loaded: []\n")
    uri = f"sqlite:///{folder / 'tracked' / 'mlflow.db'}"
    (run_id,) = re.findall(r"MLflow run (\w+) in", again)
    imported().MlflowClient(uri).delete_run(run_id)
    assert not run_exists(run_id, uri)
    assert "is version 2 now; before: version 1\n" in run()


PORTS, PER_PORT, SLOTS = 8, 10, 1500
BUFFER = PORTS * PER_PORT
WORKLOADS = {"incast": Incast(fan_in=5, background_load=0.6), "on_off": OnOff(load=0.9)}
NAMES = [feature.name for feature in FEATURES]
SMALL = ["objective.rounds=2", "objective.rows=1500", "predictor.trees=3", "tracking=off"]
SENT = ["features=threshold", "objective.name=sent", "objective.trials=84"]


def slotted_dataset(place: Path, name: str, seed: int) -> Dataset:
    workload = WORKLOADS[name]
    path = place / f"{name}-{seed}"
    run = slotted_run(workload, PORTS, PER_PORT, SLOTS, seed, cell_bytes=256)
    write_open_loop_dataset(path, run, arrivals_in_bytes(workload.batches(PORTS, BUFFER, SLOTS, seed)))
    return Dataset.open(path)


def scores_of(dataset: Dataset, decider: Decider) -> SentScores:
    return replay_scores(dataset, np.zeros(dataset.manifest.rows, np.bool_), decider)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sending")


@pytest.fixture(scope="module")
def runs(place: Path) -> dict[int, Dataset]:
    """Runs of incasts by seed: 1 trains, 2 validates, 3 tests."""
    return {seed: slotted_dataset(place, "incast", seed) for seed in (1, 2, 3)}


def trained_to_send(place: Path, runs: dict[int, Dataset], *overrides: str) -> TrainResult:
    paths = ",".join(str(dataset.path) for dataset in runs.values())
    settings = [f"store_dir={place / 'store'}", f"datasets=[{paths}]", *SIDES, *SMALL, *overrides]
    return train(stage_settings(TrainConfig, *settings), place / "out")


@pytest.fixture(scope="module")
def sent(place: Path, runs: dict[int, Dataset]) -> TrainResult:
    return trained_to_send(place, runs, *SENT)


@pytest.fixture(scope="module")
def boosted(place: Path, runs: dict[int, Dataset]) -> TrainResult:
    return trained_to_send(place, runs, *SENT, "predictor=boosted_trees", "predictor.learning_rate=1")


@pytest.fixture(params=["sent", "boosted"])
def result(request: pytest.FixtureRequest) -> TrainResult:
    made: TrainResult = request.getfixturevalue(request.param)
    return made


def test_the_outcome_tells_every_round_and_where_they_started(result: TrainResult, runs: dict[int, Dataset]) -> None:
    sending = result.outcome["sending"]
    judge, learner = KnownRun.of(runs[2]), KnownRun.of(runs[1])
    assert len(sending["rounds"]) == 2
    shares = {alpha: 100 * learner.sent("dt", alpha=[alpha]) / learner.lqd for alpha in ALPHAS}
    assert sending["alpha_sends_percent_of_lqd"] == pytest.approx(shares[sending["alpha"]])
    assert shares[sending["alpha"]] == max(shares.values())
    best = max(one["sent_percent_of_lqd"] for one in sending["rounds"])
    assert best == pytest.approx(100 * judge.sent("learned", scorer_of(result.ensemble)) / judge.lqd)
    assert all(0 < one["rows"] <= 2 * 1500 * 1.2 for one in sending["rounds"])
    assert json.loads(json.dumps(sending)) == sending


def test_the_searched_rule_is_in_the_outcome(sent: TrainResult) -> None:
    sending = sent.outcome["sending"]
    (rule,) = sending["rules"]
    assert (len(rule["numbers"]), len(rule["centres"])) == (23, len(TERMS))
    assert rule["trials"] == 96  # whole generations
    assert rule["sends_percent_of_lqd"] >= rule["start_sends_percent_of_lqd"]
    assert rule["start_sends_percent_of_lqd"] == pytest.approx(sending["alpha_sends_percent_of_lqd"], abs=2)
    assert rule["sends_percent_of_lqd_on_validation"] < 100
    assert sending["rounds"][1]["rows"] > sending["rounds"][0]["rows"]  # rows of all rounds train


def test_the_model_names_its_policy_and_the_threshold_that_sends_most(
    result: TrainResult, runs: dict[int, Dataset]
) -> None:
    model, judge = result.ensemble, KnownRun.of(runs[2])
    assert model.origin[POLICY] == "learned"
    decider = decider_of(model)
    assert result.outcome["threshold"] == str(model.threshold)
    sends = {}
    for logit in LOGITS:
        probability = 1 / (1 + math.exp(-logit))
        on_sum = logit if model.output == "logit" else probability * len(model.trees)
        other = model.with_threshold(Fraction(round(on_sum * (1 << 20)), 1 << 20))
        sends[probability] = judge.sent("learned", scorer_of(other))
    chosen = result.outcome["threshold_probability"]
    assert sends[chosen] == max(sends.values()) == judge.sent("learned", decider.scorer)


def test_figures_of_the_replay_are_those_of_the_run_in_which_it_decides(
    result: TrainResult, runs: dict[int, Dataset]
) -> None:
    replay, decider = result.outcome["replay"], decider_of(result.model)
    known, replayed = KnownRun.of(runs[3]), scores_of(runs[3], decider)
    packets = known.sent("learned", decider.scorer)
    assert [replay[name] for name in ("lqd_bytes", "accept_bytes", "sent_bytes")] == [
        replayed.lqd,
        replayed.accept,
        replayed.sent,
    ]
    assert replay["sent_bytes"] == 1024 * packets
    assert replay["lqd_bytes"] == 1024 * known.lqd
    assert replay["accept_bytes"] == 1024 * known.sent("followlqd")
    assert replay["policy"] == "learned"
    sends = f"under Learned rule, the predictor sends {100 * packets / known.lqd:.4g} % of what LQD sends"
    assert sends in " ".join(result.verdict())
    assert replay["recovered_loss"] == replayed.recovered_loss
    assert replay["sent_percent_of_lqd"] == pytest.approx(100 * packets / known.lqd)
    judged = judge_run(result.model, runs[3], result.outcome["columns"], decider)
    assert replace(judged.replay, followlqd=replayed.followlqd) == replayed


def test_the_same_settings_give_the_same_model_from_the_store(
    place: Path, runs: dict[int, Dataset], sent: TrainResult
) -> None:
    again = trained_to_send(place, runs, *SENT)
    assert again.reused
    assert again.model == sent.model
    assert again.outcome == sent.outcome
    anew = trained_to_send(place, runs, *SENT, f"store_dir={place / 'another'}")
    assert not anew.reused
    assert anew.model == sent.model
    for other in ("objective.trials=85", "objective.rows=1400", "objective.policy=credence"):
        assert not trained_to_send(place, runs, *SENT, other).reused


def test_another_policy_asks_the_predictor_that_was_trained_for_it(place: Path, runs: dict[int, Dataset]) -> None:
    result = trained_to_send(place, runs, *SENT, "objective.policy=credence")
    assert result.ensemble.origin[POLICY] == result.outcome["replay"]["policy"] == "credence"
    packets = KnownRun.of(runs[3]).sent("credence", scorer_of(result.ensemble))
    assert result.outcome["replay"]["sent_bytes"] == 1024 * packets


def test_a_predictor_learns_from_features_that_its_teacher_does_not_read(place: Path, runs: dict[int, Dataset]) -> None:
    """Every round has them, the first one too."""
    names = ["gap", "threshold", "fill"]
    result = trained_to_send(place, runs, f"features.names=[{','.join(names)}]", "objective.rounds=2", *SENT[1:])
    assert [item["name"] for item in result.outcome["features"]] == names
    read = {int(column) for tree in result.ensemble.trees for column in tree.feature if column >= 0}
    assert len(read) > 1
    known = KnownRun.of(runs[3])
    assert result.outcome["replay"]["sent_bytes"] == 1024 * known.sent("learned", scorer_of(result.ensemble))
    assert all(one["sent_percent_of_lqd"] > 80 for one in result.outcome["sending"]["rounds"])


def test_several_workloads_count_the_same_and_bring_as_many_rows(place: Path, runs: dict[int, Dataset]) -> None:
    both = {**runs, **{10 * seed: slotted_dataset(place, "on_off", 10 * seed) for seed in (1, 2, 3)}}
    sides = ["split.train=[1,10]", "split.validation=[2,20]", "split.test=[3,30]"]
    result = trained_to_send(place, both, *SENT, *sides)
    judges = [KnownRun.of(both[seed]) for seed in (2, 20)]
    rules = result.outcome["sending"]["rules"]
    assert [rule["condition"] for rule in rules] == [judge.condition for judge in judges]
    for rule, judge in zip(rules, judges, strict=True):  # each searched on its own workload
        scorer = AdaptiveThreshold(tuple(rule["numbers"]), tuple(rule["centres"])).scorer()
        sends = 100 * judge.sent("learned", scorer) / judge.lqd
        assert rule["sends_percent_of_lqd_on_validation"] == pytest.approx(sends)
    best = max(one["sent_percent_of_lqd"] for one in result.outcome["sending"]["rounds"])
    assert best == pytest.approx(100 * np.exp(mean_log_sent(judges, "learned", scorer_of(result.ensemble))))
    sent = sum(KnownRun.of(both[seed]).sent("learned", scorer_of(result.ensemble)) for seed in (3, 30))
    assert result.outcome["replay"]["sent_bytes"] == 1024 * sent


def test_a_recorded_run_in_bytes_trains_too(place: Path) -> None:
    """Ports of another rate and packets of another size than in slots, and no control packets in what is counted."""
    runs = {seed: write_bursts(place / f"bursts-{seed}", seed) for seed in (1, 2, 3)}
    result = trained_to_send(place, runs, *SENT, "allow_constant_features=true")
    decider = decider_of(result.model)
    assert result.outcome["replay"]["sent_bytes"] == KnownRun.of(runs[3]).sent("learned", decider.scorer)
    assert result.outcome["replay"]["sent_bytes"] == scores_of(runs[3], decider).sent


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["predictor=mlp"], "lets trees decide in a running switch: choose a predictor of trees"),
        (["predictor=logistic_regression"], "choose a predictor of trees"),
        (["features.names=[pressure,incast]"], "which has no incast: take it out of features.names"),
        (["objective.rounds=1"], "objective.rounds"),
        (["objective.policy=dt"], "objective.policy = dt is unknown"),
    ],
)
def test_what_no_running_switch_can_ask_is_refused(
    place: Path, runs: dict[int, Dataset], overrides: list[str], says: str
) -> None:
    drop = {"predictor=mlp", "predictor=logistic_regression"} & set(overrides)
    small = [one for one in SMALL if not (drop and one.startswith("predictor."))]
    paths = ",".join(str(dataset.path) for dataset in runs.values())
    settings = [f"store_dir={place / 'store'}", f"datasets=[{paths}]", *SIDES, *small, "features=threshold"]
    with pytest.raises(ForetailError, match=re.escape(says)):
        train(stage_settings(TrainConfig, *settings, "objective.name=sent", *overrides), place / "o")


def test_stretches_of_runs_are_refused(place: Path) -> None:
    run = write_bursts(place / "stretches", 1)
    stretches = ["split=by_time", "split.seeds=[1]", "split.gap_ns=1000", "allow_constant_features=true"]
    settings = [f"store_dir={place / 'store'}", f"datasets=[{run.path}]", *stretches, *SMALL, *SENT]
    with pytest.raises(ForetailError, match=r"objective\.name=sent replays whole runs"):
        train(stage_settings(TrainConfig, *settings), place / "out")
