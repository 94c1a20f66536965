"""``foretail search experiment=drop_costs``: what drops cost, measured, and trees that learn it, for ``learned``.

Runs of the training families are forked at drawn arrivals. The labels of each run are a dataset of the store. Trees
learn what a drop gains; J on other seeds chooses from which gain on they drop. No held-out family is simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from foretail.configs.schema.experiments.studies import DropCosts, SearchConfig
from foretail.export.p4.planning.profile import load_profile
from foretail.export.switch_cost import SwitchCost, switch_cost
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registered import ENSEMBLE_FILE, RegisteredModel
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.experiments.costs.branching import BANDS, STRATA
from foretail.pipelines.experiments.costs.labels import SIGNAL_COLUMNS, signal_to_noise
from foretail.pipelines.experiments.costs.learning import Candidate, Labelled, Learning, labelled_policies
from foretail.pipelines.experiments.search.budget import Budget
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, tracked

SWITCH_PORTS = 32


@dataclass(frozen=True)
class DropCostResult:
    """What drops cost, and the trees that learned it."""

    labelled: pd.DataFrame  #: every label, with its run
    strata: pd.DataFrame  #: signal and noise of each stratum
    by_hold: pd.DataFrame  #: the same of single and of held flips
    candidates: tuple[Candidate, ...]  #: the cheapest of the trees first, then the others, then Complete Sharing
    ensemble: Ensemble  #: the first of them
    switch: SwitchCost  #: of the trees in a switch of 32 ports
    datasets: tuple[Path, ...]  #: of the labels, one per run
    points: int  #: of branches
    reused: int  #: so many of them were in the store
    budget: Budget  #: of all that was simulated
    files: tuple[Path, ...]
    tracked: Mapping[str, Any] | None  #: run in MLflow, or None
    registered: RegisteredModel | None  #: its version in the registry

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "strata": plain(self.strata.to_dict("records")),
            "by_hold": plain(self.by_hold.to_dict("records")),
            "candidates": plain([asdict(one) for one in self.candidates]),
            "ensemble_sha256": self.ensemble.sha256,
            "switch": asdict(self.switch),
            "datasets": self.datasets,
            "points": self.points,
            "reused": self.reused,
            "budget": asdict(self.budget),
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
            "registered": None if self.registered is None else asdict(self.registered),
        }

    def verdict(self) -> list[str]:
        """How noisy labels are, and what the trees are worth where nothing was learned."""
        best, sharing = self.candidates[0], self.candidates[-1]
        single = self.by_hold.iloc[0]
        return [
            f"A single decision turned moves log J by {single['spread']:.2g}, chaos alone by {single['chaos']:.2g} "
            f"(standard deviations, {single['flips']} flips).",
            f"On the validation seeds the trees have J {best.cost:.3g}, Complete Sharing {sharing.cost:.3g}.",
        ]

    def tables(self) -> list[Table]:
        """Signal and noise, and the candidates."""
        return [
            Table(
                "What a drop costs: log J where it is dropped less where it is accepted",
                (
                    *(name.replace("_", " ") for name in ("hold", *STRATA)),
                    *(c.replace("_", " ") for c in SIGNAL_COLUMNS),
                ),
                tuple(_stratum(row) for row in self.strata.to_dict("records")),
                (
                    f"{self.points:,} points of branches, {self.reused:,} of them in the store",
                    "chaos: standard deviation of a label by chaos alone; signal to noise: what is left over chaos",
                ),
            ),
            Table(
                "Trees that learned it, on the validation seeds",
                ("drop if it gains more than", "arrivals dropped, %", "J", "against sharing all, %", "low", "high"),
                tuple(candidate_cells(one) for one in self.candidates),
                (
                    f"the trees: {self.switch.table_entries} P4 table entries, {self.switch.tcam_bits} TCAM bits, "
                    f"{self.switch.feature_bits} bits of registers",
                    self.budget.sentence(),
                    *(f"file: {path}" for path in self.files),
                ),
            ),
        ]


def drop_cost_search(config: SearchConfig, run_dir: Path) -> DropCostResult:
    """Label, learn and choose; what the store has is not simulated again."""
    settings, where = config.drop_costs[config.size], f"drop_costs.{config.size}"
    learning = Learning.of(config, settings, where)
    policies = labelled_policies(config, settings, where, learning.store)
    run = tracked(config.tracking, learning.store, asdict(config), f"drop costs {config.size}")
    with run if config.tracking.enabled else nullcontext() as logged:
        measured = learning.labelled(policies)
        labelled = measured.frame
        candidates, ensemble = learning.candidates(learning.trees(labelled), labelled)
        strata = signal_to_noise(labelled.assign(held=labelled["hold_ns"] > 0), ["held", *STRATA])
        by_hold = signal_to_noise(labelled.assign(held=labelled["hold_ns"] > 0), ["held"])
        run_dir.mkdir(parents=True, exist_ok=True)
        ensemble.save(run_dir / ENSEMBLE_FILE)
        files = (
            *write_files(run_dir, {"drop_costs.csv": labelled, "signal_to_noise.csv": strata}),
            run_dir / ENSEMBLE_FILE,
        )
        where_tracked, registered = None, None
        if logged is not None:
            where_tracked = address(logged)
            registered = _log(config, settings, logged, measured, candidates, ensemble, files)
    return DropCostResult(
        labelled,
        strata,
        by_hold,
        candidates,
        ensemble,
        switch_cost(ensemble, SWITCH_PORTS, load_profile("v1model")),
        tuple(dataset.path for _, dataset, _ in measured.runs),
        measured.points,
        measured.reused,
        measured.budget + learning.simulations.budget,
        files,
        where_tracked,
        registered,
    )


def _log(
    config: SearchConfig,
    settings: DropCosts,
    logged: TrackedRun,
    measured: Labelled,
    candidates: Sequence[Candidate],
    ensemble: Ensemble,
    files: Sequence[Path],
) -> RegisteredModel | None:
    """Log datasets, figures and the model, and register it."""
    measured.log(logged)
    logged.log_metrics({"validation/cost": candidates[0].cost, "validation/cost_of_sharing": candidates[-1].cost})
    for path in files:
        logged.log_file(path)
    logged.log_model(ensemble)
    description = (
        f"Trees on measured costs of drops for policy learned: {len(measured.runs)} runs under "
        f"{', '.join(settings.policies)}, seeds {', '.join(map(str, settings.seeds))}; "
        f"J {candidates[0].cost:.3g} on the validation seeds."
    )
    tags = {"ensemble_sha256": ensemble.sha256, "features": ",".join(item.name for item in ensemble.features)}
    return register_trained(config.tracking, address(logged), description, tags)


def _stratum(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    return (
        "one RTT" if row["held"] else "once",
        str(row["flow_class"]),
        list(BANDS)[int(row["fill_band"])],
        int(row["first_rtt"]),
        "yes" if row["accepted"] else "no",
        *(None if pd.isna(row[name]) else row[name] for name in SIGNAL_COLUMNS),
    )


def candidate_cells(one: Candidate) -> tuple[Cell, ...]:
    """A row of a table of candidates."""
    low, mean, high = (
        None if x is None else 100 * math.expm1(x)
        for x in (one.less_sharing.low, one.less_sharing.mean, one.less_sharing.high)
    )
    if one.drops_above is None:
        return ("(shares all)", None, one.cost, mean, low, high)
    return (one.drops_above, 100 * (one.dropped_share or 0.0), one.cost, mean, low, high)
