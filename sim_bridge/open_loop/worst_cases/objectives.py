"""The ratios of which a search looks for the worst case, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from foretail.features.errors import ForetailError
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.guest_policies import native_policy
from foretail.sim_bridge.policies import POLICIES, is_guest, may_ask, policy_name

TITLES = {name: policy.title for name, policy in POLICIES.items()} | {"opt": "OPT", "tn": "TN", "fn": "FN"}
"""Short names of what is measured; "reduced" is called so."""


@dataclass(frozen=True)
class Objective:
    """A ratio to make large."""

    text: str  #: the ratio in words
    counts: tuple[str, ...]  #: what has to be measured, as in :func:`measure`
    #: the ratio from the counts and N; None where it is not defined
    ratio: Callable[[Mapping[str, int], int], Fraction | None]
    #: the most that the literature claims, from N; None where it claims nothing
    claimed: Callable[[int], float | None] = lambda ports: None
    predicted: bool = False  #: search predictions too; otherwise all packets are predicted to pass
    any_load: bool = False  #: up to 2 B packets a slot, beyond the papers' model; otherwise up to N


def over(numerator: str, denominator: str, **more: Any) -> Objective:
    """Return the objective to make one count large against another."""

    def ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
        return Fraction(counts[numerator], counts[denominator]) if counts[denominator] else None

    text = f"{TITLES.get(numerator, numerator)} / {TITLES.get(denominator, denominator)}"
    return Objective(**{"text": text, **more}, counts=(numerator, denominator), ratio=ratio)


def closed_form_ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
    """Return eta over its closed form: LQD, which both have as numerator, cancels."""
    if not counts["reduced"]:
        return None
    return Fraction(max(0, counts["tn"] - (ports - 1) * counts["fn"]), counts["reduced"])


def theorem_1_ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
    """Return OPT over Credence times eta."""
    if not (counts["lqd"] and counts["credence"]):
        return None
    return Fraction(counts["opt"] * counts["reduced"], counts["credence"] * counts["lqd"])


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "cs": over("opt", "cs", text="OPT / Complete Sharing", claimed=lambda ports: ports + 1),
        "dt": over("opt", "dt"),
        "harmonic": over("opt", "harmonic", claimed=lambda ports: math.log(ports) + 2),
        "followlqd": over("opt", "followlqd"),
        "lqd": over("opt", "lqd", claimed=lambda ports: 1.707),
        "credence": over("opt", "credence", claimed=float, predicted=True),
        "followlqd_to_lqd": over("lqd", "followlqd"),
        "credence_to_lqd": over("lqd", "credence", predicted=True),
        "theorem_1": Objective(
            "OPT / (Credence · η)",
            ("opt", "lqd", "reduced", "credence"),
            theorem_1_ratio,
            claimed=lambda ports: 1.707,
            predicted=True,
        ),
        "lemma_1": over(  # eta is LQD / reduced
            "reduced", "credence", text="LQD / (Credence · η)", claimed=lambda ports: 1.0, predicted=True
        ),
        "theorem_2": Objective(
            "η / closed form, always accepting",
            ("lqd", "reduced", "tn", "fn"),
            closed_form_ratio,
            claimed=lambda ports: 1.0,
        ),
        "cs_any_load": over("opt", "cs", text="OPT / Complete Sharing, any load", claimed=float, any_load=True),
        "followlqd_any_load": over("opt", "followlqd", text="OPT / FollowLQD, any load", any_load=True),
        "credence_any_load": over("opt", "credence", text="OPT / Credence, any load", predicted=True, any_load=True),
    }
)


def objective_of(name: str) -> Objective:
    """Return an objective of ``OBJECTIVES``, or OPT over a policy in a header, ``HEADER.hpp:TYPE``.

    The predictions are searched too, for its header may ask. ForetailError on another name.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if not is_guest(name):
        raise ForetailError(
            f"no objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or a policy as in my_rule.hpp:MyRule"
        )
    return over("opt", name, text=f"OPT / {policy_name(name)}", predicted=True)


@dataclass(frozen=True)
class WorstCase:
    """A sequence and what it shows."""

    objective: str  #: as in :func:`objective_of`
    ports: int  #: N
    buffer: int  #: B, in packets
    slots: str  #: the arrivals, as the papers write them
    predictions: str  #: a digit per packet, 1 = drop; empty where predictions play no role
    counts: dict[str, int]  #: what :func:`measure` finds

    @property
    def ratio(self) -> Fraction:
        """The ratio of the objective."""
        return objective_of(self.objective).ratio(self.counts, self.ports) or Fraction(0)

    @property
    def violates(self) -> bool:
        """Whether the ratio is above what the literature claims."""
        claimed = objective_of(self.objective).claimed(self.ports)
        return claimed is not None and float(self.ratio) > claimed


def measure(
    names: Iterable[str],
    ports: int,
    buffer: int,
    slot: Sequence[int],
    port: Sequence[int],
    predictions: Sequence[int],
) -> dict[str, int]:
    """Count what the named send or are.

    A policy, one in a header too: packets it transmits. opt: the most that any policy could. reduced: FollowLQD
    without the packets that are predicted to drop. tn, fn: packets predicted to pass that LQD transmits, drops. All by
    default rules; predictions, one per packet, are for Credence.
    """
    slots, ports_of, drop = np.array(slot, np.int64), np.array(port, np.int32), np.array(predictions, np.uint8)
    counts: dict[str, int] = {}
    for name in names:
        if name == "opt":
            counts[name] = late_qd(ports, buffer, slots, ports_of)["transmitted"]
        elif name == "reduced":
            kept = drop == 0
            counts[name] = slotted("followlqd", ports, buffer, slots[kept], ports_of[kept])["transmitted"]
        elif name in ("tn", "fn"):
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = int(np.count_nonzero((drop == 0) & (label == (name == "fn"))))
        else:
            asked = drop if may_ask(name) else None
            counts[name] = slotted(native_policy(name), ports, buffer, slots, ports_of, asked, labels=False)[
                "transmitted"
            ]
    return counts
