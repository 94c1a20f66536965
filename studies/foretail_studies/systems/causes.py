"""Causes, as measured, of published figures that do not come out."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = SCALE, UNKNOWN_SETTING, SOURCE = "scale", "unknown setting", "source"
"""Another network, buffer, run or load gives the figure; a setting that is not printed does; it cannot be had."""


@dataclass(frozen=True)
class Cause:
    """A cause of one or several figures of a system, which was measured by changing one thing."""

    system: str  #: by its name in settings
    quantities: tuple[str, ...]
    kind: str  #: one of `KINDS`
    words: str  #: how the source differs, without a full stop; docs/reports/systems.md says what changing it gave


def _each(pattern: str, *values: str) -> tuple[str, ...]:
    return tuple(pattern.format(value) for value in values)


CAUSES = (
    Cause(
        "credence",
        ("incast, Credence against ABM",),
        SCALE,
        "Answers fit into the first round trip, which ABM spares",
    ),
    Cause(
        "powertcp",
        (
            *_each("short p99.9 at {} % load, PowerTCP against TIMELY", "20", "60"),
            "short p99.9 at 60 % load, theta-PowerTCP against TIMELY",
        ),
        UNKNOWN_SETTING,
        "Neither this source nor that of TIMELY prints alpha, the weight of the newest difference of round trips",
    ),
    Cause(
        "powertcp",
        ("short p99.9 at 60 % load, theta-PowerTCP against HPCC",),
        UNKNOWN_SETTING,
        "The settings of HPCC are not printed",
    ),
    Cause(
        "powertcp",
        ("medium p99.9 at 20 % load, PowerTCP against HPCC",),
        SCALE,
        "The thesis has 256 servers in three tiers, and size=full has them",
    ),
    Cause(
        "irn",
        ("timely: p99 FCT, us, IRN against RoCE with PFC",),
        UNKNOWN_SETTING,
        "The thesis prints no alpha for TIMELY",
    ),
    Cause(
        "nona",
        (
            *_each("{} completion time, Random over Nona, most over loads", "mean", "p99"),
            "p99 completion time, Opportunistic over Nona, most over loads",
        ),
        UNKNOWN_SETTING,
        "The number of jobs is not printed, and under overload factors grow with it",
    ),
    Cause(
        "nona",
        (
            *_each("mean completion time, {} over Nona, most over loads", "Spark", "Spark that spreads"),
            *_each("p99 completion time, {} over Nona, most over loads", "Spark", "Spark that spreads"),
        ),
        UNKNOWN_SETTING,
        "The rate of a server is not printed",
    ),
    Cause(
        "universal",
        (
            *_each("overdue, load {} %", "30", "70", "90"),
            "overdue, FQ",
            *_each("overdue by more than T, {}", "SJF", "LIFO", "I2 / 10"),
        ),
        UNKNOWN_SETTING,
        "Sizes and numbers of flows are not printed",
    ),
    Cause(
        "universal",
        ("overdue by more than T, I2 10G-10G",),
        UNKNOWN_SETTING,
        "T is printed for 1 Gbit/s",
    ),
    Cause(
        "sirona",
        _each("web search: mean FCT, Sirona against {}, %", "ECMP", "Flowbender"),
        UNKNOWN_SETTING,
        "The network of this section is not printed",
    ),
    Cause(
        "sirona",
        (
            "web search: max FCT, Sirona against ECMP, %",
            *_each("web search: {} FCT, Sirona against RPS, %", "mean", "max"),
            *_each("web search: {} FCT, Sirona against USS, %", "mean", "max"),
        ),
        UNKNOWN_SETTING,
        "The rate of slow spines is not printed for this section",
    ),
    Cause(
        "sirona",
        ("all-to-all, symmetric: max FCT, Sirona against USS, %",),
        UNKNOWN_SETTING,
        "The length of a queue that marks packets is not printed",
    ),
    Cause(
        "vermilion",
        _each("{}, against RotorNet, change in %", "long p99, permutation, 10 %", "delivered, permutation, 40 %"),
        SCALE,
        "It grows with the load",
    ),
    Cause(
        "vermilion",
        _each("{}, against VLB, change in %", "long p99, permutation, 10 %", "delivered, permutation, 40 %"),
        UNKNOWN_SETTING,
        "Buffers are not printed, ours have no bound",
    ),
    Cause(
        "mars",
        _each("short p99, {}, 5 %, against Opera, change in %", "permutation", "all to all"),
        UNKNOWN_SETTING,
        "How long Opera keeps a matching is not printed",
    ),
    Cause(
        "mars",
        (
            *_each("short p99, {}, 10 %, against Opera, change in %", "permutation", "all to all"),
            "short p99, permutation, 10 %, against Sirius, change in %",
        ),
        UNKNOWN_SETTING,
        "How long slots and matchings of Opera last is not printed",
    ),
    Cause(
        "mars",
        _each("delivered, all to all, 20 %, against {}, change in %", "Opera", "expander"),
        SCALE,
        "Rooms are whole cells of 19 packets, and it grows with them",
    ),
    Cause(
        "linc",
        ("packets sent again at n / k = 1.18, %",),
        SOURCE,
        "The formula of the thesis leaves more",
    ),
)


def cause_of(system: str, quantity: str) -> Cause | None:
    """The cause of a figure, None where it has none."""
    return next((cause for cause in CAUSES if cause.system == system and quantity in cause.quantities), None)
