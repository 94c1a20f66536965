from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset import writer
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import CONTROL_SCHEMA, DROP_COSTS_SCHEMA, ROWS_SCHEMA
from foretail.features.records import REPLAY_DTYPE, Asked, Outcome
from tests.examples import draws
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


def test_an_unknown_column_is_refused(tmp_path: Path) -> None:
    dataset = write_trace(tmp_path / "run", make_arrivals(5))
    with pytest.raises(ForetailError, match=r"run has no column 'mood': choose from arrival, time_ns, "):
        dataset.frame(["mood"])


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
        assert {file.metadata.row_group(0).column(k).compression for k in range(len(ROWS_SCHEMA))} == {"ZSTD"}


def test_every_column_has_a_description() -> None:
    for schema in (ROWS_SCHEMA, CONTROL_SCHEMA):
        assert all(field.metadata[b"description"].endswith(b".") for field in schema)


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


def test_an_empty_run_is_a_dataset(tmp_path: Path) -> None:
    dataset = write_trace(tmp_path / "run", make_arrivals(0))
    assert list(dataset.rows()) == []
    assert list(dataset.arrivals()) == []
    assert dataset.count() == 0
    assert dataset.frame().shape == (0, len(ROWS_SCHEMA))
    assert dataset.manifest.files == ()


def test_a_run_of_control_packets_alone_replays(tmp_path: Path) -> None:
    arrivals = make_arrivals(50)
    arrivals.records["flow_class"] = 0
    dataset = write_trace(tmp_path / "run", arrivals)
    assert np.concatenate(list(dataset.arrivals()))["time_ns"].tolist() == arrivals.records["time_ns"].tolist()


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
    with pytest.raises(ForetailError, match=message) as caught:
        write_trace(tmp_path / "run", arrivals, batch=50)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_shadow_is_refused(tmp_path: Path) -> None:
    arrivals = make_arrivals(100)
    arrivals.records["flow_class"][50] = 1
    arrivals.shadow[50, 3] = -1
    with pytest.raises(ForetailError, match="has shadow_occupancy_average -1, which must be in"):
        write_trace(tmp_path / "run", arrivals)


def test_a_run_that_contradicts_itself_is_refused_before_the_first_arrival(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"^the run to be written to .*run contradicts itself at cell_bytes"):
        write_trace(tmp_path / "run", make_arrivals(1), cell_bytes=100)
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


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_drop_cost_that_is_none_is_refused(tmp_path: Path, wrong: float) -> None:
    rows = drop_costs(tmp_path)
    rows.loc[3, "drop_cost"] = wrong
    with pytest.raises(ForetailError, match=r"row 3 for .* has drop_cost"):
        writer.write_drop_costs(tmp_path / "costs", RUN, rows)
    assert not (tmp_path / "costs").exists()
