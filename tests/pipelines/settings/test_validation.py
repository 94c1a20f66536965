"""Settings that cannot work are refused in one sentence that names the setting."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretail.configs import schema
from foretail.configs.plugins import check_scalars, with_policies
from foretail.configs.schema.model_stages import PromoteConfig, TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig, DemoConfig, EvaluateConfig
from foretail.configs.schema.policies import RULE_DEFAULTS, Policy
from foretail.configs.schema.scenario import Scenario, Topology
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURE_GROUPS
from foretail.models.drop.sharing_rule import SharingRule
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.experiment.catalog import declared, experiments, listed, sizes_of
from foretail.pipelines.settings.compose import compose_settings, differing
from foretail.pipelines.settings.predictors import predictor_class
from foretail.pipelines.settings.validation import typed, validate
from foretail.sim_bridge.policies import POLICIES
from foretail.sim_bridge.policy_settings import name_with_settings, settings_in_name
from tests.composed import MANDATORY, composed, composed_experiment, experiment_settings, options, stage_settings

pytestmark = pytest.mark.slow
LARGE = "scenario=tiny scenario.topology.buffer_bytes_per_port_per_gbps=20000"
LOSSLESS = f"{LARGE} scenario.queues.count=2 scenario.queues.incast=1 scenario.queues.lossless=[1]"
SECOND_LOOP = (
    "scenario=star scenario.transport.rc3.edges=[40,440,4440] scenario.transport.name=newreno "
    "scenario.transport.mark_bytes=0 scenario.queues.count=4 scenario.queues.scheduler=strict"
)
EMULATED = "model=null policy=[lqd] network=emulator scenario=rack"
RACKS = "source=racks racks.fabric.racks=4 racks.fabric.hosts_per_rack=2 racks.destination_racks=[2,3]"
FILE = __file__
PCAP = "source=pcap pcap.ports=4 pcap.buffer_bytes=100_000 pcap.port_rates_bps=[10_000_000_000]"
DATASETS = "arrivals=null ports=null buffer=null datasets=[trace]"
EMULATED_TRACE = "network=emulator scenario=rack scenario.topology.servers_per_leaf=4 scenario.incast.fan_in=3"
REFUSED = {
    "collect": [
        ("scenario.incast.fan_in=9", "scenario.incast.fan_in = 9 is more than the 8 servers"),
        ("scenario.incast.responders=other_leaves scenario.incast.fan_in=25", "more than the 24 servers"),
        ("scenario.incast.burst_fraction=1e-9", "less than a byte per responder"),
        ("scenario.background.load=0 scenario.incast.queries_per_second_per_server=0", "both 0"),
        ("scenario.background.cumulative=[0,1]", "16 points"),
        ("scenario.background={size_bytes:[0,5,5],cumulative:[0,0.5,1]}", "not increasing at 5"),
        ("scenario.topology.leaves=1", "scenario.topology.leaves = 1"),
        ("scenario.topology={leaves:1024,servers_per_leaf:1024}", "1048576 servers"),
        ("scenario.topology.buffer_bytes_per_port_per_gbps=1", "less than two segments"),
        ("scenario.transport.timely.high_rtt_ns=1000", "scenario.transport.timely.high_rtt_ns = 1000"),
        ("scenario.features.cell_bytes=100", "a power of two"),
        ("scenario.elephants={flows_per_server:1,burst_bytes:0}", "scenario.elephants.burst_bytes = 0"),
        ("scenario.elephants={flows_per_server:9,burst_bytes:1}", "bursts, and a run takes 1000000: raise"),
        ("scenario=star scenario.elephants.flows_per_server=1", "destinations = next_leaf needs several leaves"),
        ("scenario.collective={kind:all_to_all,size_bytes:0}", "scenario.collective.size_bytes = 0"),
        ("scenario.collective={kind:all_to_all,servers_per_group:8,size_bytes:7}", "than a byte for each of 8 servers"),
        (
            "scenario.collective={kind:ring_all_reduce,servers_per_group:16,groups:3}",
            "need 48 servers, and the network",
        ),
        ("scenario.collective={kind:all_to_all,servers_per_group:32,repeat:100}", "a run takes 1000000"),
        ("scenario.rules.order=any_queue", "any_queue compares what senders say of packets: set scenario.rules.victim"),
        ("scenario.rules.order=lower_classes_first", "needs classes, and a port has one queue"),
        ("policy.lqd.order=any_queue", "any_queue compares what senders say of packets: set policy.lqd.victim"),
        ("scenario.queues={count:2,background:2}", "background = 2 is not a queue of a port, which has 0 to 1"),
        ("scenario.queues.incast=1", "incast = 1 is not a queue of a port, which has 0 to 0"),
        ("scenario.queues={count:2,scheduler:deficit_round_robin,quantum_bytes:[1]}", "has 1 values for the 2 queues"),
        ("scenario.queues={count:2,quantum_bytes:[1,2]}", "means nothing to round_robin: choose deficit_round_robin"),
        (
            "scenario.queues.count=2 policy=credence_artifact policy.credence_artifact.predictor=accept",
            "one queue per port",
        ),
        ("seeds=[]", "seeds is empty"),
        ("seeds=[1,1]", "seeds holds 1 twice"),
        ("policy=[lqd,dt]", "exactly one policy"),
        ("policy=credence", "policy.credence asks a predictor"),
        ("policy.lqd.library=/nowhere.so", "only credence"),
        ("scenario.transport.mark_bytes=0", "scenario.transport.mark_bytes = 0"),
        ("scenario.transport.background_name=dctcp", "scenario.transport.background_name = dctcp"),
        ("network=ns3 scenario.transport={name:timely,background_name:cubic}", "cannot stand beside timely"),
        ("network=native ns3_prefix=/usr", "ns3_prefix names an ns-3, which network=native does not"),
        ("network=native source=slotted", "network means nothing to source=slotted: leave one of the"),
        ("+unknown=1", "unknown setting unknown"),
        ("+scenario.background.lod=1", "unknown setting scenario.background.lod"),
        ("source=slotted slotted.settings={fan_in:21}", "fan_in must be at most the number of ports, 20"),
        ("source=slotted slotted.settings=[1]", "slotted.settings = [1] names nothing"),
        ("source=slotted slotted.buffer_per_port=50000 slotted.ports=20000", "= 1000000000 packets are more than"),
        ("source=slotted log=x", "give source=pcap, etalon, credence"),
        (f"{RACKS} seeds=[1,2] racks.start_within_ns=0", "every seed has the same packets"),
        (f"{RACKS} racks.destination_racks=[]", "racks.destination_racks is empty"),
        (f"{RACKS} racks.destination_racks=[2,2]", "holds 2 twice"),
        (f"{RACKS} racks.source_rack=2", "flows inside a rack cross no VOQ"),
        (f"{RACKS} scenario=tiny", "scenario means nothing to source=racks"),
        (f"{RACKS} log=x", "log is for imports"),
        (f"{RACKS} network=emulator", "network=emulator makes no traces of racks: use network=native or network=ns3"),
        ("log=x", "give source=pcap, etalon, credence_artifact or arrivals"),
        ("source=etalon", "give log=FILE"),
        ("source=etalon log=nowhere", "there is no file nowhere"),
        ("source=etalon log=3", "which is not a path"),
        ("source=somewhere", "source = somewhere is unknown"),
        ("source=etalon log=[/dev/null,/dev/null]", "no file /dev/null"),
        (f"source=etalon log=[{FILE},{FILE}]", "give every log a number of its own, "),
        (f"source=etalon log={FILE} etalon.record_bytes=100", "choose from 112, 116"),
        (PCAP, "unknown: give either pcap.table=FILE"),
        (f"{PCAP} pcap.captures=[{{file:{FILE},port:0}}] pcap.table={FILE}", "known twice"),
        (f"{PCAP} pcap.table={FILE}", "give that capture too"),
        (f"{PCAP} pcap.captures=[{{file:nowhere,port:0}}]", "pcap.captures: there is no file nowhere"),
        (f"{PCAP} log={FILE} pcap.table=nowhere", "pcap.table: there is no file nowhere"),
        (f"{PCAP} log={FILE} pcap.table={FILE} pcap.ports=null", "give 'pcap.ports=NUMBER'"),
        (f"{PCAP} log={FILE} pcap.table={FILE} pcap.buffer_bytes=null", "give 'pcap.buffer_bytes=NUMBER'"),
        (f"{PCAP} log={FILE} pcap.table={FILE} pcap.port_rates_bps=[1000,1000]", "has 2 rates: give one"),
        (f"{PCAP} pcap.captures=[{{file:{FILE},port:0}}] seeds=[1,2]", "are one dataset: give one number"),
        (f"{PCAP} pcap.captures=[{{file:{FILE},port:1}},{{file:{FILE},port:1}}]", "holds 1 twice"),
        ("slotted.ports=20", "means nothing to source=scenario"),
        (f"source=etalon log={FILE} scenario=tiny", "means nothing to source=etalon"),
        (f"source=credence_artifact log={FILE} etalon.racks=4", "means nothing to source=credence_artifact"),
        *(
            (f"{EMULATED_TRACE} network.{name}={value}", f"network.{name} is for evaluate: leave it out")
            for name, value in (("command", "[ls]"), ("train", "['features=paper']"), ("against_ns3", "true"))
        ),
        (f"{EMULATED_TRACE} jobs=2", "network=emulator has the machine's clock to itself in each"),
    ],
    "train": [
        ("drop_weight=heavy", "drop_weight is heavy: set it to a positive number, balanced or cost"),
        ("drop_weight=0", "drop_weight is 0"),
        ("trainer.device=cuda", "trainer.device=cuda is for XGBoost and PyTorch, and random_forest is neither"),
        ("features.names=[queue,quue]", "unknown feature 'quue'"),
        ("split.test=[1]", "both hold seed 1"),
        ("split.validation=[]", "split.validation is empty"),
        ("network=emulator", "network=emulator is for collect and evaluate: use network=native or netw"),
        ("datasets=[x] network=ns3", "network means nothing to datasets=[...]: leave one of"),
        ("tracking.alias=champion", "foretail promote"),
    ],
    "evaluate": [
        ("baselines=[best]", "baselines names 'best'"),
        ("model=null", "policy credence asks a predictor"),
        ("policy.credence.library=/nowhere.so", "there is no file /nowhere.so"),
        ("scenario=star scenario.balancing.name=spray", "chooses among the spines of a leaf_spine"),
        ("network=ns3 scenario.balancing.name=sirona", "balancing.name = sirona is not there with network=ns3"),
        ("network=emulator scenario.balancing.name=uss", "balancing.name = uss is not there with network=emulator"),
        ("network=ns3 scenario.topology.slow_spines=1", "slow_spines = 1 is not there with network=ns3"),
        ("scenario.topology.slow_spines=2", "slow_spines = 2 leaves none of the 2 spines fast: lower it"),
        ("scenario.topology={slow_spines:1,slow_spine_link_bps:10_000_000_000}", "is not below spine_link_bps"),
        ("scenario.balancing.name=ethereal", "assigns the equal flows of a collective, and there is none"),
        ("scenario.balancing.metric=max", "metric = max means nothing to ecmp"),
        (
            "scenario.balancing.name=flowbender scenario.transport.name=irn",
            "reads congestion marks, and the packets of",
        ),
        ("scenario.transport.reordering_window_ns=1000", "is that of RACK, which recovery=ns3 does not have"),
        ("scenario.topology.erasure_probability=0.01 network=ns3", "= 0.01 is not there with network=ns3"),
        ("scenario=lossless scenario.topology.erasure_probability=0.01", "lossless, whose senders do not repeat any"),
        ("scenario.transport={name:cubic,background_name:dctcp}", "background_name = dctcp is unknown: choose from"),
        ("scenario.transport={name:irn,background_name:roce}", "cannot stand beside irn, which sends by RDMA too"),
        ("scenario.transport={name:powertcp,background_name:roce}", "cannot stand beside powertcp, which paces all"),
        ("scenario.transport={name:roce,rdma:{control:dcqcn},mark_bytes:0}", "leaves dcqcn without ECN marks, which"),
        (
            "scenario.transport={mark_bytes:9,mark_full_bytes:9}",
            "mark_full_bytes = 9 is not above mark_bytes = 9: raise",
        ),
        ("scenario.transport={name:cubic,mark_bytes:0,mark_full_bytes:9}", "= 9 means nothing beside mark_bytes = 0"),
        ("network=ns3 scenario.transport.name=irn", "= irn is not there with network=ns3: use network=native, or set"),
        ("network=emulator scenario.transport.name=roce", "transport.name = roce is not there with network=emulator"),
        ("scenario.transport.rdma.low_rto_ns=400_000", "low_rto_ns = 400000 is above high_rto_ns = 320000: lower it"),
        (f"{SECOND_LOOP} network=ns3", "transport.rc3.edges = [40, 440, 4440] is not there with network=ns3: use"),
        (f"{SECOND_LOOP} scenario.transport.recovery=linux", "recovery = linux does not go with"),
        (f"{SECOND_LOOP} scenario.transport.name=timely", "name = timely does not go with"),
        (f"{SECOND_LOOP} scenario.transport.background_name=roce", "background_name = roce does not go with"),
        (f"{SECOND_LOOP} scenario.transport.mark_bytes=9000", "mark_bytes = 9000 does not go with"),
        (f"{SECOND_LOOP} scenario.queues.count=3", "queues.count = 3 does not go with"),
        (f"{SECOND_LOOP} scenario.queues.scheduler=round_robin", "queues.scheduler = round_robin does not go with"),
        (f"{SECOND_LOOP} scenario.queues.incast=1", "queues.incast = 1 does not go with"),
        (f"{SECOND_LOOP} scenario.queues.lossless=[1]", "queues.lossless = [1] does not go with"),
        (
            f"{SECOND_LOOP} scenario.elephants={{flows_per_server:1,destinations:other_servers}}",
            "flows_per_server = 1 does",
        ),
        (f"{SECOND_LOOP} scenario.collective.kind=ring", "collective.kind = ring does not go with"),
        (f"{SECOND_LOOP} scenario.incast.connections=reused", "incast.connections = reused does not go with"),
        (f"{SECOND_LOOP} scenario.background={{size_bytes:[0,2_000_000_000],cumulative:[0,1]}}", "at most 1073741824"),
        (f"{SECOND_LOOP} scenario.transport.rc3.edges=[40,40]", "rc3.edges = [40, 40] do not rise: sort them"),
        (
            f"{LOSSLESS} scenario.pfc.headroom_bytes=9",
            "that may come after a pause over a link of 10000000000 bit/s and",
        ),
        (f"{LOSSLESS} scenario.topology.buffer_bytes_per_port_per_gbps=1200", "takes 71352 of its 72000 bytes: raise"),
        (f"{LOSSLESS} scenario.pfc.headroom_pool_bytes=10_000_000", "takes 10000000 of its 1200000 bytes"),
        ("scenario.queues.lossless=[1]", "lossless names queue 1, and a port has 0 to 0: take it out, or raise"),
        ("scenario.queues.lossless=[0,0]", "lossless holds 0 twice: name every queue once"),
        (
            f"{LOSSLESS} policy=sonic policy.sonic.ingress_alphas=[1,2,3]",
            "ingress_alphas has 3 values for the 2 queues",
        ),
        (f"{LOSSLESS} network=ns3", "lossless = [1] is not there with network=ns3: use network=native"),
        ("policy=sonic network=ns3", "policy sonic has to know where packets came in, which switches of network=ns3"),
        (f"{EMULATED} policy=[lqd,credence]", "policy credence asks a predictor and there is none"),
        (f"{EMULATED} model=x.json network.train=['features=paper']", "model and network.train are both given"),
        (f"{EMULATED} scenario.elephants.flows_per_server=1", "elephants or a collective, which are not emulated"),
        (f"{EMULATED} scenario.incast.connections=reused", "connections = reused is not emulated"),
        (f"{EMULATED} network.against_ns3=true network.background_control=reno", "compares one transport"),
        (f"{EMULATED} network.against_ns3=true network.control=reno", "set scenario.transport.name=newreno"),
        (f"{EMULATED} network.factor=1 scenario.transport.min_rto_ns=1000", "Linux takes no less than 1 ms"),
        (f"{EMULATED} scenario.traffic_ns=100000000000000", "is more than a day"),
        (f"{EMULATED} network.control=a-b", "control = a-b is not a name of a congestion control"),
        (f"{EMULATED} scenario.topology.servers_per_leaf=300", "300 servers, and a process each: lower it to at most"),
        (f"{EMULATED} scenario.transport.background_name=cubic", "background_name is ns-3's"),
        (f"{EMULATED} scenario.transport.delayed_ack_segments=3", "is not what Linux does: set it to 1 or 2"),
        (
            f"{EMULATED} policy=[dt] policy.dt.predictor=library policy.dt.library={__file__}",
            "policy.dt predicts alphas",
        ),
        (f"{EMULATED} policy=[chosen]", "policy.chosen replays windows before the next packet"),
        (f"{EMULATED} network.control=dctcp scenario.transport={{name:cubic,mark_bytes:0}}", "which lives on marks"),
    ],
    "demand": [
        ("demand_predictor=seasonal ~demand_predictor.seasonal", "demand_predictor is empty"),
        ("+demand_predictor={../x:{name:seasonal}}", "'../x' names a file"),
        ("split.test=[1]", "split.test and split.train both hold seed 1"),
        ("split=by_time split.seeds=[1]", "demand is split by run"),
        ("split=drawn split.test_fraction=0.9", "leaves nothing to train on"),
        ("uplink_bps=5", "uplink_bps is for datasets"),
        ("collectives=[]", "there are no sequences of demand"),
        ("collectives=[broadcast]", "collectives = broadcast is unknown: choose from ring, all_to_all"),
        ("collectives=[ring+ring+ring]", "or two of them as A+B"),
        ("collectives=[ring,ring]", "collectives names ring twice"),
        ("interval_ns=5", "interval_ns is for datasets"),
        ("steps=12 warm_up=12", "warm_up = 12 leaves none of steps = 12"),
        ("trusts=[]", "trusts is empty"),
        ("trusts=[2,4,2]", "trusts holds 2 twice"),
    ],
    "schedule": [("multi_hop=exact epsilon=0.1", "multi_hop=exact")],
    "replay": [
        ("ports=4 buffer=3", "buffer = 3 packets is less than one for each of ports = 4"),
        ("buffer=null", "give ports=N and buffer=B"),
        ("policies=[lqd,dt,lqd]", "policies names lqd twice"),
        ("datasets=[x]", "replay takes arrivals=FILE or datasets=[...], and both are given"),
        ("flip_probability=0.1", "flip_probability is for predictions=flipped"),
        ("prediction_seed=2", "prediction_seed is for predictions=flipped"),
        ("predictions=model", "give model=FILE"),
        ("predictions=accept model=m.json", "predictions=accept does not ask the model m.json"),
        ("parameters.alpha=[]", "parameters.alpha has 0 values"),
        ("parameters.alpha=[1,1,1] parameters.queues=2", "parameters.alpha has 3 values for 2 queues of a port"),
        ("parameters.quanta=[1]", "parameters.quanta means nothing to round_robin"),
        (
            "arrivals=null ports=null buffer=null policies=[dt]",
            "replay takes arrivals=FILE or datasets=[...], and there",
        ),
        (f"{DATASETS} datasets=[x,x]", "datasets names x twice"),
        (f"{DATASETS} ports=4", "ports is for arrivals=FILE"),
        (f"{DATASETS} optimum=true", "optimum is for arrivals=FILE"),
        (f"{DATASETS} rules.victim=head", "rules is for arrivals=FILE"),
        (f"{DATASETS} prediction_column=p", "prediction_column is for arrivals=FILE"),
        (f"{DATASETS} predictions=column", "predictions=column is for arrivals=FILE"),
        (f"{DATASETS} parameters.alpha=[1,2]", "parameters.alpha has several values"),
        (f"{DATASETS} parameters.queues=2", "parameters.queues and parameters.scheduler are for arrivals=FILE"),
    ],
    "promote": [
        ("seeds=[1]", "at least two"),
        ("tracking=off", "leave tracking on"),
        ("tracking.registered_model=null", "give tracking.registered_model"),
    ],
    "deploy": [
        ("switch=somewhere", "switch = somewhere is not an address: write HOST:PORT, as in 127.0.0.1:9559"),
        ("model=x rollback=true", "rollback=true takes the model that the switch has: leave model out"),
        ("canary=true", "without model="),
        ("model=x banks.trees=3", "program=false"),
    ],
    "demo": [
        ("seeds=[1]", "share seed 1"),
        ("split=by_time", "splits by run"),
        ("policy=[lqd,cs]", "leave both in policy"),
    ],
}


@pytest.mark.parametrize(
    ("stage", "overrides", "complaint"), [(stage, *row) for stage, rows in REFUSED.items() for row in rows]
)
def test_is_refused_in_one_sentence(stage: str, overrides: str, complaint: str) -> None:
    given = overrides.split()
    with pytest.raises(ForetailError, match=re.escape(complaint)) as refusal:
        typed(composed(stage, *given), STAGES[stage], given)
    assert not str(refusal.value).endswith(".")


@pytest.mark.parametrize("stage", ["collect", "train", "evaluate", "demand"])
def test_settings_that_tests_compose_in_two_steps_are_those_of_hydra(stage: str) -> None:
    for overrides, _ in REFUSED[stage][:: max(1, len(REFUSED[stage]) // 4)]:
        given = [*MANDATORY.get(stage, []), *overrides.split()]
        ours = composed(stage, *overrides.split())
        with hydra.initialize_config_module("foretail.configs", version_base="1.3"):
            assert ours == hydra.compose(stage, given)
    sizes = [composed_experiment("first_look", f"size={size}").size for size in ("small", "full", "small")]
    assert sizes == ["small", "full", "small"]


def nodes(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A config node and those inside it, each with what stands before the names of its fields."""
    yield path, node
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            if dataclasses.is_dataclass(inner):
                yield from nodes(inner, f"{path}{field.name}.{key}{'.' * bool(key)}")


