"""Networks of dense layers in integers, with a proven bound on what that changes.

The inputs are x and log(1 + x), each times a power of two. Weights are int32 and sums int64. A layer's sum is
rectified, divided by a power of two and rounded to the nearest integer, halves up; the last layer's sum is the score.
The standardisation is part of the first layer. The bound is computed in exact rationals, layer by layer, from the
network's own float32 numbers, and holds for every input in range, against the logit that these numbers have in exact
arithmetic. A rectifier brings no two numbers further apart.

Logarithms are rationals with both bounds; log(1 + x) of an integer comes from a table of integers. ``log y`` of
y = 2**k m, 1 <= m < 2, is ``k log 2 + log m``; between two of the table's points log m is a straight line. On a step h
of m the line is below log m by at most h**2 / 8, because the second derivative is at least -1 there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.drop.network import DenseLayers, Network
from foretail.models.ensemble.ensemble import FeatureInput

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Row = list[Fraction]

MAX_WEIGHTS = 1 << 16
"""The proof takes seconds for so many."""

IN_C = ("relu", "leaky_relu", "hard_sigmoid")
"""Activations of hidden layers that C takes; the last two are two rectifiers each."""

_MOST_SUM = (1 << 63) - 2  # so a tau of its size, or of one more, is above or below every score
_MOST_WEIGHT = (1 << 31) - 1
_LOG_BITS = range(8, 27)
_MOST_FRACTION = 40
_FINEST = 1 << 96
"""Bounds are rounded up to multiples of its inverse."""


PRECISION = 128
"""Bounds of a logarithm are multiples of ``2**-PRECISION``."""

MANTISSA_BITS = 32
POINT_BITS = 10
"""The table has a point every ``2**-POINT_BITS`` of m."""

_PART_BITS = MANTISSA_BITS - POINT_BITS


@dataclass(frozen=True)
class Activation:
    """Bounds of a number that a layer reads."""

    top: Fraction  #: the exact number is in [0, top]
    error: Fraction  #: its integer stands for a number at most so far away
    largest: int  #: the integer is in [0, largest]


def log_bounds(number: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals not above and not below the natural logarithm of a number above 0, less than 2**-100 apart."""
    if number < 1:
        low, high = log_bounds(1 / number)
        return -high, -low
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    exponent -= number < Fraction(2) ** exponent
    low, high = _series(number / Fraction(2) ** exponent)
    low_two, high_two = _series(Fraction(2))
    return low + exponent * low_two, high + exponent * high_two


@cache
def _series(number: Fraction) -> tuple[Fraction, Fraction]:
    """The bounds for a number in [1, 2]: twice z + z**3 / 3 + z**5 / 5 + ..., z = (number - 1) / (number + 1)."""
    z = (number - 1) / (number + 1)
    top, bottom = z.numerator**2, z.denominator**2
    power = (z.numerator << PRECISION) // z.denominator
    total, terms = 0, 0
    while power:
        total += power // (2 * terms + 1)
        power = power * top // bottom
        terms += 1
    # Rounding down makes a power less than 2 units too small, a term less than 3, and all that follow less than 3.
    loss = 3 * terms + 3 if z else 0
    return Fraction(2 * total, 1 << PRECISION), Fraction(2 * (total + loss), 1 << PRECISION)


