"""The shadow's replay of a trace's records against one of their columns, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from foretail.features.catalog import FEATURES, REAL_FEATURES
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.open_loop.dataset import labelled_records
from foretail.sim_bridge.open_loop.replay import replay_of, shadow_credence, shadow_of
from tests.refusals import refusing
from tests.traces import RUN

SMALL = replace(
    RUN,
    scenario={"topology": {"wire_overhead_bytes": 0}},
    switches=(SwitchGeometry(2, 20_000, (10**9,) * 2), SwitchGeometry(3, 30_000, (10**9,) * 3)),
)


def trace() -> Records:
    """Random arrivals of SMALL, which overload its ports, with labels and features."""
    draw, count = np.random.default_rng(1), 3000
    records = np.zeros(count, ARRIVAL_DTYPE)
    records["time_ns"] = np.cumsum(draw.integers(0, 3000, count))
    records["size_bytes"] = draw.integers(64, 1500, count)
    records["switch"] = draw.integers(0, 2, count)
    records["port"] = draw.integers(0, records["switch"] + 2)
    records["flow_class"] = draw.integers(0, len(FlowClass), count)
    return np.concatenate(list(labelled_records(SMALL, [records])))


def test_records_and_their_columns_give_the_same() -> None:
    records = trace()
    data = records["flow_class"] != FlowClass.CONTROL
    assert records["lqd_drop"].any()
    seen = replay_of("credence", SMALL, features=True).feed(records, np.ascontiguousarray(records["lqd_drop"]))
    shadow = shadow_of(SMALL)
    parts = [shadow_credence(shadow, part) for part in (records[:7], records[7:])]
    assert np.concatenate([features for features, _ in parts])[data].tolist() == (
        seen["features"][data, : len(REAL_FEATURES)].tolist()
    )
    assert np.concatenate([answers for _, answers in parts])[data].tolist() == seen["asked"][data].tolist()


def damaged(field: str, value: Any, column: str | None = None) -> None:
    records = trace()
    at = int(np.flatnonzero(records["flow_class"] == FlowClass.BACKGROUND)[1000])
    if column is None:
        records[field][at] = value
    else:
        records[field][at, [feature.name for feature in FEATURES].index(column)] += value
    shadow_credence(shadow_of(SMALL), records)


def fed(records: Any, columns: int = 1, finished: bool = False) -> None:
    shadow = shadow_of(SMALL)
    if finished:
        shadow.native.finish()
    shadow.native.feed_trace(records.view(np.uint8)[: None if columns else -1], columns, shadow.queues.of_class)


test_what_is_no_trace_is_refused = refusing(
    (lambda: fed(trace(), finished=True), "a finished replay takes no more arrivals"),
    (lambda: fed(trace(), columns=0), "records of a trace are whole"),
    (lambda: fed(trace(), columns=len(FEATURES) + 1), "no more columns than features"),
)

test_what_no_simulator_writes_is_refused = refusing(
    (lambda: damaged("switch", 2), "switch of an arrival is 2, outside 0 to 1"),
    (lambda: damaged("switch", -1), "switch of an arrival is -1, outside 0 to 1"),
    (lambda: damaged("port", 3), "has port 3, outside 0 to "),
    (lambda: damaged("ingress", -1), "has port -1, outside 0 to "),
    (lambda: damaged("flow_class", 3), "class of an arrival is 3, outside 0 to 2"),
    (lambda: damaged("size_bytes", 0), "size of an arrival is 0, outside 1 to "),
    (lambda: damaged("time_ns", 0), "has time 0: times start at 0, never decrease"),
    (lambda: damaged("size_bytes", 5_000), "does not reproduce its thresholds"),
    *(
        (lambda name=name: damaged("features", 1, name), "does not reproduce its thresholds")
        for name in ("threshold", "thresholds_sum", "threshold_max")
    ),
)
