"""UPS in the table of systems: four seconds."""

from __future__ import annotations

import pytest

from foretail.core.errors import ForetailError
from foretail_studies.systems.scheduling import _TABLE, UNIVERSAL


@pytest.mark.nightly
def test_it_measures_what_is_published() -> None:
    measured = UNIVERSAL.measure("small", 1, lambda words: None)
    assert {figure.quantity for figure in UNIVERSAL.published} <= set(measured)
    shares = [value for name, value in measured.items() if name.startswith("overdue")]
    assert all(0 <= share <= 1 for share in shares)
    for name in _TABLE:
        assert measured[f"overdue by more than T, {name}"] <= measured[f"overdue, {name}"]
    assert measured["overdue, random, by static priorities"] > measured["overdue, load 70 %"]


def test_it_refuses_another_size() -> None:
    with pytest.raises(ForetailError, match="no size full"):
        UNIVERSAL.measure("full", 1, lambda words: None)


def test_two_rows_of_the_published_table_contradict_its_text() -> None:
    """Less than 1 % overdue by more than T "in almost all cases": 13 rows print a share above 0."""
    shares = [
        figure.value
        for figure in UNIVERSAL.published
        if figure.source == "Table 5.1" and figure.quantity.startswith("overdue by more than T")
    ]
    assert len(shares) == 13
    assert sum(share > 0.01 for share in shares) == 2
