"""From the costs of branches to labels: what a drop costs, and how much of that chaos makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from foretail_studies.costs.branching import KINDS

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

    def of(group: pd.DataFrame) -> dict[str, float]:
        costs = group["drop_cost"].to_numpy(float)
        count, mean = len(costs), float(costs.mean())
        spread = float(costs.std(ddof=1)) if count > 1 else np.nan
        half = float(stats.t.ppf(0.975, count - 1)) * spread / np.sqrt(count) if count > 1 else np.nan
        chaos = float(np.sqrt(np.mean(group["chaos"].to_numpy(float) ** 2)))
        signal = float(np.sqrt(max(spread**2 - chaos**2, 0.0))) if count > 1 else np.nan
        ratio = signal / chaos if chaos > 0 else np.nan
        return dict(zip(SIGNAL_COLUMNS, (count, mean, mean - half, mean + half, spread, chaos, ratio), strict=True))

    groups = labelled.groupby(list(by), observed=True, sort=True)
    return pd.DataFrame([{**dict(zip(by, key, strict=True)), **of(group)} for key, group in groups])


def gains(labelled: pd.DataFrame, clip_percent: float) -> NDArray[np.float64]:
    """Return what dropping gains per decision, in log J: float64[rows].

    A held flip shares its gain among the decisions that it turned. Few labels, where a query found or lost its timeout,
    are hundreds of times the others; within each run and kind of flip, what lies beyond the lowest or highest
    `clip_percent` is set to that percentile.
    """
    gain = -labelled["drop_cost"] / labelled["decisions"].clip(lower=1)
    groups = gain.groupby([labelled[name] for name in ("family", "condition", "policy", "seed", "hold_ns")])
    low, high = (groups.transform("quantile", share) for share in (clip_percent / 100, 1 - clip_percent / 100))
    return np.asarray(gain.clip(low, high), np.float64)
