"""``foretail run etalon``. Costs the build of the emulator, unless it is built, and 4 s of emulation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from foretail.export.schedule import PlannedSchedule, schedule_json
from foretail.pipelines.experiment.catalog import ExperimentResult
from foretail.sim_bridge.circuits.schedules import Schedule, round_robin
from foretail.sim_bridge.emulator.emulator import why_not_here
from tests.composed import run_of
from tests.refusals import refusing

pytestmark = pytest.mark.slow

TINY = ("size=small", "tracking=off", "weeks=5", "emulation.factor=400", "emulation.lateness_share=1")


def schedule_file(folder: Path, schedule: Schedule) -> Path:
    (folder / "schedule.json").write_text(schedule_json(PlannedSchedule(schedule, None, None, 0.0, None)))
    return folder / "schedule.json"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExperimentResult, Path]:
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("voqs")
    given = (
        "+published={static_4: {utilisation_percent: 21.25, p50_us: 42, p99_us: 52}}",
        "published_by='somebody: a paper'",
        f"fabric.schedule={schedule_file(folder, round_robin(3, 1))}",
    )
    result = run_of("etalon", folder, *TINY, *given)
    return result, folder


@pytest.mark.nightly
def test_every_capacity_and_every_resize_has_its_row_beside_what_is_published(
    measured: tuple[ExperimentResult, Path],
) -> None:
    result, folder = measured
    static, resized, lateness = result.tables()
    assert [row[0] for row in static.rows] == [4, 16]
    assert [row[0] for row in resized.rows] == [100.0]
    assert [row[0] for row in lateness.rows] == ["static_4", "static_16", "resize_100000ns"]
    assert [row[2] for row in static.rows] == [21.25, None]
    assert "cubic" in static.notes[0]
    assert "somebody" in static.notes[-1]
    rows = pd.read_csv(folder / "etalon.csv")
    assert list(rows["longest_voq"][:2]) == [4, 16]
    assert 16 < rows["longest_voq"][2] <= 50
    assert (rows["utilisation_percent"] > 0).all()
    assert (rows["weeks"] == 2).all()
    assert {path.name for path in result.files} == {"etalon.csv", "etalon.parquet"}
    assert (folder / "runs" / "static_4" / "etalon.log").is_file()
    assert result.verdict()[-1].endswith(("in time.", "say nothing."))


@pytest.mark.nightly
def test_shared_buffers_have_their_own_table(tmp_path: Path) -> None:
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    result = run_of("voq_sharing", tmp_path, *TINY)
    static, resized, shared, _ = result.tables()
    assert [row[0] for row in static.rows] == [16]
    assert [row[0] for row in resized.rows] == [100.0]
    assert [row[:2] for row in shared.rows] == [("lqd", 32)]
    assert not any("published" in column for column in shared.columns)
    assert "mean over the racks" in static.notes[-1]


def etalon(folder: Path, *overrides: str) -> object:
    return run_of("etalon", folder, *TINY, *overrides)


def on_schedule(folder: Path, schedule: Schedule) -> object:
    return etalon(folder, f"fabric.schedule={schedule_file(folder, schedule)}")


SHARED = ("policies=[lqd]", "packet_bytes=8999")
test_racks_that_cannot_be_emulated_are_refused = refusing(
    (lambda folder: on_schedule(folder, round_robin(4, 1)), "is one of 4 nodes, and the fabric has 3 racks"),
    (lambda folder: on_schedule(folder, round_robin(3, 2)), "has degree 2, and a rack has one circuit at a time"),
    (
        lambda folder: on_schedule(folder, Schedule([[[2, 0, 1]]])),  # type: ignore[arg-type]
        "never gives rack 1 a circuit to rack 2",
    ),
    (lambda folder: etalon(folder, f"fabric.schedule={folder / 'none.json'}"), "the schedule .* cannot be read"),
    (lambda folder: etalon(folder, "ahead_ns=[400_000]"), "cannot grow 400000 ns before its circuit"),
    (lambda folder: etalon(folder, "emulation.factor=1", "min_rto_ns=1000"), "Linux takes no less than 1 ms"),
    (lambda folder: etalon(folder, "weeks=10000", "emulation.factor=1000000"), "is more than a day"),
    (lambda folder: etalon(folder, *SHARED, "shared_packets=[1]"), "has 8999 bytes, and a switch 9000 to"),
    (
        lambda folder: etalon(folder, SHARED[0], "shared_packets=[8]", "fabric.circuit_bps=1000000"),
        "raise fabric.day_ns",
    ),
)
