"""Ways to train a predictor for what it sends, on the workloads of promise: what each sends, and what it costs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from foretail.configs.schema.fields import setting
from foretail.configs.schema.model_stages import TrainConfig
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.scorers import asking_policy, scorer_of
from foretail.pipelines.comparison.statistics import mean_interval
from foretail.pipelines.data.inputs import feature_inputs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_training
from foretail.pipelines.settings.predictors import untrained, window_of
from foretail.pipelines.training.fitting import SENDING, train_model
from foretail.pipelines.training.sending import train_on_runs
from foretail.sim_bridge.arrivals.files import PACKET_BYTES
from foretail.sim_bridge.open_loop.baselines import Baseline, tuned
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.predictors.promise import PromiseSettings, all_collected, in_percent

TRAINED_ON, UNSEEN = "within", "unseen"


@dataclass
class TrainingMethodsSettings(PromiseSettings):
    """Models by the way in which they are trained, on the workloads of promise."""

    shared_training: list[str] = setting([], "Overrides of foretail train that all models share.")


@dataclass(frozen=True)
class Trained:
    """A model, and what its training took."""

    model: Any  #: an ensemble
    columns: Sequence[str]  #: that it sees of a dataset
    cpu_seconds: float  #: of all threads of the process
    rows: int | None  #: of the last round; None of labels, which take the rows of the datasets


@dataclass(frozen=True)
class Sides:
    """The runs of the workloads that train."""

    train: Sequence[Dataset]
    validation: Sequence[Dataset]
    test: Sequence[Dataset]

    @cached_property
    def in_memory(self) -> tuple[list[KnownRun], list[KnownRun]]:
        """Those that train and validate, read once for all models."""
        return [KnownRun.of(one) for one in self.train], [KnownRun.of(one) for one in self.validation]


def show(settings: TrainingMethodsSettings, run: Run) -> Shown:
    """Train every model, and judge it on the test runs beside the best policy that asks nobody."""
    split = settings.split
    runs = all_collected(settings, split.all_seeds)
    inside = replace(settings, tracking=run.inside(replace(settings.tracking, registered_model=None)))
    sides = Sides(*([runs[name][seed] for name in settings.training for seed in own] for own in split.roles.values()))
    trained = {name: _trained(inside, name, sides) for name in settings.models}
    best = tuned([*sides.train, *sides.validation])[0]
    rows = pd.DataFrame(
        [
            {**settings.columns_of(name), "seed": seed, **row}
            for name in settings.judging
            for seed in split.test
            for row in _judged(runs[name][seed], best, trained)
        ]
    )
    rows["log"] = (rows["sent"] / rows["sent_by_lqd"]).map(math.log)
    return Shown(rows.drop(columns="log"), [_table(rows, trained)], verdict=[_verdict(rows, str(best))])


def _trained(settings: TrainingMethodsSettings, name: str, sides: Sides) -> Trained:
    folders = ",".join(str(dataset.path) for dataset in (*sides.train, *sides.validation, *sides.test))
    seeds = [f"split.{role}=[{','.join(map(str, given))}]" for role, given in settings.split.roles.items()]
    overrides = [f"datasets=[{folders}]", *seeds, *settings.shared_training, *settings.models[name]]
    config = compose_training(settings, overrides, f"models.{name}")
    if config.objective.name in SENDING:
        runs, judges = sides.in_memory
        began = time.process_time()
        return _for_sending(config, sides.train, runs, judges, began)
    began = time.process_time()
    result = train_model(config)
    return Trained(result.model, result.outcome["columns"], time.process_time() - began, None)


def _for_sending(
    config: TrainConfig, train: Sequence[Dataset], runs: list[KnownRun], judges: list[KnownRun], began: float
) -> Trained:
    """As ``foretail train``, without its scores of labels."""
    sending = train_on_runs(
        config.objective,
        lambda: untrained(config.predictor, config.trainer, window_of(config.predictor, config.window)),
        runs,
        judges,
        feature_inputs(config.features.names, train),
        rows=tuple(dataset.manifest.content_sha256 for dataset in train),
        jobs=os.cpu_count() or 1,  # threads change no result
    )
    return Trained(sending.best.model, config.features.names, time.process_time() - began, sending.rounds[-1].rows)


def _judged(dataset: Dataset, best: Baseline, trained: Mapping[str, Trained]) -> Iterator[dict[str, Any]]:
    """A row for the best policy that asks nobody and for each model, in data bytes."""
    run = KnownRun.of(dataset)
    lqd = run.lqd * PACKET_BYTES
    tuned_sent = run.sent(best.policy) if best.alpha is None else run.sent(best.policy, alpha=[best.alpha])
    yield {"policy": str(best), "sent": tuned_sent * PACKET_BYTES, "sent_by_lqd": lqd}
    for name, one in trained.items():
        sent = run.sent(asking_policy(one.model), scorer_of(one.model)) * PACKET_BYTES
        yield {"policy": name, "sent": sent, "sent_by_lqd": lqd}


def _table(rows: pd.DataFrame, trained: Mapping[str, Trained]) -> Table:
    """What each method sends, its worst unseen workload, and what it took."""
    found = []
    by_workload = rows.groupby(["policy", "held_out", "workload"], sort=False)["log"].mean()
    for name in dict.fromkeys(rows["policy"]):
        unseen = by_workload[name].get(True, pd.Series(dtype=float))
        one = trained.get(name)
        row = {
            "trained": name,
            TRAINED_ON: _mean(by_workload[name][False]),
            UNSEEN: _mean(unseen),
            "least unseen": f"{100 * math.exp(unseen.min()):.2f}" if len(unseen) else "-",
            "CPU s": None if one is None else round(one.cpu_seconds),
            "rows": None if one is None else one.rows,
        }
        found.append(row)
    note = (
        "Sent, % of LQD: geometric means over workloads with 95 % intervals. A model of labels trains on all rows of "
        "the datasets. Searches of the same threshold on the same runs are made once, and count where they are made."
    )
    return Table.of_rows("Ways to train for what is sent", found, note)


def _mean(logs: pd.Series) -> str:
    """The geometric mean in % with its interval."""
    if logs.empty:
        return "-"
    found = in_percent(mean_interval(logs.tolist()))
    interval = "" if found.low is None else f" [{found.low:.1f}, {found.high:.1f}]"
    return f"{found.mean:.2f}{interval}"


def _verdict(rows: pd.DataFrame, policy: str) -> str:
    means = rows.groupby(["held_out", "policy"], sort=False)["log"].mean()
    words = []
    for held_out in dict.fromkeys(rows["held_out"]):
        some = means[held_out].drop(policy)
        where = UNSEEN if held_out else TRAINED_ON
        words.append(
            f"{where} {some.idxmax()} sends most, {100 * math.exp(some.max()):.2f} % of LQD's packets, and {policy} "
            f"sends {100 * math.exp(means[held_out][policy]):.2f} %"
        )
    sentence = "; ".join(words)
    return f"{sentence[0].upper()}{sentence[1:]}."


TRAINING_METHODS = FunctionExperiment(TrainingMethodsSettings, show)
