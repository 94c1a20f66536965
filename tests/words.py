"""Refuses docstrings that do not start with a subject, and names that do not say what a thing is (``make lint``)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("benchmarks", "configs", "core", "export", "features", "foretail", "gym", "models", "pipelines", "sim_bridge"),
    "studies/foretail_studies",
    "testing",
)
STARTS = frozenset({"What", "Whether", "Of", "Those", "Who", "As", "Where", "And"})
NAMES = frozenset({"found", "asked", "told", "kept", "said", "wheres"})
DATA = frozenset(
    (file, "asked")  # the region of that name, and the packets about which a policy asked
    for file in (
        "features/rows/labelled_rows.py",
        "models/scoring/metrics.py",
        "pipelines/comparison/policy_runs.py",
        "pipelines/training/scores.py",
        *(f"sim_bridge/native/{name}.py" for name in ("driver", "network")),
        *(f"sim_bridge/open_loop/{name}.py" for name in ("live", "scores", "slotted")),
    )
)


def refused(source: str, file: str) -> Iterator[tuple[int, str]]:
    """Line and word of every docstring and every definition of a name that is refused."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                first = re.match(r"\s*(\w*)", text)
                word, is_refused = (first[1], first[1] in STARTS) if first else ("", False)
            case (
                ast.Name(id=word, ctx=ast.Store(), lineno=line)
                | ast.Attribute(attr=word, ctx=ast.Store(), lineno=line)
                | ast.arg(arg=word, lineno=line)
                | ast.FunctionDef(name=word, lineno=line)
                | ast.AsyncFunctionDef(name=word, lineno=line)
            ):
                is_refused = word in NAMES and (file, word) not in DATA
            case _:
                continue
        if is_refused:
            yield line, word


def refused_in_cpp(source: str, file: str) -> Iterator[tuple[int, str]]:
    """The same of names in C++, whose records have a field `asked`."""
    for number, line in enumerate(source.splitlines(), 1):
        code = re.sub(r'"(\\.|[^"])*"|//.*', "", line)
        yield from ((number, word) for word in sorted(NAMES - {"asked"}) if re.search(rf"\b{word}\b", code))


def main() -> int:
    """Print what is refused in the rooms; 1 when there is any."""
    checks = {".py": refused, **dict.fromkeys((".h", ".hpp", ".cc", ".cpp"), refused_in_cpp)}
    lines = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.*"))
        if (check := checks.get(file.suffix))
        for line, word in sorted(check(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()))
    ]
    print("\n".join(lines) or "words: nothing refused")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