def outside(limits: Mapping[str, Any]) -> Iterator[Any]:
    """Values just outside of what a setting allows."""
    if limits.get("one_of"):
        yield "no_such_name"
    for bound, step in (("at_least", -1), ("above", 0), ("at_most", 1)):
        if limits.get(bound) is not None:
            yield from (limits[bound] + step, math.nan)


@pytest.mark.parametrize("stage", STAGES)
def test_every_bound_of_every_setting_is_kept(stage: str) -> None:
    config, bounded = typed(composed(stage), STAGES[stage]), 0
    for path, node in nodes(config):
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            for wrong in outside(field.metadata):
                setattr(node, field.name, [wrong] if isinstance(value, list) else wrong)
                with pytest.raises(ForetailError, match=re.escape(f"{path}{field.name} = {wrong}")):
                    validate(config)
                bounded += 1
            setattr(node, field.name, value)
    assert bounded > 2 or stage == "report"


@functools.cache
def collect_config() -> CollectConfig:
    return stage_settings(CollectConfig)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
@example([0.0, 0.0, 1.0])
def test_a_distribution_is_accepted_iff_it_rises_from_0_to_1(cumulative: list[float]) -> None:
    config = copy.deepcopy(collect_config())
    config.scenario.background.cumulative = cumulative
    config.scenario.background.size_bytes = [100 * point for point in range(len(cumulative))]
    if cumulative == sorted(cumulative) and cumulative[0] == 0 and cumulative[-1] == 1:
        validate(config)
    else:
        with pytest.raises(ForetailError, match="cumulative"):
            validate(config)