@dataclass(frozen=True, eq=False)
class Logarithm:
    """``log(y)`` of integers 1 <= y <= 2**32, in units of ``2**-bits``."""

    bits: int
    powers: IntArray  #: int64[33], log 2**k
    points: IntArray  #: int64[2**POINT_BITS + 1], log m at the points
    error: Fraction  #: bound on what any y is off by

    @classmethod
    def of(cls, bits: int) -> Logarithm:
        """Return the tables for so many fraction bits, at most 26, so that they fit int32."""
        step = Fraction(1, 1 << POINT_BITS)
        powers, lost = _rounded([Fraction(1 << k) for k in range(MANTISSA_BITS + 1)], bits)
        points, lost_too = _rounded([1 + at * step for at in range((1 << POINT_BITS) + 1)], bits)
        # A straight line is off by no more than its ends; then it is rounded to a unit.
        return cls(bits, powers, points, step**2 / 8 + lost + lost_too + Fraction(1, 1 << (bits + 1)))

    def __call__(self, y: IntArray) -> IntArray:
        """Return the logarithms of integers, int64 of any shape, as C computes them."""
        power = np.frexp(y.astype(np.float64))[1].astype(np.int64) - 1  # exact: y has at most 33 bits
        mantissa = (y - (np.int64(1) << power)) << (MANTISSA_BITS - power)
        at, part = mantissa >> _PART_BITS, mantissa & ((1 << _PART_BITS) - 1)
        rise = self.points[at + 1] - self.points[at]
        line: IntArray = self.powers[power] + self.points[at] + ((rise * part + (1 << (_PART_BITS - 1))) >> _PART_BITS)
        return line


def _rounded(numbers: list[Fraction], bits: int) -> tuple[IntArray, Fraction]:
    """Their logarithms in units of ``2**-bits``, and the most that one is off by."""
    bounds = [log_bounds(number) for number in numbers]
    constants = [round((low + high) / 2 * (1 << bits)) for low, high in bounds]
    off = max(
        max(abs(Fraction(value, 1 << bits) - low), abs(Fraction(value, 1 << bits) - high))
        for value, (low, high) in zip(constants, bounds, strict=True)
    )
    return np.array(constants, np.int64), off


@dataclass(frozen=True, eq=False)
class FixedLayer:
    """``sum(weight * z) + bias``, in units of ``2**-bits``."""

    weight: IntArray  #: int64[outputs, inputs], each fits int32
    bias: IntArray  #: int64[outputs]
    bits: int
    shift: int  #: the rectified sum is divided by ``2**shift``; 0 for the last layer
    error: Fraction  #: bound on any of its sums, against the exact network


@dataclass(frozen=True, eq=False)
class FixedNetwork:
    """A network in integers."""

    features: tuple[FeatureInput, ...]
    largest: tuple[int, ...]  #: inputs above count as this, below 0 as 0
    logarithm: Logarithm
    scale: tuple[int, ...]  #: the columns, x and then log(1 + x), are multiplied by ``2**scale``
    layers: tuple[FixedLayer, ...]
    tau: int  #: drop iff ``score > tau``: the logit of the network's threshold, rounded down

    @property
    def bits(self) -> int:
        """Scores are logits in units of ``2**-bits``."""
        return self.layers[-1].bits

    @property
    def error(self) -> Fraction:
        """Bound on a score's distance from the exact logit, for every input in range."""
        return self.layers[-1].error

    @property
    def multiplications(self) -> int:
        """Multiplications of a prediction: one per weight, and one per logarithm."""
        return sum(layer.weight.size for layer in self.layers) + len(self.features)

    @property
    def table_bytes(self) -> int:
        """Bytes of all constants in C."""
        weights = sum(4 * layer.weight.size + 8 * layer.bias.size for layer in self.layers)
        tables = len(self.logarithm.powers) + len(self.logarithm.points)
        return weights + 4 * tables + 8 * len(self.largest) + len(self.scale)

    def sums(self, x: IntArray) -> list[IntArray]:
        """Return every layer's sums, int64[rows, outputs] each, for integers [rows, features]."""
        known = np.clip(x, 0, np.array(self.largest))
        z = np.concatenate([known, self.logarithm(known + 1)], axis=1) << np.array(self.scale)
        layers = []
        for layer in self.layers:
            layers.append(z @ layer.weight.T + layer.bias)
            z = (np.maximum(layers[-1], 0) + ((1 << layer.shift) >> 1)) >> layer.shift
        return layers

    def score(self, x: IntArray) -> IntArray:
        """Return what the C code returns: int64[rows]."""
        return self.sums(x)[-1][:, 0]


