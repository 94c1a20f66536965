"""MLflow's own server: jobs at once, a kill in the middle of a sweep, and passwords. All with a server run at night."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from foretail.core.errors import without_passwords
from foretail.models.mlflow import store, tracking
from foretail.models.mlflow.store import tracking_uri
from tests.torture.faults import free_port, mlflow_server

pytestmark = pytest.mark.slow
SWEEP = (
    *("train", "--multirun", "datasets=[slots]", "split.train=[1]", "split.validation=[2]", "split.test=[3]"),
    *("predictor.trees=1,2", "predictor.depth=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
)


def server(folder: Path, port: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """MLflow's server of two processes, which hands on artifacts, in a folder of its own inside `folder`."""
    (folder / "server" / "outputs").mkdir(parents=True, exist_ok=True)
    return mlflow_server(folder / "server", port, "--artifacts-destination", workers=2)


def foretail(folder: Path, port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    command = [sys.executable, "-m", "foretail.pipelines.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


ROUNDS = 25


@pytest.mark.nightly
def test_jobs_that_write_the_same_at_once_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets, experiments, models, versions, aliases and tags, each as two jobs of a sweep write it."""
    from mlflow import MlflowClient

    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    write, refused = store.settled, []

    def noted(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except Exception as error:
            refused.append(type(error).__name__ + str(error)[:200])
            raise

    with server(tmp_path, port), ThreadPoolExecutor(2) as jobs:
        client = MlflowClient(uri)
        together = threading.Barrier(2)

        def job(number: int) -> None:
            together.wait(60)
            experiment = tracking._found_or_created(client, f"drops {number}", None)
            run_id = client.create_run(experiment).info.run_id
            run = tracking.TrackedRun(run_id, experiment, uri)
            together.wait(60)
            for context in ("train", "test"):
                run.log_dataset("slots", f"{number:064x}", f"{number:064x}", "slots", 10, 1, context)
            together.wait(60)
            write(noted, client.set_tag, run_id, "a", "b")
            model = client.create_logged_model(experiment, source_run_id=run_id).model_id
            version = tracking.create_version(client, f"model {number}", run_id, model)
            together.wait(60)
            tracking.point_alias(client, f"model {number}", "candidate", version)
            together.wait(60)
            write(noted, client.set_model_version_tag, f"model {number}", "1", "same", "value")
            inputs = client.get_run(run_id).inputs
            assert inputs is not None
            assert len(inputs.dataset_inputs) == 2

        monkeypatch.setattr(tracking, "settled", functools.partial(write, noted))
        for number in range(ROUNDS):
            for done in [jobs.submit(job, number) for _ in range(2)]:
                done.result(120)
            assert {str(one.version) for one in client.search_model_versions(f"name='model {number}'")} == {"1", "2"}
    assert any("UNIQUE constraint" in error for error in refused), "no two writes met, so that nothing was tested"


@pytest.mark.nightly
def test_a_password_in_the_address_of_a_server_gets_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not into a file of the run, of the store or of the server, and not onto the terminal, whatever fails."""
    port = free_port()
    address = f"tracking.uri='http://somebody:hidden/w?o#r d@127.0.0.1:{port}'"
    told = []
    with server(tmp_path, port):
        run = SWEEP[:1] + SWEEP[2:6]
        slotted = ("collect", "source=slotted", "slotted.workload=incast", "slotted.slots=4000", "seeds=[1,2,3]")
        told.append(foretail(tmp_path, port, *slotted, "slotted.ports=8", "hydra.run.dir=slots"))
        told.append(foretail(tmp_path, port, *run, "predictor.trees=1", address, "hydra.run.dir=trained"))
        told.append(foretail(tmp_path, port, *run, "predictor.trees=1", address, "hydra.run.dir=again"))
        many = ("--multirun", "predictor.trees=1,2", "hydra.sweep.dir=many")
        told.append(foretail(tmp_path, port, *run, *many, address))
        told.append(foretail(tmp_path, port, *run, address, "--cfg", "job"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    told.append(foretail(tmp_path, port, *run, "predictor.trees=2", address, "--debug"))
    assert [done.returncode for done in told] == [0, 0, 0, 0, 0, 2], told[1].stderr
    assert f"in http://127.0.0.1:{port}" in told[1].stdout
    assert '"reused": true' in (tmp_path / "again" / "result.json").read_text()
    texts = {"the terminal": "".join(done.stdout + done.stderr for done in told).encode()}
    texts |= {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert [name for name, text in texts.items() if b"hidden" in text] == []
    with_user = [name for name, text in texts.items() if b"somebody" in text]
    assert with_user == [f"{tmp_path}/server/outputs/mlflow.db"]  # whose run it is


@pytest.mark.parametrize("password", ["hidden", "hid/den", "hid@den", "hid?#den", "hid den", "hid'\"den"])
def test_whatever_a_password_has_it_is_in_the_environment_alone(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    assert tracking_uri(f"postgresql://somebody:{password}@127.0.0.1/db", tmp_path) == "postgresql://127.0.0.1/db"
    assert os.environ["PGPASSWORD"] == password
    for plain in ("http://127.0.0.1/a@b", "sqlite:////home/me@work/a:b@c/mlflow.db", "file:///home/me@work/x"):
        assert tracking_uri(plain, tmp_path) == without_passwords(plain) == plain


@pytest.mark.nightly
def test_a_sweep_survives_that_the_server_is_killed_and_started_again(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    port = free_port()
    slotted = ("collect", "source=slotted", "slotted.workload=incast", "slotted.slots=4000", "seeds=[1,2,3]")
    assert foretail(tmp_path, port, *slotted, "slotted.ports=8", "hydra.run.dir=slots").returncode == 0
    with server(tmp_path, port) as process:
        environment = os.environ | {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
        command = [sys.executable, "-m", "foretail.pipelines.cli", *SWEEP]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as sweep:
            client, end = MlflowClient(f"http://127.0.0.1:{port}"), time.monotonic() + 60
            while not client.search_runs(["1"]) and time.monotonic() < end:
                time.sleep(0.1)
            os.killpg(process.pid, signal.SIGKILL)
            error = sweep.communicate(timeout=120)[1]
        assert sweep.returncode == 2, error
        assert re.fullmatch(r"foretail: .*\n", error), error
    with server(tmp_path, port):
        done = foretail(tmp_path, port, *SWEEP)
        assert done.returncode == 0, done.stderr
        assert "models:/foretail-drop@candidate is version 1 now" in done.stdout
        again = foretail(tmp_path, port, *SWEEP)
        assert "models:/foretail-drop@candidate is version 1 now, as before" in again.stdout
        exported = foretail(tmp_path, port, "export", "model=models:/foretail-drop@candidate", "target=c")
        assert exported.returncode == 0, exported.stderr
        assert "foretail-drop version 1 (candidate)" in exported.stdout
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (version,) = client.search_model_versions("name='foretail-drop'")
        made = [
            run.info.run_name
            for run in client.search_runs(["1"])
            if run.info.status == "FINISHED"
            and "mlflow.parentRunId" in run.data.tags
            and "reused_run_id" not in run.data.tags
        ]
        assert set(made) == {f"job {trees - 1}: random forest {trees}x2 paper seed 1" for trees in (1, 2)}
        assert "validation_replay/whole/sent_percent_of_lqd" in str(version.description)
    assert not (tmp_path / "outputs" / "mlflow.db").exists()
