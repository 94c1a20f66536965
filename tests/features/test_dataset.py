from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import foretail.sim_bridge
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset import writer
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import (
    DROP_COSTS_SCHEMA,
    ROWS_SCHEMA,
    Manifest,
    PartFile,
)
from foretail.features.records import (
    ARRIVAL_DTYPE,
    FLOW_DTYPE,
    REPLAY_DTYPE,
    Asked,
    FlowClass,
    Outcome,
    count_records,
    iterate_records,
    read_records,
)
from tests.examples import draws
from tests.refusals import refusing
from tests.strategies import arrivals as arrivals_strategy
from tests.traces import RUN, Arrivals, make_arrivals, write_trace


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROW_GROUP_ROWS", 8)
        patch.setattr(writer, "PART_ROWS", 24)
        yield


def _expected(arrivals: Arrivals) -> pd.DataFrame:
    """The rows table said again, one arrival at a time."""
    rows = []
    for position, (record, shadow, shadow_asked) in enumerate(zip(*arrivals, strict=True)):
        if record["flow_class"] == 0:
            continue
        rows.append(
            {
                "arrival": position,
                **{name: int(record[name]) for name in ("time_ns", "switch", "port", "size_bytes", "flow")},
                "flow_class": {1: "background", 2: "incast"}[int(record["flow_class"])],
                **{f.name: int(value) for f, value in zip(FEATURES, record["features"], strict=True)},
                "first_rtt": int(record["first_rtt"]),
                "incast": int(record["flow_class"] == 2),
                **{name: int(value) for name, value in zip(SHADOW_COLUMNS, shadow, strict=True)},
                "exposed": bool(record["exposed"]),
                "shadow_asked": bool(shadow_asked),
                "lqd_drop": bool(record["lqd_drop"]),
                "fate_time_ns": int(record["fate_time_ns"]),
                "accepted": record["outcome"] in (Outcome.ACCEPTED, Outcome.PUSHED_OUT),
                "asked": None if record["asked"] == Asked.NEVER else bool(record["asked"]),
                "score": int(record["score"]) if record["asked"] == Asked.YES else None,
            }
        )
    return pd.DataFrame(rows, columns=ROWS_SCHEMA.names, dtype=object)


@settings(max_examples=draws(40))
@given(arrivals_strategy(max_arrivals=60))
def test_what_is_written_is_what_is_read(arrivals: Arrivals) -> None:
    with TemporaryDirectory() as folder:
        dataset = write_trace(Path(folder) / "run", arrivals, batch=7)
        expected = _expected(arrivals)
        frame = dataset.frame()
        assert list(frame.columns) == ROWS_SCHEMA.names
        read = pa.Table.from_batches(dataset.rows(), ROWS_SCHEMA).to_pylist()
        assert read == expected.to_dict("records")
        assert [None if pd.isna(value) else int(value) for value in frame["score"]] == list(expected["score"])
        assert dataset.manifest.rows == len(expected)
        assert dataset.manifest.drops == expected["lqd_drop"].sum()
        assert dataset.manifest.control_rows == len(arrivals.records) - len(expected)
        replay = list(dataset.arrivals(chunk_arrivals=11))
        assert all(len(chunk) == 11 for chunk in replay[:-1])
        merged = np.concatenate([np.empty(0, REPLAY_DTYPE), *replay])
        assert merged["arrival"].tolist() == list(range(len(arrivals.records)))
        for field in ("time_ns", "switch", "port", "size_bytes", "flow_class", "first_rtt", "lqd_drop"):
            assert merged[field].tolist() == arrivals.records[field].tolist()


def test_rows_by_column_and_filter(tmp_path: Path) -> None:
    arrivals = make_arrivals(500)
    dataset = write_trace(tmp_path / "run", arrivals)
    where = (pc.field("time_ns") >= 100_000) & pc.field("lqd_drop")
    expected = _expected(arrivals).query("time_ns >= 100_000 and lqd_drop")
    assert 0 < len(expected) < dataset.manifest.drops
    assert dataset.frame(["flow", "arrival"], where).to_dict("list") == expected[["flow", "arrival"]].to_dict("list")
    assert dataset.count(where) == len(expected)
    assert all(batch.num_rows <= 5 for batch in dataset.rows(["port"], batch_rows=5))


