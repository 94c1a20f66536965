"""The parameters of the buffer policies: the meaning, default and bounds of each, and names with settings.

Settings, the option ``policy=NAME``, the runs of this room and, through these, the types in C++ read it; a test holds
the names to those types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal

from foretail.core.errors import ForetailError
from foretail.core.settings import require_within, setting
from foretail.sim_bridge.policies import (
    ASKING,
    MOST_QUEUES,
    ORDERS,
    POLICIES,
    READ_TAGS,
    SCHEDULERS,
    VICTIMS,
    policy_name,
)

_WITH_THRESHOLD = ("dt", "abm", "reverie", "sonic", "occamy")
IN_INTERVALS = ("abm", "reverie", "sonic", "guarded")


def parameter(heeding: Sequence[str], default: Any, meaning: str, **bounds: Any) -> Any:
    """A setting (:func:`foretail.core.settings.setting`) that policies heed."""
    titles = ", ".join(POLICIES[name].title for name in heeding)
    return setting(default, f"{meaning} Read by {titles}.", heeding=tuple(heeding), **bounds)


@dataclass
class CommonParameters:
    """Parameters of the policies that are the same everywhere."""

    first_rtt_alpha: float = parameter(("abm",), 64.0, "Alpha for packets in the first round trip of a flow.", above=0)
    spare_bandwidth: float = parameter(
        ("occamy",),
        0.1,  # the authors' software switch: 55e6 cells of 200 bytes per second for 8 ports of 10 Gbit/s
        "Memory bandwidth for expulsions beyond the sum of the port rates, as a share of that sum.",
        at_least=0,
        at_most=100,
    )
    spares_first_rtt: int = parameter(
        ("guarded",),
        1,
        "Spare packets in the first round trip of a flow from predicted drops (1), or not (0).",
        at_least=0,
        at_most=1,
    )
    answers_needed: int = parameter(
        ("guarded",),
        3,
        "Number of answers in a row for a queue that must say drop before a prediction drops a packet.",
        at_least=1,
        at_most=8,
    )
    rules: list[Any] = parameter(
        ("chosen",),
        [],
        "Rules of the zoo by name, of which one decides at a time; [] means all. A run in Python takes their numbers.",
    )
    memory: int = parameter(
        ("chosen",),
        4,
        "Number of the last sampled windows whose replays choose the rule of the next one.",
        at_least=1,
        at_most=1024,
    )
    sampled: int = parameter(
        ("chosen",), 1, "Number of windows of which one is sampled: 1 means all.", at_least=1, at_most=2**20
    )


@dataclass
class NetworkParameters(CommonParameters):
    """Parameters of the policies where packets have bytes and arrive at a time in nanoseconds."""

    alpha: float = parameter(_WITH_THRESHOLD, 0.5, "Alpha: the threshold is alpha times the free buffer.", above=0)
    low_pass_ns: int = parameter(
        ("reverie",), 524_288, "Time constant of the averaged queue lengths.", at_least=1, at_most=2**40
    )
    bucket_bytes: int = parameter(
        ("occamy",),
        40_000,
        "Bytes that may be expelled at once after a rest.",
        at_least=0,
        at_most=2**30,  # their 200 cells
    )
    spared_bytes: int = parameter(
        ("occamy",),
        -1,
        "Spare packets with at most so many bytes of their message after them, and expel those with most after them; "
        "-1 spares none and expels heads.",
        at_least=-1,
        at_most=2**30,
    )
    drop_budget_bytes: int = parameter(
        ("guarded",),
        30_000,  # what a link of 10 Gbit/s sends in 24 us
        "Bytes of a queue that predictions may drop in a base round trip.",
        at_least=0,
        at_most=2**30,
    )
    window_ns: int = parameter(
        ("chosen",),
        1_000_000,
        "Length of the windows between which the rule may change.",
        at_least=1000,
        at_most=2**40,
    )


@dataclass
class SwitchParameters(NetworkParameters):
    """Parameters of a switch in a simulated network: which queues have what, how it chooses victims, whom it asks."""

    alpha_interval_ns: int = parameter(
        ("dt",),
        100_000,
        "With predictor=library, the interval after which every queue's alpha is predicted anew from the "
        "switch's counters.",
        at_least=10_000,
        at_most=10**9,
    )
    incast_alpha: float | None = parameter(
        _WITH_THRESHOLD,
        None,
        "Alpha of the queue that incast has for itself (scenario.queues); null means the same as the others.",
        above=0,
    )
    victim: str | None = parameter(
        ("lqd",),
        None,
        "Packet of a queue that LQD pushes out; null means scenario.rules.victim, which labels follow.",
        one_of=VICTIMS,
    )
    order: str | None = parameter(
        ("lqd",), None, "Queue in which LQD looks for that packet; null means scenario.rules.order.", one_of=ORDERS
    )
    ingress_pool_bytes: int | None = parameter(
        ("sonic",),
        None,
        "Pool of all packets at ingress; null means the buffer without headroom.",
        at_least=1,
        at_most=2**40,
    )
    egress_lossless_pool_bytes: int | None = parameter(
        ("sonic",), None, "Pool of lossless packets at egress; null means the whole buffer.", at_least=1, at_most=2**40
    )
    egress_lossy_pool_bytes: int | None = parameter(
        ("sonic",),
        None,
        "Pool of lossy packets at egress; null means 80 % of that at ingress.",
        at_least=1,
        at_most=2**40,
    )
    over_congested: int = parameter(
        ("sonic",),
        0,
        "Divide thresholds by the congested queues of a priority, as ABM does (1), or not (0).",
        at_least=0,
        at_most=1,
    )
    ingress_alphas: list[float] = parameter(
        ("sonic",),
        [],
        "Alpha of each queue of a port at ingress; [] means alpha for all, and scenario.pfc.alpha for lossless ones.",
        at_least=0,
    )
    egress_alphas: list[float] = parameter(
        ("sonic",), [], "Alpha of each queue of a port at egress; [] means as at ingress.", at_least=0
    )
    ingress_static_bytes: list[int] = parameter(
        ("sonic",),
        [],
        "Threshold of each queue of a port at ingress instead of alpha; 0 means alpha.",
        at_least=0,
        at_most=2**40,
    )
    egress_static_bytes: list[int] = parameter(
        ("sonic",),
        [],
        "Threshold of each queue of a port at egress instead of alpha; 0 means alpha.",
        at_least=0,
        at_most=2**40,
    )
    ingress_reserved_bytes: list[int] = parameter(
        ("sonic",), [], "Bytes that each queue has for itself at ingress.", at_least=0, at_most=2**40
    )
    egress_reserved_bytes: list[int] = parameter(
        ("sonic",), [], "Bytes that each queue has for itself at egress.", at_least=0, at_most=2**40
    )
    predictor: str = parameter(
        ("dt", *ASKING),
        "accept",
        "Answers to the policy: accept uses no predictor, so packets are accepted and an alpha stays; library "
        "asks a compiled predictor.",
        one_of=("accept", "library"),
    )
    library: str | None = parameter(
        ("dt", *ASKING), None, "Path of the compiled predictor; null means the exported model of the command."
    )
    tau: int | None = parameter(
        ASKING,
        None,
        "Threshold: the policy drops if the score exceeds tau; null means the predictor's own.",
        at_least=-(2**63),
        at_most=2**63 - 1,
    )
    flip_probability: float = parameter(ASKING, 0.0, "Share of predictions that are inverted.", at_least=0, at_most=1)
    message_end: str | None = parameter(
        READ_TAGS,
        None,
        "Path of a compiled predictor that tells the last packets of a message by what the switch counts of flows; "
        "null means that their senders tell.",
    )
    flow_entries: int = parameter(
        (*READ_TAGS, *(name for name in ASKING if name not in READ_TAGS)),
        0,
        "Entries of 32 bits in which a switch counts flows, where its predictors read it; 0 means one for every flow.",
        at_least=0,
        at_most=2**24,
    )


@dataclass
class SlotParameters(CommonParameters):
    """Parameters of the policies on unit packets in slots, and of the queues of a port.

    Examples
    --------
    >>> SlotParameters(alpha=[0.5, 2.0]).queues is None  # so a port has two queues, one for each alpha
    True
    """

    alpha: list[float] = parameter(
        _WITH_THRESHOLD,
        [0.5],
        "Alpha: the threshold is alpha times the free buffer; one value for all queues of a port, or one for each.",
        above=0,
    )
    rtt_slots: int = parameter(
        IN_INTERVALS,
        25,
        "With arrivals, the number of slots after which congested queues are counted and drop budgets begin anew.",
        at_least=1,
        at_most=2**40,
    )
    low_pass_slots: int = parameter(
        ("reverie",),
        1024,
        "With arrivals, the average moves to the queue's length by 1 / this per slot.",
        at_least=1,
        at_most=2**40,
    )
    bucket_packets: int = parameter(
        ("occamy",),
        25,  # full packets of 8 cells in 200 cells
        "With arrivals, the number of packets that may be expelled at once after a rest.",
        at_least=0,
        at_most=2**30,
    )
    drop_budget_packets: int = parameter(
        ("guarded",),
        2**30,  # no limit: bursts in slots have to lose far more than a link sends
        "With arrivals, the number of packets that predictions may drop of a queue in rtt_slots.",
        at_least=0,
        at_most=2**30,
    )
    window_slots: int = parameter(
        ("chosen",),
        1000,
        "With arrivals, the number of slots of the windows between which the rule may change.",
        at_least=1,
        at_most=2**40,
    )
    queues: int | None = setting(
        None,
        "With arrivals, the number of queues of a port, into which the column priority sorts; null means one for each "
        "alpha.",
        at_least=1,
        at_most=MOST_QUEUES,
    )
    scheduler: str = setting("round_robin", "With arrivals, the queue that a port serves next.", one_of=SCHEDULERS)
    quanta: list[int] = setting(
        [],
        "With arrivals and deficit_round_robin, the packets that each queue may send in its turn; [] means one each.",
        at_least=1,
        at_most=2**30,
    )

    @property
    def count(self) -> int:
        """Queues of a port."""
        return self.queues or len(self.alpha)

    def in_network(self) -> NetworkParameters:
        """Return the parameters that mean the same in bytes, with the first alpha."""
        same = {one.name: getattr(self, one.name) for one in fields(CommonParameters)}
        return NetworkParameters(alpha=self.alpha[0], **same)


_SETTINGS = {one.name: one for one in fields(SwitchParameters)}
NUMBERS = {name: one for name, one in _SETTINGS.items() if re.match("int|float", str(one.type))}
"""Parameters in ns-3 that are numbers, by the names of their settings."""

OF_QUEUES = tuple(name for name, one in _SETTINGS.items() if str(one.type) in ("list[int]", "list[float]"))
"""Parameters with a value for each queue of a port."""

_WITH_SETTINGS = re.compile(
    rf"(?P<name>{'|'.join(sorted(POLICIES, key=len, reverse=True))})"
    rf"(?P<settings>(?:_(?:{'|'.join(sorted(NUMBERS, key=len, reverse=True))})_-?[0-9][0-9.e+-]*)+)"
)


def heeded_settings(policy: str) -> list[str]:
    """The names of the settings in ns-3 that one of Foretail's own policies heeds."""
    return [name for name, one in _SETTINGS.items() if policy in one.metadata["heeding"]]


