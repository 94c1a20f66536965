"""Predictions of an open-loop evaluation: where they come from, and their figures in ``result.json`` and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, FLOW_FEATURES, feature
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import Confusion, Ranking, Score, drops_of, predicted_drops_of
from foretail.pipelines.exporting.network import AskedModel, FunctionPredictor, asked_model
from foretail.pipelines.runs.notes import ASKED as ASKED_MEANS
from foretail.pipelines.runs.notes import LABELLED_QUEUES, say, say_if_silent, say_if_unasked
from foretail.pipelines.runs.result import Cell, Table, figure_text
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import baseline_rows, load_predictor
from foretail.sim_bridge.open_loop.scores import SENT, Questions, shown_share, worth_in_words
from foretail.sim_bridge.open_loop.slotted import Agreement, Labelled, Predicted, Predictions
from foretail.sim_bridge.policies import ASKING, POLICIES, PUSHING_OUT
from foretail.sim_bridge.policy_settings import policy_words
from foretail.sim_bridge.python_policies import PythonPolicy

SHOWN = ("precision", "recall", "f1", "average_precision", "accuracy", "closed_form_eta")
ASKED = {"asked": "asked", "predicted_drops": "predicted drops"}
ASKED_COLUMNS = tuple(ASKED.values())
"""Columns of tables of policies; a dash for policies that ask no predictor."""
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


@dataclass(frozen=True)
class PredictionScores:
    """Scores of predictions."""

    source: Source  #: where they come from
    unit: str  #: packets or bytes
    lqd: int  #: sent by LQD
    followlqd: int  #: sent by FollowLQD without the predicted drops
    accept: int  #: sent by FollowLQD on all packets
    sent: int | None  #: by the policy that asks, while a model decides; None where nobody can say
    eta: float | None  #: LQD's over FollowLQD's; None where undefined
    recovered_loss: float | None  #: from these; None where undefined
    sent_percent_of_lqd: float | None  #: likewise
    scores: Scores  #: by region and name
    policy: str = "credence"  #: that asks

    @property
    def inverse_eta(self) -> float | None:
        """1 / eta."""
        return self.followlqd / self.lqd if self.lqd else None

    def document(self) -> dict[str, Any]:
        return {
            **vars(self.source),
            f"lqd_{self.unit}": self.lqd,
            f"followlqd_{self.unit}": self.followlqd,
            f"accept_{self.unit}": self.accept,
            "policy": self.policy,
            f"sent_{self.unit}": self.sent,
            "eta": self.eta,
            "inverse_eta": self.inverse_eta,
            "closed_form_eta": self.scores["whole"]["closed_form_eta"],
            "recovered_loss": self.recovered_loss,
            "sent_percent_of_lqd": self.sent_percent_of_lqd,
            "scores": self.scores,
        }

    def verdict(
        self, sent: Mapping[str, int], baselines: Sequence[Mapping[str, Any]] = (), chosen_on: str = ""
    ) -> list[str]:
        """Which policy without push-out sends most, and what the predictions are worth; `sent` is by policy."""
        decides = self.source.source == "model"
        sends = self.recovered_loss, self.sent_percent_of_lqd
        worth = worth_in_words(*sends, baselines, chosen_on, policy=self.policy, decides=decides)
        others = {policy_words(name): count for name, count in sent.items() if name not in PUSHING_OUT}
        kind = "push nothing out"
        if self.source.source == "perfect" and self.sent_percent_of_lqd is not None:
            others = {policy_words(name): sent[name] for name in sent if name not in {*PUSHING_OUT, *ASKING}}
            kind += " and ask no predictor"
            worth = (
                f"Credence was told what LQD drops, which no switch knows, and sends {self.sent_percent_of_lqd:.4g} %: "
                "model=MODEL judges a model."
            )
        if not others or not self.lqd:
            return [worth]
        shares = {name: 100 * count / self.lqd for name, count in others.items()}
        shares |= {str(one["title"]): one["sent_percent_of_lqd"] for one in baselines}
        best = max(shares, key=lambda name: shares[name])
        most = f"{best} sends most, {shares[best]:.4g} % of what LQD sends"
        return [f"Of the policies that {kind} {most}.", worth]

    def table(self) -> Table:
        """Scores by region, and what they come to."""
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
            f"{self.source.source} predictions on {LABELLED_QUEUES}, in {self.unit}: eta "
            f"{figure_text(self.eta, '.4f')}, 1/eta {figure_text(self.inverse_eta, '.4f')}",
            f"{POLICIES[self.policy].title} with them: recovered loss {figure_text(self.recovered_loss, '.4f')}, "
            f"{SENT} {figure_text(self.sent_percent_of_lqd, '.4f')}",
        ]
        return Table.of_rows("Predictions", rows, *notes)

    def beside(self, baselines: Sequence[Mapping[str, Any]], chosen_on: str) -> list[Table]:
        """The model beside policies without a predictor; no table without them."""
        if not baselines:
            return []
        rows = [("the model", shown_share(self.recovered_loss), self.sent_percent_of_lqd), *baseline_rows(baselines)]
        notes = (
            f"The model decides in the switch, under {POLICIES[self.policy].title}.",
            f"Settings were chosen on {chosen_on}.",
        )
        return [Table("Next to tuned policies", ("who", "recovered loss", SENT), tuple(rows), notes)]


def asked_document(questions: Questions | None) -> dict[str, int | None]:
    """Questions of a policy, for ``result.json``; None when it asks nobody."""
    return {name: None if questions is None else getattr(questions, name) for name in ASKED}


def policies_table(policies: Mapping[str, Mapping[str, Cell]], titles: Mapping[str, str], note: str) -> Table:
    """A row per policy of what ``result.json`` says of it, with the titles of its columns."""
    rows = tuple((policy, *(figures.get(name) for name in titles)) for policy, figures in policies.items())
    return Table("Policies", ("policy", *titles.values()), rows, (note,))


def shown_questions(questions: Mapping[str, Questions], policies: Iterable[str]) -> dict[str, Questions]:
    """Questions of the policies in a table; none of one from outside that never asked, which may have no predictor."""
    asking = (policy for policy in policies if policy in questions)
    return {policy: questions[policy] for policy in asking if policy in POLICIES or questions[policy].asked}


def say_zeros(source: str, scores: Scores, questions: Mapping[str, Questions]) -> None:
    """Say that a model predicts no drop at all, or which policies never asked or were never told to drop."""
    if source == "accept":  # which is what was wanted
        return
    if source == "model":
        say_if_silent("the model", "these arrivals", scores["whole"])
    say_if_unasked({policy: (one.asked, one.predicted_drops) for policy, one in questions.items()})


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


def check_inputs(model: AskedModel, cell_bytes: int, average_shift: int, given_by: str) -> None:
    """Refuse a model whose features have another arithmetic than those of `given_by`."""
    if isinstance(model, FunctionPredictor):  # it takes features as they come
        return
    for item in model.features:
        params = feature(item.name).params(cell_bytes, average_shift)
        if item.params != params:
            raise ForetailError(
                f"the model reads feature {item.name} with {item.params or 'no constants'}, and {given_by} it with "
                f"{params or 'no constants'}: "
                + (
                    "export it with dataset=FOLDER, which fills them in"
                    if not item.params
                    else "train on such features"
                )
            )


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
