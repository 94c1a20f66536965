"""The C target: what is written, that it compiles everywhere without a warning, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.c import forms
from foretail.export.c import shapes as c_shapes
from foretail.export.c import target as c_target
from foretail.export.c.build import PredictorLibrary, compile_library, find_compiler, predictor_abi
from foretail.export.c.target import C, render_c
from foretail.export.c.text import Batch, Single
from foretail.export.passes import with_votes
from foretail.export.proof import Certificate
from foretail.export.target import ExportResult, export
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree
from tests.forests import PAPER_INPUTS, Trained, paper_forest, stump, stumps

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
