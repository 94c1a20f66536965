"""The commands of the campaign, each as small as it can be, and the folder in which they start."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretail.models.mlflow.registry import lineage, load_ensemble, move_alias
from tests.traces import write_bursts, write_slots

SEEDS = (1, 2, 3, 5, 6, 7)
GIVEN = ("datasets=[run-1,run-2,run-3]", "split.train=[1]", "split.validation=[2]", "split.test=[3]")
MODEL = "foretail-drop"


@dataclass(frozen=True)
class Command:
    """What is run and stopped.

    Attributes
    ----------
    words : what stands behind ``foretail``, without the run folder
    weight : how often it is drawn, against the others
    sweep : whether it is a sweep of Hydra, with a folder for each job
    """

    words: tuple[str, ...]
    weight: int = 10
    sweep: bool = False

    def arguments(self) -> list[str]:
        """Return the arguments of the interpreter."""
        where = "hydra.sweep.dir=outputs/run" if self.sweep else "hydra.run.dir=outputs/run"
        return ["-m", "foretail.pipelines.cli", *self.words, where]


COMMANDS = {
    "collect, slots": Command(("collect", "source=slotted", "slotted.slots=1500", "slotted.buffer_per_port=10")),
    "collect, ns-3": Command(("collect", "scenario=tiny", "seeds=[1,2]", "jobs=2")),
    "train": Command(("train", *GIVEN, "features=virtual", "predictor.trees=2", "predictor.depth=2"), weight=20),
    "replay, datasets": Command(("replay", "datasets=[run-3,run-5]", "model=outputs/weak")),
    "replay, arrivals": Command(("replay", "arrivals=arrivals.csv", "ports=8", "buffer=40", "optimum=true")),
    "evaluate, slots": Command(
        (
            *("run", "credence_fig14", "size=small", "slots=5000"),
            *("seeds=[1,2]", "flip_probabilities=[0,0.1]"),
        )
    ),
    "evaluate, ns-3": Command(("evaluate", "scenario=tiny", "policy=[lqd,dt]", "baselines=[lqd]", "seeds=[1]")),
    "export, C": Command(("export", "model=outputs/strong", "target=c", "out=outputs/c")),
    "export, P4": Command(("export", "model=outputs/strong", "target=p4", "out=outputs/p4")),
    "export, ONNX": Command(("export", "model=outputs/strong", "target=onnx", "out=outputs/onnx")),
    "promote": Command(
        (
            "promote",
            "datasets=[run-5,run-6,run-7]",
            f"model=models:/{MODEL}@candidate",
            "to=champion",
            "baseline=always_accept",
            "sent_margin_percent=1",  # traffic this short tells nothing narrower
        ),
        weight=20,
    ),
    "schedule": Command(
        ("schedule", "demand=demand.csv", "degree=1", "k=3", "scale=true", "multi_hop=no", "outputs=[json,c,p4]")
    ),
    "demand": Command(
        (
            *("demand", "demand_predictor=[seasonal,linear_entries]", "collectives=[ring]", "steps=10"),
            *("warm_up=4", "trusts=[2,3]", "nodes=4"),
        )
    ),
    "search": Command(("run", "sharing_rule", "size=small", "trials=3"), weight=5),
    "report": Command(("report", "run=outputs/strong")),
    "sweep": Command(
        ("train", "--multirun", *GIVEN, "features=paper", "predictor.trees=1", "predictor.depth=2,3"), sweep=True
    ),
    "points": Command(
        (
            *("run", "vermilion_fig9_5", "size=small", "k=4", "samples=2"),
            *("matrices=[ring]", "deviations=[0,1,2,3]"),
        )
    ),
    "demo": Command(("demo", "size=small"), weight=1),
}


def make_template(folder: Path) -> None:
    """Make the folder in which every command starts: runs, two models, and a champion in the registry."""
    shutil.rmtree(folder, ignore_errors=True)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for seed in SEEDS:
        write_bursts(partial / f"run-{seed}", seed)
    random = np.random.default_rng(1)
    slots = np.repeat(np.arange(500), 8)
    ports = np.where(slots % 50 < 20, slots // 50 % 8, random.integers(0, 8, len(slots)))
    write_slots(partial / "arrivals.csv", slots, ports)
    demand = random.integers(0, 16, (8, 8)) * (1 - np.eye(8, dtype=np.int64))
    (partial / "demand.csv").write_text("\n".join(",".join(map(str, row)) for row in demand.tolist()) + "\n")
    for name, own in {
        "weak": ("features=paper", "predictor.trees=1", "predictor.depth=1", "tracking.alias=weak"),
        "strong": ("features=virtual", "predictor.trees=2", "predictor.depth=3"),
    }.items():
        command = ["-m", "foretail.pipelines.cli", "train", *GIVEN, *own, f"hydra.run.dir=outputs/{name}"]
        done = subprocess.run([sys.executable, *command], cwd=partial, env=clean(), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the template cannot be made: {done.stderr}")
    address = f"sqlite:///{partial / 'outputs' / 'mlflow.db'}"
    weak = load_ensemble(f"models:/{MODEL}@weak", address)
    move_alias(MODEL, "champion", weak, lineage(weak.sha256, address).runs, None, {}, address)
    partial.rename(folder)
    move_paths(folder, partial)


def copy_template(template: Path, folder: Path) -> None:
    """Copy the template, and let its registry name the files of the copy."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    (folder / "tmp").mkdir()
    move_paths(folder, template)


def move_paths(folder: Path, before: Path) -> None:
    """Replace the folder that MLflow's database names by the one in which it lies now."""
    with closing(sqlite3.connect(folder / "outputs" / "mlflow.db")) as database, database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                if kind.startswith(("VARCHAR", "TEXT")):
                    database.execute(
                        f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?) WHERE instr("{column}", ?)',
                        (str(before), str(folder), str(before)),
                    )


def clean() -> dict[str, str]:
    """The environment of a user who has set nothing for MLflow."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
