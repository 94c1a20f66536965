"""What every workload is: parameters, and a stream of batches that depends on them and on the seed alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.plugins import is_foreign, require, running
from foretail.sim_bridge.arrivals.slotted import Slotted

BATCH_PACKETS = 2**18
"""Packets of a batch unless the caller says otherwise: 3 MB, so that a batch stays in the cache."""
CHUNK_PACKETS = 2**16
"""Packets that a generator makes at a time, about. No parameter: the packets of a seed depend on it."""


@dataclass(frozen=True)
class Workload(ABC):
    """A way to make arrivals; its fields are its parameters.

    Nothing but the seed and the fields decides the packets: two calls of `batches` with the same arguments yield the
    same packets, and the size of the batches only says where they are cut. What is held in memory does not grow with
    the number of slots.
    """

    def batches(
        self, ports: int, buffer: int, slots: int, seed: int, *, batch_packets: int = BATCH_PACKETS
    ) -> Iterator[Slotted]:
        """Yield the arrivals of slots 0 to `slots` - 1 in order.

        ForetailError at the call, not at the first batch, when an argument is out of range or does not suit the
        workload.

        Parameters
        ----------
        ports : N, the number of output ports of the switch, at least 1
        buffer : B in packets, at least 1
        slots : how many slots, at least 1; the last ones may be without arrivals
        seed : at least 0; workloads without chance ignore it
        batch_packets : every batch but the last has this many packets, and the last has at least one
        """
        for name, value, least in (
            ("ports", ports, 1),
            ("buffer", buffer, 1),
            ("slots", slots, 1),
            ("seed", seed, 0),
            ("batch_packets", batch_packets, 1),
        ):
            at_least(least, **{name: value})
        with running(self, "check"):
            self.check(ports, buffer)
        return rebatched(self._checked_chunks(ports, buffer, slots, np.random.default_rng(seed)), batch_packets)

    def _checked_chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """The chunks; those of a plug-in have their order and their ranges checked."""
        if not is_foreign(type(self)):
            yield from self.chunks(ports, buffer, slots, draw)
            return
        last = 0
        with running(self, "chunks"):
            for chunk in self.chunks(ports, buffer, slots, draw):
                sizes = f"{len(chunk.slot)} and {len(chunk.port)}"
                require(self, len(chunk.slot) == len(chunk.port), "slot and port must be equally long", sizes)
                for name, values, kind, end in (
                    ("slot", chunk.slot, np.int64, slots),
                    ("port", chunk.port, np.int32, ports),
                ):
                    require(self, values.dtype == kind, f"{name} must be {kind.__name__}", str(values.dtype))
                    outside = values[(values < 0) | (values >= end)]
                    require(self, not len(outside), f"{name} must be in [0, {end})", str(outside[:1]))
                back = np.flatnonzero(np.diff(chunk.slot, prepend=last) < 0)
                require(self, not len(back), "slots must never decrease", f"{chunk.slot[back[:1]]} after a later one")
                last = int(chunk.slot[-1]) if len(chunk) else last
                yield chunk

    def check(self, ports: int, buffer: int) -> None:  # noqa: B027  (most workloads suit every switch)
        """Raise ForetailError where this workload does not suit such a switch."""

    @abstractmethod
    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the packets in chunks of any size, some of them perhaps empty; `batches` cuts them."""


def rebatched(chunks: Iterator[Slotted], batch_packets: int) -> Iterator[Slotted]:
    """Yield the packets of `chunks` in batches of `batch_packets`, the last with what is left."""
    waiting: list[Slotted] = []
    count = 0
    for chunk in chunks:
        at = 0
        while len(chunk) - at >= batch_packets - count:
            upto = at + batch_packets - count
            yield joined([*waiting, part(chunk, at, upto)])
            waiting, count, at = [], 0, upto
        if at < len(chunk):
            waiting.append(part(chunk, at, len(chunk)))
            count += len(chunk) - at
    if waiting:
        yield joined(waiting)


def part(batch: Slotted, start: int, stop: int) -> Slotted:
    """Return packets `start` to `stop` - 1 as a view."""
    prediction = None if batch.prediction is None else batch.prediction[start:stop]
    return Slotted(batch.slot[start:stop], batch.port[start:stop], prediction)


def joined(batches: list[Slotted]) -> Slotted:
    """Return one batch of all packets: all of the batches have predictions or none has."""
    if len(batches) == 1:
        return batches[0]
    predictions = [batch.prediction for batch in batches if batch.prediction is not None]
    return Slotted(
        np.concatenate([batch.slot for batch in batches]),
        np.concatenate([batch.port for batch in batches]),
        np.concatenate(predictions) if predictions else None,
    )


def upto(slots: int, slot: NDArray[np.int64], port: NDArray[np.int32]) -> Slotted:
    """Return the packets of the first `slots` slots; `slot` never decreases."""
    count = int(np.searchsorted(slot, slots))
    return Slotted(slot[:count], port[:count])


def periodic(
    first: int, period: int, slot: NDArray[np.int64], port: NDArray[np.int32], slots: int
) -> Iterator[Slotted]:
    """Repeat a pattern for ever from slot `first` on, one repetition every `period` slots, until `slots`.

    `slot` counts from the start of the repetition and stays below `period`.
    """
    repetitions = max(1, CHUNK_PACKETS // len(slot))
    while first < slots:
        starts = first + period * np.arange(repetitions, dtype=np.int64)
        yield upto(slots, (starts[:, None] + slot).ravel(), np.tile(port, repetitions))
        first += period * repetitions


def at_least(least: int, **arguments: int) -> None:
    """Raise ForetailError, by name, for an argument that is not a whole number or is below `least`."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ForetailError(f"{name} must be a whole number of at least {least}, not {value!r}")


def positive(limit: float = math.inf, **arguments: float) -> None:
    """Raise ForetailError, by name, for an argument that is not above 0, is above `limit` or is not finite."""
    for name, value in arguments.items():
        if not (0 < value <= limit and math.isfinite(value)):
            most = "" if limit == math.inf else f" and at most {limit:g}"
            raise ForetailError(f"{name} must be above 0{most}, not {value!r}")


def one_of(names: tuple[str, ...], **arguments: str) -> None:
    """Raise ForetailError, by name, for an argument that is none of `names`."""
    for name, value in arguments.items():
        if value not in names:
            raise ForetailError(f"{name} must be one of {', '.join(names)}, not {value!r}")
