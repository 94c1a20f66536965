"""Integer networks as C, read back by compiling and running them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.export.c.build import PredictorLibrary, compile_library, read_header, run_program
from foretail.export.c.text import c_string, render_library, render_selftest
from foretail.export.folder import environment
from foretail.export.network.fixed_point import MANTISSA_BITS, POINT_BITS, FixedNetwork
from foretail.export.proof import ProofError, at_most

IntArray = npt.NDArray[np.int64]

_SELFTEST_ROWS = 64
_READ_ROWS = 4096
_PER_LINE = 8


def render_network(fixed: FixedNetwork, sha256: str, name: str) -> dict[str, str]:
    """Return the files, name -> text: ``<name>.h``, ``<name>.c`` and ``<name>_selftest.c``.

    `sha256` is that of the network's own file, `name` the prefix of files and C names.
    """
    layers = [
        {
            "outputs": len(layer.weight),
            "inputs": layer.weight.shape[1],
            "weight": ",\n".join(f"  {{\n{_lines(row)}\n  }}" for row in layer.weight.tolist()),
            "bias": _lines(f"INT64_C({value})" for value in layer.bias.tolist()),
            "shift": layer.shift,
        }
        for layer in fixed.layers
    ]
    values: dict[str, Any] = {
        "n": name,
        "N": name.upper(),
        "features": fixed.features,
        "largest": fixed.largest,
        "scale": fixed.scale,
        "tau": fixed.tau,
        "bits": fixed.bits,
        "error": at_most(fixed.error),
        "sha256": sha256,
        "powers": fixed.logarithm.powers.tolist(),
        "points": fixed.logarithm.points.tolist(),
        "log_bits": fixed.logarithm.bits,
        "mantissa_bits": MANTISSA_BITS,
        "point_bits": POINT_BITS,
        "part_bits": MANTISSA_BITS - POINT_BITS,
        "layers": layers,
        "lines": _lines,
    }
    rows = probes(fixed, _SELFTEST_ROWS)
    text = environment("foretail.export.network", c_string=c_string).get_template("network.h.j2").render(**values)
    return {
        f"{name}.h": text,
        f"{name}.c": render_library(name, fixed.features),
        f"{name}_selftest.c": render_selftest(name, rows, fixed.score(rows)),
    }


@dataclass(frozen=True, eq=False)
class Built:
    """The library built from rendered files."""

    library: bytes  #: the shared object for the simulators
    tool: str  #: what it was built with
    scores: IntArray | None  #: int64[rows] or None, what it computes of the given rows


def prove_network(
    fixed: FixedNetwork, sha256: str, files: Mapping[str, str], name: str, rows: IntArray | None = None
) -> Built:
    """Read rendered files back: compile them, compare every constant, and run them on extreme, cut and random inputs.

    `files` is what :func:`render_network` returned; `rows`, int64[rows, features], are further inputs to score.
    ProofError when a constant or a score differs. ForetailError without a C compiler.
    """
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        read_header(folder, files, name, *_constants(fixed))  # before anything runs that indexes by them
        library = folder / f"{name}.so"
        tool = compile_library(folder / f"{name}.c", library)
        predictor = PredictorLibrary(library)
        stated = (predictor.features, predictor.default_tau, predictor.ir_sha256)
        if stated != (tuple((item.name, item.params) for item in fixed.features), fixed.tau, sha256):
            raise ProofError("the exported C states another network: nothing is exported, report this")
        chosen = probes(fixed, _READ_ROWS)
        for run in (predictor.score_each, predictor.score):
            if not np.array_equal(run(chosen), fixed.score(chosen)):
                raise ProofError(
                    "the exported C computes another score than its integers: nothing is exported, report this"
                )
        if run_program(folder / f"{name}_selftest.c") != 0:
            raise ProofError("the self-test of the exported C fails: nothing is exported, report this as a bug")
        return Built(library.read_bytes(), tool, None if rows is None else predictor.score(rows))


def probes(fixed: FixedNetwork, rows: int) -> IntArray:
    """Return at least so many inputs: out of range, extreme, around powers of two and where units turn on; random ones.

    Returns int64[rows, features].
    """
    random = np.random.default_rng(0)
    tops = np.array(fixed.largest)
    one, shape = np.eye(len(tops), dtype=np.int64), (rows // 4, len(tops))
    known = [np.zeros_like(tops), tops, tops + 1, np.full_like(tops, -1), np.full_like(tops, np.iinfo(np.int64).max)]
    known += [np.full_like(tops, -np.iinfo(np.int64).max)]
    known += [*(tops * one), *(tops * (1 - one))]
    powers = (np.int64(1) << random.integers(0, 33, shape)) + random.integers(-2, 2, shape)
    spread = random.integers(0, np.maximum(tops >> random.integers(0, 32, (rows // 2, len(tops))), 1) + 1)
    return np.concatenate([known, powers, spread, _turns(fixed, spread[: rows // 4])]).astype(np.int64)


def _turns(fixed: FixedNetwork, start: IntArray) -> IntArray:
    """Inputs on both sides of a place where a unit or the decision changes sign, on the way to another row."""
    low, high = start, np.roll(start, 1, axis=0)
    unit = np.arange(len(start))

    def on(x: IntArray) -> npt.NDArray[np.bool_]:
        sums = fixed.sums(x)
        signs = np.concatenate([*(layer > 0 for layer in sums[:-1]), sums[-1] > fixed.tau], axis=1)
        chosen: npt.NDArray[np.bool_] = signs[unit, unit % signs.shape[1]]
        return chosen

    side = on(low)
    for _ in range(34):  # halves any way of 32 bits to neighbours
        middle = (low + high) >> 1
        same = (on(middle) == side)[:, np.newaxis]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.concatenate([low, high])


def _constants(fixed: FixedNetwork) -> tuple[dict[str, int], dict[str, IntArray]]:
    """Return every macro with a number, and every array of the header."""
    single = {"FEATURES": len(fixed.features), "SCORE_BITS": fixed.bits, "DEFAULT_TAU": fixed.tau}
    single |= {f"SHIFT_{at}": layer.shift for at, layer in enumerate(fixed.layers[:-1])}
    arrays = {"largest": np.array(fixed.largest), "scale": np.array(fixed.scale)}
    arrays |= {"powers": fixed.logarithm.powers, "points": fixed.logarithm.points}
    for at, layer in enumerate(fixed.layers):
        arrays |= {f"weight_{at}": layer.weight, f"bias_{at}": layer.bias}
    return single, arrays


def _lines(values: Iterable[object]) -> str:
    every = [str(value) for value in values]
    return ",\n".join(f"  {', '.join(every[at : at + _PER_LINE])}" for at in range(0, len(every), _PER_LINE))
