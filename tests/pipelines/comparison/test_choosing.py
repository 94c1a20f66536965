"""The choice of a rule against obvious loops over windows, and the command. Ten seconds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.api import choose, collect_slots, judge, open_runs, workloads
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import mean_log_sent
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.choosing import SEARCHED, Candidate, Choice, Logs
from foretail.pipelines.data.simulation import driver_config, rules_in_force
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.open_loop.known import KnownRun, spread
from tests.composed import SIDES, foretail, result_in, stage_settings
from tests.traces import write_slots

pytestmark = pytest.mark.slow

BURSTS = workloads.PoissonBursts(load=0.4)


def bursts(slots: int, seed: int = 1) -> Slotted:
    (batch,) = BURSTS.batches(8, 200, slots, seed)
    return batch


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30).map(sorted),
    st.integers(1, 6),
    st.integers(1, 40) | st.just(math.inf),
    st.integers(1, 40),
)
def test_windows_lie_in_order_without_overlap_and_a_short_sample_is_used_whole(
    time: list[int], count: int, packets: float, least: int
) -> None:
    windows = spread(np.array(time, np.int64), count, packets, least)
    span, end = time[-1] + 1 - time[0], 0
    assert len(windows) <= count
    for rows, start in windows:
        assert rows.start >= end
        end = rows.stop
        if len(windows) > 1:
            assert start <= time[rows.start]
            assert time[end - 1] - start < max(least, math.ceil(span / count))
    if packets >= len(time) and span >= least * count:
        assert sum(rows.stop - rows.start for rows, _ in windows) == len(time)


VALUES = st.lists(st.lists(st.integers(-5, 0), min_size=4, max_size=4), min_size=1, max_size=5)


@given(VALUES)
def test_the_gain_of_a_choice_is_that_of_windows_that_did_not_make_it(rows: list[list[int]]) -> None:
    rules = [Candidate(name, "rule", "learned", zoo.rule(name).rule) for name in zoo.names()[:2]]
    thresholds = [Candidate(f"DT, alpha {alpha:g}", "threshold", "dt", alpha=alpha) for alpha in (1.0, 2.0)]
    logs = Logs([*rules, *thresholds], np.array(rows, float))
    choice = Choice(rules[0].name, zoo.rule(rules[0].name).rule, logs, 1, 256, 15, rules[0].name)

    def first_best(some: Sequence[list[int]], columns: Sequence[int]) -> int:
        return max(columns, key=lambda column: (sum(row[column] for row in some), -column))

    gains, agreeing = [], 0
    for number, row in enumerate(rows):
        others = [other for place, other in enumerate(rows) if place != number] or rows
        gains.append(100 * (row[first_best(others, (0, 1))] - row[first_best(others, (2, 3))]))
        agreeing += first_best(others, (0, 1)) == 0
    assert choice.gain_percent.mean == pytest.approx(np.mean(gains))
    assert choice.agreeing == agreeing
    assert choice.dt is logs.candidates[first_best(rows, (2, 3))]
    assert choice.overloaded == sum(len(set(row)) > 1 for row in rows)


def test_the_chosen_rule_sends_most_on_both_halves_and_a_frame_is_as_good_as_slots() -> None:
    packets = bursts(8000)
    choice = choose(packets, 8, 200, windows=6)
    (halves,) = KnownRun.windows_in_slots(packets, 8, 200, [2])
    assert choice.name == max(zoo.names(), key=lambda name: mean_log_sent(halves, "learned", zoo.rule(name).scorer()))
    frame = pd.DataFrame({"slot": packets.slot, "port": packets.port})
    assert choose(frame, 8, 200, windows=6).document() == choice.document()


def test_what_a_sample_has_besides_slots_and_ports_is_told(tmp_path: Path) -> None:
    packets = bursts(3000)
    frame = pd.DataFrame({"slot": packets.slot, "port": packets.port, "first_rtt": 1, "priority": 3})
    frame.to_csv(tmp_path / "a.csv", index=False)
    switch = ("ports=8", "buffer=200", "windows=2")
    chosen = foretail(tmp_path, "choose", "arrivals=a.csv", *switch)
    of_switch = ("arrivals.ports=8", "arrivals.buffer=200")
    collected = foretail(tmp_path, "collect", "source=arrivals", "log=a.csv", *of_switch)
    for one in (chosen, collected):
        assert one.returncode == 0, one.stderr
        said = " ".join((one.stdout + one.stderr).split())
        assert "a.csv has the column first_rtt, the column priority, which Foretail does not use" in said
    with pytest.raises(ForetailError, match="no column port of integers"):
        choose(frame.drop(columns="port"), 8, 200)
    with pytest.raises(ForetailError, match="no column slot of integers"):
        choose(frame.astype({"slot": float}), 8, 200)


def test_a_dataset_has_the_windows_of_its_packets(tmp_path: Path) -> None:
    dataset = collect_slots(tmp_path / "run", BURSTS, ports=8, buffer_per_port=25, slots=4000, seed=1)
    choice = choose(dataset, windows=4)
    assert choice.document()["rows"] == choose(bursts(4000), 8, 200, windows=4).document()["rows"]
    judged = judge(
        choice.ensemble(),
        [collect_slots(tmp_path / "other", BURSTS, ports=8, buffer_per_port=25, slots=4000, seed=2)],
        [dataset],
    )
    assert judged["policy"][0] == "learned"


def test_a_search_is_chosen_if_it_sends_more_on_windows_that_it_did_not_see() -> None:
    choice = choose(bursts(8000), 8, 200, windows=8, trials=24, rules=[zoo.names()[0]])
    assert choice.search is not None
    assert choice.search.is_chosen == ((choice.search.gain_percent.mean or 0) > 0)
    assert (choice.name == SEARCHED) == choice.search.is_chosen
    with pytest.raises(ForetailError, match="there is one: give a longer sample"):
        choose(bursts(300), 8, 200, trials=24)


def test_the_command_leaves_a_folder_that_export_takes(tmp_path: Path) -> None:
    packets = bursts(8000)
    write_slots(tmp_path / "arrivals.csv", packets.slot, packets.port)
    result = foretail(
        tmp_path, "choose", "arrivals=arrivals.csv", "ports=8", "buffer=200", "windows=4", "hydra.run.dir=chosen"
    )
    assert result.returncode == 0, result.stderr
    document = result_in(tmp_path / "chosen")
    assert document["chosen"] in zoo.names()
    assert document["verdict"][0] == f"Use {document['chosen']}."
    assert Ensemble.load(tmp_path / "chosen" / "ensemble.json") == zoo.rule(document["chosen"]).ensemble()
    for model in ("chosen", f"zoo:{document['chosen']}"):
        replayed = foretail(tmp_path, "replay", "arrivals=arrivals.csv", "ports=8", "buffer=200", f"model={model}")
        assert replayed.returncode == 0, replayed.stderr


def test_a_replay_and_a_network_say_which_rule_was_in_force(tmp_path: Path) -> None:
    packets = bursts(4000)
    write_slots(tmp_path / "a.csv", packets.slot, packets.port)
    names = list(zoo.names()[:2])
    own = ("policies=[chosen]", f"parameters.rules=[{','.join(names)}]", "parameters.window_slots=500")
    result = foretail(tmp_path, "replay", "arrivals=a.csv", "ports=8", "buffer=200", *own, "hydra.run.dir=replayed")
    assert result.returncode == 0, result.stderr
    turns = json.loads((tmp_path / "replayed" / "result.json").read_text())["turns"]["chosen"]
    assert turns[0] == {"slot": 0, "rule": names[0]}
    assert all(turn["rule"] in names and turn["slot"] % 500 == 0 for turn in turns)
    scenario = stage_settings(CollectConfig, "scenario=leafspine_small", "scenario.traffic_ns=1000000").scenario
    document = driver_config(scenario, Policy("chosen", rules=names, window_ns=100_000), 1, trace=False)
    assert document["policy"]["rules"] == zoo.numbers(names)
    (tmp_path / "run").mkdir()
    of_switches = rules_in_force(run_native(document, tmp_path / "run"))
    assert of_switches["switch 0"][0] == {"time_ns": 0, "rule": names[0]}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "choose takes arrivals=FILE or datasets"),
        (["arrivals=a.csv"], "needs a switch: give ports=N and buffer=B"),
        (["datasets=[a]", "ports=4"], "ports and buffer are for arrivals=FILE"),
        (["arrivals=a.csv", "ports=4", "buffer=10", "rules=[]"], "leaves nothing to choose"),
        (["arrivals=a.csv", "ports=4", "buffer=10", "rules=[best]"], "the zoo has no rule best"),
        (["arrivals=a.csv", "ports=4", "buffer=10", "trials=30"], "search=false"),
    ],
)
def test_what_cannot_be_chosen_is_refused(given: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("slot,port\n0,1\n")
    result = foretail(tmp_path, "choose", *given)
    assert result.returncode == 2
    assert says in " ".join(result.stderr.split())


def test_files_of_arrivals_become_datasets_on_which_models_train(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        packets = bursts(1500, seed)
        write_slots(tmp_path / f"{seed}.csv", packets.slot, packets.port)
    logs = ("source=arrivals", "log=[1.csv,2.csv,3.csv]", "seeds=[1,2,3]", "arrivals.ports=8", "arrivals.buffer=200")
    collected = foretail(tmp_path, "collect", *logs, "hydra.run.dir=mine")
    assert collected.returncode == 0, collected.stderr
    runs = open_runs(tmp_path / "mine")
    made = collect_slots(tmp_path / "made", BURSTS, ports=8, buffer_per_port=25, slots=1500, seed=2)
    assert next(runs[1].rows(["queue", "lqd_drop"])).equals(next(made.rows(["queue", "lqd_drop"])))
    assert choose(runs[1], windows=2).document()["rows"] == choose(made, windows=2).document()["rows"]
    sent = ("features=threshold", "predictor=boosted_trees", "objective.name=sent", "objective.trials=24")
    trained = foretail(tmp_path, "train", "datasets=[mine]", *SIDES, *sent, "tracking=off")
    assert trained.returncode == 0, trained.stderr
    refused = foretail(tmp_path, "collect", "source=arrivals", "log=1.csv", "arrivals.ports=8")
    assert "source=arrivals needs a switch: give arrivals.ports=N and arrivals.buffer=B" in " ".join(
        refused.stderr.split()
    )
