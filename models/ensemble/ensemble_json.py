"""The ensemble's file, ``docs/reference/ensemble.md``: its canonical text, its JSON schema, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json

if TYPE_CHECKING:
    from foretail.models.ensemble.ensemble import Ensemble
    from foretail.models.ensemble.tree import Tree


def text_of(ensemble: Ensemble) -> str:
    """Return the canonical JSON of an ensemble."""
    return json.dumps(document_of(ensemble, ensemble.trees), sort_keys=True, separators=(",", ":")) + "\n"


def document_of(ensemble: Ensemble, trees: Sequence[Tree]) -> dict[str, Any]:
    """Return an ensemble, with these for its trees, JSON-like."""
    return {
        "schema": "foretail.ensemble",
        "version": 1,
        "output": ensemble.output,
        "features": [asdict(feature) for feature in ensemble.features],
        "base": float(ensemble.base).hex(),
        "threshold": dyadic_text(ensemble.threshold),
        "vote_bits": ensemble.vote_bits,
        "default_tau": ensemble.default_tau,
        "trees": [
            {
                "feature": tree.feature.tolist(),
                "cut": tree.cut.tolist(),
                "left": tree.left.tolist(),
                "right": tree.right.tolist(),
                "value": [v.hex() for v in tree.value.tolist()],
                "votes": None if tree.votes is None else tree.votes.tolist(),
                **({} if tree.visits is None else {"visits": tree.visits.tolist()}),
            }
            for tree in trees
        ],
        "origin": dict(ensemble.origin),
    }


def read(text: str, source: str) -> dict[str, Any]:
    """Return the fields of an ensemble, those of its features and trees in lists; `source` names it in errors.

    ForetailError when the text is not a valid version 1 file.
    """
    try:
        document = parse_json(text, parse_float=_no_float)
    except ValueError as error:
        raise ForetailError(f"{source} is not an ensemble file ({error}): export the model again") from None
    validate(document, source)
    try:
        for tree in document["trees"]:
            tree["value"] = [float.fromhex(value) for value in tree["value"]]
        document["base"], document["threshold"] = float.fromhex(document["base"]), _dyadic(document["threshold"])
    except OverflowError:
        raise ForetailError(f"{source} holds a number beyond float64: export the model again") from None
    del document["schema"], document["version"]
    return dict(document)


def validate(document: object, source: str = "the ensemble") -> None:
    """Raise ForetailError unless a document follows the schema of version 1."""
    import jsonschema

    if isinstance(document, dict) and document.get("schema") == "foretail.ensemble" and document.get("version") != 1:
        raise ForetailError(
            f"{source} has format version {document.get('version')!r}, but this Foretail reads version 1: "
            f"use the Foretail that wrote it or export again"
        )
    error = jsonschema.exceptions.best_match(_validator().iter_errors(document))
    if error is not None:
        place = error.json_path.replace("$", "").lstrip(".") or "the top level"
        reason = error.message if len(error.message) <= 160 else f"{error.validator} is violated"
        raise ForetailError(f"{source} is not a valid foretail.ensemble at {place} ({reason}): export the model again")


def dyadic_text(number: Fraction) -> str:
    """Return a dyadic rational as the files write it, ``0x3p-2``; raise ForetailError for any other number."""
    if number.denominator & (number.denominator - 1):
        raise ForetailError(f"threshold {number} is not a dyadic rational: its denominator must be a power of two")
    sign = "-" if number < 0 else ""
    return f"{sign}{abs(number.numerator):#x}p-{number.denominator.bit_length() - 1}"


def _dyadic(text: str) -> Fraction:
    mantissa, exponent = text.split("p")
    return int(mantissa, 16) * Fraction(2) ** int(exponent)


def _no_float(text: str) -> float:
    raise ValueError(f"the number {text} is neither an integer nor a hexadecimal string")


@cache
def _validator() -> Any:
    import jsonschema  # a tenth of a second, which only those pay who make ensembles

    text = resources.files(__package__).joinpath("ensemble.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))
