from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import (
    ASKED,
    LABEL,
    Rows,
    Sampling,
    read_rows,
    row_batches,
)
from foretail.features.rows.splits import SIDES, Selection, Side, Split, split_by_run, split_by_seed, split_by_time
from tests.examples import draws
from tests.refusals import refusing
from tests.strategies import arrivals as arrivals_strategy
from tests.traces import Arrivals, make_arrivals, write_trace

COLUMNS = ("occupancy", "shadow_queue", "threshold")


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Side:
    folder: Path = tmp_path_factory.mktemp("traces")
    return tuple(Selection(write_trace(folder / f"{seed}", make_arrivals(9000, seed), seed=seed)) for seed in (1, 2))


def frame_of(side: Side) -> pd.DataFrame:
    return pd.concat([selection.frame() for selection in side], ignore_index=True)


def test_without_sampling_the_rows_are_those_of_the_frame(side: Side) -> None:
    rows, frame = read_rows(side, COLUMNS), frame_of(side)
    assert rows.x.dtype == np.int32
    assert np.array_equal(rows.x, frame[list(COLUMNS)].to_numpy(np.int32))
    assert np.array_equal(rows.lqd_drop, frame[LABEL])
    assert rows.asked is not None
    assert np.array_equal(rows.asked, frame[ASKED])
    assert rows.weight is None


def test_a_sample_keeps_every_drop_and_all_that_is_asked(side: Side) -> None:
    everything, sample = read_rows(side, COLUMNS), read_rows(side, COLUMNS, Sampling(0.1, seed=3))
    assert everything.asked is not None
    assert sample.asked is not None
    assert sample.weight is not None
    wanted = everything.lqd_drop | everything.asked
    kept = sample.lqd_drop | sample.asked
    assert np.array_equal(sample.x[kept], everything.x[wanted])
    assert np.array_equal(sample.lqd_drop[kept], everything.lqd_drop[wanted])
    assert set(sample.weight[kept]) == {1.0}
    assert set(sample.weight[~kept]) == {10.0}


