"""``foretail demo``: collect, train, export and evaluate on one congested leaf-spine scenario in ns-3."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import DemoConfig
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_policies
from foretail.pipelines.comparison.tracked_flows import track_flows
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.steps import Steps
from foretail.pipelines.runs.store import Store
from foretail.pipelines.training.fitting import train_model
from foretail.pipelines.training.outcome import TrainResult, register


@dataclass(frozen=True)
class DemoResult:
    """The whole path.

    Attributes
    ----------
    trained, exported, evaluated : results of the stages
    step_seconds : wall time per step in this run; a step whose output was in the store takes next to nothing
    """

    trained: TrainResult
    exported: ExportedPredictor
    evaluated: FlowsResult
    step_seconds: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Every figure, seed, dataset hash and timing, JSON-like."""
        return {
            "train": self.trained.document(),
            "export": self.exported,
            "evaluate": self.evaluated.document(),
            "step_seconds": self.step_seconds,
            "credence_cpu_over_lqd": self.credence_cpu_over_lqd(),
            "files": self.evaluated.files,
            "captions": self.evaluated.captions,
        }

    def verdict(self) -> list[str]:
        """That of the evaluation."""
        return self.evaluated.verdict()

    def tables(self) -> list[Table]:
        """Datasets, scores, proof, policies, differences, timings."""
        ratio = self.credence_cpu_over_lqd()
        notes = () if ratio is None else (f"CPU time per leaf data packet, Credence over LQD: {ratio:.3f}",)
        steps = Table(
            "Steps", ("step", "seconds"), tuple((step, seconds) for step, seconds in self.step_seconds.items()), notes
        )
        return [*self.trained.tables(), *self.evaluated.tables(), steps]

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
    store, ns3 = Store(config.store_dir), Ns3(config.ns3_prefix)
    steps = Steps()
    with steps.timed("collect and train"):
        training = _train_config(config)
        trained = train_model(training, store, ns3)
        trained = replace(
            trained, registered=register(training, trained.outcome, trained.outcome["scores"], trained.model)
        )
    with steps.timed("export to C and prove"):
        exported = export_to_store(trained.ensemble, store)
    with steps.timed("evaluate in ns-3"):
        evaluated = evaluate_policies(
            config.scenario, config.policy, config.seeds, exported, tuple(config.baselines), store, ns3, config.jobs
        )
        evaluated = track_flows(config, evaluated)
    with steps.timed("draw figures"):
        evaluated = with_figures(evaluated, run_dir)
        trained.ensemble.save(run_dir / ENSEMBLE_FILE)
    return DemoResult(trained, exported, evaluated, steps.seconds)


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
