"""The document of racks around a packet switch and a circuit switch, for the emulator and for ns-3."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretail.configs.schema.emulation import Emulation
from foretail.configs.schema.racks import RackFabric, VoqExperiment
from foretail.export.schedule.json_text import read_json
from foretail.features.errors import ForetailError
from foretail.pipelines.data.scenario import DRIVER_FORMAT
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.packets.queries import HEADER_BYTES


def circuit_schedule(fabric: RackFabric) -> Schedule:
    """The schedule of a fabric; ForetailError when it cannot be read, or is one of other racks or of several uplinks.

    Without a file it is the round robin over all racks.
    """
    if fabric.schedule is None:
        return round_robin(fabric.racks, 1)
    try:
        schedule = read_json(Path(fabric.schedule).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ForetailError(f"cannot read the schedule {fabric.schedule} ({error}): name a schedule.json") from None
    if schedule.nodes != fabric.racks:
        raise ForetailError(
            f"the schedule {fabric.schedule} is one of {schedule.nodes} nodes, and the fabric has {fabric.racks} "
            "racks: set racks to its number, or schedule for as many"
        )
    if schedule.degree != 1:
        raise ForetailError(
            f"the schedule {fabric.schedule} has degree {schedule.degree}, and a rack has one circuit at a time: make "
            "it with degree=1"
        )
    return schedule


def period_ns(fabric: RackFabric, schedule: Schedule) -> int:
    """Time in which a schedule passes once."""
    return schedule.period * (fabric.day_ns + fabric.night_ns)


def rack_document(
    sweep: VoqExperiment,
    schedule: Schedule,
    emulation: Emulation,
    *,
    voq_packets: int | None = None,
    ahead_ns: int | None = None,
    shared: tuple[str, int] | None = None,
    weeks: int | None = None,
) -> dict[str, Any]:
    """The document of one run; ForetailError when it could say nothing about the circuits of its flows.

    Parameters
    ----------
    voq_packets : capacity of a VOQ; None: they share a buffer
    ahead_ns : it grows to ``resized_packets`` so long before its circuit; None: it stays
    shared : policy and size of that buffer in full packets
    weeks : length, in periods of the schedule; None: that of the experiment
    """
    fabric = sweep.fabric
    source, destinations = sweep.source_rack - 1, [rack - 1 for rack in sweep.destination_racks]
    period = period_ns(fabric, schedule)
    for destination in destinations:
        if not schedule.edges[source, destination]:
            raise ForetailError(
                f"the schedule never gives rack {source + 1} a circuit to rack {destination + 1}: choose other racks "
                "or another schedule"
            )
    if ahead_ns is not None and ahead_ns >= period:
        raise ForetailError(
            f"a VOQ cannot grow {ahead_ns} ns before its circuit, for the schedule comes round in {period} ns: lower "
            "ahead_ns"
        )
    buffer = None if shared is None else {"policy": shared[0], "bytes": shared[1] * sweep.packet_bytes}
    racks = {name: value for name, value in asdict(fabric).items() if name != "schedule"}
    return {
        "format": DRIVER_FORMAT,
        "racks": racks
        | {
            "matchings": schedule.matchings[:, 0].tolist(),
            "voq_packets": voq_packets,
            "buffer": None if buffer is None else buffer | {"alpha": sweep.alpha},
            "resize": None if ahead_ns is None else {"packets": sweep.resized_packets, "ahead_ns": ahead_ns},
        },
        "flows": {
            "source": [source] * len(destinations),
            "destination": destinations,
            "flows_per_pair": sweep.flows,
        },
        "transport": {
            "name": emulation.in_ns3,
            "segment_bytes": sweep.packet_bytes - HEADER_BYTES,
            "initial_window_segments": sweep.initial_window_segments,
            "min_rto_ns": sweep.min_rto_ns,
            "delayed_ack_segments": sweep.delayed_ack_segments,
        },
        "traffic_ns": (sweep.weeks if weeks is None else weeks) * period,
        "emulation": emulation.settings(),
    }
