from __future__ import annotations

import pytest

from foretail.features.catalog import (
    FEATURES,
    PAPER_FEATURES,
    SHADOW_COLUMNS,
    VIRTUAL_FEATURES,
    feature,
    training_columns,
)
from foretail.features.errors import ForetailError

NAMES = (
    "queue",
    "queue_average",
    "occupancy",
    "occupancy_average",
    "threshold",
    "threshold_average",
    "thresholds_sum",
    "thresholds_sum_average",
    "threshold_max",
    "queues_over_share",
    "since_push_out",
)


def test_names_and_order_are_those_of_the_records() -> None:
    assert tuple(f.name for f in FEATURES) == NAMES
    assert NAMES[:4] == PAPER_FEATURES
    assert NAMES[4:] == VIRTUAL_FEATURES


def test_every_value_is_exact_in_float32() -> None:
    assert all(0 < f.bits <= 24 for f in FEATURES)


def test_params_are_the_constants_of_the_arithmetic() -> None:
    params = {f.name: f.params(512, 13) for f in FEATURES}
    assert params.pop("queues_over_share") == ""
    assert params.pop("since_push_out") == "tick_ns=1024"
    for name, text in params.items():
        assert text == ("cell_bytes=512,average_shift=13" if name.endswith("_average") else "cell_bytes=512")


def test_real_features_train_on_the_shadow_unless_own_queues_are_asked_for() -> None:
    assert training_columns(["threshold", "queue"], own_queues=False) == ("threshold", "shadow_queue")
    assert training_columns(["threshold", "queue"], own_queues=True) == ("threshold", "queue")
    assert training_columns(PAPER_FEATURES, own_queues=False) == SHADOW_COLUMNS


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["queue", "mood"], r"^unknown feature 'mood': choose from queue, queue_average, "),
        (["queue", "queue"], r"^feature 'queue' is chosen more than once"),
        ([], r"^no features chosen"),
    ],
)
def test_bad_names_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ForetailError, match=message):
        training_columns(names, own_queues=False)


def test_lookup_by_name() -> None:
    assert feature("occupancy") is FEATURES[2]
