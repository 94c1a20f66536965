"""Scores of demand predictions: how wrong the matrices are, and what their schedules lose.

Of a matrix only the shape counts for a schedule, so a small error may cost much and a large one nothing: what matters
is the throughput that the schedule of the prediction has on the true matrix, relative to that of the true matrix's own
schedule (Vermilion, thesis chapter 9). Throughputs are without the duty cycle, of matrices scaled to fill the uplinks
of one node, so that steps with little demand do not count for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix, DemandSequence, SequenceSplit
from foretail.models.demand.predictor import DemandPredictor, FloatArray
from foretail.sim_bridge.circuits.schedules import vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop

ROUTINGS: Mapping[str, Callable[[DemandMatrix, FloatArray], float]] = {
    "single_hop": single_hop,
    "multi_hop": lambda demand, capacity: multi_hop(demand, capacity).theta,
}
"""Throughput of a capacity matrix on a demand matrix, by routing."""


@dataclass(frozen=True)
class MatrixError:
    """How wrong predicted matrices are."""

    relative: float  #: sum of all absolute errors over the sum of all demand
    #: mean over the steps with demand of half the absolute differences between the shares of all demand that the pairs
    #: have, in [0, 1]; 1 where nothing is predicted
    shape: float


@dataclass(frozen=True)
class RunThroughput:
    """Throughput of the schedules of one run, means over its steps with demand."""

    steps: int  #: at least 1
    predicted: float  #: of the schedules of the predicted matrices
    true: float  #: of those of the true matrices
    ratio: float  #: mean of predicted over true
    least_ratio: float  #: its minimum


@dataclass(frozen=True)
class ScheduleScore:
    """Throughput of schedules from predictions, on the true matrices, with one trust and routing.

    With little trust both schedules are nearly alike and the ratio is near 1 whatever the prediction: compare
    predictors of different trust by `predicted`.
    """

    #: runs with demand, at least one. Steps of a run depend on each other, runs do not, so they are the unit of every
    #: mean and interval.
    by_run: Mapping[str, RunThroughput]

    @property
    def predicted(self) -> float:
        """Mean over the runs, of the schedules of the predicted matrices."""
        return float(np.mean([run.predicted for run in self.by_run.values()]))

    @property
    def true(self) -> float:
        """Mean over the runs, of the schedules of the true matrices."""
        return float(np.mean([run.true for run in self.by_run.values()]))

    @property
    def ratio(self) -> float:
        """Mean over the runs of predicted over true."""
        return float(np.mean([run.ratio for run in self.by_run.values()]))

    @property
    def least_ratio(self) -> float:
        """Least predicted over true of all steps."""
        return min(run.least_ratio for run in self.by_run.values())


@dataclass(frozen=True)
class Score:
    """Score of a predictor on some runs."""

    steps: int  #: scored
    idle_steps: int  #: left out because they have no demand to schedule
    error: MatrixError
    schedules: Mapping[tuple[str, int], ScheduleScore]  #: by routing and trust


@dataclass(frozen=True)
class Evaluation:
    """A predictor with the trust that was best on the validation runs, and its scores there and on the test runs.

    Both are scored with every trust; the test runs choose none.
    """

    routing: str
    trust: int
    validation: Score
    test: Score


def forecasts(predictor: DemandPredictor, sequence: DemandSequence, degree: int, warm_up: int = 1) -> FloatArray:
    """Return the prediction of every step from `warm_up` on, from the steps before it: float64[steps, n, n]."""
    if warm_up < 1:
        raise ForetailError(f"warm_up is {warm_up}: the first step has no past, so choose at least 1")
    if warm_up >= len(sequence):
        raise ForetailError(
            f"run {sequence.run} has no step {warm_up}, the first to be scored: lower warm_up or give longer runs"
        )
    return np.stack([predictor.predict(sequence.demand[:t], degree).demand for t in range(warm_up, len(sequence))])


def matrix_error(true: FloatArray, predicted: FloatArray) -> MatrixError:
    """Compare float64[steps, n, n] with the same; ForetailError when the shapes differ or no step has demand."""
    if true.shape != predicted.shape:
        raise ForetailError(f"true demand has shape {true.shape}, predicted {predicted.shape}: predict every step")
    total = true.sum(axis=(1, 2))
    busy = total > 0
    if not busy.any():
        raise ForetailError("no scored step has demand: there is nothing to schedule for")
    claimed = predicted.sum(axis=(1, 2))[busy]
    shares = predicted[busy] / np.where(claimed > 0, claimed, 1.0)[:, np.newaxis, np.newaxis]
    differences = np.abs(shares - true[busy] / total[busy, np.newaxis, np.newaxis]).sum(axis=(1, 2)) / 2
    return MatrixError(
        relative=float(np.abs(predicted - true).sum() / total.sum()),
        shape=float(np.where(claimed > 0, differences, 1.0).mean()),
    )


def score(
    predictor: DemandPredictor,
    sequences: Sequence[DemandSequence],
    degree: int,
    trusts: Sequence[int],
    *,
    routings: Sequence[str] = ("single_hop", "multi_hop"),
    warm_up: int = 1,
    seed: int = 1,
) -> Score:
    """Predict every step of whole runs, schedule with each trust, and compare on the true matrices.

    A prediction of no demand at all gets the oblivious schedule, with every pair alike. ForetailError on runs that are
    too short or without demand, or where Vermilion refuses k and the degree.

    Parameters
    ----------
    predictor : trained
    sequences : runs that it was not trained on
    degree : uplinks of a node
    trusts : values of Vermilion's k, with l = 1; at least one
    routings : of :data:`ROUTINGS`
    warm_up : first step to predict, at least 1
    seed : of the circuits that Vermilion leaves to chance
    """
    if not sequences or not trusts or not routings or not set(routings) <= set(ROUTINGS):
        raise ForetailError(
            f"{len(sequences)} runs, trusts {tuple(trusts)} and routings {tuple(routings)} give no score: give one or "
            f"more of each, routings of {', '.join(ROUTINGS)}"
        )
    predicted = np.concatenate([forecasts(predictor, sequence, degree, warm_up) for sequence in sequences])
    true = np.concatenate([sequence.demand[warm_up:] for sequence in sequences])
    if not true.any():
        names = ", ".join(dict.fromkeys(sequence.run for sequence in sequences))
        raise ForetailError(f"no step of {names} from step {warm_up} on has demand: give runs with demand")
    error = matrix_error(true, predicted)
    busy = np.flatnonzero(true.any(axis=(1, 2)))
    run = np.repeat([sequence.run for sequence in sequences], [len(sequence) - warm_up for sequence in sequences])[busy]
    schedules = {}
    for trust in trusts:
        pairs: dict[str, list[tuple[float, float]]] = {routing: [] for routing in routings}
        for step in busy:
            wanted = DemandMatrix(true[step]).scaled_to(degree)
            capacities = [_capacity(DemandMatrix(m[step]), degree, trust, seed) for m in (predicted, true)]
            for routing, throughputs in pairs.items():
                of_predicted, of_true = (ROUTINGS[routing](wanted, capacity) for capacity in capacities)
                throughputs.append((of_predicted, of_true))
        for routing, throughputs in pairs.items():
            theta = np.array(throughputs)
            schedules[routing, trust] = ScheduleScore(
                {name: _of_run(theta[run == name]) for name in dict.fromkeys(run.tolist())}
            )
    return Score(len(busy), len(true) - len(busy), error, schedules)


def choose_trust(validation: Score, routing: str) -> int:
    """Return the trust of the highest mean throughput of the predictions' schedules, the least of equals."""
    predicted = {trust: result.predicted for (of, trust), result in validation.schedules.items() if of == routing}
    if not predicted:
        raise ForetailError(f"the validation score has no throughput with routing {routing!r}: score it first")
    return min(predicted, key=lambda trust: (-predicted[trust], trust))


