"""The Parquet schemas of datasets.

A trace has a table of labelled data arrivals and one of the control arrivals between them. Rows in order of fate, which
other simulators leave behind, have features and a label and nothing else. Drop costs are sampled arrivals of a trace,
each with what dropping it costs.

Every column carries its unit and description in the field metadata, every file the schema version in its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.features.catalog import (
    FEATURES,
    PAPER_FEATURES,
    REAL_FEATURES,
    SHADOW_PREFIX,
    STUDY_FEATURES,
    VALUE_BITS,
    State,
    Unit,
    feature,
)
from foretail.features.records import FlowClass

ROW_GROUP_ROWS = 1 << 17
"""Most rows of a row group, which a reader has in memory at once."""

SCHEMA_VERSION = 2
"""Raised by every change that an older reader would misread."""

VERSION_KEY = b"foretail.schema_version"
TABLE_KEY = b"foretail.table"

DATA_CLASSES: tuple[str, ...] = tuple(c.name.lower() for c in FlowClass if c is not FlowClass.CONTROL)
"""Values of ``flow_class`` in the rows table, index = :class:`FlowClass` - 1."""


def _column(name: str, kind: pa.DataType, unit: str, description: str, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable, {"unit": unit, "description": description})


def _schema(table: str, columns: list[pa.Field]) -> pa.Schema:
    return pa.schema(columns, {VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: table.encode()})


_PLACE = [
    _column("arrival", pa.int64(), "", "Position among all arrivals of the run, control packets included."),
    _column("time_ns", pa.int64(), "ns", "Arrival time."),
    _column("switch", pa.int16(), "", "Index in the manifest's switches."),
    _column("port", pa.int16(), "", "Egress port."),
    _column("size_bytes", pa.int32(), "bytes", "Bytes the packet takes in the buffer."),
]
_LQD_DROP = _column("lqd_drop", pa.bool_(), "", "LQD drops the packet, at arrival or later (the label).")

ROWS_SCHEMA: pa.Schema = _schema(
    "rows",
    [
        *_PLACE,
        _column("flow", pa.int32(), "", "Flow identifier."),
        _column("flow_class", pa.dictionary(pa.int8(), pa.string()), "", "background or incast."),
        *(_column(f.name, pa.int32(), f.unit, f.description) for f in (*FEATURES, *STUDY_FEATURES)),
        *(
            _column(
                SHADOW_PREFIX + name,
                pa.int32(),
                feature(name).unit,
                f"As {name}, on the queues of a shadow Credence driven by the true labels.",
            )
            for name in REAL_FEATURES
        ),
        _column("exposed", pa.bool_(), "", "Credence's safeguard does not apply on the run's own queues."),
        _column("shadow_asked", pa.bool_(), "", "The shadow Credence asks the predictor here (the asked region)."),
        _LQD_DROP,
        _column("fate_time_ns", pa.int64(), "ns", "When LQD transmits, drops or pushes out the packet."),
        _column("accepted", pa.bool_(), "", "The run's own policy admitted the packet at arrival."),
        _column("asked", pa.bool_(), "", "The run's policy asked its predictor; null if it never asks.", True),
        _column("score", pa.int64(), "", "Score of the predictor, null where it was not asked.", True),
    ],
)

CONTROL_SCHEMA: pa.Schema = _schema(
    "control",
    [*_PLACE, _column("first_rtt", pa.bool_(), "", "The packet belongs to its flow's first round trip."), _LQD_DROP],
)

_INGRESS = _column("ingress", pa.int16(), "", "Port by which it came.")


def _with_ingress(schema: pa.Schema) -> pa.Schema:
    return schema.append(_INGRESS)


PAUSES_SCHEMA: pa.Schema = _schema(
    "pauses",
    [
        _column("time_ns", pa.int64(), "ns", "When the pause, or the end of one, reaches the port."),
        _column("switch", pa.int16(), "", "Index in the manifest's switches."),
        _column("port", pa.int16(), "", "Port whose queue stops sending, or goes on."),
        _column("priority", pa.uint8(), "", "Queue of that port."),
        _column("paused", pa.bool_(), "", "Whether it stops; otherwise it goes on."),
    ],
)
"""Pauses of a switch's ports by those at the other ends of their links, in order of time."""

