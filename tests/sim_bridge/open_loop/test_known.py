"""Known arrivals under a predictor in the process, against a slow switch that decides packet by packet. Ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold
from foretail.models.ensemble.scorers import scorer_of
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail.sim_bridge.open_loop.scores import Decider
from tests.strategies import SlottedArrivals, slotted_arrivals, small_ensembles

READ = ("queue", "occupancy", "active_queues", "gap")
NAMES = [feature.name for feature in FEATURES]
Rule = Callable[[dict[str, int]], bool]


def slow_sent(given: SlottedArrivals, drops: Rule) -> tuple[int, list[dict[str, int]]]:
    """Packets that Complete Sharing with a predictor sends, and what it saw."""
    lengths = [0] * given.ports
    sent, seen, last = 0, [], 0
    for slot, port in zip(given.slot, given.port, strict=True):
        for _ in range(min(slot - last, given.buffer)):
            lengths = [max(length - 1, 0) for length in lengths]
        last = slot
        row = {
            "queue": 4 * lengths[port],  # in cells of a quarter of a packet
            "occupancy": 4 * sum(lengths),
            "active_queues": sum(length > 0 for length in lengths),
            "gap": 4 * (max(lengths) - lengths[port]),
        }
        row["fits"] = sum(lengths) < given.buffer
        seen.append(row)
        if not drops(row) and row["fits"]:
            lengths[port] += 1
            sent += 1
    return sent, seen


def known(given: SlottedArrivals) -> KnownRun:
    batch = Slotted(np.array(given.slot, np.int64), np.array(given.port, np.int32))
    return KnownRun.in_slots([batch], given.ports, given.buffer)


def rule_of(model: object) -> Rule:
    names = [item.name for item in model.features]  # type: ignore[attr-defined]
    return lambda row: bool(model.exceeds(np.array([[row[name] for name in names]]))[0])  # type: ignore[attr-defined]


@given(arrivals=slotted_arrivals(max_ports=5, max_buffer=12), model=small_ensembles(READ))
def test_a_predictor_in_the_process_sees_and_sends_what_a_slow_switch_does(arrivals, model) -> None:  # type: ignore[no-untyped-def]
    sent, seen = slow_sent(arrivals, rule_of(model))
    run = known(arrivals)
    assert run.sent("learned", scorer_of(model)) == sent
    visits = run.visited("learned", scorer_of(model), rows=10**9, seed=1)
    fitting = [row for row in seen if row["fits"]]
    for name in READ:
        assert visits.features[:, NAMES.index(name)].tolist() == [row[name] for row in fitting]
    assert (visits.value > 0).tolist() == [rule_of(model)(row) for row in fitting]
    assert scorer_of(model).margins(visits.features).tolist() == visits.value.tolist()


@given(arrivals=slotted_arrivals(max_ports=5, max_buffer=12), alpha=st.sampled_from([0.5, 1.0, 4.0, 16.0]))
def test_the_starting_rule_is_dynamic_thresholds_up_to_its_rounding(arrivals, alpha) -> None:  # type: ignore[no-untyped-def]
    """`pressure` rounds logarithms to an eighth of an octave, so the rule lies between two close alphas."""
    rule = AdaptiveThreshold.dynamic_thresholds(alpha, (50.0, 50.0)).scorer()
    visits = known(arrivals).visited("learned", rule, rows=10**9, seed=1, features=["queue", "occupancy"])
    queue = visits.features[:, NAMES.index("queue")] / 4
    free = arrivals.buffer - visits.features[:, NAMES.index("occupancy")] / 4
    dropped = visits.value > 0
    assert (queue[dropped] >= alpha * free[dropped]).all()
    assert (queue[~dropped] <= alpha * 1.3 * free[~dropped]).all()


def test_half_of_the_answers_inverted_is_neither_rule_and_none_is_the_rule() -> None:
    run = KnownRun.in_slots(Incast(fan_in=5, background_load=0.6).batches(20, 200, 4000, seed=3), 20, 200)
    rule = AdaptiveThreshold.dynamic_thresholds(16.0, (50.0, 50.0)).scorer()
    sent = [run.sent("learned", rule, inverted=share, draw=1) for share in (0.0, 0.1, 0.5, 1.0)]
    assert sent[0] == run.sent("learned", rule)
    assert sorted(sent, reverse=True) == sent
    assert len(set(sent)) == 4


def test_a_slotted_dataset_is_the_same_run_in_slots_and_in_bytes(tmp_path: Path) -> None:
    made = Incast(fan_in=3, background_load=0.6)
    described = slotted_run(made, 8, 20, 3000, 1, cell_bytes=256)
    write_open_loop_dataset(tmp_path / "run", described, arrivals_in_bytes(made.batches(8, 160, 3000, 1)))
    dataset = Dataset.open(tmp_path / "run")
    rule = AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer()
    run, scores = (
        KnownRun.of(dataset),
        replay_scores(dataset, np.zeros(dataset.manifest.rows, np.bool_), Decider("learned", rule)),
    )
    assert [run.sent("learned", rule) * 1024, run.lqd * 1024] == [scores.sent_bytes, scores.lqd_bytes]
    assert run.sent("learned", rule) < run.lqd


def test_features_that_nobody_reads_are_zero_unless_they_are_asked_for() -> None:
    """A predictor may see more than the policy that runs or the teacher read."""
    run = KnownRun.in_slots(Incast(fan_in=5, background_load=0.6).batches(8, 80, 1000, seed=1), 8, 80)
    rule = AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer()
    more = ["queue_average", "gap", "threshold", "since_push_out"]
    for teacher in (None, rule):
        plain, wider = (
            run.visited("learned", rule, rows=500, seed=1, teacher=teacher, features=names) for names in ([], more)
        )
        assert plain.value.tolist() == wider.value.tolist()
        for place, name in enumerate(NAMES):
            if name in more:
                assert len(set(wider.features[:, place].tolist())) > 3
                assert not plain.features[:, place].any()
            else:
                assert wider.features[:, place].tolist() == plain.features[:, place].tolist()
    with pytest.raises(ForetailError, match="unknown feature 'incast'"):
        run.visited("learned", rule, rows=500, seed=1, features=["incast"])


def test_policies_without_a_question_take_no_scorer() -> None:
    run = KnownRun.in_slots(Incast(fan_in=5).batches(8, 80, 200, seed=1), 8, 80)
    with pytest.raises(ForetailError, match="asks no predictor"):
        run.sent("dt", AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer())
