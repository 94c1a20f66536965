"""Features of 25 to 32 bits, as times and sequence numbers: exact in C and ONNX, refused by P4."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import C
from foretail.export.c.text import Batch, Single
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.passes import with_votes
from foretail.export.target import Target, export
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from tests.examples import draws
from tests.forests import paper_forest, stump

EDGES = (0, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 2)
FORMS: list[tuple[Single, Batch]] = [
    ("branches", "rows"),
    ("branches", "lanes"),
    ("bitvector", "rows"),
    ("bitvector", "lanes"),
]


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
@pytest.mark.full
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
    from foretail.export.onnx.graph import OnnxPredictor, read_onnx, render_onnx

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
    from foretail.export.onnx.graph import OnnxPredictor

    ensemble = stumps_at(edges(bits), bits)
    result = export(ensemble, Onnx(), tmp_path / "out", max_cells=max_cells)
    outside = np.array([[-1, 0], [1 << 40, 5000], [(1 << 63) - 1, 0]])  # count as the nearest value inside
    score, _ = OnnxPredictor(result.file(".onnx").read_bytes()).run(outside)
    assert score.tolist() == result.ensemble.score(np.clip(outside, 0, [(1 << bits) - 1, 1023])).tolist()


def test_narrow_graphs_stay_in_float32() -> None:
    import onnx

    from foretail.export.onnx.graph import render_onnx

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