FATE_ORDER_SCHEMA: pa.Schema = _schema(
    "rows", [*(_column(name, pa.int32(), "bytes", feature(name).description) for name in PAPER_FEATURES), _LQD_DROP]
)
"""Rows in the order in which LQD settled their fates: no time, place or size, features in the arithmetic of others."""

DROP_COSTS_SCHEMA: pa.Schema = _schema(
    "rows",
    [
        *_PLACE,
        *(ROWS_SCHEMA.field(name) for name in ("flow", "flow_class")),
        *(_column(f.name, pa.int32(), f.unit, f.description) for f in (*FEATURES, *STUDY_FEATURES)),
        ROWS_SCHEMA.field("accepted"),
        _column("hold_ns", pa.int64(), "ns", "How long the other decision held for the port and flow class; 0: once."),
        _column("repeats", pa.int16(), "", "Runs with each decision."),
        _column("decisions", pa.int32(), "", "Arrivals that were decided otherwise."),
        _column("arrivals", pa.float64(), "", "Arrivals of the run that the row stands for."),
        _column("drop_cost", pa.float64(), "log J", "Mean of log J where it is dropped less where it is accepted."),
        _column(
            "chaos", pa.float64(), "log J", "Standard deviation of drop_cost, from its repeats; null with one.", True
        ),
        *(
            _column(f"drop_cost_{kind}", pa.float64(), "log", f"The same of the mean slowdown of {kind}.", True)
            for kind in ("query", "short", "long")
        ),
        _column("drop_timeouts", pa.float64(), "", "Mean of timeouts where it is dropped less where it is accepted."),
    ],
)
"""Sampled arrivals, each with the difference of the run's cost between two decisions on it."""

Kind = Literal["trace", "lossless_trace", "rows_in_order_of_fate", "drop_costs"]
"""Kinds of datasets."""

SCHEMAS: dict[Kind, dict[str, pa.Schema]] = {
    "trace": {"rows": ROWS_SCHEMA, "control": CONTROL_SCHEMA},
    "lossless_trace": {
        "rows": _with_ingress(ROWS_SCHEMA),
        "control": _with_ingress(CONTROL_SCHEMA),
        "pauses": PAUSES_SCHEMA,
    },
    "rows_in_order_of_fate": {"rows": FATE_ORDER_SCHEMA},
    "drop_costs": {"rows": DROP_COSTS_SCHEMA},
}
"""Kind to table name, which is also the table's folder in a dataset, to schema."""

TRACES: tuple[Kind, ...] = ("trace", "lossless_trace")
"""Kinds that have every arrival of a run, in order."""


MANIFEST_NAME = "manifest.json"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

_NO_TRAFFIC = ("name", "rules", "features")
"""Parts of a scenario that its packets do not depend on."""

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class SwitchGeometry:
    """One switch: ports, shared buffer in bytes, rate of every port in bit/s.

    Examples
    --------
    >>> SwitchGeometry(2, 100_000, (10**10, 10**10)).ports
    2
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    ports: Annotated[int, Field(gt=0, lt=1 << 15)]
    buffer_bytes: Positive
    port_rates_bps: tuple[Positive, ...]


Victim = Literal["tail", "tail_kept", "head", "random", "spare_first_rtt", "most_left"]


@dataclass(frozen=True)
class Rules:
    """The push-out rule that labels depend on: whose decisions they are, and what LQD leaves open.

    Examples
    --------
    >>> Rules("counted", "lowest_port", "tail").oracle
    'lqd'
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    counting: Literal["counted", "uncounted"]
    tie: Literal["lowest_port", "highest_port"]
    victim: Victim
    order: Literal["longest_queue", "lower_classes_first", "any_queue"] = "longest_queue"
    oracle: Literal["lqd", "occamy"] = "lqd"
    oracle_alpha: Annotated[float, Field(gt=0)] = 8.0

    def require_lqd(self, what: str) -> None:
        """Raise ForetailError unless labels are LQD's; `what` knows no other."""
        if self.oracle != "lqd":
            raise ForetailError(f"{what} knows no labels but those of LQD: set rules.oracle=lqd, not {self.oracle}")


