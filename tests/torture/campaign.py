"""The plan of cases, which a seed draws, and the journal of what became of them, from which a campaign goes on."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from foretail.core.code import code_digest
from tests.torture.cases import Outcome, limit_case, perform, server_case, stop_case, store_case
from tests.torture.commands import COMMANDS, make_template
from tests.torture.damage import WAYS, damage_case
from tests.torture.faults import LIMITS, STOPS
from tests.torture.hostile import HOSTILE, hostile_case

ROOMS = ("configs", "core", "features", "sim_bridge", "models", "export", "pipelines", "foretail_studies")
CYCLE = (
    "stop",
    "damage",
    "hostile",
    "stop",
    "store",
    "damage",
    "stop",
    "limit",
    "hostile",
    "stop",
    "damage",
    "hostile",
)
"""Families of twelve cases in a row."""
SERVER_EVERY = 40
WORK: dict[str, Callable[[Outcome, Path, np.random.Generator], None]] = {
    "stop": stop_case,
    "store": store_case,
    "limit": limit_case,
    "damage": damage_case,
    "server": server_case,
    "hostile": hostile_case,
}
CASES_PER_PROCESS = 25
"""MLflow keeps a connection to every database that a process has looked at."""


def planned(seed: int, number: int) -> tuple[Outcome, np.random.Generator]:
    """Return a case of a campaign, and what draws the rest of it."""
    random = np.random.default_rng([seed, number])
    family = "server" if number % SERVER_EVERY == SERVER_EVERY - 1 else CYCLE[number % len(CYCLE)]
    names = list(COMMANDS)
    weights = np.array([COMMANDS[name].weight for name in names], float)
    command, fault = str(random.choice(names, p=weights / weights.sum())), ""
    if family == "stop":
        fault = str(random.choice(list(STOPS)))
    elif family == "limit":
        fault = str(random.choice(LIMITS))
    elif family == "damage":
        fault = str(random.choice(WAYS))
    elif family == "hostile":
        command, fault = "hostile", str(random.choice(HOSTILE))
    elif family == "store":
        command, fault = "first store", "SIGKILL"
    else:
        command, fault = str(random.choice(["train", "promote"])), "server killed"
    return Outcome(number, family, command, fault), random


def work_on(seed: int, number: int, place: Path) -> dict[str, Any]:
    """Do one case, in a process of the pool."""
    outcome, random = planned(seed, number)
    return perform(outcome, WORK[outcome.family], place, random) | {"seed": seed, "code_digest": code_digest(*ROOMS)}


class Campaign:
    """Cases side by side, each noted in the journal when it ends.

    Parameters
    ----------
    place : folder of the template, the references and the journal
    seed : draws the cases
    """

    def __init__(self, place: Path, seed: int) -> None:
        self._place = place.absolute()
        self._seed = seed
        self.journal = self._place / "journal.jsonl"

    def prepare(self) -> None:
        """Make the template, and anew when the code is another."""
        template, note = self._place / "template", self._place / "code_digest"
        now = code_digest(*ROOMS)
        if not (template.exists() and note.exists() and note.read_text() == now):
            for reference in (self._place / "references").glob("*.json"):
                reference.unlink()
            make_template(template)
            note.write_text(now)

    def run(self, minutes: float, cases: int, jobs: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Do cases that the journal does not have until the time or their number ends; yield the row of each."""
        done = {row["number"] for row in rows_of(self.journal) if row["seed"] == self._seed}
        waiting = (
            number for number in range(10**9) if number not in done and _wanted(planned(self._seed, number)[0], only)
        )
        until = time.monotonic() + 60 * minutes
        started = 0
        running: set[Future[dict[str, Any]]] = set()
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=CASES_PER_PROCESS) as pool:
            while True:
                while len(running) < jobs and started < cases and time.monotonic() < until:
                    running.add(pool.submit(work_on, self._seed, next(waiting), self._place))
                    started += 1
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    row = future.result()
                    with self.journal.open("a", encoding="utf-8") as journal:
                        journal.write(json.dumps(row) + "\n")
                    yield row


def _wanted(outcome: Outcome, only: Sequence[str]) -> bool:
    return not only or any(word in (outcome.family, outcome.command, outcome.fault) for word in only)


def rows_of(journal: Path) -> list[dict[str, Any]]:
    """Return the rows of a journal; a line that a kill cut short is left out."""
    rows = []
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
