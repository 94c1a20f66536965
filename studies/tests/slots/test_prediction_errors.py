"""``foretail run prediction_errors``: its rows and what it refuses. Costs 5 s."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail_studies.slots.optimum import VARIANTS, points
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow


def test_rows_say_what_a_wrong_prediction_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "prediction_errors", "size=small", "tracking=off", "hydra.run.dir=run"]) == 0
    document = json.loads(Path("run/result.json").read_text())
    rows = pd.DataFrame(document["rows"])
    assert set(rows["policy"]) == set(VARIANTS)
    assert rows["proven"].all()
    costs = {(row.policy, row.ports, row.buffer): row.cost for row in rows.itertuples()}
    assert [costs["Credence", ports, buffer] for ports, buffer in ((2, 2), (2, 3), (3, 3), (3, 4))] == list("1223")
    assert costs["Credence, any load", 2, 4] == "unbounded"
    assert costs["Credence, any load, no safeguard", 2, 4] == "2"
    assert (rows["theorem"] == (rows["cost"] != "unbounded")).all()
    assert "in 17 of 20 points" in document["verdict"][0]
    assert document["verdict"][1].endswith("Credence, any load, Guarded Credence, two answers.")
    assert Path("run/prediction_errors.png").is_file()


def test_points_are_distinct_and_all_fit() -> None:
    every = list(points(experiment_settings("prediction_errors")))
    assert len({case.name for case in every}) == len(every) == 16 + 8 * 9
    assert all(case.policy.buffer >= case.policy.ports for case in every)


@pytest.mark.parametrize(
    ("written", "message"),
    [("3", "switches = 3 is no switch"), ("3x2", "a packet of buffer for each"), ("9x9", "do not fit 64 bits")],
)
def test_switches_that_make_no_sense_are_refused(written: str, message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        experiment_settings("prediction_errors", f"switches=['{written}']")
