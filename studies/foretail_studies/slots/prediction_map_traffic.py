"""Arrivals of the cells of the prediction map: in slots, in slots with packets of two sizes, and recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.features.records import FlowClass, Records
from foretail.pipelines.data.collecting import made_runs
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import simulator_of
from foretail.sim_bridge.arrivals.files import PACKET_BYTES, Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOAD_KINDS, Workload
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, labelled_records, slotted_run
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import compare_replays, data_sent, feed, replay_of
from foretail.sim_bridge.open_loop.slotted import compare

LARGEST_BYTES = 1500
"""Of a packet where packets have two sizes."""
CELL_BYTES = 256
"""Of the features."""


class Traffic(ABC):
    """Arrivals of a cell, and its switch."""

    @abstractmethod
    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""

    @abstractmethod
    def depends_on(self) -> dict[str, Any]:
        """Everything that the arrivals depend on beside their seed, JSON-like."""

    @abstractmethod
    def told(self, seed: int) -> int:
        """What Credence sends that is told which packets LQD drops, in packets, or in bytes of data."""


@dataclass(frozen=True)
class InSlots(Traffic):
    """Packets of one size, in slots."""

    workload: Workload
    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    slots: int  #: with arrivals, of a run

    def batches(self, seed: int) -> Iterator[Slotted]:
        """The arrivals of a seed."""
        return self.workload.batches(self.ports, self.buffer, self.slots, seed)

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.in_slots(self.batches(seed), self.ports, self.buffer, cell_bytes=CELL_BYTES)

    def depends_on(self) -> dict[str, Any]:
        """Everything that the arrivals depend on beside their seed."""
        numbers = asdict(self)
        numbers["workload"] = [WORKLOAD_KINDS.name(self.workload), numbers["workload"]]
        return {**numbers, "plugin": source_sha256(type(self.workload))}

    def told(self, seed: int) -> int:
        """What Credence sends that is told which packets LQD drops."""
        return compare(self.batches(seed), self.ports, self.buffer, ["credence"], threads=1).sent


@dataclass(frozen=True)
class TwoSizes(InSlots):
    """The same packets, but each has the least or the largest size, at random; their mean is that of one size."""

    least_bytes: int  #: of a packet

    def __post_init__(self) -> None:
        """Raise ForetailError on a size that leaves no such mean."""
        if not 20 <= self.least_bytes < PACKET_BYTES:
            raise ForetailError(f"least_bytes is {self.least_bytes}: give 20 to {PACKET_BYTES - 1}, the mean less one")

    def described(self, seed: int) -> Run:
        """The switch, whose buffer and ports hold and send as many packets of the mean size as in slots."""
        run = slotted_run(self.workload, self.ports, self.buffer // self.ports, self.slots, seed, cell_bytes=CELL_BYTES)
        return replace(run, scenario={**run.scenario, "packet_bytes": [self.least_bytes, LARGEST_BYTES]})

    def records(self, seed: int) -> list[Records]:
        """The arrivals of a seed, in bytes."""
        draw = np.random.default_rng(seed)
        share = (PACKET_BYTES - self.least_bytes) / (LARGEST_BYTES - self.least_bytes)
        parts = list(arrivals_in_bytes(self.batches(seed)))
        for part in parts:
            part["size_bytes"] = np.where(draw.random(len(part)) < share, LARGEST_BYTES, self.least_bytes)
        return parts

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.in_bytes(self.described(seed), self.records(seed))

    def told(self, seed: int) -> int:
        """What Credence sends that is told which packets LQD drops, in bytes."""
        run = self.described(seed)
        replay = replay_of("credence", run)
        for records in labelled_records(run, self.records(seed)):
            feed(replay, records, records["lqd_drop"].astype(np.uint8))
        return data_sent(replay).bytes


@dataclass(frozen=True)
class Recorded(Traffic):
    """Arrivals at all leaves of a network whose senders reacted to LQD; here nobody reacts."""

    config: CollectConfig  #: how they are recorded, unless the store has them

    def dataset(self, seed: int) -> Dataset:
        """The recorded arrivals of a seed."""
        (made,) = made_runs(replace(self.config, seeds=[seed], jobs=1))
        return Dataset.open(made.path)

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.of(self.dataset(seed))

    def depends_on(self) -> dict[str, Any]:
        """Everything that the arrivals depend on beside their seed."""
        ((_, policy),) = self.config.policy.items()
        return simulator_of(self.config).depends_on(driver_config(self.config.scenario, policy, 1, trace=True))

    def told(self, seed: int) -> int:
        """What Credence sends that is told which packets LQD drops, in bytes of data."""
        dataset = self.dataset(seed)
        drops = [batch["lqd_drop"][batch["flow_class"] != FlowClass.CONTROL] for batch in dataset.arrivals()]
        sent = compare_replays(dataset, (), np.concatenate(drops).astype(np.bool_), threads=1).scores.sent_bytes
        assert sent is not None  # a Credence that is told the truth sends
        return sent
