"""``foretail replay arrivals=FILE``: the figures of the slow model, and one sentence about whatever is wrong."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.policies import OF_ARRIVALS
from foretail.features.catalog import FEATURE_GROUPS, FEATURES, FLOW_FEATURES, PAPER_FEATURES, feature, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import SwitchGeometry
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import POLICY
from foretail.models.scoring.metrics import scores
from foretail.pipelines import cli
from foretail.pipelines.exporting.network import decider_of
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import bytes_sent, compare_replays, replay_scores
from foretail.sim_bridge.open_loop.scores import Comparison, Decider, SentScores
from tests.composed import result_in
from tests.sim_bridge.slow_models.lqd import Settings
from tests.sim_bridge.slow_models.slotted import reduced, run_slotted
from tests.traces import RUN, make_arrivals, write_slots, write_trace

pytestmark = pytest.mark.slow
PORTS, BUFFER = 4, 12


def bursts(seed: int = 3) -> tuple[list[int], list[int]]:
    """Slots and ports of bursts that fill the buffer from one port, each followed by traffic to all and some rest."""
    draw = np.random.default_rng(seed)
    slots, ports = [], []
    for slot in range(160):
        phase, hot = slot % 16, slot // 16 % PORTS
        for _ in range(PORTS if phase < 12 else 0):
            slots.append(slot)
            ports.append(hot if phase < 6 or draw.random() < 0.3 else int(draw.integers(0, PORTS)))
    return slots, ports


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def replayed(folder: Path, *overrides: str, file: str = "a.csv") -> dict[str, Any]:
    switch = [f"ports={PORTS}", f"buffer={BUFFER}"]
    assert cli.main(["replay", f"arrivals={file}", *switch, "hydra.run.dir=run", *overrides]) == 0
    return result_in(folder / "run")


def test_every_policy_transmits_what_the_slow_model_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots, ports = bursts()
    write_slots(folder / "a.csv", slots, ports)
    found = replayed(folder, "optimum=true")
    said = capsys.readouterr()
    assert said.err == ""
    assert (found["stage"], found["ports"], found["buffer"], found["arrivals"]) == (
        "replay",
        PORTS,
        BUFFER,
        len(slots),
    )
    assert set(found["policies"]) == set(OF_ARRIVALS)
    lqd = run_slotted("lqd", PORTS, BUFFER, slots, ports)
    for policy, figures in found["policies"].items():
        slow = run_slotted(policy, PORTS, BUFFER, slots, ports, predictions=lqd.lqd_drop)
        assert figures["transmitted"] == slow.transmitted, policy
        assert figures["dropped"] == len(slots) - slow.transmitted
        assert figures["throughput_ratio_to_lqd"] == slow.transmitted / lqd.transmitted
        assert figures["throughput_ratio_to_optimum"] == slow.transmitted / found["optimum"] <= 1
        assert f"{policy} " in said.out
    predictions = found["predictions"]
    assert (predictions["source"], predictions["eta"], predictions["closed_form_eta"]) == ("perfect", 1, 1)
    assert predictions["recovered_loss"] == 1
    assert predictions["scores"]["whole"]["rows"] == len(slots)
    assert 0 < predictions["scores"]["asked"]["rows"] < len(slots)
    assert predictions["scores"]["whole"]["f1"] == 1


def test_a_column_of_predictions_is_used_unless_others_are_asked_for(folder: Path) -> None:
    slots, ports = bursts()
    lqd = run_slotted("lqd", PORTS, BUFFER, slots, ports)
    draw = np.random.default_rng(5)
    told = [int(label) ^ int(draw.random() < 0.2) for label in lqd.lqd_drop]
    write_slots(folder / "a.csv", slots, ports, prediction=told)
    found = replayed(folder, "policies=[dt,credence]")
    assert list(found["policies"]) == ["dt", "credence", "lqd"]
    credence = run_slotted("credence", PORTS, BUFFER, slots, ports, predictions=told)
    assert found["policies"]["credence"]["transmitted"] == credence.transmitted
    assert found["optimum"] is None
    predictions = found["predictions"]
    assert (predictions["source"], predictions["column"]) == ("column", "prediction")
    follow = run_slotted("followlqd", PORTS, BUFFER, *reduced(slots, ports, told)).transmitted
    accept = run_slotted("followlqd", PORTS, BUFFER, slots, ports).transmitted
    assert predictions["eta"] == lqd.transmitted / follow
    assert predictions["inverse_eta"] == follow / lqd.transmitted
    sent = run_slotted("credence", PORTS, BUFFER, slots, ports, predictions=told).transmitted
    assert (predictions["policy"], predictions["sent_packets"]) == ("credence", sent)
    assert predictions["recovered_loss"] == (sent - accept) / (lqd.transmitted - accept)
    assert predictions["sent_percent_of_lqd"] == 100 * sent / lqd.transmitted
    asked = run_slotted("credence", PORTS, BUFFER, slots, ports, predictions=lqd.lqd_drop).asked
    expected = scores(
        np.array(lqd.lqd_drop, np.bool_), np.array(told, np.bool_), ports=PORTS, asked=np.array(asked, np.bool_)
    )
    assert predictions["scores"] == expected
    assert predictions["closed_form_eta"] == expected["whole"]["closed_form_eta"]
    assert replayed(folder, "predictions=perfect")["predictions"]["scores"]["whole"]["f1"] == 1
    ignored = replayed(folder, "predictions=accept")["predictions"]
    assert (ignored["recovered_loss"], ignored["scores"]["whole"]["precision"]) == (0, None)
    write_slots(folder / "b.csv", slots, ports, forest=told)
    renamed = replayed(folder, "prediction_column=forest", file="b.csv")["predictions"]
    assert renamed == predictions | {"column": "forest"}


def test_rules_and_parameters_reach_the_policies(folder: Path) -> None:
    slots, ports = bursts()
    priority = [slot % 2 for slot in slots]
    first_rtt = [slot % 3 == 0 for slot in slots]
    write_slots(folder / "a.csv", slots, ports, priority=priority, first_rtt=list(map(int, first_rtt)))
    found = replayed(
        folder,
        *("parameters.alpha=[0.25,1]", "parameters.first_rtt_alpha=8", "parameters.rtt_slots=7"),
        *("parameters.low_pass_slots=20", "parameters.spare_bandwidth=0.5", "parameters.bucket_packets=2"),
        *("rules.counting=uncounted", "rules.tie=highest_port", "rules.victim=head"),
        *("rules.order=lower_classes_first", "parameters.scheduler=deficit_round_robin", "parameters.quanta=[1,3]"),
    )
    rules: dict[str, Any] = {"counting": "uncounted", "tie": "highest_port", "victim": "head"}
    classes: dict[str, Any] = {"queues": 2, "scheduler": "deficit_round_robin", "quanta": [1, 3]}
    rules |= {"order": "lower_classes_first", "priority": np.array(priority, np.uint8), **classes}
    slot, port = np.array(slots, np.int64), np.array(ports, np.int32)
    for policy in ("cs", "cp", "dt", "harmonic", "abm", "reverie", "occamy"):
        native = slotted(
            policy,
            PORTS,
            BUFFER,
            slot,
            port,
            first_rtt=np.array(first_rtt, np.uint8),
            **rules,
            alpha=[0.25, 1.0],
            first_rtt_alpha=8.0,
            rtt_slots=7,
            low_pass_slots=20,
            spare_bandwidth=0.5,
            bucket_packets=2,
        )
        assert found["policies"][policy]["transmitted"] == native["transmitted"], policy
    lqd = slotted("lqd", PORTS, BUFFER, slot, port, **rules)
    assert found["policies"]["lqd"]["transmitted"] == lqd["transmitted"]
    assert found["predictions"]["scores"]["whole"]["true_positives"] == int(lqd["lqd_drop"].sum())


def inputs(cell_bytes: int, shift: int) -> tuple[FeatureInput, ...]:
    known = [item for item in FEATURES if item.name not in FLOW_FEATURES]  # slots know no flows
    return tuple(FeatureInput(item.name, item.params(cell_bytes, shift), item.bits) for item in known)


def test_a_model_sees_the_features_of_the_labelling_run(folder: Path) -> None:
    slots, ports = bursts()
    first_rtt = (np.arange(len(slots)) % 5 < 2).astype(np.uint8)
    write_slots(folder / "a.csv", slots, ports, first_rtt=first_rtt.tolist())
    slot, port = np.array(slots, np.int64), np.array(ports, np.int32)
    lqd = slotted(
        "lqd", PORTS, BUFFER, slot, port, first_rtt=first_rtt, average_shift=3, features=True, cell_bytes=1024
    )
    x, truth = lqd["features"][:, : -len(FLOW_FEATURES)], lqd["lqd_drop"].view(np.bool_)
    assert x[:, [item.name for item in FEATURES].index("first_rtt")].tolist() == first_rtt.tolist()
    model = RandomForest(trees=3, depth=3, seed=1).fit(x, truth).to_ensemble(inputs(1024, 13))
    model.save(folder / "ensemble.json")
    found = replayed(folder, "model=ensemble.json", "policies=[credence]", "own_queues=true")
    told = model.exceeds(x)
    assert 0 < np.count_nonzero(told) < len(told)
    asked = slotted("credence", PORTS, BUFFER, slot, port, lqd["lqd_drop"])["asked"].view(np.bool_)
    expected = scores(truth, told, ports=PORTS, score=model.probability(x), asked=asked)
    assert found["predictions"]["scores"].keys() == expected.keys()
    for region, named in expected.items():
        assert found["predictions"]["scores"][region] == pytest.approx(named)
    assert (found["predictions"]["source"], found["predictions"]["ensemble_sha256"]) == ("model", model.sha256)
    decides = run_slotted(
        *("credence", PORTS, BUFFER, slots, ports),
        first_rtt=first_rtt.tolist(),
        predictor=lambda row: bool(model.exceeds(np.array([row[: -len(FLOW_FEATURES)]]))[0]),
        settings=Settings(average_shift=3),
    )
    assert found["policies"]["credence"]["transmitted"] == decides.transmitted


@pytest.mark.parametrize("group", FEATURE_GROUPS)
def test_a_dataset_and_a_file_of_the_same_packets_give_equal_scores(folder: Path, group: str) -> None:
    names = FEATURE_GROUPS[group]
    workload, cell_bytes = Incast(fan_in=PORTS), 2 ** (3 * sorted(FEATURE_GROUPS).index(group) % 11)
    packets = list(workload.batches(PORTS, 8 * PORTS, 2_000, 1))
    run = slotted_run(workload, PORTS, 8, 2_000, 1, cell_bytes=cell_bytes)
    write_open_loop_dataset(folder / "dataset", run, arrivals_in_bytes(packets))
    rows = Dataset.open(folder / "dataset").frame()
    x = rows[list(training_columns(names, own_queues=False))].to_numpy()
    params = (FeatureInput(name, feature(name).params(cell_bytes, 15), feature(name).bits) for name in names)
    forest = RandomForest(trees=3, depth=3, seed=1).fit(x, rows["lqd_drop"].to_numpy())
    replace(forest.to_ensemble(tuple(params)), origin={POLICY: "learned"}).save(folder / "ensemble.json")
    slots, ports = (np.concatenate([getattr(batch, name) for batch in packets]).tolist() for name in ("slot", "port"))
    write_slots(folder / "a.csv", slots, ports)
    common = ["model=ensemble.json", "policies=[dt,credence,learned]", "hydra.run.dir=run"]
    of_file = replayed(folder, *common, f"buffer={8 * PORTS}")
    assert cli.main(["replay", "datasets=[dataset]", *common]) == 0
    of_dataset = result_in(folder / "run")
    same = ("scores", "eta", "recovered_loss", "sent_percent_of_lqd")
    assert {name: of_file["predictions"][name] for name in same} == {
        name: of_dataset["predictions"][name] for name in same
    }
    for policy, figures in of_file["policies"].items():
        assert figures["asked"] == of_dataset["policies"][policy]["asked"]
        assert figures["predicted_drops"] == of_dataset["policies"][policy]["predicted_drops"]
        assert figures["transmitted"] == of_dataset["policies"][policy]["transmitted"]
    for document in (of_file, of_dataset):
        assert "under Learned rule, the predictor sends " in " ".join(document["verdict"])
        sent = {name: figures["transmitted"] for name, figures in document["policies"].items()}
        assert document["predictions"]["sent_percent_of_lqd"] == pytest.approx(100 * sent["learned"] / sent["lqd"])
    assert of_file["predictions"]["scores"]["whole"]["f1"] > 0


TRACE_PORTS = 10
SCENARIO = {"name": "made_up", "topology": {"wire_overhead_bytes": 2}}


@pytest.fixture
def traces(folder: Path) -> list[Dataset]:
    """Two runs of random arrivals on slow links, so that buffers overflow."""
    switches = (
        SwitchGeometry(4, 9000, (10**9,) * 4),
        SwitchGeometry(TRACE_PORTS, 12_000, (5 * 10**8,) * TRACE_PORTS),
    )
    return [
        write_trace(
            folder / f"trace-{seed}", make_arrivals(3000, seed), seed=seed, scenario=SCENARIO, switches=switches
        )
        for seed in (1, 2)
    ]


def replayed_of_replay_datasets(folder: Path, *overrides: str) -> dict[str, Any]:
    assert cli.main(["replay", "datasets=[trace-1,trace-2]", "hydra.run.dir=run", *overrides]) == 0
    return result_in(folder / "run")


def labels(dataset: Dataset) -> dict[str, Any]:
    frame = dataset.frame(["lqd_drop", "shadow_asked"])
    return {str(name): frame[name].to_numpy(np.bool_) for name in frame}


def assert_worth(
    found: dict[str, Any],
    traces: list[Dataset],
    predicted: list[Any],
    score: list[Any] | None = None,
    decider: Decider | None = None,
) -> None:
    worth = SentScores.together([replay_scores(d, p, decider) for d, p in zip(traces, predicted, strict=True)])
    assert [found[f"{name}_bytes"] for name in vars(worth)] == list(vars(worth).values())
    assert (found["eta"], found["recovered_loss"]) == (worth.eta, worth.recovered_loss)
    assert found["sent_percent_of_lqd"] == worth.sent_percent_of_lqd
    expected = scores(
        np.concatenate([labels(dataset)["lqd_drop"] for dataset in traces]),
        np.concatenate(predicted),
        ports=TRACE_PORTS,
        score=None if score is None else np.concatenate(score),
        asked=np.concatenate([labels(dataset)["shadow_asked"] for dataset in traces]),
    )
    assert found["scores"] == expected
    assert found["closed_form_eta"] == expected["whole"]["closed_form_eta"]


def test_bytes_and_packets_of_every_policy_over_all_datasets(
    folder: Path, traces: list[Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed_of_replay_datasets(folder)
    said = capsys.readouterr()
    assert said.err == ""
    assert set(found["policies"]) == set(OF_ARRIVALS)
    predicted = [labels(dataset)["lqd_drop"] for dataset in traces]
    compared = Comparison.together([compare_replays(d, OF_ARRIVALS, p) for d, p in zip(traces, predicted, strict=True)])
    assert found["arrivals"] == sum(dataset.manifest.rows for dataset in traces)
    for policy, figures in found["policies"].items():
        assert figures["transmitted"] == compared.transmitted[policy]
        assert figures["transmitted_bytes"] == compared.scored[policy]
        assert figures["transmitted"] + figures["dropped"] == found["arrivals"]
        assert figures["transmitted_bytes"] + figures["dropped_bytes"] == found["arrived_bytes"]
        assert figures["throughput_ratio_to_lqd"] == compared.scored[policy] / compared.scored["lqd"]
        assert f"{policy} " in said.out
    assert [(item["path"], item["seed"]) for item in found["datasets"]] == [("trace-1", 1), ("trace-2", 2)]
    assert [item["content_sha256"] for item in found["datasets"]] == [d.manifest.content_sha256 for d in traces]
    assert found["predictions"]["source"] == "perfect"
    assert "push nothing out and ask no predictor" in found["verdict"][0]
    assert found["verdict"][1].startswith("Credence was told what LQD drops, which no switch knows, and sends ")
    assert_worth(found["predictions"], traces, predicted)


def test_flipped_and_no_predictions(folder: Path, traces: list[Dataset]) -> None:
    found = replayed_of_replay_datasets(
        folder, "policies=[dt]", "predictions=flipped", "flip_probability=0.2", "prediction_seed=4"
    )
    draw = np.random.default_rng(4)
    predicted = [labels(dataset)["lqd_drop"] for dataset in traces]
    predicted = [truth ^ (draw.random(len(truth)) < 0.2) for truth in predicted]
    assert (found["predictions"]["flip_probability"], found["predictions"]["seed"]) == (0.2, 4)
    assert_worth(found["predictions"], traces, predicted)
    none = replayed_of_replay_datasets(folder, "policies=[dt]", "predictions=accept")
    assert list(none["policies"]) == ["dt", "lqd"]
    nothing = [np.zeros(len(truth), np.bool_) for truth in predicted]
    assert_worth(none["predictions"], traces, nothing)
    assert none["predictions"]["scores"]["whole"]["recall"] == 0


def trained(cell_bytes: int = RUN.cell_bytes) -> Ensemble:
    draw = np.random.default_rng(1)
    x = draw.integers(0, 2**24, (2000, len(PAPER_FEATURES)))
    params = [feature(name).params(cell_bytes, RUN.average_shift) for name in PAPER_FEATURES]
    inputs = [FeatureInput(name, constants, 24) for name, constants in zip(PAPER_FEATURES, params, strict=True)]
    return RandomForest(trees=3, depth=3, seed=1).fit(x, x[:, 0] + x[:, 3] > 2**24).to_ensemble(inputs)


def test_datasets_that_the_model_has_seen_are_scored_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate(("trace-1", "trace-2", "held_out"), 1):
        run = slotted_run(Incast(fan_in=4, load=0.5), 4, 10, 2_000, seed, cell_bytes=256)
        write_open_loop_dataset(
            folder / name, run, arrivals_in_bytes(Incast(fan_in=4, load=0.5).batches(4, 40, 2_000, seed))
        )
    sides = ["split.train=[1]", "split.validation=[2]", "split.test=[3]", "datasets=[trace-1,trace-2,held_out]"]
    assert cli.main(["train", *sides, "predictor.trees=2", "hydra.run.dir=trained"]) == 0
    shutil.copytree(folder / "trace-2", folder / "copied")
    capsys.readouterr()
    model = ["model=trained", "policies=[credence]", "hydra.run.dir=run"]

    def of(datasets: str) -> dict[str, Any]:
        assert cli.main(["replay", f"datasets=[{datasets}]", *model]) == 0
        return result_in(folder / "run")

    alone, mixed, flattered = of("held_out"), of("trace-1,held_out,copied"), of("copied")
    assert alone["seen"] is None
    assert [one["seen"] for one in alone["datasets"]] == [None]
    assert mixed["predictions"] == alone["predictions"]
    assert mixed["policies"] == alone["policies"]
    assert [one["seen"] for one in mixed["seen"]["datasets"]] == ["train", "validation"]
    assert (
        mixed["verdict"][0] == "The model was trained or tuned on trace-1, copied: what it does there is shown apart."
    )
    assert mixed["verdict"][0] in mixed["findings"]
    assert [one["seen"] for one in flattered["datasets"]] == ["validation"]
    assert "all of these datasets, which flatters it" in flattered["verdict"][0]
    assert "Predictions, on runs that the model has seen" in capsys.readouterr().out


@pytest.mark.parametrize("own_queues", [False, True])
def test_a_model_sees_the_shadow_or_lqds_own_queues(folder: Path, traces: list[Dataset], own_queues: bool) -> None:
    model = trained()
    model.save(folder / "ensemble.json")
    found = replayed_of_replay_datasets(
        folder, "model=ensemble.json", "policies=[credence]", f"own_queues={own_queues}"
    )
    columns = list(training_columns(PAPER_FEATURES, own_queues))
    x = [dataset.frame(columns).to_numpy(np.int32) for dataset in traces]
    predicted = [model.exceeds(rows) for rows in x]
    decider = decider_of(model)
    assert_worth(found["predictions"], traces, predicted, [model.probability(rows) for rows in x], decider)
    assert found["predictions"]["ensemble_sha256"] == model.sha256
    sent = sum(bytes_sent(dataset, [("credence", None, decider.scorer)])[0] for dataset in traces)
    assert found["policies"]["credence"]["transmitted_bytes"] == found["predictions"]["sent_bytes"] == sent
