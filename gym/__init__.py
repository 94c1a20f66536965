"""The native switch as a Gymnasium environment: each arriving packet waits for an action, accept or drop.

Importing this module registers ``foretail/Buffer-v0``::

    import gymnasium
    import foretail.gym

    env = gymnasium.make("foretail/Buffer-v0")
    many = gymnasium.make_vec("foretail/Buffer-v0", num_envs=256)
"""

from __future__ import annotations

from foretail.core.errors import ForetailError

try:
    import gymnasium
except ImportError:
    raise ForetailError(
        "environments need the package gymnasium: install it with pip install 'foretail[gym]'"
    ) from None

from foretail.gym.environment import ACCEPT, DROP, BufferEnv, BufferVectorEnv, Reward
from foretail.gym.traffic import FromDatasets, FromFile, Generated, Traffic

__all__ = [
    "ACCEPT",
    "DROP",
    "BufferEnv",
    "BufferVectorEnv",
    "FromDatasets",
    "FromFile",
    "Generated",
    "Reward",
    "Traffic",
]

if "foretail/Buffer-v0" not in gymnasium.registry:
    gymnasium.register(
        "foretail/Buffer-v0",
        entry_point="foretail.gym.environment:BufferEnv",
        vector_entry_point="foretail.gym.environment:BufferVectorEnv",
    )
