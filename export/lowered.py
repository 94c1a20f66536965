"""A model on its way out, from the passes to the targets."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.models.ensemble.ensemble import Ensemble


@dataclass(frozen=True)
class PassReport:
    """What one pass did: its name, and the leaves of the ensemble before and after it."""

    name: str
    leaves_before: int
    leaves_after: int


@dataclass(frozen=True)
class Lowered:
    """A model on its way out."""

    model: Ensemble  #: as given
    simple: Ensemble  #: after the passes: tree by tree the same function, which they have proven
    ensemble: Ensemble  #: with integer votes: what targets emit
    passes: tuple[PassReport, ...] = ()
    any_tau: bool = False  #: the votes were made for any tau, so that those for one may be narrower

    @classmethod
    def of(cls, voted: Lowered | Ensemble) -> Lowered:
        """Return an ensemble that has votes as one that no pass has touched."""
        return voted if isinstance(voted, Lowered) else cls(voted, voted, voted)
