"""Stages and memory that Tofino's compiler gives our text, and the tables of five peers.

The forests are those of ``export_p4.py``. Every program is compiled by ``p4c-barefoot``, which
docs/reports/tofino.md builds, for Tofino and Tofino 2. A peer's tables are filled by its control plane, so its
program declares their sizes; ours has its rows. The planner's figures stand beside the compiler's, and for every way to
sum the trees.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.export_p4 import CELL_BYTES, DEPTH, SCENARIOS, TRAIN, TREES, Run, record
from benchmarks.p4_peers import Peer, flowrest, iisy, netbeacon, planter
from foretail.core.errors import ForetailError
from foretail.export.p4.encoding import DECISIONS
from foretail.export.p4.planning import Candidate, plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.target import P4, compile_for
from foretail.export.p4.text import render_main, render_p4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "small": {"tofino": (4,)},
    "full": {"tofino": (1, 2, 4, 8, 16), "tofino2": (1, 2, 4, 8, 16)},
}
FORESTS = {"small": 2, "full": 30}
SUMS = {"small": ((4, 4),), "full": ((1, 4), (2, 4), (4, 4), (8, 4), (16, 4), (8, 6))}
MOST_CELLS = 40_000_000
HEADINGS = ("stages", "tables", "TCAM blocks", "SRAM blocks", "PHV bits")


def main(size: str) -> None:
    """Print all comparisons; ``small`` takes a scenario of seconds and few programs."""
    console = Console(width=180)
    run = record(SCENARIOS[size], CELL_BYTES)[TRAIN]
    compare_sums(run, size, console)
    compare_peers(run, size, console)
    compare_planner(run, size, console)


def compare_sums(run: Run, size: str, console: Console) -> None:
    """Print what the planner says of each way to sum the trees that it can prove, for the forest's own tau."""
    table = Table(title=f"Planned for Tofino: sums of trees, {SCENARIOS[size]}")
    for heading in ("trees", "depth", "sum", "chosen", "rows", "TCAM bits", "SRAM bits", *HEADINGS[2:4], "stages"):
        table.add_column(heading, justify="right")
    for trees, depth in SUMS[size]:
        forest = RandomForest(trees=trees, depth=depth, seed=1).fit(run.x, run.drops).to_ensemble(run.inputs)
        lowered = lower(forest, any_tau=False, max_cells=MOST_CELLS).ensemble
        best = plan(lowered, load_profile("tofino"), max_cells=MOST_CELLS).chosen
        for decision in DECISIONS:
            try:
                plans = plan(lowered, load_profile("tofino"), "ternary", decision, MOST_CELLS).considered
            except ForetailError:
                continue
            for one in plans:
                figures = (
                    one.total(total) for total in ("rows", "tcam_bits", "sram_bits", "tcam_blocks", "sram_blocks")
                )
                chosen = "chosen" if one.decode == best.decode else "; ".join(one.faults)
                table.add_row(str(trees), str(depth), one.decode, chosen, *(f"{n:,}" for n in figures), str(one.stages))
    console.print(table)


def compare_peers(run: Run, size: str, console: Console) -> None:
    """Print what the compiler says of our text and of the peers' tables."""
    forest = RandomForest(trees=max(TREES[size]), depth=DEPTH, seed=1).fit(run.x, run.drops).to_ensemble(run.inputs)
    bits = [int(largest).bit_length() for largest in run.x.max(axis=0)]
    table = Table(title=f"Forests of depth {DEPTH}, {SCENARIOS[size]}, cells of {CELL_BYTES} bytes")
    for heading in ("chip", "trees", "encoding", *HEADINGS):
        table.add_column(heading, justify="left" if heading in ("chip", "encoding") else "right")
    jobs: list[tuple[str, int, str, Callable[[], list[str]]]] = []
    for chip, sizes in SIZES[size].items():
        for trees in sizes:
            # A forest's trees do not depend on how many follow, so the first of the largest are the smaller forests.
            ensemble = replace(forest, trees=forest.trees[:trees], threshold=Fraction(trees, 2))
            cuts = [
                sorted({int(c) for t in ensemble.trees for c in t.cut[t.feature == i]}) for i in range(len(run.inputs))
            ]
            jobs.append((chip, trees, "ours, one tau", partial(ours, ensemble, chip)))
            for encode in (netbeacon, planter, flowrest, *((iisy,) if trees == 1 else ())):
                name = encode.__name__
                jobs.append((chip, trees, name, partial(theirs, encode, ensemble, cuts, bits, chip)))
            jobs.append((chip, trees, "switchtree", partial(switchtree, ensemble, chip)))
    with ThreadPoolExecutor(2) as pool:
        for (chip, trees, name, _), figures in zip(jobs, pool.map(lambda job: job[-1](), jobs), strict=True):
            table.add_row(chip, str(trees), name, *figures, end_section=name == "switchtree")
    console.print(table)


