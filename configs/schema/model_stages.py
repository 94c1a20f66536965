"""Stages on drop predictors: train, export, deploy and promote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.policies import Policy, require_known, require_one_policy
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.stage import SimulatingStage, Stage
from foretail.configs.schema.switch_config import OF_CONFIG, SwitchConfig
from foretail.configs.schema.targets import (
    EXPORT_TARGETS,
    CTarget,
    DemandTarget,
    ModelInput,
    ModelLimits,
    P4Banks,
    P4Target,
    SonicTarget,
)
from foretail.configs.schema.tracking import GATED_ALIASES, Tracking
from foretail.configs.schema.training import (
    FeatureSelection,
    Objective,
    OperatingPoint,
    Sampling,
    Split,
    Trainer,
)
from foretail.core.errors import ForetailError
from foretail.core.plugins import TARGET_GROUP, offered
from foretail.core.settings import part, require_seeds, seed_setting, setting
from foretail.features.catalog import training_columns


@dataclass
class TrainConfig(SwitchConfig, SimulatingStage):
    """``foretail train``: fit a predictor, choose its operating point, score it, track it."""

    scenario: Scenario = part(Scenario, "Scenario whose seeds the split names.")
    policy: dict[str, Policy] = setting(MISSING, "Policy of the training runs; exactly one.")
    datasets: list[str] = setting(
        [],
        "Datasets, or runs or sweeps of foretail collect; an empty list means the scenario's runs, "
        "simulated when missing.",
    )
    split: Split = part(Split, "Training, validation and test rows.")
    jobs: int = setting(
        1, "Number of simulations at the same time, for datasets that are not in the store.", at_least=1, at_most=1024
    )
    features: FeatureSelection = part(FeatureSelection, "Inputs of the predictor.")
    predictor: dict[str, Any] = setting(MISSING, "Predictor to train; its class documents and checks its settings.")
    drop_weight: Any = setting(1.0, "Weight of a drop in training: a number, balanced, or cost, which is N - 1.")
    trainer: Trainer = part(Trainer, "Device and threads of the training.")
    allow_constant_features: bool = setting(False, "Train although a feature never changes in the training rows.")
    sampling: Sampling = part(Sampling, "Sampling of the training rows.")
    objective: Objective = part(Objective, "Objective of the training.")
    operating_point: OperatingPoint = part(OperatingPoint, "Choice of the threshold.")
    tracking: Tracking = part(Tracking, "Tracking in MLflow.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless one policy moves the packets, in a network that simulates the scenario.

        Also on features that are unknown.
        """
        self.require_config()
        super().check(where)
        require_one_policy("policy", self.policy)
        if not self.datasets:
            require_known("policy", self.policy, self.scenario)
            self.network.require_runs(self.scenario, self.policy)
            self.network.require_prefix(self.ns3_prefix)
        training_columns(self.features.names, self.features.own_queues)

    def unused(self) -> Mapping[str, str]:
        """Settings that given datasets make meaningless."""
        of_runs = ("scenario", "policy", "network", "ns3_prefix", *OF_CONFIG)
        return dict.fromkeys(of_runs, "datasets=[...]") if self.datasets else {}


