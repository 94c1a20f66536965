"""Labels of what drops cost: branches of runs, what they say, and trees that learn it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, STUDY_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import Records
from foretail.models.drop.predictor import checked_features
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import regressor_from_xgboost
from foretail.pipelines.comparison.cost import run_cost
from foretail.pipelines.comparison.statistics import mean_interval
from foretail.pipelines.data.simulation import Simulator, driver_config, scratch_run
from foretail.pipelines.runs.points import SoFar
from foretail_studies.families import Condition

PLACE = ["arrival", "time_ns", "switch", "port", "size_bytes", "flow", "flow_class", "accepted"]
KINDS = ("query", "short", "long")
STRATA = ["flow_class", "fill_band", "first_rtt", "accepted"]
"""Columns that divide the arrivals into strata, for draws and for tables."""
BANDS = {"below a quarter": 0, "to three quarters": 64, "above": 192}
"""Bands of ``fill`` by name, with the fill at which each begins, in 255ths of the buffer."""
REPEAT_NS = 100
"""Length by which the link of the port grows from one repeat to the next."""
CLIP_PERCENT = 5.0
"""Percentile, at either end, at which the gains of a run are clipped before the trees learn them."""


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
                "repeat_ns": REPEAT_NS,
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


SIGNAL_COLUMNS = ("flips", "mean", "low", "high", "spread", "chaos", "signal_to_noise")


def cost_labels(rows: pd.DataFrame, branches: Sequence[Mapping[str, Any]], hold_ns: int, repeats: int) -> pd.DataFrame:
    """Return the drawn arrivals with what dropping each costs, as ``schema.DROP_COSTS_SCHEMA`` has it.

    In a repeat one link is a little longer under both decisions. What their difference then varies by is chaos. Of one
    arrival it is a rough estimate; its square has the right mean over many.

    Parameters
    ----------
    rows : drawn arrivals of one run, by ``drawn_arrivals``
    branches : of all of them, as ``measured_branches`` gives them; the run itself is there once per point
    hold_ns : how long other decisions held, in ns
    repeats : runs with each decision, the run itself among those that keep it
    """
    frame = pd.DataFrame(branches)
    turned = frame["turned"].astype(bool)
    values = pd.DataFrame(
        {"cost": _logs(frame["cost"]), **{kind: _logs(frame[kind]) for kind in KINDS}, "timeouts": frame["timeouts"]}
    ).assign(row=frame["row"], repeat=frame["repeat"])
    run = values[frame["row"].isna()].iloc[:1]
    labelled = pd.concat([values[~turned & frame["row"].notna()], *(run.assign(row=row) for row in rows["arrival"])])
    index = ["row", "repeat"]
    differences = (
        values[turned].set_index(index).sort_index() - labelled.set_index(index).sort_index()
    )  # turned less kept
    signs = pd.Series(np.where(rows["accepted"], 1.0, -1.0), rows["arrival"])
    means = differences.groupby("row").mean().mul(signs, axis=0).loc[rows["arrival"]]
    variance = differences["cost"].groupby("row").var(ddof=1).loc[rows["arrival"]]
    decisions = frame[turned & (frame["repeat"] == 0)].set_index("row")["decisions"].loc[rows["arrival"]]
    return rows.assign(
        hold_ns=hold_ns,
        repeats=repeats,
        decisions=decisions.to_numpy(),
        drop_cost=means["cost"].to_numpy(),
        chaos=np.sqrt(variance.to_numpy() / repeats),  # NaN with one repeat
        **{f"drop_cost_{kind}": means[kind].to_numpy() for kind in KINDS},
        drop_timeouts=means["timeouts"].to_numpy(),
    )


def _logs(values: pd.Series[Any]) -> NDArray[np.float64]:
    return np.asarray(np.log(values.to_numpy(float)))


def signal_to_noise(labelled: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return of each group how much the measured costs of drops say.

    One row per group, with `by` and: flips; mean with its 95 % Student-t interval, in log J; spread, the standard
    deviation of the costs; chaos, what of it chaos alone would give; signal_to_noise, the standard deviation that chaos
    leaves unexplained over chaos, 0 where it explains all, NaN with one repeat.

    Parameters
    ----------
    labelled : rows with ``drop_cost`` and ``chaos``, in log J
    by : columns that make the groups
    """

    def of(group: pd.DataFrame) -> dict[str, float | None]:
        costs = group["drop_cost"].to_numpy(float)
        count, interval = len(costs), mean_interval(costs.tolist())
        spread = float(costs.std(ddof=1)) if count > 1 else np.nan
        chaos = float(np.sqrt(np.mean(group["chaos"].to_numpy(float) ** 2)))
        signal = float(np.sqrt(max(spread**2 - chaos**2, 0.0))) if count > 1 else np.nan
        ratio = signal / chaos if chaos > 0 else np.nan
        ends = (interval.mean, interval.low, interval.high)
        return dict(zip(SIGNAL_COLUMNS, (count, *ends, spread, chaos, ratio), strict=True))

    groups = labelled.groupby(list(by), observed=True, sort=True)
    return pd.DataFrame([{**dict(zip(by, key, strict=True)), **of(group)} for key, group in groups])


