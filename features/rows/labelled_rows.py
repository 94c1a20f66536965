"""Arrivals around an arrival: what a predictor with a memory, or with foresight, would see.

A study of ceilings. Nothing here is in the catalog, so no switch and no simulator computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.records import column_values

if TYPE_CHECKING:
    import pyarrow as pa

    from foretail.features.rows.splits import Selection, Side

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
        both = (batch,) if seen is None else (seen, batch)
        seen = WindowRows(*(np.concatenate([getattr(part, name) for part in both]) for name in _COLUMNS))
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


__all__ = ["ALONE", "ASKED", "LABEL", "Region", "Rows", "Sampling", "joined", "read_rows", "row_batches", "stacked"]

LABEL, ASKED = "lqd_drop", "shadow_asked"
Region = Literal["whole", "asked"]
"""Every row, or those where a Credence that is told the true labels asks."""


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Summarised):
    """Rows as a predictor sees them.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.array([[3, 8], [9, 1]], np.int32), np.array([False, True]), asked=None)
    >>> len(rows[rows.lqd_drop])
    1
    """

    x: NDArray[np.int32]  #: int32[rows, features]
    lqd_drop: NDArray[np.bool_]  #: bool[rows], the label
    #: bool[rows] or None, where a Credence that is told the true labels asks; None where nobody knows
    asked: NDArray[np.bool_] | None
    #: float64[rows] or None, how many rows each stands for; None when every row is there
    weight: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lqd_drop)

    def __getitem__(self, chosen: NDArray[np.bool_] | slice) -> Rows:
        """Return the rows of a mask or slice."""
        return Rows(
            self.x[chosen],
            self.lqd_drop[chosen],
            None if self.asked is None else self.asked[chosen],
            None if self.weight is None else self.weight[chosen],
        )


@dataclass(frozen=True)
class Sampling:
    """Keeps every drop and every row of the asked region, and a share of the others, each weighing as all that it
    stands for, so that weighted counts are those of all rows in expectation.
    """

    others: float = 1.0  #: share of the other rows, in (0, 1]; 1 keeps all
    seed: int = 1  #: of the draw; it does not depend on the batches

    def __post_init__(self) -> None:
        if not 0 < self.others <= 1:
            raise ForetailError(f"sampling.others is {self.others}: give a share above 0 and at most 1")

    @classmethod
    def within(cls, most: int, batches: Iterable[Rows], seed: int = 1) -> Sampling:
        """Return the sampling that keeps `most` of the rows of `batches` in expectation, or all if they are no more.

        ForetailError if the drops and the rows of the asked region alone are as many.
        """
        rows = wanted = 0
        for batch in batches:
            rows += len(batch)
            wanted += int(np.count_nonzero(_always_kept(batch)))
        if rows <= most:
            return cls(1.0, seed)
        if wanted >= most:
            raise ForetailError(
                f"the training rows have {wanted} drops and rows of the asked region, which a sample keeps, but "
                f"{most} rows fit into memory: raise trainer.rows_in_memory, or train XGBoost, which streams rows"
            )
        return cls((most - wanted) / (rows - wanted), seed)

    def of(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Return the sample of the next rows of a selection."""
        if self.others == 1:
            return rows
        wanted = _always_kept(rows)
        is_drawn = wanted | (random.random(len(rows)) < self.others)
        chosen = rows[is_drawn]
        return replace(chosen, weight=np.where(wanted[is_drawn], 1.0, 1 / self.others))


