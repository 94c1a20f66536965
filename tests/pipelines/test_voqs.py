"""``foretail emulate experiment=etalon``. Costs the build of the emulator, unless it is built, and 4 s of emulation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from foretail.configs.schema.emulation import EmulateConfig
from foretail.core.errors import ForetailError
from foretail.export.schedule.json_text import schedule_json
from foretail.export.schedule.planned import PlannedSchedule
from foretail.pipelines.experiments.frame import ExperimentResult
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.emulate import emulate
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.emulator.emulator import why_not_here
from tests.composed import composed

pytestmark = pytest.mark.slow

TINY = ("experiment=etalon", "size=small", "voqs.small.weeks=5", "emulation.factor=400", "emulation.lateness_share=1")


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
    assert list(rows["longest_voq"][:2]) == [4, 16]
    assert 16 < rows["longest_voq"][2] <= 50
    assert (rows["utilisation_percent"] > 0).all()
    assert (rows["weeks"] == 2).all()
    assert {path.name for path in result.files} == {"etalon.csv", "etalon.pdf", "etalon.png", "etalon.svg"}
    assert (folder / "runs" / "static_4" / "etalon.log").is_file()
    assert result.verdict()[-1].endswith(("in time.", "say nothing."))


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("voqs.small.source_rack=2", "and flows inside a rack cross no VOQ"),
        ("voqs.small.destination_racks=[4]", "has flows of rack 4, and voqs.small.fabric.racks = 3"),
        ("voqs.small.destination_racks=[]", "destination_racks is empty"),
        ("voqs.small.policies=[lqd]", "policies and voqs.small.shared_packets go together"),
        ("voqs.small.policies=[abm]", "policies = abm is unknown"),
        ("model=x", "model means nothing to voqs="),
        ("voqs.small.fabric.hosts_per_rack=129", "hosts_per_rack = 129 is out of range"),
        ("voqs.small.static_packets=[0]", "static_packets = 0 is out of range"),
        ("voqs.small.resized_packets=8", "resized_packets = 8 is less than"),
        ("voqs.small.weeks=3", "leaves none to count"),
        ("voqs.small.fabric.night_ns=180001", "night_ns = 180001 is longer than"),
        ("policy=[lqd]", "policy means nothing to voqs="),
        ("scenario=tiny", "scenario means nothing to voqs="),
        ("command=[true]", "command means nothing to voqs="),
        ("ns3_prefix=x", "ns3_prefix means nothing to voqs="),
        ("voqs.small.ns3_weeks=3", "ns3_weeks = 3 leaves none to count"),
    ],
)
def test_settings_that_make_no_experiment_are_refused(override: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        config_of(override)


def test_an_experiment_of_nothing_and_one_of_too_many_hosts_are_refused() -> None:
    with pytest.raises(ForetailError, match="compares nothing: give"):
        config_of("voqs.small.static_packets=[]", "voqs.small.ahead_ns=[]")
    with pytest.raises(ForetailError, match="has 300 hosts, and a process each"):
        config_of("voqs.small.fabric.hosts_per_rack=100", "voqs.small.destination_racks=[2,3]")


def test_credence_without_a_predictor_is_refused() -> None:
    given = ("voqs.small.policies=[credence]", "voqs.small.shared_packets=[32]", "train=[]")
    with pytest.raises(ForetailError, match="policy credence asks a predictor and there is none: give model=FILE"):
        config_of(*given)
    with pytest.raises(ForetailError, match="model and train are both given"):
        config_of(*given, "model=x", "train=['scenario=tiny']")
    assert config_of(*given, "model=x").asking == ["credence"]
    assert config_of("voqs.small.policies=[credence_accept]", "voqs.small.shared_packets=[32]").asking == []


def test_shared_buffers_have_their_own_table_and_figure(tmp_path: Path) -> None:
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    given = (*TINY[1:], "experiment=voq_sharing")
    result = emulate(typed(composed("emulate", *given), EmulateConfig, given), tmp_path)
    assert isinstance(result, ExperimentResult)
    static, resized, shared, _ = result.tables()
    assert [row[0] for row in static.rows] == [16]
    assert [row[0] for row in resized.rows] == [100.0]
    assert [row[:2] for row in shared.rows] == [("lqd", 32)]
    assert not any("published" in column for column in shared.columns)
    assert "mean over the racks" in static.notes[-1]
    assert (tmp_path / "voq_sharing.svg").is_file()


def test_ns3_is_compared_with_what_it_has_too() -> None:
    assert config_of("against_ns3=true", "ns3_prefix=x", "emulation.control=reno").emulation.in_ns3 == "newreno"
    with pytest.raises(ForetailError, match="compares Linux's bbr with ns-3's, which has none for racks"):
        config_of("against_ns3=true", "emulation.control=bbr")
    with pytest.raises(ForetailError, match=r"leave emulation\.background_control out"):
        config_of("against_ns3=true", "emulation.background_control=reno")


@pytest.mark.ns3
def test_ns3_stands_beside_the_emulator_and_what_is_published(tmp_path: Path) -> None:
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    given = (
        "+voqs.small.published={static_4: {utilisation_percent: 21.25, p50_us: 42, p99_us: 52}}",
        "voqs.small.published_by='somebody: a paper'",
        *("against_ns3=true", "voqs.small.ns3_weeks=20"),
    )
    result = emulate(config_of(*given), tmp_path)
    assert isinstance(result, ExperimentResult)
    static, resized, beside, _ = result.tables()
    assert not any("published" in column for table in (static, resized) for column in table.columns)
    assert beside.columns == (
        *("run", "use %", "ns-3 use %", "published use %", "p50 us", "ns-3 p50 us", "published p50 us"),
        *("p99 us", "ns-3 p99 us", "published p99 us"),
    )
    assert [row[0] for row in beside.rows] == ["static_4", "static_16", "resize_100000ns"]
    assert [row[3] for row in beside.rows] == [21.25, None, None]
    assert "cubic, the same documents, 17 weeks" in beside.notes[0]
    rows = pd.read_csv(tmp_path / "etalon.csv")
    assert list(rows["ns3_utilisation_percent"]) == pytest.approx([row[2] for row in beside.rows])
    assert (rows["ns3_weeks"] == 17).all()
    assert list(rows["ns3_longest_voq"][:2]) == [4, 16]
    assert {run["ns3_p50_us"] for run in result.document()["runs"]} == set(rows["ns3_p50_us"])
    assert (tmp_path / "runs_in_ns3" / "static_4" / "etalon.log").is_file()


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
