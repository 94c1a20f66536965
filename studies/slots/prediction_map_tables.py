"""Summary, tables, figure and verdict of the map of what is left of LQD's packets."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import MARKERS, panels, styled, with_legend
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval, paired_difference
from foretail.pipelines.runs.result import Table

LEFT = {
    "dt_fixed": "DT, one alpha",
    "dt_tuned": "DT, own alpha",
    "abm_tuned": "ABM, own alpha",
    "harmonic": "Harmonic",
    "cs": "CS",
}
"""Columns of the summary that are drawn, in the order of the legend."""
TRANSFER, GAP, NOTHING = "alpha", "gap", "nothing"
CAPTION = (
    "What policies leave of the packets that LQD sends, mean over test seeds with its 95 % interval, a panel for each "
    "base cell; the axis is linear up to 0.1 %."
)


def summary_of(rows: pd.DataFrame, predictors: Iterable[str]) -> pd.DataFrame:
    """A row for each cell: what each policy leaves, in % of LQD's packets, with its interval over seeds."""
    found = []
    for cell, some in rows.groupby("cell", sort=False):
        by_name = some.groupby(_names(some))
        left = {name: dict(zip(own["seed"], 100 * own["left"], strict=True)) for name, own in by_name}
        tuned = some[some["chosen"] == "tuned"].drop_duplicates("policy").set_index("policy")["setting"]
        row = {"cell": cell, **{name: some[name].iloc[0] for name in ("base", "axis", "value")}}
        row |= {f"{policy}_setting": tuned[policy] for policy in tuned.index}
        for name in (*LEFT, "abm_fixed", "best_tuned", *predictors):
            row |= _interval(name, mean_interval(list(left[name].values())))
        row |= _interval("transfer", paired_difference(left["dt_fixed"], left["dt_tuned"]))
        found.append(row)
    return pd.DataFrame(found)


def _names(rows: pd.DataFrame) -> pd.Series:
    return rows["policy"] + rows["chosen"].map(lambda chosen: f"_{chosen}" if chosen else "")


def _interval(name: str, found: PairedDifference) -> dict[str, float | None]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def regimes(summary: pd.DataFrame, *, least_transfer: float, least_left: float, most_lost: float) -> pd.DataFrame:
    """The summary with what is said of each cell: by whole intervals, so nothing where there is none."""
    said = {
        TRANSFER: summary["transfer_low"] >= least_transfer,
        GAP: summary["dt_tuned_low"] >= least_left,
        NOTHING: summary["cs_high"] <= most_lost,
    }
    words = [", ".join(name for name, holds in said.items() if holds[place]) for place in summary.index]
    return summary.assign(**said, best_gap=summary["best_tuned_low"] >= least_left, regime=words)


def tables_of(summary: pd.DataFrame, rows: pd.DataFrame, predictors: Iterable[str]) -> list[Table]:
    """What is left by cell, and the intervals of what matters for the verdict."""
    left = summary.assign(alpha=summary["dt_setting"].str.removeprefix("alpha ").astype(float))
    numbers = [*LEFT, *predictors]
    left[numbers] = left[numbers].round(2)
    titles = {"cell": "cell", "dt_fixed": "DT, one", "dt_tuned": "own", "alpha": "own alpha", "abm_tuned": "ABM, own"}
    titles |= {"harmonic": "Harm.", "cs": "CS", **{name: name for name in predictors}}
    fixed = rows[rows["chosen"] == "fixed"].drop_duplicates("policy")
    one = "; ".join(
        f"{str(policy).upper()} {alpha}" for policy, alpha in zip(fixed["policy"], fixed["setting"], strict=True)
    )
    note = (
        f"One alpha for all cells: {one}; told: Credence told what LQD drops. Means over {rows['seed'].nunique()} test "
        "seeds"
    )
    text = pd.DataFrame({"cell": summary["cell"]})
    for name in ("transfer", "dt_tuned", "best_tuned"):
        text[name] = [_text(row, name) for _, row in summary.iterrows()]
    text["regime"] = summary["regime"]
    columns = {
        "cell": "cell",
        "transfer": "one alpha - own",
        "dt_tuned": "DT, own alpha",
        "best_tuned": "best policy",
        "regime": "where",
    }
    meaning = (
        f"{TRANSFER}: one alpha for all cells does not transfer; {GAP}: the cell's own alpha leaves a gap; {NOTHING}: "
        "nothing is lost by always accepting; best policy: of DT, ABM, Harmonic and CS on the cell's training seeds"
    )
    return [
        Table.of_frame("Left of LQD's packets, %", left, titles, note),
        Table.of_frame("The same with 95 % intervals", text, columns, meaning),
    ]


def _text(row: pd.Series, name: str) -> str:
    mean, high = float(row[name]), row[f"{name}_high"]
    return f"{mean:.2f}" if pd.isna(high) else f"{mean:.2f} \u00b1{high - mean:.2f}"


def verdict(
    summary: pd.DataFrame, rows: pd.DataFrame, least_transfer: float, least_left: float, most_lost: float
) -> list[str]:
    """In which cells a prediction may be worth having."""
    cells = len(summary)
    fixed = rows[(rows["chosen"] == "fixed") & (rows["policy"] == "dt")]["setting"].iloc[0]
    return [
        f"One alpha for all cells ({fixed}) leaves at least {least_transfer:g} % of LQD's packets more than the cell's "
        f"own alpha in {int(summary[TRANSFER].sum())} of {cells} cells{_most(summary, TRANSFER, 'transfer')}.",
        f"The cell's own alpha leaves at least {least_left:g} % in {int(summary[GAP].sum())}"
        f"{_most(summary, GAP, 'dt_tuned')}, and the best policy without a predictor in "
        f"{int(summary['best_gap'].sum())}{_most(summary, 'best_gap', 'best_tuned')}: there a prediction may be worth "
        "having.",
        f"Nothing is lost by always accepting, at most {most_lost:g} %, in {int(summary[NOTHING].sum())} cells.",
    ]


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
                cells.index + 0.13 * (place - len(LEFT) // 2),
                xerr=error,
                fmt=MARKERS[place],
                color=f"C{place}",
                markerfacecolor="none" if place % 2 == 0 else f"C{place}",
                markersize=5,
                linewidth=0.8,
                label=title,
            )
        labels = [base if not row["axis"] else f"{row['axis']} {row['value']:g}" for _, row in cells.iterrows()]
        axes.set_yticks(range(len(cells)), [label.replace("_", " ") for label in labels], fontsize="small")
        axes.set_ylim(len(cells) - 0.4, -0.6)
        axes.axvline(0, color="black", linewidth=0.9, zorder=1)
        starts = [place for place in cells.index[1:] if cells["axis"][place] != cells["axis"][place - 1]]
        for place in starts:
            axes.axhline(place - 0.5, color="0.85", linewidth=0.8, zorder=0)
        axes.set_xscale("symlog", linthresh=0.1)
        axes.set_xticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
        axes.set_xlim(-0.12, 100)
        axes.set(title=base.replace("_", "-"), xlabel="left of LQD's packets, %")
    return with_legend(figure, row[0], "lower center", ncols=len(LEFT))
