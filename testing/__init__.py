"""Contracts for plug-ins, in the manner of scikit-learn's ``check_estimator``: call one from a test of your own.

Each raises AssertionError that names the rule which does not hold, and returns None when all do. Foretail's own
predictors and targets pass through the same checks.

>>> from foretail.testing import check_predictor
>>> from foretail.models.drop.forest import RandomForest
>>> check_predictor(RandomForest)
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.plugins import FAILURES, PluginError
from foretail.core.reading import telling
from foretail.core.settings import limits_of, require_within
from foretail.export.passes import lower
from foretail.export.proof import Lowered
from foretail.export.target import Files, Target, prove_files
from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.features.records import Outcome
from foretail.features.rows.labelled_rows import Rows
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import from_json, to_json
from foretail.models.drop.forest import RandomForest
from foretail.models.drop.predictor import DropPredictor, Parameterised, TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.rounding import framework_sum, rounding_bound
from foretail.models.scoring.threshold_rules import ThresholdCounts, ThresholdRule
from foretail.sim_bridge._native import Replay, SlottedRun
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Workload
from foretail.sim_bridge.builds import GuestPolicy, native_policy
from foretail.sim_bridge.circuits.demand import all_to_all, permutation, random_hose, ring
from foretail.sim_bridge.circuits.schedules import Scheduler
from foretail.sim_bridge.policies import POLICIES

P = TypeVar("P", bound=Parameterised)
P2 = TypeVar("P2")


def synthetic_arrivals(rows: int, seed: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return made-up arrivals shaped like Credence's training rows, for tests and benchmarks only.

    The same seed gives the same arrivals. Bursts fill a shared buffer of 4096 cells; a queue is empty most of the time;
    drops sit where the buffer is almost full and the queue is long, about 1 % of the rows.

    Returns ``x``, int32[rows, 4], which is queue, queue_average, occupancy, occupancy_average in cells, ``[0, 4096]``,
    and ``y``, bool[rows], whether LQD drops the packet.
    """
    random = np.random.default_rng(seed)
    fill = np.clip(np.cumsum(random.normal(0, 0.02, rows)) % 2.0, 0, 2)
    occupancy = np.abs(1.0 - fill)  # a walk between an empty and a full buffer
    share = random.beta(0.3, 1.2, rows)
    queue = occupancy * share
    columns = [queue, queue * random.uniform(0.4, 1.2, rows), occupancy, occupancy * random.uniform(0.6, 1.1, rows)]
    x = np.clip(np.stack(columns, axis=1) * 4096, 0, 4096).astype(np.int32)
    y = (occupancy > 0.93) & (share + random.normal(0, 0.08, rows) > 0.55)
    return x, y


