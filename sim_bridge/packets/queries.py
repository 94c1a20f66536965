"""What belongs together of a run's flows: the answers to a query, the messages of a round of a collective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

HEADER_BYTES = 40
"""IPv4 and TCP, without options."""

COLUMNS = ("start_ns", "senders", "flows", "size_bytes", "time_ns", "ideal_ns", "slowdown", "timeouts", "complete")
"""Of both tables: first start, servers that send, how many flows with how many bytes, time from the first start to the
last delivery, the same alone in the network, their quotient, timeouts of all flows, whether all are delivered. What is
not complete has its age at the end of the run as its time."""


def link_time_ns(size_bytes: NDArray[np.int64], settings: Mapping[str, Any]) -> NDArray[np.int64]:
    """Time that flows of some sizes occupy a server's link, ns; `settings` is the driver's document."""
    topology, segment = settings["topology"], settings["transport"]["segment_bytes"]
    overhead = HEADER_BYTES + topology["wire_overhead_bytes"]

    def packet_ns(payload: Any) -> Any:
        return -(-8 * 10**9 * (payload + overhead) // topology["server_link_bps"])

    full = (size_bytes - 1) // segment
    return np.asarray(full * packet_ns(segment) + packet_ns(size_bytes - full * segment), dtype=np.int64)


def query_table(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per query, by its number, with COLUMNS and `destination`, the server that asked.

    Alone, the answers of a query share nothing but the link to that server, one after the other.
    """
    answers = flows[flows["query"] >= 0]
    frame = _frame(answers, answers["query"], end_ns, settings)
    of_query = frame.groupby("group")
    on_the_link = of_query["on_the_link_ns"].sum() + of_query["on_the_way_ns"].min()
    ideal_ns = np.maximum(of_query["ideal_fct_ns"].max(), on_the_link)
    time_ns = (frame["end_ns"] - frame["start_ns"]).groupby(frame["group"]).max()
    return _table(frame, time_ns, ideal_ns).assign(destination=of_query["destination"].first())


def round_table(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row with COLUMNS per round of a collective that has begun, by its number.

    Alone, a round takes as long as its longest chain of messages that wait for each other, and no less than the
    busiest link of a server.
    """
    import pandas as pd

    messages = settings["messages"]
    number = np.array(messages["round"], dtype=np.int64)
    sent = flows[len(flows) - len(number) :]
    chain_ns = sent["ideal_fct_ns"].astype(np.int64)
    for place, after in enumerate(messages["after"]):
        chain_ns[place] += max((chain_ns[other] for other in after if number[other] == number[place]), default=0)
    begun = np.isin(number, number[(number >= 0) & (sent["start_ns"] >= 0)])
    frame = _frame(sent[begun], number[begun], end_ns, settings).assign(chain_ns=chain_ns[begun])
    of_round = frame.groupby("group")
    loads = pd.concat([frame.groupby(["group", end])["on_the_link_ns"].sum() for end in ("source", "destination")])
    on_the_link = loads.groupby("group").max() + of_round["on_the_way_ns"].min()
    time_ns = of_round["end_ns"].max() - of_round["start_ns"].min()
    return _table(frame, time_ns, np.maximum(of_round["chain_ns"].max(), on_the_link))


def _frame(flows: NDArray[np.void], group: NDArray[np.int64], end_ns: int, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row per flow; what has not started starts, for its time, at the end."""
    import pandas as pd

    alone_ns = link_time_ns(flows["size_bytes"], settings)
    started, delivered = flows["start_ns"] >= 0, flows["fct_ns"] >= 0
    return pd.DataFrame(
        {
            "group": group,
            "source": flows["source"],
            "destination": flows["destination"],
            "size_bytes": flows["size_bytes"],
            "start_ns": np.where(started, flows["start_ns"], end_ns),
            "end_ns": np.where(delivered, flows["start_ns"] + flows["fct_ns"], end_ns),
            "ideal_fct_ns": flows["ideal_fct_ns"],
            "on_the_way_ns": flows["ideal_fct_ns"] - alone_ns,
            "on_the_link_ns": alone_ns,
            "timeouts": flows["timeouts"].astype(np.int64),
            "delivered": delivered,
        }
    )


def _table(frame: pd.DataFrame, time_ns: Any, ideal_ns: Any) -> pd.DataFrame:
    by_query = frame.groupby("group").agg(
        start_ns=("start_ns", "min"),
        senders=("source", "nunique"),
        flows=("source", "size"),
        size_bytes=("size_bytes", "sum"),
        timeouts=("timeouts", "sum"),
        complete=("delivered", "all"),
    )
    return by_query.assign(time_ns=time_ns, ideal_ns=ideal_ns, slowdown=time_ns / ideal_ns)[list(COLUMNS)]
