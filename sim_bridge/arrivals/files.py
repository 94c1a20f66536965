"""Arrivals of unit packets in slots, and their CSV and Parquet files, read and checked batch by batch.

Where features are in bytes and nanoseconds, a packet has `PACKET_BYTES` and a slot `SLOT_NS`.

A file has one row per packet in order of arrival and the integer columns ``slot`` and ``port``; ``first_rtt``,
``priority`` and a column of predictions are read where they are present; others are told as left out. Errors name a row
by its number among the data rows, the first being row 1.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foretail.core.errors import ForetailError, first_line
from foretail.core.impostors import refuse_impostor
from foretail.core.reading import Reading
from foretail.features.records import column_values

PACKET_BYTES = 1024
SLOT_NS = 1024
"""So averages over ``2**(10 + s)`` ns are those over ``2**s`` slots, and the features' unit of time is a slot."""
AVERAGE_SHIFT = 15
"""Averages of features run over 2 to this ns by default, 32 slots."""


def slots_shift(average_shift: int) -> int:
    """Return s where averages run over 2**s slots, of those over 2**average_shift ns; below 0 over less than one."""
    return average_shift - SLOT_NS.bit_length() + 1


@dataclass(frozen=True, eq=False)
class Slotted:
    """A batch of unit packets in order of arrival.

    Examples
    --------
    >>> len(Slotted(np.array([0, 0, 1]), np.array([3, 3, 1], np.int32)))
    3
    """

    #: int64[n], slot of each packet, from 0, never decreasing, also from one batch to the next. Slots without arrivals
    #: drain.
    slot: NDArray[np.int64]
    port: NDArray[np.int32]  #: int32[n], output port, from 0
    prediction: NDArray[np.uint8] | None = None  #: uint8[n] or None, 1 where a predictor says drop
    #: uint8[n] or None, 1 for packets of a flow's first round trip, which ABM treats better
    first_rtt: NDArray[np.uint8] | None = None
    #: uint8[n] or None, queue of its port for each packet, from 0; a policy that knows one queue per port ignores it
    priority: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.slot)

    def __getitem__(self, rows: NDArray[np.bool_] | slice) -> Slotted:
        """The packets where `rows`, bool[n], is true; as views those of a slice."""
        columns: dict[str, Any] = {
            name: None if column is None else column[rows] for name, column in vars(self).items()
        }
        return Slotted(**columns)

    @classmethod
    def joined(cls, batches: Iterable[Slotted]) -> Slotted:
        """Return one batch of all packets of one batch or more, with the columns that all of them have."""
        several = list(batches)
        columns = {name: [getattr(batch, name) for batch in several] for name in cls.__dataclass_fields__}
        return cls(
            **{name: np.concatenate(parts) for name, parts in columns.items() if all(one is not None for one in parts)}
        )


BATCH_ROWS = 1 << 20
CSV_BLOCK_BYTES = 1 << 21  # arrow reads up to 32 of them ahead

LAST_SLOT = 1 << 62
"""Later departures could overflow."""

_REQUIRED = ("slot", "port")
_OPTIONAL = ("first_rtt", "priority")


