"""Links that lose packets: senders repair what is lost, and no switch counts or labels it as a drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.native.network import NativeNetwork
from tests.scenarios import settings

MILLISECOND = 1_000_000
LARGE_BUFFER = {"topology__buffer_bytes_per_port_per_gbps": 1_000_000, "incast__burst_fraction": 0.001}


def finished(**changes: Any) -> tuple[Any, dict[str, Any]]:
    """Flows and summary of a run."""
    network = NativeNetwork(settings(**changes))
    network.advance()
    return network.flows(), network.finish()


def drops(summary: dict[str, Any]) -> int:
    """Packets that switches dropped."""
    return sum(
        one["packets"]
        for switch in summary["switches"]
        for one in (*switch["data_drops"].values(), *switch["control_drops"].values())
    )


@pytest.mark.parametrize("transport", ["dctcp", "irn", "roce"])
def test_senders_repair_what_links_lose(transport: str) -> None:
    changes = LARGE_BUFFER | {"transport__name": transport, "transport__min_rto_ns": MILLISECOND, "drain_ns": 10**9}
    changes["transport__rdma__control"] = "powertcp"
    flows, summary = finished(**changes, topology__erasure_probability=0.01)
    assert (flows["fct_ns"] > 0).all()
    repeated = flows["retransmissions"].sum()
    assert drops(summary) == 0
    carried = sum(switch["data_in"]["packets"] + switch["control_in"]["packets"] for switch in summary["switches"])
    assert 0.005 < summary["erased_packets"] / carried < 0.02
    without, summary = finished(**changes)
    assert "erased_packets" not in summary
    assert without["retransmissions"].sum() < repeated / 10


def test_an_erasure_is_never_labelled_a_drop(tmp_path: Path) -> None:
    for name, buffer in (("large", LARGE_BUFFER), ("small", {})):
        document = settings(**buffer, topology__erasure_probability=0.05, trace=True)
        run = collect_dataset(document, tmp_path / name, scenario=document)
        dataset = Dataset.open(tmp_path / name)
        labels = dataset.frame(["lqd_drop", "accepted"])
        dropped = sum(
            switch["data_drops"][reason]["packets"]
            for switch in run.summary["switches"]
            for reason in ("buffer_full", "pushed_out")
        )
        assert run.summary["erased_packets"] > 1000
        assert labels["lqd_drop"].sum() == dropped
        assert (dropped == 0) == (name == "large")


def test_a_snapshot_repeats_the_same_erasures() -> None:
    document = settings(topology__erasure_probability=0.02)
    network = NativeNetwork(document)
    network.advance(2 * MILLISECOND)
    snapshot = network.snapshot()
    network.advance()
    first = network.flows()
    network.restore(snapshot)
    network.advance()
    assert np.array_equal(first, network.flows())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["network=ns3"], "erasure_probability = 0.01 is not there with network=ns3"),
        (["scenario=lossless"], "loses packets of scenario.queues.lossless, whose senders do not repeat any"),
    ],
)
def test_networks_that_lose_nothing_on_links_refuse_it(overrides: list[str], words: str) -> None:
    given = ["model=any", "scenario.topology.erasure_probability=0.01", *overrides]
    with pytest.raises(ForetailError, match=words):
        compose_settings(EvaluateConfig, given, "settings")
