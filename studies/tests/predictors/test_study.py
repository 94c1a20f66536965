from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.tracking import MlflowClient

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import PAPER_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.drop.forest import RandomForest
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines import cli
from foretail.pipelines.experiment.catalog import run_experiment
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.network import decider_of
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.validation import validate
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.fitting import TrainResult
from foretail.sim_bridge.arrivals.workloads import workload_of
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail.sim_bridge.open_loop.scores import SentScores
from foretail_studies.predictors.held_out import ACCEPT, SPLITS
from foretail_studies.predictors.label_study import (
    LabelStudy,
    kolmogorov_smirnov,
    label_study,
    population_stability_index,
)
from foretail_studies.predictors.promise import (
    DRAWN,
    LEAST_LOST,
    OWN,
    UNSEEN,
    WITHIN,
    _summary,
    _verdict,
    drawn_workloads,
)
from foretail_studies.predictors.studying import Studied, StudySettings, studied
from tests.composed import experiment_settings, result_in, stage_settings

pytestmark = pytest.mark.slow
SMALL = ("predictor_study", "size=small")
CANDIDATES = {
    "paper": ["features=paper", "features.own_queues=true"],
    "ours": ["features=virtual", "operating_point.maximise=recovered_loss"],
    "again": ["features=virtual", "operating_point.maximise=f1"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def found(folder: Path) -> Studied:
    settings = experiment_settings(*SMALL, f"store_dir={folder / 'store'}")
    settings.candidates, settings.budget, settings.forest_sizes = CANDIDATES, ["paper", "ours"], [1, 2]
    settings.closed_loop.candidates, settings.shift.candidate, settings.label_candidate = (
        ["paper", "ours"],
        "ours",
        "ours",
    )
    validate(settings)
    kept: list[Studied] = []

    def show(settings: StudySettings, run: Run) -> Shown:
        kept.append(studied(settings, run))
        return kept[0].shown()

    run_experiment(FunctionExperiment(StudySettings, show), settings, folder / "run")
    return kept[0]


@pytest.mark.nightly
def test_every_candidate_is_judged_on_runs_that_it_never_saw(found: Studied) -> None:
    assert {(run.candidate, run.condition, run.seen) for run in found.held_out} == {
        (candidate, condition, seen)
        for candidate in (ACCEPT, "paper", "ours", "again")
        for condition, seen in (("base", True), ("load40", False))
    }
    for run in found.held_out:
        dataset = found.conditions[run.condition].runs[run.seed]
        assert run.seed not in (*found.settings.split.train, *found.settings.split.validation)
        if run.candidate == ACCEPT:
            assert (run.asked.tp, run.asked.fp, run.replay.recovered_loss) == (0, 0, 0)
            continue
        trained = found.trained[run.candidate]
        used = {item["content_sha256"] for item in trained.outcome["datasets"] if item["side"] != "test"}
        assert dataset.manifest.content_sha256 not in used
        rows = read_rows((Selection(dataset),), trained.outcome["columns"])
        predicted = trained.model.exceeds(rows.x)
        assert rows.asked is not None
        assert run.asked == Confusion.count(rows.lqd_drop[rows.asked], predicted[rows.asked])
        assert run.whole == Confusion.count(rows.lqd_drop, predicted)
        assert run.replay == replay_scores(dataset, predicted, decider_of(trained.ensemble))


@pytest.mark.nightly
def test_the_threshold_by_recovered_loss_is_no_worse_than_accepting_where_it_was_chosen(found: Studied) -> None:
    ours = found.trained["ours"]
    (validation,) = [item for item in ours.outcome["datasets"] if item["side"] == "validation"]
    dataset = next(run for run in found.conditions["base"].runs.values() if str(run.path) == validation["path"])
    rows = read_rows((Selection(dataset),), ours.outcome["columns"])
    never = ours.ensemble.with_threshold(Fraction(10**6))
    predicted = ours.model.exceeds(rows.x)
    sent, accepted = (replay_scores(dataset, predicted, decider_of(one)).sent for one in (ours.ensemble, never))
    assert sent is not None
    assert accepted is not None
    assert sent >= accepted


@pytest.mark.nightly
def test_closed_loop_shift_and_leakage_are_shown(found: Studied) -> None:
    tables = {table.title: table for table in found.tables()}
    flows = tables["Closed loop, condition base"]
    assert [row[0] for row in flows.rows] == [
        "lqd",
        "credence_accept",
        "followlqd",
        "dt",
        "credence, paper",
        "credence, ours",
    ]
    shift = tables["Shift: F1 of the asked region"]
    assert shift.columns == ("trained on", "base", "load40")
    diagonal = next(run for run in found.held_out if (run.candidate, run.condition) == ("ours", "base")).asked.f1
    assert shift.rows[0][1] == pytest.approx(diagonal)
    assert [(row["split"], row["trees"]) for row in found.leakage] == [(s, t) for s in SPLITS for t in (1, 2)]
    json.dumps(found.details(), default=str)


@pytest.mark.nightly
def test_a_study_says_who_recovers_most_and_what_the_gate_said(found: Studied) -> None:
    first, second = found.verdict()
    recovered = {
        name: SentScores.together(
            [run.replay for run in found.held_out if run.candidate == name and run.seen]
        ).recovered_loss
        for name in found.trained
    }
    best = max(recovered, key=lambda name: recovered[name] or 0)
    share = f"{100 * (recovered[best] or 0):.3g} %"
    words = f"{best} recovers the largest share of what always accepting loses, {share}"
    none = f"no predictor recovers what always accepting loses; {best} comes closest, {share}"
    assert first.startswith(f"On held-out runs {words if (recovered[best] or 0) > 0 else none}")
    assert second.startswith("The gate ")


@pytest.mark.nightly
def test_the_study_is_a_run_with_its_trainings_and_its_gate_inside(found: Studied, folder: Path) -> None:
    assert found.promotion is not None
    gate = found.promotion.gate
    assert gate is not None
    uri = gate.tracked["uri"]
    client = MlflowClient(uri)
    runs = client.search_runs([gate.tracked["experiment_id"]])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    assert {run.data.tags["mlflow.parentRunId"] for run in runs if run is not parent} == {parent.info.run_id}
    inside = {run.info.run_id for run in runs if run is not parent}
    assert {one.outcome["tracked"]["run_id"] for one in found.trained.values()} | {gate.tracked["run_id"]} <= inside
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} >= {
        "predictor_study.json",
        "predictor_study.parquet",
    }
    assert found.promotion.chosen in ("paper", "ours")
    assert (folder / "run" / "champion" / "model_card.md").is_file()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, splits.Split]:
    folder = tmp_path_factory.mktemp("labels")
    found = {}
    for policy in ("lqd", "credence_accept"):
        overrides = ["scenario=tiny", f"policy={policy}", "seeds=[1,2,3]", f"store_dir={folder / 'store'}"]
        made = collect(stage_settings(CollectConfig, *overrides), folder / "out")
        found[policy] = splits.split_by_seed([Dataset.open(run.path) for run in made.runs], [1], [2], [3])
    return found