def test_a_scenario_that_lacks_a_setting_is_refused() -> None:
    lacking = Scenario(topology=Topology(leaves=1, servers_per_leaf=2, spines=1), traffic_ns=1)
    with pytest.raises(ForetailError, match=r"^the scenario lacks background\.\w+: give it a value"):
        driver_config(lacking, Policy("lqd"), 1, trace=False)


@pytest.mark.parametrize(
    "only",
    ["scenario.elephants.flows_per_server=1", "scenario.collective.kind=all_to_all", "scenario.background.load=1"],
)
def test_messages_alone_are_traffic(only: str) -> None:
    none = ("scenario.background.load=0", "scenario.incast.queries_per_second_per_server=0")
    stage_settings(CollectConfig, *none, only)


def test_mlflow_gets_the_settings_that_differ_and_the_features() -> None:
    promote = stage_settings(PromoteConfig, "model=runs:/x", "to=champion", "f1_margin=0.5")
    assert differing(promote) == {"model": "runs:/x", "f1_margin": 0.5}
    for group in ("paper", "switch"):
        config = stage_settings(TrainConfig, f"features={group}")
        assert differing(config)["features.names"] == list(FEATURE_GROUPS[group])


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, option)
        for group in ("scenario", "features", "predictor", "split", "tracking")
        for option in options(group)
    ],
)
def test_every_option_of_train_composes_and_is_valid(group: str, option: str) -> None:
    stage_settings(TrainConfig, f"{group}={option}")


