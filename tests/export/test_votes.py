"""The vote pass: narrowest integer votes that decide as the exact sums on every cell."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import C, render_c
from foretail.export.c.text import Batch, Single
from foretail.export.folder import encoded
from foretail.export.onnx.graph import OnnxPredictor, read_onnx, render_onnx
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.passes import (
    PASSES,
    drop_redundant_thresholds,
    lower,
    merge_equal_subtrees,
    prune_dead_branches,
    simplify,
    with_votes,
)
from foretail.export.proof import Certificate, ProofError, Relation, relate, relate_by_boxes
from foretail.export.target import Target, export, prove_files
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, votes_of
from foretail.models.ensemble.rounding import rounding_bound
from foretail.models.ensemble.tree import Tree
from tests.examples import draws
from tests.export.c.test_c import FORMS
from tests.forests import Trained, forests, paper_forest, stump, stumps


def _all_points(ensemble: Ensemble) -> NDArray[np.int64]:
    return np.concatenate(list(Cells.of(ensemble).batches()))


def _relation(voted: Ensemble) -> Relation:
    return relate(voted, voted, Cells.of(voted))


def _orders(ensemble: Ensemble, bits: int) -> bool:
    """Slow and obvious: over all cells, the order of the vote sums is the order of the exact sums."""
    points = _all_points(ensemble)
    score = np.sum([votes_of(tree.value, bits)[tree.leaf(points)] for tree in ensemble.trees], axis=0)
    by_sum: dict[int, set[int]] = {}
    for total, votes in zip(ensemble.exact_sum(points).tolist(), score.tolist(), strict=True):
        by_sum.setdefault(total, set()).add(votes)
    groups = [by_sum[total] for total in sorted(by_sum)]
    return all(len(g) == 1 for g in groups) and all(max(a) < min(b) for a, b in pairwise(groups))


@settings(max_examples=draws(30))
@given(forests(max_trees=3, max_depth=3))
def test_the_width_is_the_smallest_that_orders_all_cells(trained: Trained) -> None:
    voted = with_votes(trained.ensemble)
    assert voted.vote_bits is not None
    if _relation(voted).order:
        assert _orders(trained.ensemble, voted.vote_bits)
        assert not any(_orders(trained.ensemble, bits) for bits in range(1, voted.vote_bits))
    else:
        assert not any(_orders(trained.ensemble, bits) for bits in range(1, 59))


def test_sums_that_differ_in_their_last_bits_get_a_width_for_their_threshold_only() -> None:
    tiny = 2.0**-70
    ensemble = stumps([0.0, 1.0], [0.0, tiny], threshold=Fraction(1, 2))
    voted = with_votes(ensemble)
    assert not _relation(voted).order
    assert _relation(voted).default
    with pytest.raises(ForetailError, match="no vote width up to 58 bits"):
        with_votes(ensemble.with_threshold(Fraction(1)))
    with pytest.raises(ForetailError, match="values of the leaves are too large for votes"):
        with_votes(stumps([0.0, 2.0**80], [0.0, 1.0], threshold=Fraction(1, 2)))


def test_equal_sums_of_different_leaves_must_get_equal_scores() -> None:
    # 3 x 1/512 = 3/512 exactly, but 1/512 rounds to 0 and 3/512 to 2 at 8 bits.
    voted = with_votes(stumps([0.0, 1 / 512], [0.0, 1 / 512], [0.0, 1 / 512], [0.0, 3 / 512]))
    assert voted.vote_bits == 9
    assert _relation(voted).order


@pytest.mark.parametrize("threshold", [Fraction(-1), Fraction(0), Fraction(3, 2), Fraction(2), Fraction(100)])
def test_thresholds_at_and_beyond_both_ends(threshold: Fraction) -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 0.5], threshold=threshold))
    assert voted.default_tau is not None
    points = _all_points(voted)
    assert np.array_equal(voted.score(points) > voted.default_tau, voted.exceeds(points))


def test_above_the_limit_votes_are_exact_where_they_fit() -> None:
    ensemble = stumps(*([0.0, k / 64] for k in range(1, 28)), threshold=Fraction(3))
    assert Cells.of(ensemble).count > 2**20
    voted = with_votes(ensemble, max_cells=1000)
    assert voted.vote_bits == 6
    assert relate_by_boxes(ensemble, voted) == Relation(order=True, default=True)


def test_above_the_limit_a_base_counts_with_its_sign() -> None:
    plain = stumps(*([0.0, k / 64] for k in range(1, 28)), threshold=Fraction(3))
    ensemble = Ensemble(plain.features, plain.trees, Fraction(9, 4), base=-0.75, output="logit")
    voted = with_votes(ensemble, max_cells=1000)
    assert relate_by_boxes(ensemble, voted) == Relation(order=True, default=True)
    tau = voted.require_votes()[1]
    assert not any(relate_by_boxes(ensemble, replace(voted, default_tau=other)).default for other in (tau - 1, tau + 1))
    rounded = replace(plain, trees=tuple(replace(tree, value=tree.value / 3) for tree in plain.trees))
    for base in (-0.75, 0.75):
        moved = replace(ensemble, trees=rounded.trees, threshold=1 + Fraction(base), base=base)
        narrow = replace(
            moved,
            trees=tuple(replace(tree, votes=votes_of(tree.value, 4)) for tree in moved.trees),
            vote_bits=4,
            default_tau=int((moved.threshold - Fraction(base)) * 16),
        )
        points = np.random.default_rng(1).integers(0, 21, (4000, len(moved.features)))
        far = [abs(Fraction(s) - moved.threshold) for s in moved.float_sum(points).tolist()]
        wrong = (narrow.score(points) > narrow.require_votes()[1]) != moved.exceeds(points)
        bound = relate_by_boxes(moved, narrow).rounding
        assert wrong.any()
        assert max(distance for distance, differs in zip(far, wrong, strict=True) if differs) <= bound
        assert bound <= Fraction(27, 32) + Fraction(1, 16)  # half a vote for each tree, and one between two scores


@pytest.mark.parametrize("largest", [1.0, 0.75, 3.0, 2.0**-40, 2.0**30])
def test_the_widest_votes_fill_64_bits_and_no_wider_ones_fit(largest: float) -> None:
    ensemble = stumps([0.0, largest], [0.0, largest], [0.0, largest])

    def fits(bits: int) -> bool:
        return 3 * Fraction(largest) * Fraction(2) ** bits + 3 < 2**63

    assert fits(ensemble.max_vote_bits)
    assert ensemble.max_vote_bits == 58 or not fits(ensemble.max_vote_bits + 1)


def test_above_the_limit_votes_that_do_not_fit_round_no_more_than_the_framework() -> None:
    trained = paper_forest(trees=16)
    voted = with_votes(trained.ensemble, max_cells=1000)
    relation = relate_by_boxes(trained.ensemble, voted)
    assert not relation.order
    assert 0 < relation.rounding <= rounding_bound(trained.ensemble)
    assert voted.default_tau is not None
    sums = np.array([Fraction(int(s), 1 << voted.scale_bits) for s in voted.exact_sum(trained.rows)])
    clear = np.abs(sums - trained.ensemble.threshold) > relation.rounding
    decided = voted.score(trained.rows) > voted.default_tau
    assert np.array_equal(decided[clear], trained.ensemble.exceeds(trained.rows)[clear])
    assert decided.sum() > 0


EDGES = (0, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 2)


def stumps_at(cuts: list[int], bits: int) -> Ensemble:
    """A stump per cut of the wide feature, of other weights, so that every side shows; and one of a narrow feature."""
    features = (FeatureInput("time", "", bits), FeatureInput("queue", "", 10))
    trees = [stump([0.0, 1.0 + index], cut) for index, cut in enumerate(cuts)]
    return Ensemble(features, (*trees, stump([0.5, 0.25], 7, feature=1)), Fraction(3, 2))


def edges(bits: int) -> list[int]:
    return [edge for edge in EDGES if edge < (1 << bits) - 1]


def beside(cuts: list[int], bits: int) -> np.ndarray:
    """Both sides of every cut and both ends of the range, with a queue below and above its cut."""
    values = sorted({0, (1 << bits) - 1, *cuts, *(cut + 1 for cut in cuts)})
    return np.array([(value, queue) for value in values for queue in (7, 8)])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("max_cells", [10**6, 0])
@pytest.mark.parametrize(("shape", "batch"), FORMS)
@pytest.mark.parametrize("bits", [25, 30, 31, 32])
def test_every_form_of_c_is_proven_and_exact_at_the_edges(
    bits: int, shape: Single, batch: Batch, max_cells: int, tmp_path: Path
) -> None:
    ensemble = stumps_at(edges(bits), bits)
    result = export(ensemble, C(shape=shape, batch=batch), tmp_path / "out", max_cells=max_cells)
    assert result.certificate.method == ("cells" if max_cells else "boxes")
    library, rows = PredictorLibrary(result.file(".so")), np.tile(beside(edges(bits), bits), (3, 1))
    expected = result.ensemble.score(rows)
    assert library.score(rows).tolist() == library.score_each(rows).tolist() == expected.tolist()
    assert (expected > library.default_tau).tolist() == ensemble.exceeds(rows).tolist()


@settings(max_examples=draws(50))
@given(data=st.data(), bits=st.integers(25, 32))
def test_onnx_is_exact_beside_any_cut(data: st.DataObject, bits: int) -> None:
    largest = (1 << bits) - 2
    cut = st.sampled_from(edges(bits)) | st.integers(0, largest)
    cuts = data.draw(st.lists(cut, min_size=1, max_size=6))
    ensemble = stumps_at(cuts, bits)
    voted = with_votes(ensemble)
    content = render_onnx(voted)
    boundaries = read_onnx(content, voted.features).boundaries
    assert boundaries == {0: set(cuts), 1: {7}}
    score, drop = OnnxPredictor(content).run(beside(cuts, bits))
    assert np.array_equal(score, voted.score(beside(cuts, bits)))
    assert np.array_equal(drop, ensemble.exceeds(beside(cuts, bits)))


@pytest.mark.parametrize("max_cells", [10**6, 0])
@pytest.mark.parametrize("bits", [25, 32])
def test_an_onnx_export_is_proven(bits: int, max_cells: int, tmp_path: Path) -> None:
    ensemble = stumps_at(edges(bits), bits)
    result = export(ensemble, Onnx(), tmp_path / "out", max_cells=max_cells)
    outside = np.array([[-1, 0], [1 << 40, 5000], [(1 << 63) - 1, 0]])  # count as the nearest value inside
    score, _ = OnnxPredictor(result.file(".onnx").read_bytes()).run(outside)
    assert score.tolist() == result.ensemble.score(np.clip(outside, 0, [(1 << bits) - 1, 1023])).tolist()


def test_narrow_graphs_stay_in_float32() -> None:
    def types(ensemble: Ensemble) -> set[str]:
        model = onnx.load_from_string(render_onnx(with_votes(ensemble)))
        (trees,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor")
        return {attribute.name for attribute in trees.attribute if "nodes_values" in attribute.name}

    assert types(paper_forest().ensemble) == {"nodes_values"}
    assert types(stumps_at([1 << 24], 25)) == {"nodes_values_as_tensor"}


@pytest.mark.parametrize("target", [P4(), P4(profile="tofino")])
def test_p4_refuses_in_one_sentence(target: Target, tmp_path: Path) -> None:
    says = r"^feature 'time' has 25 bits, but an input of the P4 control is bit<24>.*choose target=c or target=onnx"
    with pytest.raises(ForetailError, match=says):
        export(stumps_at([5], 25), target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_wider_features_than_32_bits_are_refused() -> None:
    with pytest.raises(ForetailError, match="33"):
        stumps_at([5], 33)


def _tree(*nodes: tuple[int, int, int, int] | float) -> Tree:
    """Return a tree of (feature, cut, left, right) and leaf values."""
    inner = [n if isinstance(n, tuple) else (-1, 0, -1, -1) for n in nodes]
    feature, cut, left, right = (np.array(column) for column in zip(*inner, strict=True))
    return Tree(feature, cut, left, right, np.array([0.0 if isinstance(n, tuple) else n for n in nodes]))


def _ensemble(tree: Tree, inputs: int = 2) -> Ensemble:
    return Ensemble(tuple(FeatureInput(f"f{i}", "", 8) for i in range(inputs)), (tree,), Fraction(1, 2))


def test_what_no_switch_can_know_is_never_exported() -> None:
    study = replace(_ensemble(_tree((0, 0, 1, 2), 0.0, 1.0), 1), features=(FeatureInput("incast", "", 1),))
    for model in (study, with_votes(study)):
        with pytest.raises(ForetailError, match=r"^the model reads feature 'incast', which no switch can know"):
            lower(model)


@settings(max_examples=draws(20))
@given(forests(max_depth=6))
def test_every_pass_keeps_the_visits(trained: Trained) -> None:
    before = trained.ensemble.with_visits([trained.rows])
    for step in PASSES:
        after = step(before)
        recounted = after.with_visits([trained.rows])
        for tree, counted in zip(after.trees, recounted.trees, strict=True):
            assert tree.visits is not None
            assert counted.visits is not None
            assert tree.visits.sum() == len(trained.rows)
            if step is prune_dead_branches:  # whose leaves keep their inputs
                assert np.array_equal(tree.visits, counted.visits)
        before = recounted


def test_a_leaf_that_goes_leaves_its_visits_to_those_that_its_inputs_reach() -> None:
    tree = _tree((0, 5, 1, 2), 1.0, (1, 7, 3, 6), (0, 20, 4, 5), 1.0, 0.0, (0, 30, 7, 8), 1.0, 0.0)
    counted = replace(_ensemble(tree), trees=(replace(tree, visits=np.array([0, 7, 0, 0, 10, 20, 0, 30, 40])),))
    (after,) = drop_redundant_thresholds(counted).trees
    assert after.visits is not None
    assert after.visits[after.leaves].tolist() == [10 + 4, 20, 30 + 3, 40]
    same = _ensemble(_tree((0, 5, 1, 4), (1, 7, 2, 3), 0.0, 1.0, (1, 7, 5, 6), 0.0, 1.0))
    visited = replace(same.trees[0], visits=np.array([0, 0, 1, 2, 0, 30, 40]))
    (after,) = merge_equal_subtrees(replace(same, trees=(visited,))).trees
    assert after.visits is not None
    assert after.visits.tolist() == [0, 31, 42]
    box = _ensemble(_tree((0, 5, 1, 2), 1.0, (1, 7, 3, 4), 1.0, 1.0))
    odd = replace(box.trees[0], visits=np.array([0, 7, 0, 2, 3]))
    (after,) = merge_equal_subtrees(replace(box, trees=(odd,))).trees
    assert after.visits is not None
    assert after.visits.tolist() == [12]


@settings(max_examples=draws(40))
@given(forests(max_depth=6))
def test_every_pass_keeps_every_exact_sum(trained: Trained) -> None:
    model = trained.ensemble
    points = next(Cells.of(model).batches())
    for step in PASSES:
        after = step(model)
        finer = model.scale_bits - after.scale_bits
        assert np.array_equal(after.exact_sum(points) * (1 << finer), model.exact_sum(points))
        assert sum(len(t.leaves) for t in after.trees) <= sum(len(t.leaves) for t in model.trees)
        model = after


@pytest.mark.parametrize("cut", [5, 9])
def test_a_branch_that_no_input_takes_is_dropped(cut: int) -> None:
    model = _ensemble(_tree((0, 5, 1, 4), (0, cut, 2, 3), 0.25, 0.5, 1.0))
    assert prune_dead_branches(model).trees[0].value.tolist() == [0.0, 0.25, 1.0]


def test_a_test_with_equal_sides_is_dropped() -> None:
    model = _ensemble(_tree((0, 5, 1, 4), (1, 9, 2, 3), 0.25, 0.5, (1, 9, 5, 6), 0.25, 0.5))
    assert merge_equal_subtrees(model).trees[0].feature.tolist() == [1, -1, -1]


def test_a_test_whose_other_side_knows_the_answer_is_dropped() -> None:
    # right of f0 <= 5, the tree asks f1 <= 9; left of it the answer is always that of f1 <= 9 as f0 > 5 is not needed
    model = _ensemble(_tree((0, 5, 1, 2), 0.25, (0, 7, 3, 4), 0.25, 1.0))
    assert merge_equal_subtrees(model) == model
    assert drop_redundant_thresholds(model).trees[0].cut.tolist() == [7, 0, 0]


def test_leaves_with_equal_votes_are_merged() -> None:
    model = _ensemble(_tree((0, 5, 1, 2), 0.25, (1, 7, 3, 4), 1.0, 1.0 + 2.0**-40))
    lowered = lower(model, any_tau=False)
    emitted, reports = lowered.ensemble, lowered.passes
    assert emitted.vote_bits == 1
    assert [r.leaves_after for r in reports] == [3] * len(PASSES) + [3, 2, 2]
    assert reports[0].leaves_before == 3
    assert sum(len(t.leaves) for t in lower(model).ensemble.trees) == 3  # any tau must tell the two apart


def test_a_pass_that_changes_the_function_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(ensemble: Ensemble) -> Ensemble:
        first = ensemble.trees[0]
        value = np.where(first.feature < 0, first.value + 0.5, 0)
        return replace(ensemble, trees=(replace(first, value=value), *ensemble.trees[1:]))

    monkeypatch.setattr("foretail.export.passes.PASSES", (wrong,))
    with pytest.raises(ProofError, match="the pass wrong changes tree 0 at the input"):
        simplify(paper_forest().ensemble)


@pytest.fixture(scope="module")
def voted() -> Ensemble:
    return with_votes(paper_forest(trees=2, depth=3).ensemble)


def test_a_certificate_states_what_was_proven(voted: Ensemble, tmp_path: Path) -> None:
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert certificate.method == "cells"
    assert certificate.order
    assert certificate.taus is None
    assert certificate.default_tau == voted.default_tau
    assert (certificate.float_decides_otherwise or 0) <= (certificate.float_within_rounding or 0)
    assert set(certificate.outputs) == {
        "drop_predictor.h",
        "drop_predictor.c",
        "drop_predictor_selftest.c",
        "drop_predictor.so",
    }
    (tmp_path / "c.json").write_text(certificate.to_json())
    assert Certificate.load(tmp_path / "c.json") == certificate
    certificate.check_tau(12345)
    with pytest.raises(ForetailError, match=r"p4\.json is not a certificate of version 2"):
        Certificate.load(tmp_path / "p4.json")
    for version in (1, 3):
        (tmp_path / "c.json").write_text(certificate.to_json().replace('"version": 2', f'"version": {version}'))
        with pytest.raises(ForetailError, match="is not a certificate of version 2"):
            Certificate.load(tmp_path / "c.json")


def test_a_wrong_tau_in_the_model_is_caught(voted: Ensemble) -> None:
    scores = sorted({int(s) for points in Cells.of(voted).batches() for s in voted.score(points)})
    wrong = replace(voted, default_tau=scores[-1])
    with pytest.raises(ProofError, match="is not exact sum >"):
        prove_files(wrong, C(), encoded(render_c(wrong)))


def test_without_order_only_the_listed_tau_is_allowed() -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 2.0**-70]))
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert not certificate.order
    assert certificate.taus == [voted.default_tau]
    certificate.check_tau(certificate.default_tau)
    with pytest.raises(ForetailError, match="does not cover tau"):
        certificate.check_tau(certificate.default_tau + 1)


def test_cells_where_floats_decide_otherwise_are_counted_and_listed() -> None:
    # (0.1 + 0.2) + 0.3 is 0.6000000000000001 in float64, above the exact sum of the three.
    total = Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    ensemble = stumps([0.0, 0.1], [0.0, 0.2], [0.0, 0.3], threshold=total)
    voted = with_votes(ensemble)
    certificate = prove_files(voted, C(), encoded(render_c(voted, batch="rows")))[0]
    assert certificate.float_decides_otherwise == 1
    assert certificate.float_inputs == [[255, 255, 255]]
    assert certificate.float_within_rounding == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "foretail.certificate", "version": 2}', "\xff"])
def test_malformed_certificates_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text, encoding="latin-1")
    with pytest.raises(ForetailError, match="not a certificate"):
        Certificate.load(tmp_path / "c.json")
