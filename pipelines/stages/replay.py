"""``foretail replay``: buffer policies on given arrivals, open loop: slotted ones in a file, or recorded datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.configs.schema.policies import OF_ARRIVALS
from foretail.core.summary import Summarised
from foretail.features.catalog import arithmetic_of, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, traffic_sha256
from foretail.models import zoo
from foretail.models.mlflow.registry import UsedDataset
from foretail.models.scoring.metrics import scores
from foretail.pipelines import stage
from foretail.pipelines.comparison.predictions import (
    ASKED,
    PredictionScores,
    Source,
    asked_document,
    check_inputs,
    described,
    model_of,
    model_predictions,
    policies_table,
    region_scores,
    say_zeros,
    shown_questions,
    source_of,
)
from foretail.pipelines.data.imports import reported
from foretail.pipelines.data.inputs import open_datasets
from foretail.pipelines.exporting.network import AskedModel, FunctionPredictor, NetworkInC, decider_of
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import HERE, TRAINED, known_baselines
from foretail.pipelines.tracking.runs import SEEN, given_to_models
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted
from foretail.sim_bridge.open_loop.baselines import Baseline, best_of, candidates_for, judged, worth_of
from foretail.sim_bridge.open_loop.replay import ReplayComparison, ReplayScores, Sent, compare_replays, queues_of
from foretail.sim_bridge.open_loop.scores import Decider, Questions
from foretail.sim_bridge.open_loop.slotted import (
    Comparison,
    Predictions,
    accept,
    compare,
    flipped,
    in_file,
    packets_sent,
    perfect,
)

OF_DATASETS = {
    "transmitted": "packets sent",
    "dropped": "dropped",
    **ASKED,
    "transmitted_bytes": "bytes sent",
    "dropped_bytes": "dropped bytes",
    "throughput_ratio_to_lqd": "bytes, ratio to LQD",
}


@dataclass(frozen=True, repr=False)
class DatasetsResult(Summarised):
    """Policies and predictions on datasets, all of them together."""

    datasets: tuple[Mapping[str, Any], ...]  #: path, content hash, seed, rows and drops of each
    offered: Sent  #: data that arrived
    transmitted: Mapping[str, Sent]  #: data that every policy sent
    worth: PredictionScores  #: what the predictions are worth
    questions: Mapping[str, Questions]  #: of the policies that may ask
    baselines: Sequence[Mapping[str, Any]] = ()  #: policies without a predictor beside a model, the best first
    chosen_on: str = ""  #: where their settings were chosen
    seen: DatasetsResult | None = None  #: the same of the datasets that the model has seen, which are not in the above

    def document(self) -> dict[str, Any]:
        return {
            "datasets": self.datasets,
            "seen": None if self.seen is None else self.seen.document(),
            "arrivals": self.offered.packets,
            "arrived_bytes": self.offered.bytes,
            "policies": self._policies(),
            "predictions": self.worth.document(),
            "baselines": self.baselines,
        }

    def verdict(self) -> list[str]:
        """Sentences: what the model has seen, who sends most beside LQD, and what the predictions are worth."""
        return self.seen_sentences() + self.worth.verdict(
            {policy: sent.bytes for policy, sent in self.transmitted.items()}, self.baselines, self.chosen_on
        )

    def seen_sentences(self) -> list[str]:
        """On which datasets the model was trained or tuned, in a sentence; none where it was on none of them."""
        if self.seen is not None:
            names = ", ".join(str(one["path"]) for one in self.seen.datasets)
            return [f"The model was trained or tuned on {names}: what it does there is shown apart."]
        if self._is_seen:
            return ["The model was trained or tuned on all of these datasets, which flatters it: replay other ones."]
        return []

    @property
    def _is_seen(self) -> bool:
        return all(one["seen"] for one in self.datasets)

    def tables(self) -> list[Table]:
        """Policies, the scores of the predictions, and both of datasets that the model has seen."""
        note = f"{self.offered.packets:,} data packets, {self.offered.bytes:,} bytes, of {len(self.datasets)} datasets"
        policies = policies_table(self._policies(), OF_DATASETS, note)
        worth = self.worth.table()
        if self._is_seen:
            policies, worth = (replace(one, title=f"{one.title}, {SEEN}") for one in (policies, worth))
        tables = [policies, worth, *self.worth.beside(self.baselines, self.chosen_on)]
        if self.seen is None:
            return tables
        datasets = [*self.datasets, *self.seen.datasets]
        columns = ("path", "rows", "drops", "seen")
        rows = tuple((str(one["path"]), one["rows"], one["drops"], one["seen"]) for one in datasets)
        return [Table("Datasets", columns, rows), *tables, *self.seen.tables()]

    def _policies(self) -> dict[str, dict[str, Cell]]:
        lqd = self.transmitted["lqd"].bytes
        return {
            policy: {
                "transmitted": sent.packets,
                "dropped": self.offered.packets - sent.packets,
                "transmitted_bytes": sent.bytes,
                "dropped_bytes": self.offered.bytes - sent.bytes,
                "throughput_ratio_to_lqd": sent.bytes / lqd if lqd else None,
                **asked_document(self.questions.get(policy)),
            }
            for policy, sent in self.transmitted.items()
        }


@dataclass(frozen=True, eq=False)
class _Rows:
    """Labelled rows with their predictions: bool[rows] each, and the model's float64[rows] score, if there is one."""

    lqd_drop: NDArray[np.bool_]
    asked: NDArray[np.bool_]
    predicted: NDArray[np.bool_]
    score: NDArray[np.float64] | None


