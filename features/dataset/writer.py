"""Datasets on disk: one folder per run, written while it streams by.

Layout: ``manifest.json``, ``rows/part-NNNNN.parquet`` (labelled data arrivals), ``control/part-NNNNN.parquet`` (the
other arrivals, needed for replay), all in arrival order. Imported rows in order of fate, and drop costs, have the
first table only. Row groups and parts end at fixed row counts, so the bytes depend on the arrivals alone and not on the
batches they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder, writing
from foretail.features.catalog import FEATURES, PAPER_FEATURES, SHADOW_COLUMNS, VALUE_BITS
from foretail.features.dataset.schema import (
    DATA_CLASSES,
    DROP_COSTS_SCHEMA,
    MANIFEST_NAME,
    ROW_GROUP_ROWS,
    SCHEMAS,
    Kind,
    Manifest,
    PartFile,
    Run,
)
from foretail.features.records import ARRIVAL_DTYPE, Asked, FlowClass, Outcome, Records

if TYPE_CHECKING:
    import pandas as pd

PART_ROWS = 1 << 22

_BLOCK_RECORDS = 1 << 13
"""So many records stay in the cache of a processor while they are checked and their columns are taken out of them."""

# Values that repeat go through a dictionary; the rest are near their predecessor: half the size, ten times the speed.
# Snappy then takes a fifth less time than zstd, for 6 % more bytes, and every reader knows both.
_DICTIONARY = ["switch", "port", "size_bytes", "flow_class"]
_CUT_BY = ["arrival", "time_ns", "lqd_drop"]
"""Columns whose bounds let a reader skip row groups."""


_PLACE_FIELDS = ("time_ns", "switch", "port", "size_bytes", "ingress", "first_rtt", "lqd_drop")
_ROW_FIELDS = tuple(name for name in ARRIVAL_DTYPE.names or () if name != "pad")


def write_dataset(path: Path, run: Run) -> AbstractContextManager[DatasetWriter]:
    """Return a writer for the arrivals of one run; the dataset folder appears when the ``with`` block completes.

    Memory does not depend on the number of arrivals. On any exception, ``KeyboardInterrupt`` included, nothing
    remains. Identical arrivals give byte-identical files. ForetailError if `path` exists, `run` is invalid, or the file
    system refuses.
    """
    return _written(path, run, DatasetWriter if run.lossless is None else LosslessWriter)


def write_rows_in_order_of_fate(path: Path, run: Run) -> AbstractContextManager[FateOrderWriter]:
    """Write a dataset as :func:`write_dataset` does, for rows that came without arrival order, time, port and size."""
    return _written(path, run, FateOrderWriter)


def write_drop_costs(path: Path, run: Run, rows: pd.DataFrame) -> None:
    """Write sampled arrivals with what dropping each costs as the dataset `path`, all or nothing.

    ForetailError if `path` exists, `run` is invalid, a cost is not finite, or the file system refuses.

    Parameters
    ----------
    rows : the columns of ``schema.DROP_COSTS_SCHEMA``, in arrival order; others are left out
    """
    with _written(path, run, DropCostWriter) as writer:
        writer.write(rows)


@contextmanager
def _written(path: Path, run: Run, kind_of_writer: type[AnyWriter]) -> Iterator[AnyWriter]:
    kind = kind_of_writer.kind
    Manifest.from_json(Manifest.of(run, (), 0, kind).to_json(), f"the run to be written to {path}")
    with staged_folder(path) as folder:
        writer = kind_of_writer(folder, path, run)
        try:
            yield writer
            with writing(path):
                manifest = Manifest.of(run, writer.finish(), writer.drops, kind)
                (folder / MANIFEST_NAME).write_text(manifest.to_json())
        finally:
            writer.close()


class _Writer:
    """Parts that the writers of all kinds share: their tables and the number of rows labelled drop."""

    kind: ClassVar[Kind]

    def __init__(self, folder: Path, path: Path, run: Run) -> None:
        self.drops = 0
        self._path = path
        self._tables = {name: _Table(folder, name, schema) for name, schema in SCHEMAS[self.kind].items()}

    def finish(self) -> list[PartFile]:
        """Complete the last files and return all of them, rows before control; called once, by `write_dataset`."""
        return [file for table in self._tables.values() for file in table.finish()]

    def close(self) -> None:
        """Let go of unfinished files without completing them."""
        for table in self._tables.values():
            table.close()


AnyWriter = TypeVar("AnyWriter", bound=_Writer)


class FateOrderWriter(_Writer):
    """Appends rows to the dataset that :func:`write_rows_in_order_of_fate` is making."""

    kind = "rows_in_order_of_fate"

    def write(self, features: NDArray[np.int64], lqd_drop: NDArray[np.bool_]) -> None:
        """Append the next rows; ForetailError if a value is out of range, or the file system refuses.

        Parameters
        ----------
        features : (n, 4) int array, in the order of ``catalog.PAPER_FEATURES``, in bytes, in ``[0, 2**24)``
        lqd_drop : (n,) bool array
        """
        outside = (features < 0) | (features >= 1 << VALUE_BITS)
        if outside.any():
            row, k = np.argwhere(outside)[0]
            raise ForetailError(
                f"{PAPER_FEATURES[k]} is {features[row, k]} in a row for {self._path}, outside 0 to "
                f"{(1 << VALUE_BITS) - 1}: these rows are not in bytes of a shared buffer"
            )
        columns = {name: features[:, k].astype(np.int32) for k, name in enumerate(PAPER_FEATURES)}
        with writing(self._path):
            self._tables["rows"].append(columns | {"lqd_drop": lqd_drop})
        self.drops += int(np.count_nonzero(lqd_drop))


class DropCostWriter(_Writer):
    """Holds the rows of the dataset that :func:`write_drop_costs` is making."""

    kind = "drop_costs"

    def write(self, rows: pd.DataFrame) -> None:
        """Append all rows; ForetailError on a cost that is not finite."""
        wrong = np.flatnonzero(~np.isfinite(rows["drop_cost"].to_numpy()))
        if len(wrong):
            raise ForetailError(f"row {wrong[0]} for {self._path} has drop_cost {rows['drop_cost'].iloc[wrong[0]]}")
        with writing(self._path):
            table = pa.Table.from_pandas(rows, DROP_COSTS_SCHEMA, preserve_index=False)
            for first in range(0, len(rows), ROW_GROUP_ROWS):
                self._tables["rows"].write(table.slice(first, ROW_GROUP_ROWS))
        self.drops += int(np.count_nonzero(rows["drop_cost"] < 0))


class DatasetWriter(_Writer):
    """Appends arrivals to the dataset that :func:`write_dataset` is making.

    So far it has written `arrivals`, and among their rows `drops` that are labelled drop.
    """

    kind: ClassVar[Kind] = "trace"

    def __init__(self, folder: Path, path: Path, run: Run) -> None:
        super().__init__(folder, path, run)
        self.arrivals = 0
        self._last_ns = np.iinfo(np.int64).min
        self._ports = np.array([switch.ports for switch in run.switches])
        self._tables["rows"].converted, self._tables["control"].converted = _row, _place

    def write(self, records: Records, shadow: NDArray[np.int32], shadow_asked: NDArray[Any]) -> None:
        """Append the next arrivals of the run.

        ForetailError if an arrival is impossible (the message names its field), or the file system refuses.

        Parameters
        ----------
        records : (n,) array of ARRIVAL_DTYPE, in arrival order, control packets included
        shadow : (n, 5) int array
            The real features on the shadow Credence's queues, in the order of ``catalog.SHADOW_COLUMNS``, in cells;
            ignored for control packets.
        shadow_asked : (n,) array of bool or 0/1
            Whether the shadow Credence asks the predictor; ignored for control packets.
        """
        expected = (len(records), len(SHADOW_COLUMNS))
        if records.dtype != ARRIVAL_DTYPE or shadow.shape != expected or shadow_asked.shape != expected[:1]:
            raise ForetailError(
                f"arrivals for {self._path} do not fit together: want n records of ARRIVAL_DTYPE, shadow {expected} and"
                f" shadow_asked {expected[:1]}, got shadow {shadow.shape} and shadow_asked {shadow_asked.shape}"
            )
        for first in range(0, len(records), _BLOCK_RECORDS):
            part = slice(first, first + _BLOCK_RECORDS)
            self._write(records[part], shadow[part], shadow_asked[part])

    def _write(self, records: Records, shadow: NDArray[np.int32], shadow_asked: NDArray[Any]) -> None:
        self._check(records)
        is_data = records["flow_class"] != FlowClass.CONTROL
        rows, others = np.flatnonzero(is_data), np.flatnonzero(~is_data)
        words = records.view(np.int64).reshape(len(records), -1)
        data = words[rows].reshape(-1).view(ARRIVAL_DTYPE)  # field by field, it takes ten times as long
        shadow = shadow[rows].astype(np.int32, copy=False)
        extra: dict[str, NDArray[Any]] = {
            "arrival": rows + self.arrivals,
            "shadow": shadow.T,
            "shadow_asked": shadow_asked[rows],
        }
        with writing(self._path):
            fields: dict[str, NDArray[Any]] = {name: data[name].T for name in _ROW_FIELDS}
            self._tables["rows"].append(fields | extra)
            place: dict[str, NDArray[Any]] = {name: records[name][others] for name in _PLACE_FIELDS}
            self._tables["control"].append(place | {"arrival": others + self.arrivals})
        self.arrivals += len(records)
        self.drops += int(np.count_nonzero(data["lqd_drop"]))

    def _check(self, records: Records) -> None:
        """Refuse, naming field and arrival, what no simulator may have written."""
        time_ns, port = records["time_ns"], records["port"]
        for field, low, high in (
            ("switch", 0, len(self._ports) - 1),
            ("size_bytes", 1, 2**31 - 1),
            ("flow_class", 0, max(FlowClass)),
            ("outcome", 0, max(Outcome)),
            ("asked", 0, max(Asked)),
            ("lqd_drop", 0, 1),
            ("exposed", 0, 1),
            ("first_rtt", 0, 1),
        ):
            _demand_range(time_ns, field, records[field], low, high)
        has_port = (port >= 0) & (port < self._ports[records["switch"]])
        _demand(has_port, time_ns, "port", port, "one of its switch")
        in_order = np.concatenate([time_ns[:1] >= self._last_ns, time_ns[1:] >= time_ns[:-1]])
        _demand(in_order, time_ns, "time_ns", time_ns, "no earlier than the arrival before it")
        self._last_ns = time_ns[-1]


class LosslessWriter(DatasetWriter):
    """The same for a run in which some queues may not lose a packet: arrivals say by which port they came."""

    kind = "lossless_trace"

    def write_pauses(self, records: Records) -> None:
        """Append pauses of ports: records of PAUSE_DTYPE, in order of time."""
        columns = {name: records[name] for name in ("time_ns", "switch", "port", "priority")}
        with writing(self._path):
            self._tables["pauses"].append(columns | {"paused": records["paused"] != 0})


class _Table:
    """One table as a sequence of Parquet files of bounded size, in row groups of fixed size."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.converted: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]] = dict
        """Makes the columns of the schema of those that were appended."""
        self._folder = folder
        self._name = name
        self._schema = schema
        self._delta = {
            f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_integer(f.type) and f.name not in _DICTIONARY
        }
        self._columns: dict[str, NDArray[Any]] = {}
        self._rows = 0  # that wait in the columns for a row group
        self._files: list[PartFile] = []
        self._part_rows = 0
        self._sink: pa.NativeFile | None = None
        self._parquet: pq.ParquetWriter | None = None

    def append(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Copy the next rows, which are the last axis of every column."""
        if not self._columns:
            self._columns = {
                name: np.empty((*column.shape[:-1], ROW_GROUP_ROWS), column.dtype) for name, column in columns.items()
            }
        first, rows = 0, next(iter(columns.values())).shape[-1]
        while first < rows:
            taken = min(rows - first, ROW_GROUP_ROWS - self._rows)
            for name, column in columns.items():
                self._columns[name][..., self._rows : self._rows + taken] = column[..., first : first + taken]
            first += taken
            self._rows += taken
            if self._rows == ROW_GROUP_ROWS:
                self._write_waiting()

    def write(self, group: pa.Table) -> None:
        """Write a row group of one chunk."""
        if self._parquet is None:
            path = self._folder / self._part()
            path.parent.mkdir(exist_ok=True)
            self._sink = pa.OSFile(str(path), "wb")
            self._parquet = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="snappy",
                use_dictionary=[name for name in _DICTIONARY if name in self._schema.names],
                write_statistics=[name for name in _CUT_BY if name in self._schema.names],
                column_encoding=self._delta,
            )
        self._parquet.write_table(group, row_group_size=ROW_GROUP_ROWS)
        self._part_rows += group.num_rows
        if self._part_rows >= PART_ROWS:
            self._finish_part()

    def finish(self) -> list[PartFile]:
        if self._rows:
            self._write_waiting()
        self._finish_part()
        return self._files

    def close(self) -> None:
        for unfinished in (self._parquet, self._sink):
            with suppress(Exception):  # the folder is about to be removed: only the descriptors matter
                if unfinished is not None:
                    unfinished.close()

    def _part(self) -> str:
        return f"{self._name}/part-{len(self._files):05d}.parquet"

    def _write_waiting(self) -> None:
        columns = self.converted({name: column[..., : self._rows] for name, column in self._columns.items()})
        self.write(pa.Table.from_arrays([pa.array(columns[name]) for name in self._schema.names], schema=self._schema))
        self._rows = 0

    def _finish_part(self) -> None:
        if self._parquet is None or self._sink is None:
            return
        self._parquet.close()
        self._sink.close()
        self._files.append(PartFile(self._part(), self._part_rows, file_digest(self._folder / self._part())))
        self._parquet, self._sink, self._part_rows = None, None, 0


def _demand(holds: NDArray[np.bool_], time_ns: NDArray[Any], field: str, values: NDArray[Any], wanted: str) -> None:
    """Refuse the first arrival for which something does not hold."""
    if not holds.all():
        at = int(np.argmin(holds))
        raise ForetailError(
            f"arrival at {time_ns[at]} ns has {field} {values[at]}, which must be {wanted}:"
            " the simulator that wrote it is broken or of another version"
        )


def _demand_range(time_ns: NDArray[Any], field: str, values: NDArray[Any], low: int, high: int) -> None:
    if len(values) and (values.min() < low or values.max() > high):
        _demand((values >= low) & (values <= high), time_ns, field, values, f"in {low}..{high}")


def _place(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Columns of the control table, most of which the rows have too."""
    return {**columns, "first_rtt": columns["first_rtt"] != 0, "lqd_drop": columns["lqd_drop"] != 0}


def _row(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Columns of the rows table, from fields of records and what the shadow has seen, which are checked."""
    time_ns, fate_ns = columns["time_ns"], columns["fate_time_ns"]
    _demand(fate_ns >= time_ns, time_ns, "fate_time_ns", fate_ns, "no earlier than time_ns")
    features = {item.name: column for item, column in zip(FEATURES, columns["features"], strict=True)}
    shadow = dict(zip(SHADOW_COLUMNS, columns["shadow"], strict=True))
    for item in FEATURES:
        _demand_range(time_ns, item.name, features[item.name], 0, (1 << item.bits) - 1)
    for name, column in shadow.items():
        _demand_range(time_ns, name, column, 0, (1 << VALUE_BITS) - 1)
    flow_class, answer = columns["flow_class"], columns["asked"]
    return {
        **columns,
        **features,
        **shadow,
        "flow_class": pa.DictionaryArray.from_arrays(
            (flow_class - FlowClass.BACKGROUND).astype(np.int8), list(DATA_CLASSES)
        ),
        "first_rtt": columns["first_rtt"].astype(np.int32),
        "incast": (flow_class == FlowClass.INCAST).astype(np.int32),
        **{name: columns[name] != 0 for name in ("exposed", "shadow_asked", "lqd_drop")},
        "accepted": np.isin(columns["outcome"], (Outcome.ACCEPTED, Outcome.PUSHED_OUT)),
        "asked": pa.array(answer == Asked.YES, mask=answer == Asked.NEVER),
        "score": pa.array(columns["score"], mask=answer != Asked.YES),
    }
