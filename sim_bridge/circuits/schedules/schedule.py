"""Periodic schedules: a sequence of matchings per uplink, and the static graph that it emulates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.sim_bridge._native import perfect_matchings

IntArray = npt.NDArray[np.int64]

IDLE = -1


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Summarised):
    """Which node each uplink reaches in each slot of a period, repeated for ever.

    ForetailError when a matching is none.

    Examples
    --------
    Three nodes with one uplink take turns to reach each other:

    >>> schedule = Schedule([[[1, 2, 0]], [[2, 0, 1]]])
    >>> schedule.matchings.shape
    (2, 1, 3)
    """

    #: int32[slots, uplinks, nodes], ``matchings[slot, uplink, node]`` is the node that `node` sends to, or -1 when the
    #: uplink is idle. No node receives twice in one matching, none sends to itself.
    matchings: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        matchings = np.array(self.matchings, np.int32)
        if matchings.ndim != 3 or 0 in matchings.shape:
            raise ForetailError(f"a schedule has shape {matchings.shape}: give one node per slot, uplink and node")
        nodes = matchings.shape[2]
        flat = matchings.reshape(-1, nodes)
        if flat.min() < IDLE or flat.max() >= nodes or np.any(flat == np.arange(nodes)):
            raise ForetailError(f"a schedule sends to a node outside [0, {nodes}) or from a node to itself: correct it")
        ordered = np.sort(flat, axis=1)
        twice = np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != IDLE), axis=1)
        if twice.any():
            slot, uplink = divmod(int(twice.argmax()), matchings.shape[1])
            raise ForetailError(f"slot {slot} of uplink {uplink} reaches a node twice: give matchings")
        matchings.setflags(write=False)
        object.__setattr__(self, "matchings", matchings)

    @classmethod
    def of_multigraph(cls, edges: IntArray, degree: int) -> Schedule:
        """Return a schedule whose period uses every edge of a regular multigraph once.

        ForetailError when the multigraph is not regular, or its degree no multiple of `degree`.

        Parameters
        ----------
        edges : int64[n, n]
            Number of edges from each node to each; self loops become idle uplinks. All rows and columns have one sum,
            a multiple of `degree`.
        degree : uplinks of a node
        """
        try:
            partner = perfect_matchings(np.ascontiguousarray(edges, np.int64))
        except ValueError as error:
            raise ForetailError(f"the emulated graph cannot be scheduled ({error}): make it regular") from None
        if degree < 1 or len(partner) == 0 or len(partner) % degree:
            raise ForetailError(
                f"{len(partner)} matchings do not fill {degree} uplinks evenly: choose a degree that divides them"
            )
        partner[partner == np.arange(partner.shape[1])] = IDLE
        return cls(partner.reshape(-1, degree, partner.shape[1]))

    @property
    def period(self) -> int:
        """Slots of a period."""
        return int(self.matchings.shape[0])

    @property
    def degree(self) -> int:
        """Uplinks of a node."""
        return int(self.matchings.shape[1])

    @property
    def nodes(self) -> int:
        """n."""
        return int(self.matchings.shape[2])

    @cached_property
    def edges(self) -> IntArray:
        """Circuits from each node to each in a period: int64[n, n], the diagonal 0."""
        counts = np.zeros((self.nodes, self.nodes), np.int64)
        for matching in self.matchings.reshape(-1, self.nodes):
            sender = np.flatnonzero(matching != IDLE)
            counts[sender, matching[sender]] += 1  # a matching has no sender twice
        return counts

    @property
    def capacity(self) -> npt.NDArray[np.float64]:
        """Capacity of the emulated static graph in uplinks, without the duty cycle: float64[n, n] (section 7.3)."""
        return self.edges / self.period