def replay_datasets(config: ReplayConfig) -> DatasetsResult:
    """Replay ``config.datasets`` under ``config.policies``."""
    datasets = open_datasets(config.datasets)
    for dataset in datasets:
        dataset.require_trace()
    source = source_of(config)
    model = model_of(config) if source == "model" else None
    if model is not None:
        for dataset in datasets:
            check_inputs(
                model, dataset.manifest.cell_bytes, dataset.manifest.average_shift, f"the dataset {dataset.path} gives"
            )
    seen = [dataset for dataset in datasets if model is not None and _given(dataset)]
    known = () if model is None else known_baselines(config.tracking, Store(config.store_dir))
    result = _replayed(config, source, [one for one in datasets if one not in seen] or seen, model, known)
    if seen and len(seen) < len(datasets):
        result = replace(result, seen=_replayed(config, source, seen, model, known))
    for sentence in result.seen_sentences():
        say(sentence)
    if isinstance(model, NetworkInC):
        model.say_difference()
    say_zeros(source, result.worth.scores, result.questions)
    return result


def _replayed(
    config: ReplayConfig,
    source: str,
    datasets: Sequence[Dataset],
    model: AskedModel | None,
    known: tuple[Baseline, ...],
) -> DatasetsResult:
    """All policies on all of some datasets, and baselines beside a model; `known`: those tuned when it was trained."""
    flips = np.random.default_rng(config.prediction_seed)
    decider = None if model is None else decider_of(model)
    rows: list[_Rows] = []
    compared: list[ReplayComparison] = []
    with StageProgress() as progress:
        for dataset in datasets:
            rows.append(_rows(config, source, dataset, model, flips))
            compared.append(
                compare_replays(
                    dataset,
                    config.policies or OF_ARRIVALS,
                    rows[-1].predicted,
                    parameters=replace(config.parameters, rules=zoo.numbers(config.parameters.rules)).in_network(),
                    threads=config.jobs,
                    report=partial(progress.update, dataset.path.name),
                    decider=decider,
                )
            )
    total = ReplayScores.together([one.scores for one in compared])
    queues = max(queues_of(dataset.manifest).count for dataset in datasets)
    tried = known or (() if model is None else candidates_for(queues))
    beside = judged(datasets, tried, total.lqd_bytes, total.accept_bytes)
    transmitted = {
        policy: Sent.together([one.transmitted[policy] for one in compared]) for policy in compared[0].transmitted
    }
    questions = {
        policy: sum((one.questions[policy] for one in compared), Questions()) for policy in compared[0].questions
    }
    return DatasetsResult(
        datasets=tuple(_described(dataset, model is not None) for dataset in datasets),
        offered=Sent.together([one.offered for one in compared]),
        transmitted=transmitted,
        questions=shown_questions(questions, transmitted),
        baselines=beside if known else [beside[place] for place in best_of(tried, [one["sent"] for one in beside])],
        chosen_on=TRAINED if known else HERE,
        worth=PredictionScores(
            described(config, source, model),
            "bytes",
            total.lqd_bytes,
            total.followlqd_bytes,
            total.accept_bytes,
            total.sent_bytes,
            total.eta,
            total.recovered_loss,
            total.sent_percent_of_lqd,
            scores(
                np.concatenate([part.lqd_drop for part in rows]),
                np.concatenate([part.predicted for part in rows]),
                ports=max(switch.ports for dataset in datasets for switch in dataset.manifest.switches),
                score=None
                if model is None
                else np.concatenate([part.score for part in rows if part.score is not None]),
                asked=np.concatenate([part.asked for part in rows]),
            ),
            "credence" if decider is None else decider.policy,
        ),
    )


