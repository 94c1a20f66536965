"""Proof that exported code decides as its model does, on every input, and the certificate that records it.

The grid spanned by the model's cuts and by every constant that the emitted text compares an input with has the property
that model and code are both constant on each of its cells; the code is compiled and run on one point of every cell
(design section 4). Nothing is sampled.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.export.build import PredictorLibrary, compile_library, predictor_abi
from foretail.features.errors import ForetailError
from foretail.models.cells import Cells, distinct_rows
from foretail.models.ensemble import Ensemble, keys_exceed

__all__ = ["Certificate", "ProofError", "Relation", "proof_cells", "prove_c", "relate"]

IntArray = npt.NDArray[np.int64]

MAX_CELLS = 10**8
MAX_LISTED = 10

_EACH_ROW = """
#include <stddef.h>
#include <stdint.h>
void each_row(int64_t (*score)(const int64_t *), const int64_t *x, size_t rows, size_t width, int64_t *out) {
  for (size_t row = 0; row < rows; ++row) out[row] = score(x + row * width);
}
"""

# The only ways in which the generated text may touch its inputs: whole conditions, and handing the pointer on.
_COMPARISON = re.compile(r"\bif \(x\[(0|[1-9]\d*)\] (<=|>=|==|!=|<|>) (-?(?:0|[1-9]\d*))\) \{")
_PASSING = re.compile(
    r"const int64_t \*x\b|\(void\)x;|(?<=\w)\(x\)|\(x \+ row \* \w+_FEATURES\)|\bint64_t \*out\b"
    r"|const char \*const \w+\[\]|const foretail_predictor_info_t \*\w+"
)
_STRAY = re.compile(r"\bx\b|\*|//|\\\n|\?\?")


class ProofError(ForetailError):
    """Exported code or integer votes decide otherwise than the model; the message names an input."""


@dataclass(frozen=True)
class Certificate:
    """What was proven, and about which files.

    Attributes
    ----------
    method : str
        ``cells``: both sides compared on one point of every cell.
    cells : int
        Number of cells.
    points_per_feature : dict of str to int
        Intervals of every input; their product is `cells`.
    order : bool
        Score strictly monotone in the exact sum over all cells: the proof holds for any tau.
    taus : list of int or None
        Without `order`, the only taus it holds for.
    default_tau : int
    threshold : str
        The threshold on the exact sum that `default_tau` stands for, as in the ensemble file.
    vote_bits : int
    float_decides_otherwise : int
        Cells where the framework's sum, rounded in float64 in tree order, decides otherwise than the exact sum.
    float_within_rounding : int
        Cells so close to the threshold that some order of rounding could decide otherwise.
    float_inputs : list of list of int
        Inputs of the first ten such cells.
    ir_sha256 : str
        The ensemble, votes included.
    outputs : dict of str to str
        File name -> SHA-256 of the proven texts and of the library built from them.
    compiler : str
        Command the proven binary was built with.
    """

    method: str
    cells: int
    points_per_feature: dict[str, int]
    order: bool
    taus: list[int] | None
    default_tau: int
    threshold: str
    vote_bits: int
    float_decides_otherwise: int
    float_within_rounding: int
    float_inputs: list[list[int]]
    ir_sha256: str
    outputs: dict[str, str]
    compiler: str

    def to_json(self) -> str:
        """Return the certificate file's text."""
        return json.dumps({"schema": "foretail.certificate", "version": 1, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def load(cls, path: Path) -> Certificate:
        """Read a certificate; raise ForetailError when it is missing or malformed."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if (document.pop("schema"), document.pop("version")) != ("foretail.certificate", 1):
                raise ValueError("another schema")
            return cls(**document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ForetailError(f"{path} is not a certificate of version 1: export the model again") from None

    def check_tau(self, tau: int) -> None:
        """Raise ForetailError unless the proof covers decisions ``score > tau``."""
        if not self.order and tau not in (self.taus or ()):
            raise ForetailError(
                f"the certificate of ensemble {self.ir_sha256[:12]} does not cover tau {tau}, only {self.taus}: "
                f"set the threshold before exporting and export again"
            )


@dataclass(frozen=True)
class Relation:
    """How integer scores relate to exact sums over all cells: `order` for any tau, `default` for default_tau."""

    order: bool
    default: bool


def proof_cells(ensemble: Ensemble, boundaries: Mapping[int, set[int]] | None = None) -> Cells:
    """Return the grid of the ensemble's cuts and further boundaries; ForetailError above 10**8 cells."""
    cells = Cells.of(ensemble, boundaries)
    if cells.count > MAX_CELLS:
        raise ForetailError(
            f"the model has {cells.count:.2g} cells, more than the {MAX_CELLS:.0e} that can be enumerated for a proof: "
            f"use fewer trees, less depth or fewer features"
        )
    return cells


def relate(ensemble: Ensemble, cells: Cells) -> Relation:
    """Compare the order of scores and exact sums over all cells; the ensemble must have votes."""
    tau, bound = _default_tau(ensemble), ensemble.key_of(ensemble.threshold)
    pairs, default = [], True
    for points in cells.batches():
        keys, score = ensemble.exact_key(points), ensemble.score(points)
        default &= bool(np.array_equal(score > tau, keys_exceed(keys, bound)))
        both = np.column_stack([keys, score])
        pairs.append(both[distinct_rows(both)[0]])
    both = np.concatenate(pairs)
    both = both[distinct_rows(both)[0]]
    # Sorted by (sum, score), a repeated sum has two scores, and a score that does not grow breaks the order.
    new_sum = np.any(both[1:, :-1] != both[:-1, :-1], axis=1)
    return Relation(bool(np.all(new_sum) and np.all(both[1:, -1] > both[:-1, -1])), default)


def comparisons(text: str, inputs: int) -> dict[int, set[int]]:
    """Read back every constant that C text compares an input with.

    Parameters
    ----------
    text : str
        C source in which inputs are elements of ``x``, used in comparisons with decimal constants only.
    inputs : int
        Number of inputs.

    Returns
    -------
    dict
        Input index -> values b such that the outcome may change between b and b + 1.

    Raises
    ------
    ProofError
        When the text reaches an input in any other way, so that its cells are unknown.
    """
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    code = re.sub(r'"[^"\n]*"', '""', code)
    boundaries: dict[int, set[int]] = defaultdict(set)
    for index, operator, constant in _COMPARISON.findall(code):
        if int(index) >= inputs:
            raise ProofError(
                f"the exported C reads x[{index}], but the model has {inputs} inputs: report this as a bug"
            )
        value = int(constant)
        if operator in ("<=", ">", "==", "!="):
            boundaries[int(index)].add(value)
        if operator in ("<", ">=", "==", "!="):
            boundaries[int(index)].add(value - 1)
    rest = _PASSING.sub(" ", _COMPARISON.sub(" ", code))
    stray = _STRAY.search(rest)
    if stray:
        around = " ".join(rest[max(0, stray.start() - 30) : stray.end() + 30].split())
        raise ProofError(f"the exported C uses its inputs outside plain comparisons ({around!r}): report this as a bug")
    return dict(boundaries)


def prove_c(ensemble: Ensemble, texts: Mapping[str, str], library: Path) -> Certificate:
    """Compile the exported C to `library`, prove it equal to the ensemble on all inputs, and return the certificate.

    Parameters
    ----------
    ensemble : Ensemble
        With votes.
    texts : mapping of str to str
        File name -> text; the one that ends in ``.c`` is compiled, the others can be included by it.
    library : Path
        Where the proven binary is left, named as the caller wants it.

    Raises
    ------
    ProofError
        With the input at which the two differ; `library` is then worthless.
    ForetailError
        Without a compiler, or above 10**8 cells.
    """
    own_text = "\n".join(texts.values()).replace(predictor_abi(), "")
    boundaries = comparisons(own_text, len(ensemble.features))
    cells = proof_cells(ensemble, boundaries)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**texts, "each_row.c": _EACH_ROW}.items():
            (Path(folder) / name).write_text(text, encoding="ascii")
        source = next(name for name in texts if name.endswith(".c"))
        compiler = compile_library(Path(folder) / source, library)
        compile_library(Path(folder) / "each_row.c", Path(folder) / "each_row.so")
        each_row = ctypes.CDLL(str(Path(folder) / "each_row.so")).each_row
    predictor = PredictorLibrary(library)
    _check_info(ensemble, predictor)
    otherwise, close = 0, 0
    listed: list[list[int]] = []
    for points in cells.batches():
        expected = ensemble.score(points)
        for entry, got in (
            ("score_batch", predictor.score(points)),
            ("score", _one_by_one(each_row, predictor, points)),
        ):
            wrong = np.flatnonzero(got != expected)
            if wrong.size:
                at = int(wrong[0])
                inputs = ", ".join(f"{f.name}={v}" for f, v in zip(ensemble.features, points[at].tolist(), strict=True))
                raise ProofError(
                    f"the exported C ({entry}) gives {got[at]} where the model gives {expected[at]}, at {inputs}: "
                    f"nothing is exported, report this as a bug"
                )
        differs, near = _float_decisions(ensemble, points)
        otherwise, close = otherwise + int(differs.sum()), close + int(near.sum())
        listed += points[near][: MAX_LISTED - len(listed)].tolist()
    relation = relate(ensemble, cells)
    if not relation.default:
        raise ProofError(
            f"score > {ensemble.default_tau} is not exact sum > {ensemble.threshold} on every cell: "
            f"nothing is exported, run the vote pass on the ensemble again"
        )
    tau = _default_tau(ensemble)
    contents = {**{name: text.encode() for name, text in texts.items()}, library.name: library.read_bytes()}
    return Certificate(
        method="cells",
        cells=cells.count,
        points_per_feature={f.name: len(a) for f, a in zip(ensemble.features, cells.axes, strict=True)},
        order=relation.order,
        taus=None if relation.order else [tau],
        default_tau=tau,
        threshold=json.loads(ensemble.to_json())["threshold"],
        vote_bits=ensemble.vote_bits or 0,
        float_decides_otherwise=otherwise,
        float_within_rounding=close,
        float_inputs=listed,
        ir_sha256=ensemble.sha256,
        outputs={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        compiler=compiler,
    )


def _default_tau(ensemble: Ensemble) -> int:
    if ensemble.default_tau is None:
        raise ForetailError("the ensemble has no integer votes: run foretail.export.with_votes on it first")
    return ensemble.default_tau


def _check_info(ensemble: Ensemble, predictor: PredictorLibrary) -> None:
    stated = (predictor.features, predictor.default_tau, predictor.ir_sha256)
    if stated != (tuple((f.name, f.params) for f in ensemble.features), ensemble.default_tau, ensemble.sha256):
        raise ProofError(
            "the exported library states other features, tau or ensemble: nothing is exported, report this"
        )


def _one_by_one(each_row: Any, predictor: PredictorLibrary, points: IntArray) -> IntArray:
    out = np.empty(len(points), np.int64)
    pointer = ctypes.POINTER(ctypes.c_int64)
    each_row.argtypes = (ctypes.c_void_p, pointer, ctypes.c_size_t, ctypes.c_size_t, pointer)
    each_row.restype = None
    rows = np.ascontiguousarray(points)
    each_row(predictor.score_address, rows.ctypes.data_as(pointer), *rows.shape, out.ctypes.data_as(pointer))
    return out


def _float_decisions(ensemble: Ensemble, points: IntArray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return, per point, whether float64 decides otherwise, and whether some order of rounding could."""
    total, threshold = ensemble.float_sum(points), float(ensemble.threshold)
    count = len(ensemble.trees)
    if ensemble.output == "mean_probability":
        float_drop, unit = total / count > float(ensemble.threshold / count), 2.0**-53
    else:
        float_drop, unit = total > threshold, 2.0**-24  # boosting frameworks add in float32
    largest = abs(ensemble.base) + sum(float(np.abs(tree.value).max()) for tree in ensemble.trees) + abs(threshold)
    differs = float_drop != keys_exceed(ensemble.exact_key(points), ensemble.key_of(ensemble.threshold))
    near = np.abs(total - threshold) <= 2 * (count + 2) * unit * largest
    return differs, near