def gains(labelled: pd.DataFrame, clip_percent: float = CLIP_PERCENT) -> NDArray[np.float64]:
    """Return what dropping gains per decision, in log J: float64[rows].

    A held flip shares its gain among the decisions that it turned. Few labels, where a query found or lost its timeout,
    are hundreds of times the others; within each run and kind of flip, what lies beyond the lowest or highest
    `clip_percent` is set to that percentile.
    """
    gain = -labelled["drop_cost"] / labelled["decisions"].clip(lower=1)
    groups = gain.groupby([labelled[name] for name in ("family", "condition", "policy", "seed", "hold_ns")])
    low, high = (groups.transform("quantile", share) for share in (clip_percent / 100, 1 - clip_percent / 100))
    return np.asarray(gain.clip(low, high), np.float64)


def fit_cost_trees(
    x: npt.ArrayLike,
    gain: npt.ArrayLike,
    features: Sequence[FeatureInput],
    *,
    trees: int,
    depth: int,
    learning_rate: float,
    fewest_rows: int,
    seed: int,
) -> Ensemble:
    """Return boosted trees whose exact sum is the gain of dropping; a packet is dropped where it is above 0.

    ForetailError without XGBoost, or on rows or gains of another shape or range.

    Parameters
    ----------
    x : integer array [rows, features], in ``[0, 2**24)``
    gain : float array [rows], finite: how much less a run costs when the packet is dropped
    features : the columns of `x`, in order
    trees, depth, learning_rate : number of trees, comparisons in each, what of a tree counts
    fewest_rows : least rows in a leaf
    seed : same seed and rows, same trees
    """
    columns = checked_features(x)
    gains = np.asarray(gain, np.float64)
    if gains.shape != (len(columns),) or not np.isfinite(gains).all():
        raise ForetailError(f"the gains have shape {gains.shape}: pass {len(columns)} finite numbers, one for each row")
    import xgboost

    unit = 2.0 ** np.ceil(
        np.log2(max(np.abs(gains).max(), 2.0**-60))
    )  # a power of two, so that the leaves scale exactly
    booster = xgboost.train(
        {
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "tree_method": "exact",
            "max_depth": depth,
            "learning_rate": learning_rate,
            "min_child_weight": fewest_rows,
            "lambda": 1.0,
            "seed": seed,
            "nthread": 1,  # more would add in an order of their own
        },
        xgboost.DMatrix(columns.astype(np.float32), label=gains / unit, nthread=1),
        trees,
    )
    read = regressor_from_xgboost(booster, features)
    grown = tuple(replace(tree, value=tree.value * unit) for tree in read.trees)
    origin = {**read.origin, "predictor": "cost_trees", "rows": len(columns), "arithmetic": "float32"}
    return replace(read, trees=grown, base=read.base * unit, threshold=Fraction(0), origin=origin)
