"""Schedulers of circuits: what makes a periodic schedule from a demand matrix, by name.

A new one subclasses :class:`Scheduler`, its fields are its settings, and it passes
``foretail.testing.check_scheduler``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.plugins import SCHEDULER_GROUP, Kinds, PluginError, is_foreign, named, require, running
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules.expander import expander, opera
from foretail.sim_bridge.circuits.schedules.mars import best_degree, mars
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.circuits.schedules.vermilion import Diagonal, vermilion


class Scheduler(ABC):
    """Makes a periodic schedule for a demand matrix, in whole circuits.

    Subclasses are frozen dataclasses whose fields all have defaults. They implement `matchings`; what that of another
    package returns is checked, and whatever it raises becomes one sentence that names it.
    """

    def schedule(self, demand: DemandMatrix, degree: int, seed: int = 1) -> Schedule:
        """Return the schedule for a demand, or for a prediction of it.

        The seed is of what is drawn; schedulers without chance ignore it. ForetailError on a demand or a degree that
        does not suit, and on matchings that are none.
        """
        with running(self, "matchings", demand=demand.demand):
            matchings = self.matchings(demand, degree, seed)
        if not is_foreign(type(self)):
            return Schedule(matchings)
        require(
            self, isinstance(matchings, np.ndarray), "matchings must give an array", f"a {type(matchings).__name__}"
        )
        wanted = ("slots", degree, demand.nodes)
        require(
            self,
            matchings.ndim == 3 and matchings.shape[1:] == wanted[1:],
            f"matchings must have shape ({wanted[0]}, {wanted[1]}, {wanted[2]})",
            str(matchings.shape),
        )
        require(self, matchings.dtype.kind in "iu", "matchings must be whole numbers", str(matchings.dtype))
        outside = matchings[(matchings < -1) | (matchings >= demand.nodes)]
        require(self, not len(outside), f"matchings must be -1 or in [0, {demand.nodes})", str(outside[:1]))
        try:
            return Schedule(matchings)
        except ForetailError as error:
            raise PluginError(f"{named(self)} breaks a rule: {error}") from None

    @abstractmethod
    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        """Return ``[slot, uplink, node]``: the node that `node` sends to, -1 when the uplink is idle.

        No node sends to itself, and none receives twice in one matching.
        """


@dataclass(frozen=True)
class Vermilion(Scheduler):
    """:func:`~foretail.sim_bridge.circuits.schedules.vermilion.vermilion` with its k and l."""

    k: int = 3
    l: int = 1  # noqa: E741
    diagonal: Diagonal = "idle"

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return vermilion(demand, degree, self.k, self.l, seed, self.diagonal).matchings


@dataclass(frozen=True)
class RoundRobin(Scheduler):
    """Every node in turn, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return round_robin(demand.nodes, degree).matchings


@dataclass(frozen=True)
class Mars(Scheduler):
    """A de Bruijn graph, whatever the demand; `graph_degree` 0 takes the best up to half the nodes."""

    graph_degree: int = 0

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        of_graph = self.graph_degree or best_degree(demand.nodes, degree, max(degree, demand.nodes // 2))
        return mars(demand.nodes, degree, of_graph, seed).matchings


@dataclass(frozen=True)
class Expander(Scheduler):
    """A static random regular graph, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return expander(demand.nodes, degree, seed).matchings


@dataclass(frozen=True)
class Opera(Scheduler):
    """Circuits that connect all nodes at any time, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return opera(demand.nodes, degree, seed).matchings


SCHEDULERS: Mapping[str, type[Scheduler]] = MappingProxyType(
    {"vermilion": Vermilion, "round_robin": RoundRobin, "mars": Mars, "expander": Expander, "opera": Opera}
)
"""Foretail's own by name."""

SCHEDULER_KINDS = Kinds(SCHEDULER_GROUP, Scheduler, "scheduler", SCHEDULERS)  # type: ignore[type-abstract] # a base
"""Those, and what installed packages offer."""
