"""The catalog of features and counters: what a switch can know, in integer arithmetic.

A feature describes an arrival. It is read after the threshold update and before the decision, the arrival not yet
counted in its queue or in the shared buffer. Values are integers in ``[0, 2**bits)`` with ``bits <= 24``, so float32
trainers see them exactly. ``cells = bytes >> log2(cell_bytes)``; averages run in fixed point with 8 fractional bits
over an interval of ``2**average_shift`` ns, fast ones over a quarter of it, slow rates over ``2**SLOW_SHIFT`` times it
(design section 4). ``sim_bridge/buffer/features.hpp`` computes features and counters and lists the same names in the
same order.

Source: Credence (NSDI'24) section 5 for the four paper features, ABM (SIGCOMM'22) for the first round trip; the rest
come from the virtual LQD that Credence already keeps, or from what a switch without one can count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from foretail.core.errors import ForetailError

VALUE_BITS = 24
"""Widest feature: every integer below 2**24 is a float32."""

TICK_NS = 1024
"""Time unit of time-valued features, in ns."""

SLOW_SHIFT = 7
"""Slow rates fade over an interval 2**SLOW_SHIFT times as long as that of the averages."""

REPORTED_EVERY = 8
"""Egress tells ingress of a queue's departures with every packet of this number, for the tracked features."""

FLOW_ENTRY_BITS = 32
"""Bits of an entry of the table in which a switch counts flows: 24 of bytes, 8 of time."""

CELL_BYTES = 256
"""Size of a buffer cell, the unit of lengths, unless settings say otherwise."""

LARGEST_CELL_BYTES = 1 << 16
"""Largest unit of lengths."""

SHADOW_PREFIX = "shadow_"
"""Columns with this prefix hold a real feature as a shadow Credence, driven by the true labels, would see it."""

# Costs of features on a switch: registers and operations beyond those of Credence.
#
# Costs are of what a switch under Credence must add: the queue lengths and the longest of them, the thresholds T, their
# sum and the largest of them are there anyway. Registers are as wide as in a pipeline: averages 24 bits and 8
# fractional ones, times 48 bits. Operations are the additions, subtractions, comparisons and shifts for one packet, its
# arrival and departure together; the position of the highest bit counts as one, access to registers as none.


@dataclass(frozen=True, eq=False)
class Registers:
    """State that features read; two that read the same object share it."""

    queue_bits: int = 0  #: bits for every queue
    switch_bits: int = 0  #: once for the switch
    operations: int = 0  #: per packet, to keep it up to date


@dataclass(frozen=True)
class FeatureCost:
    """Cost of a feature alone beyond Credence; as :class:`Registers`, operations of reading it included."""

    queue_bits: int
    switch_bits: int
    operations: int
    operations_per_queue: int = 0  #: further operations per packet for each queue of the switch


State = Literal["real", "virtual", "traffic", "packet"]
Unit = Literal["cells", "queues", "us", "flag", "octaves", "share"]


@dataclass(frozen=True)
class Feature:
    """One feature of an arrival."""

    name: str  #: column name in datasets, models and the predictor ABI
    #: ``real``: read from the policy's own queues. ``virtual``: read from the virtual LQD, hence the same under every
    #: policy on one arrival sequence. ``traffic``: what arrives, whatever the policy does with it, so the same under
    #: every policy too. ``packet``: said by the packet itself, by when and where it comes, or by those of its flow
    #: that came before.
    state: State
    #: ``us`` is a time unit of 1024 ns; a flag is 0 or 1; ``octaves`` are eighths of powers of two, ``share`` 255ths
    unit: Unit
    bits: int  #: values are integers in ``[0, 2**bits)``, ``bits <= 24``
    description: str  #: one sentence; it is in the bytes of every dataset, so another text is another content hash
    averaged: bool = False  #: whether the value comes from shift-weighted averages and so depends on ``average_shift``
    tracked: bool = False  #: whether the value comes from queues as an ingress without queue depths tracks them
    study_only: bool = False  #: no switch can know it: for upper bounds, refused by every export
    registers: tuple[Registers, ...] = ()  #: state that it reads beyond Credence's own
    operations: int = 0  #: per packet to read it
    operations_per_queue: int = 0  #: per packet besides, for each queue of the switch

    @property
    def cost(self) -> FeatureCost:
        """Cost of the feature alone; raise :class:`ForetailError` if no switch can know it."""
        if self.study_only:
            raise ForetailError(f"feature {self.name!r} has no cost, no switch can know it: it is for studies only")
        return FeatureCost(
            sum(one.queue_bits for one in self.registers),
            sum(one.switch_bits for one in self.registers),
            self.operations + sum(one.operations for one in self.registers),
            self.operations_per_queue,
        )

    def params(self, cell_bytes: int, average_shift: int) -> str:
        """Return the constants of this feature's arithmetic, as the predictor ABI carries them.

        Cells have a power of two of bytes; averages run over ``2**average_shift`` ns. Returns ``key=value`` pairs
        joined by commas; empty when the feature has no constant.
        """
        if self.unit == "us":
            return f"tick_ns={TICK_NS}"
        constants = {
            f"cell_bytes={cell_bytes}": self.unit == "cells",
            f"average_shift={average_shift}": self.averaged,
            f"reported_every={REPORTED_EVERY}": self.tracked,
        }
        return ",".join(constant for constant, counts in constants.items() if counts)


