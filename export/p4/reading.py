"""The tables of emitted P4 read back from its text and its entries, and the scores that they decide.

Keys, widths and rows are taken from the text; with entries for a control plane, rows are taken from the P4Runtime
updates. Files are then only accepted when writing these tables gives all of them again, letter by letter: there is
nothing in them that was not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.p4.encoding import (
    Decision,
    Encoding,
    FeatureCode,
    FeatureTable,
    Frame,
    KeySlice,
    Tables,
    VoteTable,
)
from foretail.export.p4.profile import ARCHITECTURES, INPUT_BITS
from foretail.export.p4.rows import Kind, Row, Rows, check_ternary, intervals_of
from foretail.export.p4.text import CONTROL, render_p4
from foretail.export.proof import ProofError, ReadBack, require_same
from foretail.models.ensemble.boxes import Boxes
from foretail.models.ensemble.ensemble import Ensemble

IntArray = npt.NDArray[np.int64]

LARGEST_INPUT = (1 << INPUT_BITS) - 1
WORD = 64
_BATCH = 1 << 21
"""Words of 64 rows that are matched at once."""

_TABLE = re.compile(
    r"^(?:    @id\((0x[0-9a-f]{8})\)\n)?(?:    @description\([^\n]*\)\n)?    table (\w+) \{\n(.*?)^    \}\n",
    re.M | re.S,
)
_KEY = re.compile(r"^        key = \{ (.*) \}$", re.M)
_DEFAULT = re.compile(r"default_action = \w+\((.*)\);$", re.M)
_ENTRY = re.compile(r"^ {12}(.*) : \w+\((.*)\);$", re.M)
_NUMBER = re.compile(r"(\d{1,4})w(0x[0-9a-f]{1,1024})")
_SLICE = re.compile(r"c_(\w+)_w(\d{1,4})\[(\d{1,4}):(\d{1,4})\]")
_CONSTANT = re.compile(r"^        v_(\d{1,4}) = \(int<\d+>\) \d+w(\d{1,20});$", re.M)
_VOTES = re.compile(r"(product|group|tree)(?:_(\d{1,4}))?")
_BYTES = r'"((?:\\x[0-9a-f]{2})+)"'
_UPDATE = re.compile(r"table_id: (\d{1,10}) (.*)action \{ action \{ action_id: \d+ (.*)\} \}")
_MATCH = re.compile(rf"field_id: (\d{{1,4}}) \w+ \{{ \w+: {_BYTES} \w+: {_BYTES} \}}")
_VALUE = re.compile(f"value: {_BYTES}")


_DECISIONS: Mapping[str, Decision] = {"product": "product", "group": "groups", "tree": "leaf_rows"}


def read_p4(
    ensemble: Ensemble, texts: Mapping[str, str], name: str, control: str = CONTROL, frame: Frame | None = None
) -> Tables:
    """Read the files of :func:`render_p4` back; ProofError when they have anything that is not written there.

    Parameters
    ----------
    ensemble : its features, tau and hash are what the text must state; its trees are not looked at
    texts : all files, name -> text
    name : prefix of the files
    control, frame : that they were rendered with
    """
    try:
        tables = _read(ensemble, texts[f"{name}.p4"], texts.get(f"{name}.entries.txtpb"), frame)
        again = render_p4(ensemble, tables, name, f"{name}.entries.txtpb" in texts, control, frame)
    except (ValueError, LookupError, TypeError, ForetailError) as error:
        raise ProofError(
            f"the exported P4 cannot be read back ({error}): nothing is exported, report this as a bug"
        ) from None
    if again.keys() != texts.keys():
        raise ProofError(f"the exported P4 has the files {', '.join(texts)}, not {', '.join(again)}: report this")
    for file, text in again.items():
        require_same(text, texts[file], file)
    return tables


@dataclass(frozen=True)
class _Table:
    """A table as the texts have it."""

    key: str  #: fields and their kind
    default: list[tuple[int, int]]  #: width and value of the action's parameters
    entries: list[tuple[str, str]]  #: match and data
    runtime: bool  #: whether entries are updates of P4Runtime

    def rows(self, widths: Sequence[int]) -> list[Row[tuple[int, ...]]]:
        """Return the rows of a key of fields of these widths."""
        rows = []
        for match, data in self.entries:
            if self.runtime:
                fields = {int(field): sides for field, *sides in _MATCH.findall(match)}
                pairs = [fields.get(field, ["0", "0"]) for field in range(1, len(widths) + 1)]
                first, second = ([_of_bytes(pair[side]) for pair in pairs] for side in (0, 1))
                values = [_of_bytes(value) for value in _VALUE.findall(data)]
            else:
                numbers = [value for _, value in _numbers(match)]
                first, second = numbers[::2], numbers[1::2]
                values = [value for _, value in _numbers(data)]
            rows.append(Row(_joined(first, widths), _joined(second, widths), tuple(values)))
        return rows


def _read(ensemble: Ensemble, text: str, updates: str | None, frame: Frame | None) -> Tables:
    architecture = ARCHITECTURES[_one(r"after core\.p4 and (\w+)\.p4;", text)]
    score_bits = int(_one(r"out int<(\d{1,4})> score", text))
    of_id: dict[int, list[tuple[str, str]]] = {}
    for table, match, data in _UPDATE.findall(updates or ""):
        of_id.setdefault(int(table), []).append((match, data))
    tables = {}
    for number, table, body in _TABLE.findall(text):
        entries = _ENTRY.findall(body) if updates is None else of_id.get(int(number or "0", 16), [])
        key = _KEY.search(body)
        tables[table] = _Table(key[1] if key else "", _numbers(_one(_DEFAULT, body)), entries, updates is not None)
    names = [feature.name for feature in ensemble.features]
    features = [_feature_table(i, f, tables[f"t_{f}"], text) for i, f in enumerate(names) if f"t_{f}" in tables]
    words = {names[table.code.feature]: table.code.words for table in features}
    votes = {int(i): VoteTable((), (), _signed(int(value), score_bits)) for i, value in _CONSTANT.findall(text)}
    decision: Decision = "leaf_rows"
    for table in tables:
        if kind := _VOTES.fullmatch(table):
            decision, index = _DECISIONS[kind[1]], int(kind[2] or 0)
            votes[index] = _vote_table(index, names, words, tables[table], text)
    every = tuple(votes[i] for i in range(max(len(votes), 1)))
    if frame is not None and max(len(table.entries) for table in tables.values()) > frame.rows:
        raise ValueError(f"a table has more than {frame.rows} rows")
    _require_room(every, ensemble.require_votes()[1], score_bits, 1 if architecture.expressions else 2)
    codes = tuple(table.code for table in features)
    return Tables(Encoding(architecture, decision, codes, every, frame is not None), tuple(features), score_bits)


def _feature_table(index: int, name: str, table: _Table, text: str) -> FeatureTable:
    cut = re.search(rf"^        if \(f_{name} > 24w(\d{{1,8}})\)", text, re.M)
    saturation = int(cut[1]) + 1 if cut else LARGEST_INPUT
    bits, words = saturation.bit_length(), tuple(width for width, _ in table.default)
    rows = Rows(tuple(table.rows([bits])), tuple(value for _, value in table.default))
    for values in (*(row.label for row in rows.rows), rows.default):
        if any(value >> width for value, width in zip(values, words, strict=True)):
            raise ValueError(f"a code word of {name} is too wide")
    kind: Kind = "range" if ": range" in table.key else "ternary"
    code = FeatureCode(index, saturation, words, intervals_of(rows, kind, bits))
    return FeatureTable(code, kind, rows)


def _vote_table(
    index: int, names: list[str], words: Mapping[str, Sequence[int]], table: _Table, text: str
) -> VoteTable:
    joined = re.search(rf"^        key_{index} = (.*);$", text, re.M)  # else the fields are those of the table
    key = []
    for name, word, high, low in _SLICE.findall(joined[1] if joined else table.key):
        if not int(low) <= int(high) < words[name][int(word)]:
            raise ValueError(f"the bits {high} to {low} of a code word of {name}")
        key.append(KeySlice(names.index(name), int(word), int(high), int(low)))
    widths = [part.high - part.low + 1 for part in key]
    ((bits, default),) = table.default
    signed = re.search(rf"^    action vote_{index}\(.*\n.*\(int<{bits}>\) vote", text, re.M) is not None
    rows = []
    for row in table.rows([sum(widths)] if joined else widths):
        check_ternary(row, sum(widths))
        (vote,) = row.label
        rows.append(Row(row.first, row.second, _signed(vote, bits) if signed else vote))
    return VoteTable(tuple(key), tuple(rows), _signed(default, bits) if signed else default)


def _require_room(votes: Sequence[VoteTable], tau: int, score_bits: int, spare: int) -> None:
    """Raise ValueError unless tau and every sum of some votes fit the score.

    Additions may then be in any order. An excess, which is a vote less tau to which the other votes are added and which
    saturates, keeps its sign: all votes together are less than either end is away from 0.
    """
    reached = [[0, table.default, *(row.label for row in table.rows)] for table in votes]
    half = 1 << (score_bits - 1)
    if score_bits > WORD or not (
        spare - half <= sum(map(min, reached)) <= sum(map(max, reached)) < half and -half <= tau < half
    ):
        raise ValueError("a sum of votes and tau do not fit the score")


def _joined(numbers: Sequence[int], widths: Sequence[int]) -> int:
    """Return the fields of a key as one number, the most significant first."""
    whole = 0
    for number, width in zip(numbers, widths, strict=True):
        if number >> width:
            raise ValueError(f"{number:#x} in {width} bits of a key")
        whole = whole << width | number
    return whole


def _numbers(text: str) -> list[tuple[int, int]]:
    """Return width and value of the numbers in a text."""
    return [(int(width), int(value, 16)) for width, value in _NUMBER.findall(text)]


def _of_bytes(text: str) -> int:
    return int(text.replace("\\x", ""), 16)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _one(pattern: str | re.Pattern[str], text: str) -> str:
    """Return the first group of a pattern's first match; ValueError without one."""
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"nothing is as {pattern if isinstance(pattern, str) else pattern.pattern}")
    return match[1]


