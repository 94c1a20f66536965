"""The environments: one switch, or many side by side, in which each arriving data packet waits for an action."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature, training_columns
from foretail.gym.traffic import Generated, Traffic
from foretail.sim_bridge._native import LiveRuns

ACCEPT, DROP = 0, 1
"""Actions; as in predictions, 1 is drop."""

DEFAULT_FEATURES = ("queue", "occupancy", "threshold", "thresholds_sum")

Observation = NDArray[np.int32]
Info = dict[str, Any]


@dataclass(frozen=True)
class Reward:
    """What a step earns: ``sent`` for all that was sent since the last decision, and the rest for that decision.

    When the arrivals end, what is still queued counts as sent. So with the defaults the rewards of an episode add up
    to the packets that the switch transmits.
    """

    sent: float = 1.0  #: for every unit that was sent
    dropped: float = 0.0  #: for every unit that the action lost, usually negative
    decision: float = 0.0  #: for every step
    #: ``bytes`` only where packets have them. Control packets count as neither
    unit: Literal["packets", "bytes"] = "packets"

    def __post_init__(self) -> None:
        """Raise ForetailError on what is not a finite number, and on another unit."""
        for name in ("sent", "dropped", "decision"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise ForetailError(f"the reward's {name} must be a finite number, not {value!r}")
        if self.unit not in ("packets", "bytes"):
            raise ForetailError(f"the reward's unit must be packets or bytes, not {self.unit!r}")


class _Switches:
    """What both environments are made of: native runs that stop at every data packet, and arrays over them."""

    def __init__(self, count: int, traffic: Traffic | None, features: Sequence[str], reward: Reward, labels: bool):
        self._traffic = Generated() if traffic is None else traffic
        if reward.unit == "bytes" and not self._traffic.has_bytes:
            raise ForetailError("packets of slotted traffic have no bytes: set the reward's unit to 'packets'")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ForetailError(f"num_envs must be a whole number of at least 1, not {count!r}")
        names = training_columns(features, own_queues=True)
        self._runs = LiveRuns("learned", count, list(names), in_bytes=reward.unit == "bytes")
        self._reward, self._labels = reward, labels
        columns = self._runs.columns()
        self.features: Observation = columns["features"]
        self._sent, self._lost, self._arrival = columns["sent"], columns["lost"], columns["arrival"]
        self._exposed, self._lqd_drop = columns["exposed"].view(np.bool_), columns["lqd_drop"].view(np.bool_)
        self.ended: NDArray[np.bool_] = columns["ended"].view(np.bool_)
        high = np.array([(1 << feature(name).bits) - 1 for name in names], np.int32)
        self.space = Box(np.zeros_like(high), high, dtype=np.int32)

    def begin(self, index: int, seed: int) -> None:
        self._traffic.episode(seed).begin(self._runs, index, self._labels)

    def step(self, drop: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Decide and go on; return what was earned."""
        self._runs.step(drop)
        earned: NDArray[np.float64] = self._reward.sent * self._sent + self._reward.decision
        if self._reward.dropped:
            earned += self._reward.dropped * self._lost
        return earned

    def columns(self) -> dict[str, NDArray[Any]]:
        """What infos tell of each run."""
        info = {"arrival": self._arrival, "exposed": self._exposed, "sent": self._sent, "lost": self._lost}
        return info | {"lqd_drop": self._lqd_drop} if self._labels else info