def _always_kept(rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the rows that every sample keeps."""
    return rows.lqd_drop if rows.asked is None else rows.lqd_drop | rows.asked


EVERY_ROW, ALONE = Sampling(), ArrivalWindow()


def row_batches(
    side: Side,
    columns: Sequence[str],
    sampling: Sampling = EVERY_ROW,
    region: Region = "whole",
    window: ArrivalWindow = ALONE,
) -> Iterator[Rows]:
    """Yield the rows of a side in order; memory does not depend on their number.

    ForetailError when the asked region is wanted and nobody knows it, or a window of rows that are no trace.

    Parameters
    ----------
    columns : the columns of ``x``, in order
    sampling : of every selection alike
    region : {'whole', 'asked'}, which rows
    window : ArrivalWindow
        Other arrivals of the same switch in the same selection that ``x`` also shows, see
        :func:`foretail.features.rows.labelled_rows.windows`.
    """
    is_trace = all(selection.dataset.is_trace for selection in side)
    if region == "asked" and not is_trace:
        raise ForetailError(
            "the asked region needs to know where Credence asks, which rows in order of their fates do not tell: set "
            "operating_point.region=whole, for foretail select region=whole"
        )
    for place, selection in enumerate(side):
        random = np.random.default_rng([sampling.seed, place])
        if window.arrivals > 1:
            selection.dataset.require_trace()
            batches = _window_batches(selection, columns, window)
        else:
            batches = _batches(selection, columns, is_trace)
        for rows in batches:
            sample = sampling.of(rows, random)
            yield sample[sample.asked] if region == "asked" and sample.asked is not None else sample


def read_rows(
    side: Side,
    columns: Sequence[str],
    sampling: Sampling = EVERY_ROW,
    region: Region = "whole",
    window: ArrivalWindow = ALONE,
) -> Rows:
    """Return the rows of a side in order, held once; parameters and errors as :func:`row_batches`'s."""
    at_most = sum(selection.count() for selection in side)
    return joined(row_batches(side, columns, sampling, region, window), at_most)


def joined(batches: Iterable[Rows], at_most: int) -> Rows:
    """Return all rows of `batches`, which are at most so many; ForetailError when there are none."""
    return Rows(*stacked(((rows.x, rows.lqd_drop, rows.asked, rows.weight) for rows in batches), at_most))


def stacked(batches: Iterable[Sequence[NDArray[Any] | None]], at_most: int) -> list[Any]:
    """Return the arrays of all batches joined along their first axis, where None is none.

    Nothing is held twice: batches go into arrays of `at_most` rows, and what is never filled of these takes no memory.
    ForetailError when there is no row.
    """
    arrays: list[NDArray[Any] | None] = []
    end = 0
    for batch in batches:
        if not arrays:
            arrays = [None if part is None else np.empty((at_most, *part.shape[1:]), part.dtype) for part in batch]
        start = end
        for array, part in zip(arrays, batch, strict=True):
            if array is not None and part is not None:
                end = start + len(part)
                array[start:end] = part
    if not end:
        raise ForetailError("a side of the split has no rows: give it more runs or a longer time")
    return [None if array is None else array[:end] for array in arrays]


def _batches(selection: Selection, columns: Sequence[str], is_trace: bool) -> Iterator[Rows]:
    labels = [LABEL, ASKED] if is_trace else [LABEL]
    for batch in selection.rows([*columns, *labels]):
        lqd_drop, *asked = map(column_values, batch.columns[len(columns) :])
        yield Rows(_features(batch, len(columns)), lqd_drop, asked[0] if asked else None)


def _window_batches(selection: Selection, columns: Sequence[str], window: ArrivalWindow) -> Iterator[Rows]:
    def arrivals() -> Iterator[WindowRows]:
        for batch in selection.rows([*columns, *PLACE_COLUMNS, LABEL, ASKED]):
            switch, port, time_ns, size_bytes, *labels = map(column_values, batch.columns[len(columns) :])
            x = _features(batch, len(columns))
            yield WindowRows(x, switch, port, time_ns, size_bytes, np.stack(labels, axis=1))

    for x, labels in windows(arrivals(), window):
        yield Rows(x, labels[:, 0], labels[:, 1])


def _features(batch: pa.RecordBatch, count: int) -> NDArray[np.int32]:
    x = np.empty((batch.num_rows, count), np.int32)
    for place in range(count):
        x[:, place] = column_values(batch.column(place))
    return x
