"""Recovered loss as the aim: what a threshold is worth on the validation runs, and weights of rows whose mistakes cost.

Source: Credence (NSDI'24), Definition 1, which replays FollowLQD without the packets that are predicted to drop. A
mistake matters there only when packets are lost by it, which labels alone do not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import ASKED, Region
from foretail.features.rows.splits import Side
from foretail.models.scoring.operating_point import ThresholdWorth
from foretail.sim_bridge.open_loop.prediction_cost import prediction_costs
from foretail.sim_bridge.open_loop.replay import bytes_without

Model = TypeVar("Model")

FULL_PACKET_BYTES = 1500
"""Unit of a cost in a weight: a mistake that loses one full packet counts one row more."""


def require_runs(side: Side, setting: str) -> None:
    """Raise ForetailError unless a side holds whole traces, which alone can be replayed."""
    for selection in side:
        if selection.where is not None or not selection.dataset.is_trace:
            what = "here are rows of a run alone" if selection.where is not None else "the dataset is no trace"
            raise ForetailError(
                f"{setting} replays whole runs, and {what} ({selection.dataset.path}): give three runs or more and "
                "split them by run, or leave the setting out"
            )


def worth_of(side: Side, region: Region) -> ThresholdWorth:
    """Return the data bytes that FollowLQD sends of a side, by threshold; outside the region nothing is dropped.

    Parameters
    ----------
    side : whole traces
    region : {'whole', 'asked'}, where the levels are, row by row in order
    """
    counted = [_region(selection.dataset, region) for selection in side]

    def worth(level: NDArray[np.int64], least: Sequence[int]) -> list[float]:
        total, first = np.zeros(len(least)), 0
        for selection, mask in zip(side, counted, strict=True):
            rows = int(np.count_nonzero(mask))
            everywhere = np.full(len(mask), -1, np.int64)  # below every level
            everywhere[mask] = level[first : first + rows]
            first += rows
            total += bytes_without(selection.dataset, everywhere, least)
        return [float(value) for value in total]

    return worth


@dataclass(frozen=True)
class Round(Generic[Model]):
    """One training."""

    model: Model  #: at its operating point
    sent_bytes: int  #: data that FollowLQD sends of the validation runs with its predictions
    costly_rows: int  #: training rows that weigh more than one in the next round


def train_in_rounds(
    fit: Callable[[list[NDArray[np.float64]] | None], Model],
    predict: Callable[[Model, Side], list[NDArray[np.bool_]]],
    train: Side,
    validation: Side,
    rounds: int,
    window_ns: int,
) -> list[Round[Model]]:
    """Train, replay the training runs, weigh the rows whose wrong predictions cost throughput, and train again.

    The weight of a row is 1 plus the mean, over all rounds so far, of what its prediction cost in packets of 1,500
    bytes: as in DAgger, old mistakes are not forgotten when they are mended. Returns all in order; the best is that
    with the most bytes sent, of equals the first.

    Parameters
    ----------
    fit : trains on weights, one array for each run of the training side; None: every row weighs 1
    predict : whether a model predicts drop, for each run of a side: bool[rows]
    train, validation : whole traces
    rounds : at least 1; the first has no weights
    window_ns : as in :func:`prediction_costs`
    """
    found: list[Round[Model]] = []
    costs = [np.zeros(selection.dataset.manifest.rows) for selection in train]
    for number in range(rounds):
        model = fit([1 + cost / (number * FULL_PACKET_BYTES) for cost in costs] if number else None)
        sent = sum(
            bytes_without(selection.dataset, predicted.astype(np.int8), [1])[0]
            for selection, predicted in zip(validation, predict(model, validation), strict=True)
        )
        for cost, selection, predicted in zip(costs, train, predict(model, train), strict=True):
            cost += prediction_costs(selection.dataset, predicted, window_ns)
        found.append(Round(model, sent, sum(int(np.count_nonzero(cost)) for cost in costs)))
    return found


def _region(dataset: Dataset, region: Region) -> NDArray[np.bool_]:
    if region == "whole":
        return np.ones(dataset.manifest.rows, np.bool_)
    return dataset.frame([ASKED])[ASKED].to_numpy(np.bool_)
