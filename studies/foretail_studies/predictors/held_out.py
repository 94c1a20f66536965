"""Predictors on held-out runs: scores, the champion, leakage between splits, and shift.

What a random split of rows pretends: scores by number of trees, split by row, by time and by run.

Source: Credence (NSDI'24), section 5 and Figure 15, whose scores come from rows drawn at random. Neighbouring packets
of one burst are then on both sides, so such a score says how well a forest remembers. It is computed here, and nowhere
else, to show how much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretail.configs.schema.model_stages import PromoteConfig, TrainConfig
from foretail.configs.schema.tracking import Tracking
from foretail.core.code import code_digest
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.drop.forest import RandomForest
from foretail.models.mlflow.registry import alias_holder
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.models.scoring.metrics import Confusion, rank
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.experiment.declaration import measure_cases
from foretail.pipelines.exporting.network import decider_if_any
from foretail.pipelines.promotion.promoting import PromoteResult, promote_model
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.predictors import window_of
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.training.fitting import TrainResult
from foretail.pipelines.training.scores import judge_run
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail.sim_bridge.open_loop.scores import SENT, SentScores

POINT = "held_out"
ACCEPT = "always_accept"
"""Name of the candidate that never predicts a drop."""


@dataclass(frozen=True)
class HeldOut:
    """A predictor on one run."""

    candidate: str  #: which predictor
    condition: str  #: on which run
    seed: int  #: of the run
    seen: bool  #: whether it trained on other runs of the condition
    whole: Confusion  #: counts of all rows
    asked: Confusion  #: of those where Credence asks
    average_precision: float | None  #: of the asked region; None without drops in it
    replay: SentScores  #: data bytes that are sent while it decides

    @staticmethod
    def together(runs: Sequence[HeldOut]) -> dict[str, Cell]:
        """Several runs together, by the titles of columns: of the asked region unless whole."""
        whole, asked = (
            Confusion(*(sum(getattr(getattr(run, region), name) for run in runs) for name in ("tp", "fp", "tn", "fn")))
            for region in ("whole", "asked")
        )
        replay = SentScores.together([run.replay for run in runs])
        eta = replay.eta
        return {
            "precision": asked.precision,
            "recall": asked.recall,
            "F1": asked.f1,
            "F1 per run": interval_text(mean_interval([run.asked.f1 for run in runs]), ""),
            "average precision": mean_interval([run.average_precision for run in runs]).mean,
            "whole F1": whole.f1,
            "1/eta": None if eta is None else 1 / eta,
            "R": replay.recovered_loss,
            SENT: replay.sent_percent_of_lqd,
        }


def judge_held_out(
    config: KeepsRuns,
    runs: Sequence[Dataset],
    condition: str,
    seen: bool,
    trained: Mapping[str, TrainResult],
    configs: Mapping[str, TrainConfig],
) -> list[HeldOut]:
    """Judge every predictor, and one that always accepts, on each run of a condition; figures go to the store.

    The runs are of seeds that are on no other side; `configs` is what the predictors were trained with, by name.
    """
    code = code_digest("features", "models", "sim_bridge")

    def depends_on(case: tuple[Dataset, str]) -> dict[str, Any]:
        dataset, name = case
        model = trained[name].model.sha256 if name in trained else None
        columns = trained[name].outcome["columns"] if name in trained else None
        return {"model": model, "columns": columns, "dataset": dataset.manifest.content_sha256, "code": code}

    def measure(case: tuple[Dataset, str], so_far: Any) -> Any:
        so_far("")
        return _measured(case[0], trained.get(case[1]), configs.get(case[1]))

    measured = measure_cases(
        "held-out runs",
        POINT,
        [(dataset, name) for dataset in runs for name in (ACCEPT, *trained)],
        config,
        name=lambda case: f"{case[1]} on {condition}, seed {case[0].manifest.seed}",
        depends_on=depends_on,
        measure=measure,
    )
    return [
        HeldOut(
            name,
            condition,
            dataset.manifest.seed,
            seen,
            Confusion(**figures["whole"]),
            Confusion(**figures["asked"]),
            figures["average_precision"],
            SentScores(**figures["replay"]),
        )
        for (dataset, name), figures in zip(measured.cases, measured.measurements, strict=True)
    ]


def _measured(dataset: Dataset, trained: TrainResult | None, config: TrainConfig | None) -> dict[str, Any]:
    """Figures of one predictor, or of always accepting, on one run."""
    if trained is None or config is None:
        frame = dataset.frame(["lqd_drop", "shadow_asked"])
        labels, asked = frame["lqd_drop"].to_numpy(), frame["shadow_asked"].to_numpy()
        predicted, precision = np.zeros_like(labels), None
        replay = replay_scores(dataset, predicted)
    else:
        window = window_of(config.predictor, config.window)
        columns = training_columns(config.features.names, config.features.own_queues)
        decider = decider_if_any(trained.model, Store(config.store_dir))
        judged = judge_run(trained.model, dataset, columns, decider, window)
        labels, asked, predicted = judged.rows.lqd_drop, judged.asked, judged.rows.predicted
        precision = rank(labels[asked], judged.rows.probability[asked]).average_precision
        replay = judged.replay
    return {
        "whole": asdict(Confusion.count(labels, predicted)),
        "asked": asdict(Confusion.count(labels[asked], predicted[asked])),
        "average_precision": precision,
        "replay": asdict(replay),
    }


CHAMPION = "champion"


@dataclass(frozen=True)
class Promotion:
    """The candidates that fit the budget, and what the gate said of the best."""

    #: by candidate, what is sent of the validation runs while it decides
    validation: Mapping[str, SentScores]
    chosen: str  #: the best of them
    gate: PromoteResult | None  #: None when it was champion already

    def document(self) -> dict[str, Any]:
        gate = None if self.gate is None else self.gate.document()
        validation = {
            name: {"recovered_loss": scores.recovered_loss, "sent_percent_of_lqd": scores.sent_percent_of_lqd}
            for name, scores in self.validation.items()
        }
        return {"validation": validation, "chosen": self.chosen, "gate": gate}

    def tables(self) -> list[Table]:
        """The choice, and the gate."""
        outcome = "was champion already" if self.gate is None else "is put up for champion"
        choice = Table(
            "Candidates within the budget",
            ("candidate", "R, validation runs", SENT),
            tuple(
                (name, scores.recovered_loss, scores.sent_percent_of_lqd) for name, scores in self.validation.items()
            ),
            (f"{self.chosen} {outcome}",),
        )
        return [choice, *([] if self.gate is None else self.gate.tables())]


def promote_best(
    candidates: Mapping[str, TrainResult],
    validation: Sequence[HeldOut],
    held_out: Sequence[Dataset],
    tracking: Tracking,
    store_dir: str,
    run_dir: Path,
) -> Promotion:
    """Choose by the loss that is recovered on validation runs, and send the best to the gate.

    Parameters
    ----------
    candidates : trees, trained in runs of `tracking`
    validation : the candidates on validation runs
    held_out : runs that none of them saw, for the gate, which proves C and P4 as well
    """
    scores = {
        name: SentScores.together([run.replay for run in validation if run.candidate == name]) for name in candidates
    }
    recovered = {name: one.recovered_loss for name, one in scores.items()}
    chosen = max(scores, key=lambda name: -math.inf if recovered[name] is None else float(recovered[name] or 0))
    model, store = candidates[chosen].ensemble, Store(store_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    model.save(run_dir / ENSEMBLE_FILE)
    holder = alias_holder(str(tracking.registered_model), CHAMPION, tracking_uri(tracking.uri, store.folder.parent))
    if holder is not None:
        held = load_model(f"models:/{tracking.registered_model}/{holder}", tracking, store)
        if held.sha256 == model.sha256:
            return Promotion(scores, chosen, None)
    gate = compose_settings(PromoteConfig, [f"model={run_dir / ENSEMBLE_FILE}", "p4=true"], "budget")
    paths = [str(dataset.path) for dataset in held_out]
    return Promotion(
        scores,
        chosen,
        promote_model(replace(gate, datasets=paths, store_dir=store_dir, tracking=tracking), run_dir / CHAMPION),
    )


SPLITS = ("by row", "by time", "by run")
TRAIN_SHARE = 0.6
"""Share of the rows that train, as in the paper; split by time, share of the drops."""

SHOWN = ("accuracy", "precision", "recall", "f1")


def leakage(
    run: Dataset, others: Sequence[Dataset], columns: Sequence[str], trees: Sequence[int], depth: int, seed: int
) -> list[dict[str, Any]]:
    """Return the scores of forests that decide at one half, on the rest of the run that they train on, and on others.

    `others` are traces of other seeds; `seed` is of the forests and of the draw of rows. Returns for every split and
    number of trees ``split``, ``trees``, ``drops`` (of the test rows) and the scores.
    """
    rows = read_rows((Selection(run),), columns)
    drawn = np.random.default_rng(seed).random(len(rows)) < TRAIN_SHARE
    drops = np.cumsum(rows.lqd_drop)
    first = drops <= TRAIN_SHARE * drops[-1]  # a run goes on long after its last drop
    apart = read_rows(tuple(Selection(other) for other in others), columns)
    sides = dict(zip(SPLITS, ((rows[drawn], rows[~drawn]), (rows[first], rows[~first]), (rows, apart)), strict=True))
    leaks = []
    for split, (train, test) in sides.items():
        for count in trees:
            forest = RandomForest(trees=count, depth=depth, seed=seed).fit(train.x, train.lqd_drop)
            confusion = Confusion.count(test.lqd_drop, forest.probability(test.x) > 0.5)
            scores = {name: getattr(confusion, name) for name in SHOWN}
            leaks.append({"split": split, "trees": count, "drops": confusion.tp + confusion.fn, **scores})
    return leaks


METRIC = "slowdown.incast.p95"
F1, RECOVERED, INCAST = "F1 of the asked region", "recovered loss R", "incast p95 of Credence over LQD"


def shift_row(trained_on: str, tested_on: str, runs: Sequence[HeldOut], flows: FlowsResult | None) -> dict[str, Any]:
    """Return the scores of a predictor that trained under a condition on runs of another.

    `flows` has LQD and Credence in closed loop; None without simulations.
    """
    replay = SentScores.together([run.replay for run in runs])
    row = {"trained_on": trained_on, "tested_on": tested_on, F1: HeldOut.together(runs)["F1"]}
    row |= {RECOVERED: replay.recovered_loss, SENT: replay.sent_percent_of_lqd}
    if flows is not None:
        lqd, credence = (flows.means(METRIC)[policy].mean for policy in ("lqd", "credence"))
        row[INCAST] = credence / lqd if credence is not None and lqd else None
    return row


def shift_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """A table per score: rows train, columns test."""
    conditions = list(dict.fromkeys(row["tested_on"] for row in rows))
    cells = {(row["trained_on"], row["tested_on"]): row for row in rows}
    return [
        Table(
            f"Shift: {title}",
            ("trained on", *conditions),
            tuple((one, *(cells[one, other][title] for other in conditions)) for one in conditions),
        )
        for title in (F1, RECOVERED, SENT, INCAST)
        if rows and title in rows[0]
    ]
