"""``schedule.json``: a schedule for whatever reads JSON."""

from __future__ import annotations

import json

import numpy as np

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.export.schedule.planned import PlannedSchedule
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule


def schedule_json(planned: PlannedSchedule) -> str:
    """Return ``schedule.json``.

    ``matchings`` is [slot][uplink][src] = dst or -1; ``slots`` has per slot the list of [src, dst], by uplink and
    source, parallel circuits repeated, no self loops.
    """
    schedule = planned.schedule
    slots = []
    for matchings in schedule.matchings:
        uplink, sender = np.nonzero(matchings != IDLE)
        slots.append(np.stack([sender, matchings[uplink, sender]], axis=1).tolist())
    document = {
        "n": schedule.nodes,
        "degree": schedule.degree,
        "k": planned.k,
        "l": planned.oblivious,
        "period_slots": schedule.period,
        "theta_single_hop": planned.theta_single_hop,
        "theta_multi_hop": planned.theta_multi_hop,
        "matchings": schedule.matchings.tolist(),
        "slots": slots,
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


def read_json(text: str) -> Schedule:
    """Return the schedule that ``schedule.json`` describes; ForetailError when it contradicts itself."""
    try:
        document = parse_json(text)
        schedule = Schedule(np.array(document["matchings"]))
        shape = (document["period_slots"], document["degree"], document["n"])
        circuits = [np.array(slot, np.int64).reshape(-1, 2) for slot in document["slots"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ForetailError(f"a schedule cannot be read from JSON ({error}): let foretail schedule write it") from None
    if schedule.matchings.shape != shape or len(circuits) != schedule.period:
        raise ForetailError(f"a schedule in JSON says it has shape {shape}, which its matchings or slots have not")
    nodes = schedule.nodes
    for slot, (found, matchings) in enumerate(zip(circuits, schedule.matchings, strict=True)):
        sender = np.nonzero(matchings != IDLE)[1]
        listed = np.sort(found[:, 0] * nodes + found[:, 1])
        if not np.array_equal(listed, np.sort(sender * nodes + matchings[matchings != IDLE])):
            raise ForetailError(f"slot {slot} of a schedule in JSON lists other circuits than its matchings hold")
    return schedule
