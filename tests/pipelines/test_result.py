"""result.json: every figure, valid JSON, whole or not there; tables for people and for pipes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.features.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.runs.result import Table, plain, show, write_result


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
        pytest.fail(f"{constant} is no JSON")

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


def test_plain_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(TypeError, match="set"):
        plain({"a": {1, 2}})


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


def test_brackets_and_colons_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    show([Table("[bold]", ("[red]",), (("names=[queue]",),), ("names=[queue] :snake:",))])
    words = capsys.readouterr().out.split()
    assert words == ["[bold]", "[red]", "names=[queue]", "names=[queue]", ":snake:"]
