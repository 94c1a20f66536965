"""From a scenario to the driver's JSON: one document per run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario

DRIVER_FORMAT = 1


def driver_config(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    trace: bool,
    library: Path | None = None,
) -> dict[str, Any]:
    """The driver's document for one run.

    `library` is the predictor of a policy that asks the stage's exported model; `policy.library` wins over it.
    """
    document = dataclasses.asdict(scenario)
    del document["name"], document["topology"]["kind"]  # the driver knows a star by its lack of spines
    own = policy.library if policy.library is not None else library
    uses_library = policy.predictor == "library" and own is not None
    document.update(
        format=DRIVER_FORMAT,
        seed=seed,
        policy=dataclasses.asdict(policy) | {"library": str(Path(own).absolute()) if uses_library and own else None},
        trace=trace,
    )
    return document
