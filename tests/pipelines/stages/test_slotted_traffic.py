"""``foretail collect source=slotted``, and what can be done with its datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.data.collecting import CollectedRun
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.slotted import labelled
from tests.composed import composed
from tests.pipelines.command.test_cli import foretail

pytestmark = pytest.mark.slow


def config(stage: str, folder: Path, *overrides: str) -> Any:
    return typed(composed(stage, f"store_dir={folder / 'store'}", *overrides), STAGES[stage])


def collected(folder: Path, *overrides: str) -> tuple[CollectedRun, ...]:
    settings: CollectConfig = config("collect", folder, "source=slotted", *overrides)
    return collect(settings, folder).runs


def test_a_dataset_is_what_the_settings_say(tmp_path: Path) -> None:
    given = ("slotted.ports=6", "slotted.buffer_per_port=10", "slotted.slots=500", "seeds=[3]")
    (run,) = collected(tmp_path, *given, "slotted.settings={load: 0.3, poisson: false}")
    batches = Incast(load=0.3, poisson=False).batches(6, 60, 500, 3)
    (expected,) = labelled(batches, 6, 60)
    np.testing.assert_array_equal(Dataset.open(run.path).frame(["lqd_drop"])["lqd_drop"], expected.lqd_drop)
    assert run.drops == run.counters["data_drops.buffer_full"] + run.counters["data_drops.pushed_out"] > 0
    assert run.imported is None
    (again,) = collected(tmp_path, *given, "slotted.settings={poisson: false, load: 0.3, burst_fraction: 0.5}")
    assert (again.reused, again.path, again.counters) == (True, run.path, run.counters)
    (coarse,) = collected(tmp_path, *given, "slotted.settings={load: 0.3}", "slotted.features.cell_bytes=1024")
    assert not coarse.reused
    manifest = Dataset.open(coarse.path).manifest
    assert (manifest.cell_bytes, manifest.average_shift, manifest.seed) == (1024, 15, 3)
    assert manifest.scenario["workload"]["poisson"] is True


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["slotted.settings={fan: 5}"], "incast has no parameter fan"),
        (["slotted.settings={fan_in: 21}"], "fan_in must be at most the number of ports, 20"),
        (["slotted.settings={load: -1}"], "load must be above 0"),
        (["slotted.settings=[1]"], r"slotted\.settings = \[1\] names nothing"),
        (["slotted.ports=20000"], "= 1000000000 packets are more than"),
        (["log=x"], "give source=pcap, etalon or"),
        (["seeds=[]"], "seeds is empty"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, overrides: list[str], complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        config("collect", tmp_path, "source=slotted", "slotted.buffer_per_port=50000", *overrides)


def test_no_packets_leave_nothing(tmp_path: Path) -> None:
    nothing = ("slotted.settings={load: 0.0001, background_load: 0}", "slotted.slots=3")
    done = foretail(tmp_path, "collect", "source=slotted", *nothing)
    assert done.returncode == 2
    assert done.stderr.startswith("foretail: slotted.workload = incast sends no packet in 3 slots with seed 1")
    assert len(done.stderr.splitlines()) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_workload_without_chance_is_one_run(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="has the same packets with seeds 1 and 2"):
        collected(tmp_path, "slotted.workload=lqd_lower_bound", "slotted.slots=200", "seeds=[1,2]")
