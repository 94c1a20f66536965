"""Sources of datasets beside networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.scenario import FeatureArithmetic, Rules
from foretail.core.errors import ForetailError
from foretail.core.settings import MOST_PORTS, part, rate_setting, require_distinct, setting, time_setting


@dataclass
class EtalonImport:
    """How a packet log of the Etalon emulator is read, and the shared buffer that labels it (docs/guide/data.md)."""

    buffer_bytes: int = setting(
        7 * 16 * 9000, "Shared buffer of each source rack's switch; the emulator has none.", at_least=1, at_most=2**30
    )
    port_rate_bps: int | None = rate_setting(
        None,
        "Rate of every port; null means its share of the packet uplink and the mean of its circuit.",
        at_least=1000,
    )
    packet_link_bps: int = rate_setting(
        10_000_000_000, "Rate of a rack's packet uplink, in virtual time.", at_least=1_000_000
    )
    circuit_link_bps: int = rate_setting(80_000_000_000, "Rate of a circuit, in virtual time.", at_least=1_000_000)
    time_dilation: int = setting(20, "Wall time divided by virtual time.", at_least=1, at_most=100_000)
    position: str = setting("after", "Place in the switch where the log was taken.", one_of=("after", "before"))
    latency_dilated: bool = setting(False, "Latencies in the log are dilated; those of the emulator are not.")
    record_bytes: int | None = setting(None, "Size of a record, 112 or 116; null detects it.")
    racks: int | None = setting(
        None, "Number of racks of the network; null means the highest number in the log.", at_least=3, at_most=255
    )
    packet_delay_ns: int = time_setting(10_000, "Propagation delay of the packet path; no latency is less.")
    circuit_delay_ns: int = time_setting(30_000, "Propagation delay of the circuit; no latency is less.")
    day_ns: int | None = time_setting(180_000, "Median time that a circuit is up; null does not check it.", at_least=1)
    voq_packets: int | None = setting(
        None, "Largest capacity of a VOQ; null does not check it.", at_least=1, at_most=2**31 - 1
    )
    rules: Rules = part(Rules, "Rules of LQD.")
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the features; average_shift=null means 15, about 33 us."
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a record that the emulator does not write."""
        if self.record_bytes not in (None, 112, 116):
            raise ForetailError(f"{where}.record_bytes = {self.record_bytes} is unknown: choose from 112, 116")


@dataclass
class ArtifactImport:
    """The switch whose training rows the public Credence artifact wrote (docs/guide/data.md); rows do not say."""

    ports: int = setting(20, "Number of ports, which is the N of the scores.", at_least=1, at_most=MOST_PORTS)
    buffer_bytes: int = setting(1_052_672, "Shared buffer; no length exceeds it.", at_least=1, at_most=2**24 - 1)
    port_rate_bps: int = rate_setting(10_000_000_000, "Rate of every port, for the manifest.")


@dataclass
class ArrivalsImport:
    """The switch of files of slotted arrivals, with the columns slot and port (docs/guide/data.md)."""

    ports: int | None = setting(None, "Number of ports of the switch.", at_least=1, at_most=MOST_PORTS)
    buffer: int | None = setting(None, "Number of packets that fit into the shared buffer.", at_least=1, at_most=2**20)
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the features; average_shift=null means 15, which is 32 slots."
    )


@dataclass
class EgressCapture:
    """A capture of the packets that left one port."""

    file: str = setting(MISSING, "Capture file.")
    port: int = setting(MISSING, "Egress port, from 0.")


