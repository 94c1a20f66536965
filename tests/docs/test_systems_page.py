"""The page of systems has every published figure of the experiment, with the verdict that its figures give."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiment.claims import IN_SHAPE, NOT, REPRODUCED, WEAKER, verdict_of, verdict_of_value
from foretail_studies.systems.experiment import SYSTEMS_BY_NAME
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/results/systems.md").read_text()
VERDICTS = (REPRODUCED, IN_SHAPE, WEAKER, NOT)


def rows_of(title: str) -> list[list[str]]:
    """Cells of the table under a heading."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def interval(text: str) -> PairedDifference:
    mean, low, high = (re.findall(r"[-+]?[\d.,]*\d(?:e-\d+)?", text) * 3)[:3]
    return PairedDifference(number(mean), number(low), number(high), 1)


@pytest.mark.parametrize("name", SYSTEMS_BY_NAME)
def test_the_page_has_every_published_figure_and_its_verdict(name: str) -> None:
    system = SYSTEMS_BY_NAME[name]
    rows = rows_of(system.name)
    assert [row[0] for row in rows] == [figure.quantity for figure in system.published]
    for (_, says, here, verdict, source), figure in zip(rows, system.published, strict=True):
        assert number(says) == pytest.approx(figure.value, rel=0.005, abs=0.05 if figure.change else 0)
        assert source == figure.source
        judge = verdict_of if figure.change else verdict_of_value
        assert verdict == judge(figure.value, interval(here)), figure.quantity


def test_the_page_counts_its_verdicts_and_names_a_command_for_each_system() -> None:
    total: Counter[str] = Counter()
    for name, system in SYSTEMS_BY_NAME.items():
        found = Counter(row[3] for row in rows_of(system.name))
        counts = " | ".join(str(found[verdict]) for verdict in VERDICTS)
        assert f"| {system.name} | `{name}` | {counts} |" in PAGE
        command = f"`foretail run systems size=medium 'systems=[{name}]'`"
        assert command in PAGE.split(f"\n## {system.name}\n")[1].split("\n## ")[0]
        total += found
    assert f"| all | | {' | '.join(str(total[verdict]) for verdict in VERDICTS)} |" in PAGE
