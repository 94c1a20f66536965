"""Prints the lines of source of each room, and how many they are more or fewer than in the commit before."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SUFFIXES = frozenset((".py", ".cpp", ".hpp", ".cc", ".h", ".c", ".yaml", ".j2"))


def _git(*words: str) -> list[str]:
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def room_of(file: str) -> str | None:
    """Return the room of a file of source; None for any other file."""
    path = PurePosixPath(file)
    if path.suffix not in SUFFIXES or len(path.parts) < 2:
        return None
    return "studies/tests" if path.parts[:2] == ("studies", "tests") else path.parts[0]


def main() -> None:
    """Print a line for each room; without a repository or an earlier commit there is nothing to compare."""
    lines, change = Counter[str](), Counter[str]()
    for file in _git("ls-files"):
        if (room := room_of(file)) is not None and (ROOT / file).is_file() and not (ROOT / file).is_symlink():
            lines[room] += (ROOT / file).read_bytes().count(b"\n")
    for row in _git("diff", "--numstat", "--no-renames", "HEAD~1"):
        added, removed, file = row.split("\t")
        if (room := room_of(file)) is not None and added != "-":
            change[room] += int(added) - int(removed)
    print("lines: " + ", ".join(f"{room} {count:,} ({change[room]:+d})" for room, count in sorted(lines.items())))


if __name__ == "__main__":
    main()
