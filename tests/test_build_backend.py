"""Two builds of one folder. Takes no time: nothing is compiled."""

from __future__ import annotations

import runpy
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