@pytest.fixture(scope="module")
def study(runs: dict[str, splits.Split]) -> LabelStudy:
    return label_study(runs, RandomForest, PAPER_FEATURES, deployed="credence_accept")


@pytest.mark.ns3
def test_tail_labels_are_those_of_the_datasets(study: LabelStudy, runs: dict[str, splits.Split]) -> None:
    tail, tail_asked = study.victims[:2]
    assert tail["victim"] == "tail"
    assert tail["drops"] == sum(selection.dataset.manifest.drops for selection in runs["lqd"].test)
    assert tail["not by tail"] == 0
    own = [one for one in study.policies if one["trained on"] == one["tested on"] == "lqd"]
    for by_rule, by_policy in zip((tail, tail_asked), own, strict=True):
        assert by_rule["f1"] == by_rule["f1 by tail"] == by_policy["f1"]
    assert all(one["not by tail"] > 0 for one in study.victims[2::2])


@pytest.mark.ns3
def test_more_freedom_scores_no_lower(study: LabelStudy) -> None:
    tail, stretch, queue = (one for one in study.assignments if one["region"] == "whole")
    assert tail["f1"] == study.victims[0]["f1"]
    for score in ("precision", "recall", "f1", "average_precision"):
        assert 0 < tail[score] <= stretch[score] <= queue[score] <= 1


@pytest.mark.ns3
def test_what_the_study_needs_is_said(runs: dict[str, splits.Split]) -> None:
    with pytest.raises(ForetailError, match="needs runs under lqd beside credence_accept: collect them"):
        label_study({"credence_accept": runs["credence_accept"]}, RandomForest, PAPER_FEATURES)
    with pytest.raises(ForetailError, match="asked no predictor: name runs of a Credence with a predictor"):
        label_study({"lqd": runs["lqd"]}, RandomForest, PAPER_FEATURES, deployed="lqd")
    with pytest.raises(ForetailError, match="the label study has no runs under dt: name one of lqd, credence_accept"):
        label_study(runs, RandomForest, PAPER_FEATURES, deployed="dt")
    datasets = [selection.dataset for side in splits.SIDES for selection in getattr(runs["lqd"], side)]
    by_time = splits.split_by_time(datasets, 0.3, 0.3, 10_000)
    with pytest.raises(ForetailError, match="needs whole traces with tail victims: split by run"):
        label_study({"lqd": by_time}, RandomForest, PAPER_FEATURES)


