"""Runs of the native network under a load balancer, for the systems that are balancers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, scratch_run
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.settings.compose import compose_settings

CODE = ("foretail.sim_bridge.native", "foretail.sim_bridge.ns3.messages", "foretail.pipelines.data.scenario")
"""Behind a run, for the digest of stored points."""


def completion_times_us(overrides: Sequence[str], seed: int, so_far: SoFar) -> NDArray[np.float64]:
    """Return the completion time of every flow of a run in µs, with what is unfinished at the end as old as it is.

    `overrides` are those of ``foretail evaluate``; the buffer is shared completely, so that little is lost.
    """
    config = compose_settings(EvaluateConfig, ["policy=cs", *overrides], "overrides of a balancer's run")
    ((_, policy),) = config.policy.items()
    document = driver_config(config.scenario, policy, seed, trace=False)
    with scratch_run(document, Native(), so_far) as run:
        flows = run.flows()
        ends = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], run.summary["end_ns"] - flows["start_ns"])
        return np.asarray(ends / 1000, dtype=np.float64)


def change_percent(of: float, against: float) -> float:
    """Return by how much a time is longer than another, in %; below 0 it is shorter."""
    return 100 * (of / against - 1)
