"""``foretail run training_methods`` on two tiny workloads: a row for each method, and what it took. Costs 15 s."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from foretail.pipelines import cli
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow


def test_methods_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "training_methods", "size=small", "tracking=off", "hydra.run.dir=run"]) == 0
    document = json.loads(Path("run/result.json").read_text())
    rows = pd.DataFrame(document["rows"])
    methods = {"labels", "sent", "advantage from DT", "policy gradient"}
    (tuned,) = set(rows["policy"]) - methods
    assert tuned.startswith(("DT", "ABM", "Harmonic", "CS"))
    assert not rows.duplicated(["workload", "seed", "policy"]).any()
    assert (rows.groupby("policy").size() == 4).all()
    assert (rows["sent"] > 0.5 * rows["sent_by_lqd"]).all()
    assert dict(rows.groupby("workload")["held_out"].first()) == {"incast_5": False, "on_off_90": True}
    (sentence,) = document["verdict"]
    assert sentence.startswith("Within ")
    assert "; unseen " in sentence


def test_every_method_of_the_full_size_can_be_asked_for() -> None:
    settings = experiment_settings("training_methods")
    promise = experiment_settings("promise")
    assert settings.workloads == promise.workloads
    assert settings.train_on == promise.train_on
    assert {"labels", "advantage", "policy gradient", "sent", "sent tracked with gap"} <= set(settings.models)
