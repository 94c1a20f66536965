"""From a scenario to the driver's JSON: one document per run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.models import zoo
from foretail.sim_bridge.ns3.messages import Message, assigned, collective, columns, elephants, halves, joined
from foretail.sim_bridge.policies import TAKE_RULES
from foretail.sim_bridge.policy_settings import takes_alpha

DRIVER_FORMAT = 1


def driver_config(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    trace: bool,
    counters: bool = False,
    library: Path | None = None,
) -> dict[str, Any]:
    """The driver's document for one run.

    `counters` asks for a log of what switches count for predicted alphas (``features/catalog.py``). `library` is the
    predictor of a policy that asks the stage's exported model; `policy.library` wins over it. ForetailError if
    `counters` is asked of a policy whose alphas cannot be predicted, or if the scenario lacks a setting.
    """
    if counters and not takes_alpha(policy.name):
        raise ForetailError(f"'counters' is for a policy whose alphas can be predicted, which {policy.name} is not")
    document, document_of_policy = dataclasses.asdict(scenario), dataclasses.asdict(policy)
    del document["name"], document["topology"]["kind"]  # the driver knows a star by its lack of spines
    del document["elephants"], document["collective"]  # and of these what they send
    if (missing := _missing(document)) is not None:
        raise ForetailError(f"the scenario lacks {missing}: give it a value")
    document["messages"] = columns(messages_of(scenario, seed))
    own_rules = {name: document_of_policy.pop(name) for name in ("victim", "order")}
    if policy.name == "lqd":
        document["rules"] |= {name: chosen for name, chosen in own_rules.items() if chosen is not None}
    own = policy.library if policy.library is not None else library
    uses_library = policy.predictor == "library" and own is not None
    ends = policy.message_end
    document_of_policy["message_end"] = None if ends is None else str(Path(ends).absolute())
    document.update(
        format=DRIVER_FORMAT,
        seed=seed,
        policy={
            **document_of_policy,
            "library": str(Path(own).absolute()) if uses_library and own else None,
            "rules": zoo.numbers(policy.rules) if policy.name in TAKE_RULES else [],
        },
        trace=trace,
        counters=counters,
    )
    return document


def _missing(settings: Mapping[str, Any]) -> str | None:
    """The first setting that nobody gave, by its path."""
    for name, value in settings.items():
        below = _missing(value) if isinstance(value, dict) else None
        if below is not None or value == MISSING:
            return name if below is None else f"{name}.{below}"
    return None


def messages_of(scenario: Scenario, seed: int) -> list[Message]:
    """The messages of elephants and of collectives that a seed gives."""
    topology, bursts, exchange = scenario.topology, scenario.elephants, scenario.collective
    planned: list[list[Message]] = []
    if bursts.flows_per_server > 0:
        planned.append(
            elephants(
                topology.peers(bursts.destinations),
                bursts.flows_per_server,
                bursts.burst_bytes,
                bursts.idle_ns,
                link_bps=topology.server_link_bps,
                traffic_ns=scenario.traffic_ns,
                seed=seed,
            )
        )
    if exchange.kind is not None:
        members, across = exchange.servers_per_group, topology.across_leaves()
        groups = [across[group * members : (group + 1) * members] for group in range(exchange.groups)]
        if exchange.kind == "permutation":
            groups = [halves(group, seed) for group in groups]
        equal_flows = collective(
            exchange.kind,
            groups,
            exchange.size_bytes,
            repeat=exchange.repeat,
            compute_ns=exchange.compute_ns,
            traffic_ns=scenario.traffic_ns,
            seed=seed,
            channels=exchange.channels,
            spread_ns=exchange.spread_ns,
        )
        if scenario.balancing.name == "ethereal":
            equal_flows = assigned(equal_flows, topology.spines, topology.servers_per_leaf)
        planned.append(equal_flows)
    return joined(*planned)
