"""The training rows that the public Credence artifact writes, one text file per switch.

Separated by spaces, with the header ``queueLength averageQueueLength sharedOccupancy averageOccupancy drop``. Lengths
are bytes; averages move when packets leave, with the artifact's own weights. A row is written when LQD has sent (0) or
pushed out (1) its packet: the rows are in the order of those fates, without time, port, flow and size, and what was
still queued at the end is missing. So nothing that needs order can be done with them. The features are those at the
arrival, after the push-outs that made room for it; acknowledgements are rows like any other, never labelled drop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from foretail.core.errors import ForetailError, readable
from foretail.features.dataset.schema import Run
from foretail.features.dataset.writer import write_rows_in_order_of_fate

COLUMNS = ("queueLength", "averageQueueLength", "sharedOccupancy", "averageOccupancy", "drop")
BLOCK_BYTES = 1 << 22


def write_artifact_rows(path: Path, run: Run, log: Path, report: Callable[[int], None] = lambda rows: None) -> None:
    """Import the rows of `log` as the dataset `path`; memory does not depend on their number.

    ForetailError if the log cannot be read, has another header, is cut off, has no rows, or has a value that its buffer
    excludes.

    Parameters
    ----------
    path : the dataset folder; must not exist
    run : one switch: its buffer bounds the occupancies, its ports are the N of scores
    report : called with the number of rows read so far
    """
    buffer_bytes = run.switches[0].buffer_bytes
    row = 0
    with write_rows_in_order_of_fate(path, run) as writer:
        for values in _chunks(log):
            features, label = values[:, :4], values[:, 4]
            _demand((features >= 0) & (features <= buffer_bytes), values, log, row, f"bytes of 0 to {buffer_bytes}")
            fits = features[:, 0] <= features[:, 2]
            _demand(fits, values, log, row, "a queueLength of at most the sharedOccupancy, which holds the queue,")
            _demand((label == 0) | (label == 1), values, log, row, "drop 0 or 1")
            writer.write(features, label != 0)
            row += len(values)
            report(row)


def _chunks(log: Path) -> Iterator[NDArray[np.int64]]:
    """Rows of the log, int64 [n, 5]."""
    with readable(f"the log {log}", "give log=FILE"), log.open("rb") as file:
        header = file.readline(200).rstrip(b"\r\n")
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
        whole = file.read(1) == b"\n"
    if header.split() != [name.encode() for name in COLUMNS]:
        raise ForetailError(
            f"the log {log} begins with {header.decode(errors='replace')[:100]}, not with {' '.join(COLUMNS)}: give a "
            "training trace of the Credence artifact"
        )
    if header != " ".join(COLUMNS).encode():
        raise ForetailError(
            f"line 1 of the log {log} has other spaces than one between names, maybe one at its end: write every line "
            "with single spaces and none at its end"
        )
    if not whole:
        raise ForetailError(f"the log {log} is truncated: its last line does not end; copy it again")
    rows = 0
    try:
        with csv.open_csv(
            log,
            csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            csv.ParseOptions(delimiter=" ", quote_char=False),
            csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.int64()), null_values=[]),
        ) as reader:
            for batch in reader:
                if batch.num_rows:
                    rows += batch.num_rows
                    yield np.stack([column.to_numpy() for column in batch.columns], axis=1)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise ForetailError(
            f"the log {log} has a line after line {rows + 1} that is not five whole numbers ({reason}): write "
            "them with single spaces between, none at the end"
        ) from None
    if not rows:
        raise ForetailError(f"the log {log} has no rows below its header: run the artifact's simulation again")


def _demand(holds: NDArray[np.bool_], values: NDArray[np.int64], log: Path, first_row: int, wanted: str) -> None:
    good = holds.reshape(len(values), -1).all(axis=1)
    if not good.all():
        at = int(np.argmin(good))
        raise ForetailError(
            f"line {first_row + at + 2} of the log {log} is {' '.join(map(str, values[at]))}, where {wanted} is "
            "needed: correct credence_artifact.buffer_bytes or copy the log again"
        )
