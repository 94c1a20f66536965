"""Logarithms in rationals, with both bounds, and log(1 + x) of integers by a table of integers.

``log y`` of y = 2**k m, 1 <= m < 2, is ``k log 2 + log m``; between two of the table's points log m is a straight
line. On a step h of m the line is below log m by at most h**2 / 8, because the second derivative is at least -1 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

PRECISION = 128
"""Bounds of a logarithm are multiples of ``2**-PRECISION``."""

MANTISSA_BITS = 32
POINT_BITS = 10
"""The table has a point every ``2**-POINT_BITS`` of m."""

_PART_BITS = MANTISSA_BITS - POINT_BITS


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