_Sets = Mapping[int, int]
"""Inputs that match a row: of every input that matters, in which of its intervals, one bit each."""


class TableScore:
    """The scores that tables decide, from the intervals of every input in which its code words are constant."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._cuts: dict[int, list[int]] = {}
        self._bits: dict[int, dict[tuple[int, int], int]] = {}  # of input, word and bit: intervals in which it is set
        for code in tables.encoding.codes:
            # Larger values count as the saturation, which lies in the interval behind the last cut.
            cuts = [upper for upper in code.intervals.uppers if upper < code.saturation]
            self._cuts[code.feature] = cuts
            self._bits[code.feature] = {
                (word, bit): sum(
                    1 << i for i, label in enumerate(code.intervals.labels[: len(cuts) + 1]) if label[word] >> bit & 1
                )
                for word, width in enumerate(code.words)
                for bit in range(width)
            }
        self._matches = [[self._sets(table, row) for row in table.rows] for table in tables.encoding.votes]
        self._packed = [self._pack(matches) for matches in self._matches]

    def score(self, x: IntArray) -> IntArray:
        """Return the scores of int64[rows, inputs], each at most 24 bits: int64[rows]."""
        total = np.zeros(len(x), np.int64)
        places = {feature: np.searchsorted(cuts, x[:, feature]) for feature, cuts in self._cuts.items()}
        for table, (every, masks) in zip(self._tables.encoding.votes, self._packed, strict=True):
            votes = np.array([*(row.label for row in table.rows), table.default])
            step = max(_BATCH // max(len(every), 1), 1)
            for start in range(0, len(x), step):
                batch = slice(start, start + step)
                left = np.tile(every, (len(total[batch]), 1))  # a bit per row that may match
                for feature, mask in masks.items():
                    left &= mask[places[feature][batch]]
                word = (left != 0).argmax(axis=1)
                bits = left[np.arange(len(left)), word]
                first = WORD * word + np.bitwise_count((bits & (~bits + np.uint64(1))) - np.uint64(1))
                total[batch] += votes[np.where(bits == 0, len(table.rows), first)]
        return total

    def read_back(self, trees: int, inputs: int) -> ReadBack:
        """Return the cuts of the tables and, when there is one for each tree, their boxes.

        ProofError on a row that matches no box of inputs.
        """
        votes = self._tables.encoding.votes
        boundaries = {feature: set(cuts) for feature, cuts in self._cuts.items()}
        spare = {vote for table in votes[trees:] for vote in (table.default, *(row.label for row in table.rows))}
        if len(votes) < trees or spare - {0}:  # tables of no tree
            return ReadBack(boundaries)
        return ReadBack(boundaries, tuple(self._boxes(i, inputs) for i in range(trees)))

    def _sets(self, table: VoteTable, row: Row[int]) -> _Sets:
        sets: dict[int, int] = {}
        place = table.key_bits
        for part in table.key:
            place -= part.high - part.low + 1
            for bit in range(part.low, part.high + 1):
                at = 1 << (place + bit - part.low)
                if row.second & at:
                    every, holds = self._every(part.feature), self._bits[part.feature][part.word, bit]
                    inside = holds if row.first & at else every ^ holds
                    sets[part.feature] = sets.get(part.feature, every) & inside
        return sets

    def _every(self, feature: int) -> int:
        return (1 << (len(self._cuts[feature]) + 1)) - 1

    def _pack(self, matches: Sequence[_Sets]) -> tuple[npt.NDArray[np.uint64], dict[int, npt.NDArray[np.uint64]]]:
        """Return a bit per row, uint64[words], and for each input the rows of each interval, [intervals, words]."""
        words = max(-(-len(matches) // WORD), 1)

        def packed(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
            padded = np.zeros((len(bits), words * WORD), np.bool_)
            padded[:, : len(matches)] = bits
            return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)

        masks = {}
        for feature in sorted({feature for sets in matches for feature in sets}):
            intervals = len(self._cuts[feature]) + 1
            inside = [sets.get(feature, self._every(feature)) for sets in matches]
            masks[feature] = packed(np.array([[side >> i & 1 for side in inside] for i in range(intervals)], np.bool_))
        return packed(np.ones((1, len(matches)), np.bool_))[0], masks

    def _boxes(self, index: int, inputs: int) -> Boxes:
        table = self._tables.encoding.votes[index]
        boxes, votes, default = [], [], table.default
        for sets, row in zip(self._matches[index], table.rows, strict=True):
            if all(side == self._every(feature) for feature, side in sets.items()):
                default = row.label  # no later row matches
                break
            if all(sets.values()):
                boxes.append([self._side(feature, sets.get(feature)) for feature in range(inputs)])
                votes.append(row.label)
        bounds = np.array(boxes, np.int64).reshape(-1, inputs, 2)
        return Boxes(bounds[:, :, 0], bounds[:, :, 1], np.array(votes, np.int64), default)

    def _side(self, feature: int, side: int | None) -> tuple[int, int]:
        """Return the lowest and the highest value of neighbouring intervals of an input."""
        if side is None:
            return 0, LARGEST_INPUT
        ends = [-1, *self._cuts[feature], LARGEST_INPUT]
        first, last = (side & -side).bit_length() - 1, side.bit_length()
        if side != (1 << last) - (1 << first):
            raise ProofError("the exported P4 has a row of more than one box of inputs: report this as a bug")
        return ends[first] + 1, ends[last]
