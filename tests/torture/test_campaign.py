"""The campaign itself: its plan, its journal, its damage and its table; `make torture` runs the cases."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.torture.campaign import WORK, planned, rows_of
from tests.torture.cases import Outcome, differences
from tests.torture.checks import leftovers, results
from tests.torture.damage import WAYS, damage
from tests.torture.table import table


def test_a_seed_draws_the_same_cases_and_every_family() -> None:
    cases = [planned(1, number)[0] for number in range(80)]
    assert [planned(1, number)[0] for number in range(80)] == cases
    assert {case.family for case in cases} == set(WORK)
    assert cases != [planned(2, number)[0] for number in range(80)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("content", [b"", b"no number", b'{"a": 19}'])
def test_every_damage_changes_the_file(way: str, content: bytes, tmp_path: Path) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    path.write_bytes(content)
    other.write_bytes(b"{}")
    damage(path, way, [path, other], np.random.default_rng(1))
    assert not path.exists() or path.read_bytes() != content


def test_a_journal_that_was_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    row = asdict(Outcome(1, "stop", "train", "SIGKILL", lost=["a model"]))
    journal = tmp_path / "journal.jsonl"
    journal.write_text(f'{json.dumps(row)}\n{{"number": 2, "fam')
    assert rows_of(journal) == [row]
    assert "| train | 1 | 0 | 1 | 0 | 0 | 0 |" in table([row])


def test_values_are_compared_one_by_one_and_without_the_folder(tmp_path: Path) -> None:
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / name / "outputs" / "run").mkdir(parents=True)
        document = {"score": value, "where": str(tmp_path / name / "data")}
        (tmp_path / name / "outputs" / "run" / "result.json").write_text(json.dumps(document))
    one, two = results(tmp_path / "one"), results(tmp_path / "two")
    assert one["run/result.json.where"] == two["run/result.json.where"] == '"HERE/data"'
    assert differences(one, two) == ["run/result.json.score: 1 is 2"]


def test_partial_folders_and_temporary_files_are_left_over(tmp_path: Path) -> None:
    (tmp_path / "outputs" / ".run.partial-1").mkdir(parents=True)
    (tmp_path / "outputs" / ".run.partial-1" / "a").write_text("four")
    (tmp_path / "outputs" / ".mlflow.db.lock").touch()
    (tmp_path / "tmp" / "made").mkdir(parents=True)
    assert leftovers(tmp_path) == {"outputs/.run.partial-1": 4, "tmp/made": 0}
