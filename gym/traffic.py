"""Sources of the packets of an episode: a workload, a file of arrivals, or recorded datasets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.settings import MOST_PORTS, require_within
from foretail.features.catalog import CELL_BYTES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.features.records import FlowClass, Records
from foretail.sim_bridge._native import LiveRuns, slotted
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted
from foretail.sim_bridge.arrivals.workloads import OnOff, Workload
from foretail.sim_bridge.open_loop.replay import require_one_queue, voqs_of


class Episode(ABC):
    """Arrivals at one switch, from the first to the last."""

    @abstractmethod
    def begin(self, runs: LiveRuns, index: int, labels: bool) -> None:
        """Let run `index` begin with these arrivals, with LQD's labels beside them if wanted."""


class Traffic(ABC):
    """Makes episodes: nothing but the seed decides which packets come.

    Examples
    --------
    >>> issubclass(Generated, Traffic)
    True
    """

    has_bytes: bool
    """True if packets have sizes, in bytes; else each is one unit of the buffer."""

    @abstractmethod
    def episode(self, seed: int) -> Episode:
        """Return the episode of a seed."""


@dataclass(frozen=True, eq=False)
class SlottedEpisode(Episode):
    """Unit packets in slots."""

    arrivals: Slotted
    ports: int
    buffer: int
    cell_bytes: int
    average_shift: int

    @cached_property
    def lqd_drop(self) -> NDArray[np.uint8]:
        """1 where LQD drops the packet, at its arrival or later."""
        run = slotted("lqd", self.ports, self.buffer, self.arrivals.slot, self.arrivals.port)
        label: NDArray[np.uint8] = run["lqd_drop"]
        return label

    def begin(self, runs: LiveRuns, index: int, labels: bool) -> None:
        runs.begin_slots(
            index,
            self.ports,
            self.buffer,
            self.arrivals.slot,
            self.arrivals.port,
            first_rtt=self.arrivals.first_rtt,
            lqd_drop=self.lqd_drop if labels else None,
            cell_bytes=self.cell_bytes,
            average_shift=self.average_shift,
        )


@dataclass(frozen=True)
class Generated(Traffic):
    """A workload of the slotted simulator, drawn with the seed of the episode.

    Examples
    --------
    >>> traffic = Generated(ports=4, buffer=16, slots=100)
    >>> len(traffic.episode(seed=1).lqd_drop) > 0
    True
    """

    #: one of ``WORKLOADS`` (:mod:`foretail.sim_bridge.arrivals.workloads`)
    workload: Workload = field(default_factory=OnOff)
    ports: int = 8  #: of the switch
    buffer: int = 80  #: of the switch, shared, in packets
    slots: int = 10_000  #: length of an episode
    average_shift: int = 5  #: averaged features run over ``2**average_shift`` slots
    cell_bytes: int = CELL_BYTES  #: size of the cells in which lengths are counted; a packet has 1024 bytes
    has_bytes = False

    def __post_init__(self) -> None:
        require_within("ports", self.ports, {"at_least": 1, "at_most": MOST_PORTS})

    def episode(self, seed: int) -> SlottedEpisode:
        """Return an episode of unit packets; raise :class:`ForetailError` if the workload has none in these slots."""
        batches = list(self.workload.batches(self.ports, self.buffer, self.slots, seed))
        if not batches:
            raise ForetailError(f"the workload has no packet in {self.slots} slots with seed {seed}: set more slots")
        return SlottedEpisode(Slotted.joined(batches), self.ports, self.buffer, self.cell_bytes, self.average_shift)


