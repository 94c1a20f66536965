"""Experiments on packets: in the slotted model, and on flows in ns-3."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.fields import Experiment, part, setting
from foretail.configs.schema.policies import ASKING, BUFFER_POLICIES
from foretail.configs.schema.training import Split
from foretail.features.errors import ForetailError


@dataclass
class SlotExperiment(Experiment):
    """Generated arrivals under several policies: every workload, switch, flip probability and seed is a point."""

    experiment: str = setting(
        MISSING,
        "what is computed, drawn and tabled",
        one_of=("credence_fig14", "credence_smoothness", "competitive_ratio"),
    )
    workloads: list[str] = setting(MISSING, "names from foretail.sim_bridge.arrivals.workloads, with their defaults")
    ports: list[int] = setting(MISSING, "N, ports of the switch", at_least=1, at_most=32_768)
    buffer_per_port: list[int] = setting(MISSING, "B / N, packets of shared buffer", at_least=1, at_most=2**24)
    flip_probabilities: list[float] = setting(
        [0.0], "shares of perfect predictions that are inverted", at_least=0, at_most=1
    )
    seeds: list[int] = setting([1], "of arrivals and flips", at_least=1, at_most=2**31 - 1)
    slots: int = setting(MISSING, "slots with arrivals", at_least=1, at_most=2**40)
    policies: list[str] = setting(MISSING, "policies beside LQD", one_of=BUFFER_POLICIES)

    def check(self, where: str) -> None:
        """Raise ForetailError when the policy is missing that the experiment is about."""
        super().check(where)
        if self.experiment != "competitive_ratio" and "credence" not in self.policies:
            raise ForetailError(f"{where}.policies lacks credence, which {self.experiment} is about: add it")


@dataclass
class FlowExperiment(Experiment):
    """Flows in ns-3: every condition, policy, share of flips and seed is a point.

    Overrides are written as on the command line: of the scenario in ``scenario`` and ``conditions``, of
    ``foretail train`` in ``models`` and ``train``.
    """

    experiment: str = setting(
        MISSING,
        "what is drawn and tabled",
        one_of=(
            "credence_fig6",
            "credence_fig7",
            "credence_fig8",
            "credence_fig9",
            "credence_fig10",
            "where_prediction_pays",
        ),
    )
    axis: str = setting(MISSING, "what the names of the conditions, or of the flips, say")
    scenario: list[str] = setting(MISSING, "overrides that all conditions and the training share")
    conditions: dict[str, list[str]] = setting(MISSING, "overrides of each condition, by its name")
    policies: list[str] = setting(MISSING, "of the group policy, without a model; lqd has to be there")
    models: dict[str, list[str]] = setting(MISSING, "overrides of each model that Credence asks, by its name")
    train: list[str] = setting(MISSING, "overrides of the scenario on which models train")
    split: Split = part(Split, "seeds of the training runs, by run")
    flip_probabilities: list[float] = setting(
        [0.0], "shares of the models' predictions that are inverted", at_least=0, at_most=1
    )
    seeds: list[int] = setting(MISSING, "traffic seeds, none of the split", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on conditions, policies or seeds that cannot be compared."""
        super().check(where)
        if not self.conditions:
            raise ForetailError(f"{where}.conditions is empty: name at least one")
        if "lqd" not in self.policies:
            raise ForetailError(f"{where}.policies lacks lqd, to which all are compared: add it")
        if self.experiment == "where_prediction_pays" and "cs" not in self.policies:
            raise ForetailError(f"{where}.policies lacks cs, to which {self.experiment} compares: add it")
        for name in ASKING:
            if name in self.policies:
                raise ForetailError(f"{where}.policies names {name}, which asks a model: name models in {where}.models")
        if self.split.name != "by_run":
            raise ForetailError(f"{where}.split is {self.split.name}: models train on whole runs, use by_run")
        self.split.require_unseen(f"{where}.seeds and its split", self.seeds, "simulate seeds that did not train")
