"""Cost of checking a dataset: its digest, over everything in the folder, as a share of reading it."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foretail.core import digest
from foretail.features.dataset.reader import Dataset
from foretail.pipelines import cli

SLOTS = {"small": 3_000, "full": 200_000}
ROUNDS = 7


def main(size: str) -> None:
    """Print CPU milliseconds, the least of a few rounds, and the ratios of checking to reading in the same run."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        command = ["collect", "source=slotted", "seeds=[1]", f"slotted.slots={SLOTS[size]}", "hydra.run.dir=run"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if cli.main(command) != 0:
                raise SystemExit(f"foretail {' '.join(command)} failed")
        path = Path(json.loads(Path("run/result.json").read_text())["runs"][0]["path"])
        check = _least_cpu_seconds(lambda: _check(path))
        ways: dict[str, Callable[[], object]] = {
            "all rows as a frame": lambda: Dataset.open(path, verify=False).frame(),
            "all arrivals for a replay": lambda: [None for _ in Dataset.open(path, verify=False).arrivals()],
        }
        table = Table(
            title=f"{Dataset.open(path).manifest.rows:,} rows; checking the digest takes {1000 * check:.1f} ms"
        )
        for column in ("read", "CPU ms", "checking / reading"):
            table.add_column(column, justify="left" if column == "read" else "right")
        for way, read in ways.items():
            seconds = _least_cpu_seconds(read)
            table.add_row(way, f"{1000 * seconds:.1f}", f"{check / seconds:.3f}")
        Console(width=110).print(table)


def _check(path: Path) -> None:
    digest.forget_hashes()
    digest.check_folder(path, "write it again")


def _least_cpu_seconds(work: Callable[[], object]) -> float:
    rows = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        rows.append(time.process_time() - started)
    return min(rows)