def numbers_of(policy: str) -> list[str]:
    """The names of those that are numbers."""
    return [setting for setting in heeded_settings(policy) if setting in NUMBERS]


def name_with_settings(name: str, settings: Mapping[str, float]) -> str:
    """The name of a policy with settings of its own, such as ``dt_alpha_8``."""
    return "_".join([name, *(f"{setting}_{repr(value).removesuffix('.0')}" for setting, value in settings.items())])


def settings_in_name(policy: str) -> tuple[str, dict[str, float]] | None:
    """The policy and the settings that such a name has; None for any other name."""
    parts = _WITH_SETTINGS.fullmatch(policy)
    if parts is None:
        return None
    pairs = re.findall(rf"_({'|'.join(sorted(NUMBERS, key=len, reverse=True))})_(-?[0-9][0-9.e+-]*)", parts["settings"])
    whole = re.compile(r"-?\d+")
    return parts["name"], {name: int(value) if whole.fullmatch(value) else float(value) for name, value in pairs}


_VARIANTS = {
    "accept": "always accept",
    "head": "from the head",
    "first_rtt": "sparing first round trips",
    "last": "sparing the last of a message",
    "most_left": "most left to send",
    "over_congested": "over congested queues",
    "predicted": "predicted alpha",
    "sparing": "sparing the last of a message",
    "tuned": "tuned",
}
"""Suffixes that options of the group ``policy`` add to the name of a policy, and their words."""


