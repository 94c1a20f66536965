"""``foretail study``: predictors on runs and conditions that they never saw, open loop and in ns-3, and the champion.

Conditions and candidates are overrides as on the command line: every row can be had alone, with ``foretail collect``
or ``foretail train`` and the overrides of its name.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from foretail.configs.schema.experiments.studies import StudyConfig
from foretail.pipelines.experiments.studies.studying import StudyResult, run_study
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.runs import tracked


def study(config: StudyConfig, run_dir: Path) -> StudyResult:
    """Collect, train, judge, simulate and choose; what the store already has is not made again.

    With tracking the study is a run of its own, and every training and promotion one inside it.
    """
    tracking = config.tracking
    if not tracking.enabled:
        return run_study(config, run_dir)
    with tracked(tracking, Store(config.store_dir), asdict(config), f"study, {config.size}") as run:
        result = run_study(
            replace(config, tracking=replace(tracking, parent_run_id=run.run_id, run_name=None)), run_dir
        )
        run.log_document(plain(result.document()), "study.json")
        for file in result.files:
            run.log_file(file)
    return result
