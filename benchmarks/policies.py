"""Packets per second of every policy in the slotted simulator and in replay, on one core, by number of ports.

The obvious model beside them is what one would write first: a list of queue lengths in Python, looked at as a whole.
Longest queues: in slots, sets of ports by the time at which their queues run empty (slot_queues.hpp); in bytes, a
tournament tree, or up to 32 ports a scan when the longest has given way (containers.hpp).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from foretail.features.catalog import PAPER_FEATURES
from foretail.sim_bridge._native import Replay, SlottedRun, late_qd
from foretail.sim_bridge.policies import OF_ARRIVALS

PORTS = {"small": (20, 64), "full": (20, 64, 256)}
PACKETS = {"small": 50_000, "full": 2_000_000}
MODEL_PACKETS, ROUNDS = {"small": 2_000, "full": 20_000}, 3
BATCH = 100_000

WANTED: dict[str, bool | Sequence[str]] = {
    "lqd, labels": False,
    "lqd, labels and the paper's features": PAPER_FEATURES,
    "lqd, labels and features": True,
}
"""Features of each run with labels."""

Arrivals = tuple[NDArray[np.int64], NDArray[np.int32]]


def main(size: str) -> None:
    """Print million packets per second, best of a few rounds, and ratios to the obvious model in the same run."""
    slots: dict[str, list[str]] = {name: [] for name in (*OF_ARRIVALS, *WANTED, "optimum")}
    replay: dict[str, list[str]] = {name: [] for name in OF_ARRIVALS}
    model: dict[str, list[str]] = {"lqd": [], "dt": []}
    packets, model_packets = PACKETS[size], MODEL_PACKETS[size]
    for ports in PORTS[size]:
        buffer = 50 * ports
        slot, port = _arrivals(ports, packets)
        for name in OF_ARRIVALS:
            slots[name].append(_best(len(slot), partial(_slotted, name, ports, buffer, slot, port)))
            replay[name].append(_best(len(slot), partial(_replay, name, ports, buffer, slot, port)))
        for title, features in WANTED.items():
            slots[title].append(_best(len(slot), partial(_labels, features, ports, buffer, slot, port)))
        slots["optimum"].append(_best(len(slot), partial(late_qd, ports, buffer, slot, port)))
        for name in model:
            part = slot[:model_packets].tolist(), port[:model_packets].tolist()
            sent = obvious_model(name, ports, buffer, *part)
            if sent != _slotted(name, ports, buffer, slot[:model_packets], port[:model_packets]):
                raise SystemExit(f"the obvious model of {name} does not transmit what the simulator does")
            obvious = _best(model_packets, partial(obvious_model, name, ports, buffer, *part), rounds=1)
            model[name].append(f"{obvious} ({float(slots[name][-1]) / float(obvious):,.0f} x)")
    for title, speeds in (
        (f"slots, {packets:,} packets in batches of {BATCH:,}", slots),
        ("replay of the same in bytes", replay),
        ("the obvious Python model (slots are faster by)", model),
    ):
        table = Table(title=title)
        table.add_column("million packets/s")
        for ports in PORTS[size]:
            table.add_column(f"{ports} ports", justify="right")
        for name, cells in speeds.items():
            table.add_row(name, *cells)
        Console(width=110).print(table)


def obvious_model(policy: str, ports: int, buffer: int, slots: list[int], port_of: list[int]) -> int:
    """Packets that LQD or Dynamic Thresholds (alpha 0.5) transmit."""
    lengths = [0] * ports
    now = sent = 0
    for slot, port in zip(slots, port_of, strict=True):
        while now < slot:
            sent += sum(length > 0 for length in lengths)
            lengths = [max(0, length - 1) for length in lengths]
            now += 1
        free = buffer - sum(lengths)
        if policy == "lqd":
            lengths[port] += 1
            if free == 0:
                lengths[lengths.index(max(lengths))] -= 1
        elif free > 0 and lengths[port] < 0.5 * free:
            lengths[port] += 1
    return sent + sum(lengths)


def _arrivals(ports: int, packets: int) -> Arrivals:
    """Nine tenths of what the switch can send, three tenths of them to a port that changes every 100 slots."""
    draw = np.random.default_rng(1)
    slot = (np.arange(packets) / (0.9 * ports)).astype(np.int64)
    hot = (slot // 100) % ports
    return slot, np.where(draw.random(packets) < 0.3, hot, draw.integers(0, ports, packets)).astype(np.int32)


def _slotted(policy: str, ports: int, buffer: int, slot: NDArray[np.int64], port: NDArray[np.int32]) -> int:
    run = SlottedRun(policy, ports, buffer)
    for start in range(0, len(slot), BATCH):
        run.feed(slot[start : start + BATCH], port[start : start + BATCH], columns=False)
    return int(run.finish()["transmitted"])


def _labels(
    features: bool | Sequence[str], ports: int, buffer: int, slot: NDArray[np.int64], port: NDArray[np.int32]
) -> None:
    run = SlottedRun("lqd", ports, buffer, labels=True, features=features)
    for start in range(0, len(slot), BATCH):
        run.feed(slot[start : start + BATCH], port[start : start + BATCH])
    run.finish()


def _replay(policy: str, ports: int, buffer: int, slot: NDArray[np.int64], port: NDArray[np.int32]) -> None:
    """Packets of 1000 bytes that a link sends in the time of a slot."""
    run = Replay(
        policy,
        [(1000 * buffer, [8_000_000_000] * ports)],
        wire_overhead_bytes=0,
    )
    for start in range(0, len(slot), BATCH):
        now = slot[start : start + BATCH] * 1000
        run.feed(
            now,
            np.zeros(len(now), np.int16),
            port[start : start + BATCH].astype(np.int16),
            np.full(len(now), 1000, np.int32),
            np.ones(len(now), np.uint8),
            np.zeros(len(now), np.uint8),
        )
    run.finish()


def _best(packets: int, work: Callable[[], object], rounds: int = ROUNDS) -> str:
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return f"{packets / min(seconds) / 1e6:.3g}"
