"""Short sequences on which a policy, or a published claim about it, does badly: the worst that a search finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import setting
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.builds import policy_identity
from foretail.sim_bridge.policies import is_guest, policy_name
from foretail_studies.engines.worst_cases import (
    OBJECTIVES,
    SWITCHES,
    TITLES,
    WorstCase,
    objective_of,
    search,
)


@dataclass
class WorstCaseSettings(PointSettings):
    """Ratios that are made large, and how long the search takes."""

    objectives: list[str] = setting(
        list(OBJECTIVES), "Ratios by name, or a policy in a header, as my_rule.hpp:MyRule, whose OPT / policy is one."
    )
    seed: int = setting(0, "The same seed finds the same sequences.", at_least=0)
    restarts: int = setting(16, "Sequences that are grown for each ratio and switch.", at_least=1)
    steps: int = setting(4000, "Changes to each of them.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a ratio that is not known."""
        super().check(where)
        for name in self.objectives:
            objective_of(name)


@dataclass(frozen=True)
class SearchCase:
    """A search on one switch."""

    objective: str
    ports: int
    buffer: int


def _cases(settings: WorstCaseSettings) -> Iterable[SearchCase]:
    return (SearchCase(name, *switch) for name in settings.objectives for switch in SWITCHES)


def _measure(case: SearchCase, so_far: SoFar, settings: WorstCaseSettings) -> dict[str, Any]:
    worst = search(
        case.objective,
        case.ports,
        case.buffer,
        seed=settings.seed,
        restarts=settings.restarts,
        steps=settings.steps,
    )
    return {"slots": worst.slots, "predictions": worst.predictions, "counts": worst.counts}


def _rows(case: SearchCase, measured: Mapping[str, Any], settings: WorstCaseSettings) -> Mapping[str, Any]:
    worst = WorstCase(**asdict(case), **measured)
    return {**measured, "ratio": float(worst.ratio), "violates": worst.violates}


def show(rows: pd.DataFrame, settings: WorstCaseSettings) -> Shown:
    """The worst switch of every ratio and number of ports."""
    worst = rows.loc[rows.groupby(["objective", "ports"], sort=False)["ratio"].idxmax()]
    cells: list[tuple[Cell, ...]] = []
    for row in worst[[field.name for field in fields(WorstCase)]].to_numpy().tolist():
        case = WorstCase(*row)
        objective = objective_of(case.objective)
        claimed = objective.claimed(case.ports)
        counts = ", ".join(f"{TITLES.get(name, policy_name(name))} {count}" for name, count in case.counts.items())
        verdict = "no claim" if claimed is None else "exceeds the claim" if case.violates else "within the claim"
        proven = None if case.proven is None else str(case.proven)
        switch = (objective.text, case.ports, case.buffer, case.slots, case.predictions, counts)
        cells.append((*switch, float(case.ratio), claimed, verdict, proven))
    columns = ("ratio", "N", "B", "slots", "predictions", "counts", "largest", "claimed", "verdict", "proven")
    above = sorted({objective_of(name).text for name in worst[worst["violates"]]["objective"]})
    sentence = f"{', '.join(above) or 'No ratio'} exceeds what is claimed."
    return Shown(worst.reset_index(drop=True), [Table("Worst cases", columns, tuple(cells))], verdict=[sentence])


WORST_CASES = PointExperiment(
    WorstCaseSettings,
    "worst_cases",
    _cases,
    lambda case: f"{case.objective}, {case.ports} ports, buffer {case.buffer}",
    _measure,
    _rows,
    show,
    code=("foretail_studies.engines.worst_cases",),
    varied=("objectives",),
    depends_on=lambda case, settings: {"policy": policy_identity(case.objective) if is_guest(case.objective) else None},
)