def fixed_network(network: Network, input_bits: Mapping[str, int] | None = None) -> FixedNetwork:
    """Return a network in integers, with the fixed points that keep the error smallest.

    ForetailError for another network, bits of no feature, or when 64-bit sums or 32-bit weights cannot hold it.

    Parameters
    ----------
    network : of dense layers, over one arrival
    input_bits : mapping of str to int, optional
        Features of fewer bits than they declare: larger values count as the largest of so many bits. The bound is for
        values up to it, and smaller the fewer bits.
    """
    dense = network.dense_layers()
    _check(dense)
    largest = _largest(network.features, input_bits or {})
    (folded, bias), *others = _rectifiers(dense)
    logarithm, scale, layers, read = _first(folded, bias, largest)
    for number, (weight, bias) in enumerate(others, 2):
        layers, read = _next(number, weight, bias, layers, read)
    tau = threshold_in_units(network.threshold, layers[-1].bits)
    return FixedNetwork(network.features, largest, logarithm, scale, tuple(layers), tau)


def threshold_in_units(threshold: float, bits: int) -> int:
    """Return the largest integer of ``2**-bits`` that is no more than the logit of a probability, or beyond all."""
    if threshold in (0, 1):
        return _MOST_SUM + 1 if threshold else -_MOST_SUM - 1
    odds = Fraction(threshold) / (1 - Fraction(threshold))
    low, high = (math.floor(bound * (1 << bits)) for bound in log_bounds(odds))
    assert low == high, "a logarithm is too close to an integer"
    return max(-_MOST_SUM - 1, min(low, _MOST_SUM + 1))


def _check(dense: DenseLayers) -> None:
    numbers = [dense.mean, dense.deviation, *(part for layer in dense.layers for part in (layer.weight, layer.bias))]
    if not all(np.isfinite(part).all() for part in numbers) or not (dense.deviation > 0).all():
        raise ForetailError("the network holds numbers that are not finite: train it again")
    weights = sum(layer.weight.size for layer in dense.layers)
    if weights > MAX_WEIGHTS:
        raise ForetailError(
            f"the network has {weights:,} weights, and C takes at most {MAX_WEIGHTS:,}: train it with a smaller "
            f"predictor.width or fewer predictor.layers"
        )


def _largest(features: Sequence[FeatureInput], input_bits: Mapping[str, int]) -> tuple[int, ...]:
    declared = {feature.name: feature.bits for feature in features}
    if not all(type(bits) is int and 1 <= bits <= 32 for bits in declared.values()):
        raise ForetailError("a feature of the network has no 1 to 32 bits: train it again")
    for name, bits in input_bits.items():
        if name not in declared:
            raise ForetailError(
                f"c.input_bits names {name}, which the network does not see: choose from {', '.join(declared)}"
            )
        if not 1 <= bits <= declared[name]:
            raise ForetailError(
                f"c.input_bits gives {name} {bits} bits, and it has {declared[name]}: give at least 1 and at most those"
            )
    return tuple((1 << input_bits.get(feature.name, feature.bits)) - 1 for feature in features)


def _rationals(values: npt.NDArray[np.floating[Any]]) -> list[Row]:
    return [[Fraction(value) for value in row] for row in values.tolist()]


