"""The programs of the tutorial run in an empty folder, warnings as errors, print something and leave nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

STEPS = sorted((ROOT / "examples" / "tutorial").glob("*.py"))

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_a_step_runs(step: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", step], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") >= 5
    assert list(tmp_path.iterdir()) == []


def test_there_are_six_steps_in_cells() -> None:
    assert len(STEPS) == 6
    for step in STEPS:
        text = step.read_text(encoding="utf-8")
        assert text.count("\n# %%\n") >= 4, step.name
        assert "\n====" in text, f"{step.name} has no heading"