def compare_planner(run: Run, size: str, console: Console) -> None:
    """Print the planner's figures beside the compiler's, for forests of 1 to 16 trees of depth 1 to 5."""
    random = np.random.default_rng(1)
    shapes = [(int(random.integers(1, 17)), int(random.integers(1, 6)), seed) for seed in range(FORESTS[size])]
    profile = load_profile("tofino")

    def planned(shape: tuple[int, int, int]) -> tuple[Candidate, list[str]]:
        trees, depth, seed = shape
        forest = RandomForest(trees=trees, depth=depth, seed=seed).fit(run.x, run.drops).to_ensemble(run.inputs)
        lowered = lower(forest, any_tau=False).ensemble
        chosen = plan(lowered, profile)
        if chosen.chosen.faults:
            return chosen.chosen, ["; ".join(chosen.chosen.faults)]
        return chosen.chosen, compiled(render_p4(lowered, chosen.tables, "drop_predictor"), "drop_predictor", "tofino")

    table = Table(title=f"Planner and compiler on Tofino, {SCENARIOS[size]}: planned / compiled")
    for heading in ("trees", "depth", "stages", "TCAM blocks", "SRAM blocks"):
        table.add_column(heading, justify="right")
    with ThreadPoolExecutor(2) as pool:
        for (trees, depth, _), (candidate, report) in zip(shapes, pool.map(planned, shapes), strict=True):
            mine = (candidate.stages, candidate.total("tcam_blocks"), candidate.total("sram_blocks"))
            theirs = (report[0], *report[2:4]) if len(report) > 1 else (report[0], "", "")
            table.add_row(str(trees), str(depth), *(f"{a} / {b}" for a, b in zip(mine, theirs, strict=True)))
    console.print(table)


def ours(ensemble: Ensemble, chip: str) -> list[str]:
    """Export, prove and compile."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(lower(ensemble, any_tau=False), P4(profile=chip), Path(folder) / "p4")
        except ForetailError as error:
            return [str(error)]
        texts = {path.name: path.read_text() for path in Path(folder, "p4").glob("*.p4")}
    return compiled(texts, "drop_predictor", chip)


def theirs(
    encode: Callable[..., Peer],
    ensemble: Ensemble,
    cuts: Sequence[Sequence[int]],
    bits: Sequence[int],
    chip: str,
) -> list[str]:
    """Compile a peer's tables, with containers as the compiler likes and with one of its own for each result."""
    try:
        peer = encode(ensemble, cuts, bits)
    except SystemExit as error:
        return [str(error)]
    control = peer_control(peer, [feature.name for feature in ensemble.features])
    fields = [field.name for table in peer.tables for field in table.sets if table.step == 1]
    rows = []
    for words in ((), fields):
        main = render_main(ensemble.features, "peer", "tna", 8, words=words)
        rows.append(compiled({"peer.p4": control, "peer_main.p4": main}, "peer", chip))
    return min(rows, key=lambda figures: (len(figures) == 1, int(figures[0]) if len(figures) > 1 else 0))


def switchtree(ensemble: Ensemble, chip: str) -> list[str]:
    """Compile SwitchTree's form (fcb0e07): a table per level and tree, whose action compares 16 bits of a feature."""
    main = render_main(ensemble.features, "peer", "tna", 8)
    return compiled({"peer.p4": switchtree_control(ensemble), "peer_main.p4": main}, "peer", chip)


def switchtree_control(ensemble: Ensemble) -> str:
    """Return its text: a level matches the node and the sign of what was compared; it votes hard."""
    names = [feature.name for feature in ensemble.features]
    lines = ["control DropPredictor(", *(f"    in bit<24> f_{name}," for name in names)]
    lines += ["    out int<8> score,", "    out bit<1> drop)", "{"]
    lines += [f"    bit<16> x_{name};" for name in names]  # of a container that is added to
    lines += ["    action widened() {", *(f"        x_{name} = f_{name}[15:0];" for name in names), "    }"]
    lines += [
        "    table widen {",
        "        actions = { widened; }",
        "        const default_action = widened();",
        "    }",
    ]
    applied, votes = [], []
    for number, tree in enumerate(ensemble.trees):
        node, sign = f"node_{number}", f"left_{number}"
        lines += [f"    bit<16> {node};", f"    bit<16> {sign};", f"    bit<8> vote_{number};"]
        for i, name in enumerate(names):
            body = f"{sign} = x_{name} + minus_cut; {node} = next;"
            lines.append(f"    action compare_{number}_{i}(bit<16> minus_cut, bit<16> next) {{ {body} }}")
        lines.append(f"    action leaf_{number}(bit<8> vote) {{ vote_{number} = vote; }}")
        level = [0]
        for depth in range(tree.depth + 1):
            inner = [n for n in level if tree.feature[n] >= 0]
            name = f"level_{number}_{depth}"
            key = f"{node} : exact; {sign}[15:15] : exact;" if depth else ""
            calls = "".join(f" compare_{number}_{i};" for i in range(len(names))) if inner else ""
            default = f"leaf_{number}(0)" if depth or not inner else f"compare_{number}_{int(tree.feature[0])}(1, 0)"
            lines += [
                f"    table {name} {{",
                *([f"        key = {{ {key} }}"] if key else []),
                f"        actions = {{ leaf_{number};{calls} }}",
                f"        default_action = {default};",
                *([f"        size = {max(2, len(level))};"] if key else []),
                "    }",
            ]
            applied.append(f"        {name}.apply();")
            level = [int(child) for n in inner for child in (tree.left[n], tree.right[n])]
        votes.append(f"vote_{number} : exact;")
    lines += [
        "    action decide(bit<1> value) { drop = value; }",
        "    table majority {",
        f"        key = {{ {' '.join(votes)} }}",
        "        actions = { decide; }",
        "        default_action = decide(0);",
        f"        size = {1 << len(ensemble.trees)};",
        "    }",
        "    apply {",
        "        widen.apply();",
        *(f"        vote_{number} = 0;" for number in range(len(ensemble.trees))),
        *applied,
        "        majority.apply();",
        "        score = 8s0;",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def compiled(texts: Mapping[str, str], name: str, chip: str) -> list[str]:
    """Return what the compiler says, or why it refuses."""
    try:
        placement = compile_for(chip, texts, name)
    except ForetailError as error:
        return [str(error)]
    return [
        str(n)
        for n in (placement.stages, placement.tables, placement.tcam_blocks, placement.sram_blocks, placement.phv_bits)
    ]


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
