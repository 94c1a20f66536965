"""Every benchmark still runs: its small size has the rows and ratios that it promises. No time is judged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from foretail.sim_bridge.emulator.emulator import EMULATOR, why_not_here
from foretail.sim_bridge.ns3.driver import build_driver
from foretail.sim_bridge.policies import OF_ARRIVALS

pytestmark = [pytest.mark.slow, pytest.mark.ns3]

ROOT = Path(__file__).parents[2]
FORMS = ("branches, rows", "bitvector, lanes", "default", "default, AVX2")
RATIO = r"\d+\.\d+"

# Beginnings of lines of the tables, their cells parted by |, and how many of each there are.
ROWS: dict[str, dict[str, int]] = {
    "closed_loop": {
        r"tiny \| 4 \| [\d,]+ \| \d+\.\d$": 1,
        r"tiny( \| \d+){3}$": 1,
    },
    "digest": {rf"all (rows as a frame|arrivals for a replay) \| {RATIO} \| {RATIO}": 2},
    "emulator": {r"(lqd|dt|credence)( \| [\d,]+){3}$": 3},
    "export_c": {
        **{rf"{form} \|": 2 for form in FORMS},
        **{rf"{form} / branches, rows( \| {RATIO}){{4}}": 2 for form in FORMS},
        r".*; no peers: their environment is not there": 1,
    },
    "export_p4": {
        r"[14] \| \d+ \| \d+ \| ours, ": 2,
        **{
            rf" \|  \|  \| {peer} \|( [\d,]+ \|){{3}} {RATIO}": 2
            for peer in ("ours, .*, ranges native", "NetBeacon", "Planter", "Flowrest, ranges native", "Flowrest")
        },
        r"(256|4,096) \|( [\d,]+ \|){7} ": 2,
    },
    "gym": {
        r"(8, 80|20, 1000) \| a single one \| [\d,]+ \| 1 \|": 2,
        rf"(8, 80|20, 1000) \| 64 \| [\d,]+ \| {RATIO} \| [\d,]+$": 2,
        rf"(1|1,024) \| [\d,]+ \| {RATIO} \| [\d,]+$": 2,
    },
    "native_speed": {
        **{
            rf"{run} \| [\d,]+ \| [\d,]+ \| {RATIO} \|": 1
            for run in (
                *("lqd", "dt", "cs", "followlqd", "credence, forest", "lqd, trace"),
                *("powertcp, lqd", "elephants, lqd", "star, lqd", "paper, lqd"),
            )
        },
        **{
            rf"{run} +\| {RATIO} \| [\d,]+ \| {RATIO} \| {RATIO} to {RATIO}": 1
            for run in ("bare run", "with a trace", "with a trace and its dataset")
        },
    },
    "ns3_speed": {
        rf"{run} \| [\d,]+ \| [\d,]+ \| {RATIO}": 1
        for run in (
            "LQD",
            "LQD, trace",
            "LQD, trace, Parquet",
            "Credence, always accept",
            "Credence, forest",
            "FollowLQD",
            "DT",
            "LQD, elephants",
        )
    },
    "open_loop": {rf"{file} \| {RATIO} \| {RATIO} \|": 1 for file in ("csv", "parquet")},
    "policies": {
        **{rf"{policy}( \| [\d.e+]+){{2}}$": 2 for policy in OF_ARRIVALS},
        **{rf"{row}( \| [\d.e+]+){{2}}$": 1 for row in ("lqd, labels", "lqd, labels and features", "optimum")},
        **{rf"{policy}( \| [\d.e+]+ \([\d,]+ x\)){{2}}$": 1 for policy in ("lqd", "dt")},
    },
    "schedule": {
        **{rf"{nodes} \| .* \| .* \| {RATIO}x \| .* \| {RATIO}x$": 1 for nodes in (16, 32)},
        r"16 \| [\d.e-]+ s \(48 matchings\) \| [\d.e-]+ s \(48 matchings\)$": 1,
        r"16 \| [a-z ]+ \| 0\.\d+ \| [\d.]+ \| 0\.\d+, 0\.\d+ \| [\d.]+$": 3,
    },
    "tofino": {  # where there is no compiler, each row says so
        r"4 \| 4 \| groups \(2\) \| .*\| 4$": 1,
        r"tofino \| 4 \| (ours, one tau|[a-z]+) \| (\d+ \||p4c-barefoot is not on PATH)": 5,
        r"\d+ \| \d+ \| \d+ / (\d+ \||p4c-barefoot is not on PATH)": 2,
    },
    "tofino_features": {
        r"always accept \|  (\| -?[\d.]+ \[-?[\d.]+, -?[\d.]+\] ?){4}$": 1,
        **{
            rf"{features} \| {RATIO} (\| -?[\d.]+ \[-?[\d.]+, -?[\d.]+\] ?){{4}}$": 1
            for features in ("switch", "paper", "tofino", "queue and occupancy", "queue and occupancy, tracked")
        },
        # where there is no compiler, each row says so
        r".* \| tofino \| (product|leaf_rows) \| (\d+ \||p4c-barefoot is not on PATH)": 6,
    },
    "training_rows": {
        r"datasets written, in a process per core \|": 1,
        **{
            rf"{way} \| [\d,]+ \| {RATIO} \| [\d,]+ \| [\d,]+ \| 0\.\d+ \| 0\.\d+ \| [+-]0\.\d+": 1
            for way in (
                "boosted trees, in memory",
                "boosted trees, streamed",
                "boosted trees, streamed, bins in files",
                "boosted trees, streamed, 0.05 of the others",
                "random forest, 0.05 of the others",
            )
        },
        r"judging the training rows \|": 1,
    },
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_at_its_small_size(name: str, tmp_path: Path) -> None:
    reason = why_not_here() if name == "emulator" else None
    if reason is not None:
        pytest.skip(reason)
    # A cache of its own, with nothing but the simulators: nobody's stored runs, and no environment of peers.
    cache = tmp_path / "cache" / "foretail"
    cache.mkdir(parents=True)
    (cache / "ns3-driver").symlink_to(build_driver().parent.parent)
    if name == "emulator":
        (cache / "emulator").symlink_to(EMULATOR.build().parent.parent)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache.parent), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--size", "small"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [" | ".join(cell.strip() for cell in re.sub("^│|│$", "", line).split("│")) for line in _lines(done.stdout)]
    found = {row: sum(bool(re.match(row, line)) for line in lines) for row in ROWS[name]}
    assert found == ROWS[name], done.stdout


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]
