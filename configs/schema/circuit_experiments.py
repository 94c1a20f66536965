"""Experiments on schedules of circuits."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.fields import LARGEST_TRUST, Experiment, part, setting
from foretail.configs.schema.scenario import FlowSizes
from foretail.features.errors import ForetailError
from foretail.features.plugins import SCHEDULER_GROUP, offered

SCHEDULERS = ("vermilion", "round_robin", "mars")
"""Foretail's own; packages offer others."""

DESIGNS = ("vermilion", "optimum", "oblivious", "mars")
"""Foretail's own of `DesignExperiment`; the schedulers of packages are designs too."""


def require_scheduler(where: str, name: str, ours: tuple[str, ...] = SCHEDULERS) -> None:
    """Raise ForetailError unless a name is one of `ours`, or a scheduler that an installed package offers."""
    others = offered(SCHEDULER_GROUP, {*SCHEDULERS, *DESIGNS})
    if name not in ours and name not in others:
        raise ForetailError(f"{where} = {name} is unknown: choose from {', '.join((*ours, *others))}")


@dataclass
class ThroughputExperiment(Experiment):
    """Throughput of schedules, without the times of cells."""

    duty_cycle: float = setting(
        0.99, "share of a slot that carries data, beside figures without it", above=0, at_most=1
    )


@dataclass
class NoiseExperiment(ThroughputExperiment):
    """Schedules for wrong predictions: every matrix, noise and deviation is a point, with all samples and gammas."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 9.5 and 9.6 for every gamma, 9.7 and 9.8 for a drawn k",
        one_of=("vermilion_fig9_5", "vermilion_fig9_6", "vermilion_fig9_7", "vermilion_fig9_8"),
    )
    nodes: int = setting(8, "n", at_least=2, at_most=64)
    matrices: list[str] = setting(MISSING, "true demand", one_of=("ring", "all_to_all", "random", "skew", "chessboard"))
    skew: float = setting(0.5, "skew: share of a permutation, the rest is a ring", at_least=0, at_most=1)
    noise: list[str] = setting(MISSING, "kinds of noise", one_of=("additive", "multiplicative"))
    deviations: list[float] = setting(MISSING, "standard deviations of the noise; largest entry 10", at_least=0)
    samples: int = setting(MISSING, "predictions per point, of seeds 1 to this", at_least=1, at_most=10_000)
    uniform_from: list[int] = setting(
        [],
        "k is drawn uniformly from this to each gamma; empty: gamma itself, for each",
        at_least=1,
        at_most=LARGEST_TRUST,
    )


@dataclass
class DesignExperiment(ThroughputExperiment):
    """Designs of periodic networks side by side: every matrix on every number of nodes with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.7 by matrix, 8.8 by k and nodes",
        one_of=("vermilion_fig8_7", "vermilion_fig8_8"),
    )
    nodes: list[int] = setting(MISSING, "n; k n is a multiple of the degree", at_least=2, at_most=1024)
    matrices: list[str] = setting(
        MISSING,
        "names from foretail.sim_bridge.circuits.throughput, or skew-A: a share A of a permutation, else uniform",
    )
    trusts: list[int] = setting(MISSING, "values of k, with l = 1", at_least=2, at_most=LARGEST_TRUST)
    designs: list[str] = setting(
        MISSING,
        "what is compared: vermilion; optimum, the best single-hop schedules of its period; oblivious, up to 64 nodes; "
        "mars; or the scheduler of a package",
    )
    seeds: list[int] = setting(MISSING, "of random matrices, and left-over circuits", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a design that nobody offers."""
        super().check(where)
        for name in self.designs:
            require_scheduler(f"{where}.designs", name, DESIGNS)


@dataclass
class CellDesign:
    """A schedule of circuits, and how cells go over it."""

    schedule: str = setting(
        MISSING, "vermilion, for the permutation; round_robin, every rack in turn; mars; or the scheduler of a package"
    )
    routing: str = setting(
        MISSING, "as in foretail.sim_bridge.circuits.cells.cell_fabric", one_of=("direct", "two_hop", "valiant")
    )
    k: int = setting(
        3, "vermilion: k, with l = 1; k times racks is a multiple of the degree", at_least=2, at_most=LARGEST_TRUST
    )
    hold_slots: int = setting(
        1, "slots that every matching stays; two_hop: a rack takes cells to relay up to this", at_least=1, at_most=2**20
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a scheduler that nobody offers."""
        require_scheduler(f"{where}.schedule", self.schedule)


@dataclass
class CellExperiment(Experiment):
    """Flows over designs, cell by cell: every design under every load with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.5 completion times, 8.6 link utilisation, of the same points",
        one_of=("vermilion_fig8_5", "vermilion_fig8_6"),
    )
    racks: int = setting(MISSING, "n", at_least=3, at_most=1024)
    loads: list[float] = setting(MISSING, "offered, relative to the rate of a rack's uplinks", above=0, at_most=2)
    seeds: list[int] = setting(MISSING, "of permutations and flows", at_least=1, at_most=2**31 - 1)
    designs: dict[str, CellDesign] = setting(MISSING, "what is compared; the first is compared to the others")
    sizes: FlowSizes = part(FlowSizes, "flow sizes")
    uplink_bps: int = setting(25_000_000_000, "rate of an uplink", at_least=1, at_most=10**13)
    day_ns: int = setting(4_500, "time of a slot in which circuits are up: one cell", at_least=1, at_most=10**12)
    night_ns: int = setting(500, "time of a slot in which they are changed", at_least=0, at_most=10**12)
    warm_up_slots: int = setting(MISSING, "slots before the flows that are measured start", at_least=0, at_most=2**40)
    slots: int = setting(MISSING, "slots in which they start", at_least=1, at_most=2**40)
    drain_slots: int = setting(
        MISSING, "slots after that, under the same load, in which they can finish", at_least=0, at_most=2**40
    )


@dataclass
class TradeoffExperiment(Experiment):
    """Consistency against robustness: every matrix with every seed is a point, with all gammas and predictions."""

    experiment: str = setting(
        "vermilion_fig9_1", "figure of the thesis; 9.4 is its first panel", one_of=("vermilion_fig9_1",)
    )
    nodes: int = setting(8, "n", at_least=4, at_most=64)
    matrices: list[str] = setting(
        MISSING, "true demand, and wrong predictions of the others, named as in ``DesignExperiment``"
    )
    seeds: list[int] = setting(MISSING, "of random matrices and the search", at_least=1, at_most=2**31 - 1)
    tries: int = setting(40, "predictions that the search for the worst one tries", at_least=1, at_most=10**6)
    hulls: list[int] = setting([3, 5, 100], "gammas whose distributions are drawn in theory", at_least=3, at_most=1000)
    floors: list[float] = setting(
        [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5],
        "robustness for which the distribution of k is optimised",
        at_least=0,
        at_most=0.5,
    )
