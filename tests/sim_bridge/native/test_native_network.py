"""The native network against ns-3: the same bytes for the same settings, and what it refuses.

ns-3's own classes send, receive and repair losses there: nothing of them is replaced. Costs two seconds a setting; the
nightly settings take some minutes.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import COUNTER_BITS, counter_params
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.stages.collect import collect
from foretail.sim_bridge.native.driver import NativeRun, run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.packets.simulation import PacketRun, etalon_log
from foretail_studies.networks.differences import first_difference, first_event
from tests.composed import stage_settings
from tests.scenarios import settings
from tests.sim_bridge.native.drawn_settings import TCP, drawn_racks, drawn_settings

pytestmark = pytest.mark.ns3

NETWORKS: dict[str, Callable[..., PacketRun]] = {"ns-3": run_driver, "native": run_native}


def check_same(document: dict[str, Any], folder: Path) -> PacketRun:
    """Run both networks, and compare all that they write; returns the run in ns-3."""
    runs: dict[str, PacketRun] = {}
    for name, run in NETWORKS.items():
        (folder / name).mkdir()
        runs[name] = run(document, folder / name)
    difference = first_difference(runs)
    if difference is not None:
        (folder / "traced").mkdir()
        pytest.fail(first_event(document, folder / "traced", NETWORKS) or difference)
    return runs["ns-3"]


@pytest.mark.parametrize("transport", ["dctcp", "powertcp"])
def test_a_lossy_run_has_the_same_bytes(transport: str, tmp_path: Path) -> None:
    """A sender with a window and a paced one; drawn settings have them all."""
    short: dict[str, Any] = {"transport__min_rto_ns": 200_000, "topology__buffer_bytes_per_port_per_gbps": 1500}
    document = settings(
        transport__name=transport,
        policy__name="dt",
        trace=True,
        traffic_ns=2_000_000,
        **(short if transport == "powertcp" else {}),
    )
    run = check_same(document, tmp_path)
    flows = run.flows()
    assert flows["retransmissions"].sum() > 1000
    assert flows["timeouts"].sum() > 50
    assert (sum(node["marked"] for node in run.summary["switches"]) > 1000) == (transport == "dctcp")


HEAVY: dict[str, Any] = {
    "topology__spines": 4,
    "topology__buffer_bytes_per_port_per_gbps": 1280,
    "background__size_bytes": [3_999_999, 4_000_000],
    "background__cumulative": [0, 1],
    "incast__burst_fraction": 2.0,
    "trace": True,
}
"""Long flows that fill shallow buffers, so that packets are lost again when they are sent again."""


@pytest.mark.parametrize(
    ("transport", "policy"),
    [
        ("cubic", "dt"),
        *(pytest.param("cubic", policy, marks=pytest.mark.nightly) for policy in ("lqd", "cs", "abm")),
        *(
            pytest.param(transport, "dt", marks=pytest.mark.nightly)
            for transport in ("dctcp", "newreno", "theta_powertcp", "timely", "powertcp", "hpcc")
        ),
    ],
)
def test_heavy_loss_has_the_same_bytes(transport: str, policy: str, tmp_path: Path) -> None:
    document = settings(
        **HEAVY, transport__name=transport, transport__mark_bytes=0, policy__name=policy, traffic_ns=10_000_000
    )
    flows = check_same(document, tmp_path).flows()
    repaired = flows[flows["retransmissions"] > 0]
    assert repaired["retransmissions"].mean() > 10
    assert (repaired["timeouts"] > 0).mean() > 0.1


def test_every_repeated_syn_is_one_timeout(tmp_path: Path) -> None:
    least_ns = 1_000_000
    document = settings(
        policy__name="cs",
        background__load=1.5,
        incast__connect_ahead_ns=0,
        incast__queries_per_second_per_server=3000.0,
        topology__buffer_bytes_per_port_per_gbps=600,
        transport__min_rto_ns=least_ns,
        traffic_ns=3_000_000,
        drain_ns=100_000_000,
    )
    flows = check_same(document, tmp_path).flows()
    late = flows[(flows["retransmissions"] == 0) & (flows["fct_ns"] >= least_ns)]  # only its SYN was lost
    assert len(late) > 10
    assert late["timeouts"].max() > 1
    # SYNs follow after least_ns, 3 least_ns, 7 least_ns and so on
    assert late["timeouts"].tolist() == np.floor(np.log2(late["fct_ns"] / least_ns + 1)).astype(int).tolist()


def test_counters_of_intervals_have_the_same_bytes(tmp_path: Path) -> None:
    run = check_same(settings(policy__name="dt", counters=True, traffic_ns=2_000_000), tmp_path)
    assert (run.folder / "counters.bin").stat().st_size > 0


def test_predicted_alphas_have_the_same_bytes(tmp_path: Path) -> None:
    queue_load = FeatureInput("queue_load", counter_params(100_000), COUNTER_BITS)
    tree = tree_of_rule(("queue_load", 20, 3.0, -3.0), ["queue_load"])
    library = export(Ensemble((queue_load,), (tree,), Fraction(0), output="value"), C(), tmp_path / "c").file(".so")
    document = settings(
        policy__name="dt",
        policy__alpha=8.0,
        policy__predictor="library",
        policy__library=str(library),
        traffic_ns=2_000_000,
    )
    run = check_same(document, tmp_path)
    assert sum(node["data_drops"]["over_threshold"]["packets"] for node in run.summary["switches"]) > 100


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(212))
def test_drawn_settings_have_the_same_bytes(number: int, tmp_path: Path) -> None:
    check_same(drawn_settings(number), tmp_path)


@pytest.mark.parametrize(
    "number",  # in 268 acknowledgements by the packet network overtake others in a circuit
    [0, 268, *(pytest.param(more, marks=pytest.mark.nightly) for more in range(1, 100))],
)
def test_racks_have_the_same_bytes(number: int, tmp_path: Path) -> None:
    check_same(drawn_racks(number), tmp_path)
    logs = [etalon_log(tmp_path / network).read_bytes() for network in NETWORKS]
    assert logs[0] == logs[1]


@pytest.mark.nightly
def test_a_flow_that_tcp_takes_in_pieces_has_the_same_bytes(tmp_path: Path) -> None:
    document = settings(
        background__load=5000.0,
        background__size_bytes=[0, 50_000_000_000],
        background__cumulative=[0, 1],
        incast__queries_per_second_per_server=0.0,
        transport__segment_bytes=536,
        transport__initial_window_segments=10_000,  # more than TCP's buffer holds
        topology__buffer_bytes_per_port_per_gbps=2_000_000,
        policy__name="cs",
        trace=True,
        traffic_ns=2_000_000,
        drain_ns=5_000_000,
    )
    flows = check_same(document, tmp_path).flows()
    assert flows["size_bytes"].max() > 2**32


SCENARIOS = ("leafspine_small", "elephants", "on_off_elephants", "star", "clustered_incast", "collectives", "paper")


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["lqd", "dt"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenarios_of_foretail_have_the_same_bytes(name: str, policy: str, tmp_path: Path) -> None:
    traffic_ns = 1_000_000 if name == "paper" else 5_000_000
    scenario = stage_settings(CollectConfig, f"scenario={name}", f"scenario.traffic_ns={traffic_ns}").scenario
    check_same(driver_config(scenario, Policy(policy), 1, trace=policy == "lqd"), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [{"drain_ns": 2_000_000_000}, {"traffic_ns": 0}])
def test_a_run_ends_when_all_flows_are_settled(changes: dict[str, Any], tmp_path: Path) -> None:
    check_same(settings(policy__name="dt", transport__min_rto_ns=200_000, **changes), tmp_path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"policy__name": "nothing"}, "unknown policy 'nothing'"),
        ({"format": 2}, "setting 'format' must be 1"),
        ({"transport__recovery": "bsd"}, r"setting 'transport\.recovery' is 'bsd'"),
        ({"transport__recovery": "linux", "transport__name": "irn"}, "'transport.recovery' must be ns3 with irn"),
        ({"transport__name": "timely", "transport__background_name": "roce"}, "must be a TCP or null with timely"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_one_sentence(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ForetailError, match=f"^the native simulation failed: .*{complaint}"):
        run_native(settings(**changes), tmp_path)


def other_bytes(folder: Path, file: str, position: int) -> None:
    """Change a byte of a file."""
    content = bytearray((folder / file).read_bytes())
    content[position] ^= 1
    (folder / file).write_bytes(content)


@pytest.mark.parametrize(
    ("file", "positions", "said"),
    [
        (
            "arrivals.bin",
            [9 * ARRIVAL_DTYPE.itemsize, 2 * ARRIVAL_DTYPE.itemsize],
            r"arrivals\.bin, record 2 \(time_ns \d+, switch \d, port \d, flow \d+\)",
        ),
        (
            "flows.bin",
            [FLOW_DTYPE.itemsize + 8],
            r"flows\.bin, record 1 \(start_ns \d+\): one has fct_ns = \d+; other has fct_ns",
        ),
        (
            "occupancy.bin",
            [8],
            r"occupancy\.bin, record 0 \(time_ns \d+, switch 0\): one has occupancy_bytes = \d+; other",
        ),
    ],
)
def test_the_first_event_that_differs_is_named(file: str, positions: list[int], said: str, tmp_path: Path) -> None:
    run = run_native(settings(trace=True, traffic_ns=500_000), tmp_path)
    shutil.copytree(tmp_path, other := tmp_path / "other")
    runs = {"one": run, "other": NativeRun.open(other)}
    assert first_difference(runs) is None
    for position in positions:
        other_bytes(other, file, position)
    found = first_difference(runs)
    assert found is not None
    assert re.match(said, found)
    assert "\n" not in found


def test_a_summary_and_a_missing_record_are_named(tmp_path: Path) -> None:
    run = run_native(settings(traffic_ns=500_000), tmp_path)
    changed = copy.deepcopy(run.summary)
    changed["switches"][1]["marked"] += 1
    said = first_difference({"one": run, "other": dataclasses.replace(run, summary=changed)})
    assert said is not None
    assert said.startswith("summary.json differs in switches[1].marked: one ")
    shutil.copytree(tmp_path, other := tmp_path / "other")
    (other / "flows.bin").write_bytes((other / "flows.bin").read_bytes()[: -FLOW_DTYPE.itemsize])
    said = first_difference({"one": run, "other": NativeRun.open(other)})
    assert said is not None
    assert said.endswith("only one has it, and 0 after it")


def test_collect_writes_the_same_dataset_from_both_networks(tmp_path: Path) -> None:
    datasets = {}
    for network in ("ns3", "native"):
        given = ("scenario=tiny", f"network={network}", "seeds=[3]", f"store_dir={tmp_path}")
        (made,) = collect(stage_settings(CollectConfig, *given), tmp_path).runs
        datasets[network] = Dataset.open(made.path).manifest
    assert datasets["native"].content_sha256 == datasets["ns3"].content_sha256
    assert datasets["native"].versions.keys() == {"foretail", "native_sha256"}
    assert datasets["ns3"].versions.keys() == {"foretail", "ns3", "driver_sha256"}
    ns3, native = (dataclasses.replace(datasets[network], versions={}) for network in ("ns3", "native"))
    assert native == ns3


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(8))
def test_heavy_loss_of_odd_segments_has_the_same_bytes(number: int, tmp_path: Path) -> None:
    rng = random.Random(number)
    document = settings(
        **{**HEAVY, "background__size_bytes": [1, 2_000_000]},
        seed=number + 1,
        policy__name=rng.choice(["lqd", "cs", "dt"]),
        transport__name=rng.choice(TCP),
        transport__segment_bytes=rng.randrange(64, 1460),
        transport__slow_start=rng.random() < 0.5,
        transport__min_rto_ns=rng.randrange(100_000, 10_000_000),
        transport__delayed_ack_segments=rng.randrange(1, 5),
        traffic_ns=1_000_000,
    )
    assert check_same(document, tmp_path).flows()["retransmissions"].sum() > 50
