"""``foretail verify``, and readers that refuse what is damaged. Cost: one training and one schedule, 15 s."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from foretail.core.digest import DIGEST_FILE
from foretail.export.passes import with_votes
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines import cli
from foretail.pipelines.runs.notes import collecting_notes, say_if_no_drops, say_if_silent, say_if_unasked
from foretail.pipelines.runs.verification import verify
from foretail.pipelines.training.fitting import say_zeros
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import collect_slots
from tests.composed import SIDES, foretail, result_in
from tests.forests import paper_forest, stump
from tests.traces import write_bursts, write_slots

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with datasets and the outputs of four stages."""
    folder = tmp_path_factory.mktemp("verify")
    for seed in (1, 2, 3):
        write_bursts(folder / f"trace-{seed}", seed)
    (folder / "demand.csv").write_text("0,1,2\n3,0,1\n1,2,0\n")
    with contextlib.chdir(folder):
        datasets = ",".join(str(folder / f"trace-{seed}") for seed in (1, 2, 3))
        for command in (
            ("train", f"datasets=[{datasets}]", *SIDES, "predictor.trees=1", "hydra.run.dir=outputs/train"),
            ("export", "model=outputs/train", "target=c", "hydra.run.dir=outputs/export", "out=outputs/export/c"),
            ("schedule", "demand=demand.csv", "degree=2", "k=2", "scale=true", "hydra.run.dir=outputs/schedule"),
            ("report", "run=outputs/train", "hydra.run.dir=outputs/report"),
        ):
            assert cli.main(command) == 0, command
    return folder


