"""What switches count of flows, against a slow count of the same trace, and predictors in the place of senders' tags.

Costs four runs of the native network of some milliseconds each, and two compiled trees: three seconds of CPU time.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import FEATURES, FLOW_FEATURES, feature
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Records, read_records
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.ns3.messages import Message, columns
from tests.scenarios import MILLISECOND, settings

SERVERS = 8
CELL = 256
MESSAGES = [
    Message(start_ns, 2**60, size, source, destination, source * SERVERS + destination)
    for start_ns, size in ((0, 7_000), (10_000, 300), (2 * MILLISECOND, 200_000), (2_050_000, 14_000))
    for source, destination in ((0, 4), (1, 4), (2, 4))
]
"""Four messages on each of three connections: the second and the fourth follow at once, the third after a pause."""


def traced(folder: Path, **changes: Any) -> tuple[Records, np.ndarray[Any, Any]]:
    """Arrivals of a run with losses, and the connection of every flow; flows outside of MESSAGES have one each."""
    document = settings(trace=True, messages=columns(MESSAGES), **changes)
    run = run_native(document, folder)
    flows = read_records(run.folder / "flows.bin", FLOW_DTYPE)
    connection = np.arange(len(flows))
    first = len(flows) - len(MESSAGES)
    connection[first:] = [len(flows) + message.connection for message in MESSAGES]
    return read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE), connection


def columns_of(records: Records, names: tuple[str, ...] = FLOW_FEATURES) -> np.ndarray[Any, Any]:
    places = [[one.name for one in FEATURES].index(name) for name in names]
    return np.asarray(records["features"][:, places])


def slow_counts(records: Records, place_of: Any) -> np.ndarray[Any, Any]:
    """The same counted packet by packet, with a dictionary for each kind of memory; `place_of` flow numbers."""
    sent: dict[Any, int] = {}
    last: dict[Any, int] = {}
    ended: dict[Any, int] = {}
    longest: dict[Any, int] = {}
    rows = []
    for record in records:
        place, port = (
            (int(record["switch"]), place_of(int(record["flow"]))),
            (int(record["switch"]), int(record["port"])),
        )
        if record["flow_class"] == FlowClass.CONTROL:
            rows.append([0, 0, 0])
            continue
        size, unit = int(record["size_bytes"]), int(record["time_ns"]) // 2**18
        if (unit - last.get(place, 0)) % 256 > 3:
            sent[place] = 0
        last[place] = unit
        longest[place[0]] = max(longest.get(place[0], 0), size)
        before = sent.get(place, 0)
        after = before + size
        left = ended.get(port, 0) - after
        is_short = size < longest[place[0]]
        rows.append([int(is_short), min(before // CELL, 65535), min(left // CELL, 255) if left >= 0 else 255])
        if is_short:
            ended[port] = after
        sent[place] = 0 if is_short else min(after, 2**24 - 1)
    return np.array(rows)


def library(rule: Rule, folder: Path, names: tuple[str, ...] = FLOW_FEATURES) -> str:
    inputs = tuple(FeatureInput(one.name, one.params(CELL, 15), one.bits) for one in map(feature, names))
    tree = tree_of_rule(rule, names)
    return str(export(Ensemble(inputs, (tree,), Fraction(1, 2)), C(), folder).file(".so"))


def test_every_flow_is_counted_by_its_messages_pauses_and_losses(tmp_path: Path) -> None:
    records, connection = traced(tmp_path, policy__name="dt", policy__alpha=0.25)
    counted = columns_of(records)
    np.testing.assert_array_equal(counted, slow_counts(records, lambda flow: connection[flow]))
    data = records[records["flow_class"] != FlowClass.CONTROL]
    assert (data["outcome"] != 0).sum() > 100  # packets that are sent again are counted again
    (left,) = columns_of(data, ("message_left",)).T
    short, _, like_last = columns_of(data).T
    assert (left[short == 1] == 0).mean() > 0.99  # a short packet ends its message
    assert ((like_last <= 17) & (left <= 17)).sum() > 100
    of_messages = records["flow"] >= len(connection) - len(MESSAGES)
    fresh = records[of_messages & (counted[:, 1] == 0) & (records["flow_class"] != FlowClass.CONTROL)]
    assert len(fresh) >= 4 * 3  # each message of a connection begins anew


@pytest.mark.parametrize("entries", [0, 5])
def test_a_predictor_tells_what_senders_would(tmp_path: Path, entries: int) -> None:
    """With five entries, flows share them; the tags that rules then read come from nothing but these counts."""
    limit = 40
    told = library(("flow_sent", limit, True, False), tmp_path / "library")
    records, connection = traced(
        tmp_path,
        policy__name="occamy",
        policy__spared_bytes=4380,
        policy__message_end=told,
        policy__flow_entries=entries,
    )
    ledger_order = connections_of_the_ledger(connection)
    place_of = (lambda flow: mixed(ledger_order[flow]) % entries) if entries else (lambda flow: connection[flow])
    data = records["flow_class"] != FlowClass.CONTROL
    counted = slow_counts(records, place_of)
    np.testing.assert_array_equal(columns_of(records), counted)
    first_rtt, left = columns_of(records[data], ("first_rtt", "message_left")).T
    sent = counted[data, 1]
    np.testing.assert_array_equal(left == 0, sent <= limit)
    np.testing.assert_array_equal(left[sent > limit], np.minimum(np.maximum(sent[sent > limit], 32), 255))
    assert (first_rtt[sent == 0] == 1).all()
    assert (first_rtt == 0).any()


def connections_of_the_ledger(connection: np.ndarray[Any, Any]) -> list[int]:
    """Connections of flows as the network numbers them: in the order of their first flows."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(int(one), len(numbers)) for one in connection]


def mixed(x: int) -> int:
    """The finaliser of MurmurHash3, of 32 bits."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ x >> shift) * factor) % 2**32
    return x ^ x >> 16


def test_the_predictor_reads_nothing_but_what_is_counted_of_flows(tmp_path: Path) -> None:
    told = library(("fill", 100, True, False), tmp_path / "library", ("fill",))
    with pytest.raises(ForetailError, match="reads more than what a switch counts of flows; train it on those"):
        run_native(settings(policy__name="occamy", policy__message_end=told), tmp_path)
