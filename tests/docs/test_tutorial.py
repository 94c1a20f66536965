"""The programs of the tutorial and the gallery run as notebooks, in an empty folder and with warnings as errors.

A notebook is what the site offers: sphinx-gallery makes it of the program. Its cells run one after the other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx_gallery.notebook import python_to_jupyter_cli

from tests.docs.pages import ROOT

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

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(one, id=one.stem, marks=[] if one.stem == "burst" else [pytest.mark.nightly, pytest.mark.full])
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


def test_programs_are_in_cells() -> None:
    assert (len(STEPS), len(GALLERY)) == (6, 6)
    for program, least in (*((step, 4) for step in STEPS), *((example, 3) for example in GALLERY)):
        text = program.read_text(encoding="utf-8")
        assert text.count("\n# %%\n") >= least, program.name
        assert "\n====" in text, f"{program.name} has no heading"
        assert [page for page in re.findall(r"docs/[\w/-]+\.md", text) if not (ROOT / page).is_file()] == []
