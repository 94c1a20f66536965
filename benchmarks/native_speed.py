"""How much faster the native network is than ns-3, in how much less memory, and what a trace costs on top of its run.

Both networks write the same bytes.

Every round runs both on the same traffic, one after the other, and each case in turn; figures are medians over the
rounds, with the range of the ratio. The time is that of the simulation, without the start of the process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ns3_speed import cpu_seconds, trained_forest
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.collection import write_trace
from foretail.sim_bridge.native.driver import NATIVE, run_native
from foretail.sim_bridge.ns3.driver import build_driver

ROUNDS = {"small": 1, "full": 5}
LEAFSPINE = {"small": "tiny", "full": "leafspine_small"}
TRAFFIC_NS = {"small": 2_000_000, "full": 20_000_000}
OF_256_SERVERS_NS = {"small": 100_000, "full": 2_000_000}


def main(size: str) -> None:
    """Print leaf data packets per CPU second in both networks, their ratio, and the most memory of each."""
    programs = {"ns-3": build_driver(), "native": NATIVE.build()}
    with tempfile.TemporaryDirectory() as folder:
        _compare(size, _cases(size, Path(folder)), programs)
    _trace_costs(size)


def _trace_costs(size: str) -> None:
    """Print CPU time of a run with a trace, and with a dataset made of it, over that of the bare run."""
    scenario = scenario_of(LEAFSPINE[size], TRAFFIC_NS[size])
    bare, traced = (_document(scenario, Policy("lqd"), trace=trace) for trace in (False, True))
    spent: dict[str, list[float]] = {"bare run": [], "with a trace": [], "with a trace and its dataset": []}
    for turn in range(ROUNDS[size] + 1):
        for way, seconds in spent.items():
            with tempfile.TemporaryDirectory() as name:
                started, folder = cpu_seconds(), Path(name)
                run = run_native(bare if way == "bare run" else traced, folder)
                if way == "with a trace and its dataset":
                    write_trace(run, traced, folder / "dataset", scenario=traced)
                if turn > 0:  # the first one imports what writes datasets
                    seconds.append(cpu_seconds() - started)
    table = Table(
        title=f"CPU time in the native network, {scenario.name}, medians of {ROUNDS[size]} interleaved rounds"
    )
    for heading in ("run", "seconds", "/ bare run", "(range)"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for way, seconds in spent.items():
        ratios = [mine / base for mine, base in zip(seconds, spent["bare run"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(way, f"{statistics.median(seconds):.3f}", f"{statistics.median(ratios):.2f}", spread)
    Console(width=120).print(table)


def _compare(size: str, cases: Mapping[str, Mapping[str, Any]], programs: Mapping[str, Path]) -> None:
    speeds: dict[str, dict[str, list[float]]] = {name: {network: [] for network in programs} for name in cases}
    megabytes: dict[str, dict[str, float]] = {name: {} for name in cases}
    for _ in range(ROUNDS[size]):
        for name, document in cases.items():
            for network, program in programs.items():
                speed, memory = _run(program, document)
                speeds[name][network].append(speed)
                megabytes[name][network] = max(memory, megabytes[name].get(network, 0))
    table = Table(title=f"Leaf data packets per CPU second, medians of {ROUNDS[size]} interleaved rounds")
    for heading in ("run", "ns-3", "native", "native / ns-3", "(range)", "ns-3 MB", "native MB"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for name, found in speeds.items():
        ratios = [fast / slow for fast, slow in zip(found["native"], found["ns-3"], strict=True)]
        table.add_row(
            name,
            *(f"{statistics.median(found[network]):,.0f}" for network in programs),
            f"{statistics.median(ratios):.1f}",
            f"{min(ratios):.1f} to {max(ratios):.1f}",
            *(f"{megabytes[name][network]:,.0f}" for network in programs),
        )
    Console(width=120).print(table)


def _cases(size: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The driver's document of every run, by its name; a forest is trained in `folder`."""
    leafspine = scenario_of(LEAFSPINE[size], TRAFFIC_NS[size])
    forest = Policy("credence", predictor="library", library=str(trained_forest(leafspine, folder)))
    found = {name: _document(leafspine, Policy(name)) for name in ("lqd", "dt", "cs", "followlqd")}
    found |= {"credence, forest": _document(leafspine, forest)}
    found |= {"lqd, trace": _document(leafspine, Policy("lqd"), trace=True)}
    powertcp = scenario_of(LEAFSPINE[size], TRAFFIC_NS[size], "scenario.transport.name=powertcp")
    found |= {"powertcp, lqd": _document(powertcp, Policy("lqd"))}
    for name, traffic_ns in {"elephants": TRAFFIC_NS, "star": TRAFFIC_NS, "paper": OF_256_SERVERS_NS}.items():
        found[f"{name}, lqd"] = _document(scenario_of(name, traffic_ns[size]), Policy("lqd"))
    return found


def scenario_of(name: str, traffic_ns: int, *more: str) -> Scenario:
    """The scenario of that name with so much traffic, and with `more` overrides."""
    overrides = [f"scenario={name}", f"scenario.traffic_ns={traffic_ns}", *more]
    return compose_settings(CollectConfig, overrides, "the benchmark").scenario


def _document(scenario: Scenario, policy: Policy, *, trace: bool = False) -> dict[str, Any]:
    return driver_config(scenario, policy, 1, trace=trace)


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
