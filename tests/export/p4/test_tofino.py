"""Our text and Tofino's compiler.

Where p4c-barefoot is on PATH, programs are compiled, 20 s each; elsewhere its report is made up.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.target import CHIPS, COMPILER, P4, Compiled, command, compile_for
from foretail.export.p4.text import render_p4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.features.catalog import FEATURE_GROUPS, REPORTED_EVERY, feature
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.testing import synthetic_arrivals
from tests.export.p4.p4_texts import small_ensemble
from tests.forests import paper_forest
from tests.sim_bridge.slow_models.features import pressure

needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"{COMPILER} not on PATH: docs/reports/tofino.md says how to build it"
)
REPORTS = """#!/bin/sh
if [ "$1" = --version ]; then echo "p4c-barefoot"; echo "Version 9.13.4 (SHA: 34b86e9)" >&2; exit; fi
echo "error: $SAID" >&2
mkdir -p out/pipe/logs
echo "$RESOURCES" > out/pipe/logs/resources.json
echo '{"containers": [{"bit_width": 16, "slices": [{}]}, {"bit_width": 32, "slices": [{}]}]}' > out/pipe/logs/phv.json
exit "$CODE"
"""


def stage(number: int, tables: int, tcams: int, srams: int) -> dict[str, Any]:
    """What the compiler writes of a stage, as far as it is read."""
    return {
        "stage_number": number,
        "logical_tables": {"size": 16, "ids": [{"id": i, "table_name": f"t{i}"} for i in range(tables)]},
        "tcams": {"nRows": 12, "nColumns": 2, "tcams": [{"row": i, "column": 0} for i in range(tcams)]},
        "rams": {"nRows": 8, "nColumns": 10, "srams": [{"row": i, "column": 4} for i in range(srams)]},
    }


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A compiler that reports three stages, the second of them empty."""
    (tmp_path / COMPILER).write_text(REPORTS)
    (tmp_path / COMPILER).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    stages = [stage(0, 4, 3, 2), stage(1, 0, 0, 0), stage(2, 1, 0, 1), stage(3, 0, 0, 0)]
    monkeypatch.setenv("RESOURCES", json.dumps({"resources": {"mau": {"nStages": 12, "mau_stages": stages}}}))
    monkeypatch.setenv("CODE", "0")
    return monkeypatch


