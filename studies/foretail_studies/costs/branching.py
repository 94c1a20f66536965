"""Which arrivals of a run are decided otherwise in branches, and what the branches cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, STUDY_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import Records
from foretail.pipelines.comparison.cost import run_cost
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Simulator, scratch_run
from foretail.pipelines.families.conditions import Condition
from foretail.pipelines.runs.points import SoFar

PLACE = ["arrival", "time_ns", "switch", "port", "size_bytes", "flow", "flow_class", "accepted"]
KINDS = ("query", "short", "long")
STRATA = ["flow_class", "fill_band", "first_rtt", "accepted"]
"""What draws of arrivals, and tables, keep apart."""
BANDS = {"below a quarter": 0, "to three quarters": 64, "above": 192}
"""Of ``fill``, 255ths of the buffer that are taken: names, and where each begins."""


@dataclass(frozen=True)
class LabelledRun:
    """A run whose decisions are turned."""

    family: str
    condition: str
    policy: str
    seed: int

    @property
    def where(self) -> Condition:
        return Condition(self.family, self.condition)

    def __str__(self) -> str:
        return f"{self.where}: {self.policy}, seed {self.seed}"


@dataclass(frozen=True)
class FlipCase:
    """Branches of a run that one process simulates."""

    run: LabelledRun
    hold_ns: int  #: how long the other decision holds for the port and flow class; 0: for that packet
    part: int  #: its number among those of the run
    rows: tuple[int, ...]  #: arrivals, in order

    def __str__(self) -> str:
        return f"{self.run}, {'held' if self.hold_ns else 'single'} flips, part {self.part + 1}"


@dataclass(frozen=True)
class Branching:
    """Everything that branches are simulated with."""

    scenarios: Mapping[Condition, Scenario]
    policies: Mapping[str, Policy]
    repeats: int
    repeat_ns: int
    simulators: Mapping[Condition, Simulator]
    code: Sequence[str]  #: digests of what computes costs

    def document(self, case: FlipCase) -> dict[str, Any]:
        """The driver's document."""
        plain = driver_config(
            self.scenarios[case.run.where], self.policies[case.run.policy], case.run.seed, trace=False
        )
        return plain | {
            "branches": {
                "rows": list(case.rows),
                "hold_ns": case.hold_ns,
                "repeats": self.repeats,
                "repeat_ns": self.repeat_ns,
                "fork": True,
            }
        }

    def depends_on(self, case: FlipCase) -> dict[str, Any]:
        """Everything that the costs of the branches depend on."""
        return {**self.simulators[case.run.where].depends_on(self.document(case)), "code": self.code}


def measured_branches(case: FlipCase, so_far: SoFar, plan: Branching) -> list[dict[str, Any]]:
    """Simulate a run with its branches; of each branch, the run itself as one without a row, what it cost."""
    document = plan.document(case)
    with scratch_run(document, plan.simulators[case.run.where], so_far) as run:
        whole = {"row": None, "turned": False, "repeat": 0, "decisions": 0}
        return [
            whole | _cost(run.flows(), run.summary["end_ns"], document, case),
            *(
                {name: getattr(branch, name) for name in whole} | _cost(branch.flows(), branch.end_ns, document, case)
                for branch in run.branches()
            ),
        ]


def _cost(flows: Records, end_ns: int, document: Mapping[str, Any], case: FlipCase) -> dict[str, Any]:
    branch_cost = run_cost(flows, end_ns, document)
    if branch_cost.cost is None:
        raise ForetailError(f"{case.run} has no queries, no short and no long flows: lengthen it")
    return {
        "cost": branch_cost.cost,
        **{kind: getattr(branch_cost, kind) for kind in KINDS},
        "timeouts": int(flows["timeouts"].sum()),
    }


def require_losses(run: LabelledRun, flows: Records, drops: int) -> None:
    """Raise ForetailError when a run lost nothing and waited for nothing: there, no decision costs anything."""
    if drops == 0 and not flows["timeouts"].any():
        raise ForetailError(
            f"{run} has no timeouts and no losses, so its decisions tell nothing of what a drop costs: raise its load "
            "or its bursts, or shrink its buffer"
        )


def drawn_arrivals(dataset: Dataset, count: int, seed: list[int]) -> pd.DataFrame:
    """Draw arrivals on which a switch had a choice, the same number of each stratum as far as there are so many.

    An arrival that does not fit cannot be accepted; one that the policy refused counts only if it certainly fits.

    Returns a frame in arrival order: what ``schema.DROP_COSTS_SCHEMA`` says of arrivals, and `STRATA`.
    """
    names = list(dict.fromkeys([*PLACE, *(one.name for one in (*FEATURES, *STUDY_FEATURES))]))
    manifest = dataset.manifest
    frame = dataset.frame(names)
    buffer_bytes = np.array([switch.buffer_bytes for switch in manifest.switches])[frame["switch"]]
    at_most = (frame["occupancy"].astype(np.int64) + 1) * manifest.cell_bytes  # bytes; a cell is counted when full
    frame = frame[frame["accepted"] | (at_most + frame["size_bytes"] <= buffer_bytes)]
    if not len(frame):
        raise ForetailError(f"{dataset.path} has no arrival that a switch could accept or drop: give it data packets")
    starts = list(BANDS.values())
    frame = frame.assign(fill_band=np.digitize(frame["fill"], starts[1:]))
    groups = [group for _, group in frame.groupby(STRATA, observed=True, sort=True)]
    quotas = equal_quotas([len(group) for group in groups], count)
    random = np.random.default_rng(seed)
    drawn = [
        group.iloc[random.choice(len(group), quota, replace=False)].assign(arrivals=len(group) / quota)
        for group, quota in zip(groups, quotas, strict=True)
        if quota
    ]
    return pd.concat(drawn).sort_values("arrival").reset_index(drop=True)


def equal_quotas(sizes: list[int], count: int) -> list[int]:
    """Return how many of each group are drawn: together `count`, or all there are; equally many, or all of a group."""
    quotas = [0] * len(sizes)
    left = min(count, sum(sizes))
    while left:
        open_groups = [place for place, size in enumerate(sizes) if quotas[place] < size]
        share = max(left // len(open_groups), 1)
        for place in open_groups[:left]:
            more = min(share, sizes[place] - quotas[place])
            quotas[place] += more
            left -= more
    return quotas


def parts(run: LabelledRun, hold_ns: int, rows: pd.DataFrame, flips_per_point: int) -> list[FlipCase]:
    """The arrivals of a run as points of at most so many, each with early and late ones."""
    arrivals = rows["arrival"].tolist()
    count = -(-len(arrivals) // flips_per_point)
    return [FlipCase(run, hold_ns, part, tuple(arrivals[part::count])) for part in range(count)]
