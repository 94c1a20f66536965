"""Folders of runs for tests of reports, and what every page has to be."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure

from foretail.core.digest import write_digest
from foretail.pipelines.promotion.model_card import CARD_FILE
from foretail.pipelines.reporting.run_record import RunRecord
from foretail.pipelines.runs.result import Table, write_result

EVIL = "<script>alert('x')</script><img src=http://evil.example/x onerror=\"alert(1)\"> & ]]> {{ 7*7 }}"
VOID = {"meta", "link", "img", "br", "hr", "input"}
LOADING = ("src", "href", "srcset", "poster", "data", "action", "background", "xlink:href")


class Page(HTMLParser):
    """Elements with their attributes and texts; raises when they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *tags: str) -> str:
        return "".join(data for tag, data in self.texts if not tags or tag in tags)


def check_page(text: str) -> Page:
    """What every page has to be: nested, closed in itself, and accessible."""
    page = Page(text)
    assert {"script", "iframe", "object", "embed", "form", "base", "svg"}.isdisjoint(tag for tag, _ in page.elements)
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in LOADING:
            if name in attributes and tag != "a":
                assert attributes[name].startswith("data:"), (tag, attributes)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"@import|url\(|expression", style)
    (policy,) = [meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ")[:3] == ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'"]
    for image in page.of("img"):
        media_type, _, content = image["src"].removeprefix("data:").partition(";base64,")
        decoded = base64.b64decode(content, validate=True)
        if media_type == "image/svg+xml":
            assert ElementTree.fromstring(decoded).tag.endswith("svg")
        else:
            assert media_type == "image/png"
            assert decoded.startswith(b"\x89PNG")
        assert image["alt"].strip()
    regions = page.of("div")
    assert len(page.of("table")) + len(page.of("img")) == len(regions)
    assert not re.search(r"(?<![\w.:/-])/(tmp|home|root|usr|work)/", re.sub(r'src="[^"]*"', "", text)), (
        "an absolute path"
    )
    assert all(abbreviation["title"].strip() for abbreviation in page.of("abbr"))
    assert all(each["role"] == "group" and each["aria-label"].strip() and each["tabindex"] == "0" for each in regions)
    assert all(header.get("scope") in ("col", "row") for header in page.of("th"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {link["href"][1:] for link in page.of("a") if link["href"].startswith("#")} <= set(ids)
    assert page.of("html") == [{"lang": "en"}]
    return page


def document(**changes: Any) -> dict[str, Any]:
    """A result as ``stage.run`` writes it."""
    return {
        "stage": "run",
        "command": "foretail run promise size=small",
        "finished": "2026-01-02T03:04:05+00:00",
        "config": {
            "size": "small",
            "study": {
                "small": {"split": {"train": [1, 2], "test": [3]}, "seed": 7},
                "full": {"split": {"train": [8], "test": [9]}, "seed": 8},
            },
            "predictor": {"trees": 4},
        },
        "versions": {"python": "3.11.7", "torch": None},
        "seconds": 12.5,
        "tables": [Table("Scores", ("candidate", "F1", "rows"), (("ours", 0.123456789012345, 1234567),), ("A note.",))],
        "candidates": {
            "ours": {
                "datasets": [{"scenario": "base", "seed": 1, "content_sha256": "a" * 64}],
                "tracked": {
                    "run_id": "f" * 32,
                    "experiment_id": "3",
                    "uri": "http://user:secret@tracking.example:5000/",
                },
            }
        },
        **changes,
    }


def run_folder(folder: Path, **changes: Any) -> Path:
    """A run with one figure, its numbers and a model card."""
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2, 3])
    folder.mkdir(parents=True)
    figure.savefig(folder / "scores_by_seed.svg")
    figure.savefig(folder / "scores_by_seed.png")
    (folder / "scores_by_seed.csv").write_text("seed,f1\n1,0.5\n")
    (folder / "champion").mkdir()
    card = "# Predictor ours\n\n| feature | bits |\n| --- | --- |\n| queue | 16 |\n"
    (folder / "champion" / CARD_FILE).write_text(card)
    files = [f"scores_by_seed.{kind}" for kind in ("csv", "png", "svg")]
    write_result(folder, document(**{"files": files, **changes}))
    return folder


def opened(folder: Path) -> RunRecord:
    write_digest(folder)  # which the stage writes last
    return RunRecord.open(folder)
