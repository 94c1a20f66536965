"""A systematic MDS block code: any k of the n packets of a block restore it.

The coded packets are the data times a Cauchy matrix over the field of 256 elements (polynomial 0x11d), whose square
parts are all invertible. Its columns are scaled so that the first coded packet is the XOR of the block.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError

Bytes = npt.NDArray[np.uint8]

FIELD = 256
_POWERS = [1]
for _ in range(FIELD - 2):
    _POWERS.append(_POWERS[-1] << 1 if _POWERS[-1] < 128 else _POWERS[-1] << 1 ^ 0x11D)
_POWER = np.array(_POWERS * 2, np.uint8)
_LOGARITHM = np.zeros(FIELD, np.int64)
_LOGARITHM[_POWER[: FIELD - 1]] = np.arange(FIELD - 1)


def coded_packets(data: Bytes, coded: int) -> Bytes:
    """Return the coded packets of a block: uint8[coded, bytes].

    `data` is uint8[k, bytes]. ForetailError when k and `coded` sum to more than 256, or are out of range.
    """
    if data.ndim != 2 or data.dtype != np.uint8:
        raise ForetailError(f"the data of a block are {data.dtype}{data.shape}: give uint8[k, bytes]")
    return _times(_coefficients(len(data), coded), data)


def restored(received: Mapping[int, Bytes], k: int, n: int) -> Bytes:
    """Return the data of a block: uint8[k, bytes].

    `received` has packets, uint8[bytes], by their place in the block: 0 to k - 1 are data, k to n - 1 coded.
    ForetailError when they are fewer than k, or a place is outside the block.
    """
    if len(received) < k or not set(received) <= set(range(n)):
        raise ForetailError(f"{len(received)} packets of ({k}, {n}) do not restore a block: give k or more of its own")
    data = np.zeros((k, len(next(iter(received.values())))), np.uint8)
    there = [place for place in range(k) if place in received]
    lost = [place for place in range(k) if place not in received]
    if there:
        data[there] = [received[place] for place in there]
    chosen = [place for place in sorted(received) if place >= k][: len(lost)]
    if lost:
        rows = _coefficients(k, n - k)[[place - k for place in chosen]]
        known = np.stack([received[place] for place in chosen]) ^ _times(rows[:, there], data[there])
        data[lost] = _solved(rows[:, lost], known)
    return data


def _coefficients(k: int, coded: int) -> Bytes:
    if k < 1 or coded < 0 or k + coded > FIELD:
        raise ForetailError(f"a block of {k} data and {coded} coded packets is no code: give up to {FIELD} together")
    row, column = np.arange(coded)[:, np.newaxis], np.arange(coded, coded + k)
    powers = _LOGARITHM[column] - _LOGARITHM[row ^ column]  # of 1 / (row + column), over that of the first row
    coefficients: Bytes = _POWER[powers % (FIELD - 1)]
    return coefficients


def _product(a: Bytes, b: Bytes) -> Bytes:
    return np.where((a == 0) | (b == 0), np.uint8(0), _POWER[_LOGARITHM[a] + _LOGARITHM[b]])


def _times(matrix: Bytes, vectors: Bytes) -> Bytes:
    rows = [np.bitwise_xor.reduce(_product(row[:, np.newaxis], vectors), axis=0) for row in matrix]
    return np.array(rows, np.uint8).reshape(len(matrix), vectors.shape[1])


def _solved(matrix: Bytes, known: Bytes) -> Bytes:
    """Gauss and Jordan; all pivots of a Cauchy matrix are other than 0."""
    left, right = matrix.copy(), known.copy()
    for pivot in range(len(left)):
        inverse = _POWER[(-_LOGARITHM[left[pivot, pivot]]) % (FIELD - 1)]
        left[pivot], right[pivot] = _product(left[pivot], inverse), _product(right[pivot], inverse)
        factors = left[:, pivot].copy()
        factors[pivot] = 0
        right ^= _product(factors[:, np.newaxis], right[pivot])
        left ^= _product(factors[:, np.newaxis], left[pivot])
    return right
