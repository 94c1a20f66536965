"""Builds on the user's machine, once each, into the user's cache: simulators, and policies from outside.

A policy from outside is a type in one C++ header, compiled into a library that every simulator loads.
``my_rule.hpp:MyRule`` stands where the name of a policy does, as in ``policies=[lqd,my_rule.hpp:MyRule]``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ninja

from foretail.core.code import cpp_digest
from foretail.core.digest import examine
from foretail.core.errors import ForetailError, readable
from foretail.core.files import holding_lock, staged_folder
from foretail.sim_bridge.policies import header_and_type, is_guest, policy_name

ROOM = Path(__file__).parent
"""Include path of the buffer library."""

_STEP = re.compile(r"\[(\d+)/(\d+)\]")
_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?:(?P<line>\d+):)?(?:\d+:)? (?:fatal )?error: (?P<message>.+)$", re.MULTILINE
)


def sources_digest(*folders: str) -> str:
    """Return the sha256 of the C and C++ sources in folders of this room, such as ``buffer``; comments do not count."""
    return cpp_digest(ROOM, *(ROOM / folder for folder in folders))


def compiler() -> str:
    """Return the C++ compiler: ``$CXX``, else the first of c++, g++, clang++; ForetailError when there is none."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        path = shutil.which(name)
        if path:
            return path
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
        place = f"{Path(error['file']).name}, line {error['line']}: " if error["line"] else ""
        return place + error["message"]
    return next((line for line in output.splitlines() if "error" in line.lower()), output.strip()[-300:])


def _is_whole(built: Path, file: str) -> bool:
    try:
        return (built / file).is_file() and examine(built).is_whole
    except ForetailError:
        return False


_LIBRARY = "policy.so"
_INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"(?!buffer/)([^"\n]*)"', re.MULTILINE)


@dataclass(frozen=True)
class GuestPolicy:
    """A policy in a header of the user's own."""

    header: Path  #: absolute
    type: str  #: of C++, with its namespace

    @classmethod
    def of(cls, policy: str) -> GuestPolicy | None:
        """Return the policy of ``HEADER.hpp:TYPE``, or None for the name of one of Foretail's own.

        ForetailError when there is no such file, or it is more than one header.
        """
        if not is_guest(policy):
            return None
        header, kind = header_and_type(policy)
        guest = cls(header.absolute(), kind)
        if re.fullmatch(r"[\w.+-]+", header.name, re.ASCII) is None:
            raise ForetailError(
                f"the header {header.name!r} of a policy has odd characters: rename it with letters and digits"
            )
        other = _INCLUDED.search(guest.content)
        if other is not None:
            raise ForetailError(
                f"{header} includes {other[1].decode(errors='replace')!r}: keep a policy in one header, which may "
                f"include <...> and buffer/..."
            )
        return guest

    @property
    def name(self) -> str:
        """In tables: the type without its namespace."""
        return policy_name(f"{self.header}:{self.type}")

    @cached_property
    def content(self) -> bytes:
        """The header; ForetailError when it cannot be read."""
        with readable(f"the policy {self.header}", "name a header"):
            return self.header.read_bytes()

    @cached_property
    def sha256(self) -> str:
        """Hash of the header, of other files that the compiler reads for it but Foretail's own, and of ``$CXXFLAGS``.

        ForetailError when the header names a file that is not there.
        """
        key = (self.content, self.type, os.environ.get("CXXFLAGS", ""))
        digests = _digests(_READ.get(key, {}))
        if key not in _READ or digests != _READ[key]:  # unchanged files include the same files
            digests = _READ[key] = _digests(self._files_read())
        return hashlib.sha256(repr([*key, sorted(digests.values())]).encode()).hexdigest()

    def _files_read(self) -> set[Path]:
        with TemporaryDirectory() as folder:
            copy, listing = self.copied_to(Path(folder)), Path(folder) / "files"
            self._run_compiler(copy, "-M", "-MF", listing, "-MT", "policy")
            _, _, named = listing.read_text(encoding="utf-8", errors="surrogateescape").partition(":")
            escaped = re.findall(r"(?:\\[ #]|\$\$|[^\s\\])+", named.replace("\\\n", " "))
            files = {Path(re.sub(r"\\([ #])|\$(\$)", r"\1\2", one)) for one in escaped} - {copy}
        return {path for path in files if not path.resolve().is_relative_to(ROOM.resolve())}

    def library(self) -> Path:
        """Return the policy as a library for all simulators, compiled when the cache does not have it.

        ForetailError with the first error of the compiler, or when there is none.
        """
        return cached("policies", _LIBRARY, [sources_digest("buffer"), self.sha256, self.type], self._compile)

    def copied_to(self, folder: Path) -> Path:
        """Write the header, as it was hashed, into a folder; return the copy."""
        copy = folder / "guest" / self.header.name
        copy.parent.mkdir()
        copy.write_bytes(self.content)
        return copy

    def _compile(self, folder: Path) -> None:
        self._run_compiler(self.copied_to(folder), "-o", folder / _LIBRARY, "-ldl")

    def _run_compiler(self, copy: Path, *options: str | Path) -> None:
        errors = run_compiler(
            [
                *(compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", f"-I{ROOM}"),
                *shlex.split(os.environ.get("CXXFLAGS", "")),
                *(f'-DFORETAIL_GUEST_HEADER="{copy}"', f"-DFORETAIL_GUEST_TYPE={self.type}"),
                *(f'-DFORETAIL_GUEST_NAME="{self.name}"', ROOM / "buffer/policies/guest_library.cpp", *options),
            ]
        )
        if errors is not None:
            raise ForetailError(f"the policy {self.type} does not compile: {first_error(errors, self.header)}")


_READ: dict[tuple[bytes, str, str], dict[Path, str]] = {}
"""Files by header, type and flags that the compiler read with them, and what these held."""


def _digests(files: Iterable[Path]) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in files}


