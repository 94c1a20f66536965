"""What the constants of several features have in common: one size of cells, one interval of averages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature

CELL_BYTES = 256
"""Size of a buffer cell, the unit of lengths, unless settings say otherwise."""


def arithmetic_of(params: Mapping[str, str]) -> dict[str, int]:
    """What the constants of features say of ``cell_bytes`` and ``average_shift``; what none says is left out.

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
