"""Parts of a SONiC configuration that a simulation needs, under the names of its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading
from foretail.sim_bridge.imports.sonic.rows import Row, ports_and_numbers, referred, shown, table_of
from foretail.sim_bridge.imports.sonic.tables import PRIORITIES, QOS_FIELDS, Profile, SonicBuffers

CLASSES = ("background", "incast", "control")
"""Classes of simulated packets, as in ``scenario.queues``."""


@dataclass(frozen=True)
class SimulatedQueues:
    """Settings of ``scenario.queues``."""

    count: int
    lossless: list[int]
    background: int
    incast: int
    control: int
    marking: list[int]  #: queues whose profile marks; [] where the file has no marks that can be simulated


@dataclass(frozen=True)
class SimulatedPfc:
    """Settings of ``scenario.pfc``; all are 0 without a lossless queue."""

    headroom_bytes: int  #: of one ingress queue, the largest of all
    headroom_pool_bytes: int  #: that they share; the sum of all where each has its own
    xon_bytes: int
    xon_offset_bytes: int


@dataclass(frozen=True)
class SimulatedMarks:
    """Settings of ``scenario.transport``: a ``WRED_PROFILE`` that marks green packets."""

    mark_bytes: int
    mark_full_bytes: int  #: 0: all from mark_bytes on
    mark_probability: float


@dataclass(frozen=True)
class SimulatedPolicy:
    """Settings of ``policy``; a list has a value per queue, and 0 for the threshold that it does not have."""

    name: str
    ingress_pool_bytes: int
    egress_lossless_pool_bytes: int  #: 0 without a lossless queue
    egress_lossy_pool_bytes: int  #: 0 without a lossy queue
    ingress_alphas: list[float]
    egress_alphas: list[float]
    ingress_static_bytes: list[int]
    egress_static_bytes: list[int]
    ingress_reserved_bytes: list[int]
    egress_reserved_bytes: list[int]


@dataclass(frozen=True)
class Simulated:
    """The settings of a run that has the buffers of a configuration."""

    queues: SimulatedQueues
    pfc: SimulatedPfc
    policy: SimulatedPolicy
    priorities: tuple[int, ...]  #: the traffic class of each queue
    marks: SimulatedMarks | None  #: None: the configuration has none that can be simulated
    reading: Reading  #: what it says that is not simulated

    def settings(self) -> dict[str, Any]:
        """Settings as a configuration nests them: ``scenario.queues``, ``scenario.pfc`` and ``policy``, and marks."""
        marks = {} if self.marks is None else {"transport": asdict(self.marks)}
        return {
            "scenario": {"queues": asdict(self.queues), "pfc": asdict(self.pfc), **marks},
            "policy": asdict(self.policy),
        }


@dataclass(frozen=True)
class _Pair:
    """The profiles of one traffic class on one port."""

    group: int
    queue: int
    ingress: Profile
    egress: Profile

    def without_headroom(self) -> tuple[Profile, Profile, bool]:
        size_bytes = self.ingress.reserved_bytes
        plain = replace(self.ingress, size_bytes=size_bytes, xoff_bytes=None, xon_bytes=None, xon_offset_bytes=None)
        return plain, self.egress, self.ingress.lossless


def simulated(buffers: SonicBuffers, priorities: Mapping[str, int], ports: Sequence[str] = ()) -> Simulated:
    """Return the settings that give a simulated switch the buffers of a configuration.

    A simulated port has a queue for each traffic class in use, in their order, and an ingress queue for each. The ports
    of one speed have to agree, and those of different speeds but for their headroom, of which the largest counts.
    ForetailError names what does not, and what the simulation does not have: several ingress pools, lossless and lossy
    queues of one egress pool, two classes in one priority group or queue, trimmed packets.

    Parameters
    ----------
    priorities : traffic class from 0 to 7 of ``background``, ``incast`` and ``control``
    ports : those to simulate; empty means all that are up and have rows of their own
    """
    used = _used(priorities)
    pairs = {port: [_pair(buffers, port, priority) for priority in used] for port in _chosen(buffers, ports)}
    _require_apart(used, pairs)
    _require_alike(buffers, used, pairs)
    first = next(iter(pairs.values()))
    ingress, egress = [pair.ingress for pair in first], [pair.egress for pair in first]
    lossless = [queue for queue, profile in enumerate(ingress) if profile.lossless]
    ingress_pool = _one_pool("ingress", (profile.pool for profile in ingress))
    of_lossless = _one_pool("lossless egress", (egress[queue].pool for queue in lossless))
    of_lossy = _one_pool("lossy egress", (pair.egress.pool for pair in first if not pair.ingress.lossless))
    if of_lossless is not None and of_lossless == of_lossy:
        raise ForetailError(
            f"lossless and lossy queues both draw on {of_lossy}, and the simulation has a pool for each: give lossy "
            "queues an egress pool of their own, or simulate classes of one kind"
        )
    marks, marking, why = _marks(buffers, {port: [pair.queue for pair in of_port] for port, of_port in pairs.items()})
    pool_bytes = {None: 0} | {name: pool.size_bytes for name, pool in buffers.pools.items()}
    shared_bytes = sum(pool.xoff_bytes or 0 for name, pool in buffers.pools.items() if name == ingress_pool)
    return Simulated(
        SimulatedQueues(
            len(used), lossless, **{name: used.index(priorities[name]) for name in CLASSES}, marking=marking
        ),
        _pfc([pair.ingress for port in pairs.values() for pair in port if pair.ingress.lossless], shared_bytes),
        SimulatedPolicy(
            "sonic",
            pool_bytes[ingress_pool],
            pool_bytes[of_lossless],
            pool_bytes[of_lossy],
            [_alpha(profile) for profile in ingress],
            [_alpha(profile) for profile in egress],
            [profile.static_th_bytes or 0 for profile in ingress],
            [profile.static_th_bytes or 0 for profile in egress],
            [profile.reserved_bytes for profile in ingress],
            [profile.reserved_bytes for profile in egress],
        ),
        tuple(used),
        marks,
        _reading(buffers, pairs, why),
    )


def _marks(
    buffers: SonicBuffers, queues: Mapping[str, Sequence[int]]
) -> tuple[SimulatedMarks | None, list[int], tuple[str, ...]]:
    """The marks of the queues of ports, the places of those that mark, and profiles that cannot be simulated."""
    names: dict[tuple[str, int], str] = {}
    marks: dict[str, SimulatedMarks] = {}
    profiles = table_of(buffers.rest, "WRED_PROFILE")
    for key, fields in table_of(buffers.rest, "QUEUE").items():
        row = Row("QUEUE", key, fields)
        if (profile := row.text("wred_profile")) is None:
            continue
        name = referred(row, profile, "WRED_PROFILE")
        if name not in profiles:
            raise ForetailError(f"QUEUE names {shown(name)}, which is no row of WRED_PROFILE: add it")
        if (of_profile := _marks_of(Row("WRED_PROFILE", name, profiles[name]))) is not None:
            marks[name] = of_profile
        ports, numbers = ports_and_numbers(row, key, 15)
        names |= {(port, number): name for port in ports for number in numbers}
    of_ports = {tuple(names.get((port, queue)) for queue in numbers) for port, numbers in queues.items()}
    chosen = {name for of_queues in of_ports for name in of_queues if name in marks}
    if len(of_ports) > 1 or len({marks[name] for name in chosen}) != 1:
        return None, [], tuple(f"WRED_PROFILE {shown(name)}" for name in profiles)
    left = tuple(f"WRED_PROFILE {shown(name)}" for name in profiles if name not in chosen)
    (of_queues,) = of_ports
    return marks[chosen.pop()], [place for place, name in enumerate(of_queues) if name in marks], left


def _marks_of(row: Row) -> SimulatedMarks | None:
    """The marks of green packets, as all are here; None where a profile has none of them."""
    ecn = row.text("ecn") or "ecn_none"
    if not ("all" in ecn or "green" in ecn) or row.text("wred_green_enable", ("true", "false")) != "true":
        return None
    first, full = (row.whole(f"green_{end}_threshold", 1) for end in ("min", "max"))
    percent = row.whole("green_drop_probability", 0, 100)
    first = row.needed(first, "green_min_threshold", "from which it marks")
    full = row.needed(full, "green_max_threshold", "from which it marks all")
    if first > full:
        raise row.refusal("green_min_threshold", f"at most green_max_threshold, {full:,}, is needed")
    if percent == 0 or first == full:
        return SimulatedMarks(full, 0, 1.0)
    return SimulatedMarks(first, full, (100 if percent is None else percent) / 100)


_OF_QUEUES = (
    *("SCHEDULER", "PFC_WD", "PFC_WD_TABLE", "BUFFER_PORT_INGRESS_PROFILE_LIST"),
    *("BUFFER_PORT_EGRESS_PROFILE_LIST", "PORT_STORM_CONTROL", "POLICER", "LOSSLESS_TRAFFIC_PATTERN"),
)
"""Tables that change what a switch does with packets, and are not simulated."""
_USED = (
    *("PORT", "CABLE_LENGTH", "PORT_QOS_MAP", "QUEUE", "WRED_PROFILE", "TC_TO_PRIORITY_GROUP_MAP", "TC_TO_QUEUE_MAP"),
    *("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "DSCP_TO_TC_MAP"),
)


def _reading(buffers: SonicBuffers, pairs: Mapping[str, list[_Pair]], profiles: tuple[str, ...]) -> Reading:
    rest = [table for table, rows in buffers.rest.items() if rows and table not in (*_USED, *_OF_QUEUES)]
    fields = {field for row in table_of(buffers.rest, "PORT_QOS_MAP").values() for field in row}
    left = [
        *profiles,
        *(table for table in _OF_QUEUES if buffers.rest.get(table)),
        *(f"{field} of PORT_QOS_MAP" for field in sorted(fields - {*QOS_FIELDS})),
        *([f"{len(rest)} tables that queue no packet ({', '.join(sorted(rest)[:3])} and so on)"] if rest else []),
    ]
    called = {name for port in pairs for name in buffers.ports[port].queues.values() if "lossless" in name}
    if called and not any(pair.ingress.lossless for of_port in pairs.values() for pair in of_port):
        guess = (
            f"no class is lossless, although queues have {min(called)}: buffermgrd adds their rows of BUFFER_PG when "
        )
        guess += "the switch runs, so save the configuration of the running switch"
        return Reading("the configuration", tuple(left), (guess,))
    return Reading("the configuration", tuple(left))


def usual_priorities(buffers: SonicBuffers, ports: Sequence[str] = ()) -> dict[str, int]:
    """Return the traffic class of each of `CLASSES`: for incast the lossless one of most ports, for others the lossy.

    Where there is but one kind all have the same. Of several with as many ports it is the lowest. ForetailError when no
    traffic class has both a priority group and a queue with rows.
    """
    ports_of: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
    for name in _chosen(buffers, ports):
        port, lossless = buffers.ports[name], buffers.lossless_priorities(name)
        for priority in range(PRIORITIES):
            if port.group_of_class.get(priority) in port.groups and port.queue_of_class.get(priority) in port.queues:
                ports_of[priority in lossless][priority] += 1
    kinds = [min(of, key=lambda one: (-of[one], one)) if of else None for of in ports_of.values()]
    lossy, lossless_one = (kind if kind is not None else other for kind, other in zip(kinds, kinds[::-1], strict=True))
    if lossy is None or lossless_one is None:
        raise ForetailError("no traffic class has rows of BUFFER_PG and BUFFER_QUEUE: add some, or give ports=")
    return {"background": lossy, "incast": lossless_one, "control": lossy}


def _pfc(lossless: Sequence[Profile], shared_bytes: int) -> SimulatedPfc:
    """That of the lossless groups of all ports, of which the one with the largest headroom counts."""
    headrooms = [profile.xoff_bytes or 0 for profile in lossless]
    if not headrooms:
        return SimulatedPfc(0, 0, 0, 0)
    widest = lossless[headrooms.index(max(headrooms))]
    return SimulatedPfc(
        max(headrooms), shared_bytes or sum(headrooms), widest.xon_bytes or 0, widest.xon_offset_bytes or 0
    )


def _used(priorities: Mapping[str, int]) -> list[int]:
    if set(priorities) != set(CLASSES):
        raise ForetailError(f"priorities are of {', '.join(map(str, priorities))}: give those of {', '.join(CLASSES)}")
    for name, priority in priorities.items():
        if type(priority) is not int or not 0 <= priority < PRIORITIES:
            raise ForetailError(f"{name} has priority {priority!r}: choose from 0 to {PRIORITIES - 1}")
    return sorted(set(priorities.values()))


def _chosen(buffers: SonicBuffers, ports: Sequence[str]) -> list[str]:
    for port in ports:
        if port not in buffers.ports:
            raise ForetailError(f"ports has {port}, which is no PORT: choose from {', '.join(list(buffers.ports)[:8])}")
    chosen = list(dict.fromkeys(ports)) or [
        name for name, port in buffers.ports.items() if port.up and (port.groups or port.queues)
    ]
    if not chosen:
        raise ForetailError("no port is up and has rows of BUFFER_PG or BUFFER_QUEUE: add rows, or give ports=")
    return chosen


def _pair(buffers: SonicBuffers, port: str, priority: int) -> _Pair:
    item = buffers.ports[port]
    group, queue = item.group_of_class.get(priority, -1), item.queue_of_class.get(priority, -1)
    profiles = []
    for what, table, number, entries in (
        ("priority group", "BUFFER_PG", group, item.groups),
        ("queue", "BUFFER_QUEUE", queue, item.queues),
    ):
        if number not in entries:
            has = f"{what} {number}, which has no row of {table}" if number >= 0 else f"no {what}"
            raise ForetailError(
                f"traffic class {priority} of {port} has {has}: add it, choose another class, or leave the port out "
                "with ports="
            )
        profile = buffers.profiles[entries[number]]
        if profile.packet_discard_action == "trim":
            raise ForetailError(
                f"BUFFER_PROFILE|{entries[number]} trims packets, which the simulation does not: set its "
                "packet_discard_action to drop"
            )
        profiles.append(profile)
    return _Pair(group, queue, *profiles)


def _require_apart(used: list[int], pairs: Mapping[str, list[_Pair]]) -> None:
    """Raise ForetailError when two traffic classes share a priority group or a queue."""
    for port, of_port in pairs.items():
        for what, numbers in {
            "priority group": [pair.group for pair in of_port],
            "queue": [pair.queue for pair in of_port],
        }.items():
            for place, number in enumerate(numbers):
                if number in numbers[:place]:
                    raise ForetailError(
                        f"traffic classes {used[numbers.index(number)]} and {used[place]} share {what} {number} of "
                        f"{port}, which the simulation does not: give both kinds of packets one of the two classes"
                    )


def _require_alike(buffers: SonicBuffers, used: list[int], pairs: Mapping[str, list[_Pair]]) -> None:
    """Raise ForetailError when the ports of a speed differ, or others in more than headroom."""
    first_of: dict[int, str] = {}
    for port, of_port in pairs.items():
        speed_bps = buffers.ports[port].speed_bps
        same, any_first = first_of.setdefault(speed_bps, port), next(iter(pairs))
        for place, priority in enumerate(used):
            pair, of_same, of_any = of_port[place], pairs[same][place], pairs[any_first][place]
            if (pair.ingress, pair.egress) != (of_same.ingress, of_same.egress):
                raise ForetailError(
                    f"{same} and {port} have one speed and different profiles for traffic class {priority}: give "
                    "ports= of one kind"
                )
            if pair.without_headroom() != of_any.without_headroom():
                raise ForetailError(
                    f"{any_first} and {port} have profiles for traffic class {priority} that differ in more than "
                    "headroom: give ports= of one kind"
                )


def _one_pool(side: str, pools: Iterable[str]) -> str | None:
    distinct = sorted(set(pools))
    if len(distinct) > 1:
        raise ForetailError(
            f"the traffic classes have the {side} pools {', '.join(distinct)}, and the simulation has one: choose "
            "classes of one pool"
        )
    return distinct[0] if distinct else None


def _alpha(profile: Profile) -> float:
    return 0.0 if profile.dynamic_th is None else 2.0**profile.dynamic_th
