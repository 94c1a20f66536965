"""The document of racks around a packet switch and a circuit switch, and traces of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.fields import LARGEST_BUFFER_BYTES
from foretail.configs.schema.network.racks import LARGEST_PACKET_BYTES, RackFabric, RackTraces, RackTraffic
from foretail.core.errors import ForetailError
from foretail.export.schedule import read_json
from foretail.pipelines.data.scenario import DRIVER_FORMAT
from foretail.pipelines.data.simulation import Simulator, reporting
from foretail.pipelines.runs.jobs import Report
from foretail.sim_bridge.circuits.schedules import Schedule, round_robin
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.packets.cost import HEADER_BYTES


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


@dataclass(frozen=True)
class SharedVoqs:
    """A buffer that all VOQs of a rack share."""

    policy: str  #: of ``SHARED_POLICIES``
    packets: int  #: its size, in full ones
    alpha: float  #: of dt
    library: Path | None = None  #: what ``credence`` asks
    trace: bool = False  #: whether there is a trace of all arrivals

    def settings(self, packet_bytes: int) -> dict[str, Any]:
        """The group ``buffer`` of a document."""
        return {
            "policy": self.policy.removesuffix("_accept"),
            "bytes": self.packets * packet_bytes,
            "alpha": self.alpha,
            "library": str(self.library.absolute()) if self.library is not None and self.policy == "credence" else None,
            "tau": None,
            "trace": self.trace,
        }


def rack_document(
    traffic: RackTraffic,
    schedule: Schedule,
    *,
    transport: str,
    weeks: int,
    seed: int,
    voq_packets: int | None = None,
    resize: tuple[int, int] | None = None,
    shared: SharedVoqs | None = None,
) -> dict[str, Any]:
    """The document of one run; ForetailError when it could say nothing about the circuits of its flows.

    Parameters
    ----------
    transport : congestion control of simulated hosts
    weeks : length, in periods of the schedule
    seed : of the starts of flows
    voq_packets : capacity of a VOQ; None: they share a buffer
    resize : it grows to so many packets so many ns before its circuit; None: it stays
    """
    fabric = traffic.fabric
    source, destinations = traffic.source_rack - 1, [rack - 1 for rack in traffic.destination_racks]
    period = period_ns(fabric, schedule)
    for destination in destinations:
        if not schedule.edges[source, destination]:
            raise ForetailError(
                f"the schedule never gives rack {source + 1} a circuit to rack {destination + 1}: choose other racks "
                "or another schedule"
            )
    if resize is not None and resize[1] >= period:
        raise ForetailError(
            f"a VOQ cannot grow {resize[1]} ns before its circuit, for the schedule comes round in {period} ns: lower "
            "ahead_ns"
        )
    if shared is not None:
        _require_fits(fabric, shared.packets * traffic.packet_bytes)
    racks = {name: value for name, value in asdict(fabric).items() if name != "schedule"}
    return {
        "format": DRIVER_FORMAT,
        "racks": racks
        | {
            "matchings": schedule.matchings[:, 0].tolist(),
            "voq_packets": voq_packets,
            "buffer": None if shared is None else shared.settings(traffic.packet_bytes),
            "resize": None if resize is None else {"packets": resize[0], "ahead_ns": resize[1]},
        },
        "flows": {
            "source": [source] * len(destinations),
            "destination": destinations,
            "flows_per_pair": traffic.flows,
            "start_within_ns": traffic.start_within_ns,
            "seed": seed,
        },
        "transport": {
            "name": transport,
            "segment_bytes": traffic.packet_bytes - HEADER_BYTES,
            "initial_window_segments": traffic.initial_window_segments,
            "min_rto_ns": traffic.min_rto_ns,
            "delayed_ack_segments": traffic.delayed_ack_segments,
        },
        "traffic_ns": weeks * period,
    }


def _require_fits(fabric: RackFabric, buffer_bytes: int) -> None:
    """Raise ForetailError unless a shared buffer, and a day of a circuit, have room for the largest packet."""
    if not LARGEST_PACKET_BYTES <= buffer_bytes <= LARGEST_BUFFER_BYTES:
        raise ForetailError(
            f"a shared buffer has {buffer_bytes} bytes, and a switch {LARGEST_PACKET_BYTES} to {LARGEST_BUFFER_BYTES}: "
            "change shared_packets or packet_bytes"
        )
    if fabric.day_ns * fabric.circuit_bps < LARGEST_PACKET_BYTES * 8 * 10**9:  # it might wait for ever
        raise ForetailError(
            f"a circuit of {fabric.circuit_bps} bit/s cannot send a packet of {LARGEST_PACKET_BYTES} bytes in a day of "
            f"{fabric.day_ns} ns: raise fabric.day_ns"
        )


def traced_racks(traces: RackTraces, seed: int) -> dict[str, Any]:
    """The document of a run with a trace; ForetailError as :func:`rack_document`."""
    return rack_document(
        traces,
        circuit_schedule(traces.fabric),
        transport=traces.transport,
        weeks=traces.weeks,
        seed=seed,
        shared=SharedVoqs(traces.policy, traces.shared_packets, traces.alpha, trace=True),
    )


def simulate_rack_dataset(document: Mapping[str, Any], folder: Path, simulator: Simulator, report: Report) -> None:
    """Simulate it and write the labelled dataset to `folder`."""
    own = ("voq_packets", "buffer", "resize")  # what switches do with packets, not which are offered
    flows = document["flows"]
    scenario = {
        "name": "racks",
        "racks": {name: value for name, value in document["racks"].items() if name not in own},
        "racks_with_hosts": sorted({*flows["source"], *flows["destination"]}),
        "flows": {name: value for name, value in flows.items() if name != "seed"},
        "transport": document["transport"],
        "traffic_ns": document["traffic_ns"],
        "topology": {"wire_overhead_bytes": 0},
    }
    collect_dataset(
        document,
        folder,
        scenario=scenario,
        progress=reporting(report),
        executable=simulator.driver(report),
        simulate=simulator.run,
    )
