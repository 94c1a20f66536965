"""Hypothesis strategies that several rooms' tests share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.records import ARRIVAL_DTYPE, Asked, FlowClass, Outcome
from tests.traces import RUN, Arrivals


@st.composite
def arrivals(draw: st.DrawFn, min_arrivals: int = 0, max_arrivals: int = 30, max_step_ns: int = 2000) -> Arrivals:
    """Draw arrivals on the switches of ``traces.RUN``: every value that a dataset must keep, extremes included."""
    count = draw(st.integers(min_arrivals, max_arrivals))

    def column(low: int, high: int, *shape: int) -> NDArray[np.int64]:
        return draw(hnp.arrays(np.int64, (count, *shape), elements=st.integers(low, high)))

    records = np.zeros(count, ARRIVAL_DTYPE)
    records["time_ns"] = np.cumsum(column(0, max_step_ns))
    records["fate_time_ns"] = records["time_ns"] + column(0, 2**40)
    records["score"] = column(-(2**63), 2**63 - 1)
    records["flow"] = column(0, 2**31 - 1)
    records["size_bytes"] = column(1, 2**31 - 1)
    for k, feature in enumerate(FEATURES):
        records["features"][:, k] = column(0, 2**feature.bits - 1)
    records["switch"] = column(0, len(RUN.switches) - 1)
    records["port"] = column(0, min(switch.ports for switch in RUN.switches) - 1)
    records["flow_class"] = column(0, max(FlowClass))
    records["outcome"] = column(0, max(Outcome))
    records["asked"] = column(0, max(Asked))
    for flag in ("lqd_drop", "exposed", "first_rtt"):
        records[flag] = column(0, 1)
    shadow = column(0, 2**24 - 1, len(SHADOW_COLUMNS)).astype(np.int32)
    return Arrivals(records, shadow, column(0, 1).astype(np.bool_))
