"""Files and folders that appear at once: no moment without, nobody else's work removed, nothing left behind."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretail.core.errors import ForetailError
from foretail.core.files import staged_files, staged_folder, write_file


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


def test_two_that_write_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with staged_folder(target, replace=True) as slow:
        (slow / "file").write_text("slow")
        put(target, "fast")
        assert (slow / "file").exists()
    assert (target / "file").read_text() == "slow"
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
