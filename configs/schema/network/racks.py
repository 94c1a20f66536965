"""Racks around a packet switch and a circuit switch."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.configs.schema.network.transport import LONGEST_RTO_NS
from foretail.core.errors import ForetailError
from foretail.core.settings import part, rate_setting, require_distinct, setting

MOST_RACKS = 250
"""A rack is the third number of an address in the log."""

MOST_VOQ_PACKETS = 100_000
MOST_HOSTS = 256
"""Most hosts of an emulation, which has a process for each."""

LARGEST_PACKET_BYTES = 9000
SHARED_POLICIES = ("cs", "dt", "lqd", "followlqd", "credence", "credence_accept")
"""``credence`` asks the exported model, ``credence_accept`` nobody: it always accepts."""

LONGEST_PHASE_NS = 10**9


@dataclass
class RackFabric:
    """Racks whose switches have a virtual output queue (VOQ) per other rack; defaults are the Etalon emulator's."""

    racks: int = setting(
        25, "Number of racks of the schedule; only those with flows have hosts.", at_least=3, at_most=MOST_RACKS
    )
    schedule: str | None = setting(
        None,
        "File schedule.json that foretail schedule wrote with degree=1; null means every rack in turn, as in Etalon.",
    )
    hosts_per_rack: int = setting(16, "Number of hosts of a rack with flows.", at_least=1, at_most=128)
    host_bps: int = rate_setting(40_000_000_000, "Rate of a host's link, which has no delay.", at_least=10**6)
    packet_bps: int = rate_setting(10_000_000_000, "Rate of a rack's link to the packet switch.", at_least=10**6)
    packet_delay_ns: int = setting(
        5_000, "One-way delay of that link; a packet crosses two of them.", at_least=0, at_most=10**9
    )
    circuit_bps: int = rate_setting(80_000_000_000, "Rate of a circuit.", at_least=10**6)
    circuit_delay_ns: int = setting(30_000, "One-way delay of a circuit.", at_least=0, at_most=10**9)
    day_ns: int = setting(180_000, "Duration of a slot in which circuits are up.", at_least=1, at_most=LONGEST_PHASE_NS)
    night_ns: int = setting(
        20_000, "Duration of a slot in which circuits are changed.", at_least=0, at_most=LONGEST_PHASE_NS
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on nights that are longer than days."""
        if self.night_ns > self.day_ns:
            raise ForetailError(
                f"{where}.night_ns = {self.night_ns} is longer than {where}.day_ns = {self.day_ns}, so that circuits "
                "change for longer than they are up: lower it"
            )


@dataclass
class RackTraffic:
    """Long flows from one rack to others, and their TCP."""

    fabric: RackFabric = part(RackFabric, "Racks and switches.")
    source_rack: int = setting(1, "Rack in which flows start; racks count from 1.", at_least=1, at_most=MOST_RACKS)
    destination_racks: list[int] = setting([2], "Racks to which flows go.", at_least=1, at_most=MOST_RACKS)
    flows: int = setting(16, "Number of flows to each of these racks; they never end.", at_least=1, at_most=1024)
    start_within_ns: int = setting(
        0, "Flows start at random within this time; 0 starts them together.", at_least=0, at_most=10**9
    )
    packet_bytes: int = setting(
        LARGEST_PACKET_BYTES, "Size of a full packet with its headers.", at_least=576, at_most=LARGEST_PACKET_BYTES
    )
    initial_window_segments: int = setting(10, "Initial window of TCP.", at_least=1, at_most=10_000)
    min_rto_ns: int = setting(
        10_000_000,
        "Smallest retransmission timeout; the default is that of Linux, 200 ms, at 20 times slower.",
        at_least=1_000,
        at_most=LONGEST_RTO_NS,
    )
    delayed_ack_segments: int = setting(
        2, "Segments per acknowledgement; Linux supports 1 and 2.", at_least=1, at_most=2
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on flows that go nowhere."""
        prefix = f"{where}." if where else ""
        if not self.destination_racks:
            raise ForetailError(f"{prefix}destination_racks is empty: give at least one rack")
        require_distinct(f"{prefix}destination_racks", self.destination_racks, "name every rack once")
        for rack in (self.source_rack, *self.destination_racks):
            if rack > self.fabric.racks:
                raise ForetailError(
                    f"{where or 'the experiment'} has flows of rack {rack}, and {prefix}fabric.racks = "
                    f"{self.fabric.racks}: choose one of these"
                )
        if self.source_rack in self.destination_racks:
            raise ForetailError(
                f"{prefix}source_rack = {self.source_rack} is in {prefix}destination_racks, and flows inside a rack "
                "cross no VOQ: choose others"
            )


@dataclass
class RackTraces(RackTraffic):
    """Traffic of a dataset of racks: the VOQs of a rack share a buffer, and flows start at random."""

    start_within_ns: int = setting(
        1_400_000,
        "Flows start at random within this time; 0 starts them together, which is for one seed.",
        at_least=0,
        at_most=10**9,
    )
    policy: str = setting("lqd", "Policy of the racks' switches.", one_of=SHARED_POLICIES[:4])
    shared_packets: int = setting(
        112, "Size of the shared buffer, in full packets.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    alpha: float = setting(
        1.0, "With policy=dt, alpha: the threshold is alpha times the free buffer.", above=0, at_most=1024
    )
    transport: str = setting("cubic", "Congestion control.", one_of=("cubic", "newreno"))
    weeks: int = setting(100, "Length of a run, in periods of the schedule.", at_least=1, at_most=10_000)
