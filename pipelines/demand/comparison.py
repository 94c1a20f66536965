"""Demand predictors compared: trust chosen on validation runs, scores and schedules on test runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.features.demand.matrix import DemandSequence, SequenceSplit
from foretail.features.rows.splits import SIDES
from foretail.models.demand.averages import LastValue
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import PREDICTORS, kind_of, to_json
from foretail.models.demand.scores import Evaluation, ScheduleScore, Score, evaluate
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    chance_text,
    interval_text,
    mean_interval,
    paired_difference,
)
from foretail.pipelines.data.inputs import open_datasets, split_datasets
from foretail.pipelines.runs.result import Cell, Table, plain, write_result
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.datasets import describe_split, log_dataset
from foretail.pipelines.tracking.runs import address, run_note, tracked

PREDICTORS_FOLDER = "predictors"


@dataclass(frozen=True)
class Comparison:
    """Predictors on the runs of one workload."""

    workload: str  #: collectives by name, or ``datasets``
    split: SequenceSplit  #: its runs
    evaluations: Mapping[str, Evaluation]  #: by name, of the predictors
    last_value: Evaluation  #: what the last value does on the same runs
    files: Mapping[str, str]  #: by name, the trained predictors as ``predictor_file`` writes them

    @property
    def best(self) -> str:
        """The predictor of the highest throughput on the validation runs, with its trust; the first of equals."""
        return max(self.evaluations, key=lambda name: worth_of(self.evaluations[name], "validation").predicted)

    def differences(self, name: str) -> dict[str, PairedDifference]:
        """Throughput of a predictor less that of others, each with its own trust, paired by test run.

        ``last_value`` is less that of the last values, ``truth`` less that of the true matrices with the same trust.
        """
        by_run = _by_run(self.evaluations[name], "predicted")
        return {
            "last_value": paired_difference(by_run, _by_run(self.last_value, "predicted")),
            "truth": paired_difference(by_run, _by_run(self.evaluations[name], "true")),
        }

    def ratios(self, name: str) -> dict[int, PairedDifference]:
        """Mean of predicted over true throughput over the test runs, by trust."""
        evaluation = self.evaluations[name]
        return {
            trust: mean_interval([run.ratio for run in worth.by_run.values()])
            for (_, trust), worth in evaluation.test.schedules.items()
        }


@dataclass(frozen=True, repr=False)
class DemandResult(Summarised):
    """Worth of predictors."""

    config: DemandConfig  #: the settings
    predictors: Mapping[str, DemandPredictor]  #: by name
    comparisons: tuple[Comparison, ...]  #: one per workload
    tracked: Mapping[str, Any] | None = None  #: the run in MLflow, or None
    files: tuple[str, ...] = ()  #: the figure and its numbers, in the run folder
    captions: Mapping[str, str] = field(default_factory=dict)  #: what is seen on it

    def document(self) -> dict[str, Any]:
        split, kinds = self.config.split, self.config.demand_predictor
        return {
            "seeds": ({"draw": split.seed} if split.name == "drawn" else dict(split.roles))
            | {"schedule": self.config.seed, "job": self.config.job_seed},
            "routing": self.config.routing,
            "predictors": {
                name: {"name": kinds[name]["name"], "parameters": predictor.parameters()}
                for name, predictor in self.predictors.items()
            },
            "workloads": {
                comparison.workload: {
                    "nodes": comparison.split.test[0].nodes,
                    "runs": {side: [sequence.run for sequence in getattr(comparison.split, side)] for side in SIDES},
                    "last_value": _figures(comparison.last_value),
                    "best_on_validation": comparison.best,
                    "predictors": {
                        name: _figures(evaluation)
                        | {
                            "theta_minus": plain(comparison.differences(name)),
                            "theta_over_truth_by_trust": plain(comparison.ratios(name)),
                        }
                        for name, evaluation in comparison.evaluations.items()
                    },
                }
                for comparison in self.comparisons
            },
            "tracked": self.tracked,
            "files": self.files,
            "captions": self.captions,
        }

    def verdict(self) -> list[str]:
        """The best predictor of the first workload, and what it carries beside the last value and the truth."""
        first = self.comparisons[0]
        worth, last = worth_of(first.evaluations[first.best]), worth_of(first.last_value)
        less = first.differences(first.best)["last_value"]
        sentences = [
            f"On {first.workload}: {first.best}, best on the validation runs, carries {worth.predicted:.4g} times the "
            f"demand of the test runs; schedules of the last value carry {last.predicted:.4g}, of the truth "
            f"{worth.true:.4g}."
        ]
        if less.low is None or less.high is None:
            return [*sentences, "One test run cannot tell whether the difference to the last value is chance."]
        verdict = chance_text(less, "run", above="so predicting helps", below="so predicting does harm")
        verdict = verdict.removeprefix("which is ")
        return [*sentences, f"Against the last value that is {interval_text(less)}, {verdict}."]

    def tables(self) -> list[Table]:
        """Errors and throughput on the test runs, with the trust of the validation runs, and relative to it all."""
        config, first = self.config, self.comparisons[0]
        of_test = next(iter(first.evaluations.values())).test
        nodes, routing = first.split.test[0].nodes, config.routing.replace("_", "-")
        notes = [
            "theta: throughput on the true matrices, scaled to fill the uplinks, of the schedules of the predictions, "
            "without the duty cycle; truth: of those of the true matrices with the same k; last value: of those of the "
            "last matrices with their k. Differences are paired by run, with 95 % t intervals.",
            f"{_runs(first.split.test, 'test')}: {of_test.steps} steps"
            + (f", and {of_test.idle_steps} without demand" if of_test.idle_steps else "")
            + f"; k chosen from {', '.join(map(str, config.trusts))} on {_runs(first.split.validation, 'other')}.",
        ]
        for comparison in self.comparisons:
            less = {of: interval_text(difference) for of, difference in comparison.differences(comparison.best).items()}
            notes.append(
                f"{comparison.workload}: best on the validation runs is {comparison.best}, on the test runs "
                f"{less['last_value']} against the last value and {less['truth']} against the truth."
            )
        by_trust = "Means over the test runs, with 95 % t intervals; least of a step: with the k above."
        columns = ("k", "error", "error of shape", "theta", "last value", "truth", "minus last value", "minus truth")
        return [
            Table(
                f"Predicted demand: {nodes} nodes, degree {config.degree}, {routing}",
                ("workload", "predictor", *columns),
                tuple(self._rows()),
                tuple(notes),
            ),
            Table(
                f"Throughput over that of the truth's schedule, by k ({routing})",
                ("workload", "predictor", *(f"k = {trust}" for trust in config.trusts), "least of a step"),
                tuple(self._ratio_rows()),
                (by_trust, *run_note(self.tracked)),
            ),
        ]

    def _rows(self) -> Iterator[tuple[Cell, ...]]:
        for comparison in self.comparisons:
            last = worth_of(comparison.last_value)
            for name, evaluation in comparison.evaluations.items():
                error, worth = evaluation.test.error, worth_of(evaluation)
                figures = (error.relative, error.shape, worth.predicted, last.predicted, worth.true)
                less = (interval_text(difference) for difference in comparison.differences(name).values())
                yield comparison.workload, name, evaluation.trust, *figures, *less

    def _ratio_rows(self) -> Iterator[tuple[Cell, ...]]:
        for comparison in self.comparisons:
            for name, evaluation in comparison.evaluations.items():
                ratios = (interval_text(ratio, sign="") for ratio in comparison.ratios(name).values())
                yield comparison.workload, name, *ratios, worth_of(evaluation).least_ratio


def _runs(side: Sequence[DemandSequence], which: str) -> str:
    return f"{len(side)} {which} run{'' if len(side) == 1 else 's'}"


def write_predictors(comparison: Comparison, run_dir: Path) -> Path:
    """The folder of the workload's predictors."""
    folder = run_dir / PREDICTORS_FOLDER / comparison.workload
    for name, text in comparison.files.items():
        write_file(folder / f"{name}.json", text)
    return folder


