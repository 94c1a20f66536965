"""The gate of a promotion without any model: its settings, its intervals, and what a model has to beat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.pipelines.promotion.gate import HeldOutScores, compare, compare_with_tuned
from foretail.pipelines.promotion.model_card import read_shift_table
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.tracking.baselines import chosen_in
from foretail.sim_bridge.open_loop.baselines import Baseline
from tests.composed import composed

pytestmark = pytest.mark.slow

REFUSED = {
    "one seed": (["seeds=[1]"], "at least two"),
    "no tracking": (["tracking=off"], "leave tracking on"),
    "no name": (["tracking.registered_model=null"], "give tracking.registered_model"),
    "no table": (["shift=nowhere.csv"], "there is no file nowhere.csv"),
    "another alias": (["to=winner"], "choose from champion, challenger"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_settings_are_refused(case: str) -> None:
    overrides, complaint = REFUSED[case]
    with pytest.raises(ForetailError) as caught:
        typed(composed("promote", *overrides), PromoteConfig)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("stage", ["train", "distill", "demo"])
def test_only_the_gate_moves_its_aliases(stage: str) -> None:
    with pytest.raises(ForetailError, match="foretail promote"):
        typed(composed(stage, "tracking.alias=champion"), STAGES[stage])


@pytest.mark.parametrize(
    ("text", "complaint"), [("", "is not a table"), ("a,b\n", "has 0 rows"), ("a\n" + "1\n" * 2001, "has 2001 rows")]
)
def test_a_table_of_shift_tests_is_checked(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "shift.csv").write_text(text)
    with pytest.raises(ForetailError, match=complaint):
        read_shift_table(tmp_path / "shift.csv")


def scores_of(*values: float) -> list[HeldOutScores]:
    return [HeldOutScores(value, 100 * value, 0.0, None, (), {}) for value in values]


def passes(name: str, mine: list[HeldOutScores], theirs: list[HeldOutScores] | None, margin: float) -> bool:
    check = compare(name, mine, theirs, margin, "champion")
    assert check is not None
    return check.passed


def test_the_whole_interval_has_to_hold() -> None:
    # differences 0.00, -0.01, 0.01: mean 0, half-width t(2) * 0.01 / sqrt(3) = 0.02484
    mine, theirs = scores_of(0.5, 0.6, 0.7), scores_of(0.5, 0.61, 0.69)
    assert passes("asked_f1", mine, theirs, 0.025)
    assert not passes("asked_f1", mine, theirs, 0.0248)
    assert passes("asked_f1", mine, mine, 0.0)  # an equal model is no worse
    assert passes("sent", mine, None, 0.0)
    # mean 0.1, half-width 0.2484: more than always accepting on average, but it may be less
    assert not passes("sent", scores_of(0.0, 0.1, 0.2), None, 90)
    assert not passes("sent", scores_of(0.0, 0.0), None, 90)


def test_a_score_that_one_of_the_two_lacks_is_not_compared() -> None:
    mine = scores_of(0.5, 0.6)
    theirs = [replace(run, asked_f1=None) for run in mine]  # trained for what is sent
    assert compare("asked_f1", mine, theirs, 0.0, "champion") is None
    assert compare("asked_f1", theirs, None, 0.0, "champion") is None
    assert passes("sent", mine, theirs, 0.0)


def test_the_baselines_of_a_training_and_of_a_distilling_are_found() -> None:
    replay = {"baselines": [{"policy": "dt", "alpha": 16.0, "title": "DT, alpha 16"}, {"policy": "cs", "alpha": None}]}
    for outcome in ({"replay": replay}, {"teacher": {"replay": None}, "student": {"replay": replay}}):
        assert chosen_in(outcome) == (Baseline("dt", 16.0), Baseline("cs"))
    assert chosen_in({"replay": None}) == ()


@pytest.mark.parametrize(("sent", "passed"), [(50.0, True), (90.0, False), (70.0, False)])
def test_the_best_tuned_policy_has_to_be_beaten_by_a_whole_interval(sent: float, passed: bool) -> None:
    best = {"title": "DT, alpha 16", "sent_percent_of_lqd": sent}
    mine = [replace(run, baselines=(best,)) for run in scores_of(0.69, 0.7, 0.72)]
    check = compare_with_tuned(mine, "the runs that trained the model")
    assert check.passed == passed
    assert check.reason.startswith(
        "bytes sent, in % of LQD's, against DT, alpha 16, tuned on the runs that trained the "
    )
