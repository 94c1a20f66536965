"""The C++ headers on their own: warnings, assertions, allocations, and the strings that Python must agree with."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import foretail.sim_bridge
from foretail.features.catalog import FEATURES

pytestmark = pytest.mark.slow

assert foretail.sim_bridge.__file__
ROOM = Path(foretail.sim_bridge.__file__).parent
HEADERS = sorted(header for room in ("buffer", "circuits") for header in (ROOM / room).rglob("*.h*"))
assert {header.relative_to(ROOM).parts[0] for header in HEADERS} == {"buffer", "circuits"}
PROGRAM = Path(__file__).with_name("buffer_check.cpp")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiler(variable: str, *names: str) -> str:
    """The compiler that built the package is there, so its absence is a failure, not a skip."""
    found = next(filter(None, map(shutil.which, filter(None, (os.environ.get(variable), *names)))), None)
    assert found, f"no compiler among {names}"
    return found


def compiled(program: Path, *sources: Path) -> Path:
    """Compile a program with assertions, and with what $CXXFLAGS adds, such as sanitizers."""
    flags = (*WARNINGS, *shlex.split(os.environ.get("CXXFLAGS", "")), f"-I{ROOM}")
    run(compiler("CXX", "c++", "g++", "clang++"), "-std=c++20", "-O1", *flags, *sources, "-o", program, "-ldl")
    return program


def run(*command: str | Path, source: str = "") -> str:
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = (PROGRAM, ROOM / "buffer/run.cpp", ROOM / "buffer/policies/policies.cpp")
    return compiled(tmp_path_factory.mktemp("buffer_check") / "buffer_check", *sources)


@pytest.mark.nightly
@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_a_header_compiles_alone_without_a_warning(header: Path) -> None:
    cxx = compiler("CXX", "c++", "g++", "clang++")
    source = f'#include "{header}"\n'
    run(cxx, "-std=c++20", *WARNINGS, f"-I{ROOM}", "-fsyntax-only", "-x", "c++", "-", source=source)


def test_the_predictor_interface_is_c99() -> None:
    cc = compiler("CC", "cc", "gcc", "clang")
    source = f'#include "{ROOM / "buffer" / "predictor" / "predictor.h"}"\n'
    run(cc, "-std=c99", *WARNINGS, "-fsyntax-only", "-x", "c", "-", source=source)


@pytest.mark.parametrize("check", ["contents", "workload", "feature_sets", "allocations"])
def test_the_library_passes_its_own_assertions(program: Path, check: str) -> None:
    assert run(program, check) == ""


@pytest.mark.parametrize(("cell_shift", "average_shift"), [(8, 15), (0, 0), (6, 17)])
def test_feature_parameters_are_those_of_the_catalog(program: Path, cell_shift: int, average_shift: int) -> None:
    printed = run(program, "parameters", str(cell_shift), str(average_shift)).splitlines()
    assert printed == [feature.params(2**cell_shift, average_shift) for feature in FEATURES]
