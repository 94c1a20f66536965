"""Compiling generated C with the user's compiler, and calling the result."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.features.errors import ForetailError

__all__ = ["PredictorLibrary", "compile_library", "find_compiler", "predictor_abi"]

ABI_VERSION = 1
FLAGS = ("-std=c99", "-O3", "-fPIC", "-shared")


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
    """Return the text of ``sim_bridge/buffer/predictor.h``, which generated libraries carry verbatim."""
    return resources.files("foretail.sim_bridge").joinpath("buffer/predictor.h").read_text(encoding="ascii")


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


def compile_library(source: Path, library: Path) -> str:
    """Compile `source` to the shared object `library` and return the command line without the paths.

    Raises
    ------
    ForetailError
        Without a compiler, or when it refuses the source.
    """
    compiler = find_compiler()
    done = subprocess.run(
        [*compiler, *FLAGS, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
        raise ForetailError(f"{compiler[0]} cannot compile {source.name} ({reason.strip()}): set CC to a C99 compiler")
    return shlex.join([*compiler, *FLAGS])


class PredictorLibrary:
    """A compiled predictor, called through the ABI of ``sim_bridge/buffer/predictor.h``.

    Attributes
    ----------
    path : Path
    features : tuple of (name, params)
        Inputs in column order.
    default_tau : int
        ``score > default_tau`` means drop.
    ir_sha256 : str
        Identity of the ensemble it was exported from.

    Raises
    ------
    ForetailError
        When the file is no predictor library of ABI version 1.
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
        found = info().contents
        if found.abi_version != ABI_VERSION:
            raise ForetailError(
                f"{path} has predictor ABI version {found.abi_version}, but this Foretail reads {ABI_VERSION}: "
                f"export the model again"
            )
        self.features = tuple(
            (found.feature_names[i].decode(), found.feature_params[i].decode()) for i in range(found.n_features)
        )
        self.default_tau: int = found.default_tau
        self.ir_sha256: str = found.ir_sha256.decode()

    def score(self, x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the scores of integer rows [rows, features] through ``score_batch``: int64[rows]."""
        rows = self._rows(x)
        out = np.empty(len(rows), np.int64)
        pointer = ctypes.POINTER(ctypes.c_int64)
        self._batch(rows.ctypes.data_as(pointer), len(rows), out.ctypes.data_as(pointer))
        return out

    def score_one(self, x: npt.ArrayLike) -> int:
        """Return the score of one row, integers [features], through the single entry point."""
        row = self._rows(np.asarray(x)[np.newaxis])
        return int(self._score(row.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))))

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