@dataclass(frozen=True)
class FromFile(Traffic):
    """A CSV or Parquet file of arrivals in slots, the same in every episode; its priorities do not count.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "arrivals.csv"
    ...     _ = file.write_text("slot,port\\n0,1\\n0,1\\n1,0\\n")
    ...     len(FromFile(file, ports=2, buffer=4).episode(seed=1).lqd_drop)
    3
    """

    path: Path  #: with the columns ``slot`` and ``port``, perhaps ``first_rtt``
    ports: int  #: as :class:`Generated`
    buffer: int  #: as :class:`Generated`
    average_shift: int = 5  #: as :class:`Generated`
    cell_bytes: int = CELL_BYTES  #: as :class:`Generated`
    has_bytes = False

    def __post_init__(self) -> None:
        require_within("ports", self.ports, {"at_least": 1, "at_most": MOST_PORTS})

    @cached_property
    def _episode(self) -> SlottedEpisode:
        batches = list(ArrivalFile(Path(self.path)).batches(self.ports, priorities=256))
        return SlottedEpisode(Slotted.joined(batches), self.ports, self.buffer, self.cell_bytes, self.average_shift)

    def episode(self, seed: int) -> SlottedEpisode:
        return self._episode


@dataclass(frozen=True, eq=False)
class RecordedEpisode(Episode):
    """Packets at one switch of a recorded run, in bytes and nanoseconds, control packets among them."""

    run: Run
    switch: int
    records: Records

    @cached_property
    def _columns(self) -> tuple[tuple[NDArray[Any], ...], NDArray[np.uint8]]:
        """Columns that the native run reads, once for all runs of this episode; and the labels."""
        records = self.records
        return (
            np.ascontiguousarray(records["time_ns"]),
            records["port"].astype(np.int32),
            np.ascontiguousarray(records["size_bytes"]),
            (records["flow_class"] != FlowClass.CONTROL).astype(np.uint8),
            np.ascontiguousarray(records["first_rtt"]),
        ), np.ascontiguousarray(records["lqd_drop"])

    def begin(self, runs: LiveRuns, index: int, labels: bool) -> None:
        run, geometry = self.run, self.run.switches[self.switch]
        columns, lqd_drop = self._columns
        runs.begin_bytes(
            index,
            geometry.buffer_bytes,
            list(geometry.port_rates_bps),
            run.scenario["topology"]["wire_overhead_bytes"],
            *columns,
            lqd_drop=lqd_drop if labels else None,
            cell_bytes=run.cell_bytes,
            average_shift=run.average_shift,
            seed=run.seed,
            **vars(run.rules),
        )


@dataclass(frozen=True)
class FromDatasets(Traffic):
    """Recorded datasets, whose senders do not react to the actions. An episode is one switch of one dataset.

    Episode `seed` is number ``seed`` modulo :attr:`episodes`; switches without data packets are left out. `paths`:
    folders of traces, as ``foretail collect`` writes them. They are read once and held in memory.

    Examples
    --------
    >>> FromDatasets(["traces/seed-1"]).has_bytes
    True
    """

    paths: Sequence[Path]
    has_bytes = True

    @cached_property
    def episodes(self) -> tuple[RecordedEpisode, ...]:
        """All of them, in the order of datasets and switches."""
        episodes: list[RecordedEpisode] = []
        for path in self.paths:
            dataset = Dataset.open(Path(path))
            require_one_queue(dataset.manifest, "an environment")
            if voqs_of(dataset.manifest) is not None:
                raise ForetailError(
                    f"an environment knows no circuits, and {dataset.path} is a trace of racks with them"
                )
            dataset.manifest.rules.require_lqd("an environment")
            records = np.concatenate(list(dataset.arrivals()))
            for switch in range(len(dataset.manifest.switches)):
                here = records[records["switch"] == switch]
                if (here["flow_class"] != FlowClass.CONTROL).any():
                    episodes.append(RecordedEpisode(dataset.manifest, switch, here))
        if not episodes:
            raise ForetailError("the datasets have no data packets: name folders that foretail collect has written")
        return tuple(episodes)

    def episode(self, seed: int) -> RecordedEpisode:
        return self.episodes[seed % len(self.episodes)]
