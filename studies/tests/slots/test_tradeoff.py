"""``foretail run tradeoff``: its figures against runs of the simulator, and what it refuses."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule
from foretail.models.ensemble.scorers import POLICY, scorer_of
from foretail.models.mlflow.registry import load_ensemble
from foretail.pipelines import cli
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.workloads import Incast, joined, workload_of
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.slots.policies import FLIP_SEED
from foretail_studies.slots.tradeoff import violations
from tests.composed import experiment_settings
from tests.forests import paper_forest

pytestmark = pytest.mark.slow

PORTS, BUFFER, SLOTS = 8, 80, 1500
SHORT = ("run", "tradeoff", "size=small", "search_steps=20", "search_restarts=1")
TRAFFIC = (
    "source=slotted",
    "slotted.workload=incast",
    "slotted.settings={fan_in: 5, background_load: 0.6}",
    f"slotted.ports={PORTS}",
    "slotted.buffer_per_port=10",
    "slotted.slots=4000",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that trained on seeds 1 to 3, and the result of the experiment with it."""
    here = tmp_path_factory.mktemp("tradeoff")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert cli.main(["collect", *TRAFFIC, "seeds=[1,2,3]", "hydra.run.dir=runs"]) == 0
        sides = ("split.train=[1]", "split.validation=[2]", "split.test=[3]", "allow_constant_features=true")
        model = ("features=switch", "predictor=boosted_trees", "predictor.depth=3", "tracking.alias=tiny")
        assert cli.main(["train", "datasets=[runs]", *sides, *model, "hydra.run.dir=model"]) == 0
        assert cli.main([*SHORT, "models=[models:/foretail-drop@tiny]", "hydra.run.dir=run"]) == 0
    return here


@pytest.fixture(scope="module")
def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    return found


def arrivals(seed: int) -> tuple[Any, Any]:
    batches = Incast(fan_in=5, background_load=0.6).batches(PORTS, BUFFER, SLOTS, seed)
    traffic = joined(list(batches))
    return traffic.slot, traffic.port


@pytest.mark.nightly
@pytest.mark.full
def test_files_rows_seeds_and_settings_are_there(folder: Path, document: dict[str, Any]) -> None:
    kinds = ("", "_flips", "_thresholds")
    figures = [f"tradeoff{kind}.{suffix}" for kind in kinds for suffix in ("pdf", "png", "svg")]
    assert set(document["files"]) == {*figures, "tradeoff.csv", "tradeoff.parquet", "tradeoff_search.csv"}
    assert document["seeds"] == [901, 902]
    assert document["config"]["flip_probabilities"] == [0, 0.01, 0.1, 0.5, 1]
    rows = pd.DataFrame(document["rows"])
    # of 4 workloads and 2 seeds: the optimum, 3 rules, 3 alphas, 2 answers to everything; 5 flips; those and 4
    # thresholds with 2 flips
    assert len(rows) == 4 * 2 * ((1 + 3 + 3 + 2) + 5 + (5 + 4 * 2))
    assert set(rows["predictor"]) == {"rules", "perfect", "tiny"}
    assert (rows["sent"] <= rows["optimum"]).all()
    assert (rows["asked"].isna() == (rows["predictor"] == "rules") & ~rows["policy"].str.startswith("always")).all()
    assert document["violations"] == {"below_lqd_ratio": 0, "below_ports": 0}
    assert [row["ports"] for row in document["search"]] == [2, 3]
    assert document["models"]["tiny"]["ensemble_sha256"] == document["used_models"][0]["ensemble_sha256"]
    assert [table["title"].partition(",")[0] for table in document["tables"]][-2] == "Consistency and robustness"


def test_perfect_predictions_send_what_lqd_sends(document: dict[str, Any]) -> None:
    rows = pd.DataFrame(document["rows"])
    perfect = rows[(rows["predictor"] == "perfect") & (rows["flip_probability"] == 0)]
    assert len(perfect) == 8
    assert (perfect["sent"] == perfect["lqd"]).all()
    assert (perfect["percent_of_lqd"] == 100).all()


def test_a_flip_inverts_what_the_stream_of_the_seed_says(folder: Path, document: dict[str, Any]) -> None:
    rows = pd.DataFrame(document["rows"])
    model = load_ensemble("models:/foretail-drop@tiny", f"sqlite:///{folder / 'outputs' / 'mlflow.db'}")
    for seed in (901, 902):
        slot, port = arrivals(seed)
        label = slotted("lqd", PORTS, BUFFER, slot, port)["lqd_drop"]
        assert cli.main(
            ["collect", *TRAFFIC, "slotted.slots=1500", f"seeds=[{seed}]", f"hydra.run.dir={folder / f'shown-{seed}'}",
             f"store_dir={folder / 'outputs' / 'store'}"]
        ) == 0  # fmt: skip
        for predictor, answers in (("perfect", label), ("tiny", own_answers(folder, model, seed))):
            mine = rows[(rows["predictor"] == predictor) & (rows["workload"] == "incast_60") & (rows["seed"] == seed)]
            mine = mine[mine["threshold"].isna()].set_index("flip_probability")
            for flip in (0, 0.01, 0.1, 0.5, 1):
                wrong = np.random.default_rng(FLIP_SEED + seed).random(len(slot)) < flip
                told = answers ^ wrong.astype(np.uint8)
                ran = slotted("credence", PORTS, BUFFER, slot, port, told, labels=False)
                asked = ran["asked"] == 1
                found = [int(mine[name][flip]) for name in ("sent", "asked", "predicted_drops")]
                assert found == [ran["transmitted"], asked.sum(), told[asked].sum()]


