"""``make fuzz``: every reader for some seconds, a table at the end; what is found lies in ``build/fuzz``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from foretail.pipelines.runs.result import Table, show
from tests.fuzz.one import MOST_SECONDS
from tests.fuzz.readers import READERS
from tests.scenarios import RACKS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
SETTINGS, SETTINGS_INPUTS = "settings of the driver", 400_000
SANITIZERS = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def main() -> int:
    """Fuzz; 0 = nothing found, 1 = something was, 2 = a reader could not be fuzzed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz everything that Foretail reads.")
    parser.add_argument("--seconds", type=float, default=0, help="for each reader (0: a fixed number of inputs)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="readers at the same time")
    parser.add_argument("--only", nargs="*", choices=[*READERS, SETTINGS], default=[SETTINGS, *READERS])
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = list(pool.map(lambda name: (name, fuzz(name, arguments.seconds, arguments.seed)), arguments.only))
    rows = tuple(
        (name, result["engine"], result["runs"], result["edges"], len(result["findings"])) for name, result in found
    )
    notes = [
        f"{name}: {counts['ended by a signal']} of {result['runs']} inputs ended the parser by a signal, in a fork"
        for name, result in found
        if (counts := result.get("counts")) and counts["ended by a signal"]
    ]
    notes += [f"{name}: {finding}" for name, result in found for finding in result["findings"]]
    notes += [f"{name}: {result['why']}" for name, result in found if "why" in result]
    show([Table("Fuzzing", ("reader", "engine", "inputs", "edges covered", "findings"), rows, tuple(notes))])
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "result.json").write_text(json.dumps(dict(found), indent=1) + "\n")
    if any(result["findings"] for _, result in found):
        return 1
    return 2 if any(result["runs"] == 0 and "why" not in result for _, result in found) else 0


def fuzz(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """What one reader came to."""
    folder = BUILD / re.sub(r"\W+", "_", name)
    shutil.rmtree(folder if seconds == 0 else folder / "read", ignore_errors=True)  # a longer run goes on
    if name == SETTINGS:
        return fuzz_settings(folder, int(seconds), seed)
    command = [sys.executable, "-m", "tests.fuzz.one", name, str(folder), str(seconds), str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode not in (0, 1):
        print(f"{name}: {done.stderr[-2000:]}", file=sys.stderr)
        return {"engine": "-", "runs": 0, "edges": None, "findings": []}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def fuzz_settings(folder: Path, seconds: int, seed: int) -> dict[str, Any]:
    """The C++ reader of the driver's settings under libFuzzer, which clang brings, with sanitizers."""
    import nlohmann_json

    nothing: dict[str, Any] = {"engine": "libFuzzer", "runs": 0, "edges": None, "findings": []}
    compiler = next(filter(None, map(shutil.which, ("clang++", "clang++-14", "clang++-16", "clang++-19"))), None)
    if compiler is None:
        return nothing | {"why": "not fuzzed, because libFuzzer comes with clang++, which is not on PATH"}
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(driver_settings()):
        (folder / "corpus" / f"seed-{number}").write_text(text)
    include = Path(next(iter(nlohmann_json.__path__))) / "include"
    packets = ROOT / "sim_bridge" / "packets"
    sources = [*(packets / "settings").glob("*.cc"), packets / "racks" / "rack_settings.cc"]
    sources += [ROOT / "sim_bridge" / "buffer" / name for name in ("policies/policies.cpp", "run.cpp")]
    sources.append(Path(__file__).with_name("settings.cc"))
    build: list[str | Path] = [compiler, "-std=c++20", "-O1", "-g1", *SANITIZERS, "-I", ROOT / "sim_bridge"]
    built = subprocess.run(
        [*build, "-isystem", include, *sources, "-o", folder / "fuzzer"],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if "libclang_rt.fuzzer" in built.stderr:
        return nothing | {"why": "not fuzzed, because clang++ lacks libFuzzer: install libclang-rt-*-dev"}
    if built.returncode:
        raise SystemExit(built.stderr)
    most = [f"-max_total_time={seconds or MOST_SECONDS}", f"-runs={-1 if seconds else SETTINGS_INPUTS}"]
    options = [*most, f"-seed={seed}", "-max_len=16384", "-print_final_stats=1"]
    done = subprocess.run(
        [folder / "fuzzer", *options, f"-artifact_prefix={folder}/finding-", folder / "corpus"],
        capture_output=True,
        text=True,
        errors="replace",
    )
    (folder / "engine.log").write_text(done.stderr)
    runs = re.findall(r"^stat::number_of_executed_units: (\d+)", done.stderr, re.MULTILINE)
    edges = re.findall(r"\bcov: (\d+)", done.stderr)
    return {
        "engine": "libFuzzer",
        "runs": int(runs[-1]) if runs else 0,
        "edges": int(edges[-1]) if edges else None,
        "findings": sorted(path.name for path in folder.glob("finding-*"))
        or (["engine.log"] if done.returncode else []),
    }


def driver_settings() -> list[str]:
    """Settings as the stages write them, one of every policy, and racks with circuits."""
    from foretail.configs.schema.packet_stages import CollectConfig
    from foretail.pipelines.data.simulation import driver_config
    from foretail.sim_bridge.policies import ASKING, OF_ARRIVALS
    from tests.composed import stage_settings

    found = []
    for name in OF_ARRIVALS:
        library = [f"policy.{name}.library={__file__}"] if name in ASKING else []
        config = stage_settings(CollectConfig, "scenario=tiny", f"policy={name}", *library)
        found += [json.dumps(driver_config(config.scenario, each, 1, trace=True)) for each in config.policy.values()]
    return [*found, json.dumps(RACKS)]


if __name__ == "__main__":
    sys.exit(main())