_TIME_BITS = 48
_AVERAGE_BITS = VALUE_BITS + 8 + _TIME_BITS
_OBSERVED_TWICE = 2 * 9

_QUEUE_AVERAGE = Registers(queue_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_OCCUPANCY_AVERAGE = Registers(switch_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_THRESHOLD_AVERAGE = Registers(queue_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_SUM_AVERAGE = Registers(switch_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_FAST_THRESHOLD_AVERAGE = Registers(queue_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_FAST_SUM_AVERAGE = Registers(switch_bits=_AVERAGE_BITS, operations=_OBSERVED_TWICE)
_OVER_SHARE = Registers(queue_bits=1, switch_bits=16, operations=4)
_PUSH_OUT_TIME = Registers(queue_bits=_TIME_BITS + 1)
_ANY_PUSH_OUT_TIME = Registers(switch_bits=_TIME_BITS + 1)
_CIRCUIT_TIME = Registers(queue_bits=_TIME_BITS)
_ARRIVAL_RATE = Registers(queue_bits=_AVERAGE_BITS, operations=9)
_ARRIVALS_RATE = Registers(switch_bits=_AVERAGE_BITS, operations=9)
_SLOW_ARRIVALS_RATE = Registers(switch_bits=_AVERAGE_BITS, operations=9)
_PEAK_ARRIVAL_RATE = Registers(switch_bits=2 * VALUE_BITS + _TIME_BITS, operations=4)
_ACTIVE_QUEUES = Registers(switch_bits=16, operations=4)
_TRACKED_QUEUE = Registers(queue_bits=3 * 32 + 8, operations=5)  # bytes let in, bytes reported; at egress sent, packets
_TRACKED_OCCUPANCY = Registers(switch_bits=32, operations=2)
_LOSSLESS_BYTES = Registers(switch_bits=32, operations=2)
_PAUSED_QUEUES = Registers(queue_bits=1, switch_bits=16, operations=2)
_LONGEST_PACKET = Registers(switch_bits=16, operations=2)
_FLOW_ENTRY = Registers(switch_bits=FLOW_ENTRY_BITS)  # of a table that has as many as one likes
_LAST_ENDED = Registers(queue_bits=VALUE_BITS, operations=1)
_TRACKED_LONGEST = Registers(switch_bits=2 * 32, operations=3)  # its number and length


def _with_average(name: str, state: State, description: str, average: Registers) -> tuple[Feature, Feature]:
    return (
        Feature(name, state, "cells", VALUE_BITS, f"{description}.", operations=1),
        Feature(
            f"{name}_average",
            state,
            "cells",
            VALUE_BITS,
            f"Shift average of: {description}.",
            averaged=True,
            registers=(average,),
            operations=1,
        ),
    )


def _gradient(name: str, of: str, *averages: Registers) -> Feature:
    description = (
        f"{of}: its fast shift average minus its shift average, plus {1 << 15}, saturating at 0 and 2**16 - 1."
    )
    return Feature(name, "virtual", "cells", 16, description, averaged=True, registers=averages, operations=5)


def _rate(name: str, of: str, rate: Registers, interval: str = "the averages' interval") -> Feature:
    description = f"Bytes that arrived for {of}, this packet included, added up and fading over {interval}."
    return Feature(name, "traffic", "cells", VALUE_BITS, description, averaged=True, registers=(rate,), operations=1)


def _since(name: str, of: str, time: Registers) -> Feature:
    description = f"Time since the virtual LQD last pushed a packet out of {of}; the largest value also means never."
    return Feature(name, "virtual", "us", VALUE_BITS, description, registers=(time,), operations=4)


def _tracked(
    name: str,
    description: str,
    *registers: Registers,
    unit: Unit = "cells",
    bits: int = VALUE_BITS,
    operations: int = 1,
) -> Feature:
    description += (
        f"; as an ingress without queue depths tracks it: egress reports every {REPORTED_EVERY}th packet that leaves a"
        " queue, and what has left since counts as queued."
    )
    return Feature(name, "real", unit, bits, description, tracked=True, registers=registers, operations=operations)


FEATURES: tuple[Feature, ...] = (
    *_with_average("queue", "real", "Length of the arriving packet's queue before it is added", _QUEUE_AVERAGE),
    *_with_average(
        "occupancy", "real", "Occupancy of the shared buffer before the packet is added", _OCCUPANCY_AVERAGE
    ),
    Feature(
        "pressure",
        "real",
        "octaves",
        8,
        "Length of the packet's queue over the free buffer: 128 where they are equal, 8 more for each factor of two, 0"
        " for an empty queue, 255 in a full buffer; logarithms are read off the highest bit and the three below it.",
        operations=9,
    ),
    Feature(
        "fill",
        "real",
        "share",
        8,
        "Occupancy of the shared buffer before the packet is added, in 255ths of the buffer, rounded down.",
        operations=2,
    ),
    Feature(
        "queue_share",
        "real",
        "share",
        8,
        "Length of the arriving packet's queue before it is added, in 255ths of the buffer, rounded down.",
        operations=2,
    ),
    Feature(
        "active_queues",
        "real",
        "queues",
        16,
        "Queues that hold a packet before the packet is added.",
        registers=(_ACTIVE_QUEUES,),
    ),
    Feature(
        "gap",
        "real",
        "cells",
        VALUE_BITS,
        "Length of the longest queue minus that of the packet's queue, before the packet is added.",
        operations=2,
    ),
    _tracked("queue_tracked", "Length of the packet's queue before it is added", _TRACKED_QUEUE),
    _tracked(
        "occupancy_tracked",
        "Occupancy of the shared buffer before the packet is added",
        _TRACKED_QUEUE,
        _TRACKED_OCCUPANCY,
    ),
    _tracked(
        "gap_tracked",
        "Length of the queue that was the longest when it or a shorter one had an arrival, minus that of the packet's"
        " queue, or 0 where that is longer",
        _TRACKED_QUEUE,
        _TRACKED_LONGEST,
        operations=2,
    ),
    _tracked(
        "pressure_tracked",
        "Length of the packet's queue over the free buffer, on the scale of `pressure`",
        _TRACKED_QUEUE,
        _TRACKED_OCCUPANCY,
        unit="octaves",
        bits=8,
        operations=9,
    ),
    Feature(
        "lossless_occupancy",
        "real",
        "cells",
        VALUE_BITS,
        "Packets that may not be lost, in the shared buffer and in headroom, before the packet is added; 0 where every"
        " packet may be lost.",
        registers=(_LOSSLESS_BYTES,),
        operations=1,
    ),
    Feature(
        "paused_queues",
        "real",
        "queues",
        16,
        "Queues at ingress whose senders the switch pauses when the packet arrives; 0 where every packet may be lost.",
        registers=(_PAUSED_QUEUES,),
    ),
    Feature(
        "threshold_headroom",
        "real",
        "cells",
        VALUE_BITS,
        "Virtual LQD length of the packet's queue minus the queue's own length, or 0 where that is longer; a shadow"
        " Credence lacks the packets that LQD will push out, so there it tells labels of the queue.",
        operations=3,
    ),
    *_with_average(
        "threshold",
        "virtual",
        "Virtual LQD length of the packet's queue after the threshold update",
        _THRESHOLD_AVERAGE,
    ),
    *_with_average("thresholds_sum", "virtual", "Sum of the virtual LQD lengths of all queues", _SUM_AVERAGE),
    Feature("threshold_max", "virtual", "cells", VALUE_BITS, "Largest virtual LQD length of any queue.", operations=1),
    Feature(
        "queues_over_share",
        "virtual",
        "queues",
        16,
        "Queues whose virtual LQD length exceeds buffer / ports.",
        registers=(_OVER_SHARE,),
    ),
    _since("since_push_out", "this queue", _PUSH_OUT_TIME),
    Feature(
        "threshold_gap",
        "virtual",
        "cells",
        VALUE_BITS,
        "Largest virtual LQD length of any queue minus that of the packet's queue.",
        operations=2,
    ),
    Feature(
        "threshold_rank",
        "virtual",
        "queues",
        16,
        "Queues whose virtual LQD length exceeds that of the packet's queue.",
        operations_per_queue=2,
    ),
    _gradient(
        "threshold_gradient", "Virtual LQD length of the packet's queue", _THRESHOLD_AVERAGE, _FAST_THRESHOLD_AVERAGE
    ),
    _gradient("thresholds_sum_gradient", "Sum of the virtual LQD lengths", _SUM_AVERAGE, _FAST_SUM_AVERAGE),
    _since("since_any_push_out", "any queue", _ANY_PUSH_OUT_TIME),
    _rate("arrival_rate", "the packet's queue", _ARRIVAL_RATE),
    _rate("arrivals_rate", "the switch", _ARRIVALS_RATE),
    _rate("arrivals_rate_slow", "the switch", _SLOW_ARRIVALS_RATE, f"{1 << SLOW_SHIFT} times the averages' interval"),
    Feature(
        "peak_arrival_rate",
        "traffic",
        "cells",
        VALUE_BITS,
        f"Largest `arrival_rate` of any queue in the present window of {1 << SLOW_SHIFT} of the averages' intervals and"
        " in the one before, which tells how large bursts are.",
        averaged=True,
        registers=(_ARRIVAL_RATE, _PEAK_ARRIVAL_RATE),
        operations=1,
    ),
    Feature(
        "first_rtt",
        "packet",
        "flag",
        1,
        "1 if the packet begins within the bytes that its sender's link can move in the flow's first base RTT (a tag"
        " that the sender sets), 0 also where a trace does not say.",
    ),
    Feature(
        "message_left",
        "packet",
        "cells",
        8,
        "Bytes of the packet's message that its sender has yet to send after it (a tag that the sender sets); 255 means"
        " as much or more, or that nobody says.",
    ),
    Feature(
        "until_circuit",
        "packet",
        "us",
        16,
        "Time until the next circuit to the packet's rack, 0 while it is up; 65535 means as long or longer, or never,"
        " as on every switch without circuits.",
        registers=(_CIRCUIT_TIME,),
        operations=4,
    ),
    Feature(
        "short_packet",
        "packet",
        "flag",
        1,
        "1 if the packet is shorter than the longest data packet that the switch has seen, so ends its message; 0 also"
        " where nobody counts flows.",
        registers=(_LONGEST_PACKET,),
        operations=1,
    ),
    Feature(
        "flow_sent",
        "packet",
        "cells",
        16,
        "Bytes of the packet's message that came before it, as the switch counts: from the flow's last pause of about"
        " 2**20 ns or last short packet on; 65535 means as much or more, or that nobody counts flows.",
        registers=(_FLOW_ENTRY, _LONGEST_PACKET),
        operations=6,
    ),
    Feature(
        "left_like_last",
        "packet",
        "cells",
        8,
        "Bytes that would come after the packet if its message were as long as the one that ended last at its port;"
        " 255 means as much or more, that its message is longer, or that nobody counts flows.",
        registers=(_FLOW_ENTRY, _LONGEST_PACKET, _LAST_ENDED),
        operations=8,
    ),
)
"""Every feature that a switch can compute, in the order of the ``features`` array of an arrival record."""

STUDY_FEATURES: tuple[Feature, ...] = (
    Feature(
        "incast",
        "packet",
        "flag",
        1,
        "1 if the packet answers an incast query, 0 if it is background traffic.",
        study_only=True,
    ),
)
"""Features that only a simulation knows: columns of datasets for upper bounds, in no switch and no record's array."""

PAPER_FEATURES: tuple[str, ...] = ("queue", "queue_average", "occupancy", "occupancy_average")
"""The four features of the paper."""

REAL_FEATURES: tuple[str, ...] = tuple(f.name for f in FEATURES if f.state == "real")
"""Features of the policy's own queues; they come first."""

VIRTUAL_FEATURES: tuple[str, ...] = (
    "threshold",
    "threshold_average",
    "thresholds_sum",
    "thresholds_sum_average",
    "threshold_max",
    "queues_over_share",
    "since_push_out",
)
"""Features of the virtual LQD without rates, gradients and comparisons."""

SWITCH_FEATURES: tuple[str, ...] = (
    *VIRTUAL_FEATURES,
    "threshold_gap",
    "threshold_rank",
    "threshold_gradient",
    "thresholds_sum_gradient",
    "arrival_rate",
    "arrivals_rate",
    "since_any_push_out",
)
"""Features of the virtual LQD and two rates of arrivals: the same in training and in every switch, without a tag from
the hosts. A trained model depends on their order, which is not that of the catalog."""

TRACKED_FEATURES: tuple[str, ...] = tuple(f.name for f in FEATURES if f.tracked)
"""Features of the policy's own queues that an ingress without queue depths knows, as Tofino's."""

FLOW_FEATURES: tuple[str, ...] = ("short_packet", "flow_sent", "left_like_last")
"""Counts of flows: they are known in simulated and emulated networks, not in slots or replays."""

THRESHOLD_FEATURES: tuple[str, ...] = (
    "pressure",
    "queue_share",
    "active_queues",
    "arrival_rate",
    "arrivals_rate",
    "arrivals_rate_slow",
)
"""Features of which an adaptive threshold is made; a switch without a virtual LQD can hold them."""

LOSSLESS_FEATURES: tuple[str, ...] = ("lossless_occupancy", "paused_queues")
"""Lossless traffic beside lossy packets, in switches that pause senders."""

FEATURE_GROUPS: dict[str, tuple[str, ...]] = {
    "paper": PAPER_FEATURES,
    "virtual": VIRTUAL_FEATURES,
    "switch": SWITCH_FEATURES,
    "tofino": (*TRACKED_FEATURES, "first_rtt", "message_left"),
    "threshold": THRESHOLD_FEATURES,
    "regimes": (*THRESHOLD_FEATURES, "peak_arrival_rate"),
    "classes": (*THRESHOLD_FEATURES, *LOSSLESS_FEATURES),
    "all": (*PAPER_FEATURES, "pressure", "fill", *SWITCH_FEATURES, "first_rtt", "message_left"),
}
"""Groups of features by the name of the setting. ``threshold`` is what a switch without a virtual LQD can hold, for
predictors that act as an adaptive threshold on one workload; ``regimes`` also tells workloads apart, and ``classes``
how much of the buffer lossless packets take. In ``all`` are no approximations of others; ``threshold_headroom`` tells
the label on the queues of the shadow Credence, and ``until_circuit`` and LOSSLESS_FEATURES are one number on most
switches. ``queue_share``, ``active_queues``, ``gap``, ``arrivals_rate_slow`` and ``peak_arrival_rate`` are left out
too, since columns and their order decide the models of docs/guide/train.md."""


def group_of(names: Sequence[str]) -> str:
    """Return the name of the group that these features are, else how many they are: ``3 features``."""
    groups = [group for group, members in FEATURE_GROUPS.items() if tuple(names) == members]
    return groups[0] if groups else f"{len(names)} features"


SHADOW_COLUMNS: tuple[str, ...] = tuple(SHADOW_PREFIX + name for name in REAL_FEATURES)
"""Dataset columns of the real features seen by the shadow Credence, in catalog order."""

_BY_NAME = {feature.name: feature for feature in (*FEATURES, *STUDY_FEATURES)}


def feature(name: str) -> Feature:
    """Return the feature called `name`; raise :class:`ForetailError` naming it and the known ones otherwise."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ForetailError(f"unknown feature {name!r}: choose from {', '.join(_BY_NAME)}") from None


def training_columns(names: Iterable[str], own_queues: bool) -> tuple[str, ...]:
    """Map feature names to the dataset columns a model is trained on, in the given order.

    ForetailError on an unknown or repeated name, or none at all.

    Parameters
    ----------
    names : feature names of the catalog, each at most once, at least one
    own_queues : bool
        True takes real features from the run's own queues (what the paper does: under LQD, q = T and Q = Gamma);
        False takes them from the shadow Credence, which is what a deployed predictor sees.
    """
    return tuple(SHADOW_PREFIX + f.name if f.state == "real" and not own_queues else f.name for f in _chosen(names))


def _chosen(names: Iterable[str]) -> list[Feature]:
    chosen = [feature(name) for name in names]
    if not chosen:
        raise ForetailError(f"no features chosen: choose some of {', '.join(_BY_NAME)}")
    repeated = sorted({f.name for f in chosen if chosen.count(f) > 1})
    if repeated:
        raise ForetailError(f"feature {repeated[0]!r} is chosen more than once: name every feature once")
    return chosen


def arithmetic_of(params: Mapping[str, str]) -> dict[str, int]:
    """Return what the constants of features say of ``cell_bytes`` and ``average_shift``; what none says is left out.

    `params` is by feature name. ForetailError unless all of them have one arithmetic, in cells of a power of two.
    """
    constants = {
        key: int(value)
        for of_feature in params.values()
        for key, value in re.findall(r"\b(cell_bytes|average_shift)=(\d{1,9})\b", of_feature)
    }
    for name, of_feature in params.items():
        expected = feature(name).params(constants.get("cell_bytes", 0), constants.get("average_shift", 0))
        if of_feature != expected:
            raise ForetailError(
                f"feature {name!r} has the arithmetic {of_feature!r} where the others have {expected!r}: "
                "train on one dataset or on datasets of one arithmetic"
            )
    if (cell_bytes := constants.get("cell_bytes", 1)).bit_count() != 1:
        raise ForetailError(f"cells of {cell_bytes} bytes are no power of two: train with a cell_bytes that is")
    if (shift := constants.get("average_shift", 0)) > 24:
        raise ForetailError(f"average_shift is {shift}: use 0 to 24")
    return constants


# Counters of an interval, for settings that are predicted once per interval.
#
# A counter of a queue describes the data packets that came to it, one of the switch those that came to any queue.
# Values are integers in ``[0, 2**8)``: averages over the last intervals, in which the newest counts an eighth, in fixed
# point with 8 fractional bits. A share of what arrived stays as it is through intervals in which nothing does.
#
# Switches export these or what they follow from: watermarks, bytes in, dropped and marked, and flow tables or samples.
# The first round trip is said by the sender's tag. A cost is register bits for the open interval; operations are
# additions and comparisons per packet, and all else happens once per interval.

COUNTER_BITS = 8
"""Bits of every counter."""

_BYTES, _FLOWS = 48, 64


@dataclass(frozen=True)
class Counter:
    """One counter of an interval."""

    name: str  #: column name in records, models and the predictor ABI
    description: str  #: one sentence
    register_bits: int  #: per queue, or once per switch
    operations: int  #: per data packet


COUNTERS = (
    Counter("queue_longest", "largest length that an arrival left its queue with, 255ths of the buffer", _BYTES, 1),
    Counter("queue_load", "bytes that came, 64ths of what the port can send in an interval, at most 255", _BYTES, 1),
    Counter("queue_dropped", "share of these bytes that was dropped, 255ths", _BYTES, 1),
    Counter("queue_marked", "share of these bytes that got an ECN mark, 255ths", _BYTES, 1),
    Counter("queue_first_rtt", "share of these bytes from the first round trip of a flow, 255ths", _BYTES, 1),
    Counter("queue_flows", "bits set of 64, of which each flow sets one by its hash", _FLOWS, 2),
    Counter("buffer_fullest", "largest occupancy that an arrival left the buffer with, 255ths", _BYTES, 1),
    Counter("switch_load", "bytes that came, 64ths of what all ports can send in an interval, at most 255", _BYTES, 1),
    Counter("switch_dropped", "share of these bytes that was dropped, 255ths", _BYTES, 1),
    Counter("switch_marked", "share of these bytes that got an ECN mark, 255ths", _BYTES, 1),
    Counter("switch_first_rtt", "share of these bytes from the first round trip of a flow, 255ths", _BYTES, 1),
    Counter("switch_flows", "bits set of 64, of which each flow through the switch sets one", _FLOWS, 2),
    Counter("switch_active", "queues to which something came, 255ths of all", 0, 0),
)
"""All counters, in the order of their columns."""


def counter_params(interval_ns: int) -> str:
    """The constants of the counters' arithmetic, as the predictor ABI carries them."""
    return f"interval_ns={interval_ns}"
