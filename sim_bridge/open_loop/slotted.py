"""Many policies over one sequence of slotted arrivals, in one pass: what they transmit and what predictions are worth.

The sequence comes in batches and is never held as a whole. LQD runs ahead of the others, because a packet's label is
final only when LQD has sent or dropped it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.catalog import CELL_BYTES, REAL_FEATURES
from foretail.features.dataset.schema import Rules
from foretail.sim_bridge._native import Scorer, SlottedRun, late_qd
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, Slotted, slots_shift
from foretail.sim_bridge.builds import native_policy
from foretail.sim_bridge.open_loop.scores import (
    Comparison,
    Decider,
    Questions,
    SideBySide,
    Work,
    in_threads,
    sent_in_one_pass,
)
from foretail.sim_bridge.policies import KNOW_PRIORITIES
from foretail.sim_bridge.policy_settings import SlotParameters

DEFAULT_RULES = Rules("counted", "lowest_port", "tail")


@dataclass(frozen=True, eq=False, repr=False)
class Labelled(Summarised):
    """A batch of arrivals with what became of them under LQD.

    Examples
    --------
    >>> from foretail.sim_bridge.arrivals.workloads import Incast
    >>> (batch,) = labelled(Incast().batches(4, 20, 50, seed=1), 4, 20)
    >>> len(batch.arrivals) == len(batch.lqd_drop)
    True
    """

    arrivals: Slotted
    lqd_drop: NDArray[np.uint8]  #: uint8[n], 1 where LQD drops the packet, at its arrival or later: the final label
    #: int32[n, features] or None, in the order of the catalog, as LQD's own queues show them
    features: NDArray[np.int32] | None = None


class Predicted(NamedTuple):
    """Predictions for a batch: `drop`, uint8[n], 1 = drop; `score`, float64[n] or None, higher = likelier to drop.

    Examples
    --------
    >>> Predicted(np.array([0, 1], np.uint8)).drop.tolist()
    [0, 1]
    """

    drop: NDArray[np.uint8]
    score: NDArray[np.float64] | None = None


Predictions = Callable[[Labelled], Predicted]
"""Makes the predictions of a batch; called once for every batch, in order."""


def perfect(batch: Labelled) -> Predicted:
    """Predict what LQD does."""
    return Predicted(batch.lqd_drop)


def accept(batch: Labelled) -> Predicted:
    """Predict that LQD drops nothing."""
    return Predicted(np.zeros(len(batch.arrivals), np.uint8))


def in_file(batch: Labelled) -> Predicted:
    """Take the predictions that came with the arrivals."""
    if batch.arrivals.prediction is None:
        raise ForetailError("the arrivals carry no predictions: add a column of them or choose other predictions")
    return Predicted(batch.arrivals.prediction)


def flipped(probability: float, seed: int, of: Predictions = perfect) -> Predictions:
    """Predict what `of` does, inverted with `probability` (0 to 1) packet by packet; batches of any size agree.

    Packet i of the sequence is inverted iff number i of ``numpy.random.default_rng(seed).random`` is below.
    """
    random = np.random.default_rng(seed)

    def predict(batch: Labelled) -> Predicted:
        wrong = random.random(len(batch.arrivals)) < probability
        return Predicted(of(batch).drop ^ wrong.astype(np.uint8))

    return predict


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(Summarised):
    """Agreement of predictions with LQD on the rows of a region; positive = drop."""

    tp: int = 0  #: rows predicted to drop that LQD drops
    fp: int = 0  #: rows predicted to drop that LQD transmits
    tn: int = 0  #: rows predicted to pass that LQD transmits
    fn: int = 0  #: rows predicted to pass that LQD drops
    #: float64[distinct] or None, distinct scores of the rows, increasing; None when the predictions have none
    score: NDArray[np.float64] | None = None
    drops: NDArray[np.int64] | None = None  #: int64[distinct], rows with that score that LQD drops
    rows: NDArray[np.int64] | None = None  #: int64[distinct], all rows with that score

    def with_rows(self, lqd_drop: NDArray[np.uint8], predicted: Predicted) -> Agreement:
        """These rows and more."""
        n, positive, claimed = len(lqd_drop), int(np.count_nonzero(lqd_drop)), int(np.count_nonzero(predicted.drop))
        tp = int(np.count_nonzero(lqd_drop & predicted.drop))
        score, drops, rows = self._with_scores(lqd_drop, predicted.score)
        return Agreement(
            tp=self.tp + tp,
            fp=self.fp + claimed - tp,
            tn=self.tn + n - positive - claimed + tp,
            fn=self.fn + positive - tp,
            score=score,
            drops=drops,
            rows=rows,
        )

    def _with_scores(self, lqd_drop: NDArray[np.uint8], score: NDArray[np.float64] | None) -> tuple[Any, Any, Any]:
        if score is None:
            return None, None, None
        distinct, place = np.unique(score, return_inverse=True)
        drops = np.bincount(place, weights=lqd_drop, minlength=len(distinct)).astype(np.int64)
        rows = np.bincount(place, minlength=len(distinct)).astype(np.int64)
        if self.score is None or self.drops is None or self.rows is None:
            return distinct, drops, rows
        merged, place = np.unique(np.concatenate([self.score, distinct]), return_inverse=True)
        both = np.zeros((2, len(merged)), np.int64)
        np.add.at(both[0], place, np.concatenate([self.drops, drops]))
        np.add.at(both[1], place, np.concatenate([self.rows, rows]))
        return merged, both[0], both[1]


@dataclass(frozen=True, repr=False, kw_only=True)
class SlottedComparison(Comparison):
    """Results of policies on one sequence; all counts in packets, those still buffered after the last slot included."""

    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    whole: Agreement  #: predictions against labels, for all packets
    asked: Agreement  #: for those at which a Credence that is told the true labels asks


def labelled(
    batches: Iterable[Slotted],
    ports: int,
    buffer: int,
    rules: Rules = DEFAULT_RULES,
    features: bool | Sequence[str] = False,
    *,
    seed: int = 0,
    parameters: SlotParameters | None = None,
    cell_bytes: int = CELL_BYTES,
    average_shift: int = AVERAGE_SHIFT,
) -> Iterator[Labelled]:
    """Run LQD on the arrivals and yield every batch once its labels are final.

    As many batches wait as arrive while a full buffer of `buffer` packets drains. ForetailError naming the row, when a
    port or slot is out of range or slots decrease.

    Parameters
    ----------
    batches : one sequence in order
    ports, buffer : the switch: its ports, and its shared buffer in packets
    rules : how LQD chooses its victim
    features : also compute all features, or those of these names; columns of others are 0
    seed : of random victims
    parameters : of the queues of a port
    cell_bytes, average_shift : arithmetic of the features, as of a dataset of these packets
    """
    parameters = parameters or SlotParameters()
    switch = _Switch(ports, buffer, rules, parameters, seed)
    run = switch.run("lqd", labels=True, features=features, **_in_slots(cell_bytes, average_shift))
    waiting: deque[tuple[int, Labelled]] = deque()  # with the number of its first row
    rows = 0
    for arrivals in batches:
        seen = run.feed(arrivals, columns=True)
        _relabel(waiting, seen["late_drops"])
        waiting.append((rows, Labelled(arrivals, seen["lqd_drop"], seen.get("features"))))
        rows += len(arrivals)
        while waiting and waiting[0][0] + len(waiting[0][1].arrivals) <= seen["settled"]:
            yield waiting.popleft()[1]
    _relabel(waiting, run.finish()["late_drops"])
    for _, batch in waiting:
        yield batch


def compare(
    batches: Iterable[Slotted],
    ports: int,
    buffer: int,
    policies: Sequence[str],
    predictions: Predictions = perfect,
    *,
    rules: Rules = DEFAULT_RULES,
    parameters: SlotParameters | None = None,
    seed: int = 0,
    features: bool | Sequence[str] = False,
    cell_bytes: int = CELL_BYTES,
    average_shift: int = AVERAGE_SHIFT,
    own_queues: bool = True,
    optimum: bool = False,
    threads: int = 2,
    decider: Decider | None = None,
) -> SlottedComparison:
    """Run policies over one sequence of arrivals, and judge predictions by the labels of LQD.

    Memory does not depend on the length of the sequence, unless `optimum` is wanted. ForetailError on an unknown policy
    or rule, a parameter out of range, or wrong arrivals, naming the row.

    Parameters
    ----------
    batches, ports, buffer, rules, seed, cell_bytes, average_shift : as :func:`labelled`
    policies : sequence of str
        Names of ``POLICIES``, each once, and policies from outside, ``HEADER.hpp:TYPE``, under the name of their type.
    predictions : what policies are told that ask, and what eta and the counts judge. Sees every batch with its labels
    parameters : of policies
    features : give `predictions` batches with all features, or those of these names; columns of others are 0
    own_queues : real features are of LQD's own queues; else of those of a Credence that is told the true labels
    optimum : bool
        Also compute the most that any policy could transmit; holds the whole sequence, 12 bytes per packet and more.
    threads : policies run side by side on so many threads
    decider : as :func:`~foretail.sim_bridge.open_loop.replay.compare_replays` says
    """
    switch = _Switch(ports, buffer, rules, parameters or SlotParameters(), seed)
    observed = {"cell_bytes": cell_bytes, "average_shift": average_shift}

    def begin(policy: str, scorer: Scorer | None) -> _PolicyInSlots:
        return switch.run(policy, **({} if scorer is None else {"scorer": scorer, **_in_slots(**observed)}))

    beside = SideBySide(policies, decider, begin)
    del beside.runs["lqd"]  # which labels
    # Credence that is told the labels runs already.
    truth = predictions is perfect and (decider is None or decider.scorer is None)
    shadow_is_credence = truth and beside.runs.pop("credence", None) is not None
    shadowed = bool(features) and not own_queues
    shadow = switch.run("credence", labels=shadowed, features=features if shadowed else False, **_in_slots(**observed))
    whole = asked = Agreement()
    arrivals = lqd_drops = 0
    sequence: list[Slotted] = []

    def judge(batch: Labelled, predicted: Predicted, asks: NDArray[np.bool_]) -> None:
        nonlocal whole, asked
        whole = whole.with_rows(batch.lqd_drop, predicted)
        score = None if predicted.score is None else predicted.score[asks]
        asked = asked.with_rows(batch.lqd_drop[asks], Predicted(predicted.drop[asks], score))

    def work() -> Iterator[list[Work]]:
        nonlocal arrivals, lqd_drops
        for batch in labelled(
            batches, ports, buffer, rules, features, seed=seed, parameters=switch.parameters, **observed
        ):
            seen = shadow.feed(batch.arrivals, batch.lqd_drop)
            if batch.features is not None and shadowed:
                batch.features[:, : len(REAL_FEATURES)] = seen["features"][:, : len(REAL_FEATURES)]
            predicted = predictions(batch)
            judging = partial(judge, batch, predicted, seen["asked"].view(np.bool_))
            yield [judging, *beside.work(batch.arrivals, predicted.drop)]
            arrivals += len(batch.arrivals)
            lqd_drops += int(np.count_nonzero(batch.lqd_drop))
            if optimum:
                sequence.append(batch.arrivals)

    in_threads(work(), threads)
    elsewhere: dict[str, Mapping[str, Any]] = {"lqd": {"transmitted_packets": arrivals - lqd_drops}}
    if shadow_is_credence:
        elsewhere["credence"] = shadow.finish()
        beside.questions["credence"] = Questions(asked.tp + asked.fp + asked.tn + asked.fn, asked.tp + asked.fp)
    return SlottedComparison(
        **beside.finish("packets", **elsewhere),
        arrivals=arrivals,
        ports=ports,
        buffer=buffer,
        optimum=_optimum(sequence, ports, buffer) if optimum else None,
        whole=whole,
        asked=asked,
    )


def packets_sent(
    batches: Iterable[Slotted],
    ports: int,
    buffer: int,
    policies: Sequence[tuple[str, SlotParameters]],
    *,
    rules: Rules = DEFAULT_RULES,
    seed: int = 0,
) -> list[int]:
    """Return the packets that each policy, which asks no predictor, sends with its parameters, in one pass.

    Other parameters are those of :func:`compare`.
    """
    runs = [_Switch(ports, buffer, rules, own, seed).run(policy) for policy, own in policies]
    return sent_in_one_pass(runs, batches, "packets")


@dataclass(frozen=True, eq=False)
class _PolicyInSlots:
    """A run of a policy in slots."""

    native: SlottedRun
    queues: int  #: of a port

    def feed(
        self, arrivals: Slotted, predictions: NDArray[np.uint8] | None = None, *, columns: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Decide the next arrivals; without `columns` nothing is returned of a policy that is told nothing."""
        priority = arrivals.priority if self.queues > 1 else None
        columns = columns or predictions is not None
        return self.native.feed(
            arrivals.slot, arrivals.port, predictions, arrivals.first_rtt, priority, columns=columns
        )

    def finish(self) -> dict[str, Any]:
        totals = self.native.finish()
        return {"transmitted_packets": totals["transmitted"], **totals}


