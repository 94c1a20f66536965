"""The schedule string of the Etalon emulator: ``<n> <us> <circuits> <us> <circuits> ...``.

Days and nights take turns and `n` counts both. Circuits are ``src/src/...``, the source by destination, -1 for none;
times are wall-clock microseconds of the emulation, which is slower than what it emulates by its time dilation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule


@dataclass(frozen=True)
class Emulator:
    """Times of the emulated network."""

    day_us: int = 180  #: how long circuits are up
    night_us: int = 20  #: how long their reconfiguration takes
    time_dilation: int = 20  #: wall-clock time per emulated time


def emulator_schedule(schedule: Schedule, emulator: Emulator) -> str:
    """Return one line; ForetailError unless the schedule has one uplink per rack, which is what Etalon has."""
    if schedule.degree != 1:
        raise ForetailError(
            f"the schedule has degree {schedule.degree} and a rack in Etalon one circuit at a time: give degree=1 or "
            "take etalon out of outputs"
        )
    day, night = emulator.day_us * emulator.time_dilation, emulator.night_us * emulator.time_dilation
    dark = "/".join([str(IDLE)] * schedule.nodes)
    words = [str(2 * schedule.period)]
    for (matching,) in schedule.matchings:
        source = np.full(schedule.nodes, IDLE)
        source[matching[matching != IDLE]] = np.flatnonzero(matching != IDLE)
        words += [str(day), "/".join(map(str, source)), str(night), dark]
    return " ".join(words) + "\n"


def read_emulator_schedule(text: str, emulator: Emulator) -> Schedule:
    """Return the schedule of a line; ForetailError when it is none of days and nights of these lengths."""
    try:
        count, *words = text.split()
        phases = list(zip(map(int, words[::2]), words[1::2], strict=True))
        sources = np.array([[int(source) for source in circuits.split("/")] for _, circuits in phases])
        complete = int(count) == len(phases) > 0
    except ValueError:
        raise ForetailError("an Etalon schedule does not follow its grammar: let foretail schedule write it") from None
    lengths = [emulator.day_us * emulator.time_dilation, emulator.night_us * emulator.time_dilation]
    if not complete or [us for us, _ in phases] != lengths * (len(phases) // 2):
        raise ForetailError("an Etalon schedule has other phases than days and nights: let foretail schedule write it")
    if np.any(sources[1::2] != IDLE):
        raise ForetailError("an Etalon schedule has circuits at night: let foretail schedule write it")
    if np.any((sources < IDLE) | (sources >= sources.shape[1])):
        raise ForetailError("an Etalon schedule names racks that it does not have: let foretail schedule write it")
    matchings = np.full((len(phases) // 2, 1, sources.shape[1]), IDLE)
    slot, destination = np.nonzero(sources[::2] != IDLE)
    matchings[slot, 0, sources[::2][slot, destination]] = destination
    return Schedule(matchings)