class ArrivalFile:
    """An opened file of arrivals.

    The path ends in ``.csv`` or ``.parquet``. ForetailError when the file is missing, empty, damaged, of another kind,
    or lacks a column.

    Attributes
    ----------
    columns : names of all columns of the file
    has_predictions : whether `prediction_column` is among them

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "arrivals.csv"
    ...     _ = path.write_text("slot,port\\n0,1\\n2,0\\n")
    ...     file = ArrivalFile(path)
    >>> file.columns, file.has_predictions
    (('slot', 'port'), False)
    """

    def __init__(self, path: Path, prediction_column: str = "prediction") -> None:
        self.path = path
        self._prediction_column = prediction_column
        self._is_csv = path.suffix.lower() == ".csv"
        if path.suffix.lower() not in (".csv", ".parquet"):
            raise ForetailError(f"{path} is neither .csv nor .parquet: convert the arrivals to one of them")
        if not path.is_file():
            raise ForetailError(f"there is no file {path}: give the path of a CSV or Parquet file of arrivals")
        refuse_impostor(path)
        self.columns = _csv_header(path) if self._is_csv else self._parquet_columns()
        for name in (*_REQUIRED, *_OPTIONAL, prediction_column):
            count = self.columns.count(name)
            if count > 1:
                raise ForetailError(f"{path} has {count} columns {name}: leave one")
            if not count and name in _REQUIRED:
                others = [column for column in ";\t" if column in self.columns[0]]
                remedy = "separate the columns by commas" if others else "let its first line be slot,port"
                if name in [column.strip() for column in self.columns]:
                    remedy = "take the blank beside its name away"
                raise ForetailError(
                    f"{path} has no column {name}, only {_listed(self.columns)}: "
                    + (remedy if self._is_csv else "name the columns slot and port")
                )
        self.has_predictions = prediction_column in self.columns
        self._fraction = 0.0

    @property
    def fraction(self) -> float:
        """Part of the file, 0 to 1, that the last :meth:`batches` has read."""
        return self._fraction

    def batches(
        self,
        ports: int,
        *,
        priorities: int = 1,
        predictions: bool = False,
        allow_more_than_ports_per_slot: bool = False,
        only_required: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[Slotted]:
        """Yield the arrivals in order; memory does not depend on the length of the file.

        ForetailError naming the first wrong row or the column: a value that is missing, no integer or out of range,
        slots that decrease, too many arrivals in a slot, a damaged file, or one without rows.

        Parameters
        ----------
        ports : ports of the switch; also the most arrivals of a slot
        priorities : values of the column ``priority`` are below this
        predictions : also read the column of predictions
        allow_more_than_ports_per_slot : accept slots with more arrivals than ports
        only_required : read ``slot`` and ``port`` alone, for what knows neither first round trips nor priorities
        batch_rows : largest batch
        """
        if predictions and not self.has_predictions:
            raise ForetailError(
                f"{self.path} has no column {self._prediction_column}, only {_listed(self.columns)}: name it with "
                "prediction_column=NAME or choose other predictions"
            )
        highest = {"slot": LAST_SLOT, "port": ports - 1}
        if not only_required:
            highest |= {"first_rtt": 1, "priority": priorities - 1}
        if predictions:
            highest |= {self._prediction_column: 1}
        names = [name for name in highest if name in self.columns]
        most = None if allow_more_than_ports_per_slot else ports
        left = (f"the column {name}" for name in self.columns if name not in (*names, self._prediction_column))
        Reading(str(self.path), tuple(left)).tell()
        first, order = 0, _SlotOrder(self.path, most)
        flags = [name for name in names if highest[name] == 1 and name not in (*_REQUIRED, "priority")]
        for batch in self._csv_batches(names, flags) if self._is_csv else self._parquet_batches(names, batch_rows):
            for offset in range(0, batch.num_rows, batch_rows):
                part = batch.slice(offset, batch_rows)
                values = {name: self._values(part.column(name), name, highest[name], first) for name in names}
                order.check(values["slot"], first)
                yield _slotted(values, self._prediction_column)
                first += part.num_rows
        if not first:
            raise ForetailError(f"{self.path} has no rows: give a file with at least one arrival")

    # -- CSV -----------------------------------------------------------------------------------------------------

    def _csv_batches(self, names: Sequence[str], flags: Sequence[str]) -> Iterator[pa.RecordBatch]:
        size = self.path.stat().st_size
        try:
            with self.path.open("rb") as source:
                reader = pyarrow.csv.open_csv(
                    source,
                    pyarrow.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
                    convert_options=pyarrow.csv.ConvertOptions(
                        include_columns=names,
                        column_types={name: pa.bool_() if name in flags else pa.int64() for name in names},
                        true_values=_padded("1", "true", "True", "TRUE"),
                        false_values=_padded("0", "false", "False", "FALSE"),
                    ),
                )
                for batch in reader:
                    self._fraction = source.tell() / size
                    yield batch
        except pa.ArrowInvalid as error:
            raise self._csv_fault(names, flags, error) from None
        except pa.ArrowException as error:
            raise ForetailError(f"{self.path} cannot be read as CSV ({first_line(error)}): write it again") from None

    def _csv_fault(self, names: Sequence[str], flags: Sequence[str], error: Exception) -> ForetailError:
        """Return the fault of the file: arrow does not tell the row, so it is looked for slowly."""
        places = {name: self.columns.index(name) for name in names}
        row = 0
        try:
            with self.path.open(encoding="utf-8-sig", newline="", errors="replace") as source:
                rows = csv.reader(source)
                next(rows, None)
                for fields in rows:
                    if not fields:
                        continue
                    row += 1
                    if len(fields) != len(self.columns):
                        return ForetailError(
                            f"{_row(self.path, row)} has {len(fields)} fields and the header {len(self.columns)}: "
                            "write one field per column"
                        )
                    for name, place in places.items():
                        text, flag = fields[place].strip(" \t"), name in flags
                        if flag and re.fullmatch("-?[0-9]{1,18}", text) and text not in ("0", "1"):
                            return _outside(self.path, row, name, text, 1)
                        if re.fullmatch(f"{_FLAG}|" if flag else "-?[0-9]{1,18}|", text) is None:
                            right = "0 or 1" if flag else "an integer below 2^62"
                            return _wrong_value(self.path, row, name, fields[place], right)
        except csv.Error as strange:
            error = strange
        if not row:
            return ForetailError(f"{self.path} has no rows: give a file with at least one arrival")
        return ForetailError(f"{self.path} cannot be read as CSV ({first_line(error)}): write it again")

    # -- Parquet -------------------------------------------------------------------------------------------------

    def _parquet_columns(self) -> tuple[str, ...]:
        try:
            with pq.ParquetFile(self.path) as file:
                return tuple(file.schema_arrow.names)
        except (OSError, pa.ArrowException):
            raise ForetailError(f"{self.path} is truncated or no Parquet file: write it again") from None

    def _parquet_batches(self, names: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        read = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for name in names:
                    kind = file.schema_arrow.field(name).type
                    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
                        raise ForetailError(
                            f"column {name} of {self.path} has the type {kind}: store it as integers, none missing"
                        )
                rows = file.metadata.num_rows
                for batch in file.iter_batches(batch_rows, columns=list(names)):
                    read += batch.num_rows
                    self._fraction = read / rows
                    yield batch
        except (OSError, pa.ArrowException) as error:
            raise ForetailError(
                f"{self.path} is damaged after row {read} (data rows count from 1; {first_line(error)}): write it again"
            ) from None

    # -- both ----------------------------------------------------------------------------------------------------

    def _values(self, column: pa.Array, name: str, highest: int, first: int) -> NDArray[np.int64]:
        """The column as int64 after checking it; `first` rows came before."""
        if column.null_count:
            row = first + 1 + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise ForetailError(f"{_row(self.path, row)} has no value in column {name}: fill it in")
        try:
            values: NDArray[np.int64] = column_values(column.cast(pa.int64()))
        except pa.ArrowInvalid:
            row = first + 1 + int(np.argmax(column.to_numpy() > LAST_SLOT))
            value = str(column[row - first - 1])
            raise _wrong_value(self.path, row, name, value, "an integer below 2^62") from None
        if values.size and (values.min() < 0 or values.max() > highest):
            offset = int(np.argmax((values < 0) | (values > highest)))
            raise _outside(self.path, first + offset + 1, name, values[offset], highest)
        return values


def reported(batches: Iterator[Slotted], file: ArrivalFile, report: Callable[[float, str], None]) -> Iterator[Slotted]:
    """Yield batches of a file, and report how far they are: the fraction and a few words."""
    packets = 0
    for batch in batches:
        packets += len(batch)
        report(file.fraction, f"{packets:,} packets")
        yield batch


class _SlotOrder:
    """Checks that slots never decrease and, unless `most` is None, hold at most so many arrivals."""

    def __init__(self, path: Path, most: int | None) -> None:
        self._path = path
        self._most = most
        self._before: NDArray[np.int64] = np.empty(0, np.int64)  # the slots of the last `most` rows, or of the last

    def check(self, slot: NDArray[np.int64], first: int) -> None:
        joined = np.concatenate([self._before, slot])
        row = first - len(self._before) + 1  # number of the first of `joined`
        earlier = np.flatnonzero(joined[1:] < joined[:-1])
        if earlier.size:
            at = int(earlier[0]) + 1
            raise ForetailError(
                f"{_row(self._path, row + at)} has slot {joined[at]} after slot {joined[at - 1]}: sort the rows by slot"
            )
        if self._most is not None:
            # in order, a packet shares its slot with the one `most` rows before it iff the slot has too many
            crowded = np.flatnonzero(joined[self._most :] == joined[: -self._most])
            if crowded.size:
                at = int(crowded[0]) + self._most
                raise ForetailError(
                    f"{_row(self._path, row + at)} is arrival {self._most + 1} of slot {joined[at]} at a switch of "
                    f"{self._most} ports: set allow_more_than_ports_per_slot=true if that is meant"
                )
        self._before = joined[-(self._most or 1) :].copy()


_FLAG = "[01]|true|True|TRUE|false|False|FALSE"


def _padded(*words: str) -> list[str]:
    """Words as they stand behind a comma with or without a space; Arrow takes spaces off numbers only."""
    return [f"{before}{word}{after}" for word in words for before in ("", " ") for after in ("", " ")]


def _slotted(values: dict[str, NDArray[np.int64]], prediction_column: str) -> Slotted:
    def flags(name: str) -> NDArray[np.uint8] | None:
        return values[name].astype(np.uint8) if name in values else None

    return Slotted(
        slot=values["slot"],
        port=values["port"].astype(np.int32),
        prediction=flags(prediction_column),
        first_rtt=flags("first_rtt"),
        priority=flags("priority"),
    )


def _csv_header(path: Path) -> tuple[str, ...]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as source:
            header = next((fields for fields in csv.reader(source) if fields), None)
    except (UnicodeDecodeError, csv.Error):
        raise ForetailError(f"{path} is not CSV text: give a file whose first line is slot,port") from None
    if header is None:
        raise ForetailError(f"{path} is empty: give a file whose first line is slot,port")
    return tuple(header)


def _row(path: Path, row: int) -> str:
    return f"row {row} of {path} (data rows count from 1)"


def _outside(path: Path, row: int, name: str, value: object, highest: int) -> ForetailError:
    most = "2^62" if highest == LAST_SLOT else highest
    return ForetailError(f"{_row(path, row)} has {name} {value}, outside 0 to {most}: {_remedy(name)}")


def _wrong_value(path: Path, row: int, column: str, text: str, right: str) -> ForetailError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return ForetailError(f"{_row(path, row)} has {shown!r} in column {column}: write {right}")


def _remedy(name: str) -> str:
    if name == "slot":
        return "count slots from 0"
    if name == "port":
        return "count ports from 0, or set ports to their number"
    if name == "priority":
        return "count priorities from 0, and say how many there are in parameters.queues"
    return "write 0 or 1" + ("" if name == "first_rtt" else ", or name a column of predictions in prediction_column")


def _listed(names: Sequence[Any]) -> str:
    """Names from a file on one line: those of a damaged header can hold line breaks, and be of any length."""
    return " ".join(", ".join(str(name) for name in names).split())[:200] or "none"
