"""Completing a multigraph to a regular one, so that it can be scheduled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def regularised(edges: npt.NDArray[np.int64], degree: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the multigraph with edges added until every node has `degree` in and out: int64[n, n].

    `edges` is int64[n, n]; no row or column sums to more than `degree`. The missing ends are paired at random
    (configuration model); self loops come out as idle circuits.
    """
    full = edges.copy()
    nodes = np.arange(len(edges))
    senders = np.repeat(nodes, degree - edges.sum(axis=1))
    receivers = np.repeat(nodes, degree - edges.sum(axis=0))
    np.add.at(full, (senders, np.random.default_rng(seed).permutation(receivers)), 1)
    return full
