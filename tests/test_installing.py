"""The pinned versions suit every Python that README promises, from its first release on. It costs a second.

Every dependency is pinned, so nothing is left for a resolver to choose. What it would check is checked here without an
installation: each pinned package admits that Python, and each requirement that holds under it is met by a pin.
"""

from __future__ import annotations

import re
import runpy
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FIRST_RELEASES = ("3.11.0", "3.12.0", "3.13.0")
WITHOUT_DEPENDENCIES = {"ns3", "axe-playwright-python", "catboost"}
"""Packages that ``make`` installs with ``--no-deps``."""
FOR_GPUS = ("nvidia-", "cuda-", "triton")
"""Beginnings of packages that PyTorch brings, in versions of its own, where pip has no build of it for CPUs."""


def pins() -> dict[str, str]:
    """The pinned version of every package, by its canonical name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def active(requirements: list[str], extras: set[str], python: str) -> Iterator[Requirement]:
    """The requirements that hold for some extras under a Python."""
    version = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    for text in requirements:
        requirement = Requirement(text)
        environment = {key: str(value) for key, value in default_environment().items()} | version
        if requirement.marker is None or any(
            requirement.marker.evaluate(environment | {"extra": extra}) for extra in ("", *extras)
        ):
            yield requirement


def conflicts(python: str, pinned: dict[str, str]) -> list[str]:
    """A sentence for every package that `make test` would not find a version of under a Python."""
    found, seen = [], set()
    waiting = [("foretail", frozenset({"dev"}))]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an extra of a package that this machine lacks; what is pinned and installed is looked at
        admitted = SpecifierSet(str(distribution.metadata.json.get("requires_python", "")))
        if not admitted.contains(python, prereleases=True):
            found.append(f"{name}=={pinned.get(name)} needs Python {admitted}")
        if name in WITHOUT_DEPENDENCIES:
            continue
        for requirement in active(distribution.requires or [], set(extras), python):
            needed = canonicalize_name(requirement.name)
            if needed.startswith(FOR_GPUS):
                continue
            if needed not in pinned and needed != "foretail":
                found.append(f"{name} needs {requirement}, which is not pinned")
            elif needed in pinned and not requirement.specifier.contains(pinned[needed], prereleases=True):
                found.append(f"{name} needs {requirement}, and {pinned[needed]} is pinned")
            waiting.append((needed, frozenset(requirement.extras)))
    return sorted(set(found))


@pytest.mark.parametrize("python", FIRST_RELEASES)
def test_pins_suit_the_first_release_of_every_python(python: str) -> None:
    assert conflicts(python, pins()) == []


def test_a_pin_that_needs_a_later_patch_release_is_seen() -> None:
    unsuitable = {**pins(), "numpy": "1.0"}
    assert any(
        re.search(r"needs numpy.*, and 1\.0 is pinned", sentence) for sentence in conflicts("3.11.0", unsuitable)
    )
    assert conflicts("3.9.0", pins())


def test_every_pin_is_the_version_that_is_installed() -> None:
    installed = {canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()}
    different = {
        name: (version, installed[canonicalize_name(name)])
        for name, version in pins().items()
        if name in installed and str(installed[canonicalize_name(name)]).partition("+")[0] != version
    }
    assert different == {}


def test_a_second_build_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    events: list[str] = []

    def compile_slowly(name: str) -> str:
        events.append(f"{name} begins")
        while name == "first" and not started.is_set():
            time.sleep(0.01)
        time.sleep(0.05)
        events.append(f"{name} ends")
        return name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scikit_build_core.build.build_wheel", compile_slowly)
    hooks = runpy.run_path(str(ROOT / "build_backend.py"))
    started = threading.Event()
    first = threading.Thread(target=hooks["build_wheel"], args=("first",))
    first.start()
    while not events:
        time.sleep(0.01)
    started.set()
    hooks["build_wheel"]("second")
    first.join()
    assert events == ["first begins", "first ends", "second begins", "second ends"]
    assert "another build of this folder is under way" in capfd.readouterr().err
    assert callable(hooks["get_requires_for_build_wheel"])
