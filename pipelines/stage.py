"""Work around every command's own: checked settings in, ``result.json`` and tables out."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from foretail.configs.plugins import with_policies
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.stages import STAGES, register
from foretail.configs.schema.tracking import Tracking
from foretail.core.digest import DIGEST_FILE, write_digest
from foretail.core.errors import ForetailError
from foretail.core.files import recording
from foretail.core.plugins import FAILURES
from foretail.models.mlflow.store import sqlite_file, tracking_uri
from foretail.models.scoring.figure_style import Look, looking
from foretail.pipelines.runs.ending import StageFailed, results_complete
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.result import COLUMNS, Table, show, versions, write_result
from foretail.pipelines.settings.validation import typed

MOST_NAMED = 12
"""Files beside the result that are printed by name."""


class StageResult(Protocol):
    """Result of a stage: every figure as a document, and the tables to print and to keep."""

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like; ``files`` names what lies in the run folder, relative to it."""

    def tables(self) -> list[Table]:
        """The tables, in the order of printing, with all digits."""


@runtime_checkable
class SaysVerdict(Protocol):
    """A result that says what it comes to; the page of ``foretail report`` opens with it."""

    def verdict(self) -> list[str]:
        """Two sentences made of the figures of the document; none where there is nothing to tell."""


@runtime_checkable
class MayFail(Protocol):
    """A result that is written and printed although the answer is no."""

    def failure(self) -> ForetailError | None:
        """Why the command fails all the same; None when it does not."""


@runtime_checkable
class HasPage(Protocol):
    """A result that has a page of its own."""

    def write_page(self, run_dir: Path) -> Path:
        """Write the page of the run in a folder, whose ``result.json`` is complete; return its path."""


@dataclass(frozen=True)
class Command:
    """A command that Hydra composes settings for."""

    words: tuple[str, ...]  #: behind ``foretail``, before the settings
    config_name: str  #: in Hydra
    schema: type[Stage]
    work: Callable[[Any, Path], StageResult]


def stage_command(name: str) -> Command:
    """The command of a stage; its module is imported when it runs."""

    def work(config: Any, run_dir: Path) -> StageResult:
        module = importlib.import_module(f"foretail.pipelines.stages.{name}")
        result: StageResult = getattr(module, name)(config, run_dir)
        return result

    register(name)
    return Command((name,), name, STAGES[name], work)


def application(command: Command) -> Callable[[], None]:
    """The Hydra application of a command; it composes the settings of ``sys.argv`` and raises ``StageFailed``."""
    sys.argv[1:] = with_policies(sys.argv[1:])

    def compose_and_run(node: DictConfig) -> None:
        run(command, node)

    main: Callable[[], None] = hydra.main(
        version_base="1.3", config_path="pkg://foretail.configs", config_name=command.config_name
    )(compose_and_run)
    return main if any(map(_may_set_mode, sys.argv[1:])) else lambda: _without_asking_mode(main)


def _may_set_mode(argument: str) -> bool:
    """Tell whether an argument besides ``--multirun`` may decide between a run and a sweep: flags and Hydra's may."""
    return ("=" not in argument and argument not in ("--multirun", "-m")) or argument.lstrip("+~").startswith("hydra")


def _without_asking_mode(main: Callable[[], None]) -> None:
    """Run a Hydra application that composes its settings once: Hydra composes them before to read their mode."""
    get_mode = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign] # as if unset; hydra-core is pinned
    try:
        main()
    finally:
        Hydra.get_mode = get_mode  # type: ignore[method-assign]


def run(command: Command, node: DictConfig) -> None:
    """Check the composed settings, run the command, write ``result.json`` and a digest, print the tables.

    Raises ``StageFailed``; an empty run folder is then removed again.
    """
    job = HydraConfig.get()
    run_dir = Path(job.runtime.output_dir)
    try:
        with collecting_notes() as command_notes:
            config = typed(node, command.schema, job.overrides.task)
            tracking = getattr(config, "tracking", None)
            if isinstance(tracking, Tracking) and tracking.enabled:  # a folder in its place is refused before work
                sqlite_file(tracking_uri(tracking.uri, Path(config.store_dir).absolute().parent))
            started = time.monotonic()
            look = Look(config.figures.style, config.figures.width_mm)
            with recording() as written, looking(look):
                result = command.work(config, run_dir)
        tables = result.tables()
        verdict = result.verdict() if isinstance(result, SaysVerdict) else []
        document = {
            "stage": command.words[0],
            "command": shlex.join(["foretail", *command.words, *job.overrides.task]),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "config": OmegaConf.to_container(node, resolve=True),
            "versions": versions(),
            "seconds": time.monotonic() - started,
            "used_models": command_notes.models,
            "findings": command_notes.findings,
            **result.document(),
            "verdict": verdict,
            "tables": tables,
        }
        path = write_result(run_dir, document)
        write_digest(run_dir, _own_files(run_dir, Path(config.store_dir), {*written, path.absolute()}))
        if job.mode == RunMode.RUN:
            results_complete()
    except BaseException as error:
        _remove_empty(run_dir)
        if isinstance(error, FAILURES):
            raise StageFailed(error) from error
        raise
    files = document.get("files", ())
    more = f", and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
    beside = [f"beside it: {', '.join(files[:MOST_NAMED])}{more}"] if files else []
    lines = [line for sentence in verdict for line in textwrap.wrap(sentence, COLUMNS)]
    if isinstance(result, HasPage):
        beside = [f"page: {result.write_page(run_dir)}"]
    notes = [*lines, *command_notes.sentences, f"result: {path}", *beside]
    shown = [table for table in tables if table not in command_notes.printed] or tables[-1:]
    if shown:
        shown[-1] = dataclasses.replace(shown[-1], notes=(*shown[-1].notes, *notes))
    show(shown)
    failure = result.failure() if isinstance(result, MayFail) else None
    if failure is not None:
        raise StageFailed(failure)


def _own_files(run_dir: Path, store_dir: Path, written: Iterable[Path]) -> Iterator[Path]:
    """The files of a run folder that its run wrote: of a folder with a digest only that; none of a store inside."""
    run_dir, store_dir = run_dir.absolute(), store_dir.absolute()
    for path in written:
        if path.is_relative_to(run_dir) and not path.is_relative_to(store_dir) and path.exists():
            yield path / DIGEST_FILE if path.is_dir() else path


def setting_types(schema: type[Stage] | None = None) -> dict[str, str]:
    """Dotted names of all settings of a command, or of all stages, with their types as they are written."""
    types = {name: kind for one in (STAGES.values() if schema is None else [schema]) for name, kind in _types(one, "")}
    for file in (resources.files("foretail.configs") / "predictor").iterdir():  # its class has the settings
        values = OmegaConf.create(file.read_text(encoding="utf-8"))
        types |= {f"predictor.{name!s}": type(value).__name__ for name, value in values.items()}
    return types


def _types(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    for name, field in schema.__dataclass_fields__.items():
        yield f"{path}{name}", field.type
        part = field.default_factory
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            for kind in (part, *part.__subclasses__()):
                yield from _types(kind, f"{path}{name}.")


def _remove_empty(folder: Path) -> None:
    """Remove an empty folder, and its parents below the current folder as far as they are empty."""
    here = Path.cwd()
    with contextlib.suppress(OSError):
        folder.rmdir()
        for parent in folder.parents:
            if here not in parent.parents:
                break
            parent.rmdir()
