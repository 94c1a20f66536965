"""Cost of labels, traces, a deciding predictor and heavy losses on top of an ns-3 run under LQD.

Every round runs all alternatives on the same traffic, one after the other, in an order that rotates from round to
round; figures are medians over the rounds, with their range, per leaf data packet, so that the few packets that a
policy adds or saves do not count as cost.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import VIRTUAL_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.data.inputs import feature_inputs
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.driver import write_trace
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver

SCENARIOS = {"small": "tiny", "full": "leafspine_small"}
ROUNDS = {"small": 1, "full": 9}
TRAFFIC_NS = {"small": 4_000_000, "full": 20_000_000}


def main(size: str) -> None:
    """Print leaf data packets and events per CPU second, and ratios to the LQD run."""
    scenario, elephants = _scenario(SCENARIOS[size], size), _scenario("elephants", size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = trained_forest(scenario, folder)
        alternatives: dict[str, Callable[[Path], DriverRun]] = {
            "LQD": lambda to: _run(scenario, Policy("lqd"), to),
            "LQD, trace": lambda to: _run(scenario, Policy("lqd"), to, trace=True),
            "LQD, trace, Parquet": lambda to: _dataset(scenario, to),
            "Credence, always accept": lambda to: _run(scenario, Policy("credence"), to),
            "Credence, forest": lambda to: _run(
                scenario, Policy("credence", predictor="library", library=str(library)), to
            ),
            "FollowLQD": lambda to: _run(scenario, Policy("followlqd"), to),
            "DT": lambda to: _run(scenario, Policy("dt"), to),
            "LQD, elephants": lambda to: _run(elephants, Policy("lqd"), to),
        }
        wall: dict[str, list[float]] = {name: [] for name in alternatives}
        cpu: dict[str, list[float]] = {name: [] for name in alternatives}
        events: dict[str, float] = {}  # per packet
        names = list(alternatives)
        for turn in range(ROUNDS[size]):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with tempfile.TemporaryDirectory(dir=folder) as to:
                    wall_before, cpu_before = time.perf_counter(), cpu_seconds()
                    run = alternatives[name](Path(to))
                    packets = run.summary["leaf_data_packets"]
                    wall[name].append((time.perf_counter() - wall_before) / packets)
                    cpu[name].append((cpu_seconds() - cpu_before) / packets)
                    events[name] = run.summary["events"] / packets

    traffic = f"{TRAFFIC_NS[size] / 1e6:g} ms of traffic"
    table = Table(title=f"ns-3, {scenario.name}, {traffic}, medians of {ROUNDS[size]} rounds")
    ratios_to_lqd = ("CPU / LQD", "(range)", "wall / LQD", "(range)")
    for heading in ("run", "leaf data packets per CPU s", "events per CPU s", *ratios_to_lqd):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for name in names:
        per_second = 1 / statistics.median(cpu[name])
        cells = [name, f"{per_second:,.0f}", f"{events[name] * per_second:,.0f}"]
        for spent in (cpu, wall):
            ratios = [mine / base for mine, base in zip(spent[name], spent["LQD"], strict=True)]
            cells += [f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"]
        table.add_row(*cells)
    Console(width=130).print(table)


def _scenario(name: str, size: str) -> Scenario:
    overrides = [f"scenario={name}", f"scenario.traffic_ns={TRAFFIC_NS[size]}"]
    return compose_settings(CollectConfig, overrides, "the benchmark").scenario


def _run(scenario: Scenario, policy: Policy, to: Path, *, trace: bool = False) -> DriverRun:
    return run_driver(driver_config(scenario, policy, 1, trace=trace), to)


def _dataset(scenario: Scenario, to: Path) -> DriverRun:
    document = driver_config(scenario, Policy("lqd"), 1, trace=True)
    run = run_driver(document, to)
    write_trace(run, document, to / "dataset", scenario=document)
    return run


def trained_forest(scenario: Scenario, folder: Path) -> Path:
    """The library of a forest of the paper's size, trained on a trace of the same scenario."""
    (folder / "training").mkdir()
    _dataset(scenario, folder / "training")
    dataset = Dataset.open(folder / "training" / "dataset")
    rows = dataset.frame([*VIRTUAL_FEATURES, "lqd_drop", "shadow_asked"])
    x, y = rows[list(VIRTUAL_FEATURES)].to_numpy(), rows["lqd_drop"].to_numpy()
    inputs = feature_inputs(VIRTUAL_FEATURES, [dataset])
    ensemble = RandomForest(trees=4, depth=4, seed=1).fit(x, y).to_ensemble(inputs)
    point = choose_operating_point(ensemble, x, y, rows["shadow_asked"].to_numpy())
    return export(ensemble.with_threshold(point.threshold), C(), folder / "export").file(".so")


def cpu_seconds() -> float:
    """CPU time of this process and of those that it waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
