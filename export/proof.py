"""Proof that exported code decides as its model does, on every input, and the certificate that records it.

Model and code compare single inputs with constants, so both are constant on every cell of the grid that the model's
cuts and all constants read back from the emitted text span. Where the cells can be enumerated, the code runs on one
point of each. Where they cannot, every leaf box of every tree is compared with every box of the same part of the text
(``foretail.models.ensemble.boxes``), and the parts are added exactly (design section 4). Nothing is sampled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.export.folder import digests, in_json
from foretail.models.ensemble.boxes import Boxes, difference, leaf_boxes, overlap
from foretail.models.ensemble.cells import Cells, distinct_rows
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, dyadic_text, keys_exceed
from foretail.models.ensemble.rounding import framework_drops, framework_sum, rounding_bound

IntArray = npt.NDArray[np.int64]
Run = Callable[[IntArray], IntArray]

MAX_CELLS = 2 * 10**7
"""So many cells are enumerated in about a minute; larger models are proven by boxes."""

MAX_LISTED = 10
_SAMPLES = 100_000


class ProofError(ForetailError):
    """Exported code or integer votes decide otherwise than the model; the message names an input."""


def at_most(number: Fraction) -> str:
    """Return a decimal of four digits that is at least the number."""
    text = f"{float(number):.3e}"
    return text if Fraction(text) >= number else f"{float(number) * 1.001:.3e}"


@dataclass(frozen=True)
class PassReport:
    """The effect of one pass: its name, and the leaves of the ensemble before and after it."""

    name: str
    leaves_before: int
    leaves_after: int


@dataclass(frozen=True)
class Lowered:
    """A model on its way out."""

    model: Ensemble  #: as given
    simple: Ensemble  #: after the passes: tree by tree the same function, which they have proven
    ensemble: Ensemble  #: with integer votes: what targets emit
    passes: tuple[PassReport, ...] = ()
    any_tau: bool = False  #: the votes were made for any tau, so that those for one may be narrower

    @classmethod
    def of(cls, voted: Lowered | Ensemble) -> Lowered:
        """Return an ensemble that has votes as one that no pass has touched."""
        return voted if isinstance(voted, Lowered) else cls(voted, voted, voted)


@dataclass(frozen=True)
class Certificate:
    """The facts proven, and the files that they are about."""

    target: str  #: ``c``, ``p4`` or ``onnx``
    #: ``cells``: model and artefact compared on one point of every cell. ``boxes``: every leaf box of every tree
    #: compared with every box of the text, and the votes with the leaf values.
    method: Literal["cells", "boxes"]
    cells: int  #: number of cells, enumerated or not
    points_per_feature: dict[str, int]  #: intervals of every input; their product is `cells`
    boxes: int | None  #: boxes of the text, with ``boxes``
    #: how scores were compared with the exact sums of the model, in the same two ways
    votes_by: Literal["cells", "boxes"]
    order: bool  #: score strictly monotone in the exact sum over all inputs: the proof holds for any tau
    taus: list[int] | None  #: the only taus it holds for; None with `order` and with `rounding`
    #: with votes that were compared by boxes and are not exact, a dyadic rational: any tau decides as its threshold on
    #: the exact sum does, for every input whose exact sum is farther from it than this. Never more than the rounding of
    #: the framework's own sum.
    rounding: str | None
    default_tau: int
    threshold: str  #: the threshold on the exact sum that `default_tau` stands for, as in the ensemble file
    vote_bits: int
    #: cells where the framework's sum, rounded in tree order, decides otherwise than the exact sum; None when votes
    #: were compared by boxes, which does not enumerate them
    float_decides_otherwise: int | None
    #: cells so close to the threshold that some order of rounding could decide otherwise
    float_within_rounding: int | None
    float_inputs: list[list[int]]  #: inputs of the first ten such cells
    passes: list[dict[str, str | int]]  #: what the passes did, in order: name, leaves_before, leaves_after
    model_sha256: str  #: the ensemble that was given
    ir_sha256: str  #: the ensemble that was emitted, votes included, after the passes
    outputs: dict[str, str]  #: file name -> SHA-256 of the proven texts and of what was built from them
    tool: str  #: what the proven artefact was built or run with

    def to_json(self) -> str:
        return in_json("foretail.certificate", 2, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Certificate:
        """Read a certificate; raise ForetailError when it is missing or malformed."""
        try:
            document = parse_json(path.read_bytes())
            if (document.pop("schema"), document.pop("version")) != ("foretail.certificate", 2):
                raise ValueError("another schema")
            return cls(**document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ForetailError(f"{path} is not a certificate of version 2: export the model again") from None

    def check_tau(self, tau: int) -> None:
        """Raise ForetailError unless the proof covers decisions ``score > tau``."""
        if self.taus is not None and tau not in self.taus:
            raise ForetailError(
                f"the certificate of ensemble {self.ir_sha256[:12]} does not cover tau {tau}, only {self.taus}: "
                f"set the threshold before exporting and export again"
            )


@dataclass(frozen=True)
class ReadBack:
    """The function of an emitted text, read back from nothing but that text: ``score = base + sum of parts``."""

    #: input index -> values b such that the text may change between b and b + 1: every constant an input meets
    boundaries: Mapping[int, set[int]]
    #: one per tree of the ensemble, in order; None when the text cannot be taken apart so, and only cells prove it
    parts: tuple[Boxes, ...] | None = None
    base: int = 0


@dataclass(frozen=True)
class Relation:
    """How integer scores relate to exact sums over all inputs."""

    order: bool  #: strictly monotone: any tau stands for a threshold on the exact sum
    default: bool  #: ``score > default_tau`` iff ``exact sum > threshold``
    #: without these, the largest distance from the threshold at which they may disagree
    rounding: Fraction = Fraction(0)


def relate(model: Ensemble, voted: Ensemble, cells: Cells, effort: Effort | None = None) -> Relation:
    """Compare the exact sums of `model` with the scores of `voted` over all cells, which must span the cuts of both."""
    (_, tau), bound = voted.require_votes(), model.key_of(model.threshold)
    pairs, default = [], True
    for points in cells.watched("votes", effort or Effort()):
        keys, score = model.exact_key(points), voted.score(points)
        default &= bool(np.array_equal(score > tau, keys_exceed(keys, bound)))
        both = np.column_stack([keys, score])
        pairs.append(both[distinct_rows(both)[0]])
    both = np.concatenate(pairs)
    both = both[distinct_rows(both)[0]]
    # Sorted by (sum, score), a repeated sum has two scores, and a score that does not grow breaks the order.
    new_sum = np.any(both[1:, :-1] != both[:-1, :-1], axis=1)
    return Relation(bool(np.all(new_sum) and np.all(both[1:, -1] > both[:-1, -1])), default)


def relate_by_boxes(model: Ensemble, voted: Ensemble) -> Relation:
    """Bound the distance between the exact sums of `model` and the scores of `voted`, tree by tree, over all inputs."""
    vote_bits, tau = voted.require_votes()
    unit, low, high = Fraction(1, 1 << vote_bits), Fraction(0), Fraction(0)
    for exact, rounded in zip(model.trees, voted.trees, strict=True):
        boxes = leaf_boxes(rounded, voted.features)
        leaves = leaf_boxes(exact, model.features, np.arange(len(exact.feature)))
        errors: set[Fraction] = set()
        for leaf_low, leaf_high, leaf in zip(leaves.low, leaves.high, leaves.votes.tolist(), strict=True):
            meets = np.all(np.maximum(boxes.low, leaf_low) <= np.minimum(boxes.high, leaf_high), axis=1)
            value = Fraction(float(exact.value[leaf]))
            errors.update(vote * unit - value for vote in set(boxes.votes[meets].tolist()))
        low, high = low + min(errors), high + max(errors)
    exact_votes = low == high == 0
    # score * unit = exact sum - base + error, and score > tau iff score >= tau + 1
    base = Fraction(model.base)
    above, below = tau * unit + base - low - model.threshold, model.threshold - (tau + 1) * unit - base + high
    default = exact_votes and above <= 0 and below < 0
    return Relation(exact_votes, default, Fraction(0) if default else max(above, below))


def prove(
    lowered: Lowered | Ensemble,
    *,
    target: str,
    outputs: Mapping[str, bytes],
    read: Mapping[str, ReadBack],
    runs: Mapping[str, Run],
    tool: str,
    max_cells: int = MAX_CELLS,
    effort: Effort | None = None,
) -> Certificate:
    """Prove an emitted artefact equal to the ensemble on all inputs, and the ensemble to the model it came from.

    ProofError with an input at which the two differ. ForetailError when neither method applies.

    Parameters
    ----------
    lowered : what was emitted, with votes, and what it came from
    target : name of the target
    outputs : file name -> content of what is proven
    read : name of a code path -> what its text says
    runs : name of an entry point -> function from int64[rows, inputs] to int64[rows] that runs the artefact
    tool : what built or ran it
    max_cells : above so many cells the proof is by boxes
    effort : watches the enumerations
    """
    lowered, effort = Lowered.of(lowered), effort or Effort()
    ensemble, simple = lowered.ensemble, lowered.simple
    cells = Cells.of(ensemble, _boundaries(read))
    by_cells = cells.count <= max_cells
    boxes = None
    if by_cells:
        for points in cells.watched("proof", effort):
            _compare(ensemble, runs, points, target)
    else:
        boxes = sum(_compare_boxes(ensemble, name, text, target, effort) for name, text in read.items())
    # beside the proof: an off-by-one in code around the constants shows at the ends of intervals alone
    _compare(ensemble, runs, cells.sample(_SAMPLES, np.random.default_rng(0)), target)
    grid = Cells.of(simple)  # it has the cuts of the emitted ensemble, which came from it
    votes_by_cells = grid.count <= max_cells
    relation = relate(simple, ensemble, grid, effort) if votes_by_cells else relate_by_boxes(simple, ensemble)
    vote_bits, tau = ensemble.require_votes()
    if not relation.default and (votes_by_cells or relation.rounding > rounding_bound(simple)):
        raise ProofError(
            f"score > {tau} is not exact sum > {simple.threshold} on every cell: "
            f"nothing is exported, run the vote pass on the ensemble again"
        )
    floats = _floats(simple, grid, effort) if votes_by_cells else (None, None, [])
    return Certificate(
        target=target,
        method="cells" if by_cells else "boxes",
        cells=cells.count,
        points_per_feature={f.name: len(a) for f, a in zip(ensemble.features, cells.axes, strict=True)},
        boxes=boxes,
        votes_by="cells" if votes_by_cells else "boxes",
        order=relation.order,
        taus=[tau] if not relation.order and relation.default else None,
        rounding=None if relation.default else dyadic_text(relation.rounding),
        default_tau=tau,
        threshold=dyadic_text(simple.threshold),
        vote_bits=vote_bits,
        float_decides_otherwise=floats[0],
        float_within_rounding=floats[1],
        float_inputs=floats[2],
        passes=[asdict(report) for report in lowered.passes],
        model_sha256=lowered.model.sha256,
        ir_sha256=ensemble.sha256,
        outputs=digests(outputs),
        tool=tool,
    )


def require_same(expected: str, text: str, file: str) -> None:
    """Raise ProofError unless a file has the text that is written of what was read in it."""
    if expected == text:
        return
    pairs = zip([*expected.splitlines(), ""], [*text.splitlines(), ""], strict=False)
    line = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 0)
    at = text.splitlines()[line - 1 : line] or [""]
    raise ProofError(
        f"{file} has at line {line} what the exporter does not write ({at[0].strip()[:60]!r}): report this as a bug"
    )


def _boundaries(read: Mapping[str, ReadBack]) -> dict[int, set[int]]:
    """Return the boundaries of all texts together."""
    cuts: dict[int, set[int]] = defaultdict(set)
    for text in read.values():
        for index, values in text.boundaries.items():
            cuts[index] |= values
    return cuts


def _compare(ensemble: Ensemble, runs: Mapping[str, Run], points: IntArray, target: str) -> None:
    expected = ensemble.score(points)
    for name, run in runs.items():
        got = run(points)
        wrong = np.flatnonzero(got != expected)
        if wrong.size:
            at = int(wrong[0])
            raise ProofError(
                f"the exported {target} ({name}) gives {got[at]} where the model gives {expected[at]}, at "
                f"{_input(ensemble.features, points[at])}: nothing is exported, report this as a bug"
            )


def _compare_boxes(ensemble: Ensemble, name: str, text: ReadBack, target: str, effort: Effort) -> int:
    """Compare one code path with the ensemble tree by tree and return the number of its boxes."""
    if text.parts is None or len(text.parts) != len(ensemble.trees):
        raise ForetailError(
            f"the exported {target} ({name}) is not one part per tree, and the model has too many cells to enumerate: "
            f"choose another form of the target or a smaller model"
        )
    if text.base != 0:
        raise ProofError(f"the exported {target} ({name}) adds {text.base} to every score: report this as a bug")
    pairs = enumerate(zip(ensemble.trees, text.parts, strict=True))
    for index, (tree, part) in effort.watch(f"proof by boxes of {name}", pairs, len(ensemble.trees)):
        twice = overlap(part)
        if twice is not None:
            raise ProofError(
                f"the exported {target} ({name}) has two leaves of tree {index} at "
                f"{_input(ensemble.features, twice)}: nothing is exported, report this as a bug"
            )
        wrong = difference(leaf_boxes(tree, ensemble.features), part)
        if wrong is not None:
            raise ProofError(
                f"the exported {target} ({name}) gives another vote than tree {index} of the model, at "
                f"{_input(ensemble.features, wrong)}: nothing is exported, report this as a bug"
            )
    return sum(len(part.votes) for part in text.parts)


def _input(features: tuple[FeatureInput, ...], point: IntArray) -> str:
    return ", ".join(f"{feature.name}={value}" for feature, value in zip(features, point.tolist(), strict=True))


def _floats(model: Ensemble, cells: Cells, effort: Effort) -> tuple[int, int, list[list[int]]]:
    """Return the cells where the framework decides otherwise, those where some order of rounding could, and a few."""
    otherwise, close, listed = 0, 0, list[list[int]]()
    for points in cells.watched("rounding", effort):
        drops = keys_exceed(model.exact_key(points), model.key_of(model.threshold))
        otherwise += int((framework_drops(model, points) != drops).sum())
        near = np.abs(framework_sum(model, points) - float(model.threshold)) <= rounding_bound(model)
        close += int(near.sum())
        listed += points[near][: MAX_LISTED - len(listed)].tolist()
    return otherwise, close, listed