def _rows(
    config: ReplayConfig, source: str, dataset: Dataset, model: AskedModel | None, flips: np.random.Generator
) -> _Rows:
    columns: tuple[str, ...] = ()
    if model is not None:
        columns = training_columns([item.name for item in model.features], config.own_queues)
    labels, where_asked, predicted, score = [], [], [], []
    for batch in dataset.rows([*columns, "lqd_drop", "shadow_asked"]):
        values = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        labels.append(values["lqd_drop"])
        where_asked.append(values["shadow_asked"])
        if model is not None:
            x = np.stack([values[name] for name in columns], axis=1)
            predicted.append(model.exceeds(x))
            score.append(model.probability(x))
        elif source == "flipped":
            predicted.append(values["lqd_drop"] ^ (flips.random(batch.num_rows) < config.flip_probability))
        else:
            predicted.append(values["lqd_drop"] & (source == "perfect"))
    return _Rows(
        lqd_drop=_joined(labels),
        asked=_joined(where_asked),
        predicted=_joined(predicted),
        score=np.concatenate([*score, np.empty(0)]) if model is not None else None,
    )


def _joined(parts: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.concatenate([*parts, np.empty(0, np.bool_)])


def _given(dataset: Dataset) -> UsedDataset | None:
    return given_to_models(traffic_sha256(dataset.manifest), dataset.manifest.content_sha256)


def _described(dataset: Dataset, is_judged: bool) -> dict[str, Any]:
    manifest = dataset.manifest
    given = _given(dataset) if is_judged else None
    return {
        "path": dataset.path,
        "content_sha256": manifest.content_sha256,
        "scenario": manifest.scenario.get("name"),
        "seed": manifest.seed,
        "rows": manifest.rows,
        "drops": manifest.drops,
        "seen": None if given is None else given.context,
    }


COLUMNS = {"transmitted": "transmitted", "dropped": "dropped", **ASKED, "throughput_ratio_to_lqd": "ratio to LQD"}


@dataclass(frozen=True, eq=False, repr=False)
class ArrivalsResult(Summarised):
    """Policies and predictions on one file."""

    path: Path  #: the file
    source: Source  #: where the predictions come from
    comparison: Comparison  #: what the policies did
    baselines: Sequence[Mapping[str, Any]] = ()  #: policies without a predictor beside a model, the best first
    chosen_on: str = ""  #: where their settings were chosen
    policy: str = "credence"  #: that asks
    rules: Sequence[str] = ()  #: among which the policy ``chosen`` chooses

    def document(self) -> dict[str, Any]:
        compared = self.comparison
        return {
            "file": self.path,
            "ports": compared.ports,
            "buffer": compared.buffer,
            "arrivals": compared.arrivals,
            "optimum": compared.optimum,
            "policies": self._policies(),
            "turns": {
                policy: [{"slot": start, "rule": self.rules[place]} for start, place in turns]
                for policy, turns in compared.turns.items()
            },
            "predictions": self.worth().document(),
            "baselines": self.baselines,
        }

    def questions(self) -> dict[str, Questions]:
        """Questions that the policies of the table asked."""
        return shown_questions(self.comparison.questions, self.comparison.transmitted)

    def worth(self) -> PredictionScores:
        """Scores of the predictions."""
        compared = self.comparison
        scores = {name: region_scores(getattr(compared, name), compared.ports) for name in ("whole", "asked")}
        return PredictionScores(
            self.source,
            "packets",
            compared.lqd,
            compared.followlqd,
            compared.accept,
            compared.sent,
            compared.eta,
            compared.recovered_loss,
            compared.sent_percent_of_lqd,
            scores,
            self.policy,
        )

    def verdict(self) -> list[str]:
        """Sentences that tell which policy sends most beside LQD, and what the predictions are worth."""
        return self.worth().verdict(self.comparison.transmitted, self.baselines, self.chosen_on)

    def tables(self) -> list[Table]:
        """Policies, and the scores of the predictions."""
        comparison, policies, titles = self.comparison, self._policies(), COLUMNS
        if comparison.optimum is not None:
            titles = {**COLUMNS, "throughput_ratio_to_optimum": "ratio to optimum"}
            policies["optimum"] = {
                "transmitted": comparison.optimum,
                "dropped": comparison.arrivals - comparison.optimum,
                "throughput_ratio_to_lqd": comparison.optimum / comparison.lqd,
                "throughput_ratio_to_optimum": 1.0,
            }
        note = (
            f"{comparison.arrivals:,} packets to {comparison.ports} ports that share {comparison.buffer:,} packets of "
            "buffer"
        )
        worth = self.worth()
        return [policies_table(policies, titles, note), worth.table(), *worth.beside(self.baselines, self.chosen_on)]

    def _policies(self) -> dict[str, dict[str, Cell]]:
        comparison, questions = self.comparison, self.questions()
        return {
            policy: {
                "transmitted": transmitted,
                "dropped": comparison.arrivals - transmitted,
                "throughput_ratio_to_lqd": comparison.ratio_to_lqd(policy),
                "throughput_ratio_to_optimum": transmitted / comparison.optimum if comparison.optimum else None,
                **asked_document(questions.get(policy)),
            }
            for policy, transmitted in comparison.transmitted.items()
        }


def replay_arrivals(config: ReplayConfig) -> ArrivalsResult:
    """Run ``config.policies`` over the file ``config.arrivals``."""
    assert config.arrivals is not None and config.ports is not None and config.buffer is not None  # noqa: PT018
    file = ArrivalFile(Path(config.arrivals), config.prediction_column)
    source = source_of(config, file.has_predictions)
    model: AskedModel | None = None
    decider: Decider | None = None
    predictions: Predictions
    arithmetic: dict[str, int] = {}
    if source == "model":
        model = model_of(config)
        if not isinstance(model, FunctionPredictor):
            arithmetic = arithmetic_of({item.name: item.params for item in model.features})
        predictions = model_predictions(model)
        decider = decider_of(model)
    elif source == "flipped":
        predictions = flipped(config.flip_probability, config.prediction_seed)
    else:
        predictions = {"perfect": perfect, "accept": accept, "column": in_file}[source]
    parameters = replace(config.parameters, rules=zoo.numbers(config.parameters.rules))
    read = partial(
        file.batches,
        config.ports,
        priorities=parameters.count,
        allow_more_than_ports_per_slot=config.allow_more_than_ports_per_slot,
    )
    with StageProgress() as progress:
        report = partial(progress.update, file.path.name)
        comparison = compare(
            reported(read(predictions=source == "column"), file, report),
            config.ports,
            config.buffer,
            config.policies or OF_ARRIVALS,
            predictions,
            rules=Rules(**vars(config.rules)),
            parameters=parameters,
            seed=config.rules_seed,
            features=source == "model",
            own_queues=config.own_queues,
            **arithmetic,
            optimum=config.optimum,
            threads=config.jobs,
            decider=decider,
        )
        policy = "credence" if decider is None else decider.policy
        rules = config.parameters.rules or zoo.names()
        result = ArrivalsResult(file.path, described(config, source, model), comparison, policy=policy, rules=rules)
        if model is not None:
            rows, chosen_on = _beside(config, reported(read(), file, report), comparison)
            result = replace(result, baselines=rows, chosen_on=chosen_on)
    if isinstance(model, NetworkInC):
        model.say_difference()
    say_zeros(source, result.worth().scores, result.questions())
    return result


def _beside(config: ReplayConfig, batches: Iterator[Slotted], compared: Comparison) -> tuple[list[dict[str, Any]], str]:
    """Rows of tuned policies on the same arrivals, the best first, and where their settings were chosen."""
    parameters, rules = config.parameters, Rules(**vars(config.rules))
    known = known_baselines(config.tracking, Store(config.store_dir))
    tried = known or candidates_for(parameters.count)
    own = [(one.policy, parameters if one.alpha is None else replace(parameters, alpha=[one.alpha])) for one in tried]
    sent = packets_sent(batches, compared.ports, compared.buffer, own, rules=rules, seed=config.rules_seed)
    worth = worth_of(tried, sent, compared.lqd, compared.accept)
    return (worth, TRAINED) if known else ([worth[place] for place in best_of(tried, sent)], HERE)


def replay(config: ReplayConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies on the file of arrivals, or else on the datasets."""
    return replay_arrivals(config) if config.arrivals is not None else replay_datasets(config)
