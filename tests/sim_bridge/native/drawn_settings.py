"""Random driver settings whose networks congest, for comparisons of two networks that have to write the same bytes.

Those with lossless queues are of the native network alone.
"""

from __future__ import annotations

import random
from typing import Any

from foretail.models import zoo
from foretail.sim_bridge.policies import KNOW_PRIORITIES, MAKES_ROOM, SCHEDULERS
from tests.scenarios import settings, with_racks

POLICIES = (
    *("lqd", "dt", "cs", "cp", "abm", "occamy", "harmonic", "reverie"),
    *("credence", "followlqd", "guarded", "learned"),
)
TCP = ("newreno", "dctcp", "cubic")
MOST_SEGMENTS = 400
"""Segments of an answer. At every acknowledgement ns-3 looks through all that are sent: 3,000 take it minutes."""


def drawn_settings(number: int, transport: str | None = None) -> dict[str, Any]:
    """The settings with this number, of one transport if it is given."""
    rng = random.Random(number)
    changes = _topology(rng) | _traffic(rng) | _transport(rng, transport) | _switches(rng)
    changes |= {
        "seed": rng.randrange(1000),
        "traffic_ns": rng.choice([1_000_000, 2_000_000, 3_000_000]),
        "drain_ns": rng.choice([1_000_000, 30_000_000, 100_000_000]),
        "trace": rng.random() < 0.7,
    }
    if rng.random() < 0.3:
        changes |= _messages(rng, changes["topology__leaves"] * changes["topology__servers_per_leaf"])
    changes["incast__burst_fraction"] = min(changes["incast__burst_fraction"], _largest_burst(settings(**changes)))
    return settings(**changes)


