"""What environments of switches have in common: runs that stop where a packet waits, as Gymnasium wants to see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature

ACCEPT, DROP = 0, 1
"""Actions; as in predictions, 1 is drop."""

Observation = NDArray[np.int32]
Info = dict[str, Any]


def space_of(names: Sequence[str]) -> Box:
    """Return the space of these features: each from 0 to the most that its bits hold."""
    high = np.array([(1 << feature(name).bits) - 1 for name in names], np.int32)
    return Box(np.zeros_like(high), high, dtype=np.int32)


def require_count(count: int) -> None:
    """Raise ForetailError on what is no number of environments."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ForetailError(f"num_envs must be a whole number of at least 1, not {count!r}")


class Runs(Protocol):
    """Native runs side by side, and arrays over them that every step overwrites."""

    @property
    def features(self) -> Observation:
        """Of the packet that waits in each run, zeros where none does."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether nothing waits in a run any more."""

    @property
    def space(self) -> gymnasium.Space[Any]:
        """Of the features of a packet."""

    def begin(self, index: int, seed: int) -> None:
        """Let a run begin with the traffic of a seed."""

    def step(self, drop: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Decide in each run and go on; return what was earned."""

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """What infos tell of each run."""


class SwitchEnv(gymnasium.Env[Observation, Any]):
    """One run, in which each data packet waits for an action."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # Gymnasium: no ClassVar

    def __init__(self, runs: Runs, render_mode: str | None) -> None:
        if render_mode is not None:
            raise ForetailError(f"render_mode is {render_mode!r}, and a switch draws nothing: leave it out")
        self._runs = runs
        self.observation_space = runs.space
        self.action_space = Discrete(2)
        self._answer = np.zeros(1, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._runs.begin(0, next_seed(self.np_random) if seed is None else seed)
        return self._runs.features[0].copy(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Accept (0) or drop (1) the waiting packet and go on to the next."""
        if self._runs.ended[0]:
            raise ForetailError("no packet waits for an action: call reset() first")
        if action not in (ACCEPT, DROP):
            raise ForetailError(f"an action must be 0 (accept) or 1 (drop), not {action!r}")
        self._answer[0] = action
        reward = float(self._runs.step(self._answer)[0])
        return self._runs.features[0].copy(), reward, bool(self._runs.ended[0]), False, self._info()

    def _info(self) -> Info:
        return {name: column[0].item() for name, column in self._runs.columns().items()}


class SwitchVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many runs, which one native call steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(self, num_envs: int, runs: Runs, copy: bool, autoreset: bool = True) -> None:
        if not autoreset:
            self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.DISABLED}  # type: ignore[misc]
        self._autoreset = autoreset
        self._runs = runs
        self.num_envs = num_envs
        self.single_observation_space = runs.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = Discrete(2)
        self.action_space = MultiDiscrete(np.full(num_envs, 2))
        self._copy = copy
        self._all = np.ones(num_envs, np.bool_)
        self._over = np.zeros(num_envs, np.bool_)
        self._draws = [seeding.np_random()[0] for _ in range(num_envs)]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], Info]:
        """Begin an episode everywhere; a list has one seed per environment."""
        if seed is None or isinstance(seed, int | np.integer):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ForetailError(f"there are {len(seeds)} seeds for {self.num_envs} environments: give one for each")
        for i, own in enumerate(seeds):
            if own is not None:
                self._draws[i] = seeding.np_random(own)[0]
            self._runs.begin(i, next_seed(self._draws[i]) if own is None else own)
        self._over[:] = False
        return self._observation(), self._info()

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Accept (0) or drop (1) the packet that waits in each environment and go on to the next."""
        answers = np.asarray(actions)
        if answers.shape != (self.num_envs,) or answers.dtype.kind not in "biu" or (answers >> 1).any():
            raise ForetailError(f"actions must be {self.num_envs} whole numbers, each 0 (accept) or 1 (drop)")
        if (self._runs.ended & ~self._over).any() or (self._over.all() and not self._autoreset):
            raise ForetailError("no packets wait for actions: call reset() first")
        rewards = self._runs.step(answers.astype(np.uint8))
        if self._over.any():
            for i in np.flatnonzero(self._over & self._autoreset).tolist():
                self._runs.begin(i, next_seed(self._draws[i]))
            rewards[self._over] = 0.0
        self._over = self._runs.ended.copy()
        return self._observation(), rewards, self._over.copy(), ~self._all, self._info()

    def _observation(self) -> Observation:
        return self._runs.features.copy() if self._copy else self._runs.features

    def _info(self) -> Info:
        info: Info = {}
        for name, column in self._runs.columns().items():
            info[name] = column.copy()
            info[f"_{name}"] = self._all
        return info


def next_seed(draw: np.random.Generator) -> int:
    """Draw the seed of an episode that was asked for without one."""
    return int(draw.integers(2**63))
