"""The push-outs of Longest Queue Drop on recorded arrivals, and the packets that each could have taken instead.

LQD does not say which packet of the longest queue has to go (Credence, section 2), so one run has many labellings that
are equally true. Held equal to the recorded run are the sizes and kinds of the packets in every queue, in order, at
every moment: hence all thresholds and features of the virtual LQD. Taking one packet or another out of a queue leaves
the same sequence exactly when all between them are alike, so a push-out may take any packet of its *stretch*,
neighbouring data packets of one size. LQD itself could have made every such labelling. This is known for tail victims
only: they come from the last stretch with data, so no two stretches with push-outs ever become one.

Which sets of victims are possible: number the data packets of a stretch in order of arrival, and its
push-outs in order of time. If packet i goes later than a packet j behind it, the two can change places: i was there
when j went, and when i went, j, behind where i stood, is not being sent yet. So victims in order can be given to
push-outs in order. Then all victims before the k-th stand in front of it, and with `joined` packets so far, of which
`removable` can be taken, it can be any packet from ``joined - removable`` to ``joined - 1``, whoever the other victims
are. Sets that can be matched to fixed ranges are the bases of a transversal matroid: the greedy choice by score has the
highest sum of scores, of every increasing function of them too, and so the most victims above every threshold at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.features.records import FlowClass, Records, column_values
from foretail.sim_bridge import _native
from foretail.sim_bridge.open_loop.replay import message_left, require_one_queue, voqs_of


@dataclass(frozen=True, eq=False, repr=False)
class PushOuts(Summarised):
    """The packets that LQD dropped in one trace or several, and what it could have dropped instead."""

    lqd_drop: NDArray[np.bool_]  #: bool [rows], the labels under the victim rule of the run
    #: int64 [forced rows], rows that had to go whatever the rule, because they could not be kept at all
    forced: NDArray[np.int64]
    #: int64 [places], the labelled row at each place of the choices; rows that no push-out can take have none
    row: NDArray[np.int64]
    first: NDArray[np.int64]  #: int64 [other push-outs], the first place of the choice of each; never falls
    last: NDArray[np.int64]  #: int64 [other push-outs], the last place, included; never falls

    def assign(self, score: ArrayLike) -> NDArray[np.bool_]:
        """The labels with the highest scores that LQD could have given: bool [rows], as many as it dropped.

        A higher score means more likely to drop. Whatever the threshold, no other labels agree with more of the rows
        above it. Of equal scores, victims of the run come first, then later arrivals. ForetailError on scores of
        another shape or not finite.
        """
        values = np.asarray(score, np.float64)
        if values.shape != self.lqd_drop.shape or not np.isfinite(values).all():
            raise ForetailError(f"the scores must be {len(self.lqd_drop)} finite numbers, one for every labelled row")
        ranks = np.unique(values[self.row], return_inverse=True)[1]
        chosen = _native.best_assignment(
            self.first, self.last, (2 * ranks + self.lqd_drop[self.row]).astype(np.float64)
        )
        labels = np.zeros(len(self.lqd_drop), np.bool_)
        labels[self.forced] = True
        labels[self.row[chosen != 0]] = True
        return labels

    @classmethod
    def together(cls, parts: Sequence[PushOuts]) -> PushOuts:
        """Join several traces, their rows one after the other."""
        row_starts = np.cumsum([0, *(len(part.lqd_drop) for part in parts)])
        starts = np.cumsum([0, *(len(part.row) for part in parts)])
        return cls(
            np.concatenate([part.lqd_drop for part in parts]),
            *(
                np.concatenate(
                    [getattr(part, name) + start for part, start in zip(parts, before, strict=False)], dtype=np.int64
                )
                for name, before in (("forced", row_starts), ("row", row_starts), ("first", starts), ("last", starts))
            ),
        )


def push_outs(dataset: Dataset) -> PushOuts:
    """Replay the arrivals of a trace under LQD.

    Whatever the policy of the trace, these are the push-outs of the virtual LQD beside it. ForetailError if `dataset`
    is not a trace, its victims are no tails, or the replay does not give its labels.
    """
    dataset.require_trace()
    replayed = replayed_push_outs(dataset.manifest, dataset.arrivals())
    recorded = [column_values(batch.column(0)) for batch in dataset.rows(["lqd_drop"])]
    if not np.array_equal(replayed.lqd_drop, np.concatenate([*recorded, np.empty(0, np.bool_)])):
        raise ForetailError(f"the replay of {dataset.path} does not reproduce its labels: collect the trace again")
    return replayed


def replayed_push_outs(run: Run, arrivals: Iterable[Records]) -> PushOuts:
    """Replay records of REPLAY_DTYPE in order, on the switches of `run`, as :func:`push_outs`; data packets are rows.

    ForetailError if the ports of the run have several queues, or labels are not those of LQD's tails.
    """
    require_one_queue(run, "a record of push-outs")
    if not run.rules.takes_tails:
        raise ForetailError(
            "which packets can change places is known for tail victims of LQD: collect with scenario.rules.victim=tail "
            "and the usual order and oracle"
        )
    if run.lossless is not None:
        raise ForetailError(
            "a record of push-outs knows no queues that may not lose: collect with scenario.queues.lossless=[]"
        )
    log = _native.PushOuts(
        [(s.buffer_bytes, list(s.port_rates_bps)) for s in run.switches],
        wire_overhead_bytes=run.scenario["topology"]["wire_overhead_bytes"],
        voqs=voqs_of(run),
        seed=run.seed,
        **vars(run.rules),
    )
    stretches = [np.empty(0, np.int64)]
    for records in arrivals:
        is_data = records["flow_class"] != FlowClass.CONTROL
        stretches.append(
            log.feed(
                np.ascontiguousarray(records["time_ns"]),
                np.ascontiguousarray(records["switch"]),
                np.ascontiguousarray(records["port"]),
                np.ascontiguousarray(records["size_bytes"]),
                is_data.astype(np.uint8),
                np.ascontiguousarray(records["first_rtt"]),
                message_left(records),
            )
        )
    table, line = log.table(), np.concatenate(stretches)
    labels = np.zeros(len(line), np.bool_)
    labels[table[:, 0]] = True
    is_forced = table[:, 2] > table[:, 3]
    forced, table = table[is_forced, 0], table[~is_forced]
    on_line = np.ones(len(labels), np.bool_)
    on_line[forced] = False
    return PushOuts(labels, forced, *_choices(line, on_line, table[:, 4:7]))


def _choices(
    line: NDArray[np.int64], on_line: NDArray[np.bool_], ranges: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All lines one after the other; `ranges` has a line and the first and last of its packets for every push-out."""
    row = np.flatnonzero(on_line)
    row = row[np.argsort(line[row], kind="stable")]
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    start = np.searchsorted(line[row], ranges[:, 0])
    first, last = start + ranges[:, 1], start + ranges[:, 2]
    covered = np.zeros(len(row) + 1, np.int64)
    np.add.at(covered, first, 1)
    np.subtract.at(covered, last + 1, 1)
    is_kept = np.cumsum(covered)[:-1] > 0
    place = np.cumsum(is_kept) - 1
    return row[is_kept], place[first], place[last]
