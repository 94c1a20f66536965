"""The ensemble IR: meaning, files, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, keys_exceed, votes_of
from foretail.models.ensemble.tree import Tree
from tests.examples import draws
from tests.forests import PAPER_INPUTS, Trained, forests, paper_forest, stump, stumps


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


def test_the_forest_of_the_paper_decides_as_scikit_learn() -> None:
    trained = paper_forest()
    assert np.array_equal(trained.ensemble.exceeds(trained.rows), trained.forest.forest_.predict(trained.rows))
    assert trained.ensemble.exceeds(trained.rows).any()


def test_cuts_at_the_ends_of_the_range_are_exact() -> None:
    top = (1 << 24) - 1
    ensemble = Ensemble(
        (FeatureInput("a", "", 24),), (stump([0.0, 1.0], cut=top - 1), stump([0.0, 1.0], cut=0)), Fraction(1)
    )
    assert ensemble.exceeds(np.array([[0], [1], [top - 1], [top]])).tolist() == [False, False, False, True]


def test_extreme_logits_do_not_overflow() -> None:
    ensemble = replace(stumps([-2000.0, 2000.0]), output="logit")
    assert ensemble.probability(np.array([[0], [200]])).tolist() == [0.0, 1.0]


def test_scores_need_votes() -> None:
    with pytest.raises(ForetailError, match="no integer votes"):
        stumps([0.0, 1.0]).score(np.array([[1]]))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((3, 2), np.int64), "needs 1 feature columns"),
        (np.zeros(3, np.int64), "needs 1 feature columns"),
        (np.zeros((3, 1)), "needs integer features"),
        (np.array([[256]]), "outside"),
        (np.array([[-1]]), "outside"),
    ],
)
def test_malformed_rows_are_refused(x: Any, says: str) -> None:
    with pytest.raises(ForetailError, match=says):
        stumps([0.0, 1.0]).exact_sum(x)


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
    with pytest.raises(ForetailError, match=r"broken\.json") as caught:
        Ensemble.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": NaN}', "[" * 100_000, "1" * 5000])
def test_files_that_are_no_ensemble_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ForetailError, match=r"broken\.json"):
        Ensemble.load(path)


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="cannot be read"):
        Ensemble.load(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ForetailError, match="cannot be read"):
        Ensemble.load(tmp_path / "binary.json")


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


def test_votes_that_are_not_the_rounded_values_are_refused() -> None:
    tree = stump([0.0, 1.0])
    voted = Tree(tree.feature, tree.cut, tree.left, tree.right, tree.value, votes=np.array([0, 0, 257]))
    with pytest.raises(ForetailError, match="not its rounded values"):
        Ensemble((FeatureInput("a", "", 8),), (voted,), Fraction(1, 2), vote_bits=8, default_tau=0)


def test_a_threshold_that_is_no_dyadic_rational_is_refused() -> None:
    with pytest.raises(ForetailError, match="power of two"):
        stumps([0.0, 1.0], threshold=Fraction(1, 3))


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
