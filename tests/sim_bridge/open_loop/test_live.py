"""A live predictor decides as the native run that is told the same, and what is no answer is refused by its name."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import RidgeClassifier

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, SWITCH_FEATURES, feature
from foretail.features.dataset.schema import Rules
from foretail.features.records import Outcome
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import scorer_of
from foretail.models.ensemble.tree import Tree
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.live import LiveResult, run_live
from tests.examples import draws
from tests.strategies import SlottedArrivals, slotted_arrivals, small_ensembles

EVERY = tuple(feature.name for feature in FEATURES)
NAMES = ("queue", "occupancy", "threshold")
any_rules = st.builds(
    Rules,
    st.sampled_from(("counted", "uncounted")),
    st.sampled_from(("lowest_port", "highest_port")),
    st.sampled_from(("tail", "head", "random")),
)


def arrivals_of(case: SlottedArrivals) -> Slotted:
    return Slotted(np.array(case.slot, np.int64), np.array(case.port, np.int32))


def native(
    policy: str, case: Slotted, ports: int, buffer: int, predictions: NDArray[np.uint8] | None = None, **settings: Any
) -> dict[str, Any]:
    return slotted(policy, ports, buffer, case.slot, case.port, predictions, features=True, **settings)


def chosen(names: tuple[str, ...]) -> list[int]:
    return [EVERY.index(name) for name in names]


@settings(max_examples=draws(100))
@given(case=slotted_arrivals(), ensemble=small_ensembles(SWITCH_FEATURES), rules=any_rules, seed=st.integers(0, 99))
@pytest.mark.parametrize("policy", ["credence", "guarded", "learned", "credence_artifact"])
def test_an_ensemble_is_the_native_run_of_its_predictions(
    policy: str, case: SlottedArrivals, ensemble: Ensemble, rules: Rules, seed: int
) -> None:
    """These features are those of the virtual LQD, so the native run can have all predictions beforehand."""
    arrivals = arrivals_of(case)
    told: dict[str, Any] = {"counting": rules.counting, "tie": rules.tie, "victim": rules.victim}
    lqd = native("lqd", arrivals, case.ports, case.buffer, **told, seed=seed)
    predictions = ensemble.exceeds(lqd["features"][:, chosen(SWITCH_FEATURES)])
    run = native(policy, arrivals, case.ports, case.buffer, predictions.view(np.uint8), **told, seed=seed)
    live = run_live(
        [arrivals], case.ports, case.buffer, ensemble.exceeds, SWITCH_FEATURES, policy=policy, rules=rules, seed=seed
    )
    [only] = live.runs
    np.testing.assert_array_equal(only.outcome, run["outcome"])
    assert (only.arrivals, only.transmitted, only.lqd) == (len(arrivals), run["transmitted"], lqd["transmitted"])
    assert only.asked == live.asked == live.calls == run["asked"].sum()
    assert not live.exportable


@settings(max_examples=draws(100))
@given(
    cases=st.lists(slotted_arrivals(max_ports=5), min_size=1, max_size=5),
    ensemble=small_ensembles(EVERY),
    data=st.data(),
)
def test_many_runs_see_what_their_own_decisions_have_led_to(
    cases: list[SlottedArrivals], ensemble: Ensemble, data: st.DataObject
) -> None:
    """Fed with what was decided live, the native run shows the predictor's inputs: on them it decides the same."""
    ports, buffer = 5, data.draw(st.integers(1, 40))
    sequences = [arrivals_of(case) for case in cases]
    live = run_live(sequences, ports, buffer, ensemble.exceeds, EVERY)
    for arrivals, found in zip(sequences, live.runs, strict=True):
        decided = (found.outcome == Outcome.PREDICTED).astype(np.uint8)
        run = native("credence", arrivals, ports, buffer, decided)
        asked = run["asked"] != 0
        np.testing.assert_array_equal(found.outcome, run["outcome"])
        np.testing.assert_array_equal(ensemble.exceeds(run["features"])[asked], decided[asked])
        assert (found.transmitted, found.asked) == (run["transmitted"], asked.sum())


