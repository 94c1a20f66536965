"""``foretail run online_optimum``: rows, what is closed, and the verdict. Costs 10 s."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail_studies.slots.optimum import KNOWING, POLICIES, draw_online_optimum, online_optimum_verdict, processes
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow


def test_who_knows_more_leaves_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "online_optimum", "size=small", "tracking=off", "hydra.run.dir=run"]) == 0
    document = json.loads(Path("run/result.json").read_text())
    rows = pd.DataFrame(document["rows"])
    assert list(rows["policy"][: len(POLICIES)]) == list(POLICIES)
    assert list(rows[rows["kind"] == "whole"]["policy"]) == [one for one in POLICIES if one != "queues"]
    assert set(rows["kind"]) == {"on_off", "bursts", "whole"}
    assert rows["left"].to_numpy() == pytest.approx(1 - rows["sent"] / rows["sent_by_lqd"])
    left = rows.pivot_table(index="process", columns="policy", values="left")
    assert (left["lqd"] == 0).all()
    for less, more in (("ahead", "past"), ("past", "queues"), ("past", "dt"), ("queues", "dt"), ("dt", "cs")):
        assert (left[less] - left[more]).max() <= 1e-5
    assert (rows[rows["policy"] == "dt"]["setting"].str.startswith("alpha ")).all()
    assert len(document["verdict"]) == 4
    assert Path("run/online_optimum.png").is_file()


def test_the_full_size_is_a_grid_of_distinct_processes() -> None:
    every = list(processes(experiment_settings("online_optimum")))
    assert len({case.name for case in every}) == len(every) == 60


def test_the_verdict_counts_what_is_won() -> None:
    left = pd.DataFrame(
        {"dt": [2.0, 0.1], "queues": [1.9, 0.1], "past": [0.5, 0.1], "ahead": [0.0, 0.0], "kind": ["on_off", "bursts"]}
    )
    settings = experiment_settings("online_optimum", "size=small")
    win, closed = online_optimum_verdict(left, settings)
    assert "wins 0.75 % of LQD's packets at the median of 2 processes and 1.5 % at most" in win
    assert win.endswith("at least 0.5 % in 1 of them.")
    assert "closes 75 % of it" in closed
    assert len(online_optimum_verdict(left[1:], settings)) == 1
    on_off, bursts = draw_online_optimum(left).axes
    assert [line.get_label() for line in on_off.lines] == ["as DT", *KNOWING.values()]
    assert bursts.get_title() == "bursts over background"


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ForetailError, match="ports"):
        experiment_settings("online_optimum", "ports=[9]")
