"""The closed loop as an environment: its decisions are those of a run of the network, and its rewards add up to J.

Costs fifteen seconds of CPU time, some for the compiler; the network runs in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import COUNTERS, feature
from foretail.gym import ACCEPT, ClosedLoopAlphaEnv, ClosedLoopEnv, ClosedLoopVectorEnv
from foretail.gym.closed_loop import EXPONENTS
from foretail.models.drop.thresholds.alpha_tree import fit_alpha_tree
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.pipelines.comparison.cost import run_cost
from foretail.sim_bridge.native.network import NativeNetwork, run_live_native
from tests.examples import draws
from tests.forests import alpha_exponents, paper_forest
from tests.refusals import refusing
from tests.scenarios import settings, with_racks
from tests.sim_bridge.native.drawn_settings import drawn_settings

pytestmark = pytest.mark.slow

SHIFT = 15


def learned(**changes: Any) -> dict[str, Any]:
    return settings(**({"policy__name": "learned", "traffic_ns": 500_000, "features__average_shift": SHIFT} | changes))


def in_one_piece(document: dict[str, Any], **policy: Any) -> tuple[Any, int]:
    """The flows of a run without anybody outside, and its end."""
    network = NativeNetwork({**document, "policy": document["policy"] | policy})
    network.advance()
    return network.flows(), network.now_ns


def drawn_scenario(number: int) -> dict[str, Any]:
    """Drawn settings whose flows count in J."""
    document = drawn_settings(number)
    document["policy"] |= {"name": "learned", "flip_probability": 0.0}
    document["background"]["load"] = max(document["background"]["load"], 0.4)
    document["traffic_ns"] = 1_000_000
    return document


@examples(max_examples=draws(10), deadline=None)
@given(number=st.integers(0, 2**32 - 1), drops=st.sampled_from([0.0, 0.0, 0.01, 0.2]))
def test_rewards_add_up_to_the_cost_of_the_run(number: int, drops: float) -> None:
    """Always accepting is Complete Sharing, and what a random agent costs is what `run_cost` says of its flows."""
    document = drawn_scenario(number)
    env = ClosedLoopEnv(document)
    draw = np.random.default_rng(number)
    _, info = env.reset(seed=document["seed"])
    earned, over, cost = 0.0, False, 1.0
    while not over:
        seen, reward, over, _, info = env.step(int(draw.random() < drops))
        earned += reward
        assert reward == pytest.approx(cost - info["cost"])
        cost = info["cost"]
    assert not seen.any()
    assert 1 - earned == pytest.approx(cost)
    if drops == 0.0:
        flows, end_ns = in_one_piece(document, name="cs")
    else:
        draw = np.random.default_rng(number)
        (run,) = run_live_native([document], lambda x: np.array([draw.random() < drops]), ("queue",))
        flows, end_ns = run.flows, run.summary["end_ns"]
    expected = run_cost(flows, end_ns, document).cost
    assert cost == pytest.approx(expected)


@pytest.mark.parametrize("policy", ["learned", "credence"])
def test_live_answers_are_those_of_the_compiled_model(policy: str, tmp_path: Path) -> None:
    document = learned(policy__name=policy, traffic_ns=1_000_000)
    names = ("queue", "queue_average", "occupancy", "occupancy_average")
    inputs = tuple(FeatureInput(name, feature(name).params(256, SHIFT), feature(name).bits) for name in names)
    x = np.random.default_rng(1).integers(0, 600, (4000, len(inputs)), dtype=np.int32)
    model = paper_forest().forest.fit(x, x[:, 0] > 0.4 * x[:, 2]).to_ensemble(inputs)
    library = export(model, C(), tmp_path / "export").file(".so")
    documents = [{**document, "seed": seed} for seed in (1, 2)]
    runs = run_live_native(documents, model.exceeds, names)
    for seed, run in enumerate(runs, 1):
        assert 0 < run.drops < run.asked
        assert run.asked == sum(node["asked"] for node in run.summary["switches"])
        compiled, _ = in_one_piece({**document, "seed": seed}, predictor="library", library=str(library))
        assert (run.flows == compiled).all()


def test_the_same_function_decides_alike_in_every_form() -> None:
    """As a callable, a module of PyTorch, a tree of scikit-learn and an agent of the environment."""
    document = learned()
    x = np.arange(2000, dtype=np.int32)[:, None]
    tree = DecisionTreeClassifier(max_depth=1).fit(x, x[:, 0] > 700)

    class Above(torch.nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows[:, 0] - 700.0

    forms = {"callable": (lambda x: x[:, 0] > 700, 0.5), "torch": (Above().eval(), 0.0), "sklearn": (tree, 0.5)}
    found = {name: run_live_native([document], one, ("occupancy",), threshold=t)[0] for name, (one, t) in forms.items()}
    env = ClosedLoopEnv(document, features=("occupancy",))
    (seen, info), over, drops = env.reset(seed=document["seed"]), False, 0
    while not over:
        action = int(seen[0] > 700)
        drops += action
        seen, _, over, _, info = env.step(action)
    assert 0 < drops == found["callable"].drops
    for run in found.values():
        assert (run.flows == found["callable"].flows).all()
    assert info["cost"] == pytest.approx(run_cost(found["torch"].flows, info["time_ns"], document).cost)


def test_gymnasium_finds_nothing_wrong() -> None:
    document = learned()
    check_env(gymnasium.make("foretail/ClosedLoop-v0", scenario=document).unwrapped, skip_render_check=True)
    many = gymnasium.make_vec("foretail/ClosedLoop-v0", num_envs=2, scenario=document, features=("fill",))
    seen, _ = many.reset(seed=1)
    assert many.observation_space.contains(seen)


@pytest.mark.parametrize("copy", [False, True])
def test_the_vector_form_is_single_ones_side_by_side(copy: bool) -> None:
    document, draw, seed = learned(traffic_ns=100_000, drain_ns=1_000_000), np.random.default_rng(1), 5
    many = ClosedLoopVectorEnv(document, 3, copy=copy)
    seen, info = many.reset(seed=seed)
    single = [ClosedLoopEnv(document) for _ in range(3)]
    began = [env.reset(seed=seed + i) for i, env in enumerate(single)]
    over, episodes = [False] * 3, 0
    for i, (one, _) in enumerate(began):
        assert (seen[i] == one).all()
    for _ in range(3000):
        actions = (draw.random(3) < 0.05).astype(np.int64)
        seen, rewards, ended, _, info = many.step(actions)
        for i, env in enumerate(single):
            if over[i]:
                (one, told), reward, over[i] = env.reset(), 0.0, False
                episodes += 1
            else:
                one, reward, over[i], _, told = env.step(int(actions[i]))
            assert (seen[i] == one).all()
            assert (rewards[i], ended[i]) == (pytest.approx(reward), over[i])
            assert {name: info[name][i] for name in told} == told
    assert episodes >= 3


def test_without_autoreset_what_has_ended_waits_for_the_others() -> None:
    document = learned(traffic_ns=100_000, drain_ns=1_000_000)
    many = ClosedLoopVectorEnv(document, 3, autoreset=False)
    many.reset(seed=[5, 6, 6])
    accept, earned, ended = np.zeros(3, np.int64), np.zeros(3), np.zeros(3, np.bool_)
    while not ended.all():
        seen, rewards, ended, _, info = many.step(accept)
        earned += rewards
        assert not seen[ended].any()
    np.testing.assert_allclose(1 - earned, info["cost"])
    assert info["cost"][1] == info["cost"][2] != info["cost"][0]
    with pytest.raises(ForetailError, match=r"^no packets wait for actions: call reset\(\) first$"):
        many.step(accept)
    many.reset(seed=5)
    many.step(accept)


INTERVAL_NS = 100_000
START = 11  #: the action of alpha 16


def document(**changes: Any) -> dict[str, Any]:
    start = {"policy__name": "dt", "policy__alpha": 16.0, "policy__alpha_interval_ns": INTERVAL_NS}
    return settings(**(start | {"traffic_ns": 1_000_000} | changes))


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
        action = alpha_exponents(tree, seen.astype(np.int64)) - EXPONENTS[0]
        acted |= set(action.tolist())
        earned += reward
    flows, end_ns = in_one_piece(found, predictor="library", library=str(library))
    assert len(acted) > 2
    assert env._network is not None
    assert (env._network.flows() == flows).all()
    assert not (in_one_piece(found)[0] == flows).all()
    assert info == {"time_ns": end_ns, "cost": pytest.approx(run_cost(flows, end_ns, found).cost)}
    assert 1 - earned == pytest.approx(info["cost"])


def test_gymnasium_finds_nothing_wrong_with_alphas() -> None:
    short = document(traffic_ns=500_000)
    check_env(gymnasium.make("foretail/ClosedLoopAlpha-v0", scenario=short).unwrapped, skip_render_check=True)
    many = gymnasium.make_vec("foretail/ClosedLoopAlpha-v0", num_envs=2, scenario=short, vectorization_mode="sync")
    seen, _ = many.reset(seed=1)
    assert many.observation_space.contains(seen)
    assert not seen.any()


def began(scenario: dict[str, Any]) -> object:
    return ClosedLoopEnv(scenario).reset(seed=1)


def acted(alpha: float | None) -> object:
    """Step with this for every queue, or for all but one."""
    env = ClosedLoopAlphaEnv(document())
    seen, _ = env.reset(seed=1)
    return env.step(np.zeros(len(seen) - 1, int) if alpha is None else np.full(len(seen), alpha))


SILENT = {"background__load": 0.0, "incast__queries_per_second_per_server": 0.0}
test_what_is_no_scenario_is_refused = refusing(
    (lambda: began(settings(policy__name="dt")), "^policy 'dt' asks nobody: choose one of .*learned"),
    (lambda: began(with_racks()), "^switches of racks with circuits ask nobody in Python"),
    (lambda: began(learned(format=7)), "^the native simulation failed: setting 'format' must be 1"),
    (lambda: began(learned(**SILENT)), "^seed 1 has no queries, no short and no long flows: lengthen the scenario's"),
    (lambda: ClosedLoopEnv(learned()).step(ACCEPT), r"^no packet waits for an action: call reset\(\) first$"),
    (lambda: ClosedLoopEnv(learned(), features=("length",)), r"^unknown feature 'length'"),
    (
        lambda: ClosedLoopVectorEnv(learned(), 0),
        r"^num_envs = 0 is out of range: .* at least 1$",
    ),
    (
        lambda: run_live_native([learned()], lambda _: 1 / 0, ("queue",)),
        "^the predictor .* on 1 rows .ZeroDivisionError",
    ),
    (lambda: ClosedLoopAlphaEnv(document()).step(np.array([START])), r"call reset\(\) first"),
    *((lambda one=one: acted(one), r"an action must be \d+ whole numbers from 0 to 13") for one in (14, 0.5, -1, None)),
    (lambda: ClosedLoopAlphaEnv(document(), render_mode="human"), "render_mode"),
    (lambda: ClosedLoopAlphaEnv(document(**SILENT)).reset(seed=3), "seed 3 has no queries, no short and no long flows"),
    (lambda: ClosedLoopAlphaEnv(document(policy__name="lqd")), "policy 'lqd' of the scenario leaves no alpha to set: "),
    (lambda: ClosedLoopAlphaEnv(document(policy__predictor="library")), "leaves no alpha to set"),
)
