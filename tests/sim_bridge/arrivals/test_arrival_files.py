"""Reading arrivals from CSV and Parquet: the same batches from both, and one sentence about every fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.sim_bridge.arrivals import files as arrival_files
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted
from tests.refusals import refusing

GOOD = {"slot": [0, 0, 3, 7, 7, 7], "port": [1, 0, 2, 2, 2, 0]}


def write_csv(path: Path, columns: dict[str, list[Any]]) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


def joined(batches: list[Slotted]) -> dict[str, list[int]]:
    names = ("slot", "port", "prediction", "first_rtt", "priority")
    present = [name for name in names if getattr(batches[0], name) is not None]
    return {name: np.concatenate([getattr(batch, name) for batch in batches]).tolist() for name in present}


def read(path: Path, ports: int = 3, **settings: Any) -> list[Slotted]:
    return list(ArrivalFile(path).batches(ports, **settings))


@given(data=st.data(), ports=st.integers(1, 4), batch_rows=st.integers(1, 7))
def test_both_kinds_of_file_give_the_arrivals_in_batches_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, ports: int, batch_rows: int
) -> None:
    folder = tmp_path_factory.mktemp("arrivals")
    slots = data.draw(st.lists(st.lists(st.integers(0, ports - 1), max_size=ports), min_size=1, max_size=8))
    columns = {
        "port": [port for arrivals in slots for port in arrivals] + [0],
        "note": [7 for arrivals in slots for _ in arrivals] + [7],
        "slot": [slot for slot, arrivals in enumerate(slots) for _ in arrivals] + [2**62],
    }
    rows = len(columns["slot"])
    for name in data.draw(st.sets(st.sampled_from(("prediction", "first_rtt", "priority")))):
        columns[name] = data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows))
    expected = {name: values for name, values in columns.items() if name != "note"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrival_files, "CSV_BLOCK_BYTES", 48)
        for path in (write_csv(folder / "a.csv", columns), write_parquet(folder / "a.parquet", columns)):
            file = ArrivalFile(path)
            assert file.has_predictions == ("prediction" in columns)
            batches = list(file.batches(ports, priorities=2, predictions=file.has_predictions, batch_rows=batch_rows))
            assert joined(batches) == expected
            assert file.fraction == 1
            assert all(0 < len(batch) <= batch_rows for batch in batches)
            assert [batches[0].slot.dtype.str, batches[0].port.dtype.str] == ["<i8", "<i4"]


def test_crowded_slots_can_be_allowed(tmp_path: Path) -> None:
    crowded = GOOD | {"slot": [7] * 6}
    path = write_csv(tmp_path / "a.csv", crowded)
    assert joined(read(path, allow_more_than_ports_per_slot=True)) == crowded


ROW_FAULTS: list[tuple[dict[str, list[Any]], dict[str, Any], str]] = [
    ({"port": [1, 0, 2, 2, 3, 0]}, {}, r"row 5 of .* \(data rows count from 1\) has port 3, outside 0 to 2"),
    ({"port": [1, 0, 2, 2, -1, 0]}, {}, "row 5 .* has port -1, outside 0 to 2"),
    ({"slot": [-1, 0, 3, 7, 7, 7]}, {}, "row 1 .* has slot -1, outside 0 to"),
    ({"slot": [0, 0, 3, 7, 7, 2**62 + 1]}, {}, "row 6 .* slot"),
    ({"slot": [0, 0, 3, 7, 7, 6]}, {}, "row 6 .* has slot 6 after slot 7: sort"),
    ({"slot": [0, 0, 7, 7, 7, 7]}, {}, "row 6 .* is arrival 4 of slot 7 .* allow_more_than_ports_per_slot=true"),
    ({"slot": [7] * 6}, {}, "row 4 .* is arrival 4 of slot 7"),
    ({"first_rtt": [0, 0, 0, 2, 0, 0]}, {}, "row 4 .* has first_rtt 2"),
    (
        {"priority": [0, 0, 1, 2, 0, 0]},
        {"priorities": 2},
        "row 4 .* has priority 2, outside 0 to 1: .* parameters.queues",
    ),
    ({"prediction": [0, 0, 1, 1, 0, 2]}, {"predictions": True}, "row 6 .* has prediction 2"),
]


@pytest.mark.parametrize(("fault", "settings", "complaint"), ROW_FAULTS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("batch_rows", [1, 2, 4, 100])
def test_a_wrong_value_is_named_by_its_row(
    tmp_path: Path, fault: dict[str, list[Any]], settings: dict[str, Any], complaint: str, batch_rows: int
) -> None:
    for path in (write_csv(tmp_path / "a.csv", GOOD | fault), write_parquet(tmp_path / "a.parquet", GOOD | fault)):
        with pytest.raises(ForetailError, match=complaint):
            read(path, batch_rows=batch_rows, **settings)


@pytest.mark.parametrize("block", [20, 1 << 20])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("slot,port\n0,1\n0,1.5\n", "row 2 .* has '1.5' in column port: write an integer"),
        ("slot,port\n0,1\n\n0,x\n", "row 2 .* has 'x' in column port"),
        ("slot,port\n0,1\n1,\n", "row 2 .* has no value in column port"),
        ("slot,port\n0,1\nNaN,1\n", "row 2 .* in column slot"),
        ("slot,port\n0,1\n99999999999999999999,1\n", "row 2 .* has '99999999999999999999' in column slot"),
        ("slot,port\n0,1\n0,1\n0,1,1\n", "row 3 .* has 3 fields and the header 2"),
        ("slot,port\n0,1\n0,1\n0\n", "row 3 .* has 1 fields and the header 2"),
        ("slot,prt\n0,1\n", "has no column port, only slot, prt"),
        ("slot;port\n0;1\n", "has no column slot, only slot;port: separate the columns by commas"),
        ("0,1\n1,1\n", "has no column slot, only 0, 1: let its first line be slot,port"),
        ('slot,"p\nrt"\n0,1\n', "has no column port, only slot, p rt"),
        ("port,slot,port\n0,1,0\n", "has 2 columns port"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("slot,port\n", "has no rows"),
        ("slot,port", "has no rows"),
        ("slot,port\n\n", "has no rows"),
    ],
)
def test_a_csv_file_that_is_none(
    tmp_path: Path, text: str, complaint: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival_files, "CSV_BLOCK_BYTES", block)
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ForetailError, match=complaint):
        read(path)


def parquet(folder: Path, **columns: Any) -> object:
    return read(write_parquet(folder / "a.parquet", columns))


def damaged(folder: Path, start: int, end: int, instead: bytes) -> object:
    """Read 50,000 rows in Parquet of which bytes are others; the ends are in parts of a thousand."""
    path = folder / "a.parquet"
    pq.write_table(pa.table({"slot": list(range(50_000)), "port": [0] * 50_000}), path, row_group_size=10_000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * start // 1000] + instead + whole[len(whole) * end // 1000 :])
    return read(path)


def put(folder: Path, name: str, content: bytes) -> object:
    (folder / name).write_bytes(content)
    return read(folder / name)


NO_ROWS = {"slot": pa.array([], pa.int64()), "port": pa.array([], pa.int8())}
test_what_cannot_be_is_refused = refusing(
    (lambda folder: parquet(folder, slot=[0, 0, 1, 2, None], port=[0] * 5), "row 5 .* has no value in column slot"),
    (
        lambda folder: parquet(folder, slot=[0, 0, 1], port=[0.0, float("nan"), 1.0]),
        "has the type double: store it as integers",
    ),
    (
        lambda folder: parquet(folder, slot=pa.array([0, 2**63], pa.uint64()), port=[0, 0]),
        "row 2 .* has '9223372036854775808' in",
    ),
    (lambda folder: parquet(folder, **NO_ROWS), "has no rows"),
    (lambda folder: parquet(folder, slot=[0]), "has no column port, only slot"),
    (lambda folder: damaged(folder, 999, 1000, b""), "is truncated or no Parquet file"),
    (lambda folder: damaged(folder, 500, 510, bytes(1000)), r"is damaged after row \d+|row \d+ of"),
    (lambda folder: read(folder / "nowhere.csv"), "there is no file .*nowhere.csv"),
    (lambda folder: read(folder / "nowhere.parquet"), "there is no file"),
    (lambda folder: read(folder / "a.txt"), "a.txt is neither .csv nor .parquet"),
    (lambda folder: read(folder), "neither .csv nor .parquet|there is no file"),
    (lambda folder: put(folder, "text.parquet", b"slot,port\n0,1\n"), "is truncated or no Parquet file"),
    (lambda folder: put(folder, "binary.csv", b"\xff\xfe\x00s\x00"), "is not CSV text"),
)
