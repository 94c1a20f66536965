"""Demand predictors compared: runs of demand, trust chosen on validation runs, scores and schedules on test runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import (
    DemandMatrix,
    DemandSequence,
    Racks,
    SequenceSplit,
    carried_demand,
    is_etalon,
    logged_demand,
    offered_demand,
    refuse_large,
    split_sequences,
)
from foretail.features.records import FLOW_DTYPE, read_records
from foretail.features.rows.splits import SIDES, listed_sides
from foretail.models.demand.averages import LastValue
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import KINDS, to_json
from foretail.models.demand.scores import Evaluation, ScheduleScore, Score, evaluate
from foretail.models.scoring.figure_style import BLUE, GREY, ORANGE, panels, styled, with_legend
from foretail.pipelines.comparison.statistics import (
    PairedDifference,
    chance_text,
    interval_text,
    mean_interval,
    paired_difference,
)
from foretail.pipelines.data.inputs import open_datasets, split_datasets
from foretail.pipelines.runs.points import write_figure
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table, plain, write_result
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.runs import address, describe_split, log_dataset, run_note, tracked
from foretail.sim_bridge.circuits.demand import JOBS, mixed, repeated
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule

DATASETS, LOGS = "datasets", "logs"
GENERATED_INTERVAL_NS = 1
"""Generated demand has no time, only steps."""
GENERATED_STEPS = 24


def demand_runs(config: DemandConfig) -> dict[str, SequenceSplit]:
    """The runs by workload."""
    if config.logs:
        return {LOGS: _of_logs(config)}
    if config.interval_ns is not None:  # generated demand has none
        return {DATASETS: _of_datasets(config, config.interval_ns)}
    seeds = config.split.all_seeds
    return {
        name: _split({seed: generated(name, seed, config) for seed in seeds}, config.split)
        for name in config.collectives
    }


def _split(runs: Mapping[int, DemandSequence], split: Split) -> SequenceSplit:
    """The split of runs that have these numbers."""
    if split.name == "drawn":
        return split_sequences(tuple(runs.values()), split.validation_fraction, split.test_fraction, split.seed)
    sides = listed_sides(split.train, split.validation, split.test, runs)
    return SequenceSplit(**{side: tuple(runs[number] for number in sorted(of)) for side, of in sides.items()})


def _of_datasets(config: DemandConfig, interval_ns: int) -> SequenceSplit:
    split = split_datasets(config.split, open_datasets(config.datasets))
    return SequenceSplit(
        **{side: tuple(_recorded(item.dataset, config, interval_ns) for item in getattr(split, side)) for side in SIDES}
    )


def _of_logs(config: DemandConfig) -> SequenceSplit:
    steps = Steps(config.interval_ns, config.uplink_bps, config.steps, config.racks)
    runs = read_demand_logs([Path(path) for path in config.logs], steps)
    try:
        return _split(dict(enumerate(runs, 1)), config.split)
    except ForetailError as error:
        hint = "" if config.split.name == "drawn" else ", or give split=drawn"
        raise ForetailError(f"of the logs' runs, numbered 1 to {len(runs)}, {error}{hint}") from None


def generated(name: str, seed: int, config: DemandConfig) -> DemandSequence:
    """The collectives of one run; two that are mixed are placed and disturbed each on its own."""
    jobs = name.split("+")
    run, steps = f"{name}, seed {seed}", GENERATED_STEPS if config.steps is None else config.steps
    refuse_large(run, steps, config.nodes)
    parts = [
        repeated(
            JOBS[job](config.nodes, config.degree, config.job_seed),
            steps,
            GENERATED_INTERVAL_NS,
            run,
            len(jobs) * seed + position,
            placed_at_random=config.placed_at_random,
            noise=config.noise,
        )
        for position, job in enumerate(jobs)
    ]
    return parts[0] if len(parts) == 1 else mixed(parts[0], parts[1], config.mixture_period_steps, run)


def _recorded(dataset: Dataset, config: DemandConfig, interval_ns: int) -> DemandSequence:
    if is_etalon(dataset):
        if config.uplink_bps is None or config.demand != "carried":
            raise ForetailError(
                f"{dataset.path} is a packet log of Etalon, which knows no flows and no uplinks of one rate: give "
                "demand=carried and uplink_bps=..."
            )
        return logged_demand(dataset, config.uplink_bps, interval_ns, config.steps)
    if config.uplink_bps is not None:
        raise ForetailError(f"{dataset.path} is an ns-3 run and knows its uplinks: leave uplink_bps out")
    if config.demand == "carried":
        return carried_demand(dataset, interval_ns, config.steps)
    dataset.require_trace()
    flows = read_records(dataset.path / "run" / "flows.bin", FLOW_DTYPE)
    run = f"{dataset.path.name}, seed {dataset.manifest.seed}"
    return offered_demand(flows, Racks.of_trace(dataset), interval_ns, config.steps, run)


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
    given = {key: value for key, value in settings.items() if key != "name" and value is not None}
    return KINDS.make(str(settings.get("name")), given, f"demand_predictor.{name}.")


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


FIGURE = "throughput"
HOLLOW = {"marker": "o", "markerfacecolor": "none"}
CAPTION = (
    "Throughput on the true demand of the schedules of each predictor, with its k: a small dot is a test run, a large "
    "one their mean. Hollow: of schedules of the truth with the same k. Dashed: the last value, with its own k."
)


def runs_of(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """A row per workload, predictor and test run with demand."""
    return pd.DataFrame(
        [
            {
                "workload": comparison.workload,
                "predictor": name,
                "k": evaluation.trust,
                "run": run,
                "theta": throughput.predicted,
                "truth": throughput.true,
                "last_value": worth_of(comparison.last_value).by_run[run].predicted,
            }
            for comparison in comparisons
            for name, evaluation in comparison.evaluations.items()
            for run, throughput in worth_of(evaluation).by_run.items()
        ]
    )


@styled
def draw_throughput(numbers: pd.DataFrame) -> Figure:
    """A panel per workload, a column per predictor."""
    groups = list(numbers.groupby("workload", sort=False))
    width = 1.4 + 0.8 * int(numbers["predictor"].nunique())
    figure, row = panels(len(groups), inches=(width * len(groups) + 0.6, 3.6), grid="y", sharey=True)
    for axes, (workload, panel) in zip(row, groups, strict=True):
        names = list(dict.fromkeys(panel["predictor"]))
        for place, name in enumerate(names):
            runs = panel[panel["predictor"] == name]
            first = place == 0
            marks: list[tuple[Any, Any, str, dict[str, Any]]] = [
                ([place] * len(runs), runs["theta"], "a test run", {"marker": ".", "color": GREY, "markersize": 5}),
                (place, runs["truth"].mean(), "mean, truth known", {**HOLLOW, "color": ORANGE, "markersize": 10}),
                (place, runs["theta"].mean(), "mean", {"marker": "o", "color": BLUE, "markersize": 6}),
            ]
            for x, y, label, look in marks:
                axes.plot(x, y, linestyle="", label=label if first else None, **look)
        axes.axhline(
            panel["last_value"].mean(), color="0.3", linestyle="--", linewidth=0.9, zorder=1, label="last value"
        )
        axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=30, ha="right")
        axes.set(title=str(workload).replace("_", " "), xlim=(-0.6, len(names) - 0.4))
    row[0].set_ylabel("throughput, without duty cycle")
    return with_legend(figure, row[0], "lower center", ncols=4)


MOST_NAMED = 12
"""Nodes that an axis names."""


@styled
def draw_schedule(made: Schedule, demand: DemandMatrix, called: str = "demand") -> Figure:
    """Which node every port reaches in every slot, and the demand, as it is called, beside what the circuits carry."""
    figure, (slots, wanted, served) = panels(3, inches=(13, 4.4), grid="")
    ports = made.matchings.transpose(2, 1, 0).reshape(-1, made.period)  # the uplinks of a node one below the other
    reached = slots.imshow(np.ma.masked_equal(ports, IDLE), aspect="auto", interpolation="nearest", cmap="viridis")
    title = f"{made.nodes} nodes of {made.degree} uplinks; white: idle"
    slots.set(title=title, xlabel="slot", ylabel="node, a row for each uplink")
    slots.xaxis.set_major_locator(MaxNLocator(integer=True))
    named = np.arange(0, made.nodes, -(-made.nodes // MOST_NAMED))
    slots.set_yticks(named * made.degree, [str(node) for node in named])
    figure.colorbar(reached, ax=slots, label="reaches node", ticks=MaxNLocator(integer=True))
    top = max(demand.demand.max(), made.capacity.max())
    for axes, matrix, title in ((wanted, demand.demand, called), (served, made.capacity, "what circuits carry")):
        image = axes.imshow(matrix, vmin=0, vmax=top, cmap="Blues", interpolation="nearest")
        axes.set(title=title, xlabel="to node", ylabel="from node")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(8, integer=True))
    figure.colorbar(image, ax=(wanted, served), label="capacities of an uplink")
    return figure


def compare_predictors(config: DemandConfig, run_dir: Path) -> DemandResult:
    """Train, choose the trust, score, and write the predictors into the run as ``predictors/WORKLOAD/NAME.json``."""
    predictors = {name: untrained(name, settings) for name, settings in config.demand_predictor.items()}
    splits = demand_runs(config)
    comparisons = []
    with StageProgress() as progress:
        for position, (workload, split) in enumerate(splits.items()):
            progress.update("demand predictors", position / len(splits), workload)
            comparisons.append(compare(workload, split, predictors, config))
    result = DemandResult(config, predictors, tuple(comparisons))
    if config.tracking.enabled:
        result = replace(result, tracked=track_comparison(config, result))
    for comparison in result.comparisons:
        write_predictors(comparison, run_dir)
    numbers = runs_of(comparisons)
    return replace(
        result, files=write_figure(run_dir, FIGURE, draw_throughput(numbers), numbers), captions={FIGURE: CAPTION}
    )
