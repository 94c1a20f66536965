"""Settings that cannot work are refused in one sentence that names the setting."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario, Topology
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.validation import typed, validate
from tests.composed import composed

pytestmark = pytest.mark.slow

REFUSED = [
    ("collect", "scenario.incast.fan_in=9", "scenario.incast.fan_in = 9 is more than the 8 servers"),
    ("collect", "scenario.incast.burst_fraction=1e-9", "less than a byte per responder"),
    ("collect", "scenario.background.cumulative=[0,1]", "16 points"),
    ("collect", "scenario.topology.leaves=1", "scenario.topology.leaves = 1"),
    ("collect", "scenario.topology.buffer_bytes_per_port_per_gbps=1", "less than two segments"),
    ("collect", "scenario.transport.timely.high_rtt_ns=1000", "scenario.transport.timely.high_rtt_ns = 1000"),
    ("collect", "scenario.features.cell_bytes=100", "not a power of two"),
    ("collect", "scenario.elephants={flows_per_server:1,burst_bytes:0}", "scenario.elephants.burst_bytes = 0"),
    ("collect", "scenario.elephants={flows_per_server:9,burst_bytes:1}", "bursts, and a run takes 1000000: raise"),
    ("collect", "scenario.collective={kind:all_to_all,size_bytes:0}", "scenario.collective.size_bytes = 0"),
    (
        "collect",
        "scenario.collective={kind:all_to_all,servers_per_group:8,size_bytes:7}",
        "scenario.collective.size_bytes = 7 is less than a byte for each of 8 servers",
    ),
    (
        "collect",
        "scenario.collective={kind:ring_all_reduce,servers_per_group:16,groups:3}",
        "scenario.collective.groups = 3 of scenario.collective.servers_per_group = 16 need 48 servers, and the network "
        "has 32",
    ),
    ("collect", "scenario.collective={kind:all_to_all,servers_per_group:32,repeat:100}", "a run takes 1000000"),
    ("collect", "seeds=[]", "seeds is empty"),
    ("collect", "seeds=[1,1]", "seeds holds 1 twice"),
    ("collect", "policy=[lqd,dt]", "exactly one policy"),
    ("collect", "policy=credence", "policy.credence asks a predictor"),
    ("collect", "policy.lqd.library=/nowhere.so", "only credence"),
    ("collect", "policy.lqd.predictor=library", "only credence"),
    ("collect", "scenario.transport.mark_bytes=0", "scenario.transport.mark_bytes = 0"),
    ("collect", "scenario.transport.background_name=dctcp", "scenario.transport.background_name = dctcp"),
    ("collect", "network=ns3 scenario.transport={name:timely,background_name:cubic}", "cannot stand beside timely"),
    ("collect", "scenario.topology={leaves:1024,servers_per_leaf:1024}", "1048576 servers"),
    ("collect", "+unknown=1", "unknown setting unknown"),
    ("collect", "+scenario.background.lod=1", "unknown setting scenario.background.lod"),
    ("train", "drop_weight=heavy", "drop_weight is heavy: set it to a positive number, balanced or cost"),
    ("train", "drop_weight=0", "drop_weight is 0"),
    ("train", "trainer.device=cuda", "trainer.device=cuda is for XGBoost and PyTorch, and random_forest is neither"),
    ("train", "features.names=[queue,quue]", "unknown feature 'quue'"),
    ("train", "split.test=[1]", "both hold seed 1"),
    ("train", "split.validation=[]", "split.validation is empty"),
    ("evaluate", "baselines=[best]", "baselines names 'best'"),
    ("evaluate", "model=null", "policy credence asks a predictor"),
    ("evaluate", "policy.credence.library=/nowhere.so", "there is no file /nowhere.so"),
    ("demo", "seeds=[1]", "share seed 1"),
    ("demo", "split=by_time", "splits by run"),
    (
        "demo",
        "sharing_rule.fill=256",
        "sharing_rule is not a sharing rule for its fill: give message_left from -1 to 254",
    ),
    ("demo", "+sharing_rule.alpha=2", "sharing_rule is not a sharing rule for its alpha: give"),
]


@pytest.mark.parametrize(("stage", "override", "complaint"), REFUSED)
def test_is_refused_in_one_sentence(stage: str, override: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=re.escape(complaint)) as refusal:
        typed(composed(stage, *override.split()), STAGES[stage])
    assert "\n" not in str(refusal.value)
    assert not str(refusal.value).endswith(".")


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


def test_no_traffic_at_all_is_refused() -> None:
    with pytest.raises(ForetailError, match="both 0"):
        typed(
            composed("collect", "scenario.background.load=0", "scenario.incast.queries_per_second_per_server=0"),
            CollectConfig,
        )


def test_fan_in_may_reach_all_servers_of_the_other_leaves() -> None:
    overrides = ["scenario.incast.responders=other_leaves", "scenario.incast.fan_in=24"]
    assert typed(composed("collect", *overrides), CollectConfig).scenario.incast.fan_in == 24
    with pytest.raises(ForetailError, match="more than the 24 servers"):
        typed(composed("collect", overrides[0], "scenario.incast.fan_in=25"), CollectConfig)


@functools.cache
def collect_config() -> CollectConfig:
    return typed(composed("collect"), CollectConfig)


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


def test_sizes_of_a_distribution_must_increase() -> None:
    overrides = ["scenario.background.size_bytes=[0,5,5]", "scenario.background.cumulative=[0,0.5,1]"]
    with pytest.raises(ForetailError, match="not increasing at 5"):
        typed(composed("collect", *overrides), CollectConfig)


def test_buffer_of_the_papers_leaf() -> None:
    config = typed(composed("collect", "scenario=paper"), CollectConfig)
    assert config.scenario.leaf_buffer_bytes == 1_024_000


def test_a_scenario_that_lacks_a_setting_is_refused() -> None:
    lacking = Scenario(topology=Topology(leaves=1, servers_per_leaf=2, spines=1), traffic_ns=1)
    with pytest.raises(ForetailError, match=r"^the scenario lacks background\.\w+: give it a value"):
        driver_config(lacking, Policy("lqd"), 1, trace=False)


def test_driver_config_is_the_scenario_with_policy_and_seed() -> None:
    config = typed(composed("collect"), CollectConfig)
    document = driver_config(config.scenario, config.policy["lqd"], 7, trace=True)
    assert document["seed"] == 7
    assert document["trace"] is True
    assert document["policy"]["name"] == "lqd"
    assert document["topology"]["servers_per_leaf"] == 8
    assert document["features"] == {"cell_bytes": 256, "average_shift": None}
    assert document["background"]["cumulative"][-1] == 1.0
    assert "name" not in document


@pytest.mark.parametrize(
    "only",
    ["scenario.elephants.flows_per_server=1", "scenario.collective.kind=all_to_all", "scenario.background.load=1"],
)
def test_messages_alone_are_traffic(only: str) -> None:
    none = ("scenario.background.load=0", "scenario.incast.queries_per_second_per_server=0")
    typed(composed("collect", *none, only), CollectConfig)


def test_elephants_of_a_star_go_to_other_servers() -> None:
    star = ("scenario=star", "scenario.elephants.flows_per_server=1")
    with pytest.raises(
        ForetailError, match=re.escape("scenario.elephants.destinations = next_leaf needs several leaves")
    ):
        typed(composed("collect", *star), CollectConfig)
    typed(composed("collect", *star, "scenario.elephants.destinations=other_servers"), CollectConfig)
