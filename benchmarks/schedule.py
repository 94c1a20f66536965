"""CPU seconds to make a schedule: Vermilion (k = 3), the same multigraph peeled, and Birkhoff-von Neumann, in one run.

The demand is a random hose matrix. Vermilion is the whole of it: rounding, regularising and Euler splitting into k n
matchings. The first peer rounds and regularises in the same way and then takes one matching at a time off the
multigraph with Hopcroft and Karp's algorithm (scipy's, in C++), k n times. Birkhoff-von Neumann uses that algorithm
too, on the demand itself. A peer is stopped after BUDGET_S of them; its time and ratio are then lower bounds. Least of
ROUNDS runs, taken in turn. The second table has the decomposition alone, of the multigraphs of a ring and a random hose
matrix. The third has multi-hop throughput on Vermilion's schedules: by the linear program, where that ends in minutes,
and by the primal-dual method, each with its check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import perfect_matchings
from foretail.sim_bridge.circuits.demand import permutation, random_hose, ring, skewed_uniform
from foretail.sim_bridge.circuits.schedules import emulated_edges, matching_on, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop

DEGREE = 4
K = 3
SIZES = {"small": (16, 32), "full": (64, 256, 1024)}
DECOMPOSED = {"small": (16,), "full": (256, 512, 1000)}
LINEAR_PROGRAM = {"small": (16,), "full": (16, 64)}
PRIMAL_DUAL = {"small": (16,), "full": (16, 64, 256)}
EPSILON = 0.01
DEMANDS: dict[str, Callable[[int, int], DemandMatrix]] = {
    "random hose": random_hose,
    "permutation": permutation,
    "half a permutation": lambda nodes, degree: skewed_uniform(nodes, degree, 0.5),
}
ROUNDS = {16: 9, 32: 5, 64: 5, 256: 3, 1024: 1}
BUDGET_S = 60.0


@dataclass(frozen=True)
class Run:
    """CPU seconds, matchings made in them, and whether these are all."""

    seconds: float
    matchings: int
    complete: bool

    @property
    def text(self) -> str:
        bound = "" if self.complete else "> "
        return f"{bound}{self.seconds:.4g} s ({self.matchings:,} matchings)"


def main(size: str) -> None:
    """Print times and ratios for all sizes: schedules, decompositions, throughput."""
    console = Console(width=140)
    table = Table(title=f"One schedule, CPU time, random hose demand, k = {K}, {DEGREE} uplinks")
    for column in ("nodes", "Vermilion", "Hopcroft-Karp peeling", "ratio", "Birkhoff-von Neumann", "ratio"):
        table.add_column(column, justify="right")
    for nodes in SIZES[size]:
        demand = random_hose(nodes, DEGREE)
        rounds = [[_timed(make, demand) for make in (_vermilion, _peeling, _birkhoff)] for _ in range(ROUNDS[nodes])]
        ours, *peers = (min(runs, key=lambda run: run.seconds) for runs in zip(*rounds, strict=True))
        row = [str(nodes), ours.text]
        for peer in peers:
            row += [peer.text, f"{'' if peer.complete else '> '}{peer.seconds / ours.seconds:.1f}x"]
        table.add_row(*row)
    console.print(table)

    table = Table(title=f"Decomposition of the multigraph alone, CPU time, k = {K}")
    for column in ("nodes", "ring", "random hose"):
        table.add_column(column, justify="right")
    for nodes in DECOMPOSED[size]:
        graphs = [emulated_edges(make(nodes, DEGREE), K) for make in (ring, random_hose)]
        rounds = [[_timed(_decomposition, edges) for edges in graphs] for _ in range(5)]
        table.add_row(str(nodes), *(min(runs, key=lambda run: run.seconds).text for runs in zip(*rounds, strict=True)))
    console.print(table)

    table = Table(title=f"Multi-hop throughput, CPU time with its check, k = {K}, {DEGREE} uplinks")
    for column in ("nodes", "demand", "linear program", "CPU s", f"epsilon {EPSILON}: a flow, no flow above", "CPU s"):
        table.add_column(column, justify="right")
    for nodes in PRIMAL_DUAL[size]:
        for name, of_nodes in DEMANDS.items():
            demand = of_nodes(nodes, DEGREE)
            capacity = vermilion(demand, DEGREE, K).capacity
            exact, exact_s = "", ""
            if nodes in LINEAR_PROGRAM[size]:
                start = process_time()
                exact = f"{multi_hop(demand, capacity).theta:.4f}"
                exact_s = f"{process_time() - start:.2f}"
            start = process_time()
            carried = multi_hop(demand, capacity, EPSILON)
            bounds = f"{carried.theta:.4f}, {carried.upper_bound(demand, capacity):.4f}"
            table.add_row(str(nodes), name, exact, exact_s, bounds, f"{process_time() - start:.2f}")
    console.print(table)


def _timed(make: Callable[[Any], Iterator[int]], given: Any) -> Run:
    """Run until it is done or the budget is spent; `make` yields the number of matchings that it made each time."""
    start, matchings = process_time(), 0
    for made in make(given):
        matchings += made
        if process_time() - start > BUDGET_S:
            return Run(process_time() - start, matchings, complete=False)
    return Run(process_time() - start, matchings, complete=True)


# Birkhoff-von Neumann: a demand as matchings of different durations.
#
# Circuits in up to n^2 - 2n + 2 such steps reach throughput 1 on the matrix they were made for, and 0 on a matrix that
# has a pair which the prediction lacks (Addanki, thesis, Theorem 23).

_UNITS = 1 << 52


def whole(demand: DemandMatrix) -> NDArray[np.int64]:
    """Return the demand in units of 2**-52 of its largest row or column sum, rounded down: int64[n, n]."""
    return (demand.scaled_to(1.0).demand * _UNITS).astype(np.int64)


def stuffed(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the matrix with entries raised until all rows and columns have the largest sum: int64[n, n].

    As Solstice in the Etalon emulator: entries that are there first, then from the fullest rows and columns on.
    """
    full = matrix.copy()
    limit = max(full.sum(axis=0).max(), full.sum(axis=1).max())
    row, column = limit - full.sum(axis=1), limit - full.sum(axis=0)

    def fill(pairs: Iterable[tuple[int, int]]) -> None:
        for i, j in pairs:
            more = min(row[i], column[j])
            full[i, j] += more
            row[i] -= more
            column[j] -= more

    fill(zip(*np.nonzero(full), strict=True))
    open_rows, open_columns = (np.flatnonzero(space) for space in (row, column))
    rows = open_rows[np.argsort(row[open_rows], kind="stable")]
    columns = open_columns[np.argsort(column[open_columns], kind="stable")]
    fill(product(rows, columns))
    return full


def birkhoff_steps(matrix: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int32], int]]:
    """Yield matchings and their durations, which sum to `matrix`: int32[n] and its units.

    `matrix` is int64[n, n]; all its rows and columns have one sum, as `stuffed` returns it.
    """
    left = matrix.copy()
    sender = np.arange(len(left))
    while left.any():
        partner = matching_on(left > 0)
        units = int(left[sender, partner].min())
        left[sender, partner] -= units
        yield partner, units


def _vermilion(demand: DemandMatrix) -> Iterator[int]:
    schedule = vermilion(demand, DEGREE, K)
    yield schedule.period * schedule.degree


def _decomposition(edges: NDArray[np.int64]) -> Iterator[int]:
    yield len(perfect_matchings(edges))


def _peeling(demand: DemandMatrix) -> Iterator[int]:
    left = emulated_edges(demand, K)
    sender = np.arange(demand.nodes)
    while left.any():
        left[sender, matching_on(left > 0)] -= 1
        yield 1


def _birkhoff(demand: DemandMatrix) -> Iterator[int]:
    for _ in birkhoff_steps(stuffed(whole(demand))):
        yield 1
