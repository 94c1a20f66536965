"""``foretail/ClosedLoop-v0``: a network of switches and TCP senders, one or many, that react to every action.

In ``foretail/ClosedLoopAlpha-v0`` an agent sets the alphas of Dynamic Thresholds once per interval.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.settings import require_within
from foretail.features.catalog import COUNTER_BITS, COUNTERS, training_columns
from foretail.features.records import FLOW_DTYPE
from foretail.gym.decisions import (
    Info,
    NothingToDraw,
    Observation,
    SwitchEnv,
    SwitchVectorEnv,
    checked_seed,
    next_seed,
    space_of,
    whole_numbers,
)
from foretail.sim_bridge._native import ClosedLoopRuns
from foretail.sim_bridge.native.network import NativeNetwork, begin_live
from foretail.sim_bridge.packets.cost import KINDS, cost_of_run, cost_of_sums, cost_so_far, plan_of_cost
from foretail.sim_bridge.policies import FIRST_EXPONENT, LAST_EXPONENT
from foretail.sim_bridge.policy_settings import takes_alpha

EXPONENTS = range(FIRST_EXPONENT, LAST_EXPONENT + 1)
"""Exponents of the alphas that an action chooses among, powers of two, as switches offer them."""


class ClosedLoopAlphaEnv(gymnasium.Env[Observation, NDArray[Any]], EzPickle):
    """A simulated network in which the agent sets the alpha of every queue, once per interval.

    A queue takes data packets while it is shorter than alpha times the free buffer (Choudhury and Hahne, *Dynamic
    Queue Length Thresholds*, 1998). Between two actions the network simulates an interval, the policy's
    ``alpha_interval_ns``. The episode ends when all flows are complete, or with the time of the scenario.

    The observation has a row for every queue of every switch, leaves first, port by port, and the columns of
    :data:`foretail.features.catalog.COUNTERS`; before the first interval it is zeros. An action has a number from 0 to
    13 for every row: n sets alpha to 2**(n - 7). The reward is that of
    :class:`~foretail.gym.closed_loop.ClosedLoopEnv`: minus the change in the cost J, so the rewards of an episode add
    up to 1 - J.

    A tree that has learned such actions is exported for switches, and runs with ``policy=dt_predicted``.

    Parameters
    ----------
    scenario : mapping, or callable from seed to mapping
        As of :class:`~foretail.gym.closed_loop.ClosedLoopEnv`, with the policy ``dt`` and without a predictor.

    Raises
    ------
    ForetailError
        If the native network refuses the scenario, or its policy has no alpha or a predictor.

    Notes
    -----
    Infos: ``time_ns``, the simulated time; ``cost``, J as far as it is known, and of the whole run when it is over.

    Examples
    --------
    >>> import numpy as np
    >>> from foretail.api import Policy, driver_config, scenarios
    >>> from foretail.gym import ClosedLoopAlphaEnv
    >>> scenario = scenarios.Scenario(
    ...     name="two racks",
    ...     topology=scenarios.Topology(leaves=2, spines=2, servers_per_leaf=4),
    ...     background=scenarios.Background(size_bytes=[0, 10_000, 1_000_000], cumulative=[0, 0.8, 1], load=0.8),
    ...     incast=scenarios.Incast(queries_per_second_per_server=1000, burst_fraction=1.0, fan_in=4),
    ...     traffic_ns=1_000_000,
    ... )
    >>> env = ClosedLoopAlphaEnv(driver_config(scenario, Policy("dt"), seed=1, trace=False))
    >>> counters, info = env.reset(seed=1)
    >>> alpha_of_8 = np.full(len(counters), 10)
    >>> earned, over = 0.0, False
    >>> while not over:
    ...     counters, reward, over, _, info = env.step(alpha_of_8)
    ...     earned += reward
    >>> round(1 - earned - info["cost"], 9)
    0.0
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # Gymnasium: no ClassVar

    def __init__(self, scenario: Scenario, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise NothingToDraw(render_mode)
        EzPickle.__init__(self, scenario, render_mode)
        self._scenario = scenario
        self._lock = threading.Lock()  # native code runs without Python's own
        self._network: NativeNetwork | None = None
        self._queues = len(self._begun(1).counters(0))
        self.observation_space = Box(0, (1 << COUNTER_BITS) - 1, (self._queues, len(COUNTERS)), np.int32)
        self.action_space = MultiDiscrete(np.full(self._queues, len(EXPONENTS)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode."""
        seed = checked_seed(seed)
        super().reset(seed=seed)
        seed = next_seed(self.np_random) if seed is None else seed
        self._network = network = self._begun(seed)
        self._plan = plan_of_cost(network.flows(), self._document)
        if not len(self._plan[1]):
            raise nothing_counts(seed)
        self._ends_ns, self._cost = 0, 1.0
        return network.counters(0), self._info(network)

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, Info]:
        """Set the alphas, and simulate an interval."""
        with self._lock:
            network = self._network
            if network is None or network.is_over:
                raise ForetailError("no interval waits for an action: call reset() first")
            chosen = whole_numbers(action)
            if chosen is None or not self.action_space.contains(chosen.astype(np.int64, copy=False)):
                raise ForetailError(
                    f"an action must be {self._queues} whole numbers from 0 to {len(EXPONENTS) - 1}, one per queue"
                )
            network.set_alphas(np.exp2(chosen + float(FIRST_EXPONENT)))
            self._ends_ns += self._document["policy"]["alpha_interval_ns"]
            network.advance(self._ends_ns)
            flows, over = network.flows(), network.is_over
            cost = cost_of_run(flows, network.now_ns, self._document) if over else cost_so_far(flows, self._plan)
            reward, self._cost = self._cost - cost, cost
            return network.counters(self._ends_ns), reward, over, False, self._info(network)

    def _begun(self, seed: int) -> NativeNetwork:
        document = document_of(self._scenario, seed)
        policy = document["policy"]
        if not takes_alpha(policy["name"]) or policy["predictor"] == "library":
            raise ForetailError(
                f"policy {policy['name']!r} of the scenario leaves no alpha to set: choose dt, without a predictor"
            )
        self._document = {**document, "counters": True}
        return NativeNetwork(self._document)

    def _info(self, network: NativeNetwork) -> Info:
        return {"time_ns": network.now_ns, "cost": self._cost}


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
        require_within("num_envs", count, {"kind": int, "at_least": 1})
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
            flows = self._runs.flows(index).view(FLOW_DTYPE)  # with the age of what is not complete
            cost[index] = cost_of_run(flows, self._runs.now_ns(index), self._documents[index])
        cost[was_over] = self._cost[was_over]
        earned: NDArray[np.float64] = self._cost - cost
        self._cost = cost
        return earned

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of infos, an entry per run."""
        return {"time_ns": self._time_ns, "switch": self._switch, "cost": self._cost}


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
