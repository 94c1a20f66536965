"""The transport: how senders react, and how they repair losses."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from foretail.core.errors import ForetailError
from foretail.core.settings import (
    LARGEST_BUFFER_BYTES,
    LONGEST_NS,
    part,
    positive_share,
    rate_setting,
    setting,
    time_setting,
)

LONGEST_RTO_NS = 60 * 10**9
"""The simulator's own largest retransmission timeout."""

LOSS_BASED = ("cubic", "newreno")

LAWS = ("theta_powertcp", "timely", "powertcp", "hpcc")

RDMA = ("roce", "irn")
"""RDMA transports; only the native network has their senders."""

OF_TCP = ("dctcp", *LOSS_BASED)
"""Beside these another transport can send the background."""

TRANSPORTS = (*OF_TCP, *LAWS, *RDMA)
RECOVERIES = ("ns3", "linux")


@dataclass
class PowerTcp:
    """PowerTCP and theta-PowerTCP (thesis, chapter 2)."""

    gamma: float = positive_share(0.9, "Weight of the new window in the moving average.")
    expected_flows: float = setting(
        100.0, "N: a flow adds 1 / N of a server's bandwidth-delay product per round trip.", at_least=1
    )


@dataclass
class Hpcc:
    """HPCC (Li et al., SIGCOMM 2019, section 3); eta and maxStage are the paper's, and N is that of PowerTCP."""

    utilisation: float = positive_share(0.95, "Eta: the utilisation of the fullest link that is sought.")
    most_increases: int = setting(
        5, "MaxStage: round trips in a row that only add to the window.", at_least=0, at_most=1_000
    )
    expected_flows: float = setting(
        100.0,
        "N: a flow adds (1 - eta) / N of a server's bandwidth-delay product per round trip.",
        at_least=1,
    )


@dataclass
class Timely:
    """TIMELY (Mittal's thesis, sections 3.3 and 3.5)."""

    low_rtt_ns: int = time_setting(50_000, "T_low: below this round-trip time the rate only grows.")
    high_rtt_ns: int = time_setting(
        500_000, "T_high: above this round-trip time the rate falls whatever the gradient is.", at_least=1
    )
    increase_bps: float = rate_setting(
        10e6, "Delta: the rate that a base round trip adds, which is also the smallest rate.", at_least=1_000
    )
    decrease: float = positive_share(0.8, "Beta: the factor of multiplicative decrease.")
    gradient_weight: float = positive_share(
        0.875,
        "Alpha: the weight of the newest difference of round-trip times; the thesis gives none, the public "
        "simulator ns3-datacenter uses this one.",
    )


@dataclass
class Dcqcn:
    """DCQCN (Zhu et al., SIGCOMM 2015), whose defaults are the paper's where nothing else is said."""

    cnp_interval_ns: int = time_setting(
        50_000, "Least time between two notifications of congestion that a receiver sends for one queue pair."
    )
    gain: float = positive_share(
        1 / 256, "Weight g of one notification in alpha, which decides how far the rate falls."
    )
    alpha_interval_ns: int = time_setting(
        55_000, "Time without a notification after which alpha falls by its share g.", at_least=1_000
    )
    increase_interval_ns: int = time_setting(
        55_000, "Time after which the rate rises, again and again.", at_least=1_000
    )
    increase_bytes: int = setting(
        10_000_000, "Payload sent after which the rate rises too.", at_least=1_000, at_most=LONGEST_NS
    )
    fast_rounds: int = setting(
        5, "F: from this rise on, of the timer or of the bytes, the target rate rises too.", at_least=1, at_most=1_000
    )
    additive_bps: float = rate_setting(
        40e6, "R_AI: what one rise adds to the target rate, which is also the smallest rate.", at_least=1_000
    )
    hyper_bps: float = rate_setting(
        400e6,
        "R_HAI: the same after more than F rises of the timer and of the bytes; ten times R_AI, as in QCN, since the "
        "paper gives none.",
        at_least=1_000,
    )


