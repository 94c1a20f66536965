"""P4 tables of forests of 1 to 16 trees on a real ns-3 trace, against the encodings of NetBeacon, Planter and Flowrest.

The peers' tables (``p4_peers.py``) are counted by the same rules as ours (``foretail.export.p4.planning``).
Flowrest's ranges are counted as they are and expanded to prefixes.

Second, the unit of the features: the same scenario recorded in cells of 1 to 4096 bytes, split by run, never by row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.p4_peers import Peer, flowrest, hard_votes, netbeacon, planter
from foretail.export.p4.planning import Candidate, TableCost, plan, table_cost
from foretail.export.p4.profile import Profile, load_profile
from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.features.catalog import PAPER_FEATURES, feature, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.metrics import scores
from foretail.models.scoring.operating_point import choose_operating_point

TREES = {"small": (1, 4), "full": (1, 2, 4, 8, 16)}
DEPTH = 4
UNITS = {"small": (256, 4096), "full": (1, 16, 64, 256, 1024, 4096)}
CELL_BYTES = 256
SCENARIOS = {"small": "tiny", "full": "leafspine_small"}
TRAIN, VALIDATION, TEST = 1, 2, 3  # seeds: whole runs
TARGETS = {"NetBeacon": 0.25, "Planter": 0.3, "Flowrest": 1.0}
NATIVE = "ranges native"
PIPELINE = str(Path(__file__).with_name("pipeline.yaml"))
"""A switch without native ranges."""
ONE_TAU = "one tau"
"""Ours for the forest's threshold alone; also where scores for any tau are too wide for the profile."""


@dataclass(frozen=True)
class Count:
    """Size of one encoding: rows of feature tables and of the others, TCAM and SRAM bits, all ranges expanded."""

    name: str
    feature_rows: int
    other_rows: int
    tcam_bits: int
    sram_bits: int
    note: str = ""

    @property
    def rows(self) -> int:
        return self.feature_rows + self.other_rows

    @classmethod
    def of(cls, name: str, features: Sequence[TableCost], others: Sequence[TableCost], note: str = "") -> Count:
        both = [*features, *others]
        return cls(
            name,
            sum(table.expanded_rows for table in features),
            sum(table.expanded_rows for table in others),
            sum(table.tcam_bits for table in both),
            sum(table.sram_bits for table in both),
            note,
        )


@dataclass(frozen=True)
class Run:
    """The rows of one recorded run: features, labels, and the arithmetic of the features."""

    x: NDArray[np.int32]
    drops: NDArray[np.bool_]
    inputs: tuple[FeatureInput, ...]


def main(size: str) -> None:
    """Print both comparisons; ``small`` takes a scenario of seconds instead of minutes."""
    console = Console(width=180)
    compare_encodings(SCENARIOS[size], TREES[size], console)
    compare_units(SCENARIOS[size], UNITS[size], console)


