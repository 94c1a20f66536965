"""``foretail/Buffer-v0``: one switch over given arrivals, or many, in which data packets wait for an action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.settings import require_settings, require_within
from foretail.features.catalog import training_columns
from foretail.gym.decisions import Observation, SwitchEnv, SwitchVectorEnv, space_of
from foretail.gym.traffic import Generated, Traffic
from foretail.sim_bridge._native import LiveRuns

DEFAULT_FEATURES = ("queue", "occupancy", "threshold", "thresholds_sum")


@dataclass(frozen=True)
class Reward:
    """Reward of a step: ``sent`` for all that was sent since the last decision, and the rest for that decision.

    When the arrivals end, what is still queued counts as sent. So with the defaults the rewards of an episode add up
    to the packets that the switch transmits.

    Examples
    --------
    >>> Reward(sent=0.0, dropped=-1.0, unit="bytes").dropped  # what was lost, as a punishment
    -1.0
    """

    sent: float = 1.0  #: for every unit that was sent
    dropped: float = 0.0  #: for every unit that the action lost, usually negative
    decision: float = 0.0  #: for every step
    #: ``bytes`` only where packets have them. Control packets count as neither
    unit: Literal["packets", "bytes"] = "packets"

    def __post_init__(self) -> None:
        """Raise ForetailError on what is not a finite number, and on another unit."""
        require_settings(self, "reward.")


class _Switches:
    """Native runs of both environments, which stop at every data packet, and arrays over them."""

    def __init__(self, count: int, traffic: Traffic | None, features: Sequence[str], reward: Reward, labels: bool):
        self._traffic = Generated() if traffic is None else traffic
        if not isinstance(self._traffic, Traffic):
            raise ForetailError(f"traffic must be Generated, FromFile or FromDatasets, not {traffic!r}")
        if not isinstance(reward, Reward):
            raise ForetailError(f"reward must be a foretail.gym.Reward, not {reward!r}")
        if reward.unit == "bytes" and not self._traffic.has_bytes:
            raise ForetailError("packets of slotted traffic have no bytes: set the reward's unit to 'packets'")
        require_within("num_envs", count, {"kind": int, "at_least": 1})
        names = training_columns(features, own_queues=True)
        self._runs = LiveRuns("learned", count, list(names), in_bytes=reward.unit == "bytes")
        self._reward, self._labels = reward, labels
        columns = self._runs.columns()
        self.features: Observation = columns["features"]
        self._sent, self._lost, self._arrival = columns["sent"], columns["lost"], columns["arrival"]
        self._exposed, self._lqd_drop = columns["exposed"].view(np.bool_), columns["lqd_drop"].view(np.bool_)
        self.ended: NDArray[np.bool_] = columns["ended"].view(np.bool_)
        self.space = space_of(names)

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
        """Columns of infos, an entry per run."""
        info = {"arrival": self._arrival, "exposed": self._exposed, "sent": self._sent, "lost": self._lost}
        return info | {"lqd_drop": self._lqd_drop} if self._labels else info


class BufferEnv(SwitchEnv, EzPickle):
    """A switch whose buffer the agent manages: accept or drop each data packet as it arrives.

    A packet that is accepted into a full buffer is dropped all the same. Control packets are admitted whenever they
    fit and ask nobody. The episode ends with the arrivals; its last observation is zeros.

    ``reset(seed=s)`` plays ``traffic.episode(s)``; a reset without a seed plays another, which the seed before
    determines. A copy, also by pickle, has the same settings and waits for its reset.

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

    Examples
    --------
    >>> from foretail.gym import ACCEPT, Generated
    >>> env = BufferEnv(Generated(ports=4, buffer=16, slots=100))
    >>> packet, info = env.reset(seed=1)
    >>> packet.shape, info["arrival"]
    ((4,), 0)
    >>> _, reward, ended, _, _ = env.step(ACCEPT)
    >>> ended
    False
    """

    def __init__(
        self,
        traffic: Traffic | None = None,
        features: Sequence[str] = DEFAULT_FEATURES,
        reward: Reward = Reward(),
        labels: bool = False,
        render_mode: str | None = None,
    ) -> None:
        EzPickle.__init__(self, traffic, features, reward, labels, render_mode)
        SwitchEnv.__init__(self, _Switches(1, traffic, features, reward, labels), render_mode)


class BufferVectorEnv(SwitchVectorEnv, EzPickle):
    """Many :class:`BufferEnv` at once, each with its own arrivals, stepped by one native call.

    Environment `i` of ``reset(seed=s)`` is a ``BufferEnv`` after ``reset(seed=s + i)``. In the step after its episode
    has ended it ignores its action, earns 0 and shows the first packet of the next one.

    Parameters
    ----------
    num_envs : int
    traffic, features, reward, labels :
        As :class:`BufferEnv`. Generated arrivals of all environments are in memory, 13 bytes per packet.
    copy : False: observations are views of one array, which the next step overwrites
    max_episode_steps : cut an episode after so many steps

    Examples
    --------
    >>> from foretail.gym import ACCEPT, Generated
    >>> env = BufferVectorEnv(3, Generated(ports=4, buffer=16, slots=100))
    >>> packets, _ = env.reset(seed=1)
    >>> packets, rewards, _, _, _ = env.step(np.full(3, ACCEPT))
    >>> packets.shape, rewards.shape
    ((3, 4), (3,))
    """

    def __init__(
        self,
        num_envs: int = 1,
        traffic: Traffic | None = None,
        features: Sequence[str] = DEFAULT_FEATURES,
        reward: Reward = Reward(),
        labels: bool = False,
        copy: bool = True,
        max_episode_steps: int | None = None,
    ) -> None:
        EzPickle.__init__(self, num_envs, traffic, features, reward, labels, copy, max_episode_steps)
        runs = _Switches(num_envs, traffic, features, reward, labels)
        SwitchVectorEnv.__init__(self, num_envs, runs, copy, max_episode_steps=max_episode_steps)
