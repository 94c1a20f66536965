"""The tree ensemble: the one form in which a trained drop predictor is scored, proven and exported.

Meaning (design section 4): every leaf holds a float64, which is a dyadic rational; the *exact sum* of an input is the
base plus the values of the leaves it reaches, in exact arithmetic, and the packet is dropped iff that sum exceeds
`threshold`. Integer votes, filled by ``foretail.export``, turn this into ``score > tau`` on 64-bit integers.
Nothing here computes with rounding. `docs/reference/ensemble.md` specifies the file format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError, readable
from foretail.core.files import write_file
from foretail.core.json_text import parse_json
from foretail.core.summary import Summarised
from foretail.features.catalog import SHADOW_PREFIX, feature
from foretail.models.ensemble.tree import IntArray, Tree, tree_fault

Output = Literal["mean_probability", "logit", "value"]
OriginValue = str | int | bool | None

MAX_BITS = 32
"""Widest feature."""

FLOAT32_BITS = 24
"""Every integer up to 2**24 is a float32; trainers round larger ones first."""

MAX_TREES = 1 << 14
"""So many 48-bit digits sum in an int64."""

CHUNK_ROWS = 1 << 18
"""Rows that are computed at a time."""

_LIMB_BITS = 48


@dataclass(frozen=True)
class FeatureInput:
    """One input of an ensemble.

    Examples
    --------
    >>> FeatureInput("pressure", "", bits=8)
    FeatureInput(name='pressure', params='', bits=8)
    >>> FeatureInput.of("queue", cell_bytes=256)
    FeatureInput(name='queue', params='cell_bytes=256', bits=24)
    """

    name: str  #: feature name of the catalog: a letter, then letters, digits and underscores
    params: str  #: constants of the feature's arithmetic, as the predictor ABI carries them (``Feature.params``)
    bits: int  #: inputs are integers in ``[0, 2**bits)``, ``1 <= bits <= 32``

    @staticmethod
    def of(name: str, cell_bytes: int, average_shift: int = 0) -> FeatureInput:
        """Return a feature of the catalog in cells of so many bytes, averaged over ``2**average_shift`` ns or slots."""
        known = feature(name)
        return FeatureInput(name, known.params(cell_bytes, average_shift), known.bits)


@dataclass(frozen=True)
class ColumnInput(FeatureInput):
    """An input whose column in training had another name; an ensemble keeps it as a :class:`FeatureInput`."""

    column: str  #: any text


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(Summarised):
    """A drop predictor over integer inputs: ``drop iff exact sum > threshold``, and ``iff score > default_tau``.

    ForetailError when an invariant of this class or of :class:`Tree` does not hold.

    Examples
    --------
    A tree that drops where the buffer is more than half full:

    >>> from foretail.models.ensemble.nested import tree_of_rule
    >>> tree = tree_of_rule(("fill", 127, 0.0, 1.0), ["fill"])
    >>> ensemble = Ensemble((FeatureInput("fill", "", bits=8),), (tree,), threshold=Fraction(1, 2))
    >>> ensemble.exceeds(np.array([[100], [200]])).tolist()
    [False, True]
    """

    features: tuple[FeatureInput, ...]  #: inputs in column order, names distinct
    trees: tuple[Tree, ...]  #: at least one. Either every tree has votes or none has
    threshold: Fraction  #: on the exact sum, a dyadic rational
    base: float = 0.0  #: added to every exact sum, finite
    #: what the exact sum means: the number of trees times the drop probability (forests), its logit (boosting), or a
    #: quantity (regression), which decides nothing
    output: Output = "mean_probability"
    #: votes are leaf values times ``2**vote_bits``, rounded half to even; None before the vote pass
    vote_bits: int | None = None
    #: ``score > default_tau`` iff ``exact sum > threshold``; the base has no vote but moves it. None before the vote
    #: pass
    default_tau: int | None = None
    #: where the model comes from; part of the file and of its hash, without effect on scores
    origin: Mapping[str, OriginValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate(_document_of(self, trees=()))  # trees have their own, vectorised, checks
        _check_invariants(self)

    def shown_values(self) -> dict[str, str]:
        """Return what is shown."""
        return {
            "features": ", ".join(feature.name for feature in self.features),
            "trees": f"{len(self.trees):,}",
            "depth": str(max(tree.depth for tree in self.trees)),
            "leaves": f"{sum(len(tree.leaves) for tree in self.trees):,}",
            "threshold": f"{float(self.threshold):.6g}",
            "output": self.output,
        }

    def __eq__(self, other: object) -> bool:
        return self.sha256 == other.sha256 if isinstance(other, Ensemble) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.sha256)

    def require_votes(self) -> tuple[int, int]:
        """Return `vote_bits` and `default_tau`; raise ForetailError before the vote pass."""
        self.trees[0].require_votes()  # all trees have votes, and with them these two, or none
        assert self.vote_bits is not None
        assert self.default_tau is not None
        return self.vote_bits, self.default_tau

    # -- meaning -------------------------------------------------------------------------------------------------

    def checked_inputs(self, x: npt.ArrayLike) -> IntArray:
        """Return `x` as int64[rows, features]; raise ForetailError on another shape, type or range.

        The columns of a DataFrame are found by their names.
        """
        array = np.asarray(self._ordered(x))
        if array.ndim != 2 or array.shape[1] != len(self.features):
            raise ForetailError(
                f"the predictor needs {len(self.features)} feature columns, but the input has shape {array.shape}: "
                f"pass one column per feature in the order {', '.join(f.name for f in self.features)}"
            )
        if array.dtype.kind not in "iu":
            raise ForetailError(
                f"the predictor needs integer features, but got {array.dtype}: pass what the switch sees"
            )
        for column, item in enumerate(self.features):
            values = array[:, column]
            if values.size and (values.min() < 0 or values.max() >= 1 << item.bits):
                raise ForetailError(
                    f"feature {item.name!r} has values outside [0, 2**{item.bits}): "
                    f"saturate them as the feature definition says"
                )
        return np.ascontiguousarray(array, np.int64)

    def score(self, x: npt.ArrayLike) -> IntArray:
        """Return the integer score of every row: the sum of its leaves' votes.

        `x`: integer array [rows, features], each column in ``[0, 2**bits)`` of its feature. ForetailError without
        votes, or on a wrong shape, type or range. Returns int64[rows]: ``score > default_tau`` means drop.
        """
        x = self.checked_inputs(x)
        total = np.zeros(len(x), np.int64)
        for tree in self.trees:
            total += tree.require_votes()[tree.leaf(x)]
        return total

    @cached_property
    def scale_bits(self) -> int:
        """Smallest s such that the base and every leaf value times ``2**s`` is an integer."""
        values = [self.base, *(v for tree in self.trees for v in tree.value.tolist())]
        return max(Fraction(v).denominator.bit_length() - 1 for v in values)

    def exact_sum(self, x: npt.ArrayLike) -> npt.NDArray[np.object_]:
        """Return the exact sum of every row as Python ints in units of ``2**-scale_bits``: object[rows]."""
        x = self.checked_inputs(x)
        total = np.full(len(x), self._scaled(self.base), object)
        for tree in self.trees:
            total += np.array([self._scaled(v) for v in tree.value.tolist()], object)[tree.leaf(x)]
        return total

    def _ordered(self, frame: Any) -> Any:
        """Return a frame's columns in the order of the features, those of a shadow too; anything else as it is."""
        if not hasattr(frame, "columns"):
            return frame
        columns = []
        for item in self.features:
            named = [name for name in (item.name, SHADOW_PREFIX + item.name) if name in frame.columns]
            if len(named) != 1:
                has = f"has {named[0]} and {named[1]}" if named else f"has no column {item.name}"
                raise ForetailError(f"the frame {has}: pass one column for each feature")
            columns.append(named[0])
        return frame[columns]

    def exact_key(self, x: npt.ArrayLike) -> IntArray:
        """Return the exact sums as int64[rows, limbs]: rows order lexicographically as their sums do.

        The most significant limb, first, is signed; the others are 48-bit digits of the sum in units of
        ``2**-scale_bits``. It is :meth:`exact_sum` at the speed of numpy.
        """
        return self._by_chunks(x, self._keys)

    def key_of(self, total: Fraction) -> tuple[int, ...]:
        """Return the limbs of the largest multiple of ``2**-scale_bits`` that is at most `total`."""
        return _digits((total * (1 << self.scale_bits)).__floor__(), self._limbs)

    def exceeds(self, x: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return whether the exact sum of every row exceeds the threshold (drop), without votes: bool[rows]."""
        return keys_exceed(self.exact_key(x), self.key_of(self.threshold))

    def float_sum(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the sum of every row rounded as scikit-learn does, in float64 and tree order: float64[rows].

        For reports and for finding rows where the framework's rounding decides; decisions use exact sums.
        """
        return self._by_chunks(x, self._float_sum)

    def probability(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the drop probability of every row from :meth:`float_sum`: float64[rows] in [0, 1].

        ForetailError when the output is a quantity.
        """
        if self.output == "value":
            raise ForetailError("the ensemble predicts a quantity, no drops: give a drop predictor")
        total = self.float_sum(x)
        if self.output == "mean_probability":
            return total / len(self.trees)
        return np.exp(-np.logaddexp(0, -total))  # no overflow at either end

    def with_threshold(self, threshold: Fraction) -> Ensemble:
        """Return the ensemble with another threshold on the exact sum, and no votes (tau would be wrong)."""
        trees = tuple(replace(tree, votes=None) for tree in self.trees)
        return replace(self, trees=trees, threshold=threshold, vote_bits=None, default_tau=None)

    def with_visits(self, batches: Iterable[npt.ArrayLike]) -> Ensemble:
        """Return the ensemble with the counts of these rows, integer arrays [rows, features], at the leaves."""
        visits = [np.zeros(len(tree.feature), np.int64) for tree in self.trees]
        for batch in batches:
            x = self.checked_inputs(batch)
            for count, tree in zip(visits, self.trees, strict=True):
                count += np.bincount(tree.leaf(x), minlength=len(count))
        return replace(self, trees=tuple(replace(t, visits=n) for t, n in zip(self.trees, visits, strict=True)))

    @cached_property
    def max_vote_bits(self) -> int:
        """Largest vote width, at most 58, at which no score can leave int64."""
        largest = sum(Fraction(float(np.abs(tree.value).max())) for tree in self.trees)
        return next(w for w in range(58, -2000, -1) if largest * Fraction(2) ** w + len(self.trees) < 1 << 63)

    @cached_property
    def _limbs(self) -> int:
        largest = abs(self._scaled(self.base)) + sum(
            self._scaled(float(np.abs(tree.value).max())) for tree in self.trees
        )
        return -(-(largest.bit_length() + 1) // _LIMB_BITS)

    @cached_property
    def _value_limbs(self) -> tuple[IntArray, ...]:
        digits = [[_digits(self._scaled(v), self._limbs) for v in tree.value.tolist()] for tree in self.trees]
        return tuple(np.array(rows, np.int64) for rows in digits)

    def _scaled(self, value: float) -> int:
        return int(Fraction(value) * (1 << self.scale_bits))

    def _by_chunks(self, x: npt.ArrayLike, of: Callable[[IntArray], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Apply `of` to checked rows, some at a time: as int64 they take twice the memory of the given ones."""
        rows = np.atleast_1d(self._ordered(x))
        firsts = range(0, max(len(rows), 1), CHUNK_ROWS)
        parts = [of(self.checked_inputs(rows[first : first + CHUNK_ROWS])) for first in firsts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _float_sum(self, x: IntArray) -> npt.NDArray[np.float64]:
        total = np.zeros(len(x))
        for tree in self.trees:
            total += tree.value[tree.leaf(x)]
        return total + self.base

    def _keys(self, x: IntArray) -> IntArray:
        total = np.tile(np.array(_digits(self._scaled(self.base), self._limbs), np.int64), (len(x), 1))
        for tree, limbs in zip(self.trees, self._value_limbs, strict=True):
            total += limbs[tree.leaf(x)]
        for limb in range(self._limbs - 1, 0, -1):
            total[:, limb - 1] += total[:, limb] >> _LIMB_BITS
            total[:, limb] &= (1 << _LIMB_BITS) - 1
        return total

    # -- files ---------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, no spaces, ASCII, one final newline."""
        return json.dumps(_document_of(self, self.trees), sort_keys=True, separators=(",", ":")) + "\n"

    @cached_property
    def sha256(self) -> str:
        """Hex SHA-256 of the canonical JSON, 64 characters: the identity of the ensemble."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str, source: str = "the ensemble") -> Ensemble:
        """Read an ensemble; `source` names it in errors. Raise ForetailError when it is not a valid version 1 file."""
        try:
            fields = parse_json(text, parse_float=_no_float)
        except ValueError as error:
            raise ForetailError(f"{source} is not an ensemble file ({error}): export the model again") from None
        _validate(fields, source)
        del fields["schema"], fields["version"]
        try:
            for tree in fields["trees"]:
                tree["value"] = [float.fromhex(value) for value in tree["value"]]
            fields["base"], (mantissa, exponent) = float.fromhex(fields["base"]), fields["threshold"].split("p")
            fields["threshold"] = int(mantissa, 16) * Fraction(2) ** int(exponent)
            features = tuple(FeatureInput(**feature) for feature in fields.pop("features"))
            return cls(features, tuple(Tree(**tree) for tree in fields.pop("trees")), **fields)
        except OverflowError:
            raise ForetailError(f"{source} holds a number beyond float64: export the model again") from None
        except ForetailError as error:
            raise ForetailError(f"{source}: {error}") from None

    def save(self, path: Path) -> None:
        """Write the canonical JSON to `path`; the file has the old content or this."""
        write_file(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> Ensemble:
        """Read the ensemble at `path`; raise ForetailError when it is missing or not a valid version 1 file."""
        with readable(path, "pass the ensemble.json that training wrote"):
            text = path.read_text(encoding="utf-8")
        return cls.from_json(text, source=str(path))


def votes_of(value: npt.NDArray[np.float64], vote_bits: int) -> IntArray:
    """Return exact values times ``2**vote_bits``, rounded half to even: int64 of the same shape."""
    return np.array([round(Fraction(v) * (1 << vote_bits)) for v in value.tolist()], np.int64)


def keys_exceed(keys: IntArray, bound: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return whether each row of `keys`, int64[rows, limbs], is lexicographically greater than `bound`: bool[rows]."""
    greater = np.zeros(len(keys), np.bool_)
    for limb in range(len(bound) - 1, -1, -1):
        greater = (keys[:, limb] > bound[limb]) | ((keys[:, limb] == bound[limb]) & greater)
    return greater


def _digits(number: int, limbs: int) -> tuple[int, ...]:
    """Split an integer into a signed leading limb and `limbs` - 1 digits of 48 bits."""
    digits = []
    for _ in range(limbs - 1):
        digits.append(number & ((1 << _LIMB_BITS) - 1))
        number >>= _LIMB_BITS
    # A threshold far outside all sums would not fit the leading limb; it then compares like the nearest int64.
    return (min(max(number, -(1 << 63)), (1 << 63) - 1), *reversed(digits))


def _check_invariants(ensemble: Ensemble) -> None:
    if not 1 <= len(ensemble.trees) <= MAX_TREES:
        raise ForetailError(f"the ensemble has {len(ensemble.trees)} trees: use 1 to {MAX_TREES}")
    names = [f.name for f in ensemble.features]
    if len(set(names)) != len(names):
        raise ForetailError(f"the ensemble names a feature twice ({', '.join(names)}): name every feature once")
    if not np.isfinite(ensemble.base):
        raise ForetailError("the ensemble's base is not finite: train the model again")
    voted = {tree.votes is not None for tree in ensemble.trees}
    if voted != {ensemble.vote_bits is not None} or (ensemble.default_tau is None) != (ensemble.vote_bits is None):
        raise ForetailError(
            "votes, vote_bits and default_tau of the ensemble must be set together: run the vote pass again"
        )
    if ensemble.vote_bits is not None and any(
        not np.array_equal(tree.votes, votes_of(tree.value, ensemble.vote_bits))
        for tree in ensemble.trees
        if tree.votes is not None
    ):
        raise ForetailError("the ensemble's votes are not its rounded values: run the vote pass again")
    if len({tree.visits is None for tree in ensemble.trees}) > 1:
        raise ForetailError("some trees of the ensemble have visits and others none: count them for all trees")
    largest_cut = np.array([(1 << f.bits) - 2 for f in ensemble.features])
    for index, tree in enumerate(ensemble.trees):
        fault = tree_fault(tree, largest_cut)
        if fault:
            raise ForetailError(f"tree {index} of the ensemble {fault}: export the model again")
    if ensemble.vote_bits is not None and ensemble.vote_bits > ensemble.max_vote_bits:
        raise ForetailError("the ensemble's votes can overflow a 64-bit score: use fewer vote bits")


def _document_of(ensemble: Ensemble, trees: Sequence[Tree]) -> dict[str, Any]:
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
            {name: getattr(tree, name).tolist() for name in ("feature", "cut", "left", "right")}
            | {
                "value": [v.hex() for v in tree.value.tolist()],
                "votes": None if tree.votes is None else tree.votes.tolist(),
                **({} if tree.visits is None else {"visits": tree.visits.tolist()}),
            }
            for tree in trees
        ],
        "origin": dict(ensemble.origin),
    }


def _validate(document: object, source: str = "the ensemble") -> None:
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


def _no_float(text: str) -> float:
    raise ValueError(f"the number {text} is neither an integer nor a hexadecimal string")


@cache
def _validator() -> Any:
    import jsonschema  # a tenth of a second, which only those pay who make ensembles

    text = resources.files(__package__).joinpath("ensemble.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))
