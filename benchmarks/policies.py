"""Packets per second of every policy in the slotted simulator, and of labels with features (20 ports, one core)."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

from foretail.sim_bridge import _native

PORTS, BUFFER, SLOTS, ROUNDS = 20, 400, 200_000, 3


def main() -> None:
    """Print the best of a few rounds per policy, and its ratio to Complete Sharing in the same run."""
    random = np.random.default_rng(1)
    arrivals = random.random((SLOTS, PORTS)) < 0.9
    slot = np.repeat(np.arange(SLOTS), arrivals.sum(axis=1))
    hot = (slot // 100) % PORTS
    port = np.where(random.random(len(slot)) < 0.3, hot, random.integers(0, PORTS, len(slot))).astype(np.int32)
    jobs = [(name, name, False) for name in ("cs", "dt", "abm", "lqd", "followlqd", "credence")]
    jobs.append(("lqd", "lqd, features", True))
    speed = {
        label: max(_packets_per_second(policy, slot, port, features) for _ in range(ROUNDS))
        for policy, label, features in jobs
    }
    table = Table(title=f"slotted simulator, {PORTS} ports, {len(slot):,} packets, labels always on")
    for heading in ("policy", "million packets/s", "time / cs"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for label, found in speed.items():
        table.add_row(label, f"{found / 1e6:.1f}", f"{speed['cs'] / found:.2f}")
    Console(width=110).print(table)


def _packets_per_second(policy: str, slot: np.ndarray, port: np.ndarray, features: bool) -> float:
    start = time.process_time()
    _native.slotted(policy, PORTS, BUFFER, slot, port, features=features)
    return len(slot) / (time.process_time() - start)


if __name__ == "__main__":
    main()
