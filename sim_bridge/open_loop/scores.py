"""What predictions are worth open loop: one prediction per packet, made before the replays that it is judged by.

Source: Credence (NSDI'24), Definition 1, for the prediction error. The arguments count what was sent, in packets or in
bytes: by LQD, by FollowLQD without the packets that are predicted to drop, and by FollowLQD on all packets, which is
what an always-accept predictor gives.
"""

from __future__ import annotations


def prediction_error(lqd: int, followlqd: int) -> float | None:
    """The error eta, LQD over FollowLQD without the predicted drops; None when that sends nothing."""
    return lqd / followlqd if followlqd else None


def recovered_loss(lqd: int, followlqd: int, accept: int) -> float | None:
    """Share of what always accepting loses against LQD that the predictions win back; None if it loses nothing."""
    lost = lqd - accept
    return (followlqd - accept) / lost if lost else None