@dataclass(frozen=True)
class LosslessQueues:
    """Queues of a run that may not lose a packet, and how switches pause those who send to them."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    queues: Annotated[tuple[Count, ...], Field(min_length=1)]  #: of every port
    alpha: Annotated[float, Field(gt=0)]  #: at ingress, of policies without a rule of their own
    xon_bytes: Count
    xon_offset_bytes: Count
    makes_room: Literal["longer_queues", "any_queue", "no_queue"]
    headroom_bytes: tuple[Count, ...]  #: by switch, part of its buffer


@dataclass(frozen=True)
class FeatureDefinition:
    """A feature as this run computed it; `params` as the predictor ABI carries it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    state: State
    unit: Unit | Literal["bytes"]
    bits: Positive
    params: str


@dataclass(frozen=True)
class PartFile:
    """One Parquet file: path relative to the dataset folder, rows, sha256 of its bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    path: Annotated[str, Field(pattern=r"^(rows|control|pauses)/part-\d{5}\.parquet$")]
    rows: Positive
    sha256: Sha256


@dataclass(frozen=True)
class Run:
    """Facts about a run before its first row.

    Examples
    --------
    >>> rules, switch = Rules("counted", "lowest_port", "tail"), SwitchGeometry(2, 100_000, (10**10, 10**10))
    >>> Run({"name": "mine"}, {"name": "lqd"}, 1, (switch,), rules, 256, 15, {}).seed
    1
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    scenario: dict[str, Any]  #: the resolved scenario, JSON values only
    policy: dict[str, Any]  #: the resolved buffer policy of the run, JSON values only
    seed: Count
    switches: Annotated[tuple[SwitchGeometry, ...], Field(min_length=1)]  #: indexed by the ``switch`` column
    rules: Rules
    cell_bytes: Positive  #: bytes per buffer cell, a power of two
    average_shift: Annotated[int, Field(ge=0, le=62)]  #: averages run over ``2**average_shift`` ns, 0 to 62
    versions: dict[str, str]  #: of everything that made the rows
    lossless: LosslessQueues | None = field(default=None, kw_only=True)  #: None where every queue may lose packets


