"""``foretail replay datasets=[...]``: recorded arrivals under many policies, in bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.policies import OF_ARRIVALS
from foretail.features.catalog import PAPER_FEATURES, feature, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import SwitchGeometry
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.metrics import scores
from foretail.pipelines import cli
from foretail.pipelines.exporting.deciding import decider_of
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import ReplayScores, Sent, bytes_sent, compare_replays, replay_scores
from foretail.sim_bridge.open_loop.scores import Decider
from tests.traces import RUN, make_arrivals, write_trace

pytestmark = pytest.mark.slow

PORTS = 10
SCENARIO = {"name": "made_up", "topology": {"wire_overhead_bytes": 2}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def traces(folder: Path) -> list[Dataset]:
    """Two runs of random arrivals on slow links, so that buffers overflow."""
    switches = (SwitchGeometry(4, 9000, (10**9,) * 4), SwitchGeometry(PORTS, 12_000, (5 * 10**8,) * PORTS))
    return [
        write_trace(
            folder / f"trace-{seed}", make_arrivals(3000, seed), seed=seed, scenario=SCENARIO, switches=switches
        )
        for seed in (1, 2)
    ]


def replayed(folder: Path, *overrides: str) -> dict[str, Any]:
    assert cli.main(["replay", "datasets=[trace-1,trace-2]", "hydra.run.dir=run", *overrides]) == 0
    document: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return document


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
    worth = ReplayScores.together([replay_scores(d, p, decider) for d, p in zip(traces, predicted, strict=True)])
    assert [found[name] for name in vars(worth)] == list(vars(worth).values())
    assert (found["eta"], found["recovered_loss"]) == (worth.eta, worth.recovered_loss)
    assert found["sent_percent_of_lqd"] == worth.sent_percent_of_lqd
    expected = scores(
        np.concatenate([labels(dataset)["lqd_drop"] for dataset in traces]),
        np.concatenate(predicted),
        ports=PORTS,
        score=None if score is None else np.concatenate(score),
        asked=np.concatenate([labels(dataset)["shadow_asked"] for dataset in traces]),
    )
    assert found["scores"] == expected
    assert found["closed_form_eta"] == expected["whole"]["closed_form_eta"]


def test_bytes_and_packets_of_every_policy_over_all_datasets(
    folder: Path, traces: list[Dataset], capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed(folder)
    said = capsys.readouterr()
    assert said.err == ""
    assert set(found["policies"]) == set(OF_ARRIVALS)
    predicted = [labels(dataset)["lqd_drop"] for dataset in traces]
    compared = [compare_replays(d, OF_ARRIVALS, p) for d, p in zip(traces, predicted, strict=True)]
    assert found["arrivals"] == sum(dataset.manifest.rows for dataset in traces)
    lqd = Sent.together([one.transmitted["lqd"] for one in compared])
    for policy, figures in found["policies"].items():
        sent = Sent.together([one.transmitted[policy] for one in compared])
        assert (figures["transmitted"], figures["transmitted_bytes"]) == (sent.packets, sent.bytes)
        assert figures["transmitted"] + figures["dropped"] == found["arrivals"]
        assert figures["transmitted_bytes"] + figures["dropped_bytes"] == found["arrived_bytes"]
        assert figures["throughput_ratio_to_lqd"] == sent.bytes / lqd.bytes
        assert f"{policy} " in said.out
    assert [(item["path"], item["seed"]) for item in found["datasets"]] == [("trace-1", 1), ("trace-2", 2)]
    assert [item["content_sha256"] for item in found["datasets"]] == [d.manifest.content_sha256 for d in traces]
    assert found["predictions"]["source"] == "perfect"
    assert "push nothing out and ask no predictor" in found["verdict"][0]
    assert found["verdict"][1].startswith("Credence was told what LQD drops, which no switch knows, and sends ")
    assert_worth(found["predictions"], traces, predicted)


def test_flipped_and_no_predictions(folder: Path, traces: list[Dataset]) -> None:
    found = replayed(folder, "policies=[dt]", "predictions=flipped", "flip_probability=0.2", "prediction_seed=4")
    draw = np.random.default_rng(4)
    predicted = [labels(dataset)["lqd_drop"] for dataset in traces]
    predicted = [truth ^ (draw.random(len(truth)) < 0.2) for truth in predicted]
    assert (found["predictions"]["flip_probability"], found["predictions"]["seed"]) == (0.2, 4)
    assert_worth(found["predictions"], traces, predicted)
    none = replayed(folder, "policies=[dt]", "predictions=accept")
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
        found: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
        return found

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
    found = replayed(folder, "model=ensemble.json", "policies=[credence]", f"own_queues={own_queues}")
    columns = list(training_columns(PAPER_FEATURES, own_queues))
    x = [dataset.frame(columns).to_numpy(np.int32) for dataset in traces]
    predicted = [model.exceeds(rows) for rows in x]
    decider = decider_of(model)
    assert_worth(found["predictions"], traces, predicted, [model.probability(rows) for rows in x], decider)
    assert found["predictions"]["ensemble_sha256"] == model.sha256
    sent = sum(bytes_sent(dataset, [("credence", None, decider.scorer)])[0] for dataset in traces)
    assert found["policies"]["credence"]["transmitted_bytes"] == found["predictions"]["sent_bytes"] == sent


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["datasets=[nowhere]"], "nowhere is not a dataset"),
        (["datasets=[trace-1,trace-1]"], "datasets names trace-1 twice"),
        (["ports=4"], "ports is for arrivals=FILE"),
        (["optimum=true"], "optimum is for arrivals=FILE"),
        (["rules.victim=head"], "rules is for arrivals=FILE"),
        (["prediction_column=p"], "prediction_column is for arrivals=FILE"),
        (["predictions=column"], "predictions=column is for arrivals=FILE"),
        (["parameters.alpha=[1,2]"], "parameters.alpha has several values"),
        (["parameters.queues=2"], "parameters.queues and parameters.scheduler are for arrivals=FILE"),
        (["model=narrow.json"], "the model reads feature queue with cell_bytes=512, and the dataset trace-1 gives it"),
    ],
)
def test_bad_input_gets_one_sentence(
    folder: Path, traces: list[Dataset], capsys: pytest.CaptureFixture[str], overrides: list[str], complaint: str
) -> None:
    trained(cell_bytes=512).save(folder / "narrow.json")
    assert cli.main(["replay", "datasets=[trace-1,trace-2]", *overrides]) == cli.EXIT_BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert not (folder / "outputs").exists()
