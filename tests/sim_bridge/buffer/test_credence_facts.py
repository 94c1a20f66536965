"""What is known about Credence, exactly: where published claims fail, and what its parts do.

Sources: Credence (NSDI'24) sections 2 and 3, Definition 1, Theorem 2. What perfect predictions give is in
``test_theorems``, Lemma 1 and Theorem 1 are in ``test_counterexamples``. Sequences are printed as in the papers:
``[222][112][]`` is three slots, each with the ports of its arrivals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.sim_bridge._native import slotted
from tests.sim_bridge.slow_models.lqd import Rules
from tests.sim_bridge.slow_models.policies import is_safe_in_the_paper
from tests.sim_bridge.slow_models.slotted import parse, run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals

VICTIMS = ("tail", "tail_kept", "head", "random")
THREE_PORTS = "[222][112][001][000][11][020][][20][0][]"
CLOSED_FORM = "[0][][][00][1][11][][][][][11][10][11][11][10][00][][1][][][][0]"


def run(policy: str, ports: int, buffer: int, slot: Any, port: Any, predictions: Any = None, **rules: Any) -> Any:
    return slotted(
        policy,
        ports,
        buffer,
        np.asarray(slot, np.int64),
        np.asarray(port, np.int32),
        None if predictions is None else np.asarray(predictions, np.uint8),
        **rules,
    )


def within_the_model(ports: int, slot: Any) -> NDArray[np.int64]:
    """Delay arrivals to later slots until none has more than one per port of the switch, as the model demands."""
    delayed: list[int] = []
    for wanted in slot:
        at = max([wanted, *delayed[-1:]])
        delayed.append(at + (delayed[-ports:] == [at] * ports))
    return np.array(delayed, np.int64)


def poisson_bursts(ports: int, buffer: int, slots: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The workload of the paper's Figure 14: bursts of the size of the buffer to random ports, Poisson in time, over a
    background of single packets. A burst arrives at `ports` packets a slot.
    """
    draw = np.random.default_rng(seed)
    arrivals: list[list[int]] = [[] for _ in range(slots)]
    for start in np.flatnonzero(draw.random(slots) < min(1.0, ports / (2 * buffer))):
        target = int(draw.integers(ports))
        for k in range(buffer):
            if start + k // ports < slots:
                arrivals[start + k // ports].append(target)
    for slot in arrivals:
        slot.extend(draw.integers(0, ports, draw.integers(0, ports + 1)).tolist())
        draw.shuffle(slot)
    slot_of = np.repeat(np.arange(slots), [len(slot) for slot in arrivals])
    return within_the_model(ports, slot_of), np.array([port for slot in arrivals for port in slot], np.int32)


def test_beyond_the_model_the_safeguard_may_keep_a_head_victim_and_lose_another_packet() -> None:
    """Three arrivals in a slot of a switch with two ports: safe is no longer harmless before the slot ends."""
    slot, port = parse("[110][1]")
    lqd = run("lqd", 2, 2, slot, port, victim="head")
    credence = run("credence", 2, 2, slot, port, lqd["lqd_drop"], victim="head")
    assert lqd["lqd_drop"].tolist() == [1, 0, 0, 0]
    assert credence["outcome"].tolist() == [0, 0, 3, 1]
    assert (lqd["transmitted"], credence["transmitted"]) == (3, 2)


def test_beyond_the_model_a_tail_victim_is_lost_too_where_the_arrival_does_not_count() -> None:
    """LQD then never refuses an arrival: its tail victim was queued before, under the safeguard, in the same slot."""
    slot, port = parse("[10011][00]")
    lqd = run("lqd", 2, 4, slot, port, counting="uncounted")
    credence = run("credence", 2, 4, slot, port, lqd["lqd_drop"], counting="uncounted")
    assert lqd["lqd_drop"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert (lqd["transmitted"], credence["transmitted"]) == (6, 5)
    rules = Rules(counting="uncounted")
    assert run_slotted("lqd", 2, 4, slot, port, rules=rules).transmitted == 6
    assert run_slotted("credence", 2, 4, slot, port, lqd["lqd_drop"], rules=rules).transmitted == 5


def test_the_paper_s_safeguard_loses_a_packet_when_ports_do_not_divide_the_buffer() -> None:
    slot, port = parse(THREE_PORTS)
    rules = Rules(victim="head")
    lqd = run_slotted("lqd", 3, 4, slot, port, rules=rules)
    paper = run_slotted("credence", 3, 4, slot, port, lqd.lqd_drop, rules=rules, safe=is_safe_in_the_paper)
    ours = run_slotted("credence", 3, 4, slot, port, lqd.lqd_drop, rules=rules)
    assert (lqd.transmitted, paper.transmitted, ours.transmitted) == (17, 16, 17)
    native = run("lqd", 3, 4, slot, port, victim="head")
    assert native["transmitted"] == 17
    assert run("credence", 3, 4, slot, port, native["lqd_drop"], victim="head")["transmitted"] == 17


@given(case=slotted_arrivals(), victim=st.sampled_from(("tail", "head")))
def test_both_safeguards_are_one_when_ports_divide_the_buffer(case: SlottedArrivals, victim: str) -> None:
    case = case._replace(buffer=case.ports * max(1, case.buffer // case.ports))
    rules = Rules(victim=victim)
    labels = run_slotted("lqd", *case, rules=rules).lqd_drop
    ours = run_slotted("credence", *case, labels, rules=rules)
    assert run_slotted("credence", *case, labels, rules=rules, safe=is_safe_in_the_paper) == ours


def test_another_tie_rule_than_that_of_the_labels_can_lose_packets() -> None:
    lost = 0
    for seed in range(5):
        slot, port = poisson_bursts(8, 64, slots=2000, seed=seed)
        lqd = run("lqd", 8, 64, slot, port, tie="lowest_port")
        other = run("credence", 8, 64, slot, port, lqd["lqd_drop"], tie="highest_port")
        assert other["transmitted"] <= lqd["transmitted"]
        lost += lqd["transmitted"] - other["transmitted"]
    assert lost > 0


@pytest.mark.parametrize("counting", ["counted", "uncounted"])
@pytest.mark.parametrize("tie", ["lowest_port", "highest_port"])
def test_the_closed_form_is_not_an_upper_bound_of_eta(counting: str, tie: str) -> None:
    """Nothing is predicted to drop, so that all readings of eta are one."""
    slot, port = parse(CLOSED_FORM)
    lqd = run("lqd", 2, 4, slot, port, counting=counting, tie=tie)
    follow = run("followlqd", 2, 4, slot, port, counting=counting, tie=tie)
    for policy, native in (("lqd", lqd), ("followlqd", follow)):
        slow = run_slotted(policy, 2, 4, slot, port, rules=Rules(counting, tie))
        assert slow.transmitted == native["transmitted"]
    assert (lqd["transmitted"], follow["transmitted"]) == (19, 17)
    false_negatives = int(lqd["lqd_drop"].sum())
    true_negatives = len(slot) - false_negatives
    closed_form = true_negatives / (true_negatives - min((2 - 1) * false_negatives, true_negatives))
    assert closed_form == pytest.approx(1.056, abs=5e-4)
    assert closed_form < 19 / 17 == pytest.approx(1.118, abs=5e-4)


def test_always_accepting_is_following_lqd_where_the_safeguard_is_silent() -> None:
    slot, port = poisson_bursts(8, 7, slots=500, seed=1)  # a buffer below the number of ports: never safe
    follow, accept = (run(policy, 8, 7, slot, port) for policy in ("followlqd", "credence"))
    assert accept["exposed"].all()
    np.testing.assert_array_equal(accept["outcome"], follow["outcome"])
    np.testing.assert_array_equal(accept["asked"], accept["outcome"] == 0)


@given(case=slotted_arrivals(max_ports=8))
def test_predictions_that_always_drop_still_let_the_safeguard_accept(case: SlottedArrivals) -> None:
    accepts = run("credence", *case, np.ones(len(case.slot)))
    np.testing.assert_array_equal(accepts["outcome"] == 0, accepts["exposed"] == 0)
