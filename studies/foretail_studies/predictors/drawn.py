"""Workloads drawn at random, so that nobody picks what a predictor trains on or is judged on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

PORTS = (10, 16, 20, 20, 20, 32, 40)
BUFFER_PER_PORT = (25, 50, 50, 80)
MOST_TIMES_SLOTS = 10
"""Of the others' slots that rare bursts have."""


def drawn_workloads(count: int, seed: int, slots: int = 20_000) -> dict[str, list[str]]:
    """Return overrides of ``foretail collect`` for incasts, on-off sources and bursts in turn, by what was drawn.

    Incasts and on-off sources last `slots`, bursts up to ten times as long, so that rare ones bring as many packets.
    The first workloads of a seed do not depend on how many are drawn.

    Examples
    --------
    >>> from foretail_studies.predictors.drawn import drawn_workloads
    >>> first, *_ = drawn_workloads(3, seed=1).values()
    >>> first[0]
    'slotted.workload=incast'
    """
    draw = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        ports, per_port = int(draw.choice(PORTS)), int(draw.choice(BUFFER_PER_PORT))
        workload, settings = _drawn_traffic(draw, number % 3, ports)
        written = ", ".join(f"{name}: {value}" for name, value in settings.items())
        found[f"{workload}({written}), {ports} x {per_port}, {seed}.{number}"] = [
            f"slotted.workload={workload}",
            f"slotted.settings={{{written}}}",
            f"slotted.ports={ports}",
            f"slotted.buffer_per_port={per_port}",
            f"slotted.slots={_slots(workload, settings, slots)}",
        ]
    return found


def _drawn_traffic(draw: np.random.Generator, kind: int, ports: int) -> tuple[str, dict[str, Any]]:
    """A workload and its settings."""
    if kind == 0:
        return "incast", {
            "fan_in": int(draw.integers(3, min(ports, 16) + 1)),
            "background_load": round(float(draw.uniform(0.3, 0.8)), 2),
            "load": round(float(draw.uniform(0.05, 0.3)), 2),
            "burst_fraction": _between(draw, 0.2, 1.0),
        }
    if kind == 1:
        return "on_off", {
            "load": round(float(draw.uniform(0.5, 0.95)), 2),
            "mean_on_slots": int(np.exp(draw.uniform(np.log(40), np.log(400)))),
        }
    return "poisson_bursts", {"load": _between(draw, 0.04, 0.6), "burst_fraction": _between(draw, 0.15, 1.0)}


def _between(draw: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return round(math.exp(draw.uniform(math.log(low), math.log(high))), 2)


def _slots(workload: str, settings: dict[str, Any], slots: int) -> int:
    if workload != "poisson_bursts":
        return slots
    long = min(max(int(1.2 * slots / settings["load"]), slots), MOST_TIMES_SLOTS * slots)
    return max(1000, long // 1000 * 1000)