def compare_encodings(scenario: str, sizes: Sequence[int], console: Console) -> None:
    """Print rows and bits of every encoding for forests of so many trees, and our ratios to each peer."""
    run = record(scenario, CELL_BYTES)[TRAIN]
    forest = RandomForest(trees=max(sizes), depth=DEPTH, seed=1).fit(run.x, run.drops).to_ensemble(run.inputs)
    profile = load_profile(PIPELINE)
    table = Table(title=f"Tables of a forest of depth {DEPTH}, {scenario}, cells of {CELL_BYTES} bytes")
    for heading in ("trees", "cuts", "leaves", "encoding", "feature rows", "other rows", "rows", "ours by it"):
        table.add_column(heading, justify="left" if heading == "encoding" else "right")
    for heading in ("TCAM bits", "ours by it", "SRAM bits", "ours by it", "same decisions"):
        table.add_column(heading, justify="right")
    for trees in sizes:
        # A forest's trees do not depend on how many follow, so the first of the largest are the smaller forests.
        ensemble = replace(forest, trees=forest.trees[:trees], threshold=Fraction(trees, 2))
        cuts = [sorted({int(c) for t in ensemble.trees for c in t.cut[t.feature == i]}) for i in range(len(run.inputs))]
        leaves = sum(len(tree.leaves) for tree in ensemble.trees)
        ours, native = our_count(ensemble, PIPELINE), our_count(ensemble, "v1model")
        bits = [int(largest).bit_length() for largest in run.x.max(axis=0)]
        ranges = flowrest(ensemble, cuts, bits)
        agree = f"{np.mean(hard_votes(ensemble, run.x) == ensemble.exceeds(run.x)):.3%}"
        counts = [
            ours,
            *([] if ours.name.endswith(ONE_TAU) else [our_count(ensemble, PIPELINE, any_tau=False)]),
            replace(native, name=f"{native.name}, {NATIVE}"),
            peer_count(netbeacon(ensemble, cuts, bits), profile, "100%"),
            peer_count(planter(ensemble, cuts, bits), profile, agree),
            replace(peer_count(ranges, replace(profile, range=True), agree), name=f"{ranges.name}, {NATIVE}"),
            peer_count(ranges, profile, agree),
        ]
        for place, count in enumerate(counts):
            mine = native if NATIVE in count.name else ours
            first = (str(trees), str(sum(map(len, cuts))), str(leaves)) if place == 0 else ("", "", "")
            table.add_row(
                *first,
                count.name,
                *(f"{n:,}" for n in (count.feature_rows, count.other_rows, count.rows)),
                ratio(mine.rows, count.rows, TARGETS.get(count.name)),
                f"{count.tcam_bits:,}",
                ratio(mine.tcam_bits, count.tcam_bits),
                f"{count.sram_bits:,}",
                ratio(mine.sram_bits, count.sram_bits),
                count.note,
                end_section=place == len(counts) - 1,
            )
    console.print(table)
    targets = ", ".join(f"at most {target:g} of {name}'s" for name, target in TARGETS.items())
    console.print(f"Targets for rows, set for 4 trees: {targets}; ranges are expanded to prefixes unless native")
    console.print(f"Where ours is for {ONE_TAU} only, scores for any tau are wider than the profile's integers")


def compare_units(scenario: str, units: Sequence[int], console: Console) -> None:
    """Print rows and F1 on another run of four trees trained in each unit."""
    table = Table(
        title=f"The unit of the features: 4 trees of depth {DEPTH}, {scenario}, whole runs train, validate, test"
    )
    headings = (
        "cell bytes",
        "key bits",
        "cuts",
        "range rows",
        "ternary rows",
        "decision rows",
        "TCAM bits",
        "SRAM bits",
    )
    for heading in (*headings, "F1 test", "average precision"):
        table.add_column(heading, justify="right")
    for unit in units:
        runs = record(scenario, unit)
        trained = RandomForest(trees=4, depth=DEPTH, seed=1).fit(runs[TRAIN].x, runs[TRAIN].drops)
        ensemble = trained.to_ensemble(runs[TRAIN].inputs)
        point = choose_operating_point(ensemble, runs[VALIDATION].x, runs[VALIDATION].drops)
        ensemble = ensemble.with_threshold(point.threshold)
        test = runs[TEST]
        score = scores(test.drops, ensemble.exceeds(test.x), ports=2, score=ensemble.probability(test.x))["whole"]
        lowered = lower(ensemble).ensemble
        candidate, _, _ = exported(ensemble, PIPELINE, "ternary", "leaf_rows")
        cuts = sum(len({int(c) for t in lowered.trees for c in t.cut[t.feature == i]}) for i in range(len(test.inputs)))
        ranges = sum(len(table.code.intervals.labels) - 1 for table in candidate.features)
        ternary = sum(len(table.rows.rows) for table in candidate.features)
        f1, precision = score["f1"], score["average_precision"]
        table.add_row(
            f"{unit:,}",
            f"{sum(one.code.intervals.bits for one in candidate.features):,}",
            *(f"{n:,}" for n in (cuts, ranges, ternary, candidate.total("rows") - ternary)),
            *(f"{candidate.total(bits):,}" for bits in ("tcam_bits", "sram_bits")),
            *("none" if v is None else f"{v:.3f}" for v in (f1, precision)),
        )
    console.print(table)


