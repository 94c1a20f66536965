"""Digests of folders: whatever changes in a folder of ours is same. Cost: a second."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.digest import DIGEST_FILE, check_file, check_folder, examine, no_digest_allowed, write_digest
from foretail.core.errors import ForetailError
from foretail.core.files import recording, staged_files, staged_folder, write_file


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
        (lambda folder: (folder / DIGEST_FILE).unlink(), r"has no digest\.json.*allow_no_digest=true"),
        (lambda folder: names_outside(folder), r"digest\.json was altered or damaged"),
    ],
)
def test_what_is_not_as_it_was_written_is_refused(
    folder: Path, change: Callable[[Path], object], complaint: str
) -> None:
    change(folder)
    with pytest.raises(ForetailError, match=complaint) as caught:
        check_folder(folder, "write it again")
    assert "write it again" in str(caught.value)


def names_outside(folder: Path) -> None:
    hashes = {"../secret": "0" * 32}
    lines = "".join(f"{value}  {name}\n" for name, value in hashes.items())
    document = {"format": "foretail-digest-1", "files": hashes, "of_files": xxhash.xxh3_128_hexdigest(lines.encode())}
    (folder / DIGEST_FILE).write_text(json.dumps(document))


def test_damaged_missing_and_foreign_files_are_same_apart(folder: Path) -> None:
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


def test_folders_of_earlier_versions_are_read_only_when_that_is_allowed(folder: Path) -> None:
    (folder / DIGEST_FILE).unlink()
    with no_digest_allowed(True):
        check_folder(folder, "again")
    with pytest.raises(ForetailError, match="allow_no_digest"), no_digest_allowed(False):
        check_folder(folder, "again")


def test_what_is_put_in_its_place_is_recorded(tmp_path: Path) -> None:
    with recording() as written:
        write_file(tmp_path / "a", "1")
        with staged_files(tmp_path) as staging:
            (staging / "b").touch()
        with staged_folder(tmp_path / "c") as staging:
            (staging / "d").touch()
    write_file(tmp_path / "later", "1")
    assert {path for path in written if path.exists()} == {tmp_path / "a", tmp_path / "b", tmp_path / "c"}
