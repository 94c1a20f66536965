"""Statistics of flows, buffer occupancy and paired seeds; pure functions over NumPy arrays.

Slowdown is FCT divided by the flow's ideal FCT in the same topology. A flow that is unfinished at the end of the run
enters with its age at that moment: its true slowdown is at least that, so a percentile of a class with unfinished flows
is a lower bound (``FlowSummary.lower_bound``), and no flow is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.sim_bridge.packets.cost import kinds_of, slowdowns, started

PERCENTILES = (50.0, 95.0, 99.0)
FLOW_GROUPS = ("short", "incast", "long")


@dataclass(frozen=True)
class FlowSummary:
    """Slowdowns of one class of flows in one run."""

    flows: int  #: all of them; percentiles cover the unfinished ones too
    unfinished: int  #: those of them that did not end before the run did
    p50: float | None  #: percentile of slowdown (NumPy's linear interpolation), None without flows
    p95: float | None  #: the same
    p99: float | None  #: the same
    lower_bound: bool  #: the percentiles are lower bounds, because flows are unfinished
    timeout_share: float | None  #: share of flows with at least one retransmission timeout, None without flows
    retransmissions: int  #: sum over the class
    timeouts: int  #: sum over the class


@dataclass(frozen=True)
class PairedDifference:
    """Mean of a difference over paired seeds with its 95 % Student-t interval."""

    mean: float | None  #: mean of ``value - baseline``, None when no seed has both
    low: float | None  #: of the interval, None with fewer than two pairs
    high: float | None  #: the same
    pairs: int  #: seeds in which both values exist


def interval_text(difference: PairedDifference, sign: str = "+", digits: int = 3) -> str:
    """Mean and interval for a table; `sign` is that of Python's number format."""
    if difference.mean is None:
        return "-"
    form = f"{sign}.{digits}g"
    if difference.low is None or difference.high is None:
        return f"{difference.mean:{form}}"
    return f"{difference.mean:{form}} [{difference.low:{form}}, {difference.high:{form}}]"


def chance_text(difference: PairedDifference, of: str, above: str, below: str) -> str:
    """Words for a difference: `above` or `below` where the whole interval is, else that it may be chance.

    `of` is what makes it a pair, such as ``seed``.
    """
    if difference.low is None or difference.high is None:
        return f"one {of} cannot tell whether that is chance"
    if difference.low <= 0 <= difference.high:
        return f"which is not a difference that these {of}s can tell from chance"
    return below if difference.high < 0 else above


def percent_change(log: float | None) -> float | None:
    """A difference of logarithms as a change in %; None where there is none."""
    return None if log is None else 100 * math.expm1(log)


def change_text(difference: PairedDifference) -> str:
    """A difference of logarithms as a change in % with its interval."""
    mean, low, high = map(percent_change, (difference.mean, difference.low, difference.high))
    if mean is None:
        return "an unknown share"
    return f"{mean:+.1f} %" + ("" if low is None or high is None else f" [{low:+.1f}, {high:+.1f}]")


def flow_groups(flows: NDArray[np.void]) -> dict[str, NDArray[np.bool_]]:
    """Masks of the paper's classes: short and long are background flows, incast are answers to queries; and of all."""
    sent, background = started(flows), kinds_of(flows)
    return {
        "short": background["short"] & sent,
        "incast": flows["query"] >= 0,
        "long": background["long"] & sent,
        "all": sent,
    }


def summarise_flows(flows: NDArray[np.void], end_ns: int) -> dict[str, FlowSummary]:
    """A summary per class, and of ``all`` flows (which includes background flows of 100 KB to 1 MB)."""
    ratio = slowdowns(flows, end_ns)
    return {name: _summary(flows[mask], ratio[mask]) for name, mask in flow_groups(flows).items()}


def _summary(flows: NDArray[np.void], ratio: NDArray[np.float64]) -> FlowSummary:
    count = len(flows)
    unfinished = int(np.count_nonzero(flows["fct_ns"] < 0))
    p50, p95, p99 = (float(value) for value in np.percentile(ratio, PERCENTILES)) if count else (None, None, None)
    return FlowSummary(
        flows=count,
        unfinished=unfinished,
        p50=p50,
        p95=p95,
        p99=p99,
        lower_bound=unfinished > 0,
        timeout_share=float(np.mean(flows["timeouts"] > 0)) if count else None,
        retransmissions=int(flows["retransmissions"].sum()),
        timeouts=int(flows["timeouts"].sum()),
    )


def occupancy_percentiles(
    samples: NDArray[np.void], buffer_bytes: Mapping[int, int], percentiles: Sequence[float] = (50.0, 99.0, 99.99)
) -> dict[str, float | None]:
    """Percentiles of occupancy as a fraction of each switch's buffer, over all samples of the named switches.

    `samples` has the fields switch and occupancy_bytes; `buffer_bytes` names the switches that count (the leaves).
    """
    names = [f"p{percentile:g}" for percentile in percentiles]
    chosen = samples[np.isin(samples["switch"], list(buffer_bytes))]
    if len(chosen) == 0:
        return dict.fromkeys(names)
    sizes = np.zeros(max(buffer_bytes) + 1, dtype=np.int64)
    for switch, size in buffer_bytes.items():
        sizes[switch] = size
    fraction = chosen["occupancy_bytes"] / sizes[chosen["switch"]]
    return dict(zip(names, (float(value) for value in np.percentile(fraction, percentiles)), strict=True))


def mean_interval(values: Sequence[float | None], confidence: float = 0.95) -> PairedDifference:
    """Mean and Student-t interval of the values that are not None."""
    from scipy import stats

    present = np.array([value for value in values if value is not None], dtype=np.float64)
    if len(present) == 0:
        return PairedDifference(None, None, None, 0)
    mean = float(present.mean())
    if len(present) < 2:
        return PairedDifference(mean, None, None, 1)
    # stats.t.interval and ttest_1samp know no spread of zero, which seeds of a deterministic policy have
    margin = float(stats.t.ppf(0.5 + confidence / 2, len(present) - 1) * present.std(ddof=1) / np.sqrt(len(present)))
    return PairedDifference(mean, mean - margin, mean + margin, len(present))


def paired_difference(
    values: Mapping[Any, float | None], baseline: Mapping[Any, float | None], confidence: float = 0.95
) -> PairedDifference:
    """Mean and interval of ``values[seed] - baseline[seed]`` over the seeds in which both exist."""
    differences: list[float | None] = []
    for seed, value in values.items():
        other = baseline.get(seed)
        if value is not None and other is not None:
            differences.append(value - other)
    return mean_interval(differences, confidence)
