"""The folder of an export: written whole or not at all, and only ever in the place of an earlier export."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from foretail.export.proof.equivalence import Certificate
from foretail.features.errors import ForetailError
from foretail.features.staging import staged_folder, write_file
from foretail.models.ensemble.ensemble import Ensemble

__all__ = ["CERTIFICATE", "ENSEMBLE", "check_folder", "check_name", "write_export", "write_folder"]

CERTIFICATE = "certificate.json"
ENSEMBLE = "ensemble.json"


def check_name(name: str) -> None:
    """Raise ForetailError unless `name` can prefix files and the names in generated code."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or name == "foretail_predictor":
        raise ForetailError(
            f"{name!r} cannot prefix names in generated code: use lower-case letters, digits and underscores, a letter "
            f"first, not foretail_predictor"
        )


def check_folder(out_dir: Path) -> None:
    """Raise ForetailError when `out_dir` holds something else than an earlier export."""
    if out_dir.exists() and not (
        out_dir.is_dir() and (not any(out_dir.iterdir()) or (out_dir / CERTIFICATE).is_file())
    ):
        raise ForetailError(f"{out_dir} exists and is no earlier export: choose another folder")


def write_export(out_dir: Path, files: Mapping[str, bytes], certificate: Certificate, ensemble: Ensemble) -> None:
    """Write a proven export, with its certificate and the ensemble with its votes, in one step.

    Parameters
    ----------
    out_dir, files :
        As :func:`write_folder`.

    Raises
    ------
    ForetailError
        When `out_dir` holds something else.
    """
    proof = {ENSEMBLE: ensemble.to_json().encode("ascii"), CERTIFICATE: certificate.to_json().encode("ascii")}
    write_folder(out_dir, {**files, **proof})


def write_folder(out_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of an export, a certificate among them, in one step.

    Parameters
    ----------
    out_dir : Path
        Created, or replaced when it holds an earlier export.
    files : mapping of str to bytes
        File name -> content.

    Raises
    ------
    ForetailError
        When `out_dir` holds something else, or the file system refuses.
    """
    check_folder(out_dir)
    with staged_folder(out_dir, replace=True) as staging:
        for name, content in files.items():
            write_file(staging / name, content)
            if name.endswith(".so"):
                (staging / name).chmod(0o755)