def test_parts_and_row_groups_have_fixed_sizes_and_describe_themselves(tmp_path: Path) -> None:
    dataset = write_trace(tmp_path / "run", make_arrivals(200))
    rows = [part.rows for part in dataset.manifest.files if part.path.startswith("rows/")]
    assert len(rows) > 2
    assert set(rows[:-1]) == {24}
    with pq.ParquetFile(tmp_path / "run" / "rows" / "part-00000.parquet") as file:
        assert [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)] == [8, 8, 8]
        assert file.schema_arrow.metadata[b"foretail.schema_version"] == b"2"
        assert file.schema_arrow.field("queue").metadata[b"unit"] == b"cells"
        assert file.schema_arrow.field("fate_time_ns").metadata[b"unit"] == b"ns"
        assert {file.metadata.row_group(0).column(k).compression for k in range(len(ROWS_SCHEMA))} == {"SNAPPY"}


def test_the_bytes_depend_on_the_arrivals_alone(tmp_path: Path) -> None:
    arrivals = make_arrivals(300)
    for name, batch in (("a", 1000), ("b", 1000), ("c", 13), ("d", 1)):
        write_trace(tmp_path / name, arrivals, batch)
    contents = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in "abcd"
    ]
    assert contents[0] == contents[1] == contents[2] == contents[3]
    arrivals.shadow[np.flatnonzero(arrivals.records["flow_class"])[-1], 0] ^= 1
    changed = write_trace(tmp_path / "e", arrivals)
    assert changed.manifest.content_sha256 != json.loads(contents[0][Path("manifest.json")])["content_sha256"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("time_ns", 0, r"has time_ns 0, which must be no earlier than the arrival before it"),
        ("fate_time_ns", 0, r"has fate_time_ns 0, which must be no earlier than time_ns"),
        ("size_bytes", 0, r"has size_bytes 0, which must be in 1\.\."),
        ("switch", 2, r"has switch 2, which must be in 0\.\.1"),
        ("switch", -1, r"has switch -1, which must be"),
        ("port", 10, r"has port 10, which must be one of its switch"),
        ("port", -1, r"has port -1, which must be"),
        ("flow_class", 3, r"has flow_class 3, which must be in 0\.\.2"),
        ("outcome", 5, r"has outcome 5, which must be in 0\.\.4"),
        ("asked", 3, r"has asked 3, which must be in 0\.\.2"),
        ("lqd_drop", 2, r"has lqd_drop 2, which must be in 0\.\.1"),
        ("exposed", 2, r"has exposed 2, which must be in 0\.\.1"),
        ("first_rtt", 2, r"has first_rtt 2, which must be in 0\.\.1"),
        ("features", -1, r"has queue -1, which must be in 0\.\.16777215"),
        ("features", 1 << 20, r"has pressure 1048576, which must be in 0\.\.255"),
    ],
)
def test_an_impossible_arrival_is_refused(tmp_path: Path, field: str, value: int, message: str) -> None:
    arrivals = make_arrivals(100)
    arrivals.records["flow_class"][50] = 1
    arrivals.records[field][50] = value
    with pytest.raises(ForetailError, match=message):
        write_trace(tmp_path / "run", arrivals, batch=50)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_arrival_is_noticed_by_the_replay(tmp_path: Path) -> None:
    dataset = write_trace(tmp_path / "run", make_arrivals(100))
    path = tmp_path / "run" / "rows" / "part-00000.parquet"
    table = pq.read_table(path)
    position = table["arrival"].to_numpy()
    shifted = table.set_column(0, ROWS_SCHEMA.field("arrival"), pa.array(np.where(position == 0, 1, position)))
    lost = int(position[0]) if position[0] else 0
    pq.write_table(table.slice(1) if lost else shifted, path)
    with pytest.raises(ForetailError, match=f"run lacks arrival {lost}: "):
        list(dataset.arrivals())


def drop_costs(tmp_path: Path) -> pd.DataFrame:
    """Made-up labels of some arrivals of a trace."""
    frame = write_trace(tmp_path / "trace", make_arrivals(300)).frame()
    chosen = [name for name in DROP_COSTS_SCHEMA.names if name in frame]
    draw, count = np.random.default_rng(1), 40
    costs = {f"drop_cost{kind}": draw.normal(0, 1, count) for kind in ("", "_query", "_short")}
    return (
        frame[chosen]
        .head(count)
        .assign(hold_ns=7, repeats=2, decisions=1, arrivals=1.5, drop_timeouts=-0.5, chaos=0.25, **costs)
        .assign(drop_cost_long=np.nan)
    )


