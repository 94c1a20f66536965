"""What the stages refuse of a scenario and a policy, and that the ns-3 driver reads whatever they do not."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from foretail.configs.schema.network.transport import RDMA, TRANSPORTS
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.settings.validation import validate
from foretail.sim_bridge.ns3.driver import build_driver
from foretail.sim_bridge.policies import ORACLES, ORDERS, POLICIES, VICTIMS
from tests.composed import stage_settings

pytestmark = pytest.mark.ns3

Changes = tuple[tuple[str, Any], ...]
"""Paths from ``scenario`` or ``policy`` on, and their values."""

KINDS = ("background", "incast", "control")

CROSSED: list[Changes] = [
    (("scenario.background.load", 0.0), ("scenario.incast.queries_per_second_per_server", 0.0)),
    (("scenario.background.load", 0.0),),
    (("scenario.incast.fan_in", 5),),
    (("scenario.incast.fan_in", 5), ("scenario.incast.responders", "other_leaves")),
    (("scenario.incast.fan_in", 5), ("scenario.topology.leaves", 3), ("scenario.incast.responders", "other_leaves")),
    (("scenario.topology.spines", 0),),
    (("scenario.topology.leaves", 1),),
    (("scenario.topology.kind", "star"), ("scenario.topology.leaves", 1), ("scenario.topology.spines", 0)),
    (("scenario.topology.kind", "star"), ("scenario.topology.leaves", 1)),
    *(
        (
            ("scenario.topology.kind", "star"),
            ("scenario.topology.leaves", 1),
            ("scenario.topology.spines", 0),
            ("scenario.background.destinations", "other_servers"),
            ("scenario.incast.responders", responders),
            ("scenario.incast.fan_in", fan_in),
        )
        for responders in ("other_leaves", "other_servers")
        for fan_in in (3, 4)
    ),
    (("scenario.incast.burst_fraction", 1e-6),),
    (("scenario.topology.leaves", 1024), ("scenario.topology.servers_per_leaf", 64)),
    (("scenario.topology.leaves", 1023), ("scenario.topology.servers_per_leaf", 64)),
    (("scenario.topology.buffer_bytes_per_port_per_gbps", 46),),
    (("scenario.topology.buffer_bytes_per_port_per_gbps", 47),),
    (("scenario.topology.link_delay_ns", 3_000_000),),
    (("scenario.topology.link_delay_ns", 3_000_000), ("scenario.features.average_shift", 24)),
    (("scenario.features.cell_bytes", 100),),
    (("scenario.transport.mark_bytes", 0), ("scenario.transport.name", "cubic")),
    (("scenario.transport.timely.high_rtt_ns", 50_000),),
    (("scenario.transport.timely.high_rtt_ns", 50_001),),
    *(
        (
            ("scenario.transport.name", name),
            ("scenario.transport.timely.low_rtt_ns", 0),
            ("scenario.transport.timely.high_rtt_ns", high_ns),
        )
        for name in ("timely", "powertcp")
        for high_ns in (9_000, 28_751, 28_752, 28_753)
    ),
    *(
        (("scenario.transport.name", name), ("scenario.transport.background_name", beside))
        for name in TRANSPORTS
        for beside in ("cubic", "newreno", "dctcp")
    ),
    *(
        (("scenario.background.size_bytes", sizes), ("scenario.background.cumulative", shares))
        for sizes, shares in (
            ([0, 1000], [0.0, 1.0]),
            ([1000], [1.0]),
            ([0, 1000], [0.0, 0.5, 1.0]),
            ([0, 1000, 1000], [0.0, 0.5, 1.0]),
            ([0, 1000, 900], [0.0, 0.5, 1.0]),
            ([0, 1000, 2000], [0.0, 0.5, 0.5]),
            ([0, 1000, 2000], [0.0, 0.5, 0.4]),
            ([0, 1000, 2000, 3000], [0.0, 0.5, 0.4, 1.0]),
            ([0, 1000, 2000], [0.1, 0.5, 1.0]),
            ([0, 1000, 2000, 3000], [0.0, 0.5, 0.5, 1.0]),
            ([-1, 1000], [0.0, 1.0]),
        )
    ),
    *((("policy.name", name), ("policy.incast_alpha", 1.0)) for name in POLICIES),
    *(
        (
            ("policy.name", name),
            ("scenario.queues.count", count),
            ("scenario.queues.incast", count - 1),
        )
        for name in POLICIES
        for count in (1, 2)
    ),
    *(
        (
            ("policy.incast_alpha", alpha),
            ("scenario.queues.count", 3),
            *((f"scenario.queues.{kind}", queue) for kind, queue in zip(KINDS, own, strict=True)),
        )
        for alpha in (None, 1.0)
        for own in ((0, 0, 0), (0, 1, 0), (1, 2, 2), (2, 1, 2), (0, 3, 0), (3, 0, 1), (0, 1, 3))
    ),
    *(
        (
            ("scenario.queues.count", count),
            ("scenario.queues.incast", 0),
            ("scenario.queues.scheduler", scheduler),
            ("scenario.queues.quantum_bytes", quanta),
        )
        for count in (1, 2)
        for scheduler in ("round_robin", "strict", "deficit_round_robin")
        for quanta in ([], [1], [1500, 1], [1500, 0], [2**30, 2**30], [2**30 + 1, 1], [1, 1, 1])
    ),
    *(
        (("scenario.rules.order", order), ("scenario.rules.victim", victim), ("scenario.queues.count", count))
        for order in ORDERS
        for victim in VICTIMS
        for count in (1, 2)
    ),
    *((("scenario.rules.oracle", oracle),) for oracle in ORACLES),
    *((("policy.name", name), ("policy.predictor", "library"), ("policy.library", __file__)) for name in POLICIES),
    *((("policy.name", name), ("policy.predictor", "library")) for name in POLICIES),
    *(
        (("scenario.transport.name", name), ("scenario.transport.background_name", beside))
        for name in ("dctcp", "powertcp", "irn")
        for beside in RDMA
    ),
    *(
        (
            ("scenario.transport.name", "cubic"),
            ("scenario.transport.mark_bytes", first_bytes),
            ("scenario.transport.mark_full_bytes", full_bytes),
        )
        for first_bytes in (0, 14_400)
        for full_bytes in (0, 14_399, 14_400, 14_401)
    ),
]
VERDICTS = (
    "x.xx.xxxxxx.xxx.x.x.x.x.xxx.......x..x..xxxxxxxxxxxxxxxxxxx.xxxx"
    "xxxx.xxxxxxxxxxxxxxxx............xx.............x......xxxx.x.xx"
    "x.xxxxxx.xxxxxx..xxxxx.xxxxxx.xxxxxx.x.x.xx............x.x.x.x.x"
    ".x.xxxxxxxx......xx.xxxxxxx....xxxxxxxxxxxxxxxxxxxxxx.xxx.xx."
)
"""Of the cases above, in order: ``x`` is refused."""


def changed(base: CollectConfig, changes: Changes) -> CollectConfig:
    config = copy.deepcopy(base)
    (policy,) = config.policy.values()
    for path, value in changes:
        root, *groups, name = path.split(".")
        node: Any = config.scenario if root == "scenario" else policy
        for group in groups:
            node = getattr(node, group)
        setattr(node, name, value)
    return config


@pytest.fixture(scope="module")
def base() -> CollectConfig:
    return stage_settings(CollectConfig, "network=ns3", "scenario=tiny", "policy=dt")


def test_the_stages_refuse_settings_that_do_not_fit_and_the_driver_reads_all_others(
    base: CollectConfig, tmp_path: Path
) -> None:
    verdicts = ""
    for number, changes in enumerate(CROSSED):
        config = changed(base, changes)
        try:
            validate(config)
        except ForetailError:
            verdicts += "x"
            continue
        verdicts += "."
        (policy,) = config.policy.values()
        document = driver_config(config.scenario, policy, seed=1, trace=True)
        (tmp_path / f"{number:04d}.json").write_text(json.dumps(document))
    assert verdicts == VERDICTS
    command = [str(build_driver()), "--check", *map(str, sorted(tmp_path.iterdir()))]
    checked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert checked.stdout.splitlines() == [""] * verdicts.count(".")


@pytest.mark.parametrize(
    ("seed", "taken"), [(0, True), (2**64 - 1, True), (2**64, False), (-1, False), (1.0, False), (True, False)]
)
def test_the_driver_takes_seeds_of_64_bits_and_wraps_no_other(
    seed: Any, taken: bool, base: CollectConfig, tmp_path: Path
) -> None:
    (policy,) = base.policy.values()
    document = driver_config(base.scenario, policy, seed=seed, trace=True)
    (tmp_path / "run.json").write_text(json.dumps(document))
    said = subprocess.run(
        [build_driver(), "--check", tmp_path / "run.json"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert bool(said) != taken
    assert taken or said.startswith("setting 'seed' must be a whole number from 0 to 2^64 - 1, not ")
