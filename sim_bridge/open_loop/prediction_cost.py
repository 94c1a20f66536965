"""What wrong predictions cost, shared out to the rows that they were made for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.records import Outcome, Records
from foretail.sim_bridge.open_loop.replay import RunReplay, arrivals_with, feed, replay_over


def prediction_costs(dataset: Dataset, predicted_drop: NDArray[np.bool_], window_ns: int) -> NDArray[np.float64]:
    """Return what every row's prediction cost, in bytes: float64[rows], 0 where it was right.

    `dataset` is a trace with its control packets, `predicted_drop` bool[rows]. FollowLQD is replayed without the
    predicted drops and without LQD's, which sends what LQD sends. What it sends less at a switch in a window of time is
    the loss of that window, and its wrong predictions share it alike; a window that gained has no cost. A wrong
    prediction can cost bytes in a later window, so windows should be longer than a buffer takes to drain. ForetailError
    if the number of predictions is not the number of rows, or the window is not positive.
    """
    if window_ns < 1:
        raise ForetailError(f"the window of prediction costs is {window_ns} ns: give a positive time")
    lqd_drop, window, lost = _losses(dataset, predicted_drop, window_ns)
    _, place = np.unique(window, return_inverse=True)
    wrong = predicted_drop != lqd_drop
    loss = np.maximum(np.bincount(place, lost), 0)
    mistakes = np.bincount(place, wrong)
    share = np.divide(loss, mistakes, out=np.zeros_like(loss), where=mistakes > 0)
    return np.where(wrong, share[place], 0.0)


def _losses(
    dataset: Dataset, predicted_drop: NDArray[np.bool_], window_ns: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64]]:
    """Of every row: its label, its window, and the bytes that its packet is sent less than by LQD (negative: more)."""
    manifest = dataset.manifest
    perfect, given = replay_over("followlqd", dataset), replay_over("followlqd", dataset)
    labels, windows, losses = [], [], []
    for arrivals, is_data, predicted in arrivals_with(dataset, predicted_drop, of_control=0):
        rows = arrivals[is_data]
        lqd_drop = rows["lqd_drop"] != 0
        sent = _accepted(perfect, arrivals, is_data, lqd_drop).astype(np.int8)
        sent -= _accepted(given, arrivals, is_data, predicted[is_data])
        labels.append(lqd_drop)
        windows.append((rows["time_ns"] // window_ns) * len(manifest.switches) + rows["switch"])
        losses.append(sent * rows["size_bytes"].astype(np.float64))
    return np.concatenate(labels), np.concatenate(windows), np.concatenate(losses)


def _accepted(
    replay: RunReplay, arrivals: Records, is_data: NDArray[np.bool_], drop: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Feed all arrivals but the rows to drop; whether every row was accepted."""
    is_kept = np.ones(len(arrivals), np.bool_)
    is_kept[is_data] = ~drop
    accepted = np.zeros(len(arrivals), np.bool_)
    accepted[is_kept] = feed(replay, arrivals[is_kept])["outcome"] == Outcome.ACCEPTED
    return accepted[is_data]
