"""The buffer policies on packets of any size in nanoseconds, written for reading, not for speed.

Every port sends at its line rate, from the queue that `Scheduler` says, each queue first in, first out; a packet
holds its bytes until its last bit has left; what leaves at time t has left before an arrival at time t. The packet
being sent is not a victim. Control packets share the buffer and count in their queue, but are never victims.
Nothing here knows the C++ library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foretail.sim_bridge.policy_settings import NetworkParameters
from tests.sim_bridge.slow_models.features import (
    Averages,
    TrackedQueues,
    TrafficFeatures,
    VirtualFeatures,
    exact_features,
)
from tests.sim_bridge.slow_models.lqd import Rules, Scheduler, Settings, loser_of, spares_higher
from tests.sim_bridge.slow_models.policies import ArtifactThresholds, DropTail, Expulsion, Guards, is_safe
from tests.sim_bridge.slow_models.slotted import ACCEPTED, BUFFER_FULL, OVER_THRESHOLD, PREDICTED, PUSHED_OUT


@dataclass(frozen=True)
class Packet:
    """One arrival of a byte trace."""

    row: int
    time_ns: int
    port: int
    size: int
    data: bool = True
    first_rtt: bool = False
    priority: int = 0
    message_left: int = 255  # in cells; 255: as much or more, or nobody says


@dataclass(frozen=True)
class Geometry:
    """One switch: its shared buffer, its line rates, and the bytes that every packet adds on the wire only."""

    buffer: int
    rates_bps: tuple[int, ...]
    overhead: int = 0

    @property
    def ports(self) -> int:
        return len(self.rates_bps)


@dataclass
class ByteRun:
    """What became of the packets, one entry each in order of arrival, and what was sent when all have left."""

    outcome: list[int] = field(default_factory=list)
    lqd_drop: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    features: list[list[int]] = field(default_factory=list)
    removed_at: dict[int, int] = field(default_factory=dict)  # row -> row of the arrival that pushed it out
    lqd_dropped_at: dict[int, int] = field(default_factory=dict)
    transmitted_bytes: int = 0
    transmitted_packets: int = 0
    threshold_deficits: int = 0


class Queues:
    """First in, first out queues, one or several to a port, over line rates."""

    def __init__(self, geometry: Geometry, averages: Averages, settings: Settings, cell_bytes: int = 256) -> None:
        self.geometry = geometry
        self.settings = settings
        self.cell_bytes = cell_bytes  # of what packets say is left of their messages
        self.priorities = priorities = settings.priorities
        self.averages = averages
        self.packets: list[list[Packet]] = [[] for _ in range(geometry.ports * priorities)]
        self.done: list[int | None] = [None] * geometry.ports  # when the packet being sent, if any, will have left
        self.schedulers = [Scheduler(settings) for _ in range(geometry.ports)]
        self.served = [0] * geometry.ports  # the priority of the packet being sent
        self.sent: list[Packet] = []
        self.artifact = ArtifactThresholds(geometry.ports, geometry.buffer, unit=1500)
        self.tracked = TrackedQueues(len(self.packets), geometry.buffer, averages.cell_bytes)
        self.expulsion = Expulsion(geometry.buffer, [bps / 8e9 for bps in geometry.rates_bps], settings)

    def lengths(self) -> list[int]:
        return [sum(packet.size for packet in queue) for queue in self.packets]

    def occupancy(self) -> int:
        return sum(self.lengths())

    def start(self, port: int, now: int) -> None:
        """Begin sending the next packet of a port that sends nothing."""
        of_port = self.packets[port * self.priorities : (port + 1) * self.priorities]
        if self.done[port] is not None:
            return
        priority = self.schedulers[port].next([queue[0].size if queue else None for queue in of_port])
        if priority is not None:
            self.served[port] = priority
            bits = 8 * (self.packets[port * self.priorities + priority][0].size + self.geometry.overhead)
            self.done[port] = now + -(-bits * 10**9 // self.geometry.rates_bps[port])  # rounded up to whole ns

    def advance(self, now: int | None) -> None:
        """Send all that has left by `now`; None = everything."""
        while True:
            leaving = [(done, port) for port, done in enumerate(self.done) if done is not None]
            if not leaving or (now is not None and min(leaving)[0] > now):
                return
            time, port = min(leaving)
            queue = port * self.priorities + self.served[port]
            self.averages.before_change(queue, time, self.lengths())
            packet = self.packets[queue][0]
            self.take(packet)
            self.sent.append(packet)
            self.tracked.departed(queue, packet.size)
            self.artifact.depart(port, packet.size, not self.packets[queue])
            self.expulsion.departed += packet.size
            self.done[port] = None
            self.start(port, time)

    def queue_of(self, packet: Packet) -> int:
        return packet.port * self.priorities + packet.priority

    def take(self, packet: Packet) -> None:
        """Remove a packet."""
        queue = self.packets[self.queue_of(packet)]
        queue.remove(packet)
        self.schedulers[packet.port].removed(packet.priority, len(queue))

    def victims(self, queue: int) -> list[Packet]:
        """Packets that may be pushed out of a queue, in their order."""
        port, priority = divmod(queue, self.priorities)
        sending = self.done[port] is not None and self.served[port] == priority
        return [packet for packet in self.packets[queue][int(sending) :] if packet.data]

    def spares(self, packet: Packet) -> bool:
        """Whether Occamy takes the packet for one of the last of its message."""
        return packet.message_left * self.cell_bytes <= self.settings.spared

    def expellable(self, queue: int) -> list[Packet]:
        """Packets that Occamy may expel, the next one first: the head; or, if it spares some, those with most left."""
        if self.settings.spared < 0:
            return self.victims(queue)
        others = [packet for packet in reversed(self.victims(queue)) if not self.spares(packet)]
        return sorted(others, key=lambda packet: octaves(packet.message_left * self.cell_bytes), reverse=True)

    def expel(self, now: int) -> list[Packet]:
        """Let Occamy's engine remove what it may; return that."""
        gone: list[Packet] = []
        everywhere = range(len(self.packets))

        def turn() -> int | None:
            return self.expulsion.turn(self.lengths(), [bool(self.expellable(one)) for one in everywhere])

        while (queue := turn()) is not None:
            self.averages.before_change(queue, now, self.lengths())
            gone.append(self.expellable(queue)[0])
            self.take(gone[-1])
            self.expulsion.tokens -= gone[-1].size
        return gone


