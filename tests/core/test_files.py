"""Files and folders that appear at once: no moment without, nobody else's work removed, nothing left behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gzip
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from foretail.core import json_text
from foretail.core.digest import DIGEST_FILE, check_file, check_folder, examine, write_digest
from foretail.core.errors import ForetailError
from foretail.core.files import staged_files, staged_folder, write_file
from foretail.core.json_text import MOST_LEVELS, parse_json
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import read_demand
from foretail.pipelines.tracking.loading import load_network
from foretail.sim_bridge.arrivals.files import ArrivalFile
from foretail.sim_bridge.imports.pcap.log import read_captures
from foretail.sim_bridge.imports.sonic.config import read_config


def put(target: Path, text: str) -> None:
    with staged_folder(target, replace=True) as folder:
        (folder / "file").write_text(text)


def test_a_folder_that_is_replaced_is_there_all_the_time(tmp_path: Path) -> None:
    target, missing, done = tmp_path / "target", [], threading.Event()
    put(target, "0")

    def look() -> None:
        while not done.is_set():
            if not target.exists():
                missing.append(target)

    reader = threading.Thread(target=look)
    reader.start()
    for i in range(200):
        put(target, str(i))
    done.set()
    reader.join()
    assert missing == []
    assert (target / "file").read_text() == "199"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    put(tmp_path / "target", "old")
    with pytest.raises(KeyboardInterrupt), staged_folder(tmp_path / "target", replace=True):
        raise KeyboardInterrupt
    assert (tmp_path / "target" / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_a_folder_is_replaced_through_a_link(tmp_path: Path) -> None:
    put(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"real", "link"}


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot exchange two names, as NFS."""

    def refuse(*arguments: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: SimpleNamespace(renameat2=refuse))


@pytest.mark.usefixtures("no_exchange")
def test_without_exchange_a_folder_is_replaced_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "target", "old")
    put(tmp_path / "target", "new")
    assert (tmp_path / "target" / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


@pytest.mark.usefixtures("no_exchange")
def test_without_exchange_a_failed_rename_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "target", "old")
    rename = Path.rename

    def fail(self: Path, target: Any) -> Path:
        if ".partial-" in self.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(ForetailError, match=r"cannot write .*target: Input/output error"):
        put(tmp_path / "target", "new")
    assert (tmp_path / "target" / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_files_and_folders_move_in_together_and_others_stay(tmp_path: Path) -> None:
    write_file(tmp_path / "inner" / "old", "old")
    write_file(tmp_path / "other", "other")
    with staged_files(tmp_path) as folder:
        write_file(folder / "inner" / "new", "new")
        write_file(folder / "file", b"\x00")
        assert not (tmp_path / "file").exists()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        *("file", "inner", "inner/digest.json", "inner/new", "other")
    ]


def test_files_that_cannot_all_move_in_stay_out(tmp_path: Path) -> None:
    write_file(tmp_path / "b" / "file", "old")

    def move_in() -> None:
        with staged_files(tmp_path) as folder:
            write_file(folder / "a", "new")
            write_file(folder / "b", "new")

    with pytest.raises(ForetailError, match="b is a folder"):
        move_in()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b", "file"]


def test_a_file_keeps_its_old_content_when_writing_fails(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "ä")
    assert (tmp_path / "file").read_bytes() == "ä".encode()
    with pytest.raises(ForetailError, match=r"cannot write .*inner: "):
        write_file(tmp_path / "file" / "inner", "")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "file", "\ud800")
    assert (tmp_path / "file").read_text() == "ä"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with staged_folder(tmp_path / "run") as staging:
        write_file(staging / "a", "first")
        write_file(staging / "in" / "b", "second")
        (staging / ".hidden").write_text("lock")
    return tmp_path / "run"


def test_a_staged_folder_has_a_digest_of_all_that_it_holds(folder: Path) -> None:
    document = json.loads((folder / DIGEST_FILE).read_text())
    assert document["files"] == {
        name: xxhash.xxh3_128_hexdigest(content) for name, content in (("a", b"first"), ("in/b", b"second"))
    }
    check_folder(folder, "again")
    examined = examine(folder)
    assert (examined.whole, examined.is_whole) == (("a", "in/b"), True)


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), name=st.sampled_from(["a", "in/b", DIGEST_FILE]))
def test_no_flipped_bit_is_silent(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, name: str) -> None:
    folder = tmp_path_factory.mktemp("flip") / "run"
    with staged_folder(folder) as staging:
        write_file(staging / "a", "first")
        write_file(staging / "in" / "b", "second")
    content = bytearray((folder / name).read_bytes())
    content[at % len(content)] ^= 1 << bit
    meaning = json.loads((folder / DIGEST_FILE).read_text()) if name == DIGEST_FILE else None
    (folder / name).write_bytes(content)
    try:
        same = json.loads(content) == meaning  # only white space between the values of JSON is another
    except ValueError:
        same = False
    with contextlib.nullcontext() if same else pytest.raises(ForetailError, match=Path(name).name):
        check_folder(folder, "again")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda folder: (folder / "a").unlink(), r"a, which digest\.json names, cannot be read \(No such file"),
        (lambda folder: (folder / "a").write_text("First"), "a is not as it was written"),
        (lambda folder: shutil.rmtree(folder / "in"), r"in/b, which digest\.json names"),
        (lambda folder: (folder / DIGEST_FILE).write_text("{}"), r"digest\.json was altered or damaged"),
        (
            lambda folder: (folder / DIGEST_FILE).write_bytes((folder / DIGEST_FILE).read_bytes() + b"\n"),
            r"digest\.json was altered or damaged",
        ),
        (lambda folder: (folder / DIGEST_FILE).write_text("[" * 100_000), r"digest\.json was altered or damaged"),
        (lambda folder: (folder / DIGEST_FILE).unlink(), r"has no digest\.json, so that nobody can tell"),
    ],
)
def test_what_is_not_as_it_was_written_is_refused(
    folder: Path, change: Callable[[Path], object], complaint: str
) -> None:
    change(folder)
    with pytest.raises(ForetailError, match=complaint) as caught:
        check_folder(folder, "write it again")
    assert "write it again" in str(caught.value)


