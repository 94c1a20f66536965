"""``foretail/ClosedLoop-v0``: a network of switches and TCP senders, one or many, that react to every action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import training_columns
from foretail.features.records import FLOW_DTYPE
from foretail.gym.decisions import Observation, SwitchEnv, SwitchVectorEnv, require_count, space_of
from foretail.sim_bridge._native import ClosedLoopRuns
from foretail.sim_bridge.native.network import begin_live
from foretail.sim_bridge.packets.cost import KINDS, cost_of_run, cost_of_sums, plan_of_cost

DEFAULT_FEATURES = ("queue", "occupancy", "fill", "pressure", "message_left")

Scenario = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""The driver's document, whose seed is replaced by that of the episode; or what makes one for a seed."""


def document_of(scenario: Scenario, seed: int) -> Mapping[str, Any]:
    """Return the document of an episode; ForetailError on what is neither a document nor makes one."""
    if not callable(scenario) and not isinstance(scenario, Mapping):
        raise ForetailError(
            f"scenario must be what driver_config returns, or a function that makes it, not {scenario!r}"
        )
    return scenario(seed) if callable(scenario) else {**scenario, "seed": seed}


def nothing_counts(seed: int) -> ForetailError:
    """Return the error on an episode without a cost."""
    return ForetailError(f"seed {seed} has no queries, no short and no long flows: lengthen the scenario's traffic")


