"""How much faster the native network is than ns-3, in how much less memory, and what a trace costs on top of its run.

Both networks write the same bytes.

Every round runs both on the same traffic, one after the other; figures are medians over the rounds, with the range of
the ratio. A row is printed when its rounds are done. The time is that of the simulation, without the start of the
process. Some rows alone, in more rounds::

    python -m benchmarks.native_speed --rounds 9 "lqd, trace" dataset
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.ns3_speed import cpu_seconds, trained_forest
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.driver import NATIVE, run_native, write_trace
from foretail.sim_bridge.ns3.driver import build_driver

ROUNDS = {"small": 1, "full": 5}
LEAFSPINE = {"small": "tiny", "full": "leafspine_small"}
TRAFFIC_NS = {"small": 2_000_000, "full": 20_000_000}
OF_256_SERVERS_NS = {"small": 100_000, "full": 2_000_000}


@dataclass(frozen=True)
class Case:
    """A run that both networks do; `scenario` is that of LEAFSPINE unless it has a name."""

    policy: Policy
    scenario: str | None = None
    overrides: tuple[str, ...] = ()
    trace: bool = False

    def document(self, size: str, folder: Path) -> dict[str, Any]:
        """The driver's document; a forest is trained in `folder`."""
        traffic_ns = OF_256_SERVERS_NS if self.scenario == "paper" else TRAFFIC_NS
        scenario = scenario_of(self.scenario or LEAFSPINE[size], traffic_ns[size], *self.overrides)
        policy = self.policy
        if policy.predictor == "library":
            policy = replace(policy, library=str(trained_forest(scenario, folder)))
        return driver_config(scenario, policy, 1, trace=self.trace)


CASES = {
    **{name: Case(Policy(name)) for name in ("lqd", "dt", "cs", "followlqd")},
    "credence, forest": Case(Policy("credence", predictor="library")),
    "lqd, trace": Case(Policy("lqd"), trace=True),
    "powertcp, lqd": Case(Policy("lqd"), overrides=("scenario.transport.name=powertcp",)),
    **{f"{name}, lqd": Case(Policy("lqd"), scenario=name) for name in ("elephants", "star", "paper")},
}
DATASET = "dataset"  # the rows on what a trace and its dataset cost
WAYS = ("bare run", "with a trace", "with a trace and its dataset")


def main(size: str, chosen: Collection[str] = (), rounds: int | None = None) -> None:
    """Print leaf data packets per CPU second in both networks, their ratio, and the most memory of each."""
    rounds = rounds or ROUNDS[size]
    cases = {name: case for name, case in CASES.items() if name in chosen or not chosen}
    if cases:
        programs = {"ns-3": build_driver(), "native": NATIVE.build()}
        _print(f"Leaf data packets per CPU second, medians of {rounds} interleaved rounds")
        _print("run", "ns-3", "native", "native / ns-3", "(range)", "ns-3 MB", "native MB")
        with tempfile.TemporaryDirectory() as folder:
            for name, case in cases.items():
                _compare(name, case.document(size, Path(folder)), programs, rounds)
    if DATASET in chosen or not chosen:
        _trace_costs(size, rounds)


def _trace_costs(size: str, rounds: int) -> None:
    """Print CPU time of a run with a trace, and with a dataset made of it, over that of the bare run."""
    bare, traced = (Case(Policy("lqd"), trace=trace).document(size, Path()) for trace in (False, True))
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds + 1):
        for way, seconds in spent.items():
            with tempfile.TemporaryDirectory() as name:
                started, folder = cpu_seconds(), Path(name)
                run = run_native(bare if way == WAYS[0] else traced, folder)
                if way == WAYS[2]:
                    write_trace(run, traced, folder / "dataset", scenario=traced)
                if turn > 0:  # the first one imports what writes datasets
                    seconds.append(cpu_seconds() - started)
    arrivals = run.summary["arrivals"]  # of a trace, which the last run has
    _print(f"CPU time in the native network, {LEAFSPINE[size]}, medians of {rounds} interleaved rounds")
    _print("run", "seconds", "arrivals / s", "/ bare run", "(range)")
    for way, seconds in spent.items():
        ratios = [mine / base for mine, base in zip(seconds, spent[WAYS[0]], strict=True)]
        spread, median = f"{min(ratios):.2f} to {max(ratios):.2f}", statistics.median(seconds)
        _print(way, f"{median:.3f}", f"{arrivals / median:,.0f}", f"{statistics.median(ratios):.2f}", spread)


def _compare(name: str, document: Mapping[str, Any], programs: Mapping[str, Path], rounds: int) -> None:
    speeds: dict[str, list[float]] = {network: [] for network in programs}
    megabytes = dict.fromkeys(programs, 0.0)
    for _ in range(rounds):
        for network, program in programs.items():
            speed, memory = _run(program, document)
            speeds[network].append(speed)
            megabytes[network] = max(memory, megabytes[network])
    ratios = [fast / slow for fast, slow in zip(speeds["native"], speeds["ns-3"], strict=True)]
    _print(
        name,
        *(f"{statistics.median(values):,.0f}" for values in speeds.values()),
        f"{statistics.median(ratios):.1f}",
        f"{min(ratios):.1f} to {max(ratios):.1f}",
        *(f"{most:,.0f}" for most in megabytes.values()),
    )


def _print(title: str, *cells: str) -> None:
    """Print a row, or a title alone, at once."""
    print(" │ ".join([f"{title:28}" if cells else title, *(f"{cell:>13}" for cell in cells)]), flush=True)


def scenario_of(name: str, traffic_ns: int, *more: str) -> Scenario:
    """The scenario of that name with so much traffic, and with `more` overrides."""
    overrides = [f"scenario={name}", f"scenario.traffic_ns={traffic_ns}", *more]
    return compose_settings(CollectConfig, overrides, "the benchmark").scenario


def _run(program: Path, document: Mapping[str, Any]) -> tuple[float, float]:
    """Leaf data packets per CPU second, and the most memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.json"
        settings.write_text(json.dumps(document), encoding="utf-8")
        with subprocess.Popen([program, settings, folder], stderr=subprocess.DEVNULL) as process:
            memory = 0.0
            while process.poll() is None:
                memory = max(memory, _megabytes(process.pid))
                time.sleep(0.002)
        if process.returncode != 0:
            raise ForetailError(f"{program.name} ended with exit code {process.returncode}")
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    return summary["leaf_data_packets"] / summary["simulation_cpu_seconds"], memory


def _megabytes(process: int) -> float:
    """The most memory of a process so far; its resource usage would count that of its parent before it began."""
    try:
        lines = Path("/proc", str(process), "status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return max((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), default=0.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(f"'{row}'" for row in (*CASES, DATASET)))
    parser.add_argument("--size", choices=ROUNDS, default="full", help="A small size takes seconds.")
    parser.add_argument("--rounds", type=int, help="How often each case is measured.")
    options = parser.parse_args()
    if unknown := set(options.rows) - {*CASES, DATASET}:
        parser.error(f"no row {min(unknown)!r}: choose from {', '.join((*CASES, DATASET))}")
    main(options.size, options.rows, options.rounds)
