"""Summaries of values with large contents in a session: one line, and a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

LONGEST = 200
"""Letters of anything else that is shown."""
MOST = 6
"""Entries that are written out; of more, only their number."""


class Summarised:
    """A dataclass whose ``repr`` has the type and the shape of arrays, and the number of long contents.

    Examples
    --------
    >>> from foretail.features.demand.matrix import DemandMatrix
    >>> DemandMatrix([[0, 1], [2, 0]])
    DemandMatrix(demand=float64[2, 2])
    """

    also: ClassVar[tuple[str, ...]] = ()  #: properties that are shown beside the fields

    def shown_values(self) -> dict[str, str]:
        """Return what is shown, by name."""
        shown: Any = self
        names = (*(one.name for one in fields(shown) if one.repr), *self.also)
        return {name: _words(getattr(self, name)) for name in names}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={words}' for name, words in self.shown_values().items())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(words)}</td></tr>"
            for name, words in self.shown_values().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def _words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, (float, Fraction)):
        return f"{float(value):.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        every = ", ".join(f"{key}: {_words(one)}" for key, one in value.items())
        return f"{{{every}}}" if len(value) <= MOST else f"{len(value):,} entries"
    if isinstance(value, (tuple, list)):
        if len(value) <= MOST and all(isinstance(one, (int, float, str)) for one in value):
            return f"({', '.join(map(_words, value))})"
        return f"{len(value):,} {type(value[0]).__name__}"
    if hasattr(value, "shape"):  # a frame
        return f"{type(value).__name__}[{', '.join(map(str, value.shape))}]"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
