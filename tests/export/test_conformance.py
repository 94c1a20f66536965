"""A random ensemble of every front end through every target; `tests.export.conformance` runs many."""

from __future__ import annotations

import pytest

from foretail.features.dataset.reader import Dataset
from tests.export.conformance import FRONT_ENDS, Case, cases, collected, run

pytestmark = pytest.mark.ns3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(tmp_path_factory.mktemp("trace"))


@pytest.mark.nightly
@pytest.mark.parametrize("case", cases(len(FRONT_ENDS), seed=7), ids=lambda c: f"{c.front_end}-{c.trees}x{c.depth}")
def test_every_target_is_proven_and_decides_as_the_framework(case: Case, dataset: Dataset) -> None:
    outcome = run(case, dataset, 20_000, max_cells=100_000)
    assert set(outcome.methods) == {"c", "p4", "onnx"}
    assert outcome.points == 20_000
    assert outcome.emitted_leaves <= outcome.leaves