@pytest.mark.parametrize("policy", [*options("policy"), *POLICIES])
def test_every_policy_composes_under_its_own_name(policy: str) -> None:
    config = stage_settings(
        EvaluateConfig, f"policy=[lqd,{policy}]" if policy != "lqd" else "policy=[lqd]", "baselines=[lqd]"
    )
    assert policy in config.policy


@pytest.mark.parametrize("size", options("demonstration/size"))
def test_every_size_of_the_demo_composes_and_is_valid(size: str) -> None:
    stage_settings(DemoConfig, f"size={size}")


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", experiments())
def test_every_experiment_composes_in_every_size_and_its_file_begins_with_its_command(experiment: str) -> None:
    one = listed(experiment)
    assert one.example.split()[:3] == ["foretail", "run", experiment]
    assert one.sentence.endswith((".", "?"))
    assert {"small", "full"} <= set(sizes_of(experiment))
    for size in sizes_of(experiment):
        assert experiment_settings(experiment, f"size={size}").size == size


def test_the_help_of_every_field_is_a_whole_sentence() -> None:
    modules = [
        importlib.import_module(f"{schema.__name__}.{found.name}") for found in pkgutil.iter_modules(schema.__path__)
    ]
    kinds = {kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)}
    kinds |= {declared(name).settings for name in experiments()}
    assert len(kinds) > 10
    for kind in kinds:
        for field in dataclasses.fields(kind):
            meaning = field.metadata.get("doc", "")
            assert re.fullmatch(r"[A-Z0-9].*\.", meaning), (
                f"{kind}.{field.name} needs a whole sentence, not {meaning!r}"
            )


