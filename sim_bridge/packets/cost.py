"""Tables of queries and of rounds of collectives, and what a run costs those whose traffic it carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.features.records import Records

if TYPE_CHECKING:
    import pandas as pd


HEADER_BYTES = 40
"""IPv4 and TCP, without options."""

COLUMNS = ("start_ns", "senders", "flows", "size_bytes", "time_ns", "ideal_ns", "slowdown", "timeouts", "complete")
"""Columns of both tables: first start, servers that send, how many flows with how many bytes, time from the first start
to the last delivery, the same alone in the network, their quotient, timeouts of all flows, whether all are delivered.
What is not complete has its age at the end of the run as its time."""


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


# What a run costs those whose traffic it carries: slowdowns of queries, short and long flows, and the one number J.
#
# A query is over when the last of its answers is. Its slowdown is this time over what the same answers take alone, one
# after the other on the link of the server that asked. J is the geometric mean of up to three means: the slowdown of
# queries, of short flows and of long flows. What is unfinished counts with its age: too little, but not nothing.

SHORT_BELOW_BYTES, LONG_FROM_BYTES = 100_000, 1_000_000
"""Sizes below which background flows are short, and from which they are long."""

KINDS = ("query", "short", "long")
"""Kinds of slowdowns of which J is made."""


def started(flows: NDArray[np.void]) -> NDArray[np.bool_]:
    """All flows but the messages that were never sent, because those that they wait for came too late."""
    return np.asarray(flows["start_ns"] >= 0, dtype=np.bool_)


def slowdowns(flows: NDArray[np.void], end_ns: int) -> NDArray[np.float64]:
    """Slowdown of every flow; unfinished ones (``fct_ns`` < 0) with their age at `end_ns`, NaN for what never started.

    `flows` has the fields start_ns, fct_ns and ideal_fct_ns, int64, in ns; the run ended at `end_ns`.
    """
    fct_ns = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], end_ns - flows["start_ns"])
    return np.asarray(np.where(started(flows), fct_ns / flows["ideal_fct_ns"], np.nan), dtype=np.float64)


def kinds_of(flows: NDArray[np.void]) -> dict[str, NDArray[np.bool_]]:
    """Masks of short and long background flows, whether they start or not."""
    background = flows["query"] < 0
    return {
        "short": background & (flows["size_bytes"] < SHORT_BELOW_BYTES),
        "long": background & (flows["size_bytes"] >= LONG_FROM_BYTES),
    }


def slowdowns_by_kind(
    flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]
) -> dict[str, NDArray[np.float64]]:
    """Return the slowdowns that J is made of, by `KINDS`: float64, one per query or flow, perhaps none.

    Parameters
    ----------
    flows : structured array of FLOW_DTYPE
    end_ns : simulated time at which the run ended
    settings : the driver's document
    """
    ratio, sent = slowdowns(flows, end_ns), started(flows)
    return {
        "query": query_table(flows, end_ns, settings)["slowdown"].to_numpy(dtype=np.float64),
        **{kind: ratio[mask & sent] for kind, mask in kinds_of(flows).items()},
    }


def cost_of(means: Any, there: Any = True) -> Any:
    """Return J, the geometric mean along the last axis of `means`, mean slowdowns of the kinds that are `there`."""
    return np.exp(np.mean(np.log(means), axis=-1, where=there))


def cost_of_run(flows: NDArray[np.void], end_ns: int, settings: Mapping[str, Any]) -> float:
    """Return J of a run that ended at `end_ns`, from the mean slowdowns of the kinds that it has."""
    by_kind = slowdowns_by_kind(flows, end_ns, settings)
    return float(cost_of([slowdown.mean() for slowdown in by_kind.values() if len(slowdown)]))


def cost_of_sums(sums: NDArray[Any], items: NDArray[np.int64]) -> Any:
    """Return J along the last axis, the kinds, from slowdowns less 1, summed, and from the number of items."""
    return cost_of(1 + sums / np.maximum(items, 1), items > 0)


def cost_so_far(flows: Records, plan: tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.float64]]) -> float:
    """Return J as far as it is known: what is not complete counts with slowdown 1. `plan` is of `plan_of_cost`."""
    item_of, kind, ideal_ns = plan
    counts, time_ns = item_of >= 0, np.zeros(len(kind), np.int64)
    np.maximum.at(time_ns, item_of[counts], flows["fct_ns"][counts])
    complete = np.bincount(item_of[counts & (flows["fct_ns"] < 0)], minlength=len(kind)) == 0
    over = np.where(complete, time_ns / ideal_ns - 1, 0.0)
    items = np.bincount(kind, minlength=len(KINDS))
    return float(cost_of_sums(np.bincount(kind, over, len(KINDS)), items))


def plan_of_cost(
    flows: Records, settings: Mapping[str, Any]
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.float64]]:
    """Return what counts in J before a run begins: the item of every flow, -1 for none; and the kind of every item, a
    place in `KINDS`, with its time alone in the network, in ns.

    An item is a query with all its answers, or a short or long flow. Messages that will never be sent count too.
    """
    item_of = np.full(len(flows), -1, np.int32)
    queries = query_table(flows, 0, settings)
    answers = flows["query"] >= 0
    item_of[answers] = np.searchsorted(queries.index.to_numpy(), flows["query"][answers])
    kinds, ideal = [np.zeros(len(queries), np.uint8)], [queries["ideal_ns"].to_numpy(dtype=np.float64)]
    for kind, mask in kinds_of(flows).items():
        item_of[mask] = sum(map(len, kinds)) + np.arange(np.count_nonzero(mask))
        kinds.append(np.full(np.count_nonzero(mask), KINDS.index(kind), np.uint8))
        ideal.append(flows["ideal_fct_ns"][mask].astype(np.float64))
    return item_of, np.concatenate(kinds), np.concatenate(ideal)
