"""Runs whose arrivals stay in memory, so that policies with a predictor can decide about them many times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import CELL_BYTES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.features.records import FlowClass, Records
from foretail.sim_bridge._native import KnownArrivals, Scorer
from foretail.sim_bridge.arrivals.files import SLOT_NS, Slotted, slots_shift
from foretail.sim_bridge.open_loop.replay import queues_of, voqs_of

BUFFERS = 2.0
"""Least length of a window, in times that its slowest port takes to send a whole buffer: it fills and empties there."""
PACKETS = 1_000_000
"""Packets of all windows together, by default; a shorter sample is cut into windows whole."""


def spread(time: NDArray[np.int64], count: int, packets: float, least: float) -> list[tuple[slice, int]]:
    """Return the rows and the start of windows that are spread evenly over arrivals, each of the same length.

    Windows are as long as they are for `packets` rows in all, and `least` at least. There are `count`, or as many as do
    not overlap, and one at least; those without an arrival are left out.

    Examples
    --------
    >>> spread(np.array([0, 1, 5, 9]), count=2, packets=4, least=3)
    [(slice(0, 2, None), 0), (slice(2, 4, None), 5)]
    """
    if not len(time):
        return [(slice(0, 0), 0)]
    first, span = int(time[0]), int(time[-1]) + 1 - int(time[0])
    length = max(span * min(1.0, packets / len(time)) / count, least)
    count = max(1, min(count, math.floor(span / length + 1e-9)))
    if count == 1 and length >= span:
        return [(slice(0, len(time)), 0)]
    starts = np.linspace(first, max(first, first + span - length), count).astype(np.int64).tolist()
    windows = []
    for start, following in zip(starts, [*starts[1:], math.inf], strict=True):
        low, high = np.searchsorted(time, [start, min(start + math.ceil(length), following)]).tolist()
        if low < high:
            windows.append((slice(low, high), start))
    return windows


@dataclass(frozen=True, eq=False)
class Visits:
    """Packets about which a policy asked and that fitted into the buffer."""

    #: int32[rows, features], of the catalog; 0 where no scorer reads a feature and it was not asked for
    features: NDArray[np.int32]
    value: NDArray[np.int64]  #: int64[rows], margins of a scorer


@dataclass(frozen=True, eq=False)
class KnownRun:
    """The arrivals of a run, switch by switch.

    Examples
    --------
    >>> from foretail.sim_bridge.arrivals.workloads import Incast
    >>> from foretail.sim_bridge.open_loop.known import KnownRun
    >>> run = KnownRun.in_slots(Incast(fan_in=5).batches(20, 1000, 2000, seed=1), 20, 1000)
    >>> run.sent("cs") <= run.lqd
    True
    """

    switches: tuple[KnownArrivals, ...]
    condition: str  #: runs of one condition differ in their seed alone
    settings: dict[str, Any]  #: rules and seed of the virtual LQD

    @classmethod
    def in_slots(
        cls,
        batches: Iterable[Slotted],
        ports: int,
        buffer: int,
        *,
        condition: str = "",
        cell_bytes: int = CELL_BYTES,
        average_shift: int = 5,
        settings: dict[str, Any] | None = None,
    ) -> KnownRun:
        """Return a run of unit packets of 1024 bytes, averages over 2**average_shift slots.

        Other parameters are those of :func:`~foretail.sim_bridge.open_loop.slotted.compare`.
        """
        parts = list(batches)
        slot = np.concatenate([part.slot for part in parts]) if parts else np.empty(0, np.int64)
        port = np.concatenate([part.port for part in parts]) if parts else np.empty(0, np.int32)
        known = KnownArrivals.in_slots(ports, buffer, slot, port, cell_bytes=cell_bytes, average_shift=average_shift)
        return cls((known,), condition, settings or {})

    @classmethod
    def of(cls, dataset: Dataset) -> KnownRun:
        """Return the run of a trace, in slots if its packets came from there.

        ForetailError on rows that are no trace, and on runs with several queues per port or with circuits.
        """
        ((whole,),) = cls.windows_of(dataset, [1], math.inf)
        return whole

    @classmethod
    def windows_of(
        cls, dataset: Dataset, counts: Sequence[int], packets: float = PACKETS
    ) -> list[tuple[KnownRun, ...]]:
        """Return windows of a trace for each count, spread evenly over it, from an empty buffer; else as :meth:`of`.

        Parameters
        ----------
        counts : windows; fewer where they would be shorter than the slowest port takes to send :data:`BUFFERS` buffers
        packets : in all windows together; a trace with fewer is cut into windows whole
        """
        dataset.require_trace()
        run = dataset.manifest
        if queues_of(run).count > 1 or voqs_of(run) is not None:
            raise ForetailError(
                f"{dataset.path} has several queues per port or circuits, which training for what is sent and choosing "
                "a rule cannot have: leave it out"
            )
        rules = {**vars(run.rules), "seed": run.seed}
        condition = str({name: value for name, value in sorted(run.scenario.items()) if name != "seed"})
        records = np.concatenate(list(dataset.arrivals()))
        if {"ports", "buffer_packets", "slot_ns"} <= run.scenario.keys():
            slots = Slotted(records["time_ns"] // SLOT_NS, records["port"].astype(np.int32, casting="same_kind"))
            return cls.windows_in_slots(
                slots,
                run.scenario["ports"],
                run.scenario["buffer_packets"],
                counts,
                packets,
                condition=condition,
                cell_bytes=run.cell_bytes,
                average_shift=max(slots_shift(run.average_shift), 0),
                settings=rules,
            )
        drain_ns = max(8e9 * switch.buffer_bytes / min(switch.port_rates_bps) for switch in run.switches)

        def window(rows: slice, start: int) -> KnownRun:
            part = records[rows].copy()
            part["time_ns"] -= start
            return cls.in_bytes(run, [part], condition=condition)

        return [
            tuple(window(*one) for one in spread(records["time_ns"], count, packets, BUFFERS * drain_ns))
            for count in counts
        ]

    @classmethod
    def windows_in_slots(
        cls,
        arrivals: Slotted,
        ports: int,
        buffer: int,
        counts: Sequence[int],
        packets: float = PACKETS,
        **described: Any,
    ) -> list[tuple[KnownRun, ...]]:
        """Return :meth:`windows_of` unit packets; `described` goes to :meth:`in_slots`."""
        return [
            tuple(
                cls.in_slots([Slotted(arrivals.slot[rows] - start, arrivals.port[rows])], ports, buffer, **described)
                for rows, start in spread(arrivals.slot, count, packets, BUFFERS * buffer)
            )
            for count in counts
        ]

    @classmethod
    def in_bytes(cls, run: Run, batches: Sequence[Records], *, condition: str = "") -> KnownRun:
        """Return a run of packets of any sizes on the switches that `run` describes, each with one queue per port."""
        return cls(tuple(_switches(run, batches)), condition, {**vars(run.rules), "seed": run.seed})

    @property
    def packets(self) -> int:
        """Packets that arrive, control packets included."""
        return sum(map(len, self.switches))

    @cached_property
    def lqd(self) -> int:
        """Packets or bytes that LQD sends."""
        return self.sent("lqd")

    def sent(self, policy: str, scorer: Scorer | None = None, **parameters: Any) -> int:
        """Return the packets in slots, or bytes of data, that a policy sends with the answers of a scorer."""
        return sum(one.sent(policy, scorer, **self.settings, **parameters) for one in self.switches)

    def sent_in_turns(
        self, policy: str, scorers: Sequence[Scorer], starts: Sequence[Sequence[int]], **parameters: Any
    ) -> int:
        """Return what a policy sends while scorers take turns.

        Parameters
        ----------
        scorers : in the order of their turns
        starts : for each switch, the row of its first arrival about which each scorer answers: from 0 on, in order
        """
        return sum(
            one.sent_in_turns(policy, list(scorers), list(rows), **self.settings, **parameters)
            for one, rows in zip(self.switches, starts, strict=True)
        )

    def visited(
        self,
        policy: str,
        scorer: Scorer,
        *,
        rows: int,
        seed: int,
        teacher: Scorer | None = None,
        features: Sequence[str] = (),
        **parameters: Any,
    ) -> Visits:
        """Return about so many packets that a policy sees, drawn evenly, and the margins of the teacher.

        `features`: names of those that are wanted beside what the scorer and the teacher read.
        """
        parts = [
            one.visited(
                policy,
                scorer,
                share=self._share(rows),
                draw=seed,
                teacher=teacher,
                features=list(features),
                **self.settings,
                **parameters,
            )
            for one in self.switches
        ]
        seen, margins = (np.concatenate([part[name] for part in parts]) for name in ("features", "margin"))
        return Visits(seen, margins)

    def _share(self, rows: int) -> float:
        return min(1.0, rows / max(1, self.packets))


def _switches(run: Run, batches: Sequence[Records]) -> Iterable[KnownArrivals]:
    records = np.concatenate(batches)
    for number, switch in enumerate(run.switches):
        mine = records[records["switch"] == number]
        yield KnownArrivals.in_bytes(
            switch.buffer_bytes,
            list(switch.port_rates_bps),
            run.scenario["topology"]["wire_overhead_bytes"],
            np.ascontiguousarray(mine["time_ns"]),
            mine["port"].astype(np.int32),
            np.ascontiguousarray(mine["size_bytes"]),
            (mine["flow_class"] != FlowClass.CONTROL).astype(np.uint8),
            np.ascontiguousarray(mine["first_rtt"]),
            cell_bytes=run.cell_bytes,
            average_shift=run.average_shift,
        )
