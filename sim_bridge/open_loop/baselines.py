"""Policies without a predictor, each with the setting that sends most on given runs: what a prediction has to beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.open_loop import scores
from foretail.sim_bridge.open_loop.replay import data_sent, feed, queues_of, replay_of
from foretail.sim_bridge.policies import KNOW_PRIORITIES, POLICIES, NetworkParameters

ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""What is tried for the alpha of a threshold."""


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

    def __str__(self) -> str:
        return POLICIES[self.policy].title + ("" if self.alpha is None else f", alpha {self.alpha:g}")


CANDIDATES = (
    *(Baseline(policy, alpha) for policy in ("dt", "abm") for alpha in ALPHAS),
    Baseline("harmonic"),
    Baseline("cs"),
)


def bytes_sent(dataset: Dataset, baselines: Sequence[Baseline], threads: int = 2) -> list[int]:
    """Return the data bytes that each baseline sends on a trace with its control packets, in one pass over it."""
    dataset.require_trace()
    replays = [replay_of(one.policy, dataset.manifest, parameters=_parameters(one)) for one in baselines]
    with ThreadPoolExecutor(threads) as pool:
        for arrivals in dataset.arrivals():
            list(pool.map(feed, replays, [arrivals] * len(replays)))
    return [data_sent(replay).bytes for replay in replays]


def tuned(datasets: Sequence[Dataset]) -> tuple[Baseline, ...]:
    """Return each policy of ``CANDIDATES`` with the setting that sends most on the datasets, the best policy first.

    Policies that know one queue per port are left out where a port of a run has several.
    """
    several = any(queues_of(dataset.manifest).count > 1 for dataset in datasets)
    candidates = [one for one in CANDIDATES if not several or one.policy in KNOW_PRIORITIES]
    return best_of(candidates, [sum(sent) for sent in _columns(datasets, candidates)])


def best_of(candidates: Sequence[Baseline], sent: Sequence[int]) -> tuple[Baseline, ...]:
    """Return each policy with the setting that sends most, the best policy first."""
    best: dict[str, tuple[int, Baseline]] = {}
    for total, one in zip(sent, candidates, strict=True):
        if one.policy not in best or total > best[one.policy][0]:
            best[one.policy] = total, one
    return tuple(one for _, one in sorted(best.values(), key=lambda pair: -pair[0]))


def judged(
    datasets: Sequence[Dataset], baselines: Sequence[Baseline], lqd_bytes: int, accept_bytes: int
) -> list[dict[str, Any]]:
    """Return :func:`worth_of` the baselines on other datasets, in bytes."""
    return worth_of(baselines, [sum(sent) for sent in _columns(datasets, baselines)], lqd_bytes, accept_bytes)


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


def _columns(datasets: Sequence[Dataset], baselines: Sequence[Baseline]) -> Iterator[tuple[int, ...]]:
    """What each baseline sends, by dataset."""
    return zip(*(bytes_sent(dataset, baselines) for dataset in datasets), strict=True)


def _parameters(baseline: Baseline) -> NetworkParameters:
    return NetworkParameters() if baseline.alpha is None else NetworkParameters(alpha=baseline.alpha)
