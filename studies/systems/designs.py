"""Mars: throughput of a periodic network without knowledge of the demand."""

from __future__ import annotations

from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.circuits.demand.matrices import all_to_all
from foretail.sim_bridge.circuits.schedules.mars import mars
from foretail.sim_bridge.circuits.throughput.valiant import valiant
from foretail.studies.systems.system import ONCE, Published, System

RACKS, UPLINKS = 16, 2


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    even = all_to_all(RACKS, UPLINKS)
    return {
        f"throughput, degree {degree}": valiant(even, mars(RACKS, UPLINKS, degree, seed).capacity)
        for degree in (2, 4, 16)
    }


MARS = System(
    "Mars",
    "Addanki's thesis",
    (
        Published("throughput, degree 2", 0.125, "Table 7.1"),
        Published("throughput, degree 4", 0.25, "Table 7.1"),
        Published("throughput, degree 16", 0.5, "Table 7.1"),
    ),
    _measure,
    ONCE,
)
