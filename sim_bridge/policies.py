"""The buffer policies: the one place that names and describes each. It imports nothing heavy: ``--help`` reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FIRST_EXPONENT, LAST_EXPONENT = -7, 6
"""Exponents of two, as predicted alphas: the dynamic thresholds of SAI that are neither nothing nor everything."""

VICTIMS = ("tail", "tail_kept", "head", "random", "spare_first_rtt", "most_left")
"""Packets of a queue that LQD can push out: by its place, or by what its sender says of it (`BY_TAGS`)."""

BY_TAGS = ("spare_first_rtt", "most_left")
ORDERS = ("longest_queue", "lower_classes_first", "any_queue")
"""In which queue LQD looks for it."""

ORACLES = ("lqd", "occamy")
"""Push-out policies whose decisions can be labels."""

MAKES_ROOM = ("longer_queues", "any_queue", "no_queue")
"""Lossy queues out of which LQD pushes packets for one that may not be lost."""

SCHEDULERS = ("round_robin", "strict", "deficit_round_robin")
"""Rules by which a port serves its queues."""

MOST_QUEUES = 8
"""Most queues of a port."""


@dataclass(frozen=True)
class BufferPolicy:
    """A buffer policy. Its parameters are fields below, which name it."""

    name: str  #: in settings and in the native library
    title: str  #: in tables and sentences
    meaning: str  #: one sentence
    asks: bool = False  #: whether it asks a predictor about packets
    knows_priorities: bool = True  #: whether a port may have several queues; else it has one
    pushes_out: bool = False  #: whether it removes packets that it has accepted
    sees_ingress: bool = False  #: whether it needs to know where packets came in, as only simulated networks do
    takes_rules: bool = False  #: whether it decides by rules, whose numbers a run gives it
    #: what the option ``policy=NAME`` sets, beside the defaults of the parameters
    option: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""  #: in figures, where the title is an abbreviation that not every reader knows


POLICIES = {
    policy.name: policy
    for policy in (
        BufferPolicy("cs", "CS", "Complete Sharing: accept while the buffer has room", words="Complete Sharing"),
        BufferPolicy(
            "cp",
            "CP",
            "Complete Partitioning: an equal part of the buffer for every queue",
            words="Complete Partitioning",
        ),
        BufferPolicy(
            "dt",
            "DT",
            "Dynamic Thresholds: a queue grows while it is shorter than its threshold",
            words="Dynamic Thresholds",
        ),
        BufferPolicy("harmonic", "Harmonic", "the k longest of n queues hold at most H_k / H_n of the buffer"),
        BufferPolicy(
            "abm", "ABM", "Active Buffer Management: Dynamic Thresholds over the congested queues of a priority"
        ),
        BufferPolicy(
            "reverie",
            "Reverie",
            "the averaged queue against the threshold, at egress for lossy traffic and at ingress for lossless",
            option={"alpha": 1.0},  # with which the thesis evaluates it
        ),
        BufferPolicy(
            "sonic",
            "SONiC",
            "thresholds at ingress and at egress, each on a pool of its own, as switches have them that run SONiC",
            sees_ingress=True,
            option={"alpha": 1.0},  # with which the thesis evaluates it
        ),
        BufferPolicy(
            "occamy",
            "Occamy",
            "Dynamic Thresholds; spare memory bandwidth expels the heads of queues above their threshold",
            pushes_out=True,
            option={"alpha": 8.0},  # with which its authors evaluate it
        ),
        BufferPolicy(
            "lqd", "LQD", "Longest Queue Drop: a full buffer pushes out of the longest queue", pushes_out=True
        ),
        BufferPolicy("followlqd", "FollowLQD", "LQD's thresholds without predictions"),
        BufferPolicy(
            "credence", "Credence", "LQD's thresholds, then a prediction", asks=True, option={"predictor": "library"}
        ),
        BufferPolicy(
            "guarded",
            "Guarded Credence",
            "Credence, where guards must allow a predicted drop",
            asks=True,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "learned",
            "Learned rule",
            "Complete Sharing, but for the packets that a predictor drops: it is asked about every data packet",
            asks=True,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "credence_artifact",
            "Credence (artifact)",
            "Credence as its public artifact does it",
            asks=True,
            knows_priorities=False,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "chosen",
            "Chosen rule",
            "the rule of the zoo whose replays send most of what arrived in the last windows",
            takes_rules=True,
        ),
    )
}
"""Policies by name, in the order of tables and figures."""

PUSHING_OUT = tuple(name for name, policy in POLICIES.items() if policy.pushes_out)
ASKING = tuple(name for name, policy in POLICIES.items() if policy.asks)
SEE_INGRESS = tuple(name for name, policy in POLICIES.items() if policy.sees_ingress)
TAKE_RULES = tuple(name for name, policy in POLICIES.items() if policy.takes_rules)
OF_ARRIVALS = tuple(name for name, policy in POLICIES.items() if not policy.sees_ingress and not policy.takes_rules)
"""Policies that can decide arrivals at ports, which do not say where packets came in, and bring no rules."""
KNOW_PRIORITIES = tuple(name for name, policy in POLICIES.items() if policy.knows_priorities)
READ_TAGS = ("occamy", "lqd", "learned")
"""Policies to which a predictor can tell the last packets of a message in the place of their senders."""

_GUEST = re.compile(r"(?P<header>.+\.hpp):(?P<type>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)", re.ASCII)


def is_guest(policy: str) -> bool:
    """Return whether a policy is a type in a header of the user's, ``HEADER.hpp:TYPE``, and not one of `POLICIES`."""
    return _GUEST.fullmatch(policy) is not None


def header_and_type(guest: str) -> tuple[Path, str]:
    """The header and the type of a policy from outside."""
    parts = _GUEST.fullmatch(guest)
    if parts is None:
        raise ValueError(f"{guest!r} is not a HEADER.hpp:TYPE")
    return Path(parts["header"]), parts["type"]


def policy_name(policy: str) -> str:
    """Return the name of a policy in tables: its name, or its type without the namespace."""
    return header_and_type(policy)[1].rpartition("::")[2] if is_guest(policy) else policy


def may_ask(policy: str) -> bool:
    """Return whether a policy may ask a predictor; of one from outside only its header says whether it does."""
    return policy not in POLICIES or POLICIES[policy].asks
