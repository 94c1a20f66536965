"""The store: whole entries or none, whatever races or dies."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder
from foretail.core.reading import Reading
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.experiment.declaration import Measured, measure_cases
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.points import Report, SoFar, run_jobs
from foretail.pipelines.runs.result import COLUMNS, Cell, Table, blocks, cell_text, show, write_result
from foretail.pipelines.runs.store import Key, Store, canonical_json
from tests.examples import draws

KEY = Key("dataset", {"seed": 1, "scenario": {"load": 0.8}})


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def write_number(folder: Path) -> None:
    (folder / "number").write_text("1")


def test_builds_once_and_reuses(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = store.get_or_build(KEY, write_number)
    again = store.get_or_build(KEY, lambda folder: pytest.fail("built twice"))
    assert (first.reused, again.reused) == (False, True)
    assert first.path == again.path
    assert (again.path / "number").read_text() == "1"
    assert again.seconds == pytest.approx(first.seconds)
    assert files_of(tmp_path) == ["digest.json", "key.json", "number"]


@pytest.mark.parametrize("error", [ForetailError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_a_failed_build_leaves_other_entries_alone(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path / "store")
    store.get_or_build(KEY, write_number)

    def build(folder: Path) -> None:
        write_number(folder)
        raise error

    with pytest.raises(type(error)):
        store.get_or_build(Key("dataset", {"seed": 2}), build)
    assert files_of(tmp_path) == ["digest.json", "key.json", "number"]


def test_a_build_may_stage_folders_of_its_own(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        with staged_folder(folder / "inner") as inner:
            write_number(inner)

    assert (Store(tmp_path).get_or_build(KEY, build).path / "inner" / "number").exists()


def test_damaged_content_is_named(tmp_path: Path) -> None:
    entry = Store(tmp_path).get_or_build(KEY, write_number)
    (entry.path / "a.json").write_text("[1]")
    assert entry.document("a.json") == [1]
    (entry.path / "a.json").write_text("[" * 100_000)
    for name in ("a.json", "b.json"):
        with pytest.raises(ForetailError, match=rf"{entry.path.parent} is damaged \({name}: .*delete that"):
            entry.document(name)


def test_a_file_in_the_place_of_the_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ForetailError, match=r"cannot write .*file.*: (Not a directory|File exists)"):
        Store(tmp_path / "file").get_or_build(KEY, write_number)


def _race(folder: Path, barrier: threading.Barrier) -> tuple[bool, str]:
    def build(partial: Path) -> None:
        barrier.wait(timeout=20)  # both are inside build before either can finish
        write_number(partial)

    entry = Store(folder).get_or_build(KEY, build)
    return entry.reused, (entry.path / "number").read_text()


def _race_in_process(folder: Path, barrier: threading.Barrier, seen: multiprocessing.Queue[tuple[bool, str]]) -> None:
    seen.put(_race(folder, barrier))


def test_two_processes_that_build_the_same_entry_agree(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, seen = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_race_in_process, args=(tmp_path, barrier, seen)) for _ in range(2)]
    for racer in racers:
        racer.start()
    results = sorted(seen.get(timeout=30) for _ in racers)
    for racer in racers:
        racer.join()
        racer.close()
    seen.close()
    assert results == [(False, "1"), (True, "1")]
    assert files_of(tmp_path) == ["digest.json", "key.json", "number"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_builds_is_not(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from foretail.pipelines.runs.store import Key, Store\n"
        "def build(folder):\n"
        "    (folder / 'half').write_text('x'); print(folder, flush=True); time.sleep(60)\n"
        "Store(sys.argv[1]).get_or_build(Key('dataset', {'seed': int(sys.argv[2])}), build)\n"
    )
    killed, living = (
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), seed], stdout=subprocess.PIPE, text=True)
        for seed in ("1", "2")
    )
    try:
        assert killed.stdout is not None
        assert living.stdout is not None
        left_over, in_work = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        assert left_over != in_work
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left_over / "half").exists()
        Store(tmp_path).get_or_build(KEY, write_number)
        assert not left_over.exists()
        assert (in_work / "half").exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


def test_a_removed_entry_is_built_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entry = store.get_or_build(KEY, write_number)
    store.remove(entry)
    assert store.find(KEY) is None
    store.remove(entry)  # as another process may just have done
    assert list((tmp_path / "dataset").iterdir()) == []
    assert not store.get_or_build(KEY, write_number).reused


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda path: (path.parent / "key.json").write_text("{")])
def test_an_entry_without_its_content_or_key_is_named(damage: Callable[[Path], object], tmp_path: Path) -> None:
    entry = Store(tmp_path).get_or_build(KEY, write_number)
    damage(entry.path)
    with pytest.raises(ForetailError, match=entry.digest):
        Store(tmp_path).get_or_build(KEY, write_number)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_the_order_of_settings_does_not_matter(settings: dict[str, object]) -> None:
    backwards = dict(reversed(settings.items()))
    assert Key("run", settings).digest == Key("run", backwards).digest
    assert Key("run", settings).digest != Key("dataset", settings).digest
    assert Key("run", settings | {"": "another"}).digest != Key("run", settings | {"": "value"}).digest


def test_nan_is_no_key() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"load": float("nan")})


def squares(numbers: Sequence[int], measure: Callable[[int, SoFar], Any], folder: Path, jobs: int = 1) -> Measured[int]:
    config = SimpleNamespace(store_dir=str(folder), jobs=jobs)
    return measure_cases(
        "squares",
        "squares",
        numbers,
        cast("KeepsRuns", config),
        name=lambda number: f"number {number}",
        depends_on=lambda number: {"number": number},
        measure=measure,
    )


def squaring(bad: frozenset[int], log: list[int]) -> Callable[[int, SoFar], int]:
    def measure(number: int, so_far: SoFar) -> int:
        so_far("squaring")
        log.append(number)
        if number in bad:
            raise ForetailError(f"{number} has no square here.")
        return number * number

    return measure


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_point_that_fails_is_named_and_only_it_is_measured_again(jobs: int, tmp_path: Path) -> None:
    log, numbers = list[int](), range(5)
    with pytest.raises(
        PointsFailed,
        match=r"^2 of 5 points failed, and running again repeats only those: number 1: 1 has no square here; "
        r"number 3: 3 has no square here$",
    ):
        squares(numbers, squaring(frozenset({1, 3}), log), tmp_path, jobs)
    assert sorted(log) == list(numbers)

    log.clear()
    measured = squares(numbers, squaring(frozenset(), log), tmp_path, jobs)
    assert sorted(log) == [1, 3]
    assert measured.measurements == [0, 1, 4, 9, 16]
    assert [one.reused for one in measured.entries] == [True, False, True, False, True]


def test_many_failures_are_counted(tmp_path: Path) -> None:
    with pytest.raises(PointsFailed, match=r"^8 of 8 points failed.*; number 4: 4 has no square here; 3 more$"):
        squares(range(8), squaring(frozenset(range(8)), []), tmp_path, 2)


def test_what_has_nothing_to_do_with_points_is_said_once(tmp_path: Path) -> None:
    def measure(number: int, so_far: SoFar) -> int:
        raise ForetailError("the settings make no sense")

    with pytest.raises(ForetailError, match=r"^the settings make no sense") as raised:
        squares(range(3), measure, tmp_path)
    assert not isinstance(raised.value, PointsFailed)


def test_a_defect_is_no_failed_point(tmp_path: Path) -> None:
    def measure(number: int, so_far: SoFar) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        squares([1], measure, tmp_path)
    assert not list((tmp_path / "squares").iterdir())


def test_what_jobs_read_reaches_the_notes_of_the_command() -> None:
    def job(name: str, report: Report) -> None:
        Reading(name, ("the column colour",)).tell()

    with collecting_notes() as notes:
        run_jobs({name: partial(job, name[0]) for name in ("a", "b", "a again")}, 2)
    assert sorted(notes.findings) == [f"{name} has the column colour, which Foretail does not use" for name in "ab"]


def test_ctrl_c_before_the_last_job_is_submitted_stops_the_first() -> None:
    started, ended = threading.Event(), list[str]()

    def job(report: Report) -> None:
        started.set()
        try:
            for _ in range(1_000):
                report(0.0, "")
                time.sleep(0.01)
            ended.append("by itself")
        except Exception:
            ended.append("stopped")
            raise

    class Interrupted(dict[str, Callable[[Report], None]]):
        def items(self) -> Any:
            yield "first", job
            started.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(Interrupted(), 2)
    assert ended == ["stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_in_a_callback_that_cannot_raise_is_not_lost(number: signal.Signals) -> None:
    script = (
        "import signal, time, weakref\n"
        "from foretail.pipelines.runs.ending import Terminated, stoppable\n"
        "class Connection: ...\n"
        "stopped, connection = [], Connection()\n"
        f"reference = weakref.ref(connection, lambda _: signal.raise_signal({int(number)}))\n"
        "try:\n"
        "    with stoppable(stopped, of_process=True):\n"
        "        del connection\n"
        "        assert stopped\n"
        "        time.sleep(20)\n"
        "        print('lost')\n"
        "except KeyboardInterrupt as stop:\n"
        "    print(type(stop).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    expected = "Terminated" if number == signal.SIGTERM else "KeyboardInterrupt"
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


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


def test_two_threads_that_build_the_same_entry_agree(tmp_path: Path) -> None:
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        seen = [future.result() for future in [pool.submit(_race, tmp_path, barrier) for _ in range(2)]]
    assert sorted(seen) == [(False, "1"), (True, "1")]
    assert files_of(tmp_path) == ["digest.json", "key.json", "number"]
