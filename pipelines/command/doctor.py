"""``foretail doctor``: what this machine has of what Foretail can use, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foretail.core.errors import ForetailError, install_command
from foretail.export.c.build import find_compiler
from foretail.models.mlflow.store import sqlite_file, store_exists, tracking_uri
from foretail.pipelines.runs.result import Table, version_of
from foretail.sim_bridge.builds import compiler
from foretail.sim_bridge.ns3.driver import Ns3Program, find_ns3

EXTRAS = {
    "nn": (("torch",), "neural predictors (predictor=mlp, sequence), live modules"),
    "gym": (("gymnasium",), "foretail.gym: the switch as an environment"),
    "rl": (("stable-baselines3",), "foretail run rule_by_ppo: a policy that learns by PPO"),
}
"""Extra -> its packages, and what it is for."""
TUN = "/dev/net/tun"
P4_TOOLS = ("p4c-bm2-ss", "simple_switch", "simple_switch_CLI")


@dataclass(frozen=True)
class Finding:
    """One thing looked for."""

    what: str  #: its name
    version: str | None  #: its version or place; None when it is missing
    fix: str  #: what to do when it is missing
    needed: bool = False  #: Foretail cannot work without it


def examine(folder: Path) -> tuple[Finding, ...]:
    """Look for everything, from a working folder; nothing is made or changed."""
    return (
        Finding("Python", platform.python_version(), "", True),
        _tried("native simulators", lambda: version_of("foretail"), "make setup", needed=True),
        _tried("C++ compiler", compiler, "install g++ 10 or clang 12, or newer", needed=True),
        _tried("C compiler", lambda: " ".join(find_compiler()), "install gcc or clang", needed=True),
        _tried("ns-3", lambda: find_ns3(None).version, "pip install --no-deps ns3, or ns3_prefix=FOLDER"),
        _tried(
            "ns-3 driver",
            lambda: "built" if Ns3Program().is_built() else None,
            "nothing to do, the first run with network=ns3 builds it in some minutes",
        ),
        Finding(
            "TUN interfaces",  # with which the emulator's hosts are made
            TUN if os.access(TUN, os.R_OK | os.W_OK) else None,
            "for foretail evaluate network=emulator: modprobe tun, or chmod 0666 /dev/net/tun",
        ),
        *_extras(),
        Finding("P4 compiler and switch", _p4_tools(), "docs/guide/install.md says how to build them"),
        *_outputs(folder),
    )


def table(findings: tuple[Finding, ...]) -> Table:
    """Table of the findings, and the fix of what is missing."""
    missing = [finding for finding in findings if finding.version is None and finding.fix]
    return Table(
        "This machine",
        ("what", "found"),
        tuple((finding.what, finding.version or "-") for finding in findings),
        tuple(f"{finding.what}{' (needed)' if finding.needed else ''}: {finding.fix}" for finding in missing),
    )


def _tried(what: str, find: Callable[[], str | None], fix: str, needed: bool = False) -> Finding:
    try:
        return Finding(what, find(), fix, needed)
    except ForetailError:
        return Finding(what, None, fix, needed)


def _extras() -> Iterator[Finding]:
    for extra, (packages, purpose) in EXTRAS.items():
        versions = [f"{package} {version}" for package in packages if (version := version_of(package)) is not None]
        fix = f"{install_command(extra)}, for {purpose}"
        yield Finding(f"extra {extra}", ", ".join(versions) or None, fix)


def _outputs(folder: Path) -> Iterator[Finding]:
    outputs = folder / "outputs"
    writable = os.access(next(path for path in (outputs, *outputs.parents) if path.exists()), os.W_OK)
    fix = "choose a folder that you may write to, with store_dir= and hydra.run.dir="
    yield Finding("outputs of this folder", str(outputs) if writable else None, fix, True)
    uri = tracking_uri(None, outputs)
    if sqlite_file(uri) is None:
        yield Finding("tracking", f"the server {uri}", "")
    else:
        yield Finding(
            "tracking", uri if store_exists(uri) else None, "nothing to do, the first training makes the store"
        )


def _p4_tools() -> str | None:
    places = [shutil.which(tool) for tool in P4_TOOLS]
    return ", ".join(place for place in places if place) if all(places) else None
