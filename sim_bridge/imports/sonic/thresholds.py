"""A configuration with other thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.sonic.checks import require_consistent
from foretail.sim_bridge.imports.sonic.tables import (
    LARGEST_DYNAMIC_TH,
    SMALLEST_DYNAMIC_TH,
    Port,
    Profile,
    SonicBuffers,
)


def with_alphas(buffers: SonicBuffers, dynamic_th: Mapping[int, int]) -> SonicBuffers:
    """Return the configuration with other thresholds of traffic classes, on all ports.

    It is the threshold of the queue of a lossy class, and that of the priority group of a lossless one, which decides
    on pauses. The profile gets a sibling ``NAME_thN``; others that had it keep it. ForetailError on a threshold that
    SONiC does not take, or a class that has no profile.

    Parameters
    ----------
    dynamic_th : log2(alpha) from -8 to 7, by traffic class
    """
    profiles, ports = dict(buffers.profiles), dict(buffers.ports)
    class_of: dict[tuple[str, bool, int], int] = {}  # that has set the threshold of a group or queue
    for priority, exponent in dynamic_th.items():
        if not SMALLEST_DYNAMIC_TH <= exponent <= LARGEST_DYNAMIC_TH:
            raise ForetailError(
                f"dynamic_th = {exponent} is none that SONiC takes: choose from {SMALLEST_DYNAMIC_TH} (alpha 1/256) to "
                f"{LARGEST_DYNAMIC_TH} (alpha 128)"
            )
        changed = False
        for name, port in buffers.ports.items():
            lossless = priority in buffers.lossless_priorities(name)
            number = (port.group_of_class if lossless else port.queue_of_class).get(priority, -1)
            entries = port.groups if lossless else port.queues
            if number not in entries:
                continue
            first = class_of.setdefault((name, lossless, number), priority)
            if dynamic_th[first] != exponent:
                raise ForetailError(
                    f"traffic classes {first} and {priority} share {'priority group' if lossless else 'queue'} "
                    f"{number} of {name}: give both the same dynamic_th"
                )
            profile = replace(buffers.profiles[entries[number]], dynamic_th=exponent, static_th_bytes=None)
            sibling = _sibling(profiles, entries[number], profile)
            profiles[sibling] = profile
            ports[name] = _with_entry(ports[name], lossless, number, sibling)
            changed = True
        if not changed:
            raise ForetailError(f"traffic class {priority} has no profile on any port: choose a class that has one")
    return replace(buffers, profiles=profiles, ports=ports)


def with_lossy_profiles(buffers: SonicBuffers, added: Mapping[str, Profile], first: str) -> SonicBuffers:
    """Return the configuration with further profiles, of which lossy queues get the `first`.

    These are the queues of lossy classes alone that draw on its pool. ForetailError when there is none, when these
    profiles reserve other bytes, or when one of their names is a profile of something else.
    """
    pool, size_bytes = added[first].pool, added[first].size_bytes
    ports, sizes = {}, set()
    for name, port in buffers.ports.items():
        of_lossy = set(port.queue_of_class.values()) - buffers.lossless_queues(name)
        queues = {}
        for queue, profile in port.queues.items():
            lossy = queue in of_lossy and buffers.profiles[profile].pool == pool
            queues[queue] = first if lossy else profile
            if lossy:
                sizes.add(buffers.profiles[profile].size_bytes)
            elif profile in added:
                raise ForetailError(
                    f"BUFFER_QUEUE|{name}|{queue} has {profile} and is no lossy queue of {pool}: export with another "
                    "name"
                )
        ports[name] = replace(port, queues=queues)
    if not sizes:
        raise ForetailError(f"no lossy queue draws on {pool}: name the egress pool of the lossy queues in sonic.pool")
    if size_bytes not in sizes:
        raise ForetailError(
            f"the lossy queues reserve {min(sizes):,} bytes each, and sonic.size_bytes = {size_bytes}: set "
            f"sonic.size_bytes={min(sizes)}"
        )
    changed = replace(buffers, profiles={**buffers.profiles, **added}, ports=ports)
    require_consistent(changed)
    return changed


def _with_entry(port: Port, lossless: bool, number: int, profile: str) -> Port:
    if lossless:
        return replace(port, groups={**port.groups, number: profile})
    return replace(port, queues={**port.queues, number: profile})


def _sibling(profiles: Mapping[str, Profile], name: str, profile: Profile) -> str:
    """The name of a profile that is as `name` but for its threshold."""
    if profiles[name] == profile:
        return name
    sibling = f"{name}_th{profile.dynamic_th}"
    while profiles.get(sibling, profile) != profile:
        sibling += "_"
    return sibling
