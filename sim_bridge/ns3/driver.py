"""The ns-3 driver: built once per machine from the sources in this package, then run as a process per simulation.

``python -m foretail.sim_bridge.ns3.driver build`` builds it beforehand. The executable lives in the user's cache
(``$XDG_CACHE_HOME/foretail`` or ``~/.cache/foretail``), addressed by its sources, compiler, build type and ns-3.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError
from foretail.sim_bridge.builds import SimulatorProgram
from foretail.sim_bridge.packets.simulation import PacketRun, Progress, run_program

OLDEST_NS3 = (3, 44)


@dataclass(frozen=True)
class Ns3Installation:
    """An ns-3 installation: the folder with ``include/`` and ``lib*/``, and its version such as ``3.44``."""

    prefix: Path
    version: str


def find_ns3(prefix: str | os.PathLike[str] | None = None) -> Ns3Installation:
    """Find ns-3 in `prefix`, else in the Python package ``ns3``, which is located but never imported.

    Raises
    ------
    ForetailError
        If there is none, or it is older than 3.44.
    """
    if prefix is None:
        spec = importlib.util.find_spec("ns3")
        if spec is None or not spec.submodule_search_locations:
            raise ForetailError("ns-3 is missing: run `make setup`, `pip install --no-deps ns3`, or set ns3_prefix")
        prefix = spec.submodule_search_locations[0]
    folder = Path(prefix).absolute()
    cores = sorted(folder.glob("lib*/libns3*-core*.so"))
    version = re.match(r"libns(3\.\d+)(?:\.\d+)?-core", cores[0].name) if cores else None
    if version is None:
        raise ForetailError(f"{folder} contains no ns-3: it needs include/ns3 and lib/libns3.*-core.so")
    if tuple(map(int, version[1].split("."))) < OLDEST_NS3:
        raise ForetailError(f"{folder} holds ns-3 {version[1]}, but the driver needs 3.44 or newer")
    return Ns3Installation(folder, version[1])


@dataclass(frozen=True)
class Ns3Program(SimulatorProgram):
    """The driver of an ns-3, which is found when something depends on it."""

    room: str = "ns3"
    executable: str = "foretail-ns3"
    words: str = "ns-3"
    prefix: str | os.PathLike[str] | None = None  #: of the ns-3; None: the Python package
    debug: bool = False  #: with assertions

    @property
    def cache(self) -> str:
        """Folder in the user's cache."""
        return "ns3-driver"

    @functools.cached_property
    def installation(self) -> Ns3Installation:
        """The ns-3; ForetailError when there is none."""
        return find_ns3(self.prefix)

    @property
    def identity(self) -> dict[str, str]:
        """The version of ns-3."""
        return {"ns3": self.installation.version}

    def definitions(self) -> dict[str, str]:
        """Variables of CMake."""
        return {
            "NS3_PREFIX": str(self.installation.prefix),
            "NS3_VERSION": self.installation.version,
            "CMAKE_BUILD_TYPE": "Debug" if self.debug else "Release",
        }


def build_driver(
    ns3_prefix: str | os.PathLike[str] | None = None,
    *,
    debug: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> Path:
    """Return the driver's executable, building it if this machine has not built it yet.

    Parameters
    ----------
    ns3_prefix : an ns-3 installation; the Python package ``ns3`` by default
    debug : with assertions: every arrival recounts the bytes of its queue
    report : hears how many of how many steps of the build are done

    Raises
    ------
    ForetailError
        If ns-3 or a C++ compiler is missing, or the build fails.
    """
    return Ns3Program(prefix=ns3_prefix, debug=debug).build(report=report)


@dataclass(frozen=True, repr=False)
class DriverRun(PacketRun):
    """A finished simulation in ns-3; files and summary as of :class:`PacketRun`."""

    def versions(self) -> dict[str, str]:
        """Return the versions that the run's output depends on."""
        return super().versions() | {"ns3": self.summary["ns3_version"], "driver_sha256": Ns3Program().digest()}


def run_driver(
    settings: Mapping[str, Any],
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    executable: Path | None = None,
) -> DriverRun:
    """Run one simulation and wait for it.

    Parameters
    ----------
    settings : the driver's JSON document (docs/reference/driver.md); the driver checks it
    folder : Path
        An existing folder for the output. On failure or Ctrl-C what the run wrote there is incomplete: the caller
        removes the folder.
    progress : called about twice a second
    executable : the driver; built or found in the cache by default

    Raises
    ------
    ForetailError
        If the driver refuses the settings or fails.
    """
    executable = build_driver() if executable is None else executable
    run_program(executable, settings, folder, progress, "the ns-3 simulation")
    return DriverRun.open(folder)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m foretail.sim_bridge.ns3.driver", description=__doc__)
    parser.add_argument("action", choices=["build"])
    parser.add_argument("--ns3-prefix")
    parser.add_argument("--debug", action="store_true", help="with assertions")
    arguments = parser.parse_args()
    try:
        build_driver(arguments.ns3_prefix, debug=arguments.debug)
    except ForetailError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main())
