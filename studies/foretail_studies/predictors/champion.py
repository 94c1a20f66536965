"""The best candidate within a switch's budget, put up for champion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.configs.schema.tracking import Tracking
from foretail.features.dataset.reader import Dataset
from foretail.models.mlflow.registered import ENSEMBLE_FILE
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.versions import alias_holder
from foretail.pipelines.promotion.promoting import PromoteResult, promote_model
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.open_loop.replay import ReplayScores
from foretail.sim_bridge.open_loop.scores import SENT
from foretail_studies.predictors.held_out import HeldOut

CHAMPION = "champion"


@dataclass(frozen=True)
class Promotion:
    """The candidates that fit the budget, and what the gate said of the best."""

    #: by candidate, what is sent of the validation runs while it decides
    validation: Mapping[str, ReplayScores]
    chosen: str  #: the best of them
    gate: PromoteResult | None  #: None when it was champion already

    def document(self) -> dict[str, Any]:
        gate = None if self.gate is None else self.gate.document()
        validation = {
            name: {"recovered_loss": found.recovered_loss, "sent_percent_of_lqd": found.sent_percent_of_lqd}
            for name, found in self.validation.items()
        }
        return {"validation": validation, "chosen": self.chosen, "gate": gate}

    def tables(self) -> list[Table]:
        """The choice, and the gate."""
        outcome = "was champion already" if self.gate is None else "is put up for champion"
        choice = Table(
            "Candidates within the budget",
            ("candidate", "R, validation runs", SENT),
            tuple((name, found.recovered_loss, found.sent_percent_of_lqd) for name, found in self.validation.items()),
            (f"{self.chosen} {outcome}",),
        )
        return [choice, *([] if self.gate is None else self.gate.tables())]


def promote_best(
    candidates: Mapping[str, TrainResult],
    validation: Sequence[HeldOut],
    held_out: Sequence[Dataset],
    tracking: Tracking,
    store_dir: str,
    run_dir: Path,
) -> Promotion:
    """Choose by the loss that is recovered on validation runs, and send the best to the gate.

    Parameters
    ----------
    candidates : trees, trained in runs of `tracking`
    validation : the candidates on validation runs
    held_out : runs that none of them saw, for the gate, which proves C and P4 as well
    """
    scores = {
        name: ReplayScores.together([run.replay for run in validation if run.candidate == name]) for name in candidates
    }
    recovered = {name: one.recovered_loss for name, one in scores.items()}
    chosen = max(scores, key=lambda name: -math.inf if recovered[name] is None else float(recovered[name] or 0))
    model, store = candidates[chosen].ensemble, Store(store_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    model.save(run_dir / ENSEMBLE_FILE)
    holder = alias_holder(str(tracking.registered_model), CHAMPION, tracking_uri(tracking.uri, store.folder.parent))
    if holder is not None:
        held = load_model(f"models:/{tracking.registered_model}/{holder}", tracking, store)
        if held.sha256 == model.sha256:
            return Promotion(scores, chosen, None)
    gate = compose_settings(PromoteConfig, [f"model={run_dir / ENSEMBLE_FILE}", "p4=true"], "budget")
    paths = [str(dataset.path) for dataset in held_out]
    return Promotion(
        scores,
        chosen,
        promote_model(replace(gate, datasets=paths, store_dir=store_dir, tracking=tracking), run_dir / CHAMPION),
    )