@dataclass
class ExportConfig(Stage):
    """``foretail export``: turn a trained ensemble into C, P4 or ONNX, or into settings of SONiC, proven equivalent.

    A network goes to C alone, in integers with a proven error, and takes ``name``, ``out``, ``dataset`` and
    ``c.input_bits``. A demand predictor takes ``target``, ``name``, ``out`` and ``demand``.
    """

    model: str = setting(
        MISSING,
        "Model: an ensemble (JSON file), a train run folder, a network (ONNX file), a model file of "
        "scikit-learn (skops), XGBoost (JSON, UBJ) or treelite, models:/NAME@ALIAS or runs:/ID/PATH in MLflow, "
        "or a demand predictor (JSON).",
    )
    target: str = setting("c", "Form of the export: c, p4, onnx, sonic, or one that an installed package offers.")
    name: str | None = setting(
        None, "Prefix of files and of names in the code; null means drop_predictor or demand_predictor."
    )
    out: str | None = setting(
        None, "Folder for the export; null means a folder of the target's name in the run folder."
    )
    inputs: list[ModelInput] = setting([], "Inputs of another framework's model; an empty list means `columns`.")
    columns: list[str] = setting([], "Inputs of another framework's model, by their names in `dataset`.")
    dataset: str | None = setting(
        None, "Dataset whose manifest describes `columns`, and whose rows tune the C code or judge that of a network."
    )
    allow_pickle: bool = setting(False, "Open a model that is a pickle, which runs whatever code it holds.")
    model_limits: ModelLimits = part(ModelLimits, "Limits for reading another framework's model.")
    any_tau: bool = setting(
        True,
        "Keep votes that preserve the order of all sums, so that tau can change later; false allows "
        "narrower votes for one tau.",
    )
    max_cells: int = setting(
        20_000_000, "Most cells that the proof enumerates; above this it compares boxes.", at_least=1, at_most=10**9
    )
    budget_seconds: int = setting(
        900,
        "Computing time that votes, tables and proof may take; the export is refused if they would take longer.",
        at_least=1,
        at_most=10**7,
    )
    c: CTarget = part(CTarget, "Settings of target=c.")
    p4: P4Target = part(P4Target, "Settings of target=p4.")
    sonic: SonicTarget = part(SonicTarget, "Settings of target=sonic.")
    demand: DemandTarget = part(DemandTarget, "Settings of a demand predictor with target=c.")
    tracking: Tracking = part(Tracking, "Tracking in MLflow, for addresses in it.")

    def check(self, where: str) -> None:
        """Raise ForetailError on a target that nobody offers."""
        known = (*EXPORT_TARGETS, *offered(TARGET_GROUP, EXPORT_TARGETS))
        if self.target not in known:
            raise ForetailError(f"target = {self.target} is unknown: choose from {', '.join(known)}")

    def unused(self) -> Mapping[str, str]:
        """Settings that belong to another target."""
        return dict.fromkeys({"c", "p4", "sonic"} - {self.target}, f"target={self.target}")


@dataclass
class DeployConfig(Stage):
    """``foretail deploy``: put a model into a running switch, beside the one that decides, and let it decide."""

    switch: str = setting(MISSING, "Address HOST:PORT of the switch's P4Runtime server.")
    model: str | None = setting(
        None, "Trees to deploy, as in export; null lists the models of the switch and how often they differed."
    )
    canary: bool = setting(False, "Count what both models say about each packet, without letting the new model decide.")
    rollback: bool = setting(False, "Without model: let the model that decided before decide again.")
    tau: int | None = setting(
        None, "Threshold in units of the score; null means the model's own.", at_least=-(2**62), at_most=2**62
    )
    program: bool = setting(
        False,
        "Compile a program with two banks with p4c-bm2-ss first and install it; the switch then forgets everything.",
    )
    banks: P4Banks = part(
        P4Banks, "With program=true, sizes of a bank; trees=null means 8, or as many as the model has."
    )
    control: str = setting("DropPredictor", "Name of the control with the banks.")
    device_id: int = setting(0, "Device number of the switch behind the address.", at_least=0, at_most=2**63 - 1)
    drain_ms: float = setting(
        100.0,
        "Longest stay of a packet in the pipeline; a bank that decided is not written before this time has passed.",
        at_least=0,
        at_most=3_600_000,
    )
    any_tau: bool = setting(True, "Keep votes that allow another threshold later, as in export.")
    model_limits: ModelLimits = part(ModelLimits, "Limits for reading another framework's model.")
    tracking: Tracking = part(Tracking, "Tracking in MLflow, for addresses in it and the record of what was deployed.")

    def check(self, where: str) -> None:
        """Raise ForetailError on an address without a port, and on settings that contradict each other."""
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}", self.switch):
            raise ForetailError(f"switch = {self.switch} is not an address: write HOST:PORT, as in 127.0.0.1:9559")
        if self.rollback and self.model is not None:
            raise ForetailError("rollback=true takes the model that the switch has: leave model out")

    def unused(self) -> Mapping[str, str]:
        """Settings that belong to a model, or to a program."""
        without_model = ("canary", "tau", "program", "banks", "any_tau", "model_limits") if self.model is None else ()
        unused = dict.fromkeys(without_model, "a switch without model=")
        return unused if self.program else {**dict.fromkeys(("banks",), "program=false"), **unused}


