"""Where a prediction can win anything: what policies without one leave of LQD's packets, cell by cell.

A cell is a workload on a switch; the cells differ from base cells in one parameter. A threshold has one alpha for all
cells, or one for the cell, each chosen on training seeds. What predictors send of a cell is in :data:`PREDICTORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import require_seeds, setting
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads import Workload, workload_of
from foretail.sim_bridge.open_loop.baselines import Baseline
from foretail.sim_bridge.open_loop.slotted import compare, packets_sent
from foretail.sim_bridge.policies import SlotParameters
from foretail.studies.slots.prediction_map_tables import (
    CAPTION,
    draw,
    regimes,
    summary_of,
    tables_of,
    verdict,
)

THRESHOLDS = ("dt", "abm")
WITHOUT_ALPHA = ("harmonic", "cs")
TRAIN, TEST = "train", "test"


@dataclass
class PredictionMapSettings(PointSettings):
    """What thresholds leave of LQD's packets, cell by cell: every cell is a point."""

    bases: dict[str, dict[str, Any]] = setting(
        MISSING,
        "Base cells by name, each as {workload: NAME, ports: N, buffer_per_port: B, PARAMETER: VALUE}.",
    )
    axes: dict[str, dict[str, Any]] = setting(
        MISSING, "Values of parameters that a cell has in place of those of its base cell, one parameter at a time."
    )
    slots: int = setting(MISSING, "Least number of slots with arrivals of a run.", at_least=1, at_most=2**40)
    bursts: int = setting(
        MISSING, "Least mean number of bursts, or of on-times, of a run, which may need more slots.", at_least=0
    )
    train_seeds: list[int] = setting(MISSING, "Seeds on which alphas are chosen.", at_least=1, at_most=2**31 - 1)
    test_seeds: list[int] = setting(MISSING, "Seeds on which policies are judged.", at_least=1, at_most=2**31 - 1)
    alphas: list[float] = setting(
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0], "Alphas of DT and ABM.", above=0
    )
    least_transfer: float = setting(
        0.5,
        "What one alpha for all cells has to leave beyond the cell's own alpha, in % of LQD's packets, so that a cell "
        "counts as one where alpha does not transfer.",
        at_least=0,
        at_most=100,
    )
    least_left: float = setting(
        0.5,
        "What the cell's own alpha has to leave, in % of LQD's packets, so that a cell counts as one with a gap.",
        at_least=0,
        at_most=100,
    )
    most_lost: float = setting(
        0.1, "What counts as nothing lost by always accepting, in % of LQD's packets.", at_least=0, at_most=100
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on seeds that tune and judge, and on cells that no switch or workload has."""
        super().check(where)
        require_seeds("train_seeds", self.train_seeds)
        require_seeds("test_seeds", self.test_seeds)
        both = set(self.train_seeds) & set(self.test_seeds)
        if both:
            raise ForetailError(f"test_seeds has {min(both)}, which is in train_seeds: judge on other seeds")
        if not self.bases:
            raise ForetailError("bases is empty: name at least one cell")
        for name, given in self.bases.items():
            missing = [one for one in ("workload", "ports", "buffer_per_port") if one not in given]
            if missing:
                raise ForetailError(f"bases.{name} has no {missing[0]}: add {missing[0]}: VALUE")
        for name in self.axes:
            if name not in self.bases:
                raise ForetailError(f"axes has {name}, which is not among {', '.join(self.bases)}")
        for cell in cells_of(self):
            traffic_of(cell, self).batches(self.train_seeds[0])


@dataclass(frozen=True)
class Cell:
    """A base cell, or one that differs from it in a parameter."""

    base: str  #: name of the base cell
    axis: str = ""  #: name of the parameter; empty for the base cell
    value: float | None = None  #: of the parameter

    @property
    def name(self) -> str:
        """For progress and tables."""
        return self.base if self.value is None else f"{self.base} {self.axis}={self.value:g}"


@dataclass(frozen=True)
class Traffic:
    """Arrivals of a cell, and its switch."""

    workload: Workload
    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    slots: int  #: with arrivals, of a run

    def batches(self, seed: int) -> Iterator[Slotted]:
        """The arrivals of a seed."""
        return self.workload.batches(self.ports, self.buffer, self.slots, seed)


Predictor = Callable[[Traffic, Sequence[int], Sequence[int]], Sequence[int]]
"""Returns the packets that are sent on each test seed of a cell; given are the training seeds and the test seeds."""


def told(traffic: Traffic, train_seeds: Sequence[int], test_seeds: Sequence[int]) -> list[int]:
    """What Credence sends that is told which packets LQD drops."""
    return [
        compare(traffic.batches(seed), traffic.ports, traffic.buffer, ["credence"], threads=1).credence
        for seed in test_seeds
    ]


PREDICTORS: dict[str, Predictor] = {"told": told}
"""What is measured of each cell beside policies without a predictor, by name."""


def cells_of(settings: PredictionMapSettings) -> Iterator[Cell]:
    """Each base cell, and those that differ from it."""
    for base, given in settings.bases.items():
        yield Cell(base)
        usual = asdict(traffic_of(Cell(base), settings).workload) | given
        for axis, values in settings.axes.get(base, {}).items():
            yield from (Cell(base, axis, value) for value in values if value != usual.get(axis))


def traffic_of(cell: Cell, settings: PredictionMapSettings) -> Traffic:
    """The arrivals of a cell, in as many slots as its bursts need."""
    given = dict(settings.bases[cell.base])
    if cell.value is not None:
        given[cell.axis] = cell.value
    ports, per_port = given.pop("ports"), given.pop("buffer_per_port")
    workload = workload_of(given.pop("workload"), given)
    buffer = ports * per_port
    fields = asdict(workload)
    packets = fields.get("mean_on_slots") or max(1.0, fields.get("burst_fraction", 0) * buffer)  # of a burst
    slots = math.ceil(settings.bursts * packets / (fields["load"] * ports)) if "load" in fields else 0
    return Traffic(workload, ports, buffer, max(settings.slots, slots))


def candidates_of(settings: PredictionMapSettings) -> list[Baseline]:
    """All policies without a predictor, with all alphas."""
    every = [Baseline(policy, alpha) for policy in THRESHOLDS for alpha in sorted(settings.alphas)]
    return [*every, *(Baseline(policy) for policy in WITHOUT_ALPHA)]


def measured(case: Cell, so_far: SoFar, settings: PredictionMapSettings) -> dict[str, Any]:
    """Packets that LQD, each candidate and each predictor sends, by seed."""
    traffic = traffic_of(case, settings)
    policies = [("lqd", SlotParameters())]
    for one in candidates_of(settings):
        policies.append((one.policy, SlotParameters() if one.alpha is None else SlotParameters(alpha=[one.alpha])))

    def sent(seed: int) -> list[int]:
        so_far(f"seed {seed}")
        return packets_sent(traffic.batches(seed), traffic.ports, traffic.buffer, policies)

    seeds = {TRAIN: settings.train_seeds, TEST: settings.test_seeds}
    counts: dict[str, Any] = {role: [sent(seed) for seed in own] for role, own in seeds.items()}
    for name, predictor in PREDICTORS.items():
        so_far(name)
        counts[name] = list(predictor(traffic, settings.train_seeds, settings.test_seeds))
    return counts


def rows_of(case: Cell, counts: Mapping[str, Any], settings: PredictionMapSettings) -> Iterator[dict[str, Any]]:
    """A row for each seed and candidate, and for each test seed and predictor."""
    candidates = candidates_of(settings)
    for role, seeds in ((TRAIN, settings.train_seeds), (TEST, settings.test_seeds)):
        for place, (seed, (lqd, *sent)) in enumerate(zip(seeds, counts[role], strict=True)):
            every = [(one.policy, one.alpha, count) for one, count in zip(candidates, sent, strict=True)]
            if role == TEST:
                every += [(name, None, counts[name][place]) for name in PREDICTORS]
            accept = next(count for policy, _, count in every if policy == "cs")
            for policy, alpha, count in every:
                yield {
                    "cell": case.name,
                    "role": role,
                    "seed": seed,
                    "policy": policy,
                    "alpha": alpha,
                    "sent": count,
                    "sent_by_lqd": lqd,
                    "sent_by_accept": accept,
                    "left": 1 - count / lqd,
                }


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of test seeds of what is compared: each threshold with one alpha and with the cell's own, and the rest.

    Column `chosen` says on whose training seeds: all cells' (``fixed``), the cell's (``tuned``) or nobody's. Policy
    ``best`` is that of all candidates which sends most on the cell's training seeds.
    """
    test = rows[rows["role"] == TEST]
    train = rows[rows["role"] == TRAIN].assign(log=lambda some: np.log(some["sent"] / some["sent_by_lqd"]))
    parts = [test[~test["policy"].isin(THRESHOLDS)].assign(chosen="")]
    means = train[train["policy"].isin(THRESHOLDS)].groupby(["policy", "alpha"])["log"].mean()
    fixed = {policy: means[policy].idxmax() for policy in THRESHOLDS}
    is_fixed = test["alpha"] == test["policy"].map(fixed)
    parts.append(test[is_fixed].assign(chosen="fixed"))
    by_cell = train.assign(alpha=train["alpha"].fillna(-1.0)).groupby(["cell", "policy", "alpha"], sort=False)["log"]
    for (cell, policy, alpha), _ in _largest(by_cell.mean(), ["cell", "policy"]):
        if policy in THRESHOLDS:
            own = (test["cell"] == cell) & (test["policy"] == policy) & (test["alpha"] == alpha)
            parts.append(test[own].assign(chosen="tuned"))
    for (cell, policy, alpha), _ in _largest(by_cell.mean(), ["cell"]):
        own = (test["cell"] == cell) & (test["policy"] == policy)
        own &= test["alpha"].isna() if alpha < 0 else test["alpha"] == alpha
        named = str(Baseline(policy, None if alpha < 0 else alpha))
        parts.append(test[own].assign(chosen="tuned", policy="best", setting=named))
    every = pd.concat(parts)
    alphas = every["alpha"].map(lambda alpha: "" if pd.isna(alpha) else f"alpha {alpha:g}")
    every["setting"] = every["setting"].fillna(alphas)
    order = {cell: place for place, cell in enumerate(dict.fromkeys(rows["cell"]))}
    every = every.sort_values("cell", key=lambda cells: cells.map(order), kind="stable")
    return every.drop(columns=["role", "alpha"]).reset_index(drop=True)


def _largest(means: pd.Series, by: Sequence[str]) -> Iterator[tuple[tuple[str, str, float], float]]:
    """The first of the largest values of each group, with its place."""
    for _, some in means.groupby(level=list(by), sort=False):
        place: Any = some.idxmax()
        yield place, float(some[place])


def show(rows: pd.DataFrame, settings: PredictionMapSettings) -> Shown:
    """What each policy leaves of each cell, and where there is something to win."""
    compared = chosen(rows)
    summary = regimes(
        summary_of(compared, PREDICTORS),
        least_transfer=settings.least_transfer,
        least_left=settings.least_left,
        most_lost=settings.most_lost,
    )
    return Shown(
        compared,
        tables_of(summary, compared, PREDICTORS),
        {"": Drawn(draw(summary), CAPTION, summary)},
        verdict=verdict(summary, compared, settings.least_transfer, settings.least_left, settings.most_lost),
        details={"slots": {cell.name: traffic_of(cell, settings).slots for cell in cells_of(settings)}},
    )


PREDICTION_MAP = PointExperiment(
    settings=PredictionMapSettings,
    kind="prediction_map",
    cases=cells_of,
    name=lambda case: case.name,
    measure=measured,
    rows=rows_of,
    show=show,
    code=("sim_bridge.arrivals.workloads", "sim_bridge.open_loop.slotted"),
    varied=("bases", "axes", "slots", "bursts", "least_transfer", "least_left", "most_lost"),
    depends_on=lambda case, settings: {
        **(traffic := asdict(traffic_of(case, settings))),
        "workload": [settings.bases[case.base]["workload"], traffic["workload"]],
        "plugin": source_sha256(type(traffic_of(case, settings).workload)),
        "predictors": list(PREDICTORS),
    },
)
