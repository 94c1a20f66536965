"""Datasets of arrivals that no simulated sender sent: a replay passes them through a shared buffer and labels them.

Nobody reacts to the drops of that buffer, so labels of arrivals that another buffer has shaped are those of a
counterfactual, and the manifest says so (``scenario.open_loop``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.catalog import CELL_BYTES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run, SwitchGeometry
from foretail.features.dataset.writer import write_dataset
from foretail.features.records import ARRIVAL_DTYPE, Asked, FlowClass, Outcome, Records
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, PACKET_BYTES, SLOT_NS, Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOAD_KINDS, Workload
from foretail.sim_bridge.open_loop.replay import MESSAGE_LEFT, replay_of, shadow_credence, shadow_of
from foretail.sim_bridge.open_loop.slotted import DEFAULT_RULES

WINDOW_ARRIVALS = 1 << 17
_LEAST_PACKET_BYTES = 20


def write_open_loop_dataset(path: Path, run: Run, arrivals: Iterable[Records]) -> dict[str, int]:
    """Replay arrivals under LQD on the switches of `run` and write them as the dataset `path`.

    Labels and features come from the same replay that checks every trace, so a Credence that is told the true labels
    has seen them too (the shadow features). Memory does not depend on the number of arrivals. ForetailError if an
    arrival is impossible, none is a data packet, or the file system refuses. Returns packets by outcome under LQD:
    ``data_drops.buffer_full``, ``data_drops.pushed_out``, ``control_drops.buffer_full`` and ``data_packets``.

    Parameters
    ----------
    path : the dataset folder; must not exist
    run : its policy is LQD
    arrivals : iterable of ARRIVAL_DTYPE arrays
        In order of time, from 0 on; what the policy does with them is filled in here.
    """
    counters = dict.fromkeys(
        ("data_drops.buffer_full", "data_drops.pushed_out", "control_drops.buffer_full", "data_packets"), 0
    )
    shadow = shadow_of(run)
    with write_dataset(path, run) as writer:
        for records in labelled_records(run, arrivals):
            writer.write(records, *shadow_credence(shadow, records))
            data = records["flow_class"] != FlowClass.CONTROL
            counters["data_packets"] += int(np.count_nonzero(data))
            for kind, chosen in (("data", data), ("control", ~data)):
                for outcome in (Outcome.BUFFER_FULL, Outcome.PUSHED_OUT):
                    name = f"{kind}_drops.{outcome.name.lower()}"
                    if name in counters:
                        counters[name] += int(np.count_nonzero(chosen & (records["outcome"] == outcome)))
        if not counters["data_packets"]:
            name = run.scenario.get("name", "the run")
            raise ForetailError(f"{name} has no data packet, so nothing to label: give other arrivals")
    return counters


def longest_stay_ns(run: Run) -> int:
    """No packet stays longer in a first-in-first-out queue: a full buffer, sent by the slowest port.

    Sending times are rounded up to whole nanoseconds, at most once per packet.
    """
    return max(
        -(-8 * 10**9 * switch.buffer_bytes // min(switch.port_rates_bps)) + switch.buffer_bytes // _LEAST_PACKET_BYTES
        for switch in run.switches
    )


def labelled_records(run: Run, arrivals: Iterable[Records]) -> Iterator[Records]:
    """Yield arrivals with labels and features: what LQD does on the switches of `run`.

    A replay knows the fates of a batch only as far as they are settled when the batch ends. Two replays whose batches
    overlap by a window of at least the longest stay settle them all: of every window, one of them has a batch that
    goes on for another window.
    """
    stay_ns = longest_stay_ns(run)
    replays = [replay_of("lqd", run, features=True) for _ in range(2)]
    windows = chain(_windows(map(_without_messages, arrivals), stay_ns), [np.empty(0, ARRIVAL_DTYPE)])
    for number, (window, following) in enumerate(pairwise(windows)):
        if number == 0:
            replays[1].feed(window)
        seen = replays[number % 2].feed(np.concatenate([window, following]))
        records = window.copy()
        data = records["flow_class"] != FlowClass.CONTROL
        for name in ("outcome", "lqd_drop", "exposed", "features"):
            records[name] = seen[name][: len(window)]
        records["exposed"][~data] = 0
        records["features"][~data] = 0
        records["asked"] = Asked.NEVER
        # the replay does not say when a fate was decided: at once when refused, else after the longest stay at most
        at_once = records["outcome"] == Outcome.BUFFER_FULL
        records["fate_time_ns"] = records["time_ns"] + np.where(at_once, 0, stay_ns)
        yield records


def _without_messages(arrivals: Records) -> Records:
    """No trace from outside says how much of a message is left."""
    records = arrivals.copy()
    records["features"][:, MESSAGE_LEFT] = 255
    return records


def _windows(arrivals: Iterable[Records], least_ns: int) -> Iterator[Records]:
    """Cut arrivals into pieces that each last longer than `least_ns`, but for the last one.

    The following piece begins more than `least_ns` after the first arrival of a piece, and at another time than its
    last arrival.
    """
    waiting = np.empty(0, ARRIVAL_DTYPE)
    for batch in arrivals:
        waiting = np.concatenate([waiting, batch])
        while len(waiting) > WINDOW_ARRIVALS:
            time_ns = waiting["time_ns"]
            enough = max(int(time_ns[0]) + least_ns, int(time_ns[WINDOW_ARRIVALS - 1]))
            cut = int(np.searchsorted(time_ns, enough, side="right"))
            if cut == len(waiting):
                break
            yield waiting[:cut]
            waiting = waiting[cut:]
    if len(waiting):
        yield waiting


# Slotted arrivals as a dataset in bytes: packets of one size, and ports that send exactly one of them per slot.
#
# The replay in bytes then is the slotted model, packet for packet. A port that is idle starts on a packet of slot s at
# the start of the slot and has sent it when slot s + 1 starts, where departures come first. Only what a port is sending
# differs: it cannot be pushed out in bytes, and in slots it can. A tail victim is never that packet when the buffer
# holds a packet per port, since a full buffer and the arrival then leave the longest queue at least two packets. So
# rules other than :data:`~foretail.sim_bridge.open_loop.slotted.DEFAULT_RULES` are not offered, nor smaller buffers.

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
    workload : one of ``WORKLOADS``, or a plug-in's
    ports, buffer_per_port : N and B / N in packets, both at least 1
    slots, seed : as :meth:`Workload.batches`
    cell_bytes, average_shift : int
        Arithmetic of the features, as :class:`Run` and :func:`~foretail.sim_bridge.open_loop.slotted.labelled`.
    """
    name = WORKLOAD_KINDS.name(workload)
    scenario = {"source": "slotted", "workload": {"name": name, **asdict(workload)}, "slots": slots}
    parameters, defaults = asdict(workload), asdict(type(workload)())
    changed = {key: value for key, value in parameters.items() if value != defaults[key]}
    settings_text = ", ".join(f"{key}={value}" for key, value in changed.items())
    scenario["name"] = f"{name} ({settings_text})" if settings_text else name
    return run_in_slots(
        scenario, ports, ports * buffer_per_port, seed, cell_bytes=cell_bytes, average_shift=average_shift
    )


def run_in_slots(
    scenario: Mapping[str, Any], ports: int, buffer: int, seed: int, *, cell_bytes: int, average_shift: int
) -> Run:
    """Describe a run of :func:`arrivals_in_bytes` under LQD: `scenario` says where its packets come from.

    Other parameters are those of :func:`slotted_run`; the buffer is in packets.
    """
    return Run(
        scenario={
            **scenario,
            "ports": ports,
            "buffer_packets": buffer,
            "slot_ns": SLOT_NS,
            "packet_bytes": PACKET_BYTES,
            "open_loop": True,
            "topology": {"wire_overhead_bytes": 0},
        },
        policy={"name": "lqd", "fate_times": "upper_bounds"},
        seed=seed,
        switches=(SwitchGeometry(ports, buffer * PACKET_BYTES, (PORT_RATE_BPS,) * ports),),
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
