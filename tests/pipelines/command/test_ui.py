"""``foretail ui``: its refusals, and MLflow's pages until they are interrupted. Costs 3 s, and at night 20 s more."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from foretail.models.mlflow.store import SQLITE, create_store
from foretail.pipelines.cli import main
from foretail.pipelines.command.ui import LOOPBACK
from tests.torture.faults import free_port, wait_for_mlflow

pytestmark = pytest.mark.slow


def test_pages_need_a_tracked_run_and_a_port(
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
    (tmp_path / "mlflow.db").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{SQLITE}mlflow.db")
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        for port in (taken.getsockname()[1], 65536):
            assert main(["ui", "--port", str(port)]) == 2
            error = capsys.readouterr().err
            assert f"port {port} cannot be used" in error
            assert "--port 5055" in error


@pytest.mark.nightly
def test_pages_are_shown_until_ctrl_c_and_leave_no_process(tmp_path: Path) -> None:
    create_store(f"{SQLITE}{tmp_path}/outputs/mlflow.db")
    (tmp_path / "mlflow.py").write_text("raise ImportError('a file of the user')")
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-m", "foretail.pipelines.cli", "ui", "--port", str(port)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as pages:
        wait_for_mlflow(pages, port)
        with urlopen(f"http://{LOOPBACK}:{port}/", timeout=60) as answer:
            assert b"MLflow" in answer.read()
        os.killpg(pages.pid, signal.SIGINT)  # as a terminal does
        assert pages.stdout is not None
        printed = pages.stdout.read().decode()  # which ends when no process has it any more
        assert pages.wait(60) == 0, printed
    assert printed.startswith(f"MLflow shows {tmp_path}/outputs/mlflow.db at http://{LOOPBACK}:{port}; Ctrl-C ends it")
