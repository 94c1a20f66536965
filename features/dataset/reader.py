"""Datasets on disk, as ``writer`` describes them: checked when they are opened, read with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foretail.core.digest import check_folder
from foretail.core.errors import ForetailError, first_line
from foretail.core.summary import Summarised
from foretail.features.catalog import SHADOW_COLUMNS
from foretail.features.dataset.schema import (
    MANIFEST_NAME,
    ROW_GROUP_ROWS,
    ROWS_SCHEMA,
    SCHEMA_VERSION,
    SCHEMAS,
    TRACES,
    VERSION_KEY,
    Kind,
    Manifest,
    PartFile,
)
from foretail.features.records import PAUSE_DTYPE, REPLAY_DTYPE, FlowClass, Records, column_values

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

AGAIN = "remove the dataset and collect the trace again"


class Dataset(Summarised):
    """A complete, checked dataset; make one with :meth:`open`.

    Examples
    --------
    Collect a trace in the native network, and count what LQD drops:

    >>> from dataclasses import asdict
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.api import Policy, collect_dataset, driver_config, scenarios
    >>> scenario = scenarios.Scenario(
    ...     topology=scenarios.Topology(leaves=1, servers_per_leaf=4, spines=1),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 100_000], cumulative=[0, 0.5, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=0.0, burst_fraction=1.0, fan_in=2),
    ...     traffic_ns=1_000_000,
    ... )
    >>> settings = driver_config(scenario, Policy("lqd"), 1, trace=True)
    >>> with TemporaryDirectory() as folder:
    ...     run = collect_dataset(settings, Path(folder) / "traced", scenario=asdict(scenario))
    ...     Dataset.open(Path(folder) / "traced").manifest.rows > 0
    True
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def shown_values(self) -> dict[str, str]:
        """Return what is shown."""
        manifest = self.manifest
        return {
            "path": str(self.path),
            "kind": manifest.kind,
            "scenario": str(manifest.scenario.get("name", "")),
            "seed": str(manifest.seed),
            "rows": f"{manifest.rows:,}",
            "drops": f"{manifest.drops:,}",
            "features": str(len(manifest.features)),
        }

    @classmethod
    def open(cls, path: str | Path, verify: bool = True) -> Self:
        """Open the dataset in folder `path`.

        ForetailError if the folder, manifest or a part is missing, truncated, of another schema version, or does not
        match the manifest or the digest.

        Parameters
        ----------
        path : the dataset folder
        verify : bool
            Compare every file, the manifest included, with the folder's digest. A file unchanged since this process
            last read it is not read again.
        """
        path = Path(path)
        source = path / MANIFEST_NAME
        try:
            text = source.read_bytes()
        except OSError as error:
            remedy = "collect the trace first"
            if (path / "result.json").is_file():
                remedy = "give one of the datasets that the result.json of this run lists"
            raise ForetailError(
                f"{path} is not a dataset, {MANIFEST_NAME} cannot be read ({error.strerror}): {remedy}"
            ) from None
        manifest = Manifest.from_json(text, source)
        for part in manifest.files:
            _check_part(path / part.path, part, manifest.kind)
        if verify:
            check_folder(path, AGAIN)
        return cls(path, manifest)

    @property
    def is_trace(self) -> bool:
        """True if the rows have arrival order, time, port and size, as replays and splits by time need."""
        return self.manifest.kind in TRACES

    def rows(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None, batch_rows: int = 1 << 17
    ) -> Iterator[pa.RecordBatch]:
        """Yield the labelled rows in arrival order, in batches of at most `batch_rows`, with bounded memory.

        Parameters
        ----------
        columns : columns of the dataset's schema to read, in this order; all by default
        where : only rows for which it holds; may use any column
        batch_rows : largest batch
        """
        return self._batches("rows", columns, where, batch_rows)

    def count(self, where: pc.Expression | None = None) -> int:
        """Return the number of labelled rows for which `where` holds."""
        if where is None:
            return self.manifest.rows
        if not self._parts("rows"):
            return 0
        with self._reading("rows"):
            return int(self._scan("rows").count_rows(filter=where))

    def frame(self, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pd.DataFrame:
        """Return labelled rows as a frame; nullable columns get pandas' nullable types, so no integer is rounded.

        Parameters are those of :meth:`rows`.
        """
        import pandas as pd

        chosen = self._columns("rows", columns)
        schema = pa.schema([SCHEMAS[self.manifest.kind]["rows"].field(name) for name in chosen])
        table = pa.Table.from_batches(self.rows(chosen, where), schema)
        nullable = {pa.bool_(): pd.BooleanDtype(), pa.int64(): pd.Int64Dtype()}
        return pd.DataFrame(
            {
                name: table[name].to_pandas(types_mapper=nullable.get if schema.field(name).nullable else None)
                for name in chosen
            }
        )

    def arrivals(self, chunk_arrivals: int = 1 << 18) -> Iterator[Records]:
        """Yield every arrival of the run, control packets included, for a byte replay.

        Yields (n,) array of REPLAY_DTYPE: in arrival order, `chunk_arrivals` each but the last; memory does not depend
        on the length of the run.
        """
        self.require_trace()
        total = self.manifest.rows + self.manifest.control_rows
        schemas = [(name, SCHEMAS[self.manifest.kind][name].names) for name in ("rows", "control")]
        known = [(name, [column for column in REPLAY_DTYPE.names or () if column in has]) for name, has in schemas]
        tables = [_ReplayCursor(self._batches(*columns)) for columns in known]
        for first in range(0, total, chunk_arrivals):
            chunk = np.zeros(min(chunk_arrivals, total - first), REPLAY_DTYPE)
            for table in tables:
                table.fill(chunk, first)
            if not chunk["size_bytes"].all():
                missing = first + int(np.argmin(chunk["size_bytes"]))
                raise ForetailError(f"{self.path} lacks arrival {missing}: collect the trace again")
            yield chunk

    def pauses(self) -> Records:
        """Return the pauses of ports, and their ends: array of PAUSE_DTYPE, empty where nobody pauses."""
        if self.manifest.kind != "lossless_trace":
            return np.zeros(0, PAUSE_DTYPE)
        batches = list(self._batches("pauses"))
        pauses = np.zeros(sum(batch.num_rows for batch in batches), PAUSE_DTYPE)
        for name in SCHEMAS["lossless_trace"]["pauses"].names:
            columns = [column_values(batch[name]) for batch in batches]
            if columns:
                pauses[name] = np.concatenate(columns)
        return pauses

    def require_trace(self) -> None:
        """Raise :class:`ForetailError` unless the arrivals can be replayed."""
        if not self.is_trace:
            raise ForetailError(f"{self._lacks_order()}, and so cannot be replayed: replay a trace")

    def _lacks_order(self) -> str:
        if self.manifest.kind == "drop_costs":
            return f"{self.path} holds sampled arrivals with what dropping them costs"
        return f"{self.path} holds rows in the order of their fates, without arrival order, ports and time"

    def _columns(self, table: str, columns: Sequence[str] | None) -> list[str]:
        known = SCHEMAS[self.manifest.kind][table].names
        unknown = [name for name in columns or () if name not in known]
        if unknown and not self.is_trace and unknown[0] in ROWS_SCHEMA.names:
            raise ForetailError(
                f"{self._lacks_order()}, and so no column {unknown[0]!r}: use only {', '.join(known)}"
                + (", with features.own_queues=true" if unknown[0] in SHADOW_COLUMNS else "")
            )
        if unknown:
            raise ForetailError(f"{self.path} has no column {unknown[0]!r}: choose from {', '.join(known)}")
        return list(known if columns is None else columns)

    def _parts(self, table: str) -> list[str]:
        return [str(self.path / f.path) for f in self.manifest.files if f.path.startswith(f"{table}/")]

    def _scan(self, table: str) -> pads.Dataset:
        import pyarrow.dataset as pads  # which imports pandas

        return pads.dataset(self._parts(table), SCHEMAS[self.manifest.kind][table], format="parquet")

    def _groups(self, table: str, columns: list[str], where: pc.Expression | None) -> Iterator[pa.Table]:
        """Yield one row group at a time: a scanner of the whole reads ahead of a slow consumer without bound."""
        if where is None:
            for part in self._parts(table):
                with pq.ParquetFile(part) as file:
                    for group in range(file.num_row_groups):
                        yield file.read_row_group(group, columns).select(columns)
        elif self._parts(table):
            for fragment in self._scan(table).get_fragments(where):
                for one in fragment.split_by_row_group(where):
                    yield one.to_table(columns=columns, filter=where)

    def _batches(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        batch_rows: int = 1 << 17,
    ) -> Iterator[pa.RecordBatch]:
        chosen = self._columns(table, columns)
        with self._reading(table):
            for group in self._groups(table, chosen, where):
                yield from group.to_batches(batch_rows)

    @contextmanager
    def _reading(self, table: str) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise ForetailError(
                f"cannot read {self.path / table} ({first_line(error)}): collect the trace again"
            ) from error


def _check_part(path: Path, part: PartFile, kind: Kind) -> None:
    try:
        with path.open("rb") as source, pq.ParquetFile(source) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except FileNotFoundError:
        raise ForetailError(f"{path} is missing though the manifest lists it: {AGAIN}") from None
    except (OSError, UnicodeDecodeError, pa.ArrowException):
        raise ForetailError(f"{path} is truncated or no Parquet file: {AGAIN}") from None
    version = (schema.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise ForetailError(
            f"{path} has schema version {version} but this Foretail reads version {SCHEMA_VERSION}: {AGAIN}"
        )
    wanted = SCHEMAS[kind].get(part.path.split("/")[0])
    if wanted is None or not schema.equals(wanted):
        lacking = [name for name in (() if wanted is None else wanted.names) if name not in schema.names]
        what = f"no column {', '.join(lacking)} of" if lacking else "other columns than"
        raise ForetailError(f"{path} has {what} schema version {SCHEMA_VERSION}: {AGAIN}")
    if any(metadata.row_group(group).num_rows > ROW_GROUP_ROWS for group in range(metadata.num_row_groups)):
        raise ForetailError(f"{path} has row groups of more than {ROW_GROUP_ROWS:,} rows, as nothing of ours: {AGAIN}")
    if metadata.num_rows != part.rows:
        raise ForetailError(f"{path} has {metadata.num_rows} rows where the manifest says {part.rows}: {AGAIN}")


class _ReplayCursor:
    """Pours batches of one table, in arrival order, into chunks of the merged order."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest = np.empty(0, REPLAY_DTYPE)

    def fill(self, chunk: Records, first: int) -> None:
        """Place every row with arrival in ``[first, first + len(chunk))``."""
        while True:
            upto = int(np.searchsorted(self._rest["arrival"], first + len(chunk)))
            chunk[self._rest["arrival"][:upto] - first] = self._rest[:upto]
            self._rest = self._rest[upto:]
            if len(self._rest):
                return
            batch = next(self._batches, None)
            if batch is None:
                return
            self._rest = np.zeros(batch.num_rows, REPLAY_DTYPE)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if name == "flow_class":
                    codes = np.array([FlowClass[value.upper()] for value in column.dictionary.to_pylist()], np.uint8)
                    self._rest[name] = codes[column_values(column.indices)]
                else:
                    self._rest[name] = column_values(column)
