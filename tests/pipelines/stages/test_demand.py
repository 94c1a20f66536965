"""The demand stage: what it trains on, chooses by and scores, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from scipy.stats import ttest_1samp

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.matrix import DemandSequence, carried_demand
from foretail.features.rows.splits import SIDES
from foretail.models.demand.averages import LastValue, Seasonal
from foretail.models.demand.predictor_file import PREDICTORS
from foretail.models.demand.scores import choose_trust, score
from foretail.pipelines.comparison.statistics import interval_text
from foretail.pipelines.demand import DemandResult
from foretail.pipelines.runs.result import plain
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.demand import demand
from foretail.sim_bridge.circuits.demand import JOBS, repeated
from foretail.sim_bridge.imports.synthetic import HEADER_BYTES, emulate, write_etalon_log
from tests.composed import composed, options, stage_settings
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
        assert set(settings) - {"name"} == set(kind.constraints())


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
