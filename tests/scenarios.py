"""Small driver settings that congest, for tests on real ns-3."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from foretail.sim_bridge.ns3.messages import Message, columns
from foretail.sim_bridge.policy_settings import SwitchParameters

MILLISECOND = 1_000_000

_TINY: dict[str, Any] = {
    "format": 1,
    "seed": 1,
    "topology": {
        "leaves": 2,
        "spines": 2,
        "servers_per_leaf": 4,
        "pods": 1,
        "cores": 0,
        "server_link_bps": 10_000_000_000,
        "slow_spines": 0,
        "erasure_probability": 0.0,
        "spine_link_bps": 10_000_000_000,
        "slow_spine_link_bps": 5_000_000_000,
        "link_delay_ns": 3000,
        "buffer_bytes_per_port_per_gbps": 5120,
        "wire_overhead_bytes": 2,
    },
    "background": {
        "load": 0.8,
        "destinations": "next_leaf",
        "size_bytes": [0, 10_000, 100_000, 1_000_000],
        "cumulative": [0, 0.4, 0.9, 1],
    },
    "incast": {
        "queries_per_second_per_server": 1000.0,
        "cluster_size": 1.0,
        "cluster_gap_ns": 0,
        "burst_fraction": 1.5,
        "fan_in": 4,
        "responders": "next_leaf",
        "connections": "new",
        "connect_ahead_ns": 1_500_000,
    },
    "messages": {
        "start_ns": [],
        "latest_ns": [],
        "size_bytes": [],
        "source": [],
        "destination": [],
        "connection": [],
        "after": [],
        "gap_ns": [],
    },
    "transport": {
        "name": "dctcp",
        "background_name": None,
        "segment_bytes": 1400,
        "initial_window_segments": 22,
        "slow_start": False,
        "min_rto_ns": 10 * MILLISECOND,
        "delayed_ack_segments": 1,
        "recovery": "ns3",
        "reordering_window_ns": None,
        "mark_bytes": 14_400,
        "mark_full_bytes": 0,
        "mark_probability": 0.01,
        "rc3": {"edges": []},
        "powertcp": {"gamma": 0.9, "expected_flows": 100.0},
        "hpcc": {"utilisation": 0.95, "most_increases": 5, "expected_flows": 100.0},
        "timely": {
            "low_rtt_ns": 50_000,
            "high_rtt_ns": 500_000,
            "increase_bps": 10e6,
            "decrease": 0.8,
            "gradient_weight": 0.875,
        },
        "dcqcn": {
            "cnp_interval_ns": 50_000,
            "gain": 1 / 256,
            "alpha_interval_ns": 55_000,
            "increase_interval_ns": 55_000,
            "increase_bytes": 10_000_000,
            "fast_rounds": 5,
            "additive_bps": 40e6,
            "hyper_bps": 400e6,
        },
        "rdma": {
            "control": None,
            "low_rto_ns": 100_000,
            "high_rto_ns": 320_000,
            "few_segments": 3,
            "window_segments": 0,
        },
    },
    "balancing": {
        "name": "ecmp",
        "subflows": 16,
        "interval_ns": 32_000,
        "jitter": 0.25,
        "metric": "mean",
        "ewma_weight": 0.9,
        "last_share": 0.5,
        "mark_share": 0.05,
    },
    "traffic_ns": 3 * MILLISECOND,
    "drain_ns": 100 * MILLISECOND,
    "policy": {
        "name": "lqd",
        **{name: value for name, value in vars(SwitchParameters()).items() if name not in ("victim", "order")},
    },
    "queues": {
        "count": 1,
        "scheduler": "round_robin",
        "quantum_bytes": [],
        "background": 0,
        "incast": 0,
        "control": 0,
        "lossless": [],
        "marking": [],
    },
    "pfc": {
        "alpha": 1.0,
        "headroom_bytes": None,
        "headroom_pool_bytes": None,
        "xon_bytes": 0,
        "xon_offset_bytes": None,
        "makes_room": "longer_queues",
    },
    "rules": {
        "counting": "counted",
        "tie": "lowest_port",
        "victim": "tail",
        "order": "longest_queue",
        "oracle": "lqd",
        "oracle_alpha": 8.0,
    },
    "features": {"cell_bytes": 256, "average_shift": None},
    "trace": False,
    "counters": False,
    "occupancy_interval_ns": 30_000,
}


def settings(**changes: Any) -> dict[str, Any]:
    """The tiny scenario with changes such as ``policy__name="dt"`` or ``seed=2``."""
    document = copy.deepcopy(_TINY)
    for path, value in changes.items():
        *groups, key = path.split("__")
        node = document
        for group in groups:
            node = node[group]
        node[key] = value
    return document


STAR: dict[str, Any] = {
    "topology__leaves": 1,
    "topology__spines": 0,
    "background__destinations": "other_servers",
    "incast__responders": "other_servers",
}
SILENT: dict[str, Any] = {"background__load": 0.0, "incast__queries_per_second_per_server": 0.0, "incast__fan_in": 1}


def star_of_messages(messages: Sequence[Message], servers: int, **changes: Any) -> dict[str, Any]:
    """Nothing but messages between servers below one switch."""
    usual = STAR | SILENT | {"topology__servers_per_leaf": servers, "messages": columns(messages)}
    return settings(**(usual | changes))


RACKS: dict[str, Any] = {
    "format": 1,
    "racks": {
        "racks": 3,
        "hosts_per_rack": 2,
        "host_bps": 40_000_000_000,
        "packet_bps": 10_000_000_000,
        "packet_delay_ns": 5_000,
        "circuit_bps": 80_000_000_000,
        "circuit_delay_ns": 30_000,
        "day_ns": 180_000,
        "night_ns": 20_000,
        "matchings": [[1, 2, 0], [2, 0, 1]],
        "voq_packets": 8,
        "buffer": None,
        "resize": None,
    },
    "flows": {"source": [0], "destination": [2], "flows_per_pair": 3, "start_within_ns": 0, "seed": 1},
    "transport": {
        "name": "cubic",
        "segment_bytes": 8960,
        "initial_window_segments": 10,
        "min_rto_ns": 2_000_000,
        "delayed_ack_segments": 2,
    },
    "traffic_ns": 4_000_000,
    "emulation": {
        "factor": 200,
        "control": "cubic",
        "background_control": "cubic",
        "lateness_share": 1.0,
        "tail_loss_probes": True,
    },
}


def with_racks(**changes: Any) -> dict[str, Any]:
    """The document of three racks with circuits, with other entries of groups, or other groups and settings."""
    changed = {name: RACKS.get(name, {}) | new if isinstance(new, dict) else new for name, new in changes.items()}
    return RACKS | changed
