"""The programs of a page run, one after the other, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks, name_of
from tests.traces import write_bursts

pytest.importorskip("gymnasium", reason="the extra gym is not installed")

WITH_PROGRAMS = [
    pytest.param(page, id=name_of(page), marks=[pytest.mark.ns3] if page.name == "python.md" else [])
    for page in PAGES
    if page.name in ("README.md", "how-do-i.md", "live.md", "metrics.md", "p4-tofino.md", "python.md")
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_programs_print_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arrivals.csv").write_text("slot,port\n0,0\n1,19\n", encoding="utf-8")
    write_bursts(Path("outputs") / "dataset", seed=1, bursts=2)
    known: dict[str, object] = {}
    ran = 0
    for (language, program), (following, expected) in pairwise([*blocks(page), ("", "")]):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(page), "exec"), known)
        if "print(" in program:
            assert (following, printed.getvalue()) == ("", expected), os.linesep + program
        ran += 1
    assert ran
