"""A complete P4 program around an exported predictor: a small switch whose virtual LQD runs in BMv2's registers.

It is the one second writing of the virtual LQD that the design allows, because v1model shows no queue depth in ingress:
packets say when, where and how large a packet arrives, and come back with the features, the score and the decision.

What is modelled, bit for bit as ``VirtualLqd`` in ``virtual_lqd.hpp``: one queue per port packet by
packet, departures at line rate (nanoseconds, rounded up, wire overhead included) in order of time and then port,
push-outs of Longest Queue Drop by the house rules (the arrival counted in its queue, ties to the lowest port, the tail
is the victim, the packet being sent is not), the averages, and every virtual feature of the catalog.

What is not: control packets, which share the buffer but are never victims (an arrival says time, port and size only);
other rules of LQD; more than one priority; the features of the policy's own queues and the policy itself. The program
is for BMv2: it reads registers several times in a pass, and it resubmits a packet once per departure and push-out,
which only keeps the order on a target that finishes a resubmitted packet before it takes the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.folder import check_name, environment
from foretail.export.p4.encoding import score_bits
from foretail.export.p4.text import CONTROL
from foretail.features.catalog import TICK_NS, VALUE_BITS, VIRTUAL_FEATURES, arithmetic_of, feature
from foretail.models.ensemble.ensemble import Ensemble

MAX_PORTS = 8
"""The program writes out every port: P4 has no loops."""

MAX_SLOTS = 1 << 16
"""Packets that one queue can hold."""

ETHERTYPE = 0x88B5
"""Type of a frame that carries an arrival; IEEE 802 reserves it for local experiments."""

ARRIVAL = np.dtype([("time_ns", ">u8"), ("port", "u1"), ("size_bytes", ">u2"), ("report", "u1")])
"""Fields behind the Ethernet header of a request: times never decrease, up to 2**62; `report` 1 asks for registers."""

STATUSES = ("ANSWERED", "NO_SUCH_PORT", "TOO_SMALL", "BAD_TIME")
"""Meanings of `status` in an answer; an arrival that is not answered changes no register."""

ANSWER = np.dtype(
    [
        ("status", "u1"),
        ("drop", "u1"),  # the predictor's decision
        ("kept", "u1"),  # whether the arrival got into its virtual queue
        ("events", ">u4"),  # departures and push-outs that were settled first
        ("score", ">i8"),
        *((name, ">u4") for name in VIRTUAL_FEATURES),
    ]
)
"""Fields behind the arrival in a reply: features in the units of the catalog."""

TOTALS = np.dtype([("occupancy", ">u4"), ("average", ">u8"), ("average_time", ">u8")])
"""Fields behind the answer to a request for registers: bytes; cells with 8 fractional bits; ns."""

QUEUE = np.dtype(
    [
        ("length", ">u4"),
        ("packets", ">u4"),
        ("busy_until", ">u8"),
        ("average", ">u8"),
        ("average_time", ">u8"),
        ("push_out_time", ">u8"),
        ("pushed_out", "u1"),
    ]
)
"""One per port after the totals: bytes; packets; ns, of queues with packets; as TOTALS; ns; 1 once it has happened."""


@dataclass(frozen=True)
class DemoSwitch:
    """The switch that a demo program imitates; ForetailError on a value out of its range."""

    buffer_bytes: int  #: shared buffer, 1 to 2**30
    port_rates_bps: tuple[int, ...]  #: bits per second of each of 1 to 8 ports, 1000 to 10**15
    wire_overhead_bytes: int = 38  #: bytes per packet that travel but use no buffer, 0 to 256
    #: smaller packets are not answered; with the buffer it bounds the packets of a queue, at most 65,536
    smallest_packet_bytes: int = 64

    def __post_init__(self) -> None:
        if not 1 <= len(self.port_rates_bps) <= MAX_PORTS:
            raise ForetailError(
                f"the demo switch has {len(self.port_rates_bps)} ports: its program writes out every port, "
                f"give it 1 to {MAX_PORTS}"
            )
        _between("buffer_bytes", self.buffer_bytes, 1, 1 << 30)
        _between("wire_overhead_bytes", self.wire_overhead_bytes, 0, 256)
        _between("smallest_packet_bytes", self.smallest_packet_bytes, 1, (1 << 16) - 1)
        for bps in self.port_rates_bps:
            _between("a rate of port_rates_bps", bps, 1000, 10**15)
        if self.buffer_bytes // self.smallest_packet_bytes > MAX_SLOTS:
            raise ForetailError(
                f"a buffer of {self.buffer_bytes} bytes holds more than {MAX_SLOTS} packets of "
                f"{self.smallest_packet_bytes} bytes: use a smaller buffer or a larger smallest packet"
            )

    @property
    def slots(self) -> int:
        """Packets that the program has room for in every queue: a power of two that the buffer cannot exceed."""
        return 1 << (max(self.buffer_bytes // self.smallest_packet_bytes, 1) - 1).bit_length()


@dataclass(frozen=True)
class _Link:
    """A line rate without division: ``(size * slope + offset) * reciprocal >> shift`` ns for sizes below 2**16."""

    slope: int
    offset: int
    reciprocal: int
    shift: int

    @classmethod
    def of(cls, bps: int, overhead: int) -> _Link:
        common = gcd(8 * 10**9, bps)
        slope, divisor = 8 * 10**9 // common, bps // common
        offset = overhead * slope + divisor - 1  # rounds the quotient up
        largest = ((1 << 16) - 1) * slope + offset
        for shift in range(64):
            reciprocal = -(-(1 << shift) // divisor)
            if largest * reciprocal >= 1 << 64:
                break
            # y * reciprocal / 2**shift exceeds y / divisor by less than 1 / divisor: both have the same floor.
            if largest * (reciprocal * divisor - (1 << shift)) < 1 << shift:
                return cls(slope, offset, reciprocal, shift)
        raise ForetailError(f"a rate of {bps} bit/s has no exact reciprocal in 64 bits: use a whole number of Mbit/s")


def render_demo(
    ensemble: Ensemble, switch: DemoSwitch, name: str = "drop_predictor", control: str = CONTROL
) -> dict[str, str]:
    """Return the demo program around the predictor in ``<name>.p4``, which is the control `control`.

    The ensemble is the predictor's, with votes: of virtual features only, with one cell size and one average.
    ForetailError on a feature that the program cannot compute, features of different arithmetic, values that do not
    fit, or an ensemble without votes. Returns file name -> text: ``<name>_demo.p4``, P4_16 for v1model.
    """
    check_name(name)
    ensemble.require_votes()
    cell_bytes, average_shift = _arithmetic(ensemble)
    cells = switch.buffer_bytes // cell_bytes
    ports = len(switch.port_rates_bps)
    for given in ensemble.features:
        unit = feature(given.name).unit
        largest = {"cells": cells, "queues": ports, "us": (1 << VALUE_BITS) - 1}[unit]
        if largest >= 1 << given.bits:
            raise ForetailError(
                f"feature {given.name!r} reaches {largest} on this switch, outside its range [0, 2**{given.bits}): "
                f"use a smaller buffer or train with larger cells"
            )
    text = (
        environment("foretail.export.p4")
        .get_template("virtual_lqd.p4.j2")
        .render(
            sha256=ensemble.sha256,
            predictor_file=f"{name}.p4",
            control=control,
            score_bits=score_bits(ensemble),
            arguments=[f"(bit<{VALUE_BITS}>)hdr.answer.{f.name}" for f in ensemble.features],
            ports=ports,
            capacity=switch.buffer_bytes,
            smallest_packet=switch.smallest_packet_bytes,
            slots=switch.slots,
            slot_bits=switch.slots.bit_length() - 1,
            links=[_Link.of(bps, switch.wire_overhead_bytes) for bps in switch.port_rates_bps],
            cell_shift=cell_bytes.bit_length() - 1,
            average_shift=average_shift,
            tick_shift=TICK_NS.bit_length() - 1,
            saturated=(1 << VALUE_BITS) - 1,
            ethertype=ETHERTYPE,
            statuses=STATUSES,
            headers=[
                (name, [(field, dtype[field].itemsize * 8) for field in dtype.names or ()])
                for name, dtype in (("arrival", ARRIVAL), ("answer", ANSWER), ("totals", TOTALS), ("queue", QUEUE))
            ],
            zeroed=[field for field in ANSWER.names or () if field not in ("status", "drop")],
        )
    )
    return {f"{name}_demo.p4": text}


def _arithmetic(ensemble: Ensemble) -> tuple[int, int]:
    """Return cell_bytes and average_shift of the ensemble's features; what none of them says is the default."""
    for given in ensemble.features:
        if given.name not in VIRTUAL_FEATURES:
            raise ForetailError(
                f"feature {given.name!r} is none that the demo program can compute: train on some of "
                f"{', '.join(VIRTUAL_FEATURES)}"
            )
    arithmetic = arithmetic_of({given.name: given.params for given in ensemble.features})
    return arithmetic.get("cell_bytes", 256), arithmetic.get("average_shift", 15)


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ForetailError(f"{name} is {value}: use {low} to {high}")
