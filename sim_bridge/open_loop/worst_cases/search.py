"""Search for short arrival sequences on which a policy, or a published claim about it, does badly.

A worst case of a few slots can be read, followed by hand and kept as a test. The search is hill climbing with restarts:
change the sequence and, for Credence, the predictions at random, and keep the change unless it is worse by more than a
slack that shrinks to nothing. Its result is a lower bound of the worst ratio, no more. Sequences are written as in the
papers: ``[012][][11]`` is three slots with the ports of their arrivals, in order; predictions have a digit per packet,
1 = drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge.open_loop.worst_cases.objectives import OBJECTIVES, WorstCase, measure, objective_of

MAX_SLOTS = 12
SLACK = 0.1
"""By so much may a change lower the ratio at first; by nothing in the end."""
SWITCHES = ((2, 2), (2, 3), (2, 4), (2, 6), (2, 8), (3, 3), (3, 5), (3, 6), (3, 8), (4, 4), (4, 6), (4, 8))
"""Ports and buffers (packets) that the search tries. B >= N: below, Credence may drop all there is."""

Slots = list[list[tuple[int, int]]]
"""Of every slot the packets in order of arrival: port and prediction."""


def search(
    objective: str, ports: int, buffer: int, *, seed: int = 0, restarts: int = 8, steps: int = 3000
) -> WorstCase:
    """Look for a sequence with a high ratio, then take out of it what does not matter.

    ForetailError on an unknown objective or a switch out of range.

    Parameters
    ----------
    objective : as in :func:`objective_of`
    ports, buffer : N, 2 to 10 (ports are written as one digit), and B >= N
    seed : the same seed finds the same sequence
    restarts, steps : so many sequences are grown from nothing, each by so many changes
    """
    wanted = objective_of(objective)
    if not 2 <= ports <= min(10, buffer):
        raise ForetailError(f"ports must be from 2 to 10 and at most the buffer, {buffer}: {ports}")
    draw = np.random.default_rng(seed)
    most = 2 * buffer if wanted.any_load else ports
    best = _measured(objective, ports, buffer, [])
    for _ in range(restarts):
        slots: Slots = []
        ratio = Fraction(0)
        top, top_ratio = slots, ratio
        for step in range(steps):
            changed = _changed(slots, ports, most, wanted.predicted, draw)
            new = _measured(objective, ports, buffer, changed).ratio
            if float(new) >= float(ratio) - SLACK * (1 - step / steps):
                slots, ratio = changed, new
                if ratio > top_ratio:
                    top, top_ratio = slots, ratio
        if top_ratio > best.ratio:
            best = _measured(objective, ports, buffer, _shrunk(objective, ports, buffer, top))
    return best


def _shrunk(objective: str, ports: int, buffer: int, slots: Slots) -> Slots:
    """Take out slots, packets and predicted drops, one at a time, while the ratio does not fall."""
    ratio = _measured(objective, ports, buffer, slots).ratio
    again = True
    while again:
        again = False
        for smaller in _smaller(slots):
            if _measured(objective, ports, buffer, smaller).ratio >= ratio:
                slots, again = smaller, True
                break
    return slots


def _smaller(slots: Slots) -> Iterator[Slots]:
    for number, slot in enumerate(slots):
        rest = slots[:number], slots[number + 1 :]
        yield rest[0] + rest[1]
        for at, (port, drop) in enumerate(slot):
            yield [*rest[0], slot[:at] + slot[at + 1 :], *rest[1]]
            if drop:
                yield [*rest[0], [*slot[:at], (port, 0), *slot[at + 1 :]], *rest[1]]


def _changed(slots: Slots, ports: int, per_slot: int, predicted: bool, draw: np.random.Generator) -> Slots:
    """Change one to four things, then cut off empty slots at both ends."""
    new = [list(slot) for slot in slots]

    def any_packet() -> tuple[int, int]:
        return int(draw.integers(ports)), int(predicted and draw.integers(2))

    for _ in range(draw.integers(1, 5)):
        kind = draw.integers(6)
        if kind == 0 or not new:
            if len(new) < MAX_SLOTS:  # a new slot: empty, copied, or a burst
                copied = new[draw.integers(len(new))] if new else []
                burst = [any_packet()] * int(draw.integers(per_slot + 1))
                new.insert(int(draw.integers(len(new) + 1)), list((copied, burst, [])[draw.integers(3)]))
            continue
        slot = new[draw.integers(len(new))]
        at = int(draw.integers(len(slot) + 1))
        if kind == 1:
            new.remove(slot)
        elif kind == 2 and len(slot) < per_slot:
            slot.insert(at, any_packet())
        elif at == len(slot):
            continue
        elif kind == 3:
            slot.pop(at)
        elif kind == 4 and predicted:
            slot[at] = (slot[at][0], 1 - slot[at][1])
        else:
            slot[at] = any_packet()
    while new and not new[0]:
        new.pop(0)
    while new and not new[-1]:
        new.pop()
    return new


def _measured(objective: str, ports: int, buffer: int, slots: Slots) -> WorstCase:
    wanted = objective_of(objective)
    slot = [number for number, packets in enumerate(slots) for _ in packets]
    port = [port for packets in slots for port, _ in packets]
    predictions = [drop for packets in slots for _, drop in packets]
    return WorstCase(
        objective,
        ports,
        buffer,
        "".join(f"[{''.join(str(port) for port, _ in packets)}]" for packets in slots),
        "".join(map(str, predictions)) if wanted.predicted else "",
        measure(wanted.counts, ports, buffer, slot, port, predictions),
    )


def worst_cases(
    objectives: Iterable[str] = tuple(OBJECTIVES),
    switches: Iterable[tuple[int, int]] = SWITCHES,
    *,
    seed: int = 0,
    restarts: int = 16,
    steps: int = 4000,
    processes: int = 1,
) -> list[WorstCase]:
    """Return for every objective and every number of ports the worst case that a search over the switches finds."""
    jobs = list(product(objectives, switches))
    one = partial(_job, seed=seed, restarts=restarts, steps=steps)
    if processes == 1:
        candidates = list(map(one, jobs))
    else:
        with ProcessPoolExecutor(processes) as pool:
            candidates = list(pool.map(one, jobs))
    worst: dict[tuple[str, int], WorstCase] = {}
    for case in candidates:
        key = (case.objective, case.ports)
        if key not in worst or case.ratio > worst[key].ratio:
            worst[key] = case
    return list(worst.values())


def _job(job: tuple[str, tuple[int, int]], **settings: int) -> WorstCase:
    objective, (ports, buffer) = job
    return search(objective, ports, buffer, **settings)
