"""Policies in Python: a function in a file of the user's own decides about every data packet.

``my_policy.py:decide`` stands for one in the benchmark. Nothing of it can be exported, because Python decides.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError, readable, users_code
from foretail.features.catalog import training_columns

_NUMBER = itertools.count()
_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)", re.ASCII)


def is_function(model: str) -> bool:
    """Return whether a name has the form FILE.py:FUNCTION."""
    return _PYTHON.fullmatch(model) is not None


@dataclass(frozen=True)
class PythonPolicy:
    """A function that says which packets are dropped, and the features that it reads.

    The file defines ``FEATURES``, names of the catalog. The function gets int32[n, features], a row for each packet
    that waits for a decision, and answers as a predictor of :func:`foretail.sim_bridge.open_loop.live.run_live` does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.sim_bridge.python_policies import PythonPolicy
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "half.py"
    ...     _ = file.write_text("FEATURES = ('fill',)\\ndef decide(rows):\\n    return rows[:, 0] > 127\\n")
    ...     policy = PythonPolicy.of(f"{file}:decide")
    >>> policy.name, policy.features
    ('half.py:decide', ('fill',))
    >>> PythonPolicy.of("dt_alpha_8") is None
    True
    """

    file: Path  #: absolute
    function: str

    @classmethod
    def of(cls, policy: str) -> PythonPolicy | None:
        """Return the policy of ``FILE.py:FUNCTION``, which runs the file, or None for any other name.

        ForetailError when the file cannot be read or fails, or lacks the function or ``FEATURES``.
        """
        parts = _PYTHON.fullmatch(policy)
        if parts is None:
            return None
        chosen = cls(Path(parts["file"]).absolute(), parts["function"])
        _ = chosen.decide
        training_columns(chosen.features, own_queues=True)
        return chosen

    def fresh(self) -> PythonPolicy:
        """Return the same policy with a module of its own, so that nothing of one run is left in another."""
        return type(self)(self.file, self.function)

    @property
    def name(self) -> str:
        """In tables."""
        return f"{self.file.name}:{self.function}"

    @property
    def note(self) -> str:
        """For below a table with what it costs."""
        return f"{self.name} decided live, in Python: there is no code of it for a switch, and no proof."

    @cached_property
    def sha256(self) -> str:
        """Hash of the file and of those below its folder that Python opens while it is imported."""
        folder = self.file.parent.resolve()
        digests = [(str(path.relative_to(folder)), file_digest(path)) for path in sorted(self._loaded[1])]
        return hashlib.sha256(repr((self._file_sha256, digests)).encode()).hexdigest() if digests else self._file_sha256

    @cached_property
    def _file_sha256(self) -> str:
        with readable(f"the policy {self.file}", "name a file"):
            return file_digest(self.file)

    @cached_property
    def decide(self) -> Callable[..., Any]:
        """The function; ForetailError where it opens a file below its folder that is not part of the hash."""
        decide: Any = self._attribute(self.function, "define it")
        if not callable(decide):
            raise ForetailError(f"{self.name} is no function: give one that answers to int32[n, features]")

        opened: set[Path] = set()
        watching = self.file.resolve(), opened

        @functools.wraps(decide)
        def watched(*rows: Any) -> Any:
            token = _WATCHED.set(watching)
            try:
                answer = decide(*rows)
            finally:
                _WATCHED.reset(token)
            if opened and (late := sorted(opened - self._loaded[1])):
                raise ForetailError(
                    f"{self.name} opens {late[0].name} while it decides, so that a stored result would not tell when "
                    f"that changes: open it where {self.file.name} is imported"
                )
            return answer

        return watched

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the catalog, in the order of the columns."""
        given = self._attribute("FEATURES", 'name what the policy sees, as in FEATURES = ("pressure", "message_left")')
        if not isinstance(given, (tuple, list)) or not all(isinstance(name, str) for name in given):
            raise ForetailError(f"FEATURES of {self.file.name} are {given!r}: give a tuple of names")
        return tuple(given)

    def _attribute(self, name: str, fix: str) -> Any:
        try:
            return getattr(self._loaded[0], name)
        except AttributeError:
            raise ForetailError(f"{self.file.name} has no {name}: {fix}") from None

    @cached_property
    def _loaded(self) -> tuple[ModuleType, frozenset[Path]]:
        """The module, and the other files below its folder that were opened to import it."""
        name = f"foretail_policy_{self._file_sha256[:16]}_{next(_NUMBER)}"
        specification = importlib.util.spec_from_file_location(name, self.file)
        if specification is None or specification.loader is None:
            raise ForetailError(f"{self.file} cannot be run as Python: name a file that ends in .py")
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module  # where dataclasses look their annotations up
        with (
            users_code(
                lambda reason: ForetailError(f"{self.file.name} fails ({reason}): make it run with this Python")
            ),
            _opened_beside(self.file) as opened,
        ):
            specification.loader.exec_module(module)
        return module, frozenset(opened)


_WATCHED: ContextVar[tuple[Path, set[Path]] | None] = ContextVar("watched", default=None)
"""The file of a policy, and others below its folder that were opened."""
_hear_opens = cache(lambda: sys.addaudithook(_note_open))
"""Hears of every file that Python opens, from the first call on."""


@contextmanager
def _opened_beside(file: Path) -> Iterator[set[Path]]:
    """Collect the other files below a file's folder, but for packages, that are opened meanwhile to read them."""
    _hear_opens()
    opened: set[Path] = set()
    token = _WATCHED.set((file.resolve(), opened))
    try:
        yield opened
    finally:
        _WATCHED.reset(token)


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    watched = _WATCHED.get() if event == "open" else None
    if watched is None or not isinstance(arguments[0], (str, bytes)) or (arguments[2] or 0) & 3:  # to write
        return
    path = Path(os.fsdecode(arguments[0])).resolve()
    if path.suffix == ".pyc":
        with suppress(ValueError):
            path = Path(importlib.util.source_from_cache(path))
    file, opened = watched
    inside = path != file and path.is_relative_to(file.parent) and not path.is_relative_to(sys.prefix)
    if inside and "site-packages" not in path.parts and path.is_file():
        opened.add(path)
