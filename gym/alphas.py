"""``foretail/ClosedLoopAlpha-v0``: an agent sets the alphas of Dynamic Thresholds once per interval."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTER_BITS, COUNTERS
from foretail.gym.closed_loop import Scenario, document_of, nothing_counts
from foretail.gym.decisions import Info, NothingToDraw, Observation, checked_seed, next_seed, whole_numbers
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.packets.cost import cost_of_run, cost_so_far, plan_of_cost
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
