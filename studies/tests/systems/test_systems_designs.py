"""Systems of circuits, codes and jobs at size=small, twice; costs ten seconds, and the long ones minutes."""

from __future__ import annotations

import math

import pytest

from foretail_studies.systems.experiment import SYSTEMS_BY_NAME

pytestmark = pytest.mark.slow
LONG = [pytest.mark.nightly, pytest.mark.full]


@pytest.mark.parametrize(
    "name", ["linc", "rotornet", "nona", *(pytest.param(name, marks=LONG) for name in ("mars", "vermilion"))]
)
def test_a_small_run_measures_every_published_quantity_and_repeats(name: str) -> None:
    system = SYSTEMS_BY_NAME[name]
    seed = system.seeds["small"][0]
    steps: list[str] = []
    measured = system.measure("small", seed, steps.append)
    assert {figure.quantity for figure in system.published} <= set(measured)
    assert all(math.isfinite(value) for value in measured.values())
    assert measured == system.measure("small", seed, steps.append)


def test_a_permutation_of_eight_racks_on_a_complete_graph_has_four_sevenths() -> None:
    """n / (2 n - 2), and not the n / (2 n - 1) of the thesis: a rack has no circuit to itself."""
    measured = SYSTEMS_BY_NAME["rotornet"].measure("small", 1, lambda words: None)
    assert measured["throughput on a permutation, 8 racks"] == pytest.approx(8 / 14)
    assert measured["throughput on a permutation, many racks"] == pytest.approx(16 / 30)
