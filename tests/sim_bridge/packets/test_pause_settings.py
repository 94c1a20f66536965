"""Which settings of lossless queues are refused, and headroom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import require_distinct_policies
from foretail.core.errors import ForetailError
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from tests.scenarios import settings
from tests.sim_bridge.packets.paused_runs import (
    GBPS,
    STAR,
    mixed,
    needed_headroom,
)

LOSSLESS = ["scenario.queues.count=2", "scenario.queues.incast=1", "scenario.queues.lossless=[1]"]
LARGE = "scenario.topology.buffer_bytes_per_port_per_gbps=20000"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["policy=dt", LARGE, *LOSSLESS, f"scenario.pfc.headroom_bytes={needed_headroom(3000) - 7}"],
            rf"headroom_bytes = {needed_headroom(3000) - 7} is 7 bytes less than the {needed_headroom(3000)} that may "
            r"come after a pause over a link of 10000000000 bit/s and 3000 ns: raise it",
        ),
        (
            ["policy=dt", "scenario.topology.buffer_bytes_per_port_per_gbps=1200", *LOSSLESS],
            r"the headroom of a leaf takes 71352 of its 72000 bytes: raise "
            r"scenario\.topology\.buffer_bytes_per_port_per_gbps, or lower scenario\.pfc\.headroom_pool_bytes",
        ),
        (
            ["policy=dt", LARGE, *LOSSLESS, "scenario.pfc.headroom_pool_bytes=10_000_000"],
            "the headroom of a leaf takes 10000000 of its 1200000 bytes",
        ),
        (
            ["policy=dt", "scenario.queues.lossless=[1]"],
            r"lossless names queue 1, and a port has 0 to 0: take it out, or raise scenario\.queues\.count",
        ),
        (["policy=dt", "scenario.queues.lossless=[0,0]"], "lossless holds 0 twice: name every queue once"),
        (
            ["policy=dt", "scenario.pfc.makes_room=all"],
            "makes_room = all is unknown: choose from longer_queues, any_qu",
        ),
        (["policy=dt", "scenario.pfc.alpha=0"], "alpha = 0.* must be above 0"),
        (
            ["policy=sonic", "network=native", LARGE, *LOSSLESS, "policy.sonic.ingress_alphas=[1,2,3]"],
            "ingress_alphas has 3 values for the 2 queues of a port: give one for each, or ",
        ),
        (
            ["policy=sonic", "network=native", LARGE, *LOSSLESS, "policy.sonic.egress_static_bytes=[1]"],
            "egress_static_bytes has 1 values for the 2 queues of a port",
        ),
        (
            ["policy=dt", "network=ns3", LARGE, *LOSSLESS],
            "lossless names queues that may not lose, and no switch of network=ns3 pauses a sender: use network=native",
        ),
        (["policy=dt", "network=emulator", LARGE, *LOSSLESS], "no switch of network=emulator pauses a sender"),
        (
            ["policy=sonic", "network=ns3"],
            "policy sonic has to know where packets came in, which switches of network=ns3 do not: use network=native",
        ),
        (["policy=sonic", "network=emulator"], "policy sonic has to know where packets came in"),
    ],
)
def test_settings_that_no_switch_can_follow_are_refused(overrides: list[str], words: str) -> None:
    network = [] if any(one.startswith("network=") for one in overrides) else ["network=native"]
    with pytest.raises(ForetailError, match=words) as refused:
        compose_settings(EvaluateConfig, ["scenario=tiny", *network, *overrides], "overrides")
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"topology__buffer_bytes_per_port_per_gbps": 2400},
            "the headroom of a switch takes 142704 of its 144000 bytes, which leaves less than two packets: lower "
            "setting 'pfc.headroom_pool_bytes', or give the switch a larger buffer",
        ),
        ({"queues__lossless": [3]}, r"queues\.lossless"),
        ({"pfc__makes_room": "all"}, r"pfc\.makes_room"),
        (
            {"policy__name": "sonic", "policy__egress_alphas": [1.0]},
            "the policy parameter egress_alphas has 1 values for 3 queues of a port: give one for each, or none",
        ),
    ],
)
def test_the_network_refuses_them_too(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        NativeNetwork(mixed(**changes))


def test_arrivals_do_not_say_where_they_came_in() -> None:
    words = "has to know where packets came in, "
    with pytest.raises(ForetailError, match=f"policies names sonic, which {words}and arrivals do not say: simulate a"):
        require_distinct_policies("policies", ["dt", "sonic"])
    with pytest.raises(ForetailError, match=f"policy 'sonic' {words}which these arrivals do not say: simulate a"):
        slotted(policy="sonic", ports=1, buffer=4, slot=np.array([0], np.int64), port=np.array([0], np.int32))


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("document", "words"),
    [
        (mixed(transport__name="dctcp"), "'queues.lossless' names a queue that may not lose, and ns-3 pauses no"),
        (settings(policy__name="sonic"), "policy 'sonic' has to know where packets came in, and switches of ns-3 do"),
    ],
)
def test_the_driver_of_ns3_refuses_them_too(document: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=words):
        run_driver(document, tmp_path)


@pytest.mark.parametrize("bps", [100_000_000, 10 * GBPS, 400 * GBPS])
def test_headroom_is_what_links_need(bps: int) -> None:
    """Two packets and a frame in whole nanoseconds, which are much at 400 Gbit/s."""
    scenario = compose_settings(EvaluateConfig, ["scenario=tiny", "policy=dt"], "overrides").scenario
    for delay_ns in (0, 14, 28, 3000):
        scenario.topology.link_delay_ns = delay_ns
        assert scenario.headroom_needed_bytes(bps) == needed_headroom(delay_ns, bps)
        lossless = settings(
            **STAR,
            background__load=0.0,
            incast__queries_per_second_per_server=0.0,
            topology__server_link_bps=bps,
            topology__link_delay_ns=delay_ns,
            topology__buffer_bytes_per_port_per_gbps=max(1, 4 * needed_headroom(delay_ns, bps) * GBPS // (4 * bps)),
            queues__lossless=[0],
        )
        with pytest.raises(ForetailError, match=f"headroom of a switch takes {4 * needed_headroom(delay_ns, bps)} of"):
            NativeNetwork(lossless)
