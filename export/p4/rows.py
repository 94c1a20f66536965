"""Rows for one integer key: a map from intervals to labels as ranges or ternary rows, and back.

The key's values ``0 .. 2**bits - 1`` are cut into intervals, each with a label. Every table is total: one label is the
default and has no rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

Kind = Literal["range", "ternary"]
KINDS: tuple[Kind, ...] = ("range", "ternary")

MAX_PIECES = 100_000
"""Intervals that the wildcards of one row may cut the key into."""

Label = TypeVar("Label", bound=Hashable)


@dataclass(frozen=True)
class Intervals(Generic[Label]):
    """A function of one key: `labels[i]` up to and including `uppers[i]`, after `uppers[i - 1]`."""

    bits: int  #: width of the key
    uppers: tuple[int, ...]  #: increasing; the last is ``2**bits - 1``
    labels: tuple[Label, ...]  #: neighbours differ

    @classmethod
    def of(cls, bits: int, uppers: Sequence[int], labels: Sequence[Label]) -> Intervals[Label]:
        """Return the intervals with equal neighbours merged."""
        last_of_runs = [i for i in range(len(labels)) if i == len(labels) - 1 or labels[i] != labels[i + 1]]
        return cls(bits, tuple(uppers[i] for i in last_of_runs), tuple(labels[i] for i in last_of_runs))

    def bounds(self) -> list[tuple[int, int, Label]]:
        """Return (low, high, label) of every interval."""
        lows = (0, *(upper + 1 for upper in self.uppers))
        return list(zip(lows, self.uppers, self.labels, strict=False))


@dataclass(frozen=True)
class Row(Generic[Label]):
    """One row: key in ``[first, second]`` of a range table, else ``key & second == first``."""

    first: int
    second: int
    label: Label


@dataclass(frozen=True)
class Rows(Generic[Label]):
    """The rows of a table, first match first, and the label of keys that match none."""

    rows: tuple[Row[Label], ...]
    default: Label

    def with_default(self, default: Label) -> Rows[Label]:
        """Return ternary rows with another default; the old one becomes a last row that matches everything."""
        return Rows((*self.rows, Row(0, 0, self.default)), default)


def rows_of(intervals: Intervals[Label], kind: Kind, largest: int) -> Rows[Label]:
    """Return the rows of a table.

    Parameters
    ----------
    kind : {'range', 'ternary'}
        ``ternary`` has at most as many rows as the smallest table of prefixes.
    largest : keys above never occur: they may get any label
    """
    # Labels can be long; their numbers are quick to compare.
    names = list(dict.fromkeys(intervals.labels))
    number = {label: i for i, label in enumerate(names)}
    numbered = Intervals(intervals.bits, intervals.uppers, tuple(number[label] for label in intervals.labels))
    rows = _ranges(numbered) if kind == "range" else _ternary(numbered, largest)
    return Rows(tuple(Row(r.first, r.second, names[r.label]) for r in rows.rows), names[rows.default])


def intervals_of(rows: Rows[Label], kind: Kind, bits: int) -> Intervals[Label]:
    """Return what the rows of a key of 1 to 24 bits decide; ValueError on a row that a switch may read otherwise."""
    last = (1 << bits) - 1
    uppers = {last}
    for row in rows.rows:
        if kind == "range":
            if not row.first <= row.second <= last:
                raise ValueError(f"the range {row.first} to {row.second} of a key of {bits} bits")
            uppers |= {row.first - 1, row.second}
        else:
            uppers |= _ternary_edges(row, bits)
    keys = np.array(sorted(uppers - {-1}), np.int64)
    index = np.full(len(keys), len(rows.rows))
    for i in reversed(range(len(rows.rows))):  # the first that matches is written last
        row = rows.rows[i]
        inside = (keys >= row.first) & (keys <= row.second)
        index[inside if kind == "range" else keys & row.second == row.first] = i
    labels = [*(row.label for row in rows.rows), rows.default]
    return Intervals.of(bits, keys.tolist(), [labels[i] for i in index.tolist()])


def check_ternary(row: Row[Label], bits: int) -> None:
    """Raise ValueError on a ternary row that does not fit its key, or whose value has bits outside its mask."""
    if row.second >> bits or row.first & ~row.second:
        raise ValueError(f"the row {row.first:#x} &&& {row.second:#x} of a key of {bits} bits")


def _ternary_edges(row: Row[Label], bits: int) -> set[int]:
    """Return every b such that the row matches only one of b and b + 1."""
    check_ternary(row, bits)
    free = ((1 << bits) - 1) ^ row.second
    run = (free ^ (free + 1)) >> 1  # the wildcards at the end, which are one block
    starts = [row.first]
    for bit in (1 << b for b in range(bits)):
        if bit & free & ~run:
            starts += [start | bit for start in starts]
            if len(starts) > MAX_PIECES:
                raise ValueError(f"the row {row.first:#x} &&& {row.second:#x} of too many pieces")
    return {edge for start in starts for edge in (start - 1, start | run)}


def range_prefixes(low: int, high: int, bits: int) -> list[tuple[int, int]]:
    """Return the fewest prefixes (value, mask) that together are ``[low, high]``, in increasing order."""
    prefixes = []
    full = (1 << bits) - 1
    while low <= high:
        size = min(low & -low if low else 1 << bits, 1 << ((high - low + 1).bit_length() - 1))
        prefixes.append((low, full ^ (size - 1)))
        low += size
    return prefixes


def _ranges(intervals: Intervals[int]) -> Rows[int]:
    # The default saves the rows of its label; of equals, those that expand to most prefixes.
    saved: Counter[int] = Counter()
    for low, high, label in intervals.bounds():
        saved[label] += (1 << 20) + len(range_prefixes(low, high, intervals.bits))
    default = saved.most_common(1)[0][0]
    return Rows(tuple(Row(*bound) for bound in intervals.bounds() if bound[2] != default), default)


@dataclass(frozen=True)
class _Node:
    """A prefix, the labels that its rows can hand down at the least cost, and its halves unless one label covers it."""

    best: frozenset[int]
    halves: tuple[_Node, _Node] | None


def _minimal_prefixes(intervals: Intervals[int], largest: int) -> Rows[int]:
    """Optimal Routing Table Constructor (Draves, King, Venkatachary, Zill, INFOCOM 1999); the root is the default."""
    uppers, labels, bits = intervals.uppers, intervals.labels, intervals.bits
    anything = frozenset(labels)

    def node(low: int, size: int, first: int, last: int) -> _Node:
        if low > largest:
            return _Node(anything, None)
        if first == last:
            return _Node(frozenset([labels[first]]), None)
        middle = low + size // 2
        split = bisect_left(uppers, middle - 1)  # holds the left half's last value
        right = split if uppers[split] > middle - 1 else split + 1
        halves = node(low, size // 2, first, split), node(middle, size // 2, right, last)
        common = halves[0].best & halves[1].best
        return _Node(common or halves[0].best | halves[1].best, halves)

    rows: list[Row[int]] = []

    def emit(at: _Node, low: int, size: int, inherited: int) -> None:
        if inherited not in at.best:
            inherited = min(at.best)  # the first choice everywhere: same text
            rows.append(Row(low, ((1 << bits) - 1) ^ (size - 1), inherited))
        if at.halves is not None:
            emit(at.halves[0], low, size // 2, inherited)
            emit(at.halves[1], low + size // 2, size // 2, inherited)

    root = node(0, 1 << bits, 0, len(labels) - 1)
    default = min(root.best)
    emit(root, 0, 1 << bits, default)
    return Rows(tuple(sorted(rows, key=lambda row: (-row.second, row.first))), default)


def _ternary(intervals: Intervals[int], largest: int) -> Rows[int]:
    """Merge, among the disjoint prefixes of one length, rows of one label that differ in one bit, again and again."""
    prefixes = _minimal_prefixes(intervals, largest)
    by_length: dict[int, list[Row[int]]] = defaultdict(list)
    for row in prefixes.rows:
        by_length[row.second].append(row)
    merged: list[Row[int]] = []
    for mask in sorted(by_length, reverse=True):
        rows = {(row.first, row.second): row.label for row in by_length[mask]}
        again = True
        while again:
            again = False
            for (value, cared), label in sorted(rows.items(), key=lambda item: item[0]):
                if (value, cared) not in rows:
                    continue
                for bit in (1 << b for b in range(intervals.bits)):
                    other = (value ^ bit, cared)
                    if cared & bit and rows.get(other) == label:
                        del rows[value, cared], rows[other]
                        rows[value & ~bit, cared & ~bit] = label
                        again = True
                        break
        merged += [Row(value, cared, label) for (value, cared), label in sorted(rows.items(), key=lambda item: item[0])]
    return Rows(tuple(merged), prefixes.default)
