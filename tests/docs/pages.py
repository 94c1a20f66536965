"""The pages as a reader has them: their fenced blocks, the commands in them, and what they point at."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*/*.md")),
]

_BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")
# Bash itself reads the blocks, with its quotes, variables and continued lines; other commands do nothing.
_SHELL = r"""
foretail() { for word; do printf '%s\0' "$word"; done; printf '\n\0'; }
python() { :; }; export() { :; }; make() { :; }; source() { :; }
"""


@dataclass(frozen=True)
class Command:
    """A ``foretail`` command of a page."""

    page: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command on one line."""
        return shlex.join(self.words)


def name_of(page: Path) -> str:
    """The page as seen from the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def inline_code(page: Path) -> list[str]:
    """Every code span, on one line."""
    return [" ".join(span.split()) for span in _INLINE.findall(prose(page))]


def commands_of(page: Path) -> list[Command]:
    """Every command of the fenced blocks, and of the code spans that set something."""
    found: list[Command] = []
    for language, text in blocks(page):
        if language in ("", "sh") and re.search(r"^(foretail|\$SLOTTED) ", text, re.MULTILINE):
            with tempfile.TemporaryDirectory() as here:  # files that a block writes go with it
                done = subprocess.run(
                    ["bash", "-euc", _SHELL + text], capture_output=True, text=True, check=True, cwd=here
                )
            for command in done.stdout.split("\n\0")[:-1]:
                found.append(Command(name_of(page), tuple(command.split("\0")[:-1])))
    for span in inline_code(page):
        if span.startswith("foretail ") and "=" in span:
            found.append(Command(name_of(page), tuple(shlex.split(span)[1:])))
    return found
