"""Packets that Credence sends when predictions are right, and when they are wrong.

A point is one sequence of arrivals with one predictor: perfect predictions, a model, or none, where other rules run.
Consistency is what is sent when nobody inverts predictions, robustness the least that is sent when somebody may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.scenario import FeatureArithmetic
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.core.settings import part, seed_setting, setting, share_setting
from foretail.features.catalog import FEATURES, feature
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY, asking_policy, scorer_of
from foretail.models.mlflow.registry import NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.scoring.figure_style import (
    BLACK,
    BLUE,
    GREEN,
    MARKERS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    panels,
    styled,
    with_legend,
)
from foretail.models.scoring.operating_point import at_probability, threshold_probability
from foretail.pipelines.comparison.statistics import mean_interval
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown, axes, measure_cases
from foretail.pipelines.exporting.network import check_inputs
from foretail.pipelines.runs.notes import say_if_unasked
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import load_model
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, SLOT_NS, Slotted, slots_shift
from foretail.sim_bridge.arrivals.workloads import LowerBound, Workload, workload_of
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, labelled_records, slotted_run
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.scores import SENT
from foretail.sim_bridge.open_loop.slotted import Labelled, Predicted, Predictions, flipped, labelled, perfect
from foretail.sim_bridge.policy_settings import SlotParameters
from foretail_studies.engines.worst_cases import search
from foretail_studies.slots.policies import FLIP_SEED, LINE, LQD_RATIO

LINE_COLUMNS = ["predictor", "policy", "alpha", "threshold", "flip_probability"]
"""Columns that distinguish one way to decide from another; NaN where a column does not apply."""
TABLE_RULES = {
    "lqd": "LQD",
    "dt": "DT, best alpha",
    "followlqd": "FollowLQD",
    "cs": "CS",
    "always accept": "always accept",
}
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
    for values, group in rows.groupby(["workload", "proof", *LINE_COLUMNS], sort=False, dropna=False):
        row = dict(zip(["workload", "proof", *LINE_COLUMNS], values, strict=True))
        for name in ("lqd", "optimum"):
            percents = group[f"percent_of_{name}"].tolist()
            interval = mean_interval(percents)
            row |= {f"of_{name}": interval.mean, f"of_{name}_low": interval.low, f"of_{name}_high": interval.high}
            row[f"least_of_{name}"] = min(percents)
        made.append(row | {name: group[name].mean() for name in ("arrivals", "sent", "asked", "predicted_drops")})
    curves = pd.DataFrame(made)
    of_dt = curves[curves["policy"] == "dt"]
    best = of_dt.groupby("workload")["sent"].idxmax()
    return curves.assign(shown=(curves["policy"] != "dt") | curves.index.isin(best))


def is_rule(curves: pd.DataFrame, policy: str) -> pd.Series:
    """Return a mask of the rows of a rule without predictions, as it is shown."""
    return (curves["policy"] == policy) & curves["shown"]


def at_own_threshold(curves: pd.DataFrame, predictor: str, flip: float | None = None) -> pd.DataFrame:
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
        for policy, title in {**TABLE_RULES, "always drop": "always drop"}.items()
    ]
    for alpha in sorted(float(value) for value in curves["alpha"].dropna().unique()):
        ways.append(("dt", f"DT, alpha {alpha:g}", None, curves[curves["alpha"] == alpha]))
    for predictor in predictors_of(curves):
        mine = curves[(curves["predictor"] == predictor) & curves["flip_probability"].isin([0, 1])]
        ways.append((predictor, predictor, None, mine[mine["threshold"].isna()]))
        for threshold in sorted(float(value) for value in mine["threshold"].dropna().unique()):
            ways.append((predictor, f"{predictor} > {threshold:g}", threshold, mine[mine["threshold"] == threshold]))
    made = []
    for predictor, way, limit, group in ways:
        inverted = group["flip_probability"] == 1
        right = group[~inverted & ~group["proof"]]
        row = {"predictor": predictor, "way": way, "threshold": limit}
        row |= {"consistency": right["of_optimum"].mean(), "consistency_of_lqd": right["of_lqd"].mean()}
        for name, told_so in (("robustness", group[~inverted]), ("inverted", group[inverted])):
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
    return [
        _by_workload(curves),
        _by_flips(curves),
        *_by_threshold(curves),
        _table_summary(curves),
        _searched(searched),
    ]


def _by_workload(curves: pd.DataFrame) -> Table:
    """Table of the packets of every workload that each policy sends."""
    rows = []
    for workload, group in curves.groupby("workload", sort=False):
        rules = {name: group[is_rule(group, name)].iloc[0] for name in (*TABLE_RULES, "optimum")}
        others = {title: rules[name] for name, title in TABLE_RULES.items() if name != "lqd"}
        others |= {name: at_own_threshold(group, name, 0.0).iloc[0] for name in predictors_of(curves)}
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
    flips = sorted(at_own_threshold(curves, "perfect")["flip_probability"].unique())
    return _wide(
        curves, f"{SENT}, by the share of predictions that are inverted", flips, "flip_probability", at_own_threshold
    )


def _by_threshold(curves: pd.DataFrame) -> Iterator[Table]:
    thresholds = sorted(curves["threshold"].dropna().unique())
    if not thresholds:
        return

    def at_thresholds(group: pd.DataFrame, predictor: str) -> pd.DataFrame:
        return group[(group["predictor"] == predictor) & group["threshold"].notna() & (group["flip_probability"] == 0)]

    title = f"{SENT}, by the probability from which a model drops"
    yield _wide(curves, title, thresholds, "threshold", at_thresholds)


def _wide(
    curves: pd.DataFrame, title: str, values: list[float], along: str, chosen: Callable[..., pd.DataFrame]
) -> Table:
    """A row per workload and predictor, a column per value."""
    rows: list[tuple[Cell, ...]] = []
    for workload, group in curves.groupby("workload", sort=False):
        for predictor in predictors_of(curves):
            shares = chosen(group, predictor).set_index(along)["of_lqd"]
            if len(shares):
                rows.append((str(workload), predictor, *(float(shares[value]) for value in values)))
    return Table(title, ("workload", "predictor", *(f"{value:g}" for value in values)), tuple(rows))


def _table_summary(curves: pd.DataFrame) -> Table:
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


COLOURS = (BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of the predictors, perfect predictions first."""
RULE_STYLES = {"lqd": "-", "dt": "--", "followlqd": "-.", "cs": ":", "always accept": (0, (5, 1, 1, 1, 1, 1))}
GREY = "0.45"
TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
COLUMNS = 3