@dataclass
class Rdma:
    """RoCE, which goes back to the first packet that is missing, and IRN, which repeats missing ones alone.

    Mittal's thesis, chapter 4. Senders have no handshake and begin at the rate of their link.
    """

    control: str | None = setting(
        None,
        "Congestion control, which sets window and rate of a sender, or with dcqcn the rate alone; null means none.",
        one_of=(*LAWS, "dcqcn"),
    )
    low_rto_ns: int = setting(
        100_000, "Timeout of irn with few segments in flight.", at_least=1_000, at_most=LONGEST_RTO_NS
    )
    high_rto_ns: int = setting(
        320_000, "Timeout of roce, and of irn with more in flight.", at_least=1_000, at_most=LONGEST_RTO_NS
    )
    few_segments: int = setting(3, "Most segments in flight that are few.", at_least=0, at_most=1_000_000)
    window_segments: int = setting(
        0,
        "Most segments in flight; 0 means a bandwidth-delay product for irn, and no limit for roce.",
        at_least=0,
        at_most=1_000_000,
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a short timeout that is the longer one."""
        if self.low_rto_ns > self.high_rto_ns:
            raise ForetailError(
                f"{where}.low_rto_ns = {self.low_rto_ns} is above high_rto_ns = {self.high_rto_ns}: lower it"
            )


@dataclass
class Rc3:
    """RC3: a second loop sends the end of a flow while TCP leaves the link idle (Mittal's thesis, chapter 2)."""

    edges: list[int] = setting(
        [],
        "Segments from the end of a flow up to which the second loop sends at priorities 1, 2, ..., in queues of these "
        "numbers; the last one is also that of what is farther from the end. [] means TCP without a second loop.",
        at_least=1,
        at_most=1_000_000,
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on edges that do not rise."""
        if any(after <= before for before, after in pairwise(self.edges)):
            raise ForetailError(f"{where}.edges = {self.edges} do not rise: sort them, and give each once")


@dataclass
class Transport:
    """Transport of the servers; defaults as in the paper's artifact, except for what ns-3 cannot do exactly."""

    name: str = setting(
        "dctcp", "Congestion control of TCP, or roce or irn, which send by RDMA without TCP.", one_of=TRANSPORTS
    )
    background_name: str | None = setting(
        None,
        "Transport of background flows: a congestion control of TCP, without ECN, or roce or irn next to a TCP; null "
        "means the same as name.",
        one_of=(*LOSS_BASED, *RDMA),
    )
    segment_bytes: int = setting(1400, "Payload of a full segment.", at_least=64, at_most=1460)
    initial_window_segments: int = setting(22, "Initial window of background flows.", at_least=1, at_most=10_000)
    slow_start: bool = setting(
        False, "Start with slow start; false means additive increase from the initial window on."
    )
    min_rto_ns: int = setting(10_000_000, "Smallest retransmission timeout.", at_least=1_000, at_most=LONGEST_RTO_NS)
    delayed_ack_segments: int = setting(1, "Number of segments per acknowledgement.", at_least=1, at_most=100)
    recovery: str = setting(
        "ns3",
        "How senders repair losses: as ns-3 3.44, or in the native network as Linux, with RACK and tail loss probes.",
        one_of=RECOVERIES,
    )
    reordering_window_ns: int | None = setting(
        None,
        "With recovery=linux, time by which a packet may come later than one that was sent after it, before RACK takes "
        "it for lost; null means what Linux has, at most a quarter of the shortest round trip. Set it above the "
        "differences between paths where balancing spreads a flow over several.",
        at_least=0,
        at_most=LONGEST_RTO_NS,
    )
    mark_bytes: int = setting(
        14_400,
        "Queue length on arrival from which a packet gets an ECN mark; 0 means no ECN.",
        at_least=0,
        at_most=LARGEST_BUFFER_BYTES,
    )
    mark_full_bytes: int = setting(
        0,
        "Queue length from which every packet gets a mark, where from mark_bytes on only some do, as in RED; 0 means "
        "that all do from mark_bytes on.",
        at_least=0,
        at_most=LARGEST_BUFFER_BYTES,
    )
    mark_probability: float = positive_share(
        0.01, "Share of packets with a mark just below mark_full_bytes; it rises linearly from 0 at mark_bytes."
    )
    rc3: Rc3 = part(Rc3, "RC3, a second loop of TCP senders in the native network.")
    powertcp: PowerTcp = part(PowerTcp, "Parameters of powertcp and theta_powertcp.")
    hpcc: Hpcc = part(Hpcc, "Parameters of hpcc.")
    timely: Timely = part(Timely, "Parameters of timely.")
    dcqcn: Dcqcn = part(Dcqcn, "Parameters of dcqcn, a congestion control of roce and irn.")
    rdma: Rdma = part(Rdma, "Parameters of roce and irn.")

    @property
    def marks_packets(self) -> bool:
        """True if switches set ECN marks on the packets of all flows but the background of another transport."""
        return self.mark_bytes > 0 and (self.name in OF_TCP or (self.name in RDMA and self.rdma.control == "dcqcn"))

    def check(self, where: str) -> None:
        """Raise ForetailError on a transport that cannot run as it is set."""
        self._check_marks(where)
        if self.background_name is not None and self.name in LAWS:
            raise ForetailError(
                f"{where}.background_name = {self.background_name} cannot stand beside {self.name}, which paces all "
                "senders: choose another name, or null"
            )
        if self.background_name in RDMA and self.name in RDMA:
            raise ForetailError(
                f"{where}.background_name = {self.background_name} cannot stand beside {self.name}, which sends by "
                "RDMA too: choose a TCP for one of them, or null"
            )
        if self.recovery != "ns3" and self.name not in OF_TCP:
            raise ForetailError(
                f"{where}.recovery = {self.recovery} is that of a TCP, and not of {self.name}: set it to ns3"
            )
        if self.reordering_window_ns is not None and self.recovery != "linux":
            raise ForetailError(
                f"{where}.reordering_window_ns = {self.reordering_window_ns} is that of RACK, which recovery="
                f"{self.recovery} does not have: set it to null, or {where}.recovery=linux"
            )
        if self.timely.high_rtt_ns <= self.timely.low_rtt_ns:
            raise ForetailError(
                f"{where}.timely.high_rtt_ns = {self.timely.high_rtt_ns} is not above low_rtt_ns = "
                f"{self.timely.low_rtt_ns}: raise it"
            )

    def _check_marks(self, where: str) -> None:
        lives_on_marks = ["dctcp"] if self.name == "dctcp" else []
        if self.rdma.control == "dcqcn" and (self.name in RDMA or self.background_name in RDMA):
            lives_on_marks.append("dcqcn")
        if lives_on_marks and self.mark_bytes == 0:
            raise ForetailError(
                f"{where}.mark_bytes = 0 leaves {lives_on_marks[0]} without ECN marks, which it lives on: raise it"
            )
        if self.mark_full_bytes > 0 and self.mark_bytes == 0:
            raise ForetailError(
                f"{where}.mark_full_bytes = {self.mark_full_bytes} means nothing beside mark_bytes = 0, which is no "
                "ECN: raise mark_bytes, or set mark_full_bytes to 0"
            )
        if 0 < self.mark_full_bytes <= self.mark_bytes:
            raise ForetailError(
                f"{where}.mark_full_bytes = {self.mark_full_bytes} is not above mark_bytes = {self.mark_bytes}: raise "
                "it, or set it to 0"
            )
