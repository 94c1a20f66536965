"""Small driver settings that congest, for tests on real ns-3."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.pipelines.data.simulation import driver_config
from foretail.sim_bridge.ns3.messages import Message, columns
from tests.composed import stage_settings

MILLISECOND = 1_000_000


@functools.cache
def _tiny() -> dict[str, Any]:
    """The scenario ``tiny`` under LQD, with shorter flows and longer bursts."""
    config = stage_settings(CollectConfig, "scenario=tiny")
    document = driver_config(config.scenario, config.policy["lqd"], seed=1, trace=False)
    document["background"] |= {"size_bytes": [0, 10_000, 100_000, 1_000_000], "cumulative": [0, 0.4, 0.9, 1]}
    document["incast"]["burst_fraction"] = 1.5
    return document | {"traffic_ns": 3 * MILLISECOND, "drain_ns": 100 * MILLISECOND}


def settings(**changes: Any) -> dict[str, Any]:
    """The tiny scenario with changes such as ``policy__name="dt"`` or ``seed=2``."""
    document = copy.deepcopy(_tiny())
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
