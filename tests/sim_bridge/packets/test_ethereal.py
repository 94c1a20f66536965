"""Ethereal's assignment: as even as spraying, and with as few cuts as an integer program finds; costs ten seconds."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from foretail.core.errors import ForetailError
from foretail.sim_bridge.ns3.messages import Message, Piece, assigned, collective, halves, pieces

flows_and_spines = st.tuples(st.integers(0, 40), st.integers(1, 20))


def loads(found: list[Piece], spines: int) -> list[int]:
    total = [0] * spines
    for _, spine, size_bytes in found:
        total[spine] += size_bytes
    return total


@given(flows_and_spines, st.integers(1, 10**9), st.data())
def test_every_spine_gets_what_spraying_gives_it(sizes: tuple[int, int], size_bytes: int, data: st.DataObject) -> None:
    flows, spines = sizes
    found = pieces(flows, spines, size_bytes, first_spine=data.draw(st.integers(0, spines - 1)))
    of_flow: Counter[int] = Counter()
    for piece in found:
        assert piece.size_bytes > 0
        of_flow[piece.flow] += piece.size_bytes
    assert of_flow == Counter(dict.fromkeys(range(flows), size_bytes))  # no byte is lost or doubled
    most, least = max(loads(found, spines)), min(loads(found, spines))
    rounded = flows % spines // math.gcd(flows % spines, spines)
    assert most - least <= rounded  # a byte for each part
    assert most < flows * size_bytes / spines + max(rounded, 1)


@given(flows_and_spines, st.sampled_from([1, 7, 1000]))
def test_equal_cuts_add_r_times_s_minus_g_over_g_subflows(sizes: tuple[int, int], scale: int) -> None:
    flows, spines = sizes
    size_bytes = spines * scale  # so that no part is rounded away
    left = flows % spines
    common = math.gcd(left, spines)
    found = pieces(flows, spines, size_bytes)
    assert len(found) - flows == left * (spines - common) // common
    assert sum(number > 1 for number in Counter(piece.flow for piece in found).values()) <= left


def fewest_by_integer_program(flows: int, spines: int, *, count_cut_flows: bool) -> int:
    """The fewest parts, or flows that are cut, with which all spines get the same; a flow is one.

    Variables: the share of flow i on spine j, whether it is there, and whether flow i is cut.
    """
    cells = flows * spines
    size = 2 * cells + flows
    cost = np.zeros(size)
    cost[2 * cells :] = 1.0 if count_cut_flows else 0.0
    cost[cells : 2 * cells] = 0.0 if count_cut_flows else 1.0
    rows = []
    low: list[float] = []
    high: list[float] = []
    for flow in range(flows):
        whole, cut = np.zeros(size), np.zeros(size)
        whole[flow * spines : (flow + 1) * spines] = 1
        cut[cells + flow * spines : cells + (flow + 1) * spines] = 1
        cut[2 * cells + flow] = -spines
        rows += [whole, cut]
        low += [1, -np.inf]
        high += [1, 1]
    for spine in range(spines):
        share = np.zeros(size)
        share[spine:cells:spines] = 1
        rows.append(share)
        low.append(flows / spines)
        high.append(flows / spines)
    for cell in range(cells):
        there = np.zeros(size)
        there[cell], there[cells + cell] = 1, -1
        rows.append(there)
        low.append(-np.inf)
        high.append(0)
    integrality = np.r_[np.zeros(cells), np.ones(cells + flows)]
    found = milp(cost, integrality=integrality, bounds=Bounds(0, 1), constraints=LinearConstraint(rows, low, high))
    assert found.success
    return round(float(found.fun))


@pytest.mark.parametrize(("flows", "spines"), [(1, 2), (1, 3), (2, 3), (3, 4), (2, 4), (5, 3), (5, 4), (3, 5), (4, 6)])
def test_an_integer_program_cuts_as_few_flows_but_makes_fewer_parts(flows: int, spines: int) -> None:
    left, common = flows % spines, math.gcd(flows, spines)
    parts = fewest_by_integer_program(flows, spines, count_cut_flows=False)
    assert parts == flows + spines - common
    assert fewest_by_integer_program(flows, spines, count_cut_flows=True) == left
    assert len(pieces(flows, spines, spines)) >= parts


def test_known_cases() -> None:
    assert len(pieces(3, 4, 12)) == 12
    assert len(pieces(6, 16, 16)) == 48
    assert pieces(4, 4, 9, first_spine=3) == [(0, 3, 9), (1, 0, 9), (2, 1, 9), (3, 2, 9)]
    assert pieces(1, 2, 5) == [(0, 0, 2), (0, 1, 3)]
    assert pieces(1, 4, 2) == [(0, 1, 1), (0, 3, 1)]  # no part without a byte
    assert pieces(0, 4, 5) == []


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"spines": 0}, "spines = 0 is too small: give at least 1"),
        ({"flows": -1}, "flows = -1 is too small: give at least 0"),
        ({"size_bytes": 0}, "size_bytes = 0 is too small"),
        ({"first_spine": 4}, "first_spine = 4 is not one of 4 spines: give 0 to 3"),
    ],
)
def test_what_cannot_be_assigned_is_refused(given_: dict[str, int | str], sentence: str) -> None:
    values = {"flows": 3, "spines": 4, "size_bytes": 5} | given_
    with pytest.raises(ForetailError, match=sentence):
        pieces(values.pop("flows"), values.pop("spines"), values.pop("size_bytes"), **values)  # type: ignore[arg-type]


def exchange(kind: str, servers: int, size_bytes: int, **given_: int) -> list[Message]:
    return collective(
        kind,
        [list(range(servers))],
        size_bytes,
        **({"repeat": 1, "compute_ns": 0, "seed": 1} | given_),
        traffic_ns=1000,
    )


def test_all_to_all_keeps_its_flows_whole_and_loads_both_ends_of_every_spine_evenly() -> None:
    """As in the thesis: 16 spines and 16 servers below each leaf."""
    below, spines = 16, 16
    messages = exchange("all_to_all", 64, 63 * 1600)
    found = assigned(messages, spines, below)
    assert len(found) == 64 * 63
    inside = [message for message in found if message.source // below == message.destination // below]
    assert {message.spine for message in inside} == {-1}
    for end in ("source", "destination"):
        load = Counter((getattr(message, end) // below, message.spine) for message in found if message.spine >= 0)
        assert set(load.values()) == {16 * 48 // 16}
        assert len(load) == 4 * 16


def test_a_ring_of_four_channels_has_sixteen_subflows_a_server() -> None:
    ring = [leaf * 16 for leaf in range(16)]
    messages = collective("ring", [ring], 4 * 1_000_000, repeat=2, compute_ns=5, traffic_ns=1000, seed=1, channels=4)
    assert len(messages) == 2 * 16 * 4
    found = assigned(messages, 16, 16)
    assert len(found) == 2 * 16 * 16
    of_server = [message for message in found if message.source == 0 and message.round == 0]
    assert sorted(message.spine for message in of_server) == list(range(16))
    assert {message.size_bytes for message in of_server} == {250_000}
    later = next(message for message in found if message.round == 1)
    waits_for = [found[place] for place in later.after]
    assert len(waits_for) == 16  # all pieces of what it received
    assert {message.destination for message in waits_for} == {later.source}
    ends = {(message.connection, message.source, message.destination, message.spine) for message in found}
    assert len(ends) == len({message.connection for message in found})  # a connection keeps its spine


def test_parts_that_differ_by_a_byte_are_one_batch_and_steps_are_several() -> None:
    uneven = assigned(exchange("all_to_all", 16, 1_000), 4, 4)  # 15 parts of 66 or 67 bytes
    assert len(uneven) == 16 * 15
    ring = collective("ring_all_reduce", [[0, 4, 8, 12]], 4_000, repeat=1, compute_ns=0, traffic_ns=9, seed=1)
    found = assigned(ring, 4, 4)
    assert len(found) == 4 * len(ring)  # each step sends one flow, which takes all four spines
    assert {message.size_bytes for message in found} == {250}


def test_a_permutation_is_between_halves_and_drawn_by_its_seed() -> None:
    servers = list(range(20))
    drawn = {seed: halves(servers, seed) for seed in (1, 2)}
    assert drawn[1][:10] == drawn[2][:10] == servers[:10]
    assert drawn[1] != drawn[2]
    messages = collective("permutation", [drawn[1]], 50, repeat=1, compute_ns=0, traffic_ns=9, seed=1)
    assert [message.source for message in messages] == list(range(10))
    assert sorted(message.destination for message in messages) == list(range(10, 20))
