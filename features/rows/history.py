"""Arrivals around an arrival: what a predictor with a memory, or with foresight, would see.

A study of ceilings. Nothing here is in the catalog, so no switch and no simulator computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError

PLACE_COLUMNS: tuple[str, ...] = ("switch", "port", "time_ns", "size_bytes")
"""Columns of a trace that tell how arrivals lie to each other."""

PLACE_INPUTS: tuple[tuple[str, int], ...] = (("same_port", 1), ("apart", 24), ("size", 16))
"""Inputs of every arrival of a window beside its features, with their bits."""

APART_NS = 16
"""Unit of ``apart``, in ns."""


@dataclass(frozen=True)
class ArrivalWindow:
    """The arrivals of the same switch that are seen together, this one among them."""

    behind: int = 0  #: arrivals before this one
    ahead: int = 0  #: arrivals after it, which nobody can know: with them a score is an upper bound

    def __post_init__(self) -> None:
        if self.behind < 0 or self.ahead < 0:
            raise ForetailError(
                f"window.behind is {self.behind} and window.ahead is {self.ahead}: neither may be negative"
            )

    @property
    def arrivals(self) -> int:
        """All of them, at least 1."""
        return self.behind + 1 + self.ahead

    @property
    def offsets(self) -> range:
        """Places in the order of the switch's arrivals, this one at 0, oldest first."""
        return range(-self.behind, self.ahead + 1)


@dataclass(frozen=True, eq=False)
class WindowRows:
    """Arrivals of one run, in order."""

    x: NDArray[np.int32]  #: int32[rows, columns], features; of windows, see :func:`windows`
    switch: NDArray[np.integer]  #: int[rows]
    port: NDArray[np.integer]  #: int[rows], output port
    time_ns: NDArray[np.int64]  #: int64[rows], time of arrival
    size_bytes: NDArray[np.integer]  #: int[rows], of the packet
    labels: NDArray[np.bool_]  #: bool[rows, labels], what goes with the rows, and comes back with their windows

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.x)

    def __getitem__(self, chosen: NDArray[np.bool_] | slice) -> WindowRows:
        """Return the rows of a mask or slice."""
        return WindowRows(*(getattr(self, name)[chosen] for name in _COLUMNS))


_COLUMNS = ("x", "switch", "port", "time_ns", "size_bytes", "labels")


def windows(
    batches: Iterable[WindowRows], window: ArrivalWindow
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
    """Yield the windows of a run's arrivals with their labels, in order: one for each arrival, in batches of any size.

    A window holds the arrivals of the same switch one after the other, oldest first. Of each it has the columns of x,
    then whether it goes to the same port, how far apart in time it is in units of 16 ns, and its size in bytes, the
    last two saturating. Arrivals before the run's first and after its last are all zeros: their size tells.

    Memory holds `behind` arrivals of every switch; with `ahead` also those that wait for others to come, and those
    behind them in order. `batches`: one run; windows never cross into another.

    Yields ``x``, int32[rows, arrivals * (columns + 3)], and labels, bool[rows, labels].
    """
    seen: WindowRows | None = None
    out = 0  # rows at the front of `seen` whose windows are out already
    for batch in batches:
        seen = batch if seen is None else _joined([seen, batch])
        order, after = _places(seen.switch)
        short = after[out:] < window.ahead
        ready = out + (int(np.argmax(short)) if short.any() else len(short))
        if ready > out:
            yield _gather(seen, order, slice(out, ready), window), seen.labels[out:ready]
        # of what is out, the last arrivals of a switch stay: they are behind one that is still to come
        ahead_of_next = np.bincount(seen.switch[ready:], minlength=int(seen.switch.max()) + 1)[seen.switch[:ready]]
        stay = np.concatenate([after[:ready] - ahead_of_next < window.behind, np.ones(len(seen) - ready, np.bool_)])
        seen, out = seen[stay], int(np.count_nonzero(stay[:ready]))
    if seen is not None and len(seen) > out:
        yield _gather(seen, _places(seen.switch)[0], slice(out, len(seen)), window), seen.labels[out:]


def name_in_window(name: str, offset: int) -> str:
    """Return what an input of another arrival is called: ``queue``, ``queue_2_back``, ``queue_1_ahead``."""
    return f"{name}_{abs(offset)}_{'back' if offset < 0 else 'ahead'}" if offset else name


def _places(switch: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows switch by switch in order of arrival, and how many of its switch come after each row: int64[rows] both."""
    order = np.argsort(switch, kind="stable")
    ordered = switch[order]
    after = np.empty(len(switch), np.int64)
    after[order] = np.searchsorted(ordered, ordered, side="right") - 1 - np.arange(len(order))
    return order, after


def _gather(rows: WindowRows, order: NDArray[np.int64], chosen: slice, window: ArrivalWindow) -> NDArray[np.int32]:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    here = np.arange(len(order))[chosen]
    columns = rows.x.shape[1]
    inputs = np.zeros((len(here), window.arrivals, columns + len(PLACE_INPUTS)), np.int32)
    for index, offset in enumerate(window.offsets):
        other = place[here] + offset
        there = order[np.clip(other, 0, len(order) - 1)]
        known = (other >= 0) & (other < len(order)) & (rows.switch[there] == rows.switch[here])
        apart = np.abs(rows.time_ns[there] - rows.time_ns[here]) // APART_NS
        inputs[:, index, :columns] = rows.x[there]
        inputs[:, index, columns] = rows.port[there] == rows.port[here]
        inputs[:, index, columns + 1] = np.minimum(apart, (1 << 24) - 1)
        inputs[:, index, columns + 2] = np.minimum(rows.size_bytes[there], (1 << 16) - 1)
        inputs[~known, index] = 0
    return inputs.reshape(len(here), -1)


def _joined(parts: Sequence[WindowRows]) -> WindowRows:
    return WindowRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))
