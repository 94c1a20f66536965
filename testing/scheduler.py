"""The contract of schedulers of circuits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretail.features.demand.matrix import DemandMatrix
from foretail.models.drop.parameters_contract import holds, made_of
from foretail.sim_bridge.circuits.demand import all_to_all, permutation, random_hose, ring
from foretail.sim_bridge.circuits.schedules import Scheduler

_RACKS = ((4, 2), (6, 2), (8, 4))


def check_scheduler(scheduler: Scheduler | Callable[[], Scheduler]) -> None:
    """Run the contract of :class:`foretail.sim_bridge.circuits.schedules.Scheduler` on one, or its maker.

    AssertionError with the rule that does not hold.
    """
    made: Scheduler = made_of(scheduler, Scheduler, "a scheduler")  # type: ignore[type-abstract]
    for nodes, degree in _RACKS:
        demands = [ring(nodes, degree), all_to_all(nodes, degree), permutation(nodes, degree, 1)]
        demands += [random_hose(nodes, degree, seed) for seed in (1, 2)]
        demands.append(DemandMatrix(np.triu(demands[-1].demand) * 1e-3))  # little, and nothing the other way
        for demand in demands:
            for seed in (1, 2):
                with holds("matchings must give a schedule for any demand, degree and seed"):
                    matchings = made.schedule(demand, degree, seed)
                    again = made.schedule(demand, degree, seed)
                shape = (matchings.degree, matchings.nodes)
                assert shape == (degree, nodes), "a schedule must have the uplinks and nodes that were asked for"
                assert np.array_equal(matchings.matchings, again.matchings), "the same seed must give the same schedule"
                assert matchings.edges.any(), "a schedule must have a circuit"
