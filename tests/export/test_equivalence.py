"""The proof: what it accepts holds on every cell, and what differs from its model anywhere is caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.export import Certificate, ProofError, with_votes
from foretail.export.c import render_c
from foretail.export.equivalence import comparisons, prove_c, relate
from foretail.features.errors import ForetailError
from foretail.models.cells import Cells
from foretail.models.ensemble import Ensemble
from tests.forests import Trained, forests, paper_forest, stumps


@pytest.fixture(scope="module")
def voted() -> Ensemble:
    return with_votes(paper_forest(trees=2, depth=3).ensemble)


@settings(max_examples=10, deadline=None)
@given(trained=forests())
def test_what_is_generated_from_any_forest_is_proven(
    trained: Trained, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ensemble = with_votes(trained.ensemble)
    certificate = prove_c(ensemble, render_c(ensemble), tmp_path_factory.mktemp("proof") / "p.so")
    assert certificate.ir_sha256 == ensemble.sha256
    assert certificate.cells == Cells.of(ensemble).count
    assert certificate.order == relate(ensemble, ensemble, Cells.of(ensemble)).order


def test_a_certificate_states_what_was_proven(voted: Ensemble, tmp_path: Path) -> None:
    certificate = prove_c(voted, render_c(voted), tmp_path / "p.so")
    assert certificate.method == "cells"
    assert certificate.order
    assert certificate.taus is None
    assert certificate.default_tau == voted.default_tau
    assert (certificate.float_decides_otherwise or 0) <= (certificate.float_within_rounding or 0)
    assert set(certificate.outputs) == {"drop_predictor.h", "drop_predictor.c", "p.so"}
    (tmp_path / "c.json").write_text(certificate.to_json())
    assert Certificate.load(tmp_path / "c.json") == certificate
    certificate.check_tau(12345)


MUTATIONS: dict[str, Callable[[str], str]] = {
    "a cut one higher": lambda t: _shift(t, r"<= (\d+)", 1),
    "a cut one lower": lambda t: _shift(t, r"<= (\d+)", -1),
    "a cut at the top of the range": lambda t: re.sub(r"<= \d+", "<= 16777214", t, count=1),
    "another feature": lambda t: t.replace("x[2] <=", "x[3] <=", 1),
    "a strict comparison": lambda t: t.replace("<=", "<", 1),
    "an inverted comparison": lambda t: t.replace("<=", ">", 1),
    "an equality": lambda t: t.replace("<=", "==", 1),
    "a leaf one higher": lambda t: _shift(t, r"return INT64_C\((-?\d+)\)", 1),
    "a leaf of the other sign": lambda t: re.sub(r"return INT64_C\(([1-9]\d*)\)", r"return INT64_C(-\1)", t, count=1),
    "a tree forgotten": lambda t: re.sub(r"  score \+= \w+_tree_1\(x\);\n", "", t),
    "a tree counted twice": lambda t: re.sub(r"(  score \+= \w+_tree_1\(x\);\n)", r"\1\1", t),
    "a threshold far above training": lambda t: t.replace(
        "int64_t score = 0;", "int64_t score = 0;\n  if (x[0] > 16777000) {\n    score = 1;\n  }"
    ),
    "a single wrong input": lambda t: t.replace(
        "int64_t score = 0;", "int64_t score = 0;\n  if (x[0] == 9999999) {\n    score = 1;\n  }"
    ),
    "an input in arithmetic": lambda t: t.replace("int64_t score = 0;", "int64_t score = x[0] - x[0];"),
    "a pointer by another name": lambda t: t.replace("int64_t score = 0;", "int64_t score = 0 * *(&score);"),
    "a sum compared": lambda t: t.replace("if (x[", "if (1 + x[", 1),
    "two inputs compared": lambda t: re.sub(r"<= \d+", "<= x[1]", t, count=1),
    "an input that does not exist": lambda t: re.sub(r"x\[\d\] <=", "x[4] <=", t, count=1),
    "another tau": lambda t: _shift(t, r"DEFAULT_TAU INT64_C\((-?\d+)\)", 1),
    "another hash": lambda t: re.sub(r'SHA256 "\w', 'SHA256 "z', t),
}


def _shift(text: str, pattern: str, by: int) -> str:
    found = re.search(pattern, text)
    assert found
    return text[: found.start(1)] + str(int(found[1]) + by) + text[found.end(1) :]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_header_is_caught(mutation: str, voted: Ensemble, tmp_path: Path) -> None:
    texts = render_c(voted)
    changed = MUTATIONS[mutation](texts["drop_predictor.h"])
    assert changed != texts["drop_predictor.h"]
    with pytest.raises(ProofError):
        prove_c(voted, {**texts, "drop_predictor.h": changed}, tmp_path / "p.so")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row < rows", "row + 1 < rows"),
        ("for (row = 0;", "for (row = 1;"),
        ("out[row] = drop_predictor_score(", "out[row] = 1 + drop_predictor_score("),
        ("{ return drop_predictor_score(x); }", "{ return drop_predictor_score(x) / 2; }"),
        ('"queue"', '"queues"'),
        ('"cell_bytes=256"', '"cell_bytes=128"'),
    ],
)
def test_a_changed_library_source_is_caught(old: str, new: str, voted: Ensemble, tmp_path: Path) -> None:
    texts = render_c(voted)
    assert old in texts["drop_predictor.c"]
    changed = texts["drop_predictor.c"].replace(old, new, 1)
    with pytest.raises(ProofError):
        prove_c(voted, {**texts, "drop_predictor.c": changed}, tmp_path / "p.so")


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_change_of_one_number_in_the_trees_is_caught_or_without_effect(
    data: st.DataObject, voted: Ensemble, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = render_c(voted)
    header = texts["drop_predictor.h"]
    numbers = list(re.finditer(r"(?<=<= )\d+|(?<=return INT64_C\()\d+", header))
    chosen = data.draw(st.sampled_from(numbers))
    value = data.draw(st.integers(0, 1 << 24).filter(lambda v: v != int(chosen[0])))
    changed = header[: chosen.start()] + str(value) + header[chosen.end() :]
    with pytest.raises(ProofError, match="gives"):
        prove_c(voted, {**texts, "drop_predictor.h": changed}, tmp_path_factory.mktemp("proof") / "p.so")


def test_the_message_names_the_offending_input(voted: Ensemble, tmp_path: Path) -> None:
    texts = render_c(voted)
    header = texts["drop_predictor.h"].replace(
        "int64_t score = 0;", "int64_t score = 0;\n  if (x[1] == 9999999) {\n    score = 1;\n  }"
    )
    with pytest.raises(ProofError, match=r"queue_average=9999999, occupancy="):
        prove_c(voted, {**texts, "drop_predictor.h": header}, tmp_path / "p.so")


def test_a_wrong_tau_in_the_model_is_caught(voted: Ensemble, tmp_path: Path) -> None:
    scores = sorted({int(s) for points in Cells.of(voted).batches() for s in voted.score(points)})
    wrong = replace(voted, default_tau=scores[-1])
    with pytest.raises(ProofError, match="is not exact sum >"):
        prove_c(wrong, render_c(wrong), tmp_path / "p.so")


def test_without_order_only_the_listed_tau_is_allowed(tmp_path: Path) -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 2.0**-70]))
    certificate = prove_c(voted, render_c(voted), tmp_path / "p.so")
    assert not certificate.order
    assert certificate.taus == [voted.default_tau]
    certificate.check_tau(certificate.default_tau)
    with pytest.raises(ForetailError, match="does not cover tau"):
        certificate.check_tau(certificate.default_tau + 1)


def test_cells_where_floats_decide_otherwise_are_counted_and_listed(tmp_path: Path) -> None:
    # (0.1 + 0.2) + 0.3 is 0.6000000000000001 in float64, above the exact sum of the three.
    total = Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    ensemble = stumps([0.0, 0.1], [0.0, 0.2], [0.0, 0.3], threshold=total)
    voted = with_votes(ensemble)
    certificate = prove_c(voted, render_c(voted), tmp_path / "p.so")
    assert certificate.float_decides_otherwise == 1
    assert certificate.float_inputs == [[255, 255, 255]]
    assert certificate.float_within_rounding == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if (x[0] <= 5) {", {0: {5}}),
        ("if (x[1] > 5) {", {1: {5}}),
        ("if (x[0] < 5) {", {0: {4}}),
        ("if (x[0] >= -5) {", {0: {-6}}),
        ("if (x[0] == 5) { if (x[1] != 7) {", {0: {4, 5}, 1: {6, 7}}),
        ("/* x[0] */ int64_t f(const int64_t *x) { (void)x; return g(x); }", {}),
        ('"x[0] < 3"', {}),
    ],
)
def test_constants_are_read_back(text: str, expected: dict[int, set[int]]) -> None:
    assert comparisons(text, 2) == expected


@pytest.mark.parametrize(
    "text",
    [
        "if (x[0] <= 5 + 1) {",
        "if (x[0] <= 05) {",
        "if (x[0] <= 0x5) {",
        "if (!x[0]) {",
        "y = x[0];",
        "y = *x;",
        "int64_t f(const int64_t *y);",
        "int64_t f(const void *y);",
        "memcpy(&y, x, 8);",
        "if (x[0] <= 5 || x[1] <= 6) {",
        "if (x[2] <= 5) {",
        "// if (x[0]",
        "if (x[0] <= \\\n5) {",
        "x + 1",
    ],
)
def test_any_other_use_of_inputs_is_refused(text: str) -> None:
    with pytest.raises(ProofError):
        comparisons(text, 2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "foretail.certificate", "version": 2}', "\xff"])
def test_malformed_certificates_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text, encoding="latin-1")
    with pytest.raises(ForetailError, match="not a certificate"):
        Certificate.load(tmp_path / "c.json")
