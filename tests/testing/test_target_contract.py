"""The contract of export targets: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

import re
from collections.abc import Callable
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
from foretail.testing import PREFIX, check_target
from tests.broken import broken
from tests.forests import paper_forest

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@pytest.mark.parametrize("target", [pytest.param(C, marks=pytest.mark.slow), P4, Onnx])
def test_targets_keep_the_contract(target: type[Target]) -> None:
    check_target(target, changes=4)


MADE = count()


def numbers(usual: Callable[..., Rendered], lowered: Lowered, prefix: str, *asked: int) -> Rendered:
    found = usual(lowered, prefix, *asked)
    return replace(found, files={**found.files, f"{prefix}.txt": str(next(MADE)).encode()})


def reads_the_model(usual: Callable[..., Loaded], ensemble: Ensemble, files: Files) -> Loaded:
    return usual(ensemble, {**files, **P4().render(Lowered.of(ensemble), PREFIX, 10**6).files})


def scores_one_more(usual: Callable[..., Loaded], *asked: Any) -> Loaded:
    found = usual(*asked)
    ((name, run),) = found.runs.items()
    return replace(found, runs={name: lambda x: run(x) + 1})


def answers_nothing(usual: Callable[..., Loaded], *asked: Any) -> Loaded:
    found = usual(*asked)
    return replace(found, runs={name: lambda x: np.empty((0, 3), np.int64) for name in found.runs})


class _ForgetsItsName(P4):
    name = "P 4"


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
    target = broken(P4, render=lambda usual, *asked: replace(usual(*asked), **changed))
    with pytest.raises(PluginError, match=re.escape(complaint)):
        export(paper_forest(trees=1, depth=1).ensemble, target(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "clause"),
    [
        (_ForgetsItsName, "lower-case letters, digits and _"),
        (broken(P4, render=numbers), "equal models must give equal files"),
        (
            broken(P4, render=lambda usual, lowered, _, most: usual(lowered, "mine", most)),
            "file names must begin with the prefix",
        ),
        (broken(P4, load=reads_the_model), "those of another model must not pass"),
        (broken(P4, load=scores_one_more), "proven equal to the model"),
        (
            broken(P4, load=lambda *_: 1 // 0),
            "read back, run, and proven equal.*Broken fails in load: ZeroDivisionError: ",
        ),
        (broken(P4, load=answers_nothing), "read back, run, and proven equal"),
        (
            broken(P4, load=lambda usual, *asked: replace(usual(*asked), read={}, runs={})),
            "read back, run, and proven equal.*load must tell what it reads and how that runs, not nothing",
        ),
    ],
)
def test_the_contract_catches_targets_that_break_it(target: type[Target], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_target(target)
