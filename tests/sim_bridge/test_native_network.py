"""The native network against the ns-3 driver: the same bytes for the same settings, and what it refuses.

Costs the build of the native network, half a minute of CPU time, and two seconds a setting; the nightly settings take
some minutes.
"""

from __future__ import annotations

import dataclasses
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig, EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.counters import COUNTER_BITS, counter_params
from foretail.features.dataset.reader import Dataset
from foretail.features.records import (
    ARRIVAL_DTYPE,
    COUNTER_DTYPE,
    FLOW_DTYPE,
    OCCUPANCY_DTYPE,
    FlowClass,
    Outcome,
    Records,
    read_records,
)
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.evaluate import evaluate
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.packets.simulation import PacketRun
from tests.composed import composed
from tests.scenarios import settings, with_racks
from tests.sim_bridge.drawn_settings import POLICIES, drawn_settings

pytestmark = pytest.mark.ns3

FILES = {
    "arrivals.bin": ARRIVAL_DTYPE,
    "flows.bin": FLOW_DTYPE,
    "occupancy.bin": OCCUPANCY_DTYPE,
    "counters.bin": COUNTER_DTYPE,
}
OF_THE_MACHINE = {"ns3_version", "events", "simulation_cpu_seconds", "simulation_wall_seconds", "wall_seconds"}
"""What a summary says of how it was made."""


def first_difference(name: str, expected: Records, found: Records) -> str | None:
    """The first record that differs, in words; the earliest of arrivals is the first event that does."""
    common = min(len(expected), len(found))
    different = np.flatnonzero(expected[:common] != found[:common])
    if not len(different) and len(expected) == len(found):
        return None
    place = int(different[0]) if len(different) else common
    ns3, native = (records[place] if place < len(records) else "nothing" for records in (expected, found))
    return f"record {place} of {name}: ns-3 has {ns3}, native {native}"


def check_same(document: dict[str, Any], folder: Path) -> PacketRun:
    """Run both networks, and compare all that they write; returns the run in ns-3."""
    folders = {network: folder / network for network in ("ns3", "native")}
    for one in folders.values():
        one.mkdir()
    expected = run_driver(document, folders["ns3"])
    found = run_native(document, folders["native"])
    assert sorted(path.name for path in expected.folder.iterdir()) == sorted(
        path.name for path in found.folder.iterdir()
    )
    for name, dtype in FILES.items():
        if not (expected.folder / name).exists():
            continue
        difference = first_difference(
            name, read_records(expected.folder / name, dtype), read_records(found.folder / name, dtype)
        )
        assert difference is None, difference
    for path in expected.folder.glob("*.bin"):
        assert path.read_bytes() == (found.folder / path.name).read_bytes(), path.name
    said, native = ({k: v for k, v in run.summary.items() if k not in OF_THE_MACHINE} for run in (expected, found))
    assert native == said
    return expected


@pytest.mark.parametrize("transport", ["newreno", "dctcp", "cubic"])
@pytest.mark.parametrize("slow_start", [False, True])
def test_a_lossy_run_has_the_same_bytes(transport: str, slow_start: bool, tmp_path: Path) -> None:
    document = settings(
        transport__name=transport,
        transport__slow_start=slow_start,
        transport__delayed_ack_segments=1 + slow_start,
        policy__name="dt",
        trace=True,
        traffic_ns=2_000_000,
    )
    run = check_same(document, tmp_path)
    flows = run.flows()
    assert flows["retransmissions"].sum() > 1000
    assert flows["timeouts"].sum() > 50
    assert sum(node["marked"] for node in run.summary["switches"]) > 1000


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


@pytest.mark.parametrize("number", range(12))
def test_drawn_settings_have_the_same_bytes(number: int, tmp_path: Path) -> None:
    check_same(drawn_settings(number), tmp_path)


def branched_settings(number: int, folder: Path) -> dict[str, Any]:
    """Drawn settings of a policy that decides arrivals, and branches at some on which it had a choice."""
    rng = random.Random(number)
    document = {**drawn_settings(number), "trace": True}
    document["policy"] |= {"name": rng.choice([name for name in POLICIES if name not in ("lqd", "occamy")])}
    document["background"]["load"] = max(document["background"]["load"], 0.4)
    document["drain_ns"] = 30_000_000
    folder.mkdir()
    arrivals = read_records(run_native(document, folder).folder / "arrivals.bin", ARRIVAL_DTYPE)
    chose = np.isin(arrivals["outcome"], (Outcome.ACCEPTED, Outcome.OVER_THRESHOLD, Outcome.PREDICTED))
    rows = np.flatnonzero(chose & (arrivals["flow_class"] != FlowClass.CONTROL)).tolist()
    document["branches"] = {
        "rows": sorted(rng.sample(rows, min(3, len(rows)))),
        "hold_ns": rng.choice([0, 20_000, 200_000]),
        "repeats": rng.choice([1, 2]),
        "repeat_ns": rng.choice([1, 40]),
        "fork": True,
    }
    return {**document, "trace": False}


@pytest.mark.parametrize(
    "number", [*range(4), *(pytest.param(more, marks=pytest.mark.nightly) for more in range(4, 40))]
)
def test_branches_have_the_bytes_of_forked_ones(number: int, tmp_path: Path) -> None:
    document = branched_settings(number, tmp_path / "traced")
    run = check_same(document, tmp_path)
    repeats = document["branches"]["repeats"]
    assert len(run.branches()) == len(document["branches"]["rows"]) * (2 * repeats - 1)


