"""Plug-ins: what other installed packages offer by entry points, and one sentence for whatever goes wrong in them.

A package offers a predictor in its pyproject.toml by ``my_stump = "my_package:Stump"`` under
``[project.entry-points."foretail.predictors"]``.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import math
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import xxhash

from foretail.core.errors import ForetailError, type_and_first_line, users_code
from foretail.core.settings import limits_of, require_given

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PREDICTOR_GROUP, DEMAND_PREDICTOR_GROUP, TARGET_GROUP, WORKLOAD_GROUP, SCHEDULER_GROUP, THRESHOLD_RULE_GROUP = (
    "foretail.predictors",
    "foretail.demand_predictors",
    "foretail.targets",
    "foretail.workloads",
    "foretail.schedulers",
    "foretail.threshold_rules",
)
"""Groups of entry points."""
STUDIES_GROUP = "foretail.studies"
"""Group of packages whose YAML files are experiments of ``foretail run``."""

FAILURES = (Exception, SystemExit)
"""Exceptions that code from outside raises when it fails; an interruption is none of these."""

Base = TypeVar("Base")


class PluginError(ForetailError):
    """A plug-in failed, or broke a rule of its contract."""


def offered(group: str, ours: Collection[str]) -> dict[str, EntryPoint]:
    """Return what installed packages offer in a group of entry points, by name; `ours` are names of Foretail's own.

    ForetailError on a name that is not a word, is one of ours, or comes from two packages.
    """
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda one: one.name):
        package = package_of(point)
        if re.fullmatch(r"[a-z][a-z0-9_]*", point.name) is None:
            raise ForetailError(
                f"the package {package} offers {point.name!r} in {group}, which is not a name: use lower-case letters, "
                f"digits and _, the first a letter"
            )
        if point.name in ours:
            raise ForetailError(
                f"the package {package} offers {point.name} in {group}, which Foretail has itself: rename its entry "
                f"point or uninstall it"
            )
        if point.name in points and points[point.name].value != point.value:
            raise ForetailError(
                f"the packages {package_of(points[point.name])} and {package} both offer {point.name} in {group}: "
                f"uninstall one of them"
            )
        points[point.name] = point
    return points


def study_packages() -> list[str]:
    """Names of the installed packages that have experiments, in order."""
    return [point.value for point in offered(STUDIES_GROUP, ()).values()]


def package_of(point: EntryPoint) -> str:
    """Return the package that offers an entry point."""
    return point.dist.name if point.dist is not None else point.module


def loaded(point: EntryPoint) -> Any:
    """Return what an entry point names; ForetailError when it cannot be loaded."""
    try:
        return point.load()
    except FAILURES as error:  # an import runs whatever the package does
        raise PluginError(
            f"{point.name} of the package {package_of(point)} cannot be loaded from {point.value}: "
            f"{type_and_first_line(error)}; mend the package or uninstall it"
        ) from error


@dataclass(frozen=True)
class Kinds(Generic[Base]):
    """Dataclasses that settings choose by name, and whose fields are settings: Foretail's own and those of packages."""

    group: str  #: of entry points
    base: type[Base]  #: what all of them subclass
    called: str  #: what errors call one, such as ``workload``
    ours: Mapping[str, type[Base]]  #: Foretail's own, by name

    def names(self) -> tuple[str, ...]:
        """Return all names, our own first."""
        return (*self.ours, *offered(self.group, self.ours))

    def kind(self, name: str) -> type[Base]:
        """Return the class of a name; ForetailError if there is none, or it is not a `base` made without arguments."""
        if name in self.ours:
            return self.ours[name]
        points = offered(self.group, self.ours)
        if name not in points:
            raise ForetailError(f"{self.called} {name} is unknown: choose from {', '.join(self.names())}")
        plugin: Any = loaded(points[name])
        whose = f"{name} of the package {package_of(points[name])}"
        if not (isinstance(plugin, type) and issubclass(plugin, self.base) and is_dataclass(plugin)):
            raise ForetailError(f"{whose} is not a {self.base.__name__}: subclass it, a dataclass")
        bare = [
            field.name
            for field in fields(plugin)
            if field.init and field.default is MISSING and field.default_factory is MISSING
        ]
        if bare:
            raise ForetailError(f"{whose} has no default for {bare[0]}: give one")
        return cast("type[Base]", plugin)

    def name(self, made: Base) -> str:
        """Return the name under which one is known; ForetailError when it has none."""
        for name in self.names():
            if type(made) is self.kind(name):
                return name
        raise ForetailError(
            f"the {self.called} {type(made).__name__} has no name: offer it in the group {self.group} of a package"
        )

    def sources(self, names: Iterable[str]) -> dict[str, str]:
        """Return the hashes of the files of packages among `names`, on which results depend, by ``plugin NAME``."""
        digests = {f"plugin {name}": source_sha256(self.kind(name)) for name in names}
        return {name: source for name, source in digests.items() if source is not None}

    def make(self, name: str, settings: Mapping[str, Any] | None = None, prefix: str | None = None) -> Base:
        """Make the one of a name; fields that `settings` does not give keep their defaults.

        `prefix` is what stands before their names in errors, the name and a dot unless it is given.

        ForetailError on an unknown name or field, and on a value of another type or out of range.
        """
        kind: Any = self.kind(name)
        given = {} if settings is None else settings
        if not isinstance(given, Mapping):
            raise ForetailError(f"the settings of {name} are {given!r}: write them as {{NAME: VALUE}}")
        with running(kind, "its settings"):
            require_given(given, limits_of(kind), name, f"{name}." if prefix is None else prefix)
            made: Base = kind(**given)
        return made


