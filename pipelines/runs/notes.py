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
