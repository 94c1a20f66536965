"""The store: whole entries or none, whatever races or dies."""

from __future__ import annotations

import errno
import multiprocessing
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder
from foretail.pipelines.runs.store import Key, Store, canonical_json

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
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path / "store")

    def build(folder: Path) -> None:
        write_number(folder)
        raise error

    with pytest.raises(type(error)):
        store.get_or_build(KEY, build)
    assert [path.name for path in (tmp_path / "store" / "dataset").iterdir()] == []


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


def test_an_entry_without_its_content_is_named(tmp_path: Path) -> None:
    entry = Store(tmp_path).get_or_build(KEY, write_number)
    shutil.rmtree(entry.path)
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