def evaluate(
    predictor: DemandPredictor,
    split: SequenceSplit,
    degree: int,
    trusts: Sequence[int],
    *,
    routing: str = "multi_hop",
    warm_up: int = 1,
    seed: int = 1,
) -> Evaluation:
    """Train on the training runs, choose the trust on the validation runs, and score it on the test runs.

    Parameters
    ----------
    predictor : it is trained here
    trusts : to choose from on the validation runs
    routing : of the throughput that counts
    degree, warm_up, seed :
        As :func:`score`.
    """
    predictor.fit(split.train)
    validation = score(predictor, split.validation, degree, trusts, routings=[routing], warm_up=warm_up, seed=seed)
    trust = choose_trust(validation, routing)
    test = score(predictor, split.test, degree, trusts, routings=[routing], warm_up=warm_up, seed=seed)
    return Evaluation(routing, trust, validation, test)


def _of_run(theta: FloatArray) -> RunThroughput:
    """From float64[steps, 2]: throughput of predicted and true schedules."""
    ratio = theta[:, 0] / theta[:, 1]
    predicted, true = theta.mean(axis=0).tolist()
    return RunThroughput(len(theta), predicted, true, float(ratio.mean()), float(ratio.min()))


def _capacity(demand: DemandMatrix, degree: int, trust: int, seed: int) -> FloatArray:
    """Capacities of Vermilion's schedule, of the oblivious one for a zero matrix."""
    oblivious = 1 if demand.largest_sum > 0 else trust
    return vermilion(demand, degree, trust, oblivious, seed).capacity
