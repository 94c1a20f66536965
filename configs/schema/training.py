"""Training: features, predictors, splits, labels, the operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.core.errors import ForetailError
from foretail.core.plugins import THRESHOLD_RULE_GROUP, offered
from foretail.core.settings import positive_share, require_seeds, seed_setting, setting, time_setting
from foretail.sim_bridge.policies import ASKING

THRESHOLDS = ("f1", "recovered_loss")
"""Scores that Foretail itself maximises; packages offer threshold rules."""


@dataclass
class FeatureSelection:
    """Which features a predictor sees."""

    names: list[str] = setting(MISSING, "Names of features from foretail.features.catalog, in the predictor's order.")
    own_queues: bool = setting(
        False, "Train on real features of LQD's own queues, as the paper did, instead of those of a shadow Credence."
    )


@dataclass
class Trainer:
    """Data that a predictor is trained on."""

    device: str = setting(
        "cpu",
        "Device on which XGBoost and PyTorch train; auto takes a GPU where there is one.",
        one_of=("cpu", "cuda", "auto"),
    )
    jobs: int = setting(1, "Number of threads that train.", at_least=1, at_most=1024)
    rows_in_memory: int = setting(
        100_000_000,
        "Number of training rows that fit into memory. Of more rows, XGBoost on a CPU keeps its bins in temporary "
        "files, and all other predictors train on a weighted sample.",
        at_least=1,
    )


@dataclass
class Split:
    """Which rows train, validate and test: whole runs, or stretches of time with a gap. Never random rows."""

    name: str = setting(MISSING, "Kind of split.", one_of=("by_run", "drawn", "by_time"))
    train: list[int] = seed_setting([], "By run: seeds of the runs to train on.")
    validation: list[int] = seed_setting([], "By run: seeds of the runs on which the operating point is chosen.")
    test: list[int] = seed_setting([], "By run: seeds of the runs on which the scores are computed.")
    seeds: list[int] = seed_setting(
        [], "By time: seeds of the runs to cut in three; drawn: seeds of the runs to draw from."
    )
    validation_fraction: float = positive_share(
        0.2, "Share that validates: of a run's time with by_time, of the runs with drawn."
    )
    test_fraction: float = positive_share(
        0.2, "Share that tests: of a run's time with by_time, of the runs with drawn."
    )
    seed: int = setting(1, "Drawn: seed of the draw.", at_least=0, at_most=2**32 - 1)
    gap_ns: int = time_setting(1_000_000, "By time: time left out between two stretches.", at_least=1)

    @property
    def roles(self) -> dict[str, list[int]]:
        """The seeds of a by-run split by role, or those of another split under one name."""
        if self.name == "by_run":
            return {"train": self.train, "validation": self.validation, "test": self.test}
        return {"seeds": self.seeds}

    @property
    def all_seeds(self) -> list[int]:
        """The seeds of all roles."""
        return [seed for seeds in self.roles.values() for seed in seeds]

    def check(self, where: str) -> None:
        """Raise ForetailError unless every run has one role, and something is left to train on."""
        seen: dict[int, str] = {}
        for role, seeds in self.roles.items():
            require_seeds(f"{where}.{role}", seeds)
            for seed in seeds:
                if seed in seen:
                    raise ForetailError(
                        f"{where}.{role} and {where}.{seen[seed]} both hold seed {seed}: a run has one role"
                    )
                seen[seed] = role
        held_out = self.validation_fraction + self.test_fraction
        if self.name != "by_run" and held_out >= 1:
            raise ForetailError(
                f"{where}.validation_fraction + {where}.test_fraction = {held_out:g} leaves nothing to train on: keep "
                "the sum below 1"
            )

    def require_unseen(self, where: str, seeds: Sequence[int], why: str) -> None:
        """Raise ForetailError when simulated `seeds` are those of a run of the split."""
        shared = sorted(set(seeds) & set(self.all_seeds))
        if shared:
            raise ForetailError(f"{where} share seed {shared[0]}: {why}")


@dataclass
class Sampling:
    """Which training rows are read: every drop and all of the asked region, and a share of the others, weighted."""

    others: float = positive_share(1.0, "Share of the other rows that is drawn; a smaller share saves memory and time.")
    seed: int = setting(1, "Seed of the draw.", at_least=0, at_most=2**32 - 1)


@dataclass
class OperatingPoint:
    """The probability threshold, chosen on the validation split."""

    region: str = setting("asked", "Rows that count: those where Credence asks, or all.", one_of=("asked", "whole"))
    maximise: str = setting(
        "f1",
        "Score that the threshold maximises: f1, recovered_loss of replays in which the predictor decides, or the "
        "threshold rule of a package.",
    )
    settings: Any = setting(None, "Settings of a package's rule, as {NAME: VALUE}; all others keep their defaults.")

    def check(self, where: str) -> None:
        """Raise ForetailError on a rule that nobody offers, and on settings of one that has none."""
        known = (*THRESHOLDS, *offered(THRESHOLD_RULE_GROUP, THRESHOLDS))
        if self.maximise not in known:
            raise ForetailError(f"{where}.maximise = {self.maximise} is unknown: choose from {', '.join(known)}")
        if self.settings is not None and self.maximise in THRESHOLDS:
            raise ForetailError(f"{where}.settings means nothing to {where}.maximise={self.maximise}: leave it out")


@dataclass
class Objective:
    """Target of learning: labels, or the packets sent.

    Examples
    --------
    >>> Objective(name="sent", trials=100).policy
    'learned'
    """

    name: str = setting(
        "labels",
        "What is learned: labels are LQD's decisions; sent learns thresholds that were searched for what they send.",
        one_of=("labels", "sent"),
    )
    rounds: int = setting(
        4,
        "Number of trainings, of which the best on validation runs is taken; labels needs one.",
        at_least=2,
        at_most=100,
    )
    policy: str = setting("learned", "With sent, the policy that asks the predictor while it runs.", one_of=ASKING)
    rows: int = setting(
        20_000,
        "With sent, rows that each run adds in a round, about.",
        at_least=100,
        at_most=10**8,
    )
    trials: int = setting(
        600, "With sent, number of rules that the search tries for each workload, about.", at_least=1, at_most=10**7
    )
