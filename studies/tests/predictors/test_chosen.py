"""The zoo is made again as it was made, choices are judged on other runs, and traffic changes. Half a minute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.p4.encoding import Frame
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import log_sent
from foretail.pipelines.comparison.choosing import ACCEPT
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.benchmark.frozen_tracks import open_loop_scores
from foretail_studies.predictors.chosen import (
    ALL_WINDOWS,
    BY_PHASE,
    DT,
    FIXED,
    HINDSIGHT,
    SEARCH_WAY,
    ZOO_WAY,
    TrafficSequence,
    certificate,
    drawn,
    greedy,
    regime,
    sequence_arrivals,
    summarised,
)
from foretail_studies.predictors.loop import require_same
from foretail_studies.predictors.memory_switch import MemorySwitch
from tests.composed import experiment_settings, run_of

pytestmark = pytest.mark.slow


def test_rules_are_searched_and_the_first_of_the_zoo_adds_most(tmp_path: Path) -> None:
    result = run_of("zoo", tmp_path, "size=small", f"store_dir={tmp_path / 'store'}", "tracking=off")
    document = result.document()["zoo"]
    assert len(document["rules"]) == 4
    for one in document["rules"]:
        assert (len(one["numbers"]), len(one["centres"])) == (23, 6)
        assert one["score_percent"] <= 100
        assert one["trained_on"] == {} or one["trained_on"]["seeds"] == [1]
    gains = [float(row[2] or 0) for row in result.tables()[0].rows]
    assert gains == sorted(gains)


@given(st.lists(st.lists(st.integers(-9, 0), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_greedy_order_takes_the_best_rule_first_and_never_one_twice(rows: list[list[int]]) -> None:
    values = np.array(rows, float)
    order = greedy(values, 5)
    assert sorted(order) == [0, 1, 2]
    assert values[:, order[0]].mean() == values.mean(axis=0).max()
    means = [values[:, order[:count]].max(axis=1).mean() for count in (1, 2, 3)]
    assert means == sorted(means)


@pytest.mark.nightly
@pytest.mark.parametrize("name", zoo.names())
def test_the_certificate_of_a_rule_is_made_again(name: str) -> None:
    one = zoo.rule(name)
    assert certificate(one.rule) == one.certificate


@pytest.mark.nightly
def test_the_score_of_the_first_rules_is_made_again() -> None:
    settings, rules = experiment_settings("zoo"), [zoo.rule(name) for name in zoo.names()[:2]]
    scores = open_loop_scores(settings, settings.scoring, [one.scorer() for one in rules])
    assert scores == pytest.approx([one.score_percent for one in rules], abs=0.01)


def test_a_choice_is_judged_on_runs_that_did_not_make_it(tmp_path: Path) -> None:
    result = run_of("chosen", tmp_path, "size=small", f"store_dir={tmp_path / 'store'}", "tracking=off")
    rows = pd.DataFrame(result.document()["rows"])
    wanted = {
        "workload",
        "draw",
        "seed",
        "way",
        "rule",
        "windows",
        "sent",
        "sent_by_lqd",
        "sent_by_dt",
        "sent_by_accept",
    }
    assert wanted <= set(rows.columns)
    assert set(rows["seed"]) == {11, 12}
    first = drawn(3, 3, 6000)[0]
    run, mine = first.run(11), rows[(rows["workload"] == first.workload) & (rows["seed"] == 11)]
    sent, chosen = (dict(zip(mine["way"], mine[name], strict=True)) for name in ("sent", "rule"))
    rule = zoo.rule(chosen[ZOO_WAY])
    sample = first.arrivals(10)
    (halves,) = KnownRun.windows_in_slots(sample, first.ports, first.buffer, [2])
    logs = {name: sum(log_sent(half, "learned", zoo.rule(name).scorer()) for half in halves) for name in zoo.names()}
    assert rule.name == max(logs, key=lambda name: logs[name])
    assert sent[ZOO_WAY] == run.sent("learned", rule.scorer())
    assert sent[DT] == run.sent("dt", alpha=[zoo.tuned_alpha()])
    assert sent[ACCEPT] == run.sent("followlqd")
    summary = summarised(rows)
    share = dict(zip(summary["way"], summary["share"], strict=True))
    assert share[HINDSIGHT] >= share[ZOO_WAY]
    assert SEARCH_WAY in share
    assert share[DT] == 0


def test_the_same_rule_all_along_is_a_fixed_rule_and_turns_are_of_their_slots(tmp_path: Path) -> None:
    options = ("size=small", f"store_dir={tmp_path / 'store'}", "tracking=off")
    rows = pd.DataFrame(run_of("changing", tmp_path, *options).document()["rows"])
    chosen = {f"{of}{back}" for of in ("", "index, ") for back in ("last 1 windows", ALL_WINDOWS)}
    assert set(rows["way"]) == {FIXED, BY_PHASE, DT, ACCEPT} | chosen
    settings = experiment_settings("changing", *options)
    case = TrafficSequence("3.0, turns of 1000", 3, 0, 1000)
    turns, ports, buffer = sequence_arrivals(case, settings)
    assert all((one.slot < 1000).all() and (one.port < ports).all() for one in turns)
    run = KnownRun.in_slots(turns[:1], ports, buffer)
    scorer = zoo.rule(zoo.names()[0]).scorer()
    assert run.sent_in_turns("learned", [scorer, scorer], [[0, 7]]) == run.sent("learned", scorer)
    mine = rows[rows["sequence"] == case.sequence]
    assert mine["sent_by_lqd"].nunique() == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=40))
def test_a_regime_has_the_queues_of_an_unlimited_buffer(packets: list[tuple[int, int]]) -> None:
    packets.sort()
    slot, port = np.array([one for one, _ in packets], np.int64), np.array([one for _, one in packets], np.int32)
    queues, longest, sums, busy = [0, 0, 0], 0, [], 0
    for now in range(10):
        for queue in range(3):  # arrivals of a slot, then one departure
            queues[queue] = max(queues[queue] + packets.count((now, queue)) - 1, 0)
        longest, busy = max(longest, *queues), busy + sum(one > 0 for one in queues)
        sums.append(sum(queues))
    of_port = [sum(port == one) / 10 for one in range(3)]
    expected = [len(packets) / 30, max(of_port), longest / 6, max(sums) / 6, np.mean(sums) / 6, busy / 30, 3, 2]
    assert regime(Slotted(slot, port), 3, 6, 10) == pytest.approx(expected)


def test_a_loop_swaps_rules_and_compares_what_its_tables_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("size=small", f"store_dir={tmp_path / 'store'}", "tracking=off")
    rows = pd.DataFrame(run_of("loop", tmp_path, *options).document()["rows"])
    assert {"last 1 windows, 50 % lost, 1 late", "all windows so far, 50 % lost, 1 late"} < set(rows["way"])
    assert (rows["rows"] > 3000).all()
    turns, ports, buffer = sequence_arrivals(
        TrafficSequence("3.0, turns of 1000", 3, 0, 1000), experiment_settings("loop", *options)
    )
    features = zoo.rule(zoo.names()[0]).ensemble().features
    memory = MemorySwitch(Frame({one.name: one.params for one in features}, len(features), 1, 2))
    monkeypatch.setattr(MemorySwitch, "drops", lambda switch, x: True)
    with pytest.raises(ForetailError, match=f"otherwise than the rule {zoo.names()[0]}: report this as a bug"):
        require_same(memory, zoo.names()[0], KnownRun.in_slots(turns[:1], ports, buffer))
