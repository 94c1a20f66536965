"""``foretail verify``, and readers that refuse what is damaged. Cost: one training and one schedule, 15 s."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretail.core.digest import DIGEST_FILE
from foretail.pipelines import cli
from foretail.pipelines.runs.verification import verify
from tests.traces import write_bursts

pytestmark = pytest.mark.slow

SPLIT = ("split.train=[1]", "split.validation=[2]", "split.test=[3]")


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
            ("train", f"datasets=[{datasets}]", *SPLIT, "predictor.trees=1", "hydra.run.dir=outputs/train"),
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
@pytest.mark.full
def test_everything_that_stages_wrote_is_whole_and_ours(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = verify([str(made)])
    assert (found.damaged, found.without_digest, found.foreign) == ([], [], [])
    assert found.models == 1
    assert found.files > 20
    assert cli.main(["verify", str(made / "outputs"), str(made / "trace-1" / "manifest.json")]) == 0
    assert "Verified" in capsys.readouterr().out


def test_any_damaged_file_is_named(outputs: Path) -> None:
    folders = [str(path) for path in (*outputs.parent.glob("trace-*"), *outputs.iterdir()) if path.is_dir()]
    for path in files_of(outputs.parent):
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


def test_a_lost_digest_is_told_and_can_be_allowed(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (outputs / "train" / DIGEST_FILE).unlink()
    assert cli.main(["verify", str(outputs)]) == cli.EXIT_BAD_INPUT
    assert f"{outputs / 'train'} has no digest.json" in capsys.readouterr().out
    page = [f"run={outputs / 'train'}", f"hydra.run.dir={outputs / 'page'}"]
    assert cli.main(["report", *page]) == cli.EXIT_BAD_INPUT
    assert "has no digest.json, as folders of earlier versions" in capsys.readouterr().err
    assert cli.main(["report", *page, "allow_no_digest=true"]) == 0


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
        again = cli.main(["train", f"datasets=[{datasets}]", *SPLIT, "predictor.trees=1", tracking])
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
