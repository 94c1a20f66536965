"""The graph of errors against the simulators, against another graph, and the theorem it led to. Costs 30 s.

docs/reports/theory.md has the claims.
"""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.pipelines import cli
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.open_loop.slotted import packets_sent
from foretail.sim_bridge.policy_settings import SlotParameters
from foretail_studies.engines.error_graph import NEVER, Policy, explore, least_cost, longest_walks, theorem_weights
from foretail_studies.engines.online_optimum import (
    MarkovArrivals,
    Queues,
    Switch,
    WholeBursts,
    best_alpha,
    bursts,
    improved,
    on_off,
    one_slot_more,
    rate_of,
)
from foretail_studies.engines.worst_cases import GUARDS, OBJECTIVES, WorstCase, measure, search
from tests.examples import draws
from tests.refusals import refusing
from tests.sim_bridge.buffer.test_theorems import within_the_model
from tests.sim_bridge.open_loop.test_slotted_dataset import slow_late_qd
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.sim_bridge.slow_models.policies import is_safe, is_safe_in_the_paper
from tests.sim_bridge.slow_models.slotted import parse, reduced, run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals

pytestmark = pytest.mark.slow
SAFE = {"share": is_safe, "paper": is_safe_in_the_paper, "none": lambda *_: False}
POLICIES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    answers_needed=st.sampled_from((NEVER, 1, 2, 3)),
    safeguard=st.sampled_from(tuple(SAFE)),
    counting=st.sampled_from(("counted", "uncounted")),
    tie=st.sampled_from(("lowest_port", "highest_port")),
)


def name_of(policy: Policy) -> str:
    return "followlqd" if policy.answers_needed == NEVER else "guarded" if policy.answers_needed > 1 else "credence"


def slow_lead(policy: Policy, slot: list[int], port: list[int], predictions: list[int]) -> tuple[int, list[int]]:
    """Return how much more LQD sends, and its labels, by the slow simulator."""
    rules = Rules(counting=policy.counting, tie=policy.tie)
    chosen = Settings(answers_needed=max(1, policy.answers_needed))
    lqd = run_slotted("lqd", policy.ports, policy.buffer, slot, port, rules=rules)
    own = run_slotted(
        name_of(policy),
        policy.ports,
        policy.buffer,
        slot,
        port,
        predictions,
        rules=rules,
        settings=chosen,
        safe=SAFE[policy.safeguard],
    )
    return lqd.transmitted - own.transmitted, lqd.lqd_drop


def followed(policy: Policy, slot: list[int], port: list[int], label: list[int], predictions: list[int]) -> int:
    """Return the lead that the graph's steps give these arrivals; every step must be possible."""
    ports = np.zeros((1, policy.ports, 4), np.int64)
    lead = at = 0
    for now in range((max(slot) if slot else 0) + policy.buffer + 1):
        while at < len(slot) and slot[at] == now:
            possible, _, ports = policy.arrived(ports, port[at], bool(label[at]), bool(predictions[at]))
            assert possible.all()
            again = policy.states(np.zeros(1, np.int64), ports)
            assert (policy.numbers(again)[1] == ports).all()
            at += 1
        possible, ports, more = policy.departed(ports)
        assert possible.all()
        lead += int(more[0])
    assert not ports[:, :, :3].any()
    return lead


@settings(max_examples=draws(300))
@given(case=slotted_arrivals(max_ports=3, max_buffer=7), rules=POLICIES, draw=st.randoms(use_true_random=False))
def test_steps_are_those_of_the_simulators(case: SlottedArrivals, rules: dict[str, Any], draw: Any) -> None:
    policy = Policy(max(2, case.ports), max(2, case.ports, case.buffer), any_load=True, **rules)
    slot, port = [int(one) for one in case.slot], [int(one) for one in case.port]
    predictions = [0 if policy.answers_needed == NEVER else draw.randrange(2) for _ in slot]
    lead, label = slow_lead(policy, slot, port, predictions)
    assert followed(policy, slot, port, label, predictions) == lead


