"""No result changed unless somebody said why: every hash is the accepted one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.fingerprints.book import FOLDER, Fingerprint, Group, Row, accept, accepted_rows, changes, read, text_of
from tests.fingerprints.canonical import fingerprint
from tests.fingerprints.groups import GROUPS, KINDS
from tests.fingerprints.place import Place

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("fingerprints")
    yield Place(folder)
    shutil.rmtree(folder)  # pytest keeps folders of earlier sessions, and this one holds half a gigabyte


def marks(group: Group) -> list[pytest.MarkDecorator]:
    """Return the marks of a group's test: by day others compare ns-3 with the native network."""
    return [pytest.mark.ns3] * group.ns3 + [pytest.mark.nightly] * (group.ns3 or group.nightly)


@pytest.mark.parametrize(
    "group",
    [pytest.param(group, id=f"{group.kind}-{group.name}", marks=marks(group)) for group in GROUPS],
)
def test_results_are_those_that_were_accepted(group: Group, place: Place) -> None:
    lines = changes(group.accepted(), group.fingerprints(place))
    assert not lines, f"in {group.kind}.csv; if that is meant: make fingerprints REASON='...'\n" + "\n".join(lines)


def test_every_row_is_of_a_group_and_every_file_of_a_kind() -> None:
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(KINDS)
    for kind in KINDS:
        names = [group.name for group in GROUPS if group.kind == kind]
        for row in read(FOLDER / f"{kind}.csv"):
            assert row.what.split(": ")[0] in names, f"{kind}.csv has {row.what}, which nothing computes"
            assert row.reason


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_as_they_would_be_written(kind: str) -> None:
    path = FOLDER / f"{kind}.csv"
    assert text_of(read(path)) == path.read_text(encoding="utf-8")


BEFORE = [Row("a: x", "n=1", "1", "first"), Row("a: x", "n=2", "2", "first"), Row("a: y", "n=1", "3", "first")]


def test_one_changed_byte_is_reported_by_the_name_of_its_row() -> None:
    records = np.arange(1000)
    before = [Row("a: x", "n=1", fingerprint(records), ""), Row("a: y", "n=1", fingerprint(b"text"), "")]
    assert changes(before, [Fingerprint(*row[:3]) for row in before]) == []
    records.view(np.uint8)[1234] ^= 1
    after = [Fingerprint("a: x", "n=1", fingerprint(records)), Fingerprint(*before[1][:3])]
    assert changes(before, after) == ["changed: a: x [n=1]"]


def test_a_group_whose_result_changes_fails(place: Place, tmp_path: Path) -> None:
    group = next(group for group in GROUPS if group.name == "oblivious")
    found = group.fingerprints(place)
    accept({group.kind: found}, "first", tmp_path)
    assert changes(group.accepted(tmp_path), found) == []
    path = tmp_path / f"{group.kind}.csv"
    path.write_text(path.read_text().replace(found[2].hash, "0" + found[2].hash[1:].replace("0", "1")))
    assert changes(group.accepted(tmp_path), found) == [f"changed: {found[2].what} [{found[2].parameters}]"]


def test_missing_and_new_rows_are_reported() -> None:
    found = [Fingerprint("a: x", "n=1", "1"), Fingerprint("a: x", "n=2", "2"), Fingerprint("a: z", "", "4")]
    assert changes(BEFORE, found) == ["missing: a: y [n=1]", "not accepted yet: a: z []"]


def test_only_changed_rows_get_the_new_reason(tmp_path: Path) -> None:
    found = [Fingerprint("a: x", "n=1", "1"), Fingerprint("a: x", "n=2", "9"), Fingerprint("a: z", "", "4")]
    rows = accepted_rows(BEFORE, found, "now")
    assert rows == [BEFORE[0], Row("a: x", "n=2", "9", "now"), Row("a: z", "", "4", "now")]
    (tmp_path / "kind.csv").write_text(text_of(BEFORE))
    accept({"kind": found}, "  said on\ntwo lines ", tmp_path)
    assert [row.reason for row in read(tmp_path / "kind.csv")] == ["first", "said on two lines", "said on two lines"]
    written = (tmp_path / "kind.csv").stat().st_mtime_ns
    assert accept({"kind": found}, "again", tmp_path) == []
    assert (tmp_path / "kind.csv").stat().st_mtime_ns == written


def test_a_change_without_a_reason_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say why"):
        accept({"kind": []}, " ", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_rows_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two rows are called a: x"):
        text_of([BEFORE[0], BEFORE[0]])


def test_equal_bytes_of_different_kinds_differ() -> None:
    array = np.arange(6, dtype=np.int32)
    values = [
        array,
        array.view(np.uint32),
        array.reshape(2, 3),
        array.tobytes(),
        [1, 2],
        ["1", "2"],
        {"1": 2},
        1,
        1.0,
        True,
    ]
    assert len({fingerprint(value) for value in values}) == len(values)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    with pytest.raises(TypeError, match="no fingerprint of object"):
        fingerprint(object())