@dataclass
class PromoteConfig(SimulatingStage):
    """``foretail promote``: make a model champion or challenger, if it passes the gate on runs held out from it.

    Without a model it shows who holds the aliases, or with ``rollback`` or ``version`` gives one back.
    """

    model: str | None = setting(
        None,
        "Model, as in export: trees that a tracked run trained, or with trained_on any others. null shows "
        "who holds the aliases.",
    )
    trained_on: list[str] = setting(
        [], "Runs that trained a model of your own, as in train: it is registered with them, and never judged on them."
    )
    rollback: bool = setting(False, "Without a model: give the alias back to the version that held it before.")
    version: int | None = setting(
        None, "Without a model: give the alias to this version, which passed the gate before.", at_least=1
    )
    to: str = setting("champion", "Alias that moves to the model.", one_of=GATED_ALIASES)
    datasets: list[str] = setting(
        [], "Held-out runs, as in train; an empty list means runs of the scenario with `seeds`, simulated when missing."
    )
    scenario: Scenario = part(Scenario, "Scenario of the seeds.")
    policy: dict[str, Policy] = setting(MISSING, "Policy of the held-out runs; exactly one.")
    seeds: list[int] = seed_setting(MISSING, "Seeds of the held-out runs.")
    jobs: int = setting(2, "Number of simulations at the same time.", at_least=1, at_most=1024)
    f1_margin: float = setting(
        0.02, "By how much F1 in the asked region may be less than that of the model that holds the alias.", at_least=0
    )
    sent_margin_percent: float = setting(
        0.05,
        "By how many percent of LQD's bytes a model may send less than the model that holds the alias.",
        at_least=0,
    )
    baseline: str = setting(
        "tuned",
        "What a model has to send more than: the best policy without a predictor, tuned on the runs that trained the "
        "model, or always accepting alone.",
        one_of=("tuned", "always_accept"),
    )
    p4: bool = setting(False, "Also prove P4 equal, which counts its table entries.")
    p4_profile: str = setting(
        "v1model", "With p4=true, what the switch offers: v1model, tofino, tofino2, or a YAML file."
    )
    max_cells: int = setting(
        20_000_000, "Most cells that the proof enumerates; above this it compares boxes.", at_least=1, at_most=10**9
    )
    budget_seconds: int = setting(
        900,
        "Computing time that votes, tables and proof may take; the export is refused if they would take longer.",
        at_least=1,
        at_most=10**7,
    )
    tracking: Tracking = part(Tracking, "Tracking in MLflow, with the name in the registry.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless an alias can move, and runs give an interval."""
        super().check(where)
        if self.model is None and self.trained_on:
            raise ForetailError("trained_on says what trained a model, and there is none: give model=FILE")
        if self.model is not None and (self.rollback or self.version is not None):
            raise ForetailError("rollback and version give an alias back without a new model: leave model out")
        if self.rollback and self.version is not None:
            raise ForetailError("rollback and version are both given: leave one of the two out")
        require_one_policy("policy", self.policy)
        require_known("policy", self.policy, self.scenario)
        require_seeds("seeds", self.seeds)
        if not self.tracking.enabled or self.tracking.registered_model is None:
            raise ForetailError(
                "a promotion moves an alias in MLflow's registry: leave tracking on, and give tracking.registered_model"
            )
        if not self.datasets and len(self.seeds) < 2:
            raise ForetailError("seeds holds one seed, and one run gives no interval: give at least two")
        if not self.datasets:
            self.network.require_runs(self.scenario, self.policy)
            self.network.require_prefix(self.ns3_prefix)
