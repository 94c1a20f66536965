"""The figure of a schedule of circuits."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foretail.features.demand.matrix import DemandMatrix
from foretail.models.scoring.figure_style import panels, styled
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule

MOST_NAMED = 12
"""Nodes that an axis names."""


@styled
def draw_schedule(made: Schedule, demand: DemandMatrix, called: str = "demand") -> Figure:
    """Which node every port reaches in every slot, and the demand, as it is called, beside what the circuits carry."""
    figure, (slots, wanted, served) = panels(3, inches=(13, 4.4), grid="")
    ports = made.matchings.transpose(2, 1, 0).reshape(-1, made.period)  # the uplinks of a node one below the other
    reached = slots.imshow(np.ma.masked_equal(ports, IDLE), aspect="auto", interpolation="nearest", cmap="viridis")
    title = f"{made.nodes} nodes of {made.degree} uplinks; white: idle"
    slots.set(title=title, xlabel="slot", ylabel="node, a row for each uplink")
    slots.xaxis.set_major_locator(MaxNLocator(integer=True))
    named = np.arange(0, made.nodes, -(-made.nodes // MOST_NAMED))
    slots.set_yticks(named * made.degree, [str(node) for node in named])
    figure.colorbar(reached, ax=slots, label="reaches node", ticks=MaxNLocator(integer=True))
    top = max(demand.demand.max(), made.capacity.max())
    for axes, matrix, title in ((wanted, demand.demand, called), (served, made.capacity, "what circuits carry")):
        image = axes.imshow(matrix, vmin=0, vmax=top, cmap="Blues", interpolation="nearest")
        axes.set(title=title, xlabel="to node", ylabel="from node")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(8, integer=True))
    figure.colorbar(image, ax=(wanted, served), label="capacities of an uplink")
    return figure