def bursts(seed: int) -> Slotted:
    [batch] = PoissonBursts(load=0.5, burst_fraction=0.5).batches(4, 40, 300, seed)
    return batch


SEQUENCES = [bursts(seed) for seed in (1, 2, 3)]


def live(predictor: Any, **settings: Any) -> LiveResult:
    return run_live(SEQUENCES, 4, 40, predictor, NAMES, **settings)


def outcomes(result: LiveResult) -> list[list[int]]:
    return [run.outcome.tolist() for run in result.runs]


def rule(x: NDArray[np.int32]) -> NDArray[np.bool_]:
    return x[:, 0] > 7


class Threshold(torch.nn.Module):
    """A queue longer than 7, as a logit in one column."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.nn.Parameter(torch.tensor(7.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] - self.offset


def test_every_kind_of_predictor_is_asked() -> None:
    expected = outcomes(live(rule))
    assert any(Outcome.PREDICTED in run for run in expected)
    assert expected != outcomes(live(lambda x: np.zeros(len(x), np.bool_)))
    assert outcomes(live(lambda x: x[:, 0], threshold=7)) == expected
    assert outcomes(live(lambda x: (x[:, 0] / 15.0).tolist(), threshold=0.5)) == expected
    assert outcomes(live(Threshold().eval(), threshold=0)) == expected
    x = np.random.default_rng(1).integers(0, 41, (2000, 3)).astype(np.int32)
    y = rule(x)
    assert outcomes(live(RandomForestClassifier(5, random_state=1, max_features=None).fit(x, y))) == expected
    assert outcomes(live(RandomForestRegressor(5, random_state=1).fit(x, y.astype(float)))) == expected
    boosted = xgboost.XGBClassifier(n_estimators=20, n_jobs=1).fit(x, y)
    assert outcomes(live(boosted)) == outcomes(live(boosted.get_booster())) == expected


def writes(x: NDArray[np.int32]) -> NDArray[np.bool_]:
    x += 1
    return x[:, 0] > 7


def raises(x: NDArray[np.int32]) -> NDArray[np.bool_]:
    raise KeyError("weights\nand more")


def leaves(x: NDArray[np.int32]) -> NDArray[np.bool_]:
    raise SystemExit(3)


def mute(x: NDArray[np.int32]) -> NDArray[np.bool_]:
    sys.stdout.close()
    return np.zeros(len(x), np.bool_)


def nan_for(x: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.full(len(x), np.nan)


def one_row_more(x: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.zeros(len(x) + 1)


def a_column(x: NDArray[np.int32]) -> NDArray[np.float64]:
    return np.zeros((len(x), 1))


def labelled(accept: Any, drop: Any, kind: type[Any] = RandomForestClassifier) -> Any:
    """A classifier that was fitted on two labels."""
    return kind().fit([[0, 0, 0], [9, 9, 9]] * 5, [accept, drop] * 5)


def words(x: NDArray[np.int32]) -> list[str]:
    return ["drop"] * len(x)


def nothing(x: NDArray[np.int32]) -> None:
    return None


@pytest.mark.parametrize(
    ("predictor", "message"),
    [
        (writes, r"the predictor writes changed its input: let it work on a copy"),
        (raises, r"the predictor raises fails on 3 rows \(KeyError: 'weights\\nand more'\): make it answer"),
        (leaves, r"the predictor leaves fails on 3 rows \(SystemExit: 3\): make it answer"),
        (mute, r"the predictor mute fails on 3 rows \(it closed the standard output\): make it answer"),
        (nan_for, r"the predictor nan_for answered NaN to the features \[\d+, \d+, \d+\]: return a number"),
        (one_row_more, r"the predictor one_row_more answered float64 of shape \(4,\) to 3 rows: return one .*"),
        (a_column, r"the predictor a_column answered float64 of shape \(3, 1\) to 3 rows: return one bool or .*"),
        (words, r"the predictor words answered <U4 of shape \(3,\) to 3 rows: return one bool or number for each"),
        (nothing, r"the predictor nothing answered object of shape \(\) to 3 rows: return one bool or number .*"),
        (Threshold(), r"the predictor Threshold is in training mode: call its eval\(\) first"),
        (torch.nn.Linear(2, 1).eval(), r"the predictor Linear fails on 3 rows \(RuntimeError: .*\): make it answer"),
        (RandomForestClassifier(), r"the predictor RandomForestClassifier tells 0 classes apart .*: train it .*"),
        (
            labelled("drop", "keep"),
            r"the .*Classifier tells 2 classes apart \('drop', 'keep'\): train it on labels .*",
        ),
        (labelled(-1, 1), r"the .*Classifier tells 2 classes apart \(.*\): train it on labels .*"),
        (labelled(1, 2), r"the .*Classifier tells 2 classes apart \(.*\): train it on labels .*"),
        (labelled("0", "1"), r"the .*Classifier tells 2 classes apart \('0', '1'\): train it on labels .*"),
        (
            labelled(1, 2, RidgeClassifier),
            r"the .*RidgeClassifier tells 2 classes apart \(.*\): train it on labels .*",
        ),
        (IsolationForest(), r"the predictor IsolationForest detects outliers, -1 for one and 1 for none: give a .*"),
        (7, r"a predictor must be a callable, a PyTorch module or a fitted estimator, not int"),
    ],
)
def test_what_is_no_answer_is_one_sentence(predictor: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(ForetailError, match=f"^{message}$"):
        live(predictor)


def test_numbers_that_are_no_probabilities_need_a_threshold() -> None:
    def logits(x: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.where(x[:, 0] > 3, 0.3, -5.0)

    with pytest.raises(ForetailError, match=r"answered -5, which is no probability: return booleans, or give "):
        live(logits)
    assert outcomes(live(logits, threshold=0.0)) == outcomes(live(lambda x: x[:, 0] > 3))


def test_an_interruption_is_none_of_a_predictor() -> None:
    def interrupted(x: NDArray[np.int32]) -> NDArray[np.bool_]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live(interrupted)


def test_wrong_settings_are_one_sentence() -> None:
    with pytest.raises(ForetailError, match=r"^policy 'dt' asks no predictor: choose one of credence"):
        live(rule, policy="dt")
    with pytest.raises(ForetailError, match=r"^unknown feature 'length'"):
        run_live(SEQUENCES, 4, 40, rule, ["length"])
    with pytest.raises(ForetailError, match=r"^row 0 has port \d, outside 0 to 0$"):
        run_live([Slotted(np.zeros(1, np.int64), np.ones(1, np.int32))], 1, 40, rule, NAMES)


def test_a_model_that_counts_in_other_units_is_refused() -> None:
    """98.09 % of LQD was said of cells of 1024 bytes where the model had 256, and 95.65 % is right."""
    arrivals = bursts(1)
    stump = Tree(*(np.array(one) for one in ([0, -1, -1], [40, 0, 0], [1, -1, -1], [2, -1, -1], [0.0, 0.0, 1.0])))
    model = Ensemble((FeatureInput("queue", "cell_bytes=256", 24),), (stump,), Fraction(1, 2))
    known = KnownRun.in_slots([arrivals], 4, 40)
    live = run_live([arrivals], 4, 40, model.exceeds, ["queue"])
    assert live.runs[0].transmitted == known.sent("credence", scorer_of(model))
    with pytest.raises(ForetailError, match="cells of 256 bytes, and this run in cells of 1024: give cell_bytes=256"):
        run_live([arrivals], 4, 40, model.exceeds, ["queue"], cell_bytes=1024)
    params = feature("queue_average").params(256, 14)
    averaged = replace(model, features=(FeatureInput("queue_average", params, 24),))
    with pytest.raises(ForetailError, match=r"averages over 2\*\*4 slots, and this run has 2\*\*5: give"):
        run_live([arrivals], 4, 40, averaged.exceeds, ["queue_average"])
