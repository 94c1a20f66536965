"""From a scenario to the driver's JSON: one document per run."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from foretail.configs.schema import Policy, Scenario

DRIVER_FORMAT = 1
HEADER_BYTES = 42  # IPv4, TCP and PPP headers of a data segment on the wire


def base_rtt_ns(scenario: Scenario) -> float:
    """Round trip between two leaves: eight link delays and one full segment on the server's link (paper: 25.2 us)."""
    topology = scenario.topology
    segment_bits = 8 * (scenario.transport.segment_bytes + HEADER_BYTES)
    return 8 * topology.link_delay_ns + segment_bits * 1e9 / topology.server_link_bps


def average_shift(scenario: Scenario) -> int:
    """The configured shift of averages, or the base RTT rounded to a power of two (design, section 4)."""
    if scenario.features.average_shift is not None:
        return scenario.features.average_shift
    return round(math.log2(base_rtt_ns(scenario)))


def driver_config(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    trace: bool,
    library: Path | None = None,
    progress_interval_ms: int = 500,
) -> dict[str, Any]:
    """The driver's document for one run.

    Parameters
    ----------
    scenario, policy, seed : what to simulate; `policy.library` wins over `library`
    trace : write an arrival record per packet
    library : compiled predictor for a policy that asks the stage's exported model
    progress_interval_ms : wall time between two progress reports
    """
    document = dataclasses.asdict(scenario)
    del document["name"]
    document["features"]["average_shift"] = average_shift(scenario)
    asked = dataclasses.asdict(policy)
    if policy.name != "credence" or policy.predictor != "library":
        asked["library"] = None
    else:
        own = policy.library if policy.library is not None else library
        asked["library"] = None if own is None else str(Path(own).absolute())
    document.update(
        format=DRIVER_FORMAT, seed=seed, policy=asked, trace=trace, progress_interval_ms=progress_interval_ms
    )
    return document