def untrained(name: str, settings: Mapping[str, Any]) -> DemandPredictor:
    """The predictor of these settings; raises ForetailError for one that it does not have, or out of its range."""
    kind = _kind(f"demand_predictor.{name}", settings)
    given = {key: value for key, value in settings.items() if key != "name" and value is not None}
    for key, value in given.items():
        where, constraint = f"demand_predictor.{name}.{key}", kind.constraints().get(key)
        if constraint is None:
            takes = ", ".join(kind.constraints()) or "nothing"
            raise ForetailError(f"{where} is given, but {settings['name']} takes {takes}: leave it out")
        if not constraint.allows(value):
            raise ForetailError(f"{where} = {value} is out of range: it must be {constraint.describe()}")
    return kind(**given)


def _kind(where: str, settings: Mapping[str, Any]) -> type[DemandPredictor]:
    name = str(settings.get("name"))
    kind = kind_of(name)
    if kind is None:
        raise ForetailError(f"{where}.name = {name} is unknown: choose from {', '.join(PREDICTORS)}")
    return kind


def compare(
    workload: str, split: SequenceSplit, predictors: Mapping[str, DemandPredictor], config: DemandConfig
) -> Comparison:
    """Train every predictor on the training runs and score it on the test runs, its trust chosen on validation."""

    def evaluated(predictor: DemandPredictor) -> Evaluation:  # which trains it
        return evaluate(
            predictor,
            split,
            config.degree,
            config.trusts,
            routing=config.routing,
            warm_up=config.warm_up,
            seed=config.seed,
        )

    known = LastValue()
    last = evaluated(known)
    evaluations = {name: last if isinstance(p, LastValue) else evaluated(p) for name, p in predictors.items()}
    files = {name: to_json(known if isinstance(p, LastValue) else p) for name, p in predictors.items()}
    return Comparison(workload, split, evaluations, last, files)


