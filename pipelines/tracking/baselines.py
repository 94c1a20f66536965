"""The tuned policies that stand beside a model: their settings come from the runs that trained it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.models.mlflow.registry import run_document
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import OUTCOME_FILE
from foretail.pipelines.runs.notes import lineages
from foretail.pipelines.runs.result import Cell
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge.open_loop.baselines import Baseline
from foretail.sim_bridge.open_loop.scores import shown_share

TRAINED, HERE = "the runs that trained the model", "these very runs, for the model's own are not known"
"""Runs on which settings were chosen, in words."""


def known_baselines(tracking: Tracking, store: Store) -> tuple[Baseline, ...]:
    """Return the policies that were tuned when the model of this command was trained; none where no run says so."""
    uri = tracking_uri(tracking.uri, store.folder.parent)
    for run_id in (run for lineage in lineages() for run in lineage.runs):
        with suppress(ForetailError):  # of a run that logged none
            if baselines := chosen_in(run_document(run_id, OUTCOME_FILE, uri)):
                return baselines
    return ()


def chosen_in(outcome: Mapping[str, Any]) -> tuple[Baseline, ...]:
    """Return the baselines of a training or a distilling, the best first; none where test runs were not replayed."""
    replay = outcome.get("student", outcome).get("replay") or {}
    return tuple(Baseline(one["policy"], one["alpha"]) for one in replay.get("baselines", ()))


def baseline_rows(baselines: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, ...]]:
    """Rows of a table: what tuned policies recover and send."""
    return [(one["title"], shown_share(one["recovered_loss"]), one["sent_percent_of_lqd"]) for one in baselines]
