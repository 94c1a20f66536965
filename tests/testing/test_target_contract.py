"""The contract of export targets: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from foretail.export.c.target import C
from foretail.export.lowered import Lowered
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.target import Files, Loaded, Rendered, Target
from foretail.models.ensemble.ensemble import Ensemble
from foretail.testing import check_target
from foretail.testing.target import PREFIX

pytestmark = pytest.mark.slow


@pytest.mark.nightly
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
    ],
)
def test_the_contract_catches_targets_that_break_it(broken: type[Target], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_target(broken)
