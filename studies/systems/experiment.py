"""Every system of the literature in one table: published figures beside ours, with a verdict by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import setting
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.claims import IN_SHAPE, NOT, REPRODUCED, UNKNOWN, verdict_of, verdict_of_value
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.studies.systems.designs import MARS, ROTORNET, VERMILION
from foretail.studies.systems.linc import LINC
from foretail.studies.systems.nona import NONA
from foretail.studies.systems.system import Published, System

SYSTEMS_BY_NAME: dict[str, System] = {
    "mars": MARS,
    "rotornet": ROTORNET,
    "vermilion": VERMILION,
    "linc": LINC,
    "nona": NONA,
}
"""All of them, by the name in settings."""

OURS = "-"
"""In place of a verdict, where no source prints the quantity."""


@dataclass
class SystemsSettings(PointSettings):
    """Systems that are measured."""

    systems: list[str] = setting(MISSING, "Systems that are measured.", one_of=tuple(SYSTEMS_BY_NAME))


@dataclass(frozen=True)
class SystemCase:
    """A system and a seed of what it draws."""

    system: str
    seed: int


def _cases(settings: SystemsSettings) -> Iterable[SystemCase]:
    if settings.size not in ("small", "medium"):
        raise ForetailError(f"systems has no size {settings.size}: choose small or medium")
    for name in settings.systems:
        for seed in SYSTEMS_BY_NAME[name].seeds[settings.size]:
            yield SystemCase(name, seed)


def _measure(case: SystemCase, so_far: SoFar, settings: SystemsSettings) -> dict[str, float]:
    measured = SYSTEMS_BY_NAME[case.system].measure(settings.size, case.seed, so_far)
    return {quantity: float(value) for quantity, value in measured.items()}


def _rows(case: SystemCase, measured: Mapping[str, float], settings: SystemsSettings) -> list[dict[str, object]]:
    return [{"quantity": quantity, "value": value} for quantity, value in measured.items()]


def _depends_on(case: SystemCase, settings: SystemsSettings) -> dict[str, str]:
    system = SYSTEMS_BY_NAME[case.system]
    return {"size": settings.size, "system_code": code_digest(system.measure, *system.code)}


def _verdict(figure: Published, ours: PairedDifference) -> str:
    return verdict_of(figure.value, ours) if figure.change else verdict_of_value(figure.value, ours)


def _rows_of(system: System, name: str, measured: pd.DataFrame) -> list[dict[str, object]]:
    """A row for each published quantity, and then for each of ours alone."""
    by_quantity = {str(quantity): part["value"].tolist() for quantity, part in measured.groupby("quantity", sort=False)}
    known = {figure.quantity: figure for figure in system.published}
    rows: list[dict[str, object]] = []
    for quantity in [*known, *(quantity for quantity in by_quantity if quantity not in known)]:
        ours = mean_interval(by_quantity.get(quantity, []))
        figure = known.get(quantity)
        rows.append(
            {
                "system": system.name,
                "quantity": quantity,
                "published": figure.value if figure else None,
                "ours": ours.mean,
                "low": ours.low,
                "high": ours.high,
                "verdict": _verdict(figure, ours) if figure else OURS,
                "source": f"{system.source}, {figure.source}" if figure else None,
                "seeds": ours.pairs,
                "command": f"foretail run systems 'systems=[{name}]'",
            }
        )
    return rows


def show(measured: pd.DataFrame, settings: SystemsSettings) -> Shown:
    """The table, and how many figures have which verdict."""
    rows = pd.DataFrame(
        [
            row
            for name in settings.systems
            for row in _rows_of(SYSTEMS_BY_NAME[name], name, measured[measured["system"] == name])
        ]
    )
    columns = ("system", "quantity", "published", "ours", "low", "high", "verdict", "source")
    cells = tuple(tuple(None if pd.isna(value) else value for value in row) for row in rows[list(columns)].to_numpy())
    notes = (
        "low and high: 95 % t interval over seeds. A number is reproduced where the interval has the published one or "
        "the mean is within 5 %, in shape within a factor of two. A change in % is reproduced within its interval or 5 "
        "points, in shape where its sign is sure.",
    )
    counts = rows["verdict"].value_counts()
    verdict = [
        f"Of {int(sum(counts.get(one, 0) for one in (REPRODUCED, IN_SHAPE, NOT)))} published figures "
        f"{int(counts.get(REPRODUCED, 0))} are reproduced, {int(counts.get(IN_SHAPE, 0))} are in shape and "
        f"{int(counts.get(NOT, 0))} are not; {int(counts.get(UNKNOWN, 0))} were not run in this size."
    ]
    return Shown(rows, [Table("Systems of the literature", columns, cells, notes)], verdict=verdict)


SYSTEMS = PointExperiment(
    SystemsSettings,
    "systems",
    _cases,
    lambda case: f"{case.system}, seed {case.seed}",
    _measure,
    _rows,
    show,
    code=(),
    varied=("systems",),
    depends_on=_depends_on,
)
