"""Places where runs are tracked."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.core.errors import ForetailError
from foretail.core.settings import setting

SWEEP_RUN = "FORETAIL_SWEEP_RUN"
"""Environment variable with the MLflow run around the jobs of a sweep."""
GATED_ALIASES = ("champion", "challenger")
"""Aliases of a registered model that only the gate of ``foretail promote`` moves."""


@dataclass
class Tracking:
    """MLflow."""

    enabled: bool = setting(True, "Log the run to MLflow.")
    uri: str | None = setting(
        None, "Address of the tracking server; null means MLFLOW_TRACKING_URI, else an SQLite file next to the store."
    )
    experiment: str = setting("foretail", "Name of the MLflow experiment.")
    registered_model: str | None = setting(
        "foretail-drop", "Name in the model registry; null does not register the model."
    )
    alias: str = setting(
        "candidate", "Alias that moves to the newly registered version; champion and challenger move by promote only."
    )
    best_by: str = setting(
        "validation_replay/whole/sent_percent_of_lqd",
        "With --multirun, the score by which the best model is registered: the packets sent while it decides in the "
        "validation runs, or side/region/name such as validation/asked/f1.",
    )
    run_name: str | None = setting(None, "Name of the run in MLflow; null names it after what ran.")
    sweep_id: str | None = setting(None, "Tag that the runs of one sweep share.")
    parent_run_id: str | None = setting(None, "MLflow run of the study inside which this one is shown.")

    def check(self, where: str) -> None:
        """Raise ForetailError on an alias that only a gate moves, and on a score that chooses by test runs."""
        if not self.best_by.startswith(("validation/", "validation_replay/")):
            raise ForetailError(
                f"{where}.best_by = {self.best_by} chooses by other runs than validation: give a score "
                "such as validation/asked/f1"
            )
        if self.alias in GATED_ALIASES:
            raise ForetailError(
                f"{where}.alias = {self.alias} moves by its gate only: choose another alias, then foretail promote "
                f"model=models:/NAME@ALIAS to={self.alias}"
            )
