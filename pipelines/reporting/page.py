"""The HTML page of runs: verdict, figures, tables, settings; no script, nothing loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from io import BytesIO
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from foretail.export.folder import environment
from foretail.models.scoring.figure_style import BLUE, GREY, panels, plain_ticks, styled
from foretail.pipelines.experiment.catalog import experiments
from foretail.pipelines.reporting.run_record import RunFigure, RunRecord, without_absolute_paths
from foretail.pipelines.runs.result import SENTENCE, Cell, Table, cell_text
from foretail.pipelines.tracking.sweep import Job, sweep_table, sweep_verdict

PACKAGE = "foretail.pipelines.reporting"
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
    text = (resources.files(PACKAGE) / GLOSSARY_FILE).read_text(encoding="utf-8")
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


PAGE_FILE = "report.html"
MOST_VARIED = 8
"""Settings that differ are columns of a sweep's tables, up to so many."""

ABOUT_CIRCUITS = ("schedule", "demand", "circuits")
"""Stages and families of experiments that speak of circuits; the others speak of buffers."""


def render_page(runs: Sequence[RunRecord], missing: Sequence[str] = ()) -> str:
    """The page.

    Parameters
    ----------
    runs : at least one; several of them are compared first
    missing : folders of a sweep without a result, which the page names
    """
    words = Words(circuits=all(_subject(run) in ABOUT_CIRCUITS for run in runs))
    templates = environment(PACKAGE, ".", autoescape=True)
    templates.filters |= {"cell": cell_text, "json": _json, "uri": _data_uri, "markdown": _markdown, "time": _time}
    templates.filters |= {"words": words, "path": _path}
    style = (resources.files(PACKAGE) / "report.css").read_text(encoding="utf-8")
    together = stacked(runs) if len(runs) > 1 else []
    sweep = sweep_of(runs) if len(runs) > 1 else None
    shared = {(table.title, table.columns[1 + len(varied(runs)) :]) for table in together}
    return templates.get_template("report.html.j2").render(
        runs=runs,
        sweep=sweep,
        missing=missing,
        together=together,
        own={
            run.folder: [table for table in run.tables or () if (table.title, table.columns) not in shared]
            for run in runs
        },
        overview=overview(runs),
        meanings=words.meanings,
        whole=SENTENCE,
        seed_table=lambda run: Table(
            "Seeds", ("setting", "seeds"), tuple((name, _json(value)) for name, value in run.seeds().items())
        ),
        hash_table=lambda run: Table(
            "SHA-256", ("where", "of", "hash"), (("result.json", "file", run.sha256), *run.hashes())
        ),
        version_table=lambda run: Table("Versions", ("package", "version"), tuple(run.versions.items())),
        style=Markup(style),
        style_sha256=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=metadata.version("foretail"),
    )


def _subject(run: RunRecord) -> str:
    """The stage of a run, or the family of its experiment."""
    experiment = experiments().get(str(run.document.get("experiment")))
    return run.stage if experiment is None else experiment.family


def varied(runs: Sequence[RunRecord]) -> list[str]:
    """Settings in which runs of one stage differ, at most ``MOST_VARIED``, as their commands set them.

    None for runs of several stages.
    """
    if len({run.stage for run in runs}) > 1:
        return []
    settings, varied = [run.settings() for run in runs], swept(runs)
    names = dict.fromkeys(name for each in settings for name in each if not name.startswith("tracking."))
    missing = object()
    differ = [name for name in names if any(each.get(name, missing) != settings[0].get(name) for each in settings)]
    return [*varied, *(name for name in differ if not f"{name}.".startswith(tuple(f"{one}." for one in varied)))][
        :MOST_VARIED
    ]


def overview(runs: Sequence[RunRecord]) -> Table:
    """One row per run: its number on the page, stage, what differs, when and how long."""
    names = varied(runs)
    return Table(
        "Runs",
        ("run", "stage", *names, "finished", "seconds"),
        tuple(
            (str(number), run.title, *_values(run, names), run.finished and _time(run.finished), run.seconds)
            for number, run in enumerate(runs, 1)
        ),
    )


