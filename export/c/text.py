"""Writing C: the text of a predictor from its shapes, and of the library and the self-test around it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import jinja2
import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.build import predictor_abi
from foretail.export.c.shapes import WORD, Bitvectors, HotBox, Trees
from foretail.export.folder import environment
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Node, nested
from foretail.models.ensemble.tree import Tree

IntArray = npt.NDArray[np.int64]
Single = Literal["branches", "bitvector", "hot_branches", "hot_bitvector"]
Batch = Literal["rows", "lanes", "hot_lanes"]

BLOCK = 32
"""Bounds per step of the search in long tables."""

_TREES_AT_ONCE = 8

SATURATED = (1 << 15) - 2
"""The largest input of a comparison in 16 bits: larger ones count as this."""

# What a struct field cannot be called in C or C++, or where a header has a macro of that name.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and asm auto bool break case catch char class compl const constexpr continue default
        delete do double else enum explicit export extern false final float for friend goto if inline int
        int64_t long mutable namespace new not noexcept nullptr operator or private protected public register
        requires restrict return short signed sizeof static struct switch template this thread_local throw true
        try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor concept
        assert complex errno i386 linux major makedev minor offsetof setjmp static_assert stderr stdin stdout unix
        """,
    )
)


@dataclass(frozen=True)
class Header:
    """All that a generated header says."""

    name: str  #: prefix of files and C names
    #: features, tau, hash and number of trees are stated; the code is made of `trees` and `bitvectors`
    ensemble: Ensemble
    single: Single  #: code of one prediction; ``hot_``: its code for inputs outside of the hot box
    reason: str  #: why this code, the end of a sentence
    #: code of many: one after the other, or a row per SIMD lane; ``hot_lanes``: in lanes where most rows of a block are
    #: outside of the hot box
    batch: Batch
    trees: Trees | None = None  #: there when `single` or `batch` needs them
    bitvectors: Bitvectors | None = None
    hot: HotBox | None = None  #: there when `single` needs it

    def text(self) -> str:
        """Return the header file."""
        values: dict[str, Any] = {
            "n": self.name,
            "N": self.name.upper(),
            "features": self.ensemble.features,
            "default_tau": self.ensemble.default_tau,
            "sha256": self.ensemble.sha256,
            "output": self.ensemble.output,
            "single": self.single,
            "reason": self.reason,
            "branches": self.single.endswith("branches"),
            "hot": self.hot,
            "batch": self.batch,
            "tree_count": len(self.ensemble.trees),
            "trees": None,
            "macros": list(self._macros()),
        }
        if self.trees is not None:
            lane_bits = comparison_bits(self.trees.boundaries, self.ensemble.features)
            order = range(len(self.trees.trees))
            values |= {
                "trees": ["\n".join(_tree_lines(tree)) for tree in self.trees.trees],
                "lane_bits": lane_bits,
                "lane_top": (1 << (lane_bits - 1)) - 2,
                "lane_quads": [
                    {"first": first, "inputs": min(4, len(self.ensemble.features) - first)}
                    for first in range(0, len(self.ensemble.features), 4)
                ],
                "leaves": self.trees.leaves,
                "largest_sum": self.trees.largest_sum,
                "vote_bits": _bits(self.trees.votes),
                "groups": [order[at : at + _TREES_AT_ONCE] for at in range(0, len(order), _TREES_AT_ONCE)],
            }
        if self.bitvectors is not None:
            values |= _tables(self.bitvectors, self.ensemble.features)
        return _environment().get_template("predictor.h.j2").render(values)

    def _macros(self) -> Iterator[str]:
        yield "X86"
        if self.trees is not None:
            yield from (f"TREE_{index}" for index in range(len(self.trees.trees)))
        if self.single.endswith("branches"):
            yield from ("IF", "RETURN")
        else:
            yield "LANE"
        if self.batch != "rows":
            yield from ("LIST", "VOTE", "NODE_256", "LEAF_256", "NODE_512", "LEAF_512", "HALF_512")


def comparison_bits(boundaries: Mapping[int, set[int]], features: Sequence[FeatureInput]) -> int:
    """Return the width, 16, 32 or 64 bits, in which inputs are compared with these cuts.

    16 bits hold at most 2**15 - 2; 32 bits are signed, and their largest value ends every table of bounds.
    """
    if any(feature.bits > 30 for feature in features):
        return 64
    return 16 if max((cut for cuts in boundaries.values() for cut in cuts), default=0) < SATURATED else 32


def render_library(name: str, features: Sequence[FeatureInput]) -> str:
    """Return ``<name>.c``: the predictor ABI around ``<name>.h``."""
    values = {"n": name, "N": name.upper(), "features": features, "abi": predictor_abi()}
    return _environment().get_template("predictor.c.j2").render(values)


