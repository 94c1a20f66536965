"""Fat trees: the way of every packet, and the time of a flow that is alone; costs two seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, read_records
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.ns3.messages import Message, columns
from tests.composed import stage_settings
from tests.scenarios import SILENT, settings
from tests.sim_bridge.packets.paused_runs import finished


@dataclass(frozen=True)
class Tree:
    """A fat tree of switches with k ports, in words of its own: pods of k/2 leaves and k/2 spines, (k/2)^2 cores."""

    k: int

    @property
    def half(self) -> int:
        return self.k // 2

    def settings(self) -> dict[str, int]:
        per_kind = self.k * self.half
        return {
            "topology__leaves": per_kind,
            "topology__spines": per_kind,
            "topology__cores": self.half**2,
            "topology__pods": self.k,
            "topology__servers_per_leaf": self.half,
        }

    def ways(self, source: int, destination: int) -> list[list[int]]:
        """The switches on each shortest way."""
        leaf, last = source // self.half, destination // self.half
        pod, last_pod = leaf // self.half, last // self.half
        leaves = spines = self.k * self.half
        if leaf == last:
            return [[leaf]]
        ways = []
        for place in range(self.half):
            up = leaves + pod * self.half + place
            if pod == last_pod:
                ways.append([leaf, up, last])
                continue
            down = leaves + last_pod * self.half + place
            cores = [leaves + spines + place * self.half + number for number in range(self.half)]
            ways += [[leaf, up, core, down, last] for core in cores]
        return ways


@pytest.mark.parametrize("k", [4, 6])
def test_every_packet_goes_a_shortest_way_and_all_ways_are_gone(k: int, tmp_path: Path) -> None:
    tree = Tree(k)
    document = settings(
        **tree.settings(),
        background__destinations="other_servers",
        incast__responders="other_servers",
        policy__name="cs",
        trace=True,
        traffic_ns=1_000_000,
        topology__buffer_bytes_per_port_per_gbps=100_000,
    )
    run = run_native(document, tmp_path)
    flows = run.flows()
    arrivals = read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)
    data = arrivals["flow_class"] != FlowClass.CONTROL
    gone: dict[int, set[int]] = {}
    for flow, switch in zip(arrivals["flow"][data], arrivals["switch"][data], strict=True):
        gone.setdefault(int(flow), set()).add(int(switch))
    for flow, switches in gone.items():
        ends = int(flows["source"][flow]), int(flows["destination"][flow])
        assert any(set(way) == switches for way in tree.ways(*ends)), (ends, switches)
    assert len(set().union(*gone.values())) == 2 * k * tree.half + tree.half**2, "every switch has packets"
    roles = Counter(switch["role"] for switch in run.summary["switches"])
    assert roles == {"leaf": k * tree.half, "spine": k * tree.half, "core": tree.half**2}
    assert {len(switch["port_rates_bps"]) for switch in run.summary["switches"]} == {k}


@pytest.mark.parametrize(("destination", "hops"), [(1, 2), (2, 4), (15, 6)])
def test_a_flow_alone_takes_its_ideal_time(destination: int, hops: int) -> None:
    alone = columns([Message(0, 0, 14_000, source=0, destination=destination, connection=0)])
    flows, summary = finished(settings(**Tree(4).settings(), **SILENT, messages=alone, transport__name="irn"))
    packet_ns = -(-8 * 1442 // 10)
    assert flows["ideal_fct_ns"][0] == 9 * packet_ns + hops * (packet_ns + 3000)
    assert flows["fct_ns"][0] == flows["ideal_fct_ns"][0]
    assert summary["base_rtt_ns"] == 6 * (packet_ns + 3000) + 6 * (-(-8 * 42 // 10) + 3000)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["pods=5"], "pods = 5 do not share 8 leaves and 8 spines evenly"),
        (["cores=5"], "cores = 5 are not shared evenly by the 2 spines of a pod"),
        (["cores=0"], "cores = 0 are not shared evenly"),
        (["kind=leaf_spine"], "pods = 4 and scenario.topology.cores = 4 are of a fat tree"),
        (["slow_spines=1"], "slow_spines = 1 is for leaf_spine"),
    ],
)
def test_a_tree_that_is_none_is_refused(changes: list[str], sentence: str) -> None:
    tree = ["kind=fat_tree", "leaves=8", "spines=8", "pods=4", "cores=4", *changes]
    with pytest.raises(ForetailError, match=sentence):
        stage_settings(CollectConfig, "scenario=tiny", *(f"scenario.topology.{change}" for change in tree))


def test_a_tree_has_no_balancer_of_spines() -> None:
    tree = ("kind=fat_tree", "leaves=8", "spines=8", "pods=4", "cores=4")
    overrides = [f"scenario.topology.{change}" for change in tree]
    scenario = stage_settings(CollectConfig, "scenario=tiny", *overrides).scenario
    assert scenario.base_rtt_ns == 6 * (-(-8 * 1442 // 10) + 3000) + 6 * (-(-8 * 42 // 10) + 3000)
    with pytest.raises(ForetailError, match="chooses among the spines of a leaf_spine, which a fat_tree has not"):
        stage_settings(CollectConfig, "scenario=tiny", *overrides, "scenario.balancing.name=spray")
