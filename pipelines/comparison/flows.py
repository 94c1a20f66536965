"""The same traffic under several policies in a simulator, ns-3 or the native network, paired by seed.

The driver's generators have their own random streams, so a seed gives the same flows under every policy; that they
really were the same is checked, and only then are differences taken per seed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines.comparison.cost import RunCost, run_cost
from foretail.pipelines.comparison.exchanges import ExchangeSummary, exchange_table
from foretail.pipelines.comparison.predictions import ASKED
from foretail.pipelines.comparison.statistics import (
    FLOW_GROUPS,
    FlowSummary,
    PairedDifference,
    chance_text,
    interval_text,
    mean_interval,
    occupancy_percentiles,
    paired_difference,
    summarise_flows,
)
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import (
    Simulates,
    Simulator,
    counters,
    leaf_buffers,
    packets_per_cpu_second,
    settings_that_matter,
    simulate_flows,
    simulator_of,
)
from foretail.pipelines.exporting.network import NetworkExport, predictor_to_store
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_table
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.runs.zeros import say_if_constant, say_if_unasked
from foretail.pipelines.tracking.loading import load_predictor
from foretail.pipelines.tracking.runs import run_note
from foretail.pipelines.tracking.seen import SEEN, seen_seeds
from foretail.sim_bridge.open_loop.scores import Questions
from foretail.sim_bridge.packets.cost import started
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policies import policy_words, takes_alpha

FLOWS = "flows"
USUAL_JOBS = 2
TRAFFIC_FIELDS = ["start_ns", "size_bytes", "source", "destination", "query", "flow_class", "connected_in_advance"]

HEADLINES = (
    ("cost J", "cost"),
    ("short p95", "slowdown.short.p95"),
    ("incast p50", "slowdown.incast.p50"),
    ("incast p95", "slowdown.incast.p95"),
    ("long p95", "slowdown.long.p95"),
    ("timed out %", "timed_out_percent"),
    ("occupancy p99 %", "occupancy_percent.p99"),
    ("drops", "drops"),
    ("timeouts", "timeouts"),
    ("unfinished", "unfinished"),
)
"""Columns of the table, and the metrics behind them."""
OF_LOSSLESS = (("pauses", "pauses"), ("paused share", "paused_share"), ("lossless drops", "lossless_drops"))
"""Those of runs in which some queues may not lose a packet."""


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

    @classmethod
    def of(
        cls,
        name: str,
        scenario: Scenario,
        policy: Policy,
        seed: int,
        predictor: ExportedPredictor | NetworkExport | None,
        simulator: Simulator,
    ) -> Simulation:
        """`policy` on `scenario`, asking `predictor` if it asks any."""
        library = predictor.library if predictor is not None else None
        document = driver_config(scenario, policy, seed, trace=False, library=library)
        depends_on = {
            "driver": settings_that_matter(document),
            **simulator.identity,
            "code": simulator.driver_sha256,
        }
        return cls(name, seed, document, Key(FLOWS, depends_on))

    def opened(self, entry: Entry) -> PolicyRun:
        """The finished run in its entry."""
        return policy_run(self.policy, self.seed, PacketRun.open(entry.path), reused=entry.reused)


@dataclass(frozen=True, repr=False)
class FlowsResult(Summarised):
    """All runs, in the order of the policies and seeds given."""

    runs: tuple[PolicyRun, ...]  #: every policy on every seed
    baselines: tuple[str, ...]  #: policies to which differences are taken
    predictor: ExportedPredictor | NetworkExport | None  #: the exported model that Credence asked, if any did
    tracked: Mapping[str, str] | None = None  #: its run in MLflow, if it has one
    files: tuple[str, ...] = ()  #: figures below the run folder, and their numbers
    captions: Mapping[str, str] = field(default_factory=dict)  #: what is seen on each
    seen: tuple[int, ...] = ()  #: seeds on which the predictor was trained or tuned

    def apart(self) -> tuple[FlowsResult, FlowsResult | None]:
        """The result on seeds that the predictor has not seen, and on the others; all where there is but one kind."""
        kinds = [tuple(run for run in self.runs if (run.seed in self.seen) is seen) for seen in (False, True)]
        if not all(kinds):
            return self, None
        return replace(self, runs=kinds[0], seen=()), replace(self, runs=kinds[1])

    @property
    def policies(self) -> list[str]:
        """Names in order."""
        return list(dict.fromkeys(run.policy for run in self.runs))

    def by_seed(self, policy: str, metric: str) -> dict[int, float | None]:
        """A metric of a policy, per seed."""
        return {run.seed: run.metrics()[metric] for run in self.runs if run.policy == policy}

    def means(self, metric: str) -> dict[str, PairedDifference]:
        """Mean and interval of a metric over seeds, per policy."""
        return {policy: mean_interval(list(self.by_seed(policy, metric).values())) for policy in self.policies}

    def differences(self, metric: str, baseline: str) -> dict[str, PairedDifference]:
        """Paired difference of a metric to a baseline, per other policy."""
        return {
            policy: paired_difference(self.by_seed(policy, metric), self.by_seed(baseline, metric))
            for policy in self.policies
            if policy != baseline
        }

    def document(self) -> dict[str, Any]:
        totals, seen = self.apart()
        return {
            "seeds": sorted({run.seed for run in self.runs}),
            "seen_seeds": self.seen,
            "runs": [asdict(run) | {"metrics": run.metrics()} for run in self.runs],
            **totals.totals(),
            "seen": None if seen is None else seen.totals(),
            "predictor": self.predictor,
            "tracked": self.tracked,
            "files": self.files,
            "captions": self.captions,
        }

    def totals(self) -> dict[str, Any]:
        """Means over the seeds, and differences to the baselines."""
        metrics = list(self.runs[0].metrics())
        return {
            "means": {metric: self.means(metric) for metric in metrics},
            "differences": {
                baseline: {metric: self.differences(metric, baseline) for metric in metrics}
                for baseline in self.baselines
            },
        }

    def verdict(self) -> list[str]:
        """Who is best at the tail of incast flows beside LQD, and what predictions are worth there."""
        unseen, seen = self.apart()
        if seen is not None:
            where = ", ".join(map(str, self.seen))
            sentence = f"The model was trained or tuned on seed {where}: what it does there is shown apart."
            return [sentence, *unseen.verdict()]
        if self.seen:
            sentence = "The model was trained or tuned on all of these seeds, which flatters it: judge it on others."
            return [sentence, *replace(self, seen=()).verdict()]
        metric, what = "slowdown.incast.p95", "p95 slowdown of incast flows"
        means = {policy: found.mean for policy, found in self.means(metric).items() if found.mean is not None}
        if len(means) < 2:
            return []
        best = min(means, key=lambda policy: means[policy])
        first = f"{policy_words(best)} has the lowest {what}, {means[best]:.4g}"
        if "lqd" in means and best != "lqd":
            first += f"; LQD, which Credence imitates, has {means['lqd']:.4g}"
            less = self.differences(metric, "lqd").get(best)
            if less is not None and (chance := chance_text(less, "seed", above="", below="")):
                first += f" ({chance})"
        elif best == "lqd":
            second = min((policy for policy in means if policy != "lqd"), key=lambda policy: means[policy])
            first += f"; of those that push nothing out, {policy_words(second)} is next with {means[second]:.4g}"
        seeds = len({run.seed for run in self.runs})
        difference = self.differences(metric, "credence_accept").get("credence") if "credence_accept" in means else None
        if "credence" not in means:
            return [f"{first}."]
        if difference is None or difference.mean is None:
            return [f"{first}.", "To learn what predictions are worth, add credence_accept to policy."]
        verdict = chance_text(difference, "seed", above="so predictions do harm here", below="so predictions help here")
        return [
            f"{first}.",
            f"Asking the predictor instead of always accepting changes it by {interval_text(difference)} "
            f"({seeds} seed{'s' if seeds > 1 else ''}, lower is better), {verdict}.",
        ]

    def tables(self) -> list[Table]:
        """Means per policy, paired differences per baseline, speed; apart for seeds that the predictor has seen."""
        unseen, of_seen = self.apart()
        if of_seen is not None:
            return [*unseen.tables(), *replace(of_seen, predictor=None).tables()]
        where = f", {SEEN}" if self.seen else ""
        seeds = len({run.seed for run in self.runs})
        unfinished = sum(run.flows["all"].unfinished for run in self.runs)
        notes = [f"FCT slowdown; means over {seeds} seed{'s' if seeds > 1 else ''}, the same flows under every policy"]
        if unfinished:
            notes.append(
                f"{unfinished} flows were unfinished at the end of their runs and count with their age: "
                "percentiles of their classes are lower bounds"
            )
        if any(run.never_started for run in self.runs):
            counts = {
                policy: sum(run.never_started for run in self.runs if run.policy == policy) for policy in self.policies
            }
            notes.append(
                "messages that never started, because those before them were delivered too late, and count nowhere: "
                + ", ".join(f"{policy} {count}" for policy, count in counts.items())
            )
        of_lossless = OF_LOSSLESS if "pauses" in self.runs[0].metrics() else ()
        means = {
            **{title: self.means(metric) for title, metric in (*HEADLINES, *of_lossless)},
            **{title: self._over_seeds(name) for name, title in ASKED.items()},
            "packets per CPU s": self._over_seeds("packets_per_cpu_second"),
        }
        tables = [_by_policy(f"Policies{where}", means, lambda found: found.mean, notes)]
        for baseline in self.baselines if len(self.policies) > 1 else ():
            less = {title: self.differences(metric, baseline) for title, metric in HEADLINES[:6]}
            title = f"Difference to {baseline}, paired by seed, 95 % t intervals{where}"
            tables.append(_by_policy(title, less, interval_text))
        for title, kind in ((f"Queries as wholes{where}", "queries"), (f"Rounds of collectives{where}", "rounds")):
            of_seeds = {name: [getattr(run, kind) for run in self.runs if run.policy == name] for name in self.policies}
            table = exchange_table(title, of_seeds)
            tables += [table] if table.rows else []
        if (asked := self.predictor) is not None:
            table = export_table(asked) if isinstance(asked, ExportedPredictor) else asked.tables()[0]
            tables.append(replace(table, notes=(*table.notes, *run_note(self.tracked))))
        return tables

    def _over_seeds(self, name: str) -> dict[str, PairedDifference]:
        """The mean over seeds of something else that a run has, per policy."""
        return {
            policy: mean_interval([getattr(run, name) for run in self.runs if run.policy == policy])
            for policy in self.policies
        }


def _by_policy(
    title: str,
    columns: Mapping[str, Mapping[str, PairedDifference]],
    cell: Callable[[PairedDifference], Cell],
    notes: Sequence[str] = (),
) -> Table:
    """A row per policy, a column per figure."""
    policies = next(iter(columns.values()))
    rows = tuple((policy, *(cell(found[policy]) for found in columns.values())) for policy in policies)
    return Table(title, ("policy", *columns), rows, tuple(notes))


def evaluate_flows(config: EvaluateConfig) -> FlowsResult:
    """Every policy on every seed, from the store or simulated now."""
    store = Store(config.store_dir)
    predictor = None
    if config.model is not None and any(policy.asks_exported_model for policy in config.policy.values()):
        predictor = predictor_to_store(load_predictor(config.model, config.tracking, store), store)
        if isinstance(predictor, NetworkExport):
            say(predictor.sentence())
    return evaluate_policies(
        config,
        config.scenario,
        config.policy,
        config.seeds,
        predictor,
        config.compared_to,
    )


def check_taus(policies: Mapping[str, Policy], predictor: ExportedPredictor | NetworkExport | None) -> None:
    """Refuse a threshold that the predictor was not proven for, and say which one lies outside of all scores."""
    for policy in policies.values():
        if isinstance(predictor, ExportedPredictor) and policy.tau is not None and policy.asks_exported_model:
            predictor.certificate.check_tau(policy.tau)
            exported = Ensemble.load(predictor.folder / ENSEMBLE_FILE)
            say_if_constant("the model", f"tau = {policy.tau}", constant_decision(exported, policy.tau))


def evaluate_policies(
    config: Simulates,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    predictor: ExportedPredictor | NetworkExport | None = None,
    baselines: tuple[str, ...] = (),
) -> FlowsResult:
    """As ``evaluate_flows``, with the predictor already exported."""
    check_taus(policies, predictor)
    simulator = simulator_of(config)
    store, jobs = Store(config.store_dir), config.jobs or USUAL_JOBS
    simulations = [
        Simulation.of(name, scenario, policies[name], seed, predictor, simulator)
        for seed, name in itertools.product(seeds, policies)
    ]
    seen = () if predictor is None else tuple(seen_seeds(scenario, seeds))
    _announce(simulations, scenario, store, jobs, simulator)
    tasks = {
        f"{simulation.policy}, seed {simulation.seed}": partial(simulate, simulation, store, simulator)
        for simulation in simulations
    }
    runs = tuple(run_jobs(tasks, jobs).values())
    check_same_flows(runs)
    say_unasked(runs)
    order = {name: position for position, name in enumerate(policies)}
    runs = tuple(sorted(runs, key=lambda run: (order[run.policy], seeds.index(run.seed))))
    return FlowsResult(runs, baselines, predictor, seen=seen)


def _announce(
    simulations: Sequence[Simulation], scenario: Scenario, store: Store, jobs: int, simulator: Simulator
) -> None:
    """Say what a comparison will take, before it begins."""
    stored = sum(store.has(simulation.key) for simulation in simulations)
    end_ms = (scenario.incast.connect_ahead_ns + scenario.traffic_ns + scenario.drain_ns) / 1e6
    many = f"{len(simulations)} simulation{'s' if len(simulations) > 1 else ''}"
    print(
        f"{many} of up to {end_ms:,.0f} ms in {simulator.name}, {stored} in the store, "
        f"{min(jobs, len(simulations))} at a time",
        file=sys.stderr,
    )


def say_unasked(runs: Iterable[PolicyRun]) -> None:
    """Say which policies never asked their predictor, or were never told to drop, on all their seeds."""
    questions: dict[str, Questions] = {}
    for run in runs:
        if run.asked is not None and run.predicted_drops is not None:
            sofar = questions.get(run.policy, Questions())
            questions[run.policy] = sofar + Questions(run.asked, run.predicted_drops)
    say_if_unasked({policy: (found.asked, found.predicted_drops) for policy, found in questions.items()})


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
    return simulation.opened(
        store.get_or_build(
            simulation.key, lambda folder: simulate_flows(simulation.document, folder, simulator, report)
        )
    )


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


def policy_run(name: str, seed: int, run: PacketRun, *, reused: bool = False) -> PolicyRun:
    """The figures of a finished run; `name` is what its policy is called in the table."""
    flows, counted, policy = run.flows(), counters(run), run.settings()["policy"]
    asks = (policy["library"] is not None or policy["flip_probability"] > 0) and not takes_alpha(policy["name"])
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
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
