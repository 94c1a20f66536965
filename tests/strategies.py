"""Hypothesis strategies that several rooms' tests share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.records import ARRIVAL_DTYPE, Asked, FlowClass, Outcome
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree
from tests.sim_bridge.slow_models.bytes import Geometry, Packet
from tests.traces import RUN, Arrivals


@st.composite
def arrivals(draw: st.DrawFn, min_arrivals: int = 0, max_arrivals: int = 30, max_step_ns: int = 2000) -> Arrivals:
    """Draw arrivals on the switches of ``traces.RUN``: every value that a dataset must keep, extremes included."""
    count = draw(st.integers(min_arrivals, max_arrivals))

    def column(low: int, high: int, *shape: int) -> NDArray[np.int64]:
        return draw(hnp.arrays(np.int64, (count, *shape), elements=st.integers(low, high)))

    records = np.zeros(count, ARRIVAL_DTYPE)
    records["time_ns"] = np.cumsum(column(0, max_step_ns))
    records["fate_time_ns"] = records["time_ns"] + column(0, 2**40)
    records["score"] = column(-(2**63), 2**63 - 1)
    records["flow"] = column(0, 2**31 - 1)
    records["size_bytes"] = column(1, 2**31 - 1)
    for k, feature in enumerate(FEATURES):
        records["features"][:, k] = column(0, 2**feature.bits - 1)
    records["switch"] = column(0, len(RUN.switches) - 1)
    records["port"] = column(0, min(switch.ports for switch in RUN.switches) - 1)
    records["flow_class"] = column(0, max(FlowClass))
    records["outcome"] = column(0, max(Outcome))
    records["asked"] = column(0, max(Asked))
    for flag in ("lqd_drop", "exposed", "first_rtt"):
        records[flag] = column(0, 1)
    shadow = column(0, 2**24 - 1, len(SHADOW_COLUMNS)).astype(np.int32)
    return Arrivals(records, shadow, column(0, 1).astype(np.bool_))


@st.composite
def schedulers(draw: st.DrawFn, priorities: int, quanta: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """Draw how a port serves so many queues: a scheduler, and a quantum for each where it has some."""
    scheduler = draw(st.sampled_from(("round_robin", "strict", "deficit_round_robin")))
    drawn = st.tuples(*[st.sampled_from(quanta)] * priorities)
    return scheduler, draw(drawn) if scheduler == "deficit_round_robin" else ()


class SlottedArrivals(NamedTuple):
    """Unit packets for one switch, ``slot`` and ``port`` of each in order of arrival."""

    ports: int
    buffer: int
    slot: list[int]
    port: list[int]


@st.composite
def slotted_arrivals(draw: st.DrawFn, max_ports: int = 16, max_buffer: int = 60) -> SlottedArrivals:
    """Draw a few phases that are hard on shared buffers, one after the other, with or without idle slots between.

    A burst of at least the whole buffer to one port, a burst to all ports at once, on-off sources on a few ports, a
    full buffer in one queue followed by one packet per port and slot (the worst case of FollowLQD), and anything.
    """
    ports = draw(st.integers(1, max_ports))
    buffer = draw(st.integers(1, max_buffer))
    any_port = st.integers(0, ports - 1)
    slots: list[list[int]] = []
    for phase in draw(
        st.lists(st.sampled_from(("burst", "everywhere", "on-off", "follow", "any")), min_size=1, max_size=4)
    ):
        if phase == "burst":
            slots.append([draw(any_port)] * draw(st.integers(buffer, buffer + ports)))
        elif phase == "everywhere":
            slots.append(list(range(ports)) * draw(st.integers(1, buffer // ports + 2)))
        elif phase == "on-off":
            sources = draw(st.lists(any_port, min_size=1, max_size=4))
            for _ in range(draw(st.integers(1, 4))):
                slots += [sources * draw(st.integers(1, 3))] * draw(st.integers(1, 4)) + [[]] * draw(st.integers(0, 3))
        elif phase == "follow":
            slots.append([draw(any_port)] * buffer)
            slots += [list(range(ports))] * draw(st.integers(1, 6))
        else:
            slots += draw(st.lists(st.lists(any_port, max_size=8), max_size=12))
        slots += [[]] * draw(st.sampled_from((0, 1, 2, buffer, 2 * buffer + 40)))
    slot = [number for number, arrivals in enumerate(slots) for _ in arrivals]
    return SlottedArrivals(ports, buffer, slot, [port for arrivals in slots for port in arrivals])


@st.composite
def byte_arrivals(
    draw: st.DrawFn, max_ports: int = 6, max_packets: int = 60, priorities: int = 1
) -> tuple[Geometry, list[Packet]]:
    """Draw a switch with ports of different rates and packets of mixed sizes, control packets among them.

    Steps and sizes are such that packets often arrive at the very moment when another has left.
    """
    rates = draw(st.lists(st.sampled_from((10**10, 25 * 10**9, 10**9, 3 * 10**9 + 7)), min_size=1, max_size=max_ports))
    buffer = draw(st.integers(1, 400) | st.sampled_from((1500, 5000, 6001)))
    geometry = Geometry(buffer, tuple(rates), draw(st.sampled_from((0, 2, 24))))
    size = st.sampled_from((1, 40, 64, 500, 1000, 1500)) if buffer > 400 else st.integers(1, 60)
    packets: list[Packet] = []
    now = draw(st.integers(0, 1000))
    for burst in draw(st.lists(st.sampled_from(("fill", "few", "few")), min_size=1, max_size=8)):
        port = draw(st.integers(0, geometry.ports - 1))
        data = draw(st.integers(0, 4)) > 0
        step_ns = draw(st.sampled_from((0, 0, 1, 8, 32, 400, 1200)))
        first_rtt = draw(st.booleans())
        bytes_left = buffer if burst == "fill" else 0
        count = draw(st.integers(1, 6))
        while (bytes_left > 0 or count > 0) and len(packets) < max_packets:
            priority = draw(st.integers(0, priorities - 1))
            message_left = draw(st.integers(0, 255))
            packets.append(Packet(len(packets), now, port, draw(size), data, first_rtt, priority, message_left))
            bytes_left -= packets[-1].size
            count -= 1
            now += step_ns
        now += draw(st.sampled_from((0, 0, 0, 1, 32, 400, 1200, 4000, 100_000)))
    return geometry, packets


@st.composite
def small_ensembles(draw: st.DrawFn, features: Sequence[str], highest_cut: int = 40) -> Ensemble:
    """Draw a predictor of one to three trees with three tests each, whose cuts are lengths of small queues."""
    trees = []
    for _ in range(draw(st.integers(1, 3))):
        tests = draw(
            st.lists(st.tuples(st.integers(0, len(features) - 1), st.integers(0, highest_cut)), min_size=3, max_size=3)
        )
        trees.append(
            Tree(
                feature=np.array([feature for feature, _ in tests] + [-1] * 4, np.int32),
                cut=np.array([cut for _, cut in tests] + [0] * 4, np.int64),
                left=np.array([1, 3, 5, -1, -1, -1, -1], np.int32),
                right=np.array([2, 4, 6, -1, -1, -1, -1], np.int32),
                value=np.array([0.0] * 3 + draw(st.lists(st.sampled_from((0.0, 0.25, 1.0)), min_size=4, max_size=4))),
            )
        )
    inputs = tuple(FeatureInput(name, "", 24) for name in features)
    return Ensemble(inputs, tuple(trees), Fraction(len(trees), 2))
