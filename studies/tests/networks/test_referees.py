"""The networks beside each other; costs three simulations of each scenario, ten seconds of CPU time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.data.simulation import Simulator
from foretail.pipelines.experiment.catalog import declared, run_experiment
from foretail.pipelines.experiment.sweep import Sweep
from foretail.sim_bridge.builds import SimulatorProgram
from foretail.sim_bridge.native.driver import NATIVE as NATIVE_PROGRAM
from foretail.sim_bridge.native.driver import run_native
from foretail_studies.costs.drop_costs import price
from foretail_studies.networks import referees
from foretail_studies.networks.comparison import recovery_sentences
from foretail_studies.networks.referees import EMULATOR, NATIVE, NATIVE_LINUX, NS3
from tests.composed import experiment_settings, run_of
from tests.examples import some_by_day

pytestmark = [pytest.mark.ns3, pytest.mark.slow]
SMALL = ("size=small", "tracking=off")


@pytest.mark.parametrize(
    ("names", "emulable"),
    [(("leafspine_lqd", "cubic_cs", "rack_dt"), 3), pytest.param((), 7, marks=pytest.mark.nightly)],
    ids=["some", "all"],
)
def test_native_and_ns3_end_every_flow_alike(
    names: tuple[str, ...], emulable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referees, "why_not_here", lambda **_: "this machine has no /dev/net/tun")
    settings = experiment_settings("referees", *SMALL, f"store_dir={tmp_path / 'store'}")
    settings = replace(settings, scenarios={name: settings.scenarios[name] for name in names or settings.scenarios})
    result, count = run_experiment(declared("referees"), settings, tmp_path), len(settings.scenarios)
    rows = result.shown.rows
    assert rows.groupby("network").size().to_dict() == {NATIVE: count, NATIVE_LINUX: count, NS3: count}
    by_network = {network: runs.set_index("scenario") for network, runs in rows.groupby("network")}
    figures = [name for name in by_network[NATIVE].columns if name not in ("network", "cpu_seconds")]
    pd.testing.assert_frame_equal(by_network[NATIVE][figures], by_network[NS3][figures])
    assert by_network[NATIVE]["timeouts"].sum() > 5 * count
    assert by_network[NATIVE_LINUX]["timeouts"].sum() < by_network[NATIVE]["timeouts"].sum() / 2
    assert rows["emulator_over_it"].isna().all()
    verdict, notes = result.verdict(), result.tables()[-1].notes
    assert verdict[0].startswith(f"ns-3 ended every flow as the native network did in {count} of {count} runs")
    assert verdict[1:] == [f"The emulator ran 0 of {count} scenarios."]
    said = [note for note in notes if note.startswith("not emulated: ")]
    assert sum("no /dev/net/tun" in note for note in said) == emulable
    assert len(said) == count


def test_the_first_event_that_differs_is_in_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(document: Any, *arguments: Any, **named: Any) -> Any:
        topology = {**document["topology"], "link_delay_ns": document["topology"]["link_delay_ns"] + 1}
        return run_native({**document, "topology": topology}, *arguments, **named)

    class Slower(SimulatorProgram):
        """The native network, whose links are one ns longer, under the name of ns-3."""

        @property
        def identity(self) -> dict[str, str]:
            return {"network": "slower"}

    program = Slower(NATIVE_PROGRAM.room, NATIVE_PROGRAM.executable, NATIVE_PROGRAM.words)
    monkeypatch.setattr(referees, "ns3_simulator", lambda prefix: Simulator(program, slower))
    settings = experiment_settings("referees", *SMALL, "networks=[native,ns3]", f"store_dir={tmp_path}")
    settings = replace(settings, scenarios={"rack_dt": settings.scenarios["rack_dt"]})
    verdict = run_experiment(declared("referees"), settings, tmp_path).verdict()
    assert verdict[0].startswith("ns-3 ended every flow as the native network did in 0 of 1 runs")
    assert verdict[1].startswith("rack_dt, seed 101, differs first in arrivals.bin, record 0 (time_ns ")


def test_a_scenario_that_cannot_be_is_refused_by_name() -> None:
    given = "+scenarios.crowded=['scenario=tiny','scenario.incast.fan_in=400']"
    with pytest.raises(ForetailError, match=r"scenarios\.crowded = .* scenario\.incast\.fan_in = 400"):
        _ = experiment_settings("referees", *SMALL, given).composed


def test_completion_times_are_compared_where_neither_waited_for_a_timeout() -> None:
    times = [[100, 400, -1], [200, -1, 300]]
    frame = pd.DataFrame(
        {"scenario": "one", "seed": [1, 1, 2], "network": [EMULATOR, NATIVE, NATIVE], "prompt_fct_ns": [*times, [5]]}
    )
    assert referees._ratios(frame)[:2] == [1.0, 0.5]
    assert pd.isna(referees._ratios(frame)[2])


@pytest.mark.slow
@pytest.mark.parametrize("experiment", some_by_day(["reverie_a", "reverie_b"], "reverie_a".__eq__))
def test_no_lossless_packet_is_lost_and_the_thesis_is_beside(experiment: str, tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "seeds=[101]", f"store_dir={tmp_path / 'store'}")
    result = run_of(experiment, tmp_path, *given)
    rows = result.shown.rows
    assert len(rows) == 2 * 8
    assert rows["lossless_drops"].sum() == 0
    assert rows["unfinished"].sum() == 0
    assert rows["pauses"].sum() > 0
    assert rows["lossless_p99"].max() > 0
    assert rows["lossy_p99"].max() > 0
    assert result.verdict()[0] == "0 lossless packets were dropped in 16 runs."
    assert [table.title for table in result.shown.tables][-1].startswith("Claims, change in %: Section 5.3")


@pytest.mark.slow
def test_only_pfc_pauses_and_only_without_it_packets_are_dropped(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "seeds=[101]", f"store_dir={tmp_path / 'store'}")
    rows = run_of("irn", tmp_path, *given).shown.rows
    found = {
        variant: {name: int(of_variant[name].sum()) for name in ("pauses", "drops")}
        for variant, of_variant in rows[rows["condition"] == "none"].groupby("variant")
    }
    assert found["roce_pfc"]["pauses"] > 0
    assert found["roce_pfc"]["drops"] == 0
    assert found["roce"]["pauses"] == 0
    assert found["roce"]["drops"] > 0


@pytest.mark.slow
def test_a_price_counts_every_packet_that_a_flip_stands_for() -> None:
    flips = pd.DataFrame({"drop_cost": [0.001, 0.004], "arrivals": [3.0, 1.0]})
    found = price(flips)
    assert found.mean == pytest.approx(1.75)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 1.75 <= found.high
    same = price(pd.DataFrame({"drop_cost": np.full(5, 0.002), "arrivals": np.ones(5)}))
    assert same.low == same.high == pytest.approx(2.0)


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
