"""Demand predictors in C and ONNX: the stated bound holds, nothing overflows, and a changed number is found."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.demand import TARGETS, export_demand
from foretail.export.demand.c_code import FixedLinear, FixedTrees, fixed_point, prove_header, render_header
from foretail.export.demand.onnx_graph import TOLERANCE, compare_graph, render_graph
from foretail.export.proof import ProofError, at_most
from foretail.features.demand.matrix import DemandSequence
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import PREDICTORS, from_json, to_json
from foretail.models.demand.regression import BoostedEntries, LinearEntries, LowRank
from foretail.testing import synthetic_sequences
from tests.examples import draws

pytestmark = pytest.mark.slow

NODES = 3
SEEDS = st.integers(0, 2**32 - 1)


def runs(seed: int = 1, level: float = 1.0, nodes: int = NODES) -> list[DemandSequence]:
    return [DemandSequence(level * run.demand, 1, run.run) for run in synthetic_sequences(3, 10, nodes, seed)]


def linear(weight: list[list[float]], nodes: int = NODES) -> LinearEntries:
    """A predictor of these weights, oldest first, intercept last; one row or one for each pair."""
    fresh = LinearEntries(window=len(weight[0]) - 1, shared=len(weight) == 1)
    document = json.loads(to_json(copy.deepcopy(fresh).fit(runs(nodes=nodes))))
    document["learned"]["weight"] = weight
    found = from_json(json.dumps(document))
    assert isinstance(found, LinearEntries)
    return found


@st.composite
def linears(draw: st.DrawFn) -> LinearEntries:
    window, rows = draw(st.integers(1, 4)), draw(st.sampled_from([1, NODES**2]))
    size = draw(st.sampled_from([1e-9, 1.0, 1.0, 50.0]))
    numbers = st.sampled_from([0.0, size, -size]) | st.floats(-size, size)
    return linear(
        draw(st.lists(st.lists(numbers, min_size=window + 1, max_size=window + 1), min_size=rows, max_size=rows))
    )


@st.composite
def histories(draw: st.DrawFn, window: int, largest: float) -> NDArray[np.float64]:
    """Values up to the largest: extremes, halves of units, anything."""
    random = np.random.default_rng(draw(SEEDS))
    shape = (window, NODES, NODES)
    kind = draw(st.sampled_from(["random", "extreme", "halves", "small"]))
    found: NDArray[np.float64]
    if kind == "random":
        found = random.random(shape) * largest
    elif kind == "extreme":
        found = np.where(random.random(shape) < 0.5, 0.0, largest)
    elif kind == "halves":
        steps = random.integers(0, 200, shape).astype(np.float64)
        found = np.minimum((steps + 0.5) * 0.5 ** draw(st.integers(0, 21)), largest)
    else:
        found = np.minimum(random.random(shape) ** 90, largest)
    return found * (1 - np.eye(NODES))


def in_units(history: NDArray[np.float64], fixed: FixedLinear | FixedTrees) -> NDArray[np.uint32]:
    values = np.rint(history * 2.0**fixed.fraction_bits)
    return np.minimum(values, 2**32 - 1).astype(np.uint32)


def worst(predictor: DemandPredictor, fixed: FixedLinear | FixedTrees, history: NDArray[np.float64]) -> Fraction:
    """The largest error of an entry, exactly."""
    found = fixed.predict(in_units(history, fixed)).ravel().tolist()
    expected = predictor.unprojected(history).ravel().tolist()
    unit = Fraction(1, 1 << fixed.fraction_bits)
    return max(abs(a * unit - Fraction(b)) for a, b in zip(found, expected, strict=True))


@settings(max_examples=draws(80), deadline=None)
@given(st.data(), linears(), st.sampled_from([1e-6, 1e-3, 0.3]), st.sampled_from([0.01, 4.0, 64.0, 1000.0]))
def test_linear_predictors_keep_the_bound(
    data: st.DataObject, predictor: LinearEntries, allowed: float, largest: float
) -> None:
    try:
        fixed = fixed_point(predictor, allowed, largest)
    except ForetailError as error:
        assert re.search("keep (no error at all|an error of .* at best) in 32 bits", str(error))  # noqa: PT017
        return
    assert isinstance(fixed, FixedLinear)
    assert fixed.errors.total <= Fraction(allowed)
    reach = fixed.largest / 2.0**fixed.fraction_bits
    for _ in range(3):
        history = data.draw(histories(predictor.window, reach))
        assert worst(predictor, fixed, history) <= fixed.errors.total


@settings(max_examples=draws(40), deadline=None)
@given(linears(), st.sampled_from([1e-6, 1e-3]), st.sampled_from([4.0, 1000.0]))
def test_no_sum_of_any_history_leaves_64_bits(predictor: LinearEntries, allowed: float, largest: float) -> None:
    try:
        fixed = fixed_point(predictor, allowed, largest)
    except ForetailError:
        return
    assert isinstance(fixed, FixedLinear)
    for row in fixed.weight.tolist():
        for sign in (1, -1):  # the worst order: all of one sign first
            total = sum(value * fixed.largest for value in row[:-1] if value * sign > 0)
            total += row[-1] if row[-1] * sign > 0 else 0
            assert abs(total) + 2**fixed.shift < 2**63


@settings(max_examples=draws(15), deadline=None)
@given(st.data(), SEEDS, st.integers(1, 3), st.sampled_from([1e-5, 1.0, 300.0]))
def test_trees_keep_the_bound_for_every_history(data: st.DataObject, seed: int, window: int, level: float) -> None:
    predictor = BoostedEntries(window, trees=4, depth=3, seed=seed % 2**31).fit(runs(seed, level))
    fixed = fixed_point(predictor, 1e-3)
    assert isinstance(fixed, FixedTrees)
    for reach in (level, 20 * level, 1e9):
        history = data.draw(histories(window, reach))
        assert worst(predictor, fixed, history) <= fixed.errors.total <= Fraction(1, 1000)
    train = runs(seed, level)[0].demand
    assert worst(predictor, fixed, train[:window]) <= fixed.errors.total


IN_C: list[DemandPredictor] = [
    Seasonal(period=2),
    LinearEntries(window=2),
    LinearEntries(window=3, shared=True),
    BoostedEntries(window=2, trees=3, depth=2),
]


@pytest.mark.nightly
@pytest.mark.parametrize("predictor", IN_C, ids=repr)
def test_c_is_written_proven_and_integer_only(predictor: DemandPredictor, tmp_path: Path) -> None:
    trained = copy.deepcopy(predictor).fit(runs())
    certificate = export_demand(trained, "c", tmp_path / "out", "next_demand")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    document = json.loads(written.pop("certificate.json"))
    del written["digest.json"]
    assert document["outputs"] == {file: hashlib.sha256(content).hexdigest() for file, content in written.items()}
    assert document["error_uplinks"] == certificate.error_uplinks
    assert 0 < Fraction(document["error_uplinks"]) <= Fraction("1.001e-3")
    assert sum(map(Fraction, document["parts"].values())) <= Fraction(document["error_uplinks"]) * Fraction(101, 100)
    assert written["predictor.json"].decode() == to_json(trained)
    header = written["next_demand.h"].decode()
    assert f"<= {certificate.error_uplinks} uplinks" in header
    code = re.sub(r"/\*.*?\*/", "", "".join(v.decode() for k, v in written.items() if k.endswith(".h")), flags=re.S)
    assert not re.search(r"\b(float|double)\b|\d\.\d", code)
    assert (document["trees"] is not None) == isinstance(predictor, BoostedEntries)
    if document["trees"] is not None:
        assert (document["trees"]["method"], document["trees"]["order"]) == ("boxes", True)
        assert not re.search(r"\bdrop\b|\btau\b", code)
    for command in (
        ["cc", "-std=c99", "-x", "c"],
        ["c++", "-std=c++17", "-x", "c++"],
    ):
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]}")
        source = tmp_path / "out" / "next_demand_selftest.c"
        strict = ["-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover"]
        done = subprocess.run([*command, *strict, "-o", tmp_path / "selftest", source], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert subprocess.run([tmp_path / "selftest"], check=False).returncode == 0
    export_demand(trained, "c", tmp_path / "out", "next_demand")
    assert (tmp_path / "out" / "next_demand.h").read_text() == header


@pytest.mark.parametrize("predictor", [LinearEntries(window=1), BoostedEntries(window=1, trees=2, depth=1)], ids=repr)
def test_every_changed_number_is_found(predictor: DemandPredictor) -> None:
    fixed = fixed_point(copy.deepcopy(predictor).fit(runs(nodes=2)))
    files = render_header(fixed, "kind", "p")
    numbers = list(re.finditer(r"(?:#define P_\w+ (?:U?INT\d+_C\()?|(?<!U)INT64_C\()(-?\d+)", files["p.h"]))
    assert len(numbers) == (14 if isinstance(fixed, FixedLinear) else 6)
    for number in numbers:
        changed = files["p.h"][: number.start(1)] + str(int(number[1]) + 1) + files["p.h"][number.end(1) :]
        with pytest.raises(ForetailError):
            prove_header(fixed, files | {"p.h": changed}, "p")
    if isinstance(fixed, FixedTrees):
        text = files["p_trees.h"]
        vote = re.search(r"LEAF\(\d+, (-?\d+)\)", text)
        assert vote is not None
        other = text[: vote.start(1)] + str(int(vote[1]) + 1) + text[vote.end(1) :]
        with pytest.raises(ProofError):
            prove_header(fixed, files | {"p_trees.h": other}, "p")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum <= 0 ? 0", "sum <= 0 ? 1"),
        (">> 1)) >>", ">> 2)) >>"),
        ("value < P_LARGEST ? value : P_LARGEST", "value"),
        ("i == j ? 0", "i > j ? 0"),
        ("(history[t][i][j])", "(history[t][j][i])"),
    ],
)
def test_changed_code_is_found(old: str, new: str) -> None:
    fixed = fixed_point(LinearEntries(window=2).fit(runs()))
    files = render_header(fixed, "kind", "p")
    assert files["p.h"].count(old) == 1
    with pytest.raises(ProofError, match="predicts another matrix"):
        prove_header(fixed, files | {"p.h": files["p.h"].replace(old, new)}, "p")


def test_a_wrong_self_test_is_found() -> None:
    fixed = fixed_point(LinearEntries(window=1).fit(runs()))
    files = render_header(fixed, "kind", "p")
    wrong = re.sub(r"UINT64_C\((\d+)\)", lambda m: f"UINT64_C({int(m[1]) + 1})", files["p_selftest.c"], count=1)
    with pytest.raises(ProofError, match="self-test"):
        prove_header(fixed, files | {"p_selftest.c": wrong}, "p")


def test_an_ensemble_of_values_has_no_drop_probability() -> None:
    fixed = fixed_point(BoostedEntries(window=1, trees=2, depth=2).fit(runs()))
    assert isinstance(fixed, FixedTrees)
    with pytest.raises(ForetailError, match="predicts a quantity"):
        fixed.ensemble.probability(np.zeros((1, 4), np.int64))


@given(st.fractions(0, 10**6))
def test_decimals_are_never_less(number: Fraction) -> None:
    assert number <= Fraction(at_most(number)) <= number * Fraction(1002, 1000)


@pytest.mark.parametrize(
    "predictor",
    [
        LinearEntries(window=3),
        LinearEntries(window=1, shared=True),
        LowRank(rank=3, window=2),
        LowRank(window=1),
        HistoryAttention(window=1, width=2, steps=3),
        HistoryAttention(window=5, steps=20),
    ],
    ids=repr,
)
def test_onnx_is_the_predictor(predictor: DemandPredictor, tmp_path: Path) -> None:
    trained = copy.deepcopy(predictor).fit(runs())
    certificate = export_demand(trained, "onnx", tmp_path / "out", "next_demand")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"next_demand.onnx", "predictor.json", "certificate.json", "digest.json"}
    assert certificate.relative_difference is not None
    assert certificate.relative_difference <= (TOLERANCE if isinstance(predictor, HistoryAttention) else 1e-12)
    content = (tmp_path / "out" / "next_demand.onnx").read_bytes()
    assert content == render_graph(from_json(to_json(trained)), "next_demand")
    onnx.checker.check_model(content, full_check=True)


@pytest.mark.parametrize("predictor", [LinearEntries(window=2), LowRank(), HistoryAttention(steps=20)], ids=repr)
def test_changed_weights_are_found(predictor: DemandPredictor) -> None:
    trained = copy.deepcopy(predictor).fit(runs())
    model = onnx.load_from_string(render_graph(trained, "p"))
    changed = 0
    for constant in model.graph.initializer:
        if constant.data_type in (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT) and constant.dims:
            values = onnx.numpy_helper.to_array(constant).copy()
            other = copy.deepcopy(model)
            (place,) = (c for c in other.graph.initializer if c.name == constant.name)
            place.CopyFrom(
                onnx.numpy_helper.from_array((values + 0.5 * (values != 0)).astype(values.dtype), constant.name)
            )
            if len(values.ravel()) == 1:
                continue  # the last bias moves no softmax
            with pytest.raises(ProofError, match="away from its predictor"):
                compare_graph(other.SerializeToString(), trained)
            changed += 1
    assert changed >= 2


@pytest.mark.parametrize("name", PREDICTORS)
def test_targets_are_stated_and_others_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    fresh = HistoryAttention(steps=1) if name == "history_attention" else PREDICTORS[name]()
    assert PREDICTORS.keys() - TARGETS.keys() == {"last_value", "moving_average"}
    trained = copy.deepcopy(fresh).fit(runs())
    own = TARGETS.get(name, ())
    for target in {"c", "onnx", "p4"} - set(own):
        says = (
            f"{name} has no target {target}: export it with target={own[0]}" if own else f"{name} has no target: export"
        )
        with pytest.raises(ForetailError, match=says):
            export_demand(trained, target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("predictor", "options", "says"),
    [
        (LinearEntries(), {"max_error_uplinks": 0.0}, "give numbers above 0"),
        (LinearEntries(), {"largest_uplinks": float("nan")}, "give numbers above 0"),
        (LinearEntries(), {"max_error_uplinks": 1e-12}, "at best in 32 bits"),
        (LinearEntries(), {"largest_uplinks": 1e12}, "keep no error at all in 32 bits"),
        (BoostedEntries(trees=1), {"max_error_uplinks": 1e-12}, "the trees' own units keep an error of"),
        (Seasonal(period=10**5), {}, "looks 100000 matrices back"),
    ],
)
def test_what_c_cannot_keep_is_refused(
    predictor: DemandPredictor, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    trained = copy.deepcopy(predictor).fit(runs())
    with pytest.raises(ForetailError, match=says):
        export_demand(trained, "c", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_untrained_predictors_and_bad_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="not trained"):
        export_demand(LinearEntries(), "c", tmp_path / "out")
    with pytest.raises(ForetailError, match="cannot prefix names"):
        export_demand(LinearEntries().fit(runs()), "c", tmp_path / "out", "Bad name")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").write_text("mine")
    with pytest.raises(ForetailError, match="not an earlier export"):
        export_demand(LinearEntries().fit(runs()), "c", tmp_path / "else")