class BufferEnv(gymnasium.Env[Observation, Any]):
    """A switch whose buffer the agent manages: accept or drop each data packet as it arrives.

    A packet that is accepted into a full buffer is dropped all the same. Control packets are admitted whenever they
    fit and ask nobody. The episode ends with the arrivals; its last observation is zeros.

    ``reset(seed=s)`` plays ``traffic.episode(s)``; a reset without a seed plays another, which the seed before
    determines.

    Parameters
    ----------
    traffic : Traffic, optional
        Where packets come from: :class:`~foretail.gym.traffic.Generated` unless given.
    features : sequence of str
        What is observed, from :data:`foretail.features.catalog.FEATURES`, in this order.
    reward : Reward
    labels : bool
        Also tell what LQD does with the packet, in the info ``lqd_drop``.

    Notes
    -----
    Infos: ``arrival``, the position of the waiting packet in the episode; ``exposed``, whether Credence's safeguard
    does not apply to it; ``sent`` and ``lost``, in units of the reward, since the last decision and by it.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # Gymnasium: no ClassVar

    def __init__(
        self,
        traffic: Traffic | None = None,
        features: Sequence[str] = DEFAULT_FEATURES,
        reward: Reward = Reward(),
        labels: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise ForetailError(f"render_mode is {render_mode!r}, and a switch draws nothing: leave it out")
        self._switches = _Switches(1, traffic, features, reward, labels)
        self.observation_space = self._switches.space
        self.action_space = Discrete(2)
        self._answer = np.zeros(1, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._switches.begin(0, _next_seed(self.np_random) if seed is None else seed)
        return self._switches.features[0].copy(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Accept (0) or drop (1) the waiting packet and go on to the next."""
        if self._switches.ended[0]:
            raise ForetailError("no packet waits for an action: call reset() first")
        if action not in (ACCEPT, DROP):
            raise ForetailError(f"an action must be 0 (accept) or 1 (drop), not {action!r}")
        self._answer[0] = action
        reward = float(self._switches.step(self._answer)[0])
        return self._switches.features[0].copy(), reward, bool(self._switches.ended[0]), False, self._info()

    def _info(self) -> Info:
        return {name: column[0].item() for name, column in self._switches.columns().items()}


class BufferVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many :class:`BufferEnv` at once, each with its own arrivals, stepped by one native call.

    Environment `i` of ``reset(seed=s)`` is a ``BufferEnv`` after ``reset(seed=s + i)``. In the step after its episode
    has ended it ignores its action, earns 0 and shows the first packet of the next one.

    Parameters
    ----------
    num_envs : int
    traffic, features, reward, labels :
        As :class:`BufferEnv`. Generated arrivals of all environments are in memory, 13 bytes per packet.
    copy : False: observations are views of one array, which the next step overwrites
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(
        self,
        num_envs: int = 1,
        traffic: Traffic | None = None,
        features: Sequence[str] = DEFAULT_FEATURES,
        reward: Reward = Reward(),
        labels: bool = False,
        copy: bool = True,
    ) -> None:
        self._switches = _Switches(num_envs, traffic, features, reward, labels)
        self.num_envs = num_envs
        self.single_observation_space = self._switches.space
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
            self._switches.begin(i, _next_seed(self._draws[i]) if own is None else own)
        self._over[:] = False
        return self._observation(), self._info()

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        """Accept (0) or drop (1) the packet that waits in each environment and go on to the next."""
        answers = np.asarray(actions)
        if answers.shape != (self.num_envs,) or answers.dtype.kind not in "biu" or (answers >> 1).any():
            raise ForetailError(f"actions must be {self.num_envs} whole numbers, each 0 (accept) or 1 (drop)")
        if (self._switches.ended & ~self._over).any():
            raise ForetailError("no packets wait for actions: call reset() first")
        rewards = self._switches.step(answers.astype(np.uint8))
        if self._over.any():
            for i in np.flatnonzero(self._over).tolist():
                self._switches.begin(i, _next_seed(self._draws[i]))
            rewards[self._over] = 0.0
        self._over = self._switches.ended.copy()
        return self._observation(), rewards, self._over.copy(), ~self._all, self._info()

    def _observation(self) -> Observation:
        return self._switches.features.copy() if self._copy else self._switches.features

    def _info(self) -> Info:
        info: Info = {}
        for name, column in self._switches.columns().items():
            info[name] = column.copy()
            info[f"_{name}"] = self._all
        return info


def _next_seed(draw: np.random.Generator) -> int:
    return int(draw.integers(2**63))