@pytest.mark.parametrize("predictor", options("predictor"))
def test_predictor_settings_are_the_predictors_parameters(predictor: str) -> None:
    settings: dict[str, Any] = dict(composed("train", f"predictor={predictor}").predictor)
    parameters = predictor_class(settings)().parameters()
    assert settings.pop("name") in (predictor, "boosted_trees")
    assert settings.pop("_target_")
    assert settings.keys() == parameters.keys() - {"arrivals", "device", "jobs", "rows_in_memory"}
    if predictor != "boosted_forest":  # the same class with other settings
        assert settings == {name: parameters[name] for name in settings}


def test_websearch_has_the_mean_of_the_paper() -> None:
    background = composed("collect").scenario.background
    size, cumulative = np.array(background.size_bytes), np.array(background.cumulative)
    mean = np.sum((size[1:] + size[:-1]) / 2 * np.diff(cumulative))
    assert mean == pytest.approx(1_711_222.5)


def test_a_sharing_rule_has_the_same_defaults_in_settings() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(SharingRule)}
    assert {name: default for name, default in defaults.items() if default is not dataclasses.MISSING} == RULE_DEFAULTS


def test_each_has_a_row_of_its_own_and_the_policys_other_settings() -> None:
    given = "policy=[lqd,{name: dt, alpha: 8},{name: dt, alpha: 0.5},{name: credence, flip_probability: 0.01}]"
    found = compose_settings(EvaluateConfig, [given, "baselines=[]", "model=any"], "the test").policy
    assert list(found) == ["lqd", "dt_alpha_8", "dt_alpha_0.5", "credence_flip_probability_0.01"]
    assert [found["dt_alpha_8"].name, found["dt_alpha_8"].alpha, found["dt_alpha_0.5"].alpha] == ["dt", 8.0, 0.5]
    credence = found["credence_flip_probability_0.01"]
    assert (credence.predictor, credence.flip_probability) == ("library", 0.01)


