"""The contract of export targets: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.plugins import PluginError
from foretail.export.c.target import C
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.proof import Lowered
from foretail.export.target import Files, Loaded, Rendered, Target, export
from foretail.models.ensemble.ensemble import Ensemble
from foretail.testing import check_target
from foretail.testing.target import PREFIX
from tests.forests import paper_forest

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("target", [pytest.param(C, marks=pytest.mark.slow), P4, Onnx])
def test_targets_keep_the_contract(target: type[Target]) -> None:
    check_target(target, changes=4)


class _ForgetsItsName(P4):
    name = "P 4"


class _Numbers(P4):
    made = count()

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        found = super().render(lowered, prefix, max_cells)
        return replace(found, files={**found.files, f"{prefix}.txt": str(next(self.made)).encode()})


class _NamesFilesAsItLikes(P4):
    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        return super().render(lowered, "mine", max_cells)


class _ReadsTheModel(P4):
    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        lowered = Lowered.of(ensemble)
        return super().load(ensemble, {**files, **super().render(lowered, PREFIX, 10**6).files})


class _ScoresOneMore(P4):
    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        found = super().load(ensemble, files)
        ((name, run),) = found.runs.items()
        return replace(found, runs={name: lambda x: run(x) + 1})


class _Crashes(P4):
    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        raise LookupError("no parser")


class _AnswersNothing(P4):
    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        found = super().load(ensemble, files)
        return replace(found, runs={name: lambda x: np.empty((0, 3), np.int64) for name in found.runs})


class _ReadsNothing(P4):
    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        return replace(super().load(ensemble, files), read={}, runs={})


class _Returns(P4):
    def __init__(self, changed: dict[str, Any]) -> None:
        super().__init__()
        self._changed = changed

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        return replace(super().render(lowered, prefix, max_cells), **self._changed)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        *(
            ({part: {name: b"1"}}, f"must have a name of letters, digits and . + - _, without a folder, not {name!r}")
            for part in ("files", "unproven")
            for name in ("/elsewhere", "../elsewhere", "folder/elsewhere", "..", "", "a\nb")
        ),
        *(
            ({"unproven": {name: b"1"}}, f"must not have the name of one that Foretail writes itself, not {name}")
            for name in ("certificate.json", "digest.json", "ensemble.json")
        ),
        ({"files": {}}, "render must give a file that is proven, not none"),
        ({"unproven": {"a.txt": "text"}}, "a.txt must be bytes, not a str"),
        ({"report": "gone.json"}, "the report must be one of the files, not 'gone.json'"),
    ],
)
def test_files_lie_in_the_folder_of_the_export(tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PluginError, match=re.escape(complaint)):
        export(paper_forest(trees=1, depth=1).ensemble, _Returns(changed), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_ForgetsItsName, "lower-case letters, digits and _"),
        (_Numbers, "equal models must give equal files"),
        (_NamesFilesAsItLikes, "file names must begin with the prefix"),
        (_ReadsTheModel, "those of another model must not pass"),
        (_ScoresOneMore, "proven equal to the model"),
        (_Crashes, "read back, run, and proven equal.*_Crashes fails in load: LookupError: no parser"),
        (_AnswersNothing, "read back, run, and proven equal"),
        (
            _ReadsNothing,
            "read back, run, and proven equal.*load must tell what it reads and how that runs, not nothing",
        ),
    ],
)
def test_the_contract_catches_targets_that_break_it(broken: type[Target], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_target(broken)
