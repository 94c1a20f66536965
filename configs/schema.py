"""Structured configuration: one dataclass per config node, every field with its meaning, unit and range.

The dataclasses are Hydra schemas, stored in the ConfigStore as ``base_<stage>`` and named first in the defaults list
of each stage's YAML file, so that composing already checks names and types. The ranges given here are checked after
composing by ``foretail.pipelines.settings``. Fields without a default are ``MISSING``: a YAML file has to set them.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] | None = None,
    power_of_two: bool = False,
) -> Any:
    """A dataclass field with its documentation and its range in the metadata.

    Parameters
    ----------
    default : value, list or dict, or ``MISSING`` for a mandatory field
    doc : one sentence; the unit is in the field's name
    at_least, above, at_most : bounds of a number (of every number, when the field is a list)
    one_of : the allowed names of a string (of every string, when the field is a list)
    power_of_two : the integer must be a power of two
    """
    metadata = {
        "doc": doc,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "one_of": one_of,
        "power_of_two": power_of_two,
    }
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def part(kind: type[Any], doc: str) -> Any:
    """A dataclass field that holds another config node."""
    return dataclasses.field(default_factory=kind, metadata={"doc": doc})


# ---- the scenario: what is simulated, whatever the buffer policy --------------------------------------------------


@dataclass
class Topology:
    """A leaf-spine network; every leaf is connected once to every spine (paper, section 4.1)."""

    leaves: int = setting(MISSING, "number of leaf switches", at_least=2, at_most=1024)
    spines: int = setting(MISSING, "number of spine switches", at_least=1, at_most=1024)
    servers_per_leaf: int = setting(MISSING, "servers below each leaf", at_least=1, at_most=1024)
    server_link_bps: int = setting(10_000_000_000, "rate of every server link", at_least=1_000_000)
    spine_link_bps: int = setting(10_000_000_000, "rate of every leaf-spine link", at_least=1_000_000)
    link_delay_ns: int = setting(3_000, "one-way propagation delay of every link", at_least=0, at_most=1_000_000_000)
    buffer_bytes_per_port_per_gbps: int = setting(
        5120, "shared buffer of a switch, summed over its own ports and their rates", at_least=1
    )
    wire_overhead_bytes: int = setting(
        2, "bytes that a packet has on the wire but not in the buffer (PPP header)", at_least=0, at_most=1000
    )


@dataclass
class FlowSizes:
    """A distribution of flow sizes, linear between its points."""

    size_bytes: list[int] = setting(MISSING, "flow sizes of the distribution's points, increasing", at_least=0)
    cumulative: list[float] = setting(
        MISSING, "cumulative probability at each size, from 0 to 1, never falling", at_least=0, at_most=1
    )


@dataclass
class Background(FlowSizes):
    """Flows with Poisson arrivals."""

    load: float = setting(MISSING, "offered load, relative to a leaf's uplinks; 0 = none", at_least=0, at_most=2)
    destinations: str = setting(
        "next_leaf", "where a flow goes: the next leaf or any other", one_of=("next_leaf", "other_leaves")
    )


@dataclass
class Incast:
    """Queries: several servers answer one server at the same instant."""

    queries_per_second_per_server: float = setting(MISSING, "Poisson rate of queries per server; 0 = none", at_least=0)
    burst_fraction: float = setting(
        MISSING, "bytes of one query as a fraction of the leaf's buffer", above=0, at_most=100
    )
    fan_in: int = setting(MISSING, "servers that answer one query", at_least=1)
    responders: str = setting(
        "next_leaf", "who answers: servers of the next leaf or of all others", one_of=("next_leaf", "other_leaves")
    )
    connect_ahead_ns: int = setting(
        1_500_000, "connections are set up this long before the query; 0 = the handshake is inside the FCT", at_least=0
    )


LOSS_BASED = ("cubic", "newreno")
TRANSPORTS = ("dctcp", *LOSS_BASED, "theta_powertcp", "timely", "powertcp")


@dataclass
class PowerTcp:
    """PowerTCP and theta-PowerTCP (thesis, chapter 2)."""

    gamma: float = setting(0.9, "weight of the new window in the moving average", above=0, at_most=1)
    expected_flows: float = setting(
        100.0, "N: a flow adds 1 / N of a server's bandwidth-delay product per round trip", at_least=1
    )


@dataclass
class Timely:
    """TIMELY (Mittal's thesis, sections 3.3 and 3.5)."""

    low_rtt_ns: int = setting(50_000, "T_low: below it the rate only grows", at_least=0)
    high_rtt_ns: int = setting(500_000, "T_high: above it the rate falls whatever the gradient", at_least=1)
    increase_bps: float = setting(10e6, "delta: what a base round trip adds; also the smallest rate", at_least=1_000)
    decrease: float = setting(0.8, "beta: factor of multiplicative decrease", above=0, at_most=1)
    gradient_weight: float = setting(
        0.875,
        "alpha: weight of the newest difference of round-trip times; the thesis gives none, the public "
        "simulator ns3-datacenter this one",
        above=0,
        at_most=1,
    )


@dataclass
class Transport:
    """TCP at the servers; defaults as in the paper's artifact, except for what ns-3 cannot do exactly."""

    name: str = setting("dctcp", "congestion control", one_of=TRANSPORTS)
    background_name: str | None = setting(
        None, "congestion control of background flows, without ECN; null: as name", one_of=LOSS_BASED
    )
    segment_bytes: int = setting(1400, "payload of a full segment", at_least=64, at_most=1460)
    initial_window_segments: int = setting(22, "initial window of background flows", at_least=1, at_most=10_000)
    slow_start: bool = setting(False, "start with slow start; false: additive increase from the initial window on")
    min_rto_ns: int = setting(10_000_000, "smallest retransmission timeout", at_least=1_000)
    delayed_ack_segments: int = setting(1, "segments per acknowledgement", at_least=1, at_most=100)
    mark_bytes: int = setting(
        14_400, "ECN mark when the queue holds this much or more on arrival; 0 = no ECN", at_least=0
    )
    powertcp: PowerTcp = part(PowerTcp, "parameters of powertcp and theta_powertcp")
    timely: Timely = part(Timely, "parameters of timely")


@dataclass
class Rules:
    """How Longest Queue Drop chooses its victim; LQD and every virtual LQD of a run share the rules."""

    counting: str = setting(
        "counted", "is the arrival counted in its own queue when the longest is sought", one_of=("counted", "uncounted")
    )
    tie: str = setting("lowest_port", "which of several longest queues", one_of=("lowest_port", "highest_port"))
    victim: str = setting(
        "tail",
        "which packet of the longest queue (labels depend on it)",
        one_of=("tail", "tail_kept", "head", "random"),
    )


@dataclass
class FeatureArithmetic:
    """Integer arithmetic of the features, the same in training, C and switch."""

    cell_bytes: int = setting(
        256, "bytes of a buffer cell, the unit of lengths", at_least=1, at_most=65_536, power_of_two=True
    )
    average_shift: int | None = setting(
        None, "averages run over 2^this ns; null: the base RTT rounded to a power of two", at_least=0, at_most=24
    )


@dataclass
class Scenario:
    """A network with its traffic: everything of a run except seed and buffer policy."""

    name: str = setting(MISSING, "short name for tables and folders")
    topology: Topology = part(Topology, "network")
    background: Background = part(Background, "background flows")
    incast: Incast = part(Incast, "queries")
    transport: Transport = part(Transport, "TCP")
    rules: Rules = part(Rules, "rules of LQD")
    features: FeatureArithmetic = part(FeatureArithmetic, "feature arithmetic")
    traffic_ns: int = setting(MISSING, "flows start during this time", at_least=1)
    drain_ns: int = setting(100_000_000, "simulated time after the last start, for flows to finish", at_least=0)
    occupancy_interval_ns: int = setting(30_000, "time between two samples of buffer occupancy", at_least=1_000)


# ---- buffer policies ----------------------------------------------------------------------------------------------


BUFFER_POLICIES = (
    "cs",
    "cp",
    "dt",
    "harmonic",
    "abm",
    "reverie",
    "lqd",
    "followlqd",
    "credence",
    "credence_artifact",
)


@dataclass
class Policy:
    """One buffer policy with its parameters; parameters of other policies are ignored by it."""

    name: str = setting(MISSING, "the policy", one_of=BUFFER_POLICIES)
    alpha: float = setting(0.5, "DT, ABM and Reverie: threshold = alpha * free buffer", above=0)
    incast_alpha: float | None = setting(
        None,
        "incast packets have a queue of their own at each port, with this alpha; null: one queue per port",
        above=0,
    )
    first_rtt_alpha: float = setting(64.0, "ABM: alpha for packets of a flow's first RTT", above=0)
    low_pass_ns: int = setting(524_288, "Reverie: time constant of the averaged queue lengths", at_least=1)
    virtual_lqd: str = setting(
        "exact", "FollowLQD and Credence: packet-exact thresholds or fluid counters", one_of=("exact", "fluid")
    )
    fluid_slack_bytes: int = setting(0, "fluid counters: a queue may exceed its threshold by this much", at_least=0)
    predictor: str = setting(
        "accept", "Credence: always accept, or ask a compiled predictor", one_of=("accept", "library")
    )
    library: str | None = setting(None, "Credence: path of the compiled predictor; null = the stage's exported model")
    tau: int | None = setting(None, "Credence: drop iff score > tau; null = the predictor's own")
    flip_probability: float = setting(0.0, "Credence: share of predictions that are inverted", at_least=0, at_most=1)


@dataclass
class PolicyParameters:
    """Parameters of the policies where arrivals are known beforehand; every policy takes what it knows."""

    alpha: list[float] = setting([0.5], "DT, ABM and Reverie: share of the free buffer, one per priority", above=0)
    first_rtt_alpha: float = setting(64.0, "ABM: alpha for packets of a flow's first RTT", above=0)
    rtt_slots: int = setting(
        25, "arrivals: ABM and Reverie count congested queues once in so many slots", at_least=1, at_most=2**40
    )
    low_pass_slots: int = setting(
        1024, "arrivals: Reverie's average moves to the queue's length by 1 / this per slot", at_least=1, at_most=2**40
    )
    average_shift: int = setting(
        5, "arrivals: averaged features of the model run over 2^this slots", at_least=0, at_most=24
    )


# ---- training -----------------------------------------------------------------------------------------------------


@dataclass
class FeatureSelection:
    """Which features a predictor sees."""

    names: list[str] = setting(MISSING, "names from foretail.features.catalog, in the predictor's order")
    own_queues: bool = setting(
        False, "train real features on LQD's own queues as the paper did, instead of a shadow Credence's"
    )


PREDICTORS = ("random_forest", "extra_trees", "boosted_trees", "logistic_regression", "mlp", "sequence")


@dataclass
class Predictor:
    """What is trained; the class that it names declares and checks the ranges of its other settings."""

    name: str = setting(MISSING, "kind of predictor", one_of=PREDICTORS)


@dataclass
class RandomForest(Predictor):
    """A random forest, as in the paper: ``foretail.models.drop.forest.RandomForest``."""

    trees: int = setting(4, "number of trees")
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree")
    min_leaf_rows: int = setting(1, "fewest training rows in a leaf")
    features_per_split: int | None = setting(None, "features tried at each split; null: square root of their number")
    bootstrap: bool = setting(True, "every tree sees its own draw of the rows")
    seed: int = setting(1, "same seed and rows, same forest")


@dataclass
class ExtraTrees(RandomForest):
    """Extremely randomised trees: ``foretail.models.drop.forest.ExtraTrees``."""

    bootstrap: bool = setting(False, "every tree sees its own draw of the rows")


@dataclass
class BoostedTrees(Predictor):
    """XGBoost: ``foretail.models.drop.boosted.BoostedTrees``."""

    mode: str = setting("boosted", "boosted: one tree after the other; forest: all at once")
    trees: int = setting(4, "number of trees, in either mode")
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree")
    learning_rate: float = setting(0.3, "what of a tree counts")
    min_child_weight: float = setting(1.0, "fewest p (1 - p), summed over the weighted rows of a leaf")
    l2: float = setting(1.0, "penalty on the squares of leaf values")
    subsample: float = setting(1.0, "share of the rows that a tree sees")
    feature_share: float = setting(1.0, "share of the features that are tried at each split")
    bins: int = setting(4096, "values of a feature among which cuts are sought")
    seed: int = setting(1, "same seed, rows, threads and device, same trees")


@dataclass
class LogisticRegression(Predictor):
    """One linear score, to compare with: ``foretail.models.drop.logistic.LogisticRegression``."""

    l2: float = setting(1.0, "penalty on the squares of the coefficients")
    iterations: int = setting(1000, "most iterations of its solver")


@dataclass
class MultilayerPerceptron(Predictor):
    """A neural network: ``foretail.models.drop.neural.MultilayerPerceptron``."""

    layers: int = setting(2, "hidden layers")
    width: int = setting(64, "units of a hidden layer")
    steps: int = setting(4000, "batches to learn from")
    batch_rows: int = setting(1024, "rows of a batch, half of them drops")
    learning_rate: float = setting(0.01, "of Adam at the start; it falls to 0 along a half cosine")
    seed: int = setting(1, "same seed, rows, threads and device, same network")


@dataclass
class SequenceNetwork(Predictor):
    """A network over the last arrivals of a switch, a ceiling: ``foretail.models.drop.neural.SequenceNetwork``."""

    width: int = setting(48, "units of a layer")
    rounds: int = setting(60, "most rounds of training")
    round_steps: int = setting(100, "batches of a round")
    patience: int = setting(2, "rounds without a better training loss before the learning rate is halved")
    batch_rows: int = setting(512, "rows of a batch, half of them drops")
    learning_rate: float = setting(0.003, "of Adam at the start")
    seed: int = setting(1, "same seed, rows, threads and device, same network")


@dataclass
class Trainer:
    """What a predictor is trained on."""

    device: str = setting("cpu", "where XGBoost and PyTorch train", one_of=("cpu", "cuda"))
    jobs: int = setting(1, "threads that train", at_least=1, at_most=1024)


@dataclass
class Window:
    """Arrivals of the same switch that a predictor sees beside this one: a study of ceilings, nothing to export."""

    behind: int | None = setting(None, "arrivals before; null: 15 for sequence, else none", at_least=0, at_most=4095)
    ahead: int = setting(0, "arrivals after, which nobody can know: an upper bound", at_least=0, at_most=4095)


@dataclass
class Split:
    """Which rows train, validate and test: whole runs, or stretches of time with a gap. Never random rows."""

    name: str = setting(MISSING, "kind of split", one_of=("by_run", "drawn", "by_time"))
    train: list[int] = setting([], "by_run: seeds of the runs to train on", at_least=1, at_most=2**31 - 1)
    validation: list[int] = setting(
        [], "by_run: seeds of the runs on which the operating point is chosen", at_least=1, at_most=2**31 - 1
    )
    test: list[int] = setting(
        [], "by_run: seeds of the runs on which the scores are computed", at_least=1, at_most=2**31 - 1
    )
    seeds: list[int] = setting(
        [], "by_time: seeds of the runs to cut in three; drawn: of the runs to draw from", at_least=1, at_most=2**31 - 1
    )
    validation_fraction: float = setting(
        0.2, "by_time: share of a run's time that validates; drawn: of the runs", above=0, at_most=1
    )
    test_fraction: float = setting(
        0.2, "by_time: share of a run's time that tests; drawn: of the runs", above=0, at_most=1
    )
    seed: int = setting(1, "drawn: of the draw", at_least=0, at_most=2**32 - 1)
    gap_ns: int = setting(1_000_000, "by_time: time left out between two stretches", at_least=1)


@dataclass
class Sampling:
    """Which training rows are read: every drop and all of the asked region, and a share of the others, weighted."""

    others: float = setting(1.0, "share of the others; smaller saves memory and time", above=0, at_most=1)
    seed: int = setting(1, "of the draw", at_least=0, at_most=2**32 - 1)


@dataclass
class OperatingPoint:
    """The probability threshold, chosen on the validation split."""

    region: str = setting("asked", "rows that count: where Credence asks, or all", one_of=("asked", "whole"))
    maximise: str = setting("f1", "F1, or the recovered loss of replays", one_of=("f1", "recovered_loss"))


@dataclass
class Objective:
    """What is learned: the labels alone, or also which of its mistakes lose packets."""

    name: str = setting(
        "labels",
        "labels: every row alike; recovered_loss: train again with more weight on rows whose mistakes cost throughput",
        one_of=("labels", "recovered_loss"),
    )
    rounds: int = setting(4, "recovered_loss: trainings, the best on validation runs is kept", at_least=2, at_most=100)
    window_ns: int = setting(
        200_000, "recovered_loss: the loss in so much time is shared by the mistakes made in it", at_least=1
    )


@dataclass
class Labels:
    """Which of the equally true labels of LQD train; thresholds and scores always go by those of the datasets."""

    rule: str | None = setting(
        None,
        "victims by another rule, found by replay; null: the rule of the datasets, scenario.rules.victim",
        one_of=("tail", "tail_kept", "head", "random"),
    )
    reassign: int = setting(
        0,
        "train again so often on drops moved to the packets with the highest scores; the best on validation is kept",
        at_least=0,
        at_most=100,
    )


GATED_ALIASES = ("champion", "challenger")
"""Aliases of a registered model that only the gate of ``foretail promote`` moves."""


@dataclass
class Tracking:
    """MLflow."""

    enabled: bool = setting(True, "log to MLflow")
    uri: str | None = setting(None, "tracking server; null: MLFLOW_TRACKING_URI, else an SQLite file beside the store")
    experiment: str = setting("foretail", "name of the MLflow experiment")
    registered_model: str | None = setting("foretail-drop", "name in the model registry; null = do not register")
    alias: str = setting(
        "candidate", "alias that moves to the newly registered version; champion and challenger move by promote only"
    )
    run_name: str | None = setting(None, "name of the run; null lets MLflow choose")
    sweep_id: str | None = setting(None, "runs of one sweep share this tag")
    parent_run_id: str | None = setting(None, "MLflow run of the study inside which this one is shown")


@dataclass
class Launcher:
    """Where the points of an experiment are measured."""

    name: str = setting("local", "on this machine, or on a Ray cluster of which it is a part", one_of=("local", "ray"))
    address: str = setting("127.0.0.1:6379", "ray: HOST:PORT of the cluster's head, as ray start names it")


# ---- experiments in the slotted model -----------------------------------------------------------------------------


@dataclass
class Sweep:
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


# ---- experiments in ns-3 ------------------------------------------------------------------------------------------


@dataclass
class FlowSweep:
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


SIZES = ("small", "medium", "full")


# ---- stages -------------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """Settings of every stage."""

    store_dir: str = setting("outputs/store", "folder of datasets, models and runs, addressed by content")
    ns3_prefix: str | None = setting(None, "an ns-3 >= 3.44 installation; null = the Python package ns3")


@dataclass
class EtalonImport:
    """How a packet log of the Etalon emulator is read, and the shared buffer that labels it (docs/imports.md)."""

    buffer_bytes: int = setting(
        7 * 16 * 9000, "shared buffer of each source rack's switch; the emulator has none", at_least=1, at_most=2**30
    )
    port_rate_bps: int | None = setting(
        None,
        "rate of every port; null: its share of the packet uplink and the mean of its circuit",
        at_least=1000,
        at_most=10**15,
    )
    packet_link_bps: int = setting(10_000_000_000, "packet uplink of a rack, in virtual time", at_least=1_000_000)
    circuit_link_bps: int = setting(80_000_000_000, "circuit, in virtual time", at_least=1_000_000)
    time_dilation: int = setting(20, "wall time over virtual time", at_least=1, at_most=100_000)
    position: str = setting("after", "where in the switch the log was taken", one_of=("after", "before"))
    latency_dilated: bool = setting(False, "latencies in the log are dilated, which those of the emulator are not")
    record_bytes: int | None = setting(None, "size of a record, 112 or 116; null finds out")
    racks: int | None = setting(None, "racks of the network; null: the highest in the log", at_least=3, at_most=255)
    packet_delay_ns: int = setting(10_000, "propagation delay of the packet path: no latency is less", at_least=0)
    circuit_delay_ns: int = setting(30_000, "propagation delay of the circuit: no latency is less", at_least=0)
    day_ns: int | None = setting(180_000, "median time that a circuit is up; null does not check it", at_least=1)
    voq_packets: int | None = setting(None, "largest capacity of a VOQ; null does not check it", at_least=1)
    rules: Rules = part(Rules, "rules of LQD")
    features: FeatureArithmetic = part(FeatureArithmetic, "feature arithmetic; average_shift null is 15, about 33 us")


@dataclass
class ArtifactImport:
    """The switch whose training rows the public Credence artifact wrote (docs/imports.md); the rows do not say."""

    ports: int = setting(20, "ports: N of the scores", at_least=1, at_most=32_767)
    buffer_bytes: int = setting(1_052_672, "shared buffer: no length exceeds it", at_least=1, at_most=2**24 - 1)
    port_rate_bps: int = setting(10_000_000_000, "rate of every port, for the manifest", at_least=1)


@dataclass
class SlottedTraffic:
    """A workload of the slotted model and its switch: packets of 1024 bytes, slots of 1024 ns."""

    workload: str = setting("incast", "name from foretail.sim_bridge.arrivals.workloads")
    settings: Any = setting(None, "parameters of the workload, as {NAME: VALUE}; the others keep their defaults")
    ports: int = setting(20, "N, ports of the switch", at_least=1, at_most=32_767)
    buffer_per_port: int = setting(50, "B / N, packets of shared buffer", at_least=1, at_most=2**20)
    slots: int = setting(20_000, "slots with arrivals", at_least=1, at_most=2**40)
    features: FeatureArithmetic = part(FeatureArithmetic, "feature arithmetic; average_shift null is 15, 32 slots")


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
class FeatureBudget:
    """Most that the selected features may take beyond Credence on one switch; null is no limit."""

    features: int | None = setting(None, "number of features", at_least=1)
    register_bits: int | None = setting(None, "bits of state", at_least=0)
    operations: int | None = setting(None, "operations per packet", at_least=0)


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
class Student:
    """A random forest that imitates a network: its size is the budget."""

    trees: int = setting(4, "number of trees", at_least=1, at_most=4096)
    depth: int = setting(4, "largest depth of a tree: comparisons that a packet costs per tree", at_least=1, at_most=32)
    leaves: int | None = setting(None, "most leaves of all trees together; null: as many as depth allows", at_least=2)
    seed: int = setting(1, "same seed, teacher and rows, same trees", at_least=0, at_most=2**32 - 1)


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
class ModelInput:
    """One input of a model that another framework trained, in the order of its columns."""

    name: str = setting(MISSING, "feature name: a letter, then letters, digits and underscores")
    bits: int = setting(MISSING, "the input is an integer in [0, 2^bits)", at_least=1, at_most=24)
    params: str = setting("", "constants of the feature's arithmetic, as in cell_bytes=256,average_shift=15")


@dataclass
class CTarget:
    """``target=c``: a header, a library for the simulators and a self-test."""

    shape: str = setting(
        "auto",
        "code of a single prediction; auto: measured, or chosen by size",
        one_of=("auto", "branches", "bitvector"),
    )
    batch: str = setting("auto", "code of a batch; auto: measured, or chosen by size", one_of=("auto", "rows", "lanes"))
    tune: bool = setting(False, "measure every form on the rows of `dataset` and take the fastest")


@dataclass
class P4Demo:
    """The switch of the demo program that runs around the predictor in BMv2 (docs/p4.md)."""

    buffer_bytes: int | None = setting(None, "shared buffer; null: no demo program", at_least=1, at_most=2**30)
    port_rates_bps: list[int] = setting([10**10] * 4, "rate of each port, at most 8", at_least=1000, at_most=10**15)
    wire_overhead_bytes: int = setting(38, "bytes of a packet on the wire, not in the buffer", at_least=0, at_most=256)
    smallest_packet_bytes: int = setting(64, "smaller packets are not answered", at_least=1, at_most=65_535)


@dataclass
class P4Target:
    """``target=p4``: a P4_16 control for v1model, its entries and a resource report."""

    encoding: str = setting(
        "auto", "tables of the features; auto: the cheapest", one_of=("auto", "range", "lpm", "ternary", "exact")
    )
    decision: str = setting(
        "auto", "tables of the trees; auto: the cheapest", one_of=("auto", "leaf_rows", "product", "bitvector")
    )
    entries: str = setting("const", "in the program, or in files for the control plane", one_of=("const", "runtime"))
    profile: str = setting("v1model", "what the switch offers: v1model, rmt, or a YAML file")
    bmv2: bool = setting(False, "also compile with p4c and run 10,000 packets in BMv2, both on PATH (docs/p4.md)")
    demo: P4Demo = part(P4Demo, "demo program")


@dataclass
class DemandTarget:
    """A demand predictor in integers."""

    max_error_uplinks: float = setting(
        1e-3, "no entry is farther from the predictor's own; decides the fraction bits", above=0, at_most=1
    )
    largest_uplinks: float = setting(
        64.0, "linear predictors keep the error for values up to this, and take larger ones for it", above=0
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
class CircuitEntries:
    """``outputs=[p4]``: the table entries of each rack."""

    first_port: int = setting(0, "egress port of uplink 0", at_least=0, at_most=510)


@dataclass
class EtalonSchedule:
    """``outputs=[etalon]``: times in the schedule of the Etalon emulator."""

    day_us: int = setting(180, "how long circuits are up", at_least=1, at_most=10**9)
    night_us: int = setting(20, "how long their reconfiguration takes", at_least=1, at_most=10**9)
    time_dilation: int = setting(20, "wall-clock time per emulated time", at_least=1, at_most=10**6)


@dataclass
class NoiseSweep:
    """Schedules for wrong predictions: every matrix, noise and deviation is a point, with all samples and gammas."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 9.5 and 9.6 for every gamma, 9.7 and 9.8 for a drawn k",
        one_of=("vermilion_fig9_5", "vermilion_fig9_6", "vermilion_fig9_7", "vermilion_fig9_8"),
    )
    nodes: int = setting(8, "n", at_least=2, at_most=64)
    matrices: list[str] = setting(MISSING, "true demand", one_of=("ring", "all_to_all", "random", "skew", "chessboard"))
    skew: float = setting(0.5, "skew: share of a permutation, the rest is a ring", at_least=0, at_most=1)
    noise: list[str] = setting(MISSING, "kinds of noise", one_of=("additive", "multiplicative"))
    deviations: list[float] = setting(MISSING, "standard deviations of the noise; largest entry 10", at_least=0)
    samples: int = setting(MISSING, "predictions per point, of seeds 1 to this", at_least=1, at_most=10_000)
    uniform_from: list[int] = setting(
        [], "k is drawn uniformly from this to each gamma; empty: gamma itself, for each", at_least=1
    )
    duty_cycle: float = setting(
        0.99, "share of a slot that carries data, beside figures without it", above=0, at_most=1
    )


@dataclass
class DesignSweep:
    """Designs of periodic networks side by side: every matrix on every number of nodes with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.7 by matrix, 8.8 by k and nodes",
        one_of=("vermilion_fig8_7", "vermilion_fig8_8"),
    )
    nodes: list[int] = setting(MISSING, "n; k n is a multiple of the degree", at_least=2, at_most=1024)
    matrices: list[str] = setting(
        MISSING,
        "names from foretail.sim_bridge.circuits.throughput, or skew-A: a share A of a permutation, else uniform",
    )
    trusts: list[int] = setting(MISSING, "values of k, with l = 1", at_least=2)
    designs: list[str] = setting(
        MISSING,
        "what is compared; optimum: the best single-hop schedules of Vermilion's period; oblivious: up to 64 nodes",
        one_of=("vermilion", "optimum", "oblivious", "mars"),
    )
    seeds: list[int] = setting(MISSING, "of random matrices, and left-over circuits", at_least=1, at_most=2**31 - 1)
    duty_cycle: float = setting(
        0.99, "share of a slot that carries data, beside figures without it", above=0, at_most=1
    )


@dataclass
class FabricDesign:
    """A schedule of circuits, and how cells go over it."""

    schedule: str = setting(
        MISSING, "made for the permutation, or every rack in turn", one_of=("vermilion", "round_robin")
    )
    routing: str = setting(
        MISSING, "as in foretail.sim_bridge.circuits.cells.cell_fabric", one_of=("direct", "two_hop", "valiant")
    )
    k: int = setting(3, "vermilion: k, with l = 1; k times racks is a multiple of the degree", at_least=2)
    hold_slots: int = setting(
        1, "slots that every matching stays; two_hop: a rack takes cells to relay up to this", at_least=1, at_most=2**20
    )


@dataclass
class FabricSweep:
    """Flows over designs, cell by cell: every design under every load with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.5 completion times, 8.6 link utilisation, of the same points",
        one_of=("vermilion_fig8_5", "vermilion_fig8_6"),
    )
    racks: int = setting(MISSING, "n", at_least=3, at_most=1024)
    loads: list[float] = setting(MISSING, "offered, relative to the rate of a rack's uplinks", above=0, at_most=2)
    seeds: list[int] = setting(MISSING, "of permutations and flows", at_least=1, at_most=2**31 - 1)
    designs: dict[str, FabricDesign] = setting(MISSING, "what is compared; the first is compared to the others")
    sizes: FlowSizes = part(FlowSizes, "flow sizes")
    uplink_bps: int = setting(25_000_000_000, "rate of an uplink", at_least=1, at_most=10**13)
    day_ns: int = setting(4_500, "time of a slot in which circuits are up: one cell", at_least=1, at_most=10**12)
    night_ns: int = setting(500, "time of a slot in which they are changed", at_least=0, at_most=10**12)
    warm_up_slots: int = setting(MISSING, "slots before the flows that are measured start", at_least=0, at_most=2**40)
    slots: int = setting(MISSING, "slots in which they start", at_least=1, at_most=2**40)
    drain_slots: int = setting(
        MISSING, "slots after that, under the same load, in which they can finish", at_least=0, at_most=2**40
    )


@dataclass
class TradeoffSweep:
    """Consistency against robustness: every matrix with every seed is a point, with all gammas and predictions."""

    experiment: str = setting(
        "vermilion_fig9_1", "figure of the thesis; 9.4 is its first panel", one_of=("vermilion_fig9_1",)
    )
    nodes: int = setting(8, "n", at_least=4, at_most=64)
    matrices: list[str] = setting(
        MISSING, "true demand, and wrong predictions of the others, named as in ``DesignSweep``"
    )
    seeds: list[int] = setting(MISSING, "of random matrices and the search", at_least=1, at_most=2**31 - 1)
    tries: int = setting(40, "predictions that the search for the worst one tries", at_least=1, at_most=10**6)
    hulls: list[int] = setting([3, 5, 100], "gammas whose distributions are drawn in theory", at_least=3, at_most=1000)
    floors: list[float] = setting(
        [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5],
        "robustness for which the distribution of k is optimised",
        at_least=0,
        at_most=0.5,
    )


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
class DemandPredictor:
    """One demand predictor; null settings are its own defaults, and it refuses those that it does not have."""

    name: str = setting(
        MISSING,
        "the predictor",
        one_of=(
            "last_value",
            "moving_average",
            "seasonal",
            "linear_entries",
            "boosted_entries",
            "low_rank",
            "history_attention",
        ),
    )
    window: int | None = setting(None, "last steps that count")
    period: int | None = setting(None, "seasonal: steps; null: found in the training runs")
    longest: int | None = setting(None, "seasonal: longest period that is tried")
    penalty: float | None = setting(None, "linear_entries, low_rank: on the squared weights")
    shared: bool | None = setting(None, "linear_entries: one function for all pairs, instead of one for each")
    rank: int | None = setting(None, "low_rank: patterns")
    trees: int | None = setting(None, "boosted_entries: number of trees")
    depth: int | None = setting(None, "boosted_entries: largest depth of a tree")
    learning_rate: float | None = setting(None, "boosted_entries, history_attention: of the training")
    width: int | None = setting(None, "history_attention: hidden units")
    steps: int | None = setting(None, "history_attention: training steps")
    seed: int | None = setting(None, "boosted_entries, history_attention: same seed and runs, same predictor")


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
class ClosedLoop:
    """Simulations of a study in which Credence asks the candidates."""

    conditions: list[str] = setting([], "conditions of the study; empty = no simulations")
    candidates: list[str] = setting([], "candidates, which must be trees")
    policies: list[str] = setting(["lqd", "credence_accept", "followlqd", "dt"], "beside them; lqd has to be there")
    seeds: list[int] = setting([], "traffic seeds that no candidate trained on", at_least=1, at_most=2**31 - 1)


@dataclass
class Shift:
    """A candidate that trains under each condition alone and is tested under all of them."""

    conditions: list[str] = setting([], "conditions of the study; empty = no shift matrix")
    candidate: str = setting("ours", "candidate of the study")
    seeds: list[int] = setting([], "traffic seeds in ns-3; empty = open loop only", at_least=1, at_most=2**31 - 1)


@dataclass
class Study:
    """Predictors on runs and conditions that they never saw; overrides are written as on the command line."""

    scenario: list[str] = setting(["scenario=leafspine_small"], "overrides that all conditions share")
    conditions: dict[str, list[str]] = setting(MISSING, "overrides of each condition, by its name")
    train_on: list[str] = setting(MISSING, "conditions whose runs train; the others are new to every candidate")
    split: Split = part(Split, "seeds of the runs, by run")
    candidates: dict[str, list[str]] = setting(MISSING, "overrides of foretail train, by the candidate's name")
    closed_loop: ClosedLoop = part(ClosedLoop, "in ns-3")
    shift: Shift = part(Shift, "the shift matrix")
    forest_sizes: list[int] = setting([1, 2, 4, 8, 16, 32], "numbers of trees of Figure 15", at_least=1)
    labels: list[str] = setting(
        [], "policies beside lqd whose runs the label study compares, the last of them asking a candidate; empty = none"
    )
    label_candidate: str = setting("forest", "candidate of the label study, which must be trees")
    budget: list[str] = setting(
        [], "candidates that fit a switch; the best of them on validation runs is put up for champion; empty = none"
    )


@dataclass
class StudyConfig(Stage):
    """``foretail study``: predictors on held-out runs and conditions, open loop and in ns-3."""

    study: dict[str, Study] = setting(MISSING, "the study by size: full and small")
    size: str = setting("full", "which one", one_of=SIZES)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "MLflow")


SEARCH_SCORES = ("recovered_loss", "f1", "average_precision")
"""Of a search, on its validation runs: where Credence asks; more is better."""
SEARCH_COSTS = ("table_entries", "tcam_bits", "leaves", "comparisons", "feature_bits")
"""Of a search, as ``foretail.export.switch_cost`` counts them; less is better."""


@dataclass
class Dimension:
    """The values of one setting of ``foretail train``: choices, or a range of integers or of floats."""

    override: str | None = setting(None, "the setting, such as predictor.trees; null: the name of the dimension")
    choices: list[Any] = setting([], "values, written as on the command line")
    integers: list[int] = setting([], "first and last integer")
    floats: list[float] = setting([], "lower and upper end")
    step: int = setting(1, "of the integers", at_least=1)
    log: bool = setting(False, "drawn by order of magnitude")


@dataclass
class Search:
    """Settings of ``foretail train`` to draw from, and what counts."""

    candidate: list[str] = setting([], "overrides of foretail train that all trials share")
    space: dict[str, Dimension] = setting(
        MISSING, "what is drawn; a setting predictor.X is drawn for the predictors that have it"
    )
    objectives: list[str] = setting(
        ["recovered_loss", "table_entries"],
        "what the front is about: scores on the validation runs, against costs",
        one_of=(*SEARCH_SCORES, *SEARCH_COSTS),
    )
    budget: dict[str, float] = setting(
        {"comparisons": 16}, "most of each cost; the best first score within it is trained for good and tested"
    )
    p4_profile: str = setting("v1model", "of table_entries and tcam_bits: v1model, rmt, or a YAML file")
    trials: int = setting(MISSING, "trials in total, those of earlier runs included", at_least=1, at_most=100_000)
    sampler: str = setting("nsga2", "who draws", one_of=("nsga2", "tpe"))
    population: int = setting(20, "nsga2: trials of a generation", at_least=2, at_most=10_000)
    batch: int = setting(
        4, "trials drawn before any of them is known, so that jobs change nothing", at_least=1, at_most=1024
    )
    seed: int = setting(1, "of the draws", at_least=0, at_most=2**32 - 1)


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
