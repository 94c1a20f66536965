"""Stages and memory that Tofino's compiler gives our text, and the tables of NetBeacon, Planter and Flowrest.

The forests are those of ``export_p4.py``. Every program is compiled by ``p4c-barefoot`` (docs/p4-tofino.md says how to
build it), for Tofino and Tofino 2. A peer's tables are filled by its control plane, so its program declares their
sizes; ours has its rows. The planner's figures stand beside the compiler's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.export_p4 import CELL_BYTES, DEPTH, SCENARIOS, TRAIN, TREES, record
from benchmarks.p4_peers import Peer, flowrest, netbeacon, planter
from foretail.export.p4.planning.cost import plan
from foretail.export.p4.planning.profile import load_profile
from foretail.export.p4.target import P4
from foretail.export.p4.text.render import render_main
from foretail.export.p4.tools.tofino import CHIPS, Compiled, compile_for
from foretail.export.passes.passes import lower
from foretail.export.target import export
from foretail.features.errors import ForetailError
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble

HEADINGS = (
    "chip",
    "trees",
    "encoding",
    "stages",
    "tables",
    "TCAM blocks",
    "SRAM blocks",
    "PHV bits",
    "planned stages",
)


def main(size: str) -> None:
    """Print the comparison; ``small`` takes a scenario of seconds and two sizes of forests."""
    console = Console(width=180)
    run = record(SCENARIOS[size], CELL_BYTES)[TRAIN]
    forest = RandomForest(trees=max(TREES[size]), depth=DEPTH, seed=1).fit(run.x, run.drops).to_ensemble(run.inputs)
    bits = [int(largest).bit_length() for largest in run.x.max(axis=0)]
    table = Table(title=f"Forests of depth {DEPTH} on Tofino, {SCENARIOS[size]}, cells of {CELL_BYTES} bytes")
    for heading in (*HEADINGS, "TCAM", "SRAM"):
        table.add_column(heading, justify="left" if heading in ("chip", "encoding") else "right")
    for chip in CHIPS:
        for trees in TREES[size]:
            # A forest's trees do not depend on how many follow, so the first of the largest are the smaller forests.
            ensemble = replace(forest, trees=forest.trees[:trees], threshold=Fraction(trees, 2))
            cuts = [
                sorted({int(c) for t in ensemble.trees for c in t.cut[t.feature == i]}) for i in range(len(run.inputs))
            ]
            for any_tau in (True, False):
                name = "ours" if any_tau else "ours, one tau"
                table.add_row(chip, str(trees), name, *ours(ensemble, chip, any_tau))
            for peer in (encode(ensemble, cuts, bits) for encode in (netbeacon, planter, flowrest)):
                table.add_row(chip, str(trees), peer.name, *theirs(peer, ensemble, chip), "", "", "")
            table.add_section()
    console.print(table)


def ours(ensemble: Ensemble, chip: str, any_tau: bool) -> list[str]:
    """Compile our export; the last three are the planner's stages, TCAM and SRAM blocks."""
    lowered = lower(ensemble, any_tau)
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(lowered, P4(profile=chip), Path(folder) / "p4")
        except ForetailError as error:
            return [str(error)]
        texts = {path.name: path.read_text() for path in Path(folder, "p4").glob("*.p4")}
        found = compiled(texts, "drop_predictor", chip)
    chosen = plan(lowered.ensemble, load_profile(chip)).chosen
    return [*found, *(str(n) for n in (chosen.stages, chosen.total("tcam_blocks"), chosen.total("sram_blocks")))]


def theirs(peer: Peer, ensemble: Ensemble, chip: str) -> list[str]:
    """Compile a peer's tables."""
    control = peer_control(peer, [feature.name for feature in ensemble.features])
    main = render_main(ensemble.features, "peer", "tna", 8)
    return compiled({"peer.p4": control, "peer_main.p4": main}, "peer", chip)


def compiled(texts: Mapping[str, str], name: str, chip: str) -> list[str]:
    """Return what the compiler says, or why it refuses."""
    try:
        found: Compiled = compile_for(chip, texts, name)
    except ForetailError as error:
        return [str(error)]
    return [f"{n:,}" for n in (found.stages, found.tables, found.tcam_blocks, found.sram_blocks, found.phv_bits)]


def peer_control(peer: Peer, features: list[str]) -> str:
    """Return the text of a peer's control."""
    inputs = {f"f_{i}": f"f_{name}" for i, name in enumerate(features)}
    fields = {field.name: field for table in peer.tables for field in table.sets}
    lines = ["control DropPredictor("]
    lines += [f"    in bit<24> f_{name}," for name in features]
    lines += ["    out int<8> score,", "    out bit<1> drop)", "{"]
    lines += [f"    bit<{field.bits}> {field.name};" for field in fields.values()]
    tables = [table for table in peer.tables if table.rows and table.key]
    for table in tables:
        parameters = ", ".join(f"bit<{field.bits}> p_{field.name}" for field in table.sets)
        body = " ".join(f"{field.name} = p_{field.name};" for field in table.sets)
        key = " ".join(
            f"{inputs[field.name]}[{field.bits - 1}:0] : {table.kind};"
            if field.name in inputs
            else f"{field.name} : {table.kind};"
            for field in table.key
        )
        default = ", ".join("0" for _ in table.sets)
        lines += [
            f"    action set_{table.name}({parameters}) {{ {body} }}",
            f"    table {table.name} {{",
            f"        key = {{ {key} }}",
            f"        actions = {{ set_{table.name}; }}",
            f"        const default_action = set_{table.name}({default});",
            f"        size = {table.rows};",
            "    }",
        ]
    top = peer.result.bits - 1
    left = set(fields) - {field.name for table in tables for field in table.sets}
    lines += ["    apply {", *(f"        {name} = 0;" for name in sorted(left))]
    lines += [f"        {table.name}.apply();" for table in tables]
    lines += [f"        drop = {peer.result.name}[{top}:{top}];", "        score = 8s0;", "    }", "}"]
    return "\n".join(lines) + "\n"
