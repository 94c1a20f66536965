"""``foretail replay arrivals=FILE``: ten million arrivals, eight policies; seconds and memory, CSV and Parquet."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from foretail.sim_bridge.arrivals.workloads import WORKLOADS

PORTS, BUFFER = 20, 1000
PACKETS = {"small": 100_000, "full": 10_000_000}
PACKETS_PER_SLOT = 13
"""Fewer than the workload has."""
POLICIES = "[cs,cp,dt,harmonic,abm,lqd,followlqd,credence]"


def main(size: str) -> None:
    """Print wall seconds, CPU seconds and peak memory of the command for both kinds of files."""
    packets = PACKETS[size]
    batches = list(WORKLOADS["uniform"]().batches(PORTS, BUFFER, packets // PACKETS_PER_SLOT, 1))
    columns = {name: np.concatenate([getattr(batch, name) for batch in batches])[:packets] for name in ("slot", "port")}
    arrivals = pa.table(columns)
    if len(arrivals) != packets:
        raise SystemExit(f"the workload has {len(arrivals)} packets instead of {packets}: lower PACKETS_PER_SLOT")
    table = Table(title=f"foretail replay, {packets:,} arrivals, 8 policies, {PORTS} ports")
    for heading in ("file", "seconds", "to csv", "CPU seconds", "peak MB"):
        table.add_column(heading, justify="left" if heading == "file" else "right")
    csv_seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            file = Path(folder) / f"arrivals.{suffix}"
            if suffix == "csv":
                pyarrow.csv.write_csv(arrivals, file)
            else:
                pq.write_table(arrivals, file)
            seconds, cpu_seconds, peak_mb = _run(file, Path(folder))
            csv_seconds = seconds if suffix == "csv" else csv_seconds
            ratio = f"{seconds / csv_seconds:.2f}"
            table.add_row(suffix, f"{seconds:.1f}", ratio, f"{cpu_seconds:.1f}", f"{peak_mb:.0f}")
    Console(width=110).print(table)


def _run(file: Path, folder: Path) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "foretail.pipelines.cli", "replay", f"arrivals={file}", f"ports={PORTS}"]
    command += [f"buffer={BUFFER}", f"policies={POLICIES}", f"hydra.run.dir={folder / 'run'}"]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("foretail evaluate failed")
    seconds = time.monotonic() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000
