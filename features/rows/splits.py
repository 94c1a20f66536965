"""Splits of labelled rows into train, validation and test: by run, or by time with a gap, never by row.

Neighbouring packets of one burst must not sit on both sides; a random row split would put them there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import traffic_sha256

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc

SIDES = ("train", "validation", "test")


@dataclass(frozen=True)
class Selection:
    """The rows of one dataset with ``start_ns <= time_ns < end_ns``; None leaves that end open."""

    dataset: Dataset
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def where(self) -> pc.Expression | None:
        """The selection as a filter for :meth:`Dataset.rows`; None selects every row."""
        if self.start_ns is None and self.end_ns is None:
            return None
        import pyarrow.compute as pc

        time_ns = pc.field("time_ns")
        after = None if self.start_ns is None else time_ns >= self.start_ns
        before = None if self.end_ns is None else time_ns < self.end_ns
        if after is not None and before is not None:
            return after & before
        return before if after is None else after

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield what :meth:`Dataset.rows` does, only the selected rows."""
        return self.dataset.rows(columns, self.where)

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return what :meth:`Dataset.frame` does, only the selected rows."""
        return self.dataset.frame(columns, self.where)

    def count(self) -> int:
        """Return the number of selected rows."""
        return self.dataset.count(self.where)

    def drops(self) -> int:
        """Return the number of selected rows labelled drop."""
        import pyarrow.compute as pc

        labelled = pc.field("lqd_drop")
        return self.dataset.count(labelled if self.where is None else self.where & labelled)


Side = tuple[Selection, ...]


@dataclass(frozen=True)
class Split:
    """Three sides without a row in common, none of them empty."""

    train: Side
    validation: Side
    test: Side

    def __post_init__(self) -> None:
        """Refuse an empty side."""
        for name in SIDES:
            side: Side = getattr(self, name)
            if not any(selection.count() for selection in side):
                raise ForetailError(f"the {name} side of the split has no rows: give it more runs or a longer time")


def listed_sides(
    train: Collection[int], validation: Collection[int], test: Collection[int], present: Collection[int]
) -> dict[str, set[int]]:
    """Return the seeds of every side, once each of the runs that are `present` is on one.

    ForetailError if a seed is on two sides, a listed seed has no run, or a run's seed is on no side.
    """
    sides = dict(zip(SIDES, (set(train), set(validation), set(test)), strict=True))
    listed = [seed for seeds in sides.values() for seed in seeds]
    twice = sorted({seed for seed in listed if listed.count(seed) > 1})
    if twice:
        raise ForetailError(f"seed {twice[0]} is on two sides of the split: list it on one")
    if missing := sorted(set(listed) - set(present)):
        remedy = "collect it or take it off the list"
        if len(present) == 1:
            remedy = f"a split by run needs three runs and there is seed {next(iter(present))} alone, so collect more"
        raise ForetailError(f"seed {missing[0]} of the split has no run: {remedy}")
    if unlisted := sorted(set(present) - set(listed)):
        raise ForetailError(
            f"the run with seed {unlisted[0]} is on no side of the split: list its seed "
            "under train, validation or test, or leave its dataset out"
        )
    return sides


def drawn_sides(runs: Collection[str], validation: float, test: float, seed: int) -> dict[str, list[str]]:
    """Draw the names of whole runs for validation and test; the rest train.

    There are at least three runs, in any order. Both fractions are in (0, 1), and rounded to at least one run.
    ForetailError on fractions out of range, or a side that would be empty.
    """
    _check_fractions(validation, test)
    names = np.random.default_rng(seed).permutation(sorted(runs)).tolist()
    first = max(1, round(validation * len(names)))
    second = first + max(1, round(test * len(names)))
    if second >= len(names):
        raise ForetailError(
            f"{len(names)} runs with different traffic cannot fill train, validation ({validation}) and test ({test}):"
            " give more runs or lower the fractions"
        )
    return dict(zip(SIDES, (names[second:], names[:first], names[first:second]), strict=True))


def split_by_seed(
    datasets: Sequence[Dataset], train: Collection[int], validation: Collection[int], test: Collection[int]
) -> Split:
    """Put every run on the side that lists its seed.

    ForetailError if a seed is on two sides, a listed seed has no run, a run's seed is on no side, a run is given twice,
    or a side is empty.
    """
    sides = listed_sides(train, validation, test, {dataset.manifest.seed for dataset in datasets})
    _refuse_repeats(datasets)
    return Split(
        **{name: tuple(Selection(d) for d in datasets if d.manifest.seed in seeds) for name, seeds in sides.items()}
    )


def split_by_run(datasets: Sequence[Dataset], validation: float, test: float, seed: int) -> Split:
    """Draw whole runs for validation and test; the rest train.

    There are at least three seeds, in any order. Both fractions are in (0, 1), and rounded to at least one seed. Runs
    of one seed stay on one side: whatever the policy, the transport and the load, they share flows or queries, because
    every kind of traffic draws from a stream of its own. ForetailError on fractions out of range, a run given twice, or
    a side that would be empty.
    """
    _refuse_repeats(datasets)
    by_seed: dict[str, list[Dataset]] = {}
    for dataset in datasets:
        by_seed.setdefault(str(dataset.manifest.seed), []).append(dataset)
    drawn = drawn_sides(by_seed, validation, test, seed)
    return Split(
        **{name: tuple(Selection(run) for of in names for run in by_seed[of]) for name, names in drawn.items()}
    )


def split_by_time(datasets: Sequence[Dataset], validation: float, test: float, gap_ns: int) -> Split:
    """Cut every run in time: train, then validation, then test, with rows left out between them.

    Runs of the same scenario and seed under different policies see the same traffic and are cut at the same times.
    ForetailError on fractions or a gap out of range, a run given twice, or a side of a run that would be empty.

    Parameters
    ----------
    validation, test : fractions in (0, 1) of each run's time between its first and last row
    gap_ns : int
        Rows of different sides are more than this apart; at least the longest time a packet stays in the buffer, or
        the fate of a training row depends on what happens in the next side.
    """
    _check_fractions(validation, test)
    if gap_ns <= 0:
        raise ForetailError(f"gap_ns of the time split is {gap_ns}: give a positive time in ns")
    _refuse_repeats(datasets)
    sides: dict[str, list[Selection]] = {name: [] for name in SIDES}
    traffics: dict[str, list[Dataset]] = {}  # runs of one scenario and seed, whatever the policy
    for dataset in datasets:
        traffics.setdefault(traffic_sha256(dataset.manifest), []).append(dataset)
    for runs in traffics.values():
        ranges = [time_range(run) for run in runs]
        first, last = min(start for start, _ in ranges), max(end for _, end in ranges)
        to_validation = first + round((1 - validation - test) * (last - first))
        to_test = first + round((1 - test) * (last - first))
        bounds = ((None, to_validation), (to_validation + gap_ns, to_test), (to_test + gap_ns, None))
        for run in runs:
            for name, (start_ns, end_ns) in zip(SIDES, bounds, strict=True):
                selection = Selection(run, start_ns, end_ns)
                if not selection.count():
                    raise ForetailError(
                        f"the {name} side of {run.path} has no rows with gap_ns={gap_ns}:"
                        " shorten the gap, raise the side's fraction or collect a longer run"
                    )
                sides[name].append(selection)
    return Split(**{name: tuple(side) for name, side in sides.items()})


def _check_fractions(validation: float, test: float) -> None:
    if not (validation > 0 and test > 0 and validation + test < 1):
        raise ForetailError(
            f"the split fractions validation={validation} and test={test} must be positive with a sum below 1"
        )


def _refuse_repeats(datasets: Sequence[Dataset]) -> None:
    seen: dict[str, Dataset] = {}
    for dataset in datasets:
        if other := seen.get(dataset.manifest.content_sha256):
            raise ForetailError(f"{dataset.path} and {other.path} hold the same rows: give every run once")
        seen[dataset.manifest.content_sha256] = dataset


def time_range(dataset: Dataset) -> tuple[int, int]:
    """Return time of the first and of the last row, ns."""
    first: int | None = None
    last = 0
    for batch in dataset.rows(["time_ns"]):
        first = batch[0][0].as_py() if first is None else first
        last = batch[0][-1].as_py()
    if first is None:
        raise ForetailError(f"{dataset.path} has no rows to split: raise the load of its scenario")
    return first, last