def own_answers(folder: Path, model: Ensemble, seed: int) -> Any:
    """What the model says of every row of a dataset of the shown traffic."""
    (path,) = [Path(run["path"]) for run in json.loads((folder / f"shown-{seed}" / "result.json").read_text())["runs"]]
    batches = Dataset.open(path).rows([item.name for item in model.features])
    x = np.concatenate(
        [np.stack([batch.column(item.name).to_numpy() for item in model.features], 1) for batch in batches]
    )
    return model.exceeds(x).view(np.uint8)


def test_a_point_below_a_guarantee_is_counted() -> None:
    rows = pd.DataFrame(
        [
            {"policy": "lqd", "predictor": "rules", "flip_probability": None, "sent": 58, "optimum": 100},
            {"policy": "lqd", "predictor": "rules", "flip_probability": None, "sent": 59, "optimum": 100},
            {"policy": "credence", "predictor": "perfect", "flip_probability": 1.0, "sent": 24, "optimum": 100},
            {"policy": "credence", "predictor": "perfect", "flip_probability": 0.0, "sent": 25, "optimum": 100},
        ]
    )
    searched = pd.DataFrame([{"ports": 2, "sent": 4, "optimum": 9}])
    assert violations(rows, searched, 4) == {"below_lqd_ratio": 2, "below_ports": 2}


def test_a_model_of_the_switchs_own_queues_decides_while_the_switch_runs(tmp_path: Path) -> None:
    model = paper_forest().ensemble
    model.save(tmp_path / "paper.json")
    arguments = [*SHORT, "tracking=off", f"store_dir={tmp_path / 'store'}", f"models=[{tmp_path / 'paper.json'}]"]
    assert cli.main([*arguments, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    rows = pd.read_parquet(tmp_path / "run" / "tradeoff.parquet")
    row = rows[(rows["predictor"] == "paper.json") & (rows["flip_probability"] == 0) & rows["threshold"].isna()].iloc[0]
    settings = json.loads((tmp_path / "run" / "result.json").read_text())["config"]
    given = dict(settings["workloads"][row["workload"]])
    batches = workload_of(given.pop("workload"), given).batches(
        *(settings["ports"], settings["ports"] * settings["buffer_per_port"], settings["slots"], int(row["seed"]))
    )
    run = KnownRun.in_slots(batches, settings["ports"], settings["ports"] * settings["buffer_per_port"])
    assert row["sent"] == run.sent("credence", scorer_of(model))


def test_a_model_that_decides_while_the_switch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are what the learned policy sends with its answers, inverted where they are."""
    monkeypatch.chdir(tmp_path)
    inputs = tuple(FeatureInput(name, feature(name).params(256, 15), feature(name).bits) for name in ("pressure",))
    tree = tree_of_rule(("pressure", 150, -1.0, 1.0), ["pressure"])
    model = Ensemble(inputs, (tree,), Fraction(0), output="logit", origin={POLICY: "learned"})
    model.save(tmp_path / "above.json")
    assert cli.main([*SHORT, "tracking=off", f"models=[{tmp_path / 'above.json'}]", "hydra.run.dir=run"]) == 0
    document = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(document["rows"])
    mine = rows[(rows["predictor"] == "above.json") & (rows["workload"] == "incast_60") & rows["threshold"].isna()]
    assert set(mine["policy"]) == {"learned"}
    for seed in (901, 902):
        of_seed = mine[mine["seed"] == seed]
        batches = Incast(fan_in=5, background_load=0.6).batches(PORTS, BUFFER, SLOTS, seed=seed)
        run = KnownRun.in_slots(batches, PORTS, BUFFER)
        for flip, sent in zip(of_seed["flip_probability"], of_seed["sent"], strict=True):
            assert sent == run.sent("learned", scorer_of(model), inverted=flip, draw=FLIP_SEED + seed)
        assert of_seed["sent"].nunique() > 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["flip_probabilities=[0,0.5]"], "lacks 0 or 1"),
        (["thresholds=[1]"], "out of range"),
        (["seeds=[1,1]"], "holds 1 twice"),
        (["models=[b,b]"], "names b twice"),
        (["+workloads.new={workload: nobody}"], "nobody is unknown"),
        (["+workloads.new={load: 3}"], "names no workload"),
        (["+workloads.new={workload: incast, fan_in: 99}"], "fan_in must be at most"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        experiment_settings("tradeoff", "size=small", *overrides)
