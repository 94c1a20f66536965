"""Small traces for tests: a run's description, made-up arrivals, the dataset of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, Run, SwitchGeometry
from foretail.features.dataset.writer import write_dataset
from foretail.features.records import ARRIVAL_DTYPE, Asked, FlowClass, Outcome, Records
from foretail.sim_bridge.open_loop.dataset import write_open_loop_dataset

RUN = Run(
    scenario={"background": {"load": 0.8}},
    policy={"name": "lqd"},
    seed=1,
    switches=(SwitchGeometry(4, 200_000, (10**10,) * 4), SwitchGeometry(10, 512_000, (10**10,) * 10)),
    rules=Rules("counted", "lowest_port", "tail"),
    cell_bytes=256,
    average_shift=15,
    versions={"foretail": "0"},
)


ARTIFACT = replace(
    RUN,
    scenario={"name": "credence_artifact"},
    switches=(SwitchGeometry(20, 1_000_000, (10**10,) * 20),),
    rules=Rules("uncounted", "lowest_port", "tail"),
    cell_bytes=1,
    average_shift=0,
)
"""The run of the rows of Credence's artifact."""


class Arrivals(NamedTuple):
    """Arguments of ``DatasetWriter.write``."""

    records: Records
    shadow: NDArray[np.int32]
    shadow_asked: NDArray[Any]

    def part(self, where: slice) -> Arrivals:
        return Arrivals(self.records[where], self.shadow[where], self.shadow_asked[where])


def make_arrivals(count: int, seed: int = 0) -> Arrivals:
    """Return random arrivals on the switches of RUN, a third of them control packets, a tenth of the rest drops."""
    draw = np.random.default_rng(seed)
    records = np.zeros(count, ARRIVAL_DTYPE)
    records["time_ns"] = np.cumsum(draw.integers(0, 1000, count))
    records["fate_time_ns"] = records["time_ns"] + draw.integers(0, 10**6, count)
    records["score"] = draw.integers(-(2**62), 2**62, count)
    records["flow"] = draw.integers(0, 2**31, count)
    records["size_bytes"] = draw.integers(1, 1500, count)
    records["features"] = draw.integers(0, [2**f.bits for f in FEATURES], (count, len(FEATURES)))
    records["switch"] = draw.integers(0, 2, count)
    records["port"] = draw.integers(0, np.where(records["switch"] == 0, 4, 10))
    records["flow_class"] = draw.integers(0, len(FlowClass), count)
    records["outcome"] = draw.integers(0, len(Outcome), count)
    records["lqd_drop"] = (draw.random(count) < 0.1) & (records["flow_class"] != FlowClass.CONTROL)
    records["exposed"] = draw.integers(0, 2, count)
    records["asked"] = draw.integers(0, len(Asked), count)
    records["first_rtt"] = draw.integers(0, 2, count)
    shadow = draw.integers(0, 2**24, (count, len(SHADOW_COLUMNS)), np.int32)
    return Arrivals(records, shadow, draw.integers(0, 2, count, np.uint8))


def write_trace(path: Path, arrivals: Arrivals, batch: int = 1000, **changes: Any) -> Dataset:
    """Write `arrivals` as a run like RUN but for `changes`, `batch` at a time, and open the dataset."""
    with write_dataset(path, replace(RUN, **changes)) as writer:
        for first in range(0, len(arrivals.records), batch):
            writer.write(*arrivals.part(slice(first, first + batch)))
    return Dataset.open(path)


def write_bursts(path: Path, seed: int, bursts: int = 30, **changes: Any) -> Dataset:
    """Write a run that pays for foresight: one port is overloaded all the time, and the others get bursts.

    Under LQD the bursts push out what the overloaded queue holds; always accepting leaves them no room. A slot is the
    time of a packet of 1000 bytes, a burst comes every 60 slots.
    """
    random, slot_ns = np.random.default_rng(seed), 8000
    times, ports = [], []
    for burst in range(bursts):
        start = 60 * slot_ns * burst
        flood, length = int(random.integers(100, 130)), int(random.integers(14, 20))
        times += [
            start + np.sort(random.integers(0, 50 * slot_ns, flood)),
            start + 50 * slot_ns + np.arange(3 * length),
        ]
        ports += [np.zeros(flood, np.int64), np.arange(3 * length) % 3 + 1]
    records = np.zeros(sum(map(len, times)), ARRIVAL_DTYPE)
    records["time_ns"], records["port"] = np.concatenate(times), np.concatenate(ports)
    records["size_bytes"], records["flow_class"] = 1000, FlowClass.BACKGROUND
    about: dict[str, Any] = {
        "seed": seed,
        "scenario": {"name": "bursts", "topology": {"wire_overhead_bytes": 0}},
        "switches": (SwitchGeometry(4, 60_000, (10**9,) * 4),),
    }
    write_open_loop_dataset(path, replace(RUN, **(about | changes)), [records])
    return Dataset.open(path)


def write_slots(path: Path, slots: Iterable[int], ports: Iterable[int], **columns: Iterable[int]) -> None:
    """Write packets in slots as a file of arrivals, with further columns."""
    rows = zip(slots, ports, *columns.values(), strict=True)
    path.write_text("\n".join([",".join(("slot", "port", *columns)), *(",".join(map(str, row)) for row in rows), ""]))
