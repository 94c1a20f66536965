"""``foretail evaluate network=emulator``. Costs the build of the emulator, an export and 7 s of emulation."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from foretail.configs.schema.networks import EmulatorNetwork
from foretail.configs.schema.packet_stages import CollectConfig, EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.records import FLOW_DTYPE, read_records
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.cli import main
from foretail.pipelines.comparison.emulation import EmulationResult, Fidelity
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.evaluate import evaluate
from foretail.sim_bridge.emulator.emulator import EmulatorRun, why_not_here
from tests.composed import result_in, stage_settings
from tests.forests import stump

pytestmark = pytest.mark.slow

TINY = (
    "network=emulator",
    "scenario=rack",
    "scenario.topology.servers_per_leaf=4",
    "scenario.incast.fan_in=3",
    "scenario.incast.queries_per_second_per_server=2000",
    "scenario.traffic_ns=500_000",
    "scenario.drain_ns=2_000_000",
    "network.factor=100",
    "tracking=off",
)

Emulated = tuple[EmulationResult, list[str], Path]
"""The runs, what was said, and the run folder."""


def config_of(*overrides: str) -> EvaluateConfig:
    return stage_settings(EvaluateConfig, "model=null", *TINY, *overrides)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """LQD, and Credence with a stump that drops where 60 cells are full; what was said; the run folder."""
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("emulate")
    occupancy = FeatureInput("occupancy", "cell_bytes=256", 24)
    Ensemble((occupancy,), (stump((0.0, 1.0), cut=60),), Fraction(1, 2)).save(folder / "stump.json")
    config = config_of("policy=[lqd,credence]", f"model={folder / 'stump.json'}", f"store_dir={folder / 'store'}")
    with collecting_notes() as notes:
        result = evaluate(config, folder)
    assert isinstance(result, EmulationResult)
    return result, notes.findings, folder


@pytest.mark.nightly
def test_credence_asks_the_exported_model_about_packets_of_linux(emulated: Emulated) -> None:
    lqd, credence = emulated[0].runs
    assert lqd.flows.asked is None
    assert credence.flows.asked is not None
    assert credence.flows.predicted_drops is not None
    assert credence.flows.asked >= credence.flows.predicted_drops > 0
    assert emulated[0].document()["predictor"] is not None


@pytest.mark.nightly
def test_a_late_run_is_named_with_what_to_do(emulated: Emulated) -> None:
    result, said, _ = emulated
    late = [run for run in result.runs if not run.is_valid]
    assert len([line for line in said if "is invalid: " in line and "network.factor" in line]) == len(late)
    assert all(run.why_invalid for run in late)
    one = dataclasses.replace(result.runs[0], is_valid=False, why_invalid="it was asleep")
    assert "1 of 1 runs were late" in dataclasses.replace(result, runs=(one,)).verdict()[-1]
    fine = dataclasses.replace(result.runs[0], is_valid=True, why_invalid="")
    assert "All runs were in time" in dataclasses.replace(result, runs=(fine,)).verdict()[-1]


@pytest.mark.nightly
def test_a_congestion_control_that_the_kernel_lacks_is_one_sentence(tmp_path: Path) -> None:
    config = config_of("policy=[lqd]", "network.control=vegas9")
    with pytest.raises(ForetailError, match="does not offer the congestion control vegas9: set control to one of"):
        evaluate(config, tmp_path)
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.nightly
@pytest.mark.ns3
def test_ns3_with_the_same_flows_is_beside_it(emulated: Emulated, tmp_path: Path) -> None:
    """One is compared with ns-3 flow by flow, as a slow loop does it; with itself nothing differs."""
    found = evaluate(config_of("policy=[lqd]", "network.against_ns3=true", f"store_dir={tmp_path / 'store'}"), tmp_path)
    assert isinstance(found, EmulationResult)
    assert found.fidelity is not None
    (run,), (twin,) = found.runs, found.fidelity.simulated.runs
    pairs = zip(*(read_records(path / "flows.bin", FLOW_DTYPE) for path in (run.flows.path, twin.path)), strict=True)
    expected = [
        here["fct_ns"] / there["fct_ns"]
        for here, there in pairs
        if min(here["fct_ns"], there["fct_ns"]) > 0 and here["timeouts"] == there["timeouts"] == 0
    ]
    all_flows = found.fidelity.ratios["lqd"]["all"]
    assert all_flows.flows == len(expected) > 5
    assert all_flows.percent.mean == pytest.approx(100 * (statistics.geometric_mean(expected) - 1))
    assert all_flows.p50 == pytest.approx(statistics.median(expected))
    times, wholes = found.fidelity.tables()
    assert times.rows[-1][:3] == ("lqd", "all", len(expected))
    assert [row[1] for row in wholes.rows] == ["emulator", "ns-3", "difference"]
    assert found.document()["fidelity"]["ratios"]["lqd"]["all"]["flows"] == len(expected)
    itself = Fidelity.between(found.compared, found.compared)
    assert {one.percent.mean for one in itself.ratios["lqd"].values()} == {0.0}
    assert "up to +0 %" in itself.verdict()


EXAMPLES = Path(__file__).parents[3] / "examples" / "emulator"


@pytest.mark.nightly
def test_a_program_runs_on_every_host_and_its_packets_pass_the_switch(emulated: Emulated, tmp_path: Path) -> None:
    """Given behind ``--``, with words that Hydra and a shell would read in ways of their own."""
    words = ["${HOME}", 'a "quoted" \\"word\\"', "x=[1,2]", "it's", "", "--help", "--debug"]
    program = (
        "import os, runpy, sys; own = int(os.environ['FORETAIL_HOST']); print(own, sys.argv[2:], flush=True); "
        "runpy.run_path(sys.argv[1]); sys.exit(3)"
    )
    overrides = (*TINY, "policy=[lqd,cs]", "scenario.topology.servers_per_leaf=3", "scenario.incast.fan_in=2")
    given = ["evaluate", *overrides, f"hydra.run.dir={tmp_path / 'run'}", "--"]
    assert main([*given, sys.executable, "-c", program, str(EXAMPLES / "http_fan_out.py"), *words]) == 0
    for policy in ("lqd", "cs"):
        folder = tmp_path / "run" / "runs" / f"{policy}_seed_101"
        first, *queries = (folder / "host_0.log").read_text(encoding="utf-8").splitlines()
        assert first == f"0 {words}"
        assert [line.split(":")[0] for line in queries] == [f"query {number}" for number in range(5)]
        assert (folder / "host_2.log").read_text(encoding="utf-8") == f"2 {words}\n"
        run = EmulatorRun.open(folder)
        (switch,) = run.summary["switches"]
        assert switch["data_out"]["bytes"] > 2 * 5 * 200_000
        assert run.summary["emulation"]["exit_code"] == 3
        assert run.summary["flows"] == 0
    result = result_in(tmp_path / "run")
    assert [run["exit_code"] for run in result["emulated"]] == [3, 3]
    assert "exit code 3 on host 0" in " ".join(result["findings"])


@pytest.mark.nightly
def test_two_bulk_flows_fill_their_link_and_no_more(emulated: Emulated, tmp_path: Path) -> None:
    one = ("policy=[cs]", "scenario.topology.servers_per_leaf=3", "scenario.incast.fan_in=1", "network.factor=500")
    given = ["evaluate", *TINY, *one, f"hydra.run.dir={tmp_path / 'run'}", "--"]
    assert main([*given, sys.executable, str(EXAMPLES / "bulk_transfer.py"), "10"]) == 0
    printed = (tmp_path / "run" / "runs" / "cs_seed_101" / "host_0.log").read_text(encoding="utf-8")
    first, second = (float(line.split()[2]) for line in printed.splitlines())
    most_gbps = 10 * 1400 / 1440
    assert 0.8 * most_gbps < first + second < 1.02 * most_gbps  # the end of 5 ms is a few packets early or late
    assert min(first, second) > 0


@pytest.mark.nightly
def test_a_program_that_goes_on_or_does_not_exist_is_one_sentence(emulated: Emulated, tmp_path: Path) -> None:
    given = config_of("policy=[lqd]", "network.command=[sleep,'1000']", "network.command_seconds=1")
    with pytest.raises(ForetailError, match=r"did not end on host 0 within 1 s .* raise emulation\.command_seconds"):
        evaluate(given, tmp_path)
    assert not list((tmp_path / "runs").glob("*"))
    with pytest.raises(ForetailError, match=r"network\.command = no-such-program is not a program on PATH"):
        config_of("policy=[lqd]", "network.command=[no-such-program]")


def collect_config(folder: Path, *overrides: str) -> CollectConfig:
    given = (
        *("network=emulator", "scenario=rack", "scenario.topology.servers_per_leaf=4", "scenario.incast.fan_in=3"),
        *("scenario.incast.queries_per_second_per_server=4000", "scenario.incast.burst_fraction=1"),
        *("scenario.traffic_ns=500_000", "scenario.drain_ns=2_000_000", f"store_dir={folder / 'store'}", *overrides),
    )
    return stage_settings(CollectConfig, *given)


@pytest.mark.nightly
def test_an_emulated_trace_is_a_dataset_like_any_other(
    emulated: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatorRun, "is_valid", True)  # a loaded machine is no fault
    config = collect_config(tmp_path, "network.factor=100")
    (made,) = collect(config, tmp_path).runs
    dataset = Dataset.open(made.path)
    manifest = dataset.manifest
    assert manifest.rows == made.rows > 100
    assert manifest.drops == made.drops > 0
    assert manifest.versions.keys() == {"foretail", "linux", "emulator_sha256"}
    assert isinstance(config.network, EmulatorNetwork)
    assert manifest.scenario["emulation"] == config.network.settings()
    (again,) = collect(config, tmp_path).runs
    assert again.reused
    assert again.content_sha256 == made.content_sha256
