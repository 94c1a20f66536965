"""The reference pages that ``make docs`` writes from the code: commands, experiments, settings, features and policies.

An extension of Sphinx, which ``docs/conf.py`` names. Git ignores what it writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sphinx.application import Sphinx

import foretail.api
from foretail.pipelines.cli import COMMANDS
from foretail.pipelines.command.reference import SettingHelp, features_table, groups_of, settings_of
from foretail.pipelines.experiment.catalog import command_of, experiments, sizes_of
from foretail.pipelines.runs.result import cell_text
from foretail.pipelines.stage import stage_command
from foretail.pipelines.stages import STAGES
from foretail.sim_bridge.policies import POLICIES
from foretail.sim_bridge.policy_settings import heeded_settings

PAGES = "docs/reference/generated"

OF_EVERY_EXPERIMENT = (
    "experiment",
    "tracking",
    "store_dir",
    "ns3_prefix",
    "figures",
    "scenario",
)
"""Settings, and groups of them, that the page of experiments does not repeat for each."""


def write_pages(folder: Path) -> None:
    """Write all pages into a folder; a page that has not changed keeps its time, so that Sphinx does not read it."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "commands": commands_page(),
        "experiments": experiments_page(),
        "features": features_page(),
        "policies": policies_page(),
        "api": api_page(),
        **{f"command-{stage}": stage_page(stage) for stage in STAGES if stage != "run"},
    }
    for name, lines in pages.items():
        page, text = folder / f"{name}.md", "\n".join(lines) + "\n"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def commands_page() -> Iterator[str]:
    """Every command with an example, and links to the settings of those that have some."""
    yield "# Commands"
    yield "\n`foretail COMMAND --help` prints the most used settings of a command.\n"
    yield from table(
        ("command", "what it does", "example"),
        (
            (f"[{stage}](experiments.md)" if stage == "run" else f"[{stage}](command-{stage}.md)", what, code(example))
            for stage, (what, example) in STAGES.items()
        ),
    )
    yield "\nThese commands have no settings:\n"
    yield from table(
        ("command", "what it does", "arguments"),
        ((name, what, code(arguments) if arguments else "") for name, (what, arguments) in COMMANDS.items()),
    )
    links = "\n".join(f"command-{stage}" for stage in STAGES if stage != "run")
    yield f"\n```{{toctree}}\n:hidden:\n\n{links}\n```"


def api_page() -> Iterator[str]:
    """Every name of ``foretail.api`` with what it is, and a link to its page."""
    yield "# foretail.api"
    yield (
        "\nPrograms import these names, as in `from foretail.api import judge`; the tutorial and the gallery import "
        "nothing else but `foretail.gym` and `foretail.testing`. Other modules are internal, and their names move; the "
        "manual says which of them its other programs import.\n"
    )
    rows = []
    for name in sorted(foretail.api.__all__, key=str.lower):
        thing = getattr(foretail.api, name)
        first = (inspect.getdoc(thing) or "").partition("\n")[0] if callable(thing) or inspect.ismodule(thing) else ""
        where = getattr(thing, "__module__", None)
        link = f"{{py:obj}}`~{where}.{name}`" if where and callable(thing) else code(name)
        rows.append((link, re.sub(r":\w+:`~?([^`]*)`|``([^`]*)``", lambda m: code(m[1] or m[2]), first)))
    yield from table(("name", "what it is"), rows)


def stage_page(stage: str) -> Iterator[str]:
    """All settings of a stage."""
    what, example = STAGES[stage]
    command = stage_command(stage)
    settings = list(settings_of(command))  # composing registers the options of the groups
    yield f"# foretail {stage}"
    yield f"\n{what[0].upper()}{what[1:]}.\n\n```\n{example}\n```\n\n## Groups\n"
    yield "An option of a group sets several settings at once, as in `group=option`.\n"
    yield from table(
        ("group", "options"), ((code(group), ", ".join(map(code, options))) for group, options in groups_of(command))
    )
    yield "\n## Settings\n\nA setting with the default `???` has to be given.\n"
    yield from settings_table(settings)


def experiments_page() -> Iterator[str]:
    """Every experiment, with the settings of its own."""
    yield "# Experiments\n\n`foretail run NAME size=small` runs an experiment at a small size. Where experiments use"
    yield f"them, they also have the settings {', '.join(map(code, OF_EVERY_EXPERIMENT))}.\n"
    yield from table(
        ("experiment", "about", "what it does"),
        ((f"[{name}](#{name.replace('_', '-')})", one.family, one.sentence) for name, one in experiments().items()),
    )
    for name, one in experiments().items():
        yield f"\n({name.replace('_', '-')})=\n## {name}\n\n{one.description}\n\n```\n{one.example}\n```\n"
        yield f"Sizes: {', '.join(map(code, sizes_of(name)))}.\n"
        own = [
            setting
            for setting in settings_of(command_of(name))
            if setting.name.partition(".")[0] not in OF_EVERY_EXPERIMENT
        ]
        yield from settings_table(own)


def features_page() -> Iterator[str]:
    """Every feature with its meaning and what it costs a switch."""
    yield "# Features\n\nA feature is an integer that a switch can compute when a packet arrives. Costs are those of a"
    yield "switch that runs Credence already: bits of registers, and operations per packet. `foretail features` prints"
    yield "the same.\n"
    listed = features_table()
    rows = ([code(str(name)), *map(cell_text, others)] for name, *others in listed.rows)
    yield from table(listed.columns, rows)


def policies_page() -> Iterator[str]:
    """Every policy with the parameters that it reads."""
    yield "# Policies\n\n`policy=NAME` chooses a policy, `policy.NAME.PARAMETER=VALUE` sets a parameter of it.\n"
    yield from table(
        ("name", "title", "meaning", "asks a predictor", "pushes out", "parameters"),
        (
            (
                code(name),
                one.title,
                one.meaning,
                "yes" if one.asks else "no",
                "yes" if one.pushes_out else "no",
                ", ".join(map(code, heeded_settings(name))),
            )
            for name, one in POLICIES.items()
        ),
    )
    yield "\nThe parameters with their ranges are among the settings of [evaluate](command-evaluate.md)."


def settings_table(settings: Iterable[SettingHelp]) -> Iterator[str]:
    """Settings with their defaults; a heading has no default."""
    yield from table(
        ("setting", "default", "meaning"),
        ((code(one.name), "" if one.default is None else code(one.default), one.meaning) for one in settings),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def code(text: str) -> str:
    """A span of code; an empty one would open a block."""
    return f"`{text}`" if text else "(empty)"


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for sources."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / PAGES))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