def _largest_burst(document: dict[str, Any]) -> float:
    """The part of a leaf's buffer that a burst of the largest answers fills."""
    topology = document["topology"]
    links = {"server": topology["servers_per_leaf"], "spine": topology["spines"] // topology["pods"]}
    leaf_bps = sum(topology[f"{kind}_link_bps"] * count for kind, count in links.items())
    answer_bytes = MOST_SEGMENTS * document["transport"]["segment_bytes"]
    buffer_bytes = topology["buffer_bytes_per_port_per_gbps"] * leaf_bps / 1_000_000_000
    return float(answer_bytes * document["incast"]["fan_in"] / buffer_bytes)


def _topology(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topology__buffer_bytes_per_port_per_gbps": rng.choice([600, 1500, 2500, 5120, 9000]),
        "topology__link_delay_ns": rng.choice([0, 500, 3000, 10_000]),
        "topology__servers_per_leaf": 4,
    }
    if rng.random() < 0.3:
        servers = rng.choice([5, 8, 12])
        return found | {"topology__leaves": 1, "topology__spines": 0, "topology__servers_per_leaf": servers} | _peers(0)
    if rng.random() < 0.2:
        tree = {"leaves": 4, "spines": 4, "pods": 2, "cores": rng.choice([2, 4]), "servers_per_leaf": 2}
        return found | {f"topology__{name}": number for name, number in tree.items()} | _peers(rng.randrange(2))
    return (
        found
        | {
            "topology__leaves": rng.choice([2, 3]),
            "topology__spines": rng.choice([1, 2, 3]),
            "topology__spine_link_bps": rng.choice([10_000_000_000, 40_000_000_000]),
        }
        | _peers(rng.randrange(3))
    )


def _peers(which: int) -> dict[str, Any]:
    peers = ("other_servers", "other_leaves", "next_leaf")[which]
    return {"background__destinations": peers, "incast__responders": peers}


def _traffic(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "background__load": rng.choice([0.0, 0.4, 0.8, 1.1]),
        "incast__queries_per_second_per_server": rng.choice([0.0, 300.0, 1000.0, 3000.0]),
        "incast__burst_fraction": rng.choice([0.2, 0.8, 1.5, 3.0]),
        "incast__fan_in": rng.choice([1, 2, 4]),
        "incast__connect_ahead_ns": rng.choice([0, 100_000, 1_500_000, 5_000_000]),
        "incast__connections": rng.choice(["new", "new", "reused"]),
    }
    if rng.random() < 0.3:
        found |= {"incast__cluster_size": 3.0, "incast__cluster_gap_ns": 50_000}
    return found


def _transport(rng: random.Random, name: str | None) -> dict[str, Any]:
    name = rng.choice([*TCP, "powertcp", "theta_powertcp", "timely", "hpcc"]) if name is None else name
    marks = name == "dctcp" or rng.random() < 0.5
    mixed = name == "dctcp" and rng.random() < 0.25
    return {
        "transport__name": name,
        "transport__background_name": rng.choice(["newreno", "cubic"]) if mixed else None,
        "transport__delayed_ack_segments": rng.choice([1, 1, 2, 4]),
        "transport__slow_start": rng.random() < 0.5,
        "transport__min_rto_ns": rng.choice([200_000, 500_000, 1_000_000, 3_000_000, 10_000_000]),
        "transport__initial_window_segments": rng.choice([1, 2, 3, 4, 10, 22, 32, 45, 48, 64]),
        "transport__segment_bytes": rng.choice([536, 1000, 1400, 1460, 1460]),
        "transport__mark_bytes": rng.choice([7200, 14_400, 40_000, 100_000]) if marks else 0,
    }


def _switches(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "policy__name": rng.choice(POLICIES),
        "policy__alpha": rng.choice([0.25, 0.5, 1.0, 8.0]),
        "policy__flip_probability": rng.choice([0.0, 0.0, 0.2]),
        "rules__victim": rng.choice(["tail", "tail", "tail_kept", "head", "random", "spare_first_rtt", "most_left"]),
        "rules__oracle": rng.choice(["lqd", "lqd", "lqd", "occamy"]),
        "rules__tie": rng.choice(["lowest_port", "highest_port"]),
    }
    if found["policy__name"] == "lqd":
        found["rules__oracle"] = "lqd"  # a trace of LQD does not hold what its own LQD pushes out after Occamy's label
    if rng.random() < 0.25:
        scheduler = rng.choice(["round_robin", "strict", "deficit_round_robin"])
        found |= {"queues__count": 3, "queues__incast": 1, "queues__background": 2, "queues__scheduler": scheduler}
    return found


def _messages(rng: random.Random, servers: int) -> dict[str, Any]:
    """Messages that share connections and wait for others."""
    ends = [rng.sample(range(servers), 2) for _ in range(12)]
    connections = [rng.randrange(len(ends)) for _ in range(rng.randrange(5, 60))]
    rows = [
        {
            "start_ns": rng.randrange(2_000_000),
            "latest_ns": rng.choice([3_000_000, 50_000_000]),
            "size_bytes": rng.choice([1, 100, 5000, 60_000, 400_000]),
            "source": ends[connection][0],
            "destination": ends[connection][1],
            "connection": connection,
            "after": rng.sample(range(place), min(place, rng.choice([0, 0, 1, 2]))),
            "gap_ns": rng.choice([0, 10_000]),
        }
        for place, connection in enumerate(connections)
    ]
    return {f"messages__{column}": [row[column] for row in rows] for column in rows[0]}


def drawn_pauses(number: int, *, short_of_headroom: bool = False) -> dict[str, Any]:
    """The settings with this number of a network with lossless queues, whose links get the headroom that they need."""
    rng = random.Random(number)
    changes = _topology(rng) | _traffic(rng) | _transport(rng, None) | _switches(rng) | _senders_of_rdma(rng)
    count = rng.choice([1, 2, 3])
    lossless = [queue for queue in range(count) if rng.random() < 0.6] or [rng.randrange(count)]
    changes |= {
        "seed": rng.randrange(1000),
        "traffic_ns": rng.choice([500_000, 1_000_000, 2_000_000]),
        "drain_ns": rng.choice([1_000_000, 100_000_000]),
        "trace": rng.random() < 0.5,
        "policy__name": rng.choice(KNOW_PRIORITIES),
        "policy__rules": zoo.numbers(zoo.names()[:2]),
        "policy__window_ns": 200_000,
        "queues__count": count,
        "queues__scheduler": rng.choice(SCHEDULERS),
        "queues__lossless": lossless,
        **{f"queues__{one}": rng.randrange(count) for one in ("background", "incast", "control")},
        "pfc__alpha": rng.choice([0.125, 0.5, 1.0, 4.0, 64.0]),
        "pfc__xon_bytes": rng.choice([0, 0, 5000, 50_000]),
        "pfc__xon_offset_bytes": rng.choice([None, None, 0, 20_000]),
        "pfc__makes_room": rng.choice(MAKES_ROOM),
    }
    if changes["policy__name"] == "lqd":
        changes["rules__oracle"] = "lqd"
    if changes["policy__name"] == "sonic":
        for name in ("ingress_alphas", "egress_alphas"):
            changes[f"policy__{name}"] = rng.choice([[], [rng.choice([0.25, 1.0, 8.0]) for _ in range(count)]])
        for name in ("ingress_reserved_bytes", "egress_static_bytes"):
            changes[f"policy__{name}"] = rng.choice([[], [rng.choice([0, 20_000]) for _ in range(count)]])
    if short_of_headroom:
        changes["pfc__headroom_pool_bytes"] = rng.choice([1, 3000, 6000])
    per_gbps = max(_headroom_per_gbps(bps, changes) for bps in (10_000_000_000, 40_000_000_000)) * len(lossless)
    changes["topology__buffer_bytes_per_port_per_gbps"] = per_gbps + rng.choice([300, 600, 1500, 4000])
    if rng.random() < 0.3:
        changes |= _messages(rng, changes["topology__leaves"] * changes["topology__servers_per_leaf"])
    return settings(**changes)


def _senders_of_rdma(rng: random.Random) -> dict[str, Any]:
    """RDMA for the answers, for the background, for both or for none, with any control."""
    name = rng.choice(["roce", "roce", "irn", *TCP, "powertcp", "timely"])
    beside = {"roce": TCP, "irn": TCP, "dctcp": ("roce", "irn", "cubic")}.get(name, ("roce", "irn"))
    alone = name in ("powertcp", "timely") or rng.random() < 0.5
    return {
        "transport__name": name,
        "transport__background_name": None if alone else rng.choice([one for one in beside if one != "dctcp"]),
        "transport__rdma__control": rng.choice([None, None, "timely", "theta_powertcp", "powertcp", "hpcc", "dcqcn"]),
        "transport__rdma__window_segments": rng.choice([0, 0, 16]),
        "transport__mark_bytes": rng.choice([5000, 14_400, 100_000]),
    }


def _headroom_per_gbps(bps: int, changes: dict[str, Any]) -> int:
    """A bit more than what a lossless queue at ingress needs."""
    packet: int = changes["transport__segment_bytes"] + 42
    delay_ns: int = changes["topology__link_delay_ns"]
    return (4 * packet + delay_ns * bps // 4_000_000_000) * 1_000_000_000 // bps + 1


def drawn_racks(number: int) -> dict[str, Any]:
    """The document with this number of racks with circuits."""
    rng = random.Random(number)
    racks = rng.choice([3, 4, 5])
    pairs = [rng.sample(range(racks), 2) for _ in range(rng.randrange(1, 5))]
    shares = rng.random() < 0.5
    buffer = {
        "policy": rng.choice(["cs", "dt", "lqd", "followlqd", "credence"]),
        "bytes": rng.choice([36_000, 72_000, 288_000]),
        "alpha": rng.choice([0.5, 1.0, 4.0]),
        "library": None,
        "tau": None,
        "trace": rng.random() < 0.7,
    }
    resize = {"packets": rng.choice([20, 60]), "ahead_ns": rng.choice([0, 50_000, 150_000])}
    return with_racks(
        racks={
            "racks": racks,
            "hosts_per_rack": rng.choice([1, 2, 3]),
            "host_bps": rng.choice([10_000_000_000, 40_000_000_000]),
            "packet_bps": rng.choice([5_000_000_000, 10_000_000_000]),
            "packet_delay_ns": rng.choice([0, 5_000]),
            "circuit_bps": rng.choice([20_000_000_000, 80_000_000_000]),
            "circuit_delay_ns": rng.choice([0, 1_000, 30_000]),
            "day_ns": rng.choice([60_000, 180_000]),
            "night_ns": rng.choice([0, 20_000]),
            "matchings": [_matching(rng, racks) for _ in range(rng.randrange(1, 5))],
            "voq_packets": None if shares else rng.choice([4, 8, 16, 64]),
            "buffer": buffer if shares else None,
            "resize": resize if not shares and rng.random() < 0.5 else None,
        },
        flows={
            "source": [source for source, _ in pairs],
            "destination": [destination for _, destination in pairs],
            "flows_per_pair": rng.choice([1, 2, 5]),
            "start_within_ns": rng.choice([0, 1_000_000]),
            "seed": rng.randrange(1000),
        },
        transport={
            "name": rng.choice(["cubic", "newreno"]),
            "segment_bytes": rng.choice([536, 1460, 8960]),
            "initial_window_segments": rng.choice([1, 4, 10, 100]),
            "min_rto_ns": rng.choice([200_000, 2_000_000]),
            "delayed_ack_segments": rng.choice([1, 2]),
        },
        traffic_ns=rng.choice([3_000_000, 10_000_000]),
    )


def _matching(rng: random.Random, racks: int) -> list[int]:
    """To which rack each sends by its circuit; -1: to none."""
    receivers = rng.sample(range(racks), racks)
    return [-1 if receiver == rack or rng.random() < 0.1 else receiver for rack, receiver in enumerate(receivers)]
