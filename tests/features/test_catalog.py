from __future__ import annotations

from foretail.features.catalog import (
    FEATURE_GROUPS,
    FEATURES,
    PAPER_FEATURES,
    REAL_FEATURES,
    SHADOW_COLUMNS,
    STUDY_FEATURES,
    TRACKED_FEATURES,
    VIRTUAL_FEATURES,
    FeatureCost,
    feature,
    training_columns,
)
from tests.refusals import refusing

NAMES = tuple(f.name for f in FEATURES)


def test_those_of_the_paper_come_first_and_a_state_stays_together() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[:4] == PAPER_FEATURES == ("queue", "queue_average", "occupancy", "occupancy_average")
    assert NAMES[:16] == REAL_FEATURES
    assert NAMES[16:23] == VIRTUAL_FEATURES
    states = [f.state for f in FEATURES]
    assert states == ["real"] * 16 + ["virtual"] * 12 + ["traffic"] * 4 + ["packet"] * 6


def test_a_switch_without_a_virtual_lqd_can_hold_these_groups() -> None:
    assert {feature(name).state for name in FEATURE_GROUPS["regimes"]} == {"real", "traffic"}
    assert {f.name for f in FEATURES if f.state == "traffic"} <= set(FEATURE_GROUPS["regimes"])
    assert not set(FEATURE_GROUPS["regimes"]) & set(TRACKED_FEATURES)


def test_every_value_is_exact_in_float32() -> None:
    assert all(0 < f.bits <= 24 for f in (*FEATURES, *STUDY_FEATURES))


def test_params_are_the_constants_of_the_arithmetic() -> None:
    averaged = "cell_bytes=512,average_shift=13"
    assert feature("threshold").params(512, 13) == "cell_bytes=512"
    assert feature("threshold_gradient").params(512, 13) == feature("arrivals_rate_slow").params(512, 13) == averaged
    assert feature("since_push_out").params(512, 13) == "tick_ns=1024"
    assert feature("gap_tracked").params(512, 13) == "cell_bytes=512,reported_every=8"
    assert feature("threshold_rank").params(512, 13) == ""


def test_real_features_train_on_the_shadow_unless_own_queues_are_asked_for() -> None:
    assert training_columns(["threshold", "queue"], own_queues=False) == ("threshold", "shadow_queue")
    assert training_columns(["threshold", "queue"], own_queues=True) == ("threshold", "queue")
    assert training_columns(REAL_FEATURES, own_queues=False) == SHADOW_COLUMNS
    assert training_columns(["first_rtt", "incast"], own_queues=False) == ("first_rtt", "incast")


def test_a_cost_is_the_registers_and_the_reading() -> None:
    assert feature("threshold_average").cost == FeatureCost(80, 0, 19)
    assert feature("threshold_rank").cost == FeatureCost(0, 0, 0, operations_per_queue=2)
    assert feature("gap_tracked").cost == FeatureCost(104, 64, 10)
    assert feature("arrivals_rate_slow").cost == FeatureCost(0, 80, 10)


test_what_cannot_be_chosen_is_refused = refusing(
    (lambda: training_columns(["queue", "mood"], own_queues=False), "^unknown feature 'mood': choose from queue, "),
    (lambda: training_columns(["queue", "queue"], own_queues=False), "^feature 'queue' is chosen more than once"),
    (lambda: training_columns([], own_queues=False), "^no features chosen"),
    (lambda: feature("incast").cost, "^feature 'incast' has no cost, no switch can know it"),
)
