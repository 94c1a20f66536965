"""Passes over the ensemble, in order: each returns an ensemble that is the same function with fewer nodes.

Trees keep their place, so that every tree can be compared with what became of it; :func:`simplify` does so after each
pass, with the boxes of the leaves, and refuses to go on when a pass changed anything. The vote pass makes the narrowest
integer votes of the leaf values that decide, provably, alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.proof import MAX_CELLS, Lowered, PassReport, ProofError, relate
from foretail.features.catalog import STUDY_FEATURES
from foretail.models.ensemble.boxes import difference, leaf_boxes
from foretail.models.ensemble.cells import Cells, distinct_sums
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble, keys_exceed, votes_of
from foretail.models.ensemble.nested import Node, nested, tree_of
from foretail.models.ensemble.rounding import rounding_bound
from foretail.models.ensemble.tree import Tree

IntArray = npt.NDArray[np.int64]
NodeArray = npt.NDArray[np.unsignedinteger]
Box = tuple[tuple[int, int], ...]


def prune_dead_branches(ensemble: Ensemble) -> Ensemble:
    """Drop the branches that no input of the declared ranges can take, given the tests above them."""

    def pruned(node: Node, box: Box, tree: Tree) -> Node:
        if isinstance(node, int):
            return node
        feature, cut, left, right = node
        low, high = box[feature]
        if cut >= high:
            return pruned(left, box, tree)
        if cut < low:
            return pruned(right, box, tree)
        below, above = _halves(box, feature, cut)
        return feature, cut, pruned(left, below, tree), pruned(right, above, tree)

    return _on_trees(ensemble, pruned)


def merge_equal_subtrees(ensemble: Ensemble) -> Ensemble:
    """Replace every test whose two sides are written alike by one of them."""

    def merged(node: Node, box: Box, tree: Tree) -> Node:
        if isinstance(node, int):
            return node
        feature, cut, *sides = node
        left, right = (merged(side, box, tree) for side in sides)
        return left if _alike(left, right, tree) else (feature, cut, left, right)

    return _on_trees(ensemble, merged)


def drop_redundant_thresholds(ensemble: Ensemble) -> Ensemble:
    """Drop every test one side of which also gives the right answer on the inputs of the other side."""

    def reduced(node: Node, box: Box, tree: Tree) -> Node:
        if isinstance(node, int):
            return node
        feature, cut, left, right = node
        below, above = _halves(box, feature, cut)
        left, right = reduced(left, below, tree), reduced(right, above, tree)
        if _agree(left, right, below, tree):
            return right
        if _agree(left, right, above, tree):
            return left
        return feature, cut, left, right

    return _on_trees(prune_dead_branches(ensemble), reduced)


def take_votes_as_values(ensemble: Ensemble) -> Ensemble:
    """Return the ensemble whose exact sum is its score: leaves with equal votes become equal leaves.

    The scores, tau and decisions stay; the values become the votes, in units of ``2**-vote_bits``, and base and
    threshold move into tau.
    """
    vote_bits, tau = ensemble.require_votes()
    # a vote of any size is a float64: it was one, and rounding to an integer leaves it no more digits
    trees = tuple(
        replace(tree, value=np.ldexp(tree.require_votes().astype(np.float64), -vote_bits)) for tree in ensemble.trees
    )
    return replace(ensemble, trees=trees, base=0.0, threshold=Fraction(2 * tau + 1, 1 << (vote_bits + 1)))


PASSES: tuple[Callable[[Ensemble], Ensemble], ...] = (
    prune_dead_branches,
    merge_equal_subtrees,
    drop_redundant_thresholds,
)


def simplify(ensemble: Ensemble) -> tuple[Ensemble, tuple[PassReport, ...]]:
    """Run all passes in order, compare each tree with what became of it, on every input, and report.

    ProofError when a pass changed the function; the message names an input.
    """
    reports = []
    for step in PASSES:
        after = step(ensemble)
        _require_same(ensemble, after, step.__name__)
        reports.append(PassReport(step.__name__, _leaves(ensemble), _leaves(after)))
        ensemble = after
    return ensemble, tuple(reports)


def lower(
    model: Ensemble | Lowered, any_tau: bool = True, max_cells: int = MAX_CELLS, effort: Effort | None = None
) -> Lowered:
    """Return what the targets emit: an ensemble with votes that decides as `model` does.

    ForetailError if `model` reads a feature that no switch can know.

    Parameters
    ----------
    model : as trained; an ensemble that has votes is taken as it is
    any_tau, max_cells, effort : see :func:`with_votes`
    """
    for given in (model.model if isinstance(model, Lowered) else model).features:
        if given.name in {item.name for item in STUDY_FEATURES}:
            raise ForetailError(
                f"the model reads feature {given.name!r}, which no switch can know: it is for studies only, so train"
                " the model that is exported without it"
            )
    if isinstance(model, Lowered) or model.vote_bits is not None:
        return Lowered.of(model)
    effort = effort or Effort()
    with effort.step("trees simplified"):
        simple, before = simplify(model)
    with effort.step("votes chosen"):
        ensemble, after = simplify(take_votes_as_values(with_votes(simple, any_tau, max_cells, effort)))
    return Lowered(model, simple, ensemble, before + after, any_tau)


def _on_trees(ensemble: Ensemble, rewrite: Callable[[Node, Box, Tree], Node]) -> Ensemble:
    box = tuple((0, (1 << feature.bits) - 1) for feature in ensemble.features)
    roots = ((tree, rewrite(nested(tree), box, tree)) for tree in ensemble.trees)
    trees = (_moved_visits(tree, tree_of(root, tree.value, tree.votes, tree.visits), ensemble) for tree, root in roots)
    return replace(ensemble, trees=tuple(trees))


def _moved_visits(old: Tree, new: Tree, ensemble: Ensemble) -> Tree:
    """Return `new` with the visits of `old`.

    Each leaf gives its own, in equal shares, to those that its inputs now reach. Those of a leaf that no input reaches
    are left out.
    """
    if old.visits is None or len(old.feature) == len(new.feature):
        return new
    before, after = (leaf_boxes(tree, ensemble.features, np.arange(len(tree.feature))) for tree in (old, new))
    visits = np.zeros(len(new.feature), np.int64)
    for low, high, leaf in zip(before.low, before.high, before.votes, strict=True):
        heirs = after.votes[np.all((after.low <= high) & (low <= after.high), axis=1)]
        visits[heirs] += old.visits[leaf] // len(heirs)
        visits[heirs[: old.visits[leaf] % len(heirs)]] += 1
    return replace(new, visits=visits)


def _halves(box: Box, feature: int, cut: int) -> tuple[Box, Box]:
    low, high = box[feature]
    return (
        (*box[:feature], (low, min(high, cut)), *box[feature + 1 :]),
        (*box[:feature], (max(low, cut + 1), high), *box[feature + 1 :]),
    )


def _alike(a: Node, b: Node, tree: Tree) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and _content(a, tree) == _content(b, tree)
    return a[:2] == b[:2] and _alike(a[2], b[2], tree) and _alike(a[3], b[3], tree)


def _agree(a: Node, b: Node, box: Box, tree: Tree) -> bool:
    """Return whether two subtrees are the same function on a box."""
    if not isinstance(a, int):
        feature, cut, left, right = a
        low, high = box[feature]
        below, above = _halves(box, feature, cut)
        return (cut < low or _agree(left, b, below, tree)) and (cut >= high or _agree(right, b, above, tree))
    return _agree(b, a, box, tree) if not isinstance(b, int) else _content(a, tree) == _content(b, tree)


def _content(leaf: int, tree: Tree) -> tuple[float, int | None]:
    return float(tree.value[leaf]), None if tree.votes is None else int(tree.votes[leaf])


def _leaves(ensemble: Ensemble) -> int:
    return sum(len(tree.leaves) for tree in ensemble.trees)


def _require_same(before: Ensemble, after: Ensemble, name: str) -> None:
    for index, (old, new) in enumerate(zip(before.trees, after.trees, strict=True)):
        contents: dict[tuple[float, int | None], int] = {}
        codes = [
            np.array([contents.setdefault(_content(node, tree), len(contents)) for node in range(len(tree.feature))])
            for tree in (old, new)
        ]
        at = difference(leaf_boxes(old, before.features, codes[0]), leaf_boxes(new, after.features, codes[1]))
        if at is not None:
            raise ProofError(f"the pass {name} changes tree {index} at the input {at.tolist()}: report this as a bug")


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
