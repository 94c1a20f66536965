"""The ns-3 driver on real packets: invariants, determinism, labels, and what bad settings get."""

from __future__ import annotations

import copy
import importlib.util
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, Records, read_records
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.ns3.driver import DriverRun, build_driver, find_ns3, run_driver
from foretail.sim_bridge.packets.simulation import Progress, etalon_log
from foretail.sim_bridge.policies import OF_ARRIVALS, PUSHING_OUT
from foretail.sim_bridge.policy_settings import heeded_settings
from foretail_studies.circuits.circuit_use import CircuitUse, circuit_use
from tests.scenarios import RACKS, STAR, settings, with_racks
from tests.sim_bridge.packets.paused_runs import total

pytestmark = pytest.mark.ns3
DROPS = ("over_threshold", "predicted", "buffer_full", "pushed_out")


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs the driver once per distinct settings."""
    runs: dict[str, DriverRun] = {}

    def run(**changes: Any) -> DriverRun:
        document = settings(**changes)
        key = json.dumps(document)
        if key not in runs:
            runs[key] = run_driver(document, tmp_path_factory.mktemp("run"))
        return runs[key]

    yield run
    for done in runs.values():
        shutil.rmtree(done.folder)


def arrivals_of(run: DriverRun) -> Records:
    return read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)


@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_what_comes_in_goes_out_or_is_counted(simulate: Any, policy: str) -> None:
    run = simulate(policy__name=policy)
    for node in run.summary["switches"]:
        for unit in ("packets", "bytes"):
            dropped = sum(node[f"{kind}_drops"][why][unit] for kind in ("data", "control") for why in DROPS)
            gone = node["data_out"][unit] + node["control_out"][unit] + dropped
            assert node["data_in"][unit] + node["control_in"][unit] == gone
        assert node["queued_bytes"] == 0
    assert run.summary["completed_flows"] == run.summary["flows"] > 50
    assert sum(total(run.summary, "data_drops", why, "packets") for why in DROPS) > 100
    assert (total(run.summary, "data_drops", "pushed_out", "packets") > 0) == (policy in PUSHING_OUT)
    assert total(run.summary, "control_drops", "pushed_out", "packets") == 0
    np.testing.assert_array_equal(planned(run), planned(simulate()))  # of every policy the same flows
    assert np.all(run.flows()["fct_ns"] >= run.flows()["ideal_fct_ns"])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_invariants_hold_at_every_arrival_of_a_debug_build(tmp_path: Path, policy: str) -> None:
    document = settings(policy__name=policy, trace=True, traffic_ns=1_000_000)
    run = run_driver(document, tmp_path, executable=build_driver(debug=True))
    assert run.summary["completed_flows"] == run.summary["flows"]


@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_what_a_policy_does_not_heed_changes_nothing(simulate: Any, policy: str) -> None:
    """Results are stored under what it heeds."""
    others = {
        "alpha": 2.5,
        "alpha_interval_ns": 20_000,
        "first_rtt_alpha": 3.0,
        "low_pass_ns": 1_000,
        "spare_bandwidth": 2.0,
        "bucket_bytes": 1,
        "spares_first_rtt": 0,
        "drop_budget_bytes": 5,
        "answers_needed": 1,
        "tau": 3,
        "flip_probability": 0.5,
        "flow_entries": 3,
    }
    ignored = {f"policy__{name}": value for name, value in others.items() if name not in heeded_settings(policy)}
    short: dict[str, Any] = {"policy__name": policy, "trace": True, "traffic_ns": 1_000_000}
    run, same = simulate(**short), simulate(**short, **ignored)
    np.testing.assert_array_equal(arrivals_of(run), arrivals_of(same))
    np.testing.assert_array_equal(run.flows(), same.flows())


def test_a_trace_has_every_packet_that_occamy_expels(simulate: Any) -> None:
    """Some of them when the label was long known: the virtual LQD had sent them, or dropped them."""
    run = simulate(policy__name="occamy", policy__alpha=8.0, trace=True)
    records = arrivals_of(run)
    expelled = records[records["outcome"] == Outcome.PUSHED_OUT]
    assert (expelled["flow_class"] != FlowClass.CONTROL).all()
    assert len(expelled) == total(run.summary, "data_drops", "pushed_out", "packets") > 100
    assert {0, 1} == set(expelled["lqd_drop"].tolist())


def test_a_trace_changes_nothing(simulate: Any) -> None:
    np.testing.assert_array_equal(simulate(trace=True).flows(), simulate().flows())


def planned(run: DriverRun) -> Records:
    fields = ["start_ns", "size_bytes", "source", "destination", "query", "flow_class"]
    return np.asarray(run.flows()[fields])


def test_a_flow_alone_takes_exactly_its_ideal_time(simulate: Any) -> None:
    run = simulate(
        background__load=0.0,
        incast__queries_per_second_per_server=40.0,
        incast__fan_in=1,
        incast__burst_fraction=0.2,
        traffic_ns=100_000_000,
    )
    flows = run.flows()
    starts = flows["start_ns"]
    alone = np.all(np.abs(starts[:, None] - starts[None, :]) + 10**9 * np.eye(len(starts)) > 500_000, axis=1)
    assert alone.sum() >= 10
    ns3_sends_after_ns = 1  # TcpSocketBase sends one time step after the application has handed over its bytes
    np.testing.assert_array_equal(flows["fct_ns"][alone], flows["ideal_fct_ns"][alone] + ns3_sends_after_ns)


@pytest.mark.parametrize("beside", ["cubic", "newreno"])
def test_background_beside_another_transport_is_what_it_is_alone_without_ecn(simulate: Any, beside: str) -> None:
    of_background = {"incast__queries_per_second_per_server": 0.0, "policy__name": "cs"}
    of_incast = {"background__load": 0.0, "policy__name": "cs"}
    flows = [
        simulate(**changes).flows()
        for changes in (
            of_background | {"transport__background_name": beside},
            of_background | {"transport__name": beside, "transport__mark_bytes": 0},
            of_background,
            of_incast | {"transport__background_name": beside},
            of_incast,
        )
    ]
    np.testing.assert_array_equal(flows[0], flows[1])
    assert not np.array_equal(flows[0]["fct_ns"], flows[2]["fct_ns"])
    np.testing.assert_array_equal(flows[3], flows[4])
    both = simulate(transport__background_name=beside, policy__name="cs")
    assert 0 < total(both.summary, "marked") < total(simulate(policy__name="cs").summary, "marked")


def test_flips_have_a_stream_of_their_own(simulate: Any) -> None:
    never, some, always = (simulate(policy__name="credence", policy__flip_probability=p) for p in (0.0, 0.1, 1.0))
    for run in (never, some, always):
        np.testing.assert_array_equal(planned(run), planned(simulate()))
    assert never.summary["flipped_predictions"] == total(never.summary, "data_drops", "predicted", "packets") == 0
    flipped, asked = some.summary["flipped_predictions"], total(some.summary, "asked")
    assert flipped == total(some.summary, "data_drops", "predicted", "packets")
    assert flipped == pytest.approx(0.1 * asked, rel=0.2)
    assert total(always.summary, "data_drops", "predicted", "packets") == total(always.summary, "asked") > 0


def test_progress_reports_move_forward(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run_driver(settings(traffic_ns=15_000_000), tmp_path, seen.append)
    assert seen
    assert [p.simulated_ns for p in seen] == sorted(p.simulated_ns for p in seen)


BAD_SETTINGS = [
    ({"topology__server_link_bps": "fast"}, "'topology.server_link_bps' must be a whole number that 64 bits hold"),
    ({"topology__leaves": 2**31}, "'topology.leaves' must be a whole number that 32 bits hold, not 2147483648"),
    ({"topology__hosts": 3}, "'topology.hosts' is unknown: leave it out"),
    ({"background__load": True}, "'background.load' must be a number, not true"),
    ({"background__cumulative": 1}, "'background.cumulative' must be a list, not 1"),
    ({"background__cumulative": [0, None]}, "an entry of setting 'background.cumulative' must be a number, not null"),
    ({"background": []}, "'background' must be an object"),
    ({"transport__name": "carrier_pigeon"}, "carrier_pigeon"),
    ({"transport__slow_start": 1}, "'transport.slow_start' must be true or false, not 1"),
    ({"transport__background_name": "dctcp"}, "transport.background_name"),
    ({"transport__powertcp__beta": 0.5}, "'transport.powertcp.beta' is unknown: leave it out"),
    ({"queues__incast": 1}, "'queues.incast' must be one of the queues of a port, not 1"),
    ({"policy__name": "magic"}, "magic"),
    ({"policy__predictor": "oracle"}, "policy.predictor"),
    ({"policy__alpha": "half"}, "'policy.alpha' must be a number"),
    ({"policy__spare_bandwith": 1}, "'policy.spare_bandwith' is unknown: leave it out"),
    ({"rules__victim": "youngest"}, "rules.victim"),
    ({"traffic_ns": 0.5}, "'traffic_ns' must be a whole number"),
    ({"trafic_ns": 5}, "'trafic_ns' is unknown: leave it out"),
    ({"format": 2}, "format"),
    ({"balancing__name": "sirona"}, "'balancing.name' is not simulated by ns-3: run it in the native"),
    ({"topology__slow_spines": 1}, "'topology.slow_spines' is not simulated by ns-3: run it in the"),
    ({"transport__recovery": "linux"}, "'transport.recovery' is not simulated by ns-3: run it in the"),
    ({"policy__name": "sonic"}, "'policy.name' is not simulated by ns-3: run it in the native"),
    ({"queues__lossless": [0]}, "'queues.lossless' is not simulated by ns-3: run it in the native"),
]


@pytest.mark.parametrize(("changes", "named"), BAD_SETTINGS)
def test_bad_settings_are_named_in_one_sentence(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ForetailError) as caught:
        run_driver(settings(**changes), tmp_path)
    assert named in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["settings.json"]


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    document = settings()
    del document["incast"]["fan_in"]
    with pytest.raises(ForetailError, match=r"setting 'incast\.fan_in' is missing"):
        run_driver(document, tmp_path)


def test_a_missing_parameter_of_the_policy_is_named(tmp_path: Path) -> None:
    document = settings(policy__name="occamy")
    del document["policy"]["bucket_bytes"]
    with pytest.raises(ForetailError, match=r"the policy parameter bucket is missing: give it"):
        run_driver(document, tmp_path)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(settings(trace=True)))

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [build_driver(), tmp_path / "settings.json", tmp_path],
        preexec_fn=little_room,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: cannot write")
    assert "arrivals.bin" in done.stderr
    assert not (tmp_path / "summary.json").exists()


def test_stopping_the_caller_stops_the_simulation(tmp_path: Path) -> None:
    document = settings(traffic_ns=2_000_000_000)
    code = (
        "import json, sys; from pathlib import Path; from foretail.sim_bridge.ns3.driver import run_driver;"
        "run_driver(json.loads(sys.argv[1]), Path(sys.argv[2]), lambda p: print('running', flush=True))"
    )
    command = [sys.executable, "-c", code, json.dumps(document), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "running\n"
        children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
        caller.send_signal(signal.SIGINT)
        caller.wait(timeout=20)
    assert caller.returncode != 0
    assert children
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "the simulation outlived its caller"
        time.sleep(0.05)


def test_no_ns3_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ForetailError, match="contains no ns-3"):
        find_ns3(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libns3.41-core.so").touch()
    with pytest.raises(ForetailError, match=r"3\.41"):
        find_ns3(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ForetailError, match="make setup"):
        find_ns3()


def test_no_compiler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ForetailError, match="no C\\+\\+ compiler: no-such-compiler"):
        build_driver()


LEAF = STAR | {"topology__servers_per_leaf": 8, "incast__fan_in": 7}


def star(folder: Path, **changes: Any) -> DriverRun:
    return run_driver(settings(**(LEAF | changes)), folder)


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


BUFFER = {"policy": "lqd", "bytes": 72_000, "alpha": 1.0, "library": None, "tau": None, "trace": False}
SHARED = {"voq_packets": None, "buffer": BUFFER}


def require_flows_across_racks(run: Any, folder: Path, *, resized: bool) -> CircuitUse:
    """Long flows of :func:`with_racks` have used and overflown their VOQ, and the importer reads the log of that."""
    there, back = run.summary["voqs"]
    assert (there["source"], there["destination"], back["source"], back["destination"]) == (0, 2, 2, 0)
    assert min(there["by_circuit"], there["by_packet"], there["dropped"]) > 0
    assert 8 < there["longest"] <= 30 if resized else there["longest"] == 8
    flows = run.flows()
    assert [(flow["source"], flow["destination"]) for flow in flows] == [(0, 2), (1, 3), (0, 2)]
    assert not (flows["fct_ns"] >= 0).any()

    log = EtalonLog.open(etalon_log(folder), Reading(racks=3, voq_packets=there["longest"]))
    survey = log.survey()
    sent = sum(voq[by] for voq in (there, back) for by in ("by_packet", "by_circuit"))
    assert 0 <= sent - survey.packets < 60  # what was on a link at the end
    assert survey.voqs.keys() == {(1, 3), (3, 1)}
    assert (survey.day_ns, survey.week_ns) == (180_000, 400_000)
    assert survey.least_latency_ns[0] is not None
    arrivals = np.concatenate(list(log.arrivals(survey)))
    assert len(arrivals) == survey.packets
    assert len(set(arrivals["flow"])) == 6  # of three connections, both ways
    assert arrivals["size_bytes"].max() == 9000
    use = circuit_use(log, 1, 3, circuit_bps=80_000_000_000, skipped_weeks=1)
    assert 0 < use.utilisation_percent <= use.most_percent <= 100
    assert 10 < use.p50_us <= use.p99_us
    return use


@pytest.mark.parametrize(
    "racks",
    [{}, {"resize": {"packets": 30, "ahead_ns": 100_000}}, SHARED],
    ids=["static", "resized", "shared"],
)
@pytest.mark.parametrize("control", ["cubic", "newreno"])
def test_long_flows_cross_racks_and_leave_a_log_that_the_importer_reads(
    tmp_path: Path, racks: dict[str, Any], control: str
) -> None:
    run = run_driver(with_racks(racks=racks, transport={"name": control}), tmp_path)
    for voq in run.summary["voqs"]:
        assert voq["arrived"] == voq["dropped"] + voq["by_packet"] + voq["by_circuit"] + voq["waiting"]
    require_flows_across_racks(run, tmp_path, resized="resize" in racks)
    flows = run.flows()
    assert not flows["ideal_fct_ns"].any()
    assert flows["retransmissions"].sum() > 0


def test_the_control_has_to_be_named_and_settings_can_be_checked_alone(tmp_path: Path) -> None:
    unnamed = copy.deepcopy(RACKS)
    del unnamed["transport"]["name"]
    with pytest.raises(ForetailError, match=r"setting 'transport\.name' is missing"):
        run_driver(unnamed, tmp_path)
    command = [str(build_driver()), "--check", str(tmp_path / "settings.json")]
    checked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert checked.stdout == "setting 'transport.name' is missing\n"


@pytest.mark.nightly
def test_load_and_burst_are_as_asked(simulate: Any) -> None:
    run = simulate(traffic_ns=60_000_000, incast__queries_per_second_per_server=0.0, drain_ns=0)
    flows = run.flows()
    offered_bps = 8 * flows["size_bytes"].sum() / 0.06 / 2  # per leaf
    assert offered_bps == pytest.approx(0.8 * 2 * 10e9, rel=0.1)
    queries = simulate().flows()
    queries = queries[queries["flow_class"] == FlowClass.INCAST]
    leaf_buffer = 5120 * 60
    for query in np.unique(queries["query"]):
        responses = queries[queries["query"] == query]
        assert len(np.unique(responses["source"])) == len(responses) == 4
        assert len(np.unique(responses["start_ns"])) == len(np.unique(responses["destination"])) == 1
        assert responses["size_bytes"].sum() == pytest.approx(1.5 * leaf_buffer, abs=4)


def test_timeouts_and_retransmissions_are_counted(simulate: Any) -> None:
    run = simulate(policy__name="dt")
    flows = run.flows()
    dropped = sum(total(run.summary, "data_drops", why, "packets") for why in DROPS)
    assert flows["retransmissions"].sum() >= dropped
    timed_out = flows["timeouts"] > 0
    assert timed_out.sum() > 5
    assert np.all(flows["fct_ns"][timed_out] > 10_000_000)  # one minimum timeout at least
    assert np.all(flows["timeouts"][flows["retransmissions"] == 0] == 0)
