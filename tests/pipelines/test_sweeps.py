"""Sweeps: which job is the best, over seeds too, and scores that no job will have. Costs seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from foretail.pipelines import cli
from foretail.pipelines.tracking.sweep import Job, means_over_seeds, sweep_table, sweep_verdict
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.dataset import collect_slots

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        collect_slots(f"runs/{seed}", PoissonBursts(load=0.2), ports=8, buffer_per_port=20, slots=2000, seed=seed)
    split = ["datasets=[runs/1,runs/2,runs/3]", "split.train=[1]", "split.validation=[2]", "split.test=[3]"]
    command = ["train", "--multirun", *split, "features=paper", "allow_constant_features=true", "predictor.depth=1,4"]
    assert cli.main([*command, "hydra.sweep.dir=sweep"]) == 0
    capsys.readouterr()
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
    overrides: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--multirun", "predictor.depth=2,3", *overrides]) == cli.EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert complaint in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "outputs" / "store").exists()
