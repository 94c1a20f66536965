"""Sentences at the end of a command about a zero that would else look like a result."""

from __future__ import annotations

from collections.abc import Mapping

from foretail.models.scoring.metrics import Score, predicted_drops_of
from foretail.pipelines.runs.notes import say

ANSWERS = {True: "drops every packet", False: "never drops"}


def say_if_silent(whose: str, where: str, scores: Mapping[str, Score]) -> None:
    """Say that a model predicts no drop, if its scores are so, on rows such as ``the test side``, named by `where`."""
    if scores["rows"] and not predicted_drops_of(scores):
        say(
            f"{whose} never drops on the {scores['rows']:,} rows of {where}, so it does what always accepting does: "
            "lower its threshold, or train on more drops"
        )


def say_if_constant(whose: str, threshold: str, always: bool | None) -> None:
    """Say that a threshold lies outside of all scores, if that is so: `always` is True above it, False below, or None.

    Parameters
    ----------
    whose : the model, such as ``model a.json``
    threshold : what lies outside, such as ``its threshold`` or ``tau = 3``
    always : whether every packet is predicted to drop, or none; None where that depends on the packet
    """
    if always is not None:
        say(f"{threshold} of {whose} lies outside of all its scores, so it {ANSWERS[always]}: choose another one")


def say_if_unasked(questions: Mapping[str, tuple[int, int]]) -> None:
    """Say which policies never asked their predictor or were never told to drop, from asked and predicted drops."""
    for policy, (packets, predicted_drops) in questions.items():
        if not packets:
            say(
                f"{policy} never asked its predictor, so its figures say nothing of the predictions: give traffic that "
                "fills the buffer"
            )
        elif not predicted_drops:
            say(f"{policy} asked its predictor {packets:,} times and was never told to drop, so it always accepted")


def say_if_no_drops(drops: Mapping[int, tuple[int, int]]) -> None:
    """Say that LQD drops nothing in datasets, from rows and drops by seed: of all of them, or those named."""
    without = [seed for seed, (_, dropped) in drops.items() if not dropped]
    if not without:
        return
    rows = sum(drops[seed][0] for seed in without)
    which = "any dataset" if len(without) == len(drops) else f"the datasets of seeds {', '.join(map(str, without))}"
    say(f"LQD drops none of the {rows:,} packets of {which}, so nothing can be learned of drops there: raise the load")