def test_the_name_that_a_result_shows_means_the_same() -> None:
    written = with_policies(["policy=[{name: abm, alpha: 8, first_rtt_alpha: 1e-3}]", "seeds=[1]"])
    assert written == ["policy=[abm_alpha_8_first_rtt_alpha_0.001]", "seeds=[1]"]
    found = compose_settings(EvaluateConfig, [written[0], "baselines=[]"], "the test").policy
    assert (found["abm_alpha_8_first_rtt_alpha_0.001"].alpha, *found.values())[0] == 8.0


@pytest.mark.parametrize("settings", [{"alpha": 8}, {"alpha": 0.1, "low_pass_ns": 2**40}, {"alpha": 1e-300}])
def test_names_hold_their_settings(settings: dict[str, float]) -> None:
    assert settings_in_name(name_with_settings("reverie", settings)) == ("reverie", settings)


@pytest.mark.parametrize(
    "name", ["dt", "credence_accept", "credence_flip_0.001", "dt_alpha_", "dt_alpha_x", "best_alpha_8"]
)
def test_other_names_hold_none(name: str) -> None:
    assert settings_in_name(name) is None


WRONG = {
    "{name: dt, alfa: 8}": "dt heeds no number alfa: it has alpha, alpha_interval_ns, incast_alpha",
    "{alpha: 8}": "names no policy: write it as {name: dt, alpha: 8}",
    "{name: best}": "names no policy",
    "{name: [}": "names no policy",
    "{name: dt, alpha: x}": "whose alpha is not a finite number: write {name: dt, alpha: 8}",
    "{name: dt, alpha: .inf}": "whose alpha is not a finite number",
    "{name: dt, alpha: .nan}": "whose alpha is not a finite number",
    "{name: cs, alpha: 1}": "cs heeds no number alpha: it has none",
    "{name: dt, alpha: -1}": "alpha = -1.0 is out of range: it must be above 0",
}


