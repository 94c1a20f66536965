"""Every door that says what a model sends, against a slow switch in which the model decides. Half a minute.

Runs are small, in slots, and lengths are in cells of one packet, as the slow switch counts them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.configs.schema.model_stages import ExportConfig, TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig, EvaluateConfig, ReplayConfig
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURE_GROUPS, FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.gym import BufferEnv, FromDatasets
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY
from foretail.pipelines.comparison.choosing import judge, open_runs
from foretail.pipelines.data.inputs import feature_inputs
from foretail.pipelines.exporting.network import AskedModel, FunctionPredictor, asked_model, decider_of
from foretail.pipelines.exporting.predictor import given_model
from foretail.pipelines.promotion.promoting import held_out_scores
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.evaluate import evaluate
from foretail.pipelines.stages.replay import ReplayResult, replay
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.fitting import TrainResult
from foretail.sim_bridge.arrivals.files import PACKET_BYTES, Slotted
from foretail.sim_bridge.arrivals.workloads import Incast, PoissonBursts
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, collect_slots, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import replay_scores
from tests.composed import SIDES, composed, stage_settings
from tests.examples import draws
from tests.sim_bridge.slow_models.slotted import run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals, small_ensembles

pytestmark = pytest.mark.slow

NAMES = [feature.name for feature in FEATURES]
PREDICTORS = ("random_forest", "extra_trees", "boosted_trees", "boosted_forest", "logistic_regression", "mlp")
PORTS, PER_PORT = 6, 5
POLICIES = ("credence", "learned")  # guards have other defaults in slots than in bytes
Drops = Callable[[list[int]], bool]


def arrivals_of(dataset: Dataset) -> tuple[list[int], list[int]]:
    rows = dataset.frame(["time_ns", "port"])
    return (rows["time_ns"] // 1024).tolist(), rows["port"].tolist()


def slow_sent(dataset: Dataset, policy: str, drops: Drops) -> int:
    """Packets that a policy sends in the slow switch with these answers to the features of the catalog."""
    scenario = dataset.manifest.scenario
    slot, port = arrivals_of(dataset)
    run = run_slotted(policy, scenario["ports"], scenario["buffer_packets"], slot, port, predictor=drops)
    return run.transmitted


def answers_of(model: AskedModel) -> Drops:
    columns = [NAMES.index(item.name) for item in model.features]
    answer = functools.cache(lambda *seen: bool(model.exceeds(np.array([seen]))[0]))
    return lambda row: answer(*(row[column] for column in columns))


def played(dataset: Dataset, model: AskedModel) -> float:
    """Packets that the environment sends when a model answers to all that it observes."""
    env = BufferEnv(FromDatasets([dataset.path]), [item.name for item in model.features])
    seen, _ = env.reset(seed=0)
    earned, over = 0.0, False
    while not over:
        seen, reward, over, _, _ = env.step(int(model.exceeds(seen[None, :].astype(np.int64))[0]))
        earned += reward
    return earned


def recorded(folder: Path, drawn: SlottedArrivals) -> Dataset:
    """The packets as a dataset; the workload is only told."""
    run = slotted_run(Incast(), drawn.ports, drawn.buffer // drawn.ports, max(drawn.slot) + 1, 1, cell_bytes=1024)
    batch = Slotted(np.array(drawn.slot, np.int64), np.array(drawn.port, np.int32))
    write_open_loop_dataset(folder / "run", run, arrivals_in_bytes([batch]))
    return Dataset.open(folder / "run")


@given(
    drawn=slotted_arrivals(max_ports=4, max_buffer=12),
    model=st.sampled_from(sorted(FEATURE_GROUPS)).flatmap(lambda group: small_ensembles(FEATURE_GROUPS[group])),
    policy=st.sampled_from(POLICIES),
)
@settings(max_examples=draws(100))
def test_a_score_is_what_a_slow_switch_sends_for_any_trees_on_any_features(
    drawn: SlottedArrivals, model: Ensemble, policy: str
) -> None:
    assume(drawn.slot)
    drawn = drawn._replace(buffer=-(-drawn.buffer // drawn.ports) * drawn.ports)
    with TemporaryDirectory() as folder:
        dataset = recorded(Path(folder), drawn)
        inputs = feature_inputs([item.name for item in model.features], [dataset])
        model = replace(model, features=tuple(replace(item, bits=24) for item in inputs), origin={POLICY: policy})
        wrong = np.zeros(dataset.manifest.rows, np.bool_)
        scores = replay_scores(dataset, wrong, decider_of(model))
        sent = slow_sent(dataset, policy, answers_of(model))
        assert scores.sent == PACKET_BYTES * sent
        assert replay_scores(dataset, ~wrong, decider_of(model)).sent == scores.sent
        if policy == "learned":
            assert played(dataset, model) == sent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judging")


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Dataset]:
    """Heavy bursts, which mislead a model that is judged on the queues of a policy that knows the truth."""
    traffic = PoissonBursts(load=0.25)
    size = {"ports": PORTS, "buffer_per_port": PER_PORT, "slots": 700, "cell_bytes": 1024}
    return [collect_slots(folder / f"run-{seed}", traffic, seed=seed, **size) for seed in (1, 2, 3, 4, 5)]


def trained(folder: Path, runs: list[Dataset], *overrides: str) -> TrainResult:
    paths = ",".join(str(dataset.path) for dataset in runs[:3])
    given = [*SIDES, "tracking=off", "allow_constant_features=true"]
    config = composed("train", f"store_dir={folder / 'store'}", f"datasets=[{paths}]", *given, *overrides)
    return train(typed(config, TrainConfig), folder / "out")


def collected(*overrides: str) -> Path:
    result = collect(stage_settings(CollectConfig, *overrides), Path("collected"))
    return Path(result.runs[0].path)


def evaluated(*overrides: str) -> list[dict[str, Any]]:
    result = evaluate(stage_settings(EvaluateConfig, *overrides), Path("evaluated"))
    runs: list[dict[str, Any]] = plain(result.document())["runs"]
    return runs


def replay_document(folder: Path, model: str, runs: list[Dataset]) -> dict[str, Any]:
    datasets, store = [str(run.path) for run in runs], str(folder / "store")
    config = ReplayConfig(model=model, datasets=datasets, store_dir=store, tracking=Tracking(enabled=False))
    result = replay(config, folder / "replay")
    assert isinstance(result, ReplayResult)
    return result.document()


@pytest.mark.parametrize(
    ("predictor", "group"),
    [
        pytest.param(predictor, group, marks=[] if number in (0, 5, 10, 15) else pytest.mark.nightly)
        for number, (predictor, group) in enumerate(
            itertools.product(PREDICTORS, ("paper", "switch", "threshold", "all"))
        )
    ],
)
def test_what_commands_say_is_what_the_slow_switch_and_the_environment_send(
    predictor: str, group: str, folder: Path, runs: list[Dataset]
) -> None:
    result = trained(folder, runs, f"predictor={predictor}", f"features={group}")
    model = asked_model(result.model, Store(str(folder / "store")))
    replayed = result.outcome["replay"]
    assert replayed["policy"] == "credence"
    assert replayed["sent_bytes"] == PACKET_BYTES * slow_sent(runs[2], "credence", answers_of(model))
    file = next((folder / "out").glob("ensemble.json" if isinstance(result.model, Ensemble) else "model.onnx"))
    document = replay_document(folder, str(file), runs[3:])
    sent = {
        policy: [slow_sent(run, policy, answers_of(model)) for run in runs[3:]] for policy in ("credence", "learned")
    }
    for policy, of_runs in sent.items():
        assert document["policies"][policy]["transmitted"] == sum(of_runs)
    assert document["predictions"]["sent_bytes"] == PACKET_BYTES * sum(sent["credence"])
    assert [played(run, model) for run in runs[3:]] == sent["learned"]
    lqd = [run.manifest.rows - run.manifest.drops for run in runs[3:]]
    for policy in ("credence", "learned"):
        table = judge(result.model, runs[3:], runs[:3], policy=policy, store_dir=str(folder / "store"))
        share = np.exp(np.mean(np.log(np.divide(sent[policy], lqd))))
        assert table["sent_percent_of_lqd"][0] == pytest.approx(100 * share)
        accepted = sum(slow_sent(run, "followlqd", answers_of(model)) for run in runs[3:])
        assert table["recovered_loss"][0] == pytest.approx((sum(sent[policy]) - accepted) / (sum(lqd) - accepted))
    if isinstance(result.model, Ensemble):
        scores = held_out_scores(result.model, runs[3], "the model")
        assert scores.sent == pytest.approx(100 * sent["credence"][0] / lqd[0])


def test_a_function_in_python_and_an_estimator_send_what_their_trees_send(folder: Path, runs: list[Dataset]) -> None:
    model = trained(folder, runs, "predictor=random_forest", "features=paper").ensemble
    names = [item.name for item in model.features]
    by_trees = judge(model, runs[3:], runs[:3], policy="learned")
    by_function = judge(lambda rows: model.exceeds(rows.astype(np.int64)), runs[3:], runs[:3], features=names)
    assert by_function.equals(by_trees)
    file = folder / "policy.py"
    file.write_text("FEATURES = ('pressure',)\ndef decide(rows):\n    return rows[:, 0] > 127\n")
    by_file = judge(f"{file}:decide", runs[3:], runs[:3])
    drops = answers_of(FunctionPredictor(lambda rows: rows[:, 0] > 127, ["pressure"]))
    assert by_file["recovered_loss"][0] != by_trees["recovered_loss"][0]
    document = replay_document(folder, f"{file}:decide", runs[3:4])
    assert document["policies"]["learned"]["transmitted"] == slow_sent(runs[3], "learned", drops)
    assert document["predictions"]["policy"] == "learned"


def drops_by(classifier: Any) -> Drops:
    @functools.cache
    def answer(queue: int, threshold: int) -> bool:
        return bool(classifier.predict(pd.DataFrame({"shadow_queue": [queue], "threshold": [threshold]}))[0])

    return lambda row: answer(row[NAMES.index("queue")], row[NAMES.index("threshold")])


def test_fitted_classifiers_of_other_libraries_are_judged_by_their_columns(runs: list[Dataset]) -> None:
    import lightgbm
    import xgboost
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    frame = runs[0].frame(["shadow_queue", "threshold", "lqd_drop"])
    x, y = frame[["shadow_queue", "threshold"]], frame["lqd_drop"].astype(int)
    kinds = [
        RandomForestClassifier(4, max_depth=3, random_state=1),
        xgboost.XGBClassifier(n_estimators=3, max_depth=3),
        lightgbm.LGBMClassifier(n_estimators=3, num_leaves=5, min_child_samples=2, verbosity=-1),
    ]
    for kind in kinds:
        fitted = kind.fit(x, y)
        table = judge(fitted, runs[3:4], runs[:3], policy="learned")
        sent = slow_sent(runs[3], "learned", drops_by(fitted))
        lqd = runs[3].manifest.rows - runs[3].manifest.drops
        assert table["sent_percent_of_lqd"][0] == pytest.approx(100 * sent / lqd)
    nameless = LogisticRegression().fit(x.to_numpy(), y)
    assert len(judge(nameless, runs[3:], runs[:3], features=["queue", "threshold"])) == 7


def test_what_cannot_be_judged_is_refused(folder: Path, runs: list[Dataset]) -> None:
    model = trained(folder, runs, "predictor=random_forest", "features=paper").ensemble
    with pytest.raises(ForetailError, match=r"is to be judged, and .*run-4 of tuned_on has its traffic"):
        judge(model, runs[3:], runs[:4])
    with pytest.raises(ForetailError, match=r"tuned_on is empty"):
        judge(model, runs[3:], [])
    size = {"ports": PORTS, "buffer_per_port": PER_PORT, "slots": 700}
    other = collect_slots(folder / "cells", PoissonBursts(load=0.25), seed=9, cell_bytes=256, **size)
    with pytest.raises(
        ForetailError, match=r"reads feature queue with cell_bytes=1024, and the dataset .* cell_bytes=256"
    ):
        judge(model, other, runs[:3])
    assert [run.path for run in open_runs(str(runs[0].path))] == [runs[0].path]


@pytest.mark.nightly
def test_a_network_runs_as_the_exported_c_and_as_a_function_that_answers_alike(
    folder: Path, runs: list[Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the native network, where senders react: every flow ends at the same time."""
    monkeypatch.chdir(folder)
    paths = {seed: collected("scenario=tiny", f"seeds=[{seed}]") for seed in (1, 2, 3)}
    model = trained(
        folder, [Dataset.open(path) for path in paths.values()], "predictor=random_forest", "features=paper"
    )
    model.ensemble.save(folder / "paper.json")
    names = [item.name for item in model.ensemble.features]
    (folder / "same.py").write_text(
        f"from pathlib import Path\nfrom foretail.api import Ensemble\nFEATURES = {names!r}\n"
        "MODEL = Ensemble.load(Path('paper.json'))\ndef decide(rows):\n    return MODEL.exceeds(rows.astype('int64'))\n"
    )
    policies = "policy=[lqd,credence,learned]"
    found = [
        evaluated(f"model={name}", "scenario=tiny", policies, "seeds=[5,6]", "tracking=off", "jobs=1")
        for name in ("paper.json", "same.py:decide")
    ]
    for library, function in zip(*found, strict=True):
        assert (function["policy"], function["seed"]) == (library["policy"], library["seed"])
        assert function["flows_sha256"] == library["flows_sha256"]
        assert function["cost"] == library["cost"]
        assert (function["asked"], function["predicted_drops"]) == (library["asked"], library["predicted_drops"])
    assert any(run["predicted_drops"] for run in found[0])
    with pytest.raises(ForetailError, match=r"same.py:decide decides in Python, which only network=native asks"):
        evaluated("model=same.py:decide", "scenario=tiny", policies, "network=ns3", "tracking=off")
    with pytest.raises(ForetailError, match=r"same.py:decide is a function in Python, which replay, evaluate"):
        given_model(stage_settings(ExportConfig, "model=same.py:decide", "tracking=off"))
