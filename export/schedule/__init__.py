"""Schedules of circuits for other programs: each text is read back and compared before anyone gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.schedule.c_table import c_table, read_c_table
from foretail.export.schedule.emulator import Emulator, emulator_schedule, read_emulator_schedule
from foretail.export.schedule.json_text import read_json, schedule_json
from foretail.export.schedule.planned import PlannedSchedule
from foretail.export.schedule.tor_entries import read_tor_entries, tor_entries

__all__ = ["Emulator", "PlannedSchedule", "render_schedule"]

JSON, C_TABLE, EMULATOR = "schedule.json", "schedule.h", "schedule.etalon"


def render_schedule(
    planned: PlannedSchedule, outputs: Sequence[str], *, first_port: int = 0, emulator: Emulator | None = None
) -> dict[str, str]:
    """Return the files of the chosen outputs, by name: ``p4`` is one file per rack, the others are one each.

    ForetailError when an output cannot express the schedule, or does not read back as it; for C also without a
    compiler.

    Parameters
    ----------
    outputs : sequence of {'json', 'c', 'p4', 'etalon'}
    first_port : P4: egress port of uplink 0
    emulator : times of the Etalon emulator; None takes its defaults
    """
    schedule, emulator = planned.schedule, emulator or Emulator()
    files: dict[str, str] = {}
    for output in outputs:
        rendered: Mapping[str, str]
        if output == "json":
            rendered = {JSON: schedule_json(planned)}
            read_back = read_json(rendered[JSON])
        elif output == "c":
            rendered = {C_TABLE: c_table(schedule)}
            read_back = read_c_table(rendered[C_TABLE])
        elif output == "p4":
            texts = tor_entries(schedule, first_port)
            rendered = {f"p4/tor_{tor}.p4": text for tor, text in enumerate(texts)}
            read_back = read_tor_entries(texts)
        else:
            rendered = {EMULATOR: emulator_schedule(schedule, emulator)}
            read_back = read_emulator_schedule(rendered[EMULATOR], emulator)
        if not np.array_equal(read_back.matchings, schedule.matchings):
            raise ForetailError(f"the {output} output does not read back as the schedule: report this as a bug")
        files |= rendered
    return files
