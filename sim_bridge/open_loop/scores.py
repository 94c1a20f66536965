"""Policies side by side over the same arrivals, open loop, and scores of predictions from what they send.

Counts are of packets in slots, and of bytes in recorded runs.

The recovered loss and the share of LQD's packets judge what a switch sends while the predictor decides in it. The error
eta (Credence, NSDI'24, Definition 1) judges labels: FollowLQD runs without the packets that are predicted to drop, one
prediction per packet, made beforehand on the queues of a policy that knows the truth. Eta can be 1 while the switch
sends 5.7 to 21 % of what LQD sends (``docs/reports/theory.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from foretail.core.summary import Summarised
from foretail.features.records import Outcome
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.policies import POLICIES, may_ask, policy_name

SENT = "sent, % of LQD"
"""Name in tables of :func:`sent_percent_of_lqd`."""
SENT_SCORES = ("recovered_loss", "sent_percent_of_lqd")
"""Names of the scores of what is sent, in results and MLflow."""


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


@dataclass(frozen=True, repr=False)
class SentScores(Summarised):
    """Packets or bytes that are sent of the same arrivals, and what they say of predictions."""

    also = ("eta", "recovered_loss", "sent_percent_of_lqd")

    lqd: int  #: by LQD
    followlqd: int  #: by FollowLQD without the packets that are predicted to drop
    accept: int  #: by FollowLQD on all packets, which is what an always-accept predictor gives
    sent: int | None  #: by the policy that asks the predictor, which decides meanwhile; None where nobody can say

    @property
    def eta(self) -> float | None:
        """Prediction error (Credence, Definition 1): LQD over FollowLQD without the predicted drops."""
        return self.lqd / self.followlqd if self.followlqd else None

    @property
    def recovered_loss(self) -> float | None:
        """Share of what always accepting loses against LQD that is sent after all; None if it loses nothing."""
        return None if self.sent is None else recovered_loss(self.lqd, self.sent, self.accept)

    @property
    def sent_percent_of_lqd(self) -> float | None:
        """Packets or bytes that are sent, in % of LQD's."""
        return None if self.sent is None else sent_percent_of_lqd(self.sent, self.lqd)

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Add up several runs."""
        return cls(**{one.name: _sum([getattr(part, one.name) for part in parts]) for one in fields(cls)})


def _sum(counts: Sequence[Any]) -> Any:
    """The sum of counts, by key where they have keys; None where one is not known."""
    if any(count is None for count in counts):
        return None
    if isinstance(counts[0], Mapping):
        return {key: _sum([count[key] for count in counts]) for key in counts[0]}
    return reduce(add, counts)


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

    def __add__(self, other: Questions) -> Questions:
        return Questions(self.asked + other.asked, self.predicted_drops + other.predicted_drops)


ASKED = {"asked": "asked", "predicted_drops": "predicted drops"}
"""Questions in tables: the title of each count."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Comparison(SentScores):
    """Results of policies on the same arrivals; of a recorded run only its data is counted, all switches together.

    The scores are those of packets, or of bytes where packets have sizes.
    """

    sent: int
    arrivals: int  #: packets that arrived
    transmitted: dict[str, int]  #: packets that every policy sent, LQD always among them
    questions: dict[str, Questions]  #: of the policies that may ask
    arrived_bytes: int | None = None  #: their bytes; None where all packets are equal
    transmitted_bytes: dict[str, int] | None = None  #: likewise
    optimum: int | None = None  #: the most packets that any policy could send, if that was computed
    #: of a policy that decides by one rule at a time, the slots from which on each does, and its place among the rules
    turns: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def scores(self) -> SentScores:
        """The scores alone."""
        return SentScores(self.lqd, self.followlqd, self.accept, self.sent)

    @property
    def unit(self) -> str:
        """Unit of the scores."""
        return "packets" if self.transmitted_bytes is None else "bytes"

    @property
    def scored(self) -> Mapping[str, int]:
        """Packets, or bytes where packets have sizes, that every policy sent."""
        return self.transmitted if self.transmitted_bytes is None else self.transmitted_bytes

    def ratio_to_lqd(self, policy: str) -> float | None:
        """Return what a policy sends over what LQD sends."""
        return self.scored[policy] / self.lqd if self.lqd else None


