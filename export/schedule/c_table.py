"""A schedule as a C header for packet simulators, read back by running it."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.c.build import compiled_reader
from foretail.export.templates import environment
from foretail.sim_bridge.circuits.schedules.schedule import Schedule

# Two periods through the accessor: it has to repeat.
_READER = """
#include "schedule.h"
void foretail_shape(int32_t *out) {
  out[0] = FORETAIL_SCHEDULE_SLOTS;
  out[1] = FORETAIL_SCHEDULE_UPLINKS;
  out[2] = FORETAIL_SCHEDULE_NODES;
}
void foretail_read(int32_t *out) {
  uint64_t slot;
  unsigned uplink, node;
  for (slot = 0; slot < 2 * FORETAIL_SCHEDULE_SLOTS; ++slot)
    for (uplink = 0; uplink < FORETAIL_SCHEDULE_UPLINKS; ++uplink)
      for (node = 0; node < FORETAIL_SCHEDULE_NODES; ++node)
        *out++ = foretail_schedule_destination(slot, uplink, node);
}
"""


def c_table(schedule: Schedule) -> str:
    """Return ``schedule.h``: C99 and C++, no library but stdint.h."""
    slots = ",\n".join(
        "  {" + ",\n   ".join("{" + ", ".join(map(str, uplink)) + "}" for uplink in slot) + "}"
        for slot in schedule.matchings.tolist()
    )
    return (
        environment("foretail.export.schedule")
        .get_template("schedule.h.j2")
        .render(slots=schedule.period, uplinks=schedule.degree, nodes=schedule.nodes, table=slots)
    )


def read_c_table(text: str) -> Schedule:
    """Return what the accessor of ``schedule.h`` says in two periods.

    ForetailError without a C compiler, or when the second period is not the first.
    """
    with tempfile.TemporaryDirectory() as folder:
        reader = compiled_reader(Path(folder), {"schedule.h": text}, _READER, "-O0")  # a long table, read once
        shape = np.empty(3, np.int32)
        reader.foretail_shape(ctypes.c_void_p(shape.ctypes.data))
        periods = np.empty((2, *shape), np.int32)
        reader.foretail_read(ctypes.c_void_p(periods.ctypes.data))
    if not np.array_equal(*periods):
        raise ForetailError("the C table does not repeat after its period: report this as a bug")
    return Schedule(periods[0])
