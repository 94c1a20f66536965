"""The closed forms of the thesis (sections 4 and 5) against the policies on unit packets in slots.

A port sends one packet in a slot; a rate of r is r arrivals in every slot; a saturated queue gets more than it sends.
The formulas are of a fluid. In slots, a queue may pass its threshold by one packet, and what all ports send at a slot's
end makes room that is taken only in the next one; so a steady length is within 1 + alpha * (packets sent in a slot) of
its formula. Buffers are large, so that this is far below 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from foretail.sim_bridge._native import slotted

pytestmark = pytest.mark.slow

BUFFER = 20_000


class Source(NamedTuple):
    """`rate` arrivals in every slot to one queue."""

    port: int
    priority: int = 0
    rate: int = 3


class Traffic(NamedTuple):
    """Packets in order of arrival."""

    slot: NDArray[np.int64]
    port: NDArray[np.int32]
    priority: NDArray[np.uint8]


def saturated(ports: int, priorities: int = 1) -> list[Source]:
    return [Source(port, priority) for port, priority in product(range(ports), range(priorities))]


def traffic(*phases: tuple[int, Sequence[Source]]) -> Traffic:
    """Phases of so many slots with the same sources, whose arrivals take turns within a slot."""
    slots, queues = [], []
    start = 0
    for length, sources in phases:
        turns = [s for turn in range(max(s.rate for s in sources)) for s in sources if turn < s.rate]
        slots.append(np.repeat(np.arange(start, start + length), len(turns)))
        queues.append(np.tile([(s.port, s.priority) for s in turns], (length, 1)))
        start += length
    port, priority = np.concatenate(queues).T
    return Traffic(np.concatenate(slots), port.astype(np.int32), priority.astype(np.uint8))


def run(
    policy: str, arrivals: Traffic, alpha: Sequence[float], buffer: int = BUFFER, **settings: Any
) -> NDArray[np.bool_]:
    """Return which packets were accepted."""
    ports = int(arrivals.port.max()) + 1
    slot, port, priority = arrivals
    given = {"priority": priority, "alpha": alpha, "queues": len(alpha), "labels": False, **settings}
    found = slotted(policy, ports, buffer, slot, port, **given)
    accepted: NDArray[np.bool_] = found["outcome"] == 0
    return accepted


def lengths(arrivals: Traffic, accepted: NDArray[np.bool_], priorities: int) -> NDArray[np.int64]:
    """Lengths of all queues after the arrivals of each slot, (slots, ports, priorities); ports serve round robin."""
    shape = (int(arrivals.slot[-1]) + 1, int(arrivals.port.max()) + 1, priorities)
    came = np.zeros(shape, np.int64)
    np.add.at(came, (arrivals.slot[accepted], arrivals.port[accepted], arrivals.priority[accepted]), 1)
    queues = np.zeros(shape[1:], np.int64)
    served = [priorities - 1] * shape[1]
    held = np.zeros(shape, np.int64)
    for slot in range(shape[0]):
        queues += came[slot]
        held[slot] = queues
        for port in range(shape[1]):
            turns = [(served[port] + step) % priorities for step in range(1, priorities + 1)]
            waiting = [priority for priority in turns if queues[port, priority] > 0]
            if waiting:
                served[port] = waiting[0]
                queues[port, waiting[0]] -= 1
    return held


def slack(alpha: Sequence[float], ports: int) -> float:
    return 1 + max(alpha) * ports


def steady(
    policy: str, sources: Sequence[Source], alpha: Sequence[float], slots: int = 12_000, **settings: Any
) -> NDArray[np.int64]:
    """Lengths (ports, priorities) after so many slots, by when they must have come to rest."""
    arrivals = traffic((slots, sources))
    held = lengths(arrivals, run(policy, arrivals, alpha, **settings), len(alpha))
    late, end = held[-slots // 5 :], held[-1]
    assert (np.ptp(late, axis=0) <= np.maximum(slack(alpha, held.shape[1]), 0.01 * end)).all(), "not steady"
    return np.array(end)


@pytest.mark.parametrize(
    ("alpha", "ports"),
    [((0.5,), 1), ((0.5,), 4), ((0.5,), 16), ((1.0,), 8), ((8.0,), 4), ((2.0, 0.5), 3), ((4.0, 1.0, 0.25), 2)],
)
def test_equation_4_6_steady_state_of_dt(alpha: tuple[float, ...], ports: int) -> None:
    """T = alpha B / (1 + sum of n alpha), and B / (1 + sum of n alpha) stays free."""
    held = steady("dt", saturated(ports, len(alpha)), alpha)
    whole = 1 + ports * sum(alpha)
    for priority, own in enumerate(alpha):
        assert held[:, priority] == pytest.approx(own * BUFFER / whole, abs=slack(alpha, ports))
    assert BUFFER - held.sum() == pytest.approx(BUFFER / whole, abs=held.size * slack(alpha, ports))


def omegas(alpha: Sequence[float], active: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """ABM's alpha / n * (share of the port) of each queue (definition 1); `active[port]`: its saturated priorities."""
    count = [sum(p in busy for busy in active) for p in range(len(alpha))]
    return np.array(
        [[alpha[p] / count[p] / len(busy) if p in busy else 0.0 for p in range(len(alpha))] for busy in active]
    )


PATTERNS: list[tuple[tuple[float, ...], list[list[int]]]] = [
    ((0.5,), [[0]]),
    ((0.5,), [[0]] * 4),
    ((4.0,), [[0]] * 6),
    ((0.5, 0.5), [[0, 1]] * 3),
    ((8.0, 0.5), [[0, 1]]),
    ((1.0, 0.5), [[0, 1], [0], [1], [1]]),
    ((2.0, 1.0, 0.5), [[0, 1, 2], [1, 2], [2]]),
    ((0.5, 2.0), [[1], [1], [0, 1]]),
]


def abm_steady(alpha: tuple[float, ...], active: list[list[int]]) -> NDArray[np.int64]:
    sources = [Source(port, priority) for port, busy in enumerate(active) for priority in busy]
    return steady("abm", sources, alpha, slots=60_000)


@pytest.mark.parametrize(("alpha", "active"), PATTERNS)
def test_lemma_2_steady_state_of_abm_and_theorems_5_and_6(alpha: tuple[float, ...], active: list[list[int]]) -> None:
    """T = omega B / (1 + sum of omegas); a priority has at least B alpha / (1 + sum of alphas) times the mean share of
    a port that its queues have, and at most B alpha / (1 + alpha).
    """
    held = abm_steady(alpha, active)
    omega = omegas(alpha, active)
    loose = slack(alpha, len(active))
    assert held == pytest.approx(omega * BUFFER / (1 + omega.sum()), abs=loose)
    assert (omega.sum(axis=0) <= np.array(alpha) + 1e-12).all()  # lemma 1
    for priority, own in enumerate(alpha):
        busy = [port for port, mine in enumerate(active) if priority in mine]
        mean_share = np.mean([1 / len(active[port]) for port in busy])
        total = held[:, priority].sum()
        assert total >= BUFFER * own / (1 + sum(alpha)) * mean_share - loose * len(busy)
        assert total <= BUFFER * own / (1 + own) + loose * len(busy)
