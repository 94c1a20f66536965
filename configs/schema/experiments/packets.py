"""Experiments on packets: in the slotted model, and on flows in ns-3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import Experiment, part, setting
from foretail.configs.schema.policies import ASKING, DT_PREDICTED, require_distinct_policies, require_tunable
from foretail.configs.schema.scenario import FeatureArithmetic
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError


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
    policies: list[str] = setting(MISSING, "policies beside LQD; HEADER.hpp:TYPE is one of your own")

    def check(self, where: str) -> None:
        """Raise ForetailError when the policy is missing that the experiment is about."""
        super().check(where)
        require_distinct_policies(f"{where}.policies", self.policies)
        if self.experiment != "competitive_ratio" and "credence" not in self.policies:
            raise ForetailError(f"{where}.policies lacks credence, which {self.experiment} is about: add it")


@dataclass
class PredictionTradeoff(Experiment):
    """Consistency against robustness of drop predictions: every workload, seed and predictor is a point."""

    experiment: str = setting(MISSING, "what is drawn and tabled", one_of=("tradeoff",))
    workloads: dict[str, dict[str, Any]] = setting(
        MISSING, "by their names in figures, each as {workload: NAME, PARAMETER: VALUE}; proofs are the worst cases"
    )
    ports: int = setting(MISSING, "N, ports of the switch", at_least=2, at_most=32_767)
    buffer_per_port: int = setting(MISSING, "B / N, packets of shared buffer", at_least=1, at_most=2**20)
    slots: int = setting(MISSING, "slots with arrivals", at_least=1, at_most=2**40)
    seeds: list[int] = setting(
        MISSING, "of arrivals and flips; none on which a model trained", at_least=1, at_most=2**31 - 1
    )
    flip_probabilities: list[float] = setting(
        MISSING, "shares of predictions that are inverted; 0 and 1 have to be there", at_least=0, at_most=1
    )
    thresholds: list[float] = setting(
        MISSING, "drop iff a model's probability exceeds this, beside its own threshold", above=0, at_most=1 - 2**-53
    )
    alphas: list[float] = setting(MISSING, "DT: the best for each workload is shown", above=0)
    search_ports: list[int] = setting(
        MISSING,
        "ports of the small switches for which a search looks for the worst predictions",
        at_least=2,
        at_most=10,
    )
    search_buffer_per_port: int = setting(2, "packets of buffer per port of these", at_least=1, at_most=64)
    search_restarts: int = setting(MISSING, "sequences that the search grows", at_least=1, at_most=10**6)
    search_steps: int = setting(MISSING, "changes to each of them", at_least=1, at_most=10**9)
    features: FeatureArithmetic = part(FeatureArithmetic, "of the models; average_shift null is 15, 32 slots")

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no workload, or a flip is missing that consistency or robustness needs."""
        super().check(where)
        if not self.workloads:
            raise ForetailError(f"{where}.workloads is empty: name at least one")
        for name, given in self.workloads.items():
            if "workload" not in given:
                raise ForetailError(f"{where}.workloads.{name} names no workload: write {{workload: NAME}}")
        if not {0.0, 1.0} <= set(self.flip_probabilities):
            raise ForetailError(f"{where}.flip_probabilities lacks 0 or 1, between which all is shown: add them")

    def parameters(self, name: str) -> tuple[str, dict[str, Any]]:
        """The workload of a name, and its parameters."""
        given = dict(self.workloads[name])
        return given.pop("workload"), given


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
        ),
    )
    axis: str = setting(MISSING, "what the names of the conditions, or of the flips, say")
    scenario: list[str] = setting(MISSING, "overrides that all conditions and the training share")
    conditions: dict[str, list[str]] = setting(MISSING, "overrides of each condition, by its name")
    policies: list[str] = setting(MISSING, "of the group policy, without a model; lqd has to be there")
    asking: list[str] = setting(["credence"], "policies that ask the models; credence has to be there")
    models: dict[str, list[str]] = setting(MISSING, "overrides of each model that these ask, by its name")
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
        for name in ASKING:
            if name in self.policies:
                raise ForetailError(f"{where}.policies names {name}, which asks a model: name models in {where}.models")
        if "credence" not in self.asking or not set(self.asking) <= set(ASKING):
            raise ForetailError(
                f"{where}.asking = {', '.join(self.asking)}: give credence, and beside it any of "
                f"{', '.join(name for name in ASKING if name != 'credence')}"
            )
        if self.split.name != "by_run":
            raise ForetailError(f"{where}.split is {self.split.name}: models train on whole runs, use by_run")
        self.split.require_unseen(f"{where}.seeds and its split", self.seeds, "simulate seeds that did not train")


@dataclass
class Family:
    """Conditions that resemble each other."""

    held_out: bool = setting(MISSING, "whether settings of policies are never chosen on it")
    scenario: list[str] = setting([], "overrides that its conditions share")
    conditions: dict[str, list[str]] = setting(MISSING, "overrides of each condition, by its name")

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no condition."""
        if not self.conditions:
            raise ForetailError(f"{where}.conditions is empty: name at least one")


@dataclass
class SharingMap(Experiment):
    """Policies with many settings under families of conditions, judged by their cost J.

    Settings are chosen on the training families and frozen; the others only judge them.
    """

    experiment: str = setting(
        MISSING,
        "sharing_map: all families; tune: those on which settings are chosen",
        one_of=("sharing_map", "tune"),
    )
    scenario: list[str] = setting(MISSING, "overrides that all conditions share")
    families: dict[str, Family] = setting(MISSING, "by name; which are held out is drawn before anything is tried")
    policies: dict[str, dict[str, list[float]]] = setting(
        MISSING, "by name: values of each parameter, all of whose combinations are tried beside the policy's defaults"
    )
    asking: list[str] = setting(["credence"], "with model=: the policies that ask it", one_of=(*ASKING, DT_PREDICTED))
    seeds: list[int] = setting(MISSING, "traffic seeds of every setting", at_least=1, at_most=2**30)
    most_seeds: int = setting(
        30, "further seeds follow while a comparison with LQD or CS is open, up to so many", at_least=1, at_most=1000
    )
    width_percent: float = setting(
        5.0, "a comparison is closed when half its 95 % interval is this or less, or has one sign", above=0, at_most=100
    )
    give_up_ratio: float = setting(
        2.0, "no further seed for a setting whose J is this many times that of its policy's best", above=1, at_most=100
    )
    close_percent: float = setting(5.0, "costs that differ by no more are as good as each other", above=0, at_most=100)

    def check(self, where: str) -> None:
        """Raise ForetailError on families, policies or seeds that cannot be compared."""
        super().check(where)
        held_out = [family.held_out for family in self.families.values()]
        if False not in held_out:
            raise ForetailError(f"{where}.families has none with held_out=false, on which settings are chosen: add one")
        if self.experiment == "sharing_map" and True not in held_out:
            raise ForetailError(f"{where}.families has none with held_out=true, which judge the settings: add one")
        for needed in ("lqd", "cs"):
            if needed not in self.policies:
                raise ForetailError(f"{where}.policies lacks {needed}, to which all are compared: add {needed}: {{}}")
        for name, values in self.policies.items():
            require_tunable(f"{where}.policies", name, values)
        if self.most_seeds < len(self.seeds):
            raise ForetailError(
                f"{where}.most_seeds = {self.most_seeds} is less than the {len(self.seeds)} seeds: raise it"
            )
