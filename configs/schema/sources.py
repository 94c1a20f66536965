"""Where datasets come from, beside ns-3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretail.configs.schema.fields import FASTEST_BPS, LONGEST_NS, part, setting
from foretail.configs.schema.scenario import FeatureArithmetic, Rules
from foretail.features.errors import ForetailError


@dataclass
class EtalonImport:
    """How a packet log of the Etalon emulator is read, and the shared buffer that labels it (docs/imports.md)."""

    buffer_bytes: int = setting(
        7 * 16 * 9000, "shared buffer of each source rack's switch; the emulator has none", at_least=1, at_most=2**30
    )
    port_rate_bps: int | None = setting(
        None,
        "rate of every port; null: its share of the packet uplink and the mean of its circuit",
        at_least=1000,
        at_most=FASTEST_BPS,
    )
    packet_link_bps: int = setting(
        10_000_000_000, "packet uplink of a rack, in virtual time", at_least=1_000_000, at_most=FASTEST_BPS
    )
    circuit_link_bps: int = setting(80_000_000_000, "circuit, in virtual time", at_least=1_000_000, at_most=FASTEST_BPS)
    time_dilation: int = setting(20, "wall time over virtual time", at_least=1, at_most=100_000)
    position: str = setting("after", "where in the switch the log was taken", one_of=("after", "before"))
    latency_dilated: bool = setting(False, "latencies in the log are dilated, which those of the emulator are not")
    record_bytes: int | None = setting(None, "size of a record, 112 or 116; null finds out")
    racks: int | None = setting(None, "racks of the network; null: the highest in the log", at_least=3, at_most=255)
    packet_delay_ns: int = setting(
        10_000, "propagation delay of the packet path: no latency is less", at_least=0, at_most=LONGEST_NS
    )
    circuit_delay_ns: int = setting(
        30_000, "propagation delay of the circuit: no latency is less", at_least=0, at_most=LONGEST_NS
    )
    day_ns: int | None = setting(
        180_000, "median time that a circuit is up; null does not check it", at_least=1, at_most=LONGEST_NS
    )
    voq_packets: int | None = setting(
        None, "largest capacity of a VOQ; null does not check it", at_least=1, at_most=2**31 - 1
    )
    rules: Rules = part(Rules, "rules of LQD")
    features: FeatureArithmetic = part(FeatureArithmetic, "feature arithmetic; average_shift null is 15, about 33 us")

    def check(self, where: str) -> None:
        """Raise ForetailError on a record that the emulator does not write."""
        if self.record_bytes not in (None, 112, 116):
            raise ForetailError(f"{where}.record_bytes = {self.record_bytes} is unknown: choose from 112, 116")


@dataclass
class ArtifactImport:
    """The switch whose training rows the public Credence artifact wrote (docs/imports.md); the rows do not say."""

    ports: int = setting(20, "ports: N of the scores", at_least=1, at_most=32_767)
    buffer_bytes: int = setting(1_052_672, "shared buffer: no length exceeds it", at_least=1, at_most=2**24 - 1)
    port_rate_bps: int = setting(
        10_000_000_000, "rate of every port, for the manifest", at_least=1, at_most=FASTEST_BPS
    )


@dataclass
class SlottedTraffic:
    """A workload of the slotted model and its switch: packets of 1024 bytes, slots of 1024 ns."""

    workload: str = setting("incast", "name from foretail.sim_bridge.arrivals.workloads")
    settings: Any = setting(None, "parameters of the workload, as {NAME: VALUE}; the others keep their defaults")
    ports: int = setting(20, "N, ports of the switch", at_least=1, at_most=32_767)
    buffer_per_port: int = setting(50, "B / N, packets of shared buffer", at_least=1, at_most=2**20)
    slots: int = setting(20_000, "slots with arrivals", at_least=1, at_most=2**40)
    features: FeatureArithmetic = part(FeatureArithmetic, "feature arithmetic; average_shift null is 15, 32 slots")

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
