"""``foretail evaluate arrivals=FILE``: ten million arrivals, eight policies; seconds and memory, CSV and Parquet."""

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

PORTS, BUFFER, SLOTS, PACKETS = 20, 1000, 750_000, 10_000_000
POLICIES = "[cs,cp,dt,harmonic,abm,lqd,followlqd,credence]"


def main() -> None:
    """Print wall seconds, CPU seconds and peak memory of the command for both kinds of files."""
    batches = list(WORKLOADS["uniform"]().batches(PORTS, BUFFER, SLOTS, 1))
    columns = {name: np.concatenate([getattr(batch, name) for batch in batches])[:PACKETS] for name in ("slot", "port")}
    arrivals = pa.table(columns)
    if len(arrivals) != PACKETS:
        raise SystemExit(f"the workload has {len(arrivals)} packets instead of {PACKETS}: raise SLOTS")
    table = Table(title=f"foretail evaluate, {PACKETS:,} arrivals, 8 policies, {PORTS} ports")
    for heading in ("file", "seconds", "CPU seconds", "peak MB"):
        table.add_column(heading, justify="left" if heading == "file" else "right")
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            file = Path(folder) / f"arrivals.{suffix}"
            if suffix == "csv":
                pyarrow.csv.write_csv(arrivals, file)
            else:
                pq.write_table(arrivals, file)
            table.add_row(suffix, *_run(file, Path(folder)))
    Console(width=110).print(table)


def _run(file: Path, folder: Path) -> tuple[str, str, str]:
    command = [sys.executable, "-m", "foretail.pipelines.cli", "evaluate", f"arrivals={file}", f"ports={PORTS}"]
    command += [f"buffer={BUFFER}", f"policies={POLICIES}", f"hydra.run.dir={folder / 'run'}"]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("foretail evaluate failed")
    seconds = time.monotonic() - start
    return f"{seconds:.1f}", f"{usage.ru_utime + usage.ru_stime:.1f}", f"{usage.ru_maxrss / 1000:.0f}"


if __name__ == "__main__":
    main()
