"""Slotted arrivals as a dataset in bytes: packets of one size, and ports that send exactly one of them per slot.

The replay in bytes then is the slotted model, packet for packet. A port that is idle starts on a packet of slot s at
the start of the slot and has sent it when slot s + 1 starts, where departures come first. Only what a port is sending
differs: it cannot be pushed out in bytes, and in slots it can. A tail victim is never that packet when the buffer holds
a packet per port, since a full buffer and the arrival then leave the longest queue at least two packets. So rules other
than :data:`~foretail.sim_bridge.open_loop.slotted.DEFAULT_RULES` are not offered, nor smaller buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

from foretail.features.arithmetic import CELL_BYTES
from foretail.features.dataset.manifest import Run, SwitchGeometry
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.arrivals.slotted import AVERAGE_SHIFT, PACKET_BYTES, SLOT_NS, Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOAD_KINDS, Workload
from foretail.sim_bridge.open_loop.dataset import write_open_loop_dataset
from foretail.sim_bridge.open_loop.slotted import DEFAULT_RULES

PORT_RATE_BPS = 8 * 10**9 * PACKET_BYTES // SLOT_NS


def slotted_run(
    workload: Workload,
    ports: int,
    buffer_per_port: int,
    slots: int,
    seed: int,
    *,
    cell_bytes: int,
    average_shift: int = AVERAGE_SHIFT,
) -> Run:
    """Describe the run of :func:`arrivals_in_bytes` of a workload under LQD.

    Its scenario holds all that the packets depend on, so that other parameters, switches or lengths are other traffic.

    Parameters
    ----------
    workload : Workload
        One of ``WORKLOADS``, or a plug-in's.
    ports, buffer_per_port : int
        N and B / N in packets, both at least 1.
    slots, seed : int
        As :meth:`Workload.batches`.
    cell_bytes, average_shift : int
        Arithmetic of the features, as :class:`Run` and :func:`~foretail.sim_bridge.open_loop.slotted.labelled`.
    """
    name = WORKLOAD_KINDS.name(workload)
    parameters, defaults = asdict(workload), asdict(type(workload)())
    changed = {key: value for key, value in parameters.items() if value != defaults[key]}
    settings_text = ", ".join(f"{key}={value}" for key, value in changed.items())
    return Run(
        scenario={
            "name": f"{name} ({settings_text})" if settings_text else name,
            "source": "slotted",
            "workload": {"name": name, **parameters},
            "ports": ports,
            "buffer_packets": ports * buffer_per_port,
            "slots": slots,
            "slot_ns": SLOT_NS,
            "packet_bytes": PACKET_BYTES,
            "open_loop": True,
            "topology": {"wire_overhead_bytes": 0},
        },
        policy={"name": "lqd", "fate_times": "upper_bounds"},
        seed=seed,
        switches=(SwitchGeometry(ports, ports * buffer_per_port * PACKET_BYTES, (PORT_RATE_BPS,) * ports),),
        rules=DEFAULT_RULES,
        cell_bytes=cell_bytes,
        average_shift=average_shift,
        versions={"foretail": metadata.version("foretail")},
    )


def arrivals_in_bytes(
    batches: Iterable[Slotted], packet_bytes: int = PACKET_BYTES, slot_ns: int = SLOT_NS
) -> Iterator[Records]:
    """Yield every batch as data packets of `packet_bytes` that arrive when their slots of `slot_ns` start."""
    for batch in batches:
        records = np.zeros(len(batch), ARRIVAL_DTYPE)
        records["time_ns"] = batch.slot * slot_ns
        records["port"] = batch.port
        records["size_bytes"] = packet_bytes
        records["flow_class"] = FlowClass.BACKGROUND
        yield records


def collect_slots(
    path: str | Path,
    workload: Workload,
    *,
    ports: int,
    slots: int,
    seed: int,
    buffer_per_port: int = 50,
    cell_bytes: int = CELL_BYTES,
) -> Dataset:
    """Simulate a workload in slots under LQD, and write it as the dataset `path`, which must not exist.

    Other parameters are those of :func:`slotted_run`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.sim_bridge.arrivals.workloads import Incast
    >>> with TemporaryDirectory() as folder:
    ...     collect_slots(f"{folder}/1", Incast(fan_in=5), ports=8, slots=2000, seed=1).manifest.seed
    1
    """
    run = slotted_run(workload, ports, buffer_per_port, slots, seed, cell_bytes=cell_bytes)
    batches = workload.batches(ports, ports * buffer_per_port, slots, seed)
    write_open_loop_dataset(Path(path), run, arrivals_in_bytes(batches))
    return Dataset.open(Path(path))
