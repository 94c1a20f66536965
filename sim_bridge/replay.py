"""What predictions are worth, by replaying recorded arrivals open loop: prediction error eta and recovered loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.features.dataset import Dataset
from foretail.features.errors import ForetailError
from foretail.features.manifest import Run
from foretail.features.records import FlowClass, Records
from foretail.sim_bridge._native import Replay


@dataclass(frozen=True)
class ReplayScores:
    """Data bytes sent by three replays of one trace, all switches together.

    Attributes
    ----------
    lqd_bytes : int
        By LQD.
    followlqd_bytes : int
        By FollowLQD without the packets that are predicted to drop.
    accept_bytes : int
        By FollowLQD on all packets, which is what an always-accept predictor gives.
    """

    lqd_bytes: int
    followlqd_bytes: int
    accept_bytes: int

    @property
    def eta(self) -> float | None:
        """Prediction error in bytes (Credence, Definition 1): LQD over FollowLQD without the predicted drops."""
        return self.lqd_bytes / self.followlqd_bytes if self.followlqd_bytes else None

    @property
    def recovered_loss(self) -> float | None:
        """Share of what always accepting loses against LQD that the predictions win back; None if it loses nothing."""
        lost = self.lqd_bytes - self.accept_bytes
        return (self.followlqd_bytes - self.accept_bytes) / lost if lost else None


def replay_scores(dataset: Dataset, predicted_drop: NDArray[np.bool_]) -> ReplayScores:
    """Replay a dataset under LQD and FollowLQD with one prediction per labelled row.

    Parameters
    ----------
    dataset : Dataset
        A trace with its control packets, which share the buffer.
    predicted_drop : (rows,) bool array
        For every labelled row, in order.

    Raises
    ------
    ForetailError
        If the number of predictions is not the number of rows.
    """
    dataset.require_trace()
    manifest = dataset.manifest
    if len(predicted_drop) != manifest.rows:
        raise ForetailError(f"{len(predicted_drop)} predictions do not fit the {manifest.rows} rows of {dataset.path}")
    lqd, follow, accept = (replay_of(policy, manifest) for policy in ("lqd", "followlqd", "followlqd"))
    row = 0
    for arrivals in dataset.arrivals():
        is_data = arrivals["flow_class"] != FlowClass.CONTROL
        kept = np.ones(len(arrivals), np.bool_)
        rows = int(np.count_nonzero(is_data))
        kept[is_data] = ~predicted_drop[row : row + rows]
        row += rows
        for replay, part in ((lqd, arrivals), (accept, arrivals), (follow, arrivals[kept])):
            feed(replay, part)
    sent = [replay.finish()["transmitted_bytes"] for replay in (lqd, follow, accept)]
    return ReplayScores(*sent)


def replay_of(policy: str, run: Run, *, features: bool = False) -> Replay:
    """Return a replay of `policy` on the switches of `run`, to be fed with arrivals of that run in order.

    Parameters
    ----------
    policy : {'cs', 'dt', 'abm', 'lqd', 'followlqd', 'credence'}
    run : Run
        Switches, rules, seed and the arithmetic of features.
    features : bool
        Also compute features and labels.
    """
    return Replay(
        policy,
        [(s.buffer_bytes, list(s.port_rates_bps)) for s in run.switches],
        wire_overhead_bytes=run.scenario["topology"]["wire_overhead_bytes"],
        counting=run.rules.counting,
        tie=run.rules.tie,
        victim=run.rules.victim,
        seed=run.seed,
        cell_bytes=run.cell_bytes if features else 0,
        average_shift=run.average_shift,
    )


def feed(replay: Replay, arrivals: Records, predictions: NDArray[np.uint8] | None = None) -> dict[str, NDArray[Any]]:
    """Replay the next arrivals: records of ARRIVAL_DTYPE or REPLAY_DTYPE, a prediction (1 = drop) for each or none.

    Returns
    -------
    dict
        Per arrival ``outcome``, ``asked``, ``exposed`` (uint8) and, with features, ``lqd_drop`` (uint8; 0 while the
        fate is not known at the end of the batch) and ``features`` (n, 11) int32.
    """
    return replay.feed(
        np.ascontiguousarray(arrivals["time_ns"]),
        np.ascontiguousarray(arrivals["switch"]),
        np.ascontiguousarray(arrivals["port"]),
        np.ascontiguousarray(arrivals["size_bytes"]),
        (arrivals["flow_class"] != FlowClass.CONTROL).astype(np.uint8),
        np.ascontiguousarray(arrivals["first_rtt"]),
        predictions,
    )
