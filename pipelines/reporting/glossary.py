"""The glossary's words on a page: what they mean shows when one points at them, and stands at the page's end."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from markupsafe import Markup, escape

GLOSSARY_FILE = "glossary.md"
"""A link to the page of the documentation, which is the one place of these words."""
_ROW = re.compile(r"^\| (?P<terms>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)
_NO_TERMS = ("term", "---")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)|`([^`]+)`")
_SHORTEST = 2
_CIRCUITS = "\n## Circuits\n"


@cache
def glossary(circuits: bool) -> dict[str, str]:
    """The meaning of every term, without Markdown; letters like N and q, which stand for much, are left out.

    `circuits` tells whose terms: those of circuits, or those of buffers; each has a throughput, for one.
    """
    text = resources.files("foretail.pipelines.reporting").joinpath(GLOSSARY_FILE).read_text(encoding="utf-8")
    buffers, _, of_circuits = text.partition(_CIRCUITS)
    meanings = {}
    for row in _ROW.finditer(of_circuits if circuits else buffers):
        if row["terms"] in _NO_TERMS:
            continue
        meaning = _LINK.sub(lambda part: part[1] or part[2], row["meaning"]).replace(" ()", "")
        terms = [row["terms"]] if "%" in row["terms"] else row["terms"].split(", ")
        meanings.update({term: meaning for term in terms if len(term) >= _SHORTEST})
    return meanings


class Words:
    """The terms of one page, on circuits or on buffers: marks them in texts, and remembers which."""

    def __init__(self, circuits: bool) -> None:
        self.circuits = circuits
        self.used: dict[str, str] = {}

    def __call__(self, text: str) -> Markup:
        """`text` escaped, with its terms as ``abbr`` whose title is their meaning."""
        done, shown = 0, Markup()
        for match in _pattern(self.circuits).finditer(text):
            term, meaning = _by_lower(self.circuits)[match[0].lower()]
            self.used[term] = meaning
            shown += escape(text[done : match.start()])
            shown += Markup('<abbr title="{}">{}</abbr>').format(meaning, match[0])
            done = match.end()
        return shown + escape(text[done:])

    def meanings(self) -> list[tuple[str, str]]:
        """Used terms in alphabetical order, with what they mean."""
        return sorted(self.used.items(), key=lambda pair: pair[0].lower())


@cache
def _by_lower(circuits: bool) -> dict[str, tuple[str, str]]:
    return {term.lower(): (term, meaning) for term, meaning in glossary(circuits).items()}


@cache
def _pattern(circuits: bool) -> re.Pattern[str]:
    """Every term as a whole word, the longest first, whatever its capitals."""
    terms = sorted(map(re.escape, glossary(circuits)), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(terms)})(?![\w-])", re.IGNORECASE)
