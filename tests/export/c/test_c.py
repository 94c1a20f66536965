"""The C target: what is written, that it compiles without a warning, is read back and proven, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import jinja2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.c import forms
from foretail.export.c import shapes as c_shapes
from foretail.export.c import target as c_target
from foretail.export.c import text as c_text
from foretail.export.c.build import PredictorLibrary, compile_library, find_compiler, predictor_abi, vector_widths
from foretail.export.c.forms import MISPREDICTION, NODE, UNCOUNTED, expected_cycles
from foretail.export.c.reader import read_c
from foretail.export.c.shapes import Bitvectors, HotBox, Trees
from foretail.export.c.target import C, render_c, stated
from foretail.export.c.text import Batch, Single
from foretail.export.folder import encoded
from foretail.export.passes import with_votes
from foretail.export.proof import Certificate, ProofError
from foretail.export.target import ExportResult, export, prove_files
from foretail.models.ensemble.boxes import difference, leaf_boxes, overlap
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree, cuts_of
from tests.examples import draws
from tests.forests import PAPER_INPUTS, Trained, forests, paper_forest, stump, stumps

pytestmark = pytest.mark.slow
FORMS: list[tuple[Single, Batch]] = [
    ("branches", "rows"),
    ("branches", "lanes"),
    ("bitvector", "rows"),
    ("bitvector", "lanes"),
]
HOT: list[tuple[Single, Batch]] = [("hot_branches", "rows"), ("hot_bitvector", "hot_lanes")]
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wsign-conversion", "-Wshadow", "-Werror")


@pytest.fixture(scope="module")
def trained() -> Trained:
    return paper_forest()


@pytest.fixture(scope="module")
def exported(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return export(trained.ensemble, C(), tmp_path_factory.mktemp("export") / "out")


def test_an_export_is_complete_and_consistent(exported: ExportResult, trained: Trained) -> None:
    files = {path.name for path in exported.folder.iterdir()}
    assert files == {
        "drop_predictor.h",
        "drop_predictor.c",
        "drop_predictor_selftest.c",
        "drop_predictor.so",
        "certificate.json",
        "digest.json",
        "ensemble.json",
    }
    certificate = json.loads((exported.folder / "certificate.json").read_text())
    assert Certificate.load(exported.folder / "certificate.json") == exported.certificate
    assert Ensemble.load(exported.folder / "ensemble.json") == exported.ensemble
    for name, digest in certificate["outputs"].items():
        assert hashlib.sha256((exported.folder / name).read_bytes()).hexdigest() == digest
    assert set(certificate["outputs"]) == files - {"certificate.json", "digest.json", "ensemble.json"}
    ensemble, library = exported.ensemble, PredictorLibrary(exported.file(".so"))
    assert library.ir_sha256 == ensemble.sha256 == certificate["ir_sha256"]
    assert library.features == tuple((f.name, f.params) for f in PAPER_INPUTS)
    assert library.default_tau == ensemble.default_tau
    score = library.score(trained.rows)
    assert ensemble.score(trained.rows).tolist() == score.tolist()
    assert np.array_equal(score > library.default_tau, trained.forest.forest_.predict(trained.rows))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every form of small, wide, large and negative models: ``<model>_<form>.h`` and so on."""
    folder = tmp_path_factory.mktemp("texts")
    far = Ensemble((FeatureInput("register", "", 24),), (stump([-1.0, 2.0**40], cut=40_000),), Fraction(1, 2))
    models = {
        "small": paper_forest(trees=2, depth=3).ensemble,
        "large": paper_forest(trees=9, depth=6).ensemble,
        "far": far,
        "leaf": Ensemble(far.features, (_leaf(),), Fraction(1, 2)),
        "time": Ensemble((FeatureInput("time", "", 32),), (stump([0.0, 1.0], (1 << 32) - 2),), Fraction(1, 2)),
    }
    for model, ensemble in models.items():
        voted = with_votes(ensemble, max_cells=10**6)
        if model == "time":
            voted = voted.with_visits([[[0], [1 << 31], [(1 << 32) - 1]]])
        for shape, batch in FORMS + (HOT if model in ("small", "time") else []):
            for file, text in render_c(voted, f"{model}_{shape}_{batch}", shape=shape, batch=batch).items():
                (folder / file).write_text(text)
    return folder


