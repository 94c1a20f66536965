"""Environments and live predictors on one core: decisions per second.

Actions are random, one in ten a drop, so that queues build up. The network of the second table has untrained weights:
what it decides does not matter here, and it drops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from foretail.gym import BufferEnv, Generated
from foretail.sim_bridge.arrivals.workloads import OnOff
from foretail.sim_bridge.open_loop.live import run_live

ENVIRONMENTS = {"small": (64,), "full": (64, 256, 1024)}
SLOTS = {"small": 500, "full": 2000}
SINGLE_STEPS = {"small": 1000, "full": 100_000}
SWITCHES = ((8, 80), (20, 1000))
BATCHES = (1, 1024)
FEATURES = ("queue", "occupancy", "threshold", "thresholds_sum")
ROUNDS = 3


def main(size: str) -> None:
    """Print decisions per second of the vector form, their ratio to the single environment, and those of PyTorch."""
    table = Table(title=f"foretail/Buffer-v0, on-off traffic, episodes of {SLOTS[size]:,} slots")
    for heading in ("ports, buffer", "environments", "decisions/s", "over a single one", "with resets"):
        table.add_column(heading, justify="right")
    for ports, buffer in SWITCHES:
        traffic = Generated(OnOff(), ports, buffer, SLOTS[size])
        single = _single(BufferEnv(traffic), SINGLE_STEPS[size])
        table.add_row(f"{ports}, {buffer}", "a single one", f"{single:,.0f}", "1", "")
        for count in ENVIRONMENTS[size]:
            env = gymnasium.make_vec("foretail/Buffer-v0", num_envs=count, traffic=traffic)  # as users do
            many, with_resets = _vector(env, count)
            cells = f"{many:,.0f}", f"{many / single:.1f}", f"{with_resets:,.0f}"
            table.add_row(f"{ports}, {buffer}", f"{count:,}", *cells)
    Console(width=110).print(table)

    torch.set_num_threads(1)
    table = Table(title="Credence asks a network of PyTorch, 4 x 16 x 16 x 1, 8 ports")
    for heading in ("runs side by side", "decisions/s", "mean batch", "arrivals/s"):
        table.add_column(heading, justify="right")
    for batch in BATCHES:
        decisions, mean, arrivals = _live(batch, size)
        table.add_row(f"{batch:,}", f"{decisions:,.0f}", f"{mean:.1f}", f"{arrivals:,.0f}")
    Console(width=110).print(table)


def _single(env: BufferEnv, steps: int) -> float:
    actions = _actions(steps).tolist()

    def work() -> int:
        env.reset(seed=1)
        for action in actions:
            if env.step(action)[2]:
                env.reset()
        return steps

    return _best(work)


def _vector(env: gymnasium.vector.VectorEnv[Any, Any, Any], count: int) -> tuple[float, float]:
    """Decisions per second of steps alone, and with the time in which the episodes got their arrivals."""
    actions = _actions((64, count))
    rows = []
    for _ in range(ROUNDS):
        start = time.process_time()
        env.reset(seed=1)
        begun, steps, over = time.process_time(), 0, np.zeros(count, np.bool_)
        while not over.any():
            over = env.step(actions[steps % 64])[2]
            steps += 1
        end = time.process_time()
        rows.append((count * steps / (end - begun), count * steps / (end - start)))
    return max(rows)


def _live(batch: int, size: str) -> tuple[float, float, float]:
    """Decisions per second, their mean number per call of the network, and arrivals per second."""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    ).eval()
    ports, buffer = SWITCHES[0]
    sequences = [next(OnOff().batches(ports, buffer, SLOTS[size] // 5, seed + 1)) for seed in range(batch)]
    rows: list[Any] = []

    def work() -> int:
        rows.append(run_live(sequences, ports, buffer, layers, FEATURES, threshold=np.inf))
        return int(rows[0].asked)

    decisions = _best(work)
    predictions, calls_made = rows[0].asked, rows[0].calls
    return decisions, predictions / calls_made, decisions / predictions * sum(map(len, sequences))


def _actions(shape: int | tuple[int, int]) -> Any:
    return (np.random.default_rng(1).random(shape) < 0.1).astype(np.int64)


def _best(work: Callable[[], int]) -> float:
    """Best rate of `work`, per second of CPU time."""
    speeds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        done = work()
        speeds.append(done / (time.process_time() - start))
    return max(speeds)
