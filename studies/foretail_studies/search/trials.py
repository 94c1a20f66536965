"""Trials of a search in an SQLite file: each appears there when it is known, so a killed search leaves none half done.

What is drawn depends on the seed, the number of the trial and the trials of earlier batches only: neither an
interruption nor the number of jobs changes it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from foretail.core.errors import ForetailError
from foretail.models.mlflow.store import first_line, locked, make_sqlite_file, require_short_path
from foretail.pipelines.runs.store import Store, canonical_json
from foretail_studies.search.settings import TrialSettings

SEARCHED, TRACKED, FOUND, FAILED = "searched", "tracked", "found", "failed"
"""Attributes: of a study what decides its trials and where MLflow has it, of a trial what came of it."""

Distributions = Mapping[str, BaseDistribution]
Objectives = Mapping[str, Literal["maximize", "minimize"]]

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every study and trial on stderr


@dataclass(frozen=True)
class Drawn:
    """A trial to evaluate: its number from 0, and a value for every setting."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """A finished trial."""

    number: int  #: of the trial
    values: Mapping[str, Any]  #: what was drawn
    found: Mapping[str, Any] | None  #: figures by name; None when it failed
    failed: str | None  #: why, one sentence; None when it did not


class Trials:
    """The trials of one search, opened by :func:`open_trials`, which has the same parameters."""

    def __init__(
        self,
        settings: TrialSettings,
        file: Path,
        stored: optuna.Study,
        distributions: Distributions,
        objectives: Objectives,
        sampler: Callable[..., BaseSampler],
        first: Sequence[Mapping[str, Any]],
    ) -> None:
        self.name, self.file = stored.study_name, file
        self._stored, self._distributions, self._objectives = stored, dict(distributions), objectives
        self._sampler, self._batch, self._seed = sampler, settings.batch, settings.seed
        self._drawing = optuna.create_study(directions=list(objectives.values()), sampler=self._sampler_of(0))
        self._open: list[optuna.trial.Trial] = []
        kept, batch = stored.get_trials(deepcopy=False), self._batch
        for start in range(0, len(kept) - len(kept) % batch, batch):
            self._drawing.add_trials(kept[start : start + batch])
        for values in first[len(kept) - len(kept) % batch :]:
            self._drawing.enqueue_trial(dict(values))

    def sentence(self) -> str:
        """Where they are, for a note below a table."""
        return f"search {self.name} in {self.file}"

    def finished(self) -> list[Trial]:
        """All finished trials, in order."""
        return [_trial(kept) for kept in self._stored.get_trials(deepcopy=False)]

    def batch(self, total: int) -> list[Drawn]:
        """Return the next trials to evaluate, all below `total`; empty when there are none."""
        first = len(self._stored.get_trials(deepcopy=False))
        if first >= total:
            return []
        start = first - first % self._batch
        self._open = []
        for number in range(start, start + self._batch):
            self._drawing.sampler = self._sampler_of(number)
            self._open.append(self._drawing.ask(self._distributions))
        return [Drawn(trial.number, trial.params) for trial in self._open[first - start :] if trial.number < total]

    def keep(self, trials: Sequence[Trial]) -> None:
        """Keep what became of a batch, in its order."""
        drawn = self._drawing.get_trials(deepcopy=False)
        for trial in trials:
            asked = drawn[trial.number]
            values = None if trial.found is None else [trial.found[name] for name in self._objectives]
            self._stored.add_trial(
                create_trial(
                    state=TrialState.FAIL if values is None else TrialState.COMPLETE,
                    values=values,
                    params=asked.params,
                    distributions=asked.distributions,
                    user_attrs={FAILED: trial.failed} if values is None else {FOUND: dict(trial.found or {})},
                    system_attrs=asked.system_attrs,
                )
            )
        start = self._open[0].number
        finished = self._stored.get_trials(deepcopy=False)[start:]
        if len(finished) == len(self._open):
            for open_one, one in zip(self._open, finished, strict=True):
                self._drawing.tell(open_one, one.values, state=one.state)

    def front(self) -> frozenset[int]:
        """Numbers of the trials that no other is better than in every objective."""
        return frozenset(trial.number for trial in self._stored.best_trials)

    def tracked(self, uri: str) -> str | None:
        """The MLflow run of the search in the store at `uri`, if there was one."""
        tracked: dict[str, str] = self._stored.user_attrs.get(TRACKED, {})
        return tracked.get(uri)

    def track(self, uri: str, run_id: str) -> None:
        """Remember the MLflow run of the search."""
        self._stored.set_user_attr(TRACKED, {**self._stored.user_attrs.get(TRACKED, {}), uri: run_id})

    def _sampler_of(self, number: int) -> BaseSampler:
        return self._sampler(seed=int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))


@contextmanager
def open_trials(
    settings: TrialSettings,
    kind: str,
    store: Store,
    searched: Mapping[str, Any],
    distributions: Distributions,
    objectives: Objectives,
    sampler: Callable[..., BaseSampler],
    first: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Trials]:
    """Open the trials of a search, those of earlier runs included; nobody else can meanwhile.

    ForetailError when the file is none of Optuna, or holds another search of that name.

    Parameters
    ----------
    kind : begins the name of a search that the settings do not name
    searched : everything that decides its trials, JSON-like
    distributions : by setting
    objectives : directions by the names of figures
    sampler : makes Optuna's sampler of a ``seed``
    first : values of the first trials, which nobody draws
    """
    name = settings.name or f"{kind}-{hashlib.sha256(canonical_json(searched).encode()).hexdigest()[:12]}"
    file = Path(settings.file) if settings.file else store.folder.parent / "search.db"
    require_short_path(file.absolute(), "give a file in another folder")
    url = f"sqlite:///{file.absolute()}"
    with locked(url), _readable(file):
        if not file.exists():
            make_sqlite_file(file.absolute(), _fill)
        _require_whole(file)
        try:
            storage = optuna.storages.RDBStorage(url)
        except RuntimeError as error:  # a file of another version
            raise _no_trials(file, error) from error
        try:
            stored = optuna.create_study(
                storage=storage, study_name=name, directions=list(objectives.values()), load_if_exists=True
            )
            before = stored.user_attrs.get(SEARCHED)
            if before is None:
                stored.set_user_attr(SEARCHED, dict(searched))
            elif canonical_json(before) != canonical_json(searched):
                differ = [key for key in searched if before.get(key) != searched[key]]
                raise ForetailError(
                    f"{file} holds another search called {name}, with other {' and '.join(differ)}: give another name"
                )
            for trial in stored.get_trials(deepcopy=False):
                if not trial.state.is_finished():
                    raise ForetailError(
                        f"trial {trial.number} of {name} in {file} was begun by another program, which did not end it: "
                        f"give another name"
                    )
            yield Trials(settings, file, stored, distributions, objectives, sampler, first)
        finally:
            storage.remove_session()
            storage.engine.dispose()


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, optuna.exceptions.OptunaError) as error:
        if "database is locked" in str(error):
            raise ForetailError(f"another program has locked {file}: wait until it ends") from error
        raise _no_trials(file, error) from error


def _no_trials(file: Path, error: Exception) -> ForetailError:
    return ForetailError(f"{file} cannot hold trials ({first_line(error)}): give another file")


def _require_whole(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        (complaint,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if complaint != "ok":
        reason = " ".join(complaint.split())
        raise ForetailError(f"{file} is damaged ({reason}): restore it, or remove it to begin anew")


def _fill(url: str) -> None:
    optuna.storages.RDBStorage(url).engine.dispose()


def _trial(kept: FrozenTrial) -> Trial:
    return Trial(kept.number, kept.params, kept.user_attrs.get(FOUND), kept.user_attrs.get(FAILED))
