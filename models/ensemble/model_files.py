"""Model files: an ensemble's JSON, or a trained model as XGBoost, treelite, skops or pickle wrote it.

A file is known by its content, not by its name. Other people's formats are read in a process of its own within
:class:`Limits`, because the readers below treelite, XGBoost and scikit-learn's trees crash or hang on damaged files;
what comes back is the ensemble's JSON, which is checked like any other. Nothing is unpickled unless the caller allows
it: a pickle runs whatever code it holds.
"""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import importlib
import json
import lzma
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.digest import check_file
from foretail.core.errors import ForetailError, readable
from foretail.core.impostors import COMPRESSED, refuse_pointer
from foretail.core.json_text import parse_json
from foretail.core.plugins import FAILURES
from foretail.core.reading import Reading
from foretail.models.ensemble.agreement import MOST_ROWS
from foretail.models.ensemble.ensemble import ColumnInput, Ensemble, FeatureInput

SKOPS_TYPES = (
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
)
"""Types of scikit-learn's tree ensembles that skops does not know as harmless by itself."""

_SEARCHED = "a search or a threshold of its own around a classifier: save its best_estimator_ or estimator_ alone"
_KNOWN_TYPES = {
    "xgboost.": "a model of XGBoost: save it with its own save_model, as model.json",
    "lightgbm.": "a model of LightGBM: save it as text with booster_.save_model",
    "catboost.": "a model of CatBoost: bring it as a predictor of a package, as examples/catboost_predictor does",
    "sklearn.calibration.": "a calibration, a rule outside of the trees: save the classifier without it",
    "sklearn.metrics.": _SEARCHED,
    "sklearn.model_selection.": _SEARCHED,
    "sklearn.utils.validation.check_array": "a model with categorical features: train it on integer features only",
}
"""Types in skops that are not trusted, by how their names begin, and what somebody has saved who has them."""

