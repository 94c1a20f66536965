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
REVERIE_MEMORY = 16  # slots; short against the queues, see below


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


def test_equation_4_6_counts_saturated_queues_only() -> None:
    """The queues of ports that get no more than they send hold a packet each, which is nothing in a large buffer."""
    idle = [Source(port, rate=1) for port in range(4, 8)]
    held = steady("dt", [*saturated(4), *idle], (0.5,))
    assert held[:4, 0] == pytest.approx(0.5 * BUFFER / 3, abs=slack((0.5,), 8))
    assert held[4:, 0].max() == 1


def burst(policy: str, alpha: tuple[float, ...], old: int, rate: int, buffer: int) -> int:
    """Length that a new queue at an idle port reaches before it loses its first packet, beside `old` saturated ones.

    With two alphas the old queues have the first priority and the burst the second.
    """
    settled = 5 * buffer // 4
    arrivals = traffic(
        (settled, saturated(old)), (buffer // (rate - 1), [*saturated(old), Source(old, len(alpha) - 1, rate)])
    )
    accepted = run(policy, arrivals, alpha, buffer)
    mine = np.flatnonzero(arrivals.port == old)
    lost = int(np.flatnonzero(~accepted[mine])[0])
    return lost - int(arrivals.slot[mine[lost]] - settled)  # it has sent one packet at the end of every slot


def fast_tolerance(new: float, old: int, old_sum: float, rate: int) -> float:
    """Equation 4.8, as a part of the buffer; with ABM's omegas for alphas it is (r - 1) times equation 4.39."""
    return new / ((1 + old_sum) * (1 + new * (rate - 1 - old) / (rate - 1)))


def slow_tolerance(new: float, old_sum: float) -> float:
    """The steady share with the new queue counted, (r - 1) times equation 4.34, which knows no rate."""
    return new / (1 + old_sum + new)


def boundary(old: int, old_sum: float) -> float:
    """Equation 4.28 without affected queues: at higher rates the thresholds fall faster than the old queues drain."""
    return 1 + old * (1 + old_sum) / old_sum


@pytest.mark.parametrize("rate", [2, 3, 6, 7, 8, 12, 20, 40])
@pytest.mark.parametrize(("alpha", "old"), [(0.5, 4), (1.0, 2), (2.0, 8)])
def test_equations_4_8_and_4_28_burst_tolerance_of_dt(alpha: float, old: int, rate: int) -> None:
    buffer = 100_000
    fast = rate > boundary(old, old * alpha)
    part = fast_tolerance(alpha, old, old * alpha, rate) if fast else slow_tolerance(alpha, old * alpha)
    # The burst sees the slot's arrivals at once, up to `rate` of them, and the old queues one slot late.
    assert burst("dt", (alpha,), old, rate, buffer) == pytest.approx(
        part * buffer, abs=2 * slack((alpha,), old) + alpha * rate
    )


@pytest.mark.parametrize("rate", [2, 4, 8, 14, 20, 40])
@pytest.mark.parametrize("old", [2, 8])
def test_equations_4_34_and_4_39_burst_tolerance_of_abm_for_another_priority(old: int, rate: int) -> None:
    """Old queues share one alpha however many they are; the burst, alone in its priority, has its alpha to itself."""
    buffer, low, high = 100_000, 0.5, 2.0
    fast = rate > boundary(old, low)
    part = fast_tolerance(high, old, low, rate) if fast else slow_tolerance(high, low)
    assert burst("abm", (low, high), old, rate, buffer) == pytest.approx(
        part * buffer, abs=2 * slack((high,), old) + high * rate
    )


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


def test_theorem_6_is_of_steady_states_only() -> None:
    """Until the congested queues are counted, they fill the buffer as Dynamic Thresholds let them."""
    arrivals = traffic((9000, saturated(4)))
    held = lengths(arrivals, run("abm", arrivals, (0.5,), rtt_slots=5000), 1).sum(axis=(1, 2))
    most = 0.5 * BUFFER / 1.5
    assert held[4999] == pytest.approx(2 * BUFFER / 3, abs=4 * slack((0.5,), 4))
    assert held[4999] > 1.9 * most
    assert held[-1] == pytest.approx(most, abs=4 * slack((0.5,), 4))


def drain_slots(alpha: tuple[float, ...], active: list[list[int]], priority: int) -> int:
    """Slots until the last packet of a priority of port 0 has left when its arrivals end and all others go on."""
    sources = [Source(port, p) for port, busy in enumerate(active) for p in busy]
    others = [source for source in sources if source[:2] != (0, priority)]
    filled, emptied = 40_000, 5 * BUFFER // 2
    arrivals = traffic((filled, sources), (emptied, [*others, Source(len(active), rate=1)]))
    held = lengths(arrivals, run("abm", arrivals, alpha), len(alpha))[filled:, 0, priority]
    return int(np.flatnonzero(held == 0)[0])


@pytest.mark.parametrize(
    ("alpha", "active", "times_b", "printed_holds"),
    [
        ((0.5,), [[0]], 0.5 / 1.5, True),  # tight
        ((0.5, 0.5), [[0, 1]], 0.5 / 1.5, True),  # tight
        ((0.5, 8.0), [[0, 1]], 0.5 / 5.25, True),
        ((8.0, 0.5), [[0, 1]], 8 / 5.25, False),
        ((8.0, 0.5), [[0, 1], [0, 1]], 4 / 5.25, True),
        ((4.0, 0.25, 0.25), [[0, 1, 2]], 4 / 2.5, False),
    ],
)
def test_theorem_7_does_not_hold_but_a_weaker_bound_does(
    alpha: tuple[float, ...], active: list[list[int]], times_b: float, printed_holds: bool
) -> None:
    """A queue needs T / (share b) = alpha / n * B / (1 + sum of omegas) / b to drain, which exceeds the printed
    B alpha / ((1 + alpha) b) where the omegas sum to less than alpha; alpha B / (n b) always bounds it.
    """
    slots = drain_slots(alpha, active, 0)
    loose = (slack(alpha, len(active)) + 1) * len(alpha)
    assert slots == pytest.approx(times_b * BUFFER, abs=loose)
    n = len([busy for busy in active if 0 in busy])
    assert slots <= alpha[0] * BUFFER / n
    assert (slots <= alpha[0] * BUFFER / (1 + alpha[0]) + loose) == printed_holds


@pytest.mark.parametrize(
    ("alpha", "active"),
    [
        ((1.0,), [[0]]),
        ((1.0,), [[0]] * 6),
        ((0.5,), [[0]] * 4),
        ((4.0,), [[0]] * 3),
        ((1.0, 0.5), [[0], [0], [1]]),
        ((1.0, 0.5), [[0, 1]] * 2),
        ((0.5, 2.0), [[0, 1], [0], [1], [0]]),
    ],
)
def test_theorems_10_and_11_steady_shares_and_idle_buffer_of_reverie(
    alpha: tuple[float, ...], active: list[list[int]]
) -> None:
    """Two lossy classes stand for the thesis's lossless and lossy: class p holds alpha B / (1 + sum of the alphas of
    the classes that send), alone alpha B / (1 + alpha); between B / (1 + both) and B / (1 + the smaller) stays idle.
    """
    sources = [Source(port, priority) for port, busy in enumerate(active) for priority in busy]
    held = steady("reverie", sources, alpha, slots=60_000, low_pass_slots=REVERIE_MEMORY)
    for priority, own in enumerate(alpha):
        share = own * BUFFER / (1 + sum(alpha))
        queues = held[[priority in busy for busy in active], priority]
        assert queues == pytest.approx(share / len(queues), rel=0.01)
        assert queues.sum() == pytest.approx(share, rel=0.002)
    idle = BUFFER - held.sum()
    assert BUFFER / (1 + sum(alpha)) * 0.998 <= idle <= BUFFER / (1 + min(alpha)) * 1.002
    if len(alpha) > 1:
        assert held[:, 0].sum() / held[:, 1].sum() == pytest.approx(alpha[0] / alpha[1], rel=0.004)


@pytest.mark.parametrize("alone", [0, 1])
def test_theorem_11_one_class_alone_leaves_less_than_the_upper_bound_idle(alone: int) -> None:
    alpha = (1.0, 0.5)
    sources = [Source(port, alone) for port in range(3)]
    held = steady("reverie", sources, alpha, slots=60_000, low_pass_slots=REVERIE_MEMORY)
    idle = BUFFER - held.sum()
    assert idle == pytest.approx(BUFFER / (1 + alpha[alone]), rel=0.002)
    assert BUFFER / 2.5 <= idle <= BUFFER / 1.5 * 1.002


@pytest.mark.parametrize(("alpha", "ports"), [(1.0, 6), (0.5, 4)])
def test_reverie_comes_to_rest_only_with_a_memory_below_a_tenth_of_its_queues(alpha: float, ports: int) -> None:
    """A draining queue q is about L = low_pass_slots shorter than its average. When the average meets the threshold,
    q = q* - L / (1 + alpha), q* its steady length. Below 0.9 of the threshold it is congested no more: then the
    others of its kind, all in the same state, get `ports` times the threshold until 0.9 of that is full, and again.
    """
    rest = alpha * BUFFER / (ports * (1 + alpha))
    longest = 0.1 * rest * (1 + alpha) / (1 + 0.9 * alpha)
    arrivals = traffic((40_000, saturated(ports)))
    for memory, swings in ((0.9 * longest, False), (1.1 * longest, True), (4 * longest, True)):
        held = lengths(arrivals, run("reverie", arrivals, (alpha,), low_pass_slots=int(memory)), 1)[-20_000:].sum(
            axis=1
        )
        top = 0.9 * alpha * BUFFER / (1 + 0.9 * alpha * ports) * ports
        assert held.mean() == pytest.approx(rest * ports, rel=0.01) or swings
        assert (held.max() > 0.99 * top > 1.5 * rest * ports) == swings


def test_reverie_absorbs_a_burst_that_dynamic_thresholds_cannot() -> None:
    """The average of an empty queue lags behind a burst: without memory a queue stops at alpha (B - Q)."""
    arrivals = traffic((400, [Source(0, rate=41)]))
    taken = {low_pass: int(run("reverie", arrivals, (1.0,), low_pass_slots=low_pass).sum()) for low_pass in (1, 1000)}
    assert taken[1] == pytest.approx(BUFFER / 2 + 400, rel=0.01)
    assert taken[1000] == pytest.approx(400 * 41, rel=0.01)
