"""The cells of an ensemble: the boxes of integer inputs on which it is constant, one representative for each.

Every comparison of the ensemble compares one input with one constant, so it is constant on each cell of the grid that
these constants span; a statement checked on one point per cell holds for every input (design section 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import cuts_of

IntArray = npt.NDArray[np.int64]

BATCH_ROWS = 1 << 17


@dataclass(frozen=True, eq=False)
class Cells:
    """The grid, as one sorted array of representatives per input."""

    ends: tuple[IntArray, ...]  #: tuple of int64[intervals], the largest point of every interval of an input

    @property
    def axes(self) -> tuple[IntArray, ...]:
        """One point of every interval of an input, int64[intervals] each: 0 for the first of several, else its end.

        So both extremes of every input occur where it is tested at all.
        """
        return tuple(np.append(0, end[1:]) if len(end) > 1 else end for end in self.ends)

    @classmethod
    def of(cls, ensemble: Ensemble, boundaries: Mapping[int, Iterable[int]] | None = None) -> Cells:
        """Return the grid of the ensemble's cuts and of further boundaries.

        Parameters
        ----------
        boundaries : mapping of int to iterable of int, optional
            Input index -> values b with a change between b and b + 1; those outside the input's range change nothing.
        """
        ends, tested = [], cuts_of(ensemble.trees)
        for index, feature in enumerate(ensemble.features):
            largest = (1 << feature.bits) - 1
            cuts = {*tested.get(index, ()), *(boundaries or {}).get(index, ())}
            ends.append(np.array([*sorted(c for c in cuts if 0 <= c < largest), largest], np.int64))
        return cls(tuple(ends))

    @property
    def count(self) -> int:
        """Number of cells."""
        return math.prod(map(len, self.ends))

    def points(self, index: IntArray) -> IntArray:
        """Return the representatives of the cells with these indices: int64[len(index), inputs]."""
        axes = self.axes
        tested = [place for place, axis in enumerate(axes) if len(axis) > 1] or [0]  # numpy has at most 64 dimensions
        places = np.unravel_index(index, [len(axes[place]) for place in tested])
        points = np.tile(np.array([axis[0] for axis in axes]), (len(index), 1))
        for column, place in zip(tested, places, strict=True):
            points[:, column] = axes[column][place]
        return points

    def sample(self, rows: int, random: np.random.Generator) -> IntArray:
        """Return corners of random cells, uniform over the cells: int64[rows, inputs].

        Both ends of an interval are drawn alike, so that code that takes < for <= is found out.
        """
        columns = []
        for end in self.ends:
            interval, first = random.integers(0, len(end), rows), np.append(0, end[:-1] + 1)
            columns.append(np.where(random.random(rows) < 0.5, first[interval], end[interval]))
        return np.stack(columns, axis=1)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[IntArray]:
        """Yield the representatives of all cells in order, int64[<= rows, inputs] at a time."""
        for start in range(0, self.count, rows):
            yield self.points(np.arange(start, min(start + rows, self.count)))

    def watched(self, what: str, effort: Effort, later: int = 0) -> Iterator[IntArray]:
        """Yield the batches under the eyes of `effort`; `what` is done on them, see :meth:`Effort.watch`."""
        return effort.watch(f"{what} on {self.count:,} cells", self.batches(), -(-self.count // BATCH_ROWS), later)


_LATER = 4
"""Loops over all cells that follow in an export: votes, proof, votes of what was emitted, rounding."""


def distinct_sums(ensemble: Ensemble, cells: Cells, effort: Effort | None = None) -> tuple[IntArray, IntArray]:
    """Return the distinct exact sums over all cells, increasing, and the first cell with each.

    The sums are keys as of :meth:`Ensemble.exact_key`, int64[distinct, limbs]; the cells are int64[distinct].
    """
    all_keys, all_index, start = [], [], 0
    for points in cells.watched("sums", effort or Effort(), _LATER):
        keys = ensemble.exact_key(points)
        first, _ = distinct_rows(keys)
        all_keys.append(keys[first])
        all_index.append(first + start)
        start += len(points)
    keys, index = np.concatenate(all_keys), np.concatenate(all_index)
    first, _ = distinct_rows(keys)
    return keys[first], index[first]


def distinct_rows(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Find the distinct rows of `keys`, int64[rows, limbs], in increasing lexicographic order.

    Returns the index of the first occurrence of each, int64[distinct], and which of them every row is: int64[rows].
    """
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    new = np.append(True, np.any(ordered[1:] != ordered[:-1], axis=1))[: len(keys)]
    place = np.empty(len(keys), np.int64)
    place[order] = np.cumsum(new) - 1
    return order[new], place
