"""Whether the native TCP shares text with ns-3's: ``python -m tests.likeness FOLDER`` of ns-3's ``src/internet/model``.

Prints counts of shared runs of tokens and no line of ns-3, so that who changes our TCP can run it without reading
ns-3's. Our other network code stands beside it, as what chance gives.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

SIM_BRIDGE = Path(__file__).parents[1] / "sim_bridge"
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "if else for while return const auto int bool void static constexpr struct class public private uint32_t "
        "uint64_t int64_t uint8_t true false switch case break continue namespace using template typename override "
        "this new delete nullptr double inline",
    )
)


def tokens(path: Path) -> list[str]:
    """Return the tokens of a C++ file without comments and includes."""
    text = path.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"/\*.*?\*/|//[^\n]*|#include[^\n]*", " ", text, flags=re.S)
    return re.findall(r'[A-Za-z_]\w*|\d[\w.]*|"[^"]*"|[^\s\w]', text)


def shape(of_tokens: Sequence[str]) -> list[str]:
    """Return tokens with every name and number replaced by its kind."""
    return [
        "number" if one[0].isdigit() else "name" if re.match(r"[A-Za-z_]", one) and one not in KEYWORDS else one
        for one in of_tokens
    ]


def runs(of_tokens: Sequence[str], length: int) -> list[tuple[str, ...]]:
    """Return all runs of so many tokens."""
    return [tuple(of_tokens[place : place + length]) for place in range(len(of_tokens) - length + 1)]


def shared(ours: Iterable[Sequence[str]], theirs: Iterable[Sequence[str]], length: int) -> tuple[int, int]:
    """Return how many of our runs of so many tokens are among theirs, and how many we have."""
    known = {run for one in theirs for run in runs(one, length)}
    found = [run in known for one in ours for run in runs(one, length)]
    return sum(found), len(found)


def main(folder: Path) -> None:
    """Print a line for each length."""
    theirs = [
        tokens(path) for path in sorted(folder.glob("*")) if re.match(r"(tcp|rtt|sequence).*\.(cc|h)$", path.name)
    ]
    if not theirs:
        sys.exit(f"{folder} holds no TCP of ns-3: name the folder src/internet/model of its sources")
    for name, rooms in (("native TCP", ["native"]), ("other network code", ["packets", "emulator"])):
        paths = [path for room in rooms for path in sorted((SIM_BRIDGE / room).rglob("*.[hc]*"))]
        ours = [tokens(path) for path in paths if path.suffix in (".cc", ".h", ".hpp")]
        for words, change, lengths in (("tokens", list, (8, 12, 20)), ("tokens of any names", shape, (20, 30, 40))):
            for length in lengths:
                found, of = shared(map(change, ours), map(change, theirs), length)
                print(f"{name}: {found:,} of {of:,} runs of {length} {words}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
