"""Completion times and utilisation of a run of cells, between a warm-up and a time in which flows can finish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.sim_bridge.circuits.cells.cell_fabric import CellCounts, CellFabric, CellFlows
from foretail.sim_bridge.circuits.cells.multi_hop import MultiHopFabric

STEP_SLOTS = 5_000
"""Slots between two reports."""


@dataclass(frozen=True)
class CountedSlots:
    """Slots of a run: what happens and starts from `begin` to before `end` counts, and the run ends before `last`."""

    begin: int
    end: int
    last: int


@dataclass(frozen=True)
class CompletionTimes:
    """Completion times of the flows of a class that started in the window."""

    flows: int  #: all that count
    unfinished: int  #: of these; the times cover them with their age at the end of the run
    #: slots from the first to that of the last cell; None without flows, a lower bound when some are unfinished
    mean: float | None
    p50: float | None  #: percentile by NumPy's linear interpolation, otherwise as the mean
    p99: float | None  #: the same


@dataclass(frozen=True)
class CellTrial:
    """What a run showed."""

    carried: CellCounts  #: cells in the window
    backlog: int  #: cells that wait at the end of the run
    classes: Mapping[str, CompletionTimes]  #: completion times by class


def cell_trial(
    fabric: CellFabric | MultiHopFabric,
    flows: CellFlows,
    classes: Mapping[str, npt.NDArray[np.bool_]],
    window: CountedSlots,
    report: Callable[[int], None] = lambda slot: None,
) -> CellTrial:
    """Run a fabric, at slot 0, with its flows to the end of the window's run.

    Parameters
    ----------
    flows : those of `fabric`
    classes : mapping of bool[flows], which flows a class holds
    window : with at least one slot from `begin` to `end`
    report : called every few thousand slots with the next one; may raise
    """

    def advanced(begin: int, end: int) -> CellCounts:
        for slot in range(begin, end, STEP_SLOTS):
            report(slot)
            fabric.advance(slot)
        return fabric.advance(end)

    warm = advanced(0, window.begin)
    carried = advanced(window.begin, window.end).since(warm)
    total = advanced(window.end, window.last)
    done = fabric.completion()
    slots = np.where(done >= 0, done + 1, window.last) - flows.start
    counts = (flows.start >= window.begin) & (flows.start < window.end)
    return CellTrial(
        carried,
        total.admitted - total.delivered,
        {name: _times(slots[counts & chosen], done[counts & chosen]) for name, chosen in classes.items()},
    )


def _times(slots: npt.NDArray[np.int64], done: npt.NDArray[np.int64]) -> CompletionTimes:
    if not len(slots):
        return CompletionTimes(0, 0, None, None, None)
    p50, p99 = (float(value) for value in np.percentile(slots, (50, 99)))
    return CompletionTimes(len(slots), int(np.count_nonzero(done < 0)), float(slots.mean()), p50, p99)
