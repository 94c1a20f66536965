"""Drop predictors by their scores and what they cost a switch: trials drawn in batches, the best trained for good.

Trials never see the test runs. The trial that the budget allows and validation prefers is trained once more, as
``foretail train`` would, and that model alone is scored on the test runs.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import NSGAIISampler, TPESampler

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.export.p4.profile import Profile, load_profile
from foretail.features.rows.splits import SIDES, Split
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import TrackedRun, run_exists
from foretail.models.scoring.figure_style import panels, styled
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table, versions
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings, compose_training
from foretail.pipelines.tracking.runs import address, describe_split, log_dataset, tracked
from foretail.pipelines.training.fitting import TrainResult, find_split, register, train_model, train_on
from foretail.pipelines.training.sending import require_runs
from foretail.sim_bridge.open_loop.scores import SENT
from foretail_studies.predictors.held_out import HeldOut, judge_held_out
from foretail_studies.search.trials import (
    SEARCH_COSTS,
    SEARCH_SCORES,
    Dimension,
    SearchSettings,
    Trial,
    Trials,
    open_trials,
    switch_cost,
)

PREDICTOR = "predictor"
LEARNING = (
    PREDICTOR,
    "features",
    "drop_weight",
    "trainer",
    "sampling",
    "labels",
    "objective",
    "operating_point",
    "allow_constant_features",
)
"""Settings that may differ between trials, which are all compared on the same runs."""


@dataclass(frozen=True)
class Space:
    """Settings that are drawn, in the order of the overrides."""

    candidate: tuple[str, ...]  #: overrides that all trials share
    distributions: Mapping[str, BaseDistribution]  #: by setting
    #: settings of the space that each predictor has, by its name; one name None where none is drawn
    known: Mapping[str | None, frozenset[str]]

    @classmethod
    def of(cls, search: SearchSettings) -> Space:
        """Return the space, every choice and both ends of every range tried with every predictor.

        ForetailError on a setting that no predictor has, or a value that ``foretail train`` would refuse.
        """
        drawn = {dimension.override or name: (name, dimension) for name, dimension in search.space.items()}
        predictors = drawn[PREDICTOR][1].choices if PREDICTOR in drawn else [None]
        known: dict[str | None, frozenset[str]] = {}
        for predictor in predictors:
            overrides = [*search.candidate, *([] if predictor is None else [f"{PREDICTOR}={predictor}"])]
            has = compose_settings(TrainConfig, overrides, "candidate").predictor
            known[predictor] = frozenset(
                name for name in drawn if not name.startswith(f"{PREDICTOR}.") or name.partition(".")[2] in has
            )
        for setting, (name, _) in drawn.items():
            if setting.partition(".")[0] not in LEARNING:
                raise ForetailError(
                    f"space.{name} draws {setting}, and trials may differ in {', '.join(LEARNING)} only"
                )
            if not any(setting in settings for settings in known.values()):
                names = ", ".join(map(str, predictors))
                none = "the predictor does not have" if predictors == [None] else f"none of {names} has"
                raise ForetailError(f"space.{name} draws {setting}, which {none}: take it out")
        space = cls(
            tuple(search.candidate), {setting: _distribution(one) for setting, (_, one) in drawn.items()}, known
        )
        for predictor, settings in known.items():
            columns = {name: _ends(drawn[name][1]) for name in drawn if name in settings and name != PREDICTOR}
            for place in range(max((len(values) for values in columns.values()), default=1)):
                tried = {name: values[place % len(values)] for name, values in columns.items()}
                space.config(({} if predictor is None else {PREDICTOR: predictor}) | tried, "space")
        return space

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return what follows ``foretail train`` for drawn values."""
        return [*self.candidate, *self.drawn(values)]

    def drawn(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides that were drawn: of the settings that the predictor has."""
        known = self.known[values.get(PREDICTOR)]
        return [f"{name}={_written(values[name])}" for name in self.distributions if name in known]

    def config(self, values: Mapping[str, Any], where: str) -> TrainConfig:
        """Return the checked settings for drawn values."""
        return compose_settings(TrainConfig, self.overrides(values), where)


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    if dimension.integers:
        first, last = dimension.integers
        return IntDistribution(first, last, log=dimension.log, step=dimension.step)
    low, high = dimension.floats
    return FloatDistribution(low, high, log=dimension.log)


def _ends(dimension: Dimension) -> list[Any]:
    """Every choice, or both ends of a range."""
    return dimension.choices or dimension.integers or dimension.floats


def _written(value: Any) -> str:
    """A value as on the command line."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


TRIAL = "trial"
CHOSEN = "chosen"
Log = Callable[[Sequence[Trial]], None]
COLUMN_OF = {
    "recovered_loss": "R",
    "f1": "F1",
    "average_precision": "average precision",
    "sent_percent_of_lqd": SENT,
}
"""Titles of the scores that a trial keeps: possible objectives, and what Credence sends."""
CAPTION = (
    "Every trial by its cost in the switch and its score on the validation runs; the line is the front, which nothing "
    "is better than in both, the star the chosen trial."
)


@dataclass(frozen=True)
class Tested:
    """The chosen trial, trained once more and scored on the test runs."""

    trial: int  #: its number
    overrides: tuple[str, ...]  #: what follows ``foretail train``
    trained: TrainResult  #: the model
    held_out: tuple[HeldOut, ...]  #: it, and always accepting, on the test runs


@dataclass(frozen=True)
class Finished:
    """A finished search."""

    settings: SearchSettings
    stored: Trials  #: where the trials are kept
    space: Space  #: what was drawn
    trials: tuple[Trial, ...]  #: all of them, in order
    front: frozenset[int]  #: numbers of those that no other is better than in every objective
    tested: Tested | None  #: None when no trial is within the budget
    tracked: Mapping[str, str] | None  #: its run in MLflow; None without tracking

    def shown(self) -> Shown:
        """All trials, the front, and the chosen one."""
        tested = self.tested
        frame = trial_frame(self.trials, self.front, self.space)
        score, cost = (
            next(name for name in self.settings.objectives if name in kind) for kind in (SEARCH_SCORES, SEARCH_COSTS)
        )
        figure = draw_front(frame, score, cost, None if tested is None else tested.trial)
        front = frame[frame["front"]]
        return Shown(
            frame,
            self.tables(),
            {"front": Drawn(figure, CAPTION, front)},
            {"trials.parquet": frame, "trials.csv": frame, "front.parquet": front},
            verdict=self.verdict(),
            details={
                "name": self.stored.name,
                "file": self.stored.file,
                "chosen": None
                if tested is None
                else {
                    "trial": tested.trial,
                    "overrides": tested.overrides,
                    **tested.trained.document(),
                    "held_out": [asdict(judged) for judged in tested.held_out],
                },
            },
            tracked=self.tracked,
        )

    def verdict(self) -> list[str]:
        """The chosen trial, and what was tried."""
        failed = sum(trial.failed is not None for trial in self.trials)
        tried = f"{len(self.trials)} trials were made, {failed} of them failed, and {len(self.front)} are on the front."
        if self.tested is None:
            return ["No trial is within the budget.", tried]
        score = self.settings.objectives[0]
        scores = next(trial.figures for trial in self.trials if trial.number == self.tested.trial) or {}
        words = " and ".join(f"{name.replace('_', ' ')} {scores[name]:.4g}" for name in self.settings.objectives)
        return [f"Trial {self.tested.trial} is the best {score.replace('_', ' ')} within the budget: {words}.", tried]

    def tables(self) -> list[Table]:
        """The front, the trials that failed, and the chosen one on the test runs."""
        failed = [trial for trial in self.trials if trial.failed is not None]
        return [self._front(failed), *([self._failed(failed)] if failed else []), self._chosen()]

    def _front(self, failed: Sequence[Trial]) -> Table:
        figures = (*COLUMN_OF, *SEARCH_COSTS)
        cost = next(name for name in self.settings.objectives if name in SEARCH_COSTS)
        front = [(trial, trial.figures) for trial in self.trials if trial.number in self.front and trial.figures]
        seen: set[tuple[Any, ...]] = set()
        rows = []
        for trial, own_figures in sorted(front, key=lambda one: (one[1][cost], one[0].number)):
            values = tuple(own_figures[name] for name in figures)
            if values not in seen:  # a draw can be repeated
                rows.append((trial.number, *values, " ".join(self.space.drawn(trial.values))))
            seen.add(values)
        return Table(
            f"Front of {' and '.join(self.settings.objectives)}",
            (TRIAL, *(SENT if COLUMN_OF.get(name) == SENT else name.replace("_", " ") for name in figures), "settings"),
            tuple(rows),
            (
                f"{len(self.trials)} trials, {len(failed)} of them failed; scores where Credence asks, on the "
                "validation runs.",
                f"P4 table entries and TCAM bits are planned for {self.settings.p4_profile}, not proven: "
                "foretail export does that.",
                self.stored.sentence() + ("" if self.tracked is None else f", MLflow run {self.tracked['run_id']}"),
            ),
        )

    def _failed(self, failed: Sequence[Trial]) -> Table:
        rows = ((trial.number, trial.failed, " ".join(self.space.drawn(trial.values))) for trial in failed)
        return Table("Failed trials", (TRIAL, "why", "settings"), tuple(rows))

    def _chosen(self) -> Table:
        budget = ", ".join(f"{name} <= {most:g}" for name, most in self.settings.budget.items()) or "no limit"
        tested = self.tested
        if tested is None:
            return Table("Chosen", ("budget",), ((budget,),), ("No trial is within the budget: raise it.",))
        rows = []
        for name in dict.fromkeys(judged.candidate for judged in tested.held_out):
            runs = [judged for judged in tested.held_out if judged.candidate == name]
            rows.append({"candidate": name, "runs": len(runs), **HeldOut.together(runs)})
        return Table.of_rows(
            f"Trial {tested.trial}, the best {self.settings.objectives[0]} within the budget, on the test runs",
            rows,
            f"budget: {budget}",
            shlex.join(["foretail", "train", *tested.overrides]),
        )


def search(settings: SearchSettings, run: Run) -> Finished:
    """Draw, train and judge until there are as many trials as wanted, those of earlier runs included; test the best."""
    store, profile, space = run.store, load_profile(settings.p4_profile), Space.of(settings)
    base = compose_training(settings, settings.candidate, "candidate")
    if base.split.name != "by_run":
        raise ForetailError(f"candidate splits {base.split.name}: a search holds whole runs out, use by_run")
    split = find_split(replace(base, jobs=settings.jobs))[1]
    require_runs(split.validation, "foretail run predictor_search")
    searched = what_is_searched(settings, space, split)
    directions: dict[str, Literal["maximize", "minimize"]] = {
        objective: "maximize" if objective in SEARCH_SCORES else "minimize" for objective in settings.objectives
    }
    sampler = partial(NSGAIISampler, population_size=settings.population) if settings.sampler == "nsga2" else TPESampler
    with (
        open_trials(settings, "search", store, searched, space.distributions, directions, sampler) as trials,
        tracked_search(settings, trials, split, store) as logged,
    ):
        evaluate_trials(settings, trials, space, split, profile, trial_log(logged, space, split))
        finished = trials.finished()
        if all(trial.figures is None for trial in finished):
            raise ForetailError(f"all {len(finished)} trials failed, the first because {finished[0].failed}")
        chosen = best_trial(finished, settings)
        tested = None if chosen is None else test_best(settings, chosen, space, split, logged)
        where = None if logged is None else address(logged)
        return Finished(settings, trials, space, tuple(finished), trials.front(), tested, where)


PREDICTORS = FunctionExperiment(SearchSettings, lambda settings, run: search(settings, run).shown(), tracks_itself=True)


def trial_frame(trials: Sequence[Trial], front: frozenset[int], space: Space) -> pd.DataFrame:
    """One row per trial: its settings as text, its figures, whether it is on the front, and why it failed."""
    return pd.DataFrame(
        [
            {
                TRIAL: trial.number,
                "front": trial.number in front,
                "failed": trial.failed,
                **dict(override.split("=", 1) for override in space.drawn(trial.values)),
                **{name: (trial.figures or {}).get(name) for name in (*COLUMN_OF, *SEARCH_COSTS)},
                "model_sha256": (trial.figures or {}).get("model_sha256"),
            }
            for trial in trials
        ]
    )


@styled
def draw_front(frame: pd.DataFrame, score: str, cost: str, chosen: int | None) -> Figure:
    """Every trial by its cost and score, the front as steps, and the chosen one."""
    figure, (axes,) = panels(1, inches=(5.6, 3.8))
    axes.plot(frame[cost], frame[score], ".", color="grey", alpha=0.5, label="trial")
    front = frame[frame["front"]].sort_values([cost, score])
    axes.plot(front[cost], front[score], "o-", color="C0", drawstyle="steps-post", markersize=4, label="front")
    best = frame[frame[TRIAL] == chosen]
    axes.plot(best[cost], best[score], "*", color="C3", markersize=12, label="chosen", linestyle="")
    axes.set_xscale("symlog")  # a model that always accepts has no table entries
    axes.set(xlabel=cost.replace("_", " "), ylabel=f"{score.replace('_', ' ')}, validation runs")
    axes.legend()
    return figure


def what_is_searched(settings: SearchSettings, space: Space, split: Split) -> dict[str, Any]:
    """Everything that decides the trials."""
    decisive = ("candidate", "objectives", "p4_profile", "sampler", "population", "batch", "seed")
    return {
        **{name: getattr(settings, name) for name in decisive},
        "space": {setting: repr(distribution) for setting, distribution in space.distributions.items()},
        "runs": {
            side: [selection.dataset.manifest.content_sha256 for selection in getattr(split, side)] for side in SIDES
        },
        "code": code_digest("features", "models", "export", "sim_bridge"),
        "versions": {name: versions()[name] for name in ("optuna", "numpy", "scikit-learn", "treelite")},
    }


def evaluate_trials(
    settings: SearchSettings,
    trials: Trials,
    space: Space,
    split: Split,
    profile: Profile,
    log: Log,
) -> None:
    """Batch by batch; a batch is kept when all of it is known, its models and scores in the store as they are."""
    total = settings.trials
    log(trials.finished())  # what a killed run did not come to
    started, before = time.monotonic(), len(trials.finished())

    def evaluate(prepared: tuple[Trial, TrainConfig | None]) -> Trial:
        trial, candidate = prepared
        if candidate is None:
            return trial
        try:
            here = replace(candidate, store_dir=settings.store_dir, jobs=1)
            return replace(trial, figures=_evaluated(here, settings.objectives, split, profile))
        except ForetailError as error:
            return replace(trial, failed=str(error))

    with StageProgress() as progress, ThreadPoolExecutor(settings.jobs) as pool:
        progress.update("search", before / total if before < total else 1.0)
        while batch := trials.batch(total):
            finished = []
            for trial in pool.map(evaluate, [_prepared(drawn, space) for drawn in batch]):
                finished.append(trial)
                done = trial.number + 1
                left = (time.monotonic() - started) / (done - before) * (total - done)
                progress.update("search", done / total, f"{done:,} of {total:,} trials, about {left / 60:.1f} min left")
            trials.keep(finished)
            log(finished)


def _prepared(drawn: Trial, space: Space) -> tuple[Trial, TrainConfig | None]:
    """The settings of a trial, composed here because Hydra knows no threads."""
    try:
        candidate = space.config(drawn.values, "trial")
    except ForetailError as error:
        return replace(drawn, failed=str(error)), None
    return drawn, replace(candidate, tracking=replace(candidate.tracking, enabled=False))


def _evaluated(candidate: TrainConfig, objectives: Sequence[str], split: Split, profile: Profile) -> dict[str, Any]:
    """Scores on the validation runs, which take the place of the test runs here, and costs."""
    trained = train_on(candidate, Split(split.train, split.validation, split.validation))
    runs = [selection.dataset for selection in split.validation]
    judged = judge_held_out(candidate, runs, "validation", True, {TRIAL: trained}, {TRIAL: candidate})
    together = HeldOut.together([run for run in judged if run.candidate == TRIAL])
    scores = {name: together[column] for name, column in COLUMN_OF.items()}
    for name, value in scores.items():
        if value is None and name in objectives:
            raise ForetailError(f"{name} is not defined on the validation runs: give runs with drops to predict")
    cost = switch_cost(trained.ensemble, trained.outcome["ports"], profile)
    return {**scores, **asdict(cost), "model_sha256": trained.model.sha256}


def best_trial(trials: Sequence[Trial], settings: SearchSettings) -> Trial | None:
    """The best first score within the budget; of equals the cheapest, then the first."""
    score = next(name for name in settings.objectives if name in SEARCH_SCORES)
    costs = [name for name in settings.objectives if name in SEARCH_COSTS]
    within = [
        (-trial.figures[score], *(trial.figures[cost] for cost in costs), trial.number)
        for trial in trials
        if trial.figures is not None and all(trial.figures[name] <= most for name, most in settings.budget.items())
    ]
    return trials[min(within)[-1]] if within else None


def test_best(settings: SearchSettings, chosen: Trial, space: Space, split: Split, run: TrackedRun | None) -> Tested:
    """Train the chosen trial as ``foretail train`` would, register it, and score it on the test runs."""
    tracking = replace(settings.tracking, parent_run_id=None if run is None else run.run_id)
    candidate = replace(
        space.config(chosen.values, "trial"),
        store_dir=settings.store_dir,
        ns3_prefix=settings.ns3_prefix,
        tracking=tracking,
    )
    trained = train_model(candidate)
    registered = register(
        replace(candidate, tracking=settings.tracking), trained.outcome, trained.outcome["scores"], trained.model
    )
    trained = replace(trained, registered=registered)
    runs = [selection.dataset for selection in split.test]
    held_out = judge_held_out(settings, runs, "test", True, {CHOSEN: trained}, {CHOSEN: candidate})
    return Tested(chosen.number, tuple(space.overrides(chosen.values)), trained, tuple(held_out))


@contextmanager
def tracked_search(settings: SearchSettings, trials: Trials, split: Split, store: Store) -> Iterator[TrackedRun | None]:
    """The MLflow run of the search, the one that an earlier command began where it still exists."""
    tracking = settings.tracking
    if not tracking.enabled:
        yield None
        return
    uri = tracking_uri(tracking.uri, store.folder.parent)
    before = trials.tracked(uri)
    goes_on = before is not None and run_exists(before, uri)
    with tracked(tracking, store, asdict(settings), trials.name, run_id=before if goes_on else None) as run:
        if not goes_on:
            for dataset in describe_split(split):
                log_dataset(run, dataset)
            trials.track(uri, run.run_id)
        yield run


def trial_log(run: TrackedRun | None, space: Space, split: Split) -> Log:
    """Return a log of trials in MLflow, each as a run inside that of the search, with the runs that it used."""
    if run is None:
        return lambda trials: None
    there = run.inside(TRIAL)
    datasets = [dataset for dataset in describe_split(split) if dataset["side"] != "test"]

    def log(trials: Sequence[Trial]) -> None:
        for trial in trials:
            if str(trial.number) in there:
                continue
            numbers = {name: value for name, value in (trial.figures or {}).items() if isinstance(value, (int, float))}
            tags = {TRIAL: str(trial.number)} | ({} if trial.failed is None else {"error": trial.failed})
            inner = run.log_nested(
                f"trial {trial.number}",
                dict(override.split("=", 1) for override in space.overrides(trial.values)),
                {f"validation/{name}" if name in COLUMN_OF else f"cost/{name}": numbers[name] for name in numbers},
                tags,
                failed=trial.failed is not None,
            )
            for dataset in datasets:
                log_dataset(inner, dataset)

    return log
