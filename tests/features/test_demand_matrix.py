"""Demand matrices at the door."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules import vermilion


@pytest.mark.parametrize(
    ("demand", "complaint"),
    [
        ([[0, 1]], "shape (1, 2)"),
        ([[0]], "shape (1, 1)"),
        ([0, 1], "shape (2,)"),
        ([[0, np.nan], [1, 0]], "from node 0 to node 1, nan, is not a finite number"),
        ([[0, np.inf], [1, 0]], "is not a finite number"),
        ([[0, 1], [-2, 0]], "from node 1 to node 0, -2, is negative"),
        ([[0, 1], [2, 0.5]], "from node 1 to node 1, 0.5, is on the diagonal"),
    ],
)
def test_malformed_matrices_are_refused(demand: object, complaint: str) -> None:
    with pytest.raises(ForetailError) as refusal:
        DemandMatrix(np.array(demand))
    assert complaint in str(refusal.value)


def test_the_hose_model_is_checked_by_rows_and_columns() -> None:
    DemandMatrix(np.array([[0, 2.0], [2.0, 0]])).require_hose(2)
    with pytest.raises(ForetailError, match="row 0 of the demand matrix sums to 3, more than the 2 uplinks"):
        DemandMatrix(np.array([[0, 3.0], [2.0, 0]])).require_hose(2)
    with pytest.raises(ForetailError, match="column 2 of the demand matrix sums to 4"):
        DemandMatrix(np.array([[0, 0, 2.0], [0, 0, 2.0], [0, 0, 0]])).require_hose(2)


def test_scaling_fills_the_largest_sum() -> None:
    scaled = DemandMatrix(np.array([[0, 1, 2], [0, 0, 3], [1, 0, 0]])).scaled_to(4)
    assert scaled.largest_sum == pytest.approx(4)
    assert scaled.demand[0, 2] == pytest.approx(2 * 4 / 5)
    with pytest.raises(ForetailError, match="the demand matrix is zero"):
        DemandMatrix(np.zeros((3, 3))).scaled_to(1)


def test_the_matrix_cannot_be_changed() -> None:
    given = np.array([[0, 1.0], [1.0, 0]])
    matrix = DemandMatrix(given)
    given[0, 1] = 5
    assert matrix.demand[0, 1] == 1
    with pytest.raises(ValueError, match="read-only"):
        matrix.demand[0, 1] = 2


def test_columns_first_is_no_other_matrix() -> None:
    demand = np.asfortranarray(np.array([[0, 1.0, 2.0], [3.0, 0, 1.0], [0.5, 2.0, 0]]))
    assert DemandMatrix(demand).demand.flags.c_contiguous
    assert vermilion(DemandMatrix(demand), 1, 3).nodes == 3
