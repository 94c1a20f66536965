"""The native network with a predictor in Python that decides live, in many simulations at a time.

A simulation waits wherever a switch asks, until the predictor has answered. Simulations wait together, so the predictor
gets batches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.features.catalog import training_columns
from foretail.features.records import FLOW_DTYPE, Records
from foretail.sim_bridge._native import ClosedLoopRuns
from foretail.sim_bridge.open_loop.live import CheckedPredictor, Features
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policies import ASKING


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
    features : sequence of str
        Columns that the predictor sees, in this order.
    threshold : float or None
        As in :func:`foretail.sim_bridge.open_loop.live.run_live`.

    Raises
    ------
    ForetailError
        As `run_live` does; also when a simulation is refused or fails.

    Examples
    --------
    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.sim_bridge.native.live import run_live_native
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
    seconds = {
        "wall_seconds": time.perf_counter() - began,
        "simulation_cpu_seconds": time.process_time() - cpu,
    }
    write_file(folder / "settings.json", json.dumps(document))
    write_file(folder / "flows.bin", run.flows.tobytes())
    write_file(folder / "occupancy.bin", b"")
    write_file(folder / "summary.json", json.dumps({**run.summary, **seconds}))
    return PacketRun.open(folder)
