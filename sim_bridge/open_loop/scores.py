"""Scores of predictions in open loop, from counts of what is sent: in packets or in bytes.

The recovered loss and the share of LQD's packets judge what a switch sends while the predictor decides in it. The error
eta (Credence, NSDI'24, Definition 1) judges labels: FollowLQD runs without the packets that are predicted to drop, one
prediction per packet, made beforehand on the queues of a policy that knows the truth. Eta can be 1 while the switch
sends 5.7 to 21 % of what LQD sends (``docs/reports/theory.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.summary import Summarised
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.policies import POLICIES

SENT = "sent, % of LQD"
"""Name in tables of :func:`sent_percent_of_lqd`."""
SENT_SCORES = ("recovered_loss", "sent_percent_of_lqd")
"""Names of the scores of what is sent, in results and MLflow."""


def prediction_error(lqd: int, followlqd: int) -> float | None:
    """The error eta, LQD over FollowLQD without the predicted drops; None when that sends nothing."""
    return lqd / followlqd if followlqd else None


def recovered_loss(lqd: int, sent: int, accept: int) -> float | None:
    """Share of what always accepting loses against LQD that is sent after all; None if it loses nothing."""
    lost = lqd - accept
    return (sent - accept) / lost if lost else None


def sent_percent_of_lqd(sent: int, lqd: int) -> float | None:
    """Return what a policy sends, in % of what LQD sends; None when that sends nothing."""
    return 100 * sent / lqd if lqd else None


LARGEST_SHARE = 100
"""A recovered loss beyond it, either way, is a share of next to nothing."""


def shown_share(recovered: float | None) -> float | None:
    """Return a recovered loss for a table: rounded, and None for a share of next to nothing."""
    return None if recovered is None or abs(recovered) > LARGEST_SHARE else round(recovered, 4) + 0.0


LEAST_GAIN_PERCENT = 0.005
"""A smaller difference of what two policies send, in % of LQD's, is none."""


def worth_in_words(
    recovered: float | None,
    sent_percent: float | None,
    baselines: Sequence[Mapping[str, Any]] = (),
    chosen_on: str = "the runs that trained the model",
    policy: str = "credence",
    decides: bool = True,
) -> str:
    """The packets that `policy` sends with a predictor, and those of the best of the tuned baselines.

    `decides`: the predictor decides in the switch; else its predictions were made beforehand.
    """
    if sent_percent is None:
        return "LQD sends nothing there, so nothing can be compared."
    has_share = shown_share(recovered) is not None
    title = POLICIES[policy].title
    who = f"Deciding in the switch, under {title}, the predictor" if decides else f"{title} with these predictions"
    worth = f"{who} sends {sent_percent:.4g} % of what LQD sends"
    if has_share and recovered is not None and recovered >= 0:
        worth += f" and recovers {100 * recovered:.3g} % of what always accepting loses against it"
    elif has_share:
        worth += ", less than always accepting"
    elif recovered is None:
        worth += "; always accepting loses nothing there, so there is nothing to recover"
    if not baselines:
        return f"{worth}."
    best = baselines[0]
    gain = sent_percent - best["sent_percent_of_lqd"]
    if abs(gain) < LEAST_GAIN_PERCENT:
        verdict = "the predictor is worth nothing there"
    elif gain > 0:
        verdict = f"the predictor gains {gain:.2g} % of LQD's packets"
    else:
        verdict = f"the predictor loses {-gain:.2g} % of LQD's packets: take {best['title']}"
    return (
        f"{worth}. {best['title']}, chosen without a predictor on {chosen_on}, sends "
        f"{best['sent_percent_of_lqd']:.4g} %: {verdict}."
    )


class SentScores(Summarised):
    """A result with the error eta of predictions, and the scores of what is sent while a predictor decides."""

    also = ("eta", "recovered_loss", "sent_percent_of_lqd")

    @property
    def counts(self) -> tuple[int, int, int, int | None]:
        """Sent by LQD, FollowLQD without the predicted drops, FollowLQD, and the policy that asks; None if unknown."""
        raise NotImplementedError

    @property
    def eta(self) -> float | None:
        """Prediction error (Credence, Definition 1): LQD over FollowLQD without the predicted drops."""
        lqd, followlqd, _, _ = self.counts
        return prediction_error(lqd, followlqd)

    @property
    def recovered_loss(self) -> float | None:
        """Share of what always accepting loses against LQD that is sent after all; None if it loses nothing."""
        lqd, _, accept, sent = self.counts
        return None if sent is None else recovered_loss(lqd, sent, accept)

    @property
    def sent_percent_of_lqd(self) -> float | None:
        """Packets or bytes that are sent, in % of LQD's."""
        lqd, _, _, sent = self.counts
        return None if sent is None else sent_percent_of_lqd(sent, lqd)


@dataclass(frozen=True, eq=False)
class Decider:
    """A predictor that decides while a policy runs."""

    policy: str  #: name of the policy that asks it
    #: None where no answer changes what the predictor reads, so that its answers to recorded rows are those that it
    #: gives in a switch
    scorer: Scorer | None = None


@dataclass(frozen=True)
class Questions:
    """Questions of a policy to its predictor."""

    asked: int = 0  #: packets about which it asked
    predicted_drops: int = 0  #: those of them that it was told to drop

    def and_more(self, asked: NDArray[np.uint8], answers: NDArray[np.uint8]) -> Questions:
        """These and those of more packets: whether it asked about each, and what it was or would have been told."""
        return self + Questions(int(np.count_nonzero(asked)), int(np.count_nonzero(asked & answers)))

    def __add__(self, other: Questions) -> Questions:
        return Questions(self.asked + other.asked, self.predicted_drops + other.predicted_drops)
