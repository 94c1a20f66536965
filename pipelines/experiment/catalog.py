"""The experiments by name: each is a YAML document of a package of studies, with what it is and with which settings.

An installed package offers studies by an entry point of the group ``foretail.studies``; Foretail's own are the
distribution ``foretail-studies``. Its files lie in its folders, one for each family, with a line ``---`` between two
documents. A document begins with a command, which names the experiment, and a few sentences as a comment.
``declaration`` names the module and object of the package that declare it; ``sizes`` has
settings by size, all others are those of every size; ``like`` takes over the settings of another experiment;
``defaults``, also of one size, chooses options of Hydra's groups, for which ``SIZE`` stands for the size; a package
may have groups of its own in ``configs``.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.stage import SIZES, SimulatingStage
from foretail.configs.schema.stages import register_config
from foretail.core.errors import ForetailError
from foretail.core.plugins import study_packages
from foretail.core.summary import Summarised
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, RegisteredModel, TrackedRun
from foretail.models.scoring.figure_style import FIGURE_KINDS
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.experiment.declaration import Experiment, Learned, Run, Settings, Shown
from foretail.pipelines.runs.points import points_failed, write_files
from foretail.pipelines.runs.result import Table, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import COMPOSING, compose_registered
from foretail.pipelines.stage import Command
from foretail.pipelines.tracking.loading import register_trained
from foretail.pipelines.tracking.runs import address, run_note, tracked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

INSTALL = "pip install foretail-studies, or pip install ./studies in a checkout"
USUAL_SIZE = "full"
ABOUT_THE_FILE = ("declaration", "like", "defaults", "sizes")


@dataclass(frozen=True)
class Listed:
    """An experiment as its document has it."""

    name: str
    package: str  #: that has its document
    family: str  #: the folder of its file
    example: str  #: a command that runs it
    description: str
    document: Mapping[str, Any]  #: the whole document

    @property
    def sentence(self) -> str:
        """The first sentence of the description."""
        return re.split(r"(?<=[.?])\s", self.description, maxsplit=1)[0]


@cache
def experiments() -> dict[str, Listed]:
    """All experiments by name, in the order of their names."""
    files: dict[str, Listed] = {}
    for package in study_packages():
        for family in resources.files(package).iterdir():
            for file in family.iterdir() if family.is_dir() else ():
                for one in _listed(package, family.name, file) if file.name.endswith(".yaml") else ():
                    if one.name in files:
                        raise ForetailError(
                            f"{files[one.name].package} and {package} both have an experiment {one.name}: uninstall one"
                        )
                    files[one.name] = one
    return dict(sorted(files.items(), key=lambda item: _in_order(item[0])))


def listed(name: str) -> Listed:
    """An experiment; ForetailError when there is none of this name."""
    known = experiments()
    if not known:
        raise ForetailError(f"the studies are not installed, of which {name} is one: {INSTALL}")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.8)
        raise ForetailError(f"there is no experiment {name}: choose from {', '.join(close or known)}")
    return known[name]


def sizes_of(name: str) -> list[str]:
    """The sizes that an experiment has, in order."""
    return [size for size in SIZES if size in _sizes(listed(name))]


def declared(name: str) -> Experiment[Any]:
    """Object that declares an experiment."""
    one = listed(name)
    module, _, attribute = str(_inherited(one, "declaration")).rpartition(".")
    try:
        experiment: Experiment[Any] = getattr(importlib.import_module(f"{one.package}.{module}"), attribute)
    except ModuleNotFoundError as error:
        raise ForetailError(
            f"{name} needs {error.name}, which is not installed: docs/guide/install.md has the extra that brings it"
        ) from error
    return experiment


def command_of(name: str, size: str = USUAL_SIZE) -> Command:
    """The command that runs an experiment in a size; registers its settings, which Hydra then composes."""
    experiment = declared(name)
    return Command(
        ("run", name),
        register_experiment(name, size),
        experiment.settings,
        lambda settings, run_dir: run_experiment(experiment, settings, run_dir),
    )


def settings_of(name: str, size: str, schema: type[Settings]) -> Settings:
    """The settings of an experiment in a size, all at their defaults; `schema` is their class."""
    with COMPOSING:
        return compose_registered(register_experiment(name, size), schema)


def register_experiment(name: str, size: str) -> str:
    """Store an experiment's settings in a size as a config of Hydra, and return the config's name."""
    one = listed(name)
    schema: type[ExperimentSettings] = declared(name).settings
    if size not in _sizes(one):
        raise ForetailError(f"{name} has no size {size}: choose from {', '.join(sizes_of(name))}")
    config = f"run_{name}"
    register_config(config, schema)
    groups = {"tracking": "sqlite"}
    if issubclass(schema, SimulatingStage):
        groups["network"] = "native"
    settings = _settings(one, size)
    for entry in [*(_inherited(one, "defaults") or []), *settings.pop("defaults", [])]:
        groups |= {group: size if option == "SIZE" else option for group, option in entry.items()}
    options = ({group: option} for group, option in groups.items())
    node = {
        "defaults": [f"base_{config}", "stage", *options, "_self_", {"override hydra/job_logging": "disabled"}],
        "hydra": {"job": {"name": name}, "searchpath": _own_groups(one.package)},
        "experiment": name,
        "size": size,
        **settings,
    }
    ConfigStore.instance().store(name=config, node=node)
    return config


def _own_groups(package: str) -> list[str]:
    """Search path of Hydra for config groups of a package of studies: its folder ``configs``, if it has one."""
    return [f"pkg://{package}.configs"] if (resources.files(package) / "configs").is_dir() else []


def _inherited(one: Listed, key: str) -> Any:
    """Value of a key in an experiment's file, or in the file of the experiment that it is like."""
    if key not in one.document and "like" in one.document:
        return _inherited(listed(one.document["like"]), key)
    return one.document.get(key)


