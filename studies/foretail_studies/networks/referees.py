"""The same plans of flows in every network: Foretail's own TCP as ns-3 and as Linux, ns-3's, this machine's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.emulation import Emulation, require_emulated
from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.code import code_digest
from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError
from foretail.core.settings import seed_setting, setting
from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.data.emulation import emulated_settings, emulator_simulator
from foretail.pipelines.data.simulation import (
    Simulator,
    driver_config,
    native_simulator,
    ns3_simulator,
    scratch_run,
    simulate_flows,
)
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown, measure_cases
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.emulator.emulator import EmulatorRun, why_not_here
from foretail_studies.networks.differences import first_event

NATIVE, NATIVE_LINUX, NS3, EMULATOR = "native", "native_linux", "ns3", "emulator"
SIMULATED = (NATIVE, NATIVE_LINUX, NS3)
CONTROLS = {"newreno": "reno"}
"""Congestion controls that Linux calls otherwise."""
SHOWN = {
    "incast p50": "slowdown.incast.p50",
    "incast p95": "slowdown.incast.p95",
    "short p95": "slowdown.short.p95",
    "long p95": "slowdown.long.p95",
    "cost J": "cost",
    "timed out %": "timed_out_percent",
    "timeouts": "timeouts",
}
"""Columns of the table, and the metrics of ``foretail evaluate`` behind them."""
WAITED, RATIO = "waited_percent", "emulator_over_it"
UNDONE = ("spurious_timeouts", "undone_reductions")
"""Counts in an emulation's summary of timeouts and reductions that the kernel's TCP found to be needless."""
DIGITS = 12
"""Length of a hash in the table."""


@dataclass
class RefereeSettings(PointSettings):
    """Named scenarios, each with a policy, in several networks."""

    shared: list[str] = setting([], "Overrides of foretail train that all scenarios share.")
    scenarios: dict[str, list[str]] = setting(
        MISSING, "Overrides of foretail train that name scenario and policy, by the scenario's name."
    )
    networks: list[str] = setting(
        [*SIMULATED, EMULATOR],
        "Networks that run, native among them; native_linux repairs losses as Linux, and begins with slow start as it.",
        one_of=(*SIMULATED, EMULATOR),
    )
    factor: int = setting(
        1500, "Nanoseconds of this machine's clock per nanosecond of an emulated network.", at_least=1, at_most=10**6
    )
    seeds: list[int] = seed_setting(MISSING, "Traffic seeds of every scenario.")

    def check(self, where: str) -> None:
        """Raise ForetailError without the network that is judged."""
        super().check(where)
        if NATIVE not in self.networks:
            raise ForetailError("networks lacks native, with which the others are compared: add it")

    @cached_property
    def composed(self) -> dict[str, TrainConfig]:
        """Scenario and policy by name; ForetailError when one cannot be composed."""
        return {
            name: compose_settings(TrainConfig, [*self.shared, *overrides], f"scenarios.{name}")
            for name, overrides in self.scenarios.items()
        }

    @cached_property
    def simulators(self) -> dict[str, Simulator]:
        """The simulator of each network."""
        native = native_simulator()
        return {
            NATIVE: native,
            NATIVE_LINUX: native,
            NS3: ns3_simulator(self.ns3_prefix),
            EMULATOR: emulator_simulator(),
        }

    def emulation(self, scenario: str) -> Emulation:
        """How a scenario is emulated: with the congestion control that it names."""
        name = self.composed[scenario].scenario.transport.name
        return Emulation(factor=self.factor, control=CONTROLS.get(name, name))

    def document(self, case: RefereeCase) -> dict[str, Any]:
        """The settings document of a run."""
        scenario = self.composed[case.scenario].scenario
        ((_, policy),) = self.composed[case.scenario].policy.items()
        if case.network == EMULATOR:
            return emulated_settings(scenario, policy, case.seed, self.emulation(case.scenario), trace=False)
        if case.network == NATIVE_LINUX:
            scenario = replace(scenario, transport=replace(scenario.transport, recovery="linux", slow_start=True))
        return driver_config(scenario, policy, case.seed, trace=False)

    def why_not_emulated(self, scenario: str) -> str | None:
        """Why the emulator does not run a scenario, here or at all; None where it does."""
        emulation = self.emulation(scenario)
        try:
            require_emulated(self.composed[scenario].scenario, emulation, "emulation")
        except ForetailError as error:
            return str(error).partition(":")[0]  # what to change is for another command
        return why_not_here(control=emulation.control)


@dataclass(frozen=True)
class RefereeCase:
    """A run."""

    scenario: str
    seed: int
    network: str

    def __str__(self) -> str:
        return f"{self.scenario} in {self.network}, seed {self.seed}"


def measured(case: RefereeCase, so_far: SoFar, settings: RefereeSettings) -> dict[str, Any]:
    """Run a case; figures of its flows, hashes of what was offered and of what became of it, and CPU seconds."""
    with scratch_run(settings.document(case), settings.simulators[case.network], so_far) as run:
        result = policy_run(case.scenario, case.seed, run)
        metrics = result.metrics()
        emulated = run.summary["emulation"] if isinstance(run, EmulatorRun) else {}
        flows = run.flows()
        completed = flows["fct_ns"] >= 0
        started = flows["start_ns"] >= 0
        longest_ns = flows["ideal_fct_ns"] + run.settings()["transport"]["min_rto_ns"]
        waited = started & (~completed | (flows["fct_ns"] >= longest_ns))
        return {
            **{metric: metrics[metric] for metric in SHOWN.values()},
            WAITED: 100 * float(waited.sum()) / max(int(started.sum()), 1),
            "prompt_fct_ns": np.where(waited, -1, flows["fct_ns"]).tolist(),
            "offered_sha256": result.flows_sha256,
            "flows_sha256": file_digest(run.folder / "flows.bin"),
            "cpu_seconds": result.cpu_seconds + emulated.get("host_cpu_seconds", 0.0),
            "why_invalid": emulated.get("why_invalid", ""),
            **{count: emulated.get(count) for count in UNDONE},
        }


def show(settings: RefereeSettings, run: Run) -> Shown:
    """Run every scenario in every network that has it, and set them beside each other."""
    reasons = {name: settings.why_not_emulated(name) for name in settings.scenarios if EMULATOR in settings.networks}
    simulated = [network for network in SIMULATED if network in settings.networks]
    cases = [
        RefereeCase(scenario, seed, network)
        for scenario in settings.scenarios
        for networks in (simulated, [EMULATOR] if reasons.get(scenario, "") is None else [])
        for seed in settings.seeds
        for network in networks
    ]
    measurements: dict[RefereeCase, Any] = {}
    for jobs, emulated in ((settings.jobs, False), (1, True)):  # what is emulated has the clock to itself
        done = measure_cases(
            settings.experiment,
            "referees",
            [case for case in cases if (case.network == EMULATOR) == emulated],
            replace(settings, jobs=jobs),
            name=str,
            depends_on=lambda case: {
                **settings.simulators[case.network].depends_on(settings.document(case)),
                "code": code_digest(policy_run, measured),
            },
            measure=partial(measured, settings=settings),
        )
        measurements |= dict(zip(done.cases, done.measurements, strict=True))
    rows = pd.DataFrame([{**asdict(case), **measurements[case]} for case in cases])
    _require_same_plans(rows)
    rows[RATIO] = _ratios(rows)
    rows = rows.drop(columns="prompt_fct_ns")
    not_run = {name: reason for name, reason in reasons.items() if reason is not None}
    late = rows[rows["why_invalid"] != ""]
    notes = [
        *(f"not emulated: {name}: {reason}" for name, reason in not_run.items()),
        *(f"late: {row.scenario}, seed {row.seed}: {row.why_invalid}" for row in late.itertuples()),
        *(
            f"the kernel took back: {row.scenario}, seed {row.seed}: {row.spurious_timeouts:.0f} timeouts that were "
            f"needless (F-RTO), {row.undone_reductions:.0f} reductions of windows in all"
            for row in rows[rows["network"] == EMULATOR].itertuples()
        ),
    ]
    return Shown(
        rows, [_table(rows, settings)], notes=notes, verdict=_verdict(rows, settings, len(reasons), len(not_run))
    )


REFEREES = FunctionExperiment(RefereeSettings, show)


def _require_same_plans(rows: pd.DataFrame) -> None:
    """Raise ForetailError when two networks were offered different flows."""
    for (scenario, seed), runs in rows.groupby(["scenario", "seed"]):
        if runs["offered_sha256"].nunique() > 1:
            networks = ", ".join(runs["network"])
            raise ForetailError(f"{networks} were offered different flows in {scenario}, seed {seed}: that is a defect")


def _ratios(rows: pd.DataFrame) -> list[float]:
    """Geometric mean of the emulator's completion times over a run's, of flows that waited for a timeout in neither."""
    emulated = rows[rows["network"] == EMULATOR].set_index(["scenario", "seed"])["prompt_fct_ns"]

    def ratio(scenario: str, seed: int, prompt_fct_ns: list[int]) -> float:
        if (scenario, seed) not in emulated.index:
            return float("nan")
        times = np.array([emulated[scenario, seed], prompt_fct_ns], float)
        times = times[:, (times > 0).all(axis=0)]
        return float(np.exp(np.log(times[0] / times[1]).mean()))

    return [ratio(*run) for run in zip(rows["scenario"], rows["seed"], rows["prompt_fct_ns"], strict=True)]


def _table(rows: pd.DataFrame, settings: RefereeSettings) -> Table:
    groups = rows.assign(late=rows["why_invalid"] != "").groupby(["scenario", "network"], sort=False)
    sums = groups[["cpu_seconds", "late"]].sum()
    means = groups[[*SHOWN.values(), WAITED, RATIO]].mean()
    shown = pd.concat([means, groups["flows_sha256"].agg(_together), sums], axis=1)
    shown = shown.reset_index()
    titles = {"scenario": "scenario", "network": "network", **{metric: title for title, metric in SHOWN.items()}}
    return Table.of_frame(
        "The same flows in every network",
        shown,
        {
            **titles,
            WAITED: "waited %",
            RATIO: "emulator / it",
            "flows_sha256": "hash of flows",
            "cpu_seconds": "CPU s",
            "late": "late runs",
        },
        f"FCT slowdown; means over the seeds {', '.join(map(str, settings.seeds))}, and CPU seconds of all of them",
        "waited: flows that took longer than alone by a smallest retransmission timeout, or were not delivered; "
        "emulator / it: geometric mean of the emulator's completion times over this network's, other flows; "
        "networks with one hash ended every flow at the same time, with as many retransmissions and timeouts",
    )


def _together(hashes: pd.Series[str]) -> str:
    """One short hash for those of all seeds."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:DIGITS]


