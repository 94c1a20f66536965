"""Demand predictors as C headers, read back by compiling and running them."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.export.c.build import compiled_reader, run_program
from foretail.export.c.target import C, render_c
from foretail.export.demand.fixed_point import FixedLinear, FixedTrees
from foretail.export.folder import encoded
from foretail.export.proof.certificate import Certificate, ProofError, at_most
from foretail.export.target import prove_files
from foretail.export.templates import environment

_SELFTEST_CASES = 4
_READ_CASES = 32
_READ_ENTRIES = 1 << 24

_READER = """
#include "{n}.h"
typedef const uint32_t (*history_t)[{N}_NODES][{N}_NODES];
void foretail_predict(const uint32_t *history, uint32_t *out) {{
  {n}_predict((history_t)history, (uint32_t (*)[{N}_NODES])out);
}}
void foretail_constants(int64_t *out) {{
  const int64_t constants[] = {{{N}_NODES, {N}_WINDOW, {N}_FRACTION_BITS, {N}_LARGEST, {N}_SHIFT, {last}}};
  int i;
  for (i = 0; i < 6; ++i) out[i] = constants[i];
}}
"""
_WEIGHTS = """
void foretail_weights(int64_t *out) {{
  int row, at;
  for (row = 0; row < {N}_ROWS; ++row)
    for (at = 0; at <= {N}_WINDOW; ++at) *out++ = {n}_weight[row][at];
}}
"""


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
        linear = isinstance(fixed, FixedLinear)
        reader = (_READER + (_WEIGHTS if linear else "")).format(
            n=name, N=name.upper(), last=f"{name.upper()}_{'ROWS' if linear else 'BASE'}"
        )
        plain = f"-D{name.upper()}_TREES_VECTOR=0"  # branches have no vector code, but its header takes long to compile
        library = compiled_reader(folder, files, reader, "-O1", plain)
        _compare_constants(fixed, library)
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


def _compare_constants(fixed: FixedLinear | FixedTrees, library: ctypes.CDLL) -> None:
    constants = np.empty(6, np.int64)
    library.foretail_constants(_address(constants))
    last = len(fixed.weight) if isinstance(fixed, FixedLinear) else fixed.base
    expected = [fixed.nodes, fixed.window, fixed.fraction_bits, fixed.largest, fixed.shift, last]
    same = constants.tolist() == expected
    if isinstance(fixed, FixedLinear) and same:
        weight = np.empty_like(fixed.weight)
        library.foretail_weights(_address(weight))
        same = np.array_equal(weight, fixed.weight)
    if not same:
        raise ProofError("the exported C holds other constants than its predictor: nothing is exported, report this")


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
    """What ``demand_selftest.c.j2`` computes of the prediction of its history `at`."""
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
