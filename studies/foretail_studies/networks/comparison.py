"""Policies and transports in a network: as ``foretail evaluate`` compares them, and as sweeps of the native network.

Sweeps set lossless and lossy traffic in one buffer beside what theses say of it (Reverie, IRN), and losses that senders
repair as ns-3 beside those that they repair as Linux.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.sweep import SweepSettings
from foretail.pipelines.comparison.emulation import EmulationResult
from foretail.pipelines.data.simulation import leaf_buffers
from foretail.pipelines.evaluating import evaluate_in_network
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.experiment.sweep import MeasuredRun, SweepExperiment
from foretail.sim_bridge.packets.cost import slowdowns, slowdowns_by_kind


@dataclass
class NetworkSettings(ExperimentSettings, EvaluateConfig):
    """Policies on the same flows in a network."""

    check = EvaluateConfig.check


def show(settings: NetworkSettings, run: Run) -> Shown:
    """Evaluate as the stage does."""
    result = evaluate_in_network(replace(settings, tracking=run.inside(settings.tracking)), run.folder)
    compared = result.compared if isinstance(result, EmulationResult) else result
    rows = pd.DataFrame([{"policy": one.policy, "seed": one.seed, **one.metrics()} for one in compared.runs])
    return Shown.of_stage(result, rows, run.folder)


def slowdown(one: MeasuredRun) -> float:
    """The mean slowdown of all flows."""
    return float(_slowdowns(one).mean())


def fct_us(one: MeasuredRun) -> float:
    """The mean completion time, in us."""
    return float(_fct_us(one).mean())


def fct_p99_us(one: MeasuredRun) -> float:
    """The 99th percentile of completion times, in us."""
    return float(np.percentile(_fct_us(one), 99))


def incast(one: MeasuredRun) -> float | None:
    """The mean slowdown of queries; None without any."""
    queries = slowdowns_by_kind(one.run.flows(), one.run.summary["end_ns"], one.document)["query"]
    return float(queries.mean()) if len(queries) else None


def pauses(one: MeasuredRun) -> int:
    """Pauses of all switches."""
    return sum(of_switch["pauses"] for of_switch in _lossless(one))


def paused_percent(one: MeasuredRun) -> float:
    """The share of their time in which lossless queues at ingress paused their senders, in %."""
    ports = sum(len(switch["port_rates_bps"]) for switch in one.run.summary["switches"])
    queues_ns = max(len(one.document["queues"]["lossless"]) * ports, 1) * int(one.run.summary["end_ns"])
    return float(100 * sum(of_switch["paused_ns"] for of_switch in _lossless(one)) / queues_ns)


def lossless_drops(one: MeasuredRun) -> int:
    """Lossless packets that switches dropped."""
    return sum(of_switch["drops"]["packets"] for of_switch in _lossless(one))


def lossless_p99(one: MeasuredRun) -> float:
    """The 99th percentile of what lossless packets hold of their leaf's buffer, in %."""
    return _buffer_p99(one, lambda samples: samples["lossless_bytes"])


def lossy_p99(one: MeasuredRun) -> float:
    """The 99th percentile of what lossy packets hold of their leaf's buffer, in %."""
    return _buffer_p99(one, lambda samples: samples["occupancy_bytes"] - samples["lossless_bytes"])


def _slowdowns(one: MeasuredRun) -> NDArray[np.float64]:
    return slowdowns(one.run.flows(), one.run.summary["end_ns"])


def _fct_us(one: MeasuredRun) -> NDArray[np.float64]:
    return np.asarray(_slowdowns(one) * one.run.flows()["ideal_fct_ns"] / 1000, np.float64)


def _lossless(one: MeasuredRun) -> list[Any]:
    """Counters of lossless queues, of the switches that have some."""
    return [switch["lossless"] for switch in one.run.summary["switches"] if "lossless" in switch]


def _buffer_p99(one: MeasuredRun, held_bytes: Callable[[NDArray[np.void]], NDArray[np.int64]]) -> float:
    samples, buffers = one.run.occupancy(), leaf_buffers(one.run)
    of_leaves = samples[np.isin(samples["switch"], list(buffers))]
    sizes = np.array([buffers[number] for number in of_leaves["switch"]])
    return float(np.percentile(100 * held_bytes(of_leaves) / sizes, 99))


def lossless_sentences(rows: pd.DataFrame, settings: SweepSettings) -> list[str]:
    """How many lossless packets were lost."""
    return [f"{int(rows['lossless_drops'].sum()):,} lossless packets were dropped in {len(rows):,} runs."]


def recovery_sentences(rows: pd.DataFrame, settings: SweepSettings) -> list[str]:
    """How many timeouts are ns-3's own, and in how many conditions another policy has the least cost."""
    best = rows.groupby(["condition", "way", "variant"])["cost"].mean().unstack().idxmin(axis=1).unstack()
    other = best.index[best["ns3"] != best["linux"]]
    changes = [f"{name}: {best['ns3'][name]} as ns-3, {best['linux'][name]} as Linux" for name in other]
    ns3, linux = (float(rows.loc[rows["way"] == way, "timeouts"].sum()) for way in ("ns3", "linux"))
    return [
        f"{100 * (1 - linux / ns3):.3g} % of ns-3's timeouts are its own." if ns3 else "Nothing timed out as ns-3.",
        f"The policy with the least mean J is the same in {len(best) - len(other)} of {len(best)} conditions"
        + (f"; {'; '.join(changes)}." if changes else "."),
    ]


LOSSLESS_METRICS = {
    "slowdown": slowdown,
    "fct_us": fct_us,
    "fct_p99_us": fct_p99_us,
    "incast": incast,
    "pauses": pauses,
    "paused_percent": paused_percent,
    "lossless_p99": lossless_p99,
    "lossy_p99": lossy_p99,
    "lossless_drops": lossless_drops,
}
NETWORKS = FunctionExperiment(NetworkSettings, show)
LOSSLESS = SweepExperiment(LOSSLESS_METRICS, lossless_sentences)
RECOVERY = SweepExperiment(sentences=recovery_sentences)
