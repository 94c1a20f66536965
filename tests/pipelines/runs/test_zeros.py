"""No command ends with a zero that nobody explains: each case is provoked, and its sentence read."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from foretail.export.passes import with_votes
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines import cli
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.zeros import say_if_no_drops, say_if_silent, say_if_unasked
from foretail.pipelines.training.outcome import say_zeros
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import collect_slots
from tests.forests import paper_forest, stump

pytestmark = pytest.mark.slow

SMALL = {"ports": 8, "buffer_per_port": 30, "slots": 2000}
SLOTS = ("source=slotted", "slotted.ports=4", "slotted.buffer_per_port=10", "slotted.slots=500")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> tuple[str, dict[str, Any]]:
    """What a command prints, and its result."""
    assert cli.main([*command, "hydra.run.dir=run"]) == code
    return " ".join(capsys.readouterr().out.split()), json.loads(Path("run/result.json").read_text(encoding="utf-8"))


def write_arrivals(per_slot: int) -> None:
    rows = [f"{slot},0" for slot in range(60) for _ in range(per_slot)]
    Path("a.csv").write_text("\n".join(["slot,port", *rows, ""]))


def test_each_sentence_comes_when_it_is_true_and_only_then() -> None:
    with collecting_notes() as notes:
        say_if_silent("the model", "the test side", Confusion(1, 0, 9, 0).scores(2))
        say_if_unasked({"credence": (5, 1)})
        say_if_no_drops({1: (10, 1), 2: (10, 3)})
    assert notes.sentences == []
    with collecting_notes() as notes:
        say_if_silent("the model", "the test side", Confusion(0, 0, 990, 10).scores(2))
        say_if_unasked({"a": (0, 0), "b": (1234, 0)})
        say_if_no_drops({1: (10, 1), 2: (20, 0)})
        say_if_no_drops({1: (10, 0), 2: (20, 0)})
    silent, never, unheeded, one, all_ = notes.sentences
    assert "never drops on the 1,000 rows of the test side" in silent
    assert never.startswith("a never asked its predictor")
    assert "b asked its predictor 1,234 times and was never told to drop" in unheeded
    assert "none of the 20 packets of the datasets of seeds 2" in one
    assert "none of the 30 packets of any dataset" in all_


def test_a_threshold_beyond_all_scores_is_known() -> None:
    ensemble = paper_forest(trees=2).ensemble
    assert constant_decision(ensemble) is None
    assert constant_decision(ensemble.with_threshold(Fraction(2))) is False
    assert constant_decision(ensemble.with_threshold(Fraction(-1))) is True
    voted = with_votes(ensemble)
    most = sum(int(tree.require_votes()[tree.leaves].max()) for tree in voted.trees)
    assert [constant_decision(voted, tau) for tau in (-1, voted.default_tau, most)] == [True, None, False]


@pytest.mark.slow
def test_a_model_that_never_drops_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2, 3, 4):
        collect_slots(folder / f"run_{seed}", Incast(load=0.15, fan_in=5, background_load=0.8), seed=seed, **SMALL)
    datasets = "datasets=[run_1,run_2,run_3,run_4]"
    # a feature that tells nothing: never to drop sends most
    weak = ("features.names=[first_rtt]", "allow_constant_features=true", "operating_point.maximise=recovered_loss")
    out, document = said(capsys, "train", datasets, "tracking=off", *weak, "predictor.trees=1", "predictor.depth=1")
    named = {
        side: document["scores"][side]["whole"]["true_positives"] + document["scores"][side]["whole"]["false_positives"]
        for side in ("validation", "test")
    }
    for side, predicted in named.items():
        assert (f"rows of the {side} side" in out) == (predicted == 0)
    assert set(named.values()) == {0}
    assert "the threshold of the model lies outside of all its scores, so it never drops" in out


def test_teacher_and_student_are_named_side_by_side() -> None:
    """As ``distill`` does; a teacher that never drops on the validation rows it refuses itself."""
    ensemble = paper_forest(trees=2).ensemble.with_threshold(Fraction(2))
    silent = {"whole": {"rows": 7, "true_positives": 0, "false_positives": 0}}
    loud = {"whole": {"rows": 7, "true_positives": 0, "false_positives": 1}}
    with collecting_notes() as notes:
        say_zeros("the student", ensemble, {"validation": loud, "test": silent})
    assert [sentence.partition(",")[0] for sentence in notes.sentences] == [
        "the student never drops on the 7 rows of the test side",
        "the threshold of the student lies outside of all its scores",
    ]


@pytest.mark.slow
def test_predictions_that_nobody_asked_for_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_arrivals(per_slot=1)  # one packet a slot: the safeguard takes all
    calm, document = said(capsys, "replay", "arrivals=a.csv", "ports=2", "buffer=8", "policies=[dt,credence]")
    assert "credence never asked its predictor" in calm
    assert document["policies"]["credence"]["asked"] == 0
    assert document["policies"]["dt"]["asked"] is document["policies"]["lqd"]["predicted_drops"] is None
    columns = document["tables"][0]["columns"]
    assert columns[3:5] == ["asked", "predicted drops"]
    write_arrivals(per_slot=2)
    full, document = said(capsys, "replay", "arrivals=a.csv", "ports=2", "buffer=8", "policies=[credence]")
    assert document["policies"]["credence"]["asked"] > 0
    assert "never asked" not in full
    assert "predictions=accept" not in full


@pytest.mark.slow
def test_a_model_beyond_its_scores_says_so_wherever_it_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arrivals(per_slot=2)
    inputs = (FeatureInput("threshold", "cell_bytes=1", 24),)
    Ensemble(inputs, (stump((0.1, 0.9)),), Fraction(2)).save(folder / "silent.json")
    common = ("replay", "arrivals=a.csv", "ports=2", "buffer=8", "model=silent.json", "tracking=off")
    out, document = said(capsys, *common, "policies=[credence]")
    assert "the threshold of model silent.json lies outside of all its scores, so it never drops" in out
    assert "the model never drops on the" in out
    assert "was never told to drop" in out
    asked = document["policies"]["credence"]
    assert asked["asked"] > 0 == asked["predicted_drops"]
    accepting, _ = said(capsys, *common[:4], "predictions=accept", "policies=[credence]")
    assert "never" not in accepting  # which was wanted
