"""Model files: an ensemble's JSON, or a trained model as XGBoost, treelite, skops or pickle wrote it.

A file is known by its content, not by its name. Other people's formats are read in a process of its own with bounded
memory and time, because the readers below treelite, XGBoost and scikit-learn's trees crash or hang on damaged files;
what comes back is the ensemble's JSON, which is checked like any other. Nothing is unpickled unless the caller allows
it: a pickle runs whatever code it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from foretail.features.errors import ForetailError
from foretail.features.json_text import parse_json
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput

READ_SECONDS = 120
"""For one file; thousands of deep trees take seconds."""

READ_BYTES = 8 << 30
"""Address space of the reading process."""

SKOPS_TYPES = (
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
)
"""Types of scikit-learn's tree ensembles that skops does not know as harmless by itself."""

_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x5d\x00\x00", b"\x04\x22\x4d\x18")  # as joblib.dump compresses
_UBJ_MARKERS = tuple(bytes([b]) for b in b"iUIlL$#")  # of the length of an object's first key, or of its size
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class Format(StrEnum):
    """What a file holds; values name it in errors."""

    ENSEMBLE = "ensemble"
    XGBOOST_JSON = "XGBoost JSON model"
    XGBOOST_UBJ = "XGBoost UBJSON model"
    TREELITE = "treelite checkpoint"
    SKOPS = "skops file"
    PICKLE = "pickle"


def load_model_file(path: Path, features: Sequence[FeatureInput] | None, allow_pickle: bool = False) -> Ensemble:
    """Read a drop predictor from a file.

    Parameters
    ----------
    path : Path
        ``ensemble.json``, XGBoost's JSON or UBJSON, a treelite checkpoint, a scikit-learn classifier saved by skops,
        or, with `allow_pickle`, a classifier of either framework, pickled or dumped by joblib.
    features : sequence of FeatureInput or None
        The model's columns in training order with their ranges. An ensemble brings its own: None, or the same.
    allow_pickle : bool
        Whether to open a pickle, which runs any code that it holds.

    Raises
    ------
    ForetailError
        When the file cannot be read, is of no known format, damaged, or holds a model that the front ends refuse.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ForetailError(f"{path} cannot be read ({error.strerror}): give the file of a trained model") from None
    kind = format_of(content, str(path))
    if kind is Format.ENSEMBLE:
        ensemble = Ensemble.load(path)
        if features is not None and tuple(features) != ensemble.features:
            raise ForetailError(
                f"{path} is an ensemble with its own features "
                f"({', '.join(f'{f.name} of {f.bits} bits' for f in ensemble.features)}), not the declared ones: "
                f"declare the same or none"
            )
        return ensemble
    if kind is Format.PICKLE and not allow_pickle:
        raise ForetailError(
            f"{path} is a pickle, which can run any code when it is opened: save the model with skops, or set "
            f"allow_pickle=true if you trust whoever made the file"
        )
    if not features:
        raise ForetailError(
            f"{path} ({kind}) does not say the range of its inputs: declare its features in order with their bits"
        )
    return _read_apart(path, kind, features)


def format_of(content: bytes, source: str) -> Format:
    """Return the format of a file's content; `source` names it in errors. Raise ForetailError when none is known."""
    if content[:1] == b"{" and content[1:2] in _UBJ_MARKERS:
        return Format.XGBOOST_UBJ
    if content.lstrip(b" \t\r\n")[:1] == b"{":
        return _json_format(content, source)
    if content.startswith(b"PK\x03\x04"):
        return Format.SKOPS
    if (content[:1] == b"\x80" and content[1:2] in b"\x02\x03\x04\x05") or content.startswith((*_COMPRESSED, *_ZLIB)):
        return Format.PICKLE
    if len(content) >= 12:
        major, minor, patch = struct.unpack_from("<iii", content)  # a checkpoint starts with treelite's version
        if major in (3, 4) and 0 <= minor < 100 and 0 <= patch < 100:
            return Format.TREELITE
    raise ForetailError(
        f"{source} is no model file that Foretail reads: give an ensemble.json, an XGBoost JSON or UBJSON file, a "
        f"treelite checkpoint or a skops file"
    )


def read_foreign(path: Path, kind: Format, features: Sequence[FeatureInput]) -> Ensemble:
    """Read a file of another framework in this process, which a damaged file can end; see :func:`load_model_file`."""
    try:
        return _read_foreign(path, kind, features)
    except (MemoryError, UnicodeDecodeError):  # sizes or names that are noise
        raise _damaged(path, kind) from None
    except ForetailError as error:
        raise error if str(path) in str(error) else ForetailError(f"{path}: {error}") from None