def stacked(runs: Sequence[RunRecord]) -> list[Table]:
    """Tables that two runs or more have, by title and columns, with the rows of all of them and what differs."""
    names = varied(runs)
    stacks: dict[tuple[str, tuple[str, ...]], list[tuple[int, Table]]] = {}
    for number, run in enumerate(runs, 1):
        for table in run.tables or ():
            stacks.setdefault((table.title, table.columns), []).append((number, table))
    return [
        Table(
            title,
            ("run", *names, *columns),
            tuple(
                (str(number), *_values(runs[number - 1], names), *row) for number, table in tables for row in table.rows
            ),
            tuple(dict.fromkeys(note for _, table in tables for note in table.notes)),
        )
        for (title, columns), tables in stacks.items()
        if len({number for number, _ in tables}) > 1
    ]


def _values(run: RunRecord, names: Sequence[str]) -> list[Cell]:
    """Numbers stay numbers, a long list is its length, and all else is written as JSON has it."""
    values = ((run.settings() if name in run.settings() else run.overrides()).get(name) for name in names)
    return [
        value
        if type(value) in (int, float, str)
        else f"{len(value)} values"
        if isinstance(value, list) and len(_json(value)) > SENTENCE
        else _json(value)
        for value in values
    ]


def _time(iso: str) -> str:
    """A time as ``stage.run`` writes it, for readers; any other text stays as it is."""
    return iso.replace("T", " ").replace("+00:00", " UTC")


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _path(path: object) -> str:
    """A folder as it was given, without what tells of the machine."""
    return str(without_absolute_paths(str(path), Path(str(path)).parent))


def _data_uri(figure: RunFigure) -> str:
    return f"data:{figure.media_type};base64,{base64.b64encode(figure.content).decode('ascii')}"


def _markdown(text: str, below: int) -> Markup:
    """Markdown as HTML without raw HTML, links and images; its headings begin under level `below`."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.disable(["link", "image", "autolink", "reference"])
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + below)}"
        if token.type == "th_open":
            token.attrSet("scope", "col")
    html = parser.renderer.render(tokens, parser.options, {})
    wide = '<div class="wide" role="group" tabindex="0" aria-label="Table of the model card">'
    return Markup(html.replace("<table>", f"{wide}<table>").replace("</table>", "</table></div>"))


CAPTION = "Score against what a model costs a switch: a dot is a job of the sweep, the large one the best."


def swept(runs: Sequence[RunRecord]) -> list[str]:
    """The overrides in which the commands of runs differ, in their order; none where a run did not write its own."""
    every = [run.overrides() for run in runs]
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if len({each.get(name) for each in every}) > 1] if all(every) else []


def sweep_of(runs: Sequence[RunRecord]) -> tuple[Table, list[str], RunFigure | None] | None:
    """The table, the verdict and the figure of the jobs of one sweep; None for other runs."""
    scores = {str(run.settings().get("tracking.best_by") or "") for run in runs}
    jobs = [Job.of(run.folder, run.document) for run in runs if run.overrides()]
    if len({(run.stage, run.folder.parent) for run in runs}) > 1 or len(scores) > 1 or "" in scores or not jobs:
        return None
    (score,) = scores
    points = [(job.leaves, value) for job in jobs if job.leaves and (value := job.score(score)) is not None]
    figure = None
    if len(points) > 1:
        content = BytesIO()
        _draw([float(leaves) for leaves, _ in points], [value for _, value in points], score).savefig(
            content, format="svg", metadata={"Date": None}
        )
        figure = RunFigure("sweep", "image/svg+xml", content.getvalue(), (), CAPTION)
    names = swept(runs)
    table = sweep_table(jobs, names, score)
    return Table(table.title, table.columns, table.rows), sweep_verdict(jobs, names, score), figure


@styled
def _draw(leaves: Sequence[float], scores: Sequence[float], score: str) -> Figure:
    figure, (axes,) = panels(1, inches=(6.4, 3.4))
    best = max(range(len(scores)), key=lambda place: scores[place])
    axes.plot(leaves, scores, "o", color=GREY, label="a job", markersize=4)
    axes.plot([leaves[best]], [scores[best]], "o", color=BLUE, label="the best", markersize=8)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.set(xlabel="leaves of the model", ylabel=score)
    axes.legend()
    return figure
