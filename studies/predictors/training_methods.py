"""Ways to train a predictor for what it sends, on the workloads of promise: what each sends, and what it costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from foretail.configs.schema.fields import setting
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.data.collecting import made_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_settings, compose_training
from foretail.pipelines.training.fitting import train_model
from foretail.pipelines.training.outcome import TrainResult
from foretail.pipelines.training.scores import judge_run
from foretail.sim_bridge.open_loop.baselines import bytes_sent, tuned
from foretail.studies.predictors.promise import PromiseSettings, in_percent

TRAINED_ON, UNSEEN = "within", "unseen"


@dataclass
class TrainingMethodsSettings(PromiseSettings):
    """Models by the way in which they are trained, on the workloads of promise."""

    shared_training: list[str] = setting([], "Overrides of foretail train that all models share.")


@dataclass(frozen=True)
class Trained:
    """A model, and what its training took."""

    result: TrainResult
    cpu_seconds: float  #: of all threads of the process
    rows: int | None  #: of the last round; None of labels, which take the rows of the datasets


def show(settings: TrainingMethodsSettings, run: Run) -> Shown:
    """Train every model, and judge it on the test runs beside the best policy that asks nobody."""
    split = settings.split
    training = (*split.train, *split.validation)
    runs = {
        name: _collected(settings, name, (*training, *split.test) if name in settings.train_on else split.test)
        for name in settings.workloads
    }
    inside = replace(settings, tracking=run.inside(replace(settings.tracking, registered_model=None)))
    trained = {name: _trained(inside, name, runs) for name in settings.models}
    best = tuned([runs[name][seed] for name in settings.train_on for seed in training])[0]
    rows = pd.DataFrame(
        [
            {"workload": name, "held_out": name not in settings.train_on, "seed": seed, **row}
            for name, of in runs.items()
            for seed in split.test
            for row in (
                {"policy": str(best), "sent": bytes_sent(of[seed], [best])[0]},
                *_judged(of[seed], trained),
            )
        ]
    )
    lqd = rows.groupby(["workload", "seed"])["sent_by_lqd"].transform("max").astype("int64")
    rows = rows.assign(sent_by_lqd=lqd, log=[math.log(s / q) for s, q in zip(rows["sent"], lqd, strict=True)])
    return Shown(rows.drop(columns="log"), [_table(rows, trained)], verdict=[_verdict(rows, str(best))])


def _collected(settings: TrainingMethodsSettings, name: str, seeds: Sequence[int]) -> dict[int, Dataset]:
    overrides = ["source=slotted", *settings.shared, *settings.workloads[name]]
    config = compose_settings(CollectConfig, overrides, f"workloads.{name}")
    made = made_runs(replace(config, seeds=list(seeds), store_dir=settings.store_dir, jobs=settings.jobs))
    return {one.seed: Dataset.open(Path(one.path)) for one in made}


def _trained(settings: TrainingMethodsSettings, name: str, runs: Mapping[str, Mapping[int, Dataset]]) -> Trained:
    split = settings.split
    folders = [
        str(runs[workload][seed].path)
        for workload in settings.train_on
        for seeds in split.roles.values()
        for seed in seeds
    ]
    seeds = [f"split.{role}=[{','.join(map(str, given))}]" for role, given in split.roles.items()]
    overrides = [f"datasets=[{','.join(folders)}]", *seeds, *settings.shared_training, *settings.models[name]]
    config = compose_training(settings, overrides, f"models.{name}")
    began = time.process_time()
    result = train_model(config)
    sending = result.outcome["sending"]
    rows = None if sending is None else sending["rounds"][-1]["rows"]
    return Trained(result, time.process_time() - began, rows)


def _judged(dataset: Dataset, trained: Mapping[str, Trained]) -> Iterator[dict[str, Any]]:
    for name, one in trained.items():
        replay = judge_run(one.result.model, dataset, one.result.outcome["columns"]).replay
        yield {"policy": name, "sent": replay.credence_bytes, "sent_by_lqd": replay.lqd_bytes}


def _table(rows: pd.DataFrame, trained: Mapping[str, Trained]) -> Table:
    """What each method sends, its worst unseen workload, and what it took."""
    found = []
    by_workload = rows.groupby(["policy", "held_out", "workload"], sort=False)["log"].mean()
    for name in dict.fromkeys(rows["policy"]):
        unseen = by_workload[name].get(True, pd.Series(dtype=float))
        one = trained.get(name)
        row = {
            "trained": name,
            TRAINED_ON: interval_text(in_percent(mean_interval(by_workload[name][False].tolist())), ""),
            UNSEEN: interval_text(in_percent(mean_interval(unseen.tolist())), "") if len(unseen) else "-",
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
