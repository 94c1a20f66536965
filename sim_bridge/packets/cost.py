"""What a run costs those whose traffic it carries: slowdowns of queries, short and long flows, and the one number J.

A query is over when the last of its answers is. Its slowdown is this time over what the same answers take alone, one
after the other on the link of the server that asked. J is the geometric mean of up to three means: the slowdown of
queries, of short flows and of long flows. What is unfinished counts with its age: too little, but not nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.features.records import Records
from foretail.sim_bridge.packets.queries import query_table

SHORT_BELOW_BYTES, LONG_FROM_BYTES = 100_000, 1_000_000
"""Which background flows are short, and which are long."""

KINDS = ("query", "short", "long")
"""What J is made of."""


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
    found = slowdowns_by_kind(flows, end_ns, settings)
    return float(cost_of([slowdown.mean() for slowdown in found.values() if len(slowdown)]))


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