@pytest.mark.parametrize("policy", WRONG)
def test_what_means_nothing_is_refused_in_one_sentence(policy: str) -> None:
    with pytest.raises(ForetailError) as refused:
        compose_settings(EvaluateConfig, [f"policy=[lqd,{policy}]", "baselines=[]"], "the test")
    assert WRONG[policy] in str(refused.value)


@pytest.mark.parametrize("written", ["010", "-007", "0_10", "1:30", "12:30:45", "1:30.5", "[1, 2, 08]"])
def test_what_yaml_reads_in_another_base_is_refused(written: str, tmp_path: Path) -> None:
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "mine.yaml").write_text(f"name: by_run\ntest:\n  inner: {written}\n")
    with pytest.raises(ForetailError, match=r"mine\.yaml, line 3, has .*, which YAML reads in another base: write"):
        check_scalars(tmp_path)


@pytest.mark.parametrize("written", ["no", "On", "TRUE"])
def test_a_name_that_yaml_reads_as_true_or_false_is_refused(written: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"tracking: {written}\nname: {written}\n")
    with pytest.raises(ForetailError, match=r"mine\.yaml, line 2, has .* as a name, which YAML reads as true or false"):
        check_scalars(tmp_path)


def test_what_everybody_reads_alike_passes(tmp_path: Path) -> None:
    text = "name: 'no'\na: [0, 10, 1_000, 0.5, -0.25, 4e6, 0x10, '010', '1:30', a:b, 00:1b]\nb: &x {c: 1}\nd: *x\n"
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "broken.yaml").write_text("a: [")
    check_scalars(tmp_path)
