"""Reading generated C back: what its text says, from nothing but that text.

The numbers of the trees and of the tables are taken from the text. A text is then only accepted when writing these
numbers gives it again, letter by letter: there is nothing in it that was not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.shapes import WORD, Bitvectors, HotBox, Trees
from foretail.export.c.text import SATURATED, Header, comparison_bits, render_library
from foretail.export.proof import ProofError, ReadBack, require_same
from foretail.models.ensemble.boxes import Boxes
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.nested import Node, tree_of

_TREE = re.compile(r"^#define [A-Z0-9_]+_TREE_(\d+)\(NODE, LEAF\) \\\n((?:.*\\\n)*.*)$", re.MULTILINE)
_TOKEN = re.compile(r"\s*(?:\\\n)?\s*(?:(NODE)\((\d+), (\d+),|(LEAF)\((\d+), (-?\d+)\)|([,)]))")
_BOUNDS = re.compile(r"\bint(16|32|64)_t bounds_(\d+)\[\d+\] = \{([-\d,\s]*)\}")
_MASKS = re.compile(r"\buint64_t masks_(\d+)\[(\d+)\]\[(\d+)\] = \{([^;]*)\};")
_WORD = re.compile(r"UINT64_C\((0x[0-9a-f]+)\)")
_VOTES = re.compile(r"\bvotes\[(\d+)\]\[64\] = \{([^;]*)\};")
_FIELD = re.compile(r"left & UINT64_C\((0x[0-9a-f]+)\)")
_HOT = re.compile(r"^  if \((x\[.*)\) return INT64_C\((-?\d+)\);$", re.MULTILINE)
_SIDE = re.compile(r"x\[(\d+)\] (<=|>=) (\d+)")
_SPANS = re.compile(r"/\* words of the trees: ([\d, ]+) \*/")


def read_c(header: Header, text: str, library: str | None = None) -> Mapping[str, ReadBack]:
    """Read back a generated header; ProofError when the text has anything that the exporter does not write.

    Returns what it says by form: ``trees``, ``bitvectors``.

    Parameters
    ----------
    header : name, features, tau, hash and forms that the text must have; its trees and tables are not looked at
    text : the header file
    library : the library source around it
    """
    try:
        branches, features = header.single.endswith("branches"), header.ensemble.features
        trees = _read_trees(text) if branches or header.batch != "rows" else None
        bitvectors = None if branches else _read_bitvectors(text)
        hot = _read_hot(text, features) if header.single.startswith("hot_") else None
        if header.batch == "hot_lanes" and hot is None:
            raise ValueError("blocks of rows are tested, but there is no hot box")
        again = replace(header, trees=trees, bitvectors=bitvectors, hot=hot).text()
    except (ValueError, IndexError, OverflowError, RecursionError, ForetailError) as error:
        raise ProofError(f"the exported C cannot be read back ({error}): report this as a bug") from None
    require_same(again, text, f"{header.name}.h")
    count = len(header.ensemble.trees)
    if library is not None:
        require_same(render_library(header.name, features), library, f"{header.name}.c")
    read: dict[str, ReadBack] = {}
    if any(max(shape.boundaries, default=0) >= len(features) for shape in (trees, bitvectors) if shape):
        raise ProofError(f"the exported C reads more than its {len(features)} inputs: report this as a bug")
    if trees is not None:
        boxes = trees.boxes(features)
        _require_count(count, len(boxes))
        read["trees"] = ReadBack(_boundaries(trees.boundaries, features, header.batch != "rows"), boxes)
    if bitvectors is not None:
        try:
            boxes = bitvectors.boxes(features)
        except ForetailError as error:
            raise ProofError(f"the exported C cannot be read back ({error}): report this as a bug") from None
        for spare in boxes[count:]:
            if np.any(spare.votes) or not _everywhere(spare, features):
                raise ProofError("the exported C has votes of no tree: report this as a bug")
        _require_count(count, len(boxes[:count]))
        read["bitvectors"] = ReadBack(_boundaries(bitvectors.boundaries, features, True), boxes[:count])
    if hot is not None:
        form = "trees" if branches else "bitvectors"
        if not hot.holds(boxes[:count]):
            raise ProofError("the hot box of the exported C has another score than its trees: report this as a bug")
        cuts = read[form].boundaries
        boundaries = {feature: {*cuts.get(feature, ()), *sides} for feature, sides in hot.boundaries.items()}
        read[form] = replace(read[form], boundaries=boundaries)
    return read


def _read_hot(text: str, features: tuple[FeatureInput, ...]) -> HotBox:
    ((tests, score),) = _HOT.findall(text)
    low, high = np.zeros(len(features), np.int64), np.array([(1 << feature.bits) - 1 for feature in features])
    for feature, side, bound in _SIDE.findall(tests):
        (low if side == ">=" else high)[int(feature)] = int(bound)
    return HotBox(low, high, int(score))


def _read_trees(text: str) -> Trees:
    trees = []
    for index, (stated, body) in enumerate(_TREE.findall(text)):
        if int(stated) != index:
            raise ValueError(f"tree {stated} where tree {index} is due")
        tokens = [match.groups() for match in _TOKEN.finditer(body)]
        votes: list[int] = []
        root, end = _read_node(tokens, 0, votes)
        if end != len(tokens):
            raise ValueError(f"tree {index} does not end")
        trees.append(tree_of(root, np.zeros(len(votes)), np.array(votes, np.int64)))
    return Trees(tuple(trees))


def _read_node(tokens: list[tuple[str, ...]], at: int, votes: list[int]) -> tuple[Node, int]:
    """Read a node and the votes of its leaves, which get numbers in their order; return where the next one begins."""
    node, feature, cut, _leaf, _number, vote, _mark = tokens[at]
    if not node:
        if vote is None:
            raise ValueError("neither a comparison nor a leaf")
        votes.append(int(vote))
        return len(votes) - 1, at + 1
    below, at = _read_node(tokens, at + 1, votes)
    above, at = _read_node(tokens, at + 1, votes)  # behind the comma
    return (int(feature), int(cut), below, above), at + 1


def _read_bitvectors(text: str) -> Bitvectors:
    texts = _VOTES.findall(text)
    if len(texts) != 1:
        raise ValueError("not one table of votes")
    words, votes = texts[0]
    features: list[int] = []
    cuts: list[tuple[int, ...]] = []
    masks: list[npt.NDArray[np.uint64]] = []
    for bits, feature, bounds in _BOUNDS.findall(text):
        values = [int(bound) for bound in bounds.split(",")]
        top = (1 << (int(bits) - 1)) - 1
        used = values.index(top)
        if any(a >= b for a, b in pairwise(values[:used])):
            raise ValueError(f"bounds of x[{feature}] out of order")
        features.append(int(feature))
        cuts.append(tuple(bound - 1 for bound in values[:used]))
    for feature, intervals, width, table in _MASKS.findall(text):
        if features[len(masks)] != int(feature) or width != words or int(intervals) != len(cuts[len(masks)]) + 1:
            raise ValueError(f"masks of x[{feature}] do not fit its bounds")
        numbers = np.array([int(word, 16) for word in _WORD.findall(table)], np.uint64)
        masks.append(numbers.reshape(int(intervals), int(words)))
    if len(masks) != len(features):
        raise ValueError("a table of masks is missing")
    stated = _SPANS.search(text)
    spans = tuple(map(int, stated[1].split(","))) if stated else (1,) * int(words)
    if sum(spans) != int(words):
        raise ValueError("trees with more or fewer words than there are")
    fields = tuple(int(field, 16) for field in _FIELD.findall(text)) or ((1 << WORD) - 1,)
    if sum(fields) > (1 << WORD) - 1 or any(a & b for i, a in enumerate(fields) for b in fields[:i]):
        raise ValueError("fields of a word that overlap")
    return Bitvectors(
        tuple(features),
        tuple(cuts),
        tuple(masks),
        np.array([int(vote) for vote in re.findall(r"-?\d+", votes)], np.int64).reshape(int(words), WORD),
        fields,
        spans,
    )


def _boundaries(cuts: dict[int, set[int]], features: tuple[FeatureInput, ...], saturates: bool) -> dict[int, set[int]]:
    """Add to the cuts of every input the place where it saturates."""
    if not saturates or comparison_bits(cuts, features) > 16:
        return cuts
    return {feature: {*of_feature, SATURATED - 1} for feature, of_feature in cuts.items()}


def _require_count(expected: int, count: int) -> None:
    if count != expected:
        raise ProofError(f"the exported C has {count} trees where the model has {expected}: report this as a bug")


def _everywhere(boxes: Boxes, features: tuple[FeatureInput, ...]) -> bool:
    top = [(1 << feature.bits) - 1 for feature in features]
    return len(boxes.votes) == 1 and boxes.low.tolist() == [[0] * len(top)] and boxes.high.tolist() == [top]