@dataclass(frozen=True)
class _Switch:
    ports: int
    buffer: int
    rules: Rules
    parameters: SlotParameters
    seed: int

    def run(self, policy: str, **observed: Any) -> _PolicyInSlots:
        """Begin a run of a policy, which has one queue for each port if it knows no more."""
        self.rules.require_lqd("the slotted model")
        settings = vars(self.parameters) | {"queues": self.parameters.count}
        if policy not in KNOW_PRIORITIES:
            settings |= {"queues": 1, "scheduler": "round_robin", "quanta": [], "alpha": self.parameters.alpha[:1]}
        settings |= observed | vars(self.rules) | {"seed": self.seed}
        return _PolicyInSlots(
            SlottedRun(native_policy(policy), self.ports, self.buffer, **settings), int(settings["queues"])
        )


def _in_slots(cell_bytes: int, average_shift: int) -> dict[str, int]:
    """The arithmetic of features where time is in slots: intervals may be shorter than one."""
    return {"cell_bytes": cell_bytes, "average_shift": slots_shift(average_shift)}


def _relabel(waiting: Iterable[tuple[int, Labelled]], late_drops: NDArray[np.int64]) -> None:
    """Label packets of earlier batches that LQD dropped since; `late_drops` counts rows of the whole sequence."""
    for first, batch in waiting:
        mine = (late_drops >= first) & (late_drops < first + len(batch.arrivals))
        batch.lqd_drop[late_drops[mine] - first] = 1


def _optimum(sequence: Sequence[Slotted], ports: int, buffer: int) -> int:
    slot = np.concatenate([batch.slot for batch in sequence]) if sequence else np.empty(0, np.int64)
    port = np.concatenate([batch.port for batch in sequence]) if sequence else np.empty(0, np.int32)
    transmitted: int = late_qd(ports, buffer, slot, port)["transmitted"]
    return transmitted
