from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import ASKED, LABEL, Rows, Sampling, read_rows, row_batches
from foretail.features.rows.splits import Selection, Side
from tests.traces import make_arrivals, write_trace

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


def test_weights_stand_for_all_rows_in_expectation(side: Side) -> None:
    everything = read_rows(side, COLUMNS)
    sums = []
    for seed in range(40):
        weight = read_rows(side, COLUMNS, Sampling(0.25, seed)).weight
        assert weight is not None
        sums.append(weight.sum())
    others = len(everything) - np.count_nonzero(everything.lqd_drop | (everything.asked == 1))
    deviation = np.sqrt(others * 3 / len(sums))  # each of the others weighs 4 with probability 1 / 4
    assert abs(np.mean(sums) - len(everything)) < 5 * deviation


def test_the_draw_does_not_depend_on_batches(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    once = read_rows(side, COLUMNS, Sampling(0.3, seed=1))
    whole = Dataset.rows
    monkeypatch.setattr(Dataset, "rows", lambda self, columns, where: whole(self, columns, where, 700))
    assert len(list(row_batches(side, COLUMNS))) > 6
    again = read_rows(side, COLUMNS, Sampling(0.3, seed=1))
    assert np.array_equal(once.x, again.x)
    assert not np.array_equal(once.x[:100], read_rows(side, COLUMNS, Sampling(0.3, seed=2)).x[:100])


def test_what_rows_weigh_goes_with_them_into_the_sample(side: Side) -> None:
    importance = [np.arange(1.0, 1 + item.count()) for item in side]
    everything = np.concatenate(importance)
    whole = read_rows(side, COLUMNS, importance=importance)
    assert whole.weight is not None
    assert np.array_equal(whole.weight, everything)
    plain, sample = (
        read_rows(side, COLUMNS, Sampling(0.2)),
        read_rows(side, COLUMNS, Sampling(0.2), importance=importance),
    )
    assert plain.weight is not None
    assert sample.weight is not None
    assert np.array_equal(plain.x, sample.x)
    assert whole.asked is not None
    wanted = whole.lqd_drop | whole.asked
    assert np.array_equal(sample.weight[plain.weight == 1], everything[wanted])
    assert set(sample.weight / plain.weight) <= set(everything)


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


@pytest.mark.parametrize("others", [0, -0.1, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(others: float) -> None:
    with pytest.raises(ForetailError, match=r"sampling\.others"):
        Sampling(others)
