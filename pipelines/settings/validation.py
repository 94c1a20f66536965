"""Checks after composing: the range of every field, and what only several fields together can tell.

Every failure is a ``ForetailError`` of one sentence that names the setting as it is written on the command line.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import LOSS_BASED, FlowSizes, Scenario
from foretail.configs.schema.stages import (
    CollectConfig,
    DemandConfig,
    DemoConfig,
    DistillConfig,
    EvaluateConfig,
    PromoteConfig,
    ReportConfig,
    ScheduleConfig,
    SearchConfig,
    SelectConfig,
    Stage,
    StudyConfig,
    TrainConfig,
)
from foretail.configs.schema.studies import SEARCH_COSTS, SEARCH_SCORES
from foretail.configs.schema.tracking import GATED_ALIASES, Tracking
from foretail.configs.schema.training import Predictor, Split
from foretail.features.catalog import selection_cost, training_columns
from foretail.features.errors import ForetailError
from foretail.sim_bridge.policies import ASKING, KNOW_PRIORITIES

MOST_SERVERS = 65_535
StageConfig = TypeVar("StageConfig", bound=Stage)


def typed(node: DictConfig, schema: type[StageConfig], overrides: Sequence[str] = ()) -> StageConfig:
    """The composed config as a validated `schema` object; raises ``ForetailError`` and OmegaConf's own errors.

    Of `overrides`, as on the command line, those are refused that mean nothing beside the others.
    """
    config = OmegaConf.to_object(node)
    if not isinstance(config, schema):
        raise TypeError(f"expected a {schema.__name__}, not a {type(config).__name__}")
    validate(config)
    if isinstance(config, CollectConfig):
        refuse_settings_of_others(config.source, overrides)
    return config


def validate(config: Stage) -> None:
    """Check ranges and cross-field conditions of a stage's config."""
    _check_ranges(config, "")
    if isinstance(
        config,
        (CollectConfig, TrainConfig, SelectConfig, DistillConfig, EvaluateConfig, PromoteConfig, DemoConfig),
    ):
        validate_scenario(config.scenario)
        _check_policies("policy", config.policy)
    if isinstance(config, EvaluateConfig):
        _check_open_loop(config)
        _check_sweep(config)
        _check_figures(config)
    if isinstance(config, ScheduleConfig):
        _check_families(config)
    if isinstance(config, (EvaluateConfig, ScheduleConfig)):
        _check_launcher(config)
    if isinstance(config, CollectConfig):
        _check_source(config)
    if isinstance(config, (CollectConfig, TrainConfig, SelectConfig, DistillConfig, PromoteConfig)):
        _check_labelling_policy("policy", config.policy)
    if isinstance(config, DemoConfig):
        _check_policies("collect_policy", config.collect_policy)
        _check_labelling_policy("collect_policy", config.collect_policy)
        if config.predictor.name in ("logistic_regression", "mlp", "sequence"):
            raise ForetailError("the demo exports to C, which takes trees: use predictor=random_forest")
        if config.split.name != "by_run":
            raise ForetailError("the demo splits by run: use split=by_run, or the stage train for split=by_time")
        shared = sorted(set(config.seeds) & {seed for _, seeds in roles(config.split) for seed in seeds})
        if shared:
            raise ForetailError(f"seeds and split share seed {shared[0]}: evaluate on seeds that did not train")
    if isinstance(config, (CollectConfig, EvaluateConfig, PromoteConfig, DemoConfig)):
        _check_distinct("seeds", config.seeds)
    if isinstance(config, PromoteConfig):
        _check_promotion(config)
    elif isinstance(tracking := getattr(config, "tracking", None), Tracking) and tracking.alias in GATED_ALIASES:
        raise ForetailError(
            f"tracking.alias = {tracking.alias} moves by its gate only: choose another alias, then foretail promote "
            f"model=models:/NAME@ALIAS to={tracking.alias}"
        )
    if isinstance(config, (TrainConfig, SelectConfig, DemoConfig)):
        training_columns(config.features.names, config.features.own_queues)
        _check_predictor(config.predictor)
    if isinstance(config, TrainConfig):
        _check_training(config)
    if isinstance(config, SelectConfig):
        selection_cost(config.features.names, ports=1)  # refuses what no switch can know
        _check_trainer(config)
        if config.predictor.name == "sequence":
            raise ForetailError(
                "sequence sees other arrivals too, which no switch affords: choose another predictor to select by"
            )
    if isinstance(config, (TrainConfig, SelectConfig, DistillConfig, DemoConfig, DemandConfig)):
        _check_split(config.split)
    if isinstance(config, DemandConfig):
        _check_demand(config)
    if isinstance(config, StudyConfig):
        _check_study(config)
    if isinstance(config, ReportConfig):
        _check_report(config)
    if isinstance(config, SearchConfig):
        _check_search(config)
    if isinstance(config, EvaluateConfig) and (is_open_loop(config) or config.sweep or config.figures):
        return
    if isinstance(config, (EvaluateConfig, DemoConfig)):
        for name in config.baselines:
            if name not in config.policy:
                raise ForetailError(
                    f"baselines names {name!r}, which is not among the policies ({', '.join(config.policy)}): "
                    "add it to policy=[...] or take it out of baselines"
                )
    if isinstance(config, EvaluateConfig) and config.model is None:
        for name, policy in config.policy.items():
            if asks_exported_model(policy):
                raise ForetailError(
                    f"policy {name} asks a predictor and there is none: give model=FILE, policy.{name}.library=PATH or "
                    f"policy.{name}.predictor=accept"
                )


