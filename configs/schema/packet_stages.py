"""Stages on packets: collect, evaluate, replay, choose and demo."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.network.racks import RackTraces
from foretail.configs.schema.network.sources import (
    ArrivalsImport,
    ArtifactImport,
    EtalonImport,
    PcapImport,
    SlottedTraffic,
)
from foretail.configs.schema.networks import EmulatorNetwork, Network
from foretail.configs.schema.policies import (
    Policy,
    PolicyParameters,
    require_baselines,
    require_distinct_policies,
    require_known,
    require_one_policy,
    require_policies,
)
from foretail.configs.schema.scenario import Rules, Scenario
from foretail.configs.schema.stage import SIZES, SimulatingStage, Stage
from foretail.configs.schema.switch_config import OF_CONFIG, SwitchConfig
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.settings import (
    MOST_PORTS,
    part,
    require_distinct,
    require_seeds,
    seed_setting,
    setting,
    share_setting,
)


@dataclass
class CollectConfig(SwitchConfig, Stage):
    """``foretail collect``: simulate or emulate under LQD, or import the logs of others; write labelled datasets.

    Every other source refuses the settings of the scenario when they are given: ``scenario``, ``policy`` and, but for
    racks, ``network`` and ``ns3_prefix``.
    """

    scenario: Scenario = part(Scenario, "Scenario that is simulated.")
    policy: dict[str, Policy] = setting(MISSING, "Policy of the simulated switches; exactly one.")
    seeds: list[int] = seed_setting(
        [1], "Seeds of the runs, one dataset each; imported logs get these numbers, by which a split names them."
    )
    jobs: int = setting(1, "Number of simulations or imports at the same time.", at_least=1, at_most=1024)
    source: str = setting(
        "scenario",
        "Source of the packets.",
        one_of=("scenario", "racks", "slotted", "pcap", "etalon", "credence_artifact", "arrivals"),
    )
    network: Network = part(Network, "With source=scenario or racks, the network in which packets move.")
    racks: RackTraces = part(RackTraces, "Settings of source=racks: racks with circuits.")
    slotted: SlottedTraffic = part(SlottedTraffic, "Settings of source=slotted.")
    log: Any = setting(
        None, "With source=pcap, etalon, credence_artifact or arrivals, the log to import, or a list of logs."
    )
    pcap: PcapImport = part(PcapImport, "Settings of source=pcap.")
    etalon: EtalonImport = part(EtalonImport, "Settings of source=etalon.")
    credence_artifact: ArtifactImport = part(ArtifactImport, "Settings of source=credence_artifact.")
    arrivals: ArrivalsImport = part(ArrivalsImport, "Settings of source=arrivals.")

    @property
    def logs(self) -> list[str]:
        """The logs to import, in order."""
        given = self.log if isinstance(self.log, list) else [self.log]
        return [log for log in given if log is not None]

    def check(self, where: str) -> None:
        """Raise ForetailError unless the source has what it reads."""
        self.require_config()
        require_one_policy("policy", self.policy)
        require_seeds("seeds", self.seeds)
        if self.source == "scenario":
            require_known("policy", self.policy, self.scenario)
            self.network.require_runs(self.scenario, self.policy)
            self.network.require_prefix(self.ns3_prefix)
            self.network.require_jobs(self.jobs)
            if isinstance(self.network, EmulatorNetwork):
                self.network.require_no_comparison()
        if self.source == "racks":
            self._check_racks()
        if self.source in ("scenario", "racks", "slotted"):
            if self.logs:
                raise ForetailError(
                    "log is for imports: give source=pcap, etalon, credence_artifact or arrivals with it"
                )
            return
        if self.source == "pcap":
            self.pcap.require_switch(len(self.logs))
            if not self.logs and len(self.seeds) > 1:
                raise ForetailError("pcap.captures without log=FILE are one dataset: give one number in seeds")
        elif not self.logs:
            raise ForetailError(f"source={self.source} imports a log and there is none: give log=FILE")
        if self.source == "arrivals":
            require_switch(self.arrivals.ports, self.arrivals.buffer, "source=arrivals", "arrivals.")
        for log in self.logs:
            if not isinstance(log, str):
                raise ForetailError(f"log holds {log!r}, which is not a path: give log=FILE or log=[FILE,...]")
            if not Path(log).is_file():
                raise ForetailError(f"log: there is no file {log}")
        if self.logs and len(self.logs) != len(self.seeds):
            numbers = ",".join(map(str, range(1, len(self.logs) + 1)))
            raise ForetailError(
                f"log names {len(self.logs)} files and seeds has {len(self.seeds)} numbers: give every log a number of "
                f"its own, such as seeds=[{numbers}]"
            )

    def _check_racks(self) -> None:
        """Raise ForetailError on a network without their traces, and on seeds with the same packets."""
        if not self.network.simulates:
            raise ForetailError(
                f"network={self.network.name} makes no traces of racks: use network=native or network=ns3"
            )
        self.network.require_prefix(self.ns3_prefix)
        if self.racks.start_within_ns == 0 and len(self.seeds) > 1:
            raise ForetailError(
                "racks.start_within_ns = 0 starts all flows together, so that every seed has the same packets: raise "
                "it, or give one number in seeds"
            )

    def unused(self) -> Mapping[str, str]:
        """Settings that belong to another source."""
        names = {"racks", "slotted", "pcap", "etalon", "credence_artifact", "arrivals"} - {self.source}
        if self.source != "scenario":
            names |= {"scenario", "policy", "flow_sizes", "size", *OF_CONFIG}
            names |= set() if self.source == "racks" else {"network", "ns3_prefix"}
        return dict.fromkeys(names, f"source={self.source}")


@dataclass
class EvaluateConfig(SwitchConfig, Stage):
    """``foretail evaluate``: policies on the same flows in a network, paired by seed."""

    network: Network = part(Network, "Network in which the policies run.")
    scenario: Scenario = part(Scenario, "Topology, transport and traffic.")
    policy: dict[str, Policy] = setting(MISSING, "Policies to compare, by their names in the table.")
    seeds: list[int] = seed_setting([101], "Traffic seeds; each runs under every policy.")
    model: str | None = setting(None, "Model, as in export, for policies that ask and have no library of their own.")
    baselines: list[str] | None = setting(
        None, "Policies to which paired differences are computed; null means lqd and credence, where they run."
    )
    jobs: int | None = setting(
        None,
        "Number of simulations at the same time; null means two, and one in the emulator.",
        at_least=1,
        at_most=1024,
    )
    tracking: Tracking = part(Tracking, "Tracking in MLflow, for models:/ addresses and comparisons of models.")
    size: str = setting("full", "Size of a group of settings; small is the scenario tiny.", one_of=SIZES)

    @property
    def compared_to(self) -> tuple[str, ...]:
        """The baselines."""
        if self.baselines is not None:
            return tuple(self.baselines)
        return tuple(name for name in ("lqd", "credence") if name in self.policy)

    @property
    def train(self) -> list[str]:
        """The overrides with which the network has its predictor trained; none where it does not."""
        return self.network.trains()

    @property
    def asking(self) -> list[str]:
        """The policies that ask the exported model."""
        return [name for name, policy in self.policy.items() if policy.asks_exported_model]

    def check(self, where: str) -> None:
        """Raise ForetailError on policies that cannot be compared, or that ask what there is not."""
        self.require_config()
        require_policies("policy", self.policy)
        require_seeds("seeds", self.seeds)
        require_baselines(self.compared_to, self.policy)
        require_known("policy", self.policy, self.scenario)
        network = self.network
        network.require_runs(self.scenario, self.policy)
        network.require_jobs(self.jobs)
        network.require_prefix(self.ns3_prefix)
        if self.model is not None and self.train:
            raise ForetailError("model and network.train are both given: leave one of the two out")
        for name in self.asking:
            if self.model is None and not self.train:
                raise ForetailError(
                    f"policy {name} asks a predictor and there is none: give model=FILE, policy.{name}.library=PATH or "
                    f"policy.{name}.predictor=accept"
                )


@dataclass
class ReplayConfig(Stage):
    """``foretail replay``: policies on given arrivals, open loop: a file of slotted arrivals, or recorded datasets."""

    arrivals: str | None = setting(None, "CSV or Parquet file of slotted arrivals, with the columns slot and port.")
    datasets: list[str] = setting([], "Recorded datasets whose arrivals are replayed, instead of a file.")
    policies: list[str] = setting(
        [],
        "Names of policies, and HEADER.hpp:TYPE for those in C++ headers of your own; an empty list means "
        "all named ones.",
    )
    model: str | None = setting(None, "Model that Credence asks, as in export.")
    ports: int | None = setting(
        None, "With arrivals, the number of ports of the switch.", at_least=1, at_most=MOST_PORTS
    )
    buffer: int | None = setting(
        None, "With arrivals, the number of packets that fit into the shared buffer.", at_least=1, at_most=2**40
    )
    optimum: bool = setting(False, "With arrivals, also compute the optimum; this holds the whole sequence in memory.")
    allow_more_than_ports_per_slot: bool = setting(
        False, "With arrivals, accept slots that have more packets than the switch has ports."
    )
    rules: Rules = part(Rules, "With arrivals, rules of LQD.")
    rules_seed: int = setting(0, "With arrivals, the seed of random victims.", at_least=0, at_most=2**63 - 1)
    parameters: PolicyParameters = part(PolicyParameters, "Parameters of the policies.")
    predictions: str | None = setting(
        None,
        "Predictions for Credence; null means the model if one is given, else the file's column, else perfect ones.",
        one_of=("perfect", "flipped", "column", "model", "accept"),
    )
    prediction_column: str = setting(
        "prediction", "With arrivals, the name of the column of predictions, where 1 means drop."
    )
    flip_probability: float = share_setting(0.0, "With predictions=flipped, the share that is inverted.")
    prediction_seed: int = setting(1, "With predictions=flipped, the seed of the flips.", at_least=0, at_most=2**63 - 1)
    own_queues: bool = setting(
        False,
        "Show the model LQD's own queues, as the paper did, instead of those of a shadow Credence.",
    )
    jobs: int = setting(2, "Number of policies that are replayed at the same time.", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "Tracking in MLflow, for models:/ addresses.")

    def check(self, where: str) -> None:
        """Raise ForetailError on settings that only together cannot work."""
        if (self.arrivals is None) == (not self.datasets):
            both = "both are given" if self.datasets else "there is neither"
            raise ForetailError(f"replay takes arrivals=FILE or datasets=[...], and {both}: give one of the two")
        require_distinct("datasets", self.datasets, "name every dataset once")
        for name in self.policies:
            if name.endswith("_tuned"):
                raise ForetailError(
                    f"policies = {name} is of evaluate: give {name.removesuffix('_tuned')} and parameters.alpha=[16]; "
                    "model=MODEL adds policies with the alpha that sends most"
                )
        require_distinct_policies("policies", self.policies)
        if not 1 <= len(self.parameters.alpha) <= 8:
            raise ForetailError(
                f"parameters.alpha has {len(self.parameters.alpha)} values: give one per queue of a port, 1 to 8"
            )
        if self.arrivals is not None:
            require_switch(self.ports, self.buffer)
        else:
            self._check_datasets()
        self._check_predictions()

    def _refuse(self, names: Iterable[str], why: str) -> None:
        """Raise ForetailError on settings that are given and mean nothing here."""
        for field in dataclasses.fields(self):
            usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            if field.name in names and getattr(self, field.name) != usual:
                raise ForetailError(f"{field.name} is {why}")

    def _check_datasets(self) -> None:
        of_arrivals = {"ports", "buffer", "optimum", "allow_more_than_ports_per_slot", "rules", "rules_seed"}
        self._refuse(
            {*of_arrivals, "prediction_column"}, "for arrivals=FILE: leave it out, a dataset knows its switches"
        )
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

    def _check_predictions(self) -> None:
        if self.predictions == "model" and self.model is None:
            raise ForetailError("predictions=model asks a model and there is none: give model=FILE")
        if self.predictions not in (None, "model") and self.model is not None:
            raise ForetailError(
                f"predictions={self.predictions} does not ask the model {self.model}: leave one of the two out"
            )
        if self.predictions != "flipped":
            self._refuse({"flip_probability", "prediction_seed"}, "for predictions=flipped: give that too")


@dataclass
class ChooseConfig(Stage):
    """``foretail choose``: a rule of the zoo for given traffic."""

    arrivals: str | None = setting(None, "CSV or Parquet file of slotted arrivals, with the columns slot and port.")
    datasets: list[str] = setting([], "Recorded datasets, or runs of foretail collect, instead of a file.")
    ports: int | None = setting(
        None, "With arrivals, the number of ports of the switch.", at_least=1, at_most=MOST_PORTS
    )
    buffer: int | None = setting(
        None, "With arrivals, the number of packets that fit into the shared buffer.", at_least=1, at_most=2**40
    )
    windows: int = setting(
        10, "Number of windows of each file or dataset, each replayed from an empty buffer.", at_least=1, at_most=10**6
    )
    sample_packets: int = setting(
        1_000_000,
        "Number of packets in all windows of a file or dataset; one that has fewer is cut into windows whole.",
        at_least=1,
        at_most=2**40,
    )
    rules: list[str] | None = setting(None, "Rules of the zoo among which to choose; null means all.")
    search: bool = setting(False, "Also search a rule on this sample, starting from the chosen one.")
    trials: int = setting(200, "With search, the number of rules that each search tries.", at_least=24, at_most=10**7)
    seed: int = setting(1, "With search, the seed of its draws.", at_least=0, at_most=2**31 - 1)
    jobs: int = setting(2, "Number of replays at the same time.", at_least=1, at_most=1024)

    def check(self, where: str) -> None:
        """Raise ForetailError on settings that only together cannot work."""
        if (self.arrivals is None) == (not self.datasets):
            both = "both are given" if self.datasets else "there is neither"
            raise ForetailError(f"choose takes arrivals=FILE or datasets=[...], and {both}: give one of the two")
        if self.arrivals is not None:
            require_switch(self.ports, self.buffer)
        elif self.ports is not None or self.buffer is not None:
            raise ForetailError("ports and buffer are for arrivals=FILE: leave them out, a dataset knows its switches")
        require_distinct("datasets", self.datasets, "name every dataset once")
        if self.rules is not None:
            require_distinct("rules", self.rules, "name every rule once")
            if not self.rules:
                raise ForetailError("rules = [] leaves nothing to choose: leave it out for all rules of the zoo")

    def unused(self) -> Mapping[str, str]:
        """Settings of a search, without one."""
        return {} if self.search else dict.fromkeys(("trials", "seed"), "search=false")


def require_switch(ports: int | None, buffer: int | None, given: str = "arrivals=FILE", prefix: str = "") -> None:
    """Raise ForetailError unless slotted arrivals have a switch whose buffer holds a packet for each port."""
    if ports is None or buffer is None:
        raise ForetailError(f"{given} needs a switch: give {prefix}ports=N and {prefix}buffer=B, in packets")
    if buffer < ports:
        raise ForetailError(
            f"{prefix}buffer = {buffer} packets is less than one for each of {prefix}ports = {ports}: raise "
            f"{prefix}buffer"
        )


@dataclass
class DemoConfig(SimulatingStage):
    """``foretail demo``: predictors that are trained, proven and compared on bursts in slots, and then under TCP."""

    slotted: SlottedTraffic = part(SlottedTraffic, "Traffic in slots, whose senders do not react to drops.")
    scenario: Scenario = part(Scenario, "Network whose senders use TCP.")
    labels: list[str] = setting(MISSING, "Overrides of foretail train for a predictor of the packets that LQD drops.")
    sent: list[str] = setting(MISSING, "Overrides of foretail train for a predictor that maximises the packets sent.")
    split: Split = part(Split, "Seeds of training, validation and test runs, of both networks.")
    seeds: list[int] = seed_setting(MISSING, "Held-out seeds of the comparisons.")
    alphas: list[float] = setting(
        MISSING, "Alphas of Dynamic Thresholds; under TCP the best one on the training seeds is compared.", above=0
    )
    policy: dict[str, Policy] = setting(MISSING, "Policies that are compared under TCP with that threshold.")
    referee: str = setting("none", "Simulator that repeats one run under TCP.", one_of=("none", "ns3"))
    tracking: Tracking = part(Tracking, "Tracking in MLflow.")
    jobs: int = setting(2, "Number of simulations at the same time.", at_least=1, at_most=1024)
    size: str = setting("medium", "Size of the demo: its seeds, traffic and policies.", one_of=SIZES)

    def check(self, where: str) -> None:
        """Raise ForetailError on policies that the demo does not run, or seeds that it trained on."""
        require_policies("policy", self.policy)
        require_known("policy", self.policy, self.scenario)
        super().check(where)
        self.network.require_runs(self.scenario, self.policy)
        require_seeds("seeds", self.seeds)
        if "lqd" not in self.policy or "credence" not in self.policy:
            raise ForetailError("the demo compares credence with lqd: leave both in policy")
        if self.split.name != "by_run":
            raise ForetailError("the demo splits by run: use split=by_run, or the stage train for split=by_time")
        self.split.require_unseen("seeds and split", self.seeds, "evaluate on seeds that did not train")
