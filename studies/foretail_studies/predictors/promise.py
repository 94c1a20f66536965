"""Worth of predictions beside policies that need none, on workloads that trained them and on others.

Every policy without a predictor has the setting that sends most on the very runs that trained the predictors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.training import Objective, Split
from foretail.core.errors import ForetailError
from foretail.core.settings import part, setting, share_setting
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.scorers import POLICY, asking_policy, scorer_of
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.collecting import made_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_settings, compose_training
from foretail.pipelines.training.fitting import TrainResult, train_model
from foretail.pipelines.training.sending import search_each
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.arrivals.files import PACKET_BYTES
from foretail.sim_bridge.open_loop.baselines import Baseline, tuned
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import Contender, bytes_sent
from foretail.sim_bridge.open_loop.scores import recovered_loss
from foretail.sim_bridge.policies import ASKING

PORTS = (10, 16, 20, 20, 20, 32, 40)
BUFFER_PER_PORT = (25, 50, 50, 80)
MOST_TIMES_SLOTS = 10
"""Limit of the slots of rare bursts, as a multiple of the slots of other workloads."""


def drawn_workloads(count: int, seed: int, slots: int = 20_000) -> dict[str, list[str]]:
    """Return overrides of ``foretail collect`` for incasts, on-off sources and bursts in turn, by what was drawn.

    Incasts and on-off sources last `slots`, bursts up to ten times as long, so that rare ones bring as many packets.
    The first workloads of a seed do not depend on how many are drawn.

    Examples
    --------
    >>> from foretail_studies.predictors.promise import drawn_workloads
    >>> first, *_ = drawn_workloads(3, seed=1).values()
    >>> first[0]
    'slotted.workload=incast'
    """
    draw = np.random.default_rng(seed)
    overrides = {}
    for number in range(count):
        ports, per_port = int(draw.choice(PORTS)), int(draw.choice(BUFFER_PER_PORT))
        workload, settings = drawn_traffic(draw, number % 3, ports)
        written = ", ".join(f"{name}: {value}" for name, value in settings.items())
        overrides[f"{workload}({written}), {ports} x {per_port}, {seed}.{number}"] = [
            f"slotted.workload={workload}",
            f"slotted.settings={{{written}}}",
            f"slotted.ports={ports}",
            f"slotted.buffer_per_port={per_port}",
            f"slotted.slots={_slots(workload, settings, slots)}",
        ]
    return overrides


def drawn_traffic(draw: np.random.Generator, kind: int, ports: int) -> tuple[str, dict[str, Any]]:
    """Return a workload of a kind, 0 to 2, and its settings."""
    if kind == 0:
        return "incast", {
            "fan_in": int(draw.integers(3, min(ports, 16) + 1)),
            "background_load": round(float(draw.uniform(0.3, 0.8)), 2),
            "load": round(float(draw.uniform(0.05, 0.3)), 2),
            "burst_fraction": _between(draw, 0.2, 1.0),
        }
    if kind == 1:
        return "on_off", {
            "load": round(float(draw.uniform(0.5, 0.95)), 2),
            "mean_on_slots": int(np.exp(draw.uniform(np.log(40), np.log(400)))),
        }
    return "poisson_bursts", {"load": _between(draw, 0.04, 0.6), "burst_fraction": _between(draw, 0.15, 1.0)}


def _between(draw: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return round(math.exp(draw.uniform(math.log(low), math.log(high))), 2)


def _slots(workload: str, settings: dict[str, Any], slots: int) -> int:
    if workload != "poisson_bursts":
        return slots
    long = min(max(int(1.2 * slots / settings["load"]), slots), MOST_TIMES_SLOTS * slots)
    return max(1000, long // 1000 * 1000)


ACCEPT, LQD, OWN = "always accept", "LQD", "rule of the workload"
USUAL_DT = Baseline("dt", 0.5)
LEAST_LOST = 0.01
"""Share of LQD's bytes that always accepting has to lose, so that there is something to recover."""
WITHIN, UNSEEN, DRAWN = "workloads that trained it", "workloads never seen", "drawn workloads never seen"


