"""Policies in a network: simulated, or emulated with Linux's TCP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from foretail.configs.schema.networks import EmulatorNetwork, Ns3Network
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.pipelines.comparison.emulation import EmulationResult, Fidelity, emulate_policies
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_flows, evaluate_policies, track_flows
from foretail.pipelines.data.emulation import HostCommand
from foretail.pipelines.exporting.network import NetworkExport, predictor_to_store
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import Trains, compose_training
from foretail.pipelines.tracking.loading import load_predictor
from foretail.pipelines.training.fitting import train_model


def evaluate_in_network(config: EvaluateConfig, run_dir: Path) -> FlowsResult | EmulationResult:
    """Run every policy on every seed in the network that the settings choose; figures go to the run folder."""
    if isinstance(config.network, EmulatorNetwork):
        return _emulated(config, config.network, run_dir)
    return with_figures(track_flows(config, evaluate_flows(config)), run_dir)


def _emulated(config: EvaluateConfig, network: EmulatorNetwork, run_dir: Path) -> EmulationResult:
    """One run after the other in the emulator, and, where that is wanted, the same in ns-3."""
    predictor = asked_predictor(config, run_dir) if config.asking else None
    command = HostCommand(tuple(network.command), network.command_seconds) if network.command else None
    emulated = emulate_policies(
        config.scenario, config.policy, config.seeds, predictor, config.compared_to, network, run_dir / "runs", command
    )
    fidelity = None
    if network.against_ns3:
        alone = replace(config, jobs=1, network=Ns3Network())
        simulated = evaluate_policies(
            alone, config.scenario, config.policy, config.seeds, predictor, config.compared_to
        )
        fidelity = Fidelity.between(emulated.compared, simulated)
    compared = with_figures(emulated.compared, run_dir) if command is None else emulated.compared
    return replace(emulated, compared=compared, fidelity=fidelity)


class MayTrain(Trains, Protocol):
    """Settings that name a model, or tell how one is trained."""

    model: str | None

    @property
    def train(self) -> list[str]:
        """Overrides of ``foretail train``."""


def asked_predictor(config: MayTrain, run_dir: Path) -> ExportedPredictor | NetworkExport:
    """The predictor that policies ask: the model that is given, or one that is trained now."""
    store = Store(config.store_dir)
    if config.model is not None:
        return predictor_to_store(load_predictor(config.model, config.tracking, store), store)
    ensemble = train_model(compose_training(config, config.train, "train")).ensemble
    ensemble.save(run_dir / ENSEMBLE_FILE)
    return export_to_store(ensemble, store)
