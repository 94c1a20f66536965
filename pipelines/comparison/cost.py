"""Cost J of a run to the users whose traffic it carries, and its parts (``sim_bridge/packets/cost.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.sim_bridge.packets.cost import cost_of, query_table, slowdowns_by_kind, started


@dataclass(frozen=True)
class RunCost:
    """Cost of one run; None where it had no such traffic."""

    cost: float | None  #: J, at least about 1
    query: float | None  #: mean slowdown of queries
    short: float | None  #: of background flows below 100 KB
    long: float | None  #: of background flows of 1 MB and more
    p99_query: float | None
    p99_short: float | None
    p99_long: float | None
    timeouts_percent: float  #: flows with a timeout of retransmission
    query_timeouts: float | None  #: timeouts of a query's answers together, mean over queries
    goodput_bps: float  #: payload of finished flows over the time in which flows start


def run_cost(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> RunCost:
    """Return what a run cost.

    Parameters
    ----------
    flows : structured array of FLOW_DTYPE
    end_ns : simulated time at which the run ended
    settings : the driver's document
    """
    kinds, offered = slowdowns_by_kind(flows, end_ns, settings), flows[started(flows)]
    queries = query_table(flows, end_ns, settings)
    means = {kind: float(slowdowns.mean()) for kind, slowdowns in kinds.items() if len(slowdowns)}
    tails = {
        f"p99_{kind}": float(np.percentile(slowdowns, 99)) if len(slowdowns) else None
        for kind, slowdowns in kinds.items()
    }
    finished = flows["size_bytes"][flows["fct_ns"] >= 0].sum()
    return RunCost(
        cost=float(cost_of(list(means.values()))) if means else None,
        **{kind: means.get(kind) for kind in kinds},
        **tails,
        timeouts_percent=100 * float(np.mean(offered["timeouts"] > 0)) if len(offered) else 0.0,
        query_timeouts=float(queries["timeouts"].mean()) if len(queries) else None,
        goodput_bps=float(8e9 * finished / settings["traffic_ns"]),
    )
