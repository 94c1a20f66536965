"""The tracking server with PostgreSQL: a sweep of two jobs at once, a kill in between, refusals. Costs 120 s."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foretail.core.errors import ForetailError, without_passwords
from foretail.models.mlflow import store, tracking
from foretail.models.mlflow.store import tracking_uri
from foretail.pipelines.cli import main
from foretail.pipelines.tracking import server
from tests.torture.faults import free_port

pytestmark = pytest.mark.slow
SWEEP = (
    *("train", "--multirun", "datasets=[slots]", "split.train=[1]", "split.validation=[2]", "split.test=[3]"),
    *("predictor.trees=1,2", "predictor.depth=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that PostgreSQL's own user reaches, too, which pytest's are not when root runs the tests."""
    place = Path(tempfile.mkdtemp(prefix="foretail-tracking-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@contextlib.contextmanager
def running(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "foretail.pipelines.tracking.server", str(folder / "server"), "--port", str(port)]
    with (
        (folder / "server.log").open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("tracking server at"):
                break
        threading.Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would stop the server
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def foretail(folder: Path, port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"http://{server.LOOPBACK}:{port}"}
    command = [sys.executable, "-m", "foretail.pipelines.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def without_postgresql() -> str | None:
    """Why there is no server to test."""
    try:
        server.postgres_programs()
    except ForetailError as error:
        return str(error)
    return None


ROUNDS = 50


@pytest.mark.nightly
@pytest.mark.skipif(without_postgresql() is not None, reason=f"{without_postgresql()}")
def test_jobs_that_write_the_same_at_once_both_succeed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets, experiments, models, versions, aliases and tags, each as two jobs of a sweep write it."""
    from mlflow import MlflowClient

    port = free_port()
    uri = f"http://{server.LOOPBACK}:{port}"
    write, refused = store.settled, []

    def noted(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except Exception as error:
            refused.append(type(error).__name__ + str(error)[:200])
            raise

    with running(folder, port), ThreadPoolExecutor(2) as jobs:
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
    assert any("dataset_pk" in error for error in refused), "no two writes met, so that nothing was tested"


@pytest.mark.nightly
def test_a_password_in_the_address_of_a_server_gets_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not into a file of the run, of the store or of the server, and not onto the terminal, whatever fails."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", server.LOOPBACK, "--port", str(port)]
    places = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        f"{tmp_path}/artifacts",
    ]
    address = f"tracking.uri='http://somebody:hidden/w?o#r d@{server.LOOPBACK}:{port}'"
    told = []
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(
            [*command, *places, "--workers", "1"], stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        server._wait(lambda: server._listens(port), [process], "MLflow")
        run = SWEEP[:1] + SWEEP[2:6]
        slotted = ("collect", "source=slotted", "slotted.workload=incast", "slotted.slots=4000", "seeds=[1,2,3]")
        told.append(foretail(tmp_path, port, *slotted, "slotted.ports=8", "hydra.run.dir=slots"))
        told.append(foretail(tmp_path, port, *run, "predictor.trees=1", address, "hydra.run.dir=trained"))
        told.append(foretail(tmp_path, port, *run, "predictor.trees=1", address, "hydra.run.dir=again"))
        many = ("--multirun", "predictor.trees=1,2", "hydra.sweep.dir=many")
        told.append(foretail(tmp_path, port, *run, *many, address))
        told.append(foretail(tmp_path, port, *run, address, "--cfg", "job"))
        os.killpg(process.pid, signal.SIGKILL)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    told.append(foretail(tmp_path, port, *run, "predictor.trees=2", address, "--debug"))
    assert [done.returncode for done in told] == [0, 0, 0, 0, 0, 2], told[1].stderr
    assert f"in http://{server.LOOPBACK}:{port}" in told[1].stdout
    assert '"reused": true' in (tmp_path / "again" / "result.json").read_text()
    texts = {"the terminal": "".join(done.stdout + done.stderr for done in told).encode()}
    texts |= {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert [name for name, text in texts.items() if b"hidden" in text] == []
    assert [name for name, text in texts.items() if b"somebody" in text] == [f"{tmp_path}/server.db"]  # whose run it is


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
def test_a_server_ends_with_the_process_that_started_it_however_that_ends() -> None:
    script = (
        "import os, time\nfrom foretail.pipelines.tracking import server\n"
        "with server._running(['sh', '-c', 'sleep 1000 & wait'], dict(os.environ)) as process:\n"
        "    print(process.pid, flush=True)\n    time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        process.kill()

    def alive() -> list[str]:
        stats = [file.read_text().rpartition(")")[2].split() for file in Path("/proc").glob("[0-9]*/stat")]
        return [state for state, _, of, *_ in stats if int(of) == group and state != "Z"]

    deadline = time.monotonic() + 20
    while alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive() == []


def test_what_is_missing_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((server.LOOPBACK, 0))
        taken.listen()
        with pytest.raises(ForetailError, match=r"port \d+ cannot be used .*--port 5055"):
            server.serve(tmp_path / "server", taken.getsockname()[1], print)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(ForetailError, match="no PostgreSQL on this machine"):
        server.serve(tmp_path / "server", free_port(), print)
    assert not (tmp_path / "server").exists()


def test_pages_need_a_tracked_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["ui"]) == 2
    assert "there is no tracked run in" in capsys.readouterr().err
    assert main(["ui", "--port", "x"]) == 2
    assert "usage: foretail ui" in capsys.readouterr().out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert main(["ui"]) == 2
    assert "a server, which has pages of its own: open http://127.0.0.1:1" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.nightly
@pytest.mark.skipif(without_postgresql() is not None, reason=f"{without_postgresql()}")
def test_a_sweep_survives_that_the_server_is_killed_and_started_again(folder: Path) -> None:
    from mlflow import MlflowClient

    port = free_port()
    slotted = ("collect", "source=slotted", "slotted.workload=incast", "slotted.slots=4000", "seeds=[1,2,3]")
    assert foretail(folder, port, *slotted, "slotted.ports=8", "hydra.run.dir=slots").returncode == 0
    with running(folder, port) as process:
        environment = os.environ | {"MLFLOW_TRACKING_URI": f"http://{server.LOOPBACK}:{port}"}
        command = [sys.executable, "-m", "foretail.pipelines.cli", *SWEEP]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as sweep:
            client, end = MlflowClient(f"http://{server.LOOPBACK}:{port}"), time.monotonic() + 60
            while not client.search_runs(["1"]) and time.monotonic() < end:
                time.sleep(0.1)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
            guarded = [child for child in children if not Path(f"/proc/{child}/exe").resolve().name.endswith("sh")]
            assert len(guarded) == 2
            for leader in guarded:  # the database and MLflow, each with its workers, beside the shells that guard them
                os.killpg(int(leader), signal.SIGKILL)
            error = sweep.communicate(timeout=120)[1]
        assert sweep.returncode == 2, error
        assert re.fullmatch(r"foretail: .*\n", error), error
    with running(folder, port):
        done = foretail(folder, port, *SWEEP)
        assert done.returncode == 0, done.stderr
        assert "models:/foretail-drop@candidate is version 1 now" in done.stdout
        again = foretail(folder, port, *SWEEP)
        assert "models:/foretail-drop@candidate is version 1 now, as before" in again.stdout
        exported = foretail(folder, port, "export", "model=models:/foretail-drop@candidate", "target=c")
        assert exported.returncode == 0, exported.stderr
        assert "foretail-drop version 1 (candidate)" in exported.stdout
        client = MlflowClient(f"http://{server.LOOPBACK}:{port}")
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
    assert not (folder / "outputs" / "mlflow.db").exists()
