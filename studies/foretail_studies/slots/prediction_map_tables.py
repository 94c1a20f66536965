"""Summary, tables, figure and verdict of the map of what is left of LQD's packets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import MARKERS, panels, styled, with_legend
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval, paired_difference
from foretail.pipelines.runs.result import Table

LEFT = {
    "dt_fixed": "DT, one alpha",
    "dt_tuned": "DT, own alpha",
    "predictor": "predictor",
    "abm_tuned": "ABM, own alpha",
    "harmonic": "Harmonic",
    "cs": "CS",
}
"""Columns of the summary that are drawn, in the order of the legend."""
TRANSFER, GAP, PAYS, NOTHING = "alpha", "gap", "pays", "nothing"
CAPTION = (
    "What policies leave of the packets that LQD sends, mean over test seeds with its 95 % interval, a panel for each "
    "base cell; the axis is linear up to 0.1 %."
)


@dataclass(frozen=True)
class Bounds:
    """From where on something is said of a cell, in % of LQD's packets."""

    least_transfer: float  #: what one alpha leaves beyond the cell's own
    least_left: float  #: what the cell's own alpha leaves
    least_won: float  #: what a predictor sends beyond the cell's own alpha
    most_lost: float  #: what always accepting leaves


def summary_of(rows: pd.DataFrame, predictors: Iterable[str]) -> pd.DataFrame:
    """A row for each cell: what each policy leaves, in % of LQD's packets, with its interval over seeds."""
    found = []
    for cell, some in rows.groupby("cell", sort=False):
        by_name = some.groupby(_names(some))
        left = {name: dict(zip(own["seed"], 100 * own["left"], strict=True)) for name, own in by_name}
        tuned = some[some["chosen"] == "tuned"].drop_duplicates("policy").set_index("policy")["setting"]
        row = {"cell": cell, **{name: some[name].iloc[0] for name in ("base", "axis", "value")}}
        row |= {f"{policy}_setting": tuned[policy] for policy in tuned.index}
        learned = some[some["policy"] == "predictor"]["setting"]
        row["predictor_setting"] = learned.iloc[0]
        for name in dict.fromkeys((*LEFT, "abm_fixed", "best_tuned", *predictors)):
            row |= _interval(name, mean_interval(list(left[name].values())))
        row |= _interval("transfer", paired_difference(left["dt_fixed"], left["dt_tuned"]))
        row |= _interval("won", paired_difference(left["dt_tuned"], left["predictor"]))
        found.append(row)
    return pd.DataFrame(found)


def _names(rows: pd.DataFrame) -> pd.Series:
    return rows["policy"] + rows["chosen"].map(lambda chosen: f"_{chosen}" if chosen else "")


def _interval(name: str, found: PairedDifference) -> dict[str, float | None]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def regimes(summary: pd.DataFrame, bounds: Bounds) -> pd.DataFrame:
    """The summary with what is said of each cell: by whole intervals, so nothing where there is none."""
    said = {
        TRANSFER: summary["transfer_low"] >= bounds.least_transfer,
        GAP: summary["dt_tuned_low"] >= bounds.least_left,
        PAYS: summary["won_low"] >= bounds.least_won,
        NOTHING: summary["cs_high"] <= bounds.most_lost,
    }
    words = [", ".join(name for name, holds in said.items() if holds[place]) for place in summary.index]
    return summary.assign(**said, best_gap=summary["best_tuned_low"] >= bounds.least_left, regime=words)


def tables_of(summary: pd.DataFrame, rows: pd.DataFrame, predictors: Iterable[str]) -> list[Table]:
    """What is left by cell, and the intervals of what matters for the verdict."""
    left = summary.assign(alpha=summary["dt_setting"].str.removeprefix("alpha ").astype(float))
    numbers = list(dict.fromkeys((*LEFT, *predictors)))
    left[numbers] = left[numbers].round(2)
    titles = {"cell": "cell", "dt_fixed": "DT, one", "dt_tuned": "own", "alpha": "own alpha"}
    titles |= {"predictor": "predictor", "abm_tuned": "ABM, own", "harmonic": "Harm.", "cs": "CS"}
    titles |= {name: name for name in predictors}
    fixed = rows[rows["chosen"] == "fixed"].drop_duplicates("policy")
    one = "; ".join(
        f"{str(policy).upper()} {alpha}" for policy, alpha in zip(fixed["policy"], fixed["setting"], strict=True)
    )
    note = (
        f"One alpha for all cells: {one}; told: Credence told what LQD drops. Means over {rows['seed'].nunique()} test "
        "seeds"
    )
    text = pd.DataFrame({"cell": summary["cell"]})
    for name in ("transfer", "dt_tuned", "best_tuned", "won"):
        text[name] = [_text(row, name) for _, row in summary.iterrows()]
    text["closed"] = [_closed(row) for _, row in summary.iterrows()]
    text[["learned", "regime"]] = summary[["predictor_setting", "regime"]]
    columns = {
        "cell": "cell",
        "transfer": "one alpha - own",
        "dt_tuned": "DT, own alpha",
        "best_tuned": "best policy",
        "won": "predictor wins",
        "closed": "closes, %",
        "learned": "by",
        "regime": "where",
    }
    meaning = (
        f"{TRANSFER}: one alpha for all cells does not transfer; {GAP}: the cell's own alpha leaves a gap; {PAYS}: "
        f"a predictor that was learned for the cell wins; {NOTHING}: nothing is lost by always accepting; best policy: "
        "of DT, ABM, Harmonic and CS on the cell's training seeds; predictor wins: over the cell's own alpha; closes: "
        "share of what that leaves"
    )
    return [
        Table.of_frame("Left of LQD's packets, %", left, titles, note),
        Table.of_frame("The same with 95 % intervals", text, columns, meaning),
    ]


