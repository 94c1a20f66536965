"""Hostile surroundings: settings, guests, pipes, switches that never answer, and signals while modules are imported.

Each case has to end within a minute, without a traceback, in one sentence of Foretail's or in the usual result.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.torture import faults
from tests.torture.cases import Outcome, case_folder, end_orphans
from tests.torture.commands import COMMANDS, GIVEN

MOST_SECONDS = 60
START_SECONDS = 0.15
"""Until then Python itself starts, and a signal ends it in its own way."""

TRAIN = ("-m", "foretail.pipelines.cli", "train", *GIVEN, "hydra.run.dir=outputs/run")
SETTINGS = b"_target_: foretail.models.drop.forest.RandomForest\nname: random_forest\ntrees: 2\ndepth: 2\nseed: 1\n"
BROKEN = (
    b"\ttrees: 2\n",
    b"trees: [1, 2\n",
    b"trees: 2\ntrees: 3\n",
    "name: Z\u00fcrich\n".encode("latin-1"),
    b"\x00\xff\xfe\n",
    b"trees: !!python/object/apply:os.system ['true']\n",
    b"defaults: 3\n",
    b"defaults: [mine]\n",
    b"defaults: [/predictor/mine]\n",
    b"a: &a [*a]\n",
    b"\n".join(b"a%d: &a%d [%s]" % (i, i, b",".join([b"*a%d" % (i - 1) if i else b"1"] * 9)) for i in range(9)) + b"\n",
    b"trees: ${trees}\n",
    b"trees: ${oc.env:NOT_THERE}\n",
    b"trees: .nan\n",
    b"? [a, b]\n: c\n",
    b"- a\n- b\n",
    b"--- \n...\n---\ntrees: 1\n",
)
GUESTS = {
    "exits at import": "import sys\nsys.exit(0)\n",
    "exits at once": "import os\nos.kill(os.getpid(), 0)\nraise SystemExit\n",
    "is no Python": "def (\n",
    "raises at import": "raise RuntimeError('a\\nb')\n",
    "recurses": "def f(): f()\nf()\n",
    "raises in fit": "    def _fit(self, x, y, weight): raise RuntimeError('no licence')\n",
    "exits in fit": "    def _fit(self, x, y, weight): raise SystemExit(0)\n",
    "has no memory": "    def _fit(self, x, y, weight): raise MemoryError\n",
    "answers NaN": "    def _probability(self, x): return np.full(len(x), np.nan)\n",
    "answers too few": "    def _probability(self, x): return np.zeros(1)\n",
    "answers text": "    def _probability(self, x): return 'yes'\n",
    "answers nothing": "    def _probability(self, x): return None\n",
}
"""What a module of a guest does: all of it, or methods of a forest that is right otherwise."""
FOREST = """\
from dataclasses import dataclass
import numpy as np
from foretail.models.drop.forest import RandomForest
@dataclass(eq=False)
class Guest(RandomForest):
"""


@dataclass
class Case:
    """A command in hostile surroundings."""

    what: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    may_work: bool = False  #: whether the usual result is right as well
    signal: tuple[str, float] | None = None  #: and after how many seconds it comes


def settings(folder: Path, random: np.random.Generator) -> Case:
    """A file of settings that is broken, or has a few other bytes."""
    text, what = SETTINGS, "bytes"
    if random.random() < 0.6:
        broken = BROKEN[int(random.integers(len(BROKEN)))]
        text, what = (text + broken if random.random() < 0.5 else broken), repr(broken[:30])
    else:
        changed = bytearray(text)
        for at in random.integers(len(changed), size=3):
            changed[at] = random.integers(256)
        text = bytes(changed)
    (folder / "conf" / "predictor").mkdir(parents=True)
    (folder / "conf" / "predictor" / "mine.yaml").write_bytes(text)
    return Case(what, (*TRAIN, "--config-dir=conf", "predictor=mine"), may_work=True)


def guest(folder: Path, random: np.random.Generator) -> Case:
    """A predictor of another package that does what it should not."""
    what = list(GUESTS)[int(random.integers(len(GUESTS)))]
    own = GUESTS[what]
    (folder / "guest.py").write_text(FOREST + own if own.startswith(" ") else own)
    own_settings = ("predictor._target_=guest.Guest", "predictor.name=guest", "features=paper")
    return Case(what, (*TRAIN, *own_settings), {"PYTHONPATH": str(folder)})


def signal_in_imports(folder: Path, random: np.random.Generator) -> Case:
    """A signal in the first second of a command, in which it imports what it needs."""
    name = list(COMMANDS)[int(random.integers(7))]
    after = float(random.uniform(START_SECONDS, 1.2))
    stop = ("SIGTERM", "SIGINT")[int(random.integers(2))]
    return Case(f"{name}: {stop} after {after:.2f} s", tuple(COMMANDS[name].arguments()), {}, True, (stop, after))


@contextlib.contextmanager
def deaf_switch() -> Iterator[int]:
    """Yield the port of something that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


KINDS: dict[str, Callable[[Path, np.random.Generator], Case]] = {
    "settings": settings,
    "guest": guest,
    "signal while importing": signal_in_imports,
}
DEAF = "deaf switch"
HOSTILE = (*KINDS, DEAF)


def hostile_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """One command in hostile surroundings."""
    folder = case_folder(outcome, place)
    with deaf_switch() as port:
        if outcome.fault == DEAF:
            deploy = ("deploy", "model=outputs/strong", f"switch=127.0.0.1:{port}", "hydra.run.dir=outputs/run")
            case = Case("it never answers", ("-m", "foretail.pipelines.cli", *deploy))
        else:
            case = KINDS[outcome.fault](folder, random)
        strike = None if case.signal is None else faults.at_second(*case.signal)
        ended = faults.run(
            case.arguments,
            folder,
            most_seconds=MOST_SECONDS,
            environment=case.environment,
            strike=strike,
        )
    outcome.moment, outcome.code, outcome.said, outcome.struck = case.what, ended.code, ended.said, ended.struck
    codes = {2} | ({0} if case.may_work else set())
    if case.signal is not None:
        codes = {0} | ({143, 130} if ended.struck else set())
    if ended.code is None:
        outcome.unclean.append(f"hung for {ended.seconds:.0f} s")
    elif ended.code not in codes:
        outcome.lost.append(f"exit code {ended.code}: {ended.said}")
    elif ended.traceback or (ended.code != 0 and not ended.said.startswith("foretail: ")):
        outcome.lost.append(f"no sentence: {ended.said}")
    end_orphans(outcome, folder)
