"""The file of a trained demand predictor: versioned JSON that holds its parameters and what it learned.

Numbers are float64 as Python writes them, which reads back to the last bit: the predictor that is read predicts what
the one that was written predicts. Everything is checked when it is read, and nothing in a file is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from foretail.core.digest import check_file
from foretail.core.errors import ForetailError, readable
from foretail.core.json_text import parse_json
from foretail.core.plugins import DEMAND_PREDICTOR_GROUP, Kinds
from foretail.core.settings import limits_of
from foretail.features.demand.matrix import MAX_NODES
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import LastValue, MovingAverage, Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.regression import BoostedEntries, LinearEntries, LowRank

SCHEMA, VERSION = "foretail.demand_predictor", 1

PREDICTORS: Mapping[str, type[DemandPredictor]] = {
    "last_value": LastValue,
    "moving_average": MovingAverage,
    "seasonal": Seasonal,
    "linear_entries": LinearEntries,
    "boosted_entries": BoostedEntries,
    "low_rank": LowRank,
    "history_attention": HistoryAttention,
}
"""By the name that they have in settings and files."""


KINDS = Kinds(DEMAND_PREDICTOR_GROUP, DemandPredictor, "demand predictor", PREDICTORS)  # type: ignore[type-abstract]
"""Foretail's own demand predictors, and those that installed packages offer."""

name_of = KINDS.name
"""Function from a predictor to the name of its kind; ForetailError for one that has none."""


def to_json(predictor: DemandPredictor) -> str:
    """Return the file of a trained predictor, ASCII with one final newline; equal predictors give equal texts.

    ForetailError before `fit`, or for a kind that has no name.
    """
    predictor.require_fit()
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "name": name_of(predictor),
        "parameters": predictor.parameters(),
        "nodes": predictor.nodes_,
        "learned": predictor.learned(),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def from_json(text: str, source: str = "the demand predictor") -> DemandPredictor:
    """Return the predictor of a file, trained; `source` names it in errors.

    ForetailError when the text is not a valid file of version 1, or a package that the predictor needs is missing.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise ForetailError(f"{source} is not a demand predictor ({error}): give what foretail demand wrote") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ForetailError(f"{source} is JSON, but no demand predictor: give what foretail demand wrote")
    if document.get("version") != VERSION:
        raise ForetailError(
            f"{source} has format version {document.get('version')!r}, but this Foretail reads version {VERSION}: "
            f"use the Foretail that wrote it or train again"
        )
    try:
        known = {"schema", "version", "name", "parameters", "nodes", "learned"}
        if set(document) != known:
            raise ValueError(f"it has other keys, by {', '.join(sorted(set(document) ^ known))[:80]}")
        if document["name"] not in KINDS.names():
            raise ValueError(f"no predictor is called {str(document['name'])[:40]!r}")
        kind = KINDS.kind(document["name"])
        parameters, nodes = document["parameters"], document["nodes"]
        if set(parameters) != set(limits_of(kind)):
            raise ValueError("it has other parameters")
        if type(nodes) is not int or not 2 <= nodes <= MAX_NODES:
            raise ValueError(f"nodes is {str(nodes)[:40]}")
        predictor = kind(**parameters)
        predictor.check_parameters()
        predictor.nodes_ = nodes
        predictor.restore(document["learned"])
        if set(predictor.learned()) != set(document["learned"]):
            raise ValueError("it has learned other things")
        return predictor
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ForetailError(f"{source} is not a valid demand predictor ({reason}): train it again") from None


def load(path: Path) -> DemandPredictor:
    """Return the predictor of a file; ForetailError as :func:`from_json`, and when it cannot be read."""
    with readable(path, "give a predictor that foretail demand wrote"):
        text = path.read_text(encoding="utf-8")
    check_file(path, "train it again")
    return from_json(text, str(path))
