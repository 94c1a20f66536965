"""How much a property-based test draws."""

from __future__ import annotations

from hypothesis import settings


def draws(count: int) -> int:
    """A quarter of `count` in the profile `ci`; a tenth, at least 3, in `quick`; three times as many in `nightly`."""
    return max(3, count * (settings.default or settings()).max_examples // 100)