def test_the_compilers_report_is_read(compiler: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for asked, folder in ((True, tmp_path / "compiled"), (False, tmp_path / "plain")):
        export(lower(small_ensemble()), P4(profile="tofino", compile=asked), folder)
    compiled, plain = (json.loads((tmp_path / f / "report.json").read_text()) for f in ("compiled", "plain"))
    assert Compiled(**compiled["compiled"]) == Compiled("p4c-barefoot 9.13.4", "drop_predictor_main.p4", 3, 5, 3, 3, 48)
    assert plain["compiled"] is None


def test_what_the_compiler_refuses_is_not_exported(compiler: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.setenv("CODE", "1")
    compiler.setenv("SAID", "PHV allocation was not successful")
    with pytest.raises(ForetailError, match=r"^p4c-barefoot refuses \w+ for tofino2 \(error: PHV .*\): export fewer"):
        export(lower(small_ensemble()), P4(profile="tofino2", compile=True), tmp_path / "out")
    compiler.setenv("CODE", "0")  # it is content with more stages than there are
    resources = {"resources": {"mau": {"mau_stages": [stage(12, 1, 0, 0)]}}}
    compiler.setenv("RESOURCES", json.dumps(resources))
    with pytest.raises(ForetailError, match=r"places the model in 13 stages, but tofino has 12: export fewer trees$"):
        export(lower(small_ensemble()), P4(profile="tofino", compile=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_compiler_and_no_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ForetailError, match=r"p4\.compile is for the P4 profiles tofino and tofino2, not for v1model"):
        export(lower(small_ensemble()), P4(profile="v1model", compile=True), tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForetailError, match=rf"^{COMPILER} is not on PATH: build it"):
        compile_for("tofino", {}, "p")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("trees", "decision"), [(4, "leaf_rows"), (10, "leaf_rows")])
def test_the_compiler_needs_the_stages_that_the_planner_says(chip: str, trees: int, decision: str) -> None:
    ensemble = lower(paper_forest(trees, 3).ensemble, any_tau=False).ensemble
    planned = plan(ensemble, load_profile(chip), decision=decision)
    found = compile_for(chip, render_p4(ensemble, planned.tables, "p"), "p")
    assert found.stages == planned.chosen.stages
    if chip == "tofino":  # the other has smaller forms of small tables
        assert found.sram_blocks == planned.chosen.total("sram_blocks")
        assert found.tcam_blocks >= planned.chosen.total("tcam_blocks")  # keys do not always meet on the crossbar


@needs_compiler
@pytest.mark.slow
def test_two_predictors_live_in_one_program(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for control, trees in (("Queries", 3), ("Elephants", 4)):
        folder = tmp_path / control
        export(lower(paper_forest(trees, 3).ensemble), P4(profile="tofino", control=control), folder, control.lower())
        texts |= {path.name: path.read_text() for path in folder.glob("*.p4")}
    main = texts["queries_main.p4"]
    second = texts["elephants_main.p4"]
    words = re.findall(r'@pa_solitary\("ingress", "predictor_(\w+)"\)\n', second)
    pragmas = "".join(f'@pa_solitary("ingress", "second_{word}")\n' for word in words)
    calls = re.search(r"        predictor\.apply\(.*?\);\n", main, re.DOTALL)
    assert calls
    again = calls[0].replace("predictor.", "second.").replace("score", "other_score").replace("drop", "other_drop")
    width = re.search(r"int<(\d+)> score", second)
    assert width
    main = main.replace('#include "queries.p4"', '#include "queries.p4"\n#include "elephants.p4"')
    main = main.replace("control Prediction(", f"{pragmas}control Prediction(")
    main = main.replace("    Queries() predictor;", "    Queries() predictor;\n    Elephants() second;")
    declared = f"        int<{width[1]}> other_score;\n        bit<1> other_drop;\n"
    main = main.replace(calls[0], f"{declared}{calls[0]}{again}")
    main = main.replace("hdr.answer.unused = 7w0;", "hdr.answer.unused = 6w0 ++ other_drop;")
    found = compile_for("tofino", {**texts, "both_main.p4": main}, "both")
    assert 0 < found.stages <= 12
    alone = compile_for("tofino", texts, "queries")
    assert found.tcam_blocks > alone.tcam_blocks


@needs_compiler
@pytest.mark.slow
def test_the_control_plane_knows_the_names_of_the_entries(tmp_path: Path) -> None:
    target = P4(profile="tofino", entries="runtime")
    export(lower(paper_forest(3, 3).ensemble), target, tmp_path / "p4", "p")
    schema = tmp_path / "bf-rt.json"
    subprocess.run(
        [*command("tofino"), "--bf-rt-schema", schema, "-o", tmp_path / "out", "p_main.p4"],
        cwd=tmp_path / "p4",
        check=True,
        capture_output=True,
    )
    tables = {table["name"].rpartition("predictor.")[2]: table for table in json.loads(schema.read_text())["tables"]}
    rows = json.loads((tmp_path / "p4" / "p.bfrt.json").read_text())
    for row in rows:
        table = tables[row["table"]]
        assert [field["name"] for field in table["key"]] == list(row["key"])
        (action,) = table["action_specs"]
        assert action["name"].rpartition("predictor.")[2] == row["action"]
        assert [field["name"] for field in action["data"]] == list(row["data"])
    assert {row["table"] for row in rows} <= set(tables)


def tracked_forest(names: tuple[str, ...] = FEATURE_GROUPS["tofino"], cell_bytes: int = 256) -> Ensemble:
    """A forest of features of a Tofino, on made-up values."""
    inputs = [FeatureInput(name, feature(name).params(cell_bytes, 15), feature(name).bits) for name in names]
    x, y = synthetic_arrivals(rows=5000, seed=1)
    columns = [np.minimum(x[:, i % x.shape[1]], (1 << each.bits) - 1) for i, each in enumerate(inputs)]
    return lower(RandomForest(trees=4, depth=3, seed=1).fit(np.stack(columns, axis=1), y).to_ensemble(inputs)).ensemble


def texts_for(ensemble: Ensemble, chip: str = "tofino") -> dict[str, str]:
    return render_p4(ensemble, plan(ensemble, load_profile(chip)).tables, "p")


@cache
def octaves(name: str) -> list[tuple[int, int, int]]:
    """Rows of a table of the program: value, mask and what it says."""
    text = texts_for(tracked_forest())["p_switch.p4"]
    rows = re.findall(rf"32w(\d+) &&& 32w(\d+) : set_{name}\((\d+)\);", text)
    return [(int(value), int(mask), int(label)) for value, mask, label in rows]


def looked_up(name: str, key: int) -> int:
    return next((label for value, mask, label in octaves(name) if key & mask == value), 0)


@given(st.integers(0, 2**31 - 1), st.integers(-(2**20), 2**31 - 1))
def test_the_octaves_of_the_program_give_the_pressure_of_the_catalog(length: int, free: int) -> None:
    """A free buffer below 0 is none."""
    difference = looked_up("above", length) - looked_up("below", free % 2**32)
    assert min(max(difference, 0), 255) == pressure(length, max(free, 0))


def test_the_program_reads_what_the_catalog_says() -> None:
    text = texts_for(tracked_forest())["p_switch.p4"]
    assert re.search(rf"if \(value == {REPORTED_EVERY - 1}\) {{\s+value = 0;\s+result = 1;", text)
    called = re.search(r"predictor\.apply\(([^;]*)\);", text)
    assert called
    assert [line.strip(" ,") for line in called[1].strip().splitlines()] == [
        "length[31:8]",
        "occupancy[31:8]",
        "gap[31:8]",
        "(bit<24>) pressure",
        "(bit<24>) hdr.tag.first_rtt",
        "(bit<24>) hdr.tag.message_left",
        "score",
        "drop",
    ]
    coarse = texts_for(tracked_forest(("gap_tracked", "message_left", "queue_tracked", "first_rtt"), 1024))
    assert "cells_of_gap = gap >> 10;" in coarse["p_switch.p4"]
    assert " cells_of_gap[23:0]," in coarse["p_switch.p4"]
    assert "octaves" not in coarse["p_switch.p4"]
    assert " length[23:0]" in texts_for(tracked_forest(cell_bytes=1))["p_switch.p4"]


def test_there_is_no_such_switch_for_what_ingress_does_not_know() -> None:
    assert "p_switch.p4" not in texts_for(lower(paper_forest(2, 3).ensemble).ensemble)
    inputs = [FeatureInput(name, "cell_bytes=256", 24) for name in FEATURE_GROUPS["tofino"][:4]]
    other = lower(paper_forest(2, 3).forest.to_ensemble(inputs)).ensemble  # reported by another rule
    assert "p_switch.p4" not in texts_for(other)
    assert "p_switch.p4" not in texts_for(tracked_forest(), "v1model")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_the_switch_compiles(chip: str) -> None:
    found = compile_for(chip, texts_for(tracked_forest(), chip), "p")
    assert found.program == "p_switch.p4"
    assert found.stages <= load_profile(chip).stages  # type: ignore[operator]
