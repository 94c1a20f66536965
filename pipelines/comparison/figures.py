"""Figures of an evaluation: SVG and PNG, each with the Parquet file of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretail.features.digest import DIGEST_FILE
from foretail.features.staging import staged_folder
from foretail.pipelines.comparison.flows import FlowsResult, PolicyRun
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, flow_groups, slowdowns
from foretail.sim_bridge.ns3.driver import DriverRun

FOLDER = "figures"
CDF_POINTS = 500


def write_figures(result: FlowsResult, run_dir: Path) -> list[Path]:
    """Write all figures of `result` into ``run_dir/figures`` and return their paths; the folder appears whole."""
    with staged_folder(run_dir / FOLDER, replace=True) as staging:
        _save(*_slowdown_bars(result), staging / "slowdown_p95")
        _save(*_incast_distribution(result), staging / "incast_slowdown")
        _save(*_buffer_and_drops(result), staging / "buffer_and_drops")
    return sorted(path for path in (run_dir / FOLDER).iterdir() if path.name != DIGEST_FILE)


def _slowdown_bars(result: FlowsResult) -> tuple[Figure, pd.DataFrame]:
    frame = _per_run(result, {group: f"slowdown.{group}.p95" for group in FLOW_GROUPS})
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, group in zip(figure.subplots(1, len(FLOW_GROUPS)), FLOW_GROUPS, strict=True):
        _bars(axes, frame, group, result.policies)
        axes.set_title(f"{group} flows")
    figure.supylabel("p95 FCT slowdown")
    return figure, frame


def _incast_distribution(result: FlowsResult) -> tuple[Figure, pd.DataFrame]:
    parts = []
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    share = np.linspace(0, 1, CDF_POINTS)
    for policy in result.policies:
        pooled = np.concatenate([_incast_slowdowns(run) for run in result.runs if run.policy == policy])
        if not len(pooled):
            continue
        quantiles = np.quantile(pooled, share)
        parts.append(pd.DataFrame({"policy": policy, "share": share, "slowdown": quantiles}))
        axes.step(quantiles, share, where="post", label=policy)
    axes.set_xscale("log")
    axes.set_xlabel("FCT slowdown of incast flows, all seeds")
    axes.set_ylabel("share of flows")
    axes.set_ylim(0, 1)
    if parts:
        axes.legend(fontsize="small")
    columns = ["policy", "share", "slowdown"]
    return figure, pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _buffer_and_drops(result: FlowsResult) -> tuple[Figure, pd.DataFrame]:
    shown = {"occupancy p99 %": "occupancy_percent.p99", "drops": "drops", "timeouts": "timeouts"}
    frame = _per_run(result, shown)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown)), shown, strict=True):
        _bars(axes, frame, name, result.policies)
        axes.set_title(name)
    return figure, frame


def _per_run(result: FlowsResult, metrics: Mapping[str, str]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"policy": run.policy, "seed": run.seed} | {name: run.metrics()[metric] for name, metric in metrics.items()}
            for run in result.runs
        ]
    ).astype(dict.fromkeys(metrics, "float64"))


def _bars(axes: Axes, frame: pd.DataFrame, name: str, policies: Sequence[str]) -> None:
    """Means as bars, seeds as dots."""
    position = {policy: place for place, policy in enumerate(policies)}
    means = frame.groupby("policy")[name].mean()
    axes.bar(list(position.values()), [float(means[policy]) for policy in policies], color="0.8")
    axes.plot(frame["policy"].map(position).to_numpy(), frame[name].to_numpy(), ".", color="C0", markersize=4)
    axes.set_xticks(list(position.values()), list(policies), rotation=60, ha="right", fontsize="small")


def _incast_slowdowns(run: PolicyRun) -> np.ndarray:
    opened = DriverRun.open(run.path)
    flows = opened.flows()
    return slowdowns(flows, opened.summary["end_ns"])[flow_groups(flows)["incast"]]


def _save(figure: Figure, frame: pd.DataFrame, stem: Path) -> None:
    figure.savefig(stem.with_suffix(".svg"))
    figure.savefig(stem.with_suffix(".png"), dpi=150)
    frame.to_parquet(stem.with_suffix(".parquet"), index=False)
