"""How much training rows count."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.weights import DropWeight, drop_factor, row_weights

DROP = np.array([True, False, False, True, False])
STANDS_FOR = np.array([1.0, 4.0, 2.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("drop_weight", "weight", "expected"),
    [
        (1.0, None, [1, 1, 1, 1, 1]),
        (2.5, None, [2.5, 1, 1, 2.5, 1]),
        ("cost", None, [9, 1, 1, 9, 1]),
        ("cost", STANDS_FOR, [9, 4, 2, 9, 2]),
        ("balanced", None, [1.5, 1, 1, 1.5, 1]),
        ("balanced", STANDS_FOR, [4, 4, 2, 4, 2]),
    ],
)
def test_a_drop_weighs_what_it_costs(
    drop_weight: DropWeight, weight: np.ndarray[tuple[int], np.dtype[np.float64]] | None, expected: list[float]
) -> None:
    rows = Rows(np.zeros((5, 1), np.int32), DROP, None, weight)
    parts = [rows[:2], rows[2:]]
    factor = drop_factor(drop_weight, 10, parts)
    assert [one for part in parts for one in row_weights(part, factor).tolist()] == expected


@pytest.mark.parametrize(
    ("drop_weight", "ports", "says"),
    [
        (0.0, 10, "drop_weight is 0.0: set it to a positive number, balanced or cost"),
        (float("nan"), 10, "positive number"),
        ("heavy", 10, "drop_weight is heavy"),
        ("cost", 1, "a switch of 1 ports"),
    ],
)
def test_other_weights_are_refused(drop_weight: DropWeight, ports: int, says: str) -> None:
    with pytest.raises(ForetailError, match=says):
        drop_factor(drop_weight, ports, [])


def test_one_class_has_no_balance() -> None:
    with pytest.raises(ForetailError, match="none of one"):
        drop_factor("balanced", 10, [Rows(np.zeros((3, 1), np.int32), np.ones(3, np.bool_), None)])