@pytest.fixture
def outputs(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "outputs"


def files_of(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "mlflow" not in path.name and path.name != "demand.csv":
            yield path


@pytest.mark.nightly
def test_everything_that_stages_wrote_is_whole_and_ours(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = verify([str(made)])
    assert (found.damaged, found.without_digest, found.foreign) == ([], [], [])
    assert found.models == 1
    assert found.files > 20
    assert cli.main(["verify", str(made / "outputs"), str(made / "trace-1" / "manifest.json")]) == 0
    assert "Verified" in capsys.readouterr().out


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "every"])
def test_a_damaged_file_is_named(step: int, outputs: Path) -> None:
    folders = [str(path) for path in (*outputs.parent.glob("trace-*"), *outputs.iterdir()) if path.is_dir()]
    for path in list(files_of(outputs.parent))[::step]:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        found = verify(folders)
        assert any(str(path) in sentence for sentence in found.damaged), path
        if "mlartifacts" in path.parts and path.name == DIGEST_FILE:  # a run that ended early has none
            path.write_bytes(content)
            continue
        path.unlink()
        missing = verify(folders)
        assert any(
            str(path) in line or str(path.parent) in line for line in (*missing.damaged, *missing.without_digest)
        )
        path.write_bytes(content)
    assert verify(folders).is_whole


def test_a_foreign_file_is_named_and_no_damage(outputs: Path) -> None:
    (outputs / "train" / "notes.txt").write_text("mine")
    found = verify([str(outputs)])
    assert found.is_whole
    assert found.foreign == [f"{outputs / 'train' / 'notes.txt'} is not ours."]


def test_a_lost_digest_is_refused(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (outputs / "train" / DIGEST_FILE).unlink()
    assert cli.main(["verify", str(outputs)]) == cli.EXIT_BAD_INPUT
    assert f"{outputs / 'train'} has no digest.json" in capsys.readouterr().out
    page = [f"run={outputs / 'train'}", f"hydra.run.dir={outputs / 'page'}"]
    assert cli.main(["report", *page]) == cli.EXIT_BAD_INPUT
    assert "has no digest.json, so that nobody can tell" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["result.json", "ensemble.json"])
def test_report_refuses_a_damaged_run(outputs: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = outputs / "train" / name
    content = path.read_text()
    digit = next(at for at, text in enumerate(content) if text.isdigit() and at > len(content) // 2)
    path.write_text(f"{content[:digit]}{(int(content[digit]) + 1) % 10}{content[digit + 1 :]}")
    assert cli.main(["report", f"run={outputs / 'train'}", f"hydra.run.dir={outputs / 'page'}"]) == cli.EXIT_BAD_INPUT
    assert f"{path} is not as it was written" in capsys.readouterr().err
    assert not (outputs / "page").exists()


def test_a_damaged_entry_of_the_store_is_refused(made: Path, outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = (outputs / "store" / "model").iterdir()
    path = entry / "content" / "ensemble.json"
    path.write_text(path.read_text().replace("1", "2", 1))
    datasets = ",".join(str(made / f"trace-{seed}") for seed in (1, 2, 3))
    tracking = f"tracking.uri=sqlite:///{made / 'outputs' / 'mlflow.db'}"
    with contextlib.chdir(outputs.parent):
        again = cli.main(["train", f"datasets=[{datasets}]", *SIDES, "predictor.trees=1", tracking])
    assert again == cli.EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert "content/ensemble.json is not as it was written" in said
    assert f"delete {entry} and run again" in said


def test_a_path_without_anything_of_ours_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tmp_path)]) == cli.EXIT_BAD_INPUT
    assert "holds nothing that Foretail wrote" in capsys.readouterr().err
    assert cli.main(["verify", str(tmp_path / "nowhere")]) == cli.EXIT_BAD_INPUT
    assert "there is no" in capsys.readouterr().err
    assert cli.main(["verify"]) == cli.EXIT_BAD_INPUT
    assert "usage: foretail verify PATH" in capsys.readouterr().out


SMALL = {"ports": 8, "buffer_per_port": 30, "slots": 2000}


def said(folder: Path, *command: str) -> tuple[str, dict[str, Any]]:
    """Return the output of a command in a folder, and its result."""
    done = foretail(folder, *command, "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split()), result_in(folder / "run")


def write_arrivals(folder: Path, per_slot: int) -> None:
    write_slots(folder / "a.csv", [slot for slot in range(60) for _ in range(per_slot)], [0] * 60 * per_slot)


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


def test_a_model_that_never_drops_says_so(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        collect_slots(tmp_path / f"run_{seed}", Incast(load=0.15, fan_in=5, background_load=0.8), seed=seed, **SMALL)
    datasets = "datasets=[run_1,run_2,run_3,run_4]"
    # a feature that tells nothing: never to drop sends most
    weak = ("features.names=[first_rtt]", "allow_constant_features=true", "operating_point.maximise=recovered_loss")
    out, document = said(tmp_path, "train", datasets, "tracking=off", *weak, "predictor.trees=1", "predictor.depth=1")
    named = {
        side: document["scores"][side]["whole"]["true_positives"] + document["scores"][side]["whole"]["false_positives"]
        for side in ("validation", "test")
    }
    for side, predicted in named.items():
        assert (f"rows of the {side} side" in out) == (predicted == 0)
    assert set(named.values()) == {0}
    assert "the threshold of the model lies outside of all its scores, so it never drops" in out


def test_a_model_that_never_drops_is_named_by_side() -> None:
    ensemble = paper_forest(trees=2).ensemble.with_threshold(Fraction(2))
    silent = {"whole": {"rows": 7, "true_positives": 0, "false_positives": 0}}
    loud = {"whole": {"rows": 7, "true_positives": 0, "false_positives": 1}}
    with collecting_notes() as notes:
        say_zeros(ensemble, {"validation": loud, "test": silent})
    assert [sentence.partition(",")[0] for sentence in notes.sentences] == [
        "the model never drops on the 7 rows of the test side",
        "the threshold of the model lies outside of all its scores",
    ]


def test_predictions_that_nobody_asked_for_say_so(tmp_path: Path) -> None:
    write_arrivals(tmp_path, per_slot=1)  # one packet a slot: the safeguard takes all
    calm, document = said(tmp_path, "replay", "arrivals=a.csv", "ports=2", "buffer=8", "policies=[dt,credence]")
    assert "credence never asked its predictor" in calm
    assert document["policies"]["credence"]["asked"] == 0
    assert document["policies"]["dt"]["asked"] is document["policies"]["lqd"]["predicted_drops"] is None
    columns = document["tables"][0]["columns"]
    assert columns[3:5] == ["asked", "predicted drops"]
    write_arrivals(tmp_path, per_slot=2)
    full, document = said(tmp_path, "replay", "arrivals=a.csv", "ports=2", "buffer=8", "policies=[credence]")
    assert document["policies"]["credence"]["asked"] > 0
    assert "never asked" not in full
    assert "predictions=accept" not in full


def test_a_model_beyond_its_scores_says_so_wherever_it_is_asked(tmp_path: Path) -> None:
    write_arrivals(tmp_path, per_slot=2)
    inputs = (FeatureInput("threshold", "cell_bytes=1", 24),)
    Ensemble(inputs, (stump((0.1, 0.9)),), Fraction(2)).save(tmp_path / "silent.json")
    common = ("replay", "arrivals=a.csv", "ports=2", "buffer=8", "model=silent.json", "tracking=off")
    out, document = said(tmp_path, *common, "policies=[credence]")
    assert "the threshold of model silent.json lies outside of all its scores, so it never drops" in out
    assert "the model never drops on the" in out
    assert "was never told to drop" in out
    asked = document["policies"]["credence"]
    assert asked["asked"] > 0 == asked["predicted_drops"]
    accepting, _ = said(tmp_path, *common[:4], "predictions=accept", "policies=[credence]")
    assert "never" not in accepting  # which was wanted