def test_a_branch_may_be_the_run_itself_and_traced(tmp_path: Path) -> None:
    document = branched_settings(0, tmp_path / "traced")
    document["branches"] |= {"rows": document["branches"]["rows"][:1], "repeats": 1, "fork": False}
    (branch,) = check_same({**document, "trace": True}, tmp_path).summary["branches"]
    assert branch["turned"]


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(12, 212))
def test_many_drawn_settings_have_the_same_bytes(number: int, tmp_path: Path) -> None:
    check_same(drawn_settings(number), tmp_path)


SCENARIOS = ("leafspine_small", "elephants", "on_off_elephants", "star", "clustered_incast", "collectives", "paper")


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["lqd", "dt"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenarios_of_foretail_have_the_same_bytes(name: str, policy: str, tmp_path: Path) -> None:
    traffic_ns = 1_000_000 if name == "paper" else 5_000_000
    overrides = (f"scenario={name}", f"scenario.traffic_ns={traffic_ns}")
    scenario = typed(composed("collect", *overrides), CollectConfig, overrides).scenario
    check_same(driver_config(scenario, Policy(policy), 1, trace=policy == "lqd"), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [{"drain_ns": 2_000_000_000}, {"traffic_ns": 0}])
def test_a_run_ends_when_all_flows_are_settled(changes: dict[str, Any], tmp_path: Path) -> None:
    check_same(settings(policy__name="dt", transport__min_rto_ns=200_000, **changes), tmp_path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"transport__name": "powertcp"}, r"transport\.name' = powertcp is not simulated by the native network"),
        ({"background__size_bytes": [0, 1, 2, 5_000_000_000]}, "a flow above 4 GiB .* is not simulated by the native"),
        ({"policy__name": "nothing"}, "unknown policy 'nothing'"),
        ({"format": 2}, "setting 'format' must be 1"),
    ],
)
def test_what_the_native_network_does_not_simulate_is_one_sentence(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ForetailError, match=f"^the native simulation failed: .*{complaint}") as refused:
        run_native(settings(**changes), tmp_path)
    assert "\n" not in str(refused.value)


def test_racks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="the native network has no racks with circuits: run them in ns-3"):
        run_native(with_racks(), tmp_path)


TINY = ("scenario=tiny", "tracking=off")


def result_of(network: str, folder: Path) -> dict[str, Any]:
    """What ``foretail evaluate`` says of its runs, without the machine's part."""
    given = (*TINY, f"network={network}", "policy=[lqd,dt]", "seeds=[101]", "model=null", f"store_dir={folder}")
    result = evaluate(typed(composed("evaluate", *given), EvaluateConfig, given), folder)
    assert isinstance(result, FlowsResult)
    of_the_machine = ("path", "reused", "seconds", "cpu_seconds", "packets_per_cpu_second")
    runs = [{k: v for k, v in run.items() if k not in of_the_machine} for run in result.document()["runs"]]
    return {"runs": runs, "means": json.loads(json.dumps(result.totals(), default=dataclasses.asdict))}


def test_evaluate_says_the_same_of_both_networks(tmp_path: Path) -> None:
    expected, found = (result_of(network, tmp_path) for network in ("ns3", "native"))
    assert found["runs"] == expected["runs"]
    assert len(found["runs"]) == 2
    assert found["means"] == expected["means"]


def test_collect_writes_the_same_dataset_from_both_networks(tmp_path: Path) -> None:
    datasets = {}
    for network in ("ns3", "native"):
        given = ("scenario=tiny", f"network={network}", "seeds=[3]", f"store_dir={tmp_path}")
        (made,) = collect(typed(composed("collect", *given), CollectConfig, given), tmp_path).runs
        datasets[network] = Dataset.open(made.path).manifest
    assert datasets["native"].content_sha256 == datasets["ns3"].content_sha256
    assert datasets["native"].versions.keys() == {"foretail", "native_sha256"}
    assert datasets["ns3"].versions.keys() == {"foretail", "ns3", "driver_sha256"}
    ns3, native = (dataclasses.replace(datasets[network], versions={}) for network in ("ns3", "native"))
    assert native == ns3


@pytest.mark.parametrize(
    ("stage", "given", "complaint"),
    [
        (
            "evaluate",
            ("network=native", "scenario.transport.name=timely", "scenario.transport.mark_bytes=0"),
            r"scenario\.transport\.name = timely is not simulated by the native network: choose one of dctcp, cubic",
        ),
        ("evaluate", ("network=native", "ns3_prefix=/usr"), "ns3_prefix names an ns-3, which network=native does not"),
        ("collect", ("network=native", "ns3_prefix=/usr"), "ns3_prefix names an ns-3, which network=native does not"),
        ("collect", ("network=emulator",), "network=emulator is for evaluate: collect with source=emulator"),
        ("collect", ("network=native", "source=emulator", "scenario=rack"), "network.* means nothing to source=emul"),
    ],
)
def test_settings_that_need_another_network_are_refused(stage: str, given: tuple[str, ...], complaint: str) -> None:
    model = ("model=null", "policy=[lqd]") if stage == "evaluate" else ()
    config = {"evaluate": EvaluateConfig, "collect": CollectConfig}[stage]
    with pytest.raises(ForetailError, match=complaint):
        typed(composed(stage, *model, *given), config, given)
