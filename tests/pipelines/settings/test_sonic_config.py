"""``config=config_db.json``: a SONiC configuration as the settings of a run, and what is refused.

Costs fifteen seconds, most of it for eight tiny runs of the native network.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines import cli
from foretail.pipelines.comparison.policy_runs import Simulation
from foretail.pipelines.data.simulation import native_simulator
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.imports.sonic.config import read_config, write_config
from foretail.sim_bridge.imports.sonic.simulated import simulated, usual_priorities
from foretail.sim_bridge.imports.sonic.thresholds import with_alphas
from tests.composed import foretail, result_in
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parents[2] / "sim_bridge" / "imports" / "sonic"
LEAF, LOSSY = SAMPLES / "leaf_32x100g.json", SAMPLES / "lossy.json"
SMALL = ROOT / "examples" / "switch_config" / "config_db.json"
"""It fits a small switch, and pauses."""
STAR = (
    "scenario=star",
    "scenario.topology.servers_per_leaf=4",
    "scenario.incast.fan_in=3",
    "scenario.incast.queries_per_second_per_server=2000",
    "scenario.incast.burst_fraction=0.5",
    "scenario.topology.buffer_bytes_per_port_per_gbps=750_000",
    "scenario.traffic_ns=1_000_000",
)


def settings(config: Path, *overrides: str) -> EvaluateConfig:
    return compose_settings(EvaluateConfig, [*STAR, f"config={config}", "policy=[sonic,lqd]", *overrides], "the test")


def test_the_lossless_sample_sets_queues_and_pauses_of_all_and_what_sonic_reads() -> None:
    found = settings(LEAF)
    queues, pfc, sonic = found.scenario.queues, found.scenario.pfc, found.policy["sonic"]
    assert (queues.count, queues.lossless, queues.background, queues.incast, queues.control) == (2, [1], 0, 1, 0)
    assert (pfc.headroom_bytes, pfc.headroom_pool_bytes, pfc.xon_bytes, pfc.xon_offset_bytes, pfc.alpha) == (
        *(96_000, 4_000_000, 2_560, 2_304),
        0.5,
    )
    assert (sonic.ingress_pool_bytes, sonic.egress_lossless_pool_bytes, sonic.egress_lossy_pool_bytes) == (
        *(26_000_000, 30_000_000),
        20_800_000,
    )
    assert (sonic.ingress_alphas, sonic.egress_alphas) == ([8.0, 0.5], [2.0, 0.0])
    assert (sonic.egress_static_bytes, sonic.egress_reserved_bytes) == ([0, 30_000_000], [1_536, 0])
    assert found.policy["lqd"].ingress_pool_bytes is None


def test_the_lossy_sample_has_one_class_and_leaves_pauses_as_they_are() -> None:
    found, usual = settings(LOSSY), compose_settings(EvaluateConfig, [*STAR, "policy=[sonic,lqd]"], "the test")
    assert (found.scenario.queues, found.scenario.pfc) == (usual.scenario.queues, usual.scenario.pfc)
    sonic = found.policy["sonic"]
    assert (sonic.egress_lossless_pool_bytes, sonic.egress_lossy_pool_bytes) == (None, 9_600_000)
    assert (sonic.ingress_static_bytes, sonic.egress_alphas) == ([12_000_000], [8.0])


def test_classes_and_ports_can_be_chosen() -> None:
    found = settings(LEAF, "config_classes.incast=4", "config_classes={control: 4}", "config_ports=[Ethernet0]")
    queues, pfc = found.scenario.queues, found.scenario.pfc
    assert (queues.lossless, queues.background, queues.incast, queues.control) == ([1], 0, 1, 1)
    assert pfc.headroom_pool_bytes == 4_000_000
    both = settings(LOSSY, "config_classes.incast=7").scenario.queues
    assert (both.count, both.lossless, both.incast) == (2, [], 1)


def test_a_run_depends_on_the_content_of_the_file_alone(tmp_path: Path) -> None:
    same, other = tmp_path / "same.json", tmp_path / "other.json"
    shutil.copy(LEAF, same)
    write_config(with_alphas(read_config(LEAF), {0: 2}), other)

    def key(config: Path, policy: str) -> object:
        found = settings(config)
        return Simulation.of(policy, found.scenario, found.policy[policy], 1, None, native_simulator()).key

    assert key(LEAF, "sonic") == key(same, "sonic") != key(other, "sonic")
    assert key(LEAF, "lqd") == key(other, "lqd")


@pytest.mark.parametrize(("config", "per_port"), [(LEAF, 750_000), (SMALL, 10_240), (LOSSY, 750_000)])
def test_policies_are_compared_on_it(config: Path, per_port: int, tmp_path: Path) -> None:
    star = [*STAR[:5], f"scenario.topology.buffer_bytes_per_port_per_gbps={per_port}", *STAR[6:]]
    given = ["policy=[sonic,lqd,reverie,dt]", "seeds=[1]", "tracking=off", "hydra.run.dir=run"]
    done = foretail(tmp_path, "evaluate", *star, f"config={config}", *given)
    assert done.returncode == 0, done.stderr
    pauses, result = config != LOSSY, result_in(tmp_path / "run")
    assert ("lossless" in done.stdout) == pauses
    metrics = [run["metrics"] for run in result["runs"]]
    assert len(metrics) == 4
    assert [one.get("lossless_drops") for one in metrics] == [0.0 if pauses else None] * 4
    assert all(("paused_share" in one) == ("pauses" in one) == pauses for one in metrics)
    assert config != SMALL or metrics[0]["pauses"] > 0
    assert result["config"]["scenario"]["queues"]["lossless"] == ([1] if pauses else [])  # what the file says


def test_read_simulated_and_written_with_other_alphas_it_is_read_again(tmp_path: Path) -> None:
    buffers, written = read_config(LEAF), tmp_path / "config_db.json"
    assert settings(LEAF).policy["sonic"].egress_alphas[0] == 2.0
    changed = with_alphas(buffers, {0: 3, 3: 0})
    write_config(changed, written)
    again = read_config(written)
    assert again == changed
    found, run = settings(written), simulated(again, usual_priorities(again))
    assert (found.policy["sonic"].egress_alphas, found.policy["sonic"].ingress_alphas) == ([8.0, 0.0], [8.0, 1.0])
    assert (run.policy.egress_alphas, found.scenario.pfc.alpha) == ([8.0, 0.0], 1.0)
    write_config(again, tmp_path / "again.json")
    assert written.read_bytes() == (tmp_path / "again.json").read_bytes()


WRONG = {
    "no such file": (["config=none.json"], "configuration none.json cannot be read (No such file or directory)"),
    "pool too large": (
        [f"config={LEAF}", "scenario.topology.buffer_bytes_per_port_per_gbps=5120"],
        "BUFFER_POOL|ingress_lossless_pool has size 26,000,000, and the buffer 204,800 bytes: lower size, or give the "
        "buffer of this switch with scenario.topology.buffer_bytes_per_port_per_gbps=750000.",
    ),
    "pool and headroom too large": (
        [f"config={LEAF}", "scenario.topology.buffer_bytes_per_port_per_gbps=749_999"],
        "BUFFER_POOL|egress_lossless_pool has size 30,000,000, and the buffer 29,999,960 bytes",
    ),
    "no queue": (
        [f"config={LEAF}", "config_classes.incast=7"],
        "traffic class 7 of Ethernet0 has queue 7, which has no",
    ),
    "unknown kind": ([f"config={LEAF}", "config_classes={storage: 3}"], "unknown setting config_classes.storage"),
    "no class": ([f"config={LEAF}", "config_classes.incast=9"], "incast has priority 9: choose from 0 to 7"),
    "no port": (
        [f"config={LEAF}", "config_ports=[Eth]"],
        "config_ports has Eth, which is no PORT: choose from Ethernet0",
    ),
    "no file": (["config_classes.incast=3"], "config_classes is of a SONiC configuration, and there is none: give"),
    "queues twice": ([f"config={LEAF}", "scenario.queues.count=3"], "scenario.queues.count is what config = "),
    "pauses twice": ([f"config={LEAF}", "scenario.pfc={alpha: 3}"], "scenario.pfc is what config = "),
    "alpha twice": ([f"config={LEAF}", "policy.sonic.alpha=3"], "policy.sonic.alpha is what config = "),
    "alpha in the name": (
        [f"config={LEAF}", "policy={name: sonic, alpha: 3}"],
        "policy sonic_alpha_3 has settings that",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_is_refused_in_one_sentence(wrong: str, tmp_path: Path) -> None:
    overrides, complaint = WRONG[wrong]
    names = {override.partition("=")[0] for override in overrides}
    star = [override for override in (*STAR, "policy=sonic") if override.partition("=")[0] not in names]
    done = foretail(tmp_path, "evaluate", *star, *overrides)
    assert done.returncode == cli.EXIT_BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert complaint in line
    assert line.endswith((".", "?"))
    assert list(tmp_path.iterdir()) == []
