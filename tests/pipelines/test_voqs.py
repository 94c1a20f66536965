"""``foretail emulate experiment=etalon``. Costs the build of the emulator, unless it is built, and 3 s of emulation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from foretail.configs.schema.emulation import EmulateConfig
from foretail.export.schedule.json_text import schedule_json
from foretail.export.schedule.planned import PlannedSchedule
from foretail.features.errors import ForetailError
from foretail.pipelines.experiments.frame import ExperimentResult
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.emulate import emulate
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.emulator.emulator import why_not_here
from tests.composed import composed

pytestmark = pytest.mark.slow

TINY = ("experiment=etalon", "size=small", "voqs.small.weeks=5", "emulation.factor=100", "emulation.lateness_share=1")


def config_of(*overrides: str) -> EmulateConfig:
    given = (*TINY, *overrides)
    return typed(composed("emulate", *given), EmulateConfig, given)


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
        "+voqs.small.published={static_4: {utilisation_percent: 21.25, p50_us: 42, p99_us: 52}}",
        "voqs.small.published_by='somebody: a paper'",
        f"voqs.small.fabric.schedule={schedule_file(folder, round_robin(3, 1))}",
    )
    result = emulate(config_of(*given), folder)
    assert isinstance(result, ExperimentResult)
    return result, folder


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
    assert list(rows["longest_voq"]) == [4, 16, 50]
    assert (rows["utilisation_percent"] > 0).all()
    assert (rows["weeks"] == 2).all()
    assert {path.name for path in result.files} == {"etalon.csv", "etalon.pdf", "etalon.png", "etalon.svg"}
    assert (folder / "runs" / "static_4" / "etalon.log").is_file()
    assert result.verdict()[-1].endswith(("in time.", "say nothing."))


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("voqs.small.source_rack=2", "are both 2, and flows inside a rack cross no VOQ"),
        ("voqs.small.destination_rack=4", "destination_rack = 4 is no rack"),
        ("voqs.small.static_packets=[0]", "static_packets = 0 is out of range"),
        ("voqs.small.static_packets=[]", "static_packets is empty"),
        ("voqs.small.resized_packets=8", "resized_packets = 8 is less than"),
        ("voqs.small.weeks=3", "leaves none to count"),
        ("voqs.small.fabric.night_ns=180001", "night_ns = 180001 is longer than"),
        ("policy=[lqd]", "policy means nothing to voqs="),
        ("scenario=tiny", "scenario means nothing to voqs="),
    ],
)
def test_settings_that_make_no_experiment_are_refused(override: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        config_of(override)


def test_figures_of_nobody_are_refused() -> None:
    with pytest.raises(ForetailError, match="published has figures of nobody"):
        config_of("+voqs.small.published={static_4: {utilisation_percent: 21.25, p50_us: 42, p99_us: 52}}")


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        (round_robin(4, 1), "is one of 4 nodes, and the fabric has 3 racks"),
        (round_robin(3, 2), "has degree 2, and a rack has one circuit at a time"),
        (Schedule([[[2, 0, 1]]]), "never gives rack 1 a circuit to rack 2"),  # type: ignore[arg-type]
    ],
)
def test_schedules_that_do_not_fit_are_refused(tmp_path: Path, schedule: Schedule, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        emulate(config_of(f"voqs.small.fabric.schedule={schedule_file(tmp_path, schedule)}"), tmp_path)


def test_a_schedule_that_is_none_and_growth_before_the_schedule_began_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="cannot read the schedule"):
        emulate(config_of(f"voqs.small.fabric.schedule={tmp_path / 'none.json'}"), tmp_path)
    with pytest.raises(ForetailError, match="cannot grow 400000 ns before its circuit"):
        emulate(config_of("voqs.small.ahead_ns=[400_000]"), tmp_path)
