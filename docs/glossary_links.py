"""Links from the pages of the site to the glossary: the first use of each term on a page leads to its row.

A small extension of Sphinx, which ``docs/conf.py`` names. The Markdown files stay as they are on a Git host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from docutils import nodes
from sphinx.application import Sphinx

from foretail.pipelines.reporting.page import glossary

GLOSSARY = "docs/reference/glossary"
LINKED = ("README", "docs/guide/", "docs/reports/", "docs/tutorial/", "docs/gallery/")
"""Pages that get links, by the beginnings of their names."""

ORDINARY = re.compile("asked|exposed|served|throughput|valid")
"""Short forms that tables print, and that pages also use in another sense: they get no link."""


def anchor(term: str) -> str:
    """The place of a term on the glossary's page."""
    return "term-" + re.sub(r"\W+", "-", term)


@cache
def meanings() -> dict[str, str]:
    """All terms with their meanings."""
    return {**glossary(circuits=False), **glossary(circuits=True)}


@cache
def pattern() -> re.Pattern[str]:
    """Each term that gets links, or its plural, as a whole word, the longest first."""
    terms = sorted((term for term in meanings() if not ORDINARY.fullmatch(term)), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, terms))})s?(?![\w-])")


def name_rows(page: nodes.document) -> None:
    """Give each row of the glossary the places of its terms."""
    for row in page.findall(nodes.row):
        words = row[0].astext()
        terms = dict.fromkeys((words, *words.split(", ")))
        row[0]["ids"] += [anchor(term) for term in terms if term in meanings()]


def link_terms(page: nodes.document, glossary_page: str) -> None:
    """Turn the first use of each term in the paragraphs of a page into a link, whose title is what the term means."""
    linked = {link.astext() for link in page.findall(nodes.reference)}  # a page may link a term itself
    for text in [text for paragraph in page.findall(nodes.paragraph) for text in paragraph.findall(nodes.Text)]:
        if any(isinstance(parent, nodes.literal | nodes.reference) for parent in parents(text)):
            continue
        parts: list[nodes.Node] = []
        done = 0
        for found in pattern().finditer(text):
            term = found[1]
            if term in linked:
                continue
            linked.add(term)
            parts.append(nodes.Text(text[done : found.start()]))
            place = f"{glossary_page}#{anchor(term)}"
            link = nodes.reference("", found[0], refuri=place, reftitle=meanings()[term], internal=True)
            link["classes"].append("term")
            parts.append(link)
            done = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[done:])])


def parents(node: nodes.Node) -> Iterator[nodes.Node]:
    """What a node lies in, the closest first."""
    while (node := node.parent) is not None:
        yield node


def connect_terms(app: Sphinx, page: nodes.document, name: str) -> None:
    """Make the links of one page."""
    if name == GLOSSARY:
        name_rows(page)
    elif name.startswith(LINKED):
        link_terms(page, app.builder.get_relative_uri(name, GLOSSARY))


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the links when a page has been read and its own links are known."""
    app.connect("doctree-resolved", connect_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
