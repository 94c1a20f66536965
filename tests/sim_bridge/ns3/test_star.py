"""A single switch in ns-3. Costs the build of the driver, unless it is built, and two seconds of simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.features.records import FlowClass
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from tests.scenarios import settings

pytestmark = pytest.mark.ns3

STAR: dict[str, Any] = {
    "topology__leaves": 1,
    "topology__spines": 0,
    "topology__servers_per_leaf": 8,
    "background__destinations": "other_servers",
    "incast__responders": "other_servers",
    "incast__fan_in": 7,
}


def star(folder: Path, **changes: Any) -> DriverRun:
    return run_driver(settings(**(STAR | changes)), folder)


@pytest.mark.parametrize("policy", ["lqd", "cs", "dt"])
def test_all_flows_end_and_all_drops_are_at_the_one_switch(tmp_path: Path, policy: str) -> None:
    run = star(tmp_path, policy__name=policy)
    (switch,) = run.summary["switches"]
    assert (switch["role"], switch["port_rates_bps"]) == ("leaf", [10**10] * 8)
    assert run.summary["completed_flows"] == run.summary["flows"] > 50
    assert sum(drops["packets"] for drops in switch["data_drops"].values()) > 100
    flows = run.flows()
    assert np.all(flows["source"] != flows["destination"])
    answers = flows[flows["flow_class"] == FlowClass.INCAST]
    assert all(len(set(answers["source"][answers["query"] == query])) == 7 for query in np.unique(answers["query"]))


def test_an_idle_star_has_the_base_round_trip_and_the_ideal_times_that_python_computes(tmp_path: Path) -> None:
    alone = {"incast__queries_per_second_per_server": 0.0, "background__load": 0.001, "traffic_ns": 20_000_000}
    run = star(tmp_path, **alone, background__size_bytes=[1399, 1400], background__cumulative=[0, 1])
    scenario = compose_settings(CollectConfig, ["scenario=star"], "the test").scenario
    assert run.summary["base_rtt_ns"] == scenario.base_rtt_ns == 2 * (1154 + 34 + 2 * 3000)
    flows = run.flows()
    assert len(flows) > 3
    np.testing.assert_array_equal(flows["ideal_fct_ns"][flows["size_bytes"] == 1400], 2 * (1154 + 3000))
    handshake_ns = np.median(flows["fct_ns"] - flows["ideal_fct_ns"])
    assert 4 * (34 + 3000) < handshake_ns < 4 * (66 + 3000)  # headers of 40 to 80 bytes, one way and back
