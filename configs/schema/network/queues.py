"""The queues of a switch port, and the flow control of those that may not lose a packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretail.core.errors import ForetailError
from foretail.core.settings import LARGEST_BUFFER_BYTES, require_distinct, setting
from foretail.sim_bridge.policies import MAKES_ROOM, MOST_QUEUES, SCHEDULERS


@dataclass
class Queues:
    """The queues of every switch port: how it serves them, and which of them each kind of traffic has."""

    count: int = setting(1, "Number of queues of a port.", at_least=1, at_most=MOST_QUEUES)
    scheduler: str = setting(
        "round_robin",
        "Scheduler of a port: packet by packet in turn, the lowest number first, or a quantum of bytes in turn.",
        one_of=SCHEDULERS,
    )
    quantum_bytes: list[int] = setting(
        [],
        "With deficit_round_robin, the bytes that each queue may send in its turn; [] means a full packet each.",
        at_least=1,
        at_most=LARGEST_BUFFER_BYTES,
    )
    background: int = setting(0, "Queue of background flows.", at_least=0, at_most=MOST_QUEUES - 1)
    incast: int = setting(0, "Queue of the answers to queries.", at_least=0, at_most=MOST_QUEUES - 1)
    control: int = setting(0, "Queue of packets without data.", at_least=0, at_most=MOST_QUEUES - 1)
    lossless: list[int] = setting(
        [],
        "Queues that may not lose a packet: switches of the native network pause those who send to them (pfc).",
        at_least=0,
        at_most=MOST_QUEUES - 1,
    )
    marking: list[int] = setting(
        [],
        "Queues that set ECN marks, each by its own length; [] means all, by the length of the port.",
        at_least=0,
        at_most=MOST_QUEUES - 1,
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a class without its queue, or on quanta or numbers that do not fit the queues."""
        for name, queues in (("lossless", self.lossless), ("marking", self.marking)):
            require_distinct(f"{where}.{name}", queues, "name every queue once")
            for queue in queues:
                if queue >= self.count:
                    raise ForetailError(
                        f"{where}.{name} names queue {queue}, and a port has 0 to {self.count - 1}: take it out, or "
                        f"raise {where}.count"
                    )
        for name, queue in (("background", self.background), ("incast", self.incast), ("control", self.control)):
            if queue >= self.count:
                raise ForetailError(
                    f"{where}.{name} = {queue} is not a queue of a port, which has 0 to {self.count - 1}: lower it, or "
                    f"raise {where}.count"
                )
        require_quanta(f"{where}.quantum_bytes", self.quantum_bytes, self.scheduler, self.count)


@dataclass
class Pfc:
    """Priority flow control (IEEE 802.1Qbb): how switches pause those who send to queues.lossless."""

    alpha: float = setting(
        1.0,
        "Alpha of a queue at ingress: it pauses its sender from alpha times the free buffer on. CS and LQD have no "
        "such threshold, and pause when the buffer is full.",
        above=0,
    )
    headroom_bytes: int | None = setting(
        None,
        "Buffer of each lossless queue at ingress for what comes after it has paused its sender; null means what its "
        "link needs.",
        at_least=1,
        at_most=LARGEST_BUFFER_BYTES,
    )
    headroom_pool_bytes: int | None = setting(
        None,
        "Buffer of a switch for all such headroom together; null means that of all its queues.",
        at_least=1,
        at_most=LARGEST_BUFFER_BYTES,
    )
    xon_bytes: int = setting(
        0,
        "A queue at ingress that is at most so long lets its sender go on, whatever its threshold.",
        at_least=0,
        at_most=LARGEST_BUFFER_BYTES,
    )
    xon_offset_bytes: int | None = setting(
        None,
        "A queue lets its sender go on when it is so far below its threshold; null means two full packets.",
        at_least=0,
        at_most=LARGEST_BUFFER_BYTES,
    )
    makes_room: str = setting(
        "longer_queues",
        "Lossy queues out of which LQD pushes packets for a lossless one: those longer than its own, any, or none.",
        one_of=MAKES_ROOM,
    )


def require_quanta(where: str, quanta: Sequence[int], scheduler: str, queues: int) -> None:
    """Raise ForetailError unless there is a quantum for each queue, or none."""
    if quanta and scheduler != "deficit_round_robin":
        raise ForetailError(f"{where} means nothing to {scheduler}: choose deficit_round_robin, or give []")
    if quanta and len(quanta) != queues:
        raise ForetailError(
            f"{where} has {len(quanta)} values for the {queues} queues of a port: give one for each, or []"
        )
