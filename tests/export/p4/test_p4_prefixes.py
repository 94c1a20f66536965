"""Rows for one key: every kind is the same function, and ternary rows are no more than the fewest prefixes."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.export.p4.rows import KINDS, Intervals, Kind, Row, Rows, intervals_of, range_prefixes, rows_of
from tests.examples import draws


@st.composite
def interval_maps(draw: st.DrawFn, max_bits: int = 8, max_labels: int = 5) -> Intervals[int]:
    bits = draw(st.integers(1, max_bits))
    top = (1 << bits) - 1
    uppers = [*sorted(draw(st.sets(st.integers(0, top - 1), max_size=12))), top]
    labels = draw(st.lists(st.integers(0, max_labels - 1), min_size=len(uppers), max_size=len(uppers)))
    return Intervals.of(bits, uppers, labels)


def table(rows: Rows[int], kind: Kind, bits: int) -> list[int]:
    """The label of every key, read row by row."""
    found = []
    for key in range(1 << bits):
        hits = [
            row
            for row in rows.rows
            if (row.first <= key <= row.second if kind == "range" else key & row.second == row.first)
        ]
        found.append(hits[0].label if hits else rows.default)
    return found


def meaning(intervals: Intervals[int]) -> list[int]:
    return [label for low, high, label in intervals.bounds() for _ in range(low, high + 1)]


@pytest.mark.parametrize("kind", KINDS)
@given(intervals=interval_maps(), data=st.data())
@settings(max_examples=draws(60))
def test_every_kind_of_rows_is_the_same_function(kind: Kind, intervals: Intervals[int], data: st.DataObject) -> None:
    top = (1 << intervals.bits) - 1
    largest = data.draw(st.sampled_from([top, top // 2, *(upper for upper in intervals.uppers)]))
    rows = rows_of(intervals, kind, largest)
    assert table(rows, kind, intervals.bits)[: largest + 1] == meaning(intervals)[: largest + 1]
    assert meaning(intervals_of(rows, kind, intervals.bits)) == table(rows, kind, intervals.bits)


@given(data=st.data(), kind=st.sampled_from(KINDS), bits=st.integers(1, 7))
def test_any_rows_are_read_as_the_function_that_they_are(data: st.DataObject, kind: Kind, bits: int) -> None:
    """Also rows that overlap, or have wildcards before other bits."""
    number = st.integers(0, (1 << bits) - 1)
    pairs = data.draw(st.lists(st.tuples(number, number), max_size=6))
    sides = [(min(pair), max(pair)) if kind == "range" else (pair[0] & pair[1], pair[1]) for pair in pairs]
    rows = Rows(tuple(Row(first, second, label % 3) for label, (first, second) in enumerate(sides)), 3)
    assert meaning(intervals_of(rows, kind, bits)) == table(rows, kind, bits)


@pytest.mark.parametrize(
    ("kind", "row"),
    [("range", Row(5, 4, 0)), ("range", Row(0, 8, 0)), ("ternary", Row(2, 1, 0)), ("ternary", Row(8, 8, 0))],
)
def test_rows_that_switches_may_read_otherwise_are_refused(kind: Kind, row: Row[int]) -> None:
    with pytest.raises(ValueError, match="of a key of 3 bits"):
        intervals_of(Rows((row,), 1), kind, 3)


def fewest_prefixes(wanted: list[int], bits: int, largest: int) -> int:
    """Rows of the smallest prefix table beside a free default, by trying all."""
    labels = sorted(set(wanted))
    prefixes = [(low, size) for size in (1 << b for b in range(bits)) for low in range(0, 1 << bits, size)]
    for count in range(len(prefixes) + 1):
        for chosen in combinations(sorted(prefixes, key=lambda p: -p[1]), count):
            for given_labels in product(labels, repeat=count + 1):
                keys = [given_labels[0]] * (1 << bits)
                for (low, size), label in zip(chosen, given_labels[1:], strict=True):  # larger ones first
                    keys[low : low + size] = [label] * size
                if keys[: largest + 1] == wanted[: largest + 1]:
                    return count
    raise AssertionError("exact rows would do")


@given(intervals=interval_maps(max_bits=3, max_labels=3), unused=st.integers(0, 3))
@settings(max_examples=draws(60))
def test_ternary_rows_are_at_most_as_many_as_the_fewest_prefixes(intervals: Intervals[int], unused: int) -> None:
    largest = max(0, (1 << intervals.bits) - 1 - unused)
    rows = rows_of(intervals, "ternary", largest)
    assert len(rows.rows) <= fewest_prefixes(meaning(intervals), intervals.bits, largest)


@given(st.integers(1, 16).flatmap(lambda b: st.tuples(st.just(b), *[st.integers(0, (1 << b) - 1)] * 2)))
def test_a_range_is_made_of_disjoint_prefixes_in_order(drawn: tuple[int, int, int]) -> None:
    bits, low, high = drawn[0], min(drawn[1:]), max(drawn[1:])
    at = low
    for value, mask in range_prefixes(low, high, bits):
        size = ((1 << bits) - 1 ^ mask) + 1
        assert (value, value % size, size & (size - 1)) == (at, 0, 0)
        at += size
    assert at == high + 1


@pytest.mark.parametrize(
    ("low", "high", "count"), [(0, 15, 1), (1, 14, 6), (1, 15, 4), (0, 14, 4), (5, 5, 1), (8, 15, 1)]
)
def test_ranges_expand_to_the_known_numbers_of_prefixes(low: int, high: int, count: int) -> None:
    assert len(range_prefixes(low, high, 4)) == count