def counts(policy: str, ports: int, buffer: int, slots: str, predictions: str, **rules: Any) -> tuple[int, int, int]:
    """Return LQD's lead, and how many predictions to drop and to pass are wrong, by the C++ simulator."""
    slot, port = (np.asarray(one) for one in parse(slots))
    told = np.array([int(one) for one in predictions], np.uint8)
    lqd = slotted("lqd", ports, buffer, slot.astype(np.int64), port.astype(np.int32), **rules)
    asks = None if policy == "followlqd" else told
    own = slotted(policy, ports, buffer, slot.astype(np.int64), port.astype(np.int32), asks, **rules)
    wrong = told != lqd["lqd_drop"]
    lead = int(lqd["transmitted"]) - int(own["transmitted"])
    return lead, int((wrong & (told == 1)).sum()), int((wrong & (told == 0)).sum())


CASES: list[tuple[dict[str, Any], Fraction | None]] = [
    ({"ports": 2, "buffer": 2}, Fraction(1)),
    ({"ports": 2, "buffer": 3}, Fraction(2)),
    ({"ports": 2, "buffer": 6}, Fraction(2)),
    ({"ports": 3, "buffer": 3}, Fraction(2)),
    ({"ports": 3, "buffer": 5}, Fraction(4)),
    ({"ports": 3, "buffer": 6, "counting": "uncounted"}, Fraction(5)),
    ({"ports": 3, "buffer": 4, "tie": "highest_port"}, Fraction(3)),
    ({"ports": 3, "buffer": 5, "any_load": True}, Fraction(4)),
    ({"ports": 2, "buffer": 4, "any_load": True}, None),
    ({"ports": 3, "buffer": 4, "answers_needed": NEVER}, Fraction(3)),
    ({"ports": 2, "buffer": 3, "answers_needed": 3}, None),
    ({"ports": 4, "buffer": 4}, Fraction(3)),
]


@pytest.mark.parametrize(("rules", "cost"), CASES, ids=str)
def test_cycles_repeat_in_the_simulator_and_potentials_prove_the_bound(
    rules: dict[str, Any], cost: Fraction | None
) -> None:
    graph = explore(Policy(**rules))
    bound = least_cost(graph)
    assert bound.cost == cost
    gained, wrong = int(graph.lead[bound.cycle].sum()), int(graph.wrong[bound.cycle].sum())
    assert gained > 0
    assert cost == (Fraction(gained, wrong) if wrong else None)
    own: dict[str, Any] = {name: rules[name] for name in ("counting", "tie") if name in rules}
    if rules.get("answers_needed", 1) > 1:
        own["answers_needed"] = rules["answers_needed"]
    measured = []
    for times in (3, 13):
        lead, drop, passed = counts(
            name_of(graph.policy), graph.policy.ports, graph.policy.buffer, *graph.walk(bound.cycle, times), **own
        )
        measured.append((lead, drop + passed))
    (few, few_wrong), (many, many_wrong) = measured
    assert (many - few, many_wrong - few_wrong) == (10 * gained, 10 * wrong)
    if bound.potential is not None and bound.cost is not None:
        edges = zip(graph.source, graph.target, graph.lead, graph.wrong, strict=True)
        for source, target, lead, error in edges:
            assert bound.potential[source] >= lead - bound.cost * int(error) + bound.potential[target]
        worse = bound.potential.copy()
        worse[int(graph.source[bound.cycle[0]])] -= 1
        assert not graph.proves(worse, graph.lead - int(bound.cost) * graph.wrong)


def flipped_family(ports: int, buffer: int) -> tuple[str, str]:
    """One wrong prediction that costs B - 1: the last packet that fills the buffer, to port 0, is predicted to pass."""
    slots, held = "", 0
    while buffer - held > ports - 1:
        slots += f"[{'0' * (ports - 1)}]"
        held += ports - 2
    slots += f"[{'0' * (buffer - held)}2][12]" + "[112]" * (buffer - 2)
    return slots, "0" * sum(one.isdigit() for one in slots)


