"""Notes of a command beside its tables: models used, aliases that moved, zeros to explain, early tables.

Whoever knows such a thing says it where it is known; :func:`foretail.pipelines.stage.run` prints all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretail.core.reading import telling
from foretail.pipelines.runs.result import Table, show

if TYPE_CHECKING:
    from foretail.models.mlflow.registry import Lineage
    from foretail.models.scoring.metrics import Score

ASKED = "asked: the packets at which Credence, told the true labels, asks"
"""Note on the rows that scores of that region are of."""
LABELLED_QUEUES = "the queues of a policy that knows the truth"
"""Note on where scores of labels are taken: in a switch the model's own answers make the queues."""


@dataclass
class Notes:
    """Notes so far."""

    #: in the order in which they were said, each once; all are printed
    sentences: list[str] = field(default_factory=list)
    #: those that belong to the result; where an alias pointed before belongs to the registry
    findings: list[str] = field(default_factory=list)
    models: list[Mapping[str, Any]] = field(default_factory=list)  #: models that were used, JSON-like
    #: what was used to train them, of those of which that is known
    lineages: list[Lineage] = field(default_factory=list)
    printed: list[Table] = field(default_factory=list)  #: tables that were printed before the end


_NOTES: ContextVar[Notes | None] = ContextVar("notes", default=None)
_SAYING = threading.Lock()


@contextmanager
def collecting_notes() -> Iterator[Notes]:
    """Collect what is said meanwhile, and what readers tell of inputs."""
    notes = Notes()
    token = _NOTES.set(notes)
    try:
        with telling(lambda reading: say(reading.sentence())):
            yield notes
    finally:
        _NOTES.reset(token)


def say(sentence: str, *, finding: bool = True) -> None:
    """Add a sentence to the end of the command, and to its result if it is a finding; nothing outside of a command."""
    notes = _NOTES.get()
    with _SAYING:
        if notes is not None and sentence not in notes.sentences:
            notes.sentences.append(sentence)
            if finding:
                notes.findings.append(sentence)


def use_lineage(lineage: Lineage | None) -> None:
    """Add what trained a model that the command judges, if that is known; nothing outside of a command."""
    notes = _NOTES.get()
    if notes is not None and lineage is not None:
        notes.lineages.append(lineage)


def lineages() -> Sequence[Lineage]:
    """Lineages of the models that the command has used so far."""
    notes = _NOTES.get()
    return notes.lineages if notes is not None else ()


def use_model(model: Mapping[str, Any], sentence: str) -> None:
    """Add a model to those that the command used; nothing outside of one."""
    notes = _NOTES.get()
    if notes is not None and model not in notes.models:
        notes.models.append(model)
        notes.sentences.append(sentence)


def show_early(tables: Sequence[Table]) -> None:
    """Print tables before the command ends, which then prints only the others; nothing outside of a command."""
    if _NOTES.get() is not None:
        show(tables)
        on_page_alone(tables)


def on_page_alone(tables: Sequence[Table]) -> None:
    """Leave tables to ``result.json`` and the page of ``foretail report``: the command does not print them."""
    notes = _NOTES.get()
    if notes is not None:
        notes.printed += tables


ANSWERS = {True: "drops every packet", False: "never drops"}


def say_if_silent(whose: str, where: str, scores: Mapping[str, Score]) -> None:
    """Say that a model predicts no drop, if its scores are so, on rows such as ``the test side``, named by `where`."""
    from foretail.models.scoring.metrics import predicted_drops_of

    if scores["rows"] and not predicted_drops_of(scores):
        say(
            f"{whose} never drops on the {scores['rows']:,} rows of {where}, so it does what always accepting does: "
            "lower its threshold, or train on more drops"
        )


def say_if_constant(whose: str, threshold: str, always: bool | None) -> None:
    """Say that a threshold lies outside of all scores, if that is so: `always` is True above it, False below, or None.

    Parameters
    ----------
    whose : the model, such as ``model a.json``
    threshold : what lies outside, such as ``its threshold`` or ``tau = 3``
    always : whether every packet is predicted to drop, or none; None where that depends on the packet
    """
    if always is not None:
        say(f"{threshold} of {whose} lies outside of all its scores, so it {ANSWERS[always]}: choose another one")


def say_if_unasked(questions: Mapping[str, tuple[int, int]]) -> None:
    """Say which policies never asked their predictor or were never told to drop, from asked and predicted drops."""
    for policy, (packets, predicted_drops) in questions.items():
        if not packets:
            say(
                f"{policy} never asked its predictor, so its figures say nothing of the predictions: give traffic that "
                "fills the buffer"
            )
        elif not predicted_drops:
            say(f"{policy} asked its predictor {packets:,} times and was never told to drop, so it always accepted")


def say_if_no_drops(drops: Mapping[int, tuple[int, int]]) -> None:
    """Say that LQD drops nothing in datasets, from rows and drops by seed: of all of them, or those named."""
    without = [seed for seed, (_, dropped) in drops.items() if not dropped]
    if not without:
        return
    rows = sum(drops[seed][0] for seed in without)
    which = "any dataset" if len(without) == len(drops) else f"the datasets of seeds {', '.join(map(str, without))}"
    say(f"LQD drops none of the {rows:,} packets of {which}, so nothing can be learned of drops there: raise the load")
