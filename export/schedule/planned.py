"""A schedule with what it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.sim_bridge.circuits.schedules.schedule import Schedule


@dataclass(frozen=True, eq=False)
class PlannedSchedule:
    """A schedule, what it was made with, and its throughput."""

    schedule: Schedule
    k: int | None  #: the k of the thesis; None when another scheduler made it
    oblivious: int | None  #: its l; None as k
    theta_single_hop: float  #: throughput on the demand, not capped at 1, without the duty cycle
    theta_multi_hop: float | None  #: None when it was not computed
