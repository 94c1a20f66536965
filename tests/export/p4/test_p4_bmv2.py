"""The P4 target in BMv2: packets are answered as the model does, for any tau."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.p4.bmv2 import SimpleSwitch, compile_p4, run_on_bmv2, tool_versions
from foretail.export.p4.target import P4, PACKETS
from foretail.export.passes import lower
from foretail.export.proof import ProofError
from foretail.export.target import export
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.tree import Tree
from tests.export.p4.bmv2 import needs_p4_tools
from tests.export.p4.p4_texts import everything, small_ensemble
from tests.forests import PAPER_INPUTS, paper_forest


@needs_p4_tools
@pytest.mark.parametrize(
    ("encoding", "decision", "entries"),
    [
        ("auto", "auto", "const"),
        ("range", "leaf_rows", "runtime"),
        ("ternary", "leaf_rows", "const"),
        ("ternary", "product", "runtime"),
    ],
)
def test_bmv2_answers_packets_as_the_model(encoding: str, decision: str, entries: str, tmp_path: Path) -> None:
    trained = paper_forest()
    lowered = lower(trained.ensemble).ensemble
    found = export(trained.ensemble, P4(encoding=encoding, decision=decision, entries=entries), tmp_path / "out")  # type: ignore[arg-type]
    cells = Cells.of(lowered)
    rows = cells.points(np.random.default_rng(1).integers(0, cells.count, 2000))
    rows = np.concatenate([rows, trained.rows[-1000:]])
    packets = [b"".join(int(v).to_bytes(3, "big") for v in row) for row in rows]
    expected = lowered.score(rows)
    compiled = compile_p4(found.file("_main.p4"))
    with SimpleSwitch(compiled, tmp_path) as switch:
        if entries == "runtime":
            switch.command(*found.file(".commands.txt").read_text().splitlines())
        for tau in (lowered.default_tau or 0, int(np.median(expected))):
            switch.command(f"table_set_default decide set_tau {tau:#x}")
            replies = switch.exchange(packets)
            assert [reply[:12] for reply in replies] == packets
            scores = [int.from_bytes(reply[12:-1], "big", signed=True) for reply in replies]
            assert scores == expected.tolist()
            assert [reply[-1] for reply in replies] == (expected > tau).astype(int).tolist()


@needs_p4_tools
def test_an_export_runs_on_bmv2_when_told(tmp_path: Path) -> None:
    found = export(small_ensemble(), P4(entries="runtime", bmv2=True), tmp_path / "out")
    assert found.certificate.tool.endswith(f"{tool_versions()}, {PACKETS} packets")


@needs_p4_tools
def test_a_switch_that_answers_otherwise_is_caught(tmp_path: Path) -> None:
    ensemble = small_ensemble()
    found = export(ensemble, P4(), tmp_path / "out")
    texts = {path.name: path.read_text() for path in (found.file(".p4"), found.file("_main.p4"))}
    changed = texts["drop_predictor_main.p4"].replace("hdr.answer.score = ", "hdr.answer.score = 1 + ")
    with pytest.raises(ProofError, match="BMv2 answers"):
        run_on_bmv2(ensemble, {**texts, "drop_predictor_main.p4": changed}, "drop_predictor", everything(ensemble))


def test_without_the_tools_bmv2_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForetailError, match="p4c-bm2-ss is not on PATH: build it"):
        export(small_ensemble(), P4(bmv2=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_p4_tools
def test_bmv2_adds_negative_votes(tmp_path: Path) -> None:
    ensemble = small_ensemble()
    found = export(ensemble, P4(), tmp_path / "out")
    rows = everything(ensemble)
    with SimpleSwitch(compile_p4(found.file("_main.p4")), tmp_path) as switch:
        replies = switch.exchange([b"".join(int(v).to_bytes(3, "big") for v in row) for row in rows])
    scores = [int.from_bytes(reply[6:-1], "big", signed=True) for reply in replies]
    assert min(scores) < 0
    assert scores == ensemble.score(rows).tolist()
    assert [reply[-1] for reply in replies] == (ensemble.score(rows) > (ensemble.default_tau or 0)).astype(int).tolist()


@needs_p4_tools
def test_p4runtime_entries_use_the_ids_of_the_compiler(tmp_path: Path) -> None:
    found = export(small_ensemble(), P4(entries="runtime"), tmp_path / "out")
    info = tmp_path / "p4info.txt"
    command = ["p4c-bm2-ss", "--std", "p4-16", "--p4runtime-files", str(info), "-o", str(tmp_path / "program.json")]
    subprocess.run([*command, str(found.file("_main.p4"))], check=True, capture_output=True, timeout=120)
    ids = dict(re.findall(r'preamble \{\s*id: (\d+)\s*name: "Prediction\.predictor\.(\w+)"', info.read_text()))
    commands = [line.split()[1:3] for line in found.file(".commands.txt").read_text().splitlines()]
    updates = re.findall(r"table_id: (\d+) .* action_id: (\d+) ", found.file(".entries.txtpb").read_text())
    assert [[ids[table], ids[action]] for table, action in updates] == commands


@needs_p4_tools
def test_bmv2_matches_keys_of_several_words(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = random.integers(0, 1 << 16, (8000, 4))
    noise = RandomForest(trees=1, depth=9, min_leaf_rows=8, seed=1).fit(
        rows, random.random(8000) < 0.3
    )  # many leaves, all different
    lowered = lower(noise.to_ensemble(PAPER_INPUTS))
    found = export(lowered, P4(decision="leaf_rows"), tmp_path / "out")
    assert max(table["key_bits"] for table in found.report["tables"]) > 64
    rows = rows[:500]
    with SimpleSwitch(compile_p4(found.file("_main.p4")), tmp_path) as switch:
        replies = switch.exchange([b"".join(int(v).to_bytes(3, "big") for v in row) for row in rows])
    scores = [int.from_bytes(reply[12:-1], "big", signed=True) for reply in replies]
    assert scores == lowered.ensemble.score(rows).tolist()


@needs_p4_tools
def test_features_without_a_say_compile_without_a_warning(tmp_path: Path) -> None:
    base = small_ensemble()
    compile_p4(export(replace(base, trees=base.trees[1:]), P4(), tmp_path / "one").file("_main.p4"))
    leaf = Tree(np.array([-1]), np.array([0]), np.array([-1]), np.array([-1]), np.array([0.5]), np.array([1]))
    constant = replace(base, trees=(leaf, leaf))
    compile_p4(export(constant, P4(), tmp_path / "none").file("_main.p4"))
