"""Lemma 1 and Theorem 1 of Credence (NSDI'24) do not hold, whichever way the paper is read.

Two readings of eta = LQD / FollowLQD without the packets that are predicted to drop:

- *rest*: FollowLQD sees nothing but the other packets, so its thresholds are the queues of LQD on them (Definition 1);
- *all*: FollowLQD serves the other packets, but its thresholds are those of all packets, which are Credence's own (the
  proof of Lemma 1).

Every count comes from :func:`simulate` below, which knows nothing of the library, and from the library. N divides B, at
most N packets arrive in a slot, and all counting, tie and victim rules and both forms of the safeguard give the same.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.open_loop import scores

RULES = tuple(product(("counted", "uncounted"), ("lowest_port", "highest_port")))
VICTIMS = ("tail", "tail_kept", "head", "random")
SAFE = {
    "paper": lambda longest, ports, buffer: longest < buffer / ports,
    "integers": lambda longest, ports, buffer: ports * (longest + 1) <= buffer,
}
LQD_RATIO = 1.707


class Case(NamedTuple):
    """A sequence: of every slot the packets in order, each a port and a prediction (1 = drop)."""

    ports: int
    buffer: int
    slots: list[list[tuple[int, int]]]


class Sent(NamedTuple):
    """Packets that are sent; FollowLQD by both readings."""

    lqd: int
    credence: int
    rest: int
    all: int


def admit_as_lqd(queues: list[int], port: int, buffer: int, counting: str, tie: str) -> None:
    """Let a packet into queues of which only the lengths are kept: whose packet goes does not matter to them."""
    full = sum(queues) == buffer
    queues[port] += counting == "counted"
    if full:
        longest = [p for p, length in enumerate(queues) if length == max(queues)]
        queues[longest[0] if tie == "lowest_port" else longest[-1]] -= 1
    queues[port] += counting == "uncounted"


def simulate(case: Case, counting: str, tie: str, safeguard: str) -> Sent:
    lqd, lqd_of_rest, credence, rest, everything = ([0] * case.ports for _ in range(5))
    sent = dict.fromkeys(range(5), 0)
    waiting = list(case.slots)
    while waiting or any(map(sum, (lqd, credence, rest, everything))):
        for port, told in waiting.pop(0) if waiting else []:
            admit_as_lqd(lqd, port, case.buffer, counting, tie)
            safe = SAFE[safeguard](max(credence), case.ports, case.buffer)
            if safe or (credence[port] < lqd[port] and sum(credence) < case.buffer and not told):
                credence[port] += 1
            if not told:
                admit_as_lqd(lqd_of_rest, port, case.buffer, counting, tie)
                for queues, thresholds in ((rest, lqd_of_rest), (everything, lqd)):
                    if queues[port] < thresholds[port] and sum(queues) < case.buffer:
                        queues[port] += 1
        for name, queues in enumerate((lqd, credence, rest, everything, lqd_of_rest)):
            sent[name] += sum(length > 0 for length in queues)
            queues[:] = [max(0, length - 1) for length in queues]
    return Sent(*(sent[name] for name in range(4)))


class Arrays(NamedTuple):
    """A case as the library takes it."""

    slot: np.ndarray
    port: np.ndarray
    told: np.ndarray


def arrays(case: Case) -> Arrays:
    rows = [(number, port, told) for number, packets in enumerate(case.slots) for port, told in packets]
    slot, port, told = zip(*rows, strict=True)
    return Arrays(np.array(slot, np.int64), np.array(port, np.int32), np.array(told, np.uint8))


def native(case: Case, counting: str, tie: str, victim: str) -> tuple[int, int, int]:
    """Return what LQD, Credence, and FollowLQD by the reading *rest* send."""
    slot, port, told = arrays(case)
    kept = told == 0
    given = {
        "lqd": (slot, port),
        "credence": (slot, port, told),
        "followlqd": (slot[kept], port[kept]),
    }
    lqd, credence, rest = (
        slotted(policy, case.ports, case.buffer, *of, counting=counting, tie=tie, victim=victim)["transmitted"]
        for policy, of in given.items()
    )
    return lqd, credence, rest


def optimum(case: Case) -> int:
    slot, port, _ = arrays(case)
    return int(late_qd(case.ports, case.buffer, slot, port)["transmitted"])


def assert_sent(case: Case, expected: Sent) -> None:
    """Both simulators, under every rule."""
    assert case.buffer % case.ports == 0
    assert max(map(len, case.slots)) <= case.ports
    for counting, tie in RULES:
        for safeguard in SAFE:
            assert simulate(case, counting, tie, safeguard) == expected, (counting, tie, safeguard)
        for victim in VICTIMS:
            assert native(case, counting, tie, victim) == expected[:3], (counting, tie, victim)


def theorem_1(ports: int, share: int, repeats: int) -> Case:
    """The family that refutes Theorem 1: N ports, a buffer of `share` packets for each, m = min(share, (N - 1) / 2).

    Port 0 is filled to B by up to N packets a slot, the first `share` of them predicted to drop; the safeguard takes
    them. In each of the `repeats` slots that follow, LQD's queue 0 has room for what it and m others have sent: m + 1
    packets come for port 0 (1 in the first such slot), all but the last predicted to drop, then one for each of m other
    ports. Credence, which is full, sends one packet a slot; FollowLQD without the predicted drops has room for all.
    """
    buffer, others = share * ports, min(share, (ports - 1) // 2)
    slots: list[list[tuple[int, int]]] = []
    length, doomed = 0, share
    while True:
        now = min(ports, buffer - length)
        drops = min(now, doomed)
        slots.append([(0, 1)] * drops + [(0, 0)] * (now - drops))
        doomed -= drops
        length += now
        if length == buffer:
            break
        length -= 1
    for number in range(repeats):
        drops = others if number else 0
        slots.append([(0, 1)] * drops + [(0, 0)] + [(port, 0) for port in range(1, others + 1)])
    return Case(ports, buffer, slots)


def test_lemma_1_does_not_hold() -> None:
    """N = B = 2, slots [00][01][0], predictions 1 0 0 0 0: eta is 1, and Credence sends less than LQD."""
    case = Case(2, 2, [[(0, 1), (0, 0)], [(0, 0), (1, 0)], [(0, 0)]])
    assert_sent(case, Sent(lqd=4, credence=3, rest=4, all=4))
    assert optimum(case) == 4


@pytest.mark.parametrize(
    ("ports", "share", "sent"),
    [
        (5, 2, Sent(910, 312, 910, 910)),
        (9, 4, Sent(1536, 340, 1536, 1536)),
        (9, 6, Sent(1556, 360, 1554, 1554)),
    ],
)
def test_theorem_1_does_not_hold(ports: int, share: int, sent: Sent) -> None:
    case = theorem_1(ports, share, repeats=300)
    assert_sent(case, sent)
    assert optimum(case) == sent.lqd
    assert sent.lqd / sent.credence > LQD_RATIO * sent.lqd / min(sent.rest, sent.all)


@pytest.mark.parametrize(("ports", "share"), [(3, 1), (4, 3), (5, 1), (6, 9), (8, 2), (12, 4)])
@pytest.mark.parametrize("repeats", [1, 40])
def test_the_gap_grows_to_half_the_ports_while_eta_falls_to_1(ports: int, share: int, repeats: int) -> None:
    """Beyond what fills port 0, LQD sends m + 1 packets a slot and Credence one; eta's loss is a constant, share - m.

    So LQD / Credence tends to m + 1, at most (N + 1) / 2, and eta to 1.
    """
    case = theorem_1(ports, share, repeats)
    others = min(share, (ports - 1) // 2)
    filled = sum(map(len, case.slots)) - repeats * (2 * others + 1) + others  # the first of the slots has m fewer
    lqd = filled + repeats * (others + 1) - others
    rest = lqd - (share - others)
    assert_sent(case, Sent(lqd, filled + repeats, rest, rest))
    assert optimum(case) == lqd


def test_eta_and_the_recovered_loss_can_be_1_where_credence_sends_a_fifth() -> None:
    """And no more than it would by accepting always."""
    case = theorem_1(64, 20, 300)
    slot, port, told = arrays(case)
    lqd, credence, rest = native(case, "counted", "lowest_port", "tail")
    accept = slotted("followlqd", 64, 1280, slot, port)["transmitted"]
    always = slotted("credence", 64, 1280, slot, port, np.zeros_like(told))["transmitted"]
    assert scores.prediction_error(lqd, rest) == 1
    assert scores.recovered_loss(lqd, rest, accept) == 1
    assert credence == always == accept
    assert scores.sent_percent_of_lqd(credence, lqd) == pytest.approx(21.1, abs=0.05)
