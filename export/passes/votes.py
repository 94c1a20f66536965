"""The vote pass: exact leaf values become the narrowest integer votes that decide, provably, alike."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.proof.prove import MAX_CELLS, relate
from foretail.models.ensemble.cells import Cells, distinct_sums
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble, keys_exceed, votes_of
from foretail.models.ensemble.rounding import rounding_bound

IntArray = npt.NDArray[np.int64]
NodeArray = npt.NDArray[np.unsignedinteger]

_TIGHTEST = 4096


def with_votes(
    ensemble: Ensemble, any_tau: bool = True, max_cells: int = MAX_CELLS, effort: Effort | None = None
) -> Ensemble:
    """Return the ensemble with integer votes of the smallest width, 1 to 58 bits, that provably decide alike.

    Where the cells can be enumerated, a width is right when it is right on all of them. A rule of thumb would not do:
    6 bits can be right and 7 wrong. Where they cannot, the votes are the exact leaf values if these fit, else as
    narrow as the rounding of the framework's own sum allows; the certificate says how far that can matter.
    ForetailError when no width is enough for the threshold.

    Parameters
    ----------
    ensemble : with or without votes
    any_tau : bool
        Prefer a width at which scores are ordered strictly as the exact sums, because it holds for any tau; leaf values
        that coincide up to their float64 rounding can make it impossible. False, or then, the width need only be right
        for the ensemble's threshold.
    max_cells : cells that are enumerated at most
    effort : watches the enumerations
    """
    cells = Cells.of(ensemble)
    if cells.count > max_cells:
        return _without_cells(ensemble, any_tau)
    keys, index = distinct_sums(ensemble, cells, effort)
    points = cells.points(index)
    # the narrowest integers: int64 would be 13 GB for 100 trees and as many sums as cells
    leaves = [tree.leaf(points).astype(np.min_scalar_type(len(tree.feature))) for tree in ensemble.trees]
    drop = keys_exceed(keys, ensemble.key_of(ensemble.threshold))
    tight = _tightest(keys)
    for order in (True, False) if any_tau else (False,):
        for bits in range(1, ensemble.max_vote_bits + 1):
            tables = [votes_of(tree.value, bits) for tree in ensemble.trees]
            if order and not _increases(tables, leaves, tight):
                continue
            scores = _sum(tables, leaves)
            # Sums increase along `keys`, so the threshold parts them into a head that stays and a tail that drops.
            tau = int(scores[~drop].max()) if not drop.all() else int(scores.min()) - 1
            fits = bool(np.all(scores[1:] > scores[:-1])) if order else bool(np.all(scores[drop] > tau))
            if not fits:
                continue
            voted = _voted(ensemble, tables, bits, tau)
            relation = relate(ensemble, voted, cells, effort)  # cells with equal sums may reach leaves that round apart
            if relation.default and (relation.order or not order):
                return voted
    if ensemble.max_vote_bits < 1:
        raise ForetailError(
            "the values of the leaves are too large for votes whose sum has 64 bits: divide them, the base and the "
            "threshold by the same power of two"
        )
    raise ForetailError(
        f"no vote width up to {ensemble.max_vote_bits} bits separates the exact sums around the threshold "
        f"{float(ensemble.threshold):.17g}: choose a threshold in a wider gap (choose_operating_point does)"
    )


def _without_cells(ensemble: Ensemble, any_tau: bool) -> Ensemble:
    values = [v for tree in ensemble.trees for v in tree.value.tolist()]
    exact = max(1, *(Fraction(v).denominator.bit_length() - 1 for v in values))
    allowed, trees = rounding_bound(ensemble), len(ensemble.trees)
    widths = range(1, ensemble.max_vote_bits + 1)
    bits = next((w for w in widths if Fraction(trees + 2, 2 << w) <= allowed), ensemble.max_vote_bits)
    if exact <= ensemble.max_vote_bits and (any_tau or exact < bits):
        bits = exact
    tau = ((ensemble.threshold - Fraction(ensemble.base)) * (1 << bits)).__floor__()
    limit = (1 << 63) - 1
    return _voted(ensemble, [votes_of(t.value, bits) for t in ensemble.trees], bits, min(max(tau, -limit), limit))


def _voted(ensemble: Ensemble, tables: list[IntArray], bits: int, tau: int) -> Ensemble:
    trees = tuple(replace(tree, votes=table) for tree, table in zip(ensemble.trees, tables, strict=True))
    return replace(ensemble, trees=trees, vote_bits=bits, default_tau=tau)


def _tightest(keys: IntArray) -> IntArray:
    """Return where the closest neighbours of increasing `keys` start, at most 4096 of them: they reject most widths."""
    gaps = (np.diff(keys, axis=0).astype(np.float64) * 2.0 ** (-48 * np.arange(keys.shape[1]))).sum(axis=1)
    return np.argsort(gaps, kind="stable")[:_TIGHTEST]


def _increases(tables: list[IntArray], leaves: list[NodeArray], starts: IntArray) -> bool:
    low, high = _sum(tables, [leaf[starts] for leaf in leaves]), _sum(tables, [leaf[starts + 1] for leaf in leaves])
    return bool(np.all(high > low))


def _sum(tables: list[IntArray], leaves: list[NodeArray]) -> IntArray:
    total = np.zeros(len(leaves[0]), np.int64)
    for table, leaf in zip(tables, leaves, strict=True):
        total += table[leaf]
    return total
