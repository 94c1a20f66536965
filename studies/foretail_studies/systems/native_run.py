"""Runs of the native network inside the measurement of a system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, scratch_run
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.simulation import PacketRun


@contextmanager
def native_run(overrides: Sequence[str], seed: int, so_far: SoFar) -> Iterator[PacketRun]:
    """Simulate with overrides of ``foretail evaluate`` that choose one policy; the run is gone when the block ends."""
    composed = compose_settings(EvaluateConfig, ["model=any", "baselines=[]", *overrides], "a system's network")
    ((_, policy),) = composed.policy.items()
    with scratch_run(driver_config(composed.scenario, policy, seed, trace=False), Native(), so_far) as run:
        yield run


def completion_times_us(overrides: Sequence[str], seed: int, so_far: SoFar) -> NDArray[np.float64]:
    """Return the completion time of every flow of a run in µs, with what is unfinished at the end as old as it is.

    `overrides` are those of ``foretail evaluate``; the buffer is shared completely, so that little is lost.
    """
    with native_run(["policy=cs", *overrides], seed, so_far) as run:
        flows, end_ns = run.flows(), run.summary["end_ns"]
    ends = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], end_ns - flows["start_ns"])
    return np.asarray(ends / 1000, dtype=np.float64)
