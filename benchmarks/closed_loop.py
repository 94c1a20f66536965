"""The closed loop at native speed, on one core: decisions of environments, and snapshots.

Actions are random, one in a hundred a drop. Times are CPU time, of environments without their resets.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

import foretail.gym  # noqa: F401  # registers the environments
from benchmarks.native_speed import scenario_of
from foretail.configs.schema.policies import Policy
from foretail.pipelines.data.simulation import driver_config
from foretail.sim_bridge.native.network import NativeNetwork

TRAFFIC_NS = {
    "small": {"tiny": 500_000},
    "full": {"leafspine_small": 10_000_000, "elephants": 5_000_000},
}
ENVIRONMENTS = {"small": (4,), "full": (1, 16, 64, 256)}
DECISIONS = {"small": 2000, "full": 400_000}
SNAPSHOTS = {"small": 3, "full": 50}
ROUNDS = {"small": 1, "full": 3}


def main(size: str) -> None:
    """Print decisions per second of the environments, and times of snapshots."""
    documents = {name: _document(name, traffic_ns) for name, traffic_ns in TRAFFIC_NS[size].items()}
    _print(
        "foretail/ClosedLoop-v0",
        ("scenario", "environments", "decisions/s", "ms per reset"),
        [
            (name, f"{count:,}", *_decisions(document, count, DECISIONS[size], ROUNDS[size]))
            for name, document in documents.items()
            for count in ENVIRONMENTS[size]
        ],
    )
    _print(
        "Snapshots in the middle of the traffic, microseconds",
        ("scenario", "the first", "in its memory again", "restore"),
        [(name, *_snapshots(document, SNAPSHOTS[size])) for name, document in documents.items()],
    )


def _print(title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "scenario" else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


def _document(name: str, traffic_ns: int, policy: str = "learned") -> dict[str, Any]:
    return driver_config(scenario_of(name, traffic_ns), Policy(policy), 1, trace=False)


def _decisions(document: Mapping[str, Any], count: int, decisions: int, rounds: int) -> tuple[str, str]:
    """Decisions per second of steps alone, at best, and the time of a reset."""
    steps = -(-decisions // count)
    actions = (np.random.default_rng(1).random((64, count)) < 0.01).astype(np.int64)
    speeds, resets = [], []
    for _ in range(rounds):
        env = gymnasium.make_vec("foretail/ClosedLoop-v0", num_envs=count, scenario=document)
        start = time.process_time()
        env.reset(seed=1)
        begun = time.process_time()
        for step in range(steps):
            env.step(actions[step % 64])
        speeds.append(count * steps / (time.process_time() - begun))
        resets.append(1e3 * (begun - start) / count)
    return f"{max(speeds):,.0f}", f"{min(resets):.1f}"


def _snapshots(document: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Medians for the first snapshot, for one into its memory, and for going back."""
    network = NativeNetwork({**document, "policy": {**document["policy"], "name": "dt"}})
    half_ns = document["incast"]["connect_ahead_ns"] + document["traffic_ns"] // 2
    network.advance(half_ns)
    start = time.perf_counter()
    snapshot = network.snapshot()
    first = time.perf_counter() - start
    taken, restored = [], []
    for number in range(count):
        network.advance(half_ns + 10_000 * (number + 1))
        start = time.perf_counter()
        network.snapshot(into=snapshot)
        between = time.perf_counter()
        network.restore(snapshot)
        taken.append(between - start)
        restored.append(time.perf_counter() - between)
    return tuple(f"{1e6 * seconds:.0f}" for seconds in (first, statistics.median(taken), statistics.median(restored)))
