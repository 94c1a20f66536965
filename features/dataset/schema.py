"""The Parquet schemas of datasets.

A trace has a table of labelled data arrivals and one of the control arrivals between them. Rows in order of fate, which
other simulators leave behind, have features and a label and nothing else. Drop costs are sampled arrivals of a trace,
each with what dropping it costs.

Every column carries its unit and description in the field metadata, every file the schema version in its own.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from foretail.features.catalog import FEATURES, PAPER_FEATURES, REAL_FEATURES, STUDY_FEATURES, feature
from foretail.features.feature import SHADOW_PREFIX
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
    [
        *_PLACE,
        _column("first_rtt", pa.bool_(), "", "The packet belongs to its flow's first round trip."),
        _LQD_DROP,
    ],
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
    "rows",
    [
        *(_column(name, pa.int32(), "bytes", feature(name).description) for name in PAPER_FEATURES),
        _LQD_DROP,
    ],
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
"""What a dataset holds."""

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
