"""The same traffic under several policies in the emulator, one run after the other, and beside simulations of ns-3.

Each run has the machine to itself. Beside ns-3 it has the same policies and seeds, hence the same flows, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.emulation import Emulation
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder
from foretail.core.summary import Summarised
from foretail.pipelines.comparison.flows import FlowsResult, check_taus, say_unasked
from foretail.pipelines.comparison.policy_runs import PolicyRun, check_same_flows, policy_run
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    flow_groups,
    interval_text,
    mean_interval,
    paired_difference,
)
from foretail.pipelines.data.emulation import HostCommand, emulated_settings, emulator_simulator
from foretail.pipelines.data.simulation import simulate_flows
from foretail.pipelines.exporting.network import NetworkExport
from foretail.pipelines.exporting.predictor import ExportedPredictor
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.points import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.pipelines.tracking.runs import seen_seeds
from foretail.sim_bridge.emulator.emulator import LATENESS_KINDS, EmulatorRun, Lateness
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


HOST_0_LOG = "host_0.log"
"""In a run's folder: what the command said on host 0; those of the others are named alike."""


@dataclass(frozen=True)
class EmulatedRun:
    """One policy on one seed."""

    flows: PolicyRun  #: its figures, as of a run in ns-3
    is_valid: bool  #: it was not late, and lost nothing outside the network
    why_invalid: str  #: empty when it is valid
    lateness: Mapping[str, Lateness]  #: by kind
    limit_ns: int  #: above it the 99th percentile of a lateness makes the run invalid; virtual
    packets: int  #: that hosts sent
    packets_per_second: float  #: of the clock, through the switches
    cpu_seconds: float  #: of the emulator, and of the hosts' processes
    network_ns: int  #: virtual time that the run took
    kernel: str  #: its release
    exit_code: int | None  #: of the command on host 0, as a shell says it; None without one


@dataclass(frozen=True, repr=False)
class EmulationResult(Summarised):
    """All runs, in the order of the policies and seeds given."""

    runs: tuple[EmulatedRun, ...]
    compared: FlowsResult  #: of the same runs
    base_rtt_ns: int  #: virtual
    emulation: Emulation  #: as it was set
    fidelity: Fidelity | None = None  #: to ns-3, if it was asked for

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            **self.compared.document(),
            "base_rtt_ns": self.base_rtt_ns,
            "emulation": asdict(self.emulation),
            "emulated": [asdict(run) for run in self.runs],
            "fidelity": None if self.fidelity is None else self.fidelity.document(),
        }

    def verdict(self) -> list[str]:
        """Sentences: the result of the comparison, and whether its runs can be believed."""
        late = [run for run in self.runs if not run.is_valid]
        sentences = self.compared.verdict()[:1]
        if self.fidelity is not None:
            sentences = [*sentences, self.fidelity.verdict()]
        if not late:
            return [*sentences, "All runs were in time, so that is what Linux's TCP does in such a network."]
        return [*sentences, f"{len(late)} of {len(self.runs)} runs were late, and say nothing about the network."]

    def tables(self) -> list[Table]:
        """Policies, then how late each run was."""
        first, *others = self.compared.tables()
        notes = (
            f"this machine's {self.emulation.settings()['control']}, {self.emulation.factor} times slower than the "
            f"network; times are the network's, its base round trip {self.base_rtt_ns / 1000:.4g} us",
            *first.notes,
        )
        rows = [
            {
                "policy": run.flows.policy,
                "seed": str(run.flows.seed),
                **{
                    f"{kind} {name}": getattr(run.lateness[kind], f"{name}_ns") / 1000
                    for kind in LATENESS_KINDS
                    for name in ("p50", "p99")
                },
                "limit": run.limit_ns / 1000,
                "valid": "yes" if run.is_valid else "no",
                "packets/s": run.packets_per_second,
            }
            for run in self.runs
        ]
        note = "deliveries to hosts; readings from them, an upper bound; starts of flows; packets/s of the clock"
        lateness = Table.of_rows("Lateness, us of the network", rows, note)
        if self.runs[0].exit_code is not None:  # without flows nothing differs
            return [replace(first, notes=notes), lateness, self._commands()]
        fidelity = [] if self.fidelity is None else self.fidelity.tables()
        return [replace(first, notes=notes), lateness, *fidelity, *others]

    def _commands(self) -> Table:
        rows = [
            {
                "policy": run.flows.policy,
                "seed": str(run.flows.seed),
                "exit code": str(run.exit_code),
                "ms of the network": run.network_ns / 1e6,
                "packets of all hosts": run.packets,
                "what it said": str(Path("runs", run.flows.path.name, HOST_0_LOG)),
            }
            for run in self.runs
        ]
        return Table.of_rows("The command on host 0", rows)


