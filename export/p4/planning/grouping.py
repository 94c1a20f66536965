"""Trees in groups: a table for the sum of each group, so that fewer votes are left to add, a step for every doubling.

Groups grow by joining two at a time. From m groups to the next smaller power of two, those are joined whose common
table has the fewest rows more than both of theirs, which ask about the same cuts. Two trees often have fewer rows
together than apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

from foretail.export.p4.planning.architecture import Architecture
from foretail.export.p4.planning.encoding import Encoding, Part, columns_and_rows, sum_part
from foretail.models.ensemble.ensemble import Ensemble

MAX_GROUPED = 32
"""Trees that are grouped: every two are tried."""

Group = tuple[int, ...]
"""Indices of trees, increasing."""


def groups(ensemble: Ensemble, word_bits: int, max_boxes: int, architecture: Architecture) -> Iterator[Encoding]:
    """Yield encodings of 2^k tables, fewer than trees, fewer each time; each table has at most `max_boxes` boxes."""

    @cache
    def part(group: Group) -> Part | None:
        return sum_part(replace(ensemble, trees=tuple(ensemble.trees[i] for i in group)), max_boxes)

    count = len(ensemble.trees)
    current: list[Group] = [(i,) for i in range(count)]
    while 2 < len(current) <= MAX_GROUPED:
        added: dict[tuple[Group, Group], int] = {}
        for pair in combinations(current, 2):
            parts = [part(group) for group in (*pair, tuple(sorted(sum(pair, ()))))]
            if all(parts):
                alone, other, both = (len(found.boxes) for found in parts if found)
                added[pair] = both - alone - other
        wanted = 1 << (len(current) - 1).bit_length() - 1
        for first, second in sorted(added, key=lambda pair: (added[pair], pair)):
            if len(current) > wanted and first in current and second in current:
                current = [group for group in current if group not in (first, second)]
                current.append(tuple(sorted(first + second)))
        if len(current) > wanted:
            return
        current.sort()
        if architecture.accumulators is None or wanted <= architecture.accumulators:
            parts = [part(group) for group in current]
            yield columns_and_rows(ensemble, [p for p in parts if p], word_bits, "groups", architecture)