def render_selftest(name: str, rows: IntArray, scores: IntArray) -> str:
    """Return ``<name>_selftest.c``: a program that returns 0 iff ``<name>.h`` gives these scores.

    `rows` are int64[count, features], `scores` int64[count].
    """
    values = {
        "n": name,
        "N": name.upper(),
        "count": len(rows),
        "rows": _lines(("{" + ", ".join(map(str, row)) + "}" for row in rows.tolist()), 4),
        "scores": _lines((f"INT64_C({score})" for score in scores.tolist()), 4),
    }
    return _environment().get_template("predictor_selftest.c.j2").render(values)


def c_string(text: str) -> str:
    """Return a C string literal; raise ForetailError on anything but letters, digits and ``_=,.+-``."""
    if not re.fullmatch(r"[A-Za-z0-9_=,.+-]*", text):
        raise ForetailError(f"{text!r} cannot be written into C: use letters, digits and _=,.+- only")
    return f'"{text}"'


def c_field(name: str) -> str:
    """Return the struct field of a feature: its name, with an underscore behind a keyword and what may be a macro."""
    own = name.rstrip("_")
    return f"{name}_" if own in _KEYWORDS or own.isupper() else name


def _tree_lines(tree: Tree) -> Iterator[str]:
    votes, count = tree.require_votes(), itertools.count()

    def lines(node: Node, indent: str, end: str) -> Iterator[str]:
        if isinstance(node, int):
            yield f"{indent}LEAF({next(count)}, {votes[node]}){end}"
        else:
            feature, cut, below, above = node
            yield f"{indent}NODE({feature}, {cut},"
            yield from lines(below, indent + "  ", ",")
            yield from lines(above, indent + "  ", ")" + end)

    every = list(lines(nested(tree), "  ", ""))
    yield from (line + " \\" for line in every[:-1])
    yield every[-1]


def _tables(bitvectors: Bitvectors, features: Sequence[FeatureInput]) -> dict[str, Any]:
    bits, inputs = comparison_bits(bitvectors.boundaries, features), len(features)
    top = (1 << (bits - 1)) - 1
    tables = []
    for feature, cuts, masks in zip(bitvectors.features, bitvectors.cuts, bitvectors.masks, strict=True):
        bounds = [cut + 1 for cut in cuts]
        long = len(bounds) >= 2 * BLOCK
        # Always one unused place at least: it ends every search.
        bounds += [top] * (-(len(bounds) + 1) % (BLOCK if long else WORD // 4) + 1)
        steps = bounds[BLOCK - 1 :: BLOCK] if long else []
        steps += [top] * (-len(steps) % 16)
        rows = ("{" + ", ".join(f"UINT64_C({word:#x})" for word in row) + "}" for row in masks.tolist())
        tables.append(
            {
                "feature": feature,
                "intervals": len(cuts) + 1,
                "size": len(bounds),
                "bounds": _lines(map(str, bounds), 16),
                "steps_size": len(steps),
                "steps": _lines(map(str, steps), 16),
                "masks": _lines(rows, 1 if masks.shape[1] > 1 else 4),
            }
        )
    votes = ("{" + ", ".join(map(str, row)) + "}" for row in bitvectors.votes.tolist())
    return {
        "tables": tables,
        "words": len(bitvectors.votes),
        "votes": _lines(votes, 1),
        "vote_bits": _bits(bitvectors.votes.reshape(-1).tolist()),
        "fields": [f"{field:#018x}" for field in bitvectors.fields],
        "spans": bitvectors.spans if max(bitvectors.spans) > 1 else (),
        "bound_bits": bits,
        "bound_top": top,
        "quads": [
            {"index": quad, "low": _pair(4 * quad, inputs), "high": _pair(4 * quad + 2, inputs)}
            for quad in sorted({feature // 4 for feature in bitvectors.features})
        ],
    }


def _pair(first: int, inputs: int) -> str:
    if first >= inputs:
        return "_mm_setzero_si128()"
    load = "_mm_loadu_si128" if first + 1 < inputs else "_mm_loadl_epi64"
    return f"{load}((const __m128i *)(x + {first}))"


def _lines(items: Iterable[str], per_line: int) -> str:
    every = list(items)
    rows = [", ".join(every[at : at + per_line]) for at in range(0, len(every), per_line)]
    return ",\n".join(f"    {row}" for row in rows)


def _bits(values: Iterable[int]) -> int:
    largest = max(max(value, -value - 1) for value in values)
    return next(bits for bits in (16, 32, 64) if largest < 1 << (bits - 1))


@cache
def _environment() -> jinja2.Environment:
    return environment("foretail.export.c", c_string=c_string, c_field=c_field)
