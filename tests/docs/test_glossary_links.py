"""Links to the glossary: the first use of a term gets one, no heading and no code does."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from docutils import nodes
from docutils.utils import new_document
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import ROOT


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
