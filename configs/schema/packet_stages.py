"""Stages on packets: collect, evaluate and demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.emulation import Emulation, require_emulated
from foretail.configs.schema.experiments.packets import FlowExperiment, PredictionTradeoff, SharingMap, SlotExperiment
from foretail.configs.schema.fields import (
    SIZES,
    experiment_of_size,
    part,
    require_distinct,
    require_seeds,
    setting,
)
from foretail.configs.schema.policies import (
    Policy,
    PolicyParameters,
    require_baselines,
    require_distinct_policies,
    require_known,
    require_one_policy,
    require_policies,
    require_rule,
)
from foretail.configs.schema.racks import RackTraces
from foretail.configs.schema.scenario import Rules, Scenario
from foretail.configs.schema.sources import ArtifactImport, EtalonImport, PcapImport, SlottedTraffic
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.tracking import Launcher, Tracking
from foretail.configs.schema.training import FeatureSelection, OperatingPoint, Split
from foretail.core.errors import ForetailError
from foretail.features.catalog import training_columns

MODES = ("slots", "tradeoff", "flows", "sharing", "arrivals", "datasets")
"""Settings of ``foretail evaluate`` that make it run something else than flows in ns-3, once."""


@dataclass
class CollectConfig(Stage):
    """``foretail collect``: simulate or emulate under LQD, or import the logs of others; write labelled datasets.

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
    source: str = setting(
        "ns3",
        "where packets come from",
        one_of=("ns3", "emulator", "racks", "slotted", "pcap", "etalon", "credence_artifact"),
    )
    emulation: Emulation = part(Emulation, "source=emulator, one run at a time")
    racks: RackTraces = part(RackTraces, "source=racks: racks with circuits, in ns-3")
    slotted: SlottedTraffic = part(SlottedTraffic, "source=slotted")
    log: Any = setting(None, "source=pcap, etalon, credence_artifact: a log to import, or a list of them")
    pcap: PcapImport = part(PcapImport, "source=pcap")
    etalon: EtalonImport = part(EtalonImport, "source=etalon")
    credence_artifact: ArtifactImport = part(ArtifactImport, "source=credence_artifact")

    @property
    def logs(self) -> list[str]:
        """The logs to import, in order."""
        given = self.log if isinstance(self.log, list) else [self.log]
        return [log for log in given if log is not None]

    def check(self, where: str) -> None:
        """Raise ForetailError unless the source has what it reads."""
        require_one_policy("policy", self.policy)
        require_seeds("seeds", self.seeds)
        if self.source in ("ns3", "emulator"):
            require_known("policy", self.policy, self.scenario)
        if self.source == "emulator":
            require_emulated(self.scenario, self.policy, self.emulation)
        if self.source == "racks" and self.racks.start_within_ns == 0 and len(self.seeds) > 1:
            raise ForetailError(
                "racks.start_within_ns = 0 starts all flows together, so that every seed has the same packets: raise "
                "it, or give one number in seeds"
            )
        if self.source in ("ns3", "emulator", "racks", "slotted"):
            if self.logs:
                raise ForetailError("log is for imports: give source=pcap, etalon or credence_artifact with it")
            return
        if self.source == "pcap":
            self.pcap.require_switch(len(self.logs))
            if not self.logs and len(self.seeds) > 1:
                raise ForetailError("pcap.captures without log=FILE are one dataset: give one number in seeds")
        elif not self.logs:
            raise ForetailError(f"source={self.source} imports a log and there is none: give log=FILE")
        for log in self.logs:
            if not isinstance(log, str):
                raise ForetailError(f"log holds {log!r}, which is no path: give log=FILE or log=[FILE,...]")
            if not Path(log).is_file():
                raise ForetailError(f"log: there is no file {log}")
        if self.logs and len(self.logs) != len(self.seeds):
            numbers = ",".join(map(str, range(1, len(self.logs) + 1)))
            raise ForetailError(
                f"log names {len(self.logs)} files and seeds has {len(self.seeds)} numbers: give every log a number of "
                f"its own, such as seeds=[{numbers}]"
            )

    def unused(self) -> Mapping[str, str]:
        """What belongs to another source."""
        names = {"racks", "slotted", "pcap", "etalon", "credence_artifact"} - {self.source}
        if self.source == "emulator":
            names |= {"ns3_prefix", "jobs"}
        else:
            names |= {"emulation"}
        if self.source not in ("ns3", "emulator"):
            names |= {"scenario", "policy", "flow_sizes", "size", "experiment"}
            names |= set() if self.source == "racks" else {"ns3_prefix"}
        return dict.fromkeys(names, f"source={self.source}")


