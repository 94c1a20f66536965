"""A random ensemble of every front end through every target; `tests.export.conformance` runs many."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.features.dataset.reader import Dataset
from tests.export.conformance import COLUMNS, FRONT_ENDS, Case, cases, collected, run

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


def test_cases_span_what_they_say() -> None:
    found = cases(200, seed=1)
    assert {case.front_end for case in found} == set(FRONT_ENDS)
    assert {case.depth for case in found} == set(range(1, 9))
    sizes = np.array([(case.trees, len(case.columns)) for case in found])
    assert sizes.min() == 1
    assert sizes.max(axis=0).tolist() == [64, len(COLUMNS)]
