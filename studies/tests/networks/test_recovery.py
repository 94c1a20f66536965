"""Losses repaired as ns-3 and as Linux; costs eight simulations, two seconds of CPU time, and the native network."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.experiment.sweep import Sweep
from foretail_studies.networks.comparison import recovery_sentences
from tests.composed import experiment_settings, run_of

pytestmark = [pytest.mark.ns3, pytest.mark.slow]


def test_the_same_runs_are_set_beside_each_other(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "shared=['scenario=tiny']", f"store_dir={tmp_path / 'store'}")
    result = run_of("recovery", tmp_path, *given)
    rows = result.shown.rows
    assert rows.groupby(["variant", "way"]).size().to_dict() == {
        (policy, way): 2 for policy in ("lqd", "cs") for way in ("ns3", "linux")
    }
    timeouts = rows.groupby("way")["timeouts"].sum()
    assert timeouts["linux"] < timeouts["ns3"]
    assert result.verdict()[0].endswith("% of ns-3's timeouts are its own.")
    assert result.verdict()[1].startswith("The policy with the least mean J is the same in ")


def test_another_best_policy_is_in_the_verdict() -> None:
    rows = pd.DataFrame(
        [
            ("one", "lqd", "ns3", 1, 1.0, 0),
            ("one", "cs", "ns3", 1, 2.0, 0),
            ("one", "lqd", "linux", 1, 2.0, 0),
            ("one", "cs", "linux", 1, 1.0, 0),
        ],
        columns=["condition", "variant", "way", "seed", "cost", "timeouts"],
    )
    settings = experiment_settings("recovery", "size=small")
    assert recovery_sentences(rows, settings) == [
        "Nothing timed out as ns-3.",
        "The policy with the least mean J is the same in 0 of 1 conditions; one: lqd as ns-3, cs as Linux.",
    ]


def test_a_condition_without_a_tcp_of_linux_is_refused_by_name() -> None:
    given = "+conditions.paced=['scenario=tiny','scenario.transport.name=timely','scenario.transport.mark_bytes=0']"
    with pytest.raises(
        ForetailError, match=r"conditions\.paced = .*recovery = linux is that of a TCP, and not of timely"
    ):
        Sweep.of(experiment_settings("recovery", "size=small", "tracking=off", given), {})
