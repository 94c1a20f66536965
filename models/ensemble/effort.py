"""How long work on all inputs of a model may take: progress is reported, and what would take too long is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from foretail.core.errors import ForetailError

Item = TypeVar("Item")


@dataclass(eq=False)
class Effort:
    """Watches the loops of one export against a budget of computing time, which a busy machine does not change."""

    budget_seconds: float = math.inf  #: of computing time in this process, from now on
    #: called with what is being done and the part of it that is, 0 to 1
    report: Callable[[str, float], None] = lambda what, part: None
    clock: Callable[[], float] = time.process_time  #: seconds of computing time

    def __post_init__(self) -> None:
        self._started = self.clock()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Report work without parts, which nobody can foretell: when it begins, and when it is done."""
        self.report(what, 0.0)
        yield
        self.report(what, 1.0)

    def watch(self, what: str, items: Iterable[Item], count: int, later: int = 0) -> Iterator[Item]:
        """Yield the `count` items, whose work takes about as long for each.

        ForetailError as soon as it is clear that all of them would take longer than the budget.

        Parameters
        ----------
        what : what is done, in reports and errors
        later : so many loops as long as this one, or longer, will follow
        """
        begun = self.clock()
        for done, item in enumerate(items, start=1):
            yield item
            spent = self.clock() - begun
            needed = begun - self._started + (1 + later) * spent * count / done
            # A hundredth of the budget is enough to tell, and more than what the first item alone may take to set up.
            if needed > self.budget_seconds and spent > self.budget_seconds / 100:
                raise ForetailError(
                    f"the export would compute for at least {needed:,.0f} s ({what}), more than "
                    f"budget_seconds={self.budget_seconds:,.0f}: raise it, set max_cells below the model's cells, so "
                    f"that the proof goes by boxes, or train fewer trees"
                )
            self.report(what, done / count)
