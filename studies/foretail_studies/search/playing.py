"""Rounds of Stable-Baselines3's PPO on many networks of ``foretail/ClosedLoop-v0``; needs the extra ``rl``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from foretail.configs.schema.scenario import Scenario
from foretail.features.catalog import feature
from foretail.gym import ClosedLoopVectorEnv
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.frontends import from_sklearn
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.rules import LEARNED
from foretail_studies.search.settings import PLAYED_ROUND, PLAYED_TREE, PlaySettings

WEIGHTS = "weights.pt"
SEEDS_PER_ROUND = 1_000_000
"""The first traffic seeds of a round begin at this times its number, from 1; later episodes draw theirs."""
KEEP_EVERY = 64
"""Of the steps of all networks, one in so many is kept for the tree."""
FIRST_LOGITS = (2.5, -2.5)
"""Of accepting and dropping, before anything is learned: at random half of all packets would be lost."""


@dataclass(frozen=True)
class Episodes:
    """Makes the driver's document of an episode; its seed chooses the condition."""

    scenarios: Sequence[Scenario]
    settings: PlaySettings

    def __call__(self, seed: int) -> Mapping[str, Any]:
        short = replace(
            self.scenarios[seed % len(self.scenarios)],
            traffic_ns=self.settings.episode_ns,
            drain_ns=self.settings.drain_ns,
        )
        return driver_config(short, compose_policy(LEARNED, "episodes"), seed, trace=False)


class Networks(VecEnv):
    """The native vector form as the library wants it, with features from 0 to 1 in float32.

    An episode that has ended shows zeros once, ignores the action on them and earns 0.
    """

    def __init__(self, episodes: Episodes, seed: int) -> None:
        names, count = episodes.settings.observed, episodes.settings.networks
        self._env = ClosedLoopVectorEnv(episodes, count, names)
        self._highest = np.array([(1 << feature(name).bits) - 1 for name in names], np.float32)
        self._traffic_ns, self._seed, self._steps = episodes.settings.episode_ns, seed, 0
        self._time_ns = np.zeros(count, np.int64)
        self.simulated_ns = 0  #: time of all networks in which traffic came
        self.costs: list[float] = []  #: J of every episode that has ended
        self.seen: list[NDArray[np.int32]] = []  #: rows of features that were kept, int32[count, features] each
        super().__init__(count, Box(0.0, 1.0, (len(names),)), Discrete(2))

    def reset(self) -> NDArray[np.float32]:
        """Begin episodes everywhere, always the same ones."""
        return self.scaled(self._env.reset(seed=self._seed)[0])

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Decide everywhere."""
        rows, rewards, ended, _, info = self._env.step(self._actions)
        now_ns = np.minimum(info["time_ns"], self._traffic_ns)
        self.simulated_ns += int(np.where(now_ns >= self._time_ns, now_ns - self._time_ns, now_ns).sum())
        self._time_ns = now_ns
        self._steps += 1
        if self._steps % KEEP_EVERY == 0:
            self.seen.append(rows[~ended])
        if ended.any():
            self.costs += info["cost"][ended].tolist()
        return self.scaled(rows), rewards.astype(np.float32), ended, self.reset_infos

    def scaled(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Features as the policy sees them."""
        return np.asarray(rows / self._highest, np.float32)

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The same of all networks."""
        return [None if attr_name == "render_mode" else getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: networks have no attributes of their own."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Refuse: networks have no methods of their own."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No network is wrapped."""
        return [False] * self.num_envs


def play_round(folder: Path, episodes: Episodes, number: int, before: Path | None, cell_bytes: int) -> None:
    """Write the weights, the tree and the account of a round, which goes on from the folder `before`."""
    settings, first = episodes.settings, SEEDS_PER_ROUND * number
    torch.set_num_threads(1)
    networks = Networks(episodes, first)
    env = VecNormalize(networks, norm_obs=False, clip_reward=np.inf, gamma=settings.discount)
    steps = min(1024, max(1, settings.decisions // settings.networks))
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=steps,
        batch_size=min(8192, steps * settings.networks),
        n_epochs=4,
        gamma=settings.discount,
        gae_lambda=0.998,
        policy_kwargs={"net_arch": [32, 32]},
        seed=first,
        device="cpu",
    )
    with torch.no_grad():
        model.policy.action_net.bias.copy_(torch.tensor(FIRST_LOGITS))  # type: ignore[operator]
    if before is not None:
        learned = torch.load(before / WEIGHTS, weights_only=True)
        model.set_parameters(learned["parameters"], device="cpu")
        env.ret_rms.mean, env.ret_rms.var, env.ret_rms.count = map(np.float64, learned["returns"])  # type: ignore[assignment]
    model.learn(settings.decisions)
    returns = [float(env.ret_rms.mean), float(env.ret_rms.var), float(env.ret_rms.count)]
    torch.save({"parameters": model.get_parameters(), "returns": returns}, folder / WEIGHTS)
    seen = np.concatenate(networks.seen)
    drops = model.predict(networks.scaled(seen), deterministic=True)[0] == 1
    tree = distilled(seen, drops, settings)
    inputs = [FeatureInput(name, feature(name).params(cell_bytes, 0), feature(name).bits) for name in settings.observed]
    from_sklearn(tree, inputs).save(folder / PLAYED_TREE)
    account = {
        "decisions": model.num_timesteps,
        "simulated_s": networks.simulated_ns / 1e9,
        "episodes": len(networks.costs),
        "mean_return": 1 - float(np.mean(networks.costs)) if networks.costs else None,
        "drops_percent": 100 * float(drops.mean()),
        "same_percent": 100 * float((tree.predict(seen) == drops).mean()),
    }
    (folder / PLAYED_ROUND).write_text(json.dumps(account, indent=1) + "\n", "ascii")


def distilled(seen: NDArray[np.int32], drops: NDArray[np.bool_], settings: PlaySettings) -> DecisionTreeClassifier:
    """A tree that answers as the network does; it accepts into an empty switch, and drops at the top of all features.

    These two examples are added, because a tree needs one of each. Nothing fits there, so the second changes nothing.
    """
    highest = [(1 << feature(name).bits) - 1 for name in settings.observed]
    rows = np.vstack([seen, np.zeros(len(highest), np.int32), highest])
    tree = DecisionTreeClassifier(max_leaf_nodes=settings.leaves, random_state=1)
    return tree.fit(rows, np.append(drops, [False, True]))