def policy_words(policy: str) -> str:
    """Return the words for a policy in sentences: also ``dt_tuned``, and with the model it asks ``credence, MODEL``."""
    if (named := settings_in_name(policy)) is not None:
        settings = ", ".join(f"{setting} {value:g}" for setting, value in named[1].items())
        return f"{policy_words(named[0])}, {settings}"
    if policy in POLICIES:
        return POLICIES[policy].words or POLICIES[policy].title
    base, _, suffix = policy.partition("_")
    if base in POLICIES and suffix in _VARIANTS:
        return f"{policy_words(base)}, {_VARIANTS[suffix]}"
    base, _, model = policy.partition(", ")
    return f"{policy_words(base)}, {model}" if model and base in ASKING else policy_name(policy)


def takes_alpha(policy: str) -> bool:
    """Return whether a predictor may set a policy's alphas, once per interval, in ns-3."""
    return policy in _SETTINGS["alpha_interval_ns"].metadata["heeding"]


@dataclass
class _InBytes(NetworkParameters):
    """Parameters of a native run in bytes; in ns-3 the round trip is that of the network."""

    rtt_ns: int = parameter(IN_INTERVALS, 2**15, "as rtt_slots, in nanoseconds", at_least=1, at_most=2**40)
    artifact_cut_bytes: int = parameter(
        ("credence_artifact",), 1500, "what the largest threshold loses at a time", at_least=1, at_most=2**40
    )