def _text(row: pd.Series, name: str) -> str:
    mean, high = float(row[name]), row[f"{name}_high"]
    return f"{mean:.2f}" if pd.isna(high) else f"{mean:.2f} \u00b1{high - mean:.2f}"


def _closed(row: pd.Series) -> str:
    """What the predictor closes of what the cell's own alpha leaves, in %, where that is told from nothing."""
    if pd.isna(row["dt_tuned_low"]) or row["dt_tuned_low"] <= 0:
        return "-"
    return interval_text(closed(row), "")


def closed(row: pd.Series) -> PairedDifference:
    """Return what the predictor wins in % of the mean that the cell's own alpha leaves."""
    mean, low, high = (100 * row[name] / row["dt_tuned"] for name in ("won", "won_low", "won_high"))
    return PairedDifference(mean, low, high, 0)


def verdict(summary: pd.DataFrame, rows: pd.DataFrame, bounds: Bounds) -> list[str]:
    """In which cells a prediction is worth having."""
    cells = len(summary)
    fixed = rows[(rows["chosen"] == "fixed") & (rows["policy"] == "dt")]["setting"].iloc[0]
    with_gap = summary[summary[GAP]]
    closes = f", by which it closes {_closed_of(with_gap)} of what that leaves in the cells with a gap"
    return [
        f"One alpha for all cells ({fixed}) leaves at least {bounds.least_transfer:g} % of LQD's packets more than the "
        f"cell's own alpha in {int(summary[TRANSFER].sum())} of {cells} cells{_most(summary, TRANSFER, 'transfer')}.",
        f"The cell's own alpha leaves at least {bounds.least_left:g} % in {int(summary[GAP].sum())}"
        f"{_most(summary, GAP, 'dt_tuned')}, and the best policy without a predictor in "
        f"{int(summary['best_gap'].sum())}{_most(summary, 'best_gap', 'best_tuned')}.",
        f"A predictor that was learned for the cell wins at least {bounds.least_won:g} % over that alpha in "
        f"{int(summary[PAYS].sum())}{_most(summary, PAYS, 'won')}{closes if len(with_gap) else ''}.",
        f"Nothing is lost by always accepting, at most {bounds.most_lost:g} %, in {int(summary[NOTHING].sum())} cells.",
    ]


def _closed_of(cells: pd.DataFrame) -> str:
    shares = 100 * cells["won"] / cells["dt_tuned"]
    return f"{shares.min():.0f} to {shares.max():.0f} %, in the median {shares.median():.0f} %,"


def _most(summary: pd.DataFrame, where: str, what: str) -> str:
    """The cell where it is most, in brackets."""
    some = summary[summary[where]]
    if some.empty:
        return ""
    row = some.iloc[int(some[what].argmax())]
    interval = interval_text(PairedDifference(row[what], row[f"{what}_low"], row[f"{what}_high"], 0), "")
    return f" (most in {row['cell']}: {interval} %)"


@styled
def draw(summary: pd.DataFrame) -> Figure:
    """What policies leave: a panel for each base cell, a line for each of its cells."""
    bases = list(dict.fromkeys(summary["base"]))
    longest = int(summary.groupby("base").size().max())
    size = (4.0 * len(bases) + 1.6, 0.27 * longest + 1.1)
    figure, row = panels(len(bases), inches=size, grid="x", sharex=True)
    for axes, base in zip(row, bases, strict=True):
        cells = summary[summary["base"] == base].reset_index(drop=True)
        for place, (name, title) in enumerate(LEFT.items()):
            error = [cells[name] - cells[f"{name}_low"].fillna(cells[name])]
            error.append(cells[f"{name}_high"].fillna(cells[name]) - cells[name])
            axes.errorbar(
                cells[name],
                cells.index + 0.12 * (place - len(LEFT) // 2),
                xerr=error,
                fmt=MARKERS[place],
                color=f"C{place}",
                markerfacecolor="none" if place % 2 == 0 else f"C{place}",
                markersize=5,
                linewidth=0.8,
                label=title,
            )
        labels = [_label(row) for _, row in cells.iterrows()]
        axes.set_yticks(range(len(cells)), labels, fontsize="small")
        axes.set_ylim(len(cells) - 0.4, -0.6)
        axes.axvline(0, color="black", linewidth=0.9, zorder=1)
        starts = [place for place in cells.index[1:] if cells["axis"][place] != cells["axis"][place - 1]]
        for place in starts:
            axes.axhline(place - 0.5, color="0.85", linewidth=0.8, zorder=0)
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set_xticks([-1, -0.1, 0, 0.1, 1, 10, 100], ["-1", "-0.1", "0", "0.1", "1", "10", "100"])
        axes.set_xlim(min(-0.12, 1.6 * float(summary[list(LEFT)].min().min())), 100)
        axes.set(title=base.replace("_", "-"), xlabel="left of LQD's packets, %")
    return with_legend(figure, row[0], "lower center", ncols=len(LEFT))


def _label(cell: pd.Series) -> str:
    """What tells a cell from the others of its panel."""
    words = cell["axis"] or cell["base"]
    return (words if pd.isna(cell["value"]) else f"{words} {cell['value']:g}").replace("_", " ")
