"""Digests of code: what a stored result depends on, of the code that made it.

A digest covers modules, every module of Foretail that they import, and the C++ behind the native extension. Comments,
docstrings and layout do not count, so that only a change of what runs makes a result be computed again.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
"""The folder of the rooms."""

_NATIVE = "_native"  # what a native module is called, in each package that has one
_NATIVE_ROOT = PACKAGE / "sim_bridge"
_NATIVE_SOURCES = [_NATIVE_ROOT / "bindings", _NATIVE_ROOT / "buffer"]
_DATA = (".j2", ".json", ".yaml")
_CPP, _CMAKE = (".c", ".cc", ".cpp", ".h", ".hpp"), (".txt", ".cmake")
_CPP_TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<literal>R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*')
    |(?P<space>\s+)""",
    re.DOTALL | re.VERBOSE,
)
_PARSING = threading.Lock()
"""CPython's parser counts its depth for all threads together, and two at once may end in a SystemError."""
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def code_digest(*what: str | Callable[..., Any]) -> str:
    """Return the SHA-256 of the code behind modules, packages, functions or classes.

    Imports are followed within ``foretail`` and within the packages of what is given.

    Parameters
    ----------
    *what : each a function or a class, which stands for its module; or the full name of a module or a package, without
        ``foretail.`` for those below it, such as ``"models.drop"``. A package stands for all its modules, templates and
        other data.

    Examples
    --------
    >>> from foretail.core.code import code_digest
    >>> code_digest("core.errors") == code_digest("core.errors")
    True
    """
    files: dict[str, str] = {}
    whole = {_full_name(one) for one in what if isinstance(one, str)}
    waiting = [*whole, *(one.__module__ for one in what if not isinstance(one, str))]
    followed = {"foretail", *(name.partition(".")[0] for name in waiting)}
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name.endswith(f".{_NATIVE}"):
            files[name] = cpp_digest(_NATIVE_ROOT, *(_NATIVE_SOURCES if top == "foretail" else [_folder(top)]))
        paths = list(_files_of(name)) if name in whole else _module(name)
        if name in whole and not paths:
            raise ValueError(f"{name} is neither a module nor a package")
        for path in paths:
            key = f"{top}/{path.relative_to(_folder(top)).as_posix()}"
            if key in files:
                continue
            if path.suffix == ".py":
                files[key], imports = _python(path)
                waiting += [one for one in imports if one.partition(".")[0] in followed]
            elif path.suffix in _DATA:
                files[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return _digest(sorted(files.items()))


@functools.cache
def cpp_digest(root: Path, *folders: Path) -> str:
    """Return the SHA-256 of the C and C++ sources in folders and of the headers that they include.

    Parameters
    ----------
    root : folder that quoted includes are looked up in, after the folder of the including file
    *folders : folders with sources, read with all their sub-folders
    """
    texts: dict[Path, str] = {}
    waiting = [path for folder in folders for path in folder.rglob("*") if path.suffix in _CPP + _CMAKE]
    while waiting:
        path = waiting.pop().resolve()
        if path in texts:
            continue
        text = path.read_text(encoding="utf-8")
        texts[path] = text if path.suffix in _CMAKE else _without_comments(text)
        for included in _INCLUDE.findall(text):
            waiting += [place / included for place in (path.parent, root) if (place / included).is_file()][:1]
    roots = [root.resolve(), *(folder.resolve() for folder in folders)]
    return _digest(
        sorted(
            (path.relative_to(next(one for one in roots if path.is_relative_to(one))).as_posix(), _sha256(text))
            for path, text in texts.items()
        )
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(pairs: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 of names and of the SHA-256 of what each stands for."""
    return _sha256("".join(f"{name}\0{sha256}\n" for name, sha256 in pairs))


def _without_comments(text: str) -> str:
    """C++ without comments, with one space for each stretch of white space outside literals.

    A line break stays one, because a preprocessor directive ends there.
    """

    def shortened(token: re.Match[str]) -> str:
        if token["literal"] is not None:
            return token[0]
        return "\n" if "\n" in token[0] and token["space"] is not None else " "

    return re.sub(r" *\n[ \n]*", "\n", re.sub(" +", " ", _CPP_TOKEN.sub(shortened, text)))


def _full_name(name: str) -> str:
    """The name of a module or a package with its top package, which may be left out where it is foretail."""
    top = name.partition(".")[0]
    return name if top == "foretail" or not (PACKAGE / top).exists() else f"foretail.{name}"


def _folder(package: str) -> Path:
    """The folder of a top package."""
    if package == "foretail":
        return PACKAGE
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package} is not a package")
    # An editable package with compiled modules has two folders. Its sources lie beside its __init__.py.
    return Path(spec.origin).parent if spec.origin else Path(spec.submodule_search_locations[0])


@functools.cache
def _module(name: str) -> tuple[Path, ...]:
    """The file of a module, and those of the packages around it; none for a name that is not a module."""
    top, *parts = name.split(".")
    folder = _folder(top)
    packages = [folder.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    module = folder.joinpath(*parts).with_suffix(".py")
    if not parts:
        return ()
    if not (module.is_file() or packages[-1].is_file()):
        return ()
    return tuple(path for path in (*packages, module) if path.is_file())


def _files_of(name: str) -> Iterator[Path]:
    """The files of a module; of a package all files below it too."""
    yield from _module(name)
    top, *parts = name.split(".")
    folder = _folder(top).joinpath(*parts)
    if folder.is_dir():
        yield from sorted(path for path in folder.rglob("*") if path.is_file())


@functools.cache
def _python(path: Path) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of a module without comments and docstrings, and the names of what it imports."""
    with _PARSING:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    words: list[str] = []
    imports: list[str] = []
    _take_apart(tree, words, imports)
    return _sha256("\0".join(words)), tuple(imports)


def _take_apart(node: ast.AST, words: list[str], imports: list[str]) -> None:
    """Append a node's kind and fields to `words`, and the names of what it imports to `imports`.

    A statement that is a string alone does nothing, and is left out: a docstring, or one below an assignment.
    :func:`ast.dump` and :func:`ast.walk` would take twice as long.
    """
    kind = type(node)
    words.append(kind.__name__)
    if isinstance(node, ast.Import):
        imports += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in kind._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            _take_apart(value, words, imports)
        elif isinstance(value, list):
            words.append("[")
            for one in value:
                if not isinstance(one, ast.AST):
                    words.append(repr(one))
                elif not (isinstance(one, ast.Expr) and isinstance(getattr(one.value, "value", None), str)):
                    _take_apart(one, words, imports)
            words.append("]")
        else:
            words.append(repr(value))
