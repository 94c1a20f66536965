"""A predictor in Python that decides live in ns-3: as a compiled one, and what it does wrong. Costs 25 s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import PAPER_FEATURES, feature
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.ns3.live import run_live_driver
from tests.forests import paper_forest
from tests.scenarios import settings

pytestmark = pytest.mark.ns3
SHIFT = 15


def document(**changes: Any) -> dict[str, Any]:
    short = {"traffic_ns": 6_000_000, "policy__name": "credence", "features__average_shift": SHIFT}
    return settings(**(short | changes))


@pytest.mark.nightly
@pytest.mark.full
def test_live_answers_are_those_of_the_compiled_model(tmp_path: Path) -> None:
    cell_bytes = document()["features"]["cell_bytes"]
    inputs = tuple(
        FeatureInput(name, feature(name).params(cell_bytes, SHIFT), feature(name).bits) for name in PAPER_FEATURES
    )
    x = np.random.default_rng(1).integers(0, 600, (4000, len(inputs)), dtype=np.int32)
    model = paper_forest().forest.fit(x, x[:, 0] > 0.4 * x[:, 2]).to_ensemble(inputs)
    exported = export(model, C(), tmp_path / "export")
    for folder in ("compiled", "live"):
        (tmp_path / folder).mkdir()
    library = {"policy__library": str(exported.file(".so")), "policy__predictor": "library"}
    compiled = run_driver(document(**library), tmp_path / "compiled")
    live = run_live_driver(document(), tmp_path / "live", model.exceeds, PAPER_FEATURES)
    counted = {node: sum(switch[node] for switch in compiled.summary["switches"]) for node in ("asked",)}
    assert live.asked == counted["asked"] > 1000
    assert 0 < live.drops < live.asked
    assert live.exportable is False
    np.testing.assert_array_equal(live.run.flows(), compiled.flows())
    np.testing.assert_array_equal(live.run.occupancy(), compiled.occupancy())


@pytest.mark.parametrize(
    ("predictor", "sentence"),
    [
        (lambda x: 1 / 0, "raised ZeroDivisionError on 1 rows"),
        (lambda x: np.array([np.nan]), "answered NaN"),
        (lambda x: np.zeros(2), "answered float64 of shape"),
    ],
)
def test_what_a_predictor_does_wrong_ends_the_simulation(predictor: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=sentence):
        run_live_driver(document(), tmp_path, predictor, ("queue", "occupancy"))


def test_what_the_driver_refuses_is_told_and_nothing_waits(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="traffic_ns"):
        run_live_driver(document(traffic_ns="soon"), tmp_path, lambda x: np.zeros(1), ("queue",))
    with pytest.raises(ForetailError, match="asks no predictor"):
        run_live_driver(document(policy__name="dt"), tmp_path, lambda x: np.zeros(1), ("queue",))
    with pytest.raises(ForetailError, match="average_shift is null"):
        run_live_driver(document(features__average_shift=None), tmp_path, lambda x: np.zeros(1), ("queue_average",))


def test_a_simulation_without_a_question_ends(tmp_path: Path) -> None:
    nothing = {"background__load": 0.0, "incast__queries_per_second_per_server": 1.0}
    run = run_live_driver(document(traffic_ns=1000, **nothing), tmp_path, lambda x: np.zeros(1), ("queue",))
    assert (run.asked, run.drops) == (0, 0)
