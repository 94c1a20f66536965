"""The ns-3 driver: built once per machine from the sources in this package, then run as a process per simulation.

``python -m foretail.sim_bridge.ns3.driver build`` builds it beforehand. The executable lives in the user's cache
(``$XDG_CACHE_HOME/foretail`` or ``~/.cache/foretail``), addressed by its sources, compiler, build type and ns-3.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from foretail.features.errors import ForetailError
from foretail.features.json_text import parse_json
from foretail.features.records import COUNTER_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, Records, read_records
from foretail.features.staging import writing
from foretail.sim_bridge.builds import cached, is_cached, sources_digest
from foretail.sim_bridge.guest_policies import GuestPolicy, build_simulator
from foretail.sim_bridge.ns3.queries import query_table, round_table

OLDEST_NS3 = (3, 44)
_KIND, _EXECUTABLE = "ns3-driver", "foretail-ns3"


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
        raise ForetailError(f"{folder} holds no ns-3: it needs include/ns3 and lib/libns3.*-core.so")
    if tuple(map(int, version[1].split("."))) < OLDEST_NS3:
        raise ForetailError(f"{folder} holds ns-3 {version[1]}, but the driver needs 3.44 or newer")
    return Ns3Installation(folder, version[1])


def driver_digest() -> str:
    """Return the sha256 of the driver's sources: part of the identity of everything it simulates."""
    return sources_digest("buffer", "ns3")


