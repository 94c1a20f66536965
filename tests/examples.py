"""How much a property-based test draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def draws(count: int) -> int:
    """A quarter of `count` in the profile `ci`; a tenth, at least 3, in `quick`; three times as many in `nightly`."""
    return max(3, count * (settings.default or settings()).max_examples // 100)


def some_by_day(values: Iterable[Any], by_day: Callable[[Any], bool]) -> list[Any]:
    """Values or tuples for parametrize, of which the others run at night."""
    rows = [one if isinstance(one, tuple) else (one,) for one in values]
    return [
        pytest.param(*row, marks=[] if by_day(row[0] if len(row) == 1 else row) else pytest.mark.nightly)
        for row in rows
    ]
