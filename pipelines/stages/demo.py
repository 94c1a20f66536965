"""``foretail demo``: collect, train, export and evaluate on one congested network, then evaluate on another.

A second predictor, trained for what is sent, decides by itself in both networks. On the second network, whose ports
compete, a learned sharing rule runs too. All of them run as C in the switch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.networks import Ns3Network
from foretail.configs.schema.packet_stages import DemoConfig
from foretail.core.summary import Summarised
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_policies
from foretail.pipelines.comparison.policy_runs import PolicyRun
from foretail.pipelines.comparison.statistics import interval_text
from foretail.pipelines.comparison.tracked_flows import track_flows
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.notes import show_early
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.steps import Steps
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy, compose_training
from foretail.pipelines.settings.rules import LEARNED, rule_of
from foretail.pipelines.training.fitting import train_model
from foretail.pipelines.training.outcome import TrainResult, register
from foretail.sim_bridge.policies import ASKING
from foretail.sim_bridge.policy_settings import policy_words

BESIDE_LEARNED = ("cs", "dt", "dt_tuned", "lqd")
"""Policies of the comparison that the policy learned stands beside; none of them asks."""
WITH_SENDING = "with a predictor trained for what is sent"
WITH_RULE = "with a learned sharing rule"


@dataclass(frozen=True, repr=False)
class DemoResult(Summarised):
    """The whole path."""

    trained: TrainResult  #: on runs of the first network
    exported: ExportedPredictor  #: the C of what was trained, proven
    evaluated: FlowsResult  #: the policies on the first network
    contended: FlowsResult  #: the same policies on the second network, of which the predictor saw nothing
    sending: TrainResult  #: a second predictor, trained on the same runs for what is sent
    sending_exported: ExportedPredictor  #: the C of it, proven
    sent: tuple[FlowsResult, FlowsResult]  #: policy ``learned``, which asks it, on both networks, with `BESIDE_LEARNED`
    rule: ExportedPredictor  #: the C of a sharing rule, proven
    ruled: FlowsResult  #: policy ``learned``, which asks that rule, on the second network, with `BESIDE_LEARNED`
    referee: PolicyRun | None  #: one run of `evaluated` again in ns-3; None where all runs are those of ns-3
    #: wall time per step in this run; a step whose output was in the store takes next to nothing
    step_seconds: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Every figure, seed, dataset hash and timing, JSON-like."""
        return {
            "train": self.trained.document(),
            "export": self.exported,
            "evaluate": self.evaluated.document(),
            "evaluate_contended": self.contended.document(),
            "train_sending": self.sending.document(),
            "export_sending": self.sending_exported,
            "evaluate_sending": self.sent[0].document(),
            "evaluate_sending_contended": self.sent[1].document(),
            "export_rule": self.rule,
            "evaluate_rule": self.ruled.document(),
            "in_ns3": None
            if self.referee is None
            else {name: getattr(self.referee, name) for name in ("policy", "seed", "flows_sha256", "cpu_seconds")},
            "step_seconds": self.step_seconds,
            "credence_cpu_over_lqd": self.credence_cpu_over_lqd(),
            "files": self.evaluated.files,
            "captions": self.evaluated.captions,
        }

    def verdict(self) -> list[str]:
        """Sentences: worth of the forest beside tuned policies, in both networks, and cost of the sharing rule."""
        return [
            *self.trained.verdict()[1:],
            *self.evaluated.verdict(),
            *self.sending.verdict()[1:],
            *_cost_of_learned(self.sent[0], "A predictor trained for what is sent, as C in the switch"),
            *self._cost_where_ports_compete(),
            *_cost_of_learned(self.sent[1], "Where ports compete, the predictor trained for what is sent"),
            *_cost_of_learned(self.ruled, "Where ports compete, a sharing rule of four numbers, as C in the switch"),
            *self._same_in_ns3(),
        ]

    def tables(self) -> list[Table]:
        """Datasets, scores, proof, policies and differences on both networks, timings."""
        ratio = self.credence_cpu_over_lqd()
        notes = () if ratio is None else (f"CPU time per leaf data packet, Credence over LQD: {ratio:.3f}",)
        steps = Table(
            "Steps", ("step", "seconds"), tuple((step, seconds) for step, seconds in self.step_seconds.items()), notes
        )
        parts = (
            (self.contended, "ports compete"),
            (self.sent[0], WITH_SENDING),
            (self.sent[1], f"ports compete, {WITH_SENDING}"),
            (self.ruled, f"ports compete, {WITH_RULE}"),
        )
        more = [replace(table, title=f"{table.title}, {words}") for part, words in parts for table in part.tables()[:2]]
        return [*self.trained.tables(), *self.evaluated.tables(), *self.sending.tables()[:1], *more, steps]

    def _same_in_ns3(self) -> list[str]:
        """Say whether ns-3's TCP ends every flow at the same time, and what that costs."""
        if self.referee is None:
            return []
        theirs = self.referee
        (ours,) = (run for run in self.evaluated.runs if (run.policy, run.seed) == (theirs.policy, theirs.seed))
        same = "at the same time" if ours.flows_sha256 == theirs.flows_sha256 else "at other times"
        return [
            f"ns-3's TCP ends every flow {same} under {policy_words(ours.policy)} with seed {ours.seed}, in "
            f"{theirs.cpu_seconds / ours.cpu_seconds:.3g} times the CPU time."
        ]

    def _cost_where_ports_compete(self) -> list[str]:
        """Say which policy has the least cost J on the second network, and what pushing out saves there."""
        costs = {
            policy: interval.mean
            for policy, interval in self.contended.means("cost").items()
            if interval.mean is not None
        }
        if not {"lqd", "cs"} <= costs.keys():
            return []
        best = min(costs, key=lambda policy: costs[policy])
        less = interval_text(self.contended.differences("cost", "cs")["lqd"])
        return [
            f"Where ports compete, {policy_words(best)} has the least cost, J = {costs[best]:.3g}; LQD has "
            f"{costs['lqd']:.3g}, Complete Sharing {costs['cs']:.3g}, LQD less Complete Sharing is {less}."
        ]

    def credence_cpu_over_lqd(self) -> float | None:
        """CPU seconds per leaf data packet of Credence with the forest over those of LQD, all seeds together."""
        per_packet: dict[str, float] = {}
        for policy in ("credence", "lqd"):
            runs = [run for run in self.evaluated.runs if run.policy == policy]
            packets = sum((run.packets_per_cpu_second or 0.0) * run.cpu_seconds for run in runs)
            if not packets:
                return None
            per_packet[policy] = sum(run.cpu_seconds for run in runs) / packets
        return per_packet["credence"] / per_packet["lqd"]


