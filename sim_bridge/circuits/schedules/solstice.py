"""Solstice, as the Etalon emulator runs it: the most demand in a week of few, long circuit days.

Source: Liu et al., CoNEXT 2015 (stuffing, then slicing by halved thresholds), and the emulator's own changes: demand
is inflated to half a week, and the days are stretched or cut until they fill the week exactly. Ties, which the emulator
breaks at random, are broken in order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretail.features.demand.matrix import DemandMatrix
from foretail.features.errors import ForetailError
from foretail.sim_bridge.circuits.schedules.birkhoff import matching_on, stuffed
from foretail.sim_bridge.circuits.schedules.schedule import IDLE
from foretail.sim_bridge.circuits.schedules.variable_schedule import VariableSchedule

IntArray = npt.NDArray[np.int64]
NodeArray = npt.NDArray[np.int32]


def solstice(
    demand: DemandMatrix, degree: int, week: int = 2000, night: int = 20, shortest_day: int = 40
) -> VariableSchedule:
    """Return a week of days, each followed by a night without circuits; all uplinks follow the same days.

    Pairs that need less than the shortest day may get no circuit: the emulator leaves them to its packet switch.
    ForetailError on a zero matrix, one outside the hose model, or a week shorter than its shortest day.

    Parameters
    ----------
    demand : in uplinks, in the hose model; below a load of one half it is inflated to it
    degree : uplinks of a node
    week, night, shortest_day : int
        In one unit, the emulator's is microseconds; days are whole, and with their night never shorter than
        `shortest_day` or two nights.
    """
    demand.require_hose(degree)
    if night < 0:
        raise ForetailError(f"night is {night}: give 0 or more")
    shortest = max(shortest_day, 2 * night, 1)
    if week < shortest:
        raise ForetailError(
            f"a week of {week} has no room for a day of {shortest}: lengthen it or shorten day and night"
        )
    busy = demand.scaled_to(max(demand.largest_sum, degree / 2)).demand / degree
    ticks = np.where(busy > 0, np.maximum(np.floor(busy * week + 0.5), 1), 0).astype(np.int64)
    partners, days = _slice(stuffed(ticks), week, night, shortest)
    if not days:  # nothing is worth a day: the emulator idles on one matching
        partners, days = [np.roll(np.arange(demand.nodes, dtype=np.int32), 1)], [week]
    partners, days = _fill_week(partners, days, week, shortest)
    return VariableSchedule.of_matchings(np.stack(partners), (np.array(days) - night) / week, degree)


def _slice(left: IntArray, week: int, night: int, shortest: int) -> tuple[list[NodeArray], list[int]]:
    """Return matchings whose every circuit is needed for a threshold, halved from a quarter of a week, and longer."""
    threshold = shortest
    while threshold < week / 4:
        threshold *= 2
    sender = np.arange(len(left))
    partners: list[NodeArray] = []
    days: list[int] = []
    while threshold >= shortest:
        partner = matching_on(left >= threshold)
        if np.any(partner == IDLE):
            threshold //= 2
            continue
        day = int(left[sender, partner].min())
        left[sender, partner] -= day
        partners.append(partner)
        days.append(day + night)
    return partners, days


def _fill_week(
    partners: list[NodeArray], days: list[int], week: int, shortest: int
) -> tuple[list[NodeArray], list[int]]:
    """Drop the shortest days until all fit at their shortest, then lengthen or shorten all alike."""
    kept = sorted(sorted(range(len(days)), key=lambda day: -days[day])[: week // shortest])
    partners, days = [partners[day] for day in kept], [days[day] for day in kept]
    more, extra = divmod(max(week - sum(days), 0), len(days))
    days = [day + more + (index < extra) for index, day in enumerate(days)]
    while sum(days) > week:
        for index, day in enumerate(days):
            if sum(days) > week and day > shortest:
                days[index] -= 1
    return partners, days
