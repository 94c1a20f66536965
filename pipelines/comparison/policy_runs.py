"""One policy on one seed in a simulator: what is simulated, its figures, its queries and its collectives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.cost import RunCost, run_cost
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, FlowSummary, occupancy_percentiles, summarise_flows
from foretail.pipelines.data.simulation import (
    Simulator,
    counters,
    driver_config,
    leaf_buffers,
    packets_per_cpu_second,
    rules_in_force,
    settings_that_matter,
    simulate_flows,
)
from foretail.pipelines.exporting.network import NetworkExport
from foretail.pipelines.exporting.predictor import ExportedPredictor
from foretail.pipelines.runs.points import Report
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.sim_bridge.native.network import write_live_native
from foretail.sim_bridge.packets.cost import started
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policy_settings import takes_alpha
from foretail.sim_bridge.python_policies import PythonPolicy

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


Point = TypeVar("Point")

FLOWS = "flows"
TRAFFIC_FIELDS = ["start_ns", "size_bytes", "source", "destination", "query", "flow_class", "connected_in_advance"]


@dataclass(frozen=True)
class PolicyRun:
    """One policy on one seed."""

    policy: str  #: its name in the table
    seed: int  #: of the traffic
    path: Path  #: folder of the store with flows, occupancy and counters
    flows_sha256: str  #: hash of what was offered: start, size, ends and class of every flow
    flows: Mapping[str, FlowSummary]  #: summary per class
    never_started: int  #: messages whose predecessors were not delivered, or too late; they count nowhere
    queries: ExchangeSummary | None  #: of queries as wholes; None without any
    rounds: ExchangeSummary | None  #: of the rounds of collectives
    cost: RunCost  #: J, and what it is made of
    occupancy: Mapping[str, float | None]  #: percentiles of the leaves' occupancy as fractions of their buffers
    counters: Mapping[str, int]  #: drops by reason and other counters, over all switches
    asked: int | None  #: packets about which it asked its predictor; None if it has none
    predicted_drops: int | None  #: those refused by that; None as well
    reused: bool  #: it was in the store
    seconds: float  #: wall time of the simulation, now or earlier
    cpu_seconds: float  #: its CPU time
    packets_per_cpu_second: float | None  #: data packets that arrived at leaves, per CPU second
    #: of every switch whose policy decides by one rule at a time, those rules with the times from which on they do
    turns: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def metrics(self) -> dict[str, float | None]:
        """The run's figures by dotted name; lower is better for all of them."""
        metrics: dict[str, float | None] = {}
        for group in FLOW_GROUPS:
            summary = self.flows[group]
            for percentile in ("p50", "p95", "p99"):
                metrics[f"slowdown.{group}.{percentile}"] = getattr(summary, percentile)
            metrics[f"timed_out_percent.{group}"] = _percent(summary.timeout_share)
        metrics["cost"] = self.cost.cost
        metrics |= {"slowdown.query.mean": self.cost.query, "slowdown.query.p99": self.cost.p99_query}
        metrics["timeouts_per_query"] = self.cost.query_timeouts
        metrics["timed_out_percent"] = _percent(self.flows["all"].timeout_share)
        metrics |= {f"occupancy_percent.{name}": _percent(value) for name, value in self.occupancy.items()}
        metrics["drops"] = float(sum(value for name, value in self.counters.items() if name.startswith("data_drops.")))
        metrics["timeouts"] = float(self.flows["all"].timeouts)
        metrics["retransmissions"] = float(self.flows["all"].retransmissions)
        metrics["unfinished"] = float(self.flows["all"].unfinished)
        if "pauses" in self.counters:
            metrics["pauses"] = float(self.counters["pauses"])
            metrics["paused_share"] = self.counters["paused_ns"] / max(self.counters["pausable_ns"], 1)
            metrics["lossless_drops"] = float(self.counters["lossless_drops"])
        return metrics


