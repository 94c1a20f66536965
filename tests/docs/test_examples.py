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
ROOMS = ("core", "configs", "features", "models", "export", "sim_bridge", "pipelines", "gym", "testing", "studies")
PROMPT = ">>> "


def modules() -> list[str]:
    """Every module with an example, by its full name."""
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py") if PROMPT in file.read_text("utf-8"))
    names = (file.relative_to(ROOT).with_suffix("").parts for file in files)
    return sorted(".".join(("foretail", *name)).removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", [foretail.api, foretail.gym, foretail.testing])
def test_every_public_class_has_an_example(package: ModuleType) -> None:
    classes = [one for name in package.__all__ if inspect.isclass(one := getattr(package, name))]
    without = [one.__name__ for one in classes if PROMPT not in (inspect.getdoc(one) or "")]
    assert not without
