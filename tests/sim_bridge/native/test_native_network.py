"""The native network against the ns-3 driver: the same bytes for the same settings, and what it refuses.

Costs the build of the native network, half a minute of CPU time, and two seconds a setting; the nightly settings take
some minutes.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig, EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.counters import COUNTER_BITS, counter_params
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Outcome, read_records
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.evaluate import evaluate
from foretail.sim_bridge.native.driver import NativeRun, run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.packets.difference import first_difference, first_event
from foretail.sim_bridge.packets.simulation import PacketRun, etalon_log
from tests.composed import composed
from tests.scenarios import settings
from tests.sim_bridge.native.drawn_settings import POLICIES, drawn_racks, drawn_settings

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
    for path in runs["ns-3"].folder.glob("branch_*.bin"):
        assert path.read_bytes() == (runs["native"].folder / path.name).read_bytes(), path.name
    return runs["ns-3"]


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


@pytest.mark.parametrize("transport", ["powertcp", "theta_powertcp", "timely"])
@pytest.mark.parametrize("delayed_ack_segments", [1, 4])
def test_paced_senders_send_the_same_bytes(transport: str, delayed_ack_segments: int, tmp_path: Path) -> None:
    document = settings(
        transport__name=transport,
        transport__delayed_ack_segments=delayed_ack_segments,
        transport__min_rto_ns=200_000,
        topology__buffer_bytes_per_port_per_gbps=1500,
        policy__name="dt",
        trace=True,
        traffic_ns=2_000_000,
    )
    flows = check_same(document, tmp_path).flows()
    assert flows["retransmissions"].sum() > 1000
    assert flows["timeouts"].sum() > 50


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


def numbers(always: int, nightly: int, full: int) -> list[Any]:
    """Numbers of drawn settings: the first run with every change, the next nightly, the rest in the full nightly."""
    marks: list[list[pytest.MarkDecorator]] = [[]] * always + [[pytest.mark.nightly]] * (nightly - always)
    marks += [[pytest.mark.nightly, pytest.mark.full]] * (full - nightly)
    return [pytest.param(number, marks=of_number) for number, of_number in enumerate(marks)]


@pytest.mark.parametrize("number", numbers(12, 60, 212))
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


@pytest.mark.parametrize("number", numbers(4, 12, 40))
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


@pytest.mark.parametrize(
    "number",  # in 268 acknowledgements by the packet network overtake others in a circuit
    [*range(5), 268, *(pytest.param(more, marks=pytest.mark.nightly) for more in range(5, 100))],
)
def test_racks_have_the_same_bytes(number: int, tmp_path: Path) -> None:
    check_same(drawn_racks(number), tmp_path)
    logs = [etalon_log(tmp_path / network).read_bytes() for network in NETWORKS]
    assert logs[0] == logs[1]


def test_a_flow_that_tcp_takes_in_pieces_has_the_same_bytes(tmp_path: Path) -> None:
    document = settings(
        background__load=5000.0,
        background__size_bytes=[0, 10_000, 100_000, 50_000_000_000],
        transport__segment_bytes=536,
        transport__initial_window_segments=10_000,  # more than the buffer holds
        policy__name="dt",
        trace=True,
        traffic_ns=2_000_000,
        drain_ns=20_000_000,
    )
    flows = check_same(document, tmp_path).flows()
    assert flows["size_bytes"].max() > 2**32


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
        ({"policy__name": "nothing"}, "unknown policy 'nothing'"),
        ({"format": 2}, "setting 'format' must be 1"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_one_sentence(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ForetailError, match=f"^the native simulation failed: .*{complaint}") as refused:
        run_native(settings(**changes), tmp_path)
    assert "\n" not in str(refused.value)


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
        ("evaluate", ("network=native", "ns3_prefix=/usr"), "ns3_prefix names an ns-3, which network=native does not"),
        ("collect", ("network=native", "ns3_prefix=/usr"), "ns3_prefix names an ns-3, which network=native does not"),
        ("train", ("network=emulator",), "network=emulator is for collect and evaluate: use network=native or netw"),
        ("train", ("datasets=[x]", "network=ns3"), r"network means nothing to datasets=\[\.\.\.\]: leave one of"),
        ("collect", ("network=native", "source=slotted"), "network means nothing to source=slotted: leave one of the"),
    ],
)
def test_settings_that_need_another_network_are_refused(stage: str, given: tuple[str, ...], complaint: str) -> None:
    model = ("model=null", "policy=[lqd]") if stage == "evaluate" else ()
    with pytest.raises(ForetailError, match=complaint):
        typed(composed(stage, *model, *given), STAGES[stage], given)