@dataclass
class EvaluateConfig(Stage):
    """``foretail evaluate``: policies on the same flows in ns-3, paired by seed; or open loop on recorded arrivals.

    Settings that mean nothing beside ``arrivals``, ``datasets`` or an experiment are refused: see ``unused``.
    """

    scenario: Scenario = part(Scenario, "what is simulated")
    policy: dict[str, Policy] = setting(MISSING, "policies to compare, by the name they have in the table")
    seeds: list[int] = setting([101], "traffic seeds; each runs under every policy", at_least=1, at_most=2**31 - 1)
    model: str | None = setting(None, "as in export; for Credence policies without a library of their own")
    models: list[str] = setting([], "tradeoff: several models, each as in model, beside each other")
    jobs: int = setting(2, "simulations or, open loop, policies at the same time", at_least=1, at_most=1024)
    launcher: Launcher = part(Launcher, "experiments: where points are measured")
    baselines: list[str] = setting(["lqd"], "policies to which paired differences are computed, where present")
    tracking: Tracking = part(Tracking, "MLflow, for models:/ addresses")
    arrivals: str | None = setting(
        None, "open loop: CSV or Parquet file of slotted arrivals (columns slot, port), instead of ns-3"
    )
    datasets: list[str] = setting([], "open loop: recorded datasets whose arrivals are replayed, instead of ns-3")
    policies: list[str] = setting(
        [], "open loop: names of policies, and HEADER.hpp:TYPE for those in C++ headers of your own; empty = all named"
    )
    ports: int | None = setting(None, "arrivals: ports of the switch", at_least=1, at_most=32_768)
    buffer: int | None = setting(None, "arrivals: packets that fit into the shared buffer", at_least=1, at_most=2**40)
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
    slots: dict[str, SlotExperiment] = setting(
        {}, "experiment on generated arrivals in slots, by size: full and small; empty = none"
    )
    flows: dict[str, FlowExperiment] = setting(
        {}, "experiment on flows in ns-3, by size: full, medium and small; empty = none"
    )
    sharing: dict[str, SharingMap] = setting(
        {}, "experiment on settings of policies over families of conditions in ns-3, by size; empty = none"
    )
    tradeoff: dict[str, PredictionTradeoff] = setting(
        {}, "experiment on what right and wrong predictions are worth in slots, by size; empty = none"
    )
    size: str = setting("full", "which experiment; in ns-3, small is the scenario tiny", one_of=SIZES)

    @property
    def mode(self) -> str:
        """What runs: slots, tradeoff, flows or sharing (experiments), arrivals or datasets (open loop), else ns3."""
        return next((name for name in MODES if getattr(self, name)), "ns3")

    def check(self, where: str) -> None:
        """Raise ForetailError on settings that only together cannot work."""
        require_policies("policy", self.policy)
        require_seeds("seeds", self.seeds)
        self.launcher.require_points([self.slots, self.tradeoff, self.flows, self.sharing])
        given = [name for name in MODES if getattr(self, name)]
        if len(given) > 1:
            raise ForetailError(f"{' and '.join(given)} are both given: evaluate one after the other")
        if self.mode in ("slots", "tradeoff", "flows", "sharing"):
            self._check_experiment()
        elif self.mode == "ns3":
            self._check_flows()
        else:
            self._check_open_loop()

    def unused(self) -> Mapping[str, str]:
        """What means nothing in this mode."""
        of_ns3 = {"scenario", "policy", "seeds", "baselines", "ns3_prefix"}
        of_arrivals = {"ports", "buffer", "rules", "rules_seed", "optimum", "allow_more_than_ports_per_slot"}
        open_loop = {
            "policies",
            "predictions",
            "prediction_column",
            "flip_probability",
            "prediction_seed",
            "own_queues",
        }
        names = {
            "ns3": of_arrivals | open_loop | {"parameters"},
            "arrivals": of_ns3 | {"own_queues", "launcher"},
            "datasets": of_ns3 | of_arrivals | {"prediction_column", "launcher"},
            "tradeoff": of_ns3 | of_arrivals | open_loop | {"parameters"},
            "slots": of_ns3 | open_loop | {"ports", "buffer", "optimum", "allow_more_than_ports_per_slot", "model"},
            "flows": (of_ns3 | of_arrivals | open_loop | {"parameters"}) - {"ns3_prefix"},
            "sharing": (of_ns3 | of_arrivals | open_loop | {"parameters"}) - {"ns3_prefix"},
        }[self.mode]
        if self.mode != "tradeoff":
            names |= {"models"}
        return dict.fromkeys(names, "flows in ns-3" if self.mode == "ns3" else f"{self.mode}=...")

    def _check_flows(self) -> None:
        require_baselines(self.baselines, self.policy)
        require_known("policy", self.policy, self.scenario)
        for name in ("policies", "ports", "buffer", "optimum", "predictions"):
            if getattr(self, name):
                raise ForetailError(
                    f"{name} is for arrivals=FILE and datasets=[...], and neither is given: give one, or choose what "
                    "runs in ns-3 with policy=[...]"
                )
        for name, policy in self.policy.items():
            if self.model is None and policy.asks_exported_model:
                raise ForetailError(
                    f"policy {name} asks a predictor and there is none: give model=FILE, policy.{name}.library=PATH or "
                    f"policy.{name}.predictor=accept"
                )

    def _check_experiment(self) -> None:
        experiment_of_size(self.mode, getattr(self, self.mode), self.size)
        if self.model is not None and self.models:
            raise ForetailError("model and models are both given: name all of them in models=[...]")
        require_distinct("models", self.models, "name every model once")
        if self.mode == "slots" and self.parameters.count > 1:
            raise ForetailError(
                "parameters gives a port several queues, but generated arrivals have one: set parameters.queues=1 and "
                "one number in parameters.alpha"
            )

    def _check_open_loop(self) -> None:
        require_distinct_policies("policies", self.policies)
        if not 1 <= len(self.parameters.alpha) <= 8:
            raise ForetailError(
                f"parameters.alpha has {len(self.parameters.alpha)} values: give one per queue of a port, 1 to 8"
            )
        if self.mode == "arrivals":
            if self.ports is None or self.buffer is None:
                raise ForetailError("arrivals=FILE needs a switch: give ports=N and buffer=B, in packets")
            if self.buffer < self.ports:
                raise ForetailError(
                    f"buffer = {self.buffer} packets is less than one for each of ports = {self.ports}: raise buffer"
                )
        else:
            for name in ("ports", "buffer", "optimum", "allow_more_than_ports_per_slot"):
                if getattr(self, name):
                    raise ForetailError(f"{name} is for arrivals=FILE: leave it out, a dataset knows its switches")
            if len(self.parameters.alpha) > 1:
                raise ForetailError(
                    "parameters.alpha has several values, but a dataset is replayed with one for all queues: give one"
                )
            if self.parameters.queues or self.parameters.scheduler != "round_robin":
                raise ForetailError(
                    "parameters.queues and parameters.scheduler are for arrivals=FILE: a dataset knows its queues"
                )
            if self.predictions == "column":
                raise ForetailError("predictions=column is for arrivals=FILE: a dataset has no predictions")
        if self.predictions == "model" and self.model is None:
            raise ForetailError("predictions=model asks a model and there is none: give model=FILE")
        if self.predictions not in (None, "model") and self.model is not None:
            raise ForetailError(
                f"predictions={self.predictions} does not ask the model {self.model}: leave one of the two out"
            )
        if self.flip_probability and self.predictions != "flipped":
            raise ForetailError("flip_probability is for predictions=flipped: give that too")


