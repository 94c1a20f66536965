"""What a run costs those whose traffic it carries: one number, J, and what it is made of.

A query is over when the last of its answers is. Its slowdown is this time over what the same answers take alone, one
after the other on the link of the server that asked. J is the geometric mean of up to three means: the slowdown of
queries, of short flows and of long flows. What is unfinished counts with its age: too little, but not nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretail.pipelines.comparison.statistics import flow_groups, slowdowns

HEADER_BYTES = 40
"""IPv4 and TCP, without options."""


@dataclass(frozen=True)
class RunCost:
    """What one run cost; None where it had no such traffic."""

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


def link_time_ns(size_bytes: NDArray[np.int64], settings: Mapping[str, Any]) -> NDArray[np.int64]:
    """Time that flows of some sizes occupy a server's link, ns; `settings` is the driver's document."""
    topology, segment = settings["topology"], settings["transport"]["segment_bytes"]
    overhead = HEADER_BYTES + topology["wire_overhead_bytes"]

    def packet_ns(payload: Any) -> Any:
        return -(-8 * 10**9 * (payload + overhead) // topology["server_link_bps"])

    full = (size_bytes - 1) // segment
    return np.asarray(full * packet_ns(segment) + packet_ns(size_bytes - full * segment), dtype=np.int64)


def query_table(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> pd.DataFrame:
    """One row per query: its slowdown, float64, and the timeouts of its answers, int64."""
    answers = flows[flows["query"] >= 0]
    alone_ns = link_time_ns(answers["size_bytes"], settings)
    of_answers = pd.DataFrame(
        {
            "query": answers["query"],
            "time_ns": np.where(answers["fct_ns"] >= 0, answers["fct_ns"], end_ns - answers["start_ns"]),
            "ideal_ns": answers["ideal_fct_ns"],
            "on_the_way_ns": answers["ideal_fct_ns"] - alone_ns,
            "on_the_link_ns": alone_ns,
            "timeouts": answers["timeouts"].astype(np.int64),
        }
    )
    found = of_answers.groupby("query").agg(
        time_ns=("time_ns", "max"),
        ideal_ns=("ideal_ns", "max"),
        on_the_way_ns=("on_the_way_ns", "min"),
        on_the_link_ns=("on_the_link_ns", "sum"),
        timeouts=("timeouts", "sum"),
    )
    alone = np.maximum(found["ideal_ns"], found["on_the_way_ns"] + found["on_the_link_ns"])
    return pd.DataFrame({"slowdown": found["time_ns"] / alone, "timeouts": found["timeouts"]})


def run_cost(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> RunCost:
    """Return what a run cost.

    Parameters
    ----------
    flows : structured array of FLOW_DTYPE
    end_ns : simulated time at which the run ended
    settings : the driver's document
    """
    queries, groups = query_table(flows, end_ns, settings), flow_groups(flows)
    ratio = slowdowns(flows, end_ns)
    kinds = {"query": queries["slowdown"].to_numpy(), "short": ratio[groups["short"]], "long": ratio[groups["long"]]}
    means = {kind: float(found.mean()) for kind, found in kinds.items() if len(found)}
    tails = {f"p99_{kind}": float(np.percentile(found, 99)) if len(found) else None for kind, found in kinds.items()}
    finished = flows["size_bytes"][flows["fct_ns"] >= 0].sum()
    return RunCost(
        cost=float(np.exp(np.mean(np.log(list(means.values()))))) if means else None,
        **{kind: means.get(kind) for kind in kinds},
        **tails,
        timeouts_percent=100 * float(np.mean(flows["timeouts"] > 0)) if len(flows) else 0.0,
        query_timeouts=float(queries["timeouts"].mean()) if len(queries) else None,
        goodput_bps=float(8e9 * finished / settings["traffic_ns"]),
    )
