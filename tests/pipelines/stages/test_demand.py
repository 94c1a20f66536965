"""The stages of demand and of schedules: what they train on, choose by, score and write, and what they refuse."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from scipy.stats import ttest_1samp

from foretail.configs.schema.network.circuits import DemandConfig, ScheduleConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.core.settings import limits_of
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import DemandMatrix, DemandSequence, carried_demand
from foretail.features.rows.splits import SIDES
from foretail.models.demand.averages import LastValue, Seasonal
from foretail.models.demand.predictor_file import PREDICTORS, to_json
from foretail.models.demand.scores import choose_trust, score
from foretail.pipelines.comparison.statistics import interval_text
from foretail.pipelines.demand import DemandResult, draw_schedule
from foretail.pipelines.runs.result import plain
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.demand import demand
from foretail.pipelines.stages.schedule import ScheduleResult, schedule
from foretail.sim_bridge.circuits.demand import JOBS, permutation, random_hose, repeated, ring
from foretail.sim_bridge.circuits.schedules import IDLE, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from tests.composed import composed, options, stage_settings
from tests.etalon_logs import HEADER_BYTES, emulate, write_etalon_log
from tests.features.test_demand import TOPOLOGY, make_flows
from tests.traces import make_arrivals, write_trace

pytestmark = pytest.mark.slow

TINY = ["nodes=4", "degree=2", "steps=12", "warm_up=6", "trusts=[2,4]"]
OFF = "tracking.enabled=false"


def compared(folder: Path, *overrides: str) -> DemandResult:
    return demand(stage_settings(DemandConfig, *TINY, *overrides), folder / "run")


def document_of(result: DemandResult) -> dict[str, Any]:
    found: dict[str, Any] = plain(result.document())
    return found


def run_of(job: str, seed: int, noise: float = 0.2, run: str = "a") -> DemandSequence:
    return repeated(JOBS[job](4, 2, 1), 12, 1, run, seed, placed_at_random=True, noise=noise)


def test_figures_are_those_of_the_runs_of_each_side(tmp_path: Path) -> None:
    result = compared(tmp_path, OFF, "demand_predictor=[last_value,seasonal]", "split.train=[5,6]")
    (found,) = document_of(result)["workloads"].values()
    train = [run_of("hybrid_parallel", seed) for seed in (5, 6)]
    validation, test = (run_of("hybrid_parallel", seed) for seed in (3, 4))
    for name, predictor in (("last_value", LastValue()), ("seasonal", Seasonal())):
        predictor.fit(train)
        chosen_by = score(predictor, [validation], 2, [2, 4], routings=["single_hop"], warm_up=6)
        trust = choose_trust(chosen_by, "single_hop")
        expected = score(predictor, [test], 2, [trust], routings=["single_hop"], warm_up=6)
        got = found["predictors"][name]
        assert got["trust"] == trust
        assert got["validation"]["schedules_by_trust"].keys() == {"2", "4"}
        assert got["test"]["error"] == dataclasses.asdict(expected.error)
        worth, told = expected.schedules["single_hop", trust], got["test"]["schedules_by_trust"][str(trust)]
        assert told["by_run"] == {"hybrid_parallel, seed 4": dataclasses.asdict(worth.by_run["a"])}
        for figure in ("predicted", "true", "ratio", "least_ratio"):
            assert told[figure] == getattr(worth, figure)
    assert found["last_value"].items() <= found["predictors"]["last_value"].items()
    assert (
        found["predictors"]["seasonal"]["test"]["error"]["relative"] < found["last_value"]["test"]["error"]["relative"]
    )


def test_a_perfect_prediction_is_as_good_as_the_truth_and_better_than_the_last_value(tmp_path: Path) -> None:
    for routing in ("single_hop", "multi_hop"):
        result = compared(tmp_path, OFF, "demand_predictor=seasonal", "noise=0", f"routing={routing}")
        table, by_trust = result.tables()
        assert [ratios[2:] for ratios in by_trust.rows] == [("1", "1", 1.0)]  # of one run: no interval
        (row,) = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
        assert (row["workload"], row["predictor"], row["k"]) == ("hybrid_parallel", "seasonal", 4)
        assert row["error"] == pytest.approx(0, abs=1e-12)
        assert row["theta"] == row["truth"]
        assert isinstance(row["last value"], float)
        assert isinstance(row["truth"], float)
        assert row["last value"] < row["truth"]
        assert routing.replace("_", "-") in table.title
        first, second = result.verdict()
        assert f"seasonal, best on the validation runs, carries {row['theta']:.4g} times" in first
        assert second == "One test run cannot tell whether the difference to the last value is chance."


def test_differences_are_paired_by_run(tmp_path: Path) -> None:
    result = compared(tmp_path, OFF, "demand_predictor=[last_value,seasonal]", "split.test=[4,5,6]", "noise=0.5")
    found = document_of(result)["workloads"]["hybrid_parallel"]
    assert found["best_on_validation"] == "seasonal"
    seasonal, last = (found["predictors"][name] for name in ("seasonal", "last_value"))
    ours, theirs = (of["test"]["schedules_by_trust"][str(of["trust"])]["by_run"] for of in (seasonal, last))
    assert list(ours) == [f"hybrid_parallel, seed {seed}" for seed in (4, 5, 6)]
    less = {
        "last_value": [ours[run]["predicted"] - theirs[run]["predicted"] for run in ours],
        "truth": [ours[run]["predicted"] - ours[run]["true"] for run in ours],
    }
    for of, differences in less.items():
        expected = ttest_1samp(differences, 0.0).confidence_interval(0.95)
        told = seasonal["theta_minus"][of]
        assert told["pairs"] == 3
        assert told["mean"] == pytest.approx(np.mean(differences))
        assert (told["low"], told["high"]) == pytest.approx(tuple(expected))
    assert last["theta_minus"]["last_value"] == {"mean": 0, "low": 0, "high": 0, "pairs": 3}
    for trust, ratio in seasonal["theta_over_truth_by_trust"].items():
        by_run = seasonal["test"]["schedules_by_trust"][trust]["by_run"].values()
        assert ratio["mean"] == pytest.approx(np.mean([run["ratio"] for run in by_run]))
        assert ratio["low"] < ratio["mean"] < ratio["high"]
    (note,) = (note for note in result.tables()[0].notes if "best on the validation runs is seasonal" in note)
    assert interval_text(result.comparisons[0].differences("seasonal")["last_value"]) in note


def test_the_test_seeds_choose_nothing(tmp_path: Path) -> None:
    one, other = (
        document_of(compared(tmp_path, OFF, f"split.test=[{seed}]"))["workloads"]["hybrid_parallel"]["predictors"]
        for seed in (4, 9)
    )
    for name in one:
        assert one[name]["validation"] == other[name]["validation"]
        assert one[name]["trust"] == other[name]["trust"]
        assert one[name]["test"] != other[name]["test"]


@pytest.mark.nightly
def test_datasets_are_split_by_their_seeds(tmp_path: Path) -> None:
    folders = []
    for seed in (1, 2, 3):
        folder = tmp_path / f"run_{seed}"
        arrivals = make_arrivals(1000, seed=seed)
        arrivals.records["flow"] = np.arange(1000) % 40
        write_trace(folder, arrivals, scenario=TOPOLOGY, seed=seed)
        (folder / "run").mkdir()
        flows = make_flows(*((100 * start, 100, 50, start % 2, 2 + start % 2) for start in range(40)))
        (folder / "run" / "flows.bin").write_bytes(flows.tobytes())
        folders.append(str(folder))
    overrides = [f"datasets=[{','.join(folders)}]", "degree=1", "steps=8", "warm_up=2"]
    overrides += [OFF, "demand_predictor=last_value", "split={train:[2],validation:[1],test:[3]}"]
    for kind in ("offered", "carried"):
        tracked = (f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}", "tracking.enabled=true") * (kind == "carried")
        result = compared(tmp_path, *overrides, "interval_ns=500", f"demand={kind}", *tracked)
        found = document_of(result)["workloads"]["datasets"]
        assert found["runs"] == {"train": ["run_2, seed 2"], "validation": ["run_1, seed 1"], "test": ["run_3, seed 3"]}
        (sequence,) = result.comparisons[0].split.test
        assert (sequence.nodes, len(sequence), sequence.interval_ns) == (2, 8, 500)
        if kind == "offered":  # five flows of 50 bytes in 500 ns; an uplink carries a byte in a ns
            assert np.allclose(sequence.demand, np.array([[0, 0.5], [0, 0]]))
        else:
            assert np.array_equal(sequence.demand, carried_demand(Dataset.open(tmp_path / "run_3"), 500, 8).demand)
            assert result.tracked is not None
            inputs = MlflowClient(result.tracked["uri"]).get_run(result.tracked["run_id"]).inputs
            assert inputs is not None
            assert {item.tags[0].value for item in inputs.dataset_inputs} == set(SIDES)
    drawn = document_of(compared(tmp_path, *overrides[:-1], "interval_ns=500", "split=drawn"))["workloads"]["datasets"]
    assert sorted(run for side in SIDES for run in drawn["runs"][side]) == [f"run_{s}, seed {s}" for s in (1, 2, 3)]
    for bad, complaint in (
        ("uplink_bps=5", "is an ns-3 run and knows its uplinks: leave uplink_bps out"),
        ("interval_ns=null", "give interval_ns=..., the time of one"),
        ("split.test=[3,4]", "seed 4 of the split has no run"),
        ("split.train=[4]", "seed 4 of the split has no run"),
    ):
        with pytest.raises(ForetailError, match=complaint):
            compared(tmp_path, *overrides, "interval_ns=500", bad)


def test_packet_logs_of_etalon_are_imported_and_split_by_their_numbers(tmp_path: Path) -> None:
    paths, packets = [], []
    for seed in (1, 2, 3):
        paths.append(tmp_path / f"{seed}-click.txt")
        packets.append(emulate(racks=4, weeks=12, load=0.9, voq_packets=50, seed=seed))
        write_etalon_log(paths[-1], *packets[-1])
    logs = f"log=[{','.join(map(str, paths))}]"
    store = f"store_dir={tmp_path / 'store'}"
    given = composed("collect", "source=etalon", logs, "seeds=[1,2,3]", store)
    datasets = [str(run.path) for run in collect(typed(given, CollectConfig), tmp_path / "run").runs]
    lean = [OFF, f"datasets=[{','.join(datasets)}]", "interval_ns=600_000", "degree=1", "warm_up=2", "trusts=[2,4]"]
    lean += ["demand_predictor=last_value", "split={train:[1],validation:[2],test:[3]}"]
    etalon = ["demand=carried", "uplink_bps=80_000_000_000"]
    found = demand(stage_settings(DemandConfig, *lean, *etalon), tmp_path / "run")
    (sequence,) = found.comparisons[0].split.test
    sent = packets[2][0][packets[2][0]["payload_bytes"] > 0]
    arrived_ns = sent["time_ns"] - 1000 * sent["latency_us"].astype(np.int64)
    arrived_ns -= arrived_ns.min()
    expected = np.zeros(sequence.demand.shape)
    kept = arrived_ns < 600_000 * len(sequence)
    at = arrived_ns[kept] // 600_000, sent["source"][kept] - 1, sent["destination"][kept] - 1
    np.add.at(expected, at, sent["payload_bytes"][kept] + HEADER_BYTES)
    assert len(sequence) in (11, 12)  # weeks of 600 us
    assert np.allclose(sequence.demand, expected / 6_000_000)
    for bad in (etalon[:1], etalon[1:]):
        with pytest.raises(ForetailError, match=r"is a packet log of Etalon, .* give demand=carried and uplink_bps"):
            demand(stage_settings(DemandConfig, *lean, *bad), tmp_path / "run")


def test_settings_are_the_parameters_of_the_predictors() -> None:
    assert options("demand_predictor") == sorted(PREDICTORS)
    for name, kind in PREDICTORS.items():
        settings = composed("demand", f"demand_predictor={name}").demand_predictor[name]
        assert set(settings) - {"name"} == set(limits_of(kind))


def test_parameters_reach_the_predictors(tmp_path: Path) -> None:
    chosen = f"demand_predictor=[{','.join(PREDICTORS)}]"
    few = ["demand_predictor.history_attention.steps=5", "demand_predictor.boosted_entries.trees=3"]
    result = compared(tmp_path, OFF, chosen, *few, "demand_predictor.seasonal.period=2")
    assert {name: type(predictor) for name, predictor in result.predictors.items()} == PREDICTORS
    parameters = {name: found["parameters"] for name, found in document_of(result)["predictors"].items()}
    assert parameters["history_attention"]["steps"] == 5
    assert parameters["boosted_entries"]["trees"] == 3
    assert parameters["seasonal"] == {"period": 2, "longest": 64}
    assert parameters["linear_entries"]["shared"] is True


def scheduled(folder: Path, demand: DemandMatrix, *overrides: str) -> ScheduleResult:
    np.save(folder / "demand.npy", demand.demand)
    node = composed("schedule", f"demand={folder / 'demand.npy'}", *overrides)
    return schedule(typed(node, ScheduleConfig), folder / "run")


def schedule_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "schedule.json").read_text())
    return found


def test_the_file_holds_the_schedule_and_its_throughput(tmp_path: Path) -> None:
    demand = random_hose(8, 4)
    result = scheduled(tmp_path, demand, "degree=4", "k=3")
    document = schedule_of(tmp_path)
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
    assert schedule_of(tmp_path)["l"] == 2
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
    assert schedule_of(tmp_path)["theta_multi_hop"] is None
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
    overrides = ("degree=1", "k=2", "outputs=[c,p4]", "p4.first_port=4")
    result = scheduled(tmp_path, ring(3, 1), *overrides)
    assert set(result.files) == {"schedule.h", "p4/tor_0.p4", "p4/tor_1.p4", "p4/tor_2.p4"}
    assert all((tmp_path / "run" / name).is_file() for name in result.files)
    assert "CIRCUIT_FIRST_PORT 4\n" in (tmp_path / "run" / "p4" / "tor_1.p4").read_text()
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
    (tmp_path / "seasonal.json").write_text(to_json(trained), encoding="utf-8")
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
