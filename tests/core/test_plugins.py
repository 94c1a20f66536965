"""Plug-ins that settings choose by name: what counts as one, and what is said of what does not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from foretail.core import plugins
from foretail.core.errors import ForetailError
from foretail.core.plugins import Kinds, source_sha256


class Shape:
    """What all of them are."""


@dataclass(frozen=True)
class Disc(Shape):
    radius: int = 1


@dataclass(frozen=True)
class Polygon(Shape):
    corners: list[int] = field(default_factory=lambda: [0, 1, 2])


@dataclass(frozen=True)
class Ring(Shape):
    width: int


class Plain(Shape):
    pass


@dataclass(frozen=True)
class Unnamed(Shape):
    pass


def imported() -> None:
    """No class at all."""


SHAPES = Kinds("foretail.shapes", Shape, "shape", {"disc": Disc})


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers shapes."""

    def offered(group: str, ours: Mapping[str, type]) -> dict[str, EntryPoint]:
        values = {"polygon": "Polygon", "ring": "Ring", "plain": "Plain", "imported": "imported"}
        return {name: EntryPoint(name, f"{__name__}:{value}", group) for name, value in values.items()}

    monkeypatch.setattr(plugins, "offered", offered)
    monkeypatch.setattr(plugins, "package_of", lambda point: "guest")


def test_fields_are_settings_with_their_own_defaults() -> None:
    assert SHAPES.names() == ("disc", "polygon", "ring", "plain", "imported")
    assert SHAPES.make("disc", {"radius": 3}) == Disc(3)
    assert SHAPES.make("polygon") == Polygon([0, 1, 2])
    assert SHAPES.make("polygon", {"corners": [4, 5]}) == Polygon([4, 5])
    assert [SHAPES.name(Disc()), SHAPES.name(Polygon())] == ["disc", "polygon"]


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("square", None, "shape square is unknown: choose from disc, polygon, ring, plain, imported"),
        ("ring", None, "ring of the package guest has no default for width: give one"),
        ("plain", None, "plain of the package guest is not a Shape: subclass it, a dataclass"),
        ("imported", None, "imported of the package guest is not a Shape: subclass it, a dataclass"),
        ("disc", {"radios": 1}, "disc.radios is unknown: disc takes radius"),
        ("disc", {"radius": "wide"}, "disc.radius = wide is out of range: it must be a whole number"),
        ("disc", [3], r"the settings of disc are \[3\]: write them as {NAME: VALUE}"),
    ],
)
def test_what_is_none_is_said(name: str, settings: object, complaint: str) -> None:
    with pytest.raises(ForetailError, match=f"^{complaint}$"):
        SHAPES.make(name, settings)  # type: ignore[arg-type] # settings come from outside


def test_one_that_no_package_offers_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "offered", lambda group, ours: {})
    with pytest.raises(ForetailError, match=r"^the shape Unnamed has no name: offer it in the group foretail\.shapes"):
        SHAPES.name(Unnamed())


def test_a_changed_module_beside_a_plugin_is_another_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.py").write_text("from deeper import ONE\n")
    (tmp_path / "deeper.py").write_text("ONE = 1\n")
    (tmp_path / "plugged.py").write_text("import beside\nimport numpy\n\n\nclass Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("plugged", "beside", "deeper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    kind = importlib.import_module("plugged").Mine
    digests = {source_sha256(kind)}
    for name in ("plugged", "beside", "deeper"):
        (tmp_path / f"{name}.py").write_text((tmp_path / f"{name}.py").read_text() + "MORE = 1\n")
        digests.add(source_sha256(kind))
    assert len(digests) == 4
    (tmp_path / "alone.py").write_text("TWO = 2\n")
    assert source_sha256(kind) in digests
