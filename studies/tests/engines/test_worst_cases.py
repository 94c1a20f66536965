"""The worst cases that a search found, each count again by both simulators, and that the search still finds such."""

from __future__ import annotations

import json
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail_studies.engines.worst_cases import GUARDS, OBJECTIVES, WorstCase, measure, search
from tests.sim_bridge.open_loop.test_offline_optimum import slow_late_qd
from tests.sim_bridge.slow_models.lqd import Settings
from tests.sim_bridge.slow_models.slotted import parse, reduced, run_slotted

CASES = Path(__file__).with_name("worst_cases.json")
PAGE = Path(__file__).parents[3] / "docs" / "results" / "worst-cases.md"
FOUND = [WorstCase(**case) for case in json.loads(CASES.read_text("utf-8"))]
cases = pytest.mark.parametrize("case", FOUND, ids=lambda case: f"{case.objective}-{case.ports}")


def predictions(case: WorstCase) -> list[int]:
    count = len(parse(case.slots)[0])
    return [int(digit) for digit in case.predictions or "0" * count]


def slow_count(name: str, case: WorstCase) -> int:
    slot, port = parse(case.slots)
    told = predictions(case)
    if name == "opt":
        return slow_late_qd(case.ports, case.buffer, slot, port)[0]
    if name == "reduced":
        return run_slotted("followlqd", case.ports, case.buffer, *reduced(slot, port, told)).transmitted
    if name in ("tn", "fn"):
        label = run_slotted("lqd", case.ports, case.buffer, slot, port).lqd_drop
        return sum(not drop and lost == (name == "fn") for drop, lost in zip(told, label, strict=True))
    if name == "guarded_told":
        told = run_slotted("lqd", case.ports, case.buffer, slot, port).lqd_drop
        return run_slotted("guarded", case.ports, case.buffer, slot, port, told).transmitted
    if name in GUARDS:
        chosen: dict[str, Any] = {setting.removesuffix("_packets"): value for setting, value in GUARDS[name].items()}
        guarded = run_slotted("guarded", case.ports, case.buffer, slot, port, told, settings=Settings(**chosen))
        return guarded.transmitted
    return run_slotted(name, case.ports, case.buffer, slot, port, told).transmitted


@cases
def test_both_simulators_count_what_the_file_says(case: WorstCase) -> None:
    slot, port = parse(case.slots)
    assert measure(case.counts, case.ports, case.buffer, slot, port, predictions(case)) == case.counts
    assert {name: slow_count(name, case) for name in case.counts} == case.counts


@cases
def test_sequences_are_short_and_of_the_model(case: WorstCase) -> None:
    objective = OBJECTIVES[case.objective]
    slot, port = parse(case.slots)
    assert 2 <= case.ports <= 4
    assert case.ports <= case.buffer <= 8
    assert slot[0] == 0
    assert slot[-1] < 12
    assert max(port) < case.ports
    assert np.bincount(slot).max() <= (2 * case.buffer if objective.any_load else case.ports)
    assert len(case.predictions) == (len(slot) if objective.predicted else 0)
    assert case.ratio >= 1


@cases
def test_no_case_exceeds_what_is_proven(case: WorstCase) -> None:
    assert case.proven is None or case.ratio <= case.proven


def test_the_safeguard_s_bound_is_reached_at_any_load() -> None:
    of_credence = [case for case in FOUND if case.objective == "credence_any_load"]
    assert {case.ports for case in of_credence if case.ratio == case.proven} == {2, 3, 4}


@pytest.mark.parametrize(("name", "sent"), [("credence", 1000), ("guarded", 1006), ("guarded_budget", 3880)])
def test_the_page_s_sequence_on_which_guards_gain_nothing_without_a_budget(name: str, sent: int) -> None:
    slot, port = np.repeat(np.arange(1000), 4), np.tile(np.arange(4), 1000)
    assert measure(["opt", name], 4, 4, slot.tolist(), port.tolist(), [1] * 4000) == {"opt": 4000, name: sent}


def test_the_claims_that_fail() -> None:
    assert {(case.objective, case.ports) for case in FOUND if case.violates} == {
        ("harmonic", 4),
        *((name, ports) for name in ("theorem_1", "lemma_1") for ports in (2, 3, 4)),
        ("theorem_2", 2),
    }


@cases
def test_the_page_shows_the_case(case: WorstCase) -> None:
    start = f"| {OBJECTIVES[case.objective].text} | {case.ports} | {case.buffer} | `{case.slots}` |"
    (line,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(start)]
    assert f"| {float(case.ratio):.3f} |" in line
    assert ("exceeds the claim" in line) == case.violates


@pytest.mark.parametrize(
    ("objective", "ports", "buffer", "least"),
    [
        ("cs", 3, 3, "3/2"),
        ("followlqd", 3, 3, "3/2"),
        ("credence", 3, 3, "3"),
        ("lemma_1", 2, 2, "3/2"),
        ("theorem_1", 3, 3, "7/4"),
        ("credence_any_load", 2, 3, "3"),
    ],
)
def test_a_short_search_finds_a_bad_case(objective: str, ports: int, buffer: int, least: str) -> None:
    case = search(objective, ports, buffer, seed=1, restarts=2, steps=3000)
    assert case == search(objective, ports, buffer, seed=1, restarts=2, steps=3000)
    assert case.ratio >= Fraction(least)
    assert not case.slots.startswith("[]")
    assert not case.slots.endswith("[]")


@pytest.mark.parametrize(
    ("objective", "ports", "buffer", "message"),
    [("none", 2, 2, "no objective 'none'"), ("cs", 1, 2, "from 2 to 10"), ("cs", 3, 2, "at most the buffer, 2")],
)
def test_searches_that_cannot_be(objective: str, ports: int, buffer: int, message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        search(objective, ports, buffer)


def test_the_study_shows_what_its_sequences_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", "worst_cases", "size=small", "objectives=[cs,credence]", "steps=50", "hydra.run.dir=run"]
    assert cli.main(command) == 0
    rows = pd.read_parquet("run/worst_cases.parquet")
    assert set(rows["objective"]) == {"cs", "credence"}
    for row in rows.to_dict("records"):
        counts = {name: int(count) for name, count in row["counts"].items() if pd.notna(count)}
        case = WorstCase(**{field.name: row[field.name] for field in fields(WorstCase)} | {"counts": counts})
        assert {name: slow_count(name, case) for name in counts} == counts
        assert float(case.ratio) == row["ratio"]
