"""``foretail run promise`` on two tiny workloads: rows, recovered loss and verdict from what was sent. Costs 15 s."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from foretail.pipelines import cli
from foretail.studies.predictors.promise import LEAST_LOST, UNSEEN, WITHIN, draw

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_policies_and_models_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "promise", "size=small", "tracking=off", "hydra.run.dir=run"]) == 0
    document = json.loads(Path("run/result.json").read_text())
    rows = pd.DataFrame(document["rows"])
    assert set(rows["policy"]) == {"always accept", "dt", "abm", "cs", "harmonic", "paper", "switch", "LQD"}
    assert dict(rows.groupby("workload")["held_out"].first()) == {"incast_5": False, "on_off_90": True}
    assert set(rows["seed"]) == {11, 12}
    for _, row in rows.iterrows():
        lost = row["sent_by_lqd"] - row["sent_by_accept"]
        if lost < LEAST_LOST * row["sent_by_lqd"]:
            assert pd.isna(row["recovered"])
        else:
            assert row["recovered"] == pytest.approx((row["sent"] - row["sent_by_accept"]) / lost)
    assert (rows[rows["policy"] == "LQD"]["sent"] == rows[rows["policy"] == "LQD"]["sent_by_lqd"]).all()
    tuned = rows[(rows["policy"] == "dt") & (rows["setting"] != "default")]
    assert tuned["setting"].nunique() == 1  # one alpha for all workloads, chosen where the models trained
    assert len(document["verdict"]) == rows.dropna(subset=["recovered"])["held_out"].nunique()
    assert Path("run/promise.png").is_file()


def test_a_bar_for_each_policy_in_a_panel_for_each_kind() -> None:
    summary = pd.DataFrame(
        {
            "where": [WITHIN, WITHIN, UNSEEN],
            "policy": ["DT, alpha 16", "model paper", "DT, alpha 16"],
            "model": [False, True, False],
            "mean": [0.9, 0.5, 0.8],
            "low": [0.8, 0.4, None],
            "high": [1.0, 0.6, None],
        }
    )
    within, unseen = draw(summary).axes
    assert [label.get_text() for label in within.get_yticklabels()] == ["model paper", "DT, alpha 16"]
    assert [bar.get_width() for bar in within.patches if isinstance(bar, Rectangle)] == [0.5, 0.9]
    assert [bar.get_width() for bar in unseen.patches if isinstance(bar, Rectangle)] == [0.8]
