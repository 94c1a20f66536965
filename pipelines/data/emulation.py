"""Runs of the emulator, as the stages use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretail.configs.schema.emulation import Emulation
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.runs.jobs import Report
from foretail.sim_bridge.emulator.emulator import build_emulator
from foretail.sim_bridge.guest_policies import GuestPolicy


def emulated_settings(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    emulation: Emulation,
    *,
    trace: bool,
    library: Path | None = None,
) -> dict[str, Any]:
    """The emulator's document for one run: the driver's, and how it is emulated."""
    document = driver_config(scenario, policy, seed, trace=trace, library=library)
    return {**document, "emulation": emulation.settings()}


def emulator_for(policy: str, report: Report) -> Path:
    """The executable that knows a policy, built on first use."""
    guest = GuestPolicy.of(policy)
    once = "once per machine" if guest is None else f"once for {guest.name}"
    report(0.0, f"finding the emulator, which is built {once}")
    return build_emulator(
        policy=guest, report=lambda done, of: report(0.0, f"building the emulator, {once}: {done} of {of} steps")
    )
