"""``foretail demo``: collect, train, export and evaluate on one congested network, then evaluate on another.

On the second network, whose ports compete, a learned sharing rule runs too, as C in the switch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import DemoConfig
from foretail.core.summary import Summarised
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_policies
from foretail.pipelines.comparison.statistics import interval_text
from foretail.pipelines.comparison.tracked_flows import track_flows
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.notes import show_early
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.steps import Steps
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.rules import LEARNED, rule_of
from foretail.pipelines.training.fitting import train_model
from foretail.pipelines.training.outcome import TrainResult, register
from foretail.sim_bridge.policies import policy_words

BESIDE_RULE = ("cs", "dt", "dt_tuned", "lqd")
"""Policies of the comparison that the learned rule stands beside; none of them asks."""


@dataclass(frozen=True, repr=False)
class DemoResult(Summarised):
    """The whole path."""

    trained: TrainResult  #: on runs of the first network
    exported: ExportedPredictor  #: the C of what was trained, proven
    evaluated: FlowsResult  #: the policies on the first network
    contended: FlowsResult  #: the same policies on the second network, of which the predictor saw nothing
    rule: ExportedPredictor  #: the C of a sharing rule, proven
    ruled: FlowsResult  #: policy ``learned``, which asks it, on the second network, beside `BESIDE_RULE`
    #: wall time per step in this run; a step whose output was in the store takes next to nothing
    step_seconds: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Every figure, seed, dataset hash and timing, JSON-like."""
        return {
            "train": self.trained.document(),
            "export": self.exported,
            "evaluate": self.evaluated.document(),
            "evaluate_contended": self.contended.document(),
            "export_rule": self.rule,
            "evaluate_rule": self.ruled.document(),
            "step_seconds": self.step_seconds,
            "credence_cpu_over_lqd": self.credence_cpu_over_lqd(),
            "files": self.evaluated.files,
            "captions": self.evaluated.captions,
        }

    def verdict(self) -> list[str]:
        """What the forest is worth beside tuned policies, in both networks, and what the sharing rule costs."""
        return [
            *self.trained.verdict()[1:],
            *self.evaluated.verdict(),
            *self._cost_where_ports_compete(),
            *self._cost_of_the_rule(),
        ]

    def tables(self) -> list[Table]:
        """Datasets, scores, proof, policies and differences on both networks, timings."""
        ratio = self.credence_cpu_over_lqd()
        notes = () if ratio is None else (f"CPU time per leaf data packet, Credence over LQD: {ratio:.3f}",)
        steps = Table(
            "Steps", ("step", "seconds"), tuple((step, seconds) for step, seconds in self.step_seconds.items()), notes
        )
        second = [replace(table, title=f"{table.title}, ports compete") for table in self.contended.tables()[:2]]
        ruled = [
            replace(table, title=f"{table.title}, ports compete, with a learned sharing rule")
            for table in self.ruled.tables()[:2]
        ]
        return [*self.trained.tables(), *self.evaluated.tables(), *second, *ruled, steps]

    def _cost_where_ports_compete(self) -> list[str]:
        """Who has the least cost J on the second network, and what pushing out saves there."""
        costs = {policy: found.mean for policy, found in self.contended.means("cost").items() if found.mean is not None}
        if not {"lqd", "cs"} <= costs.keys():
            return []
        best = min(costs, key=lambda policy: costs[policy])
        less = interval_text(self.contended.differences("cost", "cs")["lqd"])
        return [
            f"Where ports compete, {policy_words(best)} has the least cost, J = {costs[best]:.3g}; LQD has "
            f"{costs['lqd']:.3g}, Complete Sharing {costs['cs']:.3g}, LQD less Complete Sharing is {less}."
        ]

    def _cost_of_the_rule(self) -> list[str]:
        """What the learned rule costs on the second network, against each policy beside it."""
        costs = {policy: found.mean for policy, found in self.ruled.means("cost").items() if found.mean is not None}
        if LEARNED not in costs:
            return []
        less = {
            policy: interval_text(self.ruled.differences("cost", policy)[LEARNED]) for policy in self.ruled.baselines
        }
        against = ", ".join(f"{policy_words(policy)} {costs[policy]:.3g} ({less[policy]})" for policy in less)
        return [
            f"A sharing rule of four numbers, as C in that switch, has J = {costs[LEARNED]:.3g}; its difference to "
            f"{against}."
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
    with steps.timed("evaluate in ns-3"):
        evaluated = _evaluated(config, exported)
    show_early(evaluated.tables())
    with steps.timed("evaluate where ports compete"):
        contended = _evaluated(replace(config, scenario=config.contended_scenario), exported)
    with steps.timed("a learned sharing rule, where ports compete"):
        rule, ruled = _with_rule(replace(config, scenario=config.contended_scenario), store)
    with steps.timed("draw figures"):
        evaluated = with_figures(evaluated, run_dir)
        trained.ensemble.save(run_dir / ENSEMBLE_FILE)
    return DemoResult(trained, exported, evaluated, contended, rule, ruled, steps.seconds)


def _evaluated(config: DemoConfig, asked: ExportedPredictor) -> FlowsResult:
    """The policies on the scenario, tracked."""
    baselines = tuple(config.baselines)
    return track_flows(
        config, evaluate_policies(config, config.scenario, config.policy, config.seeds, asked, baselines)
    )


def _with_rule(config: DemoConfig, store: Store) -> tuple[ExportedPredictor, FlowsResult]:
    """Prove the rule's C and run it in the switch; the policies beside it have run on the same flows before."""
    rule = export_to_store(rule_of(config.sharing_rule).ensemble(config.scenario.features.cell_bytes), store)
    beside = {name: config.policy[name] for name in BESIDE_RULE if name in config.policy}
    policies = {**beside, LEARNED: compose_policy(LEARNED, LEARNED)}
    ruled = evaluate_policies(config, config.scenario, policies, config.seeds, rule, tuple(beside))
    return rule, track_flows(config, ruled)


def _train_config(config: DemoConfig) -> TrainConfig:
    return TrainConfig(
        store_dir=config.store_dir,
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
