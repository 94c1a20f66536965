"""Rules on which a configuration has to agree, and the headroom that a cable needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.sonic.rows import shown
from foretail.sim_bridge.imports.sonic.tables import Port, SonicBuffers

MTU_BYTES = 1_500
"""The largest packet on a link."""

NS_PER_M = 5
"""Propagation in a cable."""

PAUSE_FRAME_BYTES = 64
REACTION_BYTES = 60 * 512 // 8
"""Bytes that a sender still sends before a pause takes effect: 60 quanta, the least in IEEE 802.3 from 10 Gbit/s
on. Faster links may take more."""


def headroom_bytes_needed(speed_bps: int, cable_m: int, mtu_bytes: int) -> int:
    """The bytes that can still arrive after a queue decides to pause its sender.

    Two propagation delays at the speed of the port, a packet that either side is just sending, a pause frame, and the
    sender's reaction.

    Parameters
    ----------
    speed_bps : of the port, above 0
    cable_m : its length, 0 or more
    mtu_bytes : the largest packet
    """
    in_flight_bytes = -(-2 * NS_PER_M * cable_m * speed_bps // (8 * 10**9))
    return in_flight_bytes + 2 * mtu_bytes + PAUSE_FRAME_BYTES + REACTION_BYTES


def require_headroom(buffers: SonicBuffers) -> None:
    """Raise ForetailError when a lossless group has less headroom than its port's speed and cable need."""
    for name, port in buffers.ports.items():
        for group, profile_name in _lossless(buffers, port):
            if port.cable_m is None:
                raise ForetailError(
                    f"{name} has the lossless priority group {group} and no CABLE_LENGTH, which decides its headroom: "
                    "add the length, such as 5m"
                )
            needed = headroom_bytes_needed(port.speed_bps, port.cable_m, MTU_BYTES)
            missing = needed - (buffers.profiles[profile_name].xoff_bytes or 0)
            if missing > 0:
                raise ForetailError(
                    f"BUFFER_PROFILE|{profile_name} has {needed - missing:,} bytes of xoff, and {name} at "
                    f"{port.speed_bps // 10**6:,} Mbit/s over {port.cable_m:,} m needs {needed:,}, which are two "
                    f"propagation delays, two packets of {MTU_BYTES:,} bytes, a pause frame of {PAUSE_FRAME_BYTES} and "
                    f"a reaction of {REACTION_BYTES:,}: add {missing:,} bytes"
                )


LEAST_PACKETS_PER_PORT = 4
"""A pool with less room than for so many packets of each of its ports has its size in another unit."""


def require_bytes(buffers: SonicBuffers) -> None:
    """Raise ForetailError when a pool in use, or the headroom in it, is so small that it cannot be meant in bytes."""
    ports_of: dict[str, set[str]] = {}
    largest: dict[str, int] = {}
    for name, port in buffers.ports.items():
        for profile_name in (*port.groups.values(), *port.queues.values()) if port.up else ():
            profile = buffers.profiles[profile_name]
            ports_of.setdefault(profile.pool, set()).add(name)
            largest[profile.pool] = max(largest.get(profile.pool, 0), profile.xoff_bytes or 0)
    for pool_name, ports in ports_of.items():
        pool, least = buffers.pools[pool_name], LEAST_PACKETS_PER_PORT * MTU_BYTES * len(ports)
        if pool.size_bytes < least:
            raise ForetailError(
                f"BUFFER_POOL|{pool_name} has size {pool.size_bytes:,}, less than {LEAST_PACKETS_PER_PORT} packets for "
                f"each of its {len(ports)} ports: give it in bytes, {least:,} or more"
            )
        if pool.xoff_bytes is not None and pool.xoff_bytes < largest[pool_name]:
            raise ForetailError(
                f"BUFFER_POOL|{pool_name} has xoff {pool.xoff_bytes:,} for the headroom of all groups, and one of them "
                f"has {largest[pool_name]:,}: give it in bytes, or more"
            )


def require_consistent(buffers: SonicBuffers) -> None:
    """Raise ForetailError on a reference to nothing, a pool of the other side, or PFC without headroom or reversed."""
    for name, profile in buffers.profiles.items():
        if profile.pool not in buffers.pools:
            raise ForetailError(
                f"BUFFER_PROFILE|{name} draws on {shown(profile.pool)}, which is no row of BUFFER_POOL: "
                f"{_choice(buffers.pools)}"
            )
    for name, port in buffers.ports.items():
        for table, side, entries in (("BUFFER_PG", "ingress", port.groups), ("BUFFER_QUEUE", "egress", port.queues)):
            for number, profile_name in entries.items():
                if profile_name not in buffers.profiles:
                    raise ForetailError(
                        f"{table}|{name}|{number} has {shown(profile_name)}, which is no row of BUFFER_PROFILE: "
                        f"{_choice(buffers.profiles)}"
                    )
                pool = buffers.profiles[profile_name].pool
                if buffers.pools[pool].ingress != (side == "ingress"):
                    raise ForetailError(
                        f"{table}|{name}|{number} has {profile_name}, which draws on {pool}, no {side} pool: give it a "
                        f"profile of an {side} pool"
                    )
        if port.up:
            _require_pfc(buffers, name, port)


def _require_pfc(buffers: SonicBuffers, name: str, port: Port) -> None:
    lossless = dict(_lossless(buffers, port))
    paused = {port.group_of_pfc_priority.get(priority): priority for priority in port.pfc_priorities}
    for group, priority in paused.items():
        if group not in lossless:
            raise ForetailError(
                f"PORT_QOS_MAP|{name} enables PFC for priority {priority}, whose priority group {group} has no "
                "headroom: give the group a profile with xoff, or take the priority out of pfc_enable"
            )
    for group, profile_name in lossless.items():
        if group not in paused:
            raise ForetailError(
                f"BUFFER_PG|{name}|{group} has the lossless profile {profile_name}, and PORT_QOS_MAP|{name} enables no "
                "PFC for it: add the priority to pfc_enable, or choose a profile without xoff"
            )


def _lossless(buffers: SonicBuffers, port: Port) -> Iterator[tuple[int, str]]:
    """The lossless priority groups of a port, and their profiles."""
    for group, profile_name in port.groups.items():
        if buffers.profiles[profile_name].lossless:
            yield group, profile_name


def _choice(names: Mapping[str, object]) -> str:
    return f"name one of {', '.join(list(names)[:8])}" if names else "add one"