def test_damaged_missing_and_foreign_files_are_distinguished(folder: Path) -> None:
    (folder / "a").write_text("changed")
    (folder / "in" / "b").unlink()
    (folder / "in" / "c").write_text("of somebody else")
    with staged_folder(folder / "nested") as staging:
        (staging / "d").touch()
    examined = examine(folder)
    assert (examined.damaged, examined.missing, examined.foreign) == (("a",), ("in/b",), ("in/c",))
    assert not examined.is_whole


def test_a_digest_that_names_a_nested_one_checks_what_that_names(folder: Path) -> None:
    with staged_folder(folder / "nested") as staging:
        (staging / "d").write_text("1")
    write_digest(folder, [folder / "a", folder / "nested" / DIGEST_FILE])
    check_folder(folder, "again")
    (folder / "nested" / "d").write_text("2")
    with pytest.raises(ForetailError, match="nested/d is not as it was written"):
        check_folder(folder, "again")


def test_one_file_is_checked_where_a_digest_names_it(folder: Path) -> None:
    check_file(folder / "a", "again")
    (folder / "mine").write_text("of the user")
    check_file(folder / "mine", "again")
    check_file(folder.parent / "elsewhere", "again")
    (folder / "a").write_text("changed")
    with pytest.raises(ForetailError, match="a is not as it was written"):
        check_file(folder / "a", "again")


READERS: dict[str, Callable[[Path], object]] = {
    "capture": lambda path: read_captures(None, {0: path}, None, 2),
    "demand.csv": read_demand,
    "log.csv": lambda path: read_demand_logs([path], Steps()),
    "arrivals.csv": ArrivalFile,
    "network.onnx": load_network,
    "config_db.json": read_config,
}
IMPOSTORS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n": "is a pointer of Git LFS .* git lfs pull",
    b"<!DOCTYPE html>\n<html lang='en'>": "is a web page and not the file itself",
    b"\xef\xbb\xbf\r\n <HTML>": "is a web page",
    gzip.compress(b"slot,port\n", mtime=0): r"is compressed \(gzip\): unpack it",
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", IMPOSTORS, ids=["pointer", "page", "capitals", "gzip"])
def test_what_lies_in_the_place_of_a_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ForetailError, match=re.escape(str(path)) + " " + IMPOSTORS[content]):
        READERS[name](path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_documents_are_read_as_python_reads_them(document: object) -> None:
    text = json.dumps(document)
    assert parse_json(text) == parse_json(text.encode()) == document


@given(st.text() | st.binary())
def test_any_other_text_is_a_value_error(text: str | bytes) -> None:
    try:
        parse_json(text)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


NESTED = ("[", "]"), ('{"a":', "}"), ('{"a":1,"b":', "}")


@pytest.mark.parametrize(("opening", "closing"), NESTED)
@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 100_000])
def test_depth_has_a_bound(levels: int, opening: str, closing: str) -> None:
    parse_json(opening * MOST_LEVELS + "0" + closing * MOST_LEVELS)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(opening * levels + "0" + closing * levels)


def test_a_key_may_have_to_be_distinct() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    assert parse_json('[{"a": {"a": 1}}, {"a": 2}]', distinct_keys=True) == [{"a": {"a": 1}}, {"a": 2}]
    with pytest.raises(ValueError, match="it has 'a' twice in one object"):
        parse_json('[{"a": 1, "b": 2, "a": 1}]', distinct_keys=True)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": Infinity}'])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        parse_json(text)


def test_size_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "LARGEST_BYTES", 10)
    assert parse_json("[1,2,3,45]") == [1, 2, 3, 45]
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        parse_json("[1,2,3,456]")


def test_two_that_write_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with staged_folder(target, replace=True) as slow:
        (slow / "file").write_text("slow")
        put(target, "fast")
        assert (slow / "file").exists()
    assert (target / "file").read_text() == "slow"
    assert list(tmp_path.iterdir()) == [target]
