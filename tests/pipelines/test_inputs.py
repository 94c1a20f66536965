from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretail.core.digest import write_digest
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.data.inputs import open_datasets
from tests.traces import make_arrivals, write_trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = tmp_path_factory.mktemp("traces")
    return [write_trace(folder / f"{seed}", make_arrivals(300, seed), seed=seed) for seed in range(3)]


def write_collected(folder: Path, datasets: list[Dataset], stage: str = "collect") -> Path:
    folder.mkdir(parents=True)
    document = {"stage": stage, "runs": [{"path": str(dataset.path)} for dataset in datasets]}
    (folder / "result.json").write_text(json.dumps(document))
    write_digest(folder)
    return folder


def seeds(paths: list[Path]) -> list[int]:
    return [dataset.manifest.seed for dataset in open_datasets([str(path) for path in paths])]


def test_dataset_folders_runs_of_collect_and_sweeps_are_sets_of_runs(tmp_path: Path, traces: list[Dataset]) -> None:
    assert seeds([traces[1].path]) == [1]
    run = write_collected(tmp_path / "run", [traces[2], traces[0]])
    assert seeds([run, traces[1].path]) == [2, 0, 1]
    for number, name in ((2, "10"), (1, "9"), (0, "0")):
        write_collected(tmp_path / "sweep" / name, [traces[number]])
    assert seeds([tmp_path / "sweep"]) == [0, 1, 2]  # in the order of the jobs, not of letters


def test_folders_without_datasets_are_refused_by_name(tmp_path: Path, traces: list[Dataset]) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ForetailError, match="empty contains no dataset and no run of foretail collect"):
        seeds([tmp_path / "empty"])
    trained = write_collected(tmp_path / "trained", traces, stage="train")
    with pytest.raises(ForetailError, match="of foretail train"):
        seeds([trained])
    (tmp_path / "broken").mkdir()
    for text in ("{", "[" * 100_000):
        (tmp_path / "broken" / "result.json").write_text(text)
        with pytest.raises(ForetailError, match="is not a result of foretail collect"):
            seeds([tmp_path / "broken"])
    with pytest.raises(ForetailError, match="absent"):
        seeds([tmp_path / "absent"])
