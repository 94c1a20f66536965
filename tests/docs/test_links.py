"""What the pages point at exists: links, headings, and every file that is named in code."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from docutils import nodes
from docutils.utils import new_document
from hypothesis import given
from hypothesis import strategies as st

import foretail.api
import foretail.gym
import foretail.testing
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiment.sweep import IN_SHAPE, NOT, REPRODUCED, WEAKER, verdict_of, verdict_of_value
from foretail_studies.systems.causes import CAUSES, Cause, cause_of
from foretail_studies.systems.experiment import SYSTEMS_BY_NAME
from tests.docs.pages import PAGES, ROOT, inline_code, name_of, prose

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
SUFFIXES = r"(?:py|hpp|h|cc|cpp|j2|yaml|md|json|csv|toml|txt|svg|png)"
REPOSITORY_PATH = re.compile(rf"(?:[\w.-]+/)+(?:[\w.-]+\.{SUFFIXES})?")


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    return tuple(listed.stdout.decode().splitlines())


def anchors(page: Path) -> set[str]:
    """Headings as a Git host and the site name them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    missing, rooms = [], {file.split("/")[0] for file in tracked()}
    for span in inline_code(page):
        for path in REPOSITORY_PATH.findall(span) if not span.startswith("foretail ") else ():
            if "NAME" in path or not (
                path.split("/")[0] in rooms or re.fullmatch(r"[\w.-]+/[\w.-]+\.(?:hpp|h|cc)", path)
            ):
                continue
            if not any(file == path or file.startswith(path) or file.endswith(f"/{path}") for file in tracked()):
                missing.append(path)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_short(page: Path) -> None:
    long = [line for line in page.read_text(encoding="utf-8").splitlines() if len(line) > 120]
    assert [line for line in long if not line.startswith(("|", "!["))] == []


def test_api_pages_name_modules_that_exist_and_every_module_of_settings() -> None:
    named = {
        module
        for page in (ROOT / "docs" / "reference" / "api").glob("*.rst")
        for module in re.findall(r"automodule:: foretail\.([\w.]+)", page.read_text("utf-8"))
    }
    files = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in tracked()}
    assert named <= files
    assert {module for module in files if module.startswith("configs.schema")} <= named


@pytest.fixture(scope="module")
def links() -> ModuleType:
    """The extension of Sphinx, which lies beside docs/conf.py and in no package."""
    spec = importlib.util.spec_from_file_location("glossary_links", ROOT / "docs" / "glossary_links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_of(*parts: nodes.Node) -> nodes.document:
    page = new_document("page")
    page += nodes.section("", *parts)
    return page


WORDS = st.lists(
    st.sampled_from(["LQD", "oracle", "oracles", "FollowLQD", "tuned", "eta", "beta", "LQD's"]), max_size=12
)


@given(WORDS, WORDS)
def test_first_uses_are_linked_and_the_text_stays(links: ModuleType, first: list[str], second: list[str]) -> None:
    page = page_of(
        nodes.title("", "LQD and eta"),
        nodes.paragraph("", " ".join(first), nodes.literal("", "oracle = LQD")),
        nodes.paragraph("", "", nodes.Text(" ".join(second))),
    )
    before = page.astext()
    links.link_terms(page, "glossary.html")
    assert page.astext() == before
    found = [link.astext() for link in page.findall(nodes.reference)]
    expected: list[str] = []
    for word in (*first, *second):
        term = re.sub(r"'s$|s$", "", word)
        if term in ("LQD", "oracle", "FollowLQD", "eta") and not any(re.sub("s$", "", one) == term for one in expected):
            expected.append(word.removesuffix("'s"))
    assert found == expected
    assert not any(isinstance(link.parent, nodes.title | nodes.literal) for link in page.findall(nodes.reference))


def test_a_term_that_the_page_links_gets_no_second_link(links: ModuleType) -> None:
    own = nodes.reference("", "LQD", refuri="glossary.html#the-switch")
    page = page_of(nodes.paragraph("", "", nodes.Text("LQD and eta are "), own))
    links.link_terms(page, "glossary.html")
    assert [link.astext() for link in page.findall(nodes.reference)] == ["eta", "LQD"]


def test_links_lead_to_rows(links: ModuleType) -> None:
    row = nodes.row("", nodes.entry("", nodes.paragraph("", "DT, ABM, CS, CP")), nodes.entry("", nodes.paragraph()))
    glossary = page_of(nodes.table("", nodes.tgroup("", nodes.tbody("", row))))
    links.name_rows(glossary)
    page = page_of(nodes.paragraph("", "", nodes.Text("ABM beside DT")))
    links.link_terms(page, "glossary.html")
    targets = [link["refuri"].partition("#")[2] for link in page.findall(nodes.reference)]
    assert len(targets) == 2
    assert set(targets) < set(row[0]["ids"])


PAGE = (ROOT / "docs/reports/systems.md").read_text()
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
    sources = {figure.source for figure in system.published}
    section = " ".join(PAGE.split(f"\n## {system.name}\n")[1].split("\n## ")[0].split())
    for (_, says, here, cell, *source), figure in zip(rows, system.published, strict=True):
        verdict, _, kind = cell.partition(": ")
        cause = cause_of(name, figure.quantity) if verdict in (WEAKER, NOT) else None
        assert kind == (cause.kind if cause else "")
        assert number(says) == pytest.approx(figure.value, rel=0.005, abs=0.05 if figure.change else 0)
        assert source == [figure.source] or (not source and sources == {figure.source} and figure.source in section)
        judge = verdict_of if figure.change else verdict_of_value
        assert verdict == judge(figure.value, interval(here)), figure.quantity


@pytest.mark.parametrize("cause", CAUSES)
def test_the_page_says_what_every_cause_came_to(cause: Cause) -> None:
    assert " ".join(PAGE.split()).count(f"- *{cause.kind}*: {cause.words}") == 1  # and figures follow


def test_the_page_counts_its_verdicts_and_names_a_command_for_each_system() -> None:
    total: Counter[str] = Counter()
    for name, system in SYSTEMS_BY_NAME.items():
        found = Counter(row[3].partition(": ")[0] for row in rows_of(system.name))
        counts = " | ".join(str(found[verdict]) for verdict in VERDICTS)
        assert f"| {system.name} | `{name}` | {counts} |" in PAGE
        command = f"`foretail run systems size=medium 'systems=[{name}]'`"
        assert command in PAGE.split(f"\n## {system.name}\n")[1].split("\n## ")[0]
        total += found
    assert f"| all | | {' | '.join(str(total[verdict]) for verdict in VERDICTS)} |" in PAGE


ROOMS_EXAMPLES = ("core", "configs", "features", "models", "export", "sim_bridge", "pipelines", "gym", "testing")
STUDIES = ROOT / "studies" / "foretail_studies"
PROMPT = ">>> "


def modules() -> list[str]:
    """Every module with an example, by its full name."""
    folders = [*((ROOT / room, ("foretail", room)) for room in ROOMS_EXAMPLES), (STUDIES, (STUDIES.name,))]
    return sorted(
        ".".join((*package, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for folder, package in folders
        for file in folder.rglob("*.py")
        if PROMPT in file.read_text("utf-8")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", [foretail.api, foretail.gym, foretail.testing])
def test_every_public_class_has_an_example(package: ModuleType) -> None:
    classes = [one for name in package.__all__ if inspect.isclass(one := getattr(package, name))]
    without = [one.__name__ for one in classes if PROMPT not in (inspect.getdoc(one) or "")]
    assert not without
