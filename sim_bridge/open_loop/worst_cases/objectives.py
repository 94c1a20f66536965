"""The ratios of which a search looks for the worst case, and what is claimed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.guest_policies import native_policy
from foretail.sim_bridge.policies import POLICIES, is_guest, may_ask, policy_name

GUARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "guarded_two": {"answers_needed": 2},
        "guarded_budget": {"answers_needed": 1, "drop_budget_packets": 1},
    }
)
"""Guarded Credence with other guards than its defaults, by what is measured: settings of the slotted model."""

TITLES = {name: policy.title for name, policy in POLICIES.items()} | {
    "opt": "OPT",
    "tn": "TN",
    "fn": "FN",
    "guarded_two": "Guarded, two answers",
    "guarded_budget": "Guarded, one drop in 25 slots",
    "guarded_told": "Guarded, told right",
}
"""Short names of what is measured; "reduced" is called so."""


def nth(ports: int, buffer: int) -> Fraction:
    """Return N, the bound for whoever accepts into an empty buffer, proven in docs/results/worst-cases.md."""
    return Fraction(ports)


def by_safeguard(ports: int, buffer: int) -> Fraction:
    """Return the ratio that the safeguard alone bounds, at any load: N, or B over floor(B / N) where that is more."""
    return max(Fraction(ports), Fraction(buffer, buffer // ports))


@dataclass(frozen=True)
class Objective:
    """A ratio to make large."""

    text: str  #: the ratio in words
    counts: tuple[str, ...]  #: what has to be measured, as in :func:`measure`
    #: the ratio from the counts and N; None where it is not defined
    ratio: Callable[[Mapping[str, int], int], Fraction | None]
    #: the most that the literature claims, from N; None where it claims nothing
    claimed: Callable[[int], float | None] = lambda ports: None
    #: the most that it can be, by the proofs in docs/results/worst-cases.md, from N and B; None where there is none
    proven: Callable[[int, int], Fraction | None] = lambda ports, buffer: None
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


def theorem_1(policy: str, **more: Any) -> Objective:
    """Return the objective of OPT over a policy times eta."""

    def ratio(counts: Mapping[str, int], ports: int) -> Fraction | None:
        if not (counts["lqd"] and counts[policy]):
            return None
        return Fraction(counts["opt"] * counts["reduced"], counts[policy] * counts["lqd"])

    text = f"OPT / ({TITLES[policy]} · η)"
    return Objective(text, ("opt", "lqd", "reduced", policy), ratio, predicted=True, **more)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "cs": over("opt", "cs", text="OPT / Complete Sharing", claimed=lambda ports: ports + 1, proven=nth),
        "dt": over("opt", "dt", proven=nth),
        "harmonic": over("opt", "harmonic", claimed=lambda ports: math.log(ports) + 2, proven=nth),
        "followlqd": over("opt", "followlqd", proven=nth),
        "lqd": over("opt", "lqd", claimed=lambda ports: 1.707, proven=nth),
        "credence": over("opt", "credence", claimed=float, predicted=True, proven=nth),
        "guarded": over("opt", "guarded", predicted=True, proven=nth),
        "guarded_two_answers": over("opt", "guarded_two", predicted=True, proven=nth),
        "guarded_budget": over("opt", "guarded_budget", predicted=True, proven=nth),
        "followlqd_to_lqd": over("lqd", "followlqd", proven=nth),
        "credence_to_lqd": over("lqd", "credence", predicted=True, proven=nth),
        "guarded_to_lqd": over("lqd", "guarded", predicted=True, proven=nth),
        "guarded_told_right": over("lqd", "guarded_told", proven=nth),
        "theorem_1": theorem_1("credence", claimed=lambda ports: 1.707),
        "theorem_1_guarded": theorem_1("guarded"),
        "lemma_1": over(  # eta is LQD / reduced
            "reduced", "credence", text="LQD / (Credence · η)", claimed=lambda ports: 1.0, predicted=True
        ),
        "theorem_2": Objective(
            "η / closed form, always accepting",
            ("lqd", "reduced", "tn", "fn"),
            closed_form_ratio,
            claimed=lambda ports: 1.0,
        ),
        "cs_any_load": over(
            "opt",
            "cs",
            text="OPT / Complete Sharing, any load",
            claimed=float,
            proven=nth,  # `CompleteSharingLowerBound` has the argument
            any_load=True,
        ),
        "followlqd_any_load": over("opt", "followlqd", text="OPT / FollowLQD, any load", any_load=True),
        "credence_any_load": over(
            "opt",
            "credence",
            text="OPT / Credence, any load",
            predicted=True,
            any_load=True,
            proven=by_safeguard,
        ),
        "guarded_any_load": over(
            "opt",
            "guarded",
            text="OPT / Guarded Credence, any load",
            predicted=True,
            any_load=True,
            proven=by_safeguard,
        ),
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

    @property
    def proven(self) -> Fraction | None:
        """The most that the ratio can be in this switch; None where nothing is proven."""
        return objective_of(self.objective).proven(self.ports, self.buffer)


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
    without the packets that are predicted to drop. tn, fn: packets predicted to pass that LQD transmits, drops. A name
    of `GUARDS`: Guarded Credence so set; guarded_told: the same by default, told what LQD does. All by default rules;
    predictions, one per packet, are for all other policies that ask.
    """
    slots, ports_of, drop = np.array(slot, np.int64), np.array(port, np.int32), np.array(predictions, np.uint8)
    counts: dict[str, int] = {}
    for name in names:
        if name == "opt":
            counts[name] = late_qd(ports, buffer, slots, ports_of)["transmitted"]
        elif name == "reduced":
            accepted = drop == 0
            counts[name] = slotted("followlqd", ports, buffer, slots[accepted], ports_of[accepted])["transmitted"]
        elif name in ("tn", "fn"):
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = int(np.count_nonzero((drop == 0) & (label == (name == "fn"))))
        elif name == "guarded_told":
            label = slotted("lqd", ports, buffer, slots, ports_of)["lqd_drop"]
            counts[name] = slotted("guarded", ports, buffer, slots, ports_of, label, labels=False)["transmitted"]
        elif name in GUARDS:
            guarded = slotted("guarded", ports, buffer, slots, ports_of, drop, labels=False, **GUARDS[name])
            counts[name] = guarded["transmitted"]
        else:
            asked = drop if may_ask(name) else None
            counts[name] = slotted(native_policy(name), ports, buffer, slots, ports_of, asked, labels=False)[
                "transmitted"
            ]
    return counts
