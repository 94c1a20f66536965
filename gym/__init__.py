"""Native switches as Gymnasium environments: each arriving packet waits for an action, accept or drop.

Importing this module registers ``foretail/Buffer-v0``, a switch over given arrivals, and ``foretail/ClosedLoop-v0``, a
network whose senders react. In ``foretail/ClosedLoopAlpha-v0`` an action sets thresholds of that network::

    import gymnasium
    import foretail.gym

    env = gymnasium.make("foretail/Buffer-v0")
    many = gymnasium.make_vec("foretail/Buffer-v0", num_envs=256)
"""

from __future__ import annotations

from foretail.core.errors import ForetailError, install_command

try:
    import gymnasium
except ImportError:
    raise ForetailError(f"environments need the package gymnasium: {install_command('gym')}") from None

from foretail.gym.closed_loop import ClosedLoopAlphaEnv, ClosedLoopEnv, ClosedLoopVectorEnv
from foretail.gym.decisions import ACCEPT, DROP
from foretail.gym.environment import BufferEnv, BufferVectorEnv, Reward
from foretail.gym.traffic import FromDatasets, FromFile, Generated, Traffic

__all__ = [
    "ACCEPT",
    "DROP",
    "BufferEnv",
    "BufferVectorEnv",
    "ClosedLoopAlphaEnv",
    "ClosedLoopEnv",
    "ClosedLoopVectorEnv",
    "FromDatasets",
    "FromFile",
    "Generated",
    "Reward",
    "Traffic",
]

for _name, _module in {"Buffer": "environment", "ClosedLoop": "closed_loop"}.items():
    if f"foretail/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"foretail/{_name}-v0",
            entry_point=f"foretail.gym.{_module}:{_name}Env",
            vector_entry_point=f"foretail.gym.{_module}:{_name}VectorEnv",
        )
if "foretail/ClosedLoopAlpha-v0" not in gymnasium.registry:
    gymnasium.register("foretail/ClosedLoopAlpha-v0", entry_point="foretail.gym.closed_loop:ClosedLoopAlphaEnv")
