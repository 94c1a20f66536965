"""``result.json``, the tables that a stage prints and writes into it, and the versions of what figures depend on."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretail.core.errors import printable, without_passwords
from foretail.core.files import write_file

if TYPE_CHECKING:
    import pandas as pd

VERSIONS_OF = (
    "foretail",
    "ns3",
    "numpy",
    "scipy",
    "pyarrow",
    "scikit-learn",
    "treelite",
    "xgboost",
    "xgboost-cpu",
    "torch",
    "onnxruntime",
    "mlflow",
    "optuna",
    "hydra-core",
)


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages that figures depend on; None where one is not installed."""
    by_package: dict[str, str | None] = {"python": platform.python_version()}
    return by_package | {package: version_of(package) for package in VERSIONS_OF}


def version_of(package: str) -> str | None:
    """Version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


RESULT_FILE = "result.json"
COLUMNS = 80
"""Columns of printed text."""
SENTENCE = 30
"""Cells up to this width, numbers with their intervals among them, stay in one line."""
GAP = 2
Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A printed table: a title, column names and rows of text and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of_rows(cls, title: str, rows: Iterable[Mapping[str, Any]], *notes: str) -> Table:
        """Rows that all have the same columns, by their titles: at least one row."""
        first, *others = rows
        return cls(title, tuple(first), tuple(tuple(row.values()) for row in (first, *others)), notes)

    @classmethod
    def of_frame(cls, title: str, frame: pd.DataFrame, columns: Mapping[str, str], *notes: str) -> Table:
        """The columns of a frame that are named, each with its title; what is missing there has no value."""
        chosen = frame[list(columns)].astype(object)
        rows = chosen.where(chosen.notna(), None).itertuples(index=False, name=None)
        return cls(title, tuple(columns.values()), tuple(rows), notes)

    def numeric(self, position: int) -> bool:
        """True if a column holds numbers, and belongs to the right."""
        return any(isinstance(row[position], (int, float)) for row in self.rows)

    def natural(self, position: int) -> int:
        """The width of a column whose name and cells are each in one line."""
        from rich.cells import cell_len

        return max(cell_len(line) for text in self._texts(position) for line in [*text.splitlines(), ""])

    def least(self, position: int) -> int:
        """The least width of a column: names break between words, and so do texts longer than `SENTENCE`."""
        from rich.cells import cell_len

        name, *cells = self._texts(position)
        words = [word for text in (name, *cells) for word in text.split()]
        widths = [cell_len(line) for text in cells for line in text.splitlines()]
        return max(*(cell_len(word) for word in words), min(SENTENCE, max(widths, default=0)), 1)

    def _texts(self, position: int) -> list[str]:
        return [self.columns[position], *(cell_text(row[position]) for row in self.rows)]


def plain(value: Any) -> Any:
    """`value` as JSON knows it: NaN and infinity become None, NumPy scalars and arrays Python numbers and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array or a scalar of NumPy
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"result.json cannot hold a {type(value).__name__}")


def write_result(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write `document` to ``folder/result.json`` and return that path; the file is whole or not there."""
    path = folder / RESULT_FILE
    write_file(path, json_text(document))
    return path


def json_text(document: Mapping[str, Any]) -> str:
    """`document` as a JSON file holds it: no passwords in addresses."""
    return without_passwords(json.dumps(plain(document), indent=1, allow_nan=False, ensure_ascii=False)) + "\n"


def show(tables: Sequence[Table]) -> None:
    """Print tables to stdout within `COLUMNS`, the same on a terminal and in a file.

    A wider table is printed in blocks of columns, each of which begins with the columns that tell its rows apart.
    Texts break between words alone, so only a word or a number that is too long makes a longer line. Titles and notes
    break on a terminal; elsewhere each is one line, which can be searched for.
    """
    from rich.align import Align
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(file=sys.stdout, width=COLUMNS, highlight=False, markup=False, emoji=False)  # [queue] is text
    for table in tables:
        console.print(_sentence(table.title), style="table.title", soft_wrap=True)
        for number, widths in enumerate(blocks(table)):
            if number:
                console.print()
            drawn = RichTable(box=None, pad_edge=False)
            for position, width in widths.items():
                side: Literal["left", "right"] = "right" if table.numeric(position) else "left"
                name = Align(table.columns[position], side, vertical="bottom")
                drawn.add_column(name, justify=side, width=width, overflow="fold")
            for row in table.rows:
                drawn.add_row(*(cell_text(row[position]) for position in widths))
            console.width = max(COLUMNS, _together(widths.values()))
            console.print(drawn)
        for note in table.notes:
            console.print(_sentence(note), style="dim", soft_wrap=True)
        console.print()


def blocks(table: Table) -> list[dict[int, int]]:
    """The columns of every block of a table, by position, with their widths."""
    least = [table.least(position) for position in range(len(table.columns))]
    if _together(least) <= COLUMNS:
        return [_widths(table, range(len(least)))]
    key = _key(table, least)
    groups: list[list[int]] = []
    for position in range(len(key), len(least)):
        if groups and _together(least[one] for one in (*groups[-1], position)) <= COLUMNS:
            groups[-1].append(position)
        else:
            groups.append([*key, position])
    return [_widths(table, block) for block in groups or [list(key)]]


def _key(table: Table, least: Sequence[int]) -> range:
    """The first columns, as few as tell the rows apart; the first alone where they take more than half of a line."""
    for columns in range(1, len(table.columns)):
        if len({row[:columns] for row in table.rows}) == len(table.rows):
            return range(columns if _together(least[:columns]) <= COLUMNS // 2 else 1)
    return range(1)


def _widths(table: Table, block: Sequence[int]) -> dict[int, int]:
    """Widths of columns beside each other: the widest give way, down to their least."""
    widths = {position: table.natural(position) for position in block}
    least = {position: table.least(position) for position in block}
    while _together(widths.values()) > COLUMNS:
        wide = [position for position in block if widths[position] > least[position]]
        if not wide:
            break
        widths[max(wide, key=lambda position: widths[position])] -= 1
    return widths


def _together(widths: Iterable[int]) -> int:
    all_widths = list(widths)
    return sum(all_widths) + GAP * (len(all_widths) - 1)


def _sentence(text: str) -> str:
    """`text` as it is printed; on a terminal in lines of `COLUMNS`, but for a command, which is there to be copied."""
    text = printable(text)
    if not sys.stdout.isatty() or text.startswith("foretail "):
        return text
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def figure_text(value: float | None, digits: str = ".4g") -> str:
    """A figure within a sentence, `digits` as Python's number format has them; a dash for what has no value."""
    return "-" if value is None else f"{value:{digits}}"


def cell_text(cell: Cell) -> str:
    """A cell for readers: four digits of a fraction, a dash for what has no value."""
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e12 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else printable(cell)
