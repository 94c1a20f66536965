"""The tables of NetBeacon, Planter, Flowrest and IIsy for an ensemble: their rows, keys and action data.

They are written again here, small, from their descriptions and code (NetBeacon 06c6127, Planter c1a0da8, Flowrest
13a527c, IIsy 8dc1718). Keys are as wide as the largest value of a trace, as their tools would choose them:

- NetBeacon: one ternary table per feature maps a value to the thermometer mark of its interval; the rows of an interval
  may reach into its neighbours where rows of more priority are. One ternary table over all marks holds the product of
  all trees' leaves, without combinations that contradict each other, and the probability in percent.
- Planter: one ternary table per feature, from the largest value down, maps a value to a code per tree; one exact table
  per tree holds the Cartesian product of every leaf's codes, without the commonest vote; an exact table decides on all
  votes, without the commonest class. It votes hard.
- Flowrest: one range row per interval of a feature gives a bit per split and tree; one ternary row per leaf; a table of
  all votes. It votes hard.
- IIsy: one tree only; a code word per feature, the prefixes of each interval; an exact table of all combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from foretail.export.p4.rows import range_prefixes
from foretail.models.ensemble.boxes import Boxes, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble

MAX_PRODUCT = 2_000_000


@dataclass(frozen=True)
class Field:
    """A field that a table matches or sets: a feature of the packet, or an intermediate result."""

    name: str
    bits: int


@dataclass(frozen=True)
class PeerTable:
    """One match-action table; its rows are counted, not written."""

    name: str
    kind: str  #: of its key: ``ternary``, ``exact`` or ``range``
    step: int  #: position in the longest chain of dependent tables, from 1, where features are matched
    rows: int
    key: tuple[Field, ...]
    sets: tuple[Field, ...]
    expanded_rows: int | None = None  #: of a range table, as prefixes


@dataclass(frozen=True)
class Peer:
    """One encoding of an ensemble."""

    name: str
    tables: tuple[PeerTable, ...]
    result: Field  #: what the last table sets; its highest bit is the decision


def netbeacon(ensemble: Ensemble, cuts: Sequence[Sequence[int]], bits: Sequence[int]) -> Peer:
    """NetBeacon: range marks per feature, one ternary table of the product of all trees."""
    marks = [Field(f"mark_{i}", len(own)) for i, own in enumerate(cuts)]
    features = [
        PeerTable(f"feature_{i}", "ternary", 1, marking_rows(own, width), (Field(f"f_{i}", width),), (mark,))
        for i, (own, width, mark) in enumerate(zip(cuts, bits, marks, strict=True))
        if own
    ]
    rows = product_rows([Counted.of(tree, ensemble).boxes for tree in range(len(ensemble.trees))])
    percent = Field("percent", 7)
    key = tuple(mark for mark in marks if mark.bits)
    return Peer("NetBeacon", (*features, PeerTable("model", "ternary", 2, rows, key, (percent,))), percent)


def planter(ensemble: Ensemble, cuts: Sequence[Sequence[int]], bits: Sequence[int]) -> Peer:
    """Planter: a code per feature and tree, exact Cartesian tables, an exact table of votes."""
    trees = [Counted.of(index, ensemble) for index in range(len(ensemble.trees))]
    codes = [
        [Field(f"code_{i}_{number}", code_bits(len(tree.cuts[i]) + 1)) for i in range(len(cuts))]
        for number, tree in enumerate(trees)
    ]
    features = [
        PeerTable(
            f"feature_{i}",
            "ternary",
            1,
            top_down_rows(own, width),
            # Its tables match one bit more than the values have.
            (Field(f"f_{i}", width + 1),),
            tuple(of_tree[i] for of_tree in codes),
        )
        for i, (own, width) in enumerate(zip(cuts, bits, strict=True))
    ]
    of_vote: list[Counter[bool]] = []
    for tree in trees:
        rows_of_vote = Counter[bool]()
        for low, high, vote in zip(tree.boxes.low, tree.boxes.high, tree.hard, strict=True):
            sides = zip(low.tolist(), high.tolist(), tree.cuts, strict=True)
            rows_of_vote[vote] += prod(1 + sum(first <= cut < last for cut in own) for first, last, own in sides)
        of_vote.append(rows_of_vote)
    default = sum(of_vote, Counter[bool]()).most_common(1)[0][0]
    votes = tuple(Field(f"vote_{number}", 1) for number in range(len(trees)))
    others = [
        PeerTable(f"tree_{number}", "exact", 2, rows[not default], tuple(key), (vote,))
        for number, (rows, key, vote) in enumerate(zip(of_vote, codes, votes, strict=True))
    ]
    count, decision = len(trees), Field("decision", 1)
    majorities = sum(comb(count, k) for k in range(count // 2 + 1, count + 1))
    return Peer(
        "Planter", (*features, *others, PeerTable("votes", "exact", 3, majorities, votes, (decision,))), decision
    )


def flowrest(ensemble: Ensemble, cuts: Sequence[Sequence[int]], bits: Sequence[int]) -> Peer:
    """Flowrest: range rows with a bit per split and tree, one ternary row per leaf, a table of votes."""
    trees = [Counted.of(index, ensemble) for index in range(len(ensemble.trees))]
    splits = [
        [Field(f"split_{i}_{number}", len(tree.cuts[i])) for i in range(len(cuts)) if tree.cuts[i]]
        for number, tree in enumerate(trees)
    ]
    features = [
        PeerTable(
            f"feature_{i}",
            "range",
            1,
            len(own) + 1,
            (Field(f"f_{i}", width),),
            tuple(field for of_tree in splits for field in of_tree if field.name.startswith(f"split_{i}_")),
            sum(len(range_prefixes(*ends, width)) for ends in intervals(own, width)),
        )
        for i, (own, width) in enumerate(zip(cuts, bits, strict=True))
    ]
    votes = tuple(Field(f"vote_{number}", 1) for number in range(len(trees)))
    others = [  # the vote, and its certainty in percent
        PeerTable(
            f"tree_{number}", "ternary", 2, len(tree.boxes.votes), tuple(key), (vote, Field(f"percent_{number}", 7))
        )
        for number, (tree, key, vote) in enumerate(zip(trees, splits, votes, strict=True))
    ]
    decision = Field("decision", 1)
    last = PeerTable("votes", "exact", 3, 1 << len(trees), votes, (decision,))
    return Peer("Flowrest", (*features, *others, last), decision)


def iisy(ensemble: Ensemble, cuts: Sequence[Sequence[int]], bits: Sequence[int]) -> Peer:
    """IIsy: a code word per feature, an exact table of all combinations; SystemExit for more than one tree."""
    if len(ensemble.trees) > 1:
        raise SystemExit("one tree only")
    codes = [Field(f"code_{i}", max(1, len(own).bit_length())) for i, own in enumerate(cuts)]
    features = [
        PeerTable(
            f"feature_{i}",
            "ternary",
            1,
            sum(len(range_prefixes(*ends, width)) for ends in intervals(own, width)),
            (Field(f"f_{i}", width),),
            (code,),
        )
        for i, (own, width, code) in enumerate(zip(cuts, bits, codes, strict=True))
    ]
    decision = Field("decision", 1)
    rows = prod(len(own) + 1 for own in cuts)
    return Peer("IIsy", (*features, PeerTable("decide", "exact", 2, rows, tuple(codes), (decision,))), decision)


@dataclass(frozen=True)
class Counted:
    """One tree: its cuts per feature, the boxes of its leaves, and whether each votes for a drop."""

    cuts: tuple[tuple[int, ...], ...]
    boxes: Boxes
    hard: tuple[bool, ...]

    @classmethod
    def of(cls, index: int, ensemble: Ensemble) -> Counted:
        tree = ensemble.trees[index]
        boxes = leaf_boxes(tree, ensemble.features, np.arange(len(tree.feature)))
        cuts = tuple(tuple(sorted(set(tree.cut[tree.feature == i].tolist()))) for i in range(len(ensemble.features)))
        return cls(cuts, boxes, tuple((tree.value[boxes.votes] > 0.5).tolist()))


def code_bits(codes: int) -> int:
    """Width of Planter's code word, one bit more than it takes."""
    return int(np.ceil(np.log2(codes) + 1))


