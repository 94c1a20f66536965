"""``foretail ui``: MLflow's pages of the tracked runs, on this machine alone."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from foretail.core.errors import ForetailError
from foretail.models.mlflow.store import SQLITE, sqlite_file, store_exists, tracking_uri

LOOPBACK = "127.0.0.1"
USUAL_PORT = 5000
WORKERS = 2


def show_pages(folder: Path, port: int) -> NoReturn:
    """Show the tracked runs of ``outputs`` in a folder until interrupted: MLflow takes the place of this process.

    ForetailError when there is no tracked run, a server has the runs, or the port is taken.
    """
    uri = tracking_uri(None, folder / "outputs")
    file = sqlite_file(uri)
    if file is None:
        raise ForetailError(f"MLFLOW_TRACKING_URI names a server, which has pages of its own: open {uri}")
    if not store_exists(uri):
        raise ForetailError(f"there is no tracked run in {file} yet: train a model first, as make demo does")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise ForetailError(f"port {port} cannot be used ({error}): give another, as in --port 5055") from None
    print(f"MLflow shows {file} at http://{LOOPBACK}:{port}; Ctrl-C ends it", flush=True)
    settings = {
        "MLFLOW_BACKEND_STORE_URI": f"{SQLITE}{file}",
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": (file.parent / "mlartifacts").as_uri(),
    }
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")  # seven processes for what Foretail never asks
    command = [sys.executable, "-m", "mlflow", "ui", "--host", LOOPBACK]
    os.chdir("/")  # from where Python imports no file of the user
    os.execve(sys.executable, [*command, "--port", str(port), "--workers", str(WORKERS)], os.environ | settings)
