"""Schedules whose steps differ in duration, as Birkhoff-von Neumann and Solstice make them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.features.errors import ForetailError
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule


@dataclass(frozen=True, eq=False)
class VariableSchedule:
    """Matchings, and how long each is up in a period.

    ForetailError when the durations are not positive, exceed a period or do not fit the steps.

    Attributes
    ----------
    steps : one slot per step
    durations : float64[steps]
        Share of the period that each step's circuits carry traffic, above 0; what the sum lacks of 1 is spent without
        circuits.
    """

    steps: Schedule
    durations: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        durations = np.array(self.durations, np.float64)
        if durations.shape != (self.steps.period,):
            raise ForetailError(f"{self.steps.period} steps have durations of shape {durations.shape}: give one each")
        if not (durations.min() > 0 and durations.sum() <= 1 + 1e-9):
            raise ForetailError("the durations of a period are not positive or sum to more than 1: give shares of it")
        durations.setflags(write=False)
        object.__setattr__(self, "durations", durations)

    @classmethod
    def of_matchings(
        cls, matchings: npt.NDArray[np.int32], durations: npt.NDArray[np.float64], degree: int
    ) -> VariableSchedule:
        """Return the schedule in which all `degree` uplinks follow these matchings, a node paired with itself idle.

        ForetailError as the class, or when there is no uplink.

        Parameters
        ----------
        matchings : int32[steps, n]
        durations : float64[steps]
        """
        if degree < 1:
            raise ForetailError(f"degree is {degree}: give at least 1 uplink")
        paired = np.where(matchings == np.arange(matchings.shape[1]), IDLE, matchings)
        return cls(Schedule(np.repeat(paired[:, np.newaxis], degree, axis=1)), durations)

    @property
    def capacity(self) -> npt.NDArray[np.float64]:
        """Capacity of the emulated static graph in uplinks: float64[n, n]."""
        capacity = np.zeros((self.steps.nodes, self.steps.nodes))
        for step, duration in zip(self.steps.matchings, self.durations, strict=True):
            for matching in step:
                sender = np.flatnonzero(matching != IDLE)
                capacity[sender, matching[sender]] += duration
        return capacity

    def duty_cycle(self, reconfiguration: float) -> float:
        """Return the share of time left for traffic when a step loses `reconfiguration` periods, 0 if none is."""
        return max(0.0, 1 - self.steps.period * reconfiguration)
