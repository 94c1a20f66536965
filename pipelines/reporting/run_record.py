"""A finished run as its folder tells it: result, model cards and figures."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from pydantic import TypeAdapter, ValidationError

from foretail.configs.schema.stage import SIZES
from foretail.configs.schema.stages import STAGES
from foretail.core.digest import check_folder
from foretail.core.errors import ForetailError, readable, without_passwords
from foretail.core.json_text import flat, parse_json
from foretail.pipelines.promotion.model_card import CARD_FILE
from foretail.pipelines.runs.result import RESULT_FILE, Table

_PATH = re.compile(
    r"(?:(?<![\w.:/~@%#…-])|(?<=sqlite:///)|(?<=file://))~?/[^\s/\"'<>|,;:()\[\]{}]+(?:/[^\s/\"'<>|,;:()\[\]{}]+)+"
)
"""An absolute path of two names or more, alone in a text, or in the address of a file; no part of a web address."""
KEPT = 2


def shown_path(path: str, folder: Path) -> str:
    """An absolute path: from the run's folder where it lies inside, else its last names."""
    pure, inside = PurePosixPath(path), PurePosixPath(folder.resolve())
    if pure.is_relative_to(inside):
        return str(pure.relative_to(inside))
    return (
        str(PurePosixPath("…", *pure.parts[-KEPT:])) if path.startswith(("/", "~")) and len(pure.parts) > KEPT else path
    )


