"""A sharing rule as a tree decides as its four numbers say. Under a second."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretail.core.errors import ForetailError
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


@pytest.mark.parametrize("last_pressure", [0, 160, 255])
@pytest.mark.parametrize(("far", "far_less"), [(0, 16), (17, 16), (100, 16), (100, 0), (254, 255), (255, 16)])
@pytest.mark.parametrize("numbers", [(-1, 255, 136, 136), (17, 229, 136, 176), (17, 255, 255, 255), (-1, 200, 8, 255)])
def test_far_and_last_packets_have_limits_of_their_own(
    numbers: tuple[int, int, int, int], last_pressure: int, far: int, far_less: int
) -> None:
    rule = SharingRule(*numbers, last_pressure, far, far_less)
    ensemble = rule.ensemble(cell_bytes=256)
    cuts = {-1, *numbers, last_pressure, far, *(max(0, one - far_less) for one in numbers)}
    values = sorted({0, 255} | {min(max(one + more, 0), 255) for one in cuts for more in (0, 1)})
    seen = np.array(list(itertools.product(values, values, (0, 1), values)), np.int64)
    assert ensemble.exceeds(seen).tolist() == [rule.drops(*row) for row in seen.tolist()]
    assert len(ensemble.trees) <= 2
    assert all(tree.depth <= 4 for tree in ensemble.trees)


def test_without_far_packets_the_rule_is_one_tree() -> None:
    assert SharingRule(17, 229, 136, 176).ensemble(256) == SharingRule(17, 229, 136, 176, 255, 200, 0).ensemble(256)


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
