"""Examples in docstrings: every one runs, and every public class has one. 20 s of CPU time."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import foretail.api
import foretail.gym
import foretail.testing

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "configs", "features", "models", "export", "sim_bridge", "pipelines", "gym", "testing")
STUDIES = ROOT / "studies" / "foretail_studies"
PROMPT = ">>> "


def modules() -> list[str]:
    """Every module with an example, by its full name."""
    folders = [*((ROOT / room, ("foretail", room)) for room in ROOMS), (STUDIES, (STUDIES.name,))]
    return sorted(
        ".".join((*package, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for folder, package in folders
        for file in folder.rglob("*.py")
        if PROMPT in file.read_text("utf-8")
    )


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", [foretail.api, foretail.gym, foretail.testing])
def test_every_public_class_has_an_example(package: ModuleType) -> None:
    classes = [one for name in package.__all__ if inspect.isclass(one := getattr(package, name))]
    without = [one.__name__ for one in classes if PROMPT not in (inspect.getdoc(one) or "")]
    assert not without
