"""Packets sent as the aim: what a threshold is worth when the predictor decides in the validation runs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from foretail.core.errors import ForetailError
from foretail.features.rows.splits import Side
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.operating_point import ThresholdWorth
from foretail.pipelines.exporting.deciding import asked_model, decider_of
from foretail.pipelines.exporting.network import NetworkInC
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge.open_loop.replay import bytes_sent
from foretail.sim_bridge.open_loop.scores import Decider

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


def require_runs(side: Side, setting: str) -> None:
    """Raise ForetailError unless a side holds whole traces, which alone can be replayed."""
    for selection in side:
        if selection.where is not None or not selection.dataset.is_trace:
            what = "here are rows of a run alone" if selection.where is not None else "the dataset is no trace"
            raise ForetailError(
                f"{setting} replays whole runs, and {what} ({selection.dataset.path}): give three runs or more and "
                "split them by run, or leave the setting out"
            )


def sent_with(model: Ensemble | Network, side: Side, store: Store, setting: str) -> ThresholdWorth:
    """Return the data bytes that Credence sends of a side while a model decides, by the model's threshold.

    `side` holds whole traces, and `setting` names it in errors. ForetailError unless the model can decide in a replay.
    """
    require_runs(side, setting)
    predictor = asked_model(model, store)

    def decider(threshold: Fraction) -> Decider:
        if isinstance(predictor, Ensemble):
            return decider_of(predictor.with_threshold(threshold))
        if isinstance(predictor, NetworkInC):
            return Decider(decider_of(predictor).policy, predictor.scorer(float(threshold)))
        return decider_of(predictor.with_threshold(float(threshold)))

    def worth(thresholds: Sequence[Fraction]) -> list[float]:
        deciders = [decider(threshold) for threshold in thresholds]
        if any(one.scorer is None for one in deciders):
            unknown = ", ".join(item.name for item in predictor.features)
            raise ForetailError(f"{setting} lets the predictor decide in a replay, which does not compute {unknown}")
        contenders = [(one.policy, None, one.scorer) for one in deciders]
        sent = [bytes_sent(selection.dataset, contenders) for selection in side]
        return [float(sum(of_one)) for of_one in zip(*sent, strict=True)]

    return worth