def is_open_loop(config: EvaluateConfig) -> bool:
    """Whether policies run on arrivals that are known beforehand, instead of in ns-3."""
    return config.arrivals is not None or bool(config.datasets)


def logs(config: CollectConfig) -> list[str]:
    """The logs to import, in order."""
    given = config.log if isinstance(config.log, list) else [config.log]
    return [log for log in given if log is not None]


def asks_exported_model(policy: Policy) -> bool:
    """Whether the policy needs the stage's exported model, having no library of its own."""
    return _asks(policy) and policy.predictor == "library" and policy.library is None


def _asks(policy: Policy) -> bool:
    return policy.name in ASKING


def roles(split: Split) -> tuple[tuple[str, list[int]], ...]:
    """The seeds of a by-run split by role, or those of another split under one name."""
    if split.name == "by_run":
        return (("train", split.train), ("validation", split.validation), ("test", split.test))
    return (("seeds", split.seeds),)


def validate_scenario(scenario: Scenario) -> None:
    """Cross-field checks of a scenario; a path of every setting begins with ``scenario.``."""
    topology, background, incast = scenario.topology, scenario.background, scenario.incast
    if background.load == 0 and incast.queries_per_second_per_server == 0:
        raise ForetailError(
            "scenario.background.load and scenario.incast.queries_per_second_per_server are both 0: raise one of them"
        )
    responders = topology.servers_per_leaf * (1 if incast.responders == "next_leaf" else topology.leaves - 1)
    if incast.fan_in > responders:
        raise ForetailError(
            f"scenario.incast.fan_in = {incast.fan_in} is more than the {responders} servers that can answer a query: "
            f"use at most {responders}, or raise scenario.topology.servers_per_leaf"
        )
    _check_distribution("scenario.background", background)
    servers = topology.leaves * topology.servers_per_leaf
    if servers > MOST_SERVERS:
        raise ForetailError(
            f"scenario.topology has {servers} servers and the driver addresses {MOST_SERVERS}: "
            "lower leaves or servers_per_leaf"
        )
    if scenario.transport.name == "dctcp" and scenario.transport.mark_bytes == 0:
        raise ForetailError(
            "scenario.transport.mark_bytes = 0 leaves dctcp without ECN marks, which it lives on: raise it"
        )
    if scenario.transport.background_name is not None and scenario.transport.name not in ("dctcp", *LOSS_BASED):
        raise ForetailError(
            f"scenario.transport.background_name = {scenario.transport.background_name} cannot stand beside "
            f"{scenario.transport.name}, which paces all senders: choose another name, or null"
        )
    timely = scenario.transport.timely
    if timely.high_rtt_ns <= timely.low_rtt_ns:
        raise ForetailError(
            f"scenario.transport.timely.high_rtt_ns = {timely.high_rtt_ns} is not above low_rtt_ns = "
            f"{timely.low_rtt_ns}: raise it"
        )
    base_rtt_ns = _base_rtt_ns(scenario)
    if scenario.transport.name == "timely" and timely.high_rtt_ns <= base_rtt_ns:
        raise ForetailError(
            f"scenario.transport.timely.high_rtt_ns = {timely.high_rtt_ns} is not above the base round trip of "
            f"{base_rtt_ns} ns, so every flow would slow down for ever: raise it"
        )
    if scenario.features.average_shift is None and round(math.log2(base_rtt_ns)) > 24:
        raise ForetailError(
            f"the base round trip of {base_rtt_ns} ns is longer than averages can be: set "
            "scenario.features.average_shift, or lower scenario.topology.link_delay_ns"
        )
    buffer_bytes = leaf_buffer_bytes(scenario)
    if buffer_bytes < 2 * scenario.transport.segment_bytes:
        raise ForetailError(
            f"the buffer of a leaf holds {buffer_bytes} bytes, less than two segments: raise "
            "scenario.topology.buffer_bytes_per_port_per_gbps"
        )
    if incast.burst_fraction * buffer_bytes < incast.fan_in:
        raise ForetailError(
            f"scenario.incast.burst_fraction = {incast.burst_fraction:g} is less than a byte per responder: raise it"
        )