def trained(runs: dict[str, splits.Split], folder: Path, *overrides: str) -> TrainResult:
    paths = [str(selection.dataset.path) for side in splits.SIDES for selection in getattr(runs["lqd"], side)]
    seeds = ["split.train=[1]", "split.validation=[2]", "split.test=[3]"]
    settings = [f"datasets=[{','.join(paths)}]", *seeds, "tracking=off", f"store_dir={folder / 'store'}", *overrides]
    return train(stage_settings(TrainConfig, *settings), folder / "out")


@pytest.mark.ns3
def test_the_best_assignment_is_among_the_scores(
    runs: dict[str, splits.Split], study: LabelStudy, tmp_path: Path
) -> None:
    outcome = trained(runs, tmp_path).outcome
    for one in study.assignments[2:4]:
        assert one["truth"] == "best in its stretch"
        assert outcome["scores"]["test"][one["region"]]["f1_best_assignment"] == one["f1"]
    assert "f1_best_assignment" not in outcome["scores"]["validation"]["whole"]


VALUES = st.lists(st.integers(0, 20), min_size=1, max_size=50)


@given(VALUES, VALUES)
def test_kolmogorov_smirnov_is_the_largest_gap(expected: list[int], actual: list[int]) -> None:
    gaps = [abs(np.mean(np.array(expected) <= v) - np.mean(np.array(actual) <= v)) for v in range(21)]
    found = kolmogorov_smirnov(np.array(expected, np.int32), np.array(actual, np.int32))
    assert found == pytest.approx(max(gaps))


@given(VALUES, VALUES)
def test_stability_is_zero_for_the_same_and_positive_else(expected: list[int], actual: list[int]) -> None:
    a, b = np.array(expected, np.int32), np.array(actual, np.int32)
    assert population_stability_index(a, np.concatenate([a])) == 0
    assert population_stability_index(a, b) >= 0


def test_stability_by_hand() -> None:
    """Two bins, up to 5 and above: 5 and 5 against 2 and 8, each plus a half."""
    expected, actual = np.arange(1, 11, dtype=np.int32), np.repeat([0, 9], [2, 8]).astype(np.int32)
    e, a = (5.5 / 11, 5.5 / 11), (2.5 / 11, 8.5 / 11)
    by_hand = sum((y - x) * math.log(y / x) for x, y in zip(e, a, strict=True))
    assert population_stability_index(expected, actual, bins=2) == pytest.approx(by_hand)


def test_nothing_has_no_distribution() -> None:
    none, one = np.empty(0, np.int32), np.zeros(1, np.int32)
    for distance in (kolmogorov_smirnov, population_stability_index):
        with pytest.raises(ForetailError, match="1 rows cannot be compared with 0: collect longer runs"):
            distance(one, none)


OF_RUN = ["workload", "held_out", "drawn", "seed", "policy", "setting"]
COLUMNS = [*OF_RUN, "sent", "sent_by_lqd", "sent_by_accept", "recovered"]
MODELS = ("paper", "sent")
UNDER = ("learned", "credence", "guarded")


@pytest.mark.nightly
def test_policies_and_models_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "promise", "size=small", "tracking=off", "hydra.run.dir=run"]) == 0
    document = result_in("run")
    rows = pd.DataFrame(document["rows"])
    assert list(rows.columns) == COLUMNS
    inverted = rows[rows["setting"].str.endswith(" inverted")]
    judged = rows.drop(inverted.index)
    assert set(judged["policy"]) == {"always accept", "dt", "abm", "cs", "harmonic", *MODELS, OWN, "LQD"}
    assert not judged.duplicated(["workload", "seed", "policy", "setting"]).any()
    (fresh,) = drawn_workloads(1, seed=3)
    told = rows.groupby("workload")[["held_out", "drawn"]].first()
    assert dict(told["held_out"]) == {"incast_5": False, "on_off_90": True, fresh: True}
    assert dict(told["drawn"]) == {"incast_5": False, "on_off_90": False, fresh: True}
    assert set(rows["seed"]) == {11, 12}
    for _, row in rows.iterrows():
        lost = row["sent_by_lqd"] - row["sent_by_accept"]
        if lost < LEAST_LOST * row["sent_by_lqd"]:
            assert pd.isna(row["recovered"])
        else:
            assert row["recovered"] == pytest.approx((row["sent"] - row["sent_by_accept"]) / lost)
    assert (rows.groupby(["workload", "seed"])["sent_by_lqd"].nunique() == 1).all()
    assert (rows.groupby(["workload", "seed"])["sent_by_accept"].nunique() == 1).all()
    assert (rows[rows["policy"] == "LQD"]["sent"] == rows[rows["policy"] == "LQD"]["sent_by_lqd"]).all()
    tuned = rows[(rows["policy"] == "dt") & (rows["setting"] != "default")]
    assert tuned["setting"].nunique() == 1  # one alpha for all workloads, chosen where the models trained
    assert len(document["verdict"]) == 3
    for sentence, kind in zip(document["verdict"], (WITHIN, UNSEEN, DRAWN), strict=True):
        assert re.match(rf"On {kind}, model \w+ sends [\d.]+ %.* of what LQD sends and ", sentence)
    assert_answers_are_inverted(inverted, judged)


