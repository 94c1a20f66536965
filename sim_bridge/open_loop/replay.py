"""Policies on recorded arrivals, open loop, and what predictions are worth there: eta and recovered loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, REAL_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import LosslessQueues, Run
from foretail.features.records import FlowClass, Records
from foretail.sim_bridge._native import Replay, Scorer
from foretail.sim_bridge.builds import native_policy
from foretail.sim_bridge.open_loop.scores import (
    Comparison,
    Decider,
    SentScores,
    SideBySide,
    Work,
    in_threads,
    sent_in_one_pass,
)
from foretail.sim_bridge.policies import KNOW_PRIORITIES, POLICIES, TAKE_RULES
from foretail.sim_bridge.policy_settings import NetworkParameters

MESSAGE_LEFT = [feature.name for feature in FEATURES].index("message_left")
"""Column of the features that says it."""

_HEADER_BYTES = 40  # IPv4 and TCP without options


@dataclass(frozen=True, eq=False)
class RunQueues:
    """The queues of the ports of a recorded run."""

    count: int  #: of a port
    scheduler: str  #: of these
    quanta: list[int]  #: of deficit_round_robin, in bytes
    of_class: NDArray[np.uint8]  #: uint8[3], the queue of each FlowClass


def queues_of(run: Run) -> RunQueues:
    """Return the queues that the scenario of a run describes; one queue per port where it says nothing."""
    queues = run.scenario.get("queues", {"count": 1})
    if run.scenario.get("transport", {}).get("rc3", {}).get("edges"):
        raise ForetailError(
            "a dataset does not keep the priorities of packets of RC3, so that no replay knows their queues: collect "
            "with scenario.transport.rc3.edges=[]"
        )
    if queues["count"] == 1:
        return RunQueues(1, "round_robin", [], np.zeros(len(FlowClass), np.uint8))
    quanta = list(queues["quantum_bytes"])
    if queues["scheduler"] == "deficit_round_robin" and not quanta:
        quanta = [run.scenario["transport"]["segment_bytes"] + _HEADER_BYTES] * queues["count"]
    of_class = [queues[flow_class.name.lower()] for flow_class in FlowClass]
    return RunQueues(queues["count"], queues["scheduler"], quanta, np.array(of_class, np.uint8))


def voqs_of(run: Run) -> tuple[Any, ...] | None:
    """Return what a native replay has to know of racks with circuits; None for any other run."""
    racks = run.scenario.get("racks")
    if racks is None:
        return None
    numbers = (racks[name] for name in ("day_ns", "night_ns", "packet_bps", "circuit_bps"))
    return (run.scenario["racks_with_hosts"], racks["matchings"], *numbers)


def require_one_queue(run: Run, what: str) -> None:
    """Raise ForetailError if the ports of a run have several queues, which `what` does not know."""
    if (count := queues_of(run).count) > 1:
        raise ForetailError(
            f"one queue per port is what {what} can have, and the run has {count}: leave it out, or collect with "
            "scenario.queues.count=1"
        )


@dataclass(frozen=True, eq=False)
class RunReplay:
    """A replay of a recorded run."""

    native: Replay
    queues: RunQueues  #: of its ports

    def feed(self, arrivals: Records, predictions: NDArray[np.uint8] | None = None) -> dict[str, NDArray[Any]]:
        """Replay the next arrivals: records of ARRIVAL_DTYPE or REPLAY_DTYPE, a prediction (1 = drop) for each or none.

        Returns per arrival ``outcome``, ``asked``, ``exposed`` (uint8) and, with features, ``lqd_drop`` (uint8; 0 while
        the fate is not known at the end of the batch) and ``features`` (n, features) int32.
        """
        return self.native.feed(
            np.ascontiguousarray(arrivals["time_ns"]),
            np.ascontiguousarray(arrivals["switch"]),
            np.ascontiguousarray(arrivals["port"]),
            np.ascontiguousarray(arrivals["size_bytes"]),
            (arrivals["flow_class"] != FlowClass.CONTROL).astype(np.uint8),
            np.ascontiguousarray(arrivals["first_rtt"]),
            predictions,
            self.queues.of_class[arrivals["flow_class"]],
            message_left(arrivals),
            np.ascontiguousarray(arrivals["ingress"]),
        )

    def finish(self) -> dict[str, Any]:
        """Send what is still queued; return what was sent, and the threshold deficits."""
        return self.native.finish()


def replay_scores(dataset: Dataset, predicted_drop: NDArray[np.bool_], decider: Decider | None = None) -> SentScores:
    """Return what predictions are worth on a dataset; parameters as of :func:`compare_replays`."""
    return compare_replays(dataset, (), predicted_drop, decider=decider).scores


def compare_replays(
    dataset: Dataset,
    policies: Sequence[str],
    predicted_drop: NDArray[np.bool_],
    *,
    parameters: NetworkParameters | None = None,
    threads: int = 2,
    report: Callable[[float], None] | None = None,
    decider: Decider | None = None,
) -> Comparison:
    """Replay a dataset under policies, and under those that judge one prediction per labelled row.

    ForetailError if the number of predictions is not the number of rows.

    Parameters
    ----------
    dataset : a trace with its control packets, which share the buffer
    policies : sequence of str
        Names of ``POLICIES``, each once, and policies from outside, ``HEADER.hpp:TYPE``, under the name of their type.
    predicted_drop : (rows,) bool array, for every labelled row, in order: whether it is predicted to drop
    parameters : as :func:`replay_of`
    threads : policies run side by side on so many threads
    report : called now and then with the part of the arrivals, 0 to 1, that has been read
    decider : whom policies ask while they run, and which of them is judged; by default Credence, which is told the
        predictions. Eta always judges the predictions
    """

    def begin(policy: str, scorer: Scorer | None) -> RunReplay:
        if policy in POLICIES and policy not in KNOW_PRIORITIES:
            require_one_queue(dataset.manifest, policy)
        return replay_over(policy, dataset, parameters=parameters, scorer=scorer)

    dataset.require_trace()
    rows, packets = dataset.manifest.rows, dataset.manifest.rows + dataset.manifest.control_rows
    beside = SideBySide(policies, decider, begin)
    arrived = arrived_bytes = 0

    def work() -> Iterator[list[Work]]:
        nonlocal arrived, arrived_bytes
        for arrivals, is_data, drop in _arrivals_with(dataset, predicted_drop.view(np.uint8)):
            yield beside.work(arrivals, drop, is_data)
            arrived += len(arrivals)
            arrived_bytes += int(arrivals["size_bytes"][is_data].sum(dtype=np.int64))
            if report is not None:
                report(arrived / packets)

    in_threads(work(), threads)
    return Comparison(**beside.finish("bytes"), arrivals=rows, arrived_bytes=arrived_bytes)


Contender = tuple[str, NetworkParameters | None, Scorer | None]
"""A policy, its parameters and the scorer that it asks; None where there is none."""


def bytes_sent(dataset: Dataset, contenders: Sequence[Contender]) -> list[int]:
    """Return the data bytes that policies send of a trace with its control packets, in one pass over it."""
    dataset.require_trace()
    if not contenders:
        return []
    replays = [
        replay_over(policy, dataset, parameters=parameters, scorer=scorer) for policy, parameters, scorer in contenders
    ]
    return sent_in_one_pass(replays, dataset.arrivals(), "bytes")


def _arrivals_with(
    dataset: Dataset, of_rows: NDArray[np.uint8]
) -> Iterator[tuple[Records, NDArray[np.bool_], NDArray[np.uint8]]]:
    """Yield the arrivals of a trace, which of them are labelled rows, and a value for each of them.

    A row has its value in `of_rows`, a control packet 0. ForetailError unless there is a value for each row.
    """
    if len(of_rows) != dataset.manifest.rows:
        raise ForetailError(f"{len(of_rows)} predictions do not fit the {dataset.manifest.rows} rows of {dataset.path}")
    row = 0
    for arrivals in dataset.arrivals():
        is_data = arrivals["flow_class"] != FlowClass.CONTROL
        rows = int(np.count_nonzero(is_data))
        values = np.zeros(len(arrivals), of_rows.dtype)
        values[is_data] = of_rows[row : row + rows]
        row += rows
        yield arrivals, is_data, values


def replay_over(
    policy: str, dataset: Dataset, *, parameters: NetworkParameters | None = None, scorer: Scorer | None = None
) -> RunReplay:
    """Return a replay of `policy` to be fed with the arrivals of a dataset, which knows its pauses; see replay_of."""
    return replay_of(policy, dataset.manifest, pauses=dataset.pauses(), parameters=parameters, scorer=scorer)


def replay_of(
    policy: str,
    run: Run,
    *,
    pauses: Records | None = None,
    features: bool | Sequence[str] = False,
    parameters: NetworkParameters | None = None,
    scorer: Scorer | None = None,
) -> RunReplay:
    """Return a replay of `policy` on the switches and queues of `run`, to be fed with arrivals of that run in order.

    Parameters
    ----------
    policy : a name of ``POLICIES``, or a policy from outside
    run : switches, rules, seed and the arithmetic of features
    pauses : records of PAUSE_DTYPE, of a run with lossless queues: its ports stop and go on as they did in the run.
        Senders send as in the run, whatever the policy says, and lossless packets are always kept
    features : also compute labels, and all features or those of these names; columns of others are 0
    parameters : of policies
    scorer : answers in the place of predictions, from what the switch of the replay shows it
    """
    queues = queues_of(run)
    replay = Replay(
        native_policy(policy),
        [(s.buffer_bytes, list(s.port_rates_bps)) for s in run.switches],
        wire_overhead_bytes=run.scenario["topology"]["wire_overhead_bytes"],
        cell_bytes=0 if scorer is None and not features and policy not in TAKE_RULES else run.cell_bytes,
        voqs=voqs_of(run),
        pauses=None if run.lossless is None else _native_pauses(run.lossless),
        features=features,
        scorer=scorer,
        seed=run.seed,
        average_shift=run.average_shift,
        queues=queues.count,
        scheduler=queues.scheduler,
        quanta=queues.quanta,
        **vars(run.rules),
        **vars(parameters or NetworkParameters()),
    )
    if run.lossless is not None:
        if pauses is None:
            raise ValueError("a replay of lossless queues needs the pauses of the run")
        columns = (np.ascontiguousarray(pauses[name]) for name in ("time_ns", "switch", "port", "priority", "paused"))
        replay.expect_pauses(*columns)
    return RunReplay(replay, queues)


def _native_pauses(lossless: LosslessQueues) -> tuple[Any, ...]:
    return (
        list(lossless.queues),
        lossless.alpha,
        lossless.xon_bytes,
        lossless.xon_offset_bytes,
        lossless.makes_room,
        list(lossless.headroom_bytes),
    )


def message_left(arrivals: Records) -> NDArray[np.uint8]:
    """Cells of its message that come after each packet, as its tag says it: uint8 [rows]."""
    if "message_left" in (arrivals.dtype.names or ()):
        return np.ascontiguousarray(arrivals["message_left"])
    return arrivals["features"][:, MESSAGE_LEFT].astype(np.uint8)


def shadow_of(run: Run, pauses: Records | None = None) -> RunReplay:
    """Return the replay that :func:`shadow_credence` takes; `pauses` as of :func:`replay_of`."""
    thresholds = ("threshold", "thresholds_sum", "threshold_max")  # which are compared with those of the trace
    return replay_of("credence", run, pauses=pauses, features=(*REAL_FEATURES, *thresholds))


def shadow_credence(shadow: RunReplay, records: Records) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The real features on the queues of a Credence that is told the true labels, and whether it asked.

    ForetailError if the replay does not reproduce the thresholds of the next `records`.
    """
    return shadow.native.feed_trace(records.view(np.uint8), len(REAL_FEATURES), shadow.queues.of_class)