@styled
def draw_flips(curves: pd.DataFrame) -> Figure:
    """Draw what is sent by the share of inverted predictions: a panel per workload that is not a proof."""

    def lines(axes: Axes, group: pd.DataFrame) -> None:
        for predictor, style in _styles(curves):
            mine = at_own_threshold(group, predictor).sort_values("flip_probability")
            _line(axes, mine, "flip_probability", label=predictor, **style)
        positive = [flip for flip in group["flip_probability"].unique() if flip > 0]
        axes.set_xscale("symlog", linthresh=min(positive))
        axes.set(xlim=(0, 1.1), xlabel="share of inverted predictions")

    return _panels(curves, lines)


@styled
def draw_thresholds(curves: pd.DataFrame, own: Mapping[str, float]) -> Figure:
    """Draw what is sent by the threshold of the models, as they are and (thin) inverted; a star is a model's `own`."""

    def lines(axes: Axes, group: pd.DataFrame) -> None:
        for predictor, style in _styles(curves):
            mine = group[(group["predictor"] == predictor) & group["threshold"].notna()].sort_values("threshold")
            for flip, more in ((0.0, {"label": predictor}), (1.0, {"linewidth": 0.7, "linestyle": ":"})):
                if len(mine):
                    _line(axes, mine[mine["flip_probability"] == flip], "threshold", **{**style, **more})
            if len(mine):
                star = {**style, "marker": "*", "markersize": 13, "markeredgecolor": "white", "zorder": 4}
                axes.plot([own[predictor]], at_own_threshold(group, predictor, 0.0)["of_optimum"], linestyle="", **star)
        axes.set_xscale("logit")
        axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize="small")
        axes.set_xticks([], minor=True)
        axes.set_xlabel("drop iff the probability exceeds; dotted: inverted")

    return _panels(curves, lines)


