"""Universal packet scheduling: schedules of other schedulers, replayed by least slack time first.

Mittal's thesis, section 5.1.3. Our routers have the links of sim_bridge/schedulers/topologies.py and 4 edge switches
each, not 10. The thesis does not print the rates of its core links: ours carry what even traffic at the rate of the
edge links brings. Load is the mean utilisation of core links. The thesis does not print its flow sizes: ours are Pareto
with shape 1.3 from 15 KB to 3 MB, or about 35 packets. A seed draws 5,000 flows, about 180,000 packets. Fair queueing
is self-clocked. The fat-tree has 16 hosts.

Rows about lost packets send the same packets through switches with 2 MB of buffer each, which their ports share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foretail.core.errors import ForetailError
from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.schedulers.network import Bands, Drop, Exits, Packets, PortNetwork, Scheduler, run
from foretail.sim_bridge.schedulers.replay import Replay, replay
from foretail.sim_bridge.schedulers.slack import completion_slack, tail_slack
from foretail.sim_bridge.schedulers.topologies import HostNetwork, fat_tree, internet2
from foretail.sim_bridge.schedulers.traffic import poisson_flows, udp_packets
from foretail_studies.systems.system import Published, System, change_percent, published

EDGES, FLOWS = {"small": 1, "medium": 4}, {"small": 60, "medium": 5_000}
GIGABIT = 1_000_000_000
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
#: edge, host and provisioned rates in bit/s
RATES = {
    "I2 1G-10G": (GIGABIT, 10 * GIGABIT, GIGABIT),
    "I2 1G-1G": (GIGABIT, GIGABIT, GIGABIT),
    "I2 10G-10G": (10 * GIGABIT, 10 * GIGABIT, GIGABIT),
    "I2 / 10": (GIGABIT // 10, GIGABIT // 10, GIGABIT // 10),
}
SCHEDULERS: dict[str, Scheduler] = {"FIFO": "fifo", "FQ": "fair", "SJF": "priority", "LIFO": "lifo"}
BUFFER_BYTES = 2_000_000


def _traffic(hosts: HostNetwork, load: float, host_bps: int, size: str, seed: int) -> Packets:
    flows = poisson_flows(
        hosts,
        load=load,
        flows=FLOWS[size],
        seed=seed,
        loaded_ports=hosts.core,
        shape=1.3,
        least_bytes=15_000,
    )
    return udp_packets(flows, host_bps)


def _case(name: str, load: float, size: str, seed: int) -> tuple[HostNetwork, Packets, int]:
    """Network, packets, and the time of a packet on the bottleneck, in ns."""
    if name == "datacenter":
        hosts = fat_tree(4, rate_bps=10 * GIGABIT)
        return hosts, _traffic(hosts, load, 10 * GIGABIT, size, seed), 1_200
    edge_bps, host_bps, provisioned_bps = RATES[name]
    hosts = internet2(EDGES[size], edge_bps=edge_bps, host_bps=host_bps, provisioned_bps=provisioned_bps)
    return hosts, _traffic(hosts, load, host_bps, size, seed), 12_000 * GIGABIT // provisioned_bps


def _shares(name: str, result: Replay) -> Iterator[tuple[str, float]]:
    yield f"overdue, {name}", result.overdue
    yield f"overdue by more than T, {name}", result.overdue_by_more


def mixed(network: PortNetwork) -> Sequence[Scheduler]:
    """Fair queueing at every other switch, FIFO+ at the others."""
    return ["fair" if owner % 2 else "lstf" for owner in network.owner.tolist()]


def _default(size: str, seed: int) -> Iterator[tuple[str, float]]:
    """Schedulers and replays of the default scenario."""
    hosts, packets, late_ns = _case("I2 1G-10G", 0.7, size, seed)
    network = hosts.network
    originals = {"random": run(network, packets, "random", seed=seed)}
    originals |= {name: run(network, packets, one, packets.flow_bytes) for name, one in SCHEDULERS.items()}
    originals["FQ/FIFO+"] = run(network, packets, mixed(network))
    for points in (2, 3, 4):
        yield f"packets that met {points} busy ports, random", float((originals["random"].congested == points).mean())
    for name, original in originals.items():
        result = replay(network, packets, original, late_ns=late_ns)
        yield from _shares(name if name != "random" else "load 70 %", result)
    for name in ("SJF", "LIFO"):
        result = replay(network, packets, originals[name], late_ns=late_ns, preemptive=True)
        yield f"overdue, {name}, preemptive", result.overdue
    by_exit = replay(network, packets, originals["random"], scheduler="priority", late_ns=late_ns)
    yield from _shares("random, by static priorities", by_exit)
    for count in (1, 2, 4, 8, 16):
        bands = Bands(count, shift=max(22 - count, 0))  # the last band begins at 1 ms
        result = replay(network, packets, originals["random"], scheduler="bands", late_ns=late_ns, bands=bands)
        yield f"overdue by more than T, random, {count} bands", result.overdue_by_more
    yield from _drops(network, packets, originals["FIFO"])


def _drops(network: PortNetwork, packets: Packets, whole: Exits) -> Iterator[tuple[str, float]]:
    """What is lost in small buffers, and delays, by rule and slack."""
    slacks = {"slack by flow size": completion_slack(packets), "even slack": tail_slack(packets)}
    fifo_rules: tuple[tuple[str, Drop], ...] = (("tail drop", "arrival"), ("LQD", "longest_queue"))
    lost = {
        name: run(network, packets, "fifo", buffer_bytes=BUFFER_BYTES, drop=drop).exit_ns < 0
        for name, drop in fifo_rules
    }
    for name, slack in slacks.items():
        exits = run(network, packets, "lstf", slack, buffer_bytes=BUFFER_BYTES, drop="largest_key")
        lost[f"largest slack, {name}"] = exits.exit_ns < 0
    flows = int(packets.flow.max()) + 1
    for name, gone in lost.items():
        yield f"packets lost, %, {name}", 100 * float(gone.mean())
        whole_flows = np.bincount(packets.flow, gone, minlength=flows) == 0
        yield f"flows without a loss, %, {name}", 100 * float(whole_flows.mean())
    fifo_plus = run(network, packets, "lstf", slacks["even slack"]).exit_ns - packets.arrival_ns
    fifo = whole.exit_ns - packets.arrival_ns
    p99 = [float(np.percentile(delay_ns, 99)) for delay_ns in (fifo_plus, fifo)]
    yield "99th percentile of delay, FIFO+ against FIFO, change in %", change_percent(*p99)


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    if size not in EDGES:
        raise ForetailError(f"universal scheduling has no size {size}: choose small or medium")
    so_far("the default scenario")
    measured = dict(_default(size, seed))
    cases = [("I2 1G-10G", load, f"load {100 * load:.0f} %") for load in LOADS if load != 0.7]
    cases += [(name, 0.7, name) for name in (*RATES, "datacenter") if name != "I2 1G-10G"]
    for name, load, words in cases:
        so_far(words)
        hosts, packets, late_ns = _case(name, load, size, seed)
        original = run(hosts.network, packets, "random", seed=seed)
        measured |= dict(_shares(words, replay(hosts.network, packets, original, late_ns=late_ns)))
    return measured


_TABLE = {
    "load 70 %": (0.0021, 0.0002),
    "load 10 %": (0.0007, None),
    "load 30 %": (0.0281, 0.0017),
    "load 50 %": (0.0221, 0.0002),
    "load 90 %": (0.0008, 4e-6),
    "I2 1G-1G": (0.0204, 8e-6),
    "I2 10G-10G": (0.0631, 0.0448),
    "I2 / 10": (0.0127, 0.00001),
    "datacenter": (0.0164, 0.0154),
    "FIFO": (0.0143, 0.0006),
    "FQ": (0.0271, 0.0002),
    "SJF": (0.1833, 0.0019),
    "LIFO": (0.1477, 0.0067),
    "FQ/FIFO+": (0.0152, 0.0004),
    "random, by static priorities": (0.21, 0.2069),
}
"""Shares overdue, and overdue by more than T; no verdict is possible against the 0 that is printed at load 10 %."""

UNIVERSAL = System(
    "UPS",
    "Mittal's thesis",
    (
        *(
            Published(f"{words}, {name}", share, "Section 5.1.3" if "static" in name else "Table 5.1")
            for name, shares in _TABLE.items()
            for words, share in zip(("overdue", "overdue by more than T"), shares, strict=True)
            if share is not None
        ),
        *published("Section 5.1.3", {"overdue, SJF, preemptive": 0.0024, "overdue, LIFO, preemptive": 0.0025}),
        *published(
            "Section 5.1.3",
            {f"packets that met {n} busy ports, random": share for n, share in ((2, 0.22), (3, 0.44), (4, 0.24))},
        ),
    ),
    _measure,
    {"small": (1, 2), "medium": (1, 2, 3)},
)
