"""Finding a compiler, and loading libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary, compile_library, find_compiler, predictor_abi
from foretail.export.c.target import C
from foretail.export.target import export
from tests.forests import stumps


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
    with pytest.raises(ForetailError, match=r"cannot compile bad\.c \(.*error") as caught:
        compile_library(tmp_path / "bad.c", tmp_path / "bad.so")
    assert "\n" not in str(caught.value)


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