def check_predictor(predictor: DropPredictor | type[DropPredictor]) -> None:
    """Run the contract of :class:`DropPredictor` on a class (built with its defaults) or an untrained instance.

    AssertionError with the clause that does not hold.
    """
    fresh: DropPredictor = _made_of(predictor, DropPredictor, "a predictor")  # type: ignore[type-abstract]
    x, y = synthetic_arrivals(rows=4000, seed=7)
    unseen = np.concatenate([synthetic_arrivals(rows=2000, seed=8)[0], np.full((1, 4), (1 << 24) - 1, np.int32)])
    features = tuple(FeatureInput(f"feature_{i}", "", 24) for i in range(x.shape[1]))

    parameters = fresh.parameters()
    _check_parameters(fresh, lambda broken: broken.fit(x, y))
    _refuses(lambda: fresh.probability(x), "probability must refuse before fit")
    if isinstance(fresh, TreePredictor):
        _refuses(partial(fresh.to_ensemble, features), "to_ensemble must refuse before fit")
    _refuses(lambda: fresh.fit(x, np.zeros_like(y)), "fit must refuse labels without a drop")
    _refuses(lambda: fresh.fit(x, np.ones_like(y)), "fit must refuse labels without an accepted packet")
    _refuses(
        lambda: fresh.fit_batches(lambda: [Rows(x, np.zeros_like(y), None)], len(y)), "fit_batches must refuse no drop"
    )
    _refuses(lambda: fresh.fit(x.astype(float), y), "fit must refuse features that are not integers")
    _refuses(lambda: fresh.fit(x, y[:-1]), "fit must refuse labels of another length")
    for wrong in (0.0, -1.0, np.nan, np.inf):
        weight = np.ones(len(y))
        weight[len(y) // 2] = wrong
        _refuses(partial(fresh.fit, x, y, weight), f"fit must refuse a row that weighs {wrong}")
    _refuses(lambda: fresh.fit(x, y, np.ones(len(y) - 1)), "fit must refuse weights of another length")
    assert not hasattr(fresh, "features_in_"), "a refused fit must leave the predictor untrained"

    def fitted(*rows: Any) -> DropPredictor:
        with _holds("fit must learn from labelled rows"):
            fitted: DropPredictor | None = (learner := copy.deepcopy(fresh)).fit(*rows)
        assert fitted is learner, "fit must return self"
        return learner

    def probability_of(model: DropPredictor, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        before = rows.copy()
        with _holds("probability must answer for any rows"):
            probability = model.probability(rows)
        assert np.array_equal(rows, before), "probability must not change the features"
        assert probability.shape == (len(rows),), "probability must give one number per row"
        assert probability.dtype == np.float64, "probability must be float64"
        assert np.all((probability >= 0) & (probability <= 1)), "probability must be in [0, 1], and NaN is not"
        return probability

    x_before, y_before = x.copy(), y.copy()
    trained = fitted(x, y)
    assert np.array_equal(x, x_before), "fit must not change the features"
    assert np.array_equal(y, y_before), "fit must not change the labels"
    assert trained.parameters() == parameters, "fit must not change parameters"
    _refuses(lambda: trained.probability(x[:, :-1]), "probability must refuse another number of features")

    probability = probability_of(trained, unseen)
    again = fitted(x, y)
    assert np.array_equal(probability_of(again, unseen), probability), "same seed and rows must give the same model"
    likely = np.argsort(probability)[-8:]
    alone = np.concatenate([probability_of(trained, unseen[row : row + 1]) for row in likely])
    close = np.allclose(alone, probability[likely], rtol=1e-5, atol=1e-6)  # float32 may add in another order
    assert close, "a row's probability must not depend on the rows beside it"
    parts = [slice(first, first + 900) for first in range(0, len(y), 900)]
    batches = [Rows(x[part], y[part], None, np.ones(len(y))[part]) for part in parts]
    with _holds("fit_batches must learn from labelled rows"):
        streamed = copy.deepcopy(fresh).fit_batches(lambda: batches, len(y))
    assert np.array_equal(probability_of(streamed, unseen), probability), "rows in batches must give the same model"
    alike = fitted(x, y, np.ones(len(y)))
    assert np.array_equal(probability_of(alike, unseen), probability), "weights of 1 must change nothing"
    heavy = fitted(x, y, np.where(y, 50.0, 1.0))
    assert probability_of(heavy, x).mean() > probability_of(trained, x).mean(), "heavier drops must be predicted more"
    if isinstance(trained, TreePredictor):
        assert isinstance(again, TreePredictor)
        with _holds("to_ensemble must give the trees of the trained model"):
            ensemble = trained.to_ensemble(features)
        assert ensemble == again.to_ensemble(features), "same seed and rows must give the same ensemble"
        _check_ensemble(trained, ensemble, features, unseen)
    elif (to_network := getattr(trained, "to_network", None)) is not None:
        with _holds("to_network must give the network of the trained model"):
            network = to_network(features)
        np.testing.assert_allclose(network.probability(unseen), probability, atol=2e-3)


def _check_ensemble(
    trained: TreePredictor, ensemble: Ensemble, features: tuple[FeatureInput, ...], unseen: npt.NDArray[np.int32]
) -> None:
    from scipy.special import expit

    probability = trained.probability(unseen)
    _refuses(lambda: trained.to_ensemble(features[:-1]), "to_ensemble must refuse another number of features")
    assert ensemble.features == features, "to_ensemble must keep the features in order"
    assert ensemble == Ensemble.from_json(ensemble.to_json()), "the ensemble must survive its file"
    total = framework_sum(ensemble, unseen)
    meant = total / len(ensemble.trees) if ensemble.output == "mean_probability" else expit(total)
    np.testing.assert_allclose(meant, probability, rtol=1e-12, atol=1e-12)
    clear = np.abs(total - float(ensemble.threshold)) > rounding_bound(ensemble)
    assert np.array_equal(ensemble.exceeds(unseen)[clear], probability[clear] > 0.5), (
        "the ensemble must decide as the model does"
    )


_DEGREE = 2


def synthetic_sequences(runs: int, steps: int, nodes: int, seed: int) -> list[DemandSequence]:
    """Return made-up runs, for tests and benchmarks only: three random sparse matrices in turn, with noise, some idle.

    `seed`: same seed, same runs.
    """
    random = np.random.default_rng(seed)
    sequences = []
    for run in range(runs):
        phases = random.random((3, nodes, nodes)) * (random.random((3, nodes, nodes)) < 0.5) * (1 - np.eye(nodes))
        demand = phases[np.arange(steps) % 3] * random.uniform(0.5, 1.5, (steps, nodes, nodes))
        sequences.append(DemandSequence(demand * (random.random((steps, 1, 1)) < 0.9), 1000, f"run {run}"))
    return sequences


def check_demand_predictor(predictor: DemandPredictor | type[DemandPredictor]) -> None:
    """Run the contract of :class:`DemandPredictor` on a class (built with its defaults) or an untrained instance.

    AssertionError with the clause that does not hold.
    """
    fresh: DemandPredictor = _made_of(predictor, DemandPredictor, "a demand predictor")  # type: ignore[type-abstract]
    runs = synthetic_sequences(runs=4, steps=20, nodes=4, seed=7)
    unseen = synthetic_sequences(runs=1, steps=24, nodes=4, seed=8)[0].demand

    parameters = fresh.parameters()
    _check_parameters(fresh, lambda broken: broken.fit(runs))
    _refuses(lambda: fresh.predict(unseen, _DEGREE), "predict must refuse before fit")
    _refuses(lambda: fresh.fit([]), "fit must refuse no sequences")
    other = synthetic_sequences(runs=1, steps=20, nodes=5, seed=9)
    _refuses(lambda: fresh.fit(runs + other), "fit must refuse sequences of different nodes")
    single = [DemandSequence(run.demand[:1], 1000, run.run) for run in runs]
    _refuses(lambda: fresh.fit(single), "fit must refuse sequences without a second step")
    assert not hasattr(fresh, "nodes_"), "a refused fit must leave the predictor untrained"

    trained = copy.deepcopy(fresh)
    with _holds("fit must learn from whole runs"):
        assert trained.fit(runs) is trained, "fit must return self"
    assert trained.parameters() == parameters, "fit must not change parameters"
    _refuses(lambda: trained.predict(other[0].demand, _DEGREE), "predict must refuse other nodes")
    _refuses(lambda: trained.predict(unseen[:0], _DEGREE), "predict must refuse an empty history")
    _refuses(lambda: trained.predict(-unseen, _DEGREE), "predict must refuse negative demand")
    _refuses(lambda: trained.predict(unseen * np.nan, _DEGREE), "predict must refuse NaN")
    _refuses(lambda: trained.predict(unseen, 0), "predict must refuse a degree of 0")

    before = unseen.copy()
    forecasts = _forecasts(trained, unseen)
    assert np.array_equal(unseen, before), "predict must not change the history"
    assert np.array_equal(forecasts[::-1], _forecasts(trained, unseen, reverse=True)), (
        "earlier predictions must not count"
    )
    cut = len(unseen) // 2
    changed = np.concatenate([unseen[:cut], unseen[cut:][::-1] * 3])
    assert np.array_equal(_forecasts(trained, changed)[:cut], forecasts[:cut]), "what comes later must not count"
    assert np.array_equal(_forecasts(copy.deepcopy(fresh).fit(runs), unseen), forecasts), (
        "same seed and runs, same model"
    )
    shorter = [DemandSequence(runs[0].demand[:2], 1000, "short")]
    _forecasts(copy.deepcopy(fresh).fit(shorter), unseen)
    _forecasts(copy.deepcopy(fresh).fit([DemandSequence(np.zeros((5, 4, 4)), 1000, "idle")]), 0 * unseen)

    text = to_json(trained)
    again = from_json(text)
    assert type(again) is type(trained), "the file must give the same kind back"
    assert again.parameters() == parameters, "the file must keep the parameters"
    assert to_json(again) == text, "the file of what was read must be the file that was read"
    assert np.array_equal(_forecasts(again, unseen), forecasts), "what was read must predict what was written"
    _refuses(lambda: to_json(fresh), "an untrained predictor must have no file")


def _forecasts(trained: DemandPredictor, run: np.ndarray, reverse: bool = False) -> np.ndarray:
    """All predictions along a run, each checked: float64[steps, n, n]."""
    matrices = []
    for known in sorted(range(1, len(run) + 1), reverse=reverse):
        with _holds("predict must answer for any history"):
            matrix = trained.predict(run[:known], _DEGREE)
        assert isinstance(matrix, DemandMatrix), "predict must return a demand matrix"
        matrix.require_hose(_DEGREE)
        matrices.append(matrix.demand)
    return np.stack(matrices)


__all__ = [
    "check_demand_predictor",
    "check_policy",
    "check_predictor",
    "check_reader",
    "check_scheduler",
    "check_target",
    "check_threshold_rule",
    "check_workload",
    "synthetic_arrivals",
]


PORTS, BUFFER_PACKETS, BUFFER_BYTES = 8, 64, 60_000
_PORT_RATE_BPS = 10**9

KEPT = (Outcome.ACCEPTED, Outcome.PREDICTED)
EMPTY = "a packet at an empty switch must be accepted, unless a predictor says drop"

Columns = dict[str, NDArray[Any]]


def check_policy(policy: str) -> None:
    """Run the contract of a buffer policy.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    policy : str
        ``HEADER.hpp:TYPE``, which is compiled, or a name of ``POLICIES``.
    """
    assert isinstance(policy, str), f"a policy must be a text, HEADER.hpp:TYPE, not a {type(policy).__name__}"
    with _holds("a policy must be HEADER.hpp:TYPE"):
        known = policy in POLICIES or GuestPolicy.of(policy) is not None
    assert known, f"{policy} must be HEADER.hpp:TYPE"
    with _holds("the header must compile"):
        native = native_policy(policy)
    pushes_out = policy in POLICIES and POLICIES[policy].pushes_out
    for seed in (1, 2):
        with _holds("decide must answer every arrival"):
            _check_slots(native, _slots(seed), pushes_out)
            _check_bytes(native, _bytes(seed), pushes_out)


def _check_slots(native: str, arrivals: Columns, pushes_out: bool) -> None:
    columns, sent = _run_slots(native, [arrivals])
    outcome = columns["outcome"]
    assert np.array_equal(_run_slots(native, [arrivals])[0]["outcome"], outcome), (
        "the same arrivals, the same decisions"
    )
    cut = len(outcome) // 3
    parts = [{name: values[part] for name, values in arrivals.items()} for part in (slice(cut), slice(cut, None))]
    in_parts, sent_in_parts = _run_slots(native, parts)
    assert sent_in_parts == sent, "arrivals in batches must give the same decisions"
    if not pushes_out:  # whose later drops an earlier batch does not show
        assert np.array_equal(in_parts["outcome"], outcome), "arrivals in batches must give the same decisions"
    assert np.count_nonzero(outcome == Outcome.ACCEPTED) == sent, "what is accepted must be sent, and nothing else"
    lengths, last = np.zeros(PORTS, np.int64), 0
    for slot, port, result in zip(arrivals["slot"].tolist(), arrivals["port"].tolist(), outcome.tolist(), strict=True):
        lengths, last = np.maximum(lengths - (slot - last), 0), slot
        if pushes_out:
            continue
        if lengths.sum() == 0:
            assert result in KEPT, EMPTY
        lengths[port] += result == Outcome.ACCEPTED
        assert lengths.sum() <= BUFFER_PACKETS, "the buffer must never hold more than it can"


def _check_bytes(native: str, arrivals: Columns, pushes_out: bool) -> None:
    columns, sent = _run_bytes(native, arrivals)
    again, _ = _run_bytes(native, arrivals)
    assert np.array_equal(columns["outcome"], again["outcome"]), "the same arrivals, the same decisions, in bytes too"
    accepted = (columns["outcome"] == Outcome.ACCEPTED) & (arrivals["data"] == 1)
    assert arrivals["size_bytes"][accepted].sum() == sent, "what is accepted must be sent, in bytes too"
    if not pushes_out:
        first = int(np.argmax(arrivals["data"]))
        assert columns["outcome"][first] in KEPT, EMPTY


def _run_slots(native: str, batches: list[Columns]) -> tuple[Columns, int]:
    run = SlottedRun(native, PORTS, BUFFER_PACKETS)
    columns = [run.feed(batch["slot"], batch["port"], batch["predictions"], batch["first_rtt"]) for batch in batches]
    sent: int = run.finish()["transmitted"]
    return {"outcome": np.concatenate([part["outcome"] for part in columns])}, sent


def _run_bytes(native: str, arrivals: Columns) -> tuple[Columns, int]:
    replay = Replay(
        native,
        [(BUFFER_BYTES, [_PORT_RATE_BPS] * PORTS)],
        wire_overhead_bytes=20,
    )
    columns: Columns = replay.feed(*arrivals.values())
    sent: int = replay.finish()["transmitted_bytes"]
    return columns, sent


def _slots(seed: int) -> Columns:
    """Bursts to one port, or to two or three that fill the buffer together, and pauses in which it runs empty."""
    random = np.random.default_rng(seed)
    slots, ports = [], []
    for burst, (start, hot) in enumerate(_bursts(random)):
        rows, others = int(random.integers(200, 400)), burst % 3
        slots.append(start + np.sort(random.integers(0, 60, rows)))
        hottest = (hot + random.integers(0, 1 + others, rows)) % PORTS
        share = 0.9 if others else 0.5
        ports.append(np.where(random.random(rows) < share, hottest, random.integers(0, PORTS, rows)))
    rows = sum(map(len, slots))
    return {
        "slot": np.concatenate(slots).astype(np.int64),
        "port": np.concatenate(ports).astype(np.int32),
        "predictions": (random.random(rows) < 0.3).astype(np.uint8),
        "first_rtt": (random.random(rows) < 0.3).astype(np.uint8),
    }


def _bytes(seed: int) -> Columns:
    """The same in bytes and nanoseconds, with packets of every size and one in ten for control."""
    slots, random = _slots(seed), np.random.default_rng(seed + 100)
    rows = len(slots["slot"])
    return {
        "time_ns": np.sort(slots["slot"] * 8000 + random.integers(0, 8000, rows)),
        "switch": np.zeros(rows, np.int16),
        "port": slots["port"].astype(np.int16),
        "size_bytes": random.integers(64, 1501, rows).astype(np.int32),
        "data": (random.random(rows) >= 0.1).astype(np.uint8),
        "first_rtt": slots["first_rtt"],
        "predictions": slots["predictions"],
    }


def _bursts(random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Start and hottest port of each burst."""
    for burst in range(20):
        yield burst * 400 + int(random.integers(0, 40)), int(random.integers(0, PORTS))


def check_reader(read: Callable[[Any], object], plain: Any, unknown: Any, named: str) -> str:
    """Run the contract of a reader, and return the sentence about the part that it does not use.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    read : reads an input, such as the file of a path
    plain : an input of which everything is used
    unknown : the same with one part that is not used
    named : a word by which a sentence has to name that part
    """
    assert callable(read), f"a reader must be a function of an input, not {read!r}"
    with _holds("a reader must be able to read an input of which it uses everything"), telling() as of_plain:
        read(plain)
    left = [reading for reading in of_plain if reading.left_out]
    assert not left, f"a reader must tell nothing as left out where it uses everything, not: {left[0].sentence()}"
    try:
        with telling() as readings:
            read(unknown)
        with telling() as again:
            read(unknown)
        assert readings == again, "it must tell the same each time"
        sentences = [reading.sentence() for reading in readings]
    except ForetailError as error:
        sentences = [str(error)]
    of_part = [sentence for sentence in sentences if named in sentence]
    assert of_part, f"{named}, which a reader does not use, must be named, or the input refused by it, not: {sentences}"
    assert "\n" not in of_part[0], "it must tell in one sentence"
    return of_part[0]


_RACKS = ((4, 2), (6, 2), (8, 4))


def check_scheduler(scheduler: Scheduler | Callable[[], Scheduler]) -> None:
    """Run the contract of :class:`foretail.sim_bridge.circuits.schedules.Scheduler` on one, or its maker.

    AssertionError with the rule that does not hold.
    """
    made: Scheduler = _made_of(scheduler, Scheduler, "a scheduler")  # type: ignore[type-abstract]
    for nodes, degree in _RACKS:
        demands = [ring(nodes, degree), all_to_all(nodes, degree), permutation(nodes, degree, 1)]
        demands += [random_hose(nodes, degree, seed) for seed in (1, 2)]
        demands.append(DemandMatrix(np.triu(demands[-1].demand) * 1e-3))  # little, and nothing the other way
        for demand in demands:
            for seed in (1, 2):
                with _holds("matchings must give a schedule for any demand, degree and seed"):
                    matchings = made.schedule(demand, degree, seed)
                    again = made.schedule(demand, degree, seed)
                shape = (matchings.degree, matchings.nodes)
                assert shape == (degree, nodes), "a schedule must have the uplinks and nodes that were asked for"
                assert np.array_equal(matchings.matchings, again.matchings), "the same seed must give the same schedule"
                assert matchings.edges.any(), "a schedule must have a circuit"


PREFIX = "contract"
MAX_CELLS = 1_000_000

_NUMBER = re.compile(rb"(?<![\w.])\d{1,15}\b")
_FEATURES = tuple(FeatureInput(name, "", 24) for name in ("queue", "queue_average", "occupancy", "occupancy_average"))


def check_target(target: Target | Callable[[], Target], changes: int = 8) -> None:
    """Run the contract of :class:`foretail.export.target.Target` on a target, or on what makes one.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    target : Target, or callable without arguments
    changes : int
        So many numbers in each file of text are changed, one at a time: each change is refused, or proven to mean
        nothing. Every change is a `load`, which may compile.
    """
    made: Target = _made_of(target, Target, "a target")  # type: ignore[type-abstract]
    assert isinstance(made.name, str), "a target must have a name"
    assert re.fullmatch(r"[a-z][a-z0-9_]*", made.name), "the name must be lower-case letters, digits and _"
    model, other = _model(trees=2, depth=3, seed=3), _model(trees=3, depth=2, seed=4)
    files, others = _rendered(made, model), _rendered(made, other)
    assert files == _rendered(made, model), "equal models must give equal files"
    assert all(name.startswith(PREFIX) for name in files), f"file names must begin with the prefix {PREFIX}"

    with _holds("what was rendered must be read back, run, and proven equal to the model"):
        certificate, proven = prove_files(model, made, files, MAX_CELLS)
        prove_files(other, made, others, MAX_CELLS)
    assert certificate.target == made.name, "the certificate must have the target's name"
    assert set(files) <= set(proven), "every rendered file must be in the certificate"

    clause = "load must read the files and nothing else: those of another model must not pass"
    with _holds(clause):
        assert not _try(made, model, others), clause
    for name, content in files.items():
        for changed in islice(_changed(content, changes), changes):
            clause = f"a changed number in {name} must be refused by a ForetailError, or be proven to mean nothing"
            with _holds(clause):
                _try(made, model, {**files, name: changed})


def _model(trees: int, depth: int, seed: int) -> Lowered:
    x, y = synthetic_arrivals(rows=4000, seed=seed)
    ensemble = RandomForest(trees=trees, depth=depth, seed=seed).fit(x, y).to_ensemble(_FEATURES)
    return lower(ensemble, any_tau=True, max_cells=MAX_CELLS, effort=None)


def _rendered(target: Target, model: Lowered) -> Files:
    with _holds("render must write the files of a model"):
        files = target.render(model, PREFIX, MAX_CELLS).files
    assert files, "render must write a file"
    assert all(isinstance(content, bytes) for content in files.values()), "render must give the files as bytes"
    return files


def _try(target: Target, model: Lowered, files: Files) -> bool:
    """True if files are proven equal to a model; what a target says of its own code passes through."""
    try:
        prove_files(model, target, files, MAX_CELLS)
    except PluginError:
        raise
    except ForetailError:
        return False
    return True


def _changed(content: bytes, changes: int) -> Iterator[bytes]:
    """A text with one of its numbers greater by one, for numbers all over it."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return
    numbers = list(_NUMBER.finditer(content))
    for number in numbers[:: max(1, len(numbers) // changes)]:
        yield content[: number.start()] + str(int(number[0]) + 1).encode() + content[number.end() :]


def check_threshold_rule(rule: ThresholdRule | Callable[[], ThresholdRule]) -> None:
    """Run the contract of :class:`foretail.models.scoring.threshold_rules.ThresholdRule` on one, or on what makes one.

    AssertionError with the rule that does not hold.
    """
    made: ThresholdRule = _made_of(rule, ThresholdRule, "a threshold rule")  # type: ignore[type-abstract]
    draw = np.random.default_rng(7)
    for thresholds, drops, others in ((1, 1, 0), (2, 1, 1), (2, 5, 0), (40, 30, 900), (300, 2, 10**6)):
        with _holds("worth must answer for any counts"):
            counts = ThresholdCounts.of(_falling(draw, thresholds, drops), _falling(draw, thresholds, others))
            worths, again = made.values(counts), made.values(counts)
        assert worths.shape == (thresholds,), "worth must give one number per threshold"
        assert worths.dtype == np.float64, "worth must be float64"
        assert np.isfinite(worths).all(), "worth must be finite"
        assert np.array_equal(worths, again), "the same counts must have the same worth"


def _falling(draw: np.random.Generator, thresholds: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows above each of some thresholds: all at the first, none at the last of several."""
    inner = np.sort(draw.integers(0, rows, max(0, thresholds - 2), endpoint=True))[::-1]
    return np.concatenate([[rows], inner, [0]])[:thresholds].astype(np.int64)


_SWITCHES = ((4, 40), (8, 160), (20, 1000))
_SLOTS, _LATER = 3000, 4000


def check_workload(workload: Workload | Callable[[], Workload]) -> None:
    """Run the contract of a :class:`foretail.sim_bridge.arrivals.workloads.Workload` on one, or on what makes one.

    AssertionError with the rule that does not hold.
    """
    made: Workload = _made_of(workload, Workload, "a workload")  # type: ignore[type-abstract]
    for ports, buffer in _SWITCHES:
        for seed in (1, 2):
            with _holds("chunks must give packets for any switch and seed"):
                once = _packets(made, ports, buffer, _SLOTS, seed)
                again = _packets(made, ports, buffer, _SLOTS, seed)
                longer = _packets(made, ports, buffer, _LATER, seed)
                small = list(made.batches(ports, buffer, _SLOTS, seed, batch_packets=77))
            assert once is not None, f"a workload must send a packet in {_SLOTS} slots"
            assert again is not None, "the same seed must give the same packets"
            assert _same(once, again), "the same seed must give the same packets"
            assert _same(once, Slotted.joined(small)), "the packets must not depend on the size of the batches"
            assert once.slot.dtype == np.int64, "slot must be int64"
            assert once.port.dtype == np.int32, "port must be int32"
            assert np.all(np.diff(once.slot) >= 0), "slots must never decrease"
            assert once.slot[0] >= 0, "slots must begin at 0 or later"
            assert once.slot[-1] < _SLOTS, "no packet may come after the last slot"
            assert once.port.min() >= 0, "ports must be in [0, N)"
            assert once.port.max() < ports, "ports must be in [0, N)"
            assert longer is not None, "a longer run of a seed must begin with the shorter one"
            cut = int(np.searchsorted(longer.slot, _SLOTS))
            first = Slotted(longer.slot[:cut], longer.port[:cut])
            assert _same(once, first), "a longer run of a seed must begin with the shorter one"


def _packets(workload: Workload, ports: int, buffer: int, slots: int, seed: int) -> Slotted | None:
    batches = list(workload.batches(ports, buffer, slots, seed))
    return Slotted.joined(batches) if batches else None


def _same(one: Slotted, other: Slotted) -> bool:
    return np.array_equal(one.slot, other.slot) and np.array_equal(one.port, other.port)


def _check_parameters(fresh: P, fit: Callable[[P], object]) -> None:
    """Raise AssertionError unless every parameter is declared, and `fit` refuses what its range leaves out."""
    parameters = fresh.parameters()
    limits = limits_of(type(fresh))
    assert all("at_least" in limits[name] for name in parameters), "every constructor parameter must be declared"
    for name in parameters:
        with _holds(f"the default of {name} must be in its range"):
            require_within(name, parameters[name], limits[name])
        broken = copy.deepcopy(fresh)
        setattr(broken, name, object())
        _refuses(partial(fit, broken), f"fit must refuse a malformed {name}")
    learned = [name for name in vars(fresh) if name.endswith("_")]
    assert not learned, f"the constructor must only store parameters, not learn {learned}"


def _made_of(what: object, base: type[P2], called: str) -> P2:
    """Return what a class or another callable makes without arguments, or a copy of what was made already.

    AssertionError when it cannot be made, or is none of `base`; `called` is what the contract calls it.
    """
    with _holds(f"{called} must be made without arguments"):
        made = what() if callable(what) else copy.deepcopy(what)
    lacks = [name for name in _members(base) if not hasattr(made, name)]
    if not (isinstance(made, base) if not getattr(base, "_is_protocol", False) else not lacks):
        words = f", and lacks {', '.join(lacks)}" if lacks else ""
        raise AssertionError(f"{called} must be a {base.__name__}: {type(made).__name__} is none{words}; subclass it")
    return cast("P2", made)


def _members(base: type) -> list[str]:
    """Members that users see of a class and of the classes that it is made of."""
    return sorted(
        name
        for kind in base.__mro__
        if kind.__module__.startswith("foretail.")
        for name in [*vars(kind), *vars(kind).get("__annotations__", {})]
        if not name.startswith("_")
    )


@contextmanager
def _holds(clause: str) -> Iterator[None]:
    """Raise AssertionError, with a clause of the contract, when what is done raises anything else."""
    try:
        yield
    except AssertionError:
        raise
    except FAILURES as error:
        raise AssertionError(f"{clause}: {error}") from error


def _refuses(action: Callable[[], object], clause: str) -> None:
    """Raise AssertionError, with a clause of the contract, unless an action ends in a ForetailError of its own."""
    with _holds(clause):
        try:
            action()
        except PluginError:
            raise
        except ForetailError:
            return
    raise AssertionError(clause)