def _read_foreign(path: Path, kind: Format, features: Sequence[FeatureInput]) -> Ensemble:
    from foretail.models.ensemble.frontends import from_treelite, from_xgboost

    content = path.read_bytes()
    origin = {"file_sha256": hashlib.sha256(content).hexdigest()}
    if kind in (Format.XGBOOST_JSON, Format.XGBOOST_UBJ):
        return from_xgboost(_booster(path, content, kind), features, origin)
    if kind is Format.TREELITE:
        import treelite

        try:
            model = treelite.Model.deserialize_bytes(content)
        except treelite.TreeliteError:
            raise _damaged(path, kind) from None
        return from_treelite(model, features, origin)
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
    return _from_estimator(estimator, features, origin)


def _json_format(content: bytes, source: str) -> Format:
    """Tell by its words whose JSON it is, without parsing what may be foreign."""
    if b'"foretail.ensemble"' in content:
        return Format.ENSEMBLE
    if b'"learner"' in content:
        return Format.XGBOOST_JSON
    raise ForetailError(
        f"{source} is JSON, but neither an ensemble nor an XGBoost model: give what training or Booster.save_model "
        f"wrote"
    )


def _read_apart(path: Path, kind: Format, features: Sequence[FeatureInput]) -> Ensemble:
    question = {"path": str(path), "kind": kind, "features": [asdict(f) for f in features]}
    try:
        answer = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(question, default=str),
            capture_output=True,
            text=True,
            timeout=READ_SECONDS,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},  # threads reserve memory
        )
    except subprocess.TimeoutExpired:
        raise ForetailError(
            f"reading {path} ({kind}) took more than {READ_SECONDS} s: the file is damaged, save the model again"
        ) from None
    if answer.returncode < 0:
        raise ForetailError(
            f"{path} ends its reader ({signal.Signals(-answer.returncode).name}): the {kind} is damaged, save it again"
        )
    try:
        said = parse_json(answer.stdout)
    except ValueError:
        lines = answer.stderr.strip().splitlines()
        raise RuntimeError(f"the reader of {path} failed: {lines[-1] if lines else answer.returncode}") from None
    if "refused" in said:
        raise ForetailError(said["refused"])
    return Ensemble.from_json(said["ensemble"], source=str(path))


def _answer() -> None:
    """Read the question on stdin, and answer it on stdout."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (READ_BYTES if most < 0 else min(READ_BYTES, most), most))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print is no part of the answer
    question = json.load(sys.stdin)
    path, kind = Path(question["path"]), Format(question["kind"])
    features = [FeatureInput(**feature) for feature in question["features"]]
    try:
        answer = {"ensemble": read_foreign(path, kind, features).to_json()}
    except ForetailError as error:
        answer = {"refused": str(error)}
    json.dump(answer, out)


def _booster(path: Path, content: bytes, kind: Format) -> Any:
    from foretail.models.ensemble.frontends import import_xgboost

    xgboost = import_xgboost()
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(content))  # recognises both forms
    except (xgboost.core.XGBoostError, UnicodeDecodeError):  # its error can quote what it read
        raise _damaged(path, kind) from None
    return booster


def _skops(path: Path) -> object:
    import skops.io

    try:
        with zipfile.ZipFile(path) as archive:
            if "schema.json" not in archive.namelist():
                raise ForetailError(f"{path} is a ZIP file, but none of skops: save the model with skops.io.dump")
        unknown = sorted(set(skops.io.get_untrusted_types(file=path)) - set(SKOPS_TYPES))
        if unknown:
            raise ForetailError(
                f"{path} holds types that are not trusted ({', '.join(unknown)[:200]}): save a plain scikit-learn "
                f"classifier"
            )
        loaded: object = skops.io.load(path, trusted=list(SKOPS_TYPES))
    except (ForetailError, Warning):
        raise
    except Exception:  # skops raises whatever its members raise
        raise _damaged(path, Format.SKOPS) from None
    return loaded


def _unpickled(path: Path) -> object:
    import joblib

    try:
        # The single place where Foretail unpickles: the user has said so with allow_pickle.
        loaded: object = joblib.load(path)  # noqa: TID251
    except Warning:
        raise
    except Exception as error:  # a pickle raises whatever its code raises
        raise ForetailError(
            f"{path} cannot be unpickled ({type(error).__name__}): save the model again, or save it with skops"
        ) from None
    return loaded


def _from_estimator(estimator: object, features: Sequence[FeatureInput], origin: dict[str, str]) -> Ensemble:
    from foretail.models.ensemble.frontends import from_sklearn, from_xgboost

    if type(estimator).__module__.split(".")[0] == "xgboost":
        return from_xgboost(estimator, features, origin)
    return from_sklearn(estimator, features, origin)


def _damaged(path: Path, kind: Format) -> ForetailError:
    return ForetailError(f"{path} is no valid {kind}: the file is damaged, save the model again")


if __name__ == "__main__":
    _answer()
