"""Tables of the trade-off: what every predictor and rule sends, by workload, flips and threshold, and at worst."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pandas as pd

from foretail.pipelines.comparison.statistics import mean_interval
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.open_loop.scores import SENT
from foretail_studies.slots.arrivals import LQD_RATIO

LINE = ["predictor", "policy", "alpha", "threshold", "flip_probability"]
"""What tells one way of deciding from another; NaN where it does not apply."""
RULES = {"lqd": "LQD", "dt": "DT, best alpha", "followlqd": "FollowLQD", "cs": "CS", "always accept": "always accept"}
"""Beside the predictors, and their titles."""
_ROUNDING = 1e-12


def judged(rows: pd.DataFrame, proofs: Collection[str]) -> pd.DataFrame:
    """The rows with what LQD and the optimum send of the same arrivals, and whether these are those of a proof."""
    place = ["workload", "seed"]
    for name in ("lqd", "optimum"):
        sent = rows[rows["policy"] == name].set_index(place)["sent"].rename(name)
        rows = rows.join(sent, on=place)
        rows[f"percent_of_{name}"] = 100 * rows["sent"] / rows[name]
    numbers = dict.fromkeys(("asked", "predicted_drops", "alpha", "threshold", "flip_probability"), "float64")
    return rows.assign(proof=rows["workload"].isin(list(proofs))).astype(numbers)


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds with 95 % intervals; of DT the best alpha of every workload is marked."""
    made: list[dict[str, Any]] = []
    for values, part in rows.groupby(["workload", "proof", *LINE], sort=False, dropna=False):
        row = dict(zip(["workload", "proof", *LINE], values, strict=True))
        for name in ("lqd", "optimum"):
            percents = part[f"percent_of_{name}"].tolist()
            interval = mean_interval(percents)
            row |= {f"of_{name}": interval.mean, f"of_{name}_low": interval.low, f"of_{name}_high": interval.high}
            row[f"least_of_{name}"] = min(percents)
        made.append(row | {name: part[name].mean() for name in ("arrivals", "sent", "asked", "predicted_drops")})
    curves = pd.DataFrame(made)
    of_dt = curves[curves["policy"] == "dt"]
    best = of_dt.groupby("workload")["sent"].idxmax()
    return curves.assign(shown=(curves["policy"] != "dt") | curves.index.isin(best))


def is_rule(curves: pd.DataFrame, policy: str) -> pd.Series:
    """Where a rule without predictions is, as it is shown."""
    return (curves["policy"] == policy) & curves["shown"]


def told(curves: pd.DataFrame, predictor: str, flip: float | None = None) -> pd.DataFrame:
    """Credence with a predictor at its own threshold: at every flip, or at one."""
    own_threshold = curves[(curves["predictor"] == predictor) & curves["threshold"].isna()]
    return own_threshold if flip is None else own_threshold[own_threshold["flip_probability"] == flip]


def predictors_of(curves: pd.DataFrame) -> list[str]:
    """Perfect predictions and the models, in the order of the settings."""
    return [name for name in dict.fromkeys(curves["predictor"]) if name != "rules"]


def summary_of(curves: pd.DataFrame) -> pd.DataFrame:
    """Consistency and robustness of every rule, and of every predictor at every threshold, in % of the optimum.

    Consistency is the mean over the workloads that are no proof, with predictions as they are. Robustness is the least
    of any workload and seed, with predictions as they are, and with all inverted.
    """
    ways: list[tuple[str, str, float | None, pd.DataFrame]] = [
        ("rules", title, None, curves[is_rule(curves, policy)])
        for policy, title in {**RULES, "always drop": "always drop"}.items()
    ]
    for alpha in sorted(float(value) for value in curves["alpha"].dropna().unique()):
        ways.append(("dt", f"DT, alpha {alpha:g}", None, curves[curves["alpha"] == alpha]))
    for predictor in predictors_of(curves):
        mine = curves[(curves["predictor"] == predictor) & curves["flip_probability"].isin([0, 1])]
        ways.append((predictor, predictor, None, mine[mine["threshold"].isna()]))
        for threshold in sorted(float(value) for value in mine["threshold"].dropna().unique()):
            ways.append((predictor, f"{predictor} > {threshold:g}", threshold, mine[mine["threshold"] == threshold]))
    made = []
    for predictor, way, limit, part in ways:
        inverted = part["flip_probability"] == 1
        right = part[~inverted & ~part["proof"]]
        row = {"predictor": predictor, "way": way, "threshold": limit}
        row |= {"consistency": right["of_optimum"].mean(), "consistency_of_lqd": right["of_lqd"].mean()}
        for name, told_so in (("robustness", part[~inverted]), ("inverted", part[inverted])):
            least = told_so["least_of_optimum"].to_numpy()
            worst = None if not len(least) else told_so.iloc[int(least.argmin())]
            row[name] = None if worst is None else worst["least_of_optimum"]
            row[f"{name}_with"] = None if worst is None else worst["workload"]
        made.append(row)
    return pd.DataFrame(made)


