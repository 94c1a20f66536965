"""Choosing the form of one prediction without measuring: its expected cycles, from the visits of training rows.

The model counts what differs between the forms, beside the call that they share:

- *branches*: the nodes on the paths, and a misprediction wherever a row takes the rarer side of a node;
- *bitvector*: the vectors of bounds that are searched, and the votes that are looked up, for every row alike;
- *hot_branches*, *hot_bitvector*: the sides of the hot box, a misprediction for the rarer of inside and outside, and
  the other form for the rows outside. As few rows are taken to be inside as the visits of the single trees allow.

Rows are taken as independent of the ones before them. Branches cost less on a trace, whose packets repeat their paths.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from foretail.export.c.hot import HotBox
from foretail.export.c.shapes import MAX_LANE_LEAVES, Bitvectors, Trees
from foretail.export.c.text import BLOCK, Batch, Single, comparison_bits
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import Tree

NODE, MISPREDICTION, VECTOR, LOOKUP = 0.25, 13.0, 0.4, 2.0
"""Cycles of a node on a path or a side of the hot box, a misprediction, 16 bytes of bounds, a vote of bitvectors."""

LANE_NODE, HOT_ROW = 0.065, 5.0
"""Cycles of a row for each node of a tree in lanes of 16 bits, all of which it passes, and for the test of a block."""

UNCOUNTED = "because the model does not say how often training rows visited its leaves"


def choose(ensemble: Ensemble, bitvectors: Bitvectors | None, hot: HotBox | None) -> tuple[Single, str]:
    """Return the cheapest form and the reason; bitvectors, where there are any, of a model without visits.

    Parameters
    ----------
    ensemble : with votes
    bitvectors : None where their tables would be too large
    hot : None where nobody counted visits
    """
    if hot is None:
        return ("branches" if bitvectors is None else "bitvector"), UNCOUNTED
    cycles = expected_cycles(ensemble, bitvectors, hot)
    form = min(cycles, key=lambda form: cycles[form])
    estimates = ", ".join(f"{form} {spent:.1f}" for form, spent in cycles.items())
    return form, f"the cheapest by the visits of training rows, in cycles beside the call: {estimates}"


def expected_cycles(ensemble: Ensemble, bitvectors: Bitvectors | None, hot: HotBox) -> dict[Single, float]:
    """Return what every possible form costs a training row, to a tenth; of equal ones, the steadier is first."""
    outside = 1 - hot.inside
    box = NODE * len(hot.tests(ensemble.features)) + MISPREDICTION * min(outside, 1 - outside)
    cycles: dict[Single, float] = {}
    if bitvectors is not None:
        tables = _tables(bitvectors, comparison_bits(bitvectors.boundaries, ensemble.features))
        cycles |= {"hot_bitvector": box + outside * tables, "bitvector": tables}
    cycles["hot_branches"] = box + _branches(ensemble.trees, hot.rest(ensemble))
    cycles["branches"] = _branches(ensemble.trees, (tree.shares for tree in ensemble.trees))
    return {form: round(spent, 1) for form, spent in cycles.items()}


def choose_batch(ensemble: Ensemble, bitvectors: Bitvectors | None, hot: HotBox | None) -> Batch:
    """Return the form of many predictions; `hot` is the hot box of a single one, None where it has none."""
    if max(len(tree.leaves) for tree in ensemble.trees) > MAX_LANE_LEAVES:
        return "rows"
    if hot is None:
        return "lanes"
    bits = comparison_bits(Trees.of(ensemble).boundaries, ensemble.features)
    lanes = LANE_NODE * bits / 16 * sum(len(tree.feature) // 2 for tree in ensemble.trees)
    outside = _branches(ensemble.trees, hot.rest(ensemble))
    if bitvectors is not None:
        outside = (1 - hot.inside) * _tables(bitvectors, comparison_bits(bitvectors.boundaries, ensemble.features))
    return "hot_lanes" if HOT_ROW + outside < lanes else "lanes"


def _branches(trees: Iterable[Tree], shares: Iterable[npt.NDArray[np.float64]]) -> float:
    cycles = 0.0
    for tree, share in zip(trees, shares, strict=True):
        inner, reached = tree.feature >= 0, tree.sums(share)
        rarer = np.minimum(reached[tree.left[inner]], reached[tree.right[inner]])
        cycles += NODE * float(reached[inner].sum()) + MISPREDICTION * float(rarer.sum())
    return cycles


def _tables(bitvectors: Bitvectors, bits: int) -> float:
    per_vector = 128 // bits
    searched = sum(min(len(cuts), 2 * BLOCK) // per_vector + 1 for cuts in bitvectors.cuts)
    return VECTOR * searched + LOOKUP * len(bitvectors.votes) * len(bitvectors.fields)