def test_drop_costs_come_back(tmp_path: Path) -> None:
    rows = drop_costs(tmp_path)
    writer.write_drop_costs(tmp_path / "costs", RUN, rows.assign(else_known="left out"))
    dataset = Dataset.open(tmp_path / "costs")
    assert (dataset.manifest.kind, dataset.manifest.rows) == ("drop_costs", 40)
    assert dataset.manifest.drops == (rows["drop_cost"] < 0).sum()
    pd.testing.assert_frame_equal(dataset.frame(), rows[DROP_COSTS_SCHEMA.names], check_dtype=False)
    writer.write_drop_costs(tmp_path / "again", RUN, rows)
    assert Dataset.open(tmp_path / "again").manifest.content_sha256 == dataset.manifest.content_sha256


FILES = (
    PartFile("rows/part-00000.parquet", 10, "a" * 64),
    PartFile("rows/part-00001.parquet", 3, "b" * 64),
    PartFile("control/part-00000.parquet", 5, "c" * 64),
)
MANIFEST = Manifest.of(RUN, FILES, drops=2)


def test_content_hash_depends_on_every_file_and_their_order() -> None:
    hashes = {Manifest.of(RUN, files, 0).content_sha256 for files in (FILES, FILES[:2], FILES[::-1], ())}
    assert len(hashes) == 4


