"""The folder of an export: written whole or not at all, and only ever in the place of an earlier one; templates."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import jinja2

from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder, write_file

CERTIFICATE = "certificate.json"
ENSEMBLE = "ensemble.json"


class Certificate(Protocol):
    """The facts known of an export."""

    def to_json(self) -> str:
        """Return the certificate file's text."""
        ...


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
        raise ForetailError(f"{out_dir} exists and is not an earlier export: choose another folder")


def encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return texts, which are ASCII, as the content of files."""
    return {name: text.encode("ascii") for name, text in texts.items()}


def in_json(schema: str, version: int, document: Mapping[str, Any]) -> str:
    """Return the text of a JSON file beside an export."""
    return json.dumps({"schema": schema, "version": version, **document}, indent=2) + "\n"


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of every file, as certificates list them."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def write_export(out_dir: Path, files: Mapping[str, bytes], certificate: Certificate) -> None:
    """Write the files of an export and their certificate in one step.

    `files` are name -> content; the certificate becomes ``certificate.json``. `out_dir` is created, and an earlier
    export in it replaced. ForetailError when `out_dir` holds something else, or the file system refuses.
    """
    check_folder(out_dir)
    with staged_folder(out_dir, replace=True) as staging:
        for name, content in {**files, CERTIFICATE: certificate.to_json().encode("ascii")}.items():
            write_file(staging / name, content)
            if name.endswith(".so"):
                (staging / name).chmod(0o755)


def environment(
    package: str,
    folder: str = "templates",
    autoescape: bool = False,
    finalize: Callable[[Any], Any] | None = None,
    **filters: Callable[..., str],
) -> jinja2.Environment:
    """Return the templates in a `folder` of a `package`, with more `filters`; the rest is as Jinja has it.

    A value that is missing is an error. Nothing is escaped in C and P4, which are no HTML: every name is checked where
    it comes in, or by a filter.
    """
    place = resources.files(package) / folder
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (place / name).read_text(encoding="utf-8")),
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters)
    return made
