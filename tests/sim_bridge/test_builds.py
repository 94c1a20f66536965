"""The cache of what is compiled on the user's machine."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretail.sim_bridge.builds import cached, is_cached


def test_of_several_that_miss_the_same_file_one_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    together, built = threading.Barrier(4), []

    def build(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.3)  # long enough for the others to miss the file
        (folder / "program").write_text("built")

    def job(_: int) -> Path:
        together.wait(60)
        return cached("programs", "program", ["sources"], build)

    with ThreadPoolExecutor(4) as jobs:
        found = list(jobs.map(job, range(4)))
    assert len(built) == 1
    assert {path.read_text() for path in found} == {"built"}


def test_a_build_that_fails_leaves_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "program").write_text("half")
        raise ValueError("no compiler")

    for _ in range(2):
        with pytest.raises(ValueError, match="no compiler"):
            cached("programs", "program", ["sources"], fail)
        assert not is_cached("programs", "program", ["sources"])
    place = cached("programs", "program", ["sources"], lambda folder: (folder / "program").touch())
    assert place.is_file()
    assert is_cached("programs", "program", ["sources"])
