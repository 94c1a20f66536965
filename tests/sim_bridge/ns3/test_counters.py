"""What switches count over an interval, against a slow model; and alphas that follow from it in ns-3."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import COUNTER_BITS, COUNTERS, counter_params
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, read_records
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge._native import counter_names, interval_counters
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from tests.scenarios import settings
from tests.sim_bridge.slow_models.counters import Packet, counters_before

NAMES = [counter.name for counter in COUNTERS]
EVERY_NS = 100_000


def test_the_list_of_counters_is_that_of_the_switch() -> None:
    assert counter_names() == NAMES


@st.composite
def packets(draw: st.DrawFn) -> list[Packet]:
    times = sorted(draw(st.lists(st.integers(0, 900), max_size=30)))
    return [
        Packet(
            time,
            draw(st.integers(0, 3)),
            draw(st.integers(1, 1500)),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.integers(0, 2**32 - 1)),
            draw(st.integers(0, 5000)),
            draw(st.integers(0, 5000)),
        )
        for time in times
    ]


@given(packets(), st.integers(1, 300))
def test_counters_are_those_of_a_slow_model(came: list[Packet], every: int) -> None:
    rates, priorities, capacity = [10**9, 10**11], 2, 5000
    rows = np.array([[int(value) for value in astuple(packet)] for packet in came], np.int64).reshape(-1, 9)
    found = interval_counters(capacity, rates, priorities, every, rows)
    for packet, counters in zip(came, found.tolist(), strict=True):
        assert counters == counters_before(came, packet.queue, packet.time, capacity, rates, priorities, every)
    assert found.min(initial=0) >= 0
    assert found.max(initial=0) < 2**COUNTER_BITS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": np.zeros((1, 8), np.int64)}, "an arrival has nine columns"),
        ({"interval_ns": 0}, "must be above 0"),
        ({"rates_bps": []}, "must be above 0"),
        ({"rows": np.array([[0, 2, 1, 0, 0, 0, 0, 1, 1]])}, "outside 0 to 1"),
        ({"rows": np.array([[5, 0, 1, 0, 0, 0, 0, 1, 1], [4, 0, 1, 0, 0, 0, 0, 1, 1]])}, "never decrease"),
    ],
)
def test_what_no_switch_counts_is_refused(changes: dict[str, Any], sentence: str) -> None:
    usual = {"capacity": 10, "rates_bps": [10**9, 10**9], "priorities": 1, "interval_ns": 10}
    with pytest.raises(ForetailError, match=sentence):
        interval_counters(**{**usual, "rows": np.zeros((0, 9), np.int64), **changes})


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., DriverRun]:
    """Dynamic Thresholds in the driver."""

    def run(**changes: Any) -> DriverRun:
        return run_driver(settings(policy__name="dt", **changes), tmp_path_factory.mktemp("run"))

    return run


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The library of a tree over counters, whose leaves are what it is told."""

    def make(root: Rule, every_ns: int = EVERY_NS, name: str = "queue_load", bits: int = COUNTER_BITS) -> str:
        inputs = (FeatureInput(name, counter_params(every_ns), bits),)
        model = Ensemble(inputs, (tree_of_rule(root, [name]),), Fraction(0), output="value")
        return str(export(model, C(), tmp_path_factory.mktemp("export") / "c").file(".so"))

    return make


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.ns3
def test_a_log_of_counters_is_what_came(simulate: Callable[..., DriverRun]) -> None:
    run = simulate(trace=True, counters=True, features__cell_bytes=1, transport__name="cubic", transport__mark_bytes=0)
    rows = read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)
    rows = rows[rows["flow_class"] != FlowClass.CONTROL]
    logged = run.counters()
    assert logged["arrived_bytes"].sum() <= rows["size_bytes"].sum()
    assert (np.diff(logged["time_ns"]) >= 0).all() or len(np.unique(logged["switch"])) > 1
    known = [place for place, name in enumerate(NAMES) if not name.endswith(("flows", "marked"))]
    for number, node in enumerate(run.summary["switches"]):
        accepted = rows["outcome"] == Outcome.ACCEPTED
        came = [
            Packet(
                int(row["time_ns"]),
                int(row["port"]),
                int(row["size_bytes"]),
                not bool(kept),
                False,
                bool(row["first_rtt"]),
                0,
                int(row["features"][0]) + int(row["size_bytes"]) * bool(kept),
                int(row["features"][2]) + int(row["size_bytes"]) * bool(kept),
            )
            for row, kept in zip(rows[rows["switch"] == number], accepted[rows["switch"] == number], strict=True)
        ]
        overhead = settings()["topology"]["wire_overhead_bytes"]
        assert overhead >= 0
        of_switch = logged[logged["switch"] == number]
        for record in of_switch[:: max(len(of_switch) // 20, 1)]:
            end = int(record["time_ns"])
            slow = counters_before(
                came, int(record["queue"]), end - EVERY_NS, node["buffer_bytes"], node["port_rates_bps"], 1, EVERY_NS
            )
            assert [record["counters"][place] for place in known] == [slow[place] for place in known]
            inside = [one for one in came if end - EVERY_NS <= one.time < end and one.queue == record["queue"]]
            assert record["arrived_bytes"] == sum(one.size for one in inside)
    assert logged["counters"][:, NAMES.index("queue_dropped")].max() > 0


@pytest.mark.ns3
def test_an_alpha_that_is_always_predicted_is_a_fixed_alpha(
    simulate: Callable[..., DriverRun], library: Callable[..., str]
) -> None:
    fixed = simulate(policy__alpha=2.0)
    predicted = simulate(policy__alpha=2.0, policy__predictor="library", policy__library=library(1.0))
    other = simulate(policy__alpha=2.0, policy__predictor="library", policy__library=library(-2.0))
    flows = (fixed.folder / "flows.bin").read_bytes()
    assert (predicted.folder / "flows.bin").read_bytes() == flows
    assert (other.folder / "flows.bin").read_bytes() != flows
    drops = "data_drops", "over_threshold", "packets"
    assert _total(other, *drops) > _total(predicted, *drops) == _total(fixed, *drops)


@pytest.mark.ns3
def test_alphas_follow_the_counters(simulate: Callable[..., DriverRun], library: Callable[..., str]) -> None:
    by_load = library(("queue_load", 20, 3.0, -3.0))
    moved = simulate(policy__predictor="library", policy__library=by_load, policy__alpha=8.0)
    fixed = [simulate(policy__alpha=alpha) for alpha in (8.0, 0.125)]
    low, found, high = (_total(run, "data_drops", "over_threshold", "packets") for run in (fixed[0], moved, fixed[1]))
    assert low < found < high


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"root": 7.0}, "gives the score 14, which is not an alpha: a score is twice log2(alpha)"),
        ({"root": 0.5}, "gives the score 1, which is not an alpha"),
        ({"root": 1.0, "every_ns": 10**6}, "was trained on counter 'queue_load' with 'interval_ns=1000000'"),
        ({"root": 1.0, "name": "queue"}, "wants the counter 'queue', which no switch computes"),
    ],
)
def test_a_library_of_something_else_is_refused(
    simulate: Callable[..., DriverRun], library: Callable[..., str], made: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ForetailError) as error:
        simulate(policy__predictor="library", policy__library=library(**made))
    assert sentence in str(error.value)


def test_a_policy_without_predicted_alphas_logs_no_counters() -> None:
    config = compose_settings(EvaluateConfig, ["scenario=tiny", "policy=abm", "baselines=[]"], "overrides")
    with pytest.raises(ForetailError, match="'counters' is for a policy whose alphas can be predicted, which abm is"):
        driver_config(config.scenario, config.policy["abm"], seed=1, trace=False, counters=True)


def _total(run: DriverRun, *path: str) -> int:
    found = json.loads((run.folder / "summary.json").read_text())["switches"]
    for key in path:
        found = [node[key] for node in found]
    return int(sum(found))
