"""The buffer library, the native module and both simulators of networks under AddressSanitizer and UBSan.

``make sanitize`` runs this. What it builds lies in ``build/sanitize``; the installed module and the user's driver stay
as they are. As a plugin of pytest it puts the module of ``build/sanitize`` in the place of the installed one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cmake
import ninja

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "sanitize"
MODULES = {"foretail.sim_bridge": ROOT, "foretail_studies": ROOT / "studies"}
"""Sources of the native module of each package."""
FLAGS = "-g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS"

SLOW = "not debug and not allocations and not load_and_burst and not vast and not priorities"
"""Left out of what follows, so that all of it, compilers included, takes some 360 s of CPU time."""

NETWORK = "tests/sim_bridge/native/test_native_network.py"
PROGRAMS = (  # programs with the sanitizers: checks of the headers, laws of congestion control, simulations
    "tests/sim_bridge/buffer/test_headers.py::test_the_library_passes_its_own_assertions",
    "tests/sim_bridge/buffer/test_headers.py::test_feature_parameters_are_those_of_the_catalog",
    "tests/sim_bridge/packets/test_transports.py",
    "tests/sim_bridge/ns3/test_ns3_driver.py",
    *(f"{NETWORK}::test_drawn_settings_have_the_same_bytes[{n}]" for n in range(4)),
    f"{NETWORK}::test_racks_have_the_same_bytes[0]",
    f"{NETWORK}::test_settings_that_are_wrong_are_refused_in_one_sentence",
)
TWO_AT_A_TIME = ("-n", "2", "--dist", "loadscope")
MODULE = (  # the native module in pytest's own process
    "tests/sim_bridge/buffer/test_native_doors.py",
    "tests/sim_bridge/buffer/test_slotted.py",
    "tests/sim_bridge/buffer/test_replay.py",
    "studies/tests/engines/test_cell_fabric.py",
    "tests/sim_bridge/native/test_native_snapshots.py",
    "tests/gym/test_environment.py",
)


def pytest_configure() -> None:
    """Import the modules with the sanitizers under the names of the installed ones."""
    for package in MODULES:
        name = f"{package}._native"
        spec = importlib.util.spec_from_file_location(name, next((BUILD / package).glob("_native.*.so")))
        assert spec is not None
        assert spec.loader is not None
        assert name not in sys.modules
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def main() -> int:
    """Build and run; the exit code is 0 when nothing was found."""
    sanitized = os.environ | {
        "CXXFLAGS": f"-O1 {FLAGS}",
        "XDG_CACHE_HOME": str(BUILD),
        # ns-3 and Python free nothing at their end, and ns-3's libraries fill vectors without telling the sanitizer.
        "ASAN_OPTIONS": "detect_leaks=0:detect_container_overflow=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    preloaded = sanitized | {"LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libstdc++.so")))}
    tool = Path(cmake.CMAKE_BIN_DIR) / "cmake"
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True, check=True
    )
    configured: list[str | Path] = [
        *("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug"),
        *(f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR) / 'ninja'}", f"-DPython_EXECUTABLE={sys.executable}"),
        f"-Dnanobind_DIR={nanobind.stdout.strip()}",
    ]
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=quick",
        "-k",
        SLOW,
    ]
    chains: list[dict[str, tuple[Sequence[str | Path], Mapping[str, str]]]] = [
        {
            # unoptimized, which takes a third less to compile
            **{
                f"the native module of {package} is configured": (
                    [tool, "-S", source, "-B", BUILD / package, *configured],
                    sanitized | {"CXXFLAGS": FLAGS},
                )
                for package, source in MODULES.items()
            },
            **{
                f"the native module of {package} is built": (
                    [tool, "--build", BUILD / package, "--target", "_native"],
                    sanitized,
                )
                for package in MODULES
            },
            "tests of the native modules": ([*pytest, "-p", "tests.sanitize", *MODULE], preloaded),
        },
        {
            "the ns-3 driver is built": ([sys.executable, "-m", "foretail.sim_bridge.ns3.driver", "build"], sanitized),
            "tests of programs, the ns-3 driver and the native network": (
                [*pytest, *TWO_AT_A_TIME, *PROGRAMS],
                sanitized,
            ),
        },
    ]
    with ThreadPoolExecutor(len(chains)) as pool:
        passed = list(pool.map(_run, chains))
    print(f"with {FLAGS}: {'nothing found' if all(passed) else 'FAILED, see above'}")
    return 0 if all(passed) else 1


def _run(steps: Mapping[str, tuple[Sequence[str | Path], Mapping[str, str]]]) -> bool:
    """Run commands one after the other up to one that fails; tell what each printed at its end, or all if it failed."""
    for name, (command, environment) in steps.items():
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines = done.stdout.strip().splitlines() or [""]
        said = "\n".join(lines) if done.returncode else lines[-1]
        print(f"{name}, {time.monotonic() - started:.0f} s: {said}", flush=True)
        if done.returncode:
            return False
    return True


def _library(name: str) -> str:
    compiler = shutil.which(os.environ.get("CXX", "c++")) or "g++"
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
