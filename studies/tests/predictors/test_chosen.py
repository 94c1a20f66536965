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
from foretail.export.p4.memory import MemorySwitch
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import log_sent
from foretail.pipelines.comparison.judging import ACCEPT
from foretail.sim_bridge.open_loop.known import KnownRun
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
    sequence_arrivals,
    summarised,
)
from foretail_studies.predictors.loop import require_same
from tests.composed import experiment_settings, run_of

pytestmark = pytest.mark.slow


def test_rules_are_searched_and_the_first_of_the_zoo_adds_most(tmp_path: Path) -> None:
    result = run_of("zoo", tmp_path, "size=small", f"store_dir={tmp_path / 'store'}", "tracking=off")
    document = result.document()["zoo"]
    assert len(document["rules"]) == 4
    for one in document["rules"]:
        assert (len(one["numbers"]), len(one["centres"])) == (23, 6)
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
    assert set(rows["way"]) == {FIXED, BY_PHASE, ALL_WINDOWS, "last 1 windows", DT, ACCEPT}
    settings = experiment_settings("changing", *options)
    case = TrafficSequence("3.0, turns of 1000", 3, 0, 1000)
    turns, ports, buffer = sequence_arrivals(case, settings)
    assert all((one.slot < 1000).all() and (one.port < ports).all() for one in turns)
    run = KnownRun.in_slots(turns[:1], ports, buffer)
    scorer = zoo.rule(zoo.names()[0]).scorer()
    assert run.sent_in_turns("learned", [scorer, scorer], [[0, 7]]) == run.sent("learned", scorer)
    mine = rows[rows["sequence"] == case.sequence]
    assert mine["sent_by_lqd"].nunique() == 1


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
