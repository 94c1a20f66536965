"""Worth of a predictor in Tofino's ingress: ``features=tofino`` beside features of switches that know more.

Every model is trained alike on slotted incasts, by ``foretail train``; then it decides live, in slots, on seeds that
nobody has seen, so that its own drops change what it sees: inside Credence, whose thresholds Tofino does not have, and
by itself (policy ``learned``), which runs there. Intervals are over seeds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from foretail.core.errors import ForetailError
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.target import CHIPS, compile_for
from foretail.export.p4.text import render_p4
from foretail.export.passes import lower
from foretail.features.catalog import FEATURE_GROUPS, REPORTED_EVERY
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.statistics import mean_interval
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.live import run_live

PORTS, BUFFER, CELL_BYTES = 20, 1000, 1024
TRAFFIC = Incast(fan_in=5, background_load=0.6)
TRAIN, VALIDATION = (1, 2, 3), (4, 5)
RULE = SharingRule(17, 255, 136, 176)
DECISIONS = ("product", "leaf_rows")


@dataclass(frozen=True)
class Size:
    """How much traffic."""

    slots: int
    test: tuple[int, ...]


SIZES = {"small": Size(2_000, (11, 12)), "full": Size(20_000, tuple(range(11, 19)))}

CANDIDATES = {
    "switch": FEATURE_GROUPS["switch"],
    "paper": FEATURE_GROUPS["paper"],
    "tofino": FEATURE_GROUPS["tofino"],
    "queue and occupancy": ("queue", "occupancy"),
    "queue and occupancy, tracked": ("queue_tracked", "occupancy_tracked"),
}


def main(size: str) -> None:
    """Print what everybody sends in % of LQD, and what the models recover of what always accepting loses."""
    chosen = SIZES[size]
    sequences = [_arrivals(chosen.slots, seed) for seed in chosen.test]
    lqd = _sent("lqd", sequences)
    accept = _sent("credence", sequences)
    table = Table(title=f"Live in slots, {chosen.slots:,} slots, reports of every {REPORTED_EVERY}th packet")
    for heading in ("features", "F1 asked", "Credence: sent, % of LQD", "R", "learned: sent, % of LQD", "R"):
        table.add_column(heading, justify="left" if heading == "features" else "right")
    fits = _sent("cs", sequences)
    on_tofino: dict[str, Ensemble] = {}
    table.add_row("always accept", "", *_cells(accept, accept, lqd), *_cells(fits, accept, lqd))
    with tempfile.TemporaryDirectory() as folder:
        _foretail(folder, "collect", *_dataset(chosen))
        for name, features in CANDIDATES.items():
            f1, model = _trained(Path(folder), chosen, name, features)
            cells: list[str] = []
            for policy in ("credence", "learned"):
                runs = run_live(
                    sequences, PORTS, BUFFER, model.exceeds, features, policy=policy, cell_bytes=CELL_BYTES
                ).runs
                cells += _cells(np.array([run.transmitted for run in runs]), accept, lqd)
            table.add_row(name, f"{f1:.3f}", *cells)
            if set(features) <= set(FEATURE_GROUPS["tofino"]):
                on_tofino[name] = model
    console = Console(width=180)
    console.print(table)
    console.print(_compiled({"sharing rule": RULE.tracked(256), **on_tofino}, size))


def _compiled(models: Mapping[str, Ensemble], size: str) -> Table:
    """Report of the compiler on the switch around every model, trees in one table and in tables of their own."""
    table = Table(title="NAME_switch.p4 by Tofino's compiler, one tau")
    for heading in ("features", "chip", "decision", "stages", "TCAM blocks", "SRAM blocks", "PHV bits"):
        table.add_column(heading, justify="left" if heading in ("features", "chip", "decision") else "right")
    for (name, model), chip, decision in product(models.items(), CHIPS[: 1 if size == "small" else 2], DECISIONS):
        ensemble = lower(model, any_tau=False).ensemble
        texts = render_p4(ensemble, plan(ensemble, load_profile(chip), decision=decision).tables, "p")
        try:
            placement = compile_for(chip, texts, "p")
        except ForetailError as error:
            table.add_row(name, chip, decision, str(error))
            continue
        figures = (placement.stages, placement.tcam_blocks, placement.sram_blocks, placement.phv_bits)
        table.add_row(name, chip, decision, *map(str, figures))
    return table


def _dataset(size: Size) -> tuple[str, ...]:
    seeds = [*TRAIN, *VALIDATION, *size.test]
    return (
        "source=slotted",
        "slotted.workload=incast",
        "slotted.settings={fan_in: 5, background_load: 0.6}",
        f"slotted.ports={PORTS}",
        f"slotted.buffer_per_port={BUFFER // PORTS}",
        f"slotted.slots={size.slots}",
        f"slotted.features={{cell_bytes: {CELL_BYTES}, average_shift: 15}}",  # a packet, and 32 slots
        f"seeds={seeds}",
        "hydra.run.dir=runs",
    )


def _trained(folder: Path, size: Size, name: str, features: Sequence[str]) -> tuple[float, Ensemble]:
    """Train, with the threshold that recovers most on the validation runs; return F1 where Credence asks, and it."""
    out = name.replace(", ", "_").replace(" ", "_")
    _foretail(
        str(folder),
        "train",
        "datasets=[runs]",
        f"split.train={[*TRAIN]}",
        f"split.validation={[*VALIDATION]}",
        f"split.test={[*size.test]}",
        f"features.names=[{','.join(features)}]",
        "predictor=boosted_trees",
        "predictor.learning_rate=1",
        "operating_point.maximise=recovered_loss",
        "allow_constant_features=true",
        "tracking=off",
        f"hydra.run.dir={out}",
    )
    scores = json.loads((folder / out / "result.json").read_text())["scores"]
    return scores["test"]["asked"]["f1"], Ensemble.load(folder / out / "ensemble.json")


def _foretail(folder: str, *command: str) -> None:
    full = [sys.executable, "-m", "foretail.pipelines.cli", *command]
    done = subprocess.run(full, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)


def _arrivals(slots: int, seed: int) -> Slotted:
    batches = list(TRAFFIC.batches(PORTS, BUFFER, slots, seed))
    return Slotted(*(np.concatenate([getattr(batch, name) for batch in batches]) for name in ("slot", "port")))


def _sent(policy: str, sequences: Sequence[Slotted]) -> NDArray[np.int64]:
    """Packets of every sequence that are sent, predictions being to accept."""
    return np.array(
        [slotted(policy, PORTS, BUFFER, each.slot, each.port, labels=False)["transmitted"] for each in sequences]
    )


def _cells(sent: NDArray[np.int64], accept: NDArray[np.int64], lqd: NDArray[np.int64]) -> tuple[str, str]:
    return _interval(100 * sent / lqd), _interval((sent - accept) / (lqd - accept))


def _interval(values: NDArray[np.float64]) -> str:
    interval = mean_interval(list(values))
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
