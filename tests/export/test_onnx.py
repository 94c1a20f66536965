"""The ONNX target: exact in onnxruntime on every input, read back from its bytes, and nothing else accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from foretail.core.errors import ForetailError
from foretail.export.onnx import graph as onnx_graph
from foretail.export.onnx.graph import OnnxPredictor, read_onnx, render_onnx
from foretail.export.onnx.target import Onnx
from foretail.export.passes import lower
from foretail.export.proof import ProofError
from foretail.export.target import export, prove_files
from foretail.models.ensemble.boxes import difference, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, votes_of
from tests.examples import draws
from tests.forests import PAPER_INPUTS, Trained, forests, paper_forest, stump


@pytest.fixture(scope="module")
def trained() -> Trained:
    return paper_forest()


@pytest.fixture(scope="module")
def lowered(trained: Trained) -> Ensemble:
    return lower(trained.ensemble).ensemble


@pytest.fixture(scope="module")
def content(lowered: Ensemble) -> bytes:
    return render_onnx(lowered)


def test_an_export_is_complete_and_proven(trained: Trained, tmp_path: Path) -> None:
    exported = export(trained.ensemble, Onnx(), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"drop_predictor.onnx", "certificate.json", "digest.json", "ensemble.json"}
    certificate, ensemble = exported.certificate, exported.ensemble
    assert (certificate.target, certificate.method) == ("onnx", "cells")
    assert certificate.model_sha256 == trained.ensemble.sha256
    assert certificate.ir_sha256 == ensemble.sha256
    assert list(certificate.outputs) == ["drop_predictor.onnx"]
    predictor = OnnxPredictor(exported.file(".onnx").read_bytes())
    score, drop = predictor.run(trained.rows)
    assert np.array_equal(score, ensemble.score(trained.rows))
    assert np.array_equal(drop, trained.ensemble.exceeds(trained.rows))
    assert np.array_equal(drop, trained.forest.forest_.predict(trained.rows))


def test_equal_ensembles_give_equal_bytes_that_the_checker_accepts(lowered: Ensemble, content: bytes) -> None:
    assert render_onnx(Ensemble.from_json(lowered.to_json())) == content
    onnx.checker.check_model(content, full_check=True)
    model = onnx.load_from_string(content)
    assert model.ir_version == onnx_graph.IR_VERSION
    assert {(item.domain, item.version) for item in model.opset_import} == {("", 17), ("ai.onnx.ml", 3)}
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert [FeatureInput(**item) for item in json.loads(metadata["foretail.features"])] == list(PAPER_INPUTS)
    assert metadata["foretail.ir_sha256"] == lowered.sha256
    assert metadata["foretail.default_tau"] == str(lowered.default_tau)


@settings(max_examples=draws(25))
@given(forests())
def test_every_forest_is_exact_on_every_cell_and_box(trained: Trained) -> None:
    for method, max_cells in (("cells", 10**8), ("boxes", 0)):
        lowered = lower(trained.ensemble, max_cells=max_cells)
        voted = lowered.ensemble
        content = render_onnx(voted)
        parts = read_onnx(content, voted.features).parts
        assert parts is not None
        for tree, part in zip(voted.trees, parts, strict=True):
            assert difference(leaf_boxes(tree, voted.features), part) is None
        assert prove_files(lowered, Onnx(), {"p.onnx": content}, max_cells=max_cells)[0].method == method
        score, drop = OnnxPredictor(content).run(trained.rows)
        assert np.array_equal(score, voted.score(trained.rows))
        assert np.array_equal(drop, trained.ensemble.exceeds(trained.rows))


def wide(bits: int, trees: int, seed: int = 1) -> Ensemble:
    """Stumps with random leaves of both signs, and votes of so many bits after the binary point."""
    random = np.random.default_rng(seed)
    features = tuple(FeatureInput(f"f{i}", "", 24) for i in range(3))
    drawn = []
    for index in range(trees):
        tree = stump(random.normal(size=2).tolist(), int(random.integers(0, (1 << 24) - 1)), index % 3)
        drawn.append(replace(tree, votes=votes_of(tree.value, bits)))
    return Ensemble(features, tuple(drawn), Fraction(0), 0.25, "logit", bits, -(1 << bits) // 4)


@pytest.mark.parametrize(("bits", "trees", "digits"), [(8, 4, 1), (20, 3, 1), (24, 3, 2), (40, 5, 2), (52, 700, 4)])
def test_votes_wider_than_float32_are_added_exactly(bits: int, trees: int, digits: int) -> None:
    ensemble = wide(bits, trees)
    x = np.random.default_rng(2).integers(0, 1 << 24, (2000, 3))
    content = render_onnx(ensemble)
    score, drop = OnnxPredictor(content).run(x)
    assert ensemble.default_tau is not None
    assert np.array_equal(score, ensemble.score(x))
    assert np.array_equal(drop, score > ensemble.default_tau)
    assert sum(item.name.startswith("place_") for item in onnx.load_from_string(content).graph.initializer) == digits
    assert np.abs(score).max() > 1 << bits


def test_votes_that_fill_64_bits_are_refused() -> None:
    tree = stump([-float(np.nextafter(16, 0)), 15.0])
    trees = (replace(tree, votes=votes_of(tree.value, 58)),) * 2
    ensemble = Ensemble((FeatureInput("f0", "", 8),), trees, Fraction(0), 0.0, "logit", 58, 0)
    with pytest.raises(ForetailError, match="use fewer vote bits"):
        render_onnx(ensemble)


def test_inputs_outside_their_range_count_as_the_nearest_value(lowered: Ensemble, content: bytes) -> None:
    random = np.random.default_rng(3)
    x = random.integers(-(1 << 63), 1 << 63, (2000, 4)) >> random.integers(0, 63, (2000, 4))
    x = np.concatenate([x, [[1 << 24] * 4, [(1 << 24) + 1] * 4, [-1] * 4, [(1 << 63) - 1] * 4, [-(1 << 63)] * 4]])
    score, _ = OnnxPredictor(content).run(x)
    assert np.array_equal(score, lowered.score(np.clip(x, 0, (1 << 24) - 1)))


def test_tau_is_an_input_with_a_default(trained: Trained, lowered: Ensemble, content: bytes) -> None:
    predictor = OnnxPredictor(content)
    score, drop = predictor.run(trained.rows)
    assert lowered.default_tau is not None
    assert np.array_equal(drop, score > lowered.default_tau)
    for tau in (int(np.median(score)), int(score.max()), -1):
        assert np.array_equal(predictor.run(trained.rows, tau)[1], score > tau)
    assert [len(part) for part in predictor.run(np.zeros((0, 4)))] == [0, 0]


# ---- what is not the model is caught -------------------------------------------------------------------------------


Change = Callable[[onnx.ModelProto], object]


def _changed(content: bytes, change: Change) -> bytes:
    model = onnx.load_from_string(content)
    change(model)
    return bytes(model.SerializeToString(deterministic=True))


def _list(model: onnx.ModelProto, name: str) -> Any:
    (regressor,) = (node for node in model.graph.node if node.op_type == "TreeEnsembleRegressor")
    (attribute,) = (item for item in regressor.attribute if item.name == name)
    return {onnx.AttributeProto.FLOATS: attribute.floats, onnx.AttributeProto.INTS: attribute.ints}.get(
        attribute.type, attribute.strings
    )


def _set_constant(model: onnx.ModelProto, name: str, value: Any) -> None:
    (tensor,) = (item for item in model.graph.initializer if item.name == name)
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(value, np.int64), name))


@pytest.mark.parametrize("max_cells", [0, 10**8])
def test_every_changed_threshold_and_vote_is_caught(max_cells: int, lowered: Ensemble, content: bytes) -> None:
    modes = list(_list(onnx.load_from_string(content), "nodes_modes"))
    tests = [place for place, mode in enumerate(modes) if mode == b"BRANCH_LEQ"]
    leaves = range(len(_list(onnx.load_from_string(content), "target_weights")))
    assert len(tests) > 30
    for name, places in (("nodes_values", tests), ("target_weights", leaves)):
        for place in places:
            for delta in (-1, 1):

                def change(model: onnx.ModelProto, name: str = name, place: int = place, delta: int = delta) -> None:
                    _list(model, name)[place] += delta

                broken = _changed(content, change)
                with pytest.raises(ProofError, match=r"the exported onnx .* at queue="):
                    prove_files(lowered, Onnx(), {"p.onnx": broken}, max_cells=max_cells)


def test_every_swapped_branch_is_caught(lowered: Ensemble, content: bytes) -> None:
    model = onnx.load_from_string(content)
    tests = [place for place, mode in enumerate(_list(model, "nodes_modes")) if mode == b"BRANCH_LEQ"]
    for place in tests:

        def swap(model: onnx.ModelProto, place: int = place) -> None:
            true, false = _list(model, "nodes_truenodeids"), _list(model, "nodes_falsenodeids")
            true[place], false[place] = false[place], true[place]

        with pytest.raises(ProofError):
            prove_files(lowered, Onnx(), {"p.onnx": _changed(content, swap)}, max_cells=0)


def _set(name: str, place: int, value: Any) -> Change:

    def change(model: onnx.ModelProto) -> None:
        _list(model, name)[place] = value

    return change


def _attribute(node: int, name: str) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: next(item for item in model.graph.node[node].attribute if item.name == name)


@pytest.mark.parametrize(
    "change",
    [
        _set("nodes_modes", 0, b"BRANCH_LT"),
        _set("nodes_modes", 0, b"LEAF"),
        _set("nodes_featureids", 0, 4),
        _set("nodes_featureids", 0, -1),
        _set("nodes_treeids", 0, 1),
        _set("nodes_nodeids", 1, 0),
        _set("nodes_truenodeids", 0, 0),
        _set("nodes_truenodeids", 0, 10**6),
        _set("nodes_values", 0, 2673.5),
        _set("nodes_values", 0, float("nan")),
        _set("nodes_values", 0, float("inf")),
        _set("target_weights", 0, 0.5),
        _set("target_weights", 0, 2.0**24),
        _set("target_ids", 0, 1),
        _set("target_nodeids", 0, 0),
        lambda model: _list(model, "target_weights").append(1.0),
        lambda model: _list(model, "nodes_values").append(1.0),
        lambda model: _attribute(0, "to")(model).__setattr__("i", onnx.TensorProto.FLOAT16),
        lambda model: _attribute(3, "axis")(model).__setattr__("i", 0),
        lambda model: _attribute(1, "post_transform")(model).__setattr__("s", b"LOGISTIC"),
        lambda model: _attribute(1, "aggregate_function")(model).__setattr__("s", b"MAX"),
        lambda model: model.graph.node[1].attribute.append(onnx.helper.make_attribute("base_values", [1.0])),
        lambda model: model.graph.node[5].__setattr__("op_type", "GreaterOrEqual"),
        lambda model: model.graph.node.append(onnx.helper.make_node("Identity", ["score"], ["again"])),
        lambda model: model.graph.node.pop(5),
        lambda model: model.graph.node.pop(1),
        lambda model: model.graph.input.pop(1),
        lambda model: model.graph.initializer.pop(0),
        lambda model: _set_constant(model, "tau", 0),
        lambda model: _set_constant(model, "place_0", 1),
        lambda model: model.opset_import[1].__setattr__("version", 1),
        lambda model: model.metadata_props.pop(1),
        lambda model: model.metadata_props[0].__setattr__("value", "[]"),
        lambda model: model.metadata_props[1].__setattr__("value", "0" * 64),
        lambda model: model.metadata_props[2].__setattr__("value", "0"),
    ],
)
def test_any_other_change_is_caught(change: Change, lowered: Ensemble, content: bytes) -> None:
    broken = _changed(content, change)
    assert broken != content
    with pytest.raises(ProofError):
        prove_files(lowered, Onnx(), {"p.onnx": broken}, max_cells=0)


def test_float32_sums_that_could_round_are_not_read() -> None:

    ensemble = wide(20, 3)
    content = render_onnx(ensemble)

    def change(model: onnx.ModelProto) -> None:
        for place in range(6):
            _list(model, "target_weights")[place] = 2.0**23

    with pytest.raises(ProofError, match="float32"):
        read_onnx(_changed(content, change), ensemble.features)
