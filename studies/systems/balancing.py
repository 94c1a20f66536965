"""Runs of the native network under a load balancer, for the systems that are balancers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretail.features.records import Records
from foretail.pipelines.runs.points import SoFar
from foretail.studies.systems.native_run import native_run

SEGMENT_BYTES = 1400


def completion_times_us(overrides: Sequence[str], seed: int, so_far: SoFar) -> NDArray[np.float64]:
    """Return the completion time of every flow of a run in µs, with what is unfinished at the end as old as it is.

    `overrides` are those of ``foretail evaluate``; the buffer is shared completely, so that little is lost.
    """
    flows, end_ns = _flows(overrides, seed, so_far)
    ends = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], end_ns - flows["start_ns"])
    return np.asarray(ends / 1000, dtype=np.float64)


def repeated_percent(overrides: Sequence[str], seed: int, so_far: SoFar) -> float:
    """Return how many segments of a run were sent again, in % of full segments that its flows need."""
    flows, _ = _flows(overrides, seed, so_far)
    return float(100 * flows["retransmissions"].sum() / (flows["size_bytes"].sum() / SEGMENT_BYTES))


def _flows(overrides: Sequence[str], seed: int, so_far: SoFar) -> tuple[Records, int]:
    """The flows of a run and its end in ns."""
    with native_run(["policy=cs", *overrides], seed, so_far) as run:
        return run.flows(), run.summary["end_ns"]


def change_percent(of: float, against: float) -> float:
    """Return by how much a time is longer than another, in %; below 0 it is shorter."""
    return 100 * (of / against - 1)
