"""What a wrong prediction can cost Credence against LQD, decided for small switches; see docs/results.

Each point is a policy on a switch: the least number of packets per wrong prediction that bounds LQD's lead on all
sequences of arrivals and predictions, with a cycle that reaches it and potentials that prove it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import setting
from foretail.core.errors import ForetailError
from foretail.models.scoring.figure_style import MARKERS, panels, styled, with_legend
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail_studies.engines.error_graph import (
    NEVER,
    Policy,
    explore,
    least_cost,
    longest_walks,
    theorem_weights,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "Credence": {},
    "Credence, arrival uncounted": {"counting": "uncounted"},
    "Credence, highest port loses": {"tie": "highest_port"},
    "Credence, no safeguard": {"safeguard": "none"},
    "Credence, the paper's safeguard": {"safeguard": "paper"},
    "Credence, any load": {"any_load": True},
    "Credence, any load, no safeguard": {"any_load": True, "safeguard": "none"},
    "FollowLQD": {"answers_needed": NEVER},
    "Guarded Credence, two answers": {"answers_needed": 2},
}
"""Rows of the second table, the first of which is the policy of the first table, by how they differ from it."""
CAPTION = (
    "The least number of packets per wrong prediction that bounds what LQD sends more than Credence, by the buffer; "
    "the line is B - 1."
)
NOTE = (
    "Cost: the least c with LQD - policy <= c times the wrong predictions, on all sequences that end with an empty "
    "switch; unbounded: no c. Proven: potentials prove it on every edge, or a cycle without an error refutes it. "
    "Theorem: LQD - policy <= wrong predictions to drop + (B - 1) times those to pass."
)


@dataclass
class PredictionErrorsSettings(PointSettings):
    """What a wrong prediction can cost: every policy on every switch is a point."""

    switches: list[str] = setting(MISSING, "Switches for Credence as ports x buffer in packets, such as 3x4.")
    variant_switches: list[str] = setting(MISSING, "Switches for its variants, written in the same way.")

    def check(self, where: str) -> None:
        """Raise ForetailError where a switch is not written so, or is too large."""
        super().check(where)
        for name, written in (("switches", self.switches), ("variant_switches", self.variant_switches)):
            for one in written:
                if not re.fullmatch(r"[0-9]{1,3}x[0-9]{1,3}", one):
                    raise ForetailError(f"{name} = {one} is no switch: write ports x buffer, such as 3x4")
                ports, buffer = map(int, one.split("x"))
                Policy(ports, buffer)


@dataclass(frozen=True)
class Point:
    """A policy on a switch."""

    variant: str  #: name in ``VARIANTS``
    ports: int  #: N
    buffer: int  #: B, in packets

    @property
    def name(self) -> str:
        """For progress and tables."""
        return f"{self.variant} {self.ports}x{self.buffer}"

    @property
    def policy(self) -> Policy:
        """With its rules."""
        return Policy(self.ports, self.buffer, **VARIANTS[self.variant])


def points(settings: PredictionErrorsSettings) -> Iterator[Point]:
    """Credence on its switches, then the variants on theirs."""
    credence, *others = VARIANTS
    for variants, switches in (([credence], settings.switches), (others, settings.variant_switches)):
        for variant in variants:
            for switch in dict.fromkeys(switches):
                yield Point(variant, *map(int, switch.split("x")))


def measured(case: Point, so_far: SoFar, settings: PredictionErrorsSettings) -> dict[str, Any]:
    """The bound with its certificate, and whether the theorem's bound holds."""
    so_far("states")
    graph = explore(case.policy)
    so_far("bound")
    bound = least_cost(graph)
    if bound.cost is None or bound.potential is None:
        gains = int(graph.lead[bound.cycle].sum())
        proven = gains > 0 and not graph.wrong[bound.cycle].any()
    else:
        weight = bound.cost.denominator * graph.lead.astype(np.int64) - bound.cost.numerator * graph.wrong
        proven = graph.proves(bound.potential, weight)
    so_far("theorem")
    weight = theorem_weights(graph)
    potential, cycles = longest_walks(graph, weight)
    slots, predictions = graph.walk(bound.cycle, 1) if bound.cycle else ("", "")
    return {
        "states": len(graph.codes),
        "edges": len(graph.source),
        "cost": None if bound.cost is None else str(bound.cost),
        "proven": proven,
        "theorem": not cycles and graph.proves(potential, weight),
        "slots": slots,
        "predictions": predictions,
    }


def rows_of(case: Point, found: Mapping[str, Any], settings: PredictionErrorsSettings) -> Iterator[dict[str, Any]]:
    """A row."""
    yield {"policy": case.variant, **found, "cost": found["cost"] or "unbounded"}


def show(rows: pd.DataFrame, settings: PredictionErrorsSettings) -> Shown:
    """The bounds of Credence, and of its variants."""
    credence = rows[rows["policy"] == next(iter(VARIANTS))]
    own = {"ports": "N", "buffer": "B", "cost": "cost", "states": "states", "edges": "edges"}
    proofs = {"proven": "proven", "theorem": "theorem"}
    walks = {"slots": "sequence", "predictions": "predictions"}
    tables = [Table.of_frame("What a wrong prediction can cost Credence", credence, {**own, **proofs, **walks}, NOTE)]
    others = rows.drop(credence.index)
    if len(others):
        tables.append(Table.of_frame("The same for its variants", others, {"policy": "policy", **own, **proofs}))
    return Shown(rows, tables, {"": Drawn(draw(credence), CAPTION)}, verdict=verdict(rows))


def verdict(rows: pd.DataFrame) -> list[str]:
    """Where the theorem holds, and which policies no number bounds."""
    holds, unbounded = rows[rows["theorem"]], rows[rows["cost"] == "unbounded"]
    names = ", ".join(unbounded["policy"].drop_duplicates()) or "none"
    return [
        "LQD - policy <= wrong predictions to drop + (B - 1) times those to pass in "
        f"{len(holds)} of {len(rows)} points.",
        f"No number of packets per wrong prediction bounds: {names}.",
    ]


@styled
def draw(credence: pd.DataFrame) -> Figure:
    """The bound by the buffer, a line for each number of ports."""
    figure, (axes,) = panels(1, inches=(5.4, 3.8))
    for place, (ports, some) in enumerate(credence[credence["cost"] != "unbounded"].groupby("ports")):
        cost = some["cost"].map(lambda text: int(text.split("/")[0]) / int((f"{text}/1").split("/")[1]))
        axes.plot(some["buffer"], cost, MARKERS[place], color=f"C{place}", label=f"N = {ports}")
    ends = [credence["buffer"].min(), credence["buffer"].max()]
    axes.plot(ends, [one - 1 for one in ends], color="black", linewidth=0.9, label="B - 1")
    axes.set(xlabel="buffer B, packets", ylabel="packets per wrong prediction")
    return with_legend(figure, axes)


PREDICTION_ERRORS = PointExperiment(
    settings=PredictionErrorsSettings,
    kind="prediction_errors",
    cases=points,
    name=lambda case: case.name,
    measure=measured,
    rows=rows_of,
    show=show,
    code=("foretail_studies.engines.error_graph",),
    varied=("switches", "variant_switches"),
)
