"""Bootstrap intervals of percentiles over flows that several policies were offered alike.

Flows of a seed are not independent: those that start together meet the same queues. So whole blocks of time are drawn,
not flows, in two stages (Davison and Hinkley, Bootstrap Methods, section 3.8): seeds with replacement, then in each
drawn seed its blocks with replacement, each with all of its flows. A draw takes the same seeds and blocks under every
policy, which pairs them. Its figure is the mean over its seeds, as the figure itself is the mean over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.pipelines.comparison.statistics import FLOW_GROUPS, PERCENTILES, PairedDifference, flow_groups
from foretail.sim_bridge.packets.cost import slowdowns

DRAWS = 1000
BLOCK_NS = 1_000_000
CONFIDENCE = 0.95
CHUNK = 256
"""Flows of neighbouring slowdowns whose weights are summed first: only the chunk of a percentile is looked through."""

Array = NDArray[np.float64]

FLOW_METRICS = tuple(
    f"{figure}.{group}"
    for group in (*FLOW_GROUPS, "all")
    for figure in (*(f"p{percentile:g}" for percentile in PERCENTILES), "timed_out_percent")
)
"""Percentiles of slowdown and the share of flows with a timeout, per class of flows."""


@dataclass(frozen=True, eq=False)
class FlowSample:
    """The flows of a run, in the order in which they were offered."""

    start_ns: NDArray[np.int64]  #: int64, start of each flow
    slowdown: Array  #: float64, unfinished flows with their age at the end
    timed_out: NDArray[np.bool_]  #: bool, at least one retransmission timeout
    groups: Mapping[str, NDArray[np.bool_]]  #: masks of the classes, by name
    scalars: Mapping[str, float | None]  #: figures of the run as a whole, which only the draw of seeds varies

    @classmethod
    def of(cls, flows: NDArray[np.void], end_ns: int, scalars: Mapping[str, float | None]) -> FlowSample:
        """From the driver's records of flows."""
        return cls(
            start_ns=flows["start_ns"].astype(np.int64),
            slowdown=slowdowns(flows, end_ns),
            timed_out=flows["timeouts"] > 0,
            groups=flow_groups(flows),
            scalars=scalars,
        )