def _changed(path: list[str | int], value: Any) -> str:
    plain = json.loads(MANIFEST.to_json())
    inner = plain
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ["schema_version"],
            1,
            r"^m\.json has schema_version 1 but this Foretail reads version 2: collect the trace again",
        ),
        (["schema_version"], None, r"^m\.json is not a valid manifest at schema_version: Field required$"),
        (["seed"], None, r"at seed: Field required"),
        (["seed"], "1", r"at seed: Input should be a valid integer"),
        (["seed"], True, r"at seed: Input should be a valid integer"),
        (["seed"], -1, r"at seed: "),
        (["mood"], 1, r"at mood: "),
        (["kind"], "model", r"at kind: "),
        (["rules", "tie"], "coin", r"at rules\.tie: Input should be 'lowest_port' or 'highest_port'"),
        (["switches"], [], r"at switches: "),
        (["switches", 0, "buffer_bytes"], 0, r"at switches\.0\.buffer_bytes: "),
        (["switches", 1, "port_rates_bps"], [10], r"contradicts itself at switches\.port_rates_bps"),
        (["files", 0, "path"], "../../etc/passwd", r"at files\.0\.path: "),
        (["files", 0, "sha256"], "A" * 64, r"at files\.0\.sha256: "),
        (["files", 0, "sha256"], "0" * 64, r"contradicts itself at content_sha256"),
        (["cell_bytes"], 100, r"contradicts itself at cell_bytes"),
        (["average_shift"], 12, r"contradicts itself at features"),
        (["features", 0, "name"], "mood", r"contradicts itself at features"),
        (["rows"], 14, r"contradicts itself at rows"),
        (["control_rows"], 6, r"contradicts itself at control_rows"),
        (["drops"], 14, r"contradicts itself at drops"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_sentence(path: list[str | int], value: Any, message: str) -> None:
    with pytest.raises(ForetailError, match=message) as caught:
        Manifest.from_json(_changed(path, value), "m.json")
    assert "m.json" in str(caught.value)


@pytest.mark.parametrize("codes", [FlowClass, Asked, Outcome])
def test_codes_are_those_that_the_headers_write(codes: type[IntEnum]) -> None:
    assert foretail.sim_bridge.__file__
    headers = sorted(Path(foretail.sim_bridge.__file__).parent.glob("buffer/*.hpp"))
    text = "".join(header.read_text() for header in headers)
    (names,) = re.findall(rf"enum class {codes.__name__} : std::uint8_t {{ (.*?) }}", text)
    assert [(code.name.lower(), code.value) for code in codes] == list(zip(names.split(", "), range(9), strict=False))


def test_records_come_back_in_chunks(tmp_path: Path) -> None:
    records = make_arrivals(1000).records
    path = tmp_path / "arrivals.bin"
    records.tofile(path)
    assert count_records(path, ARRIVAL_DTYPE) == 1000
    chunks = list(iterate_records(path, ARRIVAL_DTYPE, 300))
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    assert np.concatenate(chunks).tobytes() == records.tobytes()
    assert read_records(path, ARRIVAL_DTYPE).tobytes() == records.tobytes()


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "flows.bin"
    path.touch()
    assert read_records(path, FLOW_DTYPE).shape == (0,)


PEAK = """
import resource, sys
from pathlib import Path
import numpy as np
from tests.traces import RUN, make_arrivals
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.writer import write_dataset
folder, batches = Path(sys.argv[1]), int(sys.argv[2])
arrivals = make_arrivals(100_000)
length = arrivals.records["time_ns"][-1]
with write_dataset(folder, RUN) as writer:
    for _ in range(batches):
        writer.write(*arrivals)
        for field in ("time_ns", "fate_time_ns"):
            arrivals.records[field] += length
dataset = Dataset.open(folder)
assert sum(batch.num_rows for batch in dataset.rows()) == dataset.manifest.rows
assert sum(len(chunk) for chunk in dataset.arrivals()) == batches * 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    peaks_kib = [
        int(
            subprocess.run(
                [sys.executable, "-c", PEAK, tmp_path / str(batches), str(batches)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for batches in (10, 40)
    ]
    assert peaks_kib[1] - peaks_kib[0] < 100 * 1024  # the larger trace has 264 MB of records more


def shadowed(folder: Path) -> None:
    arrivals = make_arrivals(100)
    arrivals.records["flow_class"][50] = 1
    arrivals.shadow[50, 3] = -1
    write_trace(folder / "run", arrivals)


def costs_with(folder: Path, wrong: float) -> None:
    rows = drop_costs(folder)
    rows.loc[3, "drop_cost"] = wrong
    writer.write_drop_costs(folder / "costs", RUN, rows)


def described(value: Any) -> str:
    return Manifest.of(replace(RUN, scenario={"load": value}), (), 0).to_json()


def cut_while_read(folder: Path, to: int, chunk: int) -> None:
    """Read the first chunk of 10 records, of which `to` bytes are left."""
    make_arrivals(10).records.tofile(folder / "arrivals.bin")
    chunks = iterate_records(folder / "arrivals.bin", ARRIVAL_DTYPE, chunk)
    next(chunks)
    (folder / "arrivals.bin").write_bytes((folder / "arrivals.bin").read_bytes()[:to])
    read_records(folder / "arrivals.bin", ARRIVAL_DTYPE) if chunk == 10 else next(chunks)


NO_JSON = ("", "{", b"\xff", "[" * 100_000, '{"scenario":' * 200 + "1" + "}" * 200)
NO_MANIFEST = ("[]", "3", "null", b"\xff\xfe")
SIZE = ARRIVAL_DTYPE.itemsize
test_what_cannot_be_is_refused = refusing(
    *(
        (lambda text=text: Manifest.from_json(text, "m.json"), r"^m\.json is not valid JSON \(.*\): ")
        for text in NO_JSON
    ),
    *((lambda text=text: Manifest.from_json(text, "m.json"), r"^m\.json is not (a )?valid ") for text in NO_MANIFEST),
    *(
        (lambda value=value: described(value), "cannot be described in a manifest")
        for value in (float("nan"), object())
    ),
    (shadowed, "has shadow_occupancy_average -1, which must be in"),
    (lambda folder: costs_with(folder, np.nan), "row 3 for .* has drop_cost"),
    (lambda folder: costs_with(folder, np.inf), "row 3 for .* has drop_cost"),
    (
        lambda folder: cut_while_read(folder, 10 * SIZE - 1, 10),
        rf"{10 * SIZE - 1} bytes are not a multiple of the {SIZE}-",
    ),
    (lambda folder: cut_while_read(folder, 6 * SIZE, 5), "was cut short while it was read"),
    (lambda folder: read_records(folder / "flows.bin", FLOW_DTYPE), r"flows\.bin cannot be read \(No such file"),
    (
        lambda folder: write_trace(folder / "run", make_arrivals(1), cell_bytes=100),
        "run contradicts itself at cell_bytes",
    ),
    (
        lambda folder: write_trace(folder / "run", make_arrivals(5)).frame(["mood"]),
        "run has no column 'mood': choose from ",
    ),
)
