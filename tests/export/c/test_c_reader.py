"""Reading C back: what the exporter writes is read, and any change of it is caught, by the reader or by the proof."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jinja2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.c import target as c_target
from foretail.export.c import text as c_text
from foretail.export.c.build import compile_library, vector_widths
from foretail.export.c.forms import MISPREDICTION, NODE, UNCOUNTED, expected_cycles
from foretail.export.c.reader import read_c
from foretail.export.c.shapes import Bitvectors, HotBox, Trees
from foretail.export.c.target import C, render_c, stated
from foretail.export.c.text import Batch, Single
from foretail.export.folder import encoded
from foretail.export.passes import with_votes
from foretail.export.proof import ProofError
from foretail.export.target import prove_files
from foretail.models.ensemble.boxes import difference, leaf_boxes, overlap
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import cuts_of
from tests.examples import draws
from tests.forests import Trained, forests, paper_forest, stump, stumps

pytestmark = pytest.mark.slow
FORMS: list[tuple[Single | Literal["auto"], Batch]] = [
    ("branches", "rows"),
    ("bitvector", "rows"),
    ("bitvector", "lanes"),
    ("auto", "rows"),  # mostly with a hot box
    ("hot_bitvector", "hot_lanes"),
]


@pytest.fixture(scope="module")
def voted() -> Ensemble:
    return with_votes(paper_forest(trees=2, depth=3).ensemble)


@settings(max_examples=draws(3))
@given(trained=forests(), form=st.sampled_from(FORMS))
def test_what_is_generated_from_any_forest_is_proven(
    trained: Trained,
    form: tuple[Single | Literal["auto"], Batch | Literal["auto"]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for max_cells in (10**7, 0):
        ensemble = with_votes(trained.ensemble, max_cells=max_cells)
        if HotBox.of(ensemble) is None:
            form = ("auto", "auto")
        texts = render_c(ensemble, shape=form[0], batch=form[1])
        certificate = prove_files(ensemble, C(), encoded(texts), max_cells=max_cells)[0]
        assert certificate.ir_sha256 == ensemble.sha256
        assert certificate.method == ("cells" if max_cells else "boxes")


@settings(max_examples=draws(30))
@given(trained=forests(max_trees=20, max_depth=8, max_features=6))
def test_every_form_is_read_back_as_the_trees(trained: Trained) -> None:
    ensemble = with_votes(trained.ensemble, any_tau=False, max_cells=0)
    for form in ("branches", "bitvector"):
        text = render_c(ensemble, shape=form, batch="lanes")["drop_predictor.h"]
        read = read_c(stated(ensemble, "drop_predictor", text), text)
        assert set(read) == {"trees", *(["bitvectors"] if form == "bitvector" else [])}
        for back in read.values():
            assert back.parts is not None
            assert len(back.parts) == len(ensemble.trees)
            for tree, part in zip(ensemble.trees, back.parts, strict=True):
                assert difference(leaf_boxes(tree, ensemble.features), part) is None


def test_places_where_inputs_saturate_are_boundaries(voted: Ensemble) -> None:
    text = render_c(voted, shape="bitvector")["drop_predictor.h"]
    for back in read_c(stated(voted, "drop_predictor", text), text).values():
        for feature, boundaries in back.boundaries.items():
            cuts = {int(c) for tree in voted.trees for c in tree.cut[tree.feature == feature]}
            assert boundaries == cuts | {32765}


MUTATIONS: dict[str, Callable[[str], str]] = {
    "a cut one higher": lambda t: _shift(t, r"NODE\(\d+, (\d+),", 1),
    "a cut one lower": lambda t: _shift(t, r"NODE\(\d+, (\d+),", -1),
    "a cut at the top of the range": lambda t: re.sub(r"(NODE\(\d+), \d+,", r"\1, 16777214,", t, count=1),
    "another feature": lambda t: re.sub(r"NODE\(2, ", "NODE(3, ", t, count=1),
    "a feature that does not exist": lambda t: re.sub(r"NODE\(\d, ", "NODE(4, ", t, count=1),
    "a leaf one higher": lambda t: _shift(t, r"LEAF\(\d+, (-?\d+)\)", 1),
    "a leaf of the other sign": lambda t: re.sub(r"(LEAF\(\d+), ([1-9]\d*)\)", r"\1, -\2)", t, count=1),
    "another number of a leaf": lambda t: _shift(t, r"LEAF\((\d+), -?\d+\)", 1),
    "a cut in hexadecimal": lambda t: re.sub(r"(NODE\(\d+), \d+,", r"\1, 0x10,", t, count=1),
    "a cut that is a sum": lambda t: re.sub(r"(NODE\(\d+, \d+),", r"\1 + 1,", t, count=1),
    "a cut that is an input": lambda t: re.sub(r"(NODE\(\d+), \d+,", r"\1, x[1],", t, count=1),
    "a leaf that is an input": lambda t: re.sub(r"(LEAF\(\d+), -?\d+\)", r"\1, x[0])", t, count=1),
    "another number of trees": lambda t: t.replace("_TREES 2", "_TREES 3"),
    "another tau": lambda t: _shift(t, r"DEFAULT_TAU INT64_C\((-?\d+)\)", 1),
    "another hash": lambda t: re.sub(r'SHA256 "\w', 'SHA256 "z', t),
    "another form": lambda t: t.replace("One prediction: bi", "One prediction: bb").replace(
        "One prediction: branches", "One prediction: bitvector"
    ),
    "an input in arithmetic": lambda t: t.replace("int64_t score = 0;", "int64_t score = x[0] - x[0];"),
    "a single wrong input": lambda t: t.replace("return score;", "if (x[0] == 9999999) return 1;\n  return score;"),
    "the wrong half of the rows": lambda t: t.replace("out[row] =", "out[rows - 1 - row] ="),
    "a row forgotten": lambda t: t.replace("for (; row < rows;", "for (; row + 1 < rows;"),
    "a wrong decision": lambda t: t.replace("> tau", ">= tau"),
    "a macro redefined": lambda t: t.replace("\n#endif\n", "\n#define INT64_C(c) 0\n#endif\n", 1),
}
BRANCHES: dict[str, Callable[[str], str]] = {
    "a strict comparison": lambda t: t.replace("x[f] <= (c)", "x[f] < (c)"),
    "sides swapped": lambda t: t.replace("{ low } else { high }", "{ high } else { low }"),
    "a tree forgotten": lambda t: re.sub(r"  score \+= \w+_tree_1\(x\);\n", "", t),
    "a tree counted twice": lambda t: re.sub(r"(  score \+= \w+_tree_1\(x\);\n)", r"\1\1", t),
}
BITVECTOR: dict[str, Callable[[str], str]] = {
    "a bound one higher": lambda t: _shift(t, r"bounds_\d\[\d+\] = \{\s*(\d+)", 1),
    "a bound at the top": lambda t: re.sub(r"(bounds_\d\[\d+\] = \{\s*)\d+", r"\g<1>32767", t, count=1),
    "bounds out of order": lambda t: re.sub(r"(bounds_\d\[\d+\] = \{\s*)(\d+), (\d+)", r"\1\3, \2", t, count=1),
    "a bit more": lambda t: _mask(t, lambda word: word | word << 1),
    "a bit less": lambda t: _mask(t, lambda word: word & (word - 1)),
    "a vote one higher": lambda t: _shift(t, r"votes\[\d+\]\[64\] = \{\s*\{(-?\d+)", 1),
    "a field too short": lambda t: re.sub(
        r"left & UINT64_C\((\w+)\)", lambda m: m[0].replace(m[1], f"{int(m[1], 16) >> 1:#018x}"), t, count=1
    ),
    "another comparison": lambda t: t.replace("bounds[i] <= x", "bounds[i] < x"),
    "another lane": lambda t: t.replace("_LANE(quad_0, 1)", "_LANE(quad_0, 0)"),
}
HOT: dict[str, Callable[[str], str]] = {
    "a side one farther": lambda t: _shift(t, r"  if \(.*x\[\d\] <= (\d+)", 1),
    "a side of another input": lambda t: re.sub(r"(  if \(x\[)\d", r"\g<1>4", t),
    "another score in the box": lambda t: _shift(t, r"  if \(x.*INT64_C\((-?\d+)\)", 1),
    "a box that is left out": lambda t: re.sub(r"  if \(x.*\n", "", t),
    "a second box": lambda t: re.sub(r"(  if \(x.*\n)", r"\1\1", t),
    "lanes with a box of their own": lambda t: t.replace("* One prediction: hot_", "* One prediction: ").replace(
        "Many: rows", "Many: hot_lanes"
    ),
    "a reason that ends the comment": lambda t: t.replace(", as c.shape asks", ", */ as c.shape asks"),
}


def _shift(text: str, pattern: str, by: int) -> str:
    found = re.search(pattern, text)
    assert found
    return text[: found.start(1)] + str(int(found[1]) + by) + text[found.end(1) :]


def _mask(text: str, change: Callable[[int], int]) -> str:
    start = text.index("uint64_t masks_")
    return text[:start] + re.sub(
        r"UINT64_C\((0x\w+)\)", lambda m: f"UINT64_C({change(int(m[1], 16)) % 2**64:#x})", text[start:], count=1
    )


CASES = [
    *(("branches", "rows", name) for name in {**MUTATIONS, **BRANCHES}),
    *(("bitvector", "rows", name) for name in BITVECTOR),
    *(("bitvector", "lanes", name) for name in MUTATIONS),
    *(("hot_bitvector", "rows", name) for name in HOT),
    *(("hot_branches", "rows", name) for name in ("a cut one higher", *HOT)),
]


def differs(ensemble: Ensemble, header: str) -> bool:
    """Return whether a header cannot be read, or reads as something else than the ensemble."""
    try:
        read = read_c(stated(ensemble, "drop_predictor", header), header)
    except ProofError:
        return True
    return any(
        overlap(part) is not None or difference(leaf_boxes(tree, ensemble.features), part) is not None
        for back in read.values()
        for tree, part in zip(ensemble.trees, back.parts or (), strict=True)
    )


@pytest.mark.parametrize(("shape", "batch", "mutation"), CASES)
def test_a_changed_header_is_caught_by_reading_it(shape: Single, batch: Batch, mutation: str, voted: Ensemble) -> None:
    header = render_c(voted, shape=shape, batch=batch)["drop_predictor.h"]
    changed = {**MUTATIONS, **BRANCHES, **BITVECTOR, **HOT}[mutation](header)
    assert changed != header
    assert not differs(voted, header)
    assert differs(voted, changed)


@pytest.mark.parametrize(
    ("shape", "batch", "mutation"),
    [
        ("branches", "rows", "a cut one higher"),
        ("branches", "rows", "a leaf of the other sign"),
        ("bitvector", "rows", "a bound one higher"),
        ("bitvector", "rows", "a bit less"),
        ("bitvector", "rows", "a vote one higher"),
        ("hot_bitvector", "rows", "a side one farther"),
        ("bitvector", "lanes", "a cut one lower"),
        ("bitvector", "lanes", "a leaf one higher"),
    ],
)
def test_a_changed_header_is_caught_by_running_it(
    shape: Single, batch: Batch, mutation: str, voted: Ensemble, tmp_path: Path
) -> None:
    texts = render_c(voted, shape=shape, batch=batch)
    changed = {**MUTATIONS, **BITVECTOR, **HOT}[mutation](texts["drop_predictor.h"])
    with pytest.raises(ProofError, match=r"gives|self-test|read back|hot box"):
        prove_files(voted, C(), encoded({**texts, "drop_predictor.h": changed}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("drop_predictor_score_batch(x, rows, out)", "drop_predictor_score_batch(x, rows - 1, out)"),
        ("{ return drop_predictor_score(x); }", "{ return drop_predictor_score(x) / 2; }"),
        ('"queue"', '"queues"'),
        ('"cell_bytes=256"', '"cell_bytes=128"'),
        ('#include "drop_predictor.h"', '#define int64_t int\n#include "drop_predictor.h"'),
    ],
)
def test_a_changed_library_source_is_caught(old: str, new: str, voted: Ensemble, tmp_path: Path) -> None:
    texts = render_c(voted, batch="rows")
    assert old in texts["drop_predictor.c"]
    changed = texts["drop_predictor.c"].replace(old, new, 1)
    with pytest.raises(ProofError):
        prove_files(voted, C(), encoded({**texts, "drop_predictor.c": changed}))


def test_a_changed_self_test_is_caught(voted: Ensemble, tmp_path: Path) -> None:
    texts = render_c(voted, batch="rows")
    changed = _shift(texts["drop_predictor_selftest.c"], r"scores\[ROWS\] = \{\s*INT64_C\((-?\d+)\)", 1)
    with pytest.raises(ProofError, match="self-test of the exported C fails"):
        prove_files(voted, C(), encoded({**texts, "drop_predictor_selftest.c": changed}))


@settings(max_examples=draws(300))
@given(data=st.data())
def test_any_change_of_one_number_in_trees_and_tables_is_caught(data: st.DataObject, voted: Ensemble) -> None:
    header = render_c(voted, shape="bitvector")["drop_predictor.h"]
    numbers = list(re.finditer(r"(?<=NODE\(\d, )\d+|(?<=LEAF\(\d, )\d+|\b\d+(?=, )|(?<=INT64_C\(0x)[0-9a-f]+", header))
    chosen = data.draw(st.sampled_from(numbers))
    base = 16 if header[chosen.start() - 1] == "x" else 10
    value = data.draw(st.integers(0, 1 << 24).filter(lambda v: v != int(chosen[0], base)))
    assert differs(voted, header[: chosen.start()] + f"{value:{'x' if base == 16 else 'd'}}" + header[chosen.end() :])


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("predictor.h.j2", "x[f] <= (c)", "x[f] < (c)"),
        ("predictor.h.j2", '|join(" && ")', '|join(" || ")'),
        ("predictor.h.j2", '|join(") & (")', '|join(") | (")'),
        ("predictor.h.j2", "outside[count] = row;", "outside[count] = 0;"),
        ("predictor.h.j2", "out[row] = {{ n }}_score(", "out[row] = 1 + {{ n }}_score("),
        ("bitvectors.h.j2", "bounds[i] <= x", "bounds[i] < x"),
        ("bitvectors.h.j2", "packs_epi16(first, last)", "packs_epi16(last, last)"),
        ("bitvectors.h.j2", "(lane) * 0x55", "(lane) * 0x54"),
        ("lanes.h.j2", "(low, high, _mm256_cmpgt", "(high, low, _mm256_cmpgt"),
        ("lanes.h.j2", "set1_epi{{ lane_bits }}(c)), low, high)", "set1_epi{{ lane_bits }}(c - 1)), low, high)"),
    ],
)
def test_an_exporter_that_writes_wrong_code_is_caught(
    template: str, old: str, new: str, voted: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old.endswith("(c)), low, high)") and 512 not in vector_widths():
        pytest.skip("this CPU has no AVX-512, so no self-test runs that form")
    honest = c_text._environment()

    def wrong(name: str) -> str:
        assert honest.loader is not None
        text = honest.loader.get_source(honest, name)[0]
        if name == template:
            assert old in text
            return text.replace(old, new)
        return text

    environment = honest.overlay(loader=jinja2.FunctionLoader(wrong), cache_size=0)
    monkeypatch.setattr(c_text, "_environment", lambda: environment)
    hot = "join" in old or "outside" in old
    single: Single = "branches" if "x[f]" in old else "hot_bitvector" if hot else "bitvector"
    batch: Batch = "lanes" if template == "lanes.h.j2" else "hot_lanes" if hot else "rows"
    texts = render_c(voted, shape=single, batch=batch)
    with pytest.raises(ProofError, match=r"gives|self-test"):
        prove_files(voted, C(), encoded(texts))


def test_a_vector_form_that_this_cpu_does_not_choose_is_run_too(
    voted: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[str] = []
    honest = compile_library

    def recorded(source: Path, library: Path, *options: str) -> str:
        widths.extend(options)
        return honest(source, library, *options)

    monkeypatch.setattr(c_target, "compile_library", recorded)
    certificate = prove_files(voted, C(), encoded(render_c(voted)))[0]
    ran = ["score", "score_batch", "score in plain C", *(f"score_batch in {w} bits" for w in vector_widths()[:-1])]
    assert certificate.tool.endswith(f"; ran {', '.join(ran)}")
    assert widths == [
        option for width in (0, *vector_widths()[:-1]) for option in ("-O1", f"-DDROP_PREDICTOR_VECTOR={width}")
    ]


def test_the_message_names_the_offending_input(tmp_path: Path) -> None:
    voted = with_votes(stumps([0.0, 1.0]))
    texts = render_c(voted, shape="branches", batch="rows")
    changed = texts["drop_predictor.h"].replace("NODE(0, 10,", "NODE(0, 11,")
    with pytest.raises(ProofError, match="at f0=11:"):
        prove_files(voted, C(), encoded({**texts, "drop_predictor.h": changed}), max_cells=0)


def test_trees_of_many_leaves_and_many_trees_of_few_share_words(tmp_path: Path) -> None:
    base = stumps([0.0, 1.0], bits=10)
    one = stump([0.25, 0.5])
    deep = one
    for cut in range(100):  # 102 leaves: two words
        size = len(deep.feature)
        deep = replace(
            deep,
            feature=np.append([0], deep.feature),
            cut=np.append([400 + 5 * cut], deep.cut),
            left=np.append([1], np.where(deep.left < 0, -1, deep.left + 1)),
            right=np.append([size + 1], np.where(deep.right < 0, -1, deep.right + 1)),
            value=np.append([0.0], deep.value),
        )
        deep = replace(
            deep,
            feature=np.append(deep.feature, -1),
            cut=np.append(deep.cut, 0),
            left=np.append(deep.left, -1),
            right=np.append(deep.right, -1),
            value=np.append(deep.value, (cut + 1) / 128),
        )
    for trees in ((deep, one), (one,) * 33, (one,) * 65):
        for max_cells in (10**7, 0):
            ensemble = with_votes(Ensemble(base.features, trees, base.threshold), max_cells=max_cells)
            texts = render_c(ensemble, shape="bitvector", batch="rows")
            certificate = prove_files(ensemble, C(), encoded(texts), max_cells=max_cells)[0]
            assert certificate.boxes in (None, sum(len(tree.leaves) for tree in trees))


def _constant(ensemble: Ensemble, low: np.ndarray, high: np.ndarray) -> bool:
    """Return whether every tree has one vote in a box, by its leaves."""
    parts = [leaf_boxes(tree, ensemble.features) for tree in ensemble.trees]
    return all(len(set(p.votes[np.all((p.low <= high) & (low <= p.high), axis=1)].tolist())) == 1 for p in parts)


@settings(max_examples=draws(40))
@given(trained=forests(max_trees=6, max_depth=5))
def test_every_tree_is_constant_in_the_hot_box_and_in_none_that_is_larger(trained: Trained) -> None:
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0)
    box = HotBox.of(voted)
    assume(box is not None)
    assert box is not None
    assert _constant(voted, box.low, box.high)
    random = np.random.default_rng(0)
    points = np.concatenate([random.integers(box.low, box.high + 1, (50, len(box.low))), [box.low, box.high]])
    assert set(voted.score(points).tolist()) == {box.score}
    for feature, item in enumerate(voted.features):
        for bounds, end, step in ((box.low, 0, -1), (box.high, (1 << item.bits) - 1, 1)):
            if bounds[feature] != end:
                moved = bounds.copy()
                moved[feature] += step
                low, high = (moved, box.high) if step < 0 else (box.low, moved)
                assert not _constant(voted, low, high)
                assert feature in cuts_of(voted.trees)


@settings(max_examples=draws(40))
@given(trained=forests(max_trees=4, max_depth=5))
def test_as_many_rows_are_in_the_hot_box_as_it_says_at_least_and_exactly_those_of_one_tree(trained: Trained) -> None:
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0).with_visits([trained.rows])
    for ensemble in (voted, replace(voted, trees=voted.trees[:1])):
        box = HotBox.of(ensemble)
        if box is None:
            continue
        inside = np.mean(np.all((box.low <= trained.rows) & (trained.rows <= box.high), axis=1))
        assert 0 <= box.inside <= inside + 1e-12
        assert all(np.isclose(share.sum(), 1 - box.inside) and np.all(share >= -1e-12) for share in box.rest(ensemble))
        if len(ensemble.trees) == 1 and len(set(Trees.of(ensemble).votes)) == len(ensemble.trees[0].leaves):
            assert box.inside == pytest.approx(inside)


@settings(max_examples=draws(20))
@given(trained=forests(max_trees=3, max_depth=5))
def test_branches_cost_the_nodes_of_the_rows_and_their_rarer_sides(trained: Trained) -> None:
    rows = trained.rows[:200]
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0).with_visits([rows])
    box = HotBox.of(voted)
    assume(box is not None)
    assert box is not None
    cycles = 0.0
    for tree in voted.trees:
        sides: dict[int, list[bool]] = {}
        for row in rows:
            node = 0
            while tree.feature[node] >= 0:
                left = bool(row[tree.feature[node]] <= tree.cut[node])
                sides.setdefault(node, []).append(left)
                node = int(tree.left[node] if left else tree.right[node])
        for taken in sides.values():
            cycles += NODE * len(taken) + MISPREDICTION * min(sum(taken), len(taken) - sum(taken))
    found = expected_cycles(voted, None, box)
    assert set(found) == {"hot_branches", "branches"}
    assert found["branches"] == pytest.approx(cycles / len(rows), abs=0.051)


def test_the_form_follows_the_visits_and_the_header_says_why() -> None:
    six, random = stumps(*[[0.0, 1.0]] * 6), np.random.default_rng(1)
    alike = replace(stumps([0.0, 1.0]), trees=tuple(stump([0.0, 1.0], cut=10 + index) for index in range(12)))
    even = random.integers(0, 22, (500, 6))
    hot = np.where(np.arange(500)[:, np.newaxis] < 490, 0, even)
    for model, rows, form in ((six, even, "bitvector"), (six, hot, "branches"), (alike, hot[:, :1], "hot_bitvector")):
        counted = with_votes(model).with_visits([rows])
        box = HotBox.of(counted)
        assert box is not None
        cycles = expected_cycles(counted, Bitvectors.of(counted), box)
        assert min(cycles, key=cycles.__getitem__) == form
        shown = ", ".join(f"{name} {spent}" for name, spent in cycles.items())
        reason = "the cheapest by the visits of training rows, in cycles beside the call"
        assert f"* One prediction: {form}, {reason}: {shown}.\n" in render_c(counted)["drop_predictor.h"]


def test_without_visits_bitvectors_are_taken_and_no_hot_box_is_known() -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 1.0]))
    assert f"* One prediction: bitvector, {UNCOUNTED}." in render_c(voted)["drop_predictor.h"]
    unvisited = voted.with_visits([])
    assert f"* One prediction: bitvector, {UNCOUNTED}." in render_c(unvisited)["drop_predictor.h"]
    with pytest.raises(ForetailError, match="how often its leaves were visited: leave out shape=hot_branches"):
        render_c(voted, shape="hot_branches")
    with pytest.raises(ForetailError, match="set shape=hot_bitvector"):
        render_c(voted, batch="hot_lanes")
