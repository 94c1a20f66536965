"""A sharing rule by reinforcement: PPO in ``foretail/ClosedLoop-v0``, its network distilled to a tree.

This is the rival of the searches in :mod:`foretail_studies.search.rules`: the training families and the reference are
theirs. Every round plays new episodes of all training conditions and is an entry of the store, so training goes on
where it was stopped. After each round a tree learns what the network answers. The tree that costs least in the whole
conditions of training, on the first seed, runs on all seeds. Held-out families are never simulated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from omegaconf import MISSING
from sklearn.tree import DecisionTreeClassifier
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.scenario import Scenario
from foretail.core.code import code_digest
from foretail.core.settings import setting
from foretail.features.catalog import feature
from foretail.gym import ClosedLoopVectorEnv
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn
from foretail.pipelines.comparison.statistics import change_text, percent_change
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table, plain, version_of
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.predictors import LEARNED
from foretail_studies.families import Families, Rule, SharingPlan
from foretail_studies.search.trials import (
    PLAYED_ROUND,
    PLAYED_TREE,
    PlaySettings,
    Simulations,
    cost_in_switch,
    log_traffic,
)

WEIGHTS = "weights.pt"
SEEDS_PER_ROUND = 1_000_000
"""The first traffic seeds of a round begin at this times its number, from 1; later episodes draw theirs."""
KEEP_EVERY = 64
"""Number of steps of all networks of which one is kept for the tree."""
FIRST_LOGITS = (2.5, -2.5)
"""Logits of accepting and dropping before anything is learned: at random half of all packets would be lost."""


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
    from_sklearn(tree, [FeatureInput.of(name, cell_bytes) for name in settings.observed]).save(folder / PLAYED_TREE)
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


@dataclass
class PpoSettings(SimulatedPointSettings, Families, PlaySettings):
    """A policy that PPO learns in the training families, as a tree for policy learned."""

    rounds: int = setting(MISSING, "Number of rounds, those of earlier runs included.", at_least=1, at_most=10_000)
    reference: str = setting("lqd_last", "Policy against whose J all scores are taken.")
    seeds: list[int] = setting(MISSING, "Seeds of the best tree; the first is that of every round's tree.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a feature that is unknown or too wide."""
        super().check(where)
        PlaySettings.check(self, where)


def show(settings: PpoSettings, run: Run) -> Shown:
    """Play round by round, judge the tree of each, and run the best on all seeds."""
    reference = Rule.of(settings.reference)
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {settings.reference: {}})
    conditions = list(plan.scenarios)
    simulations = Simulations(settings, plan, run.store)
    entries = _rounds(settings, plan, run.store, simulations.cell_bytes)
    trees = {Rule(LEARNED, f"ppo_{number}"): Ensemble.load(one.path / PLAYED_TREE) for number, one in entries.items()}
    levels = simulations.levels({reference: None, **trees}, conditions, settings.seeds[:1])
    best = min(trees, key=lambda rule: levels[rule])
    simulations.levels({reference: None, best: trees[best]}, conditions, settings.seeds)
    against = simulations.costs.family_difference(conditions, best, reference)
    rows = _rows(entries, [percent_change(levels[rule] - levels[reference]) for rule in trees])
    _, in_switch = cost_in_switch(trees[best], "the best as a tree")
    change = percent_change(against.mean)
    return Shown(
        rows,
        [_table(rows, settings.reference)],
        frames={f"{settings.experiment}.csv": rows},
        notes=(
            f"training: {rows['decisions'].iloc[-1]:,} decisions in {rows['simulated_s'].iloc[-1]:.3g} s of traffic",
            in_switch,
            simulations.costs.note,
        ),
        verdict=(
            f"The tree of {best.setting} is the best of {len(rows)} in the training conditions: J is "
            f"{change_text(against)} % against {settings.reference} on {len(settings.seeds)} seeds.",
        ),
        details={"best": best.setting},
        learned=Learned(
            trees[best],
            f"PPO in {len(conditions)} conditions of the training families, distilled to a tree: J {change:+.3g} % "
            f"against {settings.reference}.",
            {} if change is None else {"against_reference_percent": change},
            lambda logged: log_traffic(
                logged, {str(where): one for where, one in plan.scenarios.items()}, settings.seeds, "train"
            ),
        ),
    )


RULE_BY_PPO = FunctionExperiment(PpoSettings, show)


def _rounds(settings: PpoSettings, plan: SharingPlan, store: Store, cell_bytes: int) -> dict[int, Entry]:
    """The entries of all rounds by number, from 1."""
    episodes = Episodes(list(plan.scenarios.values()), settings)
    depends_on = {
        "scenarios": [plain(asdict(scenario)) for scenario in episodes.scenarios],
        **{field.name: getattr(settings, field.name) for field in fields(PlaySettings)},
        "code": code_digest(play_round),
        "version": version_of("stable-baselines3"),
    }
    entries: dict[int, Entry] = {}
    with StageProgress() as progress:
        for number in range(1, settings.rounds + 1):
            progress.update(f"round {number} of {settings.rounds}", (number - 1) / settings.rounds)
            before = entries.get(number - 1)
            key = Key("ppo_round", {**depends_on, "round": number, "before": None if before is None else before.digest})
            learn = partial(
                play_round,
                episodes=episodes,
                number=number,
                before=None if before is None else before.path,
                cell_bytes=cell_bytes,
            )
            entries[number] = store.get_or_build(key, learn)
    return entries


def _rows(entries: Mapping[int, Entry], scores: Sequence[float | None]) -> pd.DataFrame:
    """A row per round; decisions and simulated seconds are of this round and all before it."""
    rows = pd.DataFrame([{"round": number, **one.document(PLAYED_ROUND)} for number, one in entries.items()])
    rows[["decisions", "simulated_s"]] = rows[["decisions", "simulated_s"]].cumsum()
    return rows.assign(score=pd.Series(scores, dtype=float), wall_s=[one.seconds for one in entries.values()])


def _table(rows: pd.DataFrame, reference: str) -> Table:
    columns = {
        "round": "round",
        "decisions": "decisions",
        "simulated_s": "simulated s",
        "mean_return": "mean return",
        "drops_percent": "network drops, %",
        "same_percent": "tree answers alike, %",
        "score": f"J of the tree against {reference}, %",
    }
    return Table.of_frame("Rounds of PPO on the training families", rows, columns)
