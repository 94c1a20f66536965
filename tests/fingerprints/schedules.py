"""Schedules of circuits, their throughput, and every text that says one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from foretail.export.schedule import PlannedSchedule, render_schedule
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand import all_to_all, chessboard, permutation, random_hose, ring
from foretail.sim_bridge.circuits.schedules import Schedule, mars, round_robin, vermilion
from foretail_studies.engines.circuits import single_hop_optimum
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.place import Place

MATRICES: dict[str, Callable[[int, int], DemandMatrix]] = {
    one.__name__: one for one in (ring, all_to_all, chessboard, permutation, random_hose)
}


def demanded(matrix: str, nodes: int, degree: int) -> DemandMatrix:
    """Return one of ``MATRICES``, or whole numbers from 0 to 15, half of them 0, scaled."""
    if matrix != "drawn":
        return MATRICES[matrix](nodes, degree)
    random = np.random.default_rng(nodes)
    drawn = random.integers(0, 16, (nodes, nodes)) * random.integers(0, 2, (nodes, nodes)) * (1 - np.eye(nodes))
    return DemandMatrix(drawn).scaled_to(degree)


def seen(schedule: Schedule, parameters: str) -> Iterator[Fingerprint]:
    """Yield the matchings and the texts of a schedule; those of P4 are one file per rack."""
    yield Fingerprint("matchings", parameters, fingerprint(schedule.matchings))
    planned = PlannedSchedule(schedule, 3, 1, 0.75, None)
    for output in ("json", "c", "p4"):
        yield Fingerprint(output, parameters, fingerprint(render_schedule(planned, [output], first_port=1)))


def of_vermilion(place: Place) -> Iterator[Fingerprint]:
    for matrix, nodes, degree, k, oblivious, seed in (
        ("ring", 6, 2, 4, 1, 1),
        ("all_to_all", 5, 1, 3, 1, 1),
        ("chessboard", 8, 4, 6, 2, 1),
        ("permutation", 8, 1, 2, 1, 1),
        ("drawn", 12, 3, 5, 1, 1),
        ("drawn", 12, 3, 3, 1, 2),
    ):
        demand = demanded(matrix, nodes, degree)
        parameters = parameters_text(matrix=matrix, n=nodes, degree=degree, k=k, l=oblivious, seed=seed)
        yield from seen(vermilion(demand, degree, k, oblivious, seed), parameters)
    for matrix in MATRICES:
        demand = MATRICES[matrix](16, 4)
        reused = vermilion(demand, 4, 4, 1, 1, "reuse")
        parameters = parameters_text(matrix=matrix, n=16, degree=4, k=4, l=1, seed=1, diagonal="reuse")
        yield Fingerprint("matchings", parameters, fingerprint(reused.matchings))


def oblivious(place: Place) -> Iterator[Fingerprint]:
    for nodes, degree in ((6, 1), (9, 4)):
        yield from seen(round_robin(nodes, degree), parameters_text(design="round_robin", n=nodes, degree=degree))
    for nodes, uplinks, degree, seed in ((8, 1, 2, 1), (16, 2, 4, 1), (16, 2, 4, 2)):
        parameters = parameters_text(design="mars", n=nodes, uplinks=uplinks, degree=degree, seed=seed)
        yield from seen(mars(nodes, uplinks, degree, seed), parameters)


def baselines(place: Place) -> Iterator[Fingerprint]:
    for matrix in ("ring", "chessboard", "permutation", "drawn"):
        demand = demanded(matrix, 8, 2)
        for kept in (0, 1):
            best = single_hop_optimum(demand, 2, 12, kept)
            parameters = parameters_text(design="single_hop_optimum", matrix=matrix, n=8, degree=2, period=12, l=kept)
            yield Fingerprint("theta and matchings", parameters, fingerprint(best.theta, best.schedule.matchings))


GROUPS = (
    Group("schedules", "vermilion", of_vermilion),
    Group("schedules", "oblivious", oblivious),
    Group("schedules", "baselines", baselines),
)