@styled
def draw_worst_cases(curves: pd.DataFrame, searched: pd.DataFrame, ports: int) -> Figure:
    """Consistency against robustness; what is sent of the sequences of proofs; the worst that a search found."""
    figure, (summary, proofs, search) = panels(3, inches=(15, 4.6), width_ratios=(1.1, 1.3, 0.7))
    _drawn_summary(summary, curves, ports)
    _draw_proofs(proofs, curves, ports)
    search.plot(searched["ports"], searched["percent_of_optimum"], "o", color=COLOURS[2], label="worst found")
    search.plot(searched["ports"], 100 / searched["ports"], linestyle="--", label="OPT / N", **LINE)
    search.set_xticks(sorted(searched["ports"]))
    search.set(title="searched arrivals and predictions", xlabel="ports N", ylabel="Credence sends, % of the optimum")
    search.set_ylim(0, 100)
    search.legend()
    return with_legend(figure, proofs, "lower center", ncols=8)


def _drawn_summary(axes: Axes, curves: pd.DataFrame, ports: int) -> None:
    summary = summary_of(curves)
    for place, row in enumerate(summary[summary["predictor"] == "rules"].to_dict("records")):
        axes.plot(row["robustness"], row["consistency"], MARKERS[place], color=GREY)  # the markers of the legend
        if row["way"] not in TABLE_RULES.values():
            axes.annotate(row["way"], (row["robustness"], row["consistency"]), (6, 4), textcoords="offset points")
    fixed = summary[summary["predictor"] == "dt"]
    axes.plot(fixed["robustness"], fixed["consistency"], "s--", color=GREY, markersize=3, linewidth=0.8)
    for predictor, style in _styles(curves):
        mine = summary[summary["predictor"] == predictor]
        own, grid = mine[mine["threshold"].isna()], mine[mine["threshold"].notna()].sort_values("threshold")
        axes.plot(grid["robustness"], grid["consistency"], markersize=3, linewidth=0.8, **style)
        axes.plot(own["robustness"], own["consistency"], **{**style, "marker": "*", "markersize": 12})
    axes.axvline(100 / ports, linestyle="--", **LINE)
    axes.axhline(100 / LQD_RATIO, linestyle="-.", **LINE)
    axes.set(
        title="star: own threshold; lines: all thresholds, DT's alphas",
        xlabel="robustness: least sent of any workload, % of the optimum",
        ylabel="consistency: mean sent, % of the optimum",
    )


def _draw_proofs(axes: Axes, curves: pd.DataFrame, ports: int) -> None:
    group = curves[curves["proof"]]
    names = list(dict.fromkeys(group["workload"]))
    spots = {name: place for place, name in enumerate(names)}
    ways: list[tuple[str, pd.DataFrame, dict[str, Any]]] = [
        (title, group[is_rule(group, name)], {"color": GREY}) for name, title in TABLE_RULES.items()
    ]
    for predictor, style in _styles(curves):
        colour = {"color": style["color"]}
        ways.append((predictor, at_own_threshold(group, predictor, 0.0), colour))
        ways.append(
            (f"{predictor}, inverted", at_own_threshold(group, predictor, 1.0), {**colour, "markerfacecolor": "none"})
        )
    for place, (label, rows, style) in enumerate(ways):
        low = 0.35 - 0.7 * place / max(1, len(ways) - 1)
        where = [spots[name] + low for name in rows["workload"]]
        axes.plot(rows["of_optimum"], where, linestyle="", marker=MARKERS[place % len(MARKERS)], label=label, **style)
    axes.axvline(100 / ports, linestyle="--", **LINE)
    axes.axvline(100 / LQD_RATIO, linestyle="-.", **LINE)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize="small")
    axes.set(title="sequences of proofs", xlabel="sent, % of the optimum; lines: OPT / N (dashed), OPT / 1.707")