@dataclass(frozen=True)
class Manifest(Run):
    """A run and what is on disk of it; `rows`, `drops` and `control_rows` are counts of arrivals."""

    schema_version: int
    kind: Kind
    features: tuple[FeatureDefinition, ...]
    rows: Count
    drops: Count
    control_rows: Count
    files: tuple[PartFile, ...]
    content_sha256: Sha256

    @classmethod
    def of(cls, run: Run, files: Iterable[PartFile], drops: int, kind: Kind = "trace") -> Self:
        """Describe the finished parts of `run`; of `drops` rows the label says drop, or that dropping is cheaper."""
        files = tuple(files)
        return cls(
            **{f.name: getattr(run, f.name) for f in fields(Run)},
            schema_version=SCHEMA_VERSION,
            kind=kind,
            features=definitions(run.cell_bytes, run.average_shift, kind),
            rows=_rows(files, "rows"),
            drops=drops,
            control_rows=_rows(files, "control"),
            files=files,
            content_sha256=content_sha256(files),
        )

    def to_json(self) -> str:
        """Return the manifest as indented JSON; raise :class:`ForetailError` if the run holds anything JSON cannot."""
        try:
            entries = {name: value for name, value in asdict(self).items() if name != "lossless" or value is not None}
            return json.dumps(entries, indent=1, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise ForetailError(f"the run cannot be described in a manifest: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes, source: Path | str) -> Manifest:
        """Read and check a manifest; `source` is the name that errors use.

        ForetailError naming `source` and the key that is missing, unknown, of the wrong type or inconsistent with the
        others.
        """
        try:
            plain = parse_json(text)
        except ValueError as error:
            raise ForetailError(f"{source} is not valid JSON ({error}): collect the trace again") from None
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if version is not None and version != SCHEMA_VERSION:
            raise ForetailError(
                f"{source} has schema_version {version} but this Foretail reads version {SCHEMA_VERSION}:"
                " collect the trace again or use the Foretail that wrote it"
            )
        try:
            manifest = _reader().validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            key = ".".join(map(str, first["loc"])) or "the top level"
            raise ForetailError(f"{source} is not a valid manifest at {key}: {first['msg']}") from None
        wrong = manifest._inconsistency()
        if wrong:
            raise ForetailError(f"{source} contradicts itself at {wrong}: collect the trace again")
        return manifest

    def _inconsistency(self) -> str | None:
        """Return the first key that contradicts another one, or None."""
        checks = {
            "switches.port_rates_bps": all(len(s.port_rates_bps) == s.ports for s in self.switches),
            "lossless": (self.lossless is not None) == (self.kind == "lossless_trace")
            and (self.lossless is None or len(self.lossless.headroom_bytes) == len(self.switches)),
            "cell_bytes": self.cell_bytes & (self.cell_bytes - 1) == 0,
            "features": self.features == definitions(self.cell_bytes, self.average_shift, self.kind),
            "rows": self.rows == _rows(self.files, "rows"),
            "control_rows": self.control_rows == _rows(self.files, "control"),
            "drops": self.drops <= self.rows,
            "content_sha256": self.content_sha256 == content_sha256(self.files),
        }
        return next((key for key, holds in checks.items() if not holds), None)


@cache
def _reader() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def definitions(cell_bytes: int, average_shift: int, kind: Kind = "trace") -> tuple[FeatureDefinition, ...]:
    """Return the catalog as a run with these two constants computes it.

    Rows in order of fate have the paper's features in the arithmetic of the simulator that wrote them: bytes, averages
    that move with departures. Their `params` say so, so that no switch takes a model of them for one of its own.
    """
    if kind == "rows_in_order_of_fate":
        return tuple(
            FeatureDefinition(
                name,
                feature(name).state,
                "bytes",
                VALUE_BITS,
                f"unit=bytes,{'average=credence_artifact,' if feature(name).averaged else ''}cell_bytes={cell_bytes}",
            )
            for name in PAPER_FEATURES
        )
    return tuple(
        FeatureDefinition(f.name, f.state, f.unit, f.bits, f.params(cell_bytes, average_shift))
        for f in (*FEATURES, *STUDY_FEATURES)
    )


def content_sha256(files: Iterable[PartFile]) -> str:
    """Return the content hash: sha256 over the hexadecimal sha256 of the files, in order."""
    return hashlib.sha256("".join(f.sha256 for f in files).encode()).hexdigest()


def traffic_sha256(run: Run) -> str:
    """Return the identity of the traffic that was offered: of scenario and seed, whatever was done with the packets."""
    return traffic_sha256_of(run.scenario, run.seed)


def traffic_sha256_of(scenario: Mapping[str, Any], seed: int) -> str:
    """The same for a scenario, JSON-like as manifests have it, and a seed."""
    heeded = {key: value for key, value in scenario.items() if key not in _NO_TRAFFIC}
    return hashlib.sha256(json.dumps([heeded, seed], sort_keys=True).encode()).hexdigest()


def _rows(files: Iterable[PartFile], table: str) -> int:
    return sum(f.rows for f in files if f.path.startswith(f"{table}/"))
