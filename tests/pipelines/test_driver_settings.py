"""The stages and the ns-3 driver refuse the same settings of a scenario and a policy."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.scenario import TRANSPORTS
from foretail.core.errors import ForetailError
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.validation import typed, validate
from foretail.sim_bridge.ns3.driver import build_driver
from foretail.sim_bridge.policies import ORACLES, ORDERS, POLICIES, VICTIMS
from tests.composed import composed

pytestmark = pytest.mark.ns3

Changes = tuple[tuple[str, Any], ...]
"""Paths from ``scenario`` or ``policy`` on, and their values."""

NOT_THE_DRIVERS = (
    "scenario.topology.kind",
    "scenario.elephants.",
    "scenario.collective.",
    "policy.victim",
    "policy.order",
)
"""The driver knows a star by its lack of spines, of elephants and collectives their messages, of a victim the rules."""

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
            ("policy.virtual_lqd", counters),
        )
        for name in POLICIES
        for count in (1, 2)
        for counters in ("exact", "fluid")
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
    *(
        (("scenario.rules.oracle", oracle), ("policy.virtual_lqd", counters))
        for oracle in ORACLES
        for counters in ("exact", "fluid")
    ),
    *((("policy.name", name), ("policy.predictor", "library"), ("policy.library", __file__)) for name in POLICIES),
    *((("policy.name", name), ("policy.predictor", "library")) for name in POLICIES),
]


def settings_of(node: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Path, value and metadata of every setting below a config node."""
    for field in dataclasses.fields(node):
        value, where = getattr(node, field.name), f"{path}.{field.name}"
        if dataclasses.is_dataclass(value):
            yield from settings_of(value, where)
        else:
            yield where, value, field.metadata


def around(value: Any, limits: Any) -> list[Any]:
    """The ends of a setting's range, and what lies just beyond; names that there are, and one that there is not."""
    if limits["one_of"] is not None:
        return [*limits["one_of"], "else"]
    ends = [end for end in (limits["at_least"], limits["above"], limits["at_most"]) if end is not None]
    if isinstance(value, float):
        return [float(end) * (1 + step) + step for end in ends for step in (-1e-9, 0.0, 1e-9)]
    return [end + step for end in ends for step in (-1, 0, 1)]


def extremes(value: Any, limits: Any) -> list[Any]:
    """Numbers beyond what the driver's integers and fractions hold, and the largest that they hold."""
    if limits["one_of"] is not None or isinstance(value, bool | str | None):
        return []
    if isinstance(value, float):
        return [float("inf"), float("-inf"), float("nan"), 1e308, 5e-324, 2.0**63]
    return [
        sign * size + step for size in (2**31, 2**40, 2**63, 2**64, 10**99) for sign in (1, -1) for step in (-1, 0, 1)
    ]


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
    config = typed(composed("collect", "scenario=tiny", "policy=dt"), CollectConfig)
    (policy,) = config.policy.values()
    policy.incast_alpha = 1.0  # numbers, so that their ranges are tried too
    config.scenario.queues.count, config.scenario.queues.incast = 2, 1
    policy.tau = 0
    config.scenario.features.average_shift = 15
    validate(config)
    return config


def test_the_driver_and_the_stages_refuse_the_same_settings(base: CollectConfig, tmp_path: Path) -> None:
    singles: list[Changes] = []
    (policy,) = base.policy.values()
    for root, node in {"scenario": base.scenario, "policy": policy}.items():
        for path, value, limits in settings_of(node, root):
            if not isinstance(value, list) and not path.startswith(NOT_THE_DRIVERS):
                singles += [((path, other),) for other in around(value, limits) + extremes(value, limits)]
    random = np.random.default_rng(1)
    pairs = [singles[i] + singles[j] for i, j in random.integers(len(singles), size=(200, 2))]
    without = (
        ("policy.incast_alpha", None),
        ("scenario.queues.count", 1),
        ("scenario.queues.incast", 0),
        ("scenario.features.average_shift", None),
    )
    cases = [*singles, *pairs, *(without + changes for changes in CROSSED)]

    refused: list[str] = []
    for number, changes in enumerate(cases):
        config = changed(base, changes)
        try:
            validate(config)
            refused.append("")
        except ForetailError as error:
            refused.append(str(error))
        (policy,) = config.policy.values()
        document = driver_config(config.scenario, policy, seed=1, trace=True)
        (tmp_path / f"{number:04d}.json").write_text(json.dumps(document))
    checked = subprocess.run(
        [build_driver(), "--check", *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=True
    )
    complaints = checked.stdout.splitlines()
    assert len(complaints) == len(cases)
    other = [
        f"{changes}: stages say {ours or 'yes'!r}, the driver {theirs or 'yes'!r}"
        for changes, ours, theirs in zip(cases, refused, complaints, strict=True)
        if bool(ours) != bool(theirs)
    ]
    assert not other, "\n".join(other)
    assert 100 < sum(map(bool, refused)) < len(cases) - 100


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