@dataclass(frozen=True)
class Simulation:
    """One policy on one seed, to be simulated."""

    policy: str  #: its name in the table
    seed: int  #: of the traffic
    document: Mapping[str, Any]  #: the driver's settings
    key: Key  #: of the store
    function: PythonPolicy | None = None  #: that its policy asks, instead of a library

    @classmethod
    def of(
        cls,
        name: str,
        scenario: Scenario,
        policy: Policy,
        seed: int,
        predictor: ExportedPredictor | NetworkExport | PythonPolicy | None,
        simulator: Simulator,
    ) -> Simulation:
        """`policy` on `scenario`, asking `predictor` if it asks any."""
        function = predictor if isinstance(predictor, PythonPolicy) and policy.asks_exported_model else None
        library = None if predictor is None or isinstance(predictor, PythonPolicy) else predictor.library
        document = driver_config(scenario, policy, seed, trace=False, library=library)
        depends_on = {
            "driver": settings_that_matter(document),
            **simulator.program.identity,
            "code": simulator.driver_sha256,
        }
        if function is not None:
            depends_on["function"] = [function.sha256, function.function]
        return cls(name, seed, document, Key(FLOWS, depends_on), function)

    def opened(self, entry: Entry) -> PolicyRun:
        """The finished run in its entry."""
        run = PacketRun.open(entry.path)
        return policy_run(self.policy, self.seed, run, reused=entry.reused, asks=self.function is not None)


def flows_sha256(flows: NDArray[np.void], settings: Mapping[str, Any]) -> str:
    """Hash of what was offered, whatever became of it: of the flows, and of the messages in the driver's settings.

    When a message starts depends on the policy, so of messages the settings count.
    """
    digest = hashlib.sha256()
    messages = settings["messages"]
    planned = flows[: len(flows) - len(messages["size_bytes"])]
    for name in TRAFFIC_FIELDS:
        digest.update(np.ascontiguousarray(planned[name]).tobytes())
    if messages["size_bytes"]:
        digest.update(json.dumps(messages, sort_keys=True).encode())
    return digest.hexdigest()


def simulate(simulation: Simulation, store: Store, simulator: Simulator, report: Report) -> PolicyRun:
    """The run, from the store or simulated now."""

    def build(folder: Path) -> None:
        if (function := simulation.function) is not None:
            write_live_native(simulation.document, function.fresh().decide, function.features, folder)
            return
        simulate_flows(simulation.document, folder, simulator, report)

    return simulation.opened(store.get_or_build(simulation.key, build))


def check_same_flows(runs: Sequence[PolicyRun]) -> None:
    """Raise ``ForetailError`` unless all policies were offered the same flows on a seed, in runs of one scenario."""
    first: dict[int, PolicyRun] = {}
    for run in runs:
        other = first.setdefault(run.seed, run)
        if run.flows_sha256 != other.flows_sha256:
            raise ForetailError(
                f"policies {other.policy} and {run.policy} were offered different flows on seed {run.seed}: "
                "the driver is broken, nothing can be compared"
            )


def policy_run(name: str, seed: int, run: PacketRun, *, reused: bool = False, asks: bool = False) -> PolicyRun:
    """The figures of a finished run; `name` is its policy in the table, `asks` whether a function in Python decided."""
    flows, counted, policy = run.flows(), counters(run), run.settings()["policy"]
    asks |= (policy["library"] is not None or policy["flip_probability"] > 0) and not takes_alpha(policy["name"])
    return PolicyRun(
        policy=name,
        seed=seed,
        path=run.folder,
        flows_sha256=flows_sha256(flows, run.settings()),
        flows=summarise_flows(flows, run.summary["end_ns"]),
        never_started=int(np.count_nonzero(~started(flows))),
        queries=ExchangeSummary.of(run.queries()),
        rounds=ExchangeSummary.of(run.rounds()),
        cost=run_cost(flows, run.summary["end_ns"], run.settings()),
        occupancy=occupancy_percentiles(run.occupancy(), leaf_buffers(run)),
        counters=counted,
        asked=counted["asked"] if asks else None,
        predicted_drops=counted["data_drops.predicted"] if asks else None,
        reused=reused,
        seconds=run.summary["wall_seconds"],
        cpu_seconds=run.summary["simulation_cpu_seconds"],
        packets_per_cpu_second=packets_per_cpu_second(run),
        turns=rules_in_force(run),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
