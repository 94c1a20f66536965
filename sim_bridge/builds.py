"""What is compiled on the user's machine: once, into the user's cache, by a hash of all that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from foretail.core.code import cpp_digest
from foretail.core.digest import examine
from foretail.core.errors import ForetailError
from foretail.core.files import holding_lock, staged_folder

ROOM = Path(__file__).parent
"""Include path of the buffer library."""

_STEP = re.compile(r"\[(\d+)/(\d+)\]")
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?:(?P<line>\d+):)?(?:\d+:)? (?:fatal )?error: (?P<said>.+)$", re.MULTILINE
)


def sources_digest(*folders: str) -> str:
    """Return the sha256 of the C and C++ sources in folders of this room, such as ``buffer``; comments do not count."""
    return cpp_digest(ROOM, *(ROOM / folder for folder in folders))


def compiler() -> str:
    """Return the C++ compiler: ``$CXX``, else the first of c++, g++, clang++; ForetailError when there is none."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return found
    raise ForetailError(f"no C++ compiler: {wanted or 'c++, g++ or clang++'} is not on PATH; install one or set CXX")


def cached(kind: str, file: str, depends_on: Iterable[Any], build: Callable[[Path], None]) -> Path:
    """Return a file of the user's cache, ``$XDG_CACHE_HOME/foretail`` or ``~/.cache/foretail``; build it when missing.

    Of several processes that miss the same file one builds it, and the others wait.

    Parameters
    ----------
    kind : folder in the cache
    file : name of the file
    depends_on : JSON values, to which the compiler's version and ``$CXXFLAGS`` are added
    build : makes the file in a folder that it gets
    """
    target = _place(kind, depends_on)
    if not _is_whole(target, file):
        with holding_lock(target.with_name(f".{target.name}.lock")):
            if not _is_whole(target, file):
                with staged_folder(target, replace=True) as folder:
                    build(folder)
    return target / file


def is_cached(kind: str, file: str, depends_on: Iterable[Any]) -> bool:
    """Return whether :func:`cached` would find a file; parameters as there."""
    return _is_whole(_place(kind, depends_on), file)


def _place(kind: str, depends_on: Iterable[Any]) -> Path:
    chosen = compiler()
    described = subprocess.run([chosen, "--version"], capture_output=True, text=True, check=False).stdout
    key = json.dumps([*depends_on, chosen, described, os.environ.get("CXXFLAGS", "")])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretail" / kind
    return cache / hashlib.sha256(key.encode()).hexdigest()[:32]


def run_compiler(command: Sequence[str | Path], report: Callable[[int, int], None] | None = None) -> str | None:
    """Run a compiler, or what calls one; return None, or all that it says when it fails.

    `report` hears how many of how many steps Ninja has done.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    errors = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            errors.append(line)
            step = _STEP.match(line)
            if step is not None and report is not None:
                report(int(step[1]), int(step[2]))
    return None if process.returncode == 0 else "".join(errors)


def first_error(output: str, header: Path | None = None) -> str:
    """Return the first error of a compiler in a few words, with its line; the first in `header`, if there is one."""
    errors = list(_ERROR.finditer(output))
    inside = [error for error in errors if header is not None and Path(error["file"]).name == header.name]
    if errors:
        error = (inside or errors)[0]
        return f"{Path(error['file']).name}, line {error['line']}: {error['said']}" if error["line"] else error["said"]
    return next((line for line in output.splitlines() if "error" in line.lower()), output.strip()[-300:])


def _is_whole(built: Path, file: str) -> bool:
    try:
        return (built / file).is_file() and examine(built).is_whole
    except ForetailError:
        return False