def _cost_of_learned(result: FlowsResult, what: str) -> list[str]:
    """Cost of the policy ``learned``, against each policy beside it."""
    costs = {policy: interval.mean for policy, interval in result.means("cost").items() if interval.mean is not None}
    if LEARNED not in costs:
        return []
    less = {policy: interval_text(result.differences("cost", policy)[LEARNED]) for policy in result.baselines}
    against = ", ".join(f"{policy_words(policy)} {costs[policy]:.3g} ({less[policy]})" for policy in less)
    return [f"{what}, has J = {costs[LEARNED]:.3g}; its difference to {against}."]


def demo(config: DemoConfig, run_dir: Path) -> DemoResult:
    """Run every stage; what the store already has is not made again."""
    store, steps = Store(config.store_dir), Steps()
    with steps.timed("collect and train"):
        training = _train_config(config)
        trained = train_model(training)
        trained = replace(
            trained, registered=register(training, trained.outcome, trained.outcome["scores"], trained.model)
        )
    show_early(trained.tables())
    with steps.timed("export to C and prove"):
        exported = export_to_store(trained.ensemble, store)
    with steps.timed("evaluate"):
        evaluated = _evaluated(config, exported)
    show_early(evaluated.tables())
    with steps.timed("train for what is sent"):
        sending = train_model(_sending_config(config, trained))
        show_early(sending.tables()[:1])
        sending_exported = export_to_store(sending.ensemble, store)
    competing = replace(config, scenario=config.contended_scenario)
    with steps.timed("evaluate where ports compete"):
        contended = _evaluated(competing, exported)
    with steps.timed("the predictor trained for what is sent, in both networks"):
        sent = (_with_learned(config, sending_exported), _with_learned(competing, sending_exported))
    with steps.timed("a learned sharing rule, where ports compete"):
        rule = export_to_store(rule_of(config.sharing_rule).ensemble(config.scenario.features.cell_bytes), store)
        ruled = _with_learned(competing, rule)
    referee: PolicyRun | None = None
    if not config.network.uses_ns3():
        with steps.timed("one run again in ns-3"):
            referee = _in_ns3(config)
    with steps.timed("draw figures"):
        evaluated = with_figures(evaluated, run_dir)
        trained.ensemble.save(run_dir / ENSEMBLE_FILE)
    return DemoResult(
        trained, exported, evaluated, contended, sending, sending_exported, sent, rule, ruled, referee, steps.seconds
    )


def _evaluated(config: DemoConfig, predictor: ExportedPredictor) -> FlowsResult:
    """The policies on the scenario, tracked."""
    baselines = tuple(config.baselines)
    result = evaluate_policies(config, config.scenario, config.policy, config.seeds, predictor, baselines)
    return track_flows(config, result)


def _in_ns3(config: DemoConfig) -> PolicyRun | None:
    """The first policy that asks no predictor, with the first seed, in ns-3; None if all policies ask."""
    without = {name: policy for name, policy in config.policy.items() if policy.name not in ASKING}
    if not without:
        return None
    name = next(iter(without))
    in_ns3 = replace(config, network=Ns3Network())
    return evaluate_policies(in_ns3, config.scenario, {name: without[name]}, config.seeds[:1]).runs[0]


def _with_learned(config: DemoConfig, predictor: ExportedPredictor) -> FlowsResult:
    """The policy ``learned`` in the scenario, which asks this C; the policies beside it have run on the same flows."""
    beside = {name: config.policy[name] for name in BESIDE_LEARNED if name in config.policy}
    policies = {**beside, LEARNED: compose_policy(LEARNED, LEARNED)}
    result = evaluate_policies(config, config.scenario, policies, config.seeds, predictor, tuple(beside))
    return track_flows(config, result)


def _sending_config(config: DemoConfig, trained: TrainResult) -> TrainConfig:
    """Settings of the second training, on the runs of the first."""
    runs = ",".join(str(run.path) for run in trained.collected)
    sides = [f"split.{role}=[{','.join(map(str, seeds))}]" for role, seeds in config.split.roles.items()]
    return compose_training(config, [f"datasets=[{runs}]", *sides, *config.sending], "sending")


def _train_config(config: DemoConfig) -> TrainConfig:
    return TrainConfig(
        store_dir=config.store_dir,
        network=config.network,
        ns3_prefix=config.ns3_prefix,
        scenario=config.scenario,
        policy=config.collect_policy,
        features=config.features,
        predictor=config.predictor,
        split=config.split,
        operating_point=config.operating_point,
        tracking=config.tracking,
        jobs=config.jobs,
    )
