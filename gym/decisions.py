"""Parts that environments of switches share: runs that stop where a packet waits, as Gymnasium wants to see them."""

from __future__ import annotations

import threading
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
from foretail.core.settings import require_within
from foretail.features.catalog import feature

ACCEPT, DROP = 0, 1
"""Actions; as in predictions, 1 is drop."""

Observation = NDArray[np.int32]
Info = dict[str, Any]


def space_of(names: Sequence[str]) -> Box:
    """Return the space of these features: each from 0 to the most that its bits hold."""
    high = np.array([(1 << feature(name).bits) - 1 for name in names], np.int32)
    return Box(np.zeros_like(high), high, dtype=np.int32)


def checked_seed(seed: Any) -> int | None:
    """Return a seed as Gymnasium takes it, or None; ForetailError on what is no whole number of at least 0."""
    require_within("seed", seed, {"kind": int | None, "at_least": 0})
    return None if seed is None else int(seed)


def whole_numbers(actions: Any) -> NDArray[Any] | None:
    """Return actions as an array of integers or bools; None for anything else."""
    try:
        numbers = np.asarray(actions)
    except ValueError:  # lists of different lengths
        return None
    return numbers if numbers.dtype.kind in "biu" else None


class NothingToDraw(ForetailError, TypeError):
    """A render mode was asked for; a TypeError, after which Stable-Baselines3 makes the environment without one."""

    def __init__(self, render_mode: Any) -> None:
        super().__init__(f"render_mode is {render_mode!r}, and there is nothing to draw: leave it out")


class Runs(Protocol):
    """Native runs side by side, and arrays over them that every step overwrites."""

    features: Observation  #: of the packet that waits in each run, zeros where none does
    ended: NDArray[np.bool_]  #: true for each run in which nothing waits any more
    space: Any  #: Box, of the features of a packet

    def begin(self, index: int, seed: int) -> None:
        """Let a run begin with the traffic of a seed."""

    def step(self, drop: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Decide in each run and go on; return what was earned."""

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Columns of infos, an entry per run."""


class SwitchEnv(gymnasium.Env[Observation, Any]):
    """One run, in which each data packet waits for an action."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # Gymnasium: no ClassVar

    def __init__(self, runs: Runs, render_mode: str | None) -> None:
        if render_mode is not None:
            raise NothingToDraw(render_mode)
        self._runs = runs
        self.observation_space = runs.space
        self.action_space = Discrete(2)
        self._answer = np.zeros(1, np.uint8)
        self._lock = threading.Lock()  # native code runs without Python's own

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode."""
        seed = checked_seed(seed)
        super().reset(seed=seed)
        with self._lock:
            self._runs.begin(0, next_seed(self.np_random) if seed is None else seed)
            return self._runs.features[0].copy(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Accept (0) or drop (1) the waiting packet and go on to the next."""
        answer = whole_numbers(action)
        if answer is None or answer.size != 1 or answer.item() not in (ACCEPT, DROP):
            raise ForetailError(f"an action must be 0 (accept) or 1 (drop), not {action!r}")
        with self._lock:
            if self._runs.ended[0]:
                raise ForetailError("no packet waits for an action: call reset() first")
            self._answer[0] = answer.item()
            reward = float(self._runs.step(self._answer)[0])
            return self._runs.features[0].copy(), reward, bool(self._runs.ended[0]), False, self._info()

    def _info(self) -> Info:
        return {name: column[0].item() for name, column in self._runs.columns().items()}


class SwitchVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many runs, which one native call steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(
        self, num_envs: int, runs: Runs, copy: bool, autoreset: bool = True, max_episode_steps: int | None = None
    ) -> None:
        require_within("max_episode_steps", max_episode_steps, {"kind": int | None, "at_least": 1})
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
        self._steps = np.zeros(num_envs, np.int64)
        self._most_steps = max_episode_steps
        self._lock = threading.Lock()  # native code runs without Python's own
        self._draws = [seeding.np_random()[0] for _ in range(num_envs)]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], Info]:
        """Begin an episode everywhere, or where ``options["reset_mask"]`` is true; a list has a seed for each."""
        if seed is None or isinstance(seed, int | np.integer):
            first = checked_seed(seed)
            seeds: list[Any] = [None if first is None else first + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ForetailError(f"there are {len(seeds)} seeds for {self.num_envs} environments: give one for each")
        seeds = [checked_seed(own) for own in seeds]
        with self._lock:
            for i in np.flatnonzero(self._mask(options or {})).tolist():
                own = seeds[i]
                if own is not None:
                    self._draws[i] = seeding.np_random(own)[0]
                self._runs.begin(i, next_seed(self._draws[i]) if own is None else own)
                self._over[i], self._steps[i] = False, 0
            return self._observation(), self._info()

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Accept (0) or drop (1) the packet that waits in each environment and go on to the next."""
        answers = whole_numbers(actions)
        if answers is None or answers.shape != (self.num_envs,) or (answers >> 1).any():
            raise ForetailError(f"actions must be {self.num_envs} whole numbers, each 0 (accept) or 1 (drop)")
        with self._lock:
            if (self._runs.ended & ~self._over).any() or (self._over.all() and not self._autoreset):
                raise ForetailError("no packets wait for actions: call reset() first")
            rewards = self._runs.step(answers.astype(np.uint8))
            if self._over.any():
                for i in np.flatnonzero(self._over & self._autoreset).tolist():
                    self._runs.begin(i, next_seed(self._draws[i]))
                rewards[self._over] = 0.0
            self._steps = np.where(self._over & self._autoreset, 0, self._steps + 1)
            ended = self._runs.ended.copy()
            cut = ~ended & (self._steps >= self._most_steps) if self._most_steps else ~self._all
            self._over = ended | cut
            return self._observation(), rewards, ended, cut, self._info()

    def _mask(self, options: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Mask of the runs in which an episode begins."""
        mask = np.asarray(options.get("reset_mask", self._all))
        if mask.shape != self._all.shape or mask.dtype != np.bool_ or not mask.any():
            raise ForetailError(f"reset_mask must be {self.num_envs} booleans, at least one of them true")
        return mask

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
