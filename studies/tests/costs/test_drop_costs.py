"""``foretail run drop_costs``: draws, labels, trees; and all of it in ns-3, a minute."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines import cli
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.store import Store
from foretail_studies.costs.labels import (
    STRATA,
    cost_labels,
    drawn_arrivals,
    equal_quotas,
    fit_cost_trees,
    gains,
    signal_to_noise,
)
from tests.composed import foretail, result_in
from tests.traces import make_arrivals, write_trace

pytestmark = pytest.mark.slow

KINDS = ("query", "short", "long")


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8), count=st.integers(0, 100))
def test_quotas_are_equal_but_for_small_groups(sizes: list[int], count: int) -> None:
    """Slow and obvious: round after round one for each group that has another."""
    quotas = equal_quotas(sizes, count)
    assert sum(quotas) == min(count, sum(sizes))
    assert all(0 <= quota <= size for quota, size in zip(quotas, sizes, strict=True))
    most = max(quotas)
    assert all(quota >= most - 1 for quota, size in zip(quotas, sizes, strict=True) if quota < size)


def test_drawn_arrivals_are_choices_and_stand_for_all(tmp_path: Path) -> None:
    dataset = write_trace(tmp_path / "trace", make_arrivals(4000))
    rows = drawn_arrivals(dataset, 60, [1])
    assert len(rows) == 60
    assert rows["arrival"].is_monotonic_increasing
    assert rows.equals(drawn_arrivals(dataset, 60, [1]))
    assert not rows.equals(drawn_arrivals(dataset, 60, [2]))
    whole: Any = dataset.frame().set_index("arrival")
    buffers = [switch.buffer_bytes for switch in dataset.manifest.switches]
    cell = dataset.manifest.cell_bytes
    could = [
        bool(row["accepted"] or (row["occupancy"] + 1) * cell + row["size_bytes"] <= buffers[row["switch"]])
        for row in whole.to_dict("records")
    ]
    assert rows["arrivals"].sum() == pytest.approx(sum(could))
    assert set(rows["arrival"]) <= set(whole.index[could])
    groups = rows.groupby(STRATA, observed=True).size()
    assert len(groups) > 4
    assert groups.max() <= 60 // len(groups) + 1


def invented(seed: int, arrivals: list[int], repeats: int) -> list[dict[str, Any]]:
    """Costs of a run and its branches."""
    draw = np.random.default_rng(seed)

    def one(row: int | None, turned: bool, repeat: int) -> dict[str, Any]:
        costs = {name: float(value) for name, value in zip(("cost", *KINDS), draw.uniform(1, 9, 4), strict=True)}
        return {
            "row": row,
            "turned": turned,
            "repeat": repeat,
            "decisions": 3 * turned,
            **costs,
            "long": None,
            "timeouts": int(draw.integers(0, 9)),
        }

    branches = [
        one(row, turned, repeat)
        for row in arrivals
        for repeat in range(repeats)
        for turned in (False, True)
        if turned or repeat
    ]
    run = one(None, False, 0)
    return [run, *branches[: len(branches) // 2], run, *branches[len(branches) // 2 :]]


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_a_label_is_what_dropping_costs(repeats: int) -> None:
    rows = pd.DataFrame({"arrival": [5, 9, 70], "accepted": [True, False, True]})
    branches = invented(repeats, [5, 9, 70], repeats)
    labelled = cost_labels(rows, branches, 7, repeats)
    for position, (arrival, accepted) in enumerate([(5, True), (9, False), (70, True)]):

        def of(turned: bool, repeat: int, name: str, arrival: int = arrival) -> float:
            row = None if not turned and repeat == 0 else arrival
            found = [b for b in branches if (b["row"], b["turned"], b["repeat"]) == (row, turned, repeat)]
            return float(found[0][name])

        sign = 1 if accepted else -1
        costs = [sign * (math.log(of(True, k, "cost")) - math.log(of(False, k, "cost"))) for k in range(repeats)]
        assert labelled["drop_cost"][position] == pytest.approx(np.mean(costs))
        if repeats > 1:
            assert labelled["chaos"][position] == pytest.approx(np.std(costs, ddof=1) / math.sqrt(repeats))
        query = [sign * math.log(of(True, k, "query") / of(False, k, "query")) for k in range(repeats)]
        assert labelled["drop_cost_query"][position] == pytest.approx(np.mean(query))
        late = [sign * (of(True, k, "timeouts") - of(False, k, "timeouts")) for k in range(repeats)]
        assert labelled["drop_timeouts"][position] == pytest.approx(np.mean(late))
    assert labelled["chaos"].isna().all() == (repeats == 1)
    assert labelled["drop_cost_long"].isna().all()
    assert (labelled["decisions"] == 3).all()
    assert (labelled["hold_ns"] == 7).all()


def test_signal_and_noise_are_told_apart() -> None:
    draw, count = np.random.default_rng(1), 4000
    truth = draw.normal(0.5, 0.3, count)
    measured = truth[:, None] + draw.normal(0, 0.2, (count, 2))
    frame = pd.DataFrame(
        {"kind": "one", "drop_cost": measured.mean(axis=1), "chaos": measured.std(axis=1, ddof=1) / math.sqrt(2)}
    )
    found = signal_to_noise(frame, ["kind"]).iloc[0]
    assert found["flips"] == count
    assert found["low"] < 0.5 < found["high"]
    assert found["chaos"] == pytest.approx(0.2 / math.sqrt(2), rel=0.05)
    assert found["signal_to_noise"] == pytest.approx(0.3 / (0.2 / math.sqrt(2)), rel=0.1)
    nothing = frame.assign(drop_cost=draw.normal(0, 0.1, count), chaos=0.2)
    assert signal_to_noise(nothing, ["kind"])["signal_to_noise"].iloc[0] == 0


def test_a_gain_is_per_decision_and_within_its_run() -> None:
    run = {"family": "f", "condition": "c", "policy": "cs", "seed": 1, "hold_ns": 0, "decisions": 1}
    frame = pd.DataFrame([{**run, "drop_cost": float(cost)} for cost in range(101)])
    held = pd.DataFrame([{**run, "hold_ns": 9, "decisions": 4, "drop_cost": 8.0}])
    found = gains(pd.concat([frame, held], ignore_index=True), 10.0)
    assert found.tolist() == [*(-min(max(cost, 10), 90) for cost in range(101)), -2.0]


INPUTS = [FeatureInput.of(name, 256) for name in ("first_rtt", "message_left")]


def made_up() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Packets whose drop costs 1, and more so the last of a message; far from its end dropping gains."""
    draw = np.random.default_rng(3)
    x = np.stack([draw.integers(0, 2, 900), draw.integers(0, 256, 900)], axis=1).astype(np.int32)
    return x, np.where(x[:, 1] <= 17, -1.0, 0.25) + draw.normal(0, 0.2, 900)


