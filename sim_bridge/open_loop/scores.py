"""What predictions are worth open loop: one prediction per packet, made before the replays that it is judged by.

Source: Credence (NSDI'24), Definition 1, for the prediction error. The arguments count what was sent, in packets or in
bytes: by LQD, by FollowLQD without the packets that are predicted to drop, by FollowLQD on all packets, which is what
an always-accept predictor gives, and by Credence with the predictions.

Eta and the recovered loss judge FollowLQD, never Credence. Both can be 1 while Credence sends 5.7 to 21 % of what LQD
sends (``docs/results/findings.md``), so :func:`sent_percent_of_lqd` belongs beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.policies import POLICIES

SENT = "sent, % of LQD"
"""How tables call :func:`sent_percent_of_lqd`."""


def prediction_error(lqd: int, followlqd: int) -> float | None:
    """The error eta, LQD over FollowLQD without the predicted drops; None when that sends nothing."""
    return lqd / followlqd if followlqd else None


def recovered_loss(lqd: int, followlqd: int, accept: int) -> float | None:
    """Share of what always accepting loses against LQD that the predictions win back; None if it loses nothing."""
    lost = lqd - accept
    return (followlqd - accept) / lost if lost else None


def sent_percent_of_lqd(credence: int, lqd: int) -> float | None:
    """What Credence sends with the predictions, in % of what LQD sends; None when that sends nothing."""
    return 100 * credence / lqd if lqd else None


LARGEST_SHARE = 100
"""A recovered loss beyond it, either way, is a share of next to nothing."""


def worth_in_words(
    recovered: float | None,
    sent_percent: float | None,
    baselines: Sequence[Mapping[str, Any]] = (),
    chosen_on: str = "the runs that trained the model",
    policy: str | None = None,
) -> str:
    """The recovered loss and what is sent, which belong together, and the best of the tuned baselines.

    `policy`: that which sends it, where the predictor was trained to decide while that runs; None for Credence.
    """
    has_share = recovered is not None and abs(recovered) <= LARGEST_SHARE
    if recovered is None:
        recovers = "Always accepting loses nothing against LQD there, so predictions have nothing to recover"
    elif not has_share:
        recovers = "Always accepting loses next to nothing against LQD there, so a share of it says nothing"
    else:
        recovers = f"Replayed open loop, the predictions recover {100 * recovered:.3g} % of what always accepting loses"
        recovers += " against LQD" if recovered >= 0 else " against LQD, so they lose more"
    sends = "sends nothing, as LQD" if sent_percent is None else f"sends {sent_percent:.4g} % of what LQD sends"
    worth = f"{recovers}; {POLICIES[policy or 'credence'].title} with them {sends}."
    if recovered is None or not baselines:
        return worth
    best = baselines[0]
    share = f"recovers {100 * best['recovered_loss']:.3g} % and " if has_share else ""
    beside = (
        f"{worth} {best['title']}, chosen without a predictor on {chosen_on}, {share}sends "
        f"{best['sent_percent_of_lqd']:.4g} %"
    )
    if sent_percent is None or policy is None:
        return f"{beside}."
    more = sent_percent - best["sent_percent_of_lqd"]
    return f"{beside}, so the predictor is worth {more:+.2g} % of LQD's packets there."


@dataclass(frozen=True, eq=False)
class Served:
    """A predictor that was trained to decide while a policy runs."""

    policy: str  #: that policy, which asks it
    scorer: Scorer


@dataclass(frozen=True)
class Questions:
    """What a policy asked its predictor."""

    asked: int = 0  #: packets about which it asked
    predicted_drops: int = 0  #: those of them that it was told to drop

    def and_more(self, asked: NDArray[np.uint8], told: NDArray[np.uint8]) -> Questions:
        """These and those of more packets: whether it asked about each, and what it was or would have been told."""
        return self + Questions(int(np.count_nonzero(asked)), int(np.count_nonzero(asked & told)))

    def __add__(self, other: Questions) -> Questions:
        return Questions(self.asked + other.asked, self.predicted_drops + other.predicted_drops)