def build_driver(
    ns3_prefix: str | os.PathLike[str] | None = None,
    *,
    debug: bool = False,
    policy: GuestPolicy | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Path:
    """Return the driver's executable, building it if this machine has not built it yet.

    Parameters
    ----------
    ns3_prefix : path, optional
        An ns-3 installation; the Python package ``ns3`` by default.
    debug : bool
        With assertions: every arrival recounts the bytes of its queue.
    policy : GuestPolicy, optional
        A policy from outside, which this driver then knows beside Foretail's own.
    report : callable, optional
        Hears how many of how many steps of the build are done.

    Raises
    ------
    ForetailError
        If ns-3 or a C++ compiler is missing, or the build fails.
    """
    ns3 = find_ns3(ns3_prefix)
    build_type = "Debug" if debug else "Release"
    key = _key(ns3, build_type, policy)
    return cached(_KIND, _EXECUTABLE, key, lambda folder: _compile(folder, ns3, build_type, policy, report))


def driver_is_built(ns3_prefix: str | os.PathLike[str] | None = None) -> bool:
    """Return whether :func:`build_driver` has nothing left to do; ForetailError without ns-3 or a compiler."""
    return is_cached(_KIND, _EXECUTABLE, _key(find_ns3(ns3_prefix), "Release", None))


def _key(ns3: Ns3Installation, build_type: str, policy: GuestPolicy | None) -> list[str]:
    guest = [] if policy is None else [policy.sha256, policy.type]
    return [driver_digest(), str(ns3.prefix), ns3.version, build_type, *guest]


def _compile(
    folder: Path,
    ns3: Ns3Installation,
    build_type: str,
    policy: GuestPolicy | None,
    report: Callable[[int, int], None] | None,
) -> None:
    definitions = [f"NS3_PREFIX={ns3.prefix}", f"NS3_VERSION={ns3.version}", f"CMAKE_BUILD_TYPE={build_type}"]
    build_simulator("ns3", folder, _EXECUTABLE, f"the driver of ns-3 {ns3.version}", definitions, policy, report)


@dataclass(frozen=True)
class Progress:
    """How far a simulation is: simulated time in ns, flows, and wall time in s."""

    simulated_ns: int
    end_ns: int
    flows: int
    planned_flows: int
    wall_seconds: float


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ForetailError(f"{path.parent} holds no complete simulation ({error}): run it again") from None
    return found


@dataclass(frozen=True)
class Branch:
    """What became of a run that was forked at an arrival."""

    row: int  #: that arrival's position among all arrivals of the run
    turned: bool  #: whether it was decided otherwise than by the policy
    repeat: int  #: from then on the link of its port is so many times ``repeat_ns`` longer
    decisions: int  #: so many arrivals were decided otherwise
    end_ns: int  #: simulated time at which the branch ended
    file: Path  #: its flows

    def flows(self) -> Records:
        """Return what became of every flow, as :meth:`DriverRun.flows` does."""
        return read_records(self.file, FLOW_DTYPE)


@dataclass(frozen=True)
class DriverRun:
    """A finished simulation.

    Attributes
    ----------
    folder : Path
        Holds ``settings.json``, ``summary.json``, ``flows.bin``, ``occupancy.bin`` and, with trace, ``arrivals.bin``,
        with counters ``counters.bin``.
    summary : dict
        Counters of every switch, speeds and versions, as the driver wrote them.
    """

    folder: Path
    summary: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the output of an earlier :func:`run_driver`; raise :class:`ForetailError` if it is not complete."""
        return cls(folder, _read_json(folder / "summary.json"))

    def flows(self) -> Records:
        """Return what became of every flow: array of FLOW_DTYPE, background and answers by start, then messages."""
        return read_records(self.folder / "flows.bin", FLOW_DTYPE)

    def branches(self) -> list[Branch]:
        """Return the branches of a run that was forked, in order of their arrivals; of any other none."""
        return [
            Branch(
                **one,
                file=self.folder / f"branch_{one['row']}_{'turned' if one['turned'] else 'kept'}_{one['repeat']}.bin",
            )
            for one in self.summary.get("branches", [])
        ]

    def settings(self) -> dict[str, Any]:
        """Return the driver's document of the run."""
        return _read_json(self.folder / "settings.json")

    def queries(self) -> pd.DataFrame:
        """Return what became of every query as a whole: :func:`foretail.sim_bridge.ns3.queries.query_table`."""
        return query_table(self.flows(), self.summary["end_ns"], self.settings())

    def rounds(self) -> pd.DataFrame:
        """Return the same of every round of a collective: :func:`foretail.sim_bridge.ns3.queries.round_table`."""
        return round_table(self.flows(), self.summary["end_ns"], self.settings())

    def versions(self) -> dict[str, str]:
        """Return the versions that the run's output depends on."""
        return {
            "foretail": importlib.metadata.version("foretail"),
            "ns3": self.summary["ns3_version"],
            "driver_sha256": driver_digest(),
        }

    def occupancy(self) -> Records:
        """Return the samples of every switch's buffer while traffic was offered: array of OCCUPANCY_DTYPE."""
        return read_records(self.folder / "occupancy.bin", OCCUPANCY_DTYPE)

    def counters(self) -> Records:
        """Return what every interval of a queue began with and brought: array of COUNTER_DTYPE, if they were logged."""
        return read_records(self.folder / "counters.bin", COUNTER_DTYPE)


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
    settings : mapping
        The driver's JSON document (docs/driver.md); the driver checks it.
    folder : Path
        An existing folder for the output. On failure or Ctrl-C what the run wrote there is incomplete: the caller
        removes the folder.
    progress : callable, optional
        Called about twice a second.
    executable : Path, optional
        The driver; built or found in the cache by default.

    Raises
    ------
    ForetailError
        If the driver refuses the settings or fails.
    """
    executable = build_driver() if executable is None else executable
    run_program(executable, settings, folder, progress, "the ns-3 simulation")
    return DriverRun.open(folder)


def run_program(
    executable: Path,
    settings: Mapping[str, Any],
    folder: Path,
    progress: Callable[[Progress], None] | None,
    what: str,
) -> None:
    """Run a simulator that takes the driver's settings, as :func:`run_driver` does; `what` is its name in errors."""
    with writing(folder):
        (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    command = [executable, folder / "settings.json", folder]
    complaints: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if not line.startswith("{"):
                    complaints.append(line.strip())
                elif progress is not None:
                    progress(Progress(**json.loads(line)))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        said = " ".join(complaint for complaint in complaints if complaint).removeprefix("error: ")
        if process.returncode < 0:
            said = f"it was ended by {signal.Signals(-process.returncode).name} {said}".strip()
        raise ForetailError(f"{what} failed: {said}")


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