def _rectifiers(dense: DenseLayers) -> list[tuple[list[Row], Row]]:
    """Weights and biases of layers with rectifiers alone that compute the same.

    leaky_relu(z) is relu(z) - slope relu(-z), and hard_sigmoid(z) is relu(z / 6 + 1 / 2) - relu(z / 6 - 1 / 2).
    """
    made = [_folded(dense)]
    made += [(_rationals(one.weight), _rationals(one.bias[np.newaxis])[0]) for one in dense.layers[1:]]
    for number, layer in enumerate(dense.layers[:-1]):
        (weight, bias), (following, offset) = made[number : number + 2]
        if layer.activation == "leaky_relu":
            second, factor = (
                ([[-value for value in row] for row in weight], [-value for value in bias]),
                Fraction(float(np.float32(layer.slope))),
            )
        elif layer.activation == "hard_sigmoid":
            steep = Fraction(float(np.float32(1 / 6)))
            weight, bias = [[steep * value for value in row] for row in weight], [steep * value for value in bias]
            second, factor = (weight, [value - Fraction(1, 2) for value in bias]), Fraction(1)
            bias = [value + Fraction(1, 2) for value in bias]
        elif layer.activation == "relu":
            continue
        else:
            raise ForetailError(
                f"layer {number + 1} of the network has the activation {layer.activation}: C takes {', '.join(IN_C)}; "
                f"train with one of them"
            )
        made[number] = (weight + second[0], bias + second[1])
        made[number + 1] = ([row + [-factor * value for value in row] for row in following], offset)
    return made


def _folded(dense: DenseLayers) -> tuple[list[Row], Row]:
    """The first layer over columns that are not standardised: its weights and biases."""
    mean, deviation = (_rationals(part[np.newaxis])[0] for part in (dense.mean, dense.deviation))
    first = dense.layers[0]
    weight = [[value / unit for value, unit in zip(row, deviation, strict=True)] for row in _rationals(first.weight)]
    bias = [
        own - sum((value * centre for value, centre in zip(row, mean, strict=True)), Fraction(0))
        for own, row in zip(_rationals(first.bias[np.newaxis])[0], weight, strict=True)
    ]
    return weight, bias


def _first(
    weight: list[Row], bias: Row, largest: Sequence[int]
) -> tuple[Logarithm, tuple[int, ...], list[FixedLayer], list[Activation]]:
    """The first layer: every column has the power of two at which its weights use all 32 bits, if sums allow."""
    tops = [Fraction(top) for top in largest]
    tops += [_up(log_bounds(Fraction(top + 1))[1]) for top in largest]
    sizes, ends = _floats(weight), np.array([float(top) for top in tops])
    widest = [_weight_bits(sizes[:, column]) for column in range(len(tops))]
    half = len(largest)
    for bits in range(_sum_bits(1, sizes, bias, ends), -1, -1):
        tried = []
        for log_bits in _LOG_BITS:
            own = [min(most, bits - (log_bits if at >= half else 0)) for at, most in enumerate(widest)]
            lost = np.ldexp(1.5, -log_bits) + np.ldexp(0.5, -20)  # of a logarithm, about; the proof has its own
            error = (sizes[:, half:].sum(axis=1) * lost).max() + (np.ldexp(0.5, np.negative(own)) * ends).sum()
            if min(own) >= 0:
                tried.append((error, log_bits, own))
        if not tried:
            break
        _, log_bits, own = min(tried)
        logarithm = Logarithm.of(log_bits)
        scale = [bits - mine - (log_bits if at >= half else 0) for at, mine in enumerate(own)]
        read = [Activation(top, Fraction(0), int(top) << scale[at]) for at, top in enumerate(tops[:half])]
        for at, top in enumerate(largest, half):
            integer = int(logarithm(np.array([top + 1]))[0])
            read.append(Activation(tops[at], logarithm.error, integer << scale[at]))
        layer = _layer(weight, bias, read, own, bits)
        if layer is not None:
            return logarithm, tuple(scale), [layer[0]], layer[1]
    raise _too_large(1)


