"""The demand matrix: what racks want to send to each other, in units of one uplink's capacity.

Source: Vermilion (Addanki, thesis, section 8.2): n nodes with `degree` uplinks each; in the hose model no row and no
column sums to more than `degree`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised

MAX_NODES = 1 << 14
_SLACK = 1e-9
"""Relative; sums of scaled rows miss their limit by so little."""


@dataclass(frozen=True, eq=False, repr=False)
class DemandMatrix(Summarised):
    """A checked demand matrix.

    ForetailError on another shape, fewer than 2 or more than 16,384 nodes, NaN, infinity, negative or diagonal demand.

    Examples
    --------
    >>> DemandMatrix([[0.0, 0.5, 0.25], [0.25, 0.0, 0.5], [0.5, 0.25, 0.0]]).largest_sum
    0.75
    """

    #: float64[n, n], ``demand[i, j]`` from node i to node j, finite, at least 0, in capacities of one uplink; the
    #: diagonal is 0
    demand: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        demand = np.array(self.demand, np.float64, order="C")
        if demand.ndim != 2 or demand.shape[0] != demand.shape[1] or not 2 <= len(demand) <= MAX_NODES:
            raise ForetailError(
                f"the demand matrix has shape {demand.shape}: give one row and one column for each of 2 to "
                f"{MAX_NODES} nodes"
            )
        for what, wrong in (
            ("is not a finite number", ~np.isfinite(demand)),
            ("is negative", demand < 0),
            ("is on the diagonal, a node's demand to itself", (demand != 0) & np.eye(len(demand), dtype=bool)),
        ):
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                raise ForetailError(
                    f"the demand from node {row} to node {column}, {demand[row, column]:g}, {what}: correct the matrix"
                )
        demand.setflags(write=False)
        object.__setattr__(self, "demand", demand)

    @property
    def nodes(self) -> int:
        """n."""
        return len(self.demand)

    @property
    def largest_sum(self) -> float:
        """Largest row or column sum, in uplinks."""
        return float(max(self.demand.sum(axis=0).max(), self.demand.sum(axis=1).max()))

    def require_hose(self, degree: int) -> None:
        """Raise ForetailError unless no row or column sums to more than `degree` uplinks."""
        for axis, name in ((1, "row"), (0, "column")):
            sums = self.demand.sum(axis=axis)
            if sums.max() > degree * (1 + _SLACK):
                raise ForetailError(
                    f"{name} {int(sums.argmax())} of the demand matrix sums to {sums.max():g}, more than the {degree} "
                    f"uplinks of a node: divide it by the rate of an uplink, or scale it into the hose model"
                )

    def scaled_to(self, largest_sum: float) -> DemandMatrix:
        """Return the matrix scaled to this largest row or column sum; ForetailError when it is zero."""
        if self.largest_sum == 0:
            raise ForetailError("the demand matrix is zero: there is nothing to schedule for")
        return DemandMatrix(self.demand / self.largest_sum * largest_sum)
