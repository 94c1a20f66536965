"""The file of a search's trials: running ones, damage, locks and foreign files get a sentence. Costs 10 s."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import optuna
import pytest
from optuna.distributions import IntDistribution
from optuna.samplers import TPESampler

from foretail.core.errors import ForetailError
from foretail.pipelines.runs.store import Store
from foretail_studies.search.trials import Trial, TrialSettings, open_trials

pytestmark = pytest.mark.slow


def search(file: Path, trials: int) -> list[Trial]:
    settings = TrialSettings(trials=trials, batch=2, name="mine", file=str(file))
    space = {"x": IntDistribution(0, 9)}
    with open_trials(settings, "test", Store(file.parent), {}, space, {"y": "maximize"}, TPESampler) as kept:
        while drawn := kept.batch(trials):
            kept.keep([Trial(one.number, one.values, {"y": one.values["x"]}, None) for one in drawn])
        return kept.finished()


def damaged_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xa5" * 64
    file.write_bytes(content)


def left_running(file: Path) -> None:
    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{file}")
    study.ask({"x": IntDistribution(0, 9)})


def foreign(file: Path) -> None:
    file.write_text("not a database, " * 500)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (left_running, r"trial 2 of mine in .* was begun by another program, which did not end it: give another name"),
        (damaged_page, r"(is damaged .*: restore it, or remove it|cannot hold trials)"),
        (foreign, r"cannot hold trials \(.*\): give another file"),
    ],
)
def test_a_file_that_another_program_spoiled(tmp_path: Path, spoil: object, sentence: str) -> None:
    file = tmp_path / "search.db"
    first = search(file, 2)
    assert search(file, 2) == first
    spoil(file)  # type: ignore[operator]
    with pytest.raises(ForetailError, match=sentence) as refused:
        search(file, 4)
    assert "\n" not in str(refused.value)


def test_a_file_that_another_program_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "search.db"
    search(file, 2)
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: real(*given, **named | {"timeout": 0.1}))
    with contextlib.closing(real(file)) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ForetailError, match=r"another program has locked .*: wait until it ends"):
            search(file, 4)
    assert len(search(file, 4)) == 4
