"""What every stage does around its work: checked settings in, ``result.json`` and tables out."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import shlex
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema import STAGES
from foretail.pipelines.result import Table, show, write_result
from foretail.pipelines.validation import StageConfig, typed

VERSIONS_OF = (
    "foretail",
    "ns3",
    "numpy",
    "scipy",
    "pyarrow",
    "scikit-learn",
    "treelite",
    "xgboost",
    "xgboost-cpu",
    "torch",
    "onnxruntime",
    "mlflow",
    "optuna",
    "hydra-core",
)


MOST_NAMED = 12
"""Files beside the result that are printed by name."""


class StageFailed(BaseException):
    """Carries a stage's error past Hydra, which prints a line of its own about every ``Exception`` of a job."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class StageResult(Protocol):
    """What a stage returns: every figure as a document, and the tables to print and to keep."""

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like; ``files`` names what lies in the run folder, relative to it."""

    def tables(self) -> list[Table]:
        """The tables, in the order of printing, with all digits."""


Result = TypeVar("Result", bound=StageResult)


def run(node: DictConfig, schema: type[StageConfig], work: Callable[[StageConfig, Path], Result]) -> Result:
    """Validate the composed config, do the work, write ``result.json`` into the run folder and print the tables.

    Returns what `work` did. Raises ``StageFailed``; an empty run folder is then removed again.
    """
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    try:
        config = typed(node, schema)
        started = time.monotonic()
        result = work(config, run_dir)
        tables = result.tables()
        job = HydraConfig.get()
        document = {
            "stage": job.job.name,
            "command": shlex.join(["foretail", job.job.name, *job.overrides.task]),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "config": OmegaConf.to_container(node, resolve=True),
            "versions": versions(),
            "seconds": time.monotonic() - started,
            **result.document(),
            "tables": tables,
        }
        path = write_result(run_dir, document)
    except BaseException as error:
        _remove_empty(run_dir)
        if isinstance(error, Exception):
            raise StageFailed(error) from error
        raise
    beside = document.get("files", ())
    more = f", and {len(beside) - MOST_NAMED} more" if len(beside) > MOST_NAMED else ""
    notes = [f"result: {path}", *([f"beside it: {', '.join(beside[:MOST_NAMED])}{more}"] if beside else [])]
    if tables:
        tables[-1] = dataclasses.replace(tables[-1], notes=(*tables[-1].notes, *notes))
    show(tables)
    return result


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages that figures depend on; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in VERSIONS_OF:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def setting_names() -> Iterator[str]:
    """Dotted names of all settings of all stages, for suggestions."""
    for schema in STAGES.values():
        yield from _names(schema, "")


def _names(schema: Any, path: str) -> Iterator[str]:
    for name, field in schema.__dataclass_fields__.items():
        yield f"{path}{name}"
        part = field.default_factory
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            for kind in (part, *part.__subclasses__()):
                yield from _names(kind, f"{path}{name}.")


def _remove_empty(folder: Path) -> None:
    """Remove an empty folder, and its parents below the current folder as far as they are empty."""
    here = Path.cwd()
    with contextlib.suppress(OSError):
        folder.rmdir()
        for parent in folder.parents:
            if here not in parent.parents:
                break
            parent.rmdir()