@dataclass
class _InSlots(SlotParameters):
    """Parameters of a native run in slots."""

    artifact_cut_packets: int = parameter(
        ("credence_artifact",), 1, "what the largest threshold loses at a time", at_least=1, at_most=2**40
    )


Units = Literal["bytes", "slots"]
NATIVE: dict[Units, dict[str, Field[Any]]] = {
    "bytes": {one.name: one for one in fields(_InBytes)},
    "slots": {one.name: one for one in fields(_InSlots) if "heeding" in one.metadata},
}
"""The parameters that a native run takes, by name."""

_MOST_NATIVE_QUEUES = 64  # of a port, in slots and in replays
_UNIT = re.compile(r"_(ns|slots|bytes|packets)$")


def without_unit(name: str) -> str:
    """The name of a parameter in C++, where times and sizes have no unit."""
    return _UNIT.sub("", name)


def _default(parameter: Field[Any]) -> Any:
    default = parameter.default if parameter.default_factory is MISSING else parameter.default_factory()
    return [default] if parameter.name == "alpha" and not isinstance(default, list) else default


_DEFAULTS = {
    units: {without_unit(name): _default(parameter) for name, parameter in table.items()}
    for units, table in NATIVE.items()
}


def native_parameters(units: Units, given: Mapping[str, Any]) -> dict[str, list[float] | float]:
    """The parameters of all policies as a native run takes them: those given, and the defaults of the others.

    ForetailError naming one that is unknown, no number, or out of its bounds.
    """
    table, values = NATIVE[units], dict(_DEFAULTS[units])
    for name, value in given.items():
        if name not in table:
            raise ForetailError(f"a run in {units} has no setting {name}: choose from {', '.join(table)}")
        numbers = list(value) if isinstance(value, (list, tuple)) and name in ("alpha", "rules") else [value]
        if name == "alpha" and not 1 <= len(numbers) <= _MOST_NATIVE_QUEUES:
            raise ForetailError(f"alpha must hold one number per queue of a port, 1 to {_MOST_NATIVE_QUEUES}")
        limits = {**table[name].metadata, "kind": int if table[name].type == "int" else float}
        for one in numbers:
            require_within(name, one, limits)
        values[without_unit(name)] = numbers if name in ("alpha", "rules") else value
    return values
