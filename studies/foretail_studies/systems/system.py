"""A system of the literature: the figures that its authors print, and a function that measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from foretail.pipelines.runs.points import SoFar


@dataclass(frozen=True)
class Published:
    """A figure that a source prints."""

    quantity: str  #: what it is, with its unit
    value: float  #: as printed
    source: str  #: where it is printed, such as "Table 2.1"
    change: bool = False  #: whether it is a change in %, whose sign matters; otherwise a number above 0


def published(source: str, values: Mapping[str, float], *, change: bool = False) -> tuple[Published, ...]:
    """Return the figures that one place of a source prints, by quantity."""
    return tuple(Published(quantity, value, source, change) for quantity, value in values.items())


@dataclass(frozen=True)
class System:
    """A system of the literature."""

    name: str  #: as its authors write it
    source: str  #: the paper or thesis
    published: tuple[Published, ...]
    #: Values by quantity, for a size ("small" or "medium") and a seed. A quantity that it leaves out in a size was not
    #: run; one that is not among `published` is a figure of ours alone.
    measure: Callable[[str, int, SoFar], Mapping[str, float]]
    seeds: Mapping[str, tuple[int, ...]]  #: by size; one seed where nothing is drawn


ONCE = {"small": (1,), "medium": (1,)}
"""Seeds of a system whose figures are computed."""


def change_percent(of: float, against: float) -> float:
    """Return by how much a value is more than another, in %; below 0 it is less."""
    return 100 * (of / against - 1)
