"""Rounds of training on reassigned labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretail.models.drop.reassignment import best_reassignment, reassignments
from foretail.sim_bridge.open_loop.push_outs import Choices, PushOuts

LABELS = np.array([False, True, False, True, False])
PUSH_OUTS = PushOuts(
    LABELS,
    np.empty(0, np.int64),
    {"stretch": Choices(np.arange(5), np.array([0, 2]), np.array([1, 4]))},
)


def rounds(scores: list[list[float]], worth: list[float], wanted: int) -> tuple[list[int], list[list[int]], int]:
    """Moved drops, labels and best of trainings whose k-th model gives `scores[k]` and is worth `worth[k]`."""
    trained: list[NDArray[np.bool_]] = []

    def fit(labels: NDArray[np.bool_]) -> int:
        trained.append(labels)
        return len(trained) - 1

    found = reassignments(PUSH_OUTS, wanted, fit, lambda k: np.array(scores[k]), lambda k: worth[k])
    assert [one.model for one in found] == list(range(len(trained)))
    np.testing.assert_array_equal([one.lqd_drop for one in found], trained)
    return (
        [one.moved for one in found],
        [np.flatnonzero(labels).tolist() for labels in trained],
        best_reassignment(found).model,
    )


def test_labels_go_where_the_scores_are() -> None:
    moved, labels, best = rounds([[9, 0, 0, 0, 5], [0, 1, 5, 5, 0], [0] * 5], [0.5, 0.7, 0.6], 2)
    assert labels == [[1, 3], [0, 4], [1, 3]], "of equal scores the victims of the trace"
    assert moved == [0, 2, 0]
    assert best == 1


def test_it_ends_when_no_label_moves_and_keeps_the_earliest_of_equals() -> None:
    moved, labels, best = rounds([[9, 0, 0, 0, 5], [9, 0, 0, 0, 5]], [0.5, 0.5], 10)
    assert labels == [[1, 3], [0, 4]]
    assert moved == [0, 2]
    assert best == 0


def test_no_round_is_one_training_on_the_labels_of_the_trace() -> None:
    assert rounds([[9, 0, 0, 0, 5]], [0.5], 0) == ([0], [[1, 3]], 0)
