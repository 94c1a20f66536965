"""How many packets the emulator moves: more hosts' traffic than one core carries, so that its loop never rests.

Such a run is late and says nothing about a network; its packets per second tell how large a factor a network needs.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foretail.configs.schema.emulation import Emulation
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.pipelines.data.emulation import emulated_settings
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.emulator.emulator import run_emulator, why_not_here

FACTOR = 2
DRAIN_NS = {"small": 100_000_000, "full": 1_500_000_000}
# Some thirty long flows, and room for all that they have on the way: no loss and no timeout lets the loop rest.
OVERRIDES = (
    "scenario.background.load=0.64",
    "scenario.background.size_bytes=[19_000_000,21_000_000]",
    "scenario.background.cumulative=[0,1]",
    "scenario.incast.queries_per_second_per_server=0",
    "scenario.topology.buffer_bytes_per_port_per_gbps=3_000_000",
    "scenario.transport.min_rto_ns=1_000_000_000",
    "scenario.traffic_ns=50_000_000",
)


def main(size: str) -> None:
    """Print packets through the switch per CPU second of the emulator, and per second of the clock."""
    reason = why_not_here()
    if reason is not None:
        print(f"emulator: skipped, {reason}")
        return
    table = Table("policy", "packets per CPU second", "packets per second", "CPU, %", title="emulator, overloaded")
    scenario = replace(compose_settings(CollectConfig, OVERRIDES, "benchmark").scenario, drain_ns=DRAIN_NS[size])
    for policy in (Policy("lqd"), Policy("dt"), Policy("credence", predictor="accept")):
        document = emulated_settings(scenario, policy, 1, Emulation(factor=FACTOR), trace=False)
        with tempfile.TemporaryDirectory() as folder:
            summary = run_emulator(document, Path(folder)).summary
        (switch,) = summary["switches"]
        packets = switch["data_in"]["packets"] + switch["control_in"]["packets"]
        cpu, wall = summary["simulation_cpu_seconds"], summary["simulation_wall_seconds"]
        table.add_row(policy.name, f"{packets / cpu:,.0f}", f"{packets / wall:,.0f}", f"{100 * cpu / wall:.0f}")
    Console(width=120).print(table)
