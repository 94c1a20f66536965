"""The vote pass: exact leaf values become the narrowest integer votes that decide, provably, alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from foretail.export.equivalence import proof_cells, relate
from foretail.features.errors import ForetailError
from foretail.models.cells import distinct_sums
from foretail.models.ensemble import Ensemble, keys_exceed, votes_of

__all__ = ["with_votes"]

IntArray = npt.NDArray[np.int64]

MIN_BITS = 8
_TIGHTEST = 4096


def with_votes(ensemble: Ensemble) -> Ensemble:
    """Return the ensemble with integer votes of the smallest width, 8 to 58 bits, that the proof on cells accepts.

    A width at which scores are ordered strictly as the exact sums, over all cells, is preferred, because it holds for
    any tau; leaf values that coincide up to their float64 rounding can make it impossible, and then the width need
    only be right for the ensemble's threshold. A rule of thumb would not do: acceptance is not monotone in the width.

    Raises
    ------
    ForetailError
        When no width is enough for the threshold, or above 10**8 cells.
    """
    cells = proof_cells(ensemble)
    keys, index = distinct_sums(ensemble, cells)
    points = cells.points(index)
    leaves = [tree.leaf(points) for tree in ensemble.trees]
    drop = keys_exceed(keys, ensemble.key_of(ensemble.threshold))
    tight = _tightest(keys)
    widths = range(MIN_BITS, ensemble.max_vote_bits + 1)
    for order in (True, False):
        for bits in widths:
            tables = [votes_of(tree.value, bits) for tree in ensemble.trees]
            if order and not _increases(tables, leaves, tight):
                continue
            scores = _sum(tables, leaves)
            # Sums increase along `keys`, so the threshold parts them into a head that stays and a tail that drops.
            tau = int(scores[~drop].max()) if not drop.all() else int(scores.min()) - 1
            fits = bool(np.all(scores[1:] > scores[:-1])) if order else bool(np.all(scores[drop] > tau))
            if not fits:
                continue
            trees = tuple(replace(tree, votes=table) for tree, table in zip(ensemble.trees, tables, strict=True))
            voted = replace(ensemble, trees=trees, vote_bits=bits, default_tau=tau)
            relation = relate(voted, cells)  # cells with equal sums may reach leaves that round apart
            if relation.default and (relation.order or not order):
                return voted
    raise ForetailError(
        f"no vote width up to {ensemble.max_vote_bits} bits separates the exact sums around the threshold "
        f"{float(ensemble.threshold):.17g}: choose a threshold in a wider gap (choose_operating_point does)"
    )


def _tightest(keys: IntArray) -> IntArray:
    """Return where the closest neighbours of increasing `keys` start, at most 4096 of them: they reject most widths."""
    gaps = (np.diff(keys, axis=0).astype(np.float64) * 2.0 ** (-48 * np.arange(keys.shape[1]))).sum(axis=1)
    return np.argsort(gaps, kind="stable")[:_TIGHTEST]


def _increases(tables: list[IntArray], leaves: list[IntArray], starts: IntArray) -> bool:
    low, high = _sum(tables, [leaf[starts] for leaf in leaves]), _sum(tables, [leaf[starts + 1] for leaf in leaves])
    return bool(np.all(high > low))


def _sum(tables: list[IntArray], leaves: list[IntArray]) -> IntArray:
    total = np.zeros(len(leaves[0]), np.int64)
    for table, leaf in zip(tables, leaves, strict=True):
        total += table[leaf]
    return total
