"""The worked example learns, exports and compares, at its small size. Costs ten seconds, some for the compiler."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

ROW = r"J +\d+\.\d{3}, against accepting [+-]\d+\.\d % \[.+\], DT [+-]\d+\.\d % \[.+\]$"


def test_the_example_learns_and_exports(tmp_path: Path) -> None:
    program = ROOT / "examples" / "closed_loop" / "learn_policy.py"
    command: list[str | Path] = [sys.executable, "-W", "error", program, "--size", "small", "--folder", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for policy in (
        "Complete Sharing \\(always accept\\)",
        r"Dynamic Thresholds, alpha \S+, tuned",
        "Longest Queue Drop",
        "the demo's sharing rule, as C",
        "learned policy, as C",
    ):
        assert re.search(rf"^{policy} +{ROW}", done.stdout, re.MULTILINE), done.stdout
    assert (tmp_path / "learned_policy" / "drop_predictor.c").exists()
