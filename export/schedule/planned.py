"""A schedule with what it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.sim_bridge.circuits.schedules.schedule import Schedule


@dataclass(frozen=True, eq=False)
class PlannedSchedule:
    """A schedule, what it was made with, and its throughput.

    Attributes
    ----------
    schedule : Schedule
    k, oblivious : the k and l of the thesis; None when another scheduler made it
    theta_single_hop : throughput on the demand, not capped at 1, without the duty cycle
    theta_multi_hop : None when it was not computed
    """

    schedule: Schedule
    k: int | None
    oblivious: int | None
    theta_single_hop: float
    theta_multi_hop: float | None