def octaves(left: int) -> int:
    """How much is left of a message in 8 bits: floor of log2 in eighths, rounded down on chords, at least 1."""
    octave = left.bit_length() - 1
    return min(max(8 * octave + (8 * left // (1 << octave) - 8), 1), 255)


def tag(packet: Packet, rules: Rules) -> int:
    """The higher, the sooner the packet is pushed out."""
    return packet.message_left if rules.victim == "most_left" else int(not packet.first_rtt)


def occamy_admit(queues: Queues, packet: Packet) -> tuple[list[Packet], bool]:
    """Admit a packet under Occamy; return who had to go, and whether the arrival was let in."""
    queue, now, buffer = queues.queue_of(packet), packet.time_ns, queues.geometry.buffer
    queues.expulsion.fill(now)
    gone = queues.expel(now)
    free = buffer - queues.occupancy()
    alpha = queues.expulsion.settings.alpha_of(queue)
    if packet.size > free or (packet.data and queues.lengths()[queue] >= alpha * free):
        return [*gone, packet], False
    queues.packets[queue].append(packet)
    queues.start(packet.port, now)
    return gone + queues.expel(now), True


def lqd_admit(queues: Queues, packet: Packet, rules: Rules) -> list[Packet]:
    """Admit a packet under Longest Queue Drop; return who had to go, the arrival itself included."""
    buffer = queues.geometry.buffer
    gone: list[Packet] = []
    if packet.size > buffer:
        return [packet]
    own = queues.queue_of(packet)
    if rules.counting == "counted":
        queues.packets[own].append(packet)
    extra = 0 if rules.counting == "counted" else packet.size
    while queues.occupancy() + extra > buffer:
        lengths = [length if queues.victims(queue) else -1 for queue, length in enumerate(queues.lengths())]
        if rules.order == "any_queue":
            highest = max((tag(packet, rules) for q in range(len(lengths)) for packet in queues.victims(q)), default=0)
            has_one = [any(tag(packet, rules) == highest for packet in queues.victims(q)) for q in range(len(lengths))]
            lengths = [length if has else -1 for length, has in zip(lengths, has_one, strict=True)]
        loser = loser_of(lengths, rules, queues.priorities)
        candidates = queues.victims(loser)
        if not candidates:
            if rules.counting == "counted":
                queues.take(packet)
            return [*gone, packet]
        if rules.counting == "uncounted" and packet.data and spares_higher(rules, queues.priorities, loser, own):
            return [*gone, packet]
        if rules.victim == "head":
            victim = candidates[0]
        elif rules.victim == "tail":
            victim = candidates[-1]
        elif rules.victim in ("spare_first_rtt", "most_left"):
            victim = [c for c in candidates if tag(c, rules) == max(tag(other, rules) for other in candidates)][-1]
        else:
            victim = [*[c for c in candidates if c == packet], *[c for c in candidates if c != packet]][-1]
        if victim != packet:
            queues.averages.before_change(loser, packet.time_ns, queues.lengths())
        queues.take(victim)
        gone.append(victim)
        if victim == packet:
            return gone
    if rules.counting == "uncounted":
        queues.packets[own].append(packet)
    queues.start(packet.port, packet.time_ns)
    return gone


def run_bytes(
    policy: str,
    geometry: Geometry,
    packets: Sequence[Packet],
    predictions: Sequence[int] | None = None,
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    cell_bytes: int = 256,
) -> ByteRun:
    """Run `policy` over one switch and, beside it on the same arrivals, the packet-exact virtual LQD or Occamy."""
    run = ByteRun()
    ports, buffer, priorities = geometry.ports, geometry.buffer, settings.priorities
    real = Queues(geometry, Averages(ports * priorities, settings, cell_bytes), settings, cell_bytes)
    seen = VirtualFeatures(ports * priorities, buffer, settings, cell_bytes, tick=1024)
    traffic = TrafficFeatures(ports * priorities, settings, cell_bytes)
    literature = replace(
        settings,
        alpha=(rules.oracle_alpha,),
        spare_bandwidth=NetworkParameters.spare_bandwidth,
        bucket=NetworkParameters.bucket_bytes,
        spared=-1,
    )
    virtual = Queues(geometry, seen.averages, literature)
    drop_tail = DropTail(policy, ports * priorities, buffer, settings)
    guards = Guards(settings)

    def ask(packet: Packet) -> int:
        run.asked[packet.row] = 1
        return PREDICTED if predictions is not None and predictions[packet.row] else ACCEPTED

    def decide(packet: Packet, queue: int) -> int:
        lengths, occupied = real.lengths(), real.occupancy()
        full = occupied + packet.size > buffer
        if not packet.data:
            return BUFFER_FULL if full else ACCEPTED
        if policy == "credence_artifact":
            answer = ACCEPTED
            if ports * max(lengths) > buffer:
                answer = OVER_THRESHOLD if lengths[queue] + packet.size > real.artifact.t[packet.port] else ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and not occupied + packet.size < buffer else answer
        if policy == "learned":
            answer = ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and full else answer
        if policy in ("credence", "guarded") and is_safe(max(lengths), packet.size, ports * priorities, buffer):
            return ACCEPTED
        if policy in ("followlqd", "credence", "guarded"):
            within = lengths[queue] + packet.size <= virtual.lengths()[queue]
        else:
            within = drop_tail.within(packet.time_ns, queue, packet.size, packet.first_rtt, lengths, real.averages)
            within = within or (policy == "occamy" and real.spares(packet))
        if full:
            return BUFFER_FULL
        if not within:
            return OVER_THRESHOLD
        if policy == "guarded" and not guards.spare(packet.first_rtt):
            allowed = guards.allow(packet.time_ns, queue, packet.size, int(ask(packet) == PREDICTED))
            return PREDICTED if allowed else ACCEPTED
        return ask(packet) if policy == "credence" else ACCEPTED

    def expel(arrival: Packet) -> None:
        for victim in real.expel(arrival.time_ns):
            run.outcome[victim.row] = PUSHED_OUT
            run.removed_at[victim.row] = arrival.row

    for packet in packets:
        port, now = packet.port, packet.time_ns
        queue = port * priorities + packet.priority
        real.advance(now)
        virtual.advance(now)
        run.asked.append(0)
        run.lqd_drop.append(0)
        traffic.arrive(now, queue, packet.size)
        virtual.averages.before_change(queue, now, virtual.lengths())
        if rules.oracle == "occamy":
            gone, let_in = occamy_admit(virtual, packet)
        else:
            gone = lqd_admit(virtual, packet, rules)
            let_in = packet not in gone
        for victim in gone:
            run.lqd_drop[victim.row] = 1
            run.lqd_dropped_at[victim.row] = packet.row
            seen.pushed_out[virtual.queue_of(victim)] = now

        real.artifact.arrive(port, packet.size)
        if policy == "occamy":
            real.expulsion.fill(now)
            expel(packet)
        real.averages.before_change(queue, now, real.lengths())
        length, threshold = real.lengths()[queue], virtual.lengths()[queue]
        run.exposed.append(0 if is_safe(max(real.lengths()), packet.size, ports * priorities, buffer) else 1)
        if packet.data and let_in and length + packet.size > threshold:
            run.threshold_deficits += 1
        run.features.append(
            [
                length // cell_bytes,
                real.averages.queue[queue].value(),
                real.occupancy() // cell_bytes,
                real.averages.sum.value(),
                *exact_features(queue, real.lengths(), buffer, cell_bytes),
                *real.tracked.read(queue, packet.size, real.lengths()),
                *(0, 0),  # every packet may be lost
                max(threshold - length, 0) // cell_bytes,
                *seen.read(now, queue, virtual.lengths()),
                *traffic.read(queue),
                int(packet.first_rtt),
                packet.message_left,
                65535,  # no circuit
                *(0, 65535, 255),  # nobody counts flows
            ]
        )

        if policy == "lqd":
            run.outcome.append(ACCEPTED)
            for victim in lqd_admit(real, packet, rules):
                run.outcome[victim.row] = BUFFER_FULL if victim == packet else PUSHED_OUT
                run.removed_at[victim.row] = packet.row
        else:
            run.outcome.append(decide(packet, queue))
            if run.outcome[packet.row] == ACCEPTED:
                real.packets[queue].append(packet)
                real.start(port, now)
                if policy == "occamy":
                    expel(packet)
        assert real.occupancy() <= buffer
        assert virtual.occupancy() <= buffer

    real.advance(None)
    sent = [packet for packet in real.sent if packet.data]
    run.transmitted_bytes = sum(packet.size for packet in sent)
    run.transmitted_packets = len(sent)
    return run