_UBJ_MARKERS = tuple(bytes([b]) for b in b"iUIlL$#")  # of the length of an object's first key, or of its size
_PACKED = (*COMPRESSED, b"\x5d\x00\x00", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")  # as joblib.dump does
_UNPACKERS: tuple[Callable[[], Any], ...] = (
    lambda: zlib.decompressobj(47),  # zlib and gzip
    bz2.BZ2Decompressor,
    lambda: lzma.LZMADecompressor(memlimit=1 << 28),
)


class NamedColumns(tuple[FeatureInput, ...]):
    """All columns of a dataset, of which a model's own names choose."""

    def chosen(self, names: Sequence[str] | None) -> list[FeatureInput]:
        """Return the inputs of a model that names its columns; ForetailError for one that does not, or another name."""
        if names is None:
            raise ForetailError("the model does not name its columns: give columns=[NAME, ...] in training order")
        known = {item.column if isinstance(item, ColumnInput) else item.name: item for item in self}
        for name in names:
            if name not in known:
                raise ForetailError(
                    f"the model was trained on {name!r}, which is no column of the dataset: give inputs=[...], or a "
                    f"dataset with it, whose columns are {', '.join(known)}"
                )
        return [known[name] for name in names]


class Format(StrEnum):
    """Format of a file; values name it in errors."""

    ENSEMBLE = "ensemble"
    XGBOOST_JSON = "XGBoost JSON model"
    XGBOOST_UBJ = "XGBoost UBJSON model"
    LIGHTGBM = "LightGBM text model"
    TREELITE = "treelite checkpoint"
    SKOPS = "skops file"
    PICKLE = "pickle"


@dataclass(frozen=True)
class Limits:
    """Limits of reading one foreign file; thousands of deep trees take seconds."""

    cpu_seconds: int = 120  #: of its computation, so that a busy machine makes no difference
    memory_bytes: int = 8 << 30  #: beside what the libraries take that read it
    wall_seconds: int = 3600  #: until a reader that does not compute, but waits, is given up


DEFAULT_LIMITS = Limits()


def load_model_file(
    path: Path,
    features: Sequence[FeatureInput] | None,
    allow_pickle: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    rows: npt.NDArray[np.int64] | None = None,
) -> Ensemble:
    """Read a drop predictor from a file.

    ForetailError when the file cannot be read, is of no known format, damaged, takes more than `limits`, or holds a
    model that the front ends refuse.

    Parameters
    ----------
    path : Path
        ``ensemble.json``, XGBoost's JSON or UBJSON, LightGBM's text, a treelite checkpoint, a scikit-learn
        classifier saved by skops, or, with `allow_pickle`, one of scikit-learn or XGBoost, pickled or dumped by joblib.
    features : the model's columns in training order with their ranges; or, as :class:`NamedColumns`, all that there
        are, of which the names in the file choose. An ensemble brings its own: None, or the same
    allow_pickle : whether to open a pickle, which runs any code that it holds
    limits : of the process that reads a file of another framework
    rows : int64[rows, features], rows of data on which the decisions of an estimator in the file are compared with ours
    """
    path = Path(path)
    with readable(path, "give the file of a trained model"):
        content = path.read_bytes()
    check_file(path, "train the model again")
    kind = format_of(content, str(path))
    if kind is Format.ENSEMBLE:
        ensemble = Ensemble.load(path)
        if not (features is None or isinstance(features, NamedColumns)) and tuple(features) != ensemble.features:
            raise ForetailError(
                f"{path} is an ensemble with its own features "
                f"({', '.join(f'{f.name} of {f.bits} bits' for f in ensemble.features)}), not the declared ones: "
                f"declare the same or none"
            )
        return _told(ensemble, path)
    if kind is Format.PICKLE and not allow_pickle:
        raise ForetailError(
            f"{path} is a pickle, which can run any code when it is opened: save the model with skops, or set "
            f"allow_pickle=true if you trust whoever made the file"
        )
    if not features:
        raise ForetailError(
            f"{path} ({kind}) does not say the range of its inputs: give dataset=FOLDER to foretail export, or declare "
            f"them in order, as in 'inputs=[{{name: queue, bits: 20}}, ...]'; other stages take the ensemble.json that "
            f"it writes"
        )
    return _told(_read_apart(path, kind, features, limits, rows), path)


def _told(ensemble: Ensemble, path: Path) -> Ensemble:
    """Tell what its reader noticed of the features of a model; ForetailError when that leaves no split."""
    beyond, fractions = (ensemble.origin.get(name) for name in ("beyond_bits", "fractions"))
    if (beyond or fractions) and all(len(tree.value) == 1 for tree in ensemble.trees):
        raise ForetailError(
            f"no split of {path} can be reached on both sides by whole numbers of the declared bits: declare more "
            "bits, or train on the columns as a switch has them"
        )
    lost = f"tests of {beyond} beyond the bits that were declared (declare more)"
    guess = f"whole numbers reach the thresholds of {fractions}, which are neither such numbers nor in their middle, "
    guess += "as of a model that learned on scaled columns: train on the columns as a switch has them"
    Reading(str(path), (lost,) if beyond else (), (guess,) if fractions else ()).tell()
    return ensemble


def format_of(content: bytes, source: str) -> Format:
    """Return the format of a file's content; `source` names it in errors. Raise ForetailError when none is known."""
    refuse_pointer(source, content)
    if content[:1] == b"{" and content[1:2] in _UBJ_MARKERS:
        return Format.XGBOOST_UBJ
    if content.lstrip(b" \t\r\n")[:1] == b"{":  # whose JSON it is, by its words: it may be foreign
        if b'"foretail.ensemble"' in content:
            return Format.ENSEMBLE
        if b'"learner"' in content:
            return Format.XGBOOST_JSON
        raise ForetailError(
            f"{source} is JSON, but neither an ensemble nor an XGBoost model: give what training or Booster.save_model "
            f"wrote"
        )
    if content.startswith((b"tree\nversion=", b"tree\r\nversion=")):
        return Format.LIGHTGBM
    if b"tree" in content[:8] and b"version=" in content[:32]:
        raise ForetailError(
            f"{source} is a LightGBM text that an editor has changed at its first bytes or its line ends: save it "
            "again with booster_.save_model"
        )
    if content.startswith(b"PK\x03\x04"):
        if b"/data.pkl" in content[:512]:
            raise ForetailError(
                f"{source} is a file of PyTorch, which holds numbers without their graph: hand the layers over with "
                "Network.of_layers (docs/guide/extend.md)"
            )
        return Format.SKOPS
    if content[:1] == b"\x80" and content[1:2] in b"\x02\x03\x04\x05":
        return Format.PICKLE
    if content.startswith(_PACKED):
        if (head := _unpacked(content)) and head[:1] != b"\x80":
            raise ForetailError(f"{source} is compressed, and no pickle is in it: unpack it and give the unpacked file")
        return Format.PICKLE
    if len(content) >= 12:
        major, minor, patch = struct.unpack_from("<iii", content)  # a checkpoint starts with treelite's version
        if major in (3, 4) and 0 <= minor < 100 and 0 <= patch < 100:
            return Format.TREELITE
    raise ForetailError(
        f"{source} is not a model file that Foretail reads: give an ensemble.json, an XGBoost JSON or UBJSON file, a "
        f"LightGBM text model, a treelite checkpoint or a skops file"
    )


def _unpacked(content: bytes) -> bytes:
    """The first bytes of what is compressed; none where that is damaged or of another method."""
    for unpacker in _UNPACKERS:
        with contextlib.suppress(zlib.error, OSError, EOFError, lzma.LZMAError):
            return bytes(unpacker().decompress(content[: 1 << 20], 64))
    return b""


def read_foreign(
    path: Path,
    kind: Format,
    features: Sequence[FeatureInput],
    limits: Limits = DEFAULT_LIMITS,
    rows: npt.NDArray[np.int64] | None = None,
) -> Ensemble:
    """Read a file of another framework in this process, which a damaged file can end; see :func:`load_model_file`.

    Of `limits`, errors name the memory; who calls this keeps to them.
    """
    try:
        return _read_foreign(path, kind, features, rows)
    except MemoryError:
        raise _too_large(path, kind, limits) from None
    except UnicodeDecodeError:  # names that are noise
        raise _damaged(path, kind) from None
    except ForetailError as error:
        raise error if str(path) in str(error) else ForetailError(f"{path}: {error}") from None


def _read_foreign(
    path: Path, kind: Format, features: Sequence[FeatureInput], rows: npt.NDArray[np.int64] | None
) -> Ensemble:
    from foretail.models.ensemble.frontends import (
        from_estimator,
        from_lightgbm,
        from_treelite,
        from_xgboost,
        lightgbm_columns,
        named_columns,
        require_memory,
    )

    def named(model: object) -> Sequence[FeatureInput]:
        """Return the declared inputs, or those that a model names."""
        return features.chosen(named_columns(model)) if isinstance(features, NamedColumns) else features

    content = path.read_bytes()
    origin = {"file_sha256": hashlib.sha256(content).hexdigest()}
    if kind in (Format.XGBOOST_JSON, Format.XGBOOST_UBJ):
        import xgboost

        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(content))  # recognises both forms
            return from_xgboost(booster, named(booster), origin, rows)
        except xgboost.core.XGBoostError as error:  # some damage shows only when the trees are written again
            require_memory(error)
            raise _damaged(path, kind) from None
    if kind is Format.LIGHTGBM:
        if isinstance(features, NamedColumns):
            features = features.chosen(lightgbm_columns(content.decode(errors="replace")))
        return from_lightgbm(path, features, origin, rows)
    if kind is Format.TREELITE:
        import treelite

        try:
            model = treelite.Model.deserialize_bytes(content)
        except treelite.TreeliteError as error:
            require_memory(error)
            raise _damaged(path, kind) from None
        ensemble = from_treelite(model, named(None), origin)
        if (ensemble.output, ensemble.base, ensemble.origin["arithmetic"]) == ("logit", 0, "float64"):
            raise ForetailError(
                "a treelite checkpoint of LightGBM does not say whether zeros are missing values (zero_as_missing): "
                "give LightGBM's own text model, as Booster.save_model writes it"
            )
        return ensemble
    with warnings.catch_warnings():
        from sklearn.exceptions import InconsistentVersionWarning

        warnings.simplefilter("error", InconsistentVersionWarning)
        try:
            estimator = _skops(path) if kind is Format.SKOPS else _unpickled(path)
        except InconsistentVersionWarning as warning:
            raise ForetailError(
                f"{path} was saved by scikit-learn {warning.original_sklearn_version}, but this is "
                f"{warning.current_sklearn_version}, which may read it differently: install the former or train again"
            ) from None
    return from_estimator(estimator, named(estimator), origin, rows)


