"""The optimal online policy: brute force over histories, LQD and thresholds of the native core, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.open_loop.slotted import packets_sent
from foretail.sim_bridge.policy_settings import SlotParameters
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
from tests.examples import draws

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


def test_a_switch_with_too_many_states_is_refused() -> None:
    with pytest.raises(ForetailError, match="choose a smaller switch"):
        rate_of(on_off(4, 0.5, 4.0, ahead=False), Switch(4, 34))