def _styles(curves: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """Perfect predictions and models with colour and marker."""
    for place, predictor in enumerate(predictors_of(curves)):
        yield predictor, {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def _line(axes: Axes, group: pd.DataFrame, along: str, **style: Any) -> None:
    margins = (group["of_optimum_high"].astype(float) - group["of_optimum"]).fillna(0.0)
    axes.errorbar(
        group[along], group["of_optimum"], yerr=margins, **{"markersize": 3.5, "capsize": 2, "linewidth": 1.2, **style}
    )


def _panels(curves: pd.DataFrame, lines: Callable[[Axes, pd.DataFrame], None]) -> Figure:
    """A panel per workload that is not a proof (all, if every one is) with the rules as level lines."""
    group = curves[~curves["proof"]] if not curves["proof"].all() else curves
    workloads = list(group.groupby("workload", sort=False))
    rows, columns = math.ceil(len(workloads) / COLUMNS), min(COLUMNS, len(workloads))
    figure, grid = panels(columns, rows, inches=(4.2 * columns + 2, 3.1 * rows + 0.4), sharex=True, sharey=True)
    for panel, (workload, rows_of) in zip(grid, workloads, strict=False):
        lines(panel, rows_of)
        for policy, title in TABLE_RULES.items():
            rule = rows_of[is_rule(rows_of, policy)].iloc[0]
            panel.axhline(
                rule["of_optimum"], linestyle=RULE_STYLES[policy], color=GREY, linewidth=1, label=title, zorder=1
            )
        panel.set(title=str(workload), ylabel="sent, % of the optimum")
    for panel in grid[len(workloads) :]:
        panel.set_axis_off()
    return with_legend(figure, grid[0], title="bars: 95 % t intervals")


POINT, SEARCH_POINT = "tradeoff", "tradeoff_search"
RULES, PERFECT = "rules", "perfect"
SEARCH_SEED = 1
GUARANTEES = (
    "Line OPT / 1.707: LQD by the theorem of Antoniadis et al., and Credence with perfect predictions, which then "
    "sends what LQD sends. Line OPT / N: Credence with any predictions (Lemma 2 of its paper, no counterexample so "
    "far) and Complete Sharing",
    "Not drawn: Lemma 1, Theorem 1 and Theorem 2 of Credence, the bounds in eta, have counterexamples (findings.md); "
    "of Dynamic Thresholds and FollowLQD no factor with a constant is known",
)


CAPTIONS = {
    "": "Left: consistency against robustness. Middle: what is sent of the sequences of proofs. Right: the worst that "
    "a search found. Lines are the guarantees.",
    "flips": "What is sent by the share of inverted predictions, a panel per workload that is not a proof.",
    "thresholds": "What is sent by the threshold of the models, as they are and (thin) inverted; a star is a model's "
    "own threshold.",
}


@dataclass
class TradeoffSettings(PointSettings):
    """Consistency against robustness of drop predictions: every workload, seed and predictor is a point."""

    workloads: dict[str, dict[str, Any]] = setting(
        MISSING,
        "Workloads by their names in figures, each as {workload: NAME, PARAMETER: VALUE}; proofs "
        "means the worst cases.",
    )
    ports: int = setting(MISSING, "Number N of ports of the switch.", at_least=2, at_most=32_767)
    buffer_per_port: int = setting(
        MISSING, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=2**20
    )
    slots: int = setting(MISSING, "Number of slots with arrivals.", at_least=1, at_most=2**40)
    seeds: list[int] = seed_setting(MISSING, "Seeds of arrivals and flips, none on which a model trained.")
    flip_probabilities: list[float] = share_setting(
        MISSING, "Shares of predictions that are inverted; 0 and 1 have to be among them."
    )
    thresholds: list[float] = setting(
        MISSING, "Probabilities above which a model drops, beside its own threshold.", above=0, at_most=1 - 2**-53
    )
    alphas: list[float] = setting(MISSING, "Alphas of DT; the best for each workload is shown.", above=0)
    search_ports: list[int] = setting(
        MISSING,
        "Ports of the small switches for which a search looks for the worst predictions.",
        at_least=2,
        at_most=10,
    )
    search_buffer_per_port: int = setting(2, "Packets of buffer per port of these switches.", at_least=1, at_most=64)
    search_restarts: int = setting(MISSING, "Number of sequences that the search grows.", at_least=1, at_most=10**6)
    search_steps: int = setting(MISSING, "Number of changes to each sequence.", at_least=1, at_most=10**9)
    models: list[str] = setting([], "Models beside each other, each as in export.")
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the models' features; average_shift=null means 15, which is 32 slots."
    )

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no workload, or a flip is missing that consistency or robustness needs."""
        super().check(where)
        if not self.workloads:
            raise ForetailError("workloads is empty: name at least one")
        for name, given in self.workloads.items():
            if "workload" not in given:
                raise ForetailError(f"workloads.{name} names no workload: write {{workload: NAME}}")
        if not {0.0, 1.0} <= set(self.flip_probabilities):
            raise ForetailError("flip_probabilities lacks 0 or 1, between which all is shown: add them")
        for name in self.workloads:
            workload_of(*self.parameters(name)).batches(
                self.ports, self.ports * self.buffer_per_port, self.slots, seed=1
            )

    def parameters(self, name: str) -> tuple[str, dict[str, Any]]:
        """The workload of a name, and its parameters."""
        given = dict(self.workloads[name])
        return given.pop("workload"), given


@dataclass(frozen=True)
class TradeoffCase:
    """Arrivals of one workload and seed, and who predicts: ``rules`` (nobody), ``perfect``, or the name of a model."""

    workload: str
    seed: int
    predictor: str


@dataclass(frozen=True)
class SearchCase:
    """A small switch for which the worst arrivals and predictions are sought."""

    ports: int
    buffer: int


def show(settings: TradeoffSettings, run: Run) -> Shown:
    """Measure what the store lacks, and show curves, worst cases and what the search found."""
    models = _models(settings, run.store)
    code = code_digest("features", "models", "sim_bridge")
    switch = {name: getattr(settings, name) for name in ("ports", "buffer_per_port", "slots")}
    measured = measure_cases(
        settings.experiment,
        POINT,
        list(axes(TradeoffCase, settings.workloads, settings.seeds, (RULES, PERFECT, *models))),
        settings,
        name=lambda case: f"{case.workload} seed={case.seed} {case.predictor}",
        depends_on=lambda case: {
            **switch,
            "arrivals": _arrivals_key(settings, case.workload),
            "seed": case.seed,
            "flip_seed": FLIP_SEED + case.seed,
            "predictor": models[case.predictor].sha256 if case.predictor in models else case.predictor,
            **_settings_of(settings, case.predictor),
            "code": code,
        },
        measure=partial(_measured, settings=settings, models=dict(models)),
    )
    sought = measure_cases(
        f"{settings.experiment}: search",
        SEARCH_POINT,
        [SearchCase(ports, ports * settings.search_buffer_per_port) for ports in settings.search_ports],
        settings,
        name=lambda case: f"worst predictions N={case.ports} B={case.buffer}",
        depends_on=lambda case: {**asdict(case), **_search_settings(settings), "code": code},
        measure=partial(_worst, settings=settings),
    )
    rows = judged(measured.rows(lambda case, measurement: measurement), _proofs(settings))
    searched = sought.rows(lambda case, measurement: measurement)
    curves = curves_of(rows)
    below = violations(rows, searched, settings.ports)
    told_to = rows[rows["threshold"].isna() & (rows["flip_probability"] == 0)].groupby("predictor")
    sums = {name: told_to[name].sum().astype(int).to_dict() for name in ("asked", "predicted_drops")}
    say_if_unasked(
        {
            name: (sums["asked"][name], sums["predicted_drops"][name])
            for name, model in models.items()
            if not decides_live(model)  # of the others answers are not counted
        }
    )
    own = {name: threshold_probability(model) for name, model in models.items()}
    figures = {"": Drawn(draw_worst_cases(curves, searched, settings.ports), CAPTIONS[""], curves)}
    figures["flips"] = Drawn(draw_flips(curves), CAPTIONS["flips"])
    if models:
        figures["thresholds"] = Drawn(draw_thresholds(curves, own), CAPTIONS["thresholds"])
    return Shown(
        rows,
        tables_of(curves, searched),
        figures,
        {f"{settings.experiment}_search.csv": searched},
        notes=(
            f"Seeds {', '.join(map(str, settings.seeds))}, brackets are 95 % t intervals; {measured.note}; the search: "
            f"{sought.note}",
            *GUARANTEES,
            f"Points below these lines: {below['below_lqd_ratio']} and {below['below_ports']}",
            "DT has the alpha of the grid that sends most of these very seeds, which favours it; a model keeps the "
            "threshold that it came with",
        ),
        details={
            "seeds": settings.seeds,
            "models": {
                name: {"ensemble_sha256": model.sha256, "threshold_probability": own[name]}
                for name, model in models.items()
            },
            "curves": curves.to_dict("records"),
            "summary": summary_of(curves).to_dict("records"),
            "search": searched.to_dict("records"),
            "violations": below,
        },
    )


TRADEOFF = FunctionExperiment(TradeoffSettings, show)


def _models(settings: TradeoffSettings, store: Store) -> dict[str, Ensemble]:
    """The models by the names of their lines; ForetailError for one that cannot be asked here, or has seen a seed."""
    addresses = settings.models
    shift = AVERAGE_SHIFT if settings.features.average_shift is None else settings.features.average_shift
    models: dict[str, Ensemble] = {}
    for given in addresses:
        model = load_model(given, settings.tracking, store)
        check_inputs(model, settings.features.cell_bytes, shift, "features gives")
        refuse_seen(model, given, settings, store)
        models[_name_of(given, addresses)] = model
    return models


def decides_live(model: Ensemble) -> bool:
    """Return whether a model was trained to decide while the switch runs, or its answers change what it reads."""
    return POLICY in model.origin or any(feature(item.name).state == "real" for item in model.features)


def refuse_seen(model: Ensemble, given: str, settings: TradeoffSettings, store: Store) -> None:
    """Raise ForetailError when the model trained, or got its threshold, on one of the seeds of a shown workload."""
    uri = tracking_uri(settings.tracking.uri, store.folder.parent)
    if not store_exists(uri):
        return
    try:
        origin = lineage(model.sha256, uri)
    except NoLineage:  # what the command says of the model at its end
        return
    for used in origin.datasets:
        for name in settings.workloads:
            for seed in settings.seeds:
                of_seed = f"{used.name} ".partition(f"-{seed} ")
                if used.context != "test" and of_seed[1] and of_seed[0].split(" (")[0] == settings.parameters(name)[0]:
                    raise ForetailError(
                        f"{given} learned from {used.name}, and seed {seed} is to be shown: give other seeds"
                    )


def _name_of(given: str, addresses: list[str]) -> str:
    """Return a model's name: its alias, file or folder where that is unique, else all of its address."""
    short = [_short(other) for other in addresses]
    name = _short(given)
    return name if short.count(name) == 1 and name not in (RULES, PERFECT) else given


def _short(given: str) -> str:
    path = Path(given)
    return given.rpartition("@")[2] if "@" in given else path.parent.name if path.name == "ensemble.json" else path.name


def _workload(settings: TradeoffSettings, name: str) -> Workload:
    return workload_of(*settings.parameters(name))


def _arrivals_key(settings: TradeoffSettings, name: str) -> dict[str, Any]:
    workload = _workload(settings, name)
    return {"name": settings.parameters(name)[0], **asdict(workload), "plugin": source_sha256(type(workload))}


def _settings_of(settings: TradeoffSettings, predictor: str) -> dict[str, Any]:
    if predictor == RULES:
        return {"alphas": sorted(settings.alphas)}
    flips = {"flips": sorted(settings.flip_probabilities)}
    if predictor == PERFECT:
        return flips
    return {**flips, "thresholds": sorted(settings.thresholds), "features": asdict(settings.features)}


def _search_settings(settings: TradeoffSettings) -> dict[str, int]:
    return {"seed": SEARCH_SEED, "restarts": settings.search_restarts, "steps": settings.search_steps}


def _proofs(settings: TradeoffSettings) -> set[str]:
    """Names of workloads that are sequences of proofs."""
    return {name for name in settings.workloads if isinstance(_workload(settings, name), LowerBound)}


def _measured(
    case: TradeoffCase, so_far: SoFar, settings: TradeoffSettings, models: Mapping[str, Ensemble]
) -> list[dict[str, Any]]:
    """One row per policy, threshold and flip: packets sent, questions, and answers to drop."""
    workload, buffer = _workload(settings, case.workload), settings.ports * settings.buffer_per_port

    def batches() -> Iterator[Slotted]:
        for batch in workload.batches(settings.ports, buffer, settings.slots, case.seed):
            so_far("")
            yield batch

    if case.predictor == RULES:
        return list(_rules(_joined(batches()), settings, buffer))
    if case.predictor in models and decides_live(models[case.predictor]):
        return list(_served(models[case.predictor], _joined(batches()), settings, case.seed))
    answers: dict[float | None, Predictions]
    if case.predictor == PERFECT:
        traffic = _labelled(labelled(batches(), settings.ports, buffer))
        answers = {None: perfect}
    else:
        model = models[case.predictor]
        traffic, probability, own = _asked(model, workload, batches(), settings, case.seed)
        answers = {None: _constant(own)}
        answers |= {threshold: _constant(probability > threshold) for threshold in sorted(settings.thresholds)}
    rows = []
    for threshold, predictions in answers.items():
        for flip in sorted(settings.flip_probabilities) if threshold is None else (0.0, 1.0):
            so_far(f"{case.predictor}, flips {flip:g}")
            drops = flipped(flip, FLIP_SEED + case.seed, predictions)(traffic).drop
            rows.append(_row("credence", traffic.arrivals, settings, buffer, drops, threshold=threshold, flip=flip))
    return rows


def _rules(traffic: Slotted, settings: TradeoffSettings, buffer: int) -> Iterator[dict[str, Any]]:
    """Yield rows without a model: the optimum, LQD and drop-tail rules, and Credence with one answer to everything."""
    optimum = late_qd(settings.ports, buffer, traffic.slot, traffic.port)["transmitted"]
    yield {**_empty("optimum"), "arrivals": len(traffic), "sent": optimum}
    for policy in ("lqd", "followlqd", "cs"):
        yield _row(policy, traffic, settings, buffer)
    for alpha in sorted(settings.alphas):
        yield _row("dt", traffic, settings, buffer, alpha=alpha)
    for name, answer in (("always accept", 0), ("always drop", 1)):
        answers = np.full(len(traffic), answer, np.uint8)
        yield _row("credence", traffic, settings, buffer, answers) | {"policy": name}


def _served(model: Ensemble, traffic: Slotted, settings: TradeoffSettings, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a model that decides while the switch runs, under the policy that asks it."""
    shift = settings.features.average_shift
    run = KnownRun.in_slots(
        [traffic],
        settings.ports,
        settings.ports * settings.buffer_per_port,
        cell_bytes=settings.features.cell_bytes,
        average_shift=max(slots_shift(AVERAGE_SHIFT if shift is None else shift), 0),
    )
    for threshold in (None, *sorted(settings.thresholds)):
        scorer = scorer_of(model if threshold is None else at_probability(model, threshold))
        for flip in sorted(settings.flip_probabilities) if threshold is None else (0.0, 1.0):
            sent = run.sent(asking_policy(model), scorer, inverted=flip, draw=FLIP_SEED + seed)
            measurement = {"arrivals": len(traffic), "sent": sent, "threshold": threshold, "flip_probability": flip}
            yield {**_empty(asking_policy(model)), **measurement}


def _row(
    policy: str,
    traffic: Slotted,
    settings: TradeoffSettings,
    buffer: int,
    predictions: NDArray[np.uint8] | None = None,
    *,
    alpha: float | None = None,
    threshold: float | None = None,
    flip: float | None = None,
) -> dict[str, Any]:
    used = SlotParameters().alpha if alpha is None else [alpha]
    ran = slotted(policy, settings.ports, buffer, traffic.slot, traffic.port, predictions, labels=False, alpha=used)
    row = {**_empty(policy), "arrivals": len(traffic), "sent": ran["transmitted"]}
    if predictions is not None:
        is_consulted = ran["asked"].view(np.bool_)
        row |= {
            "asked": int(np.count_nonzero(is_consulted)),
            "predicted_drops": int(np.count_nonzero(predictions[is_consulted])),
        }
    return row | {"alpha": alpha, "threshold": threshold, "flip_probability": flip}


def _empty(policy: str) -> dict[str, Any]:
    names = ("asked", "predicted_drops", "alpha", "threshold", "flip_probability")
    return {"policy": policy, **dict.fromkeys(names)}


def _asked(
    model: Ensemble, workload: Workload, batches: Iterator[Slotted], settings: TradeoffSettings, seed: int
) -> tuple[Labelled, NDArray[np.float64], NDArray[np.bool_]]:
    """The arrivals, the model's probability of each and its own decision, from features as a dataset has them."""
    shift = settings.features.average_shift
    run = slotted_run(
        workload,
        settings.ports,
        settings.buffer_per_port,
        settings.slots,
        seed,
        cell_bytes=settings.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
    )
    columns = [[item.name for item in FEATURES].index(item.name) for item in model.features]
    parts, probability, own = [], [], []
    for records in labelled_records(run, arrivals_in_bytes(batches)):
        x = records["features"][:, columns]
        arrivals = Slotted(records["time_ns"] // SLOT_NS, records["port"].astype(np.int32))
        parts.append(Labelled(arrivals, np.ascontiguousarray(records["lqd_drop"])))
        probability.append(model.probability(x))
        own.append(model.exceeds(x))
    return _labelled(iter(parts)), np.concatenate(probability), np.concatenate(own)


def _joined(batches: Iterator[Slotted]) -> Slotted:
    parts = [*batches]
    if not parts:
        raise ForetailError("the workload sends no packet: raise the slots of the experiment, or its load")
    return Slotted.joined(parts)


def _labelled(batches: Iterator[Labelled]) -> Labelled:
    parts = [*batches]
    return Labelled(_joined(group.arrivals for group in parts), np.concatenate([group.lqd_drop for group in parts]))


def _constant(drop: NDArray[np.bool_]) -> Predictions:
    return lambda batch: Predicted(drop.view(np.uint8))


def _worst(case: SearchCase, so_far: SoFar, settings: TradeoffSettings) -> dict[str, Any]:
    """The worst arrivals and predictions that a search finds for Credence against the optimum."""
    so_far("")
    worst = search("credence", case.ports, case.buffer, **_search_settings(settings))
    optimum, credence = worst.counts["opt"], worst.counts["credence"]
    return {
        "slots": worst.slots,
        "predictions": worst.predictions,
        "optimum": optimum,
        "sent": credence,
        "percent_of_optimum": 100 * credence / optimum,
    }