@pytest.mark.parametrize(
    "language", [("cc", "-xc", "-std=c99"), ("cc", "-xc", "-std=c17"), ("c++", "-xc++", "-std=c++20")]
)
@pytest.mark.parametrize("vector", [None, *(pytest.param(bits, marks=pytest.mark.nightly) for bits in (0, 256))])
def test_every_form_compiles_without_a_warning(language: tuple[str, ...], vector: int | None, texts: Path) -> None:
    compiler, *flags = language
    assert shutil.which(compiler), f"these tests need {compiler}"
    headers = sorted(texts.glob("*.h"))
    assert len(headers) == 24
    fixed = [f"#define {header.stem.upper()}_VECTOR {vector}\n" for header in headers if vector is not None]
    every = "".join(f'#include "{file}"\n' for file in headers)
    library, selftest = (f'#include "{texts / "large_bitvector_lanes"}{end}"\n' for end in (".c", "_selftest.c"))
    for source in ("".join(fixed) + every, library, selftest):
        command = [compiler, *flags, *WARNINGS, "-fsyntax-only", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("level", "instructions"),
    [("-O0", ""), ("-O3", ""), ("-O3", "-mavx2"), ("-O3", "-mavx512f -mavx512bw -mavx512vl -mavx512dq")],
)
@pytest.mark.parametrize(
    "compiler", ["gcc -xc -std=c99", "g++ -xc++ -std=c++20", "clang -xc -std=c99", "clang++ -xc++ -std=c++20"]
)
def test_no_optimisation_brings_a_warning(compiler: str, level: str, instructions: str, texts: Path) -> None:
    program, *flags = compiler.split()
    if shutil.which(program) is None:
        assert program not in ("gcc", "g++"), f"these tests need {program}"
        pytest.skip(f"{program} is not on PATH")
    names = [header.stem for header in sorted(texts.glob("*.h"))]
    source = "".join(
        f'#include "{texts / name}.h"\n'
        f"void {name}(const int64_t *x, size_t rows, int64_t *out);\n"
        f"void {name}(const int64_t *x, size_t rows, int64_t *out) {{ {name}_score_batch(x, rows, out); }}\n"
        for name in names
    )
    command = [program, *flags, *WARNINGS, level, *instructions.split(), "-S", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("vector", [None, *(pytest.param(bits, marks=pytest.mark.nightly) for bits in (0, 128))])
def test_self_tests_say_nothing_and_pass(vector: int | None, texts: Path, tmp_path: Path) -> None:
    for source in sorted(texts.glob("*_bitvector_lanes_selftest.c")):
        prefix = source.name.removesuffix("_selftest.c").upper()
        option = [] if vector is None else [f"-D{prefix}_VECTOR={vector}"]
        subprocess.run(["cc", "-std=c99", *option, "-o", tmp_path / "t", source], check=True)
        done = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _leaf() -> Tree:
    leaf = stump([0.0, 0.75])
    return Tree(leaf.feature[2:], leaf.cut[2:], leaf.left[2:], leaf.right[2:], leaf.value[2:])


@pytest.mark.parametrize(("shape", "batch"), FORMS[1:3] + HOT)
def test_a_chosen_form_is_written_and_gives_the_scores(
    shape: Single, batch: Batch, trained: Trained, tmp_path: Path
) -> None:
    voted = with_votes(trained.ensemble)
    result = export(voted, C(shape=shape, batch=batch), tmp_path / "out")
    text = result.file(".h").read_text()
    assert f"One prediction: {shape}, as c.shape asks for it.\n * Many: {batch}." in text
    library = PredictorLibrary(result.file(".so"))
    for count in (0, 1, 15, 16, 31, 33, 70):  # whole blocks of lanes and what is left of them
        rows = trained.rows[:count]
        assert library.score(rows).tolist() == library.score_each(rows).tolist() == voted.score(rows).tolist()


@pytest.mark.nightly
def test_tuning_measures_every_form_and_takes_the_fastest(trained: Trained, tmp_path: Path) -> None:
    result = export(trained.ensemble, C(tune_rows=trained.rows), tmp_path / "out")
    tuning = json.loads((result.folder / "tuning.json").read_text())
    assert tuning == result.report
    assert {kind: set(spent) for kind, spent in tuning["nanoseconds"].items()} == {
        "single": {"branches", "bitvector", "hot_branches", "hot_bitvector"},
        "batch": {"rows", "lanes", *(["hot_lanes"] if tuning["single"].startswith("hot_") else [])},
    }
    for kind, spent in tuning["nanoseconds"].items():
        assert tuning[kind] == min(spent, key=spent.get)
        assert all(value > 0 for value in spent.values())
    forms = f"One prediction: {tuning['single']}, the fastest on the rows of the dataset.\n * Many: {tuning['batch']}."
    assert forms in result.file(".h").read_text()
    digest = hashlib.sha256((result.folder / "tuning.json").read_bytes()).hexdigest()
    assert result.certificate.outputs["tuning.json"] == digest


def test_large_tables_give_way_to_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_shapes, "MAX_WORDS", 10)
    voted = with_votes(stumps(*[[0.0, 1.0]] * 12))
    assert "One prediction: branches, because" in render_c(voted)["drop_predictor.h"]
    counted = voted.with_visits([np.zeros((9, 12), np.int64), np.full((1, 12), 255)])
    header = render_c(counted)["drop_predictor.h"]
    assert re.search(r"One prediction: branches, .*: hot_branches \d+\.\d, branches \d+\.\d\.\n", header)
    with pytest.raises(ForetailError, match="choose shape=branches"):
        export(voted, C(shape="bitvector"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_trees_beyond_the_lanes_give_way_to_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAX_LANE_LEAVES", 1)
    monkeypatch.setattr(c_target, "MAX_LANE_LEAVES", 1)
    voted = with_votes(stumps([0.0, 1.0]))
    assert "Many: rows." in render_c(voted)["drop_predictor.h"]
    with pytest.raises(ForetailError, match="choose batch=rows"):
        export(voted, C(batch="lanes"), tmp_path / "out")


def test_cpp_code_can_use_the_header_alone(exported: ExportResult, tmp_path: Path) -> None:
    ensemble = exported.ensemble
    row = next(p for points in Cells.of(ensemble).batches() for p in points if ensemble.score(p[None])[0] > 0)
    program = tmp_path / "main.cpp"
    program.write_text(
        '#include "drop_predictor.h"\n#include <cstdio>\nint main() {\n'
        f"  const int64_t x[DROP_PREDICTOR_FEATURES] = {{{', '.join(map(str, row))}}};\n"
        "  static_assert(drop_predictor_at_occupancy == 2);\n"
        "  const drop_predictor_input_t in = {x[0], x[1], x[2], x[3]};\n"
        "  const int64_t score = drop_predictor_score(x);\n"
        "  if (!drop_predictor_drop_input(&in, score - 1) || drop_predictor_drop_input(&in, score)) return 1;\n"
        "  if (!drop_predictor_drop(x, score - 1) || drop_predictor_drop(x, score)) return 1;\n"
        '  std::printf("%lld", static_cast<long long>(score));\n}\n'
    )
    subprocess.run(["c++", "-std=c++20", f"-I{exported.folder}", "-o", tmp_path / "main", program], check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert int(printed) == ensemble.score(row[None])[0]


def test_generated_code_stands_alone_and_may_be_shipped(exported: ExportResult) -> None:
    header, source = exported.file(".h").read_text(), exported.file(".c").read_text()
    assert predictor_abi() in source
    assert re.findall(r"#include.*", header) == ["#include <stddef.h>", "#include <stdint.h>", "#include <immintrin.h>"]
    assert header.index("defined(__GNUC__) && defined(__x86_64__)") < header.index("<immintrin.h>")
    assert set(re.findall(r"#include (.*)", source)) == {"<stddef.h>", "<stdint.h>", '"drop_predictor.h"'}
    for text in (header, source):
        assert text.startswith("/* SPDX-License-Identifier: MIT-0 */")
        assert str(Path.cwd()) not in text
    assert not re.search(rb"/tmp/|/home/|/root/", exported.file(".so").read_bytes())


def test_cc_chooses_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -DX=1")
    assert find_compiler() == ["cc", "-DX=1"]
    monkeypatch.delenv("CC")
    assert find_compiler()[0] in ("cc", "gcc", "clang")


def test_no_compiler_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ForetailError, match="no C compiler found"):
        export(stumps([0.0, 1.0]), C(), tmp_path / "out")
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(ForetailError, match=r"'no-such-cc' of \$CC is not on PATH"):
        export(stumps([0.0, 1.0]), C(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_code_that_does_not_compile_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(void) { return }\n")
    with pytest.raises(ForetailError, match=r"cannot compile bad\.c \(.*error"):
        compile_library(tmp_path / "bad.c", tmp_path / "bad.so")


def test_files_that_are_no_predictor_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "other.c").write_text("int f(void) { return 1; }\n")
    compile_library(tmp_path / "other.c", tmp_path / "other.so")
    for name in ("none.so", "text.so", "other.so"):
        with pytest.raises(ForetailError, match="is not a Foretail predictor library"):
            PredictorLibrary(tmp_path / name)


def test_another_abi_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(
        predictor_abi()
        + "static const foretail_predictor_info_t info = {2, 0, 0, 0, 0, 0};\n"
        + "const foretail_predictor_info_t *foretail_predictor_info(void) { return &info; }\n"
        + "int64_t foretail_predictor_score(const int64_t *x) { (void)x; return 0; }\n"
        + "void foretail_predictor_score_batch(const int64_t *x, size_t n, int64_t *o) { (void)x; (void)n; (void)o; }\n"
    )
    compile_library(tmp_path / "p.c", tmp_path / "p.so")
    with pytest.raises(ForetailError, match="ABI version 2"):
        PredictorLibrary(tmp_path / "p.so")


FORMS_READ: list[tuple[Single | Literal["auto"], Batch]] = [
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
@given(trained=forests(), form=st.sampled_from(FORMS_READ))
def test_what_is_generated_from_any_forest_is_proven(
    trained: Trained, form: tuple[Single | Literal["auto"], Batch | Literal["auto"]]
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
    "another feature": lambda t: re.sub(r"NODE\(2, ", "NODE(3, ", t, count=1),
    "a feature that does not exist": lambda t: re.sub(r"NODE\(\d, ", "NODE(4, ", t, count=1),
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
    "bounds out of order": lambda t: re.sub(r"(bounds_\d\[\d+\] = \{\s*)(\d+), (\d+)", r"\1\3, \2", t, count=1),
    "a field too short": lambda t: re.sub(
        r"left & UINT64_C\((\w+)\)", lambda m: m[0].replace(m[1], f"{int(m[1], 16) >> 1:#018x}"), t, count=1
    ),
    "another comparison": lambda t: t.replace("bounds[i] <= x", "bounds[i] < x"),
    "another lane": lambda t: t.replace("_LANE(quad_0, 1)", "_LANE(quad_0, 0)"),
}
CHANGES_OF_A_BOX: dict[str, Callable[[str], str]] = {
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


CASES = [
    *(("branches", "rows", name) for name in {**MUTATIONS, **BRANCHES}),
    *(("bitvector", "rows", name) for name in BITVECTOR),
    *(("bitvector", "lanes", name) for name in MUTATIONS),
    *(("hot_bitvector", "rows", name) for name in CHANGES_OF_A_BOX),
    *(("hot_branches", "rows", name) for name in ("a cut one higher", *CHANGES_OF_A_BOX)),
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
    changed = {**MUTATIONS, **BRANCHES, **BITVECTOR, **CHANGES_OF_A_BOX}[mutation](header)
    assert changed != header
    assert not differs(voted, header)
    assert differs(voted, changed)


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
def test_a_changed_library_source_is_caught(old: str, new: str, voted: Ensemble) -> None:
    texts = render_c(voted, batch="rows")
    assert old in texts["drop_predictor.c"]
    changed = texts["drop_predictor.c"].replace(old, new, 1)
    with pytest.raises(ProofError):
        prove_files(voted, C(), encoded({**texts, "drop_predictor.c": changed}))


def test_a_changed_self_test_is_caught(voted: Ensemble) -> None:
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
    template: str, old: str, new: str, voted: Ensemble, monkeypatch: pytest.MonkeyPatch
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
    voted: Ensemble, monkeypatch: pytest.MonkeyPatch
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


def test_the_message_names_the_offending_input() -> None:
    voted = with_votes(stumps([0.0, 1.0]))
    texts = render_c(voted, shape="branches", batch="rows")
    changed = texts["drop_predictor.h"].replace("NODE(0, 10,", "NODE(0, 11,")
    with pytest.raises(ProofError, match="at f0=11:"):
        prove_files(voted, C(), encoded({**texts, "drop_predictor.h": changed}), max_cells=0)


def test_trees_of_many_leaves_and_many_trees_of_few_share_words() -> None:
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
