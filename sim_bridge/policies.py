"""The buffer policies and their parameters, as Python knows them; a test holds the table to the types in C++.

It imports nothing heavy: ``foretail --help`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """A setting that some policies heed."""

    meaning: str  #: one sentence
    default: Any  #: number, str or None
    bounds: dict[str, Any]  #: ``above``, ``at_least``, ``at_most`` or ``one_of``, as settings have them


ALPHA = Parameter("threshold = alpha * free buffer", 0.5, {"above": 0})
INCAST_ALPHA = Parameter(
    "alpha of the queue that incast has for itself (scenario.queues); null: as the others",
    None,
    {"above": 0},
)
ALPHA_INTERVAL_NS = Parameter(
    "predictor=library: every queue's alpha is predicted anew, from the counters of the switch, once in so long",
    100_000,
    {"at_least": 10_000, "at_most": 10**9},
)
FIRST_EXPONENT, LAST_EXPONENT = -7, 6
"""Of two, as predicted alphas: the dynamic thresholds of SAI that are neither nothing nor everything."""
FIRST_RTT_ALPHA = Parameter("alpha for packets of a flow's first RTT", 64.0, {"above": 0})
RTT_SLOTS = Parameter(
    "arrivals: congested queues are counted, and drop budgets begin anew, once in so many slots",
    25,
    {"at_least": 1, "at_most": 2**40},
)
LOW_PASS_NS = Parameter("time constant of the averaged queue lengths", 524_288, {"at_least": 1, "at_most": 2**40})
LOW_PASS_SLOTS = Parameter(
    "arrivals: the average moves to the queue's length by 1 / this per slot", 1024, {"at_least": 1, "at_most": 2**40}
)
SPARE_BANDWIDTH = Parameter(
    "memory bandwidth that expulsions have beyond the sum of the port rates, as a share of that sum",
    0.1,  # the authors' software switch: 55e6 cells of 200 bytes per second for 8 ports of 10 Gbit/s
    {"at_least": 0, "at_most": 100},
)
BUCKET_BYTES = Parameter(
    "what may be expelled at once after a rest",
    40_000,
    {"at_least": 0, "at_most": 2**30},  # their 200 cells
)
BUCKET_PACKETS = Parameter(
    "arrivals: what may be expelled at once after a rest",
    25,  # full packets of 8 cells in 200 cells
    {"at_least": 0, "at_most": 2**30},
)
SPARES_FIRST_RTT = Parameter(
    "1: predictions drop no packet of a flow's first RTT; 0: they may", 1, {"at_least": 0, "at_most": 1}
)
DROP_BUDGET_BYTES = Parameter(
    "what predictions may drop of a queue in a base RTT",
    30_000,  # what a link of 10 Gbit/s sends in 24 us
    {"at_least": 0, "at_most": 2**30},
)
DROP_BUDGET_PACKETS = Parameter(
    "arrivals: what predictions may drop of a queue in rtt_slots",
    2**30,  # no limit: bursts in slots have to lose far more than a link sends
    {"at_least": 0, "at_most": 2**30},
)
ANSWERS_NEEDED = Parameter(
    "a prediction drops a packet only when so many of its queue's answers in a row say drop",
    3,
    {"at_least": 1, "at_most": 8},
)
VIRTUAL_LQD = Parameter("packet-exact thresholds or fluid counters", "exact", {"one_of": ("exact", "fluid")})
FLUID_SLACK_BYTES = Parameter(
    "fluid counters: a queue may exceed its threshold by this much", 0, {"at_least": 0, "at_most": 2**30}
)
PREDICTOR = Parameter(
    "accept: nobody is asked, so packets are accepted and an alpha stays; library: a compiled predictor is",
    "accept",
    {"one_of": ("accept", "library")},
)
LIBRARY = Parameter("path of the compiled predictor; null = the stage's exported model", None, {})
TAU = Parameter("drop iff score > tau; null = the predictor's own", None, {"at_least": -(2**63), "at_most": 2**63 - 1})
FLIP_PROBABILITY = Parameter("share of predictions that are inverted", 0.0, {"at_least": 0, "at_most": 1})

VICTIMS = ("tail", "tail_kept", "head", "random", "spare_first_rtt", "most_left")
"""Which packet of a queue LQD pushes out: by its place, or by what its sender says of it (`BY_TAGS`)."""

BY_TAGS = ("spare_first_rtt", "most_left")
ORDERS = ("longest_queue", "lower_classes_first", "any_queue")
"""In which queue LQD looks for it."""

ORACLES = ("lqd", "occamy")
"""Push-out policies whose decisions can be labels."""

VICTIM = Parameter(
    "which packet of a queue it pushes out; null: as scenario.rules.victim, which labels follow",
    None,
    {"one_of": VICTIMS},
)
ORDER = Parameter("in which queue it looks for that packet; null: as scenario.rules.order", None, {"one_of": ORDERS})

_THRESHOLDS = (VIRTUAL_LQD, FLUID_SLACK_BYTES)
_PREDICTION = (PREDICTOR, LIBRARY, TAU, FLIP_PROBABILITY)
_GUARDS = (SPARES_FIRST_RTT, DROP_BUDGET_BYTES, DROP_BUDGET_PACKETS, RTT_SLOTS, ANSWERS_NEEDED)


@dataclass(frozen=True)
class BufferPolicy:
    """A buffer policy."""

    name: str  #: in settings and in the native library
    title: str  #: in tables and sentences
    meaning: str  #: one sentence
    parameters: tuple[Parameter, ...] = ()  #: what it heeds, beside the alpha of incast where it has one
    asks: bool = False  #: whether it asks a predictor about packets
    knows_priorities: bool = True  #: whether a port may have several queues; else it has one
    pushes_out: bool = False  #: whether it removes packets that it has accepted
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
            (ALPHA, PREDICTOR, LIBRARY, ALPHA_INTERVAL_NS),
            words="Dynamic Thresholds",
        ),
        BufferPolicy("harmonic", "Harmonic", "the k longest of n queues hold at most H_k / H_n of the buffer"),
        BufferPolicy(
            "abm",
            "ABM",
            "Active Buffer Management: Dynamic Thresholds over the congested queues of a priority",
            (ALPHA, FIRST_RTT_ALPHA, RTT_SLOTS),
        ),
        BufferPolicy(
            "reverie",
            "Reverie",
            "Reverie for lossy traffic: the averaged queue against the threshold",
            (ALPHA, RTT_SLOTS, LOW_PASS_NS, LOW_PASS_SLOTS),
            option={"alpha": 1.0},  # with which the thesis evaluates it
        ),
        BufferPolicy(
            "occamy",
            "Occamy",
            "Dynamic Thresholds; spare memory bandwidth expels the heads of queues above their threshold",
            (ALPHA, SPARE_BANDWIDTH, BUCKET_BYTES, BUCKET_PACKETS),
            pushes_out=True,
            option={"alpha": 8.0},  # with which its authors evaluate it
        ),
        BufferPolicy(
            "lqd",
            "LQD",
            "Longest Queue Drop: a full buffer pushes out of the longest queue",
            (VICTIM, ORDER),
            pushes_out=True,
        ),
        BufferPolicy("followlqd", "FollowLQD", "LQD's thresholds without predictions", _THRESHOLDS),
        BufferPolicy(
            "credence",
            "Credence",
            "LQD's thresholds, then a prediction",
            (*_THRESHOLDS, *_PREDICTION),
            asks=True,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "guarded",
            "Guarded Credence",
            "Credence, where guards must allow a predicted drop",
            (*_THRESHOLDS, *_PREDICTION, *_GUARDS),
            asks=True,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "learned",
            "Learned rule",
            "Complete Sharing, but for the packets that a predictor drops: it is asked about every data packet",
            _PREDICTION,
            asks=True,
            option={"predictor": "library"},
        ),
        BufferPolicy(
            "credence_artifact",
            "Credence (artifact)",
            "Credence as its public artifact does it",
            _PREDICTION,
            asks=True,
            knows_priorities=False,
            option={"predictor": "library"},
        ),
    )
}
"""By name, in the order of tables and figures."""

_GUEST = re.compile(r"(?P<header>.+\.hpp):(?P<type>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)", re.ASCII)


def is_guest(policy: str) -> bool:
    """Whether a policy is a type in a header of the user's own, ``HEADER.hpp:TYPE``, and not one of `POLICIES`."""
    return _GUEST.fullmatch(policy) is not None


