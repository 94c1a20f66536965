"""Buffers of a SONiC configuration: pools, profiles, and the profile of each group and queue of a port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretail.core.errors import ForetailError

PRIORITIES = 8
"""Priorities of PFC, priority groups and traffic classes; the queues of a class are as many, others are multicast's."""

QOS_FIELDS = ("pfc_enable", "tc_to_pg_map", "tc_to_queue_map", "pfc_to_pg_map", "dscp_to_tc_map")
"""Fields of ``PORT_QOS_MAP`` that are read."""

SMALLEST_DYNAMIC_TH, LARGEST_DYNAMIC_TH = -8, 7
"""Limits of SONiC's schema. Some chips take the first for alpha 0 and the last for an alpha without limit."""


@dataclass(frozen=True)
class Pool:
    """A row of ``BUFFER_POOL``."""

    ingress: bool  #: whether it counts what came in by a port, and not what waits for one
    dynamic: bool  #: its mode
    size_bytes: int
    xoff_bytes: int | None = None  #: headroom that all groups share


@dataclass(frozen=True)
class Profile:
    """A row of ``BUFFER_PROFILE``; the threshold is either dynamic or static."""

    pool: str
    size_bytes: int  #: reserved, and on some chips the headroom of a group besides
    dynamic_th: int | None = None  #: log2(alpha)
    static_th_bytes: int | None = None
    xoff_bytes: int | None = None  #: headroom; a group that has it is lossless
    xon_bytes: int | None = None  #: to which a paused group has to drain
    xon_offset_bytes: int | None = None  #: below its threshold, where a paused group may go on
    headroom_type: str | None = None
    packet_discard_action: str | None = None

    @property
    def lossless(self) -> bool:
        """True if groups of this profile have headroom."""
        return self.xoff_bytes is not None

    @property
    def reserved_bytes(self) -> int:
        """The size without the headroom. A size counts that if it is larger than it, and no mere room down to xon."""
        headroom_bytes = self.xoff_bytes or 0
        counted = self.size_bytes > max(headroom_bytes, self.xon_bytes or 0)
        return self.size_bytes - headroom_bytes if counted else self.size_bytes


@dataclass(frozen=True)
class Port:
    """A port with its rows of ``BUFFER_PG`` and ``BUFFER_QUEUE``, and what other tables say of it."""

    speed_bps: int
    cable_m: int | None  #: None where ``CABLE_LENGTH`` has none
    up: bool  #: whether it is not switched off
    pfc_priorities: tuple[int, ...]  #: for which it sends pause frames
    groups: Mapping[int, str]  #: profile of each priority group that has one
    queues: Mapping[int, str]  #: profile of each queue that has one
    #: of each traffic class, itself where the port has no map; so are the next two
    group_of_class: Mapping[int, int]
    queue_of_class: Mapping[int, int]
    group_of_pfc_priority: Mapping[int, int]
    class_of_dscp: Mapping[int, int]  #: empty where the port has no map


@dataclass(frozen=True)
class SonicBuffers:
    """A configuration; ``write_config`` writes pools, profiles, groups and queues anew, and the rest as it is."""

    pools: Mapping[str, Pool]
    profiles: Mapping[str, Profile]
    ports: Mapping[str, Port]
    rest: Mapping[str, Any]  #: every other table, JSON; speeds, cables and maps of `ports` come from there
    in_brackets: bool = False  #: whether references are written ``[BUFFER_POOL|NAME]``, as before release 202111

    def lossless_priorities(self, port: str) -> tuple[int, ...]:
        """The traffic classes of a port whose priority group has headroom."""
        item = self.ports[port]
        return tuple(
            priority
            for priority, group in sorted(item.group_of_class.items())
            if group in item.groups and self.profiles[item.groups[group]].lossless
        )

    def lossless_queues(self, port: str) -> set[int]:
        """The queues of a port in which lossless traffic classes wait."""
        queue_of = self.ports[port].queue_of_class
        return {queue_of[priority] for priority in self.lossless_priorities(port) if priority in queue_of}

    def require_fits(self, buffer_bytes: int) -> None:
        """Raise ForetailError when a pool, or its headroom, is larger than the buffer of the switch."""
        for name, pool in self.pools.items():
            for field, size_bytes in (("size", pool.size_bytes), ("xoff", pool.xoff_bytes or 0)):
                if size_bytes > buffer_bytes:
                    raise ForetailError(
                        f"BUFFER_POOL|{name} has {field} {size_bytes:,}, and the buffer {buffer_bytes:,} bytes: lower "
                        f"{field}, or give the buffer of this switch"
                    )
