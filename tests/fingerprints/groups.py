"""All groups of fingerprints, in the order of their rows."""

from __future__ import annotations

from tests.fingerprints import exported, packets, replays, schedules, settings, slots, stages, traces, trained
from tests.fingerprints.book import Group

GROUPS: tuple[Group, ...] = tuple(
    group
    for module in (packets, traces, slots, replays, trained, exported, schedules, stages, settings)
    for group in module.GROUPS
)
KINDS = tuple(dict.fromkeys(group.kind for group in GROUPS))
"""Names of the files."""
