"""The native network in this process: a run that stops where it is told, and can go back to where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.files import write_file, writing
from foretail.core.summary import Summarised
from foretail.features.catalog import training_columns
from foretail.features.records import FLOW_DTYPE, Records
from foretail.sim_bridge._native import ClosedLoopRuns, NativeSnapshot
from foretail.sim_bridge._native import NativeRun as _Run
from foretail.sim_bridge.builds import with_compiled_policy
from foretail.sim_bridge.open_loop.live import CheckedPredictor, Features
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policies import ASKING

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
    settings : the driver's JSON document
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
        """True if all flows are settled, or the time of the run is over."""
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
        :data:`foretail.features.catalog.COUNTERS`. Everything before `now_ns` must have been simulated. The policy
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


# The native network with a predictor in Python that decides live, in many simulations at a time.
#
# A simulation waits wherever a switch asks, until the predictor has answered. Simulations wait together, so the
# predictor gets batches.


@dataclass(frozen=True, eq=False, repr=False)
class LiveNativeRun(Summarised):
    """A simulation in which Python decided."""

    flows: Records  #: what became of every flow: array of FLOW_DTYPE
    summary: dict[str, Any]  #: as of a run in the native network
    asked: int  #: packets about which the predictor was asked
    drops: int  #: those that it dropped
    #: always False: Python decided, so there is no code for a switch and no proof of it
    exportable: ClassVar[bool] = False


def begin_live(runs: ClosedLoopRuns, index: int, document: Mapping[str, Any]) -> Records:
    """Plan the simulation of a document as one of `runs`, and return its flows, of which none has begun.

    ForetailError if the native network refuses the document, or its policy asks nobody.
    """
    if "racks" in document:
        raise ForetailError("switches of racks with circuits ask nobody in Python: give the document of a scenario")
    if document["policy"]["name"] not in ASKING:
        raise ForetailError(
            f"policy {document['policy']['name']!r} asks nobody: choose one of {', '.join(ASKING)}; learned asks about "
            "every data packet"
        )
    try:
        runs.begin(index, json.dumps(document))
    except RuntimeError as error:
        raise ForetailError(f"the native simulation failed: {error}") from None
    flows: Records = runs.flows(index).view(FLOW_DTYPE)
    return flows


def run_live_native(
    documents: Sequence[Mapping[str, Any]], predictor: Any, features: Sequence[str], *, threshold: float | None = None
) -> list[LiveNativeRun]:
    """Run simulations side by side; wherever a switch asks, `predictor` answers before its simulation goes on.

    Parameters
    ----------
    documents : sequence of mapping
        The driver's documents, each of a policy that asks. The more, the larger the batches.
    predictor : callable, PyTorch module, or estimator of scikit-learn or XGBoost
        As in :func:`foretail.sim_bridge.open_loop.live.run_live`.
    features : columns that the predictor sees, in this order
    threshold : as of :func:`foretail.sim_bridge.open_loop.live.run_live`

    Raises
    ------
    ForetailError
        As `run_live` does; also when a simulation is refused or fails.

    Examples
    --------
    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.sim_bridge.native.network import run_live_native
    >>> scenario = scenarios.Scenario(
    ...     name="two racks",
    ...     topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 1_000_000], cumulative=[0, 0.8, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    ...     traffic_ns=500_000,
    ... )
    >>> document = driver_config(scenario, Policy("learned"), seed=1, trace=False)
    >>> (run,) = run_live_native([document], lambda rows: rows[:, 0] > 200, ("fill",))
    >>> run.asked > run.drops, len(run.flows) == run.summary["flows"]
    (True, True)
    """
    if not documents:
        return []
    answer = CheckedPredictor(predictor, threshold)
    runs = ClosedLoopRuns(len(documents), list(training_columns(features, own_queues=True)))
    for index, document in enumerate(documents):
        begin_live(runs, index, document)
        runs.start(index)
    columns = runs.columns()
    seen: Features = columns["features"]
    ended: NDArray[np.bool_] = columns["ended"].view(np.bool_)
    drop = np.zeros(len(documents), np.bool_)
    asked, drops = np.zeros(len(documents), np.int64), np.zeros(len(documents), np.int64)
    while (waiting := np.flatnonzero(~ended)).size:
        drop[waiting] = answer(seen[waiting])
        asked[waiting] += 1
        drops[waiting] += drop[waiting]
        runs.step(drop.view(np.uint8))

    def finished(index: int) -> LiveNativeRun:
        flows = runs.flows(index).view(FLOW_DTYPE)
        return LiveNativeRun(flows, json.loads(runs.finish(index)), int(asked[index]), int(drops[index]))

    return [finished(index) for index in range(len(documents))]


def write_live_native(document: Mapping[str, Any], predictor: Any, features: Sequence[str], folder: Path) -> PacketRun:
    """Run one simulation in which `predictor` decides, and write what the native program leaves, but for occupancy.

    Parameters are those of :func:`run_live_native`, and a folder that is there and empty.
    """
    began, cpu = time.perf_counter(), time.process_time()
    (run,) = run_live_native([document], predictor, features)
    seconds = {"wall_seconds": time.perf_counter() - began, "simulation_cpu_seconds": time.process_time() - cpu}
    write_file(folder / "settings.json", json.dumps(document))
    write_file(folder / "flows.bin", run.flows.tobytes())
    write_file(folder / "occupancy.bin", b"")
    write_file(folder / "summary.json", json.dumps({**run.summary, **seconds}))
    return PacketRun.open(folder)
