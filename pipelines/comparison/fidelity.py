"""Emulations beside simulations of ns-3: the same policies and seeds, hence the same flows, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.policy_runs import PolicyRun, check_same_flows
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    flow_groups,
    interval_text,
    mean_interval,
    paired_difference,
)
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.packets.simulation import PacketRun

METRICS = (
    ("cost J", "cost"),
    ("timed out %", "timed_out_percent"),
    ("drops", "drops"),
    ("retransmissions", "retransmissions"),
)
"""Figures in which whole runs are compared: columns of the table, and the metrics behind them."""


@dataclass(frozen=True)
class TimeRatio:
    """Completion times in the emulator over those in ns-3, of the flows that ended without a timeout in both."""

    flows: int
    percent: PairedDifference  #: the geometric mean of a seed's ratios less 1, in %; mean and interval over seeds
    p10: float  #: of all ratios
    p50: float
    p90: float


@dataclass(frozen=True)
class Fidelity:
    """How an emulation differs from a simulation of the same flows."""

    ratios: Mapping[str, Mapping[str, TimeRatio]]  #: by policy and class of flows
    emulated: FlowsResult
    simulated: FlowsResult  #: in ns-3, the same policies and seeds

    @classmethod
    def between(cls, emulated: FlowsResult, simulated: FlowsResult) -> Fidelity:
        """Pair runs by policy and seed; ForetailError if they were not offered the same flows."""
        check_same_flows([*emulated.runs, *simulated.runs])
        beside = {(run.policy, run.seed): run for run in simulated.runs}
        pairs: dict[str, list[tuple[PolicyRun, PolicyRun]]] = {policy: [] for policy in emulated.policies}
        for run in emulated.runs:
            pairs[run.policy].append((run, beside[run.policy, run.seed]))
        return cls({policy: _ratios(runs) for policy, runs in pairs.items()}, emulated, simulated)

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "ratios": {
                policy: {name: asdict(one) for name, one in ratios.items()} for policy, ratios in self.ratios.items()
            },
            "simulated": [{**asdict(run), "metrics": run.metrics()} for run in self.simulated.runs],
            "differences": {
                policy: {metric: asdict(self._difference(policy, metric)) for _, metric in METRICS}
                for policy in self.emulated.policies
            },
        }

    def verdict(self) -> str:
        """Result over all policies, in a sentence."""
        ratios = [one["all"] for one in self.ratios.values() if "all" in one]
        if not ratios:
            return "No flow ended without a timeout both here and in ns-3, so times cannot be compared."
        most = max(ratios, key=lambda one: abs(one.percent.mean or 0))
        return (
            "Flows without a timeout took as long as in ns-3 up to "
            f"{interval_text(most.percent)} % in the geometric mean, over {most.flows:,} flows."
        )

    def tables(self) -> list[Table]:
        """Times of flows, then runs as wholes."""
        times = Table(
            "Completion times, emulator over ns-3",
            ("policy", "class", "flows", "mean less 1, %", "p10", "p50", "p90"),
            tuple(
                (policy, name, one.flows, interval_text(one.percent), one.p10, one.p50, one.p90)
                for policy, ratios in self.ratios.items()
                for name, one in ratios.items()
            ),
            ("of flows without a timeout in both; geometric mean of a seed, then mean and 95 % t interval over seeds",),
        )
        wholes = Table(
            "Emulator, ns-3 and their difference, paired by seed",
            ("policy", "", *(title for title, _ in METRICS)),
            tuple(
                (policy, what, *(interval_text(of(policy, metric), sign) for _, metric in METRICS))
                for policy in self.emulated.policies
                for what, of, sign in (
                    ("emulator", lambda policy, metric: self.emulated.means(metric)[policy], ""),
                    ("ns-3", lambda policy, metric: self.simulated.means(metric)[policy], ""),
                    ("difference", self._difference, "+"),
                )
            ),
        )
        return [times, wholes]

    def _difference(self, policy: str, metric: str) -> PairedDifference:
        return paired_difference(self.emulated.by_seed(policy, metric), self.simulated.by_seed(policy, metric))


def _ratios(pairs: list[tuple[PolicyRun, PolicyRun]]) -> dict[str, TimeRatio]:
    """By class of flows, for those classes of which any flow can be compared."""
    by_class: dict[str, list[NDArray[np.float64]]] = {}
    for emulated, simulated in pairs:
        here, there = PacketRun.open(emulated.path).flows(), PacketRun.open(simulated.path).flows()
        smooth = (here["fct_ns"] > 0) & (there["fct_ns"] > 0) & (here["timeouts"] == 0) & (there["timeouts"] == 0)
        for name, mask in flow_groups(here).items():
            ratio = here["fct_ns"][mask & smooth] / there["fct_ns"][mask & smooth]
            if len(ratio):
                by_class.setdefault(name, []).append(ratio)
    summaries = {}
    for name, ratios in by_class.items():
        p10, p50, p90 = (float(value) for value in np.percentile(np.concatenate(ratios), (10, 50, 90)))
        percent = mean_interval([100 * float(np.expm1(np.log(ratio).mean())) for ratio in ratios])
        summaries[name] = TimeRatio(sum(map(len, ratios)), percent, p10, p50, p90)
    return summaries