def assert_answers_are_inverted(inverted: pd.DataFrame, judged: pd.DataFrame) -> None:
    """The best model asked by every policy; with no answer inverted it sends what the study says it sends."""
    policies = set(inverted["policy"])
    (model,) = {name.partition(" under ")[0] for name in policies}
    assert policies == {f"{model} under {policy}" for policy in UNDER}
    assert set(inverted["setting"]) == {f"{share} % inverted" for share in (0, 1, 5, 10, 50)}
    assert len(inverted) == 3 * 2 * 3 * 5
    own = inverted[(inverted["policy"] == f"{model} under learned") & (inverted["setting"] == "0 % inverted")]
    told = judged[(judged["policy"] == model) & (judged["setting"] == "model")]
    assert own.set_index(["workload", "seed"])["sent"].equals(told.set_index(["workload", "seed"])["sent"])
    half = inverted[inverted["setting"] == "50 % inverted"].groupby("policy")["sent"].sum()
    assert half[f"{model} under learned"] < half[f"{model} under credence"]  # which asks about fewer packets


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30))
def test_drawn_workloads_can_be_collected_and_more_of_them_change_none(seed: int, count: int) -> None:
    drawn = drawn_workloads(count, seed)
    assert len(drawn) == count
    assert list(drawn_workloads(count + 3, seed).items())[:count] == list(drawn.items())
    kinds = [own[0] for own in drawn.values()]
    assert kinds == [f"slotted.workload={('incast', 'on_off', 'poisson_bursts')[n % 3]}" for n in range(count)]


def test_every_drawn_workload_is_one_that_collect_takes() -> None:
    for own in drawn_workloads(30, seed=5).values():
        slotted = compose_settings(CollectConfig, ["source=slotted", *own], "workloads.drawn").slotted
        traffic = workload_of(slotted.workload, slotted.settings)
        assert next(traffic.batches(slotted.ports, slotted.ports * slotted.buffer_per_port, 5000, 1), None) is not None


def made_up(*sent: tuple[str, bool, int, int, int]) -> pd.DataFrame:
    """Rows of workloads, held out or not: what tuned Dynamic Thresholds, a model and accepting send of 100 packets."""
    return pd.DataFrame(
        [
            {
                "workload": workload,
                "held_out": held_out,
                "drawn": False,
                "seed": 1,
                "policy": policy,
                "setting": setting,
                "sent": count,
                "sent_by_lqd": 100,
                "sent_by_accept": accept,
                "recovered": None if accept == 100 else (count - accept) / (100 - accept),
            }
            for workload, held_out, dt, model, accept in sent
            for policy, setting, count in (
                ("always accept", "", accept),
                ("dt", "default", 50),
                ("dt", "DT, alpha 16", dt),
                ("learner", "model", model),
                (OWN, "", 100),
                ("LQD", "", 100),
            )
        ]
    )


def test_the_verdict_has_a_sentence_for_each_kind_of_workload() -> None:
    rows = made_up(("bursts", False, 80, 90, 60), ("incast", False, 90, 95, 70), ("new", True, 90, 85, 87))
    within, unseen = _verdict(rows, _summary(rows), "learner")
    ours, theirs = (math.log(one[0] * one[1]) / 2 for one in ((0.9, 0.95), (0.8, 0.9)))
    assert within.startswith(f"On {WITHIN}, model learner sends 92.47 [")
    closes = f"it closes {100 * (ours - theirs) / -theirs:.0f} % of the distance to LQD"
    assert f"{closes}, rules that know the workload 100 %, a gain" in within
    assert f"On incast it sends {100 * math.log(95 / 90):+.2f} % against" in within
    assert unseen.startswith(f"On {UNSEEN}, model learner sends 85 %")
    assert f"a gain of {100 * math.log(85 / 90):.3g} % over workloads" in unseen
    assert f"On new it sends {100 * math.log(85 / 90):+.2f} % against" in unseen