class _Networks:
    """Native runs of both environments, which stop wherever a policy asks, and what they cost so far."""

    def __init__(self, count: int, scenario: Scenario, features: Sequence[str]) -> None:
        require_count(count)
        names = training_columns(features, own_queues=True)
        self._scenario = scenario
        self._runs = ClosedLoopRuns(count, list(names))
        columns = self._runs.columns()
        self.features: Observation = columns["features"]
        self._sums: NDArray[np.float64] = columns["sums"]
        self._time_ns, self._switch = columns["time_ns"], columns["switch"]
        self.ended: NDArray[np.bool_] = columns["ended"].view(np.bool_)
        self.space = space_of(names)
        self._documents: list[Mapping[str, Any]] = [{}] * count
        self._items = np.zeros((count, len(KINDS)), np.int64)
        self._cost = np.ones(count)

    def begin(self, index: int, seed: int) -> None:
        document = document_of(self._scenario, seed)
        flows = begin_live(self._runs, index, document)
        item_of, kind, ideal_ns = plan_of_cost(flows, document)
        self._documents[index] = document
        self._items[index] = np.bincount(kind, minlength=len(KINDS))
        if not self._items[index].any():
            raise nothing_counts(seed)
        self._runs.measure(index, item_of, kind, ideal_ns)
        self._runs.start(index)
        if self.ended[index]:
            raise ForetailError(
                f"the policy asks about no packet of seed {seed}: choose policy learned, or more traffic"
            )
        self._cost[index] = 1.0

    def step(self, drop: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Decide and go on; return by how much the cost is less."""
        was_over = self.ended.copy()
        self._runs.step(drop)
        cost: NDArray[np.float64] = cost_of_sums(self._sums, self._items)
        for index in np.flatnonzero(self.ended & ~was_over).tolist():
            cost[index] = self._final_cost(index)
        cost[was_over] = self._cost[was_over]
        earned: NDArray[np.float64] = self._cost - cost
        self._cost = cost
        return earned

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of infos, an entry per run."""
        return {"time_ns": self._time_ns, "switch": self._switch, "cost": self._cost}

    def _final_cost(self, index: int) -> float:
        """J of the whole run, with the age of what is not complete."""
        flows = self._runs.flows(index).view(FLOW_DTYPE)
        return cost_of_run(flows, self._runs.now_ns(index), self._documents[index])


class ClosedLoopEnv(SwitchEnv, EzPickle):
    """A simulated network in which the agent manages the buffer of every switch: accept or drop each data packet.

    Senders are the native network's TCP. They react to what is dropped, so an action changes which packets come next.
    A packet that is accepted into a full buffer is dropped all the same. Control packets are admitted whenever they fit
    and ask nobody. The episode ends when all flows are complete, or with the time of the scenario; its last observation
    is zeros.

    The reward is minus the change in the cost J (:mod:`foretail.sim_bridge.packets.cost`), as far as it is known: what
    is not complete counts as if it took no longer than alone in the network. So a reward comes with the completion of a
    short or long flow, or of a query. At the end what is incomplete counts with its age. The rewards of an episode add
    up to 1 - J.

    ``reset(seed=s)`` draws the flows of seed `s`; a reset without a seed draws others, which the seed before
    determines.

    Parameters
    ----------
    scenario : mapping, or callable from seed to mapping
        The driver's document (:func:`foretail.api.driver_config`), whose seed an episode replaces. Its policy is one
        that asks: ``learned``, which asks about every data packet; or ``credence``, about some. A scenario with
        elephants or collectives of its own draws them in Python, so it needs a callable.
    features : sequence of str
        What is observed, from :data:`foretail.features.catalog.FEATURES`, in this order.

    Raises
    ------
    ForetailError
        If the native network refuses the scenario, or the policy asks about no packet.

    Notes
    -----
    Infos: ``time_ns``, the simulated time; ``switch``, the number of the switch that the packet has come to, leaves
    first; ``cost``, J as far as it is known, and of the whole run when it is over.

    Examples
    --------
    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.gym import ACCEPT, ClosedLoopEnv
    >>> scenario = scenarios.Scenario(
    ...     name="two racks",
    ...     topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 1_000_000], cumulative=[0, 0.8, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    ...     traffic_ns=1_000_000,
    ... )
    >>> env = ClosedLoopEnv(driver_config(scenario, Policy("learned"), seed=1, trace=False))
    >>> _, info = env.reset(seed=1)
    >>> earned, over = 0.0, False
    >>> while not over:
    ...     _, reward, over, _, info = env.step(ACCEPT)
    ...     earned += reward
    >>> round(1 - earned - info["cost"], 9)
    0.0
    """

    def __init__(
        self, scenario: Scenario, features: Sequence[str] = DEFAULT_FEATURES, render_mode: str | None = None
    ) -> None:
        EzPickle.__init__(self, scenario, features, render_mode)
        SwitchEnv.__init__(self, _Networks(1, scenario, features), render_mode)


class ClosedLoopVectorEnv(SwitchVectorEnv, EzPickle):
    """Many :class:`ClosedLoopEnv` at once, each with its own flows, stepped by one native call.

    Environment `i` of ``reset(seed=s)`` is a ``ClosedLoopEnv`` after ``reset(seed=s + i)``. In the step after its
    episode has ended it ignores its action, earns 0 and shows the first packet of the next one.

    Parameters
    ----------
    num_envs : int
    scenario, features :
        As :class:`ClosedLoopEnv`. Every environment holds a network in memory, of some MB.
    copy : False: observations are views of one array, which the next step overwrites
    autoreset : False: an environment whose episode has ended stays so, ignores its actions and earns 0 until ``reset``
        begins an episode everywhere. So no time goes into episodes that nobody needs.
    max_episode_steps : cut an episode after so many steps

    Examples
    --------
    >>> import numpy as np
    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.gym import ClosedLoopVectorEnv
    >>> scenario = scenarios.Scenario(
    ...     name="two racks",
    ...     topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 1_000_000], cumulative=[0, 0.8, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    ...     traffic_ns=500_000,
    ... )
    >>> document = driver_config(scenario, Policy("learned"), seed=1, trace=False)
    >>> many = ClosedLoopVectorEnv(document, num_envs=4, features=("fill",))
    >>> fill, info = many.reset(seed=1)
    >>> fill, rewards, ended, _, info = many.step((fill[:, 0] > 200).astype(np.int64))
    >>> fill.shape, rewards.shape
    ((4, 1), (4,))
    """

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int = 1,
        features: Sequence[str] = DEFAULT_FEATURES,
        copy: bool = True,
        autoreset: bool = True,
        max_episode_steps: int | None = None,
    ) -> None:
        EzPickle.__init__(self, scenario, num_envs, features, copy, autoreset, max_episode_steps)
        runs = _Networks(num_envs, scenario, features)
        SwitchVectorEnv.__init__(self, num_envs, runs, copy, autoreset, max_episode_steps)
