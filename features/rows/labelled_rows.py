"""Labelled rows as a predictor sees them: batch by batch or held once, sampled, and of one region."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.records import column_values

if TYPE_CHECKING:
    import pyarrow as pa

    from foretail.features.rows.splits import Selection, Side

LABEL, ASKED = "lqd_drop", "shadow_asked"
Region = Literal["whole", "asked"]
"""Every row, or those where a Credence that is told the true labels asks."""


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Summarised):
    """Rows as a predictor sees them.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.array([[3, 8], [9, 1]], np.int32), np.array([False, True]), asked=None)
    >>> len(rows[rows.lqd_drop])
    1
    """

    x: NDArray[np.int32]  #: int32[rows, features]
    lqd_drop: NDArray[np.bool_]  #: bool[rows], the label
    #: bool[rows] or None, where a Credence that is told the true labels asks; None where nobody knows
    asked: NDArray[np.bool_] | None
    #: float64[rows] or None, how many rows each stands for; None when every row is there
    weight: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lqd_drop)

    def __getitem__(self, chosen: NDArray[np.bool_] | slice) -> Rows:
        """Return the rows of a mask or slice."""
        return Rows(
            self.x[chosen],
            self.lqd_drop[chosen],
            None if self.asked is None else self.asked[chosen],
            None if self.weight is None else self.weight[chosen],
        )


@dataclass(frozen=True)
class Sampling:
    """Keeps every drop and every row of the asked region, and a share of the others, each weighing as all that it
    stands for, so that weighted counts are those of all rows in expectation.
    """

    others: float = 1.0  #: share of the other rows, in (0, 1]; 1 keeps all
    seed: int = 1  #: of the draw; it does not depend on the batches

    def __post_init__(self) -> None:
        if not 0 < self.others <= 1:
            raise ForetailError(f"sampling.others is {self.others}: give a share above 0 and at most 1")

    @classmethod
    def within(cls, most: int, batches: Iterable[Rows], seed: int = 1) -> Sampling:
        """Return the sampling that keeps `most` of the rows of `batches` in expectation, or all if they are no more.

        ForetailError if the drops and the rows of the asked region alone are as many.
        """
        rows = wanted = 0
        for batch in batches:
            rows += len(batch)
            wanted += int(np.count_nonzero(_always_kept(batch)))
        if rows <= most:
            return cls(1.0, seed)
        if wanted >= most:
            raise ForetailError(
                f"the training rows have {wanted} drops and rows of the asked region, which a sample keeps, but "
                f"{most} rows fit into memory: raise trainer.rows_in_memory, or train XGBoost, which streams rows"
            )
        return cls((most - wanted) / (rows - wanted), seed)

    def of(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Return the sample of the next rows of a selection."""
        if self.others == 1:
            return rows
        wanted = _always_kept(rows)
        is_drawn = wanted | (random.random(len(rows)) < self.others)
        chosen = rows[is_drawn]
        return replace(chosen, weight=np.where(wanted[is_drawn], 1.0, 1 / self.others))


def _always_kept(rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the rows that every sample keeps."""
    return rows.lqd_drop if rows.asked is None else rows.lqd_drop | rows.asked


EVERY_ROW = Sampling()


def row_batches(
    side: Side,
    columns: Sequence[str],
    sampling: Sampling = EVERY_ROW,
    region: Region = "whole",
) -> Iterator[Rows]:
    """Yield the rows of a side in order; memory does not depend on their number.

    ForetailError when the asked region is wanted and nobody knows it.

    Parameters
    ----------
    columns : the columns of ``x``, in order
    sampling : of every selection alike
    region : {'whole', 'asked'}, which rows
    """
    is_trace = all(selection.dataset.is_trace for selection in side)
    if region == "asked" and not is_trace:
        raise ForetailError(
            "the asked region needs to know where Credence asks, which rows in order of their fates do not tell: set "
            "operating_point.region=whole"
        )
    for place, selection in enumerate(side):
        random = np.random.default_rng([sampling.seed, place])
        for rows in _batches(selection, columns, is_trace):
            sample = sampling.of(rows, random)
            yield sample[sample.asked] if region == "asked" and sample.asked is not None else sample


def read_rows(
    side: Side,
    columns: Sequence[str],
    sampling: Sampling = EVERY_ROW,
    region: Region = "whole",
) -> Rows:
    """Return the rows of a side in order, held once; parameters and errors as :func:`row_batches`'s."""
    at_most = sum(selection.count() for selection in side)
    return joined(row_batches(side, columns, sampling, region), at_most)


def joined(batches: Iterable[Rows], at_most: int) -> Rows:
    """Return all rows of `batches`, which are at most so many; ForetailError when there are none."""
    return Rows(*stacked(((rows.x, rows.lqd_drop, rows.asked, rows.weight) for rows in batches), at_most))


def stacked(batches: Iterable[Sequence[NDArray[Any] | None]], at_most: int) -> list[Any]:
    """Return the arrays of all batches joined along their first axis, where None is none.

    Nothing is held twice: batches go into arrays of `at_most` rows, and what is never filled of these takes no memory.
    ForetailError when there is no row.
    """
    arrays: list[NDArray[Any] | None] = []
    end = 0
    for batch in batches:
        if not arrays:
            arrays = [None if part is None else np.empty((at_most, *part.shape[1:]), part.dtype) for part in batch]
        start = end
        for array, part in zip(arrays, batch, strict=True):
            if array is not None and part is not None:
                end = start + len(part)
                array[start:end] = part
    if not end:
        raise ForetailError("a side of the split has no rows: give it more runs or a longer time")
    return [None if array is None else array[:end] for array in arrays]


def _batches(selection: Selection, columns: Sequence[str], is_trace: bool) -> Iterator[Rows]:
    labels = [LABEL, ASKED] if is_trace else [LABEL]
    for batch in selection.rows([*columns, *labels]):
        lqd_drop, *asked = map(column_values, batch.columns[len(columns) :])
        yield Rows(_features(batch, len(columns)), lqd_drop, asked[0] if asked else None)


def _features(batch: pa.RecordBatch, count: int) -> NDArray[np.int32]:
    x = np.empty((batch.num_rows, count), np.int32)
    for place in range(count):
        x[:, place] = column_values(batch.column(place))
    return x