@dataclass
class PcapImport:
    """Captures at one switch, and the shared buffer that labels them (docs/guide/data.md); captures do not say."""

    captures: list[EgressCapture] = setting([], "One capture per egress port, as [{file: FILE, port: 0}, ...].")
    table: str | None = setting(None, "CSV file of destinations and ports (columns prefix, port), instead of captures.")
    ports: int | None = setting(None, "Number of ports of the switch.", at_least=2, at_most=MOST_PORTS)
    buffer_bytes: int | None = setting(None, "Shared buffer of the switch.", at_least=1, at_most=2**30)
    port_rates_bps: list[int] = rate_setting([], "Rate of every port, or one rate for all of them.", at_least=1000)
    wire_overhead_bytes: int = setting(
        24,
        "Bytes of a frame on the wire that a capture lacks: check sequence, preamble and gap.",
        at_least=0,
        at_most=256,
    )
    mtu_bytes: int = setting(
        1500, "Largest IP packet of the network; a capture with a larger one is refused.", at_least=576, at_most=65_535
    )
    sort: bool = setting(False, "Sort a capture whose times go back by time, instead of refusing it.")
    copies: str = setting(
        "leave_out",
        "Packets that are the same as one of the 5 ms before: left out, as of a mirror port, or kept as arrivals.",
        one_of=("leave_out", "keep"),
    )
    rules: Rules = part(Rules, "Rules of LQD.")
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the features; average_shift=null means 15, about 33 us."
    )

    def require_switch(self, logs: int) -> None:
        """Raise ForetailError unless the switch is known, and the port of every packet of `logs` ingress captures."""
        wanted = {
            "ports=NUMBER": self.ports,
            "buffer_bytes=NUMBER": self.buffer_bytes,
            "port_rates_bps=[10_000_000_000]": self.port_rates_bps,
        }
        if missing := [f"'pcap.{setting}'" for setting, value in wanted.items() if not value]:
            raise ForetailError(f"a capture does not say what its switch is: give {' '.join(missing)}")
        if len(self.port_rates_bps) not in (1, self.ports):
            raise ForetailError(
                f"pcap.port_rates_bps has {len(self.port_rates_bps)} rates: give one for all ports, such as "
                f"[10_000_000_000], or one for each of pcap.ports={self.ports}"
            )
        if bool(self.captures) == (self.table is not None):
            why = "unknown" if self.table is None else "known twice"
            raise ForetailError(
                f"the port that a packet leaves by is {why}: give either pcap.table=FILE, with the lines prefix,port, "
                "or pcap.captures"
            )
        if self.table is not None and not logs:
            raise ForetailError("pcap.table says where the packets of log=FILE go: give that capture too")
        for what, path in [("captures", capture.file) for capture in self.captures] + [("table", self.table)]:
            if path is not None and not Path(path).is_file():
                raise ForetailError(f"pcap.{what}: there is no file {path}")
        require_distinct(
            "pcap.captures", [capture.port for capture in self.captures], "merge captures of one port first"
        )


@dataclass
class SlottedTraffic:
    """A workload of the slotted model and its switch: packets of 1024 bytes, slots of 1024 ns."""

    workload: str = setting("incast", "Workload, by its name in foretail.sim_bridge.arrivals.workloads.")
    settings: Any = setting(None, "Parameters of the workload, as {NAME: VALUE}; all others keep their defaults.")
    ports: int = setting(20, "Number N of ports of the switch.", at_least=1, at_most=MOST_PORTS)
    buffer_per_port: int = setting(
        50, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=2**20
    )
    slots: int = setting(20_000, "Number of slots with arrivals.", at_least=1, at_most=2**40)
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the features; average_shift=null means 15, which is 32 slots."
    )

    @property
    def buffer(self) -> int:
        """Packets of shared buffer."""
        return self.ports * self.buffer_per_port

    def check(self, where: str) -> None:
        """Raise ForetailError on a buffer that is too large, or parameters without names."""
        if self.buffer > 2**20:
            raise ForetailError(
                f"{where}.ports x {where}.buffer_per_port = {self.buffer} packets are more than the {2**20} of the "
                "largest buffer: lower one of them"
            )
        if not isinstance(self.settings, dict | None):
            raise ForetailError(
                f"{where}.settings = {self.settings} names nothing: write {where}.settings={{NAME: VALUE}}"
            )
