"""The buffer policies on unit packets in slots, written from the papers for reading, not for speed.

Credence (NSDI'24) sections 2 and 3: in a slot the arrivals come in order, then every non-empty port sends one packet.
A port has one queue for each priority, number ``port * priorities + priority``; `Scheduler` says which sends next.
Queues are lists of packet numbers, the longest is sought by looking at all of them. Nothing here knows the C++ library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.sim_bridge.slow_models.features import (
    Averages,
    TrackedQueues,
    TrafficFeatures,
    VirtualFeatures,
    exact_features,
)
from tests.sim_bridge.slow_models.lqd import LongestQueueDrop, Rules, Scheduler, Settings, serve
from tests.sim_bridge.slow_models.policies import ArtifactThresholds, DropTail, Expulsion, Guards, is_safe

ACCEPTED, OVER_THRESHOLD, PREDICTED, BUFFER_FULL, PUSHED_OUT = range(5)
RULES, SETTINGS = Rules(), Settings()


@dataclass
class SlottedRun:
    """What became of the packets, one entry each in order of arrival."""

    outcome: list[int] = field(default_factory=list)
    lqd_drop: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    features: list[list[int]] = field(default_factory=list)
    removed_at: dict[int, int] = field(default_factory=dict)  # packet -> the arrival that pushed it out
    lqd_dropped_at: dict[int, int] = field(default_factory=dict)
    transmitted: int = 0
    threshold_deficits: int = 0


def run_slotted(
    policy: str,
    ports: int,
    buffer: int,
    slots: Sequence[int],
    port_of: Sequence[int],
    predictions: Sequence[int] | None = None,
    first_rtt: Sequence[int] | None = None,
    priority: Sequence[int] | None = None,
    *,
    predictor: Callable[[list[int]], bool] | None = None,
    rules: Rules = RULES,
    settings: Settings = SETTINGS,
    safe: Callable[[int, int, int, int], bool] = is_safe,
) -> SlottedRun:
    """Run `policy` and, beside it on the same arrivals, LQD for labels and thresholds.

    `predictor` answers from the features of a packet, in cells of one packet, instead of `predictions`.
    """
    run = SlottedRun()
    priorities = settings.priorities
    queues: list[list[int]] = [[] for _ in range(ports * priorities)]  # of the drop-tail policies
    schedulers = [Scheduler(settings) for _ in range(ports)]
    own_lqd = LongestQueueDrop(ports, buffer, rules, settings)  # of policy lqd
    if policy == "lqd":
        queues, schedulers = own_lqd.queues, own_lqd.schedulers
    virtual = LongestQueueDrop(ports, buffer, rules, settings)
    artifact = ArtifactThresholds(ports, buffer, unit=1)
    averages = Averages(len(queues), settings)
    tracked = TrackedQueues(len(queues), buffer)
    seen = VirtualFeatures(len(queues), buffer, settings)
    traffic = TrafficFeatures(len(queues), settings)
    drop_tail = DropTail(policy, len(queues), buffer, settings)
    expulsion = Expulsion(buffer, [1.0] * ports, settings)
    guards = Guards(settings)

    def lengths() -> list[int]:
        return [len(queue) for queue in queues]

    def ask(packet: int) -> int:
        run.asked[packet] = 1
        if predictor is not None:
            return PREDICTED if predictor(run.features[packet]) else ACCEPTED
        return PREDICTED if predictions is not None and predictions[packet] else ACCEPTED

    def decide(packet: int, now: int, queue: int) -> int:
        length, occupied = len(queues[queue]), sum(lengths())
        if policy == "credence_artifact":
            answer = ACCEPTED
            if ports * max(lengths()) > buffer:
                answer = OVER_THRESHOLD if length + 1 > artifact.t[queue] else ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and not occupied + 1 < buffer else answer
        if policy == "learned":
            answer = ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and occupied + 1 > buffer else answer
        is_first = first_rtt is not None and first_rtt[packet] == 1
        if policy in ("credence", "guarded") and safe(max(lengths()), 1, len(queues), buffer):
            return ACCEPTED
        if policy in ("followlqd", "credence", "guarded"):
            within = length + 1 <= virtual.lengths()[queue]
        else:
            within = drop_tail.within(now, queue, 1, is_first, lengths(), averages)
        if occupied + 1 > buffer:
            return BUFFER_FULL
        if not within:
            return OVER_THRESHOLD
        if policy == "guarded" and not guards.spare(is_first):
            return PREDICTED if guards.allow(now, queue, 1, int(ask(packet) == PREDICTED)) else ACCEPTED
        return ask(packet) if policy == "credence" else ACCEPTED

    def take(queue: int) -> int:
        first = queues[queue].pop(0)
        schedulers[queue // priorities].removed(queue % priorities, len(queues[queue]))
        return first

    def expel() -> None:
        while (queue := expulsion.turn(lengths(), [len(packets) > 0 for packets in queues])) is not None:
            averages.before_change(queue, slot, lengths())
            victim = take(queue)
            expulsion.tokens -= 1
            run.outcome[victim] = PUSHED_OUT
            run.removed_at[victim] = packet

    packet = 0
    slot = 0
    while packet < len(slots) or sum(lengths()) > 0 or sum(virtual.lengths()) > 0:
        while packet < len(slots) and slots[packet] == slot:
            port = port_of[packet]
            queue = port * priorities + (0 if priority is None else priority[packet])
            run.asked.append(0)
            run.lqd_drop.append(0)
            before = virtual.lengths()
            traffic.arrive(slot, queue, 1)
            seen.averages.before_change(queue, slot, before)
            dropped = virtual.arrive(packet, queue)
            artifact.arrive(port, 1)
            if dropped is not None:
                victim, loser = dropped
                seen.averages.before_change(loser, slot, before)
                run.lqd_drop[victim] = 1
                run.lqd_dropped_at[victim] = packet
                seen.pushed_out[loser] = slot

            if policy == "occamy":
                expulsion.fill(slot)
                expel()
            averages.before_change(queue, slot, lengths())
            thresholds = virtual.lengths()
            run.exposed.append(0 if is_safe(max(lengths()), 1, len(queues), buffer) else 1)
            refused_by_lqd = dropped is not None and dropped[0] == packet
            if not refused_by_lqd and len(queues[queue]) + 1 > thresholds[queue]:
                run.threshold_deficits += 1
            run.features.append(
                [
                    len(queues[queue]),
                    averages.queue[queue].value(),
                    sum(lengths()),
                    averages.sum.value(),
                    *exact_features(queue, lengths(), buffer),
                    *tracked.read(queue, 1, lengths()),
                    *(0, 0),  # every packet may be lost
                    max(thresholds[queue] - len(queues[queue]), 0),
                    *seen.read(slot, queue, thresholds),
                    *traffic.read(queue),
                    0 if first_rtt is None else first_rtt[packet],
                    255,
                    *(65535, 0, 65535, 255),
                ]
            )

            if policy == "lqd":
                before = lengths()
                out = own_lqd.arrive(packet, queue)
                run.outcome.append(ACCEPTED)
                if out is not None:
                    victim, loser = out
                    averages.before_change(loser, slot, before)
                    run.outcome[victim] = BUFFER_FULL if victim == packet else PUSHED_OUT
                    run.removed_at[victim] = packet
            else:
                run.outcome.append(decide(packet, slot, queue))
                if run.outcome[packet] == ACCEPTED:
                    queues[queue].append(packet)
                    if policy == "occamy":
                        expel()
            assert sum(lengths()) <= buffer
            packet += 1

        for port in range(ports):  # the departure phase; its effects are seen from the next slot on
            sending = serve(schedulers[port], port, lengths())
            if sending is not None:
                averages.before_change(sending, slot + 1, lengths())
                take(sending)
                tracked.departed(sending, 1)
                artifact.depart(port, 1, not queues[sending])
                expulsion.departed += 1
                run.transmitted += 1
            sending = virtual.serve(port)
            if sending is not None:
                seen.averages.before_change(sending, slot + 1, virtual.lengths())
                virtual.remove(sending, virtual.queues[sending][0])
        slot += 1
    return run


def reduced(slots: Sequence[int], ports: Sequence[int], drop: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the sequence without the packets that are predicted to drop."""
    kept = [i for i in range(len(slots)) if not drop[i]]
    return [slots[i] for i in kept], [ports[i] for i in kept]


def parse(text: str) -> tuple[list[int], list[int]]:
    """Read slots as the papers print them: ``[222][112][]`` is three slots with the ports of their arrivals."""
    slots: list[int] = []
    ports: list[int] = []
    for slot, arrivals in enumerate(text.strip("[]").split("][")):
        for port in arrivals:
            slots.append(slot)
            ports.append(int(port))
    return slots, ports
