"""Alphas as actions: a tree that acts here is the tree that the network runs. Costs half a minute of CPU time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import COUNTERS
from foretail.features.records import FLOW_DTYPE
from foretail.gym import ClosedLoopAlphaEnv, ClosedLoopEnv, alphas
from foretail.models.drop.thresholds.alpha_tree import alpha_exponents, fit_alpha_tree
from foretail.pipelines.comparison.cost import run_cost
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.packets.cost import cost_so_far, plan_of_cost
from tests.scenarios import settings

INTERVAL_NS = 100_000
START = 11  #: the action of alpha 16


def document(**changes: Any) -> dict[str, Any]:
    start = {"policy__name": "dt", "policy__alpha": 16.0, "policy__alpha_interval_ns": INTERVAL_NS}
    return settings(**(start | {"traffic_ns": 1_000_000} | changes))


def in_one_piece(found: dict[str, Any], **policy: Any) -> tuple[Any, int]:
    """The flows of a run in which nobody acts, and its end."""
    network = NativeNetwork({**found, "policy": found["policy"] | policy})
    network.advance()
    return network.flows(), network.now_ns


@pytest.mark.parametrize("queues", [1, 2])
def test_a_tree_that_acts_is_the_tree_that_the_network_runs(queues: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    counters = draw.integers(0, 64, (2000, len(COUNTERS)))
    exponents = range(-3, 5)
    costs = np.abs(counters[:, [1]] // 8 - 3 - np.array([exponents])).astype(float)
    tree = fit_alpha_tree(counters, costs, np.ones(len(counters)), exponents, 3, INTERVAL_NS)
    library = export(tree, C(), tmp_path / "export").file(".so")
    changes: dict[str, Any] = (
        {} if queues == 1 else {"queues__count": 2, "queues__quantum_bytes": [1500, 1500], "policy__alpha": 16.0}
    )
    found = document(**changes)
    env = ClosedLoopAlphaEnv(found)
    seen, _ = env.reset(seed=found["seed"])
    action, over, earned, acted = np.full(len(seen), START), False, 0.0, set()
    while not over:
        seen, reward, over, _, info = env.step(action)
        action = alpha_exponents(tree, seen.astype(np.int64)) - alphas.EXPONENTS[0]
        acted |= set(action.tolist())
        earned += reward
    flows, end_ns = in_one_piece(found, predictor="library", library=str(library))
    assert len(acted) > 2
    assert env._network is not None
    assert (env._network.flows() == flows).all()
    assert not (in_one_piece(found)[0] == flows).all()
    assert info == {"time_ns": end_ns, "cost": pytest.approx(run_cost(flows, end_ns, found).cost)}
    assert 1 - earned == pytest.approx(info["cost"])


def test_the_cost_on_the_way_is_that_of_the_environment_of_packets() -> None:
    found = settings(policy__name="learned", traffic_ns=1_000_000)
    env = ClosedLoopEnv(found)
    env.reset(seed=1)

    def flows() -> Any:
        return env._runs._runs.flows(0).view(FLOW_DTYPE)  # type: ignore[attr-defined]

    plan, over, costs = plan_of_cost(flows(), found), False, set()
    while not over:
        _, _, over, _, info = env.step(0)
        if not over and info["cost"] not in costs:
            assert cost_so_far(flows(), plan) == pytest.approx(info["cost"])
            costs.add(info["cost"])
    assert len(costs) > 10


def test_gymnasium_finds_nothing_wrong() -> None:
    short = document(traffic_ns=500_000)
    check_env(gymnasium.make("foretail/ClosedLoopAlpha-v0", scenario=short).unwrapped, skip_render_check=True)
    many = gymnasium.make_vec("foretail/ClosedLoopAlpha-v0", num_envs=2, scenario=short, vectorization_mode="sync")
    seen, _ = many.reset(seed=1)
    assert many.observation_space.contains(seen)
    assert not seen.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policy__name": "lqd"},
            "policy 'lqd' of the scenario leaves no alpha to set: choose dt, without a predictor",
        ),
        ({"policy__predictor": "library"}, "leaves no alpha to set"),
    ],
)
def test_a_scenario_without_alphas_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        ClosedLoopAlphaEnv(document(**changes))


def test_bad_use_is_one_sentence() -> None:
    env = ClosedLoopAlphaEnv(document())
    with pytest.raises(ForetailError, match=r"call reset\(\) first"):
        env.step(np.zeros(4, int))
    seen, _ = env.reset(seed=1)
    for action in (np.zeros(3, int), np.full(len(seen), 14), np.full(len(seen), 0.5), np.full(len(seen), -1)):
        with pytest.raises(ForetailError, match=f"an action must be {len(seen)} whole numbers from 0 to 13"):
            env.step(action)
    with pytest.raises(ForetailError, match="render_mode"):
        ClosedLoopAlphaEnv(document(), render_mode="human")
    silent = document(background__load=0.0, incast__queries_per_second_per_server=0.0)
    with pytest.raises(ForetailError, match="seed 3 has no queries, no short and no long flows"):
        ClosedLoopAlphaEnv(silent).reset(seed=3)


def test_a_network_without_counters_says_so() -> None:
    for changes in ({}, {"policy__name": "lqd", "counters": True}):
        network = NativeNetwork(document(**changes))
        with pytest.raises(ValueError, match="nothing is counted"):
            network.counters(0)
        with pytest.raises(ValueError, match="nothing is counted"):
            network.set_alphas(np.ones(1))
    network = NativeNetwork(document(counters=True))
    with pytest.raises(ValueError, match="there are 1 alphas for"):
        network.set_alphas(np.ones(1))
