"""The same traffic under several policies in a simulator, ns-3 or the native network, paired by seed.

The driver's generators have their own random streams, so a seed gives the same flows under every policy; that they
really were the same is checked, and only then are differences taken per seed.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from foretail.configs.schema.packet_stages import DemoConfig, EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, tagged_run
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines.comparison.policy_runs import (
    PolicyRun,
    Simulation,
    check_same_flows,
    exchange_table,
    simulate,
)
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    chance_text,
    interval_text,
    mean_interval,
    paired_difference,
)
from foretail.pipelines.data.simulation import Simulates, Simulator, simulator_of
from foretail.pipelines.exporting.network import NetworkExport, predictor_to_store
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_table
from foretail.pipelines.runs.notes import say, say_if_constant, say_if_unasked
from foretail.pipelines.runs.points import run_jobs
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Store, canonical_json
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.tracking.loading import load_predictor
from foretail.pipelines.tracking.runs import SEEN, run_note, seen_seeds, tracked
from foretail.sim_bridge.open_loop.scores import ASKED, Questions
from foretail.sim_bridge.policy_settings import policy_words
from foretail.sim_bridge.python_policies import PythonPolicy

USUAL_JOBS = 2

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
"""Columns of runs in which some queues may not lose a packet."""


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
        """Lossless packets that were lost, who is best at the tail of incast flows, and what predictions are worth."""
        lost = self.lost_lossless()
        return ([lost] if lost else []) + self._best_and_worth()

    def lost_lossless(self) -> str | None:
        """How many packets of lossless queues each policy lost, in a sentence; None where they lost none."""
        lost = {
            policy: sum(int(run.metrics().get("lossless_drops") or 0) for run in self.runs if run.policy == policy)
            for policy in self.policies
        }
        if not any(lost.values()):
            return None
        each = ", ".join(f"{policy_words(policy)} {count:,}" for policy, count in lost.items() if count)
        return (
            f"Lossless queues lost packets ({each}): raise scenario.pfc.headroom_bytes and headroom_pool_bytes, or "
            "leave them out."
        )

    def _best_and_worth(self) -> list[str]:
        unseen, seen = self.apart()
        if seen is not None:
            where = ", ".join(map(str, self.seen))
            sentence = f"The model was trained or tuned on seed {where}: what it does there is shown apart."
            return [sentence, *unseen._best_and_worth()]
        if self.seen:
            sentence = "The model was trained or tuned on all of these seeds, which flatters it: judge it on others."
            return [sentence, *replace(self, seen=())._best_and_worth()]
        metric, what = "slowdown.incast.p95", "p95 slowdown of incast flows"
        means = {policy: interval.mean for policy, interval in self.means(metric).items() if interval.mean is not None}
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
        tables = [_by_policy(f"Policies{where}", means, lambda interval: interval.mean, notes)]
        for baseline in self.baselines if len(self.policies) > 1 else ():
            less = {title: self.differences(metric, baseline) for title, metric in HEADLINES[:6]}
            title = f"Difference to {baseline}, paired by seed, 95 % t intervals{where}"
            tables.append(_by_policy(title, less, interval_text))
        for title, kind in ((f"Queries as wholes{where}", "queries"), (f"Rounds of collectives{where}", "rounds")):
            of_seeds = {name: [getattr(run, kind) for run in self.runs if run.policy == name] for name in self.policies}
            table = exchange_table(title, of_seeds)
            tables += [table] if table.rows else []
        if (predictor := self.predictor) is not None:
            table = export_table(predictor) if isinstance(predictor, ExportedPredictor) else predictor.tables()[0]
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
    rows = tuple((policy, *(cell(column[policy]) for column in columns.values())) for policy in policies)
    return Table(title, ("policy", *columns), rows, tuple(notes))


def evaluate_flows(config: EvaluateConfig) -> FlowsResult:
    """Every policy on every seed, from the store or simulated now."""
    store = Store(config.store_dir)
    predictor = None
    function = None if config.model is None else PythonPolicy.of(config.model)
    if function is not None:
        if config.network.name != "native":
            raise ForetailError(f"{function.name} decides in Python, which only network=native asks: leave network out")
        say(function.note)
    elif config.model is not None and any(policy.asks_exported_model for policy in config.policy.values()):
        predictor = predictor_to_store(load_predictor(config.model, config.tracking, store), store)
        if isinstance(predictor, NetworkExport):
            say(predictor.sentence())
    decider = predictor if function is None else function
    return evaluate_policies(config, config.scenario, config.policy, config.seeds, decider, config.compared_to)


def check_taus(
    policies: Mapping[str, Policy], predictor: ExportedPredictor | NetworkExport | PythonPolicy | None
) -> None:
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
    predictor: ExportedPredictor | NetworkExport | PythonPolicy | None = None,
    baselines: tuple[str, ...] = (),
) -> FlowsResult:
    """Evaluate like ``evaluate_flows``, with the predictor already exported or a function in Python."""
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
    exported = None if isinstance(predictor, PythonPolicy) else predictor
    return FlowsResult(runs, baselines, exported, seen=seen)


def _announce(
    simulations: Sequence[Simulation], scenario: Scenario, store: Store, jobs: int, simulator: Simulator
) -> None:
    """Say what a comparison will take, before it begins."""
    stored = sum(store.has(simulation.key) for simulation in simulations)
    end_ms = (scenario.incast.connect_ahead_ns + scenario.traffic_ns + scenario.drain_ns) / 1e6
    many = f"{len(simulations)} simulation{'s' if len(simulations) > 1 else ''}"
    print(
        f"{many} of up to {end_ms:,.0f} ms in {simulator.program.words}, {stored} in the store, "
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
    say_if_unasked({policy: (one.asked, one.predicted_drops) for policy, one in questions.items()})


COMPARISON_TAG = "comparison_sha256"


def track_flows(config: EvaluateConfig | DemoConfig, result: FlowsResult) -> FlowsResult:
    """Log a comparison once; the same comparison again names the run that it has.

    Parameters
    ----------
    config : of the stage
    result : without a predictor nothing is logged; means over seeds become metrics ``closed_loop/POLICY/METRIC``
    """
    if not config.tracking.enabled or result.predictor is None:
        return result
    store = Store(config.store_dir)
    uri = tracking_uri(config.tracking.uri, store.folder.parent)
    tag, model_sha256 = result.predictor.made_of
    compared = [[run.policy, run.seed, run.path.parent.name] for run in result.runs]
    sha256 = hashlib.sha256(canonical_json({"runs": compared, "model": model_sha256}).encode()).hexdigest()
    run_id = tagged_run(COMPARISON_TAG, sha256, uri) if store_exists(uri) else None
    if run_id is not None:
        return replace(result, tracked={"run_id": run_id, "uri": uri})
    seeds = {run.seed for run in result.runs}
    name = f"{', '.join(result.policies)} on {config.scenario.name}, {len(seeds)} seeds"
    tags = {COMPARISON_TAG: sha256, f"used_{tag}": model_sha256}
    with tracked(config.tracking, store, asdict(config), name, tags, params=differing(config)) as run:
        with suppress(NoLineage):  # a model from elsewhere
            run.uses_model(lineage(model_sha256, uri, tag).runs)
        run.log_metrics(
            {
                f"closed_loop/{policy}/{metric}": mean
                for _, metric in HEADLINES
                for policy, means in result.apart()[0].means(metric).items()
                if (mean := means.mean) is not None
            }
        )
        run.log_document(plain(result.document()), "comparison.json")
    return replace(result, tracked={"run_id": run.run_id, "uri": uri})
