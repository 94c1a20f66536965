"""The schedule stage: the files and figures that it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.network.circuits import ScheduleConfig
from foretail.core.errors import ForetailError
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.demand.averages import Seasonal
from foretail.models.demand.predictor_file import save
from foretail.pipelines.demand import draw_schedule
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.schedule import ScheduleResult, schedule
from foretail.sim_bridge.circuits.demand import permutation, random_hose, ring
from foretail.sim_bridge.circuits.schedules import IDLE, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from tests.composed import composed, stage_settings

pytestmark = pytest.mark.slow


def scheduled(folder: Path, demand: DemandMatrix, *overrides: str) -> ScheduleResult:
    np.save(folder / "demand.npy", demand.demand)
    node = composed("schedule", f"demand={folder / 'demand.npy'}", *overrides)
    return schedule(typed(node, ScheduleConfig), folder / "run")


def document_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "schedule.json").read_text())
    return found


def test_the_file_holds_the_schedule_and_its_throughput(tmp_path: Path) -> None:
    demand = random_hose(8, 4)
    result = scheduled(tmp_path, demand, "degree=4", "k=3")
    document = document_of(tmp_path)
    assert {name: document[name] for name in ("n", "degree", "k", "l", "period_slots")} == {
        "n": 8,
        "degree": 4,
        "k": 3,
        "l": 1,
        "period_slots": 6,
    }
    made = vermilion(demand, 4, 3)
    assert document["matchings"] == made.matchings.tolist()
    edges = np.zeros((8, 8), int)
    for slot, matchings in zip(document["slots"], document["matchings"], strict=True):
        flat = [[src, dst] for uplink in matchings for src, dst in enumerate(uplink) if dst != -1]
        assert slot == flat
        for src, dst in slot:
            edges[src, dst] += 1
    assert not np.diag(edges).any()
    wanted = demand.demand > 0
    assert document["theta_single_hop"] == pytest.approx((edges[wanted] / 6 / demand.demand[wanted]).min())
    assert document["theta_multi_hop"] == pytest.approx(multi_hop(demand, made.capacity).theta, abs=1e-6)
    assert result.document()["edges_per_pair"] == (edges[~np.eye(8, dtype=bool)].min(), edges.max())
    assert document["theta_single_hop"] >= result.single_hop_guarantee == pytest.approx(2 / 3)
    assert document["theta_multi_hop"] >= result.multi_hop_guarantee == pytest.approx(2 / 3)


def test_throughput_is_that_of_the_matrix_as_it_is(tmp_path: Path) -> None:
    """Not normalised, not capped at 1; tiny demand is no trouble for the solver."""
    for factor in (1.0, 0.1, 1e-9):
        found = scheduled(tmp_path, DemandMatrix(ring(8, 4).demand * factor), "degree=4", "k=10").planned
        assert found.theta_multi_hop is not None
        assert found.theta_multi_hop * factor == pytest.approx(0.95, abs=1e-6)
        assert found.theta_single_hop * factor == pytest.approx(0.9125)


def test_trust_seed_and_diagonal_reach_the_scheduler(tmp_path: Path) -> None:
    demand = DemandMatrix(np.triu(random_hose(6, 2).demand))
    result = scheduled(tmp_path, demand, "degree=2", "k=5", "l=2", "seed=7", "diagonal=reuse")
    made = vermilion(demand, 2, 5, 2, 7, "reuse")
    assert np.array_equal(result.planned.schedule.matchings, made.matchings)
    assert document_of(tmp_path)["l"] == 2
    assert result.single_hop_guarantee == pytest.approx(3 / 5)


def test_a_schedule_for_a_prediction_is_judged_on_the_demand(tmp_path: Path) -> None:
    demand, prediction = permutation(6, 2, seed=3), ring(6, 2)
    np.save(tmp_path / "prediction.npy", prediction.demand * 100)  # only its shape counts
    result = scheduled(tmp_path, demand, "degree=2", "k=4", f"prediction={tmp_path / 'prediction.npy'}")
    made = vermilion(prediction, 2, 4)
    assert np.array_equal(result.planned.schedule.matchings, made.matchings)
    assert result.planned.theta_single_hop == single_hop(demand, made.capacity)
    assert result.multi_hop_guarantee == 1 / 8
    assert result.planned.theta_single_hop >= result.single_hop_guarantee == 1 / 24
    assert "the guarantee holds however wrong it is" in " ".join(result.tables()[0].notes)


def test_a_demand_beyond_the_hose_is_scaled_only_when_asked(tmp_path: Path) -> None:
    demand = DemandMatrix(random_hose(6, 2).demand * 3)
    with pytest.raises(ForetailError, match="more than the 2 uplinks"):
        scheduled(tmp_path, demand, "degree=2", "k=3")
    result = scheduled(tmp_path, demand, "degree=2", "k=3", "scale=true")
    assert result.scaled_by == pytest.approx(1 / 3)
    assert result.planned.theta_single_hop >= 2 / 3
    assert any("scaled by 0.3333" in note for note in result.tables()[0].notes)
    smaller = scheduled(tmp_path, DemandMatrix(demand.demand / 6), "degree=2", "k=3", "scale=true")
    assert smaller.scaled_by == 1


def test_multi_hop_is_computed_by_size_or_as_told(tmp_path: Path) -> None:
    small, large = ring(4, 2), ring(40, 2)
    exact = scheduled(tmp_path, small, "degree=2", "k=3")
    assert exact.planned.theta_multi_hop is not None
    assert exact.planned.theta_multi_hop == exact.multi_hop_at_most == pytest.approx(0.8333, abs=1e-4)
    assert not any("none sends above" in note for note in exact.tables()[0].notes)
    assert scheduled(tmp_path, small, "degree=2", "k=2", "multi_hop=no").planned.theta_multi_hop is None
    assert document_of(tmp_path)["theta_multi_hop"] is None
    near = scheduled(tmp_path, small, "degree=2", "k=3", "multi_hop=primal_dual", "epsilon=0.001")
    assert near.planned.theta_multi_hop is not None
    assert near.multi_hop_at_most is not None
    assert 0.8333 / 1.001 <= near.planned.theta_multi_hop <= exact.planned.theta_multi_hop + 1e-9
    assert exact.planned.theta_multi_hop - 1e-6 <= near.multi_hop_at_most <= near.planned.theta_multi_hop * 1.001
    by_size = scheduled(tmp_path, large, "degree=2", "k=2")
    assert any("none sends above" in note for note in by_size.tables()[0].notes)
    result = scheduled(tmp_path, ring(130, 2), "degree=2", "k=2")
    assert result.planned.theta_multi_hop is None
    assert any("multi_hop=primal_dual" in note for note in result.tables()[0].notes)


def test_outputs_are_files_of_the_run(tmp_path: Path) -> None:
    overrides = ("degree=1", "k=2", "outputs=[c,p4,etalon]", "p4.first_port=4", "etalon.day_us=10", "etalon.night_us=1")
    result = scheduled(tmp_path, ring(3, 1), *overrides)
    assert set(result.files) == {"schedule.h", "schedule.etalon", "p4/tor_0.p4", "p4/tor_1.p4", "p4/tor_2.p4"}
    assert all((tmp_path / "run" / name).is_file() for name in result.files)
    assert "CIRCUIT_FIRST_PORT 4\n" in (tmp_path / "run" / "p4" / "tor_1.p4").read_text()
    assert (tmp_path / "run" / "schedule.etalon").read_text().startswith("12 200 ")
    scheduled(tmp_path, ring(2, 1), "degree=1", "k=2", "outputs=[p4]")  # replaced as a whole
    assert {path.name for path in (tmp_path / "run" / "p4").iterdir()} == {"digest.json", "tor_0.p4", "tor_1.p4"}
    (tmp_path / "run" / "p4" / "digest.json").unlink()
    with pytest.raises(ForetailError, match="p4 is not ours"):
        scheduled(tmp_path, ring(3, 1), "degree=1", "k=2", "outputs=[p4]")
    scheduled(tmp_path, ring(3, 1), "degree=1", "k=3", "outputs=[c]")  # replaced


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run" / "schedule.h").mkdir(parents=True)
    with pytest.raises(ForetailError, match=r"schedule\.h is a folder"):
        scheduled(tmp_path, ring(3, 1), "degree=1", "k=2", "outputs=[json,p4,c]")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["schedule.h"]


def test_a_prediction_of_other_nodes_or_of_nothing_is_refused(tmp_path: Path) -> None:
    for prediction, complaint in ((ring(4, 1).demand, "has 4 nodes"), (np.zeros((6, 6)), "is zero")):
        np.save(tmp_path / "prediction.npy", prediction)
        with pytest.raises(ForetailError, match=complaint):
            scheduled(tmp_path, ring(6, 2), "degree=2", "k=1", f"prediction={tmp_path / 'prediction.npy'}")


def history(folder: Path, steps: int = 8) -> np.ndarray:
    """A log of four nodes that alternates between two matrices; returns those."""
    phases = np.array([ring(4, 2).demand, permutation(4, 2, 3).demand])
    rows = [
        f"{step},{source},{destination},{phases[step % 2, source, destination]}"
        for step in range(steps)
        for source, destination in np.argwhere(phases[step % 2]).tolist()
    ]
    (folder / "log.csv").write_text("\n".join(["step,source,destination,demand", *rows]) + "\n")
    return phases


def test_a_forecast_becomes_a_schedule_in_one_command(tmp_path: Path) -> None:
    phases = history(tmp_path)
    log = f"history=[{tmp_path / 'log.csv'}]"

    def made(forecast: str, *overrides: str) -> ScheduleResult:
        node = composed("schedule", "demand=null", f"forecast={forecast}", log, "degree=2", "k=6", *overrides)
        return schedule(typed(node, ScheduleConfig), tmp_path / "run")

    seasonal = made("seasonal")  # the first of the two comes next
    expected = vermilion(DemandMatrix(phases[0]), 2, 6)
    assert np.array_equal(seasonal.planned.schedule.matchings, expected.matchings)
    assert (seasonal.predicted, seasonal.on_forecast) == (True, True)
    assert "No demand was given: throughput is that on the forecast." in seasonal.tables()[0].notes
    np.save(tmp_path / "truth.npy", phases[0])
    last = made("last_value", f"demand={tmp_path / 'truth.npy'}")
    assert not last.on_forecast
    assert last.planned.theta_single_hop < seasonal.planned.theta_single_hop
    trained = Seasonal().fit(read_demand_logs([tmp_path / "log.csv"], Steps()))
    save(trained, tmp_path / "seasonal.json")
    again = made(str(tmp_path / "seasonal.json"))
    assert np.array_equal(again.planned.schedule.matchings, expected.matchings)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ([], "the setting demand is missing: give demand=FILE, or forecast="),
        (["forecast=seasonal"], "forecast and history belong together"),
        (["demand=a.csv", "history=[a.csv]"], "forecast and history belong together"),
        (["forecast=seasonal", "history=[a.csv]", "prediction=b.csv"], "leave one of the two out"),
        (
            ["forecast=prophet", "history=[log.csv]"],
            "forecast=prophet is no demand predictor: .* last_value",
        ),
        (["forecast=a.json", "history=[log.csv]"], "a.json cannot be read"),
    ],
)
def test_forecasts_that_cannot_be(
    overrides: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    history(tmp_path)
    with pytest.raises(ForetailError, match=complaint):
        schedule(stage_settings(ScheduleConfig, "demand=null", "degree=2", "k=6", *overrides), tmp_path / "run")


def test_the_figure_shows_slots_by_ports_and_the_demand_beside_what_it_serves(tmp_path: Path) -> None:
    demand = random_hose(4, 4)
    result = scheduled(tmp_path, demand, "degree=4", "k=3", "outputs=[png,json]")
    assert set(result.files) == {"schedule.json", "schedule.png"}
    assert set(result.document()["captions"]) == {"schedule"}
    assert (tmp_path / "run" / "schedule.png").read_bytes().startswith(b"\x89PNG")
    made = result.planned.schedule
    figure = draw_schedule(made, demand, "forecast")
    figure.draw_without_rendering()
    slots, wanted_axes = figure.axes[:2]
    assert wanted_axes.get_title() == "forecast"
    assert all(tick == int(tick) for tick in slots.get_xticks())
    images = [axes.images[0] for axes in figure.axes if axes.images]
    ports, wanted, served = (np.ma.masked_array(image.get_array()) for image in images)
    assert ports.shape == (4 * 4, made.period)
    assert ports[4 * 3 + 2].filled(IDLE).tolist() == made.matchings[:, 2, 3].tolist()
    assert np.array_equal(wanted, demand.demand)
    assert np.array_equal(served, made.capacity)
    assert images[1].get_clim() == images[2].get_clim()


def test_what_takes_minutes_is_said_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduled(tmp_path, ring(8, 4), "degree=4", "k=3")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("foretail.pipelines.stages.schedule.SLOW_NODES", 8)
    scheduled(tmp_path, ring(8, 4), "degree=4", "k=3")
    assert "a schedule of 8 nodes takes minutes" in capsys.readouterr().err
