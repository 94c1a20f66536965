"""Compiling generated C with the user's compiler, and calling the result."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.proof import ProofError

ABI_VERSION = 1
FLAGS = ("-std=c99", "-O3", "-fPIC", "-shared")

_WIDTHS = """
int main(void) {
#if defined(__GNUC__) && defined(__x86_64__)
  return (__builtin_cpu_supports("avx2") ? 1 : 0) + (__builtin_cpu_supports("avx512bw") ? 2 : 0);
#else
  return 0;
#endif
}
"""

# Scores and times through the entry points, in C; the clock is the thread's own CPU time.
_CALLER = """
#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>
#include <time.h>
typedef int64_t one_t(const int64_t *);
typedef void many_t(const int64_t *, size_t, int64_t *);
void each_row(one_t *score, const int64_t *x, size_t rows, size_t width, int64_t *out) {
  size_t row;
  for (row = 0; row < rows; ++row) out[row] = score(x + row * width);
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
double time_rows(one_t *score, const int64_t *x, size_t rows, size_t width, int64_t *out) {
  const double start = now();
  each_row(score, x, rows, width, out);
  return now() - start;
}
double time_batch(many_t *score, const int64_t *x, size_t rows, int64_t *out) {
  const double start = now();
  score(x, rows, out);
  return now() - start;
}
"""

# Hands out and counts constants of a header.
_CONSTANTS = """
#include <stddef.h>
#include "{name}.h"
static void put(int64_t *out, int64_t room, int64_t *at, int64_t value) {{
  if (*at < room) out[*at] = value;
  ++*at;
}}
int foretail_constants(int64_t *out, int64_t room) {{
  int64_t at = 0;
  size_t i;
{body}
  return (int)at;
}}
"""


class _Info(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("n_features", ctypes.c_uint32),
        ("feature_names", ctypes.POINTER(ctypes.c_char_p)),
        ("feature_params", ctypes.POINTER(ctypes.c_char_p)),
        ("default_tau", ctypes.c_int64),
        ("ir_sha256", ctypes.c_char_p),
    )


def predictor_abi() -> str:
    """Return the text of ``sim_bridge/buffer/predictor/predictor.h``, which generated libraries carry verbatim."""
    return resources.files("foretail.sim_bridge").joinpath("buffer/predictor/predictor.h").read_text(encoding="ascii")


def find_compiler() -> list[str]:
    """Return the C compiler's command: ``$CC``, else the first of cc, gcc, clang; ForetailError when there is none."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise ForetailError(f"the C compiler {chosen[0]!r} of $CC is not on PATH: set CC to one that is")
        return chosen
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise ForetailError("no C compiler found (cc, gcc, clang): install one or set CC")


def compile_library(source: Path, library: Path, *options: str) -> str:
    """Compile `source` to the shared object `library`, with further options, and return the command without paths.

    ForetailError without a compiler, or when it refuses the source.
    """
    command = [*find_compiler(), *FLAGS, *options]
    _compile(command, source, library)
    return shlex.join(command)


def compiled_reader(folder: Path, files: Mapping[str, str], reader: str, *options: str) -> ctypes.CDLL:
    """Return a loaded library that reads generated `files`; both are written into `folder` and compiled there."""
    for file, text in {**files, "reader.c": reader}.items():
        (folder / file).write_text(text, encoding="ascii")
    compile_library(folder / "reader.c", folder / "reader.so", *options)
    return ctypes.CDLL(str(folder / "reader.so"))


def read_header(
    folder: Path,
    files: Mapping[str, str],
    name: str,
    single: Mapping[str, int],
    arrays: Mapping[str, npt.NDArray[np.int64]],
    reader: str = "",
    *options: str,
) -> ctypes.CDLL:
    """Return a loaded library that reads the generated ``<name>.h`` among `files`.

    ProofError, before anything else runs, when a constant or an array of the header is not as given.

    Parameters
    ----------
    single : ``NAME_`` and the rest of a macro -> its value
    arrays : ``name_`` and the rest of an array -> its values, of as many dimensions
    reader : further C
    options : of the compiler
    """
    body = [f"  put(out, room, &at, {name.upper()}_{constant});" for constant in single]
    for array, values in arrays.items():
        first = f"{name}_{array}{'[0]' * values.ndim}"
        count = f"sizeof {name}_{array} / sizeof {first}"
        body.append(f"  for (i = 0; i < {count}; ++i) put(out, room, &at, (&{first})[i]);")
    text = _CONSTANTS.format(name=name, body="\n".join(body)) + reader
    library = compiled_reader(folder, files, text, "-O1", *options)
    expected = np.concatenate([list(single.values()), *(values.ravel() for values in arrays.values())]).astype(np.int64)
    constants = np.zeros_like(expected)
    count = library.foretail_constants(ctypes.c_void_p(constants.ctypes.data), ctypes.c_int64(len(constants)))
    if count != len(expected) or not np.array_equal(constants, expected):
        raise ProofError("the exported C holds other constants than its predictor: nothing is exported, report this")
    return library


def run_program(source: Path) -> int:
    """Compile the program `source` beside itself, run it and return its exit code; ForetailError as above."""
    program = source.with_suffix("")
    _compile([*find_compiler(), "-std=c99", "-O0"], source, program)
    return subprocess.run([program], check=False, capture_output=True).returncode


@cache
def vector_widths() -> tuple[int, ...]:
    """Return the SIMD widths of generated batch code that compiler and CPU have: some of 256, 512 bits."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "widths.c"
        source.write_text(_WIDTHS, encoding="ascii")
        output = run_program(source)
    return tuple(width for bit, width in ((1, 256), (2, 512)) if output & bit)


def _compile(command: list[str], source: Path, result: Path) -> None:
    done = subprocess.run([*command, "-o", str(result), str(source)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
        raise ForetailError(f"{command[0]} cannot compile {source.name} ({reason.strip()}): set CC to a C99 compiler")


class PredictorLibrary:
    """A compiled predictor, called through the ABI of ``sim_bridge/buffer/predictor/predictor.h``.

    ForetailError when the file is not a predictor library of ABI version 1.

    Attributes
    ----------
    path : Path
    features : tuple of (name, params), inputs in column order
    default_tau : ``score > default_tau`` means drop
    ir_sha256 : identity of the ensemble it was exported from

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.export.c.target import C
    >>> from foretail.export.target import export
    >>> from foretail.models.drop.sharing_rule import SharingRule
    >>> with TemporaryDirectory() as folder:
    ...     exported = export(SharingRule(17, 229, 136, 176).ensemble(cell_bytes=256), C(), Path(folder) / "rule")
    ...     library = PredictorLibrary(exported.file(".so"))
    >>> library.ir_sha256 == exported.ensemble.sha256
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # The loader hands out what it already holds under a path, even when the file is another one by now.
            with tempfile.TemporaryDirectory() as folder:
                library = ctypes.CDLL(str(shutil.copyfile(path, Path(folder) / path.name)))
            info, self._score, self._batch = (
                getattr(library, f"foretail_predictor_{name}") for name in ("info", "score", "score_batch")
            )
        except (OSError, AttributeError):
            raise ForetailError(
                f"{path} is not a Foretail predictor library: pass the .so that the export stage wrote"
            ) from None
        pointer = ctypes.POINTER(ctypes.c_int64)
        info.restype = ctypes.POINTER(_Info)
        self._score.restype, self._score.argtypes = ctypes.c_int64, (pointer,)
        self._batch.restype, self._batch.argtypes = None, (pointer, ctypes.c_size_t, pointer)
        contents = info().contents
        if contents.abi_version != ABI_VERSION:
            raise ForetailError(
                f"{path} has predictor ABI version {contents.abi_version}, but this Foretail reads {ABI_VERSION}: "
                f"export the model again"
            )
        self.features = tuple(
            (contents.feature_names[i].decode(), contents.feature_params[i].decode())
            for i in range(contents.n_features)
        )
        self.default_tau: int = contents.default_tau
        self.ir_sha256: str = contents.ir_sha256.decode()

    def score(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the scores of integer rows [rows, features] through ``score_batch``: int64[rows]."""
        rows = self._rows(x)
        out = np.empty(len(rows), np.int64)
        pointer = ctypes.POINTER(ctypes.c_int64)
        self._batch(rows.ctypes.data_as(pointer), len(rows), out.ctypes.data_as(pointer))
        return out

    def score_each(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the scores of integer rows [rows, features] through the single entry point: int64[rows]."""
        rows = self._rows(x)
        out = np.empty(len(rows), np.int64)
        _caller().each_row(self.score_address, rows.ctypes.data, *rows.shape, out.ctypes.data)
        return out

    def nanoseconds(self, x: npt.ArrayLike) -> tuple[float, float]:
        """Return the thread CPU time per row of `x`, integers [rows, features], one by one and as a batch, once."""
        rows = self._rows(x)
        out = np.empty(len(rows), np.int64)
        caller = _caller()
        one = caller.time_rows(self.score_address, rows.ctypes.data, *rows.shape, out.ctypes.data)
        batch = ctypes.cast(self._batch, ctypes.c_void_p)
        many = caller.time_batch(batch, rows.ctypes.data, len(rows), out.ctypes.data)
        return one / len(rows), many / len(rows)

    @property
    def score_address(self) -> int:
        """Address of ``foretail_predictor_score``, for C callers."""
        return ctypes.cast(self._score, ctypes.c_void_p).value or 0

    def _rows(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        array = np.asarray(x)
        if array.ndim != 2 or array.shape[1] != len(self.features) or array.dtype.kind not in "iu":
            raise ForetailError(
                f"{self.path.name} scores rows of {len(self.features)} integers, but got shape {array.shape} and type "
                f"{array.dtype}: pass its features in order"
            )
        return np.ascontiguousarray(array, np.int64)


@cache
def _caller() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        caller = compiled_reader(Path(folder), {}, _CALLER)
    address, size = ctypes.c_void_p, ctypes.c_size_t
    caller.each_row.argtypes, caller.each_row.restype = (address, address, size, size, address), None
    caller.time_rows.argtypes, caller.time_rows.restype = (address, address, size, size, address), ctypes.c_double
    caller.time_batch.argtypes, caller.time_batch.restype = (address, address, size, address), ctypes.c_double
    return caller
