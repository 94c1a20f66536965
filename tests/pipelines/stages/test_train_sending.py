"""Training for what is sent on small slotted runs: the outcome, its replays, its C, and what is refused. 25 s."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.model_stages import ExportConfig, TrainConfig
from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.features.catalog import FEATURE_GROUPS, FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.thresholds.adaptive_threshold import TERMS, AdaptiveThreshold, mean_log_sent
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY, scorer_of
from foretail.pipelines import cli
from foretail.pipelines.exporting.deciding import decider_of
from foretail.pipelines.exporting.predictor import export_drop_predictor
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.outcome import TrainResult
from foretail.pipelines.training.scores import judge_run
from foretail.pipelines.training.sending import LOGITS
from foretail.sim_bridge.arrivals.workloads import Incast, OnOff
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import ReplayScores, replay_scores
from foretail.sim_bridge.open_loop.scores import Decider
from tests.composed import composed
from tests.traces import write_bursts

pytestmark = pytest.mark.slow

PORTS, PER_PORT, SLOTS = 8, 10, 1500
BUFFER = PORTS * PER_PORT
WORKLOADS = {"incast": Incast(fan_in=5, background_load=0.6), "on_off": OnOff(load=0.9)}
NAMES = [feature.name for feature in FEATURES]
SMALL = ["objective.rounds=2", "objective.rows=1500", "predictor.trees=3", "tracking=off"]
SENT = ["features=threshold", "objective.name=sent", "objective.trials=84"]


def written(folder: Path, name: str, seed: int) -> Dataset:
    workload = WORKLOADS[name]
    path = folder / f"{name}-{seed}"
    run = slotted_run(workload, PORTS, PER_PORT, SLOTS, seed, cell_bytes=256)
    write_open_loop_dataset(path, run, arrivals_in_bytes(workload.batches(PORTS, BUFFER, SLOTS, seed)))
    return Dataset.open(path)


def scores_of(dataset: Dataset, decider: Decider) -> ReplayScores:
    return replay_scores(dataset, np.zeros(dataset.manifest.rows, np.bool_), decider)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sending")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[int, Dataset]:
    """Runs of incasts by seed: 1 trains, 2 validates, 3 tests."""
    return {seed: written(folder, "incast", seed) for seed in (1, 2, 3)}


def trained(folder: Path, runs: dict[int, Dataset], *overrides: str) -> TrainResult:
    paths = ",".join(str(dataset.path) for dataset in runs.values())
    sides = ["split.train=[1]", "split.validation=[2]", "split.test=[3]"]
    settings = [f"store_dir={folder / 'store'}", f"datasets=[{paths}]", *sides, *SMALL, *overrides]
    return train(typed(composed("train", *settings), TrainConfig), folder / "out")


@pytest.fixture(scope="module")
def sent(folder: Path, runs: dict[int, Dataset]) -> TrainResult:
    return trained(folder, runs, *SENT)


@pytest.fixture(scope="module")
def boosted(folder: Path, runs: dict[int, Dataset]) -> TrainResult:
    return trained(folder, runs, *SENT, "predictor=boosted_trees", "predictor.learning_rate=1")


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
        replayed.lqd_bytes,
        replayed.accept_bytes,
        replayed.sent_bytes,
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
    assert replace(judged.replay, followlqd_bytes=replayed.followlqd_bytes) == replayed


def test_the_same_settings_give_the_same_model_from_the_store(
    folder: Path, runs: dict[int, Dataset], sent: TrainResult
) -> None:
    again = trained(folder, runs, *SENT)
    assert again.reused
    assert again.model == sent.model
    assert again.outcome == sent.outcome
    anew = trained(folder, runs, *SENT, f"store_dir={folder / 'another'}")
    assert not anew.reused
    assert anew.model == sent.model
    for other in ("objective.trials=85", "objective.rows=1400", "objective.policy=credence"):
        assert not trained(folder, runs, *SENT, other).reused


def test_another_policy_asks_the_predictor_that_was_trained_for_it(folder: Path, runs: dict[int, Dataset]) -> None:
    result = trained(folder, runs, *SENT, "objective.policy=credence")
    assert result.ensemble.origin[POLICY] == result.outcome["replay"]["policy"] == "credence"
    packets = KnownRun.of(runs[3]).sent("credence", scorer_of(result.ensemble))
    assert result.outcome["replay"]["sent_bytes"] == 1024 * packets


def test_a_predictor_learns_from_features_that_its_teacher_does_not_read(
    folder: Path, runs: dict[int, Dataset]
) -> None:
    """Every round has them, the first one too."""
    names = ["gap", "threshold", "fill"]
    result = trained(folder, runs, f"features.names=[{','.join(names)}]", "objective.rounds=2", *SENT[1:])
    assert [item["name"] for item in result.outcome["features"]] == names
    read = {int(place) for tree in result.ensemble.trees for place in tree.feature if place >= 0}
    assert len(read) > 1
    known = KnownRun.of(runs[3])
    assert result.outcome["replay"]["sent_bytes"] == 1024 * known.sent("learned", scorer_of(result.ensemble))
    assert all(one["sent_percent_of_lqd"] > 80 for one in result.outcome["sending"]["rounds"])


def test_several_workloads_count_the_same_and_bring_as_many_rows(folder: Path, runs: dict[int, Dataset]) -> None:
    both = {**runs, **{10 * seed: written(folder, "on_off", 10 * seed) for seed in (1, 2, 3)}}
    sides = ["split.train=[1,10]", "split.validation=[2,20]", "split.test=[3,30]"]
    result = trained(folder, both, *SENT, *sides)
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


def test_a_recorded_run_in_bytes_trains_too(folder: Path) -> None:
    """Ports of another rate and packets of another size than in slots, and no control packets in what is counted."""
    runs = {seed: write_bursts(folder / f"bursts-{seed}", seed) for seed in (1, 2, 3)}
    result = trained(folder, runs, *SENT, "allow_constant_features=true")
    decider = decider_of(result.model)
    assert result.outcome["replay"]["sent_bytes"] == KnownRun.of(runs[3]).sent("learned", decider.scorer)
    assert result.outcome["replay"]["sent_bytes"] == scores_of(runs[3], decider).sent_bytes


def test_the_c_of_a_model_decides_as_its_scorer(folder: Path, runs: dict[int, Dataset], result: TrainResult) -> None:
    model = folder / f"{result.ensemble.sha256}.json"
    result.ensemble.save(model)
    out = folder / f"export-{result.ensemble.sha256}"
    settings = [f"model={model}", f"out={out}", f"store_dir={folder / 'store'}", "tracking=off", "name=drops"]
    export_drop_predictor(typed(composed("export", *settings), ExportConfig), folder / "run")
    library = PredictorLibrary(out / "drops.so")
    assert [name for name, _ in library.features] == list(FEATURE_GROUPS["threshold"])
    decider = decider_of(result.model)
    assert decider.scorer is not None
    visits = KnownRun.of(runs[3]).visited("learned", decider.scorer, rows=10**9, seed=1)
    x = visits.features[:, [NAMES.index(name) for name, _ in library.features]].astype(np.int64)
    drops = library.score(np.ascontiguousarray(x)) > library.default_tau
    assert drops.tolist() == (visits.value > 0).tolist()
    assert Ensemble.load(out / "ensemble.json").origin[POLICY] == "learned"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["window.behind=1"], "asks about one arrival at a time, as a switch: leave window out"),
        (["predictor=mlp"], "lets trees decide in a running switch: choose a predictor of trees, or distill a network"),
        (["predictor=logistic_regression"], "choose a predictor of trees, or distill a network"),
        (["features.names=[pressure,incast]"], "which has no incast: take it out of features.names"),
        (["objective.rounds=1"], "objective.rounds"),
        (["objective.policy=dt"], "objective.policy = dt is unknown"),
    ],
)
def test_what_no_running_switch_can_ask_is_refused(
    folder: Path, runs: dict[int, Dataset], overrides: list[str], says: str
) -> None:
    drop = {"predictor=mlp", "predictor=logistic_regression"} & set(overrides)
    small = [one for one in SMALL if not (drop and one.startswith("predictor."))]
    paths = ",".join(str(dataset.path) for dataset in runs.values())
    sides = ["split.train=[1]", "split.validation=[2]", "split.test=[3]"]
    settings = [f"store_dir={folder / 'store'}", f"datasets=[{paths}]", *sides, *small, "features=threshold"]
    with pytest.raises(ForetailError, match=re.escape(says)):
        train(typed(composed("train", *settings, "objective.name=sent", *overrides), TrainConfig), folder / "o")


def test_stretches_of_runs_are_refused(folder: Path) -> None:
    run = write_bursts(folder / "stretches", 1)
    stretches = ["split=by_time", "split.seeds=[1]", "split.gap_ns=1000", "allow_constant_features=true"]
    settings = [f"store_dir={folder / 'store'}", f"datasets=[{run.path}]", *stretches, *SMALL, *SENT]
    with pytest.raises(ForetailError, match=r"objective\.name=sent replays whole runs"):
        train(typed(composed("train", *settings), TrainConfig), folder / "out")


# -- replays of such a model --------------------------------------------------------------------------------------


def replayed(folder: Path, *overrides: str) -> dict[str, Any]:
    store = f"store_dir={folder / 'store'}"
    assert cli.main(["replay", *overrides, store, "tracking=off", f"hydra.run.dir={folder / 'replayed'}"]) == 0
    document: dict[str, Any] = json.loads((folder / "replayed" / "result.json").read_text())
    return document


@pytest.fixture(scope="module")
def model(folder: Path, sent: TrainResult) -> str:
    path = folder / "sent.json"
    sent.ensemble.save(path)
    return str(path)


def arrivals_of(folder: Path) -> str:
    """The packets of the test run as a file."""
    path = folder / "arrivals.csv"
    lines = [
        f"{slot},{port}"
        for batch in WORKLOADS["incast"].batches(PORTS, BUFFER, SLOTS, 3)
        for slot, port in zip(batch.slot.tolist(), batch.port.tolist(), strict=True)
    ]
    path.write_text("\n".join(["slot,port", *lines, ""]))
    return str(path)


@pytest.mark.parametrize("policies", ["[dt]", "[dt,learned,credence]"])
def test_a_file_and_a_dataset_of_the_same_packets_are_sent_as_the_run_in_memory_sends_them(
    folder: Path,
    runs: dict[int, Dataset],
    sent: TrainResult,
    model: str,
    policies: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    scorer, known = scorer_of(sent.ensemble), KnownRun.of(runs[3])
    expected = {"dt": known.sent("dt", alpha=[0.5]), "learned": known.sent("learned", scorer), "lqd": known.lqd}
    if "credence" in policies:
        expected["credence"] = known.sent("credence", scorer)
    given = [f"model={model}", f"policies={policies}"]
    of_dataset = replayed(folder, f"datasets=[{runs[3].path}]", *given)
    of_file = replayed(folder, f"arrivals={arrivals_of(folder)}", f"ports={PORTS}", f"buffer={BUFFER}", *given)
    for found in (of_dataset, of_file):
        assert {name: one["transmitted"] for name, one in found["policies"].items()} == expected
        worth = found["predictions"]
        assert "under Learned rule, the predictor sends " in " ".join(found["verdict"])
        assert worth["sent_percent_of_lqd"] == pytest.approx(100 * expected["learned"] / known.lqd)
        lost = known.lqd - known.sent("followlqd")
        assert worth["recovered_loss"] == pytest.approx((expected["learned"] - known.lqd + lost) / lost)
    visits = known.visited("learned", scorer, rows=10**9, seed=1)
    learned = of_dataset["policies"]["learned"]
    assert learned == {**learned, "asked": of_file["policies"]["learned"]["asked"]}
    assert learned["predicted_drops"] == of_file["policies"]["learned"]["predicted_drops"]
    assert learned["asked"] == runs[3].manifest.rows
    assert learned["predicted_drops"] >= np.count_nonzero(visits.value > 0) > 0