def is_foreign(kind: type) -> bool:
    """Return whether a class is none of Foretail's own."""
    return not kind.__module__.startswith("foretail.")


def source_sha256(kind: type) -> str | None:
    """Return the hash of a foreign class, on which its results depend; None for our own.

    It is of the file that defines the class, and of the files of the same package or folder that this one imports.
    ForetailError when the class has no file.
    """
    if not is_foreign(kind):
        return None
    try:
        root = Path(inspect.getfile(kind)).parents[kind.__module__.count(".")]
        package, waiting, digests = kind.__module__.partition(".")[0], [kind.__module__], dict[Path, bytes]()
        while waiting:
            module = sys.modules.get(waiting.pop())
            file = Path(getattr(module, "__file__", None) or "")
            if module is None or file in digests or not _is_beside(file, root, package):
                continue
            digests[file] = hashlib.sha256(file.read_bytes()).digest()
            if file.suffix == ".py":
                imported = _imported(file, module.__package__ or "")
                waiting += [name for name in imported if not name.startswith("foretail.")]
        return hashlib.sha256(b"".join(digest for _, digest in sorted(digests.items()))).hexdigest()
    except (OSError, TypeError):
        raise ForetailError(
            f"{kind.__module__}.{kind.__qualname__} has no source file, by which results are known again: put it into "
            f"a module"
        ) from None


def _imported(file: Path, package: str) -> Iterator[str]:
    """The names of the modules that one of `package` imports, and of what may be modules in them."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (source, *(f"{source}.{alias.name}" for alias in node.names))


def _is_beside(file: Path, root: Path, package: str) -> bool:
    """True if a module belongs to a plug-in: both are installed as one package, or lie in one folder."""
    installed = Path(sysconfig.get_path("purelib"))
    if file.is_relative_to(installed):
        return file.relative_to(installed).parts[0].removesuffix(".py") == package
    return file.is_relative_to(root)


@contextmanager
def running(plugin: object, what: str, **inputs: npt.NDArray[Any]) -> Iterator[None]:
    """Run code of `plugin`; when it is not Foretail's own, what it raises is one sentence that names it.

    PluginError when it raises anything but a ForetailError, or changes an input.

    Parameters
    ----------
    plugin : an instance of its class, or the class itself
    what : the method, for the sentence
    **inputs : what it may read and must not change, by the words that errors have for it
    """
    if not is_foreign(_kind(plugin)):
        yield
        return
    before = {name: _digest(array) for name, array in inputs.items()}
    with users_code(
        lambda reason: PluginError(f"{named(plugin)} fails in {what}: {reason}; mend it, --debug shows where")
    ):
        yield
    for name, array in inputs.items():
        if _digest(array) != before[name]:
            raise PluginError(f"{named(plugin)} breaks a rule: {what} must not change the {name}; let it copy them")


def require(plugin: object, holds: bool, rule: str, met: str) -> None:
    """Raise PluginError unless a rule `holds` for a plug-in that is not Foretail's own; `met` says what was met."""
    if is_foreign(type(plugin)) and not holds:
        raise PluginError(f"{named(plugin)} breaks a rule: {rule}, not {met}")


def require_numbers(
    plugin: object,
    what: str,
    returned: object,
    shape: tuple[int, ...],
    low: float = -math.inf,
    high: float = math.inf,
    each: str = "row",
) -> npt.NDArray[np.float64]:
    """Return as float64 what a plug-in returned.

    PluginError unless a foreign one returned finite float64 or float32 numbers of a shape, in [`low`, `high`]. One
    dimension has a number for each of what `each` says.
    """
    import numpy as np

    if not is_foreign(type(plugin)):
        return cast("npt.NDArray[np.float64]", returned)
    if not isinstance(returned, np.ndarray) or returned.shape != shape:
        met = f"shape {returned.shape}" if isinstance(returned, np.ndarray) else f"a {type(returned).__name__}"
        of_rows = f"one number per {each}" if len(shape) == 1 else "a matrix"
        raise PluginError(f"{named(plugin)} breaks a rule: {what} must give {of_rows}, shape {shape}, not {met}")
    require(
        plugin, returned.dtype in (np.float64, np.float32), f"{what} must be float64 or float32", str(returned.dtype)
    )
    for words, wrong in (
        ("finite", returned[~np.isfinite(returned)]),
        (f"in [{low:g}, {high:g}]", returned[(returned < low) | (returned > high)]),
    ):
        require(plugin, not len(wrong), f"{what} must be {words}", str(wrong.flat[0]) if len(wrong) else "")
    return returned.astype(np.float64, copy=False)


def named(plugin: object) -> str:
    """Return what errors call a plug-in: its class with its module."""
    return f"the plug-in {_kind(plugin).__module__}.{_kind(plugin).__qualname__}"


def _kind(plugin: Any) -> Any:
    """The class of an instance; a class, or a function, itself."""
    return plugin if hasattr(plugin, "__qualname__") else type(plugin)


def _digest(array: npt.NDArray[Any]) -> bytes:
    import numpy as np

    return xxhash.xxh3_128_digest(np.ascontiguousarray(array).data)
