"""What switches counted in a run, as rows that a tree of alphas learns from."""

from __future__ import annotations

import numpy as np

from foretail.features.records import Records


def drawn(records: Records, rows: int, seed: int) -> list[list[int]]:
    """Draw counters with which an interval of a queue began, each as likely as a byte to have come in it.

    So a queue counts as often as its alpha decides something. Returns `rows` lists of counters, fewer where none came.

    Parameters
    ----------
    records : array of COUNTER_DTYPE
    rows : drawn, with repetition
    seed : of the draws
    """
    if not len(records):
        return []
    weights = records["arrived_bytes"] / records["arrived_bytes"].sum()
    chosen = np.random.default_rng(seed).choice(len(records), rows, p=weights)
    found: list[list[int]] = records["counters"][np.sort(chosen)].tolist()
    return found