def intervals(cuts: Sequence[int], bits: int) -> list[tuple[int, int]]:
    """Inclusive ends of the intervals that cuts part the values of some bits into."""
    return list(zip([0, *(cut + 1 for cut in cuts)], [*cuts, (1 << bits) - 1], strict=True))


def marking_rows(cuts: Sequence[int], bits: int) -> int:
    """Rows of NetBeacon's feature table.

    The rows of an interval may begin below it, where rows before them match, and end above it, when rows before them
    say so for the part above; of the beginnings and ends that make the first or last block larger, the best are taken.
    """
    ends = [cut + 1 for cut in cuts]
    total = 0
    for i, bound in enumerate(ends):
        limit = ends[i + 1] if i + 1 < len(ends) else 1 << bits
        end, fewest = bound, 1 << bits
        while end < limit:
            above = len(range_prefixes(bound, end - 1, bits))
            start = ends[i - 1] if i else 0
            blocks: list[int] = []
            while start >= 0:
                blocks = [(1 << bits) - mask for _, mask in range_prefixes(start, end - 1, bits)]
                fewest = min(fewest, len(blocks) + above)
                if len(blocks) < 2 or blocks[0] >= blocks[1]:
                    break
                start -= blocks[1] - blocks[0]
            if len(blocks) < 2 or blocks[-1] >= blocks[-2]:
                break
            end += blocks[-2] - blocks[-1]
        total += fewest
    return total


def top_down_rows(cuts: Sequence[int], bits: int) -> int:
    """Rows of Planter's feature table: from the top down, each as large as the boundary below allows; 0 has its own."""
    bounds = [(1 << bits) - 1, *reversed([cut for cut in cuts if cut > 0]), 0]
    total = 1
    for high, low in pairwise(bounds):
        while high > low:
            size = 1 << ((high ^ low).bit_length() - 1)
            high = (high & -size) - 1
            total += 1
    return total


def product_rows(parts: Sequence[Boxes]) -> int:
    """Combinations of one box of every part that have a point in common."""
    low, high = parts[0].low, parts[0].high
    for part in parts[1:]:
        lows, highs = [], []
        for box_low, box_high in zip(part.low, part.high, strict=True):
            both_low, both_high = np.maximum(low, box_low), np.minimum(high, box_high)
            meets = np.all(both_low <= both_high, axis=1)
            lows.append(both_low[meets])
            highs.append(both_high[meets])
        low, high = np.concatenate(lows), np.concatenate(highs)
        if len(low) > MAX_PRODUCT:
            raise SystemExit(f"NetBeacon's product has more than {MAX_PRODUCT} rows")
    return len(low)


def hard_votes(ensemble: Ensemble, x: NDArray[np.int32]) -> NDArray[np.bool_]:
    """True where most trees vote for a drop; a tie is False, as with the lowest class first."""
    rows = x.astype(np.int64)
    votes = sum((tree.value[tree.leaf(rows)] > 0.5).astype(np.int64) for tree in ensemble.trees)
    return np.asarray(2 * votes > len(ensemble.trees))
