"""Windows of arrivals, against a slow obvious model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretail.features.rows.labelled_rows import ArrivalWindow, WindowRows, windows


@given(
    count=st.integers(0, 60),
    behind=st.integers(0, 5),
    ahead=st.integers(0, 5),
    switches=st.integers(1, 4),
    batch=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_windows_are_those_of_a_list_per_switch(
    count: int, behind: int, ahead: int, switches: int, batch: int, seed: int
) -> None:
    rows = made_up(count, switches, np.random.default_rng(seed))
    window = ArrivalWindow(behind, ahead)
    batches = (rows[slice(first, first + batch)] for first in range(0, count, batch))
    found = list(windows(batches, window))
    x = np.concatenate([np.empty((0, 5 * window.arrivals), np.int32), *(x for x, _ in found)])
    assert x.tolist() == list(slow_windows(rows, window))
    labels = np.concatenate([np.empty((0, 1), np.bool_), *(labels for _, labels in found)])
    assert np.array_equal(labels, rows.labels)


def made_up(count: int, switches: int, random: np.random.Generator) -> WindowRows:
    return WindowRows(
        x=random.integers(1, 100, (count, 2)).astype(np.int32),
        switch=random.integers(0, switches, count).astype(np.int16),
        port=random.integers(0, 2, count).astype(np.int16),
        time_ns=np.cumsum(random.integers(0, 2**30, count)),
        size_bytes=random.integers(1, 100_000, count),
        labels=random.random((count, 1)) < 0.5,
    )


def slow_windows(rows: WindowRows, window: ArrivalWindow) -> Iterator[list[int]]:
    of_switch: dict[int, list[int]] = {}
    for row, switch in enumerate(rows.switch):
        of_switch.setdefault(int(switch), []).append(row)
    for row, switch in enumerate(rows.switch):
        mine = of_switch[int(switch)]
        line: list[int] = []
        for offset in range(-window.behind, window.ahead + 1):
            place = mine.index(row) + offset
            if not 0 <= place < len(mine):
                line += [0] * 5
                continue
            other = mine[place]
            line += rows.x[other].tolist()
            line.append(int(rows.port[other] == rows.port[row]))
            line.append(min(abs(int(rows.time_ns[other]) - int(rows.time_ns[row])) // 16, 2**24 - 1))
            line.append(min(int(rows.size_bytes[other]), 2**16 - 1))
        yield line


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    """With arrivals behind only, every batch gives its own windows at once."""
    rows = made_up(1000, 3, np.random.default_rng(1))
    sizes = []

    def batches() -> Iterator[WindowRows]:
        for first in range(0, 1000, 100):
            yield rows[slice(first, first + 100)]

    for x, _ in windows(batches(), ArrivalWindow(behind=4)):
        sizes.append(len(x))
    assert sizes == [100] * 10
