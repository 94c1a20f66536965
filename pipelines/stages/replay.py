"""``foretail replay``: buffer policies on given arrivals, open loop: slotted ones in a file, or recorded datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.configs.schema.policies import OF_ARRIVALS
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.catalog import FEATURES, FLOW_FEATURES, arithmetic_of, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, traffic_sha256
from foretail.features.records import column_values
from foretail.features.rows.splits import Selection
from foretail.models import zoo
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import UsedDataset
from foretail.models.scoring.metrics import SHOWN, Confusion, Ranking, Score, drops_of, predicted_drops_of, scores
from foretail.pipelines import stage
from foretail.pipelines.data.inputs import open_datasets
from foretail.pipelines.exporting.network import (
    AskedModel,
    FunctionPredictor,
    NetworkInC,
    asked_model,
    check_inputs,
    decider_of,
)
from foretail.pipelines.runs.notes import ASKED as ASKED_MEANS
from foretail.pipelines.runs.notes import LABELLED_QUEUES, say, say_if_silent, say_if_unasked
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table, figure_text
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import HERE, TRAINED, baseline_rows, known_baselines, load_predictor
from foretail.pipelines.tracking.runs import SEEN, given_to_models
from foretail.pipelines.training.scores import judge_side
from foretail.sim_bridge.arrivals.files import ArrivalFile, reported
from foretail.sim_bridge.open_loop.baselines import Baseline, best_of, candidates_for, sent_by, worth_of
from foretail.sim_bridge.open_loop.replay import compare_replays, queues_of
from foretail.sim_bridge.open_loop.scores import ASKED, SENT, Comparison, Questions, shown_share, worth_in_words
from foretail.sim_bridge.open_loop.slotted import (
    Agreement,
    Labelled,
    Predicted,
    Predictions,
    accept,
    compare,
    flipped,
    in_file,
    packets_sent,
    perfect,
)
from foretail.sim_bridge.policies import ASKING, POLICIES, PUSHING_OUT
from foretail.sim_bridge.policy_settings import SlotParameters, policy_words
from foretail.sim_bridge.python_policies import PythonPolicy

TITLES = {
    "packets": {
        "transmitted": "transmitted",
        "dropped": "dropped",
        **ASKED,
        "throughput_ratio_to_lqd": "ratio to LQD",
    },
    "bytes": {
        "transmitted": "packets sent",
        "dropped": "dropped",
        **ASKED,
        "transmitted_bytes": "bytes sent",
        "dropped_bytes": "dropped bytes",
        "throughput_ratio_to_lqd": "bytes, ratio to LQD",
    },
}
"""Columns of the table of policies by the unit of the scores: the title of each figure."""
Scores = Mapping[str, Mapping[str, Score]]
"""Region (whole, asked) to name to score."""


@dataclass(frozen=True)
class Source:
    """Source of predictions; what does not apply is None."""

    source: str  #: perfect, flipped, column, model or accept
    flip_probability: float | None = None  #: of flipped predictions
    seed: int | None = None  #: of flipped predictions
    column: str | None = None  #: name of the file's column
    ensemble_sha256: str | None = None  #: identity of a model of trees
    network_sha256: str | None = None  #: identity of a neural network


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReplayResult(Summarised):
    """Policies and predictions on a file of arrivals, or on datasets, all of them together."""

    given: Mapping[str, Any]  #: what arrived, as ``result.json`` describes it
    note: str  #: the same in words
    compared: Comparison  #: what the policies did
    source: Source  #: where the predictions come from
    scores: Scores  #: of the predictions
    policy: str  #: that asks
    #: of a policy that decides by one rule at a time: from which slots on which does; None in bytes
    turns: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    datasets: tuple[Mapping[str, Any], ...] = ()  #: path, content hash, seed, rows and drops of each
    seen: ReplayResult | None = None  #: the same of the datasets that the model has seen, which are not in the above
    baselines: Sequence[Mapping[str, Any]] = ()  #: policies without a predictor beside a model, the best first
    chosen_on: str = ""  #: where their settings were chosen

    def document(self) -> dict[str, Any]:
        return {
            **self.given,
            **({} if self.seen is None else {"seen": self.seen.document()}),
            "policies": self.policies(),
            **({} if self.turns is None else {"turns": self.turns}),
            "predictions": self.predictions(),
            "baselines": self.baselines,
        }

    @property
    def questions(self) -> dict[str, Questions]:
        """Questions of the policies; none of one from outside that never asked, which may have no predictor."""
        asking = {policy: self.compared.questions.get(policy) for policy in self.compared.transmitted}
        return {policy: one for policy, one in asking.items() if one and (policy in POLICIES or one.asked)}

    def policies(self) -> dict[str, dict[str, Cell]]:
        """Figures of every policy, by name; None for questions of one that asks nobody."""
        compared, sent, questions = self.compared, self.compared.transmitted_bytes, self.questions
        policies: dict[str, dict[str, Cell]] = {}
        for policy, packets in compared.transmitted.items():
            figures: dict[str, Cell] = {"transmitted": packets, "dropped": compared.arrivals - packets}
            if sent is not None and compared.arrived_bytes is not None:
                figures["transmitted_bytes"] = sent[policy]
                figures["dropped_bytes"] = compared.arrived_bytes - sent[policy]
            figures["throughput_ratio_to_lqd"] = compared.ratio_to_lqd(policy)
            if sent is None:
                figures["throughput_ratio_to_optimum"] = packets / compared.optimum if compared.optimum else None
            policies[policy] = figures | {name: getattr(questions.get(policy), name, None) for name in ASKED}
        return policies

    @property
    def inverse_eta(self) -> float | None:
        """1 / eta."""
        return self.compared.followlqd / self.compared.lqd if self.compared.lqd else None

    def predictions(self) -> dict[str, Any]:
        """Return what is known of the predictions."""
        compared, unit = self.compared, self.compared.unit
        return {
            **vars(self.source),
            f"lqd_{unit}": compared.lqd,
            f"followlqd_{unit}": compared.followlqd,
            f"accept_{unit}": compared.accept,
            "policy": self.policy,
            f"sent_{unit}": compared.sent,
            "eta": compared.eta,
            "inverse_eta": self.inverse_eta,
            "closed_form_eta": self.scores["whole"]["closed_form_eta"],
            "recovered_loss": compared.recovered_loss,
            "sent_percent_of_lqd": compared.sent_percent_of_lqd,
            "scores": self.scores,
        }

    def verdict(self) -> list[str]:
        """Sentences: what the model has seen, who sends most beside LQD, and what the predictions are worth."""
        compared, sent, decides = self.compared, self.compared.scored, self.source.source == "model"
        sends = compared.recovered_loss, compared.sent_percent_of_lqd
        worth = worth_in_words(*sends, self.baselines, self.chosen_on, policy=self.policy, decides=decides)
        others = {policy_words(name): count for name, count in sent.items() if name not in PUSHING_OUT}
        kind = "push nothing out"
        if self.source.source == "perfect" and compared.sent_percent_of_lqd is not None:
            others = {policy_words(name): sent[name] for name in sent if name not in {*PUSHING_OUT, *ASKING}}
            kind += " and ask no predictor"
            worth = (
                "Credence was told what LQD drops, which no switch knows, and sends "
                f"{compared.sent_percent_of_lqd:.4g} %: model=MODEL judges a model."
            )
        if not others or not compared.lqd:
            return [*self.seen_sentences(), worth]
        shares = {name: 100 * count / compared.lqd for name, count in others.items()}
        shares |= {str(one["title"]): one["sent_percent_of_lqd"] for one in self.baselines}
        best = max(shares, key=lambda name: shares[name])
        most = f"{best} sends most, {shares[best]:.4g} % of what LQD sends"
        return [*self.seen_sentences(), f"Of the policies that {kind} {most}.", worth]

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
        return bool(self.datasets) and all(one["seen"] for one in self.datasets)

    def tables(self) -> list[Table]:
        """Policies, scores of the predictions, a model beside tuned policies; then of datasets that it has seen."""
        policies, worth = self._policies_table(), self._predictions_table()
        if self._is_seen:
            policies, worth = (replace(one, title=f"{one.title}, {SEEN}") for one in (policies, worth))
        tables = [policies, worth]
        if self.baselines:
            model = ("the model", shown_share(self.compared.recovered_loss), self.compared.sent_percent_of_lqd)
            notes = (
                f"The model decides in the switch, under {POLICIES[self.policy].title}.",
                f"Settings were chosen on {self.chosen_on}.",
            )
            rows = (model, *baseline_rows(self.baselines))
            tables.append(Table("Next to tuned policies", ("who", "recovered loss", SENT), rows, notes))
        if self.seen is None:
            return tables
        columns = ("path", "rows", "drops", "seen")
        datasets = [[one[name] for name in columns] for one in (*self.datasets, *self.seen.datasets)]
        rows = tuple((str(path), *figures) for path, *figures in datasets)
        return [Table("Datasets", columns, rows), *tables, *self.seen.tables()]

    def _policies_table(self) -> Table:
        compared, policies, titles = self.compared, self.policies(), TITLES[self.compared.unit]
        if compared.optimum is not None:
            titles = {**titles, "throughput_ratio_to_optimum": "ratio to optimum"}
            policies["optimum"] = {
                "transmitted": compared.optimum,
                "dropped": compared.arrivals - compared.optimum,
                "throughput_ratio_to_lqd": compared.optimum / compared.lqd,
                "throughput_ratio_to_optimum": 1.0,
            }
        rows = tuple((policy, *map(figures.get, titles)) for policy, figures in policies.items())
        return Table("Policies", ("policy", *titles.values()), rows, (self.note,))

    def _predictions_table(self) -> Table:
        compared = self.compared
        rows = [
            {
                "region": region,
                "rows": named["rows"],
                "drops": drops_of(named),
                "predicted drops": predicted_drops_of(named),
                **{name.replace("_", " "): named.get(name) for name in SHOWN},
            }
            for region, named in self.scores.items()
        ]
        notes = [
            *([ASKED_MEANS] if "asked" in self.scores else []),
            f"{self.source.source} predictions on {LABELLED_QUEUES}, in {compared.unit}: eta "
            f"{figure_text(compared.eta, '.4f')}, 1/eta {figure_text(self.inverse_eta, '.4f')}",
            f"{POLICIES[self.policy].title} with them: recovered loss {figure_text(compared.recovered_loss, '.4f')}, "
            f"{SENT} {figure_text(compared.sent_percent_of_lqd, '.4f')}",
        ]
        return Table.of_rows("Predictions", rows, *notes)


def say_notes(result: ReplayResult, model: AskedModel | None) -> None:
    """Say where C decides otherwise than its network, and who predicts no drop at all, never asked or never dropped."""
    if isinstance(model, NetworkInC):
        model.say_difference()
    if result.source.source == "accept":  # which is what was wanted
        return
    if model is not None:
        say_if_silent("the model", "these arrivals", result.scores["whole"])
    say_if_unasked({policy: (one.asked, one.predicted_drops) for policy, one in result.questions.items()})


def source_of(config: ReplayConfig, has_column: bool = False) -> str:
    """The kind of predictions: as set, else the model's if there is one, else the file's, else perfect ones."""
    if config.predictions is not None:
        return config.predictions
    if config.model is not None:
        return "model"
    return "column" if has_column else "perfect"


def described(config: ReplayConfig, source: str, model: AskedModel | None) -> Source:
    """The source with the settings that belong to it."""
    flips = source == "flipped"
    return Source(
        source=source,
        flip_probability=config.flip_probability if flips else None,
        seed=config.prediction_seed if flips else None,
        column=config.prediction_column if source == "column" else None,
        ensemble_sha256=model.sha256 if isinstance(model, Ensemble) else None,
        network_sha256=None if isinstance(model, Ensemble | FunctionPredictor | None) else model.sha256,
    )


def model_of(config: ReplayConfig) -> AskedModel:
    """Return ``config.model`` as it decides: trees, a network as its C, or the function of FILE.py:FUNCTION."""
    if config.model is None:
        raise ForetailError("predictions=model asks a model and there is none: give model=FILE")
    if (policy := PythonPolicy.of(config.model)) is not None:
        say(policy.note)
        return FunctionPredictor.of_file(policy)
    store = Store(config.store_dir)
    return asked_model(load_predictor(config.model, config.tracking, store), store)


def _beside(
    config: ReplayConfig,
    model: AskedModel | None,
    queues: int,
    sent: Callable[[Sequence[Baseline]], Sequence[int]],
    compared: Comparison,
) -> dict[str, Any]:
    """Fields of a result with a model: tuned policies on the same arrivals, and where their settings were chosen.

    `queues`: of a port. `sent`: what tuned policies send.
    """
    if model is None:
        return {}
    known = known_baselines(config.tracking, Store(config.store_dir))
    tried = known or candidates_for(queues)
    counts = sent(tried)
    worth = worth_of(tried, counts, compared.lqd, compared.accept)
    if known:
        return {"baselines": worth, "chosen_on": TRAINED}
    return {"baselines": [worth[place] for place in best_of(tried, counts)], "chosen_on": HERE}


def _parameters(config: ReplayConfig) -> SlotParameters:
    return replace(config.parameters, rules=zoo.numbers(config.parameters.rules))


def replay_datasets(config: ReplayConfig) -> ReplayResult:
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
    result = _replayed(config, source, [one for one in datasets if one not in seen] or seen, model)
    if seen and len(seen) < len(datasets):
        result = replace(result, seen=_replayed(config, source, seen, model))
    for sentence in result.seen_sentences():
        say(sentence)
    say_notes(result, model)
    return result


def _replayed(config: ReplayConfig, source: str, datasets: Sequence[Dataset], model: AskedModel | None) -> ReplayResult:
    """All policies on all of some datasets, and baselines beside a model."""
    flips = np.random.default_rng(config.prediction_seed)
    decider = None if model is None else decider_of(model)
    rows: list[tuple[NDArray[Any], ...]] = []
    parts: list[Comparison] = []
    with StageProgress() as progress:
        for dataset in datasets:
            rows.append(_rows(config, source, dataset, model, flips))
            parts.append(
                compare_replays(
                    dataset,
                    config.policies or OF_ARRIVALS,
                    rows[-1][2],
                    parameters=_parameters(config).in_network(),
                    threads=config.jobs,
                    report=partial(progress.update, dataset.path.name),
                    decider=decider,
                )
            )
    compared = Comparison.together(parts)
    described_datasets = tuple(_described(dataset, model is not None) for dataset in datasets)
    lqd_drop, asks, predicted, *score = map(np.concatenate, zip(*rows, strict=True))
    return ReplayResult(
        given={
            "datasets": described_datasets,
            "seen": None,
            "arrivals": compared.arrivals,
            "arrived_bytes": compared.arrived_bytes,
        },
        note=f"{compared.arrivals:,} data packets, {compared.arrived_bytes:,} bytes, of {len(datasets)} datasets",
        datasets=described_datasets,
        compared=compared,
        source=described(config, source, model),
        policy="credence" if decider is None else decider.policy,
        scores=scores(
            lqd_drop,
            predicted,
            ports=max(switch.ports for dataset in datasets for switch in dataset.manifest.switches),
            score=score[0] if score else None,
            asked=asks,
        ),
        **_beside(
            config,
            model,
            max(queues_of(dataset.manifest).count for dataset in datasets),
            partial(sent_by, datasets=datasets),
            compared,
        ),
    )


def _rows(
    config: ReplayConfig, source: str, dataset: Dataset, model: AskedModel | None, flips: np.random.Generator
) -> tuple[NDArray[Any], ...]:
    """Labels of all rows, those at which Credence asks, and predictions: bool[rows]; of a model also its score."""
    if model is not None:
        columns = training_columns([item.name for item in model.features], config.own_queues)
        side = judge_side(model, (Selection(dataset),), columns)
        assert side.asked is not None  # in a trace
        return side.lqd_drop, side.asked, side.predicted, side.probability
    batches = dataset.rows(["lqd_drop", "shadow_asked"])
    flags = [[column_values(column) for column in batch] for batch in batches]
    lqd_drop, asks = np.concatenate([np.zeros((2, 0), np.bool_), *flags], axis=1)
    if source == "flipped":
        return lqd_drop, asks, lqd_drop ^ (flips.random(len(lqd_drop)) < config.flip_probability)
    return lqd_drop, asks, lqd_drop & (source == "perfect")


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


def replay_arrivals(config: ReplayConfig) -> ReplayResult:
    """Run ``config.policies`` over the file ``config.arrivals``."""
    assert config.arrivals is not None and config.ports is not None and config.buffer is not None  # noqa: PT018
    file = ArrivalFile(Path(config.arrivals), config.prediction_column)
    source = source_of(config, file.has_predictions)
    model = model_of(config) if source == "model" else None
    decider = None if model is None else decider_of(model)
    predictions: Predictions
    arithmetic: dict[str, int] = {}
    if model is not None:
        if not isinstance(model, FunctionPredictor):
            arithmetic = arithmetic_of({item.name: item.params for item in model.features})
        predictions = model_predictions(model)
    elif source == "flipped":
        predictions = flipped(config.flip_probability, config.prediction_seed)
    else:
        predictions = {"perfect": perfect, "accept": accept, "column": in_file}[source]
    parameters, rules = _parameters(config), Rules(**vars(config.rules))
    read = partial(
        file.batches,
        config.ports,
        priorities=parameters.count,
        allow_more_than_ports_per_slot=config.allow_more_than_ports_per_slot,
    )
    with StageProgress() as progress:
        report = partial(progress.update, file.path.name)
        compared = compare(
            reported(read(predictions=source == "column"), file, report),
            config.ports,
            config.buffer,
            config.policies or OF_ARRIVALS,
            predictions,
            rules=rules,
            parameters=parameters,
            seed=config.rules_seed,
            features=[] if model is None else [item.name for item in model.features],
            own_queues=config.own_queues,
            **arithmetic,
            optimum=config.optimum,
            threads=config.jobs,
            decider=decider,
        )

        def sent(tried: Sequence[Baseline]) -> list[int]:
            own = config.parameters
            alphas = [own.alpha if one.alpha is None else [one.alpha] for one in tried]
            policies = [(one.policy, replace(own, alpha=alpha)) for one, alpha in zip(tried, alphas, strict=True)]
            arrivals = reported(read(), file, report)
            return packets_sent(
                arrivals, compared.ports, compared.buffer, policies, rules=rules, seed=config.rules_seed
            )

        beside = _beside(config, model, parameters.count, sent, compared)
    names = config.parameters.rules or zoo.names()
    result = ReplayResult(
        given={
            "file": file.path,
            "ports": compared.ports,
            "buffer": compared.buffer,
            "arrivals": compared.arrivals,
            "optimum": compared.optimum,
        },
        note=f"{compared.arrivals:,} packets to {config.ports} ports that share {config.buffer:,} packets of buffer",
        compared=compared,
        turns={
            policy: [{"slot": start, "rule": names[place]} for start, place in turns]
            for policy, turns in compared.turns.items()
        },
        source=described(config, source, model),
        policy="credence" if decider is None else decider.policy,
        scores={name: region_scores(getattr(compared, name), compared.ports) for name in ("whole", "asked")},
        **beside,
    )
    say_notes(result, model)
    return result


def model_predictions(model: AskedModel) -> Predictions:
    """Predictions of a model from the features of the labelling run."""
    names = [item.name for item in FEATURES]
    for item in model.features:
        if item.name not in names or item.name in FLOW_FEATURES:
            raise ForetailError(
                f"the model reads feature {item.name}, which slotted arrivals do not tell: evaluate it on datasets"
            )
    columns = [names.index(item.name) for item in model.features]

    def predict(batch: Labelled) -> Predicted:
        if batch.features is None:
            raise TypeError("a model needs batches with features")
        x = batch.features[:, columns]
        return Predicted(model.exceeds(x).view(np.uint8), model.probability(x))

    return predict


def region_scores(agreement: Agreement, ports: int) -> dict[str, Score]:
    """The counts of a region and every score of them; `ports` is the N of the closed form."""
    scores = Confusion(agreement.tp, agreement.fp, agreement.tn, agreement.fn).scores(ports)
    if agreement.score is not None and agreement.drops is not None and agreement.rows is not None:
        tp = np.cumsum(agreement.drops[::-1])
        fp = np.cumsum(agreement.rows[::-1]) - tp
        scores["average_precision"] = Ranking(agreement.score[::-1], tp, fp).average_precision
    return scores


def replay(config: ReplayConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies on the file of arrivals, or else on the datasets."""
    return replay_arrivals(config) if config.arrivals is not None else replay_datasets(config)
