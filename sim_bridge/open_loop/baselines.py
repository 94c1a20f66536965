"""Policies without a predictor, each with the setting that sends most on given runs: what a prediction has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.open_loop import scores
from foretail.sim_bridge.open_loop.replay import Contender, bytes_sent, queues_of
from foretail.sim_bridge.policies import KNOW_PRIORITIES, POLICIES
from foretail.sim_bridge.policy_settings import NetworkParameters

ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Alphas of a threshold that are tried."""


@dataclass(frozen=True)
class Baseline:
    """A policy with its setting.

    Examples
    --------
    >>> from foretail.sim_bridge.open_loop.baselines import Baseline
    >>> str(Baseline("dt", 16.0)), str(Baseline("cs"))
    ('DT, alpha 16', 'CS')
    """

    policy: str  #: a name of ``POLICIES``
    alpha: float | None = None  #: of its threshold; None where it has none

    @property
    def contender(self) -> Contender:
        """The policy as :func:`~foretail.sim_bridge.open_loop.replay.bytes_sent` takes it."""
        return self.policy, NetworkParameters() if self.alpha is None else NetworkParameters(alpha=self.alpha), None

    def __str__(self) -> str:
        return POLICIES[self.policy].title + ("" if self.alpha is None else f", alpha {self.alpha:g}")


CANDIDATES = (
    *(Baseline(policy, alpha) for policy in ("dt", "abm") for alpha in ALPHAS),
    Baseline("harmonic"),
    Baseline("cs"),
)


_TUNED: dict[frozenset[str], tuple[Baseline, ...]] = {}
"""Tuned baselines by the content hashes of the datasets."""


def tuned(datasets: Sequence[Dataset]) -> tuple[Baseline, ...]:
    """Return each policy of ``CANDIDATES`` with the setting that sends most on the datasets, the best policy first.

    A process tunes once for the same rows, whatever is trained on them.
    """
    rows = frozenset(dataset.manifest.content_sha256 for dataset in datasets)
    if rows not in _TUNED:
        candidates = candidates_for(max(queues_of(dataset.manifest).count for dataset in datasets))
        sent = sent_by(candidates, datasets)
        _TUNED[rows] = tuple(candidates[place] for place in best_of(candidates, sent))
    return _TUNED[rows]


def candidates_for(queues: int) -> tuple[Baseline, ...]:
    """Return the baselines that ports with so many queues can have."""
    return tuple(one for one in CANDIDATES if queues == 1 or one.policy in KNOW_PRIORITIES)


def best_of(candidates: Sequence[Baseline], sent: Sequence[int]) -> list[int]:
    """Return the place of the setting that sends most, for each policy, the best policy first."""
    best: dict[str, int] = {}
    for place, one in enumerate(candidates):
        if one.policy not in best or sent[place] > sent[best[one.policy]]:
            best[one.policy] = place
    return sorted(best.values(), key=lambda place: -sent[place])


def sent_by(baselines: Sequence[Baseline], datasets: Sequence[Dataset]) -> list[int]:
    """Return the bytes that each baseline sends of all datasets."""
    contenders = [one.contender for one in baselines]
    return [sum(sent) for sent in zip(*(bytes_sent(dataset, contenders) for dataset in datasets), strict=True)]


def worth_of(baselines: Sequence[Baseline], sent: Sequence[int], lqd: int, accept: int) -> list[dict[str, Any]]:
    """Return what each baseline sends beside LQD and always accepting, JSON-like."""
    return [
        {
            **asdict(one),
            "title": str(one),
            "sent": count,
            "recovered_loss": scores.recovered_loss(lqd, count, accept),
            "sent_percent_of_lqd": scores.sent_percent_of_lqd(count, lqd),
        }
        for one, count in zip(baselines, sent, strict=True)
    ]