def record(scenario: str, cell_bytes: int) -> dict[int, Run]:
    """Return the recorded runs by seed, simulated by ``foretail collect`` unless the store has them."""
    seeds = sorted({TRAIN, VALIDATION, TEST})
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "foretail.pipelines.cli", "collect", f"scenario={scenario}"]
        command += [f"seeds={seeds}", f"scenario.features.cell_bytes={cell_bytes}", f"hydra.run.dir={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr or done.stdout)
        result = json.loads((Path(folder) / "result.json").read_text())
    columns = training_columns(PAPER_FEATURES, own_queues=False)
    runs = {}
    for collected in result["runs"]:
        dataset = Dataset.open(Path(collected["path"]))
        frame = dataset.frame([*columns, "lqd_drop"])
        x = frame[list(columns)].to_numpy(np.int32)
        shift = dataset.manifest.average_shift
        inputs = tuple(FeatureInput(n, feature(n).params(cell_bytes, shift), 24) for n in PAPER_FEATURES)
        runs[collected["seed"]] = Run(x, frame["lqd_drop"].to_numpy(np.bool_), inputs)
    return runs


def our_count(ensemble: Ensemble, profile: str, any_tau: bool = True) -> Count:
    """Count the exported tables, and say how they were proven: an export that is not does not get here."""
    candidate, method, any_tau = exported(ensemble, profile, "auto", "auto", any_tau)
    count = len(candidate.features)
    name = f"ours, {candidate.decode}" + ("" if any_tau else f", {ONE_TAU}")
    features, others = candidate.tables[:count], candidate.tables[count:]
    rows = sum(table.rows for table in features)
    counted = Count.of(name, features, others, f"proven ({method})")
    return replace(counted, feature_rows=rows) if load_profile(profile).range else counted


def exported(
    ensemble: Ensemble, profile: str, encoding: str, decision: str, any_tau: bool = True
) -> tuple[Candidate, str, bool]:
    """Export; return what was planned, the method of the proof, and whether it holds for any tau.

    Scores for any tau may have more bits than the profile's integers. Those for the ensemble's own are narrower.
    """
    lowered, limits = lower(ensemble, any_tau), load_profile(profile)
    planned = plan(lowered.ensemble, limits, encoding, decision)
    if any_tau and planned.score_bits > limits.largest_integer_bits:
        return exported(ensemble, profile, encoding, decision, any_tau=False)
    with tempfile.TemporaryDirectory() as folder:
        certificate = export(lowered, P4(encoding, decision, profile=profile), Path(folder) / "p4").certificate
    return planned.chosen, certificate.method, any_tau


def peer_count(peer: Peer, profile: Profile, note: str) -> Count:
    """Count a peer's tables; ranges are rows where the profile matches them, else prefixes."""
    costs = [
        table_cost(
            table.name,
            table.kind,
            table.step,
            table.rows,
            sum(field.bits for field in table.key),
            sum(field.bits for field in table.sets),
            profile,
            None if profile.range else table.expanded_rows,
        )
        for table in peer.tables
    ]
    features, others = ([cost for cost in costs if (cost.step == 1) is first] for first in (True, False))
    return Count.of(peer.name, features, others, note)


def ratio(ours: int, theirs: int, target: float | None = None) -> str:
    """Show ours by theirs, marked where a target is missed."""
    if not theirs:
        return ""
    value = ours / theirs
    return f"{value:.2f}" + (" MISSED" if target is not None and value > target else "")
