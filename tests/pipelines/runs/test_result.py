"""result.json: every figure, valid JSON, whole or not there; tables for people and for pipes."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.runs.result import COLUMNS, Cell, Table, blocks, cell_text, show, write_result
from tests.examples import draws


def test_json_has_null_for_what_is_no_number(tmp_path: Path) -> None:
    document: dict[Any, Any] = {
        "nan": math.nan,
        "infinity": [math.inf, -np.inf],
        "array": np.array([1.5, np.nan]),
        "integer": np.int64(2**53 + 1),
        "truth": np.bool_(True),
        "path": tmp_path,
        "dataclass": PairedDifference(1.0, math.nan, None, 3),
        "tuple": (1, "two"),
        3: "key",
    }
    path = write_result(tmp_path / "run", document)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "nan": None,
        "infinity": [None, None],
        "array": [1.5, None],
        "integer": 2**53 + 1,
        "truth": True,
        "path": str(tmp_path),
        "dataclass": {"mean": 1.0, "low": None, "high": None, "pairs": 3},
        "tuple": [1, "two"],
        "3": "key",
    }


def test_a_document_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_result(tmp_path, {"a": 1})
    with pytest.raises(TypeError, match="object"):
        write_result(tmp_path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_write_that_fails_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ForetailError, match=r"cannot write .*result\.json: No space"):
        write_result(tmp_path, {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_tables_in_a_pipe_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("Flows", ("policy", "p95", "drops"), (("lqd", 12.3456, 1234), ("dt", math.nan, None)), ("a note",))
    show([table])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines == [
        ["Flows"],
        ["policy", "p95", "drops"],
        ["lqd", "12.35", "1,234"],
        ["dt", "-", "-"],
        ["a", "note"],
    ]


WORDS = st.text("abcdefgh0123456789_/-=[],", min_size=1, max_size=30)
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
INTEGERS = st.integers(-(10**20), 10**20)
CELLS: st.SearchStrategy[Cell] = st.one_of(WORDS, SENTENCES, INTEGERS, st.floats(), st.none())


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables of up to twelve columns without a word longer than 30."""
    columns = draw(st.lists(SENTENCES, min_size=1, max_size=12))
    rows = draw(st.lists(st.tuples(*[CELLS] * len(columns)), max_size=5))
    return Table("Title", tuple(columns), tuple(rows))


@settings(max_examples=draws(50))
@given(tables())
def test_any_table_fits_and_keeps_its_words_and_cells(table: Table) -> None:
    with redirect_stdout(StringIO()) as out:
        show([table])
    printed = out.getvalue()
    cells = [cell_text(cell) for row in table.rows for cell in row]
    words = [word for text in (*table.columns, *cells) for word in text.split()]
    assert set(re.findall(r"\S+", printed)) <= {"Title", *words}, "a word is broken"
    shown = blocks(table)
    own = [position for block in shown for position in block]
    repeated = {position for position in own if own.count(position) > 1}
    assert set(own) == set(range(len(table.columns)))
    assert repeated <= set(range(len(repeated))), "what is repeated stands first"
    assert all(own.count(position) == len(shown) for position in repeated)
    texts = [
        text
        for position in own
        for text in (table.columns[position], *(cell_text(row[position]) for row in table.rows))
    ]
    assert Counter(printed.split()) == Counter(["Title", *(word for text in texts for word in text.split())])
    assert max(len(line) for line in printed.splitlines()) <= COLUMNS


def test_a_wide_table_repeats_what_tells_its_rows_apart(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"a long name {place}" for place in range(8))
    rows = tuple((side, region, *(10**7 + place for place in range(8))) for side in "ab" for region in ("x", "y"))
    table = Table("Scores", ("side", "region", *names), rows)
    show([table])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= COLUMNS
    assert printed.count("side  region") == len(blocks(table)) == 2
    assert [line.split()[:2] for line in printed.splitlines() if line.startswith("a ")] == [["a", "x"], ["a", "y"]] * 2


def test_a_path_longer_than_a_line_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/".join(["folder"] * 20)
    show([Table("Files", ("file", "bytes", "path"), (("a", 3, path),), (f"result: {path}", f"foretail verify {path}"))])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "Files",
        "file  bytes",
        "a         3",
        "",
        "file  path",
        f"a     {path}",
        f"result: {path}",
        f"foretail verify {path}",
        "",
    ]
