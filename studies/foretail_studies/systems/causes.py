"""Causes, as measured, of published figures that do not come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SCALE, UNKNOWN_SETTING, SOURCE, OURS = "scale", "unknown setting", "source", "ours"
KINDS = {
    SCALE: "a larger network or a longer run gives the published figure",
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
        "nona",
        (
            *_each("{} completion time, Random over Nona, most over loads", "mean", "p99"),
            "p99 completion time, Opportunistic over Nona, most over loads",
        ),
        UNKNOWN_SETTING,
        "The number of jobs is not printed, and under overload factors grow with it: Random has 203 [178, 228] with "
        "1,250 jobs and 120 [80, 160] at the 99th percentile with 1,100, Opportunistic 20 [18, 21] with 3,000.",
    ),
    Cause(
        "nona",
        tuple(
            name
            for of in ("mean", "p99")
            for name in _each(of + " completion time, {} over Nona, most over loads", "Spark", "Spark that spreads")
        ),
        UNKNOWN_SETTING,
        "The rate of a server is not printed. With 600 jobs Spark has 65 [50, 81] at 3e14 operations/s and 75 [53, 97] "
        "at the 99th percentile at 6e13; if it spreads, 54 [35, 73] at 4e13 and 64 [30, 97] at 1e13.",
    ),
    Cause(
        "linc",
        ("packets sent again at n / k = 1.18, %",),
        SOURCE,
        "With n = 59, k = 50 and losses of 10 % the formula of the thesis leaves 1.21 % to send again, and less than "
        "0.1 % from n / k = 1.26 on.",
    ),
)


def cause_of(system: str, quantity: str, causes: Sequence[Cause] = CAUSES) -> Cause | None:
    """The cause of a figure, None where it has none."""
    return next((cause for cause in causes if cause.system == system and quantity in cause.quantities), None)
