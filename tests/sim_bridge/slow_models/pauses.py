"""Priority flow control in a star, event by event and slow: a second implementation to hold the native network to.

Hosts send messages by RoCE without congestion control, at the rate of their link. One switch runs Dynamic Thresholds
at ingress for lossless queues. At one time, ports have sent first, in the order of ports; then frames arrive that pause
or resume, in the order in which the switch decided on them; then all else happens in the order in which it was
scheduled: the arrival of a packet when it becomes the first on its link.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

HEADER_BYTES, OVERHEAD_BYTES, PAUSE_BYTES = 40, 2, 64
SENT, PAUSED, ALL_ELSE = range(3)
"""What happens first at one time."""


@dataclass(frozen=True)
class Message:
    """One message, which is a queue pair of its own."""

    start_ns: int
    source: int
    destination: int
    size_bytes: int


@dataclass(frozen=True)
class Star:
    """The network: data is in queue 1 of a port, which is lossless, and answers are in `control`, 0 or 1."""

    hosts: int
    buffer_bytes: int  #: without headroom
    headroom_bytes: int  #: of each lossless queue at ingress
    pool_bytes: int  #: of headroom
    alpha: float
    xon_bytes: int
    xon_offset_bytes: int
    delay_ns: int
    control: int = 0
    lossless: tuple[int, ...] = (1,)
    bps: int = 10_000_000_000
    segment_bytes: int = 1400

    def time_ns(self, packet_bytes: int) -> int:
        """Time that a packet takes on a link."""
        return -(-(packet_bytes + OVERHEAD_BYTES) * 8 * 10**9 // self.bps)


@dataclass
class Packet:
    """Data of a message, or an answer to it."""

    message: int
    size: int
    queue: int
    source: int
    destination: int
    is_answer: bool
    payload: int = 0


@dataclass
class Port:
    """Two queues that take turns before one link, and what is on the link."""

    queues: tuple[deque[Packet], deque[Packet]] = field(default_factory=lambda: (deque(), deque()))
    last: int = 1
    paused: set[int] = field(default_factory=set)
    sending: Packet | None = None
    free_at_ns: int = 0
    on_link: deque[tuple[int, Packet]] = field(default_factory=deque)
    has_event: bool = False  #: for the packet that arrives next


@dataclass
class Card:
    """The network card of a host: queue pairs that have something to send."""

    turns: deque[int] = field(default_factory=deque)
    held: list[int] = field(default_factory=list)  #: their turn came while data was paused
    free_at_ns: int = 0
    waits: bool = False


@dataclass
class Ingress:
    """A queue at ingress: how many of its bytes are in the shared buffer, and how many in headroom."""

    shared: int = 0
    headroom: int = 0


class SlowPauses:
    """The run of some messages; :meth:`run` returns their completion times, -1 where one never ended."""

    def __init__(self, star: Star, messages: list[Message]) -> None:
        self.star, self.messages = star, messages
        self.events: list[tuple[int, int, tuple[int, int], Callable[[int], None]]] = []
        self.numbers, self.decisions = itertools.count(), itertools.count()
        self.interfaces = [Port() for _ in range(star.hosts)]
        self.ports = [Port() for _ in range(star.hosts)]
        self.cards = [Card() for _ in range(star.hosts)]
        self.ingress = {(port, queue): Ingress() for port in range(star.hosts) for queue in range(2)}
        self.paused: list[tuple[int, int]] = []  #: queues at ingress, in the order in which they were paused
        self.shared_bytes = self.headroom_bytes = self.most_headroom_bytes = 0
        self.pauses = self.resumes = self.drops = 0
        self.seen: list[tuple[int, int]] = []  #: lossless bytes and paused queues that each data packet finds
        self.unsent = [message.size_bytes for message in messages]
        self.missing = [message.size_bytes for message in messages]
        self.ended_ns = [-1] * len(messages)
        for number, message in enumerate(messages):
            self.later(message.start_ns, partial(self.begin, number))

    def run(self) -> list[int]:
        """Let everything happen."""
        while self.events and -1 in self.ended_ns:
            now, _, _, happens = heapq.heappop(self.events)
            happens(now)
        pairs = zip(self.ended_ns, self.messages, strict=True)
        return [end - message.start_ns if end >= 0 else -1 for end, message in pairs]

    def later(self, time_ns: int, happens: Callable[[int], None]) -> None:
        """Schedule what has no rule of its own."""
        heapq.heappush(self.events, (time_ns, ALL_ELSE, (next(self.numbers), 0), happens))

    # Hosts.

    def begin(self, message: int, now: int) -> None:
        """A message is given to the card of its host."""
        host = self.messages[message].source
        self.cards[host].turns.append(message)
        self.hand_over(host, self.sent_by_card(host, now), now)

    def sent_by_card(self, host: int, now: int) -> list[Packet]:
        """What a card sends now; it schedules the end of the packet if anybody waits for it."""
        card, sent = self.cards[host], []
        while card.turns:
            if now < card.free_at_ns:
                if not card.waits:
                    self.later(card.free_at_ns, partial(self.card_is_free, host))
                card.waits = True
                break
            number = card.turns.popleft()
            if 1 in self.interfaces[host].paused:
                card.held.append(number)
                continue
            payload = min(self.star.segment_bytes, self.unsent[number])
            size, message = payload + HEADER_BYTES, self.messages[number]
            sent.append(Packet(number, size, 1, host, message.destination, is_answer=False, payload=payload))
            card.free_at_ns = now + self.star.time_ns(size)
            self.unsent[number] -= payload
            if self.unsent[number] > 0:
                card.turns.append(number)
        return sent

    def card_is_free(self, host: int, now: int) -> None:
        """The next queue pair has its turn."""
        self.cards[host].waits = False
        self.hand_over(host, self.sent_by_card(host, now), now)

    def hand_over(self, host: int, packets: list[Packet], now: int) -> None:
        """Packets go to the interface of a host."""
        for packet in packets:
            self.interfaces[host].queues[packet.queue].append(packet)
            self.start(self.interfaces[host], now, partial(self.host_has_sent, host), (0, host))
            self.schedule(self.interfaces[host], now, partial(self.reaches_switch, host))

    def host_has_sent(self, host: int, now: int) -> None:
        """The last bit of a packet has left a host."""
        self.take_sent(self.interfaces[host], now)
        self.start(self.interfaces[host], now, partial(self.host_has_sent, host), (0, host))

    def reaches_host(self, host: int, now: int) -> None:
        """A packet arrives: data is counted and answered, an answer changes nothing."""
        port = self.ports[host]
        packet = self.take_arrived(port)
        self.schedule(port, now, partial(self.reaches_host, host))
        if packet.is_answer:
            return
        queue, source = self.star.control, packet.source
        answer = Packet(packet.message, HEADER_BYTES, queue, host, source, is_answer=True)
        self.missing[packet.message] -= packet.payload
        if self.missing[packet.message] == 0:
            self.ended_ns[packet.message] = now
        self.hand_over(host, [answer], now)

    def is_told(self, host: int, queue: int, *, on: bool, now: int) -> None:
        """A frame has come that pauses a queue of a host, or lets it go on."""
        interface, card = self.interfaces[host], self.cards[host]
        (interface.paused.add if on else interface.paused.discard)(queue)
        self.start(interface, now, partial(self.host_has_sent, host), (0, host))
        self.schedule(interface, now, partial(self.reaches_switch, host))
        if queue == 1 and not on:
            card.turns.extend(card.held)
            card.held.clear()
            self.hand_over(host, self.sent_by_card(host, now), now)

    # The switch.

    def reaches_switch(self, host: int, now: int) -> None:
        """A packet of a host arrives at its port."""
        interface = self.interfaces[host]
        packet = self.take_arrived(interface)
        self.schedule(interface, now, partial(self.reaches_switch, host))
        queue = self.ingress[host, packet.queue]
        if not packet.is_answer:
            of_lossless = [one for (_, number), one in self.ingress.items() if number in self.star.lossless]
            self.seen.append((sum(one.shared + one.headroom for one in of_lossless), len(self.paused)))
        if packet.queue in self.star.lossless:
            key = (host, packet.queue)
            full = self.shared_bytes + packet.size > self.star.buffer_bytes
            if key not in self.paused and (self.is_too_long(queue, 0) or full):
                self.paused.append(key)
                self.pauses += 1
                self.tell(key, now, on=True)
            if key in self.paused:
                if (
                    queue.headroom + packet.size > self.star.headroom_bytes
                    or self.headroom_bytes + packet.size > self.star.pool_bytes
                ):
                    self.drops += 1
                    return
                queue.headroom += packet.size
                self.headroom_bytes += packet.size
                self.most_headroom_bytes = max(self.most_headroom_bytes, self.headroom_bytes)
            else:
                queue.shared += packet.size
                self.shared_bytes += packet.size
        else:
            if self.shared_bytes + packet.size > self.star.buffer_bytes:
                return
            queue.shared += packet.size
            self.shared_bytes += packet.size
        out = packet.destination
        self.ports[out].queues[packet.queue].append(packet)
        self.start(self.ports[out], now, partial(self.switch_has_sent, out), (1, out))
        self.schedule(self.ports[out], now, partial(self.reaches_host, out))

    def is_too_long(self, queue: Ingress, reserve: int) -> bool:
        """Whether a queue at ingress with some bytes more would be at its threshold."""
        return queue.shared + reserve >= self.star.alpha * (self.star.buffer_bytes - self.shared_bytes)

    def switch_has_sent(self, port: int, now: int) -> None:
        """The last bit of a packet has left a port; headroom is free before the shared buffer."""
        packet = self.take_sent(self.ports[port], now)
        self.start(self.ports[port], now, partial(self.switch_has_sent, port), (1, port))
        queue = self.ingress[packet.source, packet.queue]
        of_headroom = min(queue.headroom, packet.size)
        queue.headroom -= of_headroom
        self.headroom_bytes -= of_headroom
        queue.shared -= packet.size - of_headroom
        self.shared_bytes -= packet.size - of_headroom
        for key in list(self.paused):
            if self.has_room_again(self.ingress[key]):
                self.paused.remove(key)
                self.resumes += 1
                self.tell(key, now, on=False)

    def has_room_again(self, queue: Ingress) -> bool:
        """Whether the sender of a queue at ingress may go on."""
        star = self.star
        if queue.headroom > 0:
            return False
        fits = self.shared_bytes + star.xon_offset_bytes <= star.buffer_bytes
        return queue.shared <= star.xon_bytes or (fits and not self.is_too_long(queue, star.xon_offset_bytes))

    def tell(self, key: tuple[int, int], now: int, *, on: bool) -> None:
        """Send a frame that pauses or resumes, after the packet that the port is sending."""
        host, queue = key
        port = self.ports[host]
        leaves = max(now, port.free_at_ns) if port.sending else now
        arrives = leaves + self.star.time_ns(PAUSE_BYTES) + self.star.delay_ns
        told = (arrives, PAUSED, (next(self.decisions), 0), lambda then: self.is_told(host, queue, on=on, now=then))
        heapq.heappush(self.events, told)

    # Ports of both.

    def start(self, port: Port, now: int, has_sent: Callable[[int], None], place: tuple[int, int]) -> None:
        """Send the next packet, unless one is being sent: queues take turns."""
        ready = [queue for queue in (1 - port.last, port.last) if port.queues[queue] and queue not in port.paused]
        if port.sending or not ready:
            return
        port.last = ready[0]
        port.sending = port.queues[port.last].popleft()
        port.free_at_ns = now + self.star.time_ns(port.sending.size)
        heapq.heappush(self.events, (port.free_at_ns, SENT, place, has_sent))

    def take_sent(self, port: Port, now: int) -> Packet:
        """Move the packet that a port has sent onto its link."""
        packet, port.sending = port.sending, None
        assert packet
        port.on_link.append((now + self.star.delay_ns, packet))
        return packet

    def take_arrived(self, port: Port) -> Packet:
        """Take the first packet from a link."""
        port.has_event = False
        return port.on_link.popleft()[1]

    def schedule(self, port: Port, now: int, arrives: Callable[[int], None]) -> None:
        """Schedule the arrival of the first packet on a link, if that has not been done."""
        if port.has_event or not (port.on_link or port.sending):
            return
        port.has_event = True
        time_ns = port.on_link[0][0] if port.on_link else port.free_at_ns + self.star.delay_ns
        self.later(max(time_ns, now), arrives)