@dataclass
class DemoConfig(Stage):
    """``foretail demo``: collect, train, export and evaluate on one congested leaf-spine scenario, then on another."""

    scenario: Scenario = part(Scenario, "what is simulated")
    contended_scenario: Scenario = part(
        Scenario, "a second network, whose ports compete for the buffer: only evaluated, with the same predictor"
    )
    policy: dict[str, Policy] = setting(MISSING, "policies of the comparison")
    sharing_rule: dict[str, int] = setting(
        MISSING,
        "what policy learned asks on the second network, as in search experiment=sharing_rule",
    )
    collect_policy: dict[str, Policy] = setting(MISSING, "the policy of the training runs; exactly one")
    features: FeatureSelection = part(FeatureSelection, "inputs of the predictor")
    predictor: dict[str, Any] = setting(MISSING, "the predictor; its class documents and checks its settings")
    split: Split = part(Split, "training, validation and test runs")
    operating_point: OperatingPoint = part(OperatingPoint, "choice of the threshold")
    tracking: Tracking = part(Tracking, "MLflow")
    seeds: list[int] = setting(MISSING, "traffic seeds of the comparison", at_least=1, at_most=2**31 - 1)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    baselines: list[str] = setting(["lqd", "credence"], "policies to which paired differences are computed")
    size: str = setting("full", "what scenario and seeds are for", one_of=SIZES)

    def check(self, where: str) -> None:
        """Raise ForetailError on a model that the demo cannot export, or seeds that it trained on."""
        require_policies("policy", self.policy)
        require_one_policy("collect_policy", self.collect_policy)
        require_known("collect_policy", self.collect_policy, self.scenario)
        for scenario in (self.scenario, self.contended_scenario):
            require_known("policy", self.policy, scenario)
        require_seeds("seeds", self.seeds)
        require_baselines(self.baselines, self.policy)
        require_rule("sharing_rule", self.sharing_rule)
        training_columns(self.features.names, self.features.own_queues)
        if self.predictor["name"] in ("logistic_regression", "mlp", "sequence"):
            raise ForetailError("the demo exports to C, which takes trees: use predictor=random_forest")
        if self.split.name != "by_run":
            raise ForetailError("the demo splits by run: use split=by_run, or the stage train for split=by_time")
        self.split.require_unseen("seeds and split", self.seeds, "evaluate on seeds that did not train")