def _next(
    number: int, weight: list[Row], bias: Row, layers: list[FixedLayer], read: list[Activation]
) -> tuple[list[FixedLayer], list[Activation]]:
    """The layers so far with the right shift of the last, and one more."""
    before = layers[-1]
    sizes, ends = _floats(weight), np.array([float(item.top) for item in read])
    widest = _weight_bits(sizes)
    for bits in range(_sum_bits(number, sizes, bias, ends), -1, -1):
        tried = []
        for fraction in range(min(before.bits, bits, _MOST_FRACTION) + 1):
            own = min(widest, bits - fraction)
            error = (sizes.sum(axis=1) * np.ldexp(0.5, -fraction)).max() + ends.sum() * np.ldexp(0.5, -own)
            if own >= 0:
                tried.append((error, fraction, own))
        if not tried:
            break
        _, fraction, own = min(tried)
        shift = before.bits - fraction
        off = Fraction(1, 1 << (fraction + 1)) if shift else Fraction(0)
        shifted = [
            Activation(item.top, item.error + off, (item.largest + ((1 << shift) >> 1)) >> shift) for item in read
        ]
        layer = _layer(weight, bias, shifted, [own] * len(read), fraction + own)
        if layer is not None:
            changed = FixedLayer(before.weight, before.bias, before.bits, shift, before.error)
            return [*layers[:-1], changed, layer[0]], layer[1]
    raise _too_large(number)


def _layer(
    weight: list[Row], bias: Row, read: list[Activation], weight_bits: Sequence[int], bits: int
) -> tuple[FixedLayer, list[Activation]] | None:
    """The layer in integers and what is known of its sums, rectified; None when a sum could overflow."""
    integers, offsets, made = [], [], []
    worst = Fraction(0)
    for row, own in zip(weight, bias, strict=True):
        rounded = [round(value * (1 << unit)) for value, unit in zip(row, weight_bits, strict=True)]
        offset = round(own * (1 << bits))
        reach = sum(abs(value) * item.largest for value, item in zip(rounded, read, strict=True)) + abs(offset)
        # The sum and its rounding: whatever the order of adding, no part of it is further from 0.
        if reach + (1 << bits) > _MOST_SUM or max(map(abs, rounded)) > _MOST_WEIGHT:
            return None
        error, top = abs(Fraction(offset, 1 << bits) - own), own
        for exact, value, unit, item in zip(row, rounded, weight_bits, read, strict=True):
            stands = Fraction(value, 1 << unit)
            error += abs(stands) * item.error + abs(stands - exact) * item.top
            top += max(exact, Fraction(0)) * item.top
        error, top = _up(error), max(_up(top), Fraction(0))
        worst = max(worst, error)
        highest = sum(max(value, 0) * item.largest for value, item in zip(rounded, read, strict=True)) + offset
        made.append(Activation(top, error, max(highest, 0)))
        integers.append(rounded)
        offsets.append(offset)
    return FixedLayer(np.array(integers, np.int64), np.array(offsets, np.int64), bits, 0, worst), made


def _floats(weight: list[Row]) -> FloatArray:
    return np.array([[abs(float(value)) for value in row] for row in weight])


def _sum_bits(number: int, sizes: FloatArray, bias: Row, ends: FloatArray) -> int:
    """About the most fraction bits that sums of such sizes can have in 62 bits."""
    reach = float((sizes @ ends + [abs(float(value)) for value in bias]).max())
    bits = min(61 - math.frexp(reach)[1], 61)
    if bits < 0:
        raise _too_large(number)
    return bits


def _weight_bits(sizes: FloatArray) -> int:
    """The most fraction bits that such weights can have in int32; many, when all are 0."""
    return 31 - math.frexp(float(sizes.max()) * (1 + 2.0**-30))[1] if sizes.any() else 1000


def _up(number: Fraction) -> Fraction:
    return Fraction(math.ceil(number * _FINEST), _FINEST)


def _too_large(number: int) -> ForetailError:
    return ForetailError(
        f"the sums of layer {number} of the network do not fit 64-bit integers: set c.input_bits to what its inputs "
        f"need, or train it with a smaller predictor.width or predictor.learning_rate"
    )
