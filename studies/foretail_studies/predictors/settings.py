"""Settings of the study of drop predictors."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedJobSettings
from foretail.configs.schema.fields import part, require_seeds, setting
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError


@dataclass
class ClosedLoop:
    """Simulations of a study in which Credence asks the candidates."""

    conditions: list[str] = setting([], "Conditions of the study; an empty list runs no simulations.")
    candidates: list[str] = setting([], "Candidates, which must be trees.")
    policies: list[str] = setting(
        ["lqd", "credence_accept", "followlqd", "dt"], "Policies to run beside them; lqd has to be among them."
    )
    seeds: list[int] = setting([], "Traffic seeds on which no candidate trained.", at_least=1, at_most=2**31 - 1)


@dataclass
class Shift:
    """A candidate that trains under each condition alone and is tested under all of them."""

    conditions: list[str] = setting([], "Conditions of the study; an empty list makes no shift matrix.")
    candidate: str = setting("ours", "Candidate of the study.")
    seeds: list[int] = setting(
        [], "Traffic seeds of the closed loop; an empty list means open loop only.", at_least=1, at_most=2**31 - 1
    )


@dataclass
class StudySettings(SimulatedJobSettings):
    """Predictors on runs and conditions that they never saw; overrides are written as on the command line."""

    shared: list[str] = setting(["scenario=leafspine_small"], "Overrides that all conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of each condition, by its name.")
    train_on: list[str] = setting(MISSING, "Conditions whose runs train; the others are new to every candidate.")
    split: Split = part(Split, "Seeds of the runs, split by run.")
    candidates: dict[str, list[str]] = setting(MISSING, "Overrides of foretail train, by the candidate's name.")
    closed_loop: ClosedLoop = part(ClosedLoop, "Settings of the runs in closed loop.")
    shift: Shift = part(Shift, "Settings of the shift matrix.")
    forest_sizes: list[int] = setting([1, 2, 4, 8, 16, 32], "Numbers of trees of Figure 15.", at_least=1)
    labels: list[str] = setting(
        [],
        "Policies beside lqd whose runs the label study compares, the last of them asking a candidate; an "
        "empty list means none.",
    )
    label_candidate: str = setting("forest", "Candidate of the label study, which must be trees.")
    budget: list[str] = setting(
        [],
        "Candidates that fit a switch, of which the best on validation runs is proposed as champion; an "
        "empty list proposes none.",
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on names that mean nothing here, and on seeds that have two roles."""
        super().check(where)
        if self.split.name != "by_run":
            raise ForetailError(f"split is {self.split.name}: a study holds whole runs out, use by_run")
        for name, known in (("conditions", self.conditions), ("candidates", self.candidates)):
            if not known:
                raise ForetailError(f"{name} is empty: name at least one")
        if not self.train_on:
            raise ForetailError("train_on is empty: name conditions to train on")
        for name, given, known in (
            ("train_on", self.train_on, self.conditions),
            ("closed_loop.conditions", self.closed_loop.conditions, self.conditions),
            ("closed_loop.candidates", self.closed_loop.candidates, self.candidates),
            ("shift.conditions", self.shift.conditions, self.conditions),
            ("shift.candidate", [self.shift.candidate] if self.shift.conditions else [], self.candidates),
            ("label_candidate", [self.label_candidate] if self.labels else [], self.candidates),
            ("budget", self.budget, self.candidates),
        ):
            for item in given:
                if item not in known:
                    raise ForetailError(f"{name} names {item}, which is not among {', '.join(known)}")
        for name, simulated in (("closed_loop", self.closed_loop.seeds), ("shift", self.shift.seeds)):
            self.split.require_unseen(f"{name}.seeds and the split", simulated, "simulate other seeds")
        if self.closed_loop.conditions:
            require_seeds("closed_loop.seeds", self.closed_loop.seeds)
            if "lqd" not in self.closed_loop.policies:
                raise ForetailError("closed_loop.policies lacks lqd, to which all are compared: add it")
        if self.budget and not self.tracking.enabled:
            raise ForetailError("budget makes a champion in MLflow, and tracking is off: turn it on or empty it")