def _read_apart(
    path: Path,
    kind: Format,
    features: Sequence[FeatureInput],
    limits: Limits,
    rows: npt.NDArray[np.int64] | None,
) -> Ensemble:
    question = {
        "path": str(path),
        "kind": kind,
        "features": [asdict(feature) for feature in features],
        "by_name": isinstance(features, NamedColumns),
        "limits": asdict(limits),
        "rows": None if rows is None else rows[:: max(1, len(rows) // MOST_ROWS)].tolist(),
    }
    try:
        answer = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(question, default=str),
            capture_output=True,
            text=True,
            timeout=limits.wall_seconds,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},  # threads reserve memory
        )
    except subprocess.TimeoutExpired:
        raise ForetailError(
            f"reading {path} ({kind}) has not ended in model_limits.wall_seconds={limits.wall_seconds:,}, nor used up "
            f"its computing time: the file makes its reader wait, so save the model again, or raise that limit"
        ) from None
    if answer.returncode == -signal.SIGXCPU:
        raise ForetailError(
            f"reading {path} ({kind}) computed for more than model_limits.cpu_seconds={limits.cpu_seconds:,}: raise "
            f"that limit for a model of many trees, or save the model again if the file is damaged"
        )
    if answer.returncode == -signal.SIGKILL:
        raise ForetailError(
            f"the system killed the reader of {path} ({kind}), as it does when memory runs out: free memory, or lower "
            f"model_limits.memory_bytes={limits.memory_bytes:,} to what there is"
        )
    if answer.returncode < 0:
        if "bad_alloc" in answer.stderr:
            raise _too_large(path, kind, limits)
        raise ForetailError(
            f"{path} ends its reader ({signal.Signals(-answer.returncode).name}): the {kind} is damaged, so save it "
            f"again, or too large for model_limits.memory_bytes={limits.memory_bytes:,}, so raise that limit"
        )
    try:
        reply = parse_json(answer.stdout)
    except ValueError:
        lines = answer.stderr.strip().splitlines()
        raise RuntimeError(f"the reader of {path} failed: {lines[-1] if lines else answer.returncode}") from None
    if "refused" in reply:
        raise ForetailError(reply["refused"])
    return Ensemble.from_json(reply["ensemble"], source=str(path))


