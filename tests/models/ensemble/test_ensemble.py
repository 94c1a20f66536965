"""The ensemble IR: meaning, files, and what it refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.models.ensemble.boxes import Boxes, difference, leaf_boxes, overlap
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, keys_exceed, votes_of
from foretail.models.ensemble.rounding import arithmetic, framework_drops, framework_sum, rounding_bound
from foretail.models.ensemble.tree import Tree
from tests.examples import draws
from tests.forests import PAPER_INPUTS, Trained, forests, paper_forest, stump, stumps
from tests.refusals import refusing


@settings(max_examples=draws(40))
@given(forests())
def test_an_ensemble_means_the_exact_sum_of_the_forests_leaves(trained: Trained) -> None:
    sums = trained.ensemble.exact_sum(trained.rows)
    reached = trained.forest.forest_.apply(trained.rows)
    for row, total in enumerate(sums.tolist()):
        leaves = zip(trained.forest.forest_.estimators_, reached[row], strict=True)
        expected = sum(Fraction(float(tree.tree_.value[leaf, 0, 1])) for tree, leaf in leaves)
        assert Fraction(total, 1 << trained.ensemble.scale_bits) == expected


@settings(max_examples=draws(40))
@given(forests(), st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_integer_cuts_decide_as_scikit_learn_wherever_its_rounding_cannot_matter(trained: Trained, cut: float) -> None:
    probability = trained.forest.forest_.predict_proba(trained.rows)[:, 1]
    assert np.array_equal(trained.ensemble.probability(trained.rows), probability)
    drops = trained.ensemble.with_threshold(Fraction(cut) * len(trained.ensemble.trees)).exceeds(trained.rows)
    clear = np.abs(probability - cut) > 1e-12
    assert np.array_equal(drops[clear], probability[clear] > cut)


@settings(max_examples=draws(40))
@given(forests())
def test_keys_order_as_exact_sums(trained: Trained) -> None:
    sums, keys = trained.ensemble.exact_sum(trained.rows), trained.ensemble.exact_key(trained.rows)
    order = np.lexsort(keys.T[::-1])
    assert sorted(sums.tolist()) == sums[order].tolist()
    for bound in (Fraction(1, 3), Fraction(0), Fraction(-5), Fraction(10**30)):
        expected = [Fraction(s, 1 << trained.ensemble.scale_bits) > bound for s in sums.tolist()]
        assert keys_exceed(keys, trained.ensemble.key_of(bound)).tolist() == expected


def test_a_carry_runs_through_every_limb() -> None:
    """1 - 2^-150 + 2^-150: the last of four limbs is full, and so are those before it."""
    ensemble = stumps([0.0, 1.0], [0.0, -(2.0**-150)], [0.0, 2.0**-150])
    assert ensemble.exact_key(np.array([[0] * 3, [200] * 3])).tolist() == [[0, 0, 0, 0], [1 << (150 - 3 * 48), 0, 0, 0]]


@settings(max_examples=draws(40))
@given(forests())
def test_an_ensemble_survives_its_file(trained: Trained) -> None:
    again = Ensemble.from_json(trained.ensemble.to_json())
    assert again == trained.ensemble
    assert all(tree.visits is not None and tree.visits.sum() > 0 for tree in again.trees)
    assert again.to_json() == trained.ensemble.to_json()
    assert np.array_equal(again.exact_key(trained.rows), trained.ensemble.exact_key(trained.rows))


@settings(max_examples=draws(20))
@given(forests())
def test_visits_are_the_rows_that_reach_each_leaf(trained: Trained) -> None:
    rows = trained.rows
    half = len(rows) // 2
    counted = trained.ensemble.with_visits([rows[:half], rows[half:]])
    for tree in counted.trees:
        assert tree.visits is not None
        assert tree.visits.tolist() == [int(np.sum(tree.leaf(rows) == node)) for node in range(len(tree.feature))]
        below = tree.sums(tree.shares)
        assert below[0] == pytest.approx(1)
        inner = tree.feature >= 0
        assert below[inner] == pytest.approx(below[tree.left[inner]] + below[tree.right[inner]])
    with pytest.raises(ForetailError, match="no visits"):
        _ = trained.ensemble.with_visits([]).trees[0].shares


def test_rows_are_computed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = paper_forest()
    ensemble, x = trained.ensemble, trained.rows.copy()
    keys, probability = ensemble.exact_key(x), ensemble.probability(x)
    monkeypatch.setattr("foretail.models.ensemble.ensemble.CHUNK_ROWS", 700)
    assert np.array_equal(ensemble.exact_key(x), keys)
    assert np.array_equal(ensemble.probability(x), probability)
    assert ensemble.exact_key(x[:0]).shape == (0, keys.shape[1])
    x[-1, 0] = -1
    for wrong in (x, x[:, 0], np.int64(3)):
        with pytest.raises(ForetailError, match="feature"):
            ensemble.exact_key(wrong)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-4, max_value=4), st.integers(8, 58))
def test_votes_round_half_to_even(value: float, bits: int) -> None:
    exact = Fraction(value) * 2**bits
    vote = int(votes_of(np.array([value]), bits)[0])
    assert abs(vote - exact) <= Fraction(1, 2)
    assert abs(vote - exact) < Fraction(1, 2) or vote % 2 == 0


def test_cuts_at_the_ends_of_the_range_are_exact() -> None:
    top = (1 << 24) - 1
    ensemble = Ensemble(
        (FeatureInput("a", "", 24),), (stump([0.0, 1.0], cut=top - 1), stump([0.0, 1.0], cut=0)), Fraction(1)
    )
    assert ensemble.exceeds(np.array([[0], [1], [top - 1], [top]])).tolist() == [False, False, False, True]


BREAKS: dict[str, Callable[[Any], Any]] = {
    "another schema": lambda d: d.update(schema="other"),
    "another version": lambda d: d.update(version=2),
    "a missing key": lambda d: d.pop("base"),
    "no schema": lambda d: d.pop("schema"),
    "an unknown key": lambda d: d.update(extra=1),
    "no trees": lambda d: d.update(trees=[]),
    "no features": lambda d: d.update(features=[]),
    "a repeated feature": lambda d: d["features"][1].update(name="f0"),
    "an unsafe feature name": lambda d: d["features"][0].update(name='f";int x;//'),
    "unsafe params": lambda d: d["features"][0].update(params='a"b'),
    "too many bits": lambda d: d["features"][0].update(bits=33),
    "a value that is not a hex float": lambda d: d["trees"][0]["value"].__setitem__(1, "0.5"),
    "a value beyond float64": lambda d: d["trees"][0]["value"].__setitem__(1, "0x1.0p+9999"),
    "a decimal number": lambda d: d["trees"][0]["cut"].__setitem__(0, 10.0),
    "a cut beyond the range": lambda d: d["trees"][0]["cut"].__setitem__(0, 255),
    "a cut at a leaf": lambda d: d["trees"][0]["cut"].__setitem__(1, 3),
    "a value at an inner node": lambda d: d["trees"][0]["value"].__setitem__(0, "0x1.0p+0"),
    "an undeclared feature": lambda d: d["trees"][0]["feature"].__setitem__(0, 2),
    "a cycle": lambda d: d["trees"][0]["left"].__setitem__(0, 0),
    "a shared child": lambda d: d["trees"][0]["left"].__setitem__(0, 2),
    "a child that does not exist": lambda d: d["trees"][0]["left"].__setitem__(0, 7),
    "arrays of two lengths": lambda d: d["trees"][0]["cut"].append(0),
    "votes without a width": lambda d: d["trees"][0].update(votes=[0, 0, 1]),
    "visits of one tree alone": lambda d: d["trees"][0].update(visits=[0, 3, 4]),
    "visits at an inner node": lambda d: _visited(d, [7, 3, 4]),
    "visits of two lengths": lambda d: _visited(d, [0, 3]),
    "visits below 0": lambda d: _visited(d, [0, -3, 4]),
    "a width without votes": lambda d: d.update(vote_bits=8),
    "a threshold that is not a number": lambda d: d.update(threshold="1/3"),
}


def _visited(document: dict[str, Any], visits: list[int]) -> None:
    for tree in document["trees"]:
        tree["visits"] = visits


@pytest.mark.parametrize("fault", BREAKS)
def test_malformed_files_are_refused_with_one_sentence_that_names_the_file(fault: str, tmp_path: Path) -> None:
    document = json.loads(stumps([0.0, 1.0], [0.25, 0.5]).to_json())
    BREAKS[fault](document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ForetailError, match=r"broken\.json"):
        Ensemble.load(path)


def test_the_hash_depends_on_every_part() -> None:
    ensemble = stumps([0.0, 1.0], [0.25, 0.5])
    others = [
        replace(ensemble, base=0.5),
        replace(ensemble, threshold=Fraction(1, 4)),
        replace(ensemble, origin={"framework": "x"}),
        replace(ensemble, output="logit"),
        ensemble.with_visits([[[0, 0]]]),
        replace(ensemble, trees=(stump([0.0, 0.5]), ensemble.trees[1])),
        replace(ensemble, trees=(stump([0.0, 1.0], cut=11), ensemble.trees[1])),
    ]
    assert len({e.sha256 for e in [ensemble, *others]}) == len(others) + 1


def test_version_1_files_stay_readable() -> None:
    stored = Path(__file__).parent / "ensemble_v1.json"
    ensemble = Ensemble.load(stored)
    assert ensemble.to_json() == stored.read_text()
    assert [f.name for f in ensemble.features] == [f.name for f in PAPER_INPUTS]
    x = np.array([[0, 0, 0, 0], [3000, 2800, 4090, 4000], [4096, 4096, 4096, 4096]])
    assert ensemble.score(x).tolist() == STORED_SCORES
    assert ensemble.default_tau is not None
    assert (ensemble.score(x) > ensemble.default_tau).tolist() == ensemble.exceeds(x).tolist()


STORED_SCORES = [0, 308, 442]
SIZE = 4


@st.composite
def boxes(draw: st.DrawFn, inputs: int = 2, max_rows: int = 5) -> Boxes:
    rows = draw(st.integers(0, max_rows))
    ends = np.array(
        [[sorted((draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1)))) for _ in range(inputs)]]
        if rows == 1
        else [
            [sorted((draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1)))) for _ in range(inputs)]
            for _ in range(rows)
        ]
    ).reshape(rows, inputs, 2)
    votes = np.array([draw(st.integers(0, 2)) for _ in range(rows)], np.int64)
    return Boxes(ends[:, :, 0], ends[:, :, 1], votes, draw(st.sampled_from([None, 0, 1])))


def _holds(function: Boxes, point: tuple[int, ...]) -> NDArray[np.int64]:
    return np.flatnonzero(np.all((function.low <= point) & (function.high >= point), axis=1))


@settings(max_examples=draws(200))
@given(boxes())
def test_overlap_finds_an_input_in_two_boxes(function: Boxes) -> None:
    at = overlap(function)
    crowded = [p for p in product(range(SIZE), repeat=2) if len(_holds(function, p)) > 1]
    assert (at is None) == (not crowded)
    if at is not None:
        assert tuple(at.tolist()) in crowded


@settings(max_examples=draws(400))
@given(boxes(), boxes())
def test_difference_finds_an_input_with_another_value(model: Boxes, other: Boxes) -> None:
    if overlap(other) is not None:
        return
    at = difference(model, other)

    def differs(point: tuple[int, ...]) -> bool:
        found = _holds(other, point)
        value = other.votes[found[0]] if len(found) else other.default
        return any(model.votes[row] != value for row in _holds(model, point))

    wrong = [p for p in product(range(SIZE), repeat=2) if differs(p)]
    assert (at is None) == (not wrong)
    if at is not None:
        assert tuple(at.tolist()) in wrong


@settings(max_examples=draws(30))
@given(forests())
def test_the_boxes_of_a_tree_are_where_its_leaves_are_reached(trained: Trained) -> None:
    for tree in trained.ensemble.trees:
        found = leaf_boxes(tree, trained.ensemble.features, np.arange(len(tree.feature)))
        assert overlap(found) is None
        assert difference(found, found) is None
        corners = np.concatenate([found.low, found.high])
        assert np.array_equal(tree.leaf(corners), np.tile(found.votes, 2))


def test_a_leaf_that_no_input_reaches_has_no_box() -> None:
    tree = Tree(
        np.array([0, 0, -1, -1, -1], np.int32),
        np.array([5, 9, 0, 0, 0]),
        np.array([1, 2, -1, -1, -1], np.int32),
        np.array([4, 3, -1, -1, -1], np.int32),
        np.array([0, 0, 1.0, 2.0, 3.0]),
    )
    found = leaf_boxes(tree, [FeatureInput("f", "", 8)], np.arange(5))
    assert found.votes.tolist() == [2, 4]


X = np.array([[0], [200]])


def _three(values: tuple[float, float, float], dtype: str) -> Ensemble:
    """Sum to these values, in order, at both inputs."""
    return Ensemble(
        (FeatureInput("a", "", 8),),
        tuple(stump([value, value]) for value in values),
        Fraction(0),
        output="logit",
        origin={"arithmetic": dtype},
    )


@pytest.mark.parametrize(("dtype", "tiny"), [("float64", 2.0**-60), ("float32", 2.0**-30)])
def test_what_the_framework_rounds_away_is_within_the_bound(dtype: str, tiny: float) -> None:
    lost, kept = _three((tiny, 1.0, -1.0), dtype), _three((1.0, -1.0, tiny), dtype)
    assert framework_sum(lost, X).tolist() == [0.0, 0.0]
    assert framework_sum(kept, X).tolist() == [tiny, tiny]
    assert not framework_drops(lost, X).any()
    assert framework_drops(kept, X).all()
    for ensemble in (lost, kept):
        assert ensemble.exceeds(X).all()
        assert tiny <= rounding_bound(ensemble) < 2.0**20 * tiny


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_logits_whose_probability_rounds_to_a_half_are_within_the_bound(dtype: str) -> None:
    one = np.dtype(dtype).type(1)
    halves = [logit for logit in one * 2.0 ** -np.arange(1, 60) if one / (one + np.exp(-logit)) == 0.5]
    assert 0 < halves[0] <= rounding_bound(_three((0.0, 0.0, 0.0), dtype))
    assert rounding_bound(replace(_three((0.0, 0.0, 0.0), dtype), output="mean_probability")) == 0


def test_files_that_name_no_arithmetic_add_as_they_always_did() -> None:
    boosted = replace(_three((1.0, 2.0, 3.0), ""), origin={})
    assert arithmetic(boosted) == np.float32
    assert arithmetic(replace(boosted, output="mean_probability")) == np.float64


def test_logits_are_compared_without_a_division() -> None:
    candidates = 1.5 + np.arange(64) / 128
    above_all = np.nextafter(candidates, 2)
    # what a forest of three trees would compare is equal
    threshold, above = next((t, a) for t, a in zip(candidates, above_all, strict=True) if a / 3 == t / 3)
    ensemble = replace(_three((float(above), 0.0, 0.0), "float64"), threshold=Fraction(float(threshold)))
    assert framework_drops(ensemble, X).all()
    assert not framework_drops(replace(ensemble, output="mean_probability"), X).any()


def every_look_takes(seconds: int) -> itertools.count[int]:
    """A clock."""
    return itertools.count(0, seconds)


def test_work_within_its_budget_reports_every_part() -> None:
    told: list[tuple[str, float]] = []
    effort = Effort(100, lambda what, part: told.append((what, part)), every_look_takes(10).__next__)
    assert list(effort.watch("sums", "abcd", 4)) == list("abcd")
    assert told == [("sums", part) for part in (0.25, 0.5, 0.75, 1.0)]


def test_work_beyond_its_budget_is_refused_after_its_first_part() -> None:
    effort = Effort(100, clock=every_look_takes(10).__next__)
    seen: list[int] = []
    with pytest.raises(ForetailError, match=r"at least 1,010 s \(sums\), more than budget_seconds=100: raise it"):
        seen.extend(effort.watch("sums", range(100), 100))
    assert seen == [0]


def test_budgets_count_from_the_start_of_the_export() -> None:
    effort = Effort(100, clock=every_look_takes(10).__next__)
    assert len(list(effort.watch("sums", range(4), 4))) == 4
    with pytest.raises(ForetailError, match=r"at least 110 s \(proof\)"):
        list(effort.watch("proof", range(5), 5))


@pytest.mark.parametrize("max_cells", [10**6, 1])
def test_an_export_that_would_take_too_long_writes_nothing(max_cells: int, tmp_path: Path) -> None:
    ensemble, slow = stumps(*[[0.0, 1.0]] * 3), Effort(5, clock=every_look_takes(9).__next__)
    with pytest.raises(ForetailError, match=r"budget_seconds=5: raise it, set max_cells"):
        export(ensemble, P4(), tmp_path / "p4", max_cells=max_cells, effort=slow)
    assert not (tmp_path / "p4").exists()
    told: dict[str, float] = {}
    export(ensemble, P4(), tmp_path / "p4", max_cells=max_cells, effort=Effort(60, told.__setitem__))
    by_cells = [f"{what} on 8 cells" for what in ("sums", "votes", "proof", "rounding")]
    steps = ["trees simplified", "votes chosen", "code written", "code built"]
    assert told == dict.fromkeys([*steps, *(["proof by boxes of tables"] if max_cells == 1 else by_cells)], 1.0)


def loaded(folder: Path, content: bytes) -> Ensemble:
    (folder / "broken.json").write_bytes(content)
    return Ensemble.load(folder / "broken.json")


def voted(votes: list[int]) -> Ensemble:
    tree = replace(stump([0.0, 1.0]), votes=np.array(votes))
    return Ensemble((FeatureInput("a", "", 8),), (tree,), Fraction(1, 2), vote_bits=8, default_tau=0)


ONE = stumps([0.0, 1.0])
NO_ENSEMBLES = (b"", b"{", b"[]", b"null", b'{"schema": NaN}', b"1" * 5000)
test_what_cannot_be_is_refused = refusing(
    (lambda: ONE.exact_sum(np.zeros((3, 2), np.int64)), "needs 1 feature columns"),
    (lambda: ONE.exact_sum(np.zeros(3, np.int64)), "needs 1 feature columns"),
    (lambda: ONE.exact_sum(np.zeros((3, 1))), "needs integer features"),
    (lambda: ONE.exact_sum(np.array([[256]])), "outside"),
    (lambda: ONE.exact_sum(np.array([[-1]])), "outside"),
    *((lambda folder, content=content: loaded(folder, content), r"broken\.json") for content in NO_ENSEMBLES),
    (lambda folder: loaded(folder, b"\xff\xfe\x00"), "cannot be read"),
    (lambda folder: Ensemble.load(folder / "none.json"), "cannot be read"),
    (lambda: voted([0, 0, 257]), "not its rounded values"),
    (lambda: stumps([0.0, 1.0], threshold=Fraction(1, 3)), "power of two"),
    (lambda: Boxes(np.array([[2]]), np.array([[1]]), np.array([0])), "a box is empty"),
    (lambda: Boxes(np.array([[2]]), np.array([[3]]), np.array([0, 1])), "one bound per box and input"),
)
