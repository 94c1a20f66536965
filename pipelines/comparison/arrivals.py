"""Policies and predictions on a file of slotted arrivals, open loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.configs.schema.policies import OF_ARRIVALS
from foretail.core.summary import Summarised
from foretail.features.catalog import arithmetic_of
from foretail.features.dataset.schema import Rules
from foretail.models import zoo
from foretail.pipelines.comparison.predictions import (
    ASKED,
    PredictionScores,
    Source,
    asked_document,
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
from foretail.pipelines.exporting.deciding import AskedModel, FunctionPredictor, decider_of
from foretail.pipelines.exporting.network import NetworkInC
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.baselines import HERE, TRAINED, known_baselines
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted
from foretail.sim_bridge.open_loop.baselines import best_of, candidates_for, worth_of
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