def violations(rows: pd.DataFrame, searched: pd.DataFrame, ports: int) -> dict[str, int]:
    """How many points send less than the guarantees that are drawn: OPT / 1.707 and OPT / N."""
    credence = rows["policy"].isin(["credence", "always accept", "always drop"])
    exact = (rows["predictor"] == "perfect") & (rows["flip_probability"] == 0)
    few = rows["sent"] * (1 + _ROUNDING)
    of_search = searched["sent"] * searched["ports"] < searched["optimum"]
    return {
        "below_lqd_ratio": int((((rows["policy"] == "lqd") | exact) & (few * LQD_RATIO < rows["optimum"])).sum()),
        "below_ports": int(
            ((credence | (rows["policy"] == "cs")) & (few * ports < rows["optimum"])).sum() + of_search.sum()
        ),
    }


def tables_of(curves: pd.DataFrame, searched: pd.DataFrame) -> list[Table]:
    """All tables."""
    return [_by_workload(curves), _by_flips(curves), *_by_threshold(curves), _summary(curves), _searched(searched)]


def _by_workload(curves: pd.DataFrame) -> Table:
    """What everybody sends of every workload."""
    rows = []
    for workload, part in curves.groupby("workload", sort=False):
        rules = {name: part[is_rule(part, name)].iloc[0] for name in (*RULES, "optimum")}
        others = {title: rules[name] for name, title in RULES.items() if name != "lqd"}
        others |= {name: told(part, name, 0.0).iloc[0] for name in predictors_of(curves)}
        rows.append(
            {
                "workload": str(workload),
                "arrivals": int(rules["lqd"]["arrivals"]),
                "LQD sends": int(rules["lqd"]["sent"]),
                "% of OPT": float(rules["lqd"]["of_optimum"]),
                "OPT": float(rules["optimum"]["of_lqd"]),
                "alpha": float(rules["dt"]["alpha"]),
                **{title: _text(row, "lqd") for title, row in others.items()},
            }
        )
    note = "Means over seeds; OPT, the rules and the predictors are in % of LQD, alpha is that of DT"
    return Table.of_rows(f"{SENT}, with predictions as they are", rows, note)


def _by_flips(curves: pd.DataFrame) -> Table:
    flips = sorted(told(curves, "perfect")["flip_probability"].unique())
    return _wide(curves, f"{SENT}, by the share of predictions that are inverted", flips, "flip_probability", told)


def _by_threshold(curves: pd.DataFrame) -> Iterator[Table]:
    thresholds = sorted(curves["threshold"].dropna().unique())
    if not thresholds:
        return

    def at_thresholds(part: pd.DataFrame, predictor: str) -> pd.DataFrame:
        return part[(part["predictor"] == predictor) & part["threshold"].notna() & (part["flip_probability"] == 0)]

    title = f"{SENT}, by the probability from which a model drops"
    yield _wide(curves, title, thresholds, "threshold", at_thresholds)


def _wide(
    curves: pd.DataFrame, title: str, values: list[float], along: str, chosen: Callable[..., pd.DataFrame]
) -> Table:
    """A row per workload and predictor, a column per value."""
    rows: list[tuple[Cell, ...]] = []
    for workload, part in curves.groupby("workload", sort=False):
        for predictor in predictors_of(curves):
            shares = chosen(part, predictor).set_index(along)["of_lqd"]
            if len(shares):
                rows.append((str(workload), predictor, *(float(shares[value]) for value in values)))
    return Table(title, ("workload", "predictor", *(f"{value:g}" for value in values)), tuple(rows))


def _summary(curves: pd.DataFrame) -> Table:
    columns = {
        "way": "who decides",
        "consistency": "consistency",
        "consistency_of_lqd": "the same, % of LQD",
        "robustness": "robustness",
        "robustness_with": "on",
        "inverted": "all inverted",
        "inverted_with": "on",
    }
    note = (
        "Consistency: mean over the workloads that are no proof; robustness: the least of any workload and seed, with "
        "predictions as they are, then with all inverted"
    )
    return Table.of_frame("Consistency and robustness, % of the optimum", summary_of(curves), columns, note)


def _searched(searched: pd.DataFrame) -> Table:
    return Table(
        "Worst arrivals and predictions that a search found for Credence",
        ("N", "B", "slots", "predictions", "optimum", "Credence", "% of OPT", "100 / N"),
        tuple(searched.assign(floor=100 / searched["ports"]).itertuples(index=False, name=None)),
    )


def _text(row: pd.Series, of: str) -> str:
    low, high = row[f"of_{of}_low"], row[f"of_{of}_high"]
    text = f"{row[f'of_{of}']:.4g}"
    return text if pd.isna(low) or low == high else f"{text} [{low:.4g}, {high:.4g}]"
