"""What a block code on a lossy link saves: packets that are sent again, load of the links, goodput and delay.

A code (k, n) sends k packets as they come and n - k coded ones after them. Any k of these n restore the block. A block
with fewer loses its missing packets, and their senders send them again. Losses are independent. Delay is that of
propagation: queues and the wait for coded packets do not count.

Source: Pit-Claudel, thesis, section 3.3.2. Its equation 3.6 has sums from 0 on, and its goodput counts hosts for links;
both are meant as here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from foretail.core.errors import ForetailError


@dataclass(frozen=True)
class CodedLink:
    """A link that loses packets, and the code on it.

    ForetailError on an erasure outside 0 to below 1, or on n below k.
    """

    erasure: float  #: probability that a packet is lost, from 0 to below 1
    k: int = 1  #: packets of a block, at least 1
    n: int = 1  #: packets that are sent for it, at least k; n = k is a link without a code

    def __post_init__(self) -> None:
        if not 0 <= self.erasure < 1:
            raise ForetailError(f"erasure is {self.erasure}: give a probability from 0 to below 1")
        if not 1 <= self.k <= self.n:
            raise ForetailError(f"the code (k, n) = ({self.k}, {self.n}) is none: give n of at least k, and k of 1")

    @property
    def residual_loss(self) -> float:
        """Share of transmissions that the code does not restore (equation 3.1)."""
        return float(_residual_loss(self.erasure, self.k, np.array([self.n]))[0])

    def lossy_load(self, rates: Sequence[float]) -> float:
        """Packets per second on the lossy link, for new packets per second of every sender (3.2, and 3.4 if n = k)."""
        return self.n * sum(rates) / (self.k * (1 - self.residual_loss))

    def other_load(self, rates: Sequence[float], other_links: Sequence[int]) -> float:
        """Packets per second on all other links together, which every sender has so many of (3.3, and 3.5 if n = k)."""
        return sum(rate * links for rate, links in zip(rates, other_links, strict=True)) / (1 - self.residual_loss)

    def goodput_ratio(self, rates: Sequence[float], other_links: Sequence[int]) -> float:
        """Goodput over that of the same link without a code (3.6)."""
        plain = CodedLink(self.erasure)
        return (plain.lossy_load(rates) + plain.other_load(rates, other_links)) / (
            self.lossy_load(rates) + self.other_load(rates, other_links)
        )

    @property
    def mean_delay(self) -> float:
        """Mean delay in round trips: half of one, and a whole one for each time that a packet is sent again."""
        residual = self.residual_loss
        return 0.5 + residual / (1 - residual)


def best_code(erasure: float, mean_other_links: float, least_k: int, largest_k: int) -> CodedLink:
    """Return the code of highest goodput with k in these bounds; of equal ones the one with the smallest k, then n.

    Without a bound k would grow for ever, because the wait for a block costs nothing here. `mean_other_links` is the
    mean over the senders' packets. ForetailError on bounds that hold no k.
    """
    CodedLink(erasure)
    if not 1 <= least_k <= largest_k or mean_other_links < 0:
        raise ForetailError(
            f"k from {least_k} to {largest_k} with {mean_other_links} other links is no choice: give 1 <= least_k <= "
            "largest_k, and links of 0 or more"
        )
    best, best_ratio = CodedLink(erasure, least_k, least_k), 1.0
    for k in range(least_k, largest_k + 1):
        # a code with this many packets is worse than none, even if it restores all
        most = int(k * ((mean_other_links + 1) / (1 - erasure) - mean_other_links))
        n = np.arange(k, most + 1)
        ratio = (1 - _residual_loss(erasure, k, n)) / (1 - erasure)
        ratio *= (mean_other_links + 1) / (mean_other_links + n / k)
        if ratio.max(initial=0) > best_ratio * (1 + 1e-12):
            best, best_ratio = CodedLink(erasure, k, int(n[ratio.argmax()])), float(ratio.max())
    return best


def _residual_loss(erasure: float, k: int, n: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A packet of a block is not restored if it and at least n - k of the n - 1 others are lost: float64[len(n)]."""
    residual: npt.NDArray[np.float64] = erasure * binom.sf(n - k - 1, n - 1, erasure)
    return residual