@dataclass
class PromiseSettings(PointSettings):
    """Predictors and tuned policies on workloads in slots; overrides are written as on the command line."""

    shared: list[str] = setting([], "Overrides of foretail collect that all workloads share.")
    workloads: dict[str, list[str]] = setting(MISSING, "Overrides of foretail collect, by the workload's name.")
    train_on: list[str] = setting(MISSING, "Workloads whose runs train, and tune policies; the others judge only.")
    drawn_training: int = setting(
        0, "Number of workloads drawn at random that train and tune too; no run of them is judged.", at_least=0
    )
    training_draw: int = setting(1, "Seed by which the drawn training workloads are drawn.", at_least=0)
    drawn_unseen: int = setting(0, "Number of workloads drawn at random that judge only.", at_least=0)
    unseen_draw: int = setting(2, "Seed by which the drawn workloads that judge are drawn.", at_least=0)
    drawn_slots: int = setting(
        20_000, "Slots of a drawn workload; rare bursts last up to ten times as long.", at_least=1
    )
    split: Split = part(Split, "Seeds of the runs of every workload, split by run.")
    models: dict[str, list[str]] = setting(MISSING, "Overrides of foretail train, by the model's name.")
    label_seeds: list[int] | None = setting(
        None,
        "Training seeds whose runs train models of labels, which take all rows of every workload; null means all of "
        "split.train.",
    )
    own_trials: int = setting(
        600,
        "Number of rules that a search tries on the training runs of each workload: no model, but what a rule that "
        "knows the workload sends there.",
        at_least=1,
        at_most=10**7,
    )
    inverted: list[float] = share_setting([0.0, 0.01, 0.05, 0.1, 0.5], "Shares of a model's answers that are inverted.")
    under: list[str] = setting(
        ["learned", "credence", "guarded"], "Policies that ask the model whose answers are inverted."
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on names that mean nothing here, and on another split than by run."""
        super().check(where)
        if self.split.name != "by_run":
            raise ForetailError(f"split is {self.split.name}, and promise holds whole runs out: use by_run")
        for name in self.train_on:
            if name not in self.workloads:
                raise ForetailError(f"train_on names {name}, which is not among {', '.join(self.workloads)}")
        for seed in self.label_seeds or []:
            if seed not in (self.split.train or []):
                raise ForetailError(f"label_seeds names {seed}, which is not among split.train: {self.split.train}")
        if self.training_draw == self.unseen_draw and self.drawn_training and self.drawn_unseen:
            raise ForetailError(
                f"training_draw and unseen_draw are both {self.unseen_draw}, so the same workloads would train and "
                "judge: give two seeds"
            )
        for name in self.under:
            if name not in ASKING:
                raise ForetailError(f"under names {name}, which asks no predictor: choose from {', '.join(ASKING)}")

    @cached_property
    def drawn(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The drawn workloads that train and those that judge, by name."""
        return (
            drawn_workloads(self.drawn_training, self.training_draw, self.drawn_slots),
            drawn_workloads(self.drawn_unseen, self.unseen_draw, self.drawn_slots),
        )

    @property
    def training(self) -> list[str]:
        """Names of the workloads that train."""
        return [*self.train_on, *self.drawn[0]]

    @property
    def judging(self) -> list[str]:
        """Names of the workloads whose test runs are judged."""
        return [*self.workloads, *self.drawn[1]]

    def columns_of(self, name: str) -> dict[str, Any]:
        """Return the columns that describe a workload in its rows."""
        return {"workload": name, "held_out": name not in self.train_on, "drawn": name in self.drawn[1]}


def show(settings: PromiseSettings, run: Run) -> Shown:
    """Collect, train, tune, and judge all of them on the test runs."""
    split = settings.split
    runs = all_collected(settings, split.all_seeds)
    inside = replace(settings, tracking=run.inside(replace(settings.tracking, registered_model=None)))
    trained = {name: train_model(_training(inside, runs, name)) for name in settings.models}
    policies = tuned([runs[name][seed] for name in settings.training for seed in (*split.train, *split.validation)])
    judged = {name: runs[name] for name in settings.judging}
    rules = _own_rules(settings, judged)
    rows = pd.DataFrame(
        [
            {**settings.columns_of(name), "seed": seed, **row}
            for name, of in judged.items()
            for seed in split.test
            for row in _measured(of[seed], policies, trained, rules[name])
        ]
    )
    summary = _summary(rows)
    best = _best_model(summary)
    tests = {name: [of[seed] for seed in split.test] for name, of in judged.items()}
    wrong = _inverted(settings, tests, trained, best)
    return Shown(
        pd.concat([rows, wrong], ignore_index=True),
        [_table(summary), _by_workload(rows), *_wrong_table(rows, wrong, best)],
        frames={f"{settings.experiment}.csv": summary},
        verdict=_verdict(rows, summary, best),
    )


def _training(settings: PromiseSettings, runs: Mapping[str, Mapping[int, Dataset]], name: str) -> TrainConfig:
    """The settings with which a model is trained on the workloads that train."""
    where, own = f"models.{name}", settings.models[name]
    split = settings.split
    if settings.label_seeds is not None and compose_training(settings, own, where).objective.name != "sent":
        split = replace(split, train=settings.label_seeds)
    folders = (str(runs[one][seed].path) for one in settings.training for seed in split.all_seeds if seed in runs[one])
    seeds = [f"split.{role}=[{','.join(map(str, given))}]" for role, given in split.roles.items()]
    return compose_training(settings, [f"datasets=[{','.join(folders)}]", *seeds, *own], where)


def all_collected(settings: PromiseSettings, seeds: Sequence[int]) -> dict[str, dict[int, Dataset]]:
    """Return runs of every workload by name and seed: of these seeds those that are judged, the others for training."""
    training, unseen = settings.drawn
    overrides = {**settings.workloads, **unseen, **training}
    fitting = [*settings.split.train, *settings.split.validation]
    return {
        name: collected(settings, name, own, fitting if name in training else seeds) for name, own in overrides.items()
    }


def collected(settings: PromiseSettings, name: str, own: Sequence[str], seeds: Sequence[int]) -> dict[int, Dataset]:
    """Return the runs of a workload by their seeds, from the store or made now."""
    overrides = ["source=slotted", *settings.shared, *own]
    config = compose_settings(CollectConfig, overrides, f"workloads.{name}")
    made = made_runs(replace(config, seeds=list(seeds), store_dir=settings.store_dir, jobs=settings.jobs))
    return {one.seed: Dataset.open(Path(one.path)) for one in made}


def _own_rules(settings: PromiseSettings, runs: Mapping[str, Mapping[int, Dataset]]) -> dict[str, Scorer]:
    """Return a threshold for each workload, searched on its own training runs, whether models train there or not."""
    rules = {}
    with StageProgress() as progress:
        for name, of in runs.items():
            own = [of[seed] for seed in settings.split.train]
            (searched,) = search_each(
                Objective(name="sent", trials=settings.own_trials),
                [KnownRun.of(dataset) for dataset in own],
                [dataset.manifest.content_sha256 for dataset in own],
                jobs=os.cpu_count() or 1,  # threads change no result
                report=partial(progress.update, f"rule of {name}"),
            ).values()
            rules[name] = searched.rule.scorer()
    return rules


def _measured(
    dataset: Dataset, policies: tuple[Baseline, ...], trained: Mapping[str, TrainResult], rule: Scorer
) -> Iterator[dict[str, Any]]:
    """A row for each policy on a run, in data bytes."""
    models = {name: one.ensemble for name, one in trained.items()}
    every: dict[tuple[str, str], Contender] = {
        (ACCEPT, ""): ("followlqd", None, None),
        **{(one.policy, "default" if one is USUAL_DT else str(one)): one.contender for one in (USUAL_DT, *policies)},
        **{(name, "model"): (asking_policy(one), None, scorer_of(one)) for name, one in models.items()},
        (OWN, ""): ("learned", None, rule),
        (LQD, ""): ("lqd", None, None),
    }
    sent = dict(zip(every, bytes_sent(dataset, list(every.values())), strict=True))
    for (policy, how), count in sent.items():
        yield _row(policy, how, count, sent[LQD, ""], sent[ACCEPT, ""])


def _row(policy: str, how: str, sent: int, lqd: int, accept: int) -> dict[str, Any]:
    """Data bytes that a policy sends, beside those of LQD and of always accepting."""
    recovered = recovered_loss(lqd, sent, accept) if lqd - accept >= LEAST_LOST * lqd else None
    sums = {"sent": sent, "sent_by_lqd": lqd, "sent_by_accept": accept}
    return {"policy": policy, "setting": how, **sums, "recovered": recovered}


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean recovered loss with its interval over runs, and what is sent with its interval over workloads.

    What is sent is the geometric mean over LQD's, of the runs of a workload and then of the workloads.
    """
    records = []
    for (where, policy, how), some in rows.groupby([kinds(rows), "policy", "setting"], sort=False):
        interval = mean_interval([None if pd.isna(value) else float(value) for value in some["recovered"]])
        logs = (some["sent"] / some["sent_by_lqd"]).map(math.log).groupby(some["workload"]).mean()
        sent = mean_interval(logs.tolist())
        records.append(
            {
                "where": where,
                "policy": {"": policy, "model": f"model {policy}", "default": f"{USUAL_DT}, default"}.get(
                    str(how), how
                ),
                "name": f"{policy} default" if how == "default" else policy,
                "model": how == "model",
                "mean": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "log_sent": sent.mean,
                "sent, % of LQD": interval_text(in_percent(sent), "", digits=4),
                "recovered": interval_text(interval, ""),
            }
        )
    return pd.DataFrame(records)


def kinds(rows: pd.DataFrame) -> pd.Series[str]:
    """The kind of workload of each row."""
    named = rows["held_out"].map({False: WITHIN, True: UNSEEN})
    return named.mask(rows["held_out"] & rows["drawn"], DRAWN).rename("where")


def _table(summary: pd.DataFrame) -> Table:
    columns = {name: name for name in ("where", "policy", "recovered", "sent, % of LQD")}
    note = (
        "Recovered: over runs where always accepting loses at least 1 %. Sent: the geometric mean over workloads. In "
        "brackets are 95 % intervals, over runs and over workloads."
    )
    return Table.of_frame("What a prediction is worth", summary, columns, note)


def _by_workload(rows: pd.DataFrame) -> Table:
    """Per workload what is sent, in % of LQD, by a column for each policy."""
    sent = rows.assign(share=100 * rows["sent"] / rows["sent_by_lqd"])
    wide = sent.assign(name=_names(sent)).pivot_table(index="workload", columns="name", values="share", sort=False)
    frame = wide.drop(columns=LQD).reset_index()
    return Table.of_frame("Sent, % of LQD", frame, {name: str(name) for name in frame.columns}, "means over test runs")


def in_percent(logs: PairedDifference) -> PairedDifference:
    """Return the interval of a mean logarithm as a geometric mean in %."""

    def of(value: float | None) -> float | None:
        return None if value is None else 100 * float(np.exp(value))

    return replace(logs, mean=of(logs.mean), low=of(logs.low), high=of(logs.high))


def _best_model(summary: pd.DataFrame) -> str:
    """The model that sends most on new runs of the workloads that trained it."""
    within = summary[summary["model"] & (summary["where"] == WITHIN)]
    return str(within.sort_values("log_sent")["name"].iloc[-1])


def _inverted(
    settings: PromiseSettings, runs: Mapping[str, list[Dataset]], trained: Mapping[str, TrainResult], model: str
) -> pd.DataFrame:
    """Rows of one model whose answers are partly inverted, under policies that ask it; none of a model of labels."""
    ensemble = trained[model].ensemble
    if POLICY not in ensemble.origin:
        return pd.DataFrame()
    scorer = scorer_of(ensemble)
    records = []
    for name, datasets in runs.items():
        for dataset in datasets:
            run, seed = KnownRun.of(dataset), dataset.manifest.seed
            lqd, accept = PACKET_BYTES * run.lqd, PACKET_BYTES * run.sent("followlqd")
            for under, share in product(settings.under, settings.inverted):
                sent = PACKET_BYTES * run.sent(under, scorer, inverted=share, draw=seed)
                row = _row(f"{model} under {under}", f"{100 * share:g} % inverted", sent, lqd, accept)
                records.append({**settings.columns_of(name), "seed": seed, **row})
    return pd.DataFrame(records)


def _wrong_table(rows: pd.DataFrame, wrong: pd.DataFrame, model: str) -> list[Table]:
    """Return tables of what is sent with wrong answers, in % of LQD, beside the policy tuned on the same runs."""
    if wrong.empty:
        return []
    tuned_rows = rows[~rows["setting"].isin(["", "default", "model"])]
    best = tuned_rows["setting"].iloc[0]
    parts = []
    for where, some in wrong.groupby(kinds(wrong), sort=False):
        share = (some["sent"] / some["sent_by_lqd"]).map(math.log)
        wide = (
            some.assign(log=share).groupby(["setting", "policy"], sort=False)["log"].mean().map(_as_percent).unstack()
        )
        beside = tuned_rows[(kinds(tuned_rows) == where) & (tuned_rows["setting"] == best)]
        wide[str(best)] = _as_percent((beside["sent"] / beside["sent_by_lqd"]).map(math.log).mean())
        parts.append(wide.reset_index().assign(where=where))
    frame = pd.concat(parts)
    columns = ["where", "setting", *(name for name in frame.columns if name not in ("where", "setting"))]
    note = "geometric means over test runs"
    return [
        Table.of_frame(f"Model {model} with wrong answers: sent, % of LQD", frame, {n: str(n) for n in columns}, note)
    ]


def _as_percent(log: float) -> float:
    return 100 * math.exp(log)


def _verdict(rows: pd.DataFrame, summary: pd.DataFrame, best: str) -> list[str]:
    """Compare one model with one tuned policy on each kind of workload: what it closes, and its worst workload.

    The model is the best on new runs of the workloads that trained it, the policy the best on the training runs.
    """
    sentences = []
    for where, some in summary.groupby("where", sort=False):
        others = some[~some["model"] & ~some["policy"].isin([LQD, ACCEPT, OWN, f"{USUAL_DT}, default"])]
        tuned_one = others.iloc[0]  # the best on the runs on which all were tuned
        model = some[some["name"] == best].iloc[0]
        logs = _logs(rows[kinds(rows) == where])
        gain = logs[model["name"]] - logs[tuned_one["name"]]
        least = logs[[tuned_one["name"], ACCEPT]].max(axis=1)
        worst = (logs[model["name"]] - least).sort_values()
        lost = -logs[tuned_one["name"]].mean()
        of_rules = (logs[OWN] - logs[tuned_one["name"]]).mean()
        closes = (
            f"it closes {100 * gain.mean() / lost:.0f} % of the distance to LQD, rules that know the workload "
            f"{100 * of_rules / lost:.0f} %, "
            if lost > 0
            else ""
        )
        sentences.append(
            f"On {where}, model {model['name']} sends {model['sent, % of LQD']} % of what LQD sends and "
            f"{tuned_one['policy']} {tuned_one['sent, % of LQD']} %: {closes}"
            f"a gain of {interval_text(mean_interval((100 * gain).tolist()))} % over workloads. On {worst.index[0]} it "
            f"sends {100 * worst.iloc[0]:+.2f} % against the better of that policy and always accepting, its least."
        )
    return sentences


def _logs(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean logarithm of what is sent over LQD's: a row for each workload, a column for each policy."""
    logs = rows.assign(log=np.log(rows["sent"] / rows["sent_by_lqd"]), name=_names(rows))
    return logs.pivot_table(index="workload", columns="name", values="log", sort=False)


def _names(rows: pd.DataFrame) -> pd.Series[str]:
    return rows["policy"] + rows["setting"].map(lambda how: " default" if how == "default" else "")


PROMISE = FunctionExperiment(PromiseSettings, show)
