"""Generated sequences of collectives: phases, placement, mixtures, noise."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.sim_bridge.circuits.demand import (
    JOBS,
    Phase,
    all_to_all,
    embedding_exchange,
    hybrid_parallel,
    mixed,
    repeated,
    ring,
)

NODES, DEGREE = 6, 2


@pytest.mark.parametrize("job", JOBS)
def test_every_job_stays_in_the_hose_model_and_repeats(job: str) -> None:
    phases = JOBS[job](NODES, DEGREE, 3)
    period = sum(phase.steps for phase in phases)
    found = repeated(phases, 3 * period + 1, 100, job, 7, placed_at_random=True)
    assert np.array_equal(found.demand[period:], found.demand[:-period])
    again = repeated(phases, 3 * period + 1, 100, job, 7, placed_at_random=True)
    assert np.array_equal(found.demand, again.demand)
    noisy = repeated(phases, 40, 100, job, 7, noise=0.5)
    plain = repeated(phases, 40, 100, job, 7)
    assert not np.array_equal(noisy.demand, plain.demand)
    for sequence in (found, noisy):
        for matrix in sequence.demand:
            DemandMatrix(matrix).require_hose(DEGREE)
    assert np.all((noisy.demand > 0) <= (plain.demand > 0))


def test_inference_keeps_its_racks_while_its_rates_change_by_up_to_40_percent() -> None:
    phases = np.stack([phase.demand.demand for phase in JOBS["inference"](NODES, DEGREE, 3)])
    assert len(phases) == 6
    assert max(DemandMatrix(phase).largest_sum for phase in phases) == pytest.approx(DEGREE)
    assert np.linalg.matrix_rank(phases.reshape(6, -1), tol=1e-9) == 2, "two kinds of jobs"
    change = phases[:, phases[0] > 0] / phases[0, phases[0] > 0]
    assert change.min() >= 0.6 / 1.4
    assert change.max() <= 1.4 / 0.6
    assert not np.allclose(change, change[:, :1]), "the kinds change apart"


def test_placement_renames_the_nodes() -> None:
    phases = hybrid_parallel(NODES, DEGREE, 3)
    plain, placed = (repeated(phases, 6, 100, "a", 2, placed_at_random=p).demand for p in (False, True))
    assert not np.array_equal(plain, placed)
    assert sorted(np.round(m.sum(), 9) for m in plain) == sorted(np.round(m.sum(), 9) for m in placed)
    assert np.allclose(np.sort(plain.ravel()), np.sort(placed.ravel()))


def test_owners_of_larger_tables_send_more_and_get_gradients_back() -> None:
    out, back, dense = (phase.demand.demand for phase in hybrid_parallel(NODES, DEGREE, 3))
    assert np.array_equal(back, out.T)
    assert np.array_equal(dense, ring(NODES, DEGREE).demand)
    off = ~np.eye(NODES, dtype=bool)
    per_sender = out[off].reshape(NODES, -1)
    assert np.allclose(per_sender, per_sender[:, :1])  # the same to every other node
    assert np.ptp(per_sender[:, 0]) > 0.01
    assert np.allclose(embedding_exchange(NODES, DEGREE, spread=0).demand, all_to_all(NODES, DEGREE).demand)


def test_a_mixture_swings_between_its_two() -> None:
    first = repeated([Phase(ring(NODES, DEGREE))], 9, 100, "a")
    second = repeated([Phase(all_to_all(NODES, DEGREE))], 9, 100, "b")
    found = mixed(first, second, 8, "c")
    assert np.allclose(found.demand[[0, 8]], first.demand[0])
    assert np.allclose(found.demand[4], second.demand[4])
    assert np.allclose(found.demand[2], (first.demand[2] + second.demand[2]) / 2)
    with pytest.raises(ForetailError, match="runs a and d differ"):
        mixed(first, repeated([Phase(ring(NODES, DEGREE))], 8, 100, "d"), 8, "c")
    with pytest.raises(ForetailError, match="period_steps=1"):
        mixed(first, second, 1, "c")


def test_impossible_sequences_are_refused() -> None:
    phase = Phase(ring(NODES, DEGREE))
    with pytest.raises(ForetailError, match="takes 0 steps"):
        Phase(ring(NODES, DEGREE), 0)
    for phases in ([], [phase, Phase(ring(5, DEGREE))]):
        with pytest.raises(ForetailError, match="not on the same nodes"):
            repeated(phases, 4, 100, "a")
    for steps, noise in ((0, 0.0), (1, -1.0), (1, float("nan"))):
        with pytest.raises(ForetailError, match="noise"):
            repeated([phase], steps, 100, "a", noise=noise)
    with pytest.raises(ForetailError, match="interval_ns"):
        repeated([phase], 4, 0, "a")
    assert isinstance(repeated([phase], 1, 1, "a"), DemandSequence)
