"""Figures of an evaluation: SVG and PNG, each with the Parquet file of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from foretail.core.files import staged_folder
from foretail.models.scoring.figure_style import FIGURE_KINDS, legend, panels, styled, with_legend
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.policy_runs import EXCHANGES_FILE, PolicyRun, every_exchange
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, flow_groups, mean_interval
from foretail.sim_bridge.packets.cost import slowdowns
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policy_settings import policy_words

FOLDER = "figures"
CDF_POINTS = 500
BUFFER_AND_DROPS = {
    "occupancy p99 %": ("occupancy_percent.p99", "buffer in use, p99, %"),
    "drops": ("drops", "packets dropped"),
    "timeouts": ("timeouts", "timeouts of flows"),
}
"""Name of the column in the Parquet file -> metric, and title of the panel."""
SLOWDOWNS = {group: (f"slowdown.{group}.p95", f"{group} flows, p95 slowdown") for group in FLOW_GROUPS}
"""The same of another figure."""
_KEY = "A bar is the mean over the seeds, a dot a seed, a whisker the 95 % t interval of the mean."
CAPTIONS = {
    f"{FOLDER}/slowdown_p95": "The slowdown that 95 % of the flows stay below, by policy and class of flows; less is "
    f"better. {_KEY}",
    f"{FOLDER}/buffer_and_drops": f"How full the leaves' buffers were, and what was lost, by policy. {_KEY}",
    f"{FOLDER}/incast_slowdown": "Which share of the incast flows had at most which slowdown, by policy, all seeds "
    "together. A line further to the left is better; where lines meet, policies do the same.",
}
"""Captions of the figures, the one first that tells most."""


def with_figures(result: FlowsResult, run_dir: Path) -> FlowsResult:
    """`result` with its figures drawn into the run folder."""
    files = tuple(f"{FOLDER}/{path.name}" for path in write_figures(result, run_dir))
    return replace(result, files=files, captions=CAPTIONS)


def write_figures(result: FlowsResult, run_dir: Path) -> list[Path]:
    """Write all figures of `result` into ``run_dir/figures`` and return their paths; the folder appears whole."""
    with staged_folder(run_dir / FOLDER, replace=True) as staging:
        numbers = {
            "slowdown_p95": _by_seed(result, SLOWDOWNS),
            "incast_slowdown": _incast_distribution(result),
            "buffer_and_drops": _by_seed(result, BUFFER_AND_DROPS),
        }
        for name, frame in numbers.items():
            _save(DRAW[name](frame), frame, staging / name)
        exchanges = [every_exchange(run.policy, run.seed, PacketRun.open(run.path)) for run in result.runs]
        pd.concat(exchanges, ignore_index=True).to_parquet(staging / Path(EXCHANGES_FILE).name, index=False)
    drawn = [run_dir / f"{stem}.{suffix}" for stem in CAPTIONS for suffix in ("parquet", *FIGURE_KINDS)]
    return [*drawn, run_dir / EXCHANGES_FILE]


def _incast_distribution(result: FlowsResult) -> pd.DataFrame:
    parts = []
    share = np.linspace(0, 1, CDF_POINTS)
    for policy in result.policies:
        pooled = np.concatenate([_incast_slowdowns(run) for run in result.runs if run.policy == policy])
        if len(pooled):
            quantiles = np.quantile(pooled, share)
            parts.append(pd.DataFrame({"policy": policy, "share": share, "slowdown": quantiles}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["policy", "share", "slowdown"])


@styled
def _distribution(frame: pd.DataFrame) -> Figure:
    figure, (axes,) = panels(1, inches=(7.2, 3.6))
    for number, (policy, of_policy) in enumerate(frame.groupby("policy", sort=False)):
        # policies that do the same lie on each other: the later ones are thinner
        width = max(3 - 0.35 * number, 0.8)
        axes.step(
            of_policy["slowdown"], of_policy["share"], where="post", label=policy_words(str(policy)), linewidth=width
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="slowdown of incast flows, all seeds", ylabel="share of flows", ylim=(0, 1))
    return with_legend(figure, axes)


def _by_seed(result: FlowsResult, panels_of: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"policy": run.policy, "seed": run.seed}
            | {name: run.metrics()[metric] for name, (metric, _) in panels_of.items()}
            for run in result.runs
        ]
    ).astype(dict.fromkeys(panels_of, "float64"))


@styled
def _bars(frame: pd.DataFrame, panels_of: Mapping[str, tuple[str, str]]) -> Figure:
    """A panel per metric that has a value, in a row: means as bars with their intervals, seeds as dots."""
    panels_of = {name: panel for name, panel in panels_of.items() if frame[name].notna().any()} or panels_of
    place = {policy: position for position, policy in enumerate(frame["policy"].drop_duplicates())}
    figure, row = panels(len(panels_of), inches=(9, 1.4 + 0.3 * len(place)), grid="x", sharey=True)
    for axes, (name, (_, title)) in zip(row, panels_of.items(), strict=True):
        for policy, values in frame.groupby("policy")[name]:
            interval = mean_interval([None if np.isnan(value) else value for value in values.tolist()])
            if interval.mean is None:
                continue
            axes.barh(place[policy], interval.mean, color="0.82", height=0.7)
            if interval.low is not None and interval.high is not None:
                # nothing here is below 0, whatever an interval says
                axes.plot([max(interval.low, 0), interval.high], [place[policy]] * 2, color="0.35", linewidth=1.2)
        axes.plot(frame[name].to_numpy(), frame["policy"].map(place).to_numpy(), "o", color="C0", markersize=3.5)
        axes.set_xlim(left=0)
        axes.set_title(title)
    shown = (Patch(color="0.82"), Line2D([], [], color="0.35"), Line2D([], [], color="C0", marker="o", linestyle=""))
    names = ("mean over seeds", "its 95 % interval", "a seed")
    legend(figure, shown, names, "lower right", ncols=len(shown))
    row[0].set_yticks(list(place.values()), [policy_words(policy) for policy in place])
    row[0].invert_yaxis()
    return figure


def _incast_slowdowns(run: PolicyRun) -> np.ndarray:
    opened = PacketRun.open(run.path)
    flows = opened.flows()
    return slowdowns(flows, opened.summary["end_ns"])[flow_groups(flows)["incast"]]


DRAW: Mapping[str, Callable[[pd.DataFrame], Figure]] = {
    "slowdown_p95": partial(_bars, panels_of=SLOWDOWNS),
    "incast_slowdown": _distribution,
    "buffer_and_drops": partial(_bars, panels_of=BUFFER_AND_DROPS),
}
"""Draws a figure from the numbers beside it, by their name."""


@styled
def _save(figure: Figure, frame: pd.DataFrame, stem: Path) -> None:
    for kind in FIGURE_KINDS:
        figure.savefig(stem.with_suffix(f".{kind}"))
    frame.to_parquet(stem.with_suffix(".parquet"), index=False)
