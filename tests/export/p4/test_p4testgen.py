"""The exported programs under p4testgen of p4lang/p4c, which executes P4 symbolically and knows nothing of our reader.

It runs where p4testgen is on PATH: 1 to 60 s a program.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import Tree
from tests.forests import paper_forest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("p4testgen") is None, reason="p4testgen not on PATH: docs/guide/export.md says what it is"
    ),
]

TARGETS = (P4(), P4(encoding="ternary"), P4(encoding="range", decision="leaf_rows"))


class Exported(NamedTuple):
    """An export: what it says, and the integer ensemble that it has to be."""

    program: Path
    ensemble: Ensemble
    score_bits: int


@pytest.fixture(params=range(len(TARGETS)), ids=lambda i: f"{TARGETS[i].encoding}-{TARGETS[i].decision}")
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> Exported:
    lowered = lower(paper_forest(trees=2, depth=2, seed=request.param).ensemble)
    export(lowered, TARGETS[request.param], tmp_path / "p4", "p")
    program = tmp_path / "p4" / "p_main.p4"
    return Exported(program, lowered.ensemble, int(re.findall(r"int<(\d+)> score;", program.read_text())[0]))


def p4testgen(program: Path, folder: Path, *options: str) -> list[str]:
    """Return the tests that it writes."""
    command = ["p4testgen", "--target", "bmv2", "--arch", "v1model", "--test-backend", "PROTOBUF", "--seed", "1"]
    command += ["--port-ranges", "0:0", "--out-dir", str(folder), *options, str(program)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return [file.read_text() for file in sorted(folder.glob("*.txtpb"))]


def answer(exported: Exported, packet: str) -> str | None:
    """Return what the ensemble says to a packet, both in hexadecimal; None when it is too short."""
    digits = 6 * len(exported.ensemble.features)
    if len(packet) < digits:
        return None
    row = [[int(packet[i : i + 6], 16) for i in range(0, digits, 6)]]
    score = int(exported.ensemble.score(np.array(row, np.int64))[0])
    drop = score > exported.ensemble.require_votes()[1]
    width = exported.score_bits
    return f"{packet[:digits]}{score % (1 << width):0{width // 4}X}{drop:02X}{packet[digits:]}"


def test_on_every_path_the_answer_is_the_ensembles(exported: Exported, tmp_path: Path) -> None:
    tests = p4testgen(exported.program, tmp_path / "tests", "--max-tests", "0")
    answered = 0
    for test in tests:
        packet, *expected = re.findall(r'^  packet(?:_mask)?: "(.*)"$', test.replace(r"\x", ""), re.M)
        said = answer(exported, packet)
        assert (said is None) == (not expected)
        if said is not None:
            assert len(said) == len(expected[0])
            cared = zip(said, *expected, strict=True)
            assert all(mine == theirs for mine, theirs, mask in cared if mask == "F"), packet
            answered += 1
    assert answered > len(exported.ensemble.trees)


def nested(tree: Tree, node: int, exported: Exported) -> str:
    """Return the statement that adds the vote of `tree` below `node`."""
    if tree.feature[node] < 0:
        return f"expected = expected + {exported.score_bits}s{tree.require_votes()[node]};"
    field = f"hdr.features.f_{exported.ensemble.features[tree.feature[node]].name}"
    left, right = (nested(tree, int(child[node]), exported) for child in (tree.left, tree.right))
    return f"if ({field} <= {tree.cut[node]}) {{ {left} }} else {{ {right} }}"


def with_assertion(exported: Exported, off_by: int) -> str:
    """Return the program with the ensemble as nested ifs behind its predictor, and the claim that both agree."""
    width, (_, tau) = exported.score_bits, exported.ensemble.require_votes()
    lines = [f"int<{width}> expected = {off_by};", *(nested(tree, 0, exported) for tree in exported.ensemble.trees)]
    lines.append(f"testgen_assert(score == expected && (drop == 1) == (expected > {width}s{tau}));")
    text = exported.program.read_text().replace("<v1model.p4>", "<v1model.p4>\n#include <testgen.p4>")
    before = "            hdr.answer.setValid();\n"
    assert text.count(before) == 1
    return text.replace(before, "".join(f"            {line}\n" for line in lines) + before)


@pytest.mark.parametrize("off_by", [0, 1])
def test_its_solver_finds_no_input_on_which_text_and_ensemble_differ(
    exported: Exported, off_by: int, tmp_path: Path
) -> None:
    program = exported.program.with_name("asserted.p4")
    program.write_text(with_assertion(exported, off_by))
    found = p4testgen(program, tmp_path / "tests", "--max-tests", "1", "--assertion-mode")
    assert len(found) == off_by  # and where they differ it finds one
