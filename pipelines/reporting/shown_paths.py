"""Paths as a page shows them: nothing of the machine that made a run, and enough to find a file."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

_PATH = re.compile(
    r"(?:(?<![\w.:/~@%#…-])|(?<=sqlite:///)|(?<=file://))~?/[^\s/\"'<>|,;:()\[\]{}]+(?:/[^\s/\"'<>|,;:()\[\]{}]+)+"
)
"""An absolute path of two names or more, alone in a text, or in the address of a file; no part of a web address."""
KEPT = 2


def shown_path(path: str, folder: Path) -> str:
    """An absolute path: from the run's folder where it lies inside, else its last names."""
    pure, inside = PurePosixPath(path), PurePosixPath(folder.resolve())
    if pure.is_relative_to(inside):
        return str(pure.relative_to(inside))
    return (
        str(PurePosixPath("…", *pure.parts[-KEPT:])) if path.startswith(("/", "~")) and len(pure.parts) > KEPT else path
    )


def without_absolute_paths(value: Any, folder: Path) -> Any:
    """A JSON-like value whose texts name no absolute path; keys stay."""
    if isinstance(value, str):
        return _PATH.sub(lambda match: shown_path(match[0], folder), value.replace(f"{folder.resolve()}/", ""))
    if isinstance(value, list):
        return [without_absolute_paths(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: without_absolute_paths(item, folder) for key, item in value.items()}
    return value
