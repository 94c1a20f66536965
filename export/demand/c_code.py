"""Demand predictors as C headers in integers, with a proven bound on what that changes, read back by running them.

Histories and predictions are integers in units of ``2**-fraction_bits`` uplinks. The bound is computed in exact
rationals from the predictor's own numbers, and holds for every entry of every history in the stated range, against
what the predictor computes in float64 from the history before it was rounded to units, before the projection into the
hose model. A sum of k float64 terms, products or not, in any order, is off by at most k u / (1 - k u) of the sum of
their sizes, u = 2**-53 (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1), and less than 2**-1074
per product lost below the smallest normal number.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.build import read_header, run_program
from foretail.export.c.target import C, render_c
from foretail.export.folder import encoded, environment
from foretail.export.proof import Certificate, ProofError, at_most
from foretail.export.target import prove_files
from foretail.models.demand.averages import Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.regression import BoostedEntries, LinearEntries
from foretail.models.ensemble.ensemble import FLOAT32_BITS, Ensemble, votes_of

IntArray = npt.NDArray[np.int64]

MAX_WINDOW = 4096
_LARGEST_INT64 = (1 << 63) - 1
_LARGEST_UINT32 = (1 << 32) - 1
_MOST_FRACTION_BITS = 31
_EXACT_BITS = 52
"""Votes of so many bits are float64 numbers."""

_SELFTEST_CASES = 4
_READ_CASES = 32
_READ_ENTRIES = 1 << 24

_READER = """
typedef const uint32_t (*history_t)[{N}_NODES][{N}_NODES];
void foretail_predict(const uint32_t *history, uint32_t *out) {{
  {n}_predict((history_t)history, (uint32_t (*)[{N}_NODES])out);
}}
"""


@dataclass(frozen=True)
class Errors:
    """Bounds on the parts of the error of one entry, in uplinks."""

    inputs: Fraction  #: the history rounded to units
    weights: Fraction  #: weights, intercepts or leaf values rounded to integers
    result: Fraction  #: the prediction rounded to units
    float64: Fraction  #: the predictor's own sum in float64

    @property
    def total(self) -> Fraction:
        """Bound on the error of an entry."""
        return self.inputs + self.weights + self.result + self.float64


@dataclass(frozen=True, eq=False)
class FixedLinear:
    """``max(0, sum(weight * history) + intercept)`` of each pair's own last values."""

    nodes: int
    window: int
    fraction_bits: int  #: of histories and predictions
    largest: int  #: values of the history above count as this, in units; at most 2**32 - 2
    shift: int  #: weights are integers times ``2**-shift``
    #: int64[1 or nodes**2, window + 1], oldest first, and then the intercept in units of ``2**-(fraction_bits +
    #: shift)``; one row for all pairs
    weight: IntArray
    errors: Errors  #: for histories up to ``largest`` units

    def predict(self, history: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return what the C code returns: uint32[nodes, nodes] of uint32[window, nodes, nodes]."""
        known = np.minimum(history, self.largest).astype(np.int64).reshape(self.window, -1)
        total = np.einsum("wp,pw->p", known, np.broadcast_to(self.weight[:, :-1], (self.nodes**2, self.window)))
        return _in_units((total + self.weight[:, -1]).reshape(self.nodes, self.nodes), self.shift)


@dataclass(frozen=True, eq=False)
class FixedTrees:
    """``max(0, score + base)`` of an ensemble with integer votes."""

    nodes: int
    window: int
    #: of histories and predictions: the predictor's own, which rounds every history to these units first
    fraction_bits: int
    largest: int  #: values of the history above count as this, as they do for the predictor
    shift: int  #: scores are in units of ``2**-(fraction_bits + shift)`` uplinks
    base: int  #: in the unit of scores
    ensemble: Ensemble  #: with votes; its exact sum is its score
    errors: Errors  #: for every history
    predictor: BoostedEntries

    def predict(self, history: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return what the C code returns: uint32[nodes, nodes] of uint32[window, nodes, nodes]."""
        columns = self.predictor.inputs(np.ldexp(history.astype(np.float64), -self.fraction_bits)[np.newaxis])
        score = self.ensemble.score(columns.reshape(self.nodes**2, -1))
        return _in_units((score + self.base).reshape(self.nodes, self.nodes), self.shift)


def fixed_point(
    predictor: DemandPredictor, max_error_uplinks: float = 1e-3, largest_uplinks: float = 64.0
) -> FixedLinear | FixedTrees:
    """Return a trained linear or tree predictor in integers, with the fewest fraction bits that keep the error.

    ForetailError before `fit`, for another predictor, or when 32-bit histories and 64-bit sums cannot keep the error.

    Parameters
    ----------
    predictor : DemandPredictor
        ``Seasonal``, ``LinearEntries`` or ``BoostedEntries``, whose fraction bits are its own.
    max_error_uplinks : above 0
    largest_uplinks : above 0: linear predictors keep the error for values up to this; trees for all
    """
    predictor.require_fit()
    if not (0 < max_error_uplinks < np.inf and 0 < largest_uplinks < np.inf):
        raise ForetailError(
            f"max_error_uplinks = {max_error_uplinks} and largest_uplinks = {largest_uplinks}: give numbers above 0"
        )
    if isinstance(predictor, BoostedEntries):
        program = _trees(predictor)
        if program.errors.total > Fraction(max_error_uplinks):
            raise ForetailError(
                f"the trees' own units keep an error of {float(program.errors.total):.3g} uplinks, not "
                f"{max_error_uplinks:g}: allow a larger one"
            )
        return program
    rows = _linear_rows(predictor)
    if len(rows[0]) - 1 > MAX_WINDOW:
        raise ForetailError(
            f"the predictor looks {len(rows[0]) - 1} matrices back, and C at most {MAX_WINDOW}: train a shorter one"
        )
    return _linear(predictor.nodes_, rows, Fraction(max_error_uplinks), Fraction(largest_uplinks))


def _linear_rows(predictor: DemandPredictor) -> list[list[Fraction]]:
    """Weights, oldest first, and the intercept: one row, or one for each pair."""
    if isinstance(predictor, Seasonal):
        return [[Fraction(1)] + [Fraction(0)] * predictor.period_]
    if isinstance(predictor, LinearEntries):
        weight = predictor.weight_[:1] if predictor.shared else predictor.weight_
        return [[Fraction(value) for value in row] for row in weight.tolist()]
    raise ForetailError(f"{type(predictor).__name__} is neither linear in each entry's past nor a sum of trees")


def _linear(nodes: int, rows: Sequence[Sequence[Fraction]], allowed: Fraction, largest: Fraction) -> FixedLinear:
    window = len(rows[0]) - 1
    steepest = max(sum((abs(value) for value in row[:-1]), Fraction(0)) for row in rows)
    intercept = max(abs(row[-1]) for row in rows)
    least = None
    for bits in range(_MOST_FRACTION_BITS + 1):
        unit = Fraction(1, 1 << bits)
        top = round(largest / unit)
        size = steepest * top * unit + intercept  # no sum is larger, whatever its sign
        # No partial sum exceeds steps * 2**shift: rounded weights add at most 1/2 per input, rounding at most 2**shift.
        steps = steepest * top + intercept / unit + Fraction(window * top, 2) + 2
        shift = min((_LARGEST_INT64 // -(-steps // 1)).bit_length() - 1, 62)
        if top < 1:
            continue
        if top >= _LARGEST_UINT32 or shift < 0:
            break
        errors = Errors(
            inputs=steepest * unit / 2,
            weights=(window * top * unit + unit) / (1 << (shift + 1)),
            result=unit / 2,
            float64=_rounding(window + 2) * size + Fraction(window, 1 << 1074),
        )
        if (size + errors.total) / unit >= _LARGEST_UINT32:
            break
        least = errors.total if least is None else min(least, errors.total)
        if errors.total <= allowed:
            weight = [
                [*(round(value * (1 << shift)) for value in row[:-1]), round(row[-1] / unit * (1 << shift))]
                for row in rows
            ]
            assert all(sum(map(abs, row[:-1])) * top + abs(row[-1]) + (1 << shift) <= _LARGEST_INT64 for row in weight)
            return FixedLinear(nodes, window, bits, top, shift, np.array(weight, np.int64), errors)
    reached = "no error at all" if least is None else f"an error of {float(least):.3g} uplinks at best"
    raise ForetailError(
        f"values of up to {float(largest):g} uplinks keep {reached} in 32 bits, not {float(allowed):g}: allow a larger "
        f"error or expect smaller values"
    )


def _trees(predictor: BoostedEntries) -> FixedTrees:
    ensemble, bits = predictor.ensemble_, predictor.fraction_bits_
    largest = [max(abs(Fraction(value)) for value in tree.value.tolist()) for tree in ensemble.trees]
    base = Fraction(ensemble.base)
    size = sum(largest, abs(base))
    widest = _EXACT_BITS - _exponent(max(largest))
    vote_bits = min(widest, ensemble.max_vote_bits, 62 - _exponent(size + 1))
    unit, vote = Fraction(1, 1 << bits), Fraction(1, 1 << max(vote_bits, 0))
    votes = [votes_of(tree.value, max(vote_bits, 0)) for tree in ensemble.trees]
    rounded = [
        max(
            abs(integer * vote - Fraction(value))
            for integer, value in zip(table.tolist(), tree.value.tolist(), strict=True)
        )
        for table, tree in zip(votes, ensemble.trees, strict=True)
    ]
    errors = Errors(
        inputs=Fraction(0),
        weights=sum(rounded, abs(round(base / vote) * vote - base)),
        result=unit / 2,
        float64=_rounding(len(votes) + 1) * size,
    )
    if vote_bits < max(bits, 1) or (size + errors.total) / unit >= _LARGEST_UINT32:
        raise ForetailError(
            "the trees' values are too large for 32-bit predictions in the units of their inputs: train them again"
        )
    trees = tuple(
        replace(tree, value=np.ldexp(table.astype(np.float64), -vote_bits), votes=table)
        for tree, table in zip(ensemble.trees, votes, strict=True)
    )
    voted = replace(ensemble, trees=trees, base=0.0, vote_bits=vote_bits, default_tau=0)
    return FixedTrees(
        nodes=predictor.nodes_,
        window=predictor.window,
        fraction_bits=bits,
        largest=(1 << FLOAT32_BITS) - 1,
        shift=vote_bits - bits,
        base=round(base / vote),
        ensemble=voted,
        errors=errors,
        predictor=predictor,
    )


def _exponent(number: Fraction) -> int:
    """The least e >= -1074 with number < 2**e."""
    return next(e for e in range(-1074, 1100) if number < Fraction(2) ** e)


def _rounding(terms: int) -> Fraction:
    return Fraction(terms, (1 << 53) - terms)


def _in_units(total: IntArray, shift: int) -> npt.NDArray[np.uint32]:
    """Round to the nearest unit, halves up; nothing below 0, nothing on the diagonal."""
    rounded = (np.maximum(total, 0) + ((1 << shift) >> 1)) >> shift
    return (rounded * (1 - np.eye(len(total), dtype=np.int64))).astype(np.uint32)


def render_header(fixed: FixedLinear | FixedTrees, kind: str, name: str) -> dict[str, str]:
    """Return the files, name -> text: ``<name>.h``, ``<name>_selftest.c``, and for trees ``<name>_trees.h``.

    `kind` is what settings call the predictor, `name` is the prefix of files and C names.
    """
    trees = isinstance(fixed, FixedTrees)
    values: dict[str, int | str] = {
        "n": name,
        "N": name.upper(),
        "kind": kind,
        "error": at_most(fixed.errors.total),
        "trees": trees,
        "nodes": fixed.nodes,
        "window": fixed.window,
        "fraction_bits": fixed.fraction_bits,
        "largest": fixed.largest,
        "shift": fixed.shift,
    }
    files = {}
    if isinstance(fixed, FixedTrees):
        values["base"] = fixed.base
        files[f"{name}_trees.h"] = _tree_texts(fixed, name)[f"{name}_trees.h"]
    else:
        values["rows"] = len(fixed.weight)
        values["weight"] = ",\n".join(f"  {{{', '.join(map(_constant, row))}}}" for row in fixed.weight.tolist())
    files[f"{name}.h"] = environment("foretail.export.demand").get_template("demand.h.j2").render(**values)
    sums = ",\n".join(f"  UINT64_C({_checksum(fixed, at)})" for at in range(_SELFTEST_CASES))
    files[f"{name}_selftest.c"] = (
        environment("foretail.export.demand")
        .get_template("demand_selftest.c.j2")
        .render(n=name, N=name.upper(), cases=_SELFTEST_CASES, sums=sums)
    )
    return files


def prove_header(fixed: FixedLinear | FixedTrees, files: Mapping[str, str], name: str) -> Certificate | None:
    """Read rendered files back: compile them, compare every constant, and run them on random and extreme histories.

    Trees are proven equal to their ensemble on every input, as drop predictors are; their certificate is returned.
    ProofError when a constant or a prediction differs. ForetailError without a C compiler.
    """
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        single = {"NODES": fixed.nodes, "WINDOW": fixed.window, "FRACTION_BITS": fixed.fraction_bits}
        single |= {"LARGEST": fixed.largest, "SHIFT": fixed.shift}
        single |= {"BASE": fixed.base} if isinstance(fixed, FixedTrees) else {"ROWS": len(fixed.weight)}
        arrays = {} if isinstance(fixed, FixedTrees) else {"weight": fixed.weight}
        reader = _READER.format(n=name, N=name.upper())
        plain = f"-D{name.upper()}_TREES_VECTOR=0"  # branches have no vector code, but its header takes long to compile
        library = read_header(folder, files, name, single, arrays, reader, plain)
        for history in _histories(fixed):
            out = np.empty((fixed.nodes, fixed.nodes), np.uint32)
            library.foretail_predict(_address(history), _address(out))
            if not np.array_equal(out, fixed.predict(history)):
                raise ProofError(
                    "the exported C predicts another matrix than its integers: nothing is exported, report this"
                )
        if run_program(folder / f"{name}_selftest.c") != 0:
            raise ProofError("the self-test of the exported C fails: nothing is exported, report this as a bug")
        if not isinstance(fixed, FixedTrees):
            return None
        texts = _tree_texts(fixed, name) | {f"{name}_trees.h": files[f"{name}_trees.h"]}
        return prove_files(fixed.ensemble, C(), encoded(texts), max_cells=0)[0]  # cells would be astronomical


def _tree_texts(fixed: FixedTrees, name: str) -> dict[str, str]:
    return render_c(fixed.ensemble, f"{name}_trees", shape="branches", batch="rows")


def _histories(fixed: FixedLinear | FixedTrees) -> list[npt.NDArray[np.uint32]]:
    """Extremes, the same in one matrix only, and random ones of all sizes: uint32[window, nodes, nodes] each."""
    shape = (fixed.window, fixed.nodes, fixed.nodes)
    off = ~np.eye(fixed.nodes, dtype=bool)
    top = fixed.largest
    histories = [np.full(shape, value, np.uint32) for value in (0, 1, top, (1 << 32) - 1)]
    random = np.random.default_rng(0)
    most = max(1, min(_READ_CASES, _READ_ENTRIES // int(np.prod(shape))))
    for lag in range(min(fixed.window, most)):
        histories += [np.full(shape, value, np.uint32) for value in (0, top)]
        histories[-2][lag], histories[-1][lag] = top, 0
    for _ in range(most):
        values = random.integers(0, 2 + top // 2 ** random.integers(0, top.bit_length()), shape)
        histories.append((values * (random.random(shape) < random.random())).astype(np.uint32))
    return [np.ascontiguousarray(history * off) for history in histories]


def _checksum(fixed: FixedLinear | FixedTrees, at: int) -> int:
    """Return the sum that ``demand_selftest.c.j2`` computes of the prediction of its history `at`."""
    shape = (fixed.window, fixed.nodes, fixed.nodes)
    mixed = np.arange(1, np.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    history = (mixed % np.uint64(fixed.largest + 1) >> np.uint64(2 * at)).astype(np.uint32).reshape(shape)
    out = fixed.predict(history).astype(np.uint64).ravel()
    return int((out * (2 * np.arange(len(out), dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64))


def _constant(value: int) -> str:
    return f"INT64_C({value})"


def _address(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