def header_and_type(guest: str) -> tuple[Path, str]:
    """The header and the type of a policy from outside."""
    found = _GUEST.fullmatch(guest)
    if found is None:
        raise ValueError(f"{guest!r} is no HEADER.hpp:TYPE")
    return Path(found["header"]), found["type"]


def policy_name(policy: str) -> str:
    """What tables call a policy: its name, or its type without the namespace."""
    return header_and_type(policy)[1].rpartition("::")[2] if is_guest(policy) else policy


NUMBERS = {
    "alpha": ALPHA,
    "alpha_interval_ns": ALPHA_INTERVAL_NS,
    "incast_alpha": INCAST_ALPHA,
    "first_rtt_alpha": FIRST_RTT_ALPHA,
    "low_pass_ns": LOW_PASS_NS,
    "spare_bandwidth": SPARE_BANDWIDTH,
    "bucket_bytes": BUCKET_BYTES,
    "spares_first_rtt": SPARES_FIRST_RTT,
    "drop_budget_bytes": DROP_BUDGET_BYTES,
    "answers_needed": ANSWERS_NEEDED,
    "fluid_slack_bytes": FLUID_SLACK_BYTES,
    "tau": TAU,
    "flip_probability": FLIP_PROBABILITY,
}
"""Parameters in ns-3 that are numbers, by the names of their settings."""

