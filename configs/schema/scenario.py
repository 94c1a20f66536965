"""The scenario: what is simulated, whatever the buffer policy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.network.messages import PEERS, Collective, Elephants, FlowSizes
from foretail.configs.schema.network.queues import Pfc, Queues
from foretail.configs.schema.network.transport import Transport
from foretail.core.errors import ForetailError
from foretail.core.settings import (
    LARGEST_BUFFER_BYTES,
    part,
    positive_share,
    rate_setting,
    setting,
    share_setting,
    time_setting,
)
from foretail.features.catalog import CELL_BYTES, LARGEST_CELL_BYTES
from foretail.sim_bridge.policies import BY_TAGS, ORACLES, ORDERS, VICTIMS

BALANCERS = ("ecmp", "spray", "uss", "rss", "sirona", "flowbender", "ethereal")
"""Only the first one is there outside the native network."""

METRICS = ("mean", "max", "ewma", "marks", "fed_back")


@dataclass
class Balancing:
    """Load balancers of senders (Pit-Claudel's thesis, chapter 4; Ethereal: Addanki's thesis, chapter 3)."""

    name: str = setting(
        "ecmp",
        "Balancer: a hash of the flow (ecmp), a random spine for each packet (spray), subflows that keep their spines "
        "(uss) or of which the worst takes another one (rss, sirona), another spine for a flow with many marks "
        "(flowbender), or equal shares of the equal flows of a collective (ethereal).",
        one_of=BALANCERS,
    )
    subflows: int = setting(
        16, "Number of subflows of a flow, which its packets take in turn.", at_least=1, at_most=1024
    )
    interval_ns: int = time_setting(
        32_000, "Time after which rss and sirona give the worst subflow another entropy.", at_least=1_000
    )
    jitter: float = setting(0.25, "Every interval is longer by a share drawn from 0 to this.", at_least=0, at_most=10)
    metric: str = setting(
        "mean",
        "What makes a subflow the worst for rss: its mean, largest or moving average round trip, its share of marks, "
        "or the mean of those that were answered; without fed_back, one that was not answered comes first.",
        one_of=METRICS,
    )
    ewma_weight: float = positive_share(0.9, "Weight of the newest round trip with metric=ewma.")
    last_share: float = positive_share(0.5, "Last part of an interval in which sirona looks at round trips.")
    mark_share: float = share_setting(
        0.05, "Share of marks in a round trip above which flowbender takes another spine."
    )

    @property
    def reads_marks(self) -> bool:
        """True if the balancer needs congestion marks."""
        return self.name == "flowbender" or (self.name == "rss" and self.metric == "marks")

    def check(self, where: str) -> None:
        """Raise ForetailError on a metric that nothing reads."""
        if self.metric != "mean" and self.name != "rss":
            raise ForetailError(
                f"{where}.metric = {self.metric} means nothing to {self.name}: leave it out, or set {where}.name=rss"
            )

    def check_fits(self, where: str, kind: str, marks_packets: bool, has_collective: bool) -> None:
        """Raise ForetailError on a balancer without spines, marks that it reads, or equal flows; `where` has all."""
        if self.name != "ecmp" and kind != "leaf_spine":
            raise ForetailError(
                f"{where}.balancing.name = {self.name} chooses among the spines of a leaf_spine, which a {kind} has "
                "not: set it to ecmp"
            )
        if self.reads_marks and not marks_packets:
            raise ForetailError(
                f"{where}.balancing reads congestion marks, and the packets of {where}.transport get none: use a TCP "
                "with mark_bytes above 0, or rdma.control=dcqcn"
            )
        if self.name == "ethereal" and not has_collective:
            raise ForetailError(
                f"{where}.balancing.name = ethereal assigns the equal flows of a collective, and there is none: set "
                f"{where}.collective.kind"
            )


MOST_SERVERS = 65_535
ROLES = ("leaf", "spine", "core")
"""Roles of switches."""


@dataclass
class Topology:
    """A leaf-spine network, every leaf connected once to every spine (paper, section 4.1), a fat tree, or one switch.

    In a fat tree a spine belongs to a pod and is connected to the leaves of its pod, and to cores. With
    ``k = 6`` it has 6 pods with 3 leaves and 3 spines each, and 9 cores: ``leaves=18, spines=18, cores=9, pods=6``.
    """

    kind: str = setting(
        "leaf_spine",
        "Topology: leaves and spines, a fat tree, which has pods below cores, or one switch for all servers (star).",
        one_of=("leaf_spine", "fat_tree", "star"),
    )
    leaves: int = setting(MISSING, "Number of leaf switches; 1 in a star.", at_least=1, at_most=1024)
    spines: int = setting(MISSING, "Number of spine switches; 0 in a star.", at_least=0, at_most=1024)
    servers_per_leaf: int = setting(MISSING, "Number of servers below each leaf.", at_least=1, at_most=1024)
    pods: int = setting(1, "Number of pods of a fat tree, which share its leaves and spines.", at_least=1, at_most=1024)
    cores: int = setting(
        0, "Number of core switches of a fat tree; the spines of a pod share them.", at_least=0, at_most=1024
    )
    server_link_bps: int = rate_setting(10_000_000_000, "Rate of every server link.", at_least=1_000_000)
    spine_link_bps: int = rate_setting(10_000_000_000, "Rate of every link between two switches.", at_least=1_000_000)
    slow_spines: int = setting(
        0, "Number of spines whose links are slow, in the native network.", at_least=0, at_most=1023
    )
    slow_spine_link_bps: int = rate_setting(5_000_000_000, "Rate of every link of a slow spine.", at_least=1_000_000)
    erasure_probability: float = setting(
        0.0,
        "Probability with which a link loses a packet, in the native network; no switch counts it as a drop.",
        at_least=0,
        at_most=0.5,
    )
    link_delay_ns: int = setting(3_000, "One-way propagation delay of every link.", at_least=0, at_most=1_000_000_000)
    buffer_bytes_per_port_per_gbps: int = setting(
        5120,
        "Shared buffer of a switch, per port and Gbit/s of its rate.",
        at_least=1,
        at_most=LARGEST_BUFFER_BYTES,
    )
    wire_overhead_bytes: int = setting(
        2, "Bytes that a packet has on the wire but not in the buffer (PPP header).", at_least=0, at_most=256
    )

    @property
    def is_star(self) -> bool:
        """True if all servers hang on one switch."""
        return self.kind == "star"

    def across_leaves(self) -> list[int]:
        """All servers, one of every leaf after the other: neighbours in the list have different leaves."""
        below = self.servers_per_leaf
        return [leaf * below + place for place in range(below) for leaf in range(self.leaves)]

    def peers(self, destinations: str) -> list[list[int]]:
        """For every server those at the other end of its flows; `destinations` is one of PEERS."""
        below, every = self.servers_per_leaf, range(self.leaves * self.servers_per_leaf)
        return [
            [
                other
                for other in every
                if (
                    other != server
                    if destinations == "other_servers"
                    else other // below != server // below
                    if destinations == "other_leaves"
                    else other // below == (server // below + 1) % self.leaves
                )
            ]
            for server in every
        ]

    def port_rates_bps(self, role: str) -> list[int]:
        """Rates of the ports of a leaf, a spine or a core (`role`), slow spines aside; nothing of what is not there."""
        spines, leaves = self.spines // self.pods, self.leaves // self.pods
        above = self.cores // spines if spines else 0
        return {
            "leaf": [self.server_link_bps] * self.servers_per_leaf + [self.spine_link_bps] * spines,
            "spine": [self.spine_link_bps] * (leaves + above) if spines else [],
            "core": [self.spine_link_bps] * self.pods if self.cores else [],
        }[role]

    def _check_tree(self, where: str) -> None:
        """Raise ForetailError unless pods share leaves, spines and cores evenly."""
        if self.pods < 2 or self.leaves % self.pods or self.spines % self.pods or self.spines == 0:
            raise ForetailError(
                f"{where}.pods = {self.pods} do not share {self.leaves} leaves and {self.spines} spines evenly: give "
                "at least two, and a multiple of them in leaves and spines"
            )
        if self.cores == 0 or self.cores % (self.spines // self.pods):
            raise ForetailError(
                f"{where}.cores = {self.cores} are not shared evenly by the {self.spines // self.pods} spines of a "
                "pod: give a multiple of these"
            )
        if self.slow_spines:
            raise ForetailError(
                f"{where}.slow_spines = {self.slow_spines} is for leaf_spine: set it to 0, or change {where}.kind"
            )

    def check(self, where: str) -> None:
        """Raise ForetailError unless the numbers of switches are those of the kind."""
        if self.is_star and (self.leaves, self.spines) != (1, 0):
            raise ForetailError(
                f"{where}.kind = star is one switch, and there are {self.leaves} leaves and {self.spines} spines: set "
                f"{where}.leaves=1 and {where}.spines=0"
            )
        is_tree = self.kind == "fat_tree"
        if not is_tree and (self.pods, self.cores) != (1, 0):
            raise ForetailError(
                f"{where}.pods = {self.pods} and {where}.cores = {self.cores} are of a fat tree: set "
                f"{where}.kind=fat_tree, or leave them out"
            )
        if is_tree:
            self._check_tree(where)
        elif not self.is_star and (self.leaves == 1 or self.spines == 0):
            raise ForetailError(
                f"{where}.leaves = {self.leaves} and {where}.spines = {self.spines} are no leaf_spine, which has at "
                f"least 2 and 1: raise them, or set {where}.kind=star"
            )
        if self.slow_spines > max(self.spines - 1, 0):
            raise ForetailError(
                f"{where}.slow_spines = {self.slow_spines} leaves none of the {self.spines} spines fast: lower it"
            )
        if self.slow_spines and self.slow_spine_link_bps >= self.spine_link_bps:
            raise ForetailError(
                f"{where}.slow_spine_link_bps = {self.slow_spine_link_bps} is not below spine_link_bps = "
                f"{self.spine_link_bps}: lower it"
            )


@dataclass
class Background(FlowSizes):
    """Flows with Poisson arrivals."""

    load: float = setting(
        MISSING,
        "Offered load, relative to a leaf's uplinks, in a star to the servers' links; 0 means none.",
        at_least=0,
        at_most=2,
    )
    destinations: str = setting(
        "next_leaf", "Receiver of a flow: the next leaf, any other leaf, or any other server.", one_of=PEERS
    )


@dataclass
class Incast:
    """Queries: several servers answer one server at the same instant."""

    queries_per_second_per_server: float = setting(
        MISSING, "Mean rate of queries per server; 0 means none.", at_least=0, at_most=1e9
    )
    cluster_size: float = setting(
        1.0,
        "Mean number of queries in a cluster, geometrically distributed; clusters start at Poisson times; 1 "
        "means single queries.",
        at_least=1,
        at_most=1e6,
    )
    cluster_gap_ns: int = time_setting(0, "Mean gap between two queries of a cluster, exponentially distributed.")
    burst_fraction: float = setting(
        MISSING, "Bytes of all answers to a query, as a fraction of the leaf's buffer.", above=0, at_most=100
    )
    fan_in: int = setting(MISSING, "Number of servers that answer one query.", at_least=1, at_most=MOST_SERVERS)
    responders: str = setting(
        "next_leaf", "Servers that answer: those of the next leaf, of all other leaves, or any others.", one_of=PEERS
    )
    connections: str = setting(
        "new",
        "Connections of the answers: one for each answer, or one for all answers of a server to another.",
        one_of=("new", "reused"),
    )
    connect_ahead_ns: int = time_setting(
        1_500_000,
        "Time before their first use at which connections are set up; 0 puts the handshake into the flow "
        "completion time, where that of background flows always is.",
    )


@dataclass
class Rules:
    """How Longest Queue Drop chooses its victim; LQD and every virtual LQD of a run share the rules."""

    counting: str = setting(
        "counted",
        "Whether the arrival counts in its own queue when the longest queue is determined.",
        one_of=("counted", "uncounted"),
    )
    tie: str = setting(
        "lowest_port", "Queue that loses a packet if several are the longest.", one_of=("lowest_port", "highest_port")
    )
    victim: str = setting("tail", "Packet of the queue that is pushed out; labels depend on it.", one_of=VICTIMS)
    order: str = setting(
        "longest_queue",
        "Queue that loses a packet: the longest of all, the longest of the lowest class (the highest queue "
        "number) that has one, or any queue, by what senders say of their packets.",
        one_of=ORDERS,
    )
    oracle: str = setting(
        "lqd", "Push-out policy whose decisions are the labels and whose queues are the thresholds.", one_of=ORACLES
    )
    oracle_alpha: float = setting(8.0, "With oracle=occamy, its alpha; its authors use 8.", above=0)

    def check(self, where: str) -> None:
        """Raise ForetailError when victims of any queue cannot be compared."""
        if self.order == "any_queue" and self.victim not in BY_TAGS:
            raise ForetailError(
                f"{where}.order = any_queue compares what senders say of packets: set {where}.victim to "
                f"{' or '.join(BY_TAGS)}"
            )


@dataclass
class FeatureArithmetic:
    """Integer arithmetic of the features, the same in training, C and switch."""

    cell_bytes: int = setting(
        CELL_BYTES,
        "Size of a buffer cell, the unit of lengths.",
        at_least=1,
        at_most=LARGEST_CELL_BYTES,
        power_of_two=True,
    )
    average_shift: int | None = setting(
        None,
        "Averages run over 2^this nanoseconds; null means the base round trip, rounded to a power of two.",
        at_least=0,
        at_most=24,
    )


@dataclass
class Scenario:
    """A network with its traffic: everything of a run except seed and buffer policy."""

    name: str = setting(MISSING, "Short name for tables and folders.")
    topology: Topology = part(Topology, "Network of switches and servers.")
    background: Background = part(Background, "Background flows.")
    incast: Incast = part(Incast, "Queries that many servers answer at once.")
    elephants: Elephants = part(Elephants, "Long-lived connections.")
    collective: Collective = part(Collective, "Collective communication of groups of servers.")
    transport: Transport = part(Transport, "Transport: congestion control and its constants.")
    balancing: Balancing = part(Balancing, "Load balancing: the spines that packets of a flow pass.")
    queues: Queues = part(Queues, "Queues of a port, and the packets that each takes.")
    pfc: Pfc = part(Pfc, "Priority flow control.")
    rules: Rules = part(Rules, "Rules of LQD.")
    features: FeatureArithmetic = part(FeatureArithmetic, "Arithmetic of the features.")
    traffic_ns: int = time_setting(MISSING, "Time during which flows start.", at_least=1)
    drain_ns: int = time_setting(100_000_000, "Simulated time after the last start, in which flows can finish.")
    occupancy_interval_ns: int = time_setting(30_000, "Time between two samples of buffer occupancy.", at_least=1_000)

    @property
    def base_rtt_ns(self) -> int:
        """Round trip of a full segment and its ACK between the servers farthest apart, in the idle network."""
        topology = self.topology
        wire_bytes = 40 + topology.wire_overhead_bytes
        packets = (self.transport.segment_bytes + wire_bytes, wire_bytes)
        links = [topology.server_link_bps]
        links += [topology.spine_link_bps] * {"star": 0, "leaf_spine": 1, "fat_tree": 2}[topology.kind]
        crossed = [(size, bps) for size in packets for bps in links]
        return sum(2 * (topology.link_delay_ns - (-8 * 10**9 * size // bps)) for size, bps in crossed)

    def headroom_needed_bytes(self, link_bps: int) -> int:
        """Bytes that may still come after a queue at ingress of a link of this rate has paused its sender.

        The packet that makes it do so, and what the link carries while each end is sending a packet when the other has
        something to say, in the time of the frame that says it, and on the way there and back.
        """
        packet, overhead = self.transport.segment_bytes + 40, self.topology.wire_overhead_bytes
        packet_ns, frame_ns = (-(-8 * 10**9 * (size + overhead) // link_bps) for size in (packet, 64))
        reaction_ns = 2 * packet_ns + frame_ns + 2 * self.topology.link_delay_ns
        return packet + math.ceil(reaction_ns * (link_bps / 8e9))

    def buffer_bytes(self, role: str) -> int:
        """Shared buffer of a leaf, a spine or a core (`role`): bytes per port and Gbps, summed over its ports."""
        bps = sum(self.topology.port_rates_bps(role))
        return self.topology.buffer_bytes_per_port_per_gbps * bps // 1_000_000_000

    @property
    def leaf_buffer_bytes(self) -> int:
        """Shared buffer of a leaf."""
        return self.buffer_bytes("leaf")

    def check(self, where: str) -> None:
        """Raise ForetailError on traffic that the network cannot carry."""
        topology, incast = self.topology, self.incast
        no_messages = self.elephants.flows_per_server == 0 and self.collective.kind is None
        if self.background.load == 0 and incast.queries_per_second_per_server == 0 and no_messages:
            raise ForetailError(
                f"{where}.background.load and {where}.incast.queries_per_second_per_server are both 0, and there are "
                "neither elephants nor a collective: raise one of them"
            )
        for group, peers in (
            ("background.destinations", self.background.destinations),
            ("incast.responders", incast.responders),
            *((("elephants.destinations", self.elephants.destinations),) if self.elephants.flows_per_server else ()),
        ):
            if topology.is_star and peers != "other_servers":
                raise ForetailError(
                    f"{where}.{group} = {peers} needs several leaves, and a star has one: set it to other_servers"
                )
        servers = topology.leaves * topology.servers_per_leaf
        responders = {
            "next_leaf": topology.servers_per_leaf,
            "other_leaves": servers - topology.servers_per_leaf,
            "other_servers": servers - 1,
        }[incast.responders]
        if incast.fan_in > responders:
            raise ForetailError(
                f"{where}.incast.fan_in = {incast.fan_in} is more than the {responders} servers that can answer a "
                f"query: use at most {responders}, or raise {where}.topology.servers_per_leaf"
            )
        if servers > MOST_SERVERS:
            raise ForetailError(
                f"{where}.topology has {servers} servers and the driver addresses {MOST_SERVERS}: lower leaves or "
                "servers_per_leaf"
            )
        self.elephants.check_fits(f"{where}.elephants", servers, topology.server_link_bps, self.traffic_ns)
        self.collective.check_fits(f"{where}.collective", servers)
        self.balancing.check_fits(where, topology.kind, self.transport.marks_packets, self.collective.kind is not None)
        timely, base_rtt_ns = self.transport.timely, self.base_rtt_ns
        if self.transport.name == "timely" and timely.high_rtt_ns <= base_rtt_ns:
            raise ForetailError(
                f"{where}.transport.timely.high_rtt_ns = {timely.high_rtt_ns} is not above the base round trip of "
                f"{base_rtt_ns} ns, so every flow would slow down for ever: raise it"
            )
        if self.features.average_shift is None and round(math.log2(base_rtt_ns)) > 24:
            raise ForetailError(
                f"the base round trip of {base_rtt_ns} ns is longer than averages can be: set "
                f"{where}.features.average_shift, or lower {where}.topology.link_delay_ns"
            )
        if self.leaf_buffer_bytes < 2 * self.transport.segment_bytes:
            raise ForetailError(
                f"the buffer of a leaf holds {self.leaf_buffer_bytes} bytes, less than two segments: raise "
                f"{where}.topology.buffer_bytes_per_port_per_gbps"
            )
        if self.rules.order == "lower_classes_first" and self.queues.count == 1:
            raise ForetailError(
                f"{where}.rules.order = lower_classes_first needs classes, and a port has one queue: set "
                f"{where}.queues.count, or order=longest_queue"
            )
        self._check_headroom(where)
        largest = max(map(self.buffer_bytes, ROLES))
        if largest > LARGEST_BUFFER_BYTES:
            raise ForetailError(
                f"the buffer of a switch holds {largest} bytes, more than the {LARGEST_BUFFER_BYTES} of the largest: "
                f"lower {where}.topology.buffer_bytes_per_port_per_gbps"
            )
        if incast.burst_fraction * self.leaf_buffer_bytes < incast.fan_in:
            raise ForetailError(
                f"{where}.incast.burst_fraction = {incast.burst_fraction:g} is less than a byte per responder: raise it"
            )

    def _check_headroom(self, where: str) -> None:
        """Raise ForetailError on headroom that loses packets, or that leaves no buffer."""
        pfc, topology, lossless = self.pfc, self.topology, len(self.queues.lossless)
        if lossless and topology.erasure_probability:
            raise ForetailError(
                f"{where}.topology.erasure_probability = {topology.erasure_probability:g} loses packets of "
                f"{where}.queues.lossless, whose senders do not repeat any: set one of them to 0 or []"
            )
        if lossless == 0:
            return
        links = [topology.server_link_bps] + ([] if topology.is_star else [topology.spine_link_bps])
        needed = max(self.headroom_needed_bytes(bps) for bps in links)
        if pfc.headroom_bytes is not None and pfc.headroom_bytes < needed:
            raise ForetailError(
                f"{where}.pfc.headroom_bytes = {pfc.headroom_bytes} is {needed - pfc.headroom_bytes} bytes less than "
                f"the {needed} that may come after a pause over a link of {max(links)} bit/s and "
                f"{topology.link_delay_ns} ns: raise it"
            )
        for name in ROLES:
            ports, buffer_bytes = topology.port_rates_bps(name), self.buffer_bytes(name)
            if not ports:
                continue
            all_queues = lossless * sum(pfc.headroom_bytes or self.headroom_needed_bytes(bps) for bps in ports)
            pool = pfc.headroom_pool_bytes or all_queues
            if pool + 2 * (self.transport.segment_bytes + 40) > buffer_bytes:
                raise ForetailError(
                    f"the headroom of a {name} takes {pool} of its {buffer_bytes} bytes: raise "
                    f"{where}.topology.buffer_bytes_per_port_per_gbps, or lower {where}.pfc.headroom_pool_bytes or the "
                    f"number of {where}.queues.lossless"
                )
