from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from foretail.core.digest import write_digest
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.pipelines import cli
from foretail.pipelines.data.inputs import open_datasets
from foretail.pipelines.tracking.sweep import Job, means_over_seeds, sweep_table, sweep_verdict
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.dataset import collect_slots
from tests.composed import foretail
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


SENT = "validation_replay/whole/sent_percent_of_lqd"


def job(number: int, depth: int, seed: int, sent: float, f1: float = 0.5) -> Job:
    document: dict[str, Any] = {
        "validation_replay": {"sent_percent_of_lqd": sent},
        "scores": {"validation": {"asked": {"f1": f1}}},
    }
    return Job(Path(str(number)), (f"predictor.depth={depth}", f"predictor.seed={seed}"), document)


def test_the_best_is_the_best_in_the_mean_over_seeds() -> None:
    jobs = [job(0, 3, 1, 90.0), job(1, 3, 2, 99.0), job(2, 4, 1, 96.0), job(3, 4, 2, 95.0)]
    swept = ["predictor.depth", "predictor.seed"]
    assert [mean for mean, _ in means_over_seeds(jobs, swept, SENT)] == [94.5, 94.5, 95.5, 95.5]
    assert (
        "best by validation_replay/whole/sent_percent_of_lqd in the mean over seeds is job 2: 95.5"
        in sweep_verdict(jobs, swept, SENT)[0]
    )
    table = sweep_table(jobs, swept, SENT)
    column = table.columns.index("mean over seeds")
    assert [row[column] for row in table.rows] == [94.5, 94.5, 95.5, 95.5]
    alone = sweep_table(jobs[::2], swept, SENT)
    assert "mean over seeds" not in alone.columns
    assert "is job 2: 96" in sweep_verdict(jobs[::2], swept, SENT)[0]
    assert "is job 0: 0.5" in sweep_verdict(jobs, swept, "validation/asked/f1")[0]


@pytest.mark.slow
def test_a_sweep_registers_what_sends_most_and_numbers_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        collect_slots(f"runs/{seed}", PoissonBursts(load=0.2), ports=8, buffer_per_port=20, slots=2000, seed=seed)
    split = ["datasets=[runs/1,runs/2,runs/3]", "split.train=[1]", "split.validation=[2]", "split.test=[3]"]
    command = ["train", "--multirun", *split, "features=paper", "allow_constant_features=true", "predictor.depth=1,4"]
    assert cli.main([*command, "hydra.sweep.dir=sweep"]) == 0
    documents = [json.loads(Path(f"sweep/{number}/result.json").read_text()) for number in (0, 1)]
    sent = [document["validation_replay"]["sent_percent_of_lqd"] for document in documents]
    client = MlflowClient("sqlite:///outputs/mlflow.db")
    (version,) = client.search_model_versions("name='foretail-drop'")
    assert version.run_id == documents[sent.index(max(sent))]["tracked"]["run_id"]
    for number, document in enumerate(documents):
        run = client.get_run(document["tracked"]["run_id"])
        assert run.data.tags["job"] == str(number)
        assert str(run.info.run_name).startswith(f"job {number}: random forest")
        assert run.data.metrics[SENT] == pytest.approx(sent[number])


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["tracking.best_by=validation/asked/f2"], "tracking.best_by = validation/asked/f2 is no score of a job"),
        (["tracking.best_by=validation/all/f1"], "choose from validation/whole/rows"),
        (["split=by_time"], "split=by_time cuts them: give tracking.best_by=validation/asked/f1"),
    ],
)
def test_a_score_that_no_job_will_have_is_refused_before_the_first(
    overrides: list[str], complaint: str, tmp_path: Path
) -> None:
    done = foretail(tmp_path, "train", "--multirun", "predictor.depth=2,3", *overrides)
    assert (done.returncode, done.stderr.count("\n")) == (cli.EXIT_BAD_INPUT, 1)
    assert complaint in done.stderr
    assert not (tmp_path / "outputs" / "store").exists()