def _sizes(one: Listed) -> set[str]:
    """The sizes that an experiment has."""
    base = _sizes(listed(one.document["like"])) if "like" in one.document else set()
    return base | set(one.document.get("sizes") or {})


def _settings(one: Listed, size: str) -> dict[str, Any]:
    """The settings of a size: those of the experiment that it is like, those of every size, those of this one."""
    base = _settings(listed(one.document["like"]), size) if "like" in one.document else {}
    common = {name: value for name, value in one.document.items() if name not in ABOUT_THE_FILE}
    return {**base, **common, **((one.document.get("sizes") or {}).get(size) or {})}


def _listed(package: str, family: str, file: Traversable) -> Iterator[Listed]:
    """The experiments of a file."""
    for text in file.read_text("utf-8").split("\n---\n"):
        comment = [line.removeprefix("#").strip() for line in re.match(r"(?:#.*\n)*", text)[0].splitlines()]  # type: ignore[index]
        document = OmegaConf.to_container(OmegaConf.create(text))
        command = re.match(r"foretail run (\w+)", comment[0] if comment else "")
        if command is None or not isinstance(document, dict):
            raise ForetailError(
                f"{file} has a document that is not an experiment: its first line is '# foretail run NAME'"
            )
        settings = {str(key): value for key, value in document.items()}
        yield Listed(command[1], package, family, comment[0], " ".join(comment[1:]), settings)


def _in_order(name: str) -> tuple[Any, ...]:
    """Names in the order in which people count: Figure 6 before Figure 10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))


@dataclass(frozen=True, eq=False, repr=False)
class ExperimentResult(Summarised):
    """A finished experiment."""

    settings: ExperimentSettings
    shown: Shown
    folder: Path  #: of the run
    files: Sequence[Path]  #: in it
    tracked: Mapping[str, str] | None  #: run and server in MLflow, or None
    registered: RegisteredModel | None  #: the version of what it learned, or None

    def verdict(self) -> list[str]:
        """Conclusions of the experiment."""
        return list(self.shown.verdict)

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        shown, learned = self.shown, self.shown.learned
        model = {} if learned is None else {"ensemble_sha256": learned.ensemble.sha256, "registered": self.registered}
        return {
            "experiment": self.settings.experiment,
            "size": self.settings.size,
            "rows": shown.rows.to_dict("records"),
            **shown.details,
            **model,
            "files": [str(path.relative_to(self.folder)) for path in self.files],
            "captions": {stem_of(self.settings, name): drawn.caption for name, drawn in shown.figures.items()}
            | dict(shown.captions),
            "failed": dict(shown.failed),
            "tracked": self.tracked,
        }

    def tables(self) -> list[Table]:
        """Its tables, with all notes below the last."""
        *others, last = self.shown.tables
        notes = (*last.notes, *self.shown.notes, *run_note(self.tracked))
        return [*others, dataclasses.replace(last, notes=notes)]

    def failure(self) -> PointsFailed | None:
        """One sentence that names the points that failed, if any did."""
        return points_failed(self.shown.failed, self.shown.points) if self.shown.failed else None


def run_experiment(experiment: Experiment[Settings], settings: Settings, run_dir: Path) -> ExperimentResult:
    """Find, write and track; what the store has is not measured again."""
    store, tracking = Store(settings.store_dir), settings.tracking
    run: AbstractContextManager[TrackedRun | None] = nullcontext()
    if tracking.enabled:
        run = tracked(tracking, store, dataclasses.asdict(settings), f"{settings.experiment} {settings.size}")
    with run as logged:
        shown = experiment.find(settings, Run(run_dir, store, logged))
        files = _written(settings, shown, run_dir)
        where = None if logged is None else address(logged)
        registered = None if logged is None else _logged(logged, settings, shown.learned, files)
        result = ExperimentResult(settings, shown, run_dir, files, where, registered)
        if logged is not None:
            logged.log_document(plain(result.document()), f"{settings.experiment}.json")
    return result


def stem_of(settings: ExperimentSettings, figure: str) -> str:
    """How the files of a figure are called."""
    return f"{settings.experiment}_{figure}" if figure else settings.experiment


def _written(settings: ExperimentSettings, shown: Shown, run_dir: Path) -> list[Path]:
    """Write the rows, every figure with its numbers, further frames, and the model."""
    files: dict[str, pd.DataFrame | Figure] = {f"{settings.experiment}.parquet": shown.rows, **shown.frames}
    for name, drawn in shown.figures.items():
        stem = stem_of(settings, name)
        files |= {f"{stem}.{kind}": drawn.figure for kind in FIGURE_KINDS}
        files |= {} if drawn.numbers is None else {f"{stem}.csv": drawn.numbers}
    written = [*write_files(run_dir, files), *shown.files]
    if shown.learned is not None:
        shown.learned.ensemble.save(run_dir / ENSEMBLE_FILE)
        written.append(run_dir / ENSEMBLE_FILE)
    return written


def _logged(
    run: TrackedRun, settings: ExperimentSettings, learned: Learned | None, files: Sequence[Path]
) -> RegisteredModel | None:
    """Log the files, and what was learned, which is registered."""
    for path in files:
        run.log_file(path)
    if learned is None:
        return None
    learned.log(run)
    run.log_metrics(dict(learned.metrics))
    run.log_model(learned.ensemble)
    features = ",".join(item.name for item in learned.ensemble.features)
    tags = {"ensemble_sha256": learned.ensemble.sha256, "features": features}
    return register_trained(settings.tracking, address(run), learned.description, tags)