def test_trees_learn_where_a_drop_gains_and_reach_a_switch(tmp_path: Path) -> None:
    x, gain = made_up()
    options: dict[str, Any] = {"trees": 4, "depth": 3, "learning_rate": 0.5, "fewest_rows": 10, "seed": 1}
    trees = fit_cost_trees(x, gain, INPUTS, **options)
    assert trees == fit_cost_trees(x, gain, INPUTS, **options)
    assert len(trees.trees) == 4
    assert max(tree.depth for tree in trees.trees) <= 3
    assert np.mean(trees.exceeds(x) == (x[:, 1] > 17)) > 0.99
    scaled = fit_cost_trees(x, gain / 1024, INPUTS, **options)
    assert np.allclose(scaled.float_sum(x) * 1024, trees.float_sum(x))
    exported = export_to_store(trees, Store(tmp_path / "store"))
    assert exported.certificate.order
    with pytest.raises(ForetailError, match="the gains have shape"):
        fit_cost_trees(x, gain[:-1], INPUTS, **options)


SMALL = ["run", "drop_costs", "size=small", "jobs=1"]


@pytest.mark.ns3
def test_a_run_that_loses_nothing_has_no_cost_labels(tmp_path: Path) -> None:
    quiet = "'scenario=tiny','scenario.traffic_ns=300_000','scenario.incast.burst_fraction=0.001'"
    large = "'scenario.topology.buffer_bytes_per_port_per_gbps=1_000_000'"
    done = foretail(tmp_path, *SMALL, f"shared=[{quiet},{large}]", "tracking=off")
    assert done.returncode == 2
    assert "websearch load_40: cs, seed 111 has no timeouts and no losses" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
@pytest.mark.ns3
def test_costs_are_measured_learned_exported_and_put_on_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*SMALL, "hydra.run.dir=first"]) == 0
    first = result_in(tmp_path / "first")
    assert first["reused"] == 0
    (path,) = first["datasets"]
    dataset = Dataset.open(Path(path))
    assert dataset.manifest.kind == "drop_costs"
    labelled = dataset.frame()
    assert len(labelled) == 8 + 4
    assert sorted(set(labelled["hold_ns"] > 0)) == [False, True]
    assert (labelled.loc[labelled["hold_ns"] == 0, "decisions"] == 1).all()
    shown = pd.read_csv(tmp_path / "first" / "drop_costs.csv")
    assert np.allclose(shown["drop_cost"], labelled["drop_cost"])
    assert Ensemble.load(tmp_path / "first" / "ensemble.json").output == "value"

    assert cli.main([*SMALL, "hydra.run.dir=again"]) == 0
    again = result_in(tmp_path / "again")
    assert again["reused"] == again["points"] == first["points"]
    for key in ("strata", "candidates", "ensemble_sha256", "datasets"):
        assert again[key] == first[key]

    model = "model=models:/foretail-drop@candidate"
    assert cli.main(["export", model, "target=p4", "hydra.run.dir=export"]) == 0
    on_map = ["run", "sharing_map", "size=small", "asking=[learned]", "jobs=1", model]
    assert cli.main([*on_map, "hydra.run.dir=map"]) == 0
    rows = pd.DataFrame(result_in(tmp_path / "map")["rows"])
    assert (rows[rows["policy"] == "learned"]["asked"] > 0).all()