def test_the_draw_does_not_depend_on_batches(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    once = read_rows(side, COLUMNS, Sampling(0.3, seed=1))
    whole = Dataset.rows
    monkeypatch.setattr(Dataset, "rows", lambda self, columns, where: whole(self, columns, where, 700))
    assert len(list(row_batches(side, COLUMNS))) > 6
    again = read_rows(side, COLUMNS, Sampling(0.3, seed=1))
    assert np.array_equal(once.x, again.x)
    assert not np.array_equal(once.x[:100], read_rows(side, COLUMNS, Sampling(0.3, seed=2)).x[:100])


def test_rows_without_a_known_region_keep_drops(side: Side) -> None:
    rows = Rows(np.zeros((1000, 1), np.int32), np.arange(1000) % 10 == 0, None)
    sample = Sampling(0.5).of(rows, np.random.default_rng(1))
    assert np.count_nonzero(sample.lqd_drop) == 100
    assert sample.weight is not None
    assert set(sample.weight[~sample.lqd_drop]) == {2.0}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_sample_has_as_many_rows_as_fit_into_memory_and_weighs_as_all(side: Side, share: float) -> None:
    everything = read_rows(side, COLUMNS)
    wanted = np.count_nonzero(everything.lqd_drop | (everything.asked == 1))
    most = int(wanted + share * (len(everything) - wanted))
    sampling = Sampling.within(most, row_batches(side, ()), seed=4)
    assert sampling.others == pytest.approx(share, abs=1e-3)
    sample = read_rows(side, COLUMNS, sampling)
    assert sample.weight is not None
    assert abs(len(sample) - most) < 5 * np.sqrt(most)
    others = len(everything) - wanted
    deviation = np.sqrt(others * (1 - share) / share)  # of a sum in which each has 1 / share with that probability
    assert abs(sample.weight.sum() - len(everything)) < 5 * deviation
    assert sample.weight[sample.lqd_drop].sum() == np.count_nonzero(everything.lqd_drop)


@dataclass
class StoredRun:
    """A dataset with the fields that a split by run reads."""

    manifest: SimpleNamespace
    path: str

    def count(self, where: object) -> int:
        assert where is None
        return 1


def stored_run(seed: int, load: float = 0.5, policy: str = "lqd") -> Dataset:
    name = f"{seed}-{load}-{policy}"
    scenario = {"load": load}
    return cast(Dataset, StoredRun(SimpleNamespace(seed=seed, scenario=scenario, content_sha256=name), name))


def sides(split: Split) -> dict[str, list[Selection]]:
    return {name: list(getattr(split, name)) for name in SIDES}


def runs(split: Split) -> dict[str, list[Dataset]]:
    return {name: [selection.dataset for selection in side] for name, side in sides(split).items()}


run_lists = st.lists(
    st.builds(stored_run, st.integers(0, 12), st.sampled_from([0.4, 0.8]), st.sampled_from(["lqd", "credence"])),
    min_size=1,
    max_size=20,
    unique_by=lambda run: run.path,
)
fractions = st.floats(0.01, 0.6)


@given(run_lists, fractions, fractions, st.integers(0, 2**32))
def test_by_run_every_run_is_on_one_side_with_all_runs_of_its_seed(
    datasets: list[Dataset], validation: float, test: float, seed: int
) -> None:
    assume(validation + test < 1)
    seeds = {run.manifest.seed for run in datasets}
    try:
        split = split_by_run(datasets, validation, test, seed)
    except ForetailError:
        taken = sum(max(1, round(fraction * len(seeds))) for fraction in (validation, test))
        assert taken >= len(seeds)
        return
    assert sorted(run.path for side in runs(split).values() for run in side) == sorted(run.path for run in datasets)
    seen = [{run.manifest.seed for run in side} for side in runs(split).values()]
    assert all(seen)
    assert all(a.isdisjoint(b) for a, b in combinations(seen, 2))
    assert len(seen[1]) == max(1, round(validation * len(seeds)))
    assert len(seen[2]) == max(1, round(test * len(seeds)))
    again = split_by_run(datasets[::-1], validation, test, seed)
    for name, side in runs(again).items():
        assert {run.path for run in side} == {run.path for run in runs(split)[name]}


@given(run_lists, st.data())
def test_by_seed_every_run_is_on_the_side_of_its_seed(datasets: list[Dataset], data: st.DataObject) -> None:
    seeds = sorted({run.manifest.seed for run in datasets})
    assume(len(seeds) >= 3)
    order = data.draw(st.permutations(seeds))
    first = data.draw(st.integers(1, len(seeds) - 2))
    second = data.draw(st.integers(first + 1, len(seeds) - 1))
    listed = dict(zip(SIDES, (order[:first], order[first:second], order[second:]), strict=True))
    split = split_by_seed(datasets, listed["train"], listed["validation"], listed["test"])
    for name, side in runs(split).items():
        assert {run.manifest.seed for run in side} == set(listed[name])
    assert sum(len(side) for side in runs(split).values()) == len(datasets)


@pytest.mark.nightly
@settings(max_examples=draws(60))
@given(
    arrivals_strategy(min_arrivals=3, max_arrivals=40, max_step_ns=50),
    st.floats(0.1, 0.5),
    st.floats(0.1, 0.4),
    st.integers(1, 120),
)
def test_by_time_no_row_is_within_the_gap_of_another_side(
    arrivals: Arrivals, validation: float, test: float, gap_ns: int
) -> None:
    with TemporaryDirectory() as folder:
        dataset = write_trace(Path(folder) / "run", arrivals)
        try:
            split = split_by_time([dataset], validation, test, gap_ns)
        except ForetailError:
            reject()  # a side would be empty; hypothesis complains when that is most of the examples
        times = [selection.frame(["time_ns"])["time_ns"].to_numpy() for (selection,) in sides(split).values()]
        assert [len(t) for t in times] == [selection.count() for (selection,) in sides(split).values()]
        for earlier, later in pairwise(times):
            assert later.min() - earlier.max() > gap_ns
        everything = dataset.frame(["time_ns"])["time_ns"].to_numpy()
        lost = np.setdiff1d(everything, np.concatenate(times))
        for earlier, later in pairwise(times):
            between = (lost > earlier.max()) & (lost < later.min())
            lost = lost[~between]
        assert lost.size == 0


@pytest.fixture
def long_run(tmp_path: Path) -> Dataset:
    return write_trace(tmp_path / "run", make_arrivals(3000))


def test_by_time_sides_follow_the_fractions(long_run: Dataset) -> None:
    split = split_by_time([long_run], 0.2, 0.3, gap_ns=1000)
    rows = {name: side[0].count() / long_run.manifest.rows for name, side in sides(split).items()}
    assert rows == pytest.approx({"train": 0.5, "validation": 0.2, "test": 0.3}, abs=0.03)


def test_by_time_runs_of_one_traffic_are_cut_at_the_same_times(tmp_path: Path, long_run: Dataset) -> None:
    other = write_trace(tmp_path / "other", make_arrivals(2900), policy={"name": "credence"})
    cuts = [
        {(s.start_ns, s.end_ns) for s in side} for side in sides(split_by_time([long_run, other], 0.5, 0.3, 9)).values()
    ]
    assert [len(bounds) for bounds in cuts] == [1, 1, 1]


@pytest.mark.parametrize(
    ("gap_ns", "message"),
    [
        (0, r"^gap_ns of the time split is 0: give a positive time"),
        (10**6, r"^the (validation|test) side of .*run has no rows with gap_ns=1000000: shorten the gap"),
    ],
)
def test_by_time_a_gap_that_does_not_fit_is_refused(long_run: Dataset, gap_ns: int, message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        split_by_time([long_run], 0.2, 0.2, gap_ns)


def test_a_split_with_an_empty_side_cannot_be_made(long_run: Dataset) -> None:
    everything = (Selection(long_run),)
    beyond = (Selection(long_run, start_ns=2**62),)
    assert everything[0].count() == long_run.manifest.rows
    with pytest.raises(ForetailError, match="the test side of the split has no rows"):
        Split(everything, everything, beyond)


def test_a_selection_is_half_open(long_run: Dataset) -> None:
    times = long_run.frame(["time_ns"])["time_ns"]
    start_ns, end_ns = int(times[100]), int(times[200])
    chosen = Selection(long_run, start_ns, end_ns)
    expected = times[(times >= start_ns) & (times < end_ns)].tolist()
    assert [t for batch in chosen.rows(["time_ns"]) for t in batch["time_ns"].to_pylist()] == expected
    assert Selection(long_run, end_ns=end_ns).count() == (times < end_ns).sum()


RUNS = [stored_run(seed) for seed in (1, 2, 3)]
COPY = cast(Dataset, StoredRun(cast(SimpleNamespace, RUNS[0].manifest), "copy"))
TWICE = ([RUNS[0], RUNS[0]], [RUNS[0], stored_run(1)], [COPY, RUNS[0]])
FRACTIONS = ((0.0, 0.2), (0.2, 0.0), (-0.1, 0.2), (0.5, 0.5), (float("nan"), 0.1))
test_what_cannot_be_is_refused = refusing(
    *((lambda others=others: Sampling(others), r"sampling\.others") for others in (0, -0.1, 1.5, float("nan"))),
    (lambda: split_by_seed(RUNS, [1, 2], [2], [3]), "^seed 2 is on two sides of the split"),
    (lambda: split_by_seed(RUNS, [1], [2], [3, 4]), "^seed 4 of the split has no run"),
    (lambda: split_by_seed(RUNS, [1], [2], []), "^the run with seed 3 is on no side of the split: .* test, or leave"),
    (lambda: split_by_seed(RUNS, [1, 2], [], [3]), "^the validation side of the split has no rows"),
    (lambda: split_by_seed(RUNS[:1], [1], [2], [3]), "^seed 2 of .* no run: .* there is seed 1 alone, so collect more"),
    *(
        (lambda by=by, runs=runs: by(runs, 0.1, 0.1, 9), "hold the same rows: give every run once")
        for by, runs in product((split_by_run, split_by_time), TWICE)
    ),
    *(
        (lambda by=by, two=two: by(RUNS, *two, 1), "must be positive with a sum below 1$")
        for by, two in product((split_by_run, split_by_time), FRACTIONS)
    ),
)
