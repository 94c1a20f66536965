"""Causes, as measured, of published figures that do not come out."""

from __future__ import annotations

from dataclasses import dataclass

SCALE, UNKNOWN_SETTING, SOURCE, OURS = "scale", "unknown setting", "source", "ours"
KINDS = {
    SCALE: "a larger network, a longer run or more load gives the published figure",
    UNKNOWN_SETTING: "the source does not print a setting, of which some value gives the published figure",
    SOURCE: "the statement of the source cannot be had",
    OURS: "our implementation is wrong",
}


@dataclass(frozen=True)
class Cause:
    """A cause of one or several figures of a system, found by changing one thing."""

    system: str  #: by its name in settings
    quantities: tuple[str, ...]
    kind: str  #: one of `KINDS`
    words: str  #: what was changed, and what that gave


def _each(pattern: str, *values: str) -> tuple[str, ...]:
    return tuple(pattern.format(value) for value in values)


CAUSES = (
    Cause(
        "timely",
        ("p99 round trip of an incast, TIMELY against DCTCP",),
        SCALE,
        "The thesis runs for ten minutes. Without the first 2 ms of each burst, and with bursts of 100 buffers, it is "
        "-87.6 [-87.9, -87.3].",
    ),
    Cause(
        "nona",
        (
            *_each("{} completion time, Random over Nona, most over loads", "mean", "p99"),
            "p99 completion time, Opportunistic over Nona, most over loads",
        ),
        UNKNOWN_SETTING,
        "The number of jobs is not printed, and under overload factors grow with it: in order, they are 203 [178, "
        "228] for 1,250 jobs, 120 [80, 160] for 1,100 and 20 [18, 21] for 3,000.",
    ),
    Cause(
        "nona",
        (
            *_each("mean completion time, {} over Nona, most over loads", "Spark", "Spark that spreads"),
            *_each("p99 completion time, {} over Nona, most over loads", "Spark", "Spark that spreads"),
        ),
        UNKNOWN_SETTING,
        "The rate of a server is not printed. With 600 jobs they are, in order, 65 [50, 81] at 3e14 operations/s, 54 "
        "[35, 73] at 4e13, 75 [53, 97] at 6e13 and 64 [30, 97] at 1e13; no rate gives all.",
    ),
    Cause(
        "universal",
        (
            *_each("overdue, load {} %", "30", "70", "90"),
            "overdue, FQ",
            *_each("overdue by more than T, {}", "SJF", "LIFO", "I2 / 10"),
        ),
        UNKNOWN_SETTING,
        "Sizes and numbers of flows are not printed. With flows from 300, 50, 50, 6, 1.5, 100 and 100 KB on they are, "
        "in order, 0.020, 0.0016, 0.0008, 0.025, 0.0023, 0.011 and 1.1e-05.",
    ),
    Cause(
        "universal",
        ("overdue by more than T, I2 10G-10G",),
        UNKNOWN_SETTING,
        "T is printed for 1 Gbit/s. With that of an edge link, 1.2 us instead of 12, it is 0.046 [0.028, 0.063] over "
        "six seeds.",
    ),
    Cause(
        "sirona",
        _each("web search: mean FCT, Sirona against {}, %", "ECMP", "Flowbender"),
        UNKNOWN_SETTING,
        "The network of this section is not printed: with two of eight spines slow they are -23.9 [-44.0, -3.8] and "
        "-15.1 [-22.7, -7.5].",
    ),
    Cause(
        "vermilion",
        ("delivered, permutation, 40 %, against RotorNet, change in %",),
        SCALE,
        "It grows with the load: +4.9, +8.2 and +11.4 [+8.5, +14.4] at 40, 45 and 50 %.",
    ),
    Cause(
        "vermilion",
        _each("{}, against VLB, change in %", "long p99, permutation, 10 %", "delivered, permutation, 40 %"),
        UNKNOWN_SETTING,
        "Buffers are not printed, ours have no bound: with 8 packets a port the first is -77.1 [-81.1, -73.0], with "
        "24 the second is +78.7 [+45.7, +111.8].",
    ),
    Cause(
        "mars",
        _each("short p99, {}, 5 %, against Opera, change in %", "permutation", "all to all"),
        UNKNOWN_SETTING,
        "How long Opera keeps a matching is not printed: with one slot instead of 100 us they are -52.9 [-60.0, "
        "-45.7] and -33.5 [-41.9, -25.0].",
    ),
    Cause(
        "mars",
        _each("delivered, all to all, 20 %, against {}, change in %", "Opera", "expander"),
        SCALE,
        "Rooms are whole cells of 19 packets, and it grows with them: with 64 packets a port Opera has +36.3 [+33.1, "
        "+39.4], with 32 the expander +32.1 [+18.4, +45.7].",
    ),
    Cause(
        "linc",
        ("packets sent again at n / k = 1.18, %",),
        SOURCE,
        "With n = 59, k = 50 and losses of 10 % the formula of the thesis leaves 1.21 %, and less than 0.1 % from n / "
        "k = 1.26 on.",
    ),
)


def cause_of(system: str, quantity: str) -> Cause | None:
    """The cause of a figure, None where it has none."""
    return next((cause for cause in CAUSES if cause.system == system and quantity in cause.quantities), None)