def _verdict(rows: pd.DataFrame, settings: RefereeSettings, emulated: int, not_run: int) -> list[str]:
    """Say whether native and ns-3 agree, where they first differ if not, and how many scenarios were emulated."""
    sentences = []
    by_network = {str(name): runs.set_index(["scenario", "seed"]) for name, runs in rows.groupby("network")}
    if NS3 in by_network:
        native, ns3 = by_network[NATIVE], by_network[NS3]
        other = native.index[native["flows_sha256"] != ns3.loc[native.index, "flows_sha256"]]
        ratio = ns3["cpu_seconds"].sum() / native["cpu_seconds"].sum()
        sentences.append(
            f"ns-3 ended every flow as the native network did in {len(native) - len(other)} of {len(native)} runs, in "
            f"{ratio:.3g} times the CPU time."
        )
        sentences += [_first_event(RefereeCase(scenario, seed, NATIVE), settings) for scenario, seed in other[:1]]
    if emulated:
        sentences.append(f"The emulator ran {emulated - not_run} of {emulated} scenarios.")
    return sentences


def _first_event(case: RefereeCase, settings: RefereeSettings) -> str:
    networks = {name: partial(_run, simulator=settings.simulators[name]) for name in (NS3, NATIVE)}
    with TemporaryDirectory() as folder:
        difference = first_event(settings.document(case), Path(folder), networks)
    return f"{case.scenario}, seed {case.seed}, differs first in {difference}."


def _run(document: Mapping[str, Any], folder: Path, simulator: Simulator) -> Any:
    return simulate_flows(document, folder, simulator, lambda done, words: None)
