"""The steps of a long stage: said on stderr when they begin, timed when they end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Steps:
    """Wall time per step of this run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  #: by name, in order; what the store had takes next to nothing

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Say that a step begins, and note how long it took."""
        print(f"{step} ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - started
