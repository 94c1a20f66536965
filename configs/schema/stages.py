"""Structured configuration: one dataclass per config node, every field with its meaning, unit and range.

The dataclasses are Hydra schemas, stored in the ConfigStore as ``base_<stage>`` and named first in the defaults list
of each stage's YAML file, so that composing already checks names and types. The ranges given here are checked after
composing by ``foretail.pipelines.settings``. Fields without a default are ``MISSING``: a YAML file has to set them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from foretail.configs.schema.circuit_experiments import DesignSweep, FabricSweep, NoiseSweep, TradeoffSweep
from foretail.configs.schema.demand import DemandPredictor
from foretail.configs.schema.fields import SIZES, part, setting
from foretail.configs.schema.packet_experiments import FlowSweep, Sweep
from foretail.configs.schema.policies import BUFFER_POLICIES, Policy, PolicyParameters
from foretail.configs.schema.scenario import Rules, Scenario
from foretail.configs.schema.sources import ArtifactImport, EtalonImport, SlottedTraffic
from foretail.configs.schema.studies import Search, Study
from foretail.configs.schema.targets import CircuitEntries, CTarget, DemandTarget, EtalonSchedule, ModelInput, P4Target
from foretail.configs.schema.tracking import GATED_ALIASES, Launcher, Tracking
from foretail.configs.schema.training import (
    PREDICTORS,
    BoostedTrees,
    ExtraTrees,
    FeatureBudget,
    FeatureSelection,
    Labels,
    LogisticRegression,
    MultilayerPerceptron,
    Objective,
    OperatingPoint,
    Predictor,
    RandomForest,
    Sampling,
    SequenceNetwork,
    Split,
    Student,
    Trainer,
    Window,
)


@dataclass
class Stage:
    """Settings of every stage."""

    store_dir: str = setting("outputs/store", "folder of datasets, models and runs, addressed by content")
    ns3_prefix: str | None = setting(None, "an ns-3 >= 3.44 installation; null = the Python package ns3")


@dataclass
class CollectConfig(Stage):
    """``foretail collect``: simulate under LQD, or import the logs of others, and write labelled datasets.

    Every other source refuses the settings of the simulation when they are given: ``scenario``, ``policy`` and
    ``ns3_prefix``.
    """

    scenario: Scenario = part(Scenario, "what is simulated")
    policy: dict[str, Policy] = setting(MISSING, "the policy that moves the packets; exactly one")
    seeds: list[int] = setting(
        [1],
        "one dataset per seed; an import gives its logs these numbers, by which a split names them",
        at_least=1,
        at_most=2**31 - 1,
    )
    jobs: int = setting(1, "simulations or imports at the same time", at_least=1, at_most=1024)
    source: str = setting("ns3", "where packets come from", one_of=("ns3", "slotted", "etalon", "credence_artifact"))
    slotted: SlottedTraffic = part(SlottedTraffic, "source=slotted")
    log: Any = setting(None, "source=etalon, credence_artifact: a log to import, or a list of them")
    etalon: EtalonImport = part(EtalonImport, "source=etalon")
    credence_artifact: ArtifactImport = part(ArtifactImport, "source=credence_artifact")


@dataclass
class TrainConfig(Stage):
    """``foretail train``: fit a predictor, choose its operating point, score it, track it."""

    scenario: Scenario = part(Scenario, "the scenario whose seeds the split names")
    policy: dict[str, Policy] = setting(MISSING, "the policy of the training runs; exactly one")
    features: FeatureSelection = part(FeatureSelection, "inputs of the predictor")
    predictor: Predictor = part(Predictor, "the predictor")
    drop_weight: Any = setting(1.0, "what a drop counts in training: a number, balanced, or cost, which is N - 1")
    trainer: Trainer = part(Trainer, "where it is trained")
    window: Window = part(Window, "other arrivals that the predictor sees")
    allow_constant_features: bool = setting(False, "train on a feature that never changes in the training rows")
    datasets: list[str] = setting(
        [], "datasets, or runs or sweeps of foretail collect; empty = the scenario's runs, simulated when missing"
    )
    split: Split = part(Split, "training, validation and test rows")
    sampling: Sampling = part(Sampling, "of the training rows")
    labels: Labels = part(Labels, "the labels that train")
    objective: Objective = part(Objective, "what is learned")
    operating_point: OperatingPoint = part(OperatingPoint, "choice of the threshold")
    tracking: Tracking = part(Tracking, "MLflow")
    jobs: int = setting(
        1, "simulations at the same time, for datasets that are not in the store", at_least=1, at_most=1024
    )


@dataclass
class SelectConfig(Stage):
    """``foretail select``: what each feature is worth, and the best ones that a switch can afford."""

    scenario: Scenario = part(Scenario, "the scenario whose seeds the split names")
    policy: dict[str, Policy] = setting(MISSING, "the policy of the runs; exactly one")
    features: FeatureSelection = part(FeatureSelection, "the candidates")
    predictor: Predictor = part(Predictor, "what is trained on every selection that is tried")
    trainer: Trainer = part(Trainer, "where it is trained")
    datasets: list[str] = setting(
        [], "datasets, or runs or sweeps of foretail collect; empty = the scenario's runs, simulated when missing"
    )
    split: Split = part(Split, "training rows, and validation rows that score; test rows are not read")
    sampling: Sampling = part(Sampling, "of the training rows")
    region: str = setting("asked", "validation rows that count: where Credence asks, or all", one_of=("asked", "whole"))
    budget: FeatureBudget = part(FeatureBudget, "limits of the selection")
    margin: float = setting(0.005, "average precision that a feature must add", at_least=0, at_most=1)
    repeats: int = setting(5, "shuffles of every feature for its importance", at_least=1, at_most=10_000)
    seed: int = setting(1, "of the shuffles", at_least=0, at_most=2**32 - 1)
    jobs: int = setting(
        1, "simulations at the same time, for datasets that are not in the store", at_least=1, at_most=1024
    )


@dataclass
class DistillConfig(Stage):
    """``foretail distill``: turn a trained network into trees for a switch, and tell what that costs."""

    model: str = setting(MISSING, "the teacher: a train run folder with model.onnx, or that file")
    student: Student = part(Student, "the trees")
    scenario: Scenario = part(Scenario, "the scenario whose seeds the split names")
    policy: dict[str, Policy] = setting(MISSING, "the policy of the training runs; exactly one")
    own_queues: bool = setting(
        False, "show real features of LQD's own queues as the paper did, instead of a shadow Credence's"
    )
    datasets: list[str] = setting([], "dataset folders to use; empty = the scenario's runs, simulated when missing")
    split: Split = part(Split, "rows to imitate the teacher on, to choose among students by, and to score both on")
    operating_point: OperatingPoint = part(OperatingPoint, "where the student's decisions are to be the teacher's")
    tracking: Tracking = part(Tracking, "MLflow")
    jobs: int = setting(
        1, "simulations at the same time, for datasets that are not in the store", at_least=1, at_most=1024
    )


@dataclass
class ExportConfig(Stage):
    """``foretail export``: turn a trained ensemble into C, P4 or ONNX, proven equivalent.

    A demand predictor takes ``target``, ``name``, ``out`` and ``demand``.
    """

    model: str = setting(
        MISSING,
        "an ensemble (JSON file), a train run folder, a model file of scikit-learn (skops), XGBoost (JSON, UBJ) or "
        "treelite, models:/NAME@ALIAS or runs:/ID/PATH in MLflow, or a demand predictor (JSON file)",
    )
    target: str = setting("c", "language of the export", one_of=("c", "p4", "onnx"))
    name: str | None = setting(
        None, "prefix of files and of the names in the code; null = drop_predictor or demand_predictor"
    )
    out: str | None = setting(None, "folder for the export; null = a folder of the target's name in the run folder")
    inputs: list[ModelInput] = setting([], "inputs of another framework's model; empty: `columns`")
    columns: list[str] = setting([], "inputs of another framework's model by their names in `dataset`")
    dataset: str | None = setting(None, "dataset whose manifest describes `columns`, and whose rows tune the C code")
    allow_pickle: bool = setting(False, "open a model that is a pickle, which runs whatever code it holds")
    any_tau: bool = setting(
        True, "votes that keep the order of all sums, so that tau can be turned; false: narrower ones, for one tau"
    )
    max_cells: int = setting(
        20_000_000, "the proof enumerates at most so many cells, else goes by boxes", at_least=1, at_most=10**9
    )
    c: CTarget = part(CTarget, "target=c")
    p4: P4Target = part(P4Target, "target=p4")
    demand: DemandTarget = part(DemandTarget, "a demand predictor, target=c")
    tracking: Tracking = part(Tracking, "MLflow, for addresses in it")


@dataclass
class PromoteConfig(Stage):
    """``foretail promote``: make a model champion or challenger, if it passes the gate on runs held out from it."""

    model: str = setting(MISSING, "as in export; trees that a tracked run trained or distilled")
    to: str = setting("champion", "alias that moves to the model", one_of=GATED_ALIASES)
    datasets: list[str] = setting(
        [], "held-out runs, as in train; empty = runs of the scenario with `seeds`, simulated when missing"
    )
    scenario: Scenario = part(Scenario, "the scenario of the seeds")
    policy: dict[str, Policy] = setting(MISSING, "the policy of the held-out runs; exactly one")
    seeds: list[int] = setting(MISSING, "seeds of the held-out runs", at_least=1, at_most=2**31 - 1)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    f1_margin: float = setting(0.02, "the asked region's F1 may be this much less than the holder's", at_least=0)
    recovered_loss_margin: float = setting(0.02, "recovered loss may be this much less than the holder's", at_least=0)
    p4: bool = setting(False, "P4 has to be proven equal too, which also tells its table entries")
    p4_profile: str = setting("v1model", "p4=true: what the switch offers: v1model, rmt, or a YAML file")
    max_cells: int = setting(
        20_000_000, "the proof enumerates at most so many cells, else goes by boxes", at_least=1, at_most=10**9
    )
    shift: str | None = setting(None, "CSV or Parquet file of shift tests, for the model card")
    tracking: Tracking = part(Tracking, "MLflow, with the name in the registry")


@dataclass
class EvaluateConfig(Stage):
    """``foretail evaluate``: policies on the same flows in ns-3, paired by seed; or open loop on recorded arrivals.

    With ``arrivals`` or ``datasets`` the policies are ``policies``, and ``scenario``, ``policy``, ``seeds`` and
    ``baselines`` mean nothing. With ``sweep`` none of these counts, only ``size``, ``rules`` and ``parameters``; with
    ``figures``, only ``size`` and ``model``, which takes the place of the sweep's model ``ours``.
    """

    scenario: Scenario = part(Scenario, "what is simulated")
    policy: dict[str, Policy] = setting(MISSING, "policies to compare, by the name they have in the table")
    seeds: list[int] = setting([101], "traffic seeds; each runs under every policy", at_least=1, at_most=2**31 - 1)
    model: str | None = setting(None, "as in export; for Credence policies without a library of their own")
    jobs: int = setting(2, "simulations or, open loop, policies at the same time", at_least=1, at_most=1024)
    launcher: Launcher = part(Launcher, "experiments: where points are measured")
    baselines: list[str] = setting(["lqd"], "policies to which paired differences are computed, where present")
    tracking: Tracking = part(Tracking, "MLflow, for models:/ addresses")
    arrivals: str | None = setting(
        None, "open loop: CSV or Parquet file of slotted arrivals (columns slot, port), instead of ns-3"
    )
    datasets: list[str] = setting([], "open loop: recorded datasets whose arrivals are replayed, instead of ns-3")
    policies: list[str] = setting([], "open loop: names of policies; empty = all", one_of=BUFFER_POLICIES)
    ports: int | None = setting(None, "arrivals: ports of the switch", at_least=1, at_most=32_768)
    buffer: int | None = setting(None, "arrivals: packets that fit into the shared buffer", at_least=1)
    rules: Rules = part(Rules, "arrivals: rules of LQD")
    rules_seed: int = setting(0, "arrivals: seed of random victims", at_least=0, at_most=2**63 - 1)
    parameters: PolicyParameters = part(PolicyParameters, "open loop: parameters of the policies")
    optimum: bool = setting(False, "arrivals: also compute the optimum; holds the whole sequence in memory")
    allow_more_than_ports_per_slot: bool = setting(False, "arrivals: accept slots with more packets than ports")
    predictions: str | None = setting(
        None,
        "open loop: what Credence is told; null: the model if one is given, else the file's column, else perfect",
        one_of=("perfect", "flipped", "column", "model", "accept"),
    )
    prediction_column: str = setting("prediction", "arrivals: name of the column of predictions, 1 = drop")
    flip_probability: float = setting(0.0, "predictions=flipped: share that is inverted", at_least=0, at_most=1)
    prediction_seed: int = setting(1, "predictions=flipped: seed of the flips", at_least=0, at_most=2**63 - 1)
    own_queues: bool = setting(
        False, "datasets: show the model LQD's own queues as the paper did, instead of a shadow Credence's"
    )
    sweep: dict[str, Sweep] = setting({}, "experiment on generated arrivals, by size: full and small; empty = none")
    figures: dict[str, FlowSweep] = setting({}, "experiment in ns-3, by size: full, medium and small; empty = none")
    size: str = setting("full", "which sweep; in ns-3, small is the scenario tiny", one_of=SIZES)


@dataclass
class DemoConfig(Stage):
    """``foretail demo``: collect, train, export and evaluate on one congested leaf-spine scenario."""

    scenario: Scenario = part(Scenario, "what is simulated")
    policy: dict[str, Policy] = setting(MISSING, "policies of the comparison")
    collect_policy: dict[str, Policy] = setting(MISSING, "the policy of the training runs; exactly one")
    features: FeatureSelection = part(FeatureSelection, "inputs of the predictor")
    predictor: Predictor = part(Predictor, "the predictor")
    split: Split = part(Split, "training, validation and test runs")
    operating_point: OperatingPoint = part(OperatingPoint, "choice of the threshold")
    tracking: Tracking = part(Tracking, "MLflow")
    seeds: list[int] = setting(MISSING, "traffic seeds of the comparison", at_least=1, at_most=2**31 - 1)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    baselines: list[str] = setting(["lqd", "credence"], "policies to which paired differences are computed")
    size: str = setting("full", "what scenario and seeds are for", one_of=SIZES)


@dataclass
class ScheduleConfig(Stage):
    """``foretail schedule``: a periodic schedule of circuits for a demand matrix, and its throughput.

    With an experiment ``demand`` means nothing; with ``sweep`` and ``tradeoff``, ``degree``, ``k`` (the largest gamma)
    and ``diagonal`` count, with ``designs`` and ``fabric`` only ``degree``.
    """

    demand: str = setting(MISSING, "CSV, NPY or Parquet file: row = source, in capacities of one uplink")
    degree: int = setting(MISSING, "uplinks of a node; k n is a multiple of it", at_least=1)
    k: int = setting(MISSING, "circuits per node and period, in n: the larger, the closer to the demand", at_least=1)
    l: int = setting(1, "of these, circuits between every pair whatever the demand; k / l is the trust", at_least=1)  # noqa: E741
    seed: int = setting(1, "of the circuits that demand leaves over", at_least=0, at_most=2**32 - 1)
    diagonal: str = setting(
        "idle", "circuits of a node to itself: idle, as the theorems count, or left over", one_of=("idle", "reuse")
    )
    scale: bool = setting(False, "scale a demand beyond the hose model into it, instead of refusing it")
    multi_hop: str = setting(
        "auto", "compute the multi-hop throughput, a linear program; auto: up to 64 nodes", one_of=("auto", "yes", "no")
    )
    prediction: str | None = setting(
        None, "file of the matrix to schedule for; null: `demand`, on which throughput is always taken"
    )
    outputs: list[str] = setting(
        ["json"],
        "files: JSON, a C table, P4 entries of each rack, the Etalon emulator's string",
        one_of=("json", "c", "p4", "etalon"),
    )
    p4: CircuitEntries = part(CircuitEntries, "outputs=[p4]")
    etalon: EtalonSchedule = part(EtalonSchedule, "outputs=[etalon]")
    sweep: dict[str, NoiseSweep] = setting({}, "experiment on noisy predictions, by size: full and small; empty = none")
    designs: dict[str, DesignSweep] = setting({}, "experiment on designs, by size: full and small; empty = none")
    tradeoff: dict[str, TradeoffSweep] = setting({}, "experiment on trust, by size: full and small; empty = none")
    fabric: dict[str, FabricSweep] = setting({}, "experiment on cells, by size: full and small; empty = none")
    size: str = setting("full", "which sweep of an experiment", one_of=SIZES)
    jobs: int = setting(2, "experiments: points at the same time", at_least=1, at_most=1024)
    launcher: Launcher = part(Launcher, "experiments: where points are measured")


@dataclass
class DemandConfig(Stage):
    """``foretail demand``: train demand predictors on runs, and score the schedules of what they predict on others."""

    demand_predictor: dict[str, DemandPredictor] = setting(
        MISSING, "predictors to compare, by the name they have in the table; the last value is always beside them"
    )
    collectives: list[str] = setting(
        ["hybrid_parallel"],
        "generated demand: names from foretail.sim_bridge.circuits.demand.sequences; A+B swings between two and back",
    )
    nodes: int = setting(8, "collectives: n", at_least=2, at_most=1024)
    noise: float = setting(0.2, "collectives: standard deviation of an entry, relative", at_least=0, at_most=10)
    placed_at_random: bool = setting(True, "collectives: every run has an order of nodes and a first step of its own")
    mixture_period_steps: float = setting(12.0, "collectives: from A over B to A in A+B", at_least=2, at_most=10**9)
    job_seed: int = setting(1, "collectives: of a job's matrices, the same in all runs", at_least=0, at_most=2**32 - 1)
    datasets: list[str] = setting(
        [], "instead of collectives: ns-3 runs or imported packet logs of Etalon, split by their seeds"
    )
    interval_ns: int | None = setting(None, "datasets, logs: time of a step", at_least=1)
    demand: str = setting(
        "offered",
        "datasets: what flows want to send, or data packets that reached the uplinks",
        one_of=("offered", "carried"),
    )
    logs: list[str] = setting(
        [], "instead: NPY, CSV, Parquet or TXT files of demand matrices, whose runs are numbered from 1 for the split"
    )
    uplink_bps: int | None = setting(None, "logs in bytes, and Etalon: rate of an uplink", at_least=1)
    steps: int | None = setting(
        None, "matrices of a run; null: 24 generated ones, else all that there are", at_least=3, at_most=10**6
    )
    warm_up: int = setting(6, "first step that is predicted and scored", at_least=1)
    degree: int = setting(4, "uplinks of a node; k n is a multiple of it", at_least=1)
    trusts: list[int] = setting([2, 3, 5], "values of k, with l = 1, to choose from on the validation runs", at_least=1)
    routing: str = setting(
        "single_hop", "of the throughput that counts; multi_hop is slower", one_of=("single_hop", "multi_hop")
    )
    seed: int = setting(1, "of the circuits that demand leaves over", at_least=0, at_most=2**32 - 1)
    split: Split = part(Split, "seeds of the runs to train on, to choose the trust by, and to score")
    tracking: Tracking = part(Tracking, "MLflow")


@dataclass
class StudyConfig(Stage):
    """``foretail study``: predictors on held-out runs and conditions, open loop and in ns-3."""

    study: dict[str, Study] = setting(MISSING, "the study by size: full and small")
    size: str = setting("full", "which one", one_of=SIZES)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "MLflow")


@dataclass
class SearchConfig(Stage):
    """``foretail search``: predictors by their scores on validation runs and their costs in a switch."""

    search: dict[str, Search] = setting(MISSING, "the search by size: full and small")
    size: str = setting("full", "which one", one_of=SIZES)
    file: str | None = setting(None, "SQLite file of the trials; null: search.db beside the store")
    name: str | None = setting(
        None, "of the search in that file; null: from everything that decides its trials, so that it can be resumed"
    )
    jobs: int = setting(2, "trials at the same time", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "MLflow")


@dataclass
class ReportConfig(Stage):
    """``foretail report``: one HTML page of a run or a sweep, to be read without anything else."""

    run: Any = setting(MISSING, "folder of a run or of a sweep, or a list of such folders")
    out: str | None = setting(None, "the page, a file .html; null = report.html in the report's own run folder")


STAGES: dict[str, type[Stage]] = {
    "collect": CollectConfig,
    "train": TrainConfig,
    "distill": DistillConfig,
    "evaluate": EvaluateConfig,
    "promote": PromoteConfig,
    "export": ExportConfig,
    "demo": DemoConfig,
    "schedule": ScheduleConfig,
    "demand": DemandConfig,
    "study": StudyConfig,
    "report": ReportConfig,
    "search": SearchConfig,
    "select": SelectConfig,
}


@functools.cache
def register() -> None:
    """Store the schemas in Hydra's ConfigStore, once."""
    store = ConfigStore.instance()
    for stage, schema in STAGES.items():
        store.store(name=f"base_{stage}", node=schema)
    for group, schema_of_group in (
        ("scenario", Scenario),
        ("features", FeatureSelection),
        ("split", Split),
        ("tracking", Tracking),
        ("launcher", Launcher),
    ):
        store.store(group=group, name=f"base_{group}", node=schema_of_group)
    for name, predictor in zip(
        PREDICTORS,
        (RandomForest, ExtraTrees, BoostedTrees, LogisticRegression, MultilayerPerceptron, SequenceNetwork),
        strict=True,
    ):
        store.store(group="predictor", name=f"base_{name}", node=predictor)
