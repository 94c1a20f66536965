"""The buffers of a SONiC switch as settings of a stage: what ``config=config_db.json`` stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema.scenario import ROLES, Scenario
from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.sonic.config import read_config
from foretail.sim_bridge.imports.sonic.simulated import Simulated, simulated, usual_priorities
from foretail.sim_bridge.imports.sonic.tables import SonicBuffers
from foretail.sim_bridge.policy_settings import settings_in_name

POLICY = "sonic"
"""The policy that reads pools and thresholds of a configuration."""
PER_PORT = "scenario.topology.buffer_bytes_per_port_per_gbps"


def fill_in(node: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Set what the file of `node.config` says, so that a run depends on what is in it, not on its path.

    ForetailError on a file that cannot be simulated here, and on `overrides`, as on the command line, that set what it
    sets.
    """
    path = Path(node.config)
    buffers = read_config(path)
    try:
        run = _simulated(buffers, node)
        _require_fits(buffers, run, node)
    except ForetailError as error:  # which speaks of the parameter `ports`
        raise ForetailError(f"config = {path}: {str(error).replace('ports', 'config_ports')}") from None
    sonic = [key for key, policy in node.policy.items() if policy.name == POLICY]
    for key in sonic:
        if settings_in_name(str(key)) is not None:
            raise ForetailError(
                f"policy {key} has settings that config = {path} sets: write {POLICY}, or leave out config"
            )
    settings = settings_of(run, [str(key) for key in sonic])
    of_none = [f"policy.{key}.{name}" for key in sonic for name in ("alpha", "incast_alpha")]  # lists take their place
    for override in overrides:
        name = override.partition("=")[0].lstrip("+~")
        if any(one == name or one.startswith(f"{name}.") for one in (*settings, *of_none)) and "." in name:
            raise ForetailError(f"{name} is what config = {path} sets: leave one of the two out")
    for name, value in settings.items():
        OmegaConf.update(node, name, value)
    marks = f"marks begin at scenario.transport.mark_bytes={node.scenario.transport.mark_bytes:,}"
    of_scenario = () if run.marks is not None else (f"{marks}, as the file has none that are simulated",)
    replace(run.reading, source=f"config = {path}", guesses=run.reading.guesses + of_scenario).tell()


def settings_of(run: Simulated, sonic: Sequence[str]) -> dict[str, Any]:
    """Values by the dotted names of settings.

    Parameters
    ----------
    run : what a configuration says
    sonic : the names, in a table, of policies that read pools and thresholds
    """
    settings = {f"scenario.queues.{name}": value for name, value in asdict(run.queues).items()}
    if run.marks is not None:
        settings |= {f"scenario.transport.{name}": value for name, value in asdict(run.marks).items()}
    if run.queues.lossless:
        settings |= {f"scenario.pfc.{name}": value for name, value in asdict(run.pfc).items()}
        alphas = {run.policy.ingress_alphas[queue] for queue in run.queues.lossless}
        if len(alphas) == 1 and 0 not in alphas:  # the same pauses under all policies that have such a threshold
            settings["scenario.pfc.alpha"] = alphas.pop()
    of_policy = {name: None if value == 0 else value for name, value in asdict(run.policy).items() if name != "name"}
    return settings | {f"policy.{key}.{name}": value for key in sonic for name, value in of_policy.items()}


def _simulated(buffers: SonicBuffers, node: DictConfig) -> Simulated:
    ports, classes = list(node.config_ports), dict(node.config_classes)
    given = {str(name): number for name, number in classes.items() if number is not None}
    return simulated(buffers, {**usual_priorities(buffers, ports), **given}, ports)


def _require_fits(buffers: SonicBuffers, run: Simulated, node: DictConfig) -> None:
    """Raise ForetailError when a switch of the scenario has less buffer than a pool, or than pool and headroom."""
    scenario = OmegaConf.to_object(node.scenario)
    if not isinstance(scenario, Scenario):
        raise TypeError("the scenario is none")
    topology, together = scenario.topology, run.policy.ingress_pool_bytes + run.pfc.headroom_pool_bytes
    needed = max(together, *(max(pool.size_bytes, pool.xoff_bytes or 0) for pool in buffers.pools.values()))
    sizes = [bytes_ for bytes_ in map(scenario.buffer_bytes, ROLES) if bytes_]
    per_port = -(-needed * topology.buffer_bytes_per_port_per_gbps // max(min(sizes), 1))
    try:
        buffers.require_fits(min(sizes))
        if together > min(sizes):
            raise ForetailError(
                f"the ingress pool and the headroom have {together:,} bytes together, and the buffer {min(sizes):,} "
                "bytes: lower them, or give the buffer of this switch"
            )
    except ForetailError as error:
        raise ForetailError(f"{error} with {PER_PORT}={per_port}") from None
