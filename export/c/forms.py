"""The choice of the forms of generated C: by measuring them on the user's rows, or without by their expected cycles.

The expected cycles of one prediction come from the visits of training rows. They count the differences between the
forms, beside the call that they share:

- *branches*: the nodes on the paths, and a misprediction wherever a row takes the rarer side of a node;
- *bitvector*: the vectors of bounds that are searched, and the votes that are looked up, for every row alike;
- *hot_branches*, *hot_bitvector*: the sides of the hot box, a misprediction for the rarer of inside and outside, and
  the other form for the rows outside. As few rows are taken to be inside as the visits of the single trees allow.

Rows are taken as independent of the ones before them. Branches cost less on a trace, whose packets repeat their paths.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary, compile_library, vector_widths
from foretail.export.c.shapes import MAX_LANE_LEAVES, Bitvectors, HotBox, Trees
from foretail.export.c.text import BLOCK, Batch, Header, Single, comparison_bits, render_library
from foretail.export.folder import in_json
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import Tree

ROUNDS = 31
MAX_ROWS = 50_000

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


@dataclass(frozen=True)
class Tuning:
    """The measurements of all forms, and the forms chosen by them."""

    single: Single  #: the form that was chosen
    batch: Batch  #: the same
    #: ``single`` and ``batch`` -> form -> thread CPU time per row, median over the rounds
    nanoseconds: Mapping[str, Mapping[str, float]]
    rows: int
    rounds: int
    vector_widths: list[int]  #: SIMD widths of this CPU, among 256 and 512 bits
    command: str  #: what built the code that was measured

    def to_json(self) -> str:
        """Return the text of ``tuning.json``."""
        return in_json("foretail.tuning", 1, asdict(self))


def tune(headers: Mapping[tuple[Single, Batch], Header], rows: npt.NDArray[np.int64]) -> Tuning:
    """Time every form, one after the other in every round, on the first 50,000 rows; ForetailError without rows.

    `rows`, int64[rows, features], are in the order in which packets arrive: branches are predicted from what came
    before.
    """
    if not len(rows):
        raise ForetailError("there are no rows to tune on: give the rows of a recorded trace")
    used = np.ascontiguousarray(rows[:MAX_ROWS])
    command, libraries = "", {}
    with tempfile.TemporaryDirectory() as name:
        for index, (form, header) in enumerate(headers.items()):
            folder = Path(name) / str(index)
            folder.mkdir()
            (folder / f"{header.name}.h").write_text(header.text(), encoding="ascii")
            source = folder / f"{header.name}.c"
            source.write_text(render_library(header.name, header.ensemble.features), encoding="ascii")
            command = compile_library(source, folder / "tuned.so")
            libraries[form] = PredictorLibrary(folder / "tuned.so")
    times: dict[tuple[Single, Batch], list[tuple[float, float]]] = {form: [] for form in libraries}
    for _ in range(ROUNDS):
        for form, library in libraries.items():
            times[form].append(library.nanoseconds(used))
    # A form of one kind is measured with every form of the other that it can be with: the fastest counts.
    medians = {form: [statistics.median(kind) for kind in zip(*spent, strict=True)] for form, spent in times.items()}
    single: dict[Single, float] = {}
    for (one, _), (spent_on_one, _) in medians.items():
        single[one] = min(spent_on_one, single.get(one, spent_on_one))
    chosen = min(single, key=lambda form: single[form])
    batch: dict[Batch, float] = {many: spent for (one, many), (_, spent) in medians.items() if one == chosen}
    return Tuning(
        single=chosen,
        batch=min(batch, key=lambda form: batch[form]),
        nanoseconds={"single": dict[str, float](single.items()), "batch": dict[str, float](batch.items())},
        rows=len(used),
        rounds=ROUNDS,
        vector_widths=list(vector_widths()),
        command=command,
    )
