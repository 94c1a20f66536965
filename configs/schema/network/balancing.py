"""Load balancing: which spine each packet of a flow passes."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.configs.schema.fields import LONGEST_NS, setting
from foretail.core.errors import ForetailError

BALANCERS = ("ecmp", "spray", "uss", "rss", "sirona", "flowbender", "ethereal")
"""Only the first one is there outside the native network."""

METRICS = ("mean", "max", "ewma", "marks", "fed_back")


@dataclass
class Balancing:
    """Load balancers of senders (Pit-Claudel's thesis, chapter 4; Ethereal: Addanki's thesis, chapter 3)."""

    name: str = setting(
        "ecmp",
        "Balancer: a hash of the flow (ecmp), a random spine for each packet (spray), subflows that keep their spines "
        "(uss) or of which the worst takes another one (rss, sirona), another spine for a flow with many marks "
        "(flowbender), or equal shares of the equal flows of a collective (ethereal).",
        one_of=BALANCERS,
    )
    subflows: int = setting(
        16, "Number of subflows of a flow, which its packets take in turn.", at_least=1, at_most=1024
    )
    interval_ns: int = setting(
        32_000,
        "Time after which rss and sirona give the worst subflow another entropy.",
        at_least=1_000,
        at_most=LONGEST_NS,
    )
    jitter: float = setting(0.25, "Every interval is longer by a share drawn from 0 to this.", at_least=0, at_most=10)
    metric: str = setting(
        "mean",
        "What makes a subflow the worst for rss: its mean, largest or moving average round trip, its share of marks, "
        "or the mean of those that were answered; without fed_back, one that was not answered comes first.",
        one_of=METRICS,
    )
    ewma_weight: float = setting(0.9, "Weight of the newest round trip with metric=ewma.", above=0, at_most=1)
    last_share: float = setting(
        0.5, "Last part of an interval in which sirona looks at round trips.", above=0, at_most=1
    )
    mark_share: float = setting(
        0.05, "Share of marks in a round trip above which flowbender takes another spine.", at_least=0, at_most=1
    )

    @property
    def reads_marks(self) -> bool:
        """True if the balancer needs congestion marks."""
        return self.name == "flowbender" or (self.name == "rss" and self.metric == "marks")

    def check(self, where: str) -> None:
        """Raise ForetailError on a metric that nothing reads."""
        if self.metric != "mean" and self.name != "rss":
            raise ForetailError(
                f"{where}.metric = {self.metric} means nothing to {self.name}: leave it out, or set {where}.name=rss"
            )

    def check_fits(self, where: str, is_star: bool, marks_packets: bool, has_collective: bool) -> None:
        """Raise ForetailError on a balancer without spines, marks that it reads, or equal flows; `where` has all."""
        if self.name != "ecmp" and is_star:
            raise ForetailError(
                f"{where}.balancing.name = {self.name} needs spines to choose from, and a star has none: set it to ecmp"
            )
        if self.reads_marks and not marks_packets:
            raise ForetailError(
                f"{where}.balancing reads congestion marks, and the packets of {where}.transport get none: use a TCP "
                "with mark_bytes above 0, or rdma.control=dcqcn"
            )
        if self.name == "ethereal" and not has_collective:
            raise ForetailError(
                f"{where}.balancing.name = ethereal assigns the equal flows of a collective, and there is none: set "
                f"{where}.collective.kind"
            )
