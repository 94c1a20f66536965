"""Queries, and rounds of collectives, as wholes: their summary, their table, and each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.packets.simulation import PacketRun

if TYPE_CHECKING:
    import pandas as pd

EXCHANGES_FILE = "figures/queries.parquet"
"""A row per query and round of every run, with the columns of :mod:`foretail.sim_bridge.packets.cost`."""

_COLUMNS = (
    ("count", "number", 1),
    ("incomplete", "incomplete", 1),
    ("p50_ns", "time p50, ms", 1e6),
    ("p99_ns", "time p99, ms", 1e6),
    ("slowdown", "slowdown", 1),
    ("timeouts", "timeouts each", 1),
)
"""Fields of ExchangeSummary, their titles, and how many of the field's units are one of the title's."""


@dataclass(frozen=True)
class ExchangeSummary:
    """Queries, or rounds of collectives, of one run; what is not complete has its age as its time."""

    count: int  #: all of them
    incomplete: int  #: those of them in which something was not delivered before the run ended
    p50_ns: float  #: percentile of the time from the first start to the last delivery (linear interpolation)
    p99_ns: float  #: the same
    slowdown: float  #: mean, over the time alone
    timeouts: float  #: mean of all flows of one together

    @classmethod
    def of(cls, table: pd.DataFrame) -> ExchangeSummary | None:
        """Summarise a table of :mod:`foretail.sim_bridge.packets.queries`; None when it is empty."""
        if not len(table):
            return None
        p50_ns, p99_ns = (float(value) for value in np.percentile(table["time_ns"], (50, 99)))
        return cls(
            count=len(table),
            incomplete=int(np.count_nonzero(~table["complete"])),
            p50_ns=p50_ns,
            p99_ns=p99_ns,
            slowdown=float(table["slowdown"].mean()),
            timeouts=float(table["timeouts"].mean()),
        )


def exchange_table(title: str, summaries: Mapping[str, Sequence[ExchangeSummary | None]]) -> Table:
    """Means over the seeds of every policy; no row where there is nothing."""
    rows: list[tuple[str | float, ...]] = []
    for policy, of_seeds in summaries.items():
        present = [summary for summary in of_seeds if summary is not None]
        if present:
            means = (float(np.mean([getattr(one, name) for one in present])) / unit for name, _, unit in _COLUMNS)
            rows.append((policy, *means))
    return Table(
        f"{title}, means over seeds",
        ("policy", *(heading for _, heading, _ in _COLUMNS)),
        tuple(rows),
        (f"each one is in {EXCHANGES_FILE}; what is not complete has its age as its time",),
    )


def every_exchange(policy: str, seed: int, run: PacketRun) -> pd.DataFrame:
    """Every query and every round of a run."""
    import pandas as pd

    parts = []
    for kind, exchanges in (("query", run.queries()), ("round", run.rounds())):
        keys = pd.DataFrame({"policy": policy, "seed": seed, "kind": kind, "number": exchanges.index})
        parts.append(pd.concat([keys, exchanges.reset_index(drop=True)], axis=1))
    return pd.concat(parts, ignore_index=True)