def without_absolute_paths(value: Any, folder: Path) -> Any:
    """A JSON-like value whose texts name no absolute path; keys stay."""
    if isinstance(value, str):
        return _PATH.sub(lambda match: shown_path(match[0], folder), value.replace(f"{folder.resolve()}/", ""))
    if isinstance(value, list):
        return [without_absolute_paths(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: without_absolute_paths(item, folder) for key, item in value.items()}
    return value


LARGEST_SVG_BYTES = 1 << 20
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SPLIT = ("train", "validation", "test")

RUN = "run"
"""The command of experiments."""


@dataclass(frozen=True)
class _Written:
    """Contents of a record by ``stage.run``; older versions had no command, time, tables and verdict.

    `finished` is ISO 8601. The verdict is empty where a stage draws no conclusion.
    """

    stage: str
    config: dict[str, Any]
    versions: dict[str, str | None]
    seconds: float
    command: str | None = None
    finished: str | None = None
    tables: tuple[Table, ...] | None = None
    files: tuple[str, ...] = ()
    captions: dict[str, str] = field(default_factory=dict)
    verdict: tuple[str, ...] | None = None


_WRITTEN = TypeAdapter(_Written)


@dataclass(frozen=True)
class RunFigure:
    """A figure of a run."""

    name: str  #: its files' name, without the suffix
    media_type: str  #: ``image/svg+xml`` or ``image/png``
    content: bytes  #: the file
    data: tuple[str, ...]  #: files of the same name that hold its numbers
    caption: str = ""  #: what is seen, in sentences; empty where the result does not say

    @property
    def words(self) -> str:
        """Its caption, or its name where it has none."""
        return self.caption or PurePosixPath(self.name).name.replace("_", " ")


@dataclass(frozen=True)
class Tracked:
    """An MLflow run: where the result names it, its server, and its page if the server has pages."""

    where: str
    run_id: str
    uri: str
    page: str | None


@dataclass(frozen=True, kw_only=True)
class RunRecord(_Written):
    """A run folder, checked; its texts name no absolute path, and passwords in addresses are left out of them."""

    folder: Path
    sha256: str  #: of ``result.json``
    figures: tuple[RunFigure, ...]  #: in the order of the captions, then of the files; SVG, or PNG for a large one
    cards: Mapping[str, str]  #: model cards in Markdown, by their path in the folder
    programs: Mapping[str, str]  #: texts in P4 among its files
    document: Mapping[str, Any]  #: all of ``result.json``

    @classmethod
    def open(cls, folder: Path) -> RunRecord:
        """Read a run folder; raises ForetailError when the result is damaged or foreign, or a file of it is missing."""
        path = folder / RESULT_FILE
        with readable(path, "give the folder of one run, not of a sweep"):
            content = _inside(folder, path).read_bytes()
        try:
            document = parse_json(without_passwords(content.decode("utf-8")))
            json.dumps(document, ensure_ascii=False).encode("utf-8")  # halves of characters, which JSON can hold
        except ValueError as error:
            raise ForetailError(f"{path} is damaged ({error}): run its stage again") from None
        stage = document.get("stage") if isinstance(document, dict) else None
        if not isinstance(stage, str) or stage not in (*STAGES, RUN):
            raise ForetailError(
                f"{path} is the result of no stage that this version of Foretail has ({', '.join((*STAGES, RUN))}): "
                "give the folder of a run, or use the version that wrote it"
            )
        try:
            written = _WRITTEN.validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ForetailError(
                f"{path} is that of another version of Foretail ({where}: {first['msg']}): run its stage again"
            ) from None
        for table in written.tables or ():
            if any(len(row) != len(table.columns) for row in table.rows):
                raise ForetailError(f"{path} is damaged (rows and columns of {table.title!r}): run its stage again")
        order = list(written.captions)
        figures = tuple(
            sorted(
                _figures(folder, written.files, written.captions),
                key=lambda figure: order.index(figure.name) if figure.name in order else len(order),
            )
        )
        document = without_absolute_paths(document, folder)
        written = _WRITTEN.validate_python(document)
        cards = {
            card.relative_to(folder).as_posix(): without_absolute_paths(
                _inside(folder, card).read_text(encoding="utf-8", errors="replace"), folder
            )
            for pattern in (CARD_FILE, f"*/{CARD_FILE}")
            for card in sorted(folder.glob(pattern))
        }
        check_folder(folder, "run its stage again")
        return cls(
            folder=folder,
            sha256=hashlib.sha256(content).hexdigest(),
            figures=figures,
            cards=cards,
            programs={
                name: (folder / name).read_text(encoding="utf-8", errors="replace")
                for name in written.files
                if name.endswith(".p4")
            },
            document=document,
            **vars(written),
        )

    @property
    def title(self) -> str:
        """The stage, or the experiment, with its size where the command names one."""
        words = (self.command or "").split()
        name = words[2] if self.stage == RUN and len(words) > 2 else self.stage
        named = [word.partition("=")[2] for word in words if word.startswith(("experiment=", "size="))]
        return " ".join([name, *named])

    def overrides(self) -> dict[str, str]:
        """Settings in its command, but for where it runs and lands; empty where there is none that a shell reads."""
        try:
            words = [word.partition("=") for word in shlex.split(self.command or "")[2:]]
        except ValueError:  # whoever wrote the file
            return {}
        return {name: value for name, sign, value in words if sign and not name.startswith(("hydra.", "tracking."))}

    def settings(self) -> dict[str, Any]:
        """Every setting by its dotted name; lists are values."""
        return dict(flat(self.config))

    def seeds(self) -> dict[str, Any]:
        """The settings that are seeds; sizes that were not chosen are left out."""
        settings: dict[str, Any] = {}
        for name, value in self.settings().items():
            *parents, last = name.split(".")
            other_size = len(parents) > 1 and parents[1] in SIZES and parents[1] != self.config.get("size")
            is_seed = re.search(r"(?:^|_)seeds?$", last) or ("split" in parents and last in _SPLIT)
            if is_seed and not other_size and value not in (None, []):
                settings[name] = value
        return settings

    def hashes(self) -> list[tuple[str, str, str]]:
        """SHA-256 of datasets, traffic and models, each once: where the result names it, of what, and the hash."""
        rows: dict[str, tuple[str, str, str]] = {}
        for where, item in _mappings(self.document, ""):
            about = [str(item[key]) for key in ("scenario", "side", "policy") if isinstance(item.get(key), str)]
            about += [f"seed {item['seed']}"] if isinstance(item.get("seed"), int) else []
            for key, value in item.items():
                if key.endswith("_sha256") and isinstance(value, str):
                    name = f"{where} ({', '.join(about)})" if about else where
                    rows.setdefault(value, (name or self.stage, key.removesuffix("_sha256"), value))
        return list(rows.values())

    def tracked(self) -> list[Tracked]:
        """Runs in MLflow that the result names, each once."""
        tracked: dict[str, Tracked] = {}
        for where, item in _mappings(self.document, ""):
            run_id, uri, experiment = item.get("run_id"), item.get("uri"), item.get("experiment_id")
            if isinstance(run_id, str) and isinstance(uri, str):
                has_page = experiment is not None and uri.startswith(("http://", "https://"))
                page = f"{uri.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}" if has_page else None
                tracked.setdefault(run_id, Tracked(where.removesuffix("tracked").rstrip("."), run_id, uri, page))
        return list(tracked.values())


def find_runs(folder: Path) -> tuple[list[Path], list[str]]:
    """The run folders that `folder` is or, as a sweep, holds; and the numbers of a sweep that left no result.

    Raises ForetailError when there are none, or one of a sweep is a link to a folder outside of it.
    """
    if (folder / RESULT_FILE).is_file():
        return [folder], []
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    runs = [_inside(folder, run) for run in inside if (run / RESULT_FILE).is_file()]
    if not runs:
        raise ForetailError(f"run={folder} contains no {RESULT_FILE}: give the folder of a finished run or sweep")
    numbers = {int(run.name) for run in runs if run.name.isdecimal()}
    started = numbers | {int(run.name) for run in inside if run.is_dir() and run.name.isdecimal()}
    missing = sorted(set(range(max(started, default=-1) + 1)) - numbers)
    runs.sort(key=lambda run: (int(run.name) if run.name.isdecimal() else -1, run.name))
    return runs, [str(number) for number in missing]


def _inside(folder: Path, path: Path) -> Path:
    """`path`; raises ForetailError when links lead it out of `folder`, to what nobody meant to show."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ForetailError(f"{path} is a link that leads out of {folder}: put what it stands for in its place")
    return path


def _figures(folder: Path, names: tuple[str, ...], captions: Mapping[str, str]) -> Iterator[RunFigure]:
    """The figures among the files of a result, each once."""
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ForetailError(f"{folder / RESULT_FILE} names a file outside of its folder ({name}): run it again")
        if not _inside(folder, folder / path).is_file():
            raise ForetailError(
                f"{folder / path}, which {RESULT_FILE} names, is missing: bring it back or run it again"
            )
    by_stem: dict[str, list[str]] = {}
    for name in names:
        by_stem.setdefault(str(PurePosixPath(name).with_suffix("")), []).append(name)
    for stem, files in by_stem.items():
        images = {PurePosixPath(file).suffix: file for file in files if file.endswith((".svg", ".png"))}
        if not images:
            continue
        data = tuple(file for file in files if file.endswith((".csv", ".parquet")))
        suffix = ".svg" if ".svg" in images else ".png"
        if ".png" in images and suffix == ".svg" and (folder / images[".svg"]).stat().st_size > LARGEST_SVG_BYTES:
            suffix = ".png"
        content = (folder / images[suffix]).read_bytes()
        if not (_is_svg(content) if suffix == ".svg" else content.startswith(PNG_SIGNATURE)):
            raise ForetailError(f"{folder / images[suffix]} is damaged: run its stage again")
        media_type = "image/svg+xml" if suffix == ".svg" else "image/png"
        yield RunFigure(stem, media_type, content, data, captions.get(stem, ""))


def _is_svg(content: bytes) -> bool:
    try:
        return ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    except ElementTree.ParseError:
        return False


def _mappings(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All mappings of a JSON-like value with their dotted paths; settings and tables are no findings."""
    if isinstance(node, Mapping):
        yield path, node
        for name, value in node.items():
            if path or name not in ("config", "tables"):
                yield from _mappings(value, f"{path}.{name}" if path else name)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _mappings(value, f"{path}.{place}")
