"""Sizes of flows, and the traffic besides background flows and queries: elephants and collectives."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from omegaconf import MISSING

from foretail.core.errors import ForetailError
from foretail.core.settings import LARGEST_FLOW_BYTES, setting, share_setting, time_setting

MOST_MESSAGES = 1_000_000
"""Most messages of a run, and most that they wait for in all: more would take gigabytes to write down."""

LARGEST_PART_BYTES = 2**26
PEERS = ("next_leaf", "other_leaves", "other_servers")
"""Places of the other end of a flow."""

COLLECTIVES = ("all_to_all", "ring_all_reduce", "ring", "permutation")


@dataclass
class FlowSizes:
    """A distribution of flow sizes, linear between its points."""

    size_bytes: list[int] = setting(
        MISSING, "Flow sizes at the points of the distribution, increasing.", at_least=0, at_most=LARGEST_FLOW_BYTES
    )
    cumulative: list[float] = share_setting(MISSING, "Cumulative probability at each size, from 0 to 1, never falling.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless sizes rise, and probabilities from 0 to 1 with them."""
        size_bytes, cumulative = self.size_bytes, self.cumulative
        if len(size_bytes) != len(cumulative) or len(size_bytes) < 2:
            raise ForetailError(
                f"{where}.size_bytes has {len(size_bytes)} points and {where}.cumulative has {len(cumulative)}: "
                "give both the same number of points, at least 2"
            )
        for before, after in itertools.pairwise(size_bytes):
            if after <= before:
                raise ForetailError(f"{where}.size_bytes is not increasing at {after} after {before}: sort its points")
        for low, high in itertools.pairwise(cumulative):
            if high < low:
                raise ForetailError(f"{where}.cumulative is not monotone: {high:g} follows {low:g}")
        if cumulative[0] != 0 or cumulative[-1] != 1:
            raise ForetailError(
                f"{where}.cumulative must run from 0 to 1, not from {cumulative[0]:g} to {cumulative[-1]:g}"
            )


@dataclass
class Elephants:
    """Long-lived connections that send bursts: the next starts some time after the one before is delivered."""

    flows_per_server: int = setting(
        0, "Number of connections on which every server sends; 0 means none.", at_least=0, at_most=1024
    )
    destinations: str = setting(
        "next_leaf", "Receivers of a server's flows: the next leaf, any other leaf, or any other server.", one_of=PEERS
    )
    burst_bytes: int = setting(
        1_000_000, "Mean size of a burst, exponentially distributed.", at_least=1, at_most=LARGEST_PART_BYTES
    )
    idle_ns: int = time_setting(
        0,
        "Mean pause from the delivery of a burst to the next one, exponentially distributed; 0 means that they "
        "always send.",
    )

    def check_fits(self, where: str, servers: int, link_bps: int, traffic_ns: int) -> None:
        """Raise ForetailError when there may be more bursts than a run can take."""
        bursts = servers * self.flows_per_server * (1 + traffic_ns / (8e9 * self.burst_bytes / link_bps + self.idle_ns))
        if bursts > MOST_MESSAGES:
            raise ForetailError(
                f"{where} makes about {bursts:.3g} bursts, and a run takes {MOST_MESSAGES}: raise {where}.burst_bytes "
                f"or {where}.idle_ns, or lower {where}.flows_per_server"
            )


@dataclass
class Collective:
    """Groups of servers that compute and exchange what they have, again and again."""

    kind: str | None = setting(None, "Collective that a group exchanges; null means none.", one_of=COLLECTIVES)
    size_bytes: int = setting(
        1_000_000,
        "Bytes of each server: it sends all of them to the others together (all_to_all), about twice as many around "
        "the ring (ring_all_reduce), all to the next server (ring), or all from the lower to the upper half "
        "(permutation).",
        at_least=1,
        at_most=LARGEST_PART_BYTES,
    )
    groups: int = setting(1, "Number of groups; no server is in two of them.", at_least=1, at_most=65_535)
    servers_per_group: int = setting(
        2,
        "Number of servers of a group; neighbours in the ring are below different leaves.",
        at_least=2,
        at_most=65_535,
    )
    repeat: int = setting(1, "Number of rounds of a group.", at_least=1, at_most=MOST_MESSAGES)
    channels: int = setting(
        1,
        "Number of connections between two servers, each with an equal part of every message.",
        at_least=1,
        at_most=1024,
    )
    spread_ns: int = time_setting(0, "Largest random delay of a message; 0 lets all of a step start at once.")
    compute_ns: int = time_setting(
        0,
        "Time from the receipt of a whole round to a server's part in the next one; groups start at random "
        "times up to this.",
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on parts without a byte, and on more messages than a run can take."""
        if self.kind is None:
            return
        members = self.servers_per_group
        if self.size_bytes < members * self.channels:
            channels = f" on each of {self.channels} channels" if self.channels > 1 else ""
            raise ForetailError(
                f"{where}.size_bytes = {self.size_bytes} is less than a byte for each of {members} servers{channels}: "
                "raise it"
            )
        sent = self.channels if self.kind in ("ring", "permutation") else self.channels * (members - 1)
        steps = 2 if self.kind == "ring_all_reduce" else 1
        waits = sent if self.kind in ("ring", "permutation") else self.channels * max(steps, members)
        listed = self.groups * self.repeat * members * sent * (waits if self.repeat > 1 or steps > 1 else 1)
        if listed > MOST_MESSAGES:
            raise ForetailError(
                f"{where} makes a list of {listed} messages and what they wait for, and a run takes {MOST_MESSAGES}: "
                f"lower {where}.repeat or {where}.servers_per_group"
            )

    def check_fits(self, where: str, servers: int) -> None:
        """Raise ForetailError when the groups need more servers than there are."""
        wanted = self.groups * self.servers_per_group
        if self.kind is not None and wanted > servers:
            raise ForetailError(
                f"{where}.groups = {self.groups} of {where}.servers_per_group = {self.servers_per_group} need {wanted} "
                f"servers, and the network has {servers}: lower one of them"
            )