@dataclass(frozen=True, eq=False)
class Resampled:
    """Figures of every policy under one condition."""

    #: float64 array of shape (1 + draws, metrics) by policy; row 0 is the sample itself, NaN has no value
    policies: Mapping[str, Array]
    metrics: tuple[str, ...]  #: names of the columns
    seeds: tuple[int, ...]  #: of the runs

    def values(self, policy: str, metric: str) -> Array:
        """The figure and its draws."""
        return self.policies[policy][:, self.metrics.index(metric)]

    def figure(self, policy: str, metric: str) -> PairedDifference:
        """The figure with its interval."""
        return interval(self.values(policy, metric), len(self.seeds))

    def difference(self, policy: str, baseline: str, metric: str) -> PairedDifference:
        """Policy minus baseline."""
        return interval(self.values(policy, metric) - self.values(baseline, metric), len(self.seeds))

    def change_percent(self, policy: str, baseline: str, metric: str) -> Array:
        """By how many percent the policy's figure is above the baseline's, and its draws."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.values(policy, metric) / self.values(baseline, metric)
        return np.where(np.isfinite(ratio), 100 * (ratio - 1), np.nan)


def interval(values: Array, seeds: int) -> PairedDifference:
    """Percentile interval of draws ``values[1:]`` around ``values[0]``; none when half of them have no value."""
    mean = None if np.isnan(values[0]) else float(values[0])
    draws = values[1:][~np.isnan(values[1:])]
    if mean is None or 2 * len(draws) <= len(values):
        return PairedDifference(mean, None, None, seeds)
    low, high = np.quantile(draws, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return PairedDifference(mean, float(low), float(high), seeds)


def resample(samples: Mapping[str, Mapping[int, FlowSample]], seed: int, draws: int = DRAWS) -> Resampled:
    """Draw `draws` times from the flows of every policy.

    Returns ``FLOW_METRICS`` and the scalars of the samples, in percent or as slowdown.

    Parameters
    ----------
    samples : by policy and traffic seed; the same seeds under every policy, and on a seed the same flows
    seed : of the draws
    draws : how many
    """
    first = next(iter(samples.values()))
    seeds, scalars = tuple(first), tuple(next(iter(first.values())).scalars)
    metrics = (*FLOW_METRICS, *scalars)
    random = np.random.default_rng(seed)
    chosen = random.integers(len(seeds), size=(draws, len(seeds)))
    whole = {policy: np.zeros((1 + draws, len(metrics))) for policy in samples}
    for place, traffic in enumerate(seeds):
        block = np.unique(first[traffic].start_ns // BLOCK_NS, return_inverse=True)[1]
        blocks = int(block.max(initial=-1)) + 1
        rows = np.flatnonzero((chosen == place).ravel()) // len(seeds)  # the draws that have this seed, once each time
        counts = random.multinomial(blocks, np.full(blocks, 1 / max(blocks, 1)), size=len(rows))
        counts = np.vstack([np.ones((1, blocks), dtype=np.int64), counts])
        for policy, runs in samples.items():
            sample = runs[traffic]
            of_flows = np.concatenate(list(_figures(sample, block, counts)), axis=1)
            fixed = np.array([_or_nan(sample.scalars[name]) for name in scalars])
            columns = np.hstack([of_flows, np.broadcast_to(fixed, (len(counts), len(scalars)))])
            whole[policy][0] += columns[0] / len(seeds)
            np.add.at(whole[policy], 1 + rows, columns[1:] / len(seeds))
    return Resampled(whole, metrics, seeds)


def _figures(sample: FlowSample, block: NDArray[np.intp], counts: NDArray[np.int64]) -> Iterator[Array]:
    """Columns of ``FLOW_METRICS`` for every row of `counts`, which says how often each block was drawn."""
    for group in (*FLOW_GROUPS, "all"):
        mask = sample.groups[group]
        order = np.argsort(sample.slowdown[mask], kind="stable")
        yield _weighted(sample.slowdown[mask][order], sample.timed_out[mask][order], block[mask][order], counts)


def _weighted(
    slowdown: Array, timed_out: NDArray[np.bool_], block: NDArray[np.intp], counts: NDArray[np.int64]
) -> Array:
    """Percentiles of the ascending `slowdown`, each as often as its block was drawn, and the percentage timed out.

    The percentiles are NumPy's linear ones of the repeated values. `counts` has shape (rows, blocks).
    """
    percentiles = np.full((len(counts), len(PERCENTILES) + 1), np.nan)
    if not len(slowdown):
        return percentiles
    blocks, chunks = counts.shape[1], -(-len(slowdown) // CHUNK)
    flows = np.bincount(block * chunks + np.arange(len(block)) // CHUNK, minlength=blocks * chunks)
    drawn = counts.astype(np.float64)  # whole numbers, which a float64 holds exactly
    upto = np.cumsum(drawn @ flows.reshape(blocks, chunks).astype(np.float64), axis=1)
    total = upto[:, -1]
    last = np.maximum(total - 1, 0)
    for column, percentile in enumerate(PERCENTILES):
        position = last * (percentile / 100)
        low = np.floor(position)
        ends = [slowdown[_nth(which, upto, block, counts)] for which in (low, np.minimum(low + 1, last))]
        percentiles[:, column] = ends[0] + (ends[1] - ends[0]) * (position - low)
    timeouts = np.bincount(block, weights=timed_out, minlength=blocks)
    percentiles[:, -1] = 100 * (drawn @ timeouts) / np.maximum(total, 1)
    percentiles[total == 0] = np.nan
    return percentiles


def _nth(which: Array, upto: Array, block: NDArray[np.intp], counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Index of the flow that holds the ``which``-th of the repeated values, per row.

    `upto` has the repeated values to the end of each chunk.
    """
    rows, chunks = np.arange(len(counts)), upto.shape[1]
    chunk = np.minimum((upto <= which[:, np.newaxis]).sum(axis=1), chunks - 1)  # rows without weight: any flow
    before = np.where(chunk > 0, upto[rows, chunk - 1], 0)
    flow = chunk[:, np.newaxis] * CHUNK + np.arange(CHUNK)
    inside = np.cumsum(counts[rows[:, np.newaxis], block[np.minimum(flow, len(block) - 1)]], axis=1)
    passed = (before[:, np.newaxis] + inside <= which[:, np.newaxis]).sum(axis=1)
    return np.asarray(np.minimum(chunk * CHUNK + passed, len(block) - 1), dtype=np.intp)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def mean_over_groups(groups: Sequence[Array], draws: int = 10_000, seed: int = 0) -> PairedDifference:
    """The mean of the groups' means, its interval from groups drawn with replacement; `pairs` counts groups."""
    means = np.array([group.mean() for group in groups])
    drawn = np.random.default_rng(seed).integers(len(means), size=(draws, len(means)))
    return interval(np.concatenate([[means.mean()], means[drawn].mean(axis=1)]), len(means))
