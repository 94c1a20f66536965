"""What stages print: the tables of `result.json`, with all digits, and the files that others read.

Stages run here as the command does, in a folder of their own, and without ns-3. Their settings are written as a user
would, so a setting with another name is changed here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.composed import foretail, result_in
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint
from tests.fingerprints.drawn import drawn_ensemble
from tests.fingerprints.place import Place
from tests.forests import PAPER_INPUTS
from tests.traces import write_bursts, write_slots


def tables(folder: Path, *command: str) -> str:
    """Return the fingerprint of what a stage printed; it runs in the folder."""
    done = foretail(folder, *command, "hydra.run.dir=run")
    assert done.returncode == 0, done.stdout + done.stderr
    return fingerprint(result_in(folder / "run")["tables"])


def slotted(place: Place) -> Iterator[Fingerprint]:
    folder = place.folder()
    random = np.random.default_rng(1)
    slots = np.repeat(np.arange(500), 8)
    ports = np.where(slots % 50 < 20, slots // 50 % 8, random.integers(0, 8, len(slots)))
    write_slots(folder / "a.csv", slots, ports)
    for settings in ("optimum=true", "predictions=flipped flip_probability=0.1"):
        found = tables(folder, "replay", "arrivals=a.csv", "ports=8", "buffer=40", *settings.split())
        yield Fingerprint("evaluate", f"arrivals=a.csv {settings}", found)


def recorded(place: Place) -> Iterator[Fingerprint]:
    folder = place.folder()
    for seed in (1, 2, 3, 4):
        write_bursts(folder / f"bursts_{seed}", seed)
    datasets = "datasets=[bursts_1,bursts_2,bursts_3,bursts_4]"
    for settings in ("features=virtual", "features=paper predictor.trees=2"):
        found = tables(folder, "train", datasets, "tracking=off", *settings.split())
        yield Fingerprint("train", f"datasets=bursts {settings}", found)
    model = drawn_ensemble(PAPER_INPUTS, seed=5, narrow=8)
    (folder / "ensemble.json").write_text(model.to_json(), encoding="ascii")
    found = tables(folder, "replay", "datasets=[bursts_3,bursts_4]", "model=ensemble.json")
    yield Fingerprint("evaluate", "datasets=bursts model=drawn", found)


def scheduled(place: Place) -> Iterator[Fingerprint]:
    folder = place.folder()
    random = np.random.default_rng(2)
    demand = random.integers(0, 16, (8, 8)) * (1 - np.eye(8, dtype=np.int64))
    (folder / "demand.csv").write_text("\n".join(",".join(map(str, row)) for row in demand.tolist()) + "\n")
    for settings in ("degree=1 k=3", "degree=2 k=4 l=2"):
        found = tables(folder, "schedule", "demand=demand.csv", "scale=true", "multi_hop=no", *settings.split())
        yield Fingerprint("schedule", settings, found)


GROUPS = (
    Group("stages", "slotted", slotted),
    Group("stages", "recorded", recorded),
    Group("stages", "scheduled", scheduled),
)
