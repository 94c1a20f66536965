"""The native network in this process: a run that stops where it is told, and can go back to where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.files import writing
from foretail.features.records import FLOW_DTYPE, Records
from foretail.sim_bridge._native import NativeRun as _Run
from foretail.sim_bridge._native import NativeSnapshot
from foretail.sim_bridge.guest_policies import with_compiled_policy

LATEST_NS = 2**63 - 1


class Snapshot:
    """The state of a :class:`NativeNetwork` at a moment, which that network alone can go back to.

    It lives in memory, as long as this object does, and cannot be stored: a simulation of another version, or with
    other settings, would go on from it into something that no run is.
    """

    def __init__(self, state: NativeSnapshot, time_ns: int) -> None:
        self._state = state
        self.time_ns = time_ns
        """Simulated time at which it was taken."""

    def __reduce__(self) -> NoReturn:
        raise ForetailError("a snapshot lives in the memory of its network and cannot be stored: run the network again")


class NativeNetwork:
    """A simulation in the native network, from the settings of :func:`foretail.sim_bridge.native.driver.run_native`.

    Parameters
    ----------
    settings : mapping
        The driver's JSON document.
    folder : Path, optional
        An existing folder, which gets the files of :class:`foretail.sim_bridge.native.driver.NativeRun`. Without it
        nothing is written.

    Raises
    ------
    ForetailError
        If the settings are not of this network, or the simulation fails, in this and in all methods.

    Examples
    --------
    Simulate half of the traffic, go on to the end, and go back to the half.

    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.sim_bridge.native.network import NativeNetwork
    >>> scenario = scenarios.Scenario(
    ...     name="two racks",
    ...     topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 1_000_000], cumulative=[0, 0.8, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    ...     traffic_ns=2_000_000,
    ... )
    >>> network = NativeNetwork(driver_config(scenario, Policy("dt"), seed=1, trace=False))
    >>> network.advance(2_500_000)
    >>> snapshot = network.snapshot()
    >>> network.advance()
    >>> flows, ended = network.flows(), network.is_over
    >>> network.restore(snapshot)
    >>> network.is_over
    False
    >>> network.advance()
    >>> bool(ended and (network.flows() == flows).all())
    True
    """

    def __init__(self, settings: Mapping[str, Any], folder: Path | None = None) -> None:
        settings = with_compiled_policy(settings)
        self._folder, self._text = folder, json.dumps(settings)
        self._cpu_seconds = self._wall_seconds = 0.0
        self._finished = False
        if folder is not None:
            with writing(folder):
                (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        self._run: _Run = self._checked(lambda: _Run(self._text, "" if folder is None else str(folder)))

    @property
    def now_ns(self) -> int:
        """Simulated time of what happened last; of the end, when the run is over."""
        return self._run.now_ns()

    @property
    def is_over(self) -> bool:
        """Whether all flows are settled, or the time of the run is over."""
        return self._run.is_over()

    def advance(self, until_ns: int = LATEST_NS) -> None:
        """Simulate everything before `until_ns`, or to the end."""
        self._require_open()
        cpu, wall = time.thread_time(), time.perf_counter()
        self._checked(lambda: self._run.advance(until_ns))
        self._cpu_seconds += time.thread_time() - cpu
        self._wall_seconds += time.perf_counter() - wall

    def flows(self) -> Records:
        """Return what became of every flow so far: array of FLOW_DTYPE, in the order of the plan."""
        return self._run.flows().view(FLOW_DTYPE)

    def counters(self, now_ns: int) -> NDArray[np.int32]:
        """Return what every queue counted over the intervals that have ended by `now_ns`: int32[queues, counters].

        Rows are the queues of all switches, leaves first, port by port; columns are those of
        :data:`foretail.features.counters.COUNTERS`. Everything before `now_ns` must have been simulated. The policy
        must be Dynamic Thresholds, and the setting ``counters`` true.
        """
        self._require_open()
        counted: NDArray[np.int32] = self._checked(lambda: self._run.counters(now_ns))
        return counted

    def set_alphas(self, alphas: NDArray[np.float64]) -> None:
        """Set the alpha of every queue, float64[queues] in the order of :meth:`counters`, from now on."""
        self._require_open()
        self._checked(lambda: self._run.set_alphas(np.ascontiguousarray(alphas, dtype=np.float64)))

    def snapshot(self, into: Snapshot | None = None) -> Snapshot:
        """Return the state of now: of events, links, switches, hosts, flows, random streams and files.

        `into` is an older snapshot of this network, whose memory is used again; it is what is returned then.
        """
        self._require_open()
        if into is None:
            return Snapshot(self._run.snapshot(), self.now_ns)
        self._run.snapshot_into(into._state)
        into.time_ns = self.now_ns
        return into

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, as often as you like; raise ForetailError if it is of another network."""
        self._require_open()
        self._run.restore(snapshot._state)

    def finish(self) -> dict[str, Any]:
        """End the run where it is, write its files, and return its summary. Nothing may follow."""
        self._require_open()
        summary: dict[str, Any] = json.loads(self._checked(self._run.finish))
        self._finished = True
        summary |= {
            "simulation_cpu_seconds": self._cpu_seconds,
            "simulation_wall_seconds": self._wall_seconds,
            "wall_seconds": self._wall_seconds,
        }
        if self._folder is not None:
            with writing(self._folder):
                (self._folder / "summary.json").write_text(json.dumps(summary) + "\n", encoding="utf-8")
        return summary

    def _require_open(self) -> None:
        if self._finished:
            raise ForetailError("this simulation has been finished: make another one")

    @staticmethod
    def _checked(work: Any) -> Any:
        try:
            return work()
        except RuntimeError as error:
            raise ForetailError(f"the native simulation failed: {error}") from None
