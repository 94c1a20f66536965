"""Predictors on held-out runs: scores, the champion, leakage between splits, shift, and size.

What a random split of rows pretends: scores by number of trees, split by row, by time and by run.

Source: Credence (NSDI'24), section 5 and Figure 15, whose scores come from rows drawn at random. Neighbouring packets
of one burst are then on both sides, so such a score says how well a forest remembers. It is computed here, and nowhere
else, to show how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import JobSettings
from foretail.configs.schema.model_stages import PromoteConfig, TrainConfig
from foretail.configs.schema.tracking import Tracking
from foretail.core.code import code_digest
from foretail.core.settings import setting
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.drop.forest import RandomForest
from foretail.models.mlflow.registry import alias_holder
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.models.scoring.figure_style import panels, styled, with_legend
from foretail.models.scoring.metrics import Confusion, rank
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.network import decider_if_any
from foretail.pipelines.promotion.promoting import PromoteResult, promote_model
from foretail.pipelines.runs.points import Point, measure_points
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Key, Store
from foretail.pipelines.settings.compose import compose_settings, compose_training
from foretail.pipelines.settings.predictors import window_of
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.training.fitting import TrainResult, train_model
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

    def point(dataset: Dataset, name: str) -> Point:
        def measure(so_far: Any) -> Any:
            so_far("")
            return _measured(dataset, trained.get(name), configs.get(name))

        model = trained[name].model.sha256 if name in trained else None
        columns = trained[name].outcome["columns"] if name in trained else None
        key = {"model": model, "columns": columns, "dataset": dataset.manifest.content_sha256, "code": code}
        return Point(f"{name} on {condition}, seed {dataset.manifest.seed}", Key(POINT, key), measure)

    pairs = [(dataset, name) for dataset in runs for name in (ACCEPT, *trained)]
    points = [point(dataset, name) for dataset, name in pairs]
    measured = measure_points("held-out runs", points, Store(config.store_dir), config.jobs or 1)
    return [
        HeldOut(
            name,
            condition,
            dataset.manifest.seed,
            seen,
            Confusion(**one.figures["whole"]),
            Confusion(**one.figures["asked"]),
            one.figures["average_precision"],
            SentScores(**one.figures["replay"]),
        )
        for (dataset, name), one in zip(pairs, measured, strict=True)
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


@styled
def draw_by_trees(rows: pd.DataFrame, scores: Sequence[str], by: str) -> Figure:
    """Scores by number of trees: a panel per score, a line per value of the column `by`."""
    figure, row = panels(len(scores), inches=(3 * len(scores) + 1, 3), sharex=True)
    counts = sorted(set(rows["trees"]))
    for axes, score in zip(row, scores, strict=True):
        for value, line in rows.groupby(by, sort=False):
            axes.plot(line["trees"], line[score], marker="o", label=str(value))
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, labels=[str(count) for count in counts])
        axes.set(title=score, xlabel="trees")
    return with_legend(figure, row[0], title=by)


METRIC = "slowdown.incast.p95"
F1, RECOVERED, INCAST = "F1 of the asked region", "recovered loss R", "incast p95 of Credence over LQD"
LIMITS = {F1: (0.0, 1.0), RECOVERED: (-1.0, 1.0), SENT: (95.0, 100.0), INCAST: (0.9, 1.1)}
"""Limits of the colours; differences that do not matter look alike."""
Matrix = Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class ShiftMatrix:
    """One predictor per condition, on runs of all conditions."""

    conditions: Sequence[str]  #: in order
    #: by condition of the training and of the test, one entry per run
    held_out: Mapping[tuple[str, str], Sequence[HeldOut]]
    #: the same with LQD and Credence in closed loop; empty without simulations
    closed_loop: Mapping[tuple[str, str], FlowsResult]

    def matrices(self) -> dict[str, Matrix]:
        """Return the matrices that are shown, by title."""
        replays = {pair: SentScores.together([run.replay for run in runs]) for pair, runs in self.held_out.items()}
        matrices: dict[str, Matrix] = {
            F1: {pair: _f1(runs) for pair, runs in self.held_out.items()},
            RECOVERED: {pair: matrices.recovered_loss for pair, matrices in replays.items()},
            SENT: {pair: matrices.sent_percent_of_lqd for pair, matrices in replays.items()},
        }
        if self.closed_loop:
            matrices[INCAST] = {pair: _ratio(flows) for pair, flows in self.closed_loop.items()}
        return matrices

    def frame(self) -> pd.DataFrame:
        """One row per pair of conditions, one column per matrix."""
        matrices = self.matrices()
        return pd.DataFrame(
            [
                {
                    "trained_on": one,
                    "tested_on": other,
                    **{title: matrix[one, other] for title, matrix in matrices.items()},
                }
                for one in self.conditions
                for other in self.conditions
            ]
        )

    def tables(self) -> list[Table]:
        """A table per matrix: rows train, columns test."""
        return [
            Table(
                f"Shift: {title}",
                ("trained on", *self.conditions),
                tuple((one, *(matrix[one, other] for other in self.conditions)) for one in self.conditions),
            )
            for title, matrix in self.matrices().items()
        ]

    @styled
    def draw(self) -> Figure:
        """A heat map per matrix."""
        matrices = self.matrices()
        size = len(self.conditions)
        figure, row = panels(len(matrices), inches=((1.6 + 0.75 * size) * len(matrices), 1.3 + 0.6 * size), grid="")
        for axes, (title, matrix) in zip(row, matrices.items(), strict=True):
            values = np.array(
                [[matrix[one, other] for other in self.conditions] for one in self.conditions], np.float64
            )
            low, high = LIMITS[title]
            image = axes.imshow(values, cmap="viridis", vmin=low, vmax=high)
            middle = (low + high) / 2
            for (row, column), value in np.ndenumerate(values):
                color = "white" if value < middle else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize="small")
            axes.set_xticks(range(size), self.conditions, rotation=45, ha="right")
            axes.set_yticks(range(size), self.conditions)
            axes.set(title=title, xlabel="tested on", ylabel="trained on")
            figure.colorbar(image, ax=axes, shrink=0.8, extend="both" if title != F1 else "neither")
        return figure


def shift_matrix(
    conditions: Sequence[str],
    judged: Callable[[str, str], Sequence[HeldOut]],
    simulated: Callable[[str, str], FlowsResult] | None,
) -> ShiftMatrix:
    """Fill the matrix; the callables get the condition of the training and that of the test."""
    pairs = [(one, other) for one in conditions for other in conditions]
    return ShiftMatrix(
        conditions,
        {pair: judged(*pair) for pair in pairs},
        {} if simulated is None else {pair: simulated(*pair) for pair in pairs},
    )


def _f1(runs: Sequence[HeldOut]) -> float | None:
    f1 = HeldOut.together(runs)["F1"]
    return f1 if isinstance(f1, float) else None


def _ratio(flows: FlowsResult) -> float | None:
    lqd, credence = (flows.means(METRIC)[policy].mean for policy in ("lqd", "credence"))
    return credence / lqd if credence is not None and lqd else None


CAPTION = "F1 by the number of trees, a line per depth."
SCORES = ("precision", "recall", "f1", "average_precision")


@dataclass
class ForestSizeSettings(JobSettings):
    """Forests of several sizes, all trained on the same runs."""

    train: list[str] = setting([], "Overrides of foretail train that all forests share.")
    trees: list[int] = setting(MISSING, "Numbers of trees.", at_least=1, at_most=1024)
    depths: list[int] = setting(MISSING, "Depths of the trees.", at_least=1, at_most=64)


def show(settings: ForestSizeSettings, run: Run) -> Shown:
    """Train every forest, inside the experiment's run in MLflow, and show its scores on the test runs."""
    inside, rows = replace(settings, tracking=run.inside(replace(settings.tracking, registered_model=None))), []
    for trees, depth in product(settings.trees, settings.depths):
        overrides = [*settings.train, f"predictor.trees={trees}", f"predictor.depth={depth}"]
        config = replace(compose_training(inside, overrides, "train"), jobs=settings.jobs)
        scores = train_model(config).outcome["scores"]["test"]
        region = scores.get("asked") or scores["whole"]
        rows.append({"trees": trees, "depth": depth, **{name: region.get(name) for name in SCORES}})
    frame = pd.DataFrame(rows)
    columns = {name: name.replace("_", " ") for name in ("trees", "depth", *SCORES)}
    table = Table.of_frame("Forests by their size, on the test runs", frame, columns, "scores where Credence asks")
    return Shown(frame, [table], {"": Drawn(draw_by_trees(frame, ["f1"], "depth"), CAPTION)})


FOREST_SIZE = FunctionExperiment(ForestSizeSettings, show)
