"""Accounts of inputs: what one says that Foretail does not use, and what its reader takes for granted.

A reader refuses what it does not know. What it leaves out and what it guesses is a :class:`Reading`, which it tells: a
command prints the sentence, and a program of a user hears it by :func:`telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MOST_NAMED = 8
"""Most parts of an input that a sentence names."""


@dataclass(frozen=True)
class Reading:
    """One input as its reader understood it.

    Examples
    --------
    >>> Reading("log.csv", ("the column ttl",), ("time_ns are nanoseconds",)).sentence()
    'log.csv has the column ttl, which Foretail does not use; it is taken for granted that time_ns are nanoseconds'
    """

    source: str  #: the input, as errors name it
    left_out: tuple[str, ...] = ()  #: fields, rows, tables or modules that have no effect, in words
    guesses: tuple[str, ...] = ()  #: units, clocks, numbers or labels, what they rest on, and the setting that settles

    def sentence(self) -> str:
        """One sentence for people; empty where the input says nothing else than what is used."""
        more = len(self.left_out) - MOST_NAMED
        parts = [*self.left_out[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])]
        left = f"{self.source} has {', '.join(parts)}, which Foretail does not use" if parts else ""
        guessed = f"it is taken for granted that {', '.join(self.guesses)}" if self.guesses else ""
        return f"{left}; {guessed}" if left and guessed else left or (f"in {self.source}, {guessed}" if guessed else "")

    def tell(self) -> None:
        """Tell what was left out and guessed to whoever listens; nothing where there is neither."""
        listener = _LISTENER.get()
        if listener is not None and (self.left_out or self.guesses):
            listener(self)


_LISTENER: ContextVar[Callable[[Reading], None] | None] = ContextVar("readings", default=None)


@contextmanager
def telling(listener: Callable[[Reading], None] | None = None) -> Iterator[list[Reading]]:
    """Hand every reading meanwhile to `listener`, or else add it to the list."""
    readings: list[Reading] = []
    token = _LISTENER.set(listener or readings.append)
    try:
        yield readings
    finally:
        _LISTENER.reset(token)