_WITH_SETTINGS = re.compile(
    rf"(?P<name>{'|'.join(sorted(POLICIES, key=len, reverse=True))})"
    rf"(?P<settings>(?:_(?:{'|'.join(sorted(NUMBERS, key=len, reverse=True))})_-?[0-9][0-9.e+-]*)+)"
)


_SETTINGS = {
    **NUMBERS,
    "victim": VICTIM,
    "order": ORDER,
    "virtual_lqd": VIRTUAL_LQD,
    "predictor": PREDICTOR,
    "library": LIBRARY,
}


def heeded_settings(policy: str) -> list[str]:
    """The names of the settings in ns-3 that one of Foretail's own policies heeds."""
    known = POLICIES[policy]
    heeded = (*known.parameters, INCAST_ALPHA) if ALPHA in known.parameters else known.parameters
    return [setting for setting, parameter in _SETTINGS.items() if parameter in heeded]


def numbers_of(policy: str) -> list[str]:
    """The names of those that are numbers."""
    return [setting for setting in heeded_settings(policy) if setting in NUMBERS]


def name_with_settings(name: str, settings: Mapping[str, float]) -> str:
    """The name of a policy with settings of its own, such as ``dt_alpha_8``."""
    return "_".join([name, *(f"{setting}_{repr(value).removesuffix('.0')}" for setting, value in settings.items())])


def settings_in_name(policy: str) -> tuple[str, dict[str, float]] | None:
    """The policy and the settings that such a name has; None for any other name."""
    found = _WITH_SETTINGS.fullmatch(policy)
    if found is None:
        return None
    pairs = re.findall(rf"_({'|'.join(sorted(NUMBERS, key=len, reverse=True))})_(-?[0-9][0-9.e+-]*)", found["settings"])
    whole = re.compile(r"-?\d+")
    return found["name"], {name: int(value) if whole.fullmatch(value) else float(value) for name, value in pairs}


_VARIANTS = {
    "accept": "always accept",
    "head": "from the head",
    "first_rtt": "sparing first round trips",
    "last": "sparing the last of a message",
    "most_left": "most left to send",
    "predicted": "predicted alpha",
    "tuned": "tuned",
}
"""What the options of the group ``policy`` add to the name of a policy, and its words."""


def policy_words(policy: str) -> str:
    """What figures and sentences call a policy: also ``dt_tuned``, and with the model it asks ``credence, MODEL``."""
    if (found := settings_in_name(policy)) is not None:
        settings = ", ".join(f"{setting} {value:g}" for setting, value in found[1].items())
        return f"{policy_words(found[0])}, {settings}"
    if policy in POLICIES:
        return POLICIES[policy].words or POLICIES[policy].title
    base, _, suffix = policy.partition("_")
    if base in POLICIES and suffix in _VARIANTS:
        return f"{policy_words(base)}, {_VARIANTS[suffix]}"
    base, _, asked = policy.partition(", ")
    return f"{policy_words(base)}, {asked}" if asked and base in ASKING else policy_name(policy)


def may_ask(policy: str) -> bool:
    """Whether a policy may ask a predictor; of one from outside only its header says whether it does."""
    return policy not in POLICIES or POLICIES[policy].asks


def takes_alpha(policy: str) -> bool:
    """Whether a predictor may set a policy's alphas, once per interval, in ns-3."""
    return policy in POLICIES and ALPHA_INTERVAL_NS in POLICIES[policy].parameters


PUSHING_OUT = tuple(name for name, policy in POLICIES.items() if policy.pushes_out)
ASKING = tuple(name for name, policy in POLICIES.items() if policy.asks)
KNOW_PRIORITIES = tuple(name for name, policy in POLICIES.items() if policy.knows_priorities)
