"""The label study, and training on other labels, on real ns-3 packets of the tiny scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import PAPER_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.models.drop.forest import RandomForest
from foretail.pipelines.runs.result import write_result
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.policies import VICTIMS
from foretail_studies.predictors.label_study import LabelStudy, label_study
from tests.composed import composed

pytestmark = pytest.mark.ns3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, splits.Split]:
    folder = tmp_path_factory.mktemp("labels")
    found = {}
    for policy in ("lqd", "credence_accept"):
        overrides = ["scenario=tiny", f"policy={policy}", "seeds=[1,2,3]", f"store_dir={folder / 'store'}"]
        made = collect(typed(composed("collect", *overrides), CollectConfig), folder / "out")
        found[policy] = splits.split_by_seed([Dataset.open(run.path) for run in made.runs], [1], [2], [3])
    return found


@pytest.fixture(scope="module")
def study(runs: dict[str, splits.Split]) -> LabelStudy:
    return label_study(runs, RandomForest, PAPER_FEATURES, deployed="credence_accept")


@pytest.mark.nightly
@pytest.mark.full
def test_every_table_is_there(study: LabelStudy, tmp_path: Path) -> None:
    tables = {table.title: table for table in study.tables()}
    assert {title: len(table.rows) for title, table in tables.items()} == {
        "Victim rules": len(VICTIMS) * 2,
        "Best assignment of push-outs": 3 * 2,
        "Labels beside other policies": 4 * 2,
        "Features between training and service": 2 * 4,
        "Training rows of the paper's features, scored in service": 3 * 2,
    }
    assert all(len(row) == len(table.columns) for table in tables.values() for row in table.rows)
    assert write_result(tmp_path, study.document()).is_file()


def test_tail_labels_are_those_of_the_datasets(study: LabelStudy, runs: dict[str, splits.Split]) -> None:
    tail, tail_asked = study.victims[:2]
    assert tail["victim"] == "tail"
    assert tail["drops"] == sum(selection.dataset.manifest.drops for selection in runs["lqd"].test)
    assert tail["not by tail"] == 0
    own = [one for one in study.policies if one["trained on"] == one["tested on"] == "lqd"]
    for by_rule, by_policy in zip((tail, tail_asked), own, strict=True):
        assert by_rule["f1"] == by_rule["f1 by tail"] == by_policy["f1"]
    assert all(one["not by tail"] > 0 for one in study.victims[2::2])


def test_more_freedom_scores_no_lower(study: LabelStudy) -> None:
    tail, stretch, queue = (one for one in study.assignments if one["region"] == "whole")
    assert tail["f1"] == study.victims[0]["f1"]
    for score in ("precision", "recall", "f1", "average_precision"):
        assert 0 < tail[score] <= stretch[score] <= queue[score] <= 1


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
    return train(typed(composed("train", *settings), TrainConfig), folder / "out")


def test_the_best_assignment_is_among_the_scores(
    runs: dict[str, splits.Split], study: LabelStudy, tmp_path: Path
) -> None:
    outcome = trained(runs, tmp_path).outcome
    for one in study.assignments[2:4]:
        assert one["truth"] == "best in its stretch"
        assert outcome["scores"]["test"][one["region"]]["f1_best_assignment"] == one["f1"]
    assert "f1_best_assignment" not in outcome["scores"]["validation"]["whole"]
