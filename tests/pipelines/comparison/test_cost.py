"""The cost of a run, against a few lines that compute it flow by flow. Costs a second."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.features.records import FLOW_DTYPE
from foretail.pipelines.comparison.cost import run_cost
from foretail.sim_bridge.packets.cost import link_time_ns, query_table

SETTINGS: dict[str, Any] = {
    "topology": {"server_link_bps": 10_000_000_000, "wire_overhead_bytes": 2},
    "transport": {"segment_bytes": 1400},
    "traffic_ns": 1_000_000,
}
END_NS = 10_000_000


def flows_of(*rows: tuple[int, int, int, int, int, int]) -> np.ndarray:
    """Flows of (start_ns, fct_ns, ideal_fct_ns, size_bytes, query, timeouts)."""
    flows = np.zeros(len(rows), FLOW_DTYPE)
    for name, column in zip(
        ("start_ns", "fct_ns", "ideal_fct_ns", "size_bytes", "query", "timeouts"), zip(*rows, strict=True), strict=True
    ):
        flows[name] = column
    return flows


@pytest.mark.parametrize(
    ("size", "expected_ns"),
    [(1, 35), (1400, 1154), (1401, 1154 + 35), (2800, 2308), (4200, 3462)],
)
def test_a_flow_occupies_the_link_for_its_packets(size: int, expected_ns: int) -> None:
    assert link_time_ns(np.array([size]), SETTINGS) == [expected_ns]


def test_a_query_ends_with_its_last_answer_and_alone_its_answers_share_one_link() -> None:
    ideal = 8_000  # of one segment: 1154 ns on the last link, the rest on the way
    flows = flows_of((0, 9_000, ideal, 1400, 7, 0), (0, 20_616, ideal, 1400, 7, 2), (0, 8_000, ideal, 1400, 9, 0))
    found = query_table(flows, END_NS, SETTINGS)
    assert found.index.tolist() == [7, 9]
    assert found["slowdown"].tolist() == pytest.approx([20_616 / (ideal + 1154), 1.0])
    assert found["timeouts"].tolist() == [2, 0]


def test_what_is_unfinished_costs_its_age() -> None:
    flows = flows_of((4_000_000, -1, 10_000, 50_000, -1, 1))
    found = run_cost(flows, END_NS, SETTINGS)
    assert found.short == found.cost == pytest.approx(600.0)
    assert (found.query, found.long, found.query_timeouts) == (None, None, None)
    assert (found.timeouts_percent, found.goodput_bps) == (100.0, 0.0)


sizes = st.one_of(st.integers(1, 99_999), st.integers(1_000_000, 2_000_000), st.integers(100_000, 999_999))
drawn = st.tuples(st.integers(0, 10**6), st.integers(-1, 10**7), st.integers(2_000_000, 3_000_000), sizes)


@given(st.lists(st.tuples(drawn, st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=20))
def test_the_cost_is_that_of_the_definition(rows: list[tuple[tuple[int, int, int, int], int, int]]) -> None:
    flows = flows_of(*((start, fct, ideal, size, query, out) for (start, fct, ideal, size), query, out in rows))
    kinds: dict[str, list[float]] = {"query": [], "short": [], "long": []}
    queries: dict[int, list[np.void]] = {}
    for flow in flows:
        time = flow["fct_ns"] if flow["fct_ns"] >= 0 else END_NS - flow["start_ns"]
        if flow["query"] >= 0:
            queries.setdefault(int(flow["query"]), []).append(flow)
        elif flow["size_bytes"] < 100_000:
            kinds["short"].append(time / flow["ideal_fct_ns"])
        elif flow["size_bytes"] >= 1_000_000:
            kinds["long"].append(time / flow["ideal_fct_ns"])
    for answers in queries.values():
        times = [one["fct_ns"] if one["fct_ns"] >= 0 else END_NS - one["start_ns"] for one in answers]
        links = [int(link_time_ns(np.array([one["size_bytes"]]), SETTINGS)[0]) for one in answers]
        way = min(int(one["ideal_fct_ns"]) - link for one, link in zip(answers, links, strict=True))
        alone = max(*(int(one["ideal_fct_ns"]) for one in answers), way + sum(links))
        kinds["query"].append(max(times) / alone)
    means = [sum(found) / len(found) for found in kinds.values() if found]
    if not means:
        assert run_cost(flows, END_NS, SETTINGS).cost is None
        return
    if min(means) <= 0:
        return
    assert run_cost(flows, END_NS, SETTINGS).cost == pytest.approx(math.prod(means) ** (1 / len(means)))
