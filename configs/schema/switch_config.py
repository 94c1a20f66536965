"""Settings of a stage whose switches have the buffers of a real one."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.core.errors import ForetailError
from foretail.core.settings import part, setting

OF_CONFIG = ("config", "config_classes", "config_ports")
"""The names of these settings."""


@dataclass
class ConfigClasses:
    """The traffic class of each kind of packets; null chooses one."""

    background: int | None = setting(
        None, "Traffic class of background flows; null means the lossy one of most ports.", at_least=0, at_most=7
    )
    incast: int | None = setting(
        None,
        "Traffic class of the answers to queries; null means the lossless one of most ports, if there is one.",
        at_least=0,
        at_most=7,
    )
    control: int | None = setting(
        None, "Traffic class of packets without data; null means the lossy one of most ports.", at_least=0, at_most=7
    )

    @property
    def given(self) -> dict[str, int]:
        """Settings that are chosen."""
        return {name: number for name, number in vars(self).items() if number is not None}


@dataclass
class SwitchConfig:
    """Which configuration, and which part of it."""

    config: str | None = setting(
        None,
        "SONiC configuration (config_db.json) whose buffers the simulated switches have: it sets the queues and "
        "scenario.pfc for all policies, and what the policy sonic reads.",
    )
    config_classes: ConfigClasses = part(ConfigClasses, "With config, the traffic class of each kind of packets.")
    config_ports: list[str] = setting(
        [], "With config, the ports that count; [] means all that are up and have rows of their own."
    )

    def require_config(self) -> None:
        """Raise ForetailError on classes or ports of no configuration."""
        for name, given in (("config_classes", self.config_classes.given), ("config_ports", self.config_ports)):
            if given and self.config is None:
                raise ForetailError(
                    f"{name} is of a SONiC configuration, and there is none: give config=config_db.json"
                )
