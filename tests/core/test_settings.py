"""Settings: the one check of a value, and the words for what it may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest

from foretail.core.errors import ForetailError
from foretail.core.settings import limits_of, range_in_words, require_settings, require_within, setting

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass
class Base:
    share: float = setting(0.5, at_least=0, at_most=1)
    period: int | None = setting(None, above=0)


@dataclass
class Node(Base):
    exact: ClassVar[Fraction | None] = None
    mode: Literal["fast", "slow"] = setting("fast")
    sizes: list[int] = setting([4], power_of_two=True)
    names: tuple[str, ...] = ()
    on: bool = False
    learned: Fraction | None = field(default=None, init=False)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"share": 1, "period": 3, "sizes": [1, 8], "names": ("a",), "on": True}, None),
        ({"share": 1.5}, "share = 1.5 is out of range: it must be a number, at least 0, at most 1"),
        ({"share": float("nan")}, "share = nan is not a finite number"),
        ({"share": "1"}, "share = 1 is out of range: it must be a number, at least 0, at most 1"),
        ({"share": True}, "share = True is out of range: it must be a number, at least 0, at most 1"),
        ({"share": None}, "share = None is out of range: it must be a number, at least 0, at most 1"),
        ({"period": 0}, "period = 0 is out of range: it must be a whole number, above 0, or null"),
        ({"period": []}, r"period = \[\] is out of range: it must be a whole number, above 0, or null"),
        ({"mode": "late"}, "mode = late is out of range: it must be one of fast, slow"),
        ({"sizes": [4, 6]}, r"sizes = 6 is out of range: it must be list\[int\], a power of two"),
        ({"names": (1,)}, r"names = \(1,\) is out of range: it must be tuple\[str, ...\]"),
        ({"on": 1}, "on = 1 is out of range: it must be true or false"),
    ],
)
def test_values_are_of_the_type_and_in_the_range(values: dict[str, Any], refusal: str | None) -> None:
    if refusal is None:
        require_settings(Node(**values))
        return
    with pytest.raises(ForetailError, match=f"^{refusal}$"):
        require_settings(Node(**values))


def test_limits_without_a_type_bind_numbers_and_names_alone() -> None:
    limits = setting("a", one_of=("a", "b")).metadata
    assert (range_in_words(limits), range_in_words({})) == ("one of a, b", "")
    require_within("x", None, limits)
    with pytest.raises(ForetailError, match=r"^x = c is unknown: choose from a, b$"):
        require_within("x", ["a", "c"], limits)
    assert list(limits_of(Node)) == ["share", "period", "mode", "sizes", "names", "on"]
