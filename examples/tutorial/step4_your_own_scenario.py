"""
4. Your own scenario
====================

This program compares policies in a network of TCP senders, and on a traffic pattern in slots.

TCP senders react to drops, so a policy changes when flows finish. In slots no sender reacts, which is simple and fast.
"""

# %%
# **A network.** There are two racks of four servers. Background flows of up to 1 MB load the uplinks to 80 %. Four
# servers at a time answer a query, with as many bytes as the buffer of a leaf holds. All other settings keep their
# defaults.
from foretail.api import Policy, driver_config, scenarios

scenario = scenarios.Scenario(
    name="two racks",
    topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    background=scenarios.Background(size_bytes=[0, 10_000, 100_000, 1_000_000], cumulative=[0, 0.4, 0.9, 1], load=0.8),
    incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    traffic_ns=2_000_000,
    drain_ns=40_000_000,
)
print(f"a leaf has {scenario.leaf_buffer_bytes:,} bytes of buffer; a round trip: {scenario.base_rtt_ns / 1000:.1f} us")

# %%
# **Two policies on the same flows.** The seed fixes the flows, so only the buffer policy differs. Dynamic Thresholds
# have their default alpha of 0.5; a larger alpha may be better. ``run_driver`` of ``foretail.api`` does the same in
# ns-3.
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from foretail.api import run_native

for policy in ("lqd", "dt"):
    with TemporaryDirectory() as folder:
        run = run_native(driver_config(scenario, Policy(name=policy), seed=1, trace=False), Path(folder))
        flows = run.flows()
    done = flows[flows["fct_ns"] >= 0]
    slowdown = np.percentile(done["fct_ns"] / done["ideal_fct_ns"], 95)
    drops = sum(reason["packets"] for switch in run.summary["switches"] for reason in switch["data_drops"].values())
    print(f"{policy}: {len(done)} of {len(flows)} flows done, p95 slowdown {slowdown:.1f}, {drops} packets dropped")

# %%
# **A pattern in slots** is a frozen dataclass. Its fields are settings, and ``draw`` is its only source of randomness.
# This pattern sends bursts to one port after the other.
from collections.abc import Iterator
from dataclasses import dataclass

from foretail.api import Slotted, workloads


@dataclass(frozen=True)
class TurnByTurn(workloads.Workload):
    """A burst for the next port, once every ``every`` slots."""

    every: int = 50
    length: int = 200

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """One chunk per burst."""
        for turn, start in enumerate(range(0, slots, self.every)):
            slot = np.repeat(np.arange(start, min(start + self.length // ports, slots)), ports)
            port = np.where(draw.random(len(slot)) < 0.9, turn % ports, draw.integers(0, ports, len(slot)))
            yield Slotted(slot, port.astype(np.int32))


# %%
# All buffer policies run on this pattern, with their default settings. The numbers are the shares of the packets that
# they send. Policies that need a predictor have none here.
from foretail.api import OF_ARRIVALS, compare

traffic = TurnByTurn().batches(ports=8, buffer=200, slots=5000, seed=1)
found = compare(traffic, 8, 200, OF_ARRIVALS)
for name, sent in sorted(found.transmitted.items(), key=lambda item: -item[1]):
    print(f"{name:20} {100 * sent / found.arrivals:.1f} %")
