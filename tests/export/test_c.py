"""The C target: what is written, that it compiles everywhere without a warning, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from foretail.export import ExportResult, PredictorLibrary, ProofError, export_c, with_votes
from foretail.export import c as c_target
from foretail.export.build import predictor_abi
from foretail.export.c import c_string, render_c
from foretail.features.errors import ForetailError
from foretail.models.cells import Cells
from foretail.models.ensemble import Ensemble
from tests.forests import PAPER_INPUTS, Trained, paper_forest, stumps

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wsign-conversion", "-Wshadow", "-Werror")


@pytest.fixture(scope="module")
def trained() -> Trained:
    return paper_forest()


@pytest.fixture(scope="module")
def exported(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return export_c(trained.ensemble, tmp_path_factory.mktemp("export") / "out")


def test_an_export_is_complete_and_consistent(exported: ExportResult, trained: Trained) -> None:
    files = {path.name for path in exported.header.parent.iterdir()}
    assert files == {"drop_predictor.h", "drop_predictor.c", "drop_predictor.so", "certificate.json", "ensemble.json"}
    certificate = json.loads(exported.certificate.read_text())
    for name, digest in certificate["outputs"].items():
        assert hashlib.sha256((exported.header.parent / name).read_bytes()).hexdigest() == digest
    assert set(certificate["outputs"]) == files - {"certificate.json", "ensemble.json"}
    ensemble, library = Ensemble.load(exported.ir), PredictorLibrary(exported.library)
    assert library.ir_sha256 == ensemble.sha256 == certificate["ir_sha256"]
    assert library.features == tuple((f.name, f.params) for f in PAPER_INPUTS)
    assert library.default_tau == ensemble.default_tau
    assert ensemble.with_threshold(trained.ensemble.threshold) == trained.ensemble


def test_the_library_scores_as_the_interpreter_on_every_cell(exported: ExportResult) -> None:
    ensemble, library = Ensemble.load(exported.ir), PredictorLibrary(exported.library)
    for points in Cells.of(ensemble).batches():
        assert np.array_equal(library.score(points), ensemble.score(points))


def test_the_library_decides_as_scikit_learn(exported: ExportResult, trained: Trained) -> None:
    library = PredictorLibrary(exported.library)
    drops = library.score(trained.rows) > library.default_tau
    assert np.array_equal(drops, trained.forest.forest_.predict(trained.rows))
    assert [library.score_one(row) for row in trained.rows[:50]] == library.score(trained.rows[:50]).tolist()


@pytest.mark.parametrize(
    "language", [("cc", "-xc", "-std=c99"), ("cc", "-xc", "-std=c17"), ("c++", "-xc++", "-std=c++20")]
)
@pytest.mark.parametrize("file", ["drop_predictor.h", "drop_predictor.c"])
def test_sources_compile_without_a_warning(language: tuple[str, ...], file: str, exported: ExportResult) -> None:
    compiler, *flags = language
    assert shutil.which(compiler), f"these tests need {compiler}"
    source = f'#include "{file}"\nint main(void) {{ return 0; }}\n'
    command = [compiler, *flags, *WARNINGS, f"-I{exported.header.parent}", "-c", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_forest_of_single_leaves_compiles_without_a_warning(tmp_path: Path) -> None:
    base = stumps([0.0, 1.0])
    leaf = base.trees[0]
    single = type(leaf)(leaf.feature[1:2], leaf.cut[1:2], leaf.left[1:2], leaf.right[1:2], np.array([0.75]))
    result = export_c(Ensemble(base.features, (single,), base.threshold), tmp_path / "out")
    command = ["cc", "-std=c99", *WARNINGS, "-c", "-o", "/dev/null", str(result.source)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    assert PredictorLibrary(result.library).score(np.array([[0], [255]])).tolist() == [2, 2]  # 0.75 in halves


def test_cpp_code_can_use_the_header_alone(exported: ExportResult, tmp_path: Path) -> None:
    ensemble = Ensemble.load(exported.ir)
    row = next(p for points in Cells.of(ensemble).batches() for p in points if ensemble.score(p[None])[0] > 0)
    program = tmp_path / "main.cpp"
    program.write_text(
        '#include "drop_predictor.h"\n#include <cstdio>\nint main() {\n'
        f"  const int64_t x[DROP_PREDICTOR_FEATURES] = {{{', '.join(map(str, row))}}};\n"
        "  static_assert(drop_predictor_at_occupancy == 2);\n"
        '  std::printf("%lld", static_cast<long long>(drop_predictor_score(x)));\n}\n'
    )
    subprocess.run(["c++", "-std=c++20", f"-I{exported.header.parent}", "-o", tmp_path / "main", program], check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert int(printed) == ensemble.score(row[None])[0]


def test_generated_code_stands_alone_and_may_be_shipped(exported: ExportResult) -> None:
    header, source = exported.header.read_text(), exported.source.read_text()
    assert predictor_abi() in source
    assert re.findall(r"#include.*", header) == ["#include <stdint.h>"]
    assert set(re.findall(r"#include (.*)", source)) == {"<stddef.h>", "<stdint.h>", '"drop_predictor.h"'}
    for text in (header, source):
        assert text.startswith("/* SPDX-License-Identifier: MIT-0 */")
        assert str(Path.cwd()) not in text
    assert not re.search(rb"/tmp/|/home/|/root/", exported.library.read_bytes())


def test_the_same_ensemble_gives_the_same_text(trained: Trained) -> None:
    voted = with_votes(trained.ensemble)
    assert render_c(voted) == render_c(Ensemble.from_json(voted.to_json()))


def test_exporting_again_replaces_an_earlier_export(exported: ExportResult, tmp_path: Path) -> None:
    shutil.copytree(exported.header.parent, tmp_path / "out")
    result = export_c(stumps([0.0, 1.0]), tmp_path / "out", name="tiny")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "tiny.h",
        "tiny.c",
        "tiny.so",
        "certificate.json",
        "ensemble.json",
    }
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert PredictorLibrary(result.library).features == (("f0", ""),)


def test_another_model_in_the_same_place_is_not_mistaken_for_the_first(tmp_path: Path) -> None:
    scores = []
    for leaf in (0.5, 1.0, 1.5):
        library = PredictorLibrary(export_c(stumps([0.0, leaf]), tmp_path / "out").library)
        scores.append(library.score_one(np.array([255])))
    assert scores == [1, 2, 3]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(ForetailError, match="is no earlier export"):
        export_c(stumps([0.0, 1.0]), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failed_proof_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = c_target._statements

    def off_by_one(tree, *args):  # type: ignore[no-untyped-def]
        return (line.replace("<= 10)", "<= 11)") for line in honest(tree, *args))

    monkeypatch.setattr(c_target, "_statements", off_by_one)
    with pytest.raises(ProofError, match="f0=11"):
        export_c(stumps([0.0, 1.0]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "Drop", "1drop", "a-b", "a b", "../x", 'a"', "é", "foretail_predictor", "a" * 60])
def test_unsafe_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="cannot prefix C names"):
        export_c(stumps([0.0, 1.0]), tmp_path / "out", name=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a??/", "é"])
def test_unsafe_strings_are_refused(text: str) -> None:
    with pytest.raises(ForetailError, match="cannot be written into C"):
        c_string(text)


def test_rendering_needs_votes() -> None:
    with pytest.raises(ForetailError, match="no integer votes"):
        render_c(stumps([0.0, 1.0]))
