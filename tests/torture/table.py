"""The journal as tables in Markdown: cases by fault, by command, and damaged files by place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], int]] = {
    "cases": lambda row: 1,
    "struck": lambda row: int(row["struck"]),
    "lost": lambda row: int(bool(row["lost"])),
    "different": lambda row: int(bool(row["different"])),
    "unclean": lambda row: int(bool(row["unclean"])),
    "no sentence": lambda row: int(bool(row["rough"])),
}
DAMAGE: dict[str, Callable[[Row], int]] = {
    "cases": lambda row: 1,
    "refused": lambda row: int(row["code"] == 2),
    "same result": lambda row: int(row["code"] == 0 and not row["silent"]),
    "silent": lambda row: int(bool(row["silent"])),
    "not named by verify": lambda row: int(bool(row["unnamed"])),
    "no sentence": lambda row: int(bool(row["rough"])),
}


def table(rows: Sequence[Row]) -> str:
    """Return the tables of a journal."""
    stops = [row for row in rows if not row["family"].startswith("damage")]
    damaged = [row for row in rows if row["family"].startswith("damage")]
    parts = [
        _table(
            "fault", stops, lambda row: row["fault"] if row["family"] != "store" else "SIGKILL, first store", COLUMNS
        ),
        _table("command", stops, lambda row: row["command"], COLUMNS),
    ]
    if damaged:
        parts.append(_table("damaged", damaged, _place_of, DAMAGE))
        parts.append(_table("damage", damaged, lambda row: row["fault"], DAMAGE))
    left = max((row["leftover_bytes"] for row in rows), default=0)
    some = sum(row["leftover_bytes"] > 0 for row in rows)
    runs = sum(row["open_runs"] for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    parts.append(
        f"Left after the next run: at most {left:,} bytes, in {some} cases; {runs} runs that MLflow shows as running. "
        f"{seconds:,.0f} s of cases."
    )
    return "\n\n".join(parts)


def _place_of(row: Row) -> str:
    below = str(row["moment"]).partition(": ")[0]
    if row["family"] != "damage":
        return "MLflow's other files"
    named = {"run-": "datasets", "outputs/store": "store", "outputs/mlartifacts": "tracked models"}
    return next((name for start, name in named.items() if below.startswith(start)), "run folders")


def _table(what: str, rows: Iterable[Row], name: Callable[[Row], str], columns: dict[str, Callable[[Row], int]]) -> str:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for key in (name(row), "**all**"):
            counted = found.setdefault(key, Counter())
            for column, of in columns.items():
                counted[column] += of(row)
    total = found.pop("**all**", Counter())
    lines = [f"| {what} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for key, counted in [*sorted(found.items()), ("**all**", total)]:
        lines.append(f"| {key} | {' | '.join(f'{counted[column]:,}' for column in columns)} |")
    return "\n".join(lines)