def emulate_policies(
    scenario: Scenario,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    predictor: ExportedPredictor | NetworkExport | None,
    baselines: tuple[str, ...],
    emulation: Emulation,
    folder: Path,
    command: HostCommand | None = None,
) -> EmulationResult:
    """Emulate every policy on every seed into folders of their own below `folder`, with `command` on every host.

    ForetailError where this machine cannot, or a policy asks a threshold that the predictor was not proven for.
    """
    library, emulator = predictor.library if predictor is not None else None, emulator_simulator()
    check_taus(policies, predictor)

    def task(name: str, seed: int, report: Report) -> EmulatedRun:
        document = emulated_settings(
            scenario, policies[name], seed, emulation, trace=False, library=library, command=command
        )
        target = folder / f"{name}_seed_{seed}"
        with staged_folder(target) as staging:
            simulate_flows(document, staging, emulator, report)
        return _emulated(name, seed, EmulatorRun.open(target))

    tasks = {f"{name}, seed {seed}": partial(task, name, seed) for seed in seeds for name in policies}
    runs = tuple(run_jobs(tasks, 1).values())
    check_same_flows([run.flows for run in runs])
    say_unasked(run.flows for run in runs)
    for run in runs:
        if run.exit_code:
            say(
                f"{run.flows.policy}, seed {run.flows.seed}: the command ended with exit code {run.exit_code} on host "
                f"0; {run.flows.path / HOST_0_LOG} has what it said"
            )
        if not run.is_valid:
            say(
                f"{run.flows.policy}, seed {run.flows.seed}, is invalid: {run.why_invalid}; give the machine less to "
                "do, or raise network.factor"
            )
    order = {name: position for position, name in enumerate(policies)}
    runs = tuple(sorted(runs, key=lambda run: (order[run.flows.policy], seeds.index(run.flows.seed))))
    seen = () if predictor is None else tuple(seen_seeds(scenario, seeds))
    compared = FlowsResult(tuple(run.flows for run in runs), baselines, predictor, seen=seen)
    return EmulationResult(runs, compared, scenario.base_rtt_ns, emulation)


def _emulated(name: str, seed: int, run: EmulatorRun) -> EmulatedRun:
    lateness = run.summary["emulation"]
    seconds = run.summary["simulation_wall_seconds"]
    if seconds <= 0:
        raise ForetailError(f"{run.folder} is an emulation that took no time: its scenario plans no flow")
    return EmulatedRun(
        flows=policy_run(name, seed, run),
        is_valid=run.is_valid,
        why_invalid=run.why_invalid,
        lateness=run.lateness,
        limit_ns=lateness["lateness_limit_ns"],
        packets=lateness["packets_read"],
        packets_per_second=lateness["packets_read"] / seconds,
        cpu_seconds=run.summary["simulation_cpu_seconds"] + lateness["host_cpu_seconds"],
        network_ns=run.summary["end_ns"],
        kernel=lateness["kernel"],
        exit_code=lateness["exit_code"],
    )
