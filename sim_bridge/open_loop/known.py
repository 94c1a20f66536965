"""Runs whose arrivals stay in memory, so that policies with a predictor can decide about them many times."""

from __future__ import annotations

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
        dataset.require_trace()
        run = dataset.manifest
        if queues_of(run).count > 1 or voqs_of(run) is not None:
            raise ForetailError(
                f"{dataset.path} has several queues per port or circuits, which training for what is sent cannot have: "
                "leave it out"
            )
        rules = {**vars(run.rules), "seed": run.seed}
        condition = str({name: value for name, value in sorted(run.scenario.items()) if name != "seed"})
        batches = list(dataset.arrivals())
        if run.scenario.get("source") == "slotted":
            slots = (
                Slotted(batch["time_ns"] // SLOT_NS, batch["port"].astype(np.int32, casting="same_kind"))
                for batch in batches
            )
            ports, buffer = run.scenario["ports"], run.scenario["buffer_packets"]
            return cls.in_slots(
                slots,
                ports,
                buffer,
                condition=condition,
                cell_bytes=run.cell_bytes,
                average_shift=max(slots_shift(run.average_shift), 0),
                settings=rules,
            )
        return cls.in_bytes(run, batches, condition=condition)

    @classmethod
    def in_bytes(cls, run: Run, batches: Sequence[Records], *, condition: str = "") -> KnownRun:
        """Return a run of packets of any sizes on the switches that `run` describes, each with one queue per port."""
        return cls(tuple(_switches(run, batches)), condition, {**vars(run.rules), "seed": run.seed})

    @cached_property
    def lqd(self) -> int:
        """Packets or bytes that LQD sends."""
        return self.sent("lqd")

    def sent(self, policy: str, scorer: Scorer | None = None, **parameters: Any) -> int:
        """Return the packets in slots, or bytes of data, that a policy sends with the answers of a scorer."""
        return sum(one.sent(policy, scorer, **self.settings, **parameters) for one in self.switches)

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
        return min(1.0, rows / max(1, sum(map(len, self.switches))))


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
