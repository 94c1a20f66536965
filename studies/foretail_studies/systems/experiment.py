"""Every system of the literature in one table: published figures beside ours, with a verdict by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from foretail.configs.schema.experiment import PointSettings
from foretail.core.code import code_digest
from foretail.core.settings import setting
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.experiment.sweep import NOT, VERDICTS, WEAKER, verdict_of, verdict_of_value
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.native.driver import NATIVE
from foretail_studies.systems.balancing import ETHEREAL, SIRONA
from foretail_studies.systems.causes import cause_of
from foretail_studies.systems.comparisons import ABM, CREDENCE, IRN, POWERTCP, REVERIE, TIMELY, Published, System
from foretail_studies.systems.designs import LINC, MARS, NONA, ROTORNET, VERMILION
from foretail_studies.systems.scheduling import RC3, UNIVERSAL

SYSTEMS_BY_NAME: dict[str, System] = {
    "credence": CREDENCE,
    "abm": ABM,
    "reverie": REVERIE,
    "powertcp": POWERTCP,
    "timely": TIMELY,
    "irn": IRN,
    "universal": UNIVERSAL,
    "rc3": RC3,
    "sirona": SIRONA,
    "ethereal": ETHEREAL,
    "linc": LINC,
    "nona": NONA,
    "vermilion": VERMILION,
    "mars": MARS,
    "rotornet": ROTORNET,
}
"""All of them, by the name in settings."""

OURS = "-"
"""In place of a verdict, where no source prints the quantity."""


@dataclass
class SystemsSettings(PointSettings):
    """Systems that are measured."""

    systems: list[str] = setting(list(SYSTEMS_BY_NAME), "Systems that are measured.", one_of=tuple(SYSTEMS_BY_NAME))


@dataclass(frozen=True)
class SystemCase:
    """A system and a seed of what it draws."""

    system: str
    seed: int


def _cases(settings: SystemsSettings) -> Iterable[SystemCase]:
    for name in settings.systems:
        for seed in _seeds(SYSTEMS_BY_NAME[name], settings.size):
            yield SystemCase(name, seed)


def _seeds(system: System, size: str) -> tuple[int, ...]:
    """Return the seeds of a size; full has three times as many as medium where it has no size of its own."""
    seeds = system.seeds[_measured_size(system, size)]
    if size in system.seeds or len(seeds) == 1:
        return seeds
    return (*seeds, *range(seeds[-1] + 1, seeds[-1] + 1 + 2 * len(seeds)))


def _measured_size(system: System, size: str) -> str:
    return size if size in system.seeds else "medium"


def _measure(case: SystemCase, so_far: SoFar, settings: SystemsSettings) -> dict[str, float]:
    system = SYSTEMS_BY_NAME[case.system]
    measured = system.measure(_measured_size(system, settings.size), case.seed, so_far)
    return {quantity: float(value) for quantity, value in measured.items()}


def _rows(case: SystemCase, measured: Mapping[str, float], settings: SystemsSettings) -> list[dict[str, object]]:
    return [{"quantity": quantity, "value": value} for quantity, value in measured.items()]


def _depends_on(case: SystemCase, settings: SystemsSettings) -> dict[str, str]:
    system = SYSTEMS_BY_NAME[case.system]
    return {
        "scale": _measured_size(system, settings.size),
        "system_code": code_digest(system.measure),
        "driver_code": NATIVE.digest(),
    }


def _verdict(figure: Published, ours: PairedDifference) -> str:
    return verdict_of(figure.value, ours) if figure.change else verdict_of_value(figure.value, ours)


def _rows_of(name: str, size: str, measured: pd.DataFrame) -> list[dict[str, object]]:
    """A row for each published quantity, and then for each of ours alone."""
    system = SYSTEMS_BY_NAME[name]
    by_quantity = {str(quantity): part["value"].tolist() for quantity, part in measured.groupby("quantity", sort=False)}
    known = {figure.quantity: figure for figure in system.published}
    rows: list[dict[str, object]] = []
    for quantity in [*known, *(quantity for quantity in by_quantity if quantity not in known)]:
        ours = mean_interval(by_quantity.get(quantity, []))
        figure = known.get(quantity)
        verdict = _verdict(figure, ours) if figure else OURS
        cause = cause_of(name, quantity) if verdict in (NOT, WEAKER) else None
        rows.append(
            {
                "system": system.name,
                "quantity": quantity,
                "published": figure.value if figure else None,
                "ours": ours.mean,
                "low": ours.low,
                "high": ours.high,
                "verdict": verdict,
                "cause": cause.kind if cause else None,
                "cause_words": cause.words if cause else None,
                "source": f"{system.source}, {figure.source}" if figure else None,
                "seeds": ours.pairs,
                "command": f"foretail run systems size={size} 'systems=[{name}]'",
            }
        )
    return rows


def show(measured: pd.DataFrame, settings: SystemsSettings) -> Shown:
    """The table, and how many figures have which verdict."""
    rows = pd.DataFrame(
        [
            row
            for name in settings.systems
            for row in _rows_of(name, settings.size, measured[measured["system"] == name])
        ]
    )
    columns = ("system", "quantity", "published", "ours", "low", "high", "verdict", "cause")
    cells = tuple(tuple(None if pd.isna(value) else value for value in row) for row in rows[list(columns)].to_numpy())
    causes = rows[["system", "cause", "cause_words"]].dropna().drop_duplicates()
    notes = (
        "low and high: 95 % t interval over seeds. A number is reproduced where the interval has the published one or "
        "the mean is within 5 %, in shape within a factor of two. A change in % whose sign is sure is reproduced "
        "within its interval or 5 points, in shape from half of the published one on, and else weaker.",
        *(f"{system}, {kind}: {words}." for system, kind, words in causes.to_numpy()),
    )
    counts = rows["verdict"].value_counts()
    words = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if word in counts)
    verdict = [f"Of {int(rows['published'].notna().sum())} published figures: {words}."]
    return Shown(rows, [Table("Systems of the literature", columns, cells, notes)], verdict=verdict)


SYSTEMS = PointExperiment(
    settings=SystemsSettings,
    kind="systems",
    cases=_cases,
    name=lambda case: f"{case.system}, seed {case.seed}",
    measure=_measure,
    rows=_rows,
    show=show,
    code=(),
    varied=("systems",),
    depends_on=_depends_on,
)
