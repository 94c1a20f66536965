"""``foretail emulate``: buffer policies on packets of this machine's TCP, in namespaces and in real time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foretail.configs.schema.emulation import EmulateConfig
from foretail.configs.schema.model_stages import TrainConfig
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.pipelines import stage
from foretail.pipelines.comparison.emulation import emulate_policies
from foretail.pipelines.comparison.fidelity import Fidelity
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import evaluate_policies
from foretail.pipelines.data.emulation import HostCommand
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.circuits.voqs import voq_experiment
from foretail.pipelines.exporting.network import NetworkExport, predictor_to_store
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.tracking.loading import load_predictor
from foretail.pipelines.training.fitting import train_model


def emulate(config: EmulateConfig, run_dir: Path) -> stage.StageResult:
    """Do what the settings name: an experiment on racks with circuits, or every policy on every seed.

    What policies ask is exported or trained first.
    """
    predictor = _predictor(config, run_dir) if config.asking else None
    if config.voqs:
        library = predictor.library if predictor is not None else None
        return voq_experiment(config.voqs[config.size], config, run_dir, library)
    command = HostCommand(tuple(config.command), config.command_seconds) if config.command else None
    found = emulate_policies(
        config.scenario, config.policy, config.seeds, predictor, config.emulation, run_dir / "runs", command
    )
    fidelity = None
    if config.against_ns3:
        simulated = evaluate_policies(
            config.scenario,
            config.policy,
            config.seeds,
            predictor,
            found.compared.baselines,
            Store(config.store_dir),
            Ns3(config.ns3_prefix),
            jobs=1,
        )
        fidelity = Fidelity.between(found.compared, simulated)
    compared = with_figures(found.compared, run_dir) if command is None else found.compared
    return replace(found, compared=compared, fidelity=fidelity)


def _predictor(config: EmulateConfig, run_dir: Path) -> ExportedPredictor | NetworkExport:
    store = Store(config.store_dir)
    if config.model is not None:
        return predictor_to_store(load_predictor(config.model, config.tracking, store), store)
    training = replace(
        compose_settings(TrainConfig, config.train, "train"),
        store_dir=config.store_dir,
        ns3_prefix=config.ns3_prefix,
        tracking=config.tracking,
    )
    ensemble = train_model(training, store, Ns3(config.ns3_prefix)).ensemble
    ensemble.save(run_dir / ENSEMBLE_FILE)
    return export_to_store(ensemble, store)