Work = Callable[[], object]


class PolicyRun(Protocol):
    """A run of a policy. It takes arrivals in batches, with a prediction for each (1 = drop) or none."""

    def feed(self, arrivals: Any, predictions: NDArray[np.uint8] | None = None, /) -> Mapping[str, NDArray[Any]]: ...

    def finish(self) -> Mapping[str, Any]: ...


class SideBySide:
    """Policies over the same arrivals, and the questions of those that ask.

    Parameters
    ----------
    policies : names of ``POLICIES``, each once, and policies from outside
    decider : whom policies ask and which of them is judged; by default Credence, which is told the predictions
    begin : begins a run of a policy, with the scorer that it asks
    """

    def __init__(
        self, policies: Sequence[str], decider: Decider | None, begin: Callable[[str, Scorer | None], PolicyRun]
    ) -> None:
        shown = (*policies, *(() if decider is None else (decider.policy,)))
        self._shown = dict.fromkeys((*map(policy_name, shown), "lqd"))
        self._decider = decider or Decider("credence")
        self.runs = {  #: by policy
            policy_name(policy): begin(policy, self._decider.scorer if may_ask(policy) else None)
            for policy in dict.fromkeys((*policies, self._decider.policy, "lqd", "followlqd"))
        }
        self.questions = {policy: Questions() for policy in self.runs if may_ask(policy)}
        self._without_drops = begin("followlqd", None)

    def work(self, arrivals: Any, drop: NDArray[np.uint8], judged: Any = slice(None)) -> list[Work]:
        """Return the work on the next arrivals, to be done in any order.

        `drop`: uint8[n], the prediction for each. Questions are counted about the arrivals `judged`.
        """
        feeding = [partial(self._feed, policy, arrivals, drop, judged) for policy in self.runs]
        return [partial(self._without_drops.feed, arrivals[drop == 0]), *feeding]

    def _feed(self, policy: str, arrivals: Any, drop: NDArray[np.uint8], judged: Any) -> None:
        asks = policy in self.questions
        seen = self.runs[policy].feed(arrivals, drop if asks else None)
        if asks:
            answers = drop if self._decider.scorer is None else (seen["outcome"] == Outcome.PREDICTED).view(np.uint8)
            asked, answers = seen["asked"][judged], answers[judged]
            self.questions[policy] += Questions(int(np.count_nonzero(asked)), int(np.count_nonzero(asked & answers)))

    def finish(self, unit: str, **elsewhere: Mapping[str, Any]) -> dict[str, Any]:
        """Send what is still queued; return the fields of :class:`Comparison`, without those of what arrived.

        `unit` of the scores is packets or bytes; `elsewhere` has what policies sent whose runs are not among these.
        """
        finished = {**{policy: run.finish() for policy, run in self.runs.items()}, **elsewhere}
        scored = {policy: totals[f"transmitted_{unit}"] for policy, totals in finished.items()}
        return {
            "lqd": scored["lqd"],
            "followlqd": self._without_drops.finish()[f"transmitted_{unit}"],
            "accept": scored["followlqd"],
            "sent": scored[self._decider.policy],
            "transmitted": {policy: finished[policy]["transmitted_packets"] for policy in self._shown},
            "transmitted_bytes": {policy: scored[policy] for policy in self._shown} if unit == "bytes" else None,
            "questions": self.questions,
            "turns": {policy: totals["turns"] for policy, totals in finished.items() if totals.get("turns")},
        }


def in_threads(batches: Iterable[Iterable[Work]], threads: int) -> None:
    """Do the work on every batch, on so many threads; the next batch is made meanwhile."""
    with ThreadPoolExecutor(threads) as pool:
        at_work: list[Future[object]] = []
        for batch in chain(batches, [()]):
            for done in at_work:
                done.result()
            at_work = [pool.submit(work) for work in batch]


def sent_in_one_pass(runs: Sequence[PolicyRun], batches: Iterable[Any], unit: str) -> list[int]:
    """Return the packets or bytes, as `unit` says, that each run sends, which asks nobody."""
    in_threads(([partial(run.feed, batch) for run in runs] for batch in batches), 2)
    return [run.finish()[f"transmitted_{unit}"] for run in runs]