@dataclass(frozen=True)
class SimulatorProgram:
    """The program of a room that has a ``CMakeLists.txt``: built once per machine, into the user's cache."""

    room: str  #: folder of this package
    executable: str  #: its name, which is that of the target too
    words: str  #: what simulates, in sentences

    @property
    def cache(self) -> str:
        """Folder in the user's cache."""
        return self.room

    @property
    def identity(self) -> dict[str, str]:
        """Fields that name it among all that a result depends on."""
        return {"network": self.room}

    def definitions(self) -> dict[str, str]:
        """Variables of CMake."""
        return {}

    def digest(self) -> str:
        """Return the sha256 of its sources: part of the identity of all that it simulates."""
        return sources_digest("buffer", self.room, "packets")

    def build(self, *, report: Callable[[int, int], None] | None = None) -> Path:
        """Return the executable: the one that is installed, or one that is built if this machine has not built it yet.

        Parameters
        ----------
        report : hears how many of how many steps of the build are done

        Raises
        ------
        ForetailError
            If what it needs is missing, such as a C++ compiler, or with the compiler's first error.
        """
        if (installed := self._installed()) is not None:
            return installed
        return cached(self.cache, self.executable, self._depends_on(), lambda folder: self._compile(folder, report))

    def is_built(self) -> bool:
        """Return whether :meth:`build` has nothing left to do; ForetailError where it could not build."""
        return self._installed() is not None or is_cached(self.cache, self.executable, self._depends_on())

    def _depends_on(self) -> list[str]:
        return [self.digest(), *self.definitions().values()]

    def _compile(self, folder: Path, report: Callable[[int, int], None] | None) -> None:
        import cmake

        cmake_program = Path(cmake.CMAKE_BIN_DIR) / "cmake"
        json_package = importlib.util.find_spec("nlohmann_json")
        if json_package is None or not json_package.submodule_search_locations:
            raise ForetailError("the package nlohmann-json is missing: run `make setup`")
        build = folder / "build"
        configure: list[str | Path] = [
            *(cmake_program, "-S", ROOM / self.room, "-B", build, "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR) / 'ninja'}",
            f"-DCMAKE_CXX_COMPILER={compiler()}",
            f"-DJSON_INCLUDE={Path(json_package.submodule_search_locations[0]) / 'include'}",
            *(f"-D{name}={value}" for name, value in self.definitions().items()),
        ]
        compile_: list[str | Path] = [cmake_program, "--build", build, "--parallel", str(os.cpu_count() or 1)]
        for command in (configure, compile_):
            errors = run_compiler(command, report)
            if errors is not None:
                raise ForetailError(
                    f"the program of {self.words} does not build with {compiler()}: {first_error(errors)}"
                )
        (build / self.executable).rename(folder / self.executable)
        shutil.rmtree(build)

    def _installed(self) -> Path | None:
        """The program beside the extension, if it is of these sources and ``$CXXFLAGS`` asks for nothing else."""
        spec = importlib.util.find_spec("foretail.sim_bridge._native")
        if spec is None or spec.origin is None or os.environ.get("CXXFLAGS"):
            return None
        program = Path(spec.origin).with_name(self.executable)
        sources = program.with_name(f"{self.executable}.sha256")
        if not program.is_file() or not sources.is_file() or sources.read_text(encoding="utf-8") != self.digest():
            return None
        return program


def policy_identity(policy: str) -> str:
    """Return what results of a policy depend on: its name, or the type and the hash of a guest."""
    guest = GuestPolicy.of(policy)
    return policy if guest is None else f"{guest.type} of {guest.sha256}"


def native_policy(policy: str) -> str:
    """Return what the native simulators take for a policy: its name, or the path of its library, compiled now."""
    guest = GuestPolicy.of(policy)
    return policy if guest is None else str(guest.library())


def with_compiled_policy(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the driver's document with the library of its policy, if that is one from outside, compiled now."""
    policy = document.get("policy")
    if not isinstance(policy, Mapping) or not is_guest(str(policy.get("name"))):
        return document
    return {**document, "policy": {**policy, "compiled": native_policy(policy["name"])}}
