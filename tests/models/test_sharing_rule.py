"""A sharing rule as a tree decides as its four numbers say. Under a second."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretail.features.errors import ForetailError
from foretail.models.drop.sharing_rule import FEATURES, TRACKED, SharingRule


@pytest.mark.parametrize(
    "numbers", list(itertools.product((-1, 0, 17, 254), (0, 200, 255), (0, 144, 255), (0, 144, 176, 255)))
)
def test_the_tree_is_the_rule(numbers: tuple[int, int, int, int]) -> None:
    rule = SharingRule(*numbers)
    ensemble = rule.ensemble(cell_bytes=256)
    values = [{0, 255} | {max(n, 0) for n in numbers} | {min(n + 1, 255) for n in numbers} for _ in range(3)]
    seen = np.array(list(itertools.product(values[0], values[1], (0, 1), values[2])), np.int64)
    assert ensemble.exceeds(seen).tolist() == [rule.drops(*row) for row in seen.tolist()]
    assert ensemble.trees[0].depth <= 4
    assert [item.name for item in ensemble.features] == list(FEATURES)
    assert ensemble.features[0].params == "cell_bytes=256"


def test_the_rule_on_what_tofino_knows() -> None:
    rule = SharingRule(17, 255, 136, 176)
    ensemble = rule.tracked(cell_bytes=256)
    seen = np.array(list(itertools.product((0, 17, 18, 255), (0, 1), (0, 136, 137, 176, 177, 255))), np.int64)
    assert ensemble.exceeds(seen).tolist() == [
        rule.drops(left, 0, first, ratio) for left, first, ratio in seen.tolist()
    ]
    assert [item.name for item in ensemble.features] == list(TRACKED)
    assert [item.params for item in ensemble.features] == ["cell_bytes=256", "", "reported_every=8"]
    with pytest.raises(ForetailError, match=r"^no ingress of Tofino knows the fill of the buffer: set fill to 255$"):
        SharingRule(17, 229, 136, 176).tracked(cell_bytes=256)