@pytest.mark.parametrize(("ports", "buffer"), [*((3, buffer) for buffer in range(3, 40)), (5, 64), (8, 1000)])
def test_one_wrong_prediction_can_cost_a_buffer_less_one_packet(ports: int, buffer: int) -> None:
    for policy in ("credence", "followlqd"):
        assert counts(policy, ports, buffer, *flipped_family(ports, buffer)) == (buffer - 1, 0, 1)


@pytest.mark.parametrize("times", [10, 100])
def test_where_the_model_is_left_one_wrong_prediction_costs_without_end(times: int) -> None:
    """More than N arrivals in a slot: the safeguard keeps the excess of one error for ever."""
    graph = explore(Policy(2, 4, any_load=True))
    bound = least_cost(graph)
    lead, drop, passed = counts("credence", 2, 4, *graph.walk(bound.cycle, times))
    assert lead >= times - 2
    assert drop + passed == 1


@pytest.mark.parametrize(
    ("ports", "buffer", "start", "again"),
    [(3, 4, "[11][122]", "[120]"), (4, 5, "[0022][2331]", "[2310]"), (4, 6, "[000][2233][0231]", "[0321]")],
)
@pytest.mark.parametrize("counting", ["counted", "uncounted"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_with_the_papers_safeguard_right_predictions_lose_without_end(
    ports: int, buffer: int, start: str, again: str, counting: str, mirrored: bool
) -> None:
    """N does not divide B, at most N packets arrive in a slot; ours loses nothing. Mirrored: for the other tie."""
    tie = "highest_port" if mirrored else "lowest_port"
    for times in (20, 120):
        slot, port = parse(start + again * times)
        port = [ports - 1 - one for one in port] if mirrored else port
        rules = Rules(counting=counting, tie=tie)
        lqd = run_slotted("lqd", ports, buffer, slot, port, rules=rules)
        for safe, least in ((is_safe_in_the_paper, times - 1), (is_safe, 0)):
            own = run_slotted("credence", ports, buffer, slot, port, lqd.lqd_drop, rules=rules, safe=safe)
            lead = lqd.transmitted - own.transmitted
            assert lead >= least if least else lead == 0


def test_guards_lose_without_a_wrong_prediction() -> None:
    slots = "[00][01]" * 100
    slot, port = (np.asarray(one) for one in parse(slots))
    packets = slot.astype(np.int64), port.astype(np.int32)
    lqd = slotted("lqd", 2, 2, *packets)
    choices: list[dict[str, Any]] = [{"answers_needed": 2}, {"answers_needed": 3}]
    for guards in (*choices, {"answers_needed": 1, "drop_budget_packets": 1}):
        own = slotted("guarded", 2, 2, *packets, lqd["lqd_drop"], **guards)
        assert int(lqd["transmitted"]) - int(own["transmitted"]) >= 40


def effective(own: dict[str, Any]) -> NDArray[np.bool_]:
    """Return whether the answer that was followed dropped the packet, of packets that were asked about."""
    return np.asarray(np.asarray(own["outcome"]) == 2)


@settings(max_examples=draws(1500))
@given(
    case=slotted_arrivals(max_ports=4, max_buffer=9) | slotted_arrivals(max_ports=16, max_buffer=60),
    rate=st.sampled_from((0.02, 0.1, 0.5)),
    seed=st.integers(0, 2**32 - 1),
    counting=st.sampled_from(("counted", "uncounted")),
    tie=st.sampled_from(("lowest_port", "highest_port")),
)
def test_the_theorem_holds_in_the_model(case: SlottedArrivals, rate: float, seed: int, counting: str, tie: str) -> None:
    """LQD - policy <= wrong drops + (B - 1) wrong passes, of asked packets and of the answers that are followed."""
    buffer = max(case.buffer, case.ports)
    slot, port = within_the_model(case.ports, case.slot), np.asarray(case.port, np.int32)
    rules: dict[str, Any] = {"counting": counting, "tie": tie}
    lqd = slotted("lqd", case.ports, buffer, slot, port, **rules)
    label = np.asarray(lqd["lqd_drop"]) == 1
    told = (label ^ (np.random.default_rng(seed).random(len(label)) < rate)).astype(np.uint8)
    for policy in ("credence", "guarded", "followlqd"):
        own = slotted(policy, case.ports, buffer, slot, port, None if policy == "followlqd" else told, **rules)
        drops, taken = effective(own), np.asarray(own["outcome"]) == 0
        lead = int(lqd["transmitted"]) - int(own["transmitted"])
        assert lead <= (drops & ~label).sum() + (buffer - 1) * (taken & label).sum()


@pytest.mark.parametrize(
    ("rules", "holds"),
    [
        ({"ports": 2, "buffer": 7}, True),
        ({"ports": 3, "buffer": 5}, True),
        ({"ports": 4, "buffer": 4}, True),
        ({"ports": 3, "buffer": 5, "any_load": True, "safeguard": "none"}, True),
        ({"ports": 2, "buffer": 4, "any_load": True}, False),
        ({"ports": 3, "buffer": 4, "safeguard": "paper"}, False),
    ],
)
def test_the_theorem_is_decided_on_graphs(rules: dict[str, Any], holds: bool) -> None:
    graph = explore(Policy(**rules))
    weight = theorem_weights(graph)
    potential, cycles = longest_walks(graph, weight)
    assert (not cycles) == holds == graph.proves(potential, weight)


WORST_CASES = Path(__file__).with_name("worst_cases.json")
DOCS = Path(__file__).parents[3] / "docs"
FOUND = [WorstCase(**case) for case in json.loads(WORST_CASES.read_text("utf-8"))]
cases = pytest.mark.parametrize("case", FOUND, ids=lambda case: f"{case.objective}-{case.ports}")


def predictions(case: WorstCase) -> list[int]:
    count = len(parse(case.slots)[0])
    return [int(digit) for digit in case.predictions or "0" * count]


def slow_count(name: str, case: WorstCase) -> int:
    slot, port = parse(case.slots)
    told = predictions(case)
    if name == "opt":
        return slow_late_qd(case.ports, case.buffer, slot, port)[0]
    if name == "reduced":
        return run_slotted("followlqd", case.ports, case.buffer, *reduced(slot, port, told)).transmitted
    if name in ("tn", "fn"):
        label = run_slotted("lqd", case.ports, case.buffer, slot, port).lqd_drop
        return sum(not drop and lost == (name == "fn") for drop, lost in zip(told, label, strict=True))
    if name == "guarded_told":
        told = run_slotted("lqd", case.ports, case.buffer, slot, port).lqd_drop
        return run_slotted("guarded", case.ports, case.buffer, slot, port, told).transmitted
    if name in GUARDS:
        chosen: dict[str, Any] = {setting.removesuffix("_packets"): value for setting, value in GUARDS[name].items()}
        guarded = run_slotted("guarded", case.ports, case.buffer, slot, port, told, settings=Settings(**chosen))
        return guarded.transmitted
    return run_slotted(name, case.ports, case.buffer, slot, port, told).transmitted


@cases
def test_both_simulators_count_what_the_file_says_and_none_exceeds_what_is_proven(case: WorstCase) -> None:
    objective, (slot, port) = OBJECTIVES[case.objective], parse(case.slots)
    assert 2 <= case.ports <= 4
    assert case.ports <= case.buffer <= 8
    assert (slot[0], slot[-1] < 12, max(port) < case.ports) == (0, True, True)
    assert np.bincount(slot).max() <= (2 * case.buffer if objective.any_load else case.ports)
    assert len(case.predictions) == (len(slot) if objective.predicted else 0)
    assert 1 <= case.ratio <= (case.ratio if case.proven is None else case.proven)
    assert measure(case.counts, case.ports, case.buffer, slot, port, predictions(case)) == case.counts
    assert {name: slow_count(name, case) for name in case.counts} == case.counts


def test_the_safeguard_s_bound_is_reached_at_any_load() -> None:
    of_credence = [case for case in FOUND if case.objective == "credence_any_load"]
    assert {case.ports for case in of_credence if case.ratio == case.proven} == {2, 3, 4}


@pytest.mark.parametrize(("name", "sent"), [("credence", 1000), ("guarded", 1006), ("guarded_budget", 3880)])
def test_the_page_s_sequence_on_which_guards_gain_nothing_without_a_budget(name: str, sent: int) -> None:
    slot, port = np.repeat(np.arange(1000), 4), np.tile(np.arange(4), 1000)
    assert measure(["opt", name], 4, 4, slot.tolist(), port.tolist(), [1] * 4000) == {"opt": 4000, name: sent}


def test_the_claims_that_fail() -> None:
    assert {(case.objective, case.ports) for case in FOUND if case.violates} == {
        ("harmonic", 4),
        *((name, ports) for name in ("theorem_1", "lemma_1") for ports in (2, 3, 4)),
        ("theorem_2", 2),
    }


@cases
def test_the_data_show_the_case_and_the_page_shows_it_if_it_exceeds_its_claim(case: WorstCase) -> None:
    key = (OBJECTIVES[case.objective].text, str(case.ports), str(case.buffer), case.slots)
    with (DOCS / "data" / "worst_cases.csv").open(encoding="utf-8", newline="") as file:
        (row,) = [row for row in csv.reader(file) if tuple(row[:4]) == key]
    assert f"{float(case.ratio):.3f}" in row
    assert ("exceeds the claim" in row) == case.violates
    start = "| {} | {} | {} | `{}` |".format(*key)
    page = (DOCS / "reports" / "theory.md").read_text("utf-8")
    assert any(line.startswith(start) and f"| {float(case.ratio):.3f} |" in line for line in page.splitlines()) == (
        case.violates
    )


@pytest.mark.parametrize(
    ("objective", "ports", "buffer", "least"),
    [
        ("cs", 3, 3, "3/2"),
        ("followlqd", 3, 3, "3/2"),
        ("credence", 3, 3, "3"),
        ("lemma_1", 2, 2, "3/2"),
        ("theorem_1", 3, 3, "7/4"),
        ("credence_any_load", 2, 3, "3"),
    ],
)
def test_a_short_search_finds_a_bad_case(objective: str, ports: int, buffer: int, least: str) -> None:
    case = search(objective, ports, buffer, seed=1, restarts=2, steps=3000)
    assert case == search(objective, ports, buffer, seed=1, restarts=2, steps=3000)
    assert case.ratio >= Fraction(least)
    assert not case.slots.startswith("[]")
    assert not case.slots.endswith("[]")


def test_the_study_shows_what_its_sequences_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", "worst_cases", "size=small", "objectives=[cs,credence]", "steps=50", "hydra.run.dir=run"]
    assert cli.main(command) == 0
    rows = pd.read_parquet("run/worst_cases.parquet")
    assert set(rows["objective"]) == {"cs", "credence"}
    for row in rows.to_dict("records"):
        counts = {name: int(count) for name, count in row["counts"].items() if pd.notna(count)}
        case = WorstCase(**{field.name: row[field.name] for field in fields(WorstCase)} | {"counts": counts})
        assert {name: slow_count(name, case) for name in counts} == counts
        assert float(case.ratio) == row["ratio"]


DROP_TAIL = ("cs", "cp", "dt", "harmonic", "abm", "reverie", "followlqd")
PROCESSES = [
    on_off(2, 0.6, 5.0, ahead=False),
    on_off(3, 0.5, 4.0, ahead=True),
    bursts(3, 2, {2: 0.5, 6: 0.5}, 6.0, 0.4, ahead=False),
    bursts(2, 2, {3: 1.0}, 3.0, 0.5, ahead=True),
]


@st.composite
def small_chains(draw: st.DrawFn) -> MarkovArrivals:
    """Two states, two inputs and two ports; the second turn may go on or stay."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    sends = numbers.dirichlet([1.0] * 3, (2, 2))[:, :, :2]
    second = numbers.dirichlet([1.0] * 2, 2) if draw(st.booleans()) else None
    return MarkovArrivals([numbers.dirichlet([1.0] * 2, 2), second], sends)


def best_of_histories(arrivals: MarkovArrivals, buffer: int, slots: int, state: int, queues: Queues) -> float:
    """The most that can be sent in so many slots, where each decision depends on all that has happened."""

    def turn(slots: int, which: int, state: int, queues: list[int]) -> float:
        if which == 2:
            sent = sum(length > 0 for length in queues)
            left = [max(0, length - 1) for length in queues]
            return sent + (turn(slots - 1, 0, state, left) if slots > 1 else 0.0)
        chain = arrivals.transitions[which]
        total = 0.0
        for after in range(2):
            chance = float(after == state) if chain is None else float(chain[state, after])
            if not chance:
                continue
            refused = turn(slots, which + 1, after, queues)
            expected = (1 - float(arrivals.sends[which, after].sum())) * refused
            for port in range(2):
                choices = [refused]
                if sum(queues) < buffer:
                    choices.append(turn(slots, which + 1, after, [n + (p == port) for p, n in enumerate(queues)]))
                expected += float(arrivals.sends[which, after, port]) * max(choices)
            total += chance * expected
        return total

    return turn(slots, 0, state, list(queues))


@settings(max_examples=draws(20))
@given(arrivals=small_chains(), buffer=st.integers(1, 2), state=st.integers(0, 1), place=st.integers(0, 2))
def test_no_policy_sends_more_in_two_slots(arrivals: MarkovArrivals, buffer: int, state: int, place: int) -> None:
    switch = Switch(2, buffer)
    values = np.zeros((2, len(switch.queues)))
    for _ in range(2):
        values = one_slot_more(values, arrivals, switch, None)
    found = best_of_histories(arrivals, buffer, 2, state, switch.queues[place])
    assert values[state, place] == pytest.approx(found, abs=1e-12)


@settings(max_examples=draws(30))
@given(
    ports=st.integers(2, 3),
    buffer=st.integers(1, 8),
    alpha=st.sampled_from((0.5, 1.0, 1.7, 4.0, 100.0)),
    seed=st.integers(0, 1000),
)
def test_policies_send_what_the_native_ones_send(ports: int, buffer: int, alpha: float, seed: int) -> None:
    arrivals = on_off(ports, 0.7, 4.0, ahead=False).drawn(200, seed)
    switch = Switch(ports, buffer)
    parameters = SlotParameters(alpha=[alpha])
    native = packets_sent([arrivals], ports, buffer, [(name, parameters) for name in ("lqd", "cs", "dt")])
    own = (switch.lqd(), switch.complete_sharing, switch.dynamic_thresholds(alpha))
    assert [sent_in_all(arrivals, switch, policy) for policy in own] == native


def sent_in_all(arrivals: Slotted, switch: Switch, policy: np.ndarray) -> int:
    """Packets sent, those still buffered after the last slot included."""
    place = sent = 0
    for slot in range(int(arrivals.slot[-1]) + 1):
        for port in arrivals.port[arrivals.slot == slot]:
            place = policy[port, place]
        sent += int(switch.sent[place])
        place = switch.departed[place]
    return sent + sum(switch.queues[place])


@pytest.mark.parametrize("arrivals", PROCESSES)
def test_no_policy_sends_more_in_the_long_run(arrivals: MarkovArrivals) -> None:
    """Differences to LQD, which the chance of the arrivals moves little."""
    switch, slots = Switch(arrivals.ports, 6), 40_000
    lqd, cs, most = (
        rate_of(arrivals, switch, one).sent_per_slot for one in (switch.lqd(), switch.complete_sharing, None)
    )
    policies = [(name, SlotParameters(alpha=[2.0])) for name in ("lqd", *DROP_TAIL)]
    by_lqd, *sent = np.array(packets_sent([arrivals.drawn(slots, 1)], arrivals.ports, 6, policies)) / slots
    assert by_lqd == pytest.approx(lqd, rel=0.03)
    assert sent[0] - by_lqd == pytest.approx(cs - lqd, abs=0.004)
    assert max(sent) - by_lqd <= most - lqd + 0.002


@pytest.mark.parametrize("buffer", [4, 7])
def test_who_knows_more_sends_more(buffer: int) -> None:
    switch = Switch(3, buffer)
    for past, ahead in (
        (on_off(3, 0.6, 5.0, ahead=False), on_off(3, 0.6, 5.0, ahead=True)),
        (bursts(3, 2, {2: 0.5, 8: 0.5}, 8.0, 0.4, ahead=False), bursts(3, 2, {2: 0.5, 8: 0.5}, 8.0, 0.4, ahead=True)),
    ):
        # the same packets, told otherwise
        of_lqd = [rate_of(one, switch, switch.lqd()).sent_per_slot for one in (past, ahead)]
        assert of_lqd[0] == pytest.approx(of_lqd[1], abs=1e-6)
        alpha, of_dt = best_alpha(past, switch, [0.5, 2.0, 8.0])
        policy, of_queues = improved(past, switch, switch.dynamic_thresholds(alpha))
        rates = [of_dt, of_queues, rate_of(past, switch).sent_per_slot, rate_of(ahead, switch).sent_per_slot]
        assert np.all(np.diff(rates) >= -1e-6)
        assert rates[2] > rates[0] + 1e-3
        assert rate_of(past, switch, policy).sent_per_slot == pytest.approx(of_queues, abs=1e-6)
        refuses = policy == np.arange(len(switch.queues))
        assert np.all(refuses | (policy == switch.complete_sharing))


@pytest.mark.parametrize(("ports", "buffer", "slots", "load"), [(2, 4, 2, 0.5), (3, 6, 2, 0.4), (3, 7, 3, 0.7)])
def test_bursts_of_all_inputs_are_the_same_with_sorted_queues(ports: int, buffer: int, slots: int, load: float) -> None:
    whole, switch = WholeBursts(ports, buffer, slots, load), Switch(ports, buffer)
    assert slots / (slots + (1 - whole.starts) / whole.starts) == pytest.approx(load)
    arrivals = bursts(ports, ports, {slots: 1.0}, 1 / whole.starts, ahead=True)
    transition = arrivals.transitions[0]
    assert transition is not None
    transition[1 + slots * np.arange(ports)] = transition[0]  # the next burst may begin at once
    for sorted_queues, queues in (
        (None, None),
        (whole.dynamic_thresholds(2.0), switch.dynamic_thresholds(2.0)),
        (whole.dynamic_thresholds(np.inf), switch.complete_sharing),
    ):
        found = rate_of(arrivals, switch, queues).sent_per_slot
        assert whole.sent_per_slot(sorted_queues) == pytest.approx(found, abs=1e-6)
    # which of two longest queues loses a packet is decided otherwise
    assert whole.sent_per_slot(whole.lqd()) == pytest.approx(rate_of(arrivals, switch, switch.lqd())[0], rel=0.005)


test_what_cannot_be_is_refused = refusing(
    (lambda: Policy(1, 4), "needs 2 ports"),
    (lambda: Policy(4, 3), "a packet of buffer for each"),
    (lambda: Policy(5, 9), "do not fit 64 bits"),
    (lambda: Policy(2, 3, safeguard="some"), "safeguard = some is unknown"),
    (lambda: Policy(2, 3, tie="any"), "tie = any is unknown"),
    (lambda: Policy(2, 3, answers_needed=9), "answers_needed = 9"),
    (lambda: search("none", 2, 2), "no objective 'none'"),
    (lambda: search("cs", 1, 2), "from 2 to 10"),
    (lambda: search("cs", 3, 2), "at most the buffer, 2"),
    (lambda: rate_of(on_off(4, 0.5, 4.0, ahead=False), Switch(4, 34)), "choose a smaller switch"),
)
