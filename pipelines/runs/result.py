"""``result.json``, and the tables that a stage prints and writes into it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from foretail.features.staging import write_file

RESULT_FILE = "result.json"
Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A printed table: a title, column names and rows of text and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def numeric(self, position: int) -> bool:
        """Whether a column holds numbers, and belongs to the right."""
        return any(isinstance(row[position], (int, float)) for row in self.rows)


def plain(value: Any) -> Any:
    """`value` as JSON knows it: NaN and infinity become None, NumPy scalars and arrays Python numbers and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"result.json cannot hold a {type(value).__name__}")


def write_result(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write `document` to ``folder/result.json`` and return that path; the file is whole or not there."""
    path = folder / RESULT_FILE
    write_file(path, json.dumps(plain(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return path


def show(tables: Sequence[Table]) -> None:
    """Print tables to stdout: boxed on a terminal, plain aligned columns elsewhere."""
    terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout,
        width=None if terminal else 200,
        highlight=False,
        soft_wrap=not terminal,
        markup=False,  # features.names=[queue] is text
        emoji=False,
    )
    for table in tables:
        drawn = RichTable(
            title=table.title,
            title_justify="left",
            box=box.SIMPLE_HEAD if terminal else None,
            pad_edge=False,
            show_edge=False,
        )
        for position, column in enumerate(table.columns):
            drawn.add_column(column, justify="right" if table.numeric(position) else "left", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(cell_text(cell) for cell in row))
        console.print(drawn)
        for note in table.notes:
            console.print(note, style="dim")
        console.print()


def cell_text(cell: Cell) -> str:
    """A cell for readers: four digits of a fraction, a dash for what has no value."""
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