def worth_of(evaluation: Evaluation, side: str = "test") -> ScheduleScore:
    """Score of a predictor's schedules on a side, with the trust and the routing that it has."""
    score: Score = getattr(evaluation, side)
    return score.schedules[evaluation.routing, evaluation.trust]


def _by_run(evaluation: Evaluation, figure: str) -> dict[str, float]:
    """Throughput on every test run with demand, `predicted` or `true`."""
    return {run: getattr(throughput, figure) for run, throughput in worth_of(evaluation).by_run.items()}


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    sides = {"validation": evaluation.validation, "test": evaluation.test}
    return {"trust": evaluation.trust} | {side: _score(score) for side, score in sides.items()}


def _score(score: Score) -> dict[str, Any]:
    by_trust = {
        str(trust): _means(worth) | {"by_run": {run: asdict(throughput) for run, throughput in worth.by_run.items()}}
        for (_, trust), worth in score.schedules.items()
    }
    return {
        "steps": score.steps,
        "idle_steps": score.idle_steps,
        "error": asdict(score.error),
        "schedules_by_trust": by_trust,
    }


def _means(worth: ScheduleScore) -> dict[str, float]:
    return {figure: getattr(worth, figure) for figure in ("predicted", "true", "ratio", "least_ratio")}


def track_comparison(config: DemandConfig, result: DemandResult) -> dict[str, Any]:
    """One MLflow run with ``result.json`` and the predictors, and inside it one for every workload and predictor."""
    tracking = config.tracking
    with tracked(tracking, Store(config.store_dir), asdict(config)) as run:
        if config.datasets:
            for described in describe_split(split_datasets(config.split, open_datasets(config.datasets))):
                log_dataset(run, described)
        for comparison in result.comparisons:
            for name, evaluation in comparison.evaluations.items():
                run.log_nested(
                    f"{comparison.workload} {name}",
                    {
                        "workload": comparison.workload,
                        "predictor": config.demand_predictor[name]["name"],
                        "parameters": plain(result.predictors[name].parameters()),
                        "trust": evaluation.trust,
                    },
                    {f"test/error/{key}": value for key, value in asdict(evaluation.test.error).items()}
                    | {f"test/theta/{key}": value for key, value in _means(worth_of(evaluation)).items()}
                    | {"test/theta/last_value": worth_of(comparison.last_value).predicted}
                    | {
                        f"test/theta_minus_{of}/{key}": value
                        for of, difference in comparison.differences(name).items()
                        for key, value in asdict(difference).items()
                        if value is not None
                    }
                    | {
                        f"test/theta_over_truth/{trust}": ratio.mean
                        for trust, ratio in comparison.ratios(name).items()
                        if ratio.mean is not None
                    },
                )
        with tempfile.TemporaryDirectory() as folder:
            run.log_file(write_result(Path(folder), result.document()))
            for comparison in result.comparisons:
                for file in sorted(write_predictors(comparison, Path(folder)).iterdir()):
                    run.log_file(file, f"{PREDICTORS_FOLDER}/{comparison.workload}")
    return address(run)
