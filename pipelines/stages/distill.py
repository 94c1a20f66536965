"""``foretail distill``: turn a trained network into trees of a given size, and tell what that costs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from foretail.configs.schema.model_stages import DistillConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import traffic_sha256_of
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.runs.versions import versions
from foretail.pipelines.tracking.identity import identify
from foretail.pipelines.training.distilling import DistillResult, distill_into, load_teacher
from foretail.pipelines.training.fitting import find_split
from foretail.pipelines.training.outcome import (
    model_key,
    nest_in_study,
    read_outcome,
    register,
    say_zeros,
    tracked_entry,
)

STUDENT = "student"


def distill(config: DistillConfig, run_dir: Path) -> DistillResult:
    """Distil ``config.model``; ``ensemble.json`` goes to the run folder as well."""
    store = Store(config.store_dir)
    teacher = load_teacher(config, store)
    _refuse_other_traffic(config, teacher, store)
    collected, split = find_split(config)
    depends_on = {
        "teacher": [teacher.sha256, versions()["onnxruntime"]],
        "student": asdict(config.student),
        "own_queues": config.own_queues,
    }
    entry = tracked_entry(
        store,
        model_key(STUDENT, config, split, store, depends_on),
        lambda folder: distill_into(folder, config, teacher, split, store),
    )
    nest_in_study(config.tracking, read_outcome(entry))
    ensemble = Ensemble.load(entry.path / ENSEMBLE_FILE)
    run_dir.mkdir(parents=True, exist_ok=True)
    ensemble.save(run_dir / ENSEMBLE_FILE)
    outcome = read_outcome(entry)
    say_zeros("the teacher", teacher, outcome["teacher"]["scores"])
    say_zeros("the student", ensemble, outcome["student"]["scores"])
    registered = register(config, outcome, outcome["student"]["scores"], ensemble)
    return DistillResult(ensemble, outcome, collected, entry.reused, entry.seconds, registered)


def _refuse_other_traffic(config: DistillConfig, teacher: Network, store: Store) -> None:
    """Raise ForetailError, before anything is simulated, when a tracked teacher has seen no run of the scenario."""
    if config.datasets:
        return
    origin = identify(teacher, config.model, config.tracking, store)
    scenario = plain(asdict(config.scenario))
    if origin.lineage is None or any(
        origin.lineage.given(traffic_sha256_of(scenario, seed)) for seed in config.split.all_seeds
    ):
        return
    places = dict.fromkeys(used.location for used in origin.lineage.datasets)
    raise ForetailError(
        f"{config.model} was trained on {', '.join(origin.trained_on or ())}, and no run of scenario "
        f"{config.scenario.name} is among its datasets: give those, with the split of its training, as in "
        f"'datasets=[{','.join(places)}]'"
    )
