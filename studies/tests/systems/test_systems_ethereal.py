"""Ethereal beside what its thesis prints; its run at size=small, of the nightly tier, costs ten seconds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge.ns3.messages import Message, assigned, pieces
from foretail_studies.systems.balancing import ETHEREAL, _assignment, uplink_loads


def test_the_load_of_an_uplink_is_what_its_messages_send() -> None:
    def to(source: int, destination: int, size_bytes: int, spine: int) -> Message:
        return Message(0, 1, size_bytes, source, destination, 0, spine=spine)

    messages = [to(0, 2, 10, 1), to(1, 3, 5, 1), to(2, 0, 7, 0), to(0, 1, 99, -1)]
    assert sorted(uplink_loads(messages, 2, 2)) == [0, 0, 7, 15]  # what stays below a leaf loads no uplink


def test_a_message_without_a_spine_takes_a_random_one() -> None:
    messages = [Message(0, 1, 1, 0, 2, place) for place in range(4_000)]
    loads = uplink_loads(messages, 4, 2, seed=1)
    assert sum(loads) == 4_000
    assert np.abs(np.array(loads) - 1_000).max() < 5 * (4_000 * 0.25 * 0.75) ** 0.5


def test_a_slow_assignment_piece_by_piece_loads_no_spine_more() -> None:
    """The greedy of the thesis's theorem: each piece to the uplink that this server has loaded least."""
    for flows in range(1, 20):
        for spines in (2, 3, 4, 6, 8):
            size_bytes = 24 * spines
            parts = Counter(piece.flow for piece in pieces(flows, spines, size_bytes))
            sizes = sorted((size_bytes // n for n in parts.values() for _ in range(n)), reverse=True)
            greedy = [0] * spines
            for size in sizes:
                greedy[greedy.index(min(greedy))] += size
            ours = Counter[int]()
            for piece in pieces(flows, spines, size_bytes):
                ours[piece.spine] += piece.size_bytes
            assert max(ours.values()) == max(greedy) == flows * size_bytes // spines


def test_the_thesis_counts_its_flows_and_subflows_in_its_own_network() -> None:
    ring = _assignment("ring", 16, 16, 16, seed=1)
    assert ring["ring: parts of a flow"] == 4
    assert ring["ring: subflows of a server"] == 16
    assert ring["ring: busiest uplink of Ethereal over spraying"] == pytest.approx(1)
    assert ring["ring: busiest uplink of ECMP over spraying"] > 1.5
    everybody = _assignment("all-to-all", 4, 4, 4, seed=1)
    assert everybody["all-to-all: flows"] == 16 * 15
    assert everybody["all-to-all: parts of a flow"] == 1
    assert everybody["all-to-all: busiest uplink of Ethereal over spraying"] == pytest.approx(1)


def test_a_network_without_spines_is_refused() -> None:
    with pytest.raises(ForetailError, match="spines = 0 is too small"):
        assigned([Message(0, 1, 5, 0, 2, 0)], 0, 2)


@pytest.mark.nightly
def test_ethereal_completes_a_ring_before_hashing_in_small() -> None:
    measured = ETHEREAL.measure("small", 1, lambda words: None)
    assert measured["ring of 1 MB: completion, Ethereal against ECMP, %"] < 0
    assert measured["ring of 1 MB: completion, Ethereal over spraying"] == pytest.approx(1, abs=0.15)
    assert measured["3 flows on 4 spines: more subflows, equal parts"] == 9