def leaf_buffer_bytes(scenario: Scenario) -> int:
    """Shared buffer of a leaf: bytes per port and Gbps, summed over its server and spine ports."""
    topology = scenario.topology
    bps = topology.servers_per_leaf * topology.server_link_bps + topology.spines * topology.spine_link_bps
    return topology.buffer_bytes_per_port_per_gbps * bps // 1_000_000_000


def _base_rtt_ns(scenario: Scenario) -> int:
    """Round trip of a full segment and its acknowledgement between two leaves of an idle network, as the driver's."""
    topology = scenario.topology
    wire_bytes = 40 + topology.wire_overhead_bytes
    packets = (scenario.transport.segment_bytes + wire_bytes, wire_bytes)
    links = (topology.server_link_bps, topology.spine_link_bps)
    return 8 * topology.link_delay_ns + sum(2 * -(-8 * 10**9 * size // bps) for size in packets for bps in links)


def _check_distribution(where: str, sizes: FlowSizes) -> None:
    size_bytes, cumulative = sizes.size_bytes, sizes.cumulative
    if len(size_bytes) != len(cumulative) or len(size_bytes) < 2:
        raise ForetailError(
            f"{where}.size_bytes has {len(size_bytes)} points and {where}.cumulative has {len(cumulative)}: "
            "give both the same number of points, at least 2"
        )
    for before, after in itertools.pairwise(size_bytes):
        if after <= before:
            raise ForetailError(f"{where}.size_bytes is not increasing at {after} after {before}: sort its points")
    for low, high in itertools.pairwise(cumulative):
        if high < low:
            raise ForetailError(f"{where}.cumulative is not monotone: {high:g} follows {low:g}")
    if cumulative[0] != 0 or cumulative[-1] != 1:
        raise ForetailError(
            f"{where}.cumulative must run from 0 to 1, not from {cumulative[0]:g} to {cumulative[-1]:g}"
        )


def _check_policies(where: str, policies: Mapping[str, Policy]) -> None:
    if not policies:
        raise ForetailError(f"{where} is empty: choose at least one policy, such as {where}=lqd")
    for name, policy in policies.items():
        asks = _asks(policy) and policy.predictor == "library"
        if not asks and (policy.library is not None or policy.predictor == "library"):
            raise ForetailError(f"{where}.{name} names a predictor, but only credence with predictor=library asks one")
        if policy.incast_alpha is not None and policy.name not in KNOW_PRIORITIES:
            raise ForetailError(
                f"{where}.{name}.incast_alpha gives incast a queue of its own, which {policy.name} cannot: "
                "set it to null"
            )
        if policy.library is not None and not Path(policy.library).is_file():
            raise ForetailError(f"{where}.{name}.library: there is no file {policy.library}")


def _check_source(config: CollectConfig) -> None:
    given = logs(config)
    if config.source in ("ns3", "slotted"):
        if given:
            raise ForetailError("log is for imports: give source=etalon or source=credence_artifact with it")
        if config.source == "slotted":
            _check_slotted(config)
        return
    if not given:
        raise ForetailError(f"source={config.source} imports a log and there is none: give log=FILE")
    for log in given:
        if not isinstance(log, str):
            raise ForetailError(f"log holds {log!r}, which is no path: give log=FILE or log=[FILE,...]")
        if not Path(log).is_file():
            raise ForetailError(f"log: there is no file {log}")
    if len(given) != len(config.seeds):
        numbers = ",".join(map(str, range(1, len(given) + 1)))
        raise ForetailError(
            f"log names {len(given)} files and seeds has {len(config.seeds)} numbers: give every log a number of its "
            f"own, such as seeds=[{numbers}]"
        )
    if config.etalon.record_bytes not in (None, 112, 116):
        raise ForetailError(f"etalon.record_bytes = {config.etalon.record_bytes} is unknown: choose from 112, 116")


def _check_slotted(config: CollectConfig) -> None:
    from foretail.sim_bridge.arrivals.workloads import (
        workload_of,  # loads the native library, which other stages may not need
    )

    slotted, most = config.slotted, 2**20
    buffer = slotted.ports * slotted.buffer_per_port
    if buffer > most:
        raise ForetailError(
            f"slotted.ports x slotted.buffer_per_port = {buffer} packets are more than the {most} of the largest "
            "buffer: lower one of them"
        )
    if not isinstance(slotted.settings, dict | None):
        raise ForetailError(
            f"slotted.settings = {slotted.settings} names nothing: write slotted.settings={{NAME: VALUE}}"
        )
    workload_of(slotted.workload, slotted.settings or {}).batches(slotted.ports, buffer, slotted.slots, seed=1)


def _check_labelling_policy(where: str, policies: Mapping[str, Policy]) -> None:
    if len(policies) != 1:
        raise ForetailError(f"{where} names {', '.join(policies)}: a trace comes from exactly one policy")
    for name, policy in policies.items():
        if asks_exported_model(policy):
            raise ForetailError(f"{where}.{name} asks a predictor and there is none: give {where}.{name}.library=PATH")


def _check_split(split: Split) -> None:
    seen: dict[int, str] = {}
    for role, seeds in roles(split):
        _check_distinct(f"split.{role}", seeds)
        for seed in seeds:
            if seed in seen:
                raise ForetailError(f"split.{role} and split.{seen[seed]} both hold seed {seed}: a run has one role")
            seen[seed] = role
    if split.name != "by_run" and split.validation_fraction + split.test_fraction >= 1:
        raise ForetailError(
            f"split.validation_fraction + split.test_fraction = {split.validation_fraction + split.test_fraction:g} "
            "leaves nothing to train on: keep the sum below 1"
        )


def _check_predictor(predictor: Predictor) -> None:
    from foretail.pipelines.training.predictors import predictor_class  # loads scikit-learn, which only training needs

    constraints = predictor_class(predictor.name).parameter_constraints
    for name in vars(predictor).keys() & constraints.keys():
        value, constraint = getattr(predictor, name), constraints[name]
        if not constraint.allows(value):
            raise ForetailError(f"predictor.{name} = {value} is out of range: it must be {constraint.describe()}")


def _check_trainer(config: TrainConfig | SelectConfig) -> None:
    from foretail.pipelines.training.predictors import predictor_class

    constraints = predictor_class(config.predictor.name).parameter_constraints
    if config.trainer.device != "cpu" and "device" not in constraints:
        raise ForetailError(
            f"trainer.device={config.trainer.device} is for XGBoost and PyTorch, and {config.predictor.name} is "
            "neither: set trainer.device=cpu"
        )


def _check_training(config: TrainConfig) -> None:
    from foretail.models.drop.weights import checked_drop_weight
    from foretail.pipelines.training.predictors import predictor_class, window_of

    checked_drop_weight(config.drop_weight)
    _check_trainer(config)
    constraints = predictor_class(config.predictor.name).parameter_constraints
    arrivals = window_of(config.predictor, config.window).arrivals
    if "arrivals" in constraints and arrivals & (arrivals - 1):
        raise ForetailError(
            f"window.behind + 1 + window.ahead = {arrivals} is no power of two, which {config.predictor.name} needs: "
            "change window.behind"
        )


def _check_open_loop(config: EvaluateConfig) -> None:
    if not is_open_loop(config):
        for name in ("policies", "ports", "buffer", "optimum", "predictions"):
            if getattr(config, name):
                raise ForetailError(
                    f"{name} is for arrivals=FILE and datasets=[...], and neither is given: give one, or choose what "
                    "runs in ns-3 with policy=[...]"
                )
        return
    if config.arrivals is not None and config.datasets:
        raise ForetailError("arrivals and datasets are both given: evaluate one after the other")
    for position, name in enumerate(config.policies):
        if name in config.policies[:position]:
            raise ForetailError(f"policies names {name} twice: name every policy once")
    if not 1 <= len(config.parameters.alpha) <= 8:
        raise ForetailError(
            f"parameters.alpha has {len(config.parameters.alpha)} values: give one per priority, 1 to 8 of them"
        )
    if config.arrivals is not None:
        if config.ports is None or config.buffer is None:
            raise ForetailError("arrivals=FILE needs a switch: give ports=N and buffer=B, in packets")
        if config.buffer < config.ports:
            raise ForetailError(
                f"buffer = {config.buffer} packets is less than one for each of ports = {config.ports}: raise buffer"
            )
    else:
        for name in ("ports", "buffer", "optimum", "allow_more_than_ports_per_slot"):
            if getattr(config, name):
                raise ForetailError(f"{name} is for arrivals=FILE: leave it out, a dataset knows its switches")
        if len(config.parameters.alpha) > 1:
            raise ForetailError("parameters.alpha has several values, but datasets have one priority: give one value")
        if config.predictions == "column":
            raise ForetailError("predictions=column is for arrivals=FILE: a dataset has no predictions")
    if config.predictions == "model" and config.model is None:
        raise ForetailError("predictions=model asks a model and there is none: give model=FILE")
    if config.predictions not in (None, "model") and config.model is not None:
        raise ForetailError(
            f"predictions={config.predictions} does not ask the model {config.model}: leave one of the two out"
        )
    if config.flip_probability and config.predictions != "flipped":
        raise ForetailError("flip_probability is for predictions=flipped: give that too")


def _check_sweep(config: EvaluateConfig) -> None:
    if not config.sweep:
        return
    if is_open_loop(config):
        raise ForetailError("sweep makes its own arrivals: leave arrivals and datasets out, or the experiment")
    _check_lists_of_size("sweep", config.sweep, config.size)
    from foretail.sim_bridge.arrivals.workloads import (
        WORKLOADS,  # loads the native library, which other stages may not need
    )

    sweep, where = config.sweep[config.size], f"sweep.{config.size}"
    for workload in sweep.workloads:
        if workload not in WORKLOADS:
            raise ForetailError(f"{where}.workloads = {workload} is unknown: choose from {', '.join(WORKLOADS)}")
    if sweep.experiment != "competitive_ratio" and "credence" not in sweep.policies:
        raise ForetailError(f"{where}.policies lacks credence, which {sweep.experiment} is about: add it")
    if len(config.parameters.alpha) != 1:
        raise ForetailError("parameters.alpha has several values, but generated arrivals have one priority: give one")


def _check_figures(config: EvaluateConfig) -> None:
    if not config.figures:
        return
    if is_open_loop(config) or config.sweep:
        raise ForetailError("figures are simulated in ns-3: leave arrivals, datasets and sweep out, or the experiment")
    _check_lists_of_size("figures", config.figures, config.size)
    sweep, where = config.figures[config.size], f"figures.{config.size}"
    if not sweep.conditions:
        raise ForetailError(f"{where}.conditions is empty: name at least one")
    if "lqd" not in sweep.policies:
        raise ForetailError(f"{where}.policies lacks lqd, to which all are compared: add it")
    if sweep.experiment == "where_prediction_pays" and "cs" not in sweep.policies:
        raise ForetailError(f"{where}.policies lacks cs, to which {sweep.experiment} compares: add it")
    for name in ASKING:
        if name in sweep.policies:
            raise ForetailError(f"{where}.policies names {name}, which asks a model: name models in {where}.models")
    if sweep.split.name != "by_run":
        raise ForetailError(f"{where}.split is {sweep.split.name}: models train on whole runs, use by_run")
    _check_split(sweep.split)
    shared = sorted(set(sweep.seeds) & {seed for _, seeds in roles(sweep.split) for seed in seeds})
    if shared:
        raise ForetailError(f"{where}.seeds and its split share seed {shared[0]}: simulate seeds that did not train")


def _check_families(config: ScheduleConfig) -> None:
    families = [field.name for field in dataclasses.fields(config) if isinstance(getattr(config, field.name), dict)]
    given = [family for family in families if getattr(config, family)]
    if len(given) > 1:
        raise ForetailError(f"{' and '.join(given)} are experiments of their own: run one after the other")
    for family in given:
        _check_lists_of_size(family, getattr(config, family), config.size)
    if config.fabric:
        _check_distribution(f"fabric.{config.size}.sizes", config.fabric[config.size].sizes)


def _check_launcher(config: EvaluateConfig | ScheduleConfig) -> None:
    launcher = config.launcher
    if launcher.name != "ray":
        return
    address = re.fullmatch(r"[\w.-]+:(\d{1,5})", launcher.address)
    if address is None or int(address[1]) > 65_535:
        raise ForetailError(f"launcher.address = {launcher.address} is no HOST:PORT: give what ray start names")
    if not any(isinstance(value, dict) and value for name, value in vars(config).items() if name != "policy"):
        raise ForetailError("launcher=ray spreads the points of an experiment: give experiment=..., or leave it out")


def _check_lists_of_size(where: str, sweeps: Mapping[str, Any], size: str) -> None:
    """The sweep of that size is there, and its lists have values, none twice; those with a default may be empty."""
    if size not in sweeps:
        raise ForetailError(f"{where} has no size {size}: choose from {', '.join(sweeps)}, or give {where}.{size}")
    for field in dataclasses.fields(sweeps[size]):
        values = getattr(sweeps[size], field.name)
        if not isinstance(values, list):
            continue
        if not values and (field.default_factory is dataclasses.MISSING or field.default_factory()):
            raise ForetailError(f"{where}.{size}.{field.name} is empty: give at least one value")
        for position, value in enumerate(values):
            if value in values[:position]:
                raise ForetailError(
                    f"{where}.{size}.{field.name} holds {value} twice: every value makes points of its own"
                )


def _check_demand(config: DemandConfig) -> None:
    if config.split.name == "by_time":
        raise ForetailError("demand is split by run: use split=by_run or split=drawn")
    for name in ("demand_predictor", "trusts"):
        if not getattr(config, name):
            raise ForetailError(f"{name} is empty: give at least one")
    for name in config.demand_predictor:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ForetailError(f"demand_predictor {name!r} names a file: use letters, digits and _.- only")
    for position, trust in enumerate(config.trusts):
        if trust in config.trusts[:position]:
            raise ForetailError(f"trusts holds {trust} twice: name every k once")
    if config.steps is not None and config.warm_up >= config.steps:
        raise ForetailError(f"warm_up = {config.warm_up} leaves none of steps = {config.steps} to score: lower it")
    if config.datasets and config.logs:
        raise ForetailError("datasets and logs are both given: score one after the other")
    if config.logs:
        return
    if config.datasets:
        if config.interval_ns is None:
            raise ForetailError("datasets are cut into steps: give interval_ns=..., the time of one")
        return
    for name in ("interval_ns", "uplink_bps"):
        if getattr(config, name) is not None:
            raise ForetailError(f"{name} is for datasets=[...] and logs=[...], and none is given: leave it out")
    if not config.collectives:
        raise ForetailError("there are no sequences of demand: give collectives=[...], datasets=[...] or logs=[...]")
    from foretail.sim_bridge.circuits.demand.sequences import (
        JOBS,  # loads the native library, which other stages may not need
    )

    for position, name in enumerate(config.collectives):
        jobs = name.split("+")
        if len(jobs) > 2 or not set(jobs) <= set(JOBS):
            raise ForetailError(
                f"collectives = {name} is unknown: choose from {', '.join(JOBS)}, or two of them as A+B"
            )
        if name in config.collectives[:position]:
            raise ForetailError(f"collectives names {name} twice: name every one once")


def _check_promotion(config: PromoteConfig) -> None:
    if not config.tracking.enabled or config.tracking.registered_model is None:
        raise ForetailError(
            "a promotion moves an alias in MLflow's registry: leave tracking on, and give tracking.registered_model"
        )
    if not config.datasets and len(config.seeds) < 2:
        raise ForetailError("seeds holds one seed, and one run gives no interval: give at least two")
    if config.shift is not None and not Path(config.shift).is_file():
        raise ForetailError(f"shift: there is no file {config.shift}")


def _check_distinct(where: str, seeds: Sequence[int]) -> None:
    if not seeds:
        raise ForetailError(f"{where} is empty: give at least one seed, such as {where}=[1]")
    for position, seed in enumerate(seeds):
        if seed in seeds[:position]:
            raise ForetailError(f"{where} holds {seed} twice: every seed is a run of its own")


def _check_study(config: StudyConfig) -> None:
    if config.size not in config.study:
        raise ForetailError(
            f"study has no size {config.size}: choose an experiment that has it, such as predictor_study"
        )
    study, where = config.study[config.size], f"study.{config.size}"
    if study.split.name != "by_run":
        raise ForetailError(f"{where}.split is {study.split.name}: a study holds whole runs out, use by_run")
    _check_split(study.split)
    split_seeds = {seed for _, side in roles(study.split) for seed in side}
    for name, known in (("conditions", study.conditions), ("candidates", study.candidates)):
        if not known:
            raise ForetailError(f"{where}.{name} is empty: name at least one")
    if not study.train_on:
        raise ForetailError(f"{where}.train_on is empty: name conditions to train on")
    for name, given, known in (
        ("train_on", study.train_on, study.conditions),
        ("closed_loop.conditions", study.closed_loop.conditions, study.conditions),
        ("closed_loop.candidates", study.closed_loop.candidates, study.candidates),
        ("shift.conditions", study.shift.conditions, study.conditions),
        ("shift.candidate", [study.shift.candidate] if study.shift.conditions else [], study.candidates),
        ("label_candidate", [study.label_candidate] if study.labels else [], study.candidates),
        ("budget", study.budget, study.candidates),
    ):
        for item in given:
            if item not in known:
                raise ForetailError(f"{where}.{name} names {item}, which is not among {', '.join(known)}")
    for name, simulated in (("closed_loop", study.closed_loop.seeds), ("shift", study.shift.seeds)):
        shared = sorted(set(simulated) & split_seeds)
        if shared:
            raise ForetailError(f"{where}.{name}.seeds and the split share seed {shared[0]}: simulate other seeds")
    if study.budget and not config.tracking.enabled:
        raise ForetailError(f"{where}.budget makes a champion in MLflow, and tracking is off: turn it on or empty it")
    if study.closed_loop.conditions:
        _check_distinct(f"{where}.closed_loop.seeds", study.closed_loop.seeds)
        if "lqd" not in study.closed_loop.policies:
            raise ForetailError(f"{where}.closed_loop.policies lacks lqd, to which all are compared: add it")


def _check_search(config: SearchConfig) -> None:
    from foretail.pipelines.settings.search_space import check_dimension  # loads Optuna, which only a search needs

    if config.size not in config.search:
        raise ForetailError(
            f"search has no size {config.size}: choose an experiment that has it, such as predictor_search"
        )
    search, where = config.search[config.size], f"search.{config.size}"
    if not search.space:
        raise ForetailError(f"{where}.space is empty: name at least one setting to draw")
    for name, dimension in search.space.items():
        check_dimension(f"{where}.space.{name}", dimension)
    for kind, known in (("score", SEARCH_SCORES), ("cost", SEARCH_COSTS)):
        if not set(search.objectives) & set(known):
            raise ForetailError(f"{where}.objectives holds no {kind}: add one of {', '.join(known)}")
    for position, objective in enumerate(search.objectives):
        if objective in search.objectives[:position]:
            raise ForetailError(f"{where}.objectives holds {objective} twice: name every one once")
    for name in search.budget:
        if name not in SEARCH_COSTS:
            raise ForetailError(f"{where}.budget.{name} is no cost: choose from {', '.join(SEARCH_COSTS)}")


def _check_report(config: ReportConfig) -> None:
    folders = [config.run] if isinstance(config.run, str) else config.run
    if not (isinstance(folders, list) and folders and all(isinstance(folder, str) and folder for folder in folders)):
        raise ForetailError("run is no folder and no list of folders: give run=FOLDER or run=[FOLDER,FOLDER]")
    if len(set(folders)) < len(folders):
        raise ForetailError("run names a folder twice: name every folder once")
    if config.out is not None and Path(config.out).suffix != ".html":
        raise ForetailError(f"out = {config.out} is no page: give a file that ends with .html")


def _check_ranges(node: Any, path: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(node)}
    for extra in vars(node).keys() - fields.keys():  # what +name=value adds
        raise ForetailError(f"unknown setting {path}{extra}: --help lists the settings")
    for name, field in fields.items():
        value, where = getattr(node, name), path + name
        if dataclasses.is_dataclass(value):
            _check_ranges(value, where + ".")
        elif isinstance(value, dict):
            for key, item in value.items():
                if dataclasses.is_dataclass(item):
                    _check_ranges(item, f"{where}.{key}" + ".")
        elif isinstance(value, list):
            for item in value:
                _check_value(where, item, field.metadata)
        elif value is not None:
            _check_value(where, value, field.metadata)


def _check_value(where: str, value: Any, limits: Mapping[str, Any]) -> None:
    allowed = limits.get("one_of")
    if allowed is not None and value not in allowed:
        raise ForetailError(f"{where} = {value} is unknown: choose from {', '.join(allowed)}")
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        raise ForetailError(f"{where} = {value} is not a finite number")
    low, above, high = limits.get("at_least"), limits.get("above"), limits.get("at_most")
    if low is not None and value < low:
        raise ForetailError(f"{where} = {value} is out of range: it must be at least {low}")
    if above is not None and value <= above:
        raise ForetailError(f"{where} = {value} is out of range: it must be above {above}")
    if high is not None and value > high:
        raise ForetailError(f"{where} = {value} is out of range: it must be at most {high}")
    if limits.get("power_of_two") and isinstance(value, int) and value & (value - 1):
        raise ForetailError(f"{where} = {value} is not a power of two")


_OF_NS3 = {"scenario", "policy", "ns3_prefix", "flow_sizes", "size", "experiment"}


def refuse_settings_of_others(source: str, overrides: Sequence[str]) -> None:
    """Refuse the settings on the command line that belong to another source.

    Raises
    ------
    ForetailError
        Naming the first one.
    """
    foreign = {"slotted", "etalon", "credence_artifact"} - {source}
    foreign |= set() if source == "ns3" else _OF_NS3
    for override in overrides:
        setting = override.partition("=")[0].lstrip("+~")
        if setting.split("@")[0].split("/")[0].split(".")[0] in foreign:
            raise ForetailError(f"{setting} means nothing to source={source}: leave it out, or choose another source")
