"""Sharing rules from their settings, for the policy ``learned``."""

from __future__ import annotations

from collections.abc import Mapping

from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.models.drop.sharing_rule import HIGHEST, SharingRule

LEARNED = "learned"
"""The policy that asks a sharing rule."""


def rule_of(values: Mapping[str, int]) -> SharingRule:
    """The sharing rule with these numbers, by their names in settings."""
    more = min(values["pressure"] + values["first_rtt_more"], HIGHEST)
    others = {name: values.get(name, default) for name, default in RULE_DEFAULTS.items()}
    return SharingRule(values["message_left"], values["fill"], values["pressure"], more, **others)
