"""The programs of a page run, one after the other, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sphinx_gallery.notebook import python_to_jupyter_cli

from foretail.api import C, FeatureInput, RandomForest, export
from foretail.export.c.build import find_compiler
from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.traces import write_bursts

pytest.importorskip("gymnasium", reason="the extra gym is not installed")


WITH_PROGRAMS = [
    pytest.param(page, id=name_of(page), marks=[pytest.mark.ns3] if page.name == "extend.md" else [])
    for page in PAGES
    if page.name in ("data.md", "extend.md", "metrics.md", "native.md", "tofino.md", "vermilion.md")
]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_programs_print_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arrivals.csv").write_text("slot,port\n0,0\n1,19\n", encoding="utf-8")
    shutil.copy(ROOT / "tests" / "sim_bridge" / "imports" / "sonic" / "leaf_32x100g.json", "config_db.json")
    shutil.copytree(ROOT / "examples" / "switch_config", Path("examples") / "switch_config")
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


@pytest.mark.nightly
@pytest.mark.slow
def test_the_c_program_of_the_page_on_export_decides(tmp_path: Path) -> None:
    (program,) = (text for language, text in blocks(ROOT / "docs/guide/export.md") if language == "c")
    (tmp_path / "main.c").write_text(program)
    inputs = [FeatureInput("threshold", "cell_bytes=256", 24)]
    x = np.array([[100], [200], [400], [500]] * 10, np.int32)
    for above in (True, False):  # of 300 cells one model says drop, the other accept
        model = RandomForest(trees=1, depth=1, bootstrap=False).fit(x, (x[:, 0] > 150) == above).to_ensemble(inputs)
        export(model, C(), tmp_path / "drop")
        subprocess.run([*find_compiler(), "-std=c99", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
        said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
        assert said == ("drop\n" if above else "accept\n")
        shutil.rmtree(tmp_path / "drop")


STEPS = sorted((ROOT / "examples" / "tutorial").glob("*.py"))
GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))
RUN_CELLS = """
import json, sys
from pathlib import Path
for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), globals())
import matplotlib.pyplot
print(len(matplotlib.pyplot.get_fignums()))
"""
"""Runs the cells of a notebook, and then prints how many figures they drew."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(one, id=one.stem, marks=[] if one.stem == "burst" else [pytest.mark.nightly])
        for one in (*STEPS, *GALLERY)
    ],
)
def test_a_notebook_runs(program: Path, tmp_path: Path) -> None:
    copy, empty = tmp_path / program.name, tmp_path / "empty"
    copy.write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
    python_to_jupyter_cli([str(copy)])
    empty.mkdir()
    done = subprocess.run(
        # Without a display, plt.show() warns that it shows nothing.
        [sys.executable, "-W", "error", "-W", "ignore:FigureCanvasAgg", "-c", RUN_CELLS, copy.with_suffix(".ipynb")],
        cwd=empty,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *printed, figures = done.stdout.splitlines()
    assert len(printed) >= (5 if program in STEPS else 1)
    assert figures == ("0" if program in STEPS else "1")
    assert list(empty.iterdir()) == []


@pytest.mark.slow
def test_programs_are_in_cells() -> None:
    assert (len(STEPS), len(GALLERY)) == (6, 6)
    for program, least in (*((step, 4) for step in STEPS), *((example, 3) for example in GALLERY)):
        text = program.read_text(encoding="utf-8")
        assert text.count("\n# %%\n") >= least, program.name
        assert "\n====" in text, f"{program.name} has no heading"
        assert [page for page in re.findall(r"docs/[\w/-]+\.md", text) if not (ROOT / page).is_file()] == []
