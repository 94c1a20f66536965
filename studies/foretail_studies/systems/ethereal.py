"""Ethereal: the equal flows of a collective on single ways, few of them cut (Addanki's thesis, chapter 3).

The network is the thesis's: 256 servers, 16 leaves and 16 spines, 100 Gbit/s, 500 ns. The thesis has DCTCP with PFC;
here buffers are so large that nothing is lost, and senders are Linux's DCTCP with a window for reordered packets.
Every message starts within 10 µs at random under all balancers, where the thesis names no time. REPS, go-back-N after a
change of the way, and failures are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.ns3.messages import Message, assigned, collective, pieces
from foretail_studies.systems.native_run import completion_times_us
from foretail_studies.systems.system import Published, System, change_percent

CHANNELS = 4
KINDS = {"all-to-all": ("all_to_all", 1), "ring": ("ring", CHANNELS)}
SIZES = {"all-to-all": "16 KB", "ring": "1 MB"}


def uplink_loads(messages: Sequence[Message], spines: int, below: int, seed: int = 0) -> list[float]:
    """Return the bytes of each link from a leaf to a spine; a message without a spine takes a random one.

    Only links of leaves that send count; `below` is the number of servers of a leaf.
    """
    random = np.random.default_rng(seed)
    loads: Counter[tuple[int, int]] = Counter()
    for message in messages:
        leaf = message.source // below
        if leaf == message.destination // below:
            continue
        spine = message.spine if message.spine >= 0 else int(random.integers(spines))
        loads.update({(leaf, one): 0 for one in range(spines)})
        loads[leaf, spine] += message.size_bytes
    return [float(load) for load in loads.values()]


def _messages(name: str, leaves: int, below: int, size_bytes: int) -> list[Message]:
    kind, channels = KINDS[name]
    across = [leaf * below + place for place in range(below) for leaf in range(leaves)]
    return collective(kind, [across], size_bytes, repeat=1, compute_ns=0, traffic_ns=1, seed=0, channels=channels)


def _assignment(name: str, leaves: int, below: int, spines: int, seed: int) -> dict[str, float]:
    messages = _messages(name, leaves, below, 48 * leaves * below * spines)
    found = assigned(messages, spines, below)
    hashed = uplink_loads(messages, spines, below, seed)
    sprayed = sum(hashed) / len(hashed)
    parts = Counter((one.source, one.destination, one.round) for one in found if one.spine >= 0)
    whole = Counter((one.source, one.destination) for one in messages)
    return {
        f"{name}: flows": len(messages),
        f"{name}: subflows of a server": len(found) / (leaves * below),
        f"{name}: parts of a flow": max(number / whole[source, to] for (source, to, _), number in parts.items()),
        _load(name, "Ethereal"): max(uplink_loads(found, spines, below)) / sprayed,
        _load(name, "ECMP"): max(hashed) / sprayed,
    }


def _completion(name: str, leaves: int, below: int, flow_bytes: int, seed: int, so_far: SoFar) -> dict[str, float]:
    kind, channels = KINDS[name]
    servers = leaves * below
    size_bytes = flow_bytes * (servers - 1 if kind == "all_to_all" else channels)
    topology = {"leaves": leaves, "spines": below, "servers_per_leaf": below, "link_delay_ns": 500}
    topology |= {"server_link_bps": 10**11, "spine_link_bps": 10**11}
    exchange = {"kind": kind, "servers_per_group": servers, "size_bytes": size_bytes, "channels": channels}
    run = ["scenario=permutation", *(f"scenario.topology.{key}={value}" for key, value in topology.items())]
    run += [f"scenario.collective.{key}={value}" for key, value in exchange.items()]
    run += ["scenario.collective.spread_ns=10_000", "scenario.transport.mark_bytes=60_000"]

    rules = {rule: [*run, f"scenario.balancing.name={rule}"] for rule in ("ecmp", "spray", "ethereal")}
    last_us = {rule: float(completion_times_us(given, seed, so_far).max()) for rule, given in rules.items()}
    against_ecmp = f"{name} of {SIZES[name]}: completion, Ethereal against ECMP, %"
    return {
        _over_spray(name): last_us["ethereal"] / last_us["spray"],
        against_ecmp: change_percent(last_us["ethereal"], last_us["ecmp"]),
    }


def _measure(size: str, seed: int, so_far: SoFar) -> Mapping[str, float]:
    side = 4 if size == "small" else 16
    found: dict[str, float] = {
        "3 flows on 4 spines: more subflows, equal parts": len(pieces(3, 4, 12)) - 3,
    }
    for name, flow_bytes in {"all-to-all": 16_000, "ring": 1_000_000}.items():
        found |= _assignment(name, 16, 16, 16, seed)
        found |= _completion(name, side, side, flow_bytes, seed, so_far)
    return found


def _load(name: str, balancer: str) -> str:
    return f"{name}: busiest uplink of {balancer} over spraying"


def _over_spray(name: str) -> str:
    return f"{name} of {SIZES[name]}: completion, Ethereal over spraying"


ETHEREAL = System(
    "Ethereal",
    "Addanki's thesis",
    (
        Published("all-to-all: flows", 65_280, "section 3.1.2"),
        Published("all-to-all: parts of a flow", 1, "section 3.4"),
        Published("ring: parts of a flow", 4, "section 3.4"),
        Published("ring: subflows of a server", 16, "section 3.4"),
        Published("3 flows on 4 spines: more subflows, equal parts", 9, "section 3.2"),
        Published(_load("all-to-all", "Ethereal"), 1, "Theorem 4"),
        Published(_load("ring", "Ethereal"), 1, "Theorem 4"),
        Published(_over_spray("all-to-all"), 1, "section 3.4 (similar)"),
    ),
    _measure,
    {"small": (1, 2), "medium": (1, 2, 3)},
)
"""The thesis prints no other number; its figures show Ethereal before spraying with flows of 1 MB."""
