"""Families of conditions: some are trained on, the others are held out to judge."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.core.errors import ForetailError
from foretail.core.settings import setting


@dataclass
class Family:
    """Conditions that resemble each other."""

    held_out: bool = setting(MISSING, "Never choose settings of policies on this family.")
    shared: list[str] = setting([], "Overrides that its conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of each condition, by its name.")
    last: dict[str, list[str]] = setting({}, "Overrides of a condition that follow all others, by its name.")

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no condition, or last names one that is not there."""
        if not self.conditions:
            raise ForetailError(f"{where}.conditions is empty: name at least one")
        if unknown := sorted(self.last.keys() - self.conditions.keys()):
            raise ForetailError(
                f"{where}.last.{unknown[0]} names no condition: name one of {', '.join(self.conditions)}"
            )

    def overrides(self, condition: str) -> list[str]:
        """The overrides of a condition in their order."""
        return [*self.shared, *self.conditions[condition], *self.last.get(condition, [])]


@dataclass
class Families:
    """Families by name."""

    shared: list[str] = setting(MISSING, "Overrides that all conditions share.")
    families: dict[str, Family] = setting(
        MISSING, "Families by name; which of them are held out is drawn before anything is tried."
    )

    def training(self) -> dict[str, Family]:
        """The families on which settings may be chosen."""
        return {name: family for name, family in self.families.items() if not family.held_out}

    def held_out(self) -> dict[str, Family]:
        """The families that only judge."""
        return {name: family for name, family in self.families.items() if family.held_out}

    def require_both_sides(self) -> None:
        """Raise ForetailError without a family that trains or one that judges."""
        if not self.training() or not self.held_out():
            raise ForetailError("families needs one with held_out=false and one with held_out=true")
