"""Costs of wrong predictions: the simulators on the sequences and the table of docs/reports/theory.md. Takes 10 s."""

from __future__ import annotations

import csv
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.sim_bridge._native import late_qd, slotted
from tests.examples import draws
from tests.sim_bridge.buffer.test_theorems import within_the_model
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.sim_bridge.slow_models.policies import is_safe, is_safe_in_the_paper
from tests.sim_bridge.slow_models.slotted import parse, reduced, run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals

pytestmark = pytest.mark.slow


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


@pytest.mark.nightly
def test_of_all_sequences_of_seven_packets_none_costs_more_than_a_packet_per_wrong_prediction() -> None:
    """N = B = 2: ports, predictions and slots with at most 2 arrivals, 3 slots apart at most."""
    gaps_of = [one for one in product(range(3), repeat=6) if all(a or b for a, b in pairwise(one))]
    slots = np.array([np.cumsum([0, *one]) for one in gaps_of])
    told = np.array(list(product((0, 1), repeat=7)), np.uint8)
    slot = np.repeat(slots, len(told), axis=0) + 20 * np.arange(len(slots) * len(told))[:, None]
    predictions = np.tile(told, (len(slots), 1))
    reached = 0
    for ports in product((0, 1), repeat=6):  # the first packet goes to port 0: both ties give the same figures
        port = np.broadcast_to(np.array([0, *ports], np.int32), slot.shape)
        for tie in ("lowest_port", "highest_port"):
            packets = np.ascontiguousarray(slot.ravel()), np.ascontiguousarray(port.ravel())
            own = slotted("credence", 2, 2, *packets, np.ascontiguousarray(predictions.ravel()), tie=tie)
            label = np.asarray(own["lqd_drop"]).reshape(slot.shape)
            sent = (np.asarray(own["outcome"]).reshape(slot.shape) == 0).sum(axis=1)
            lead = (label == 0).sum(axis=1) - sent
            wrong = (label != predictions).sum(axis=1)
            assert (lead <= wrong).all()
            reached = max(reached, int(lead.max()))
    assert reached > 1


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
    slots = "[01110][]" + "[1000][1][1]" * times
    lead, drop, passed = counts("credence", 2, 4, slots, "0" * (5 + 6 * times))
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


DATA = Path(__file__).parents[3] / "docs" / "data" / "worst_cases.csv"
MEASURED: dict[str, tuple[str, dict[str, Any]]] = {
    "CS": ("cs", {}),
    "Credence": ("credence", {}),
    "DT": ("dt", {}),
    "FollowLQD": ("followlqd", {}),
    "Guarded Credence": ("guarded", {}),
    "Guarded, one drop in 25 slots": ("guarded", {"answers_needed": 1, "drop_budget": 1}),
    "Guarded, two answers": ("guarded", {"answers_needed": 2}),
    "Harmonic": ("harmonic", {}),
    "LQD": ("lqd", {}),
}
"""Policies of the table by their words, with settings of the slow simulator."""


def slow_count(words: str, ports: int, buffer: int, slot: list[int], port: list[int], told: list[int]) -> int:
    if words == "OPT":
        optimum = late_qd(ports, buffer, np.array(slot, np.int64), np.array(port, np.int32))
        return int(optimum["transmitted"])
    label = run_slotted("lqd", ports, buffer, slot, port).lqd_drop
    if words in ("TN", "FN"):
        return sum(not drop and lost == (words == "FN") for drop, lost in zip(told, label, strict=True))
    if words == "reduced":
        return run_slotted("followlqd", ports, buffer, *reduced(slot, port, told)).transmitted
    if words == "Guarded, told right":
        return run_slotted("guarded", ports, buffer, slot, port, label).transmitted
    name, given = MEASURED[words]
    return run_slotted(name, ports, buffer, slot, port, told, settings=Settings(**given)).transmitted


def test_sequences_of_the_table_send_what_it_says() -> None:
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 63
    for row in rows:
        slot, port = parse(row["slots"])
        told = [int(digit) for digit in row["predictions"] or "0" * len(slot)]
        counts = dict(re.findall(r"(\S.*?) (\d+)(?:, |$)", row["counts"]))
        switch = int(row["ports"]), int(row["buffer"])
        assert {words: str(slow_count(words, *switch, slot, port, told)) for words in counts} == counts, row