def _answer() -> None:
    """Read the question on stdin, and answer it on stdout."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is not a part of the answer
    question = json.load(sys.stdin)
    path, kind, limits = Path(question["path"]), Format(question["kind"]), Limits(**question["limits"])
    declared = [(ColumnInput if "column" in item else FeatureInput)(**item) for item in question["features"]]
    features = NamedColumns(declared) if question["by_name"] else declared
    rows = None if question["rows"] is None else np.array(question["rows"], np.int64)
    _import_readers(kind)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + limits.cpu_seconds)
    reserved_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, reserved_bytes + limits.memory_bytes)
    try:
        answer = json.dumps({"ensemble": read_foreign(path, kind, features, limits, rows).to_json()})
    except MemoryError:
        answer = json.dumps({"refused": str(_too_large(path, kind, limits))})
    except ForetailError as error:
        answer = json.dumps({"refused": str(error)})
    out.write(answer)


def _import_readers(kind: Format) -> None:
    """Import what reads a file, before the limits: libraries take more memory than most models."""
    readers = ["foretail.models.ensemble.frontends", "treelite", "jsonschema"]
    if kind in (Format.SKOPS, Format.PICKLE):
        readers += ["sklearn.ensemble", "skops.io", "joblib"]
    if kind in (Format.XGBOOST_JSON, Format.XGBOOST_UBJ, Format.PICKLE):
        readers.append("xgboost")
    if kind in (Format.LIGHTGBM, Format.PICKLE):
        readers.append("lightgbm")
    for reader in readers:
        with contextlib.suppress(ModuleNotFoundError):  # a file that needs it is refused when it is read
            importlib.import_module(reader)


def _limit(what: int, value: int) -> None:
    """Lower a limit of this process, unless the system's own is lower."""
    _, most = resource.getrlimit(what)
    resource.setrlimit(what, (value if most < 0 else min(value, most), most))


def _skops(path: Path) -> object:
    import skops.io

    try:
        with zipfile.ZipFile(path) as archive:
            if "schema.json" not in archive.namelist():
                raise ForetailError(f"{path} is a ZIP file, but none of skops: save the model with skops.io.dump")
        unknown = sorted(set(skops.io.get_untrusted_types(file=path)) - set(SKOPS_TYPES))
        for kind, what in _KNOWN_TYPES.items():
            if any(name.startswith(kind) for name in unknown):
                raise ForetailError(f"{path} holds {what}")
        if unknown:
            raise ForetailError(
                f"{path} holds types that are not trusted ({', '.join(unknown)[:200]}): save a plain scikit-learn "
                f"classifier"
            )
        loaded: object = skops.io.load(path, trusted=list(SKOPS_TYPES))
    except (ForetailError, Warning, MemoryError):
        raise
    except FAILURES:  # skops raises whatever its members raise
        raise _damaged(path, Format.SKOPS) from None
    return loaded


def _unpickled(path: Path) -> object:
    import joblib

    try:
        # The single place where Foretail unpickles: the user has said so with allow_pickle.
        loaded: object = joblib.load(path)  # noqa: TID251
    except (Warning, MemoryError):
        raise
    except FAILURES as error:  # a pickle raises whatever its code raises
        raise ForetailError(
            f"{path} cannot be unpickled ({type(error).__name__}): save the model again, or save it with skops"
        ) from None
    return loaded


def _too_large(path: Path, kind: Format, limits: Limits) -> ForetailError:
    return ForetailError(
        f"reading {path} ({kind}) takes more than model_limits.memory_bytes={limits.memory_bytes:,}: raise that limit "
        f"for a model of many trees, or save the model again if the file is damaged"
    )


def _damaged(path: Path, kind: Format) -> ForetailError:
    return ForetailError(f"{path} is not a valid {kind}: the file is damaged, save the model again")


if __name__ == "__main__":
    _answer()
