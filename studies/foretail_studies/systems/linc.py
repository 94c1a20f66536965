"""LINC: a block code between two switches repairs a link that loses packets, beside what its thesis prints.

The path is that of scenario 1, two senders and five links, with 1,000 packet times of delay on each. The thesis's 100
ms are 800,000, but only the ratio of delays is compared. The thesis retransmits after three duplicate
acknowledgements, which restored packets would cause as well; here only what is lost in the end is sent again.
"""

from __future__ import annotations

from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.erasure_codes.goodput import CodedLink, best_code
from foretail.sim_bridge.erasure_codes.lossy_path import LossyPath, run_path
from foretail_studies.systems.system import Published, System, change_percent

K = 50
ERASURE = 0.1
PACKETS = {"small": 5_000, "medium": 100_000}
FEW_LINKS, MANY_LINKS = 4, 20
"""Beside the lossy one: scenarios 1 and 2."""


def _packet_rate(n: int, other_links: int) -> float:
    """Packets on all links over new packets."""
    link = CodedLink(ERASURE, K, n)
    return link.lossy_load([1.0]) + link.other_load([1.0], [other_links])


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    packets = PACKETS[size]
    few, many = (best_code(ERASURE, links, K, K) for links in (FEW_LINKS, MANY_LINKS))
    so_far("without a code")
    plain = run_path(LossyPath(CodedLink(ERASURE), FEW_LINKS), packets, seed)
    so_far("with a code")
    coded = run_path(LossyPath(many, FEW_LINKS), packets, seed)
    weak = run_path(LossyPath(CodedLink(ERASURE, K, 56), FEW_LINKS), packets, seed)
    computed = CodedLink(ERASURE, K, 56)
    highest = max(range(K, 2 * K), key=lambda n: _packet_rate(n, FEW_LINKS) if n <= few.n else 0.0)
    return {
        "mean delay, change in %": change_percent(coded.mean_delay, plain.mean_delay),
        "n / k of the highest packet rate": highest / K,
        "n / k of the lowest packet rate, 4 other links": few.n / K,
        "n / k of the lowest packet rate, 20 other links": many.n / K,
        "packets sent again at n / k = 1.18, %": 100 * CodedLink(ERASURE, K, 59).residual_loss,
        "residual loss at n / k = 1.12, simulated over computed": weak.residual_loss / computed.residual_loss,
        "packet rate at n / k = 1.12, simulated over computed": (weak.lossy_load + FEW_LINKS * weak.other_load)
        / _packet_rate(56, FEW_LINKS),
        "restored packets that come after three later ones, %": 100 * coded.overtaken / coded.restored,
        "goodput ratio of the best code, 4 other links": few.goodput_ratio([1.0], [FEW_LINKS]),
        "goodput ratio of the best code, 20 other links": many.goodput_ratio([1.0], [MANY_LINKS]),
    }


LINC = System(
    "LINC",
    "Pit-Claudel's thesis",
    (
        Published("mean delay, change in %", -18.0, "section 3.4.4", change=True),
        Published("n / k of the highest packet rate", 1.04, "section 3.4.2"),
        Published("n / k of the lowest packet rate, 4 other links", 1.18, "section 3.4.2"),
        Published("n / k of the lowest packet rate, 20 other links", 1.18, "section 3.4.2"),
        Published("packets sent again at n / k = 1.18, %", 0.0, "section 3.4.2"),
        Published("residual loss at n / k = 1.12, simulated over computed", 1.0, "Figure 3.6"),
        Published("packet rate at n / k = 1.12, simulated over computed", 1.0, "Figure 3.4"),
    ),
    _measure,
    {"small": (1, 2), "medium": (1, 2, 3, 4, 5)},
)
