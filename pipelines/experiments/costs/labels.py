"""From the costs of branches to labels: what a drop costs, and how much of that chaos makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from foretail.pipelines.experiments.costs.branching import KINDS

SIGNAL_COLUMNS = ("flips", "mean", "low", "high", "spread", "chaos", "signal_to_noise")


def cost_labels(rows: pd.DataFrame, branches: Sequence[Mapping[str, Any]], hold_ns: int, repeats: int) -> pd.DataFrame:
    """Return the drawn arrivals with what dropping each costs, as ``schema.DROP_COSTS_SCHEMA`` has it.

    A branch and a repeat of the run differ by a few ns that cost nothing; what costs of the same decision differ by is
    chaos. Its variance is pooled over all arrivals of the run.

    Parameters
    ----------
    rows : drawn arrivals of one run, by ``drawn_arrivals``
    branches : of all of them, as ``measured_branches`` gives them; the run itself is there once per point
    hold_ns : how long other decisions held, in ns
    repeats : runs with each decision, the run itself among those that keep it
    """
    frame = pd.DataFrame(branches)
    frame["log_cost"] = np.log(frame["cost"].astype(float))
    for kind in KINDS:
        frame[f"log_{kind}"] = np.log(frame[kind].astype(float))
    run = frame[frame["row"].isna()].iloc[0]
    of_row = dict(tuple(frame[frame["row"].notna()].groupby("row")))
    labelled: list[dict[str, Any]] = []
    variances: list[float] = []
    for arrival, accepted in zip(rows["arrival"], rows["accepted"], strict=True):
        here = of_row[arrival]
        kept = pd.concat([run.to_frame().T, here[~here["turned"].astype(bool)]])
        turned = here[here["turned"].astype(bool)]
        dropped, let_in = (turned, kept) if accepted else (kept, turned)
        if repeats > 1:
            variances += [float(side["log_cost"].astype(float).var(ddof=1)) for side in (kept, turned)]
        labelled.append(
            {
                "decisions": int(turned["decisions"].iloc[0]),
                "drop_cost": _difference(dropped, let_in, "log_cost"),
                **{f"drop_cost_{kind}": _difference(dropped, let_in, f"log_{kind}") for kind in KINDS},
                "drop_timeouts": _difference(dropped, let_in, "timeouts"),
            }
        )
    chaos = float(np.sqrt(2 * np.mean(variances) / repeats)) if variances else None
    return rows.assign(**pd.DataFrame(labelled, index=rows.index), hold_ns=hold_ns, repeats=repeats, chaos=chaos)


def _difference(dropped: pd.DataFrame, let_in: pd.DataFrame, column: str) -> float:
    return float(dropped[column].astype(float).mean() - let_in[column].astype(float).mean())


def signal_to_noise(labelled: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return of each group how much the measured costs of drops say.

    Parameters
    ----------
    labelled : rows with ``drop_cost`` and ``chaos``, in log J
    by : columns that make the groups

    Returns
    -------
    DataFrame
        One row per group, with `by` and: flips; mean with its 95 % Student-t interval, in log J; spread, the standard
        deviation of the costs; chaos, what of it chaos alone would give; signal_to_noise, the standard deviation that
        chaos leaves unexplained over chaos, 0 where it explains all, NaN with one repeat.
    """

    def of(group: pd.DataFrame) -> pd.Series[float]:
        costs = group["drop_cost"].to_numpy(float)
        count, mean = len(costs), float(costs.mean())
        spread = float(costs.std(ddof=1)) if count > 1 else np.nan
        half = float(stats.t.ppf(0.975, count - 1)) * spread / np.sqrt(count) if count > 1 else np.nan
        chaos = float(np.sqrt(np.mean(group["chaos"].to_numpy(float) ** 2)))
        signal = float(np.sqrt(max(spread**2 - chaos**2, 0.0))) if count > 1 else np.nan
        ratio = signal / chaos if chaos > 0 else np.nan
        return pd.Series(
            dict(zip(SIGNAL_COLUMNS, (count, mean, mean - half, mean + half, spread, chaos, ratio), strict=True))
        )

    found = pd.DataFrame([{**dict(zip(by, key, strict=True)), **of(group)} for key, group in _groups(labelled, by)])
    return found.astype({"flips": int})


def _groups(labelled: pd.DataFrame, by: Sequence[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    return [(key, group) for key, group in labelled.groupby(list(by), observed=True, sort=True)]


def learning_rows(labelled: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Return what the trees learn of labels with measured chaos, per decision: the gain of dropping, and its weight.

    The gain is in log J. A held flip is as many decisions as it turned, and its chaos is shared by all of them. What is
    left of the spread of single flips is how much decisions differ; both together are what a row does not know.
    """
    decisions = labelled["decisions"].clip(lower=1)
    gain = -labelled["drop_cost"] / decisions
    noise = (labelled["chaos"] / decisions) ** 2
    single = labelled["hold_ns"] == 0
    differ = max(float(labelled.loc[single, "drop_cost"].var() if single.sum() > 1 else 0.0), 0.0)
    differ = max(differ - float(noise[single].mean() if single.any() else 0.0), 0.0)
    floor = float(noise[noise > 0].min()) if (noise > 0).any() else 1.0
    weight = 1 / (noise + differ + floor)
    return gain, weight / weight.mean()
