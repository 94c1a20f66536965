"""Predictors and targets of other packages, found by their entry points, and what they may do wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.pipelines import cli
from foretail.sim_bridge.circuits.demand import ring
from tests.composed import SIDES, result_in
from tests.docs.pages import blocks
from tests.forests import paper_forest
from tests.pipelines.stages.test_stage_faults import assert_one_sentence
from tests.traces import write_bursts

pytestmark = pytest.mark.slow

EXTEND = Path(__file__).parents[3] / "docs" / "guide" / "extend.md"
IMPORTS = """\
from dataclasses import dataclass

import numpy as np

from foretail.models.drop.predictor import DropPredictor
from foretail.models.scoring.threshold_rules import ThresholdRule
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Workload
from foretail.sim_bridge.circuits.schedules import Scheduler

"""


def of_page(name: str) -> str:
    """The class of that name on the page that tells how to extend Foretail, as a module."""
    (text,) = (text for language, text in blocks(EXTEND) if language == "py" and f"\nclass {name}(" in text)
    return IMPORTS + text


STUMP = (
    of_page("Stump")
    + """

class Raises(Stump):
    def _fit(self, x, y, weight):
        raise RuntimeError("no licence")


class Exits(Stump):
    def _fit(self, x, y, weight):
        raise SystemExit(0)


class KnowsMore(Stump):
    def _probability(self, x):
        return np.where(x[:, 0] == 0, 0.75, self.forest_.probability(x))


class Writes(Stump):
    def _fit(self, x, y, weight):
        super()._fit(x, y, weight)
        y[:] = True


class IsNeither(DropPredictor):
    def _fit(self, x, y, weight): ...
    def _probability(self, x): ...
"""
)
TARGET = """
from foretail.export.onnx.target import Onnx


class Table(Onnx):
    name = "my_table"


class Other(Onnx):
    name = "another"


class Fails(Onnx):
    name = "fails"

    def render(self, lowered, prefix, max_cells):
        raise KeyError("queue")
"""
DEMAND = """
from dataclasses import dataclass

import numpy as np

from foretail.models.demand.predictor import DemandPredictor
from foretail.core.settings import setting


@dataclass(eq=False)
class Twice(DemandPredictor):
    factor: float = setting(2.0, at_least=0)

    def _fit(self, runs): ...

    def _predict(self, history):
        return self.factor * history[-1] if self.factor < 9 else history[-1] * np.nan
"""


def package(folder: Path, entry_points: str, **modules: str) -> None:
    """Install a package as pip does: modules, and the metadata that name its entry points."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    about = folder / "guest-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)


def foretail(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where the packages of `folder` are installed."""
    return subprocess.run(
        [sys.executable, "-m", "foretail.pipelines.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("traces")
    paths = [str(write_bursts(folder / f"trace-{seed}", seed).path) for seed in (1, 2, 3)]
    return f"datasets=[{','.join(paths)}]"


def train(folder: Path, traces: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    fixed = ["tracking.enabled=false", "operating_point.region=whole", "allow_constant_features=true"]
    return foretail(folder, "train", *overrides, traces, *SIDES, *fixed, "hydra.run.dir=run")


def result(folder: Path) -> dict[str, Any]:
    return result_in(folder / "run")


def test_an_installed_predictor_is_an_option_with_its_parameters(tmp_path: Path, traces: str) -> None:
    package(tmp_path, "[foretail.predictors]\nmy_stump = stump:Stump\n", stump=STUMP)
    done = train(tmp_path, traces, "predictor=my_stump", "predictor.trees=3")
    assert done.returncode == 0, done.stderr
    assert result(tmp_path)["parameters"] == {"trees": 3}

    for wrong, *complaints in (
        (
            "predictor.trees=65",
            "predictor.trees = 65 is out of range: it must be a whole number, at least 1, at most 64",
        ),
        ("predictor=my_stum", "predictor=my_stum is unknown: choose from boosted_forest", "my_stump"),
    ):
        assert_one_sentence(train(tmp_path, traces, "predictor=my_stump", wrong), *complaints)


@pytest.mark.nightly
def test_another_source_is_another_predictor(tmp_path: Path, traces: str) -> None:
    package(tmp_path, "[foretail.predictors]\nmy_stump = stump:Stump\n", stump=STUMP)
    assert train(tmp_path, traces, "predictor=my_stump", "predictor.trees=3").returncode == 0
    again = train(tmp_path, traces, "predictor=my_stump", "predictor.trees=3")
    assert again.returncode == 0
    assert result(tmp_path)["reused"] is True
    (tmp_path / "stump.py").write_text(STUMP.replace("depth=1", "depth=2"))
    changed = train(tmp_path, traces, "predictor=my_stump", "predictor.trees=3")
    assert changed.returncode == 0
    assert result(tmp_path)["reused"] is False, "another source is another predictor"


def test_a_package_that_ends_its_import_is_one_sentence(tmp_path: Path, traces: str) -> None:
    package(tmp_path, "[foretail.predictors]\nbad = stump:Stump\n", stump="import sys\n\nsys.exit(0)\n")
    assert_one_sentence(train(tmp_path, traces, "predictor=bad"), "cannot be loaded: SystemExit: 0")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("Raises", "the plug-in stump.Raises fails in fit: RuntimeError: no licence"),
        ("Exits", "the plug-in stump.Exits fails in fit: SystemExit: 0"),
        ("KnowsMore", "where its probability gives 0.75: let to_ensemble say what the model decides"),
        ("Writes", "the plug-in stump.Writes breaks a rule: fit must not change the labels"),
        ("IsNeither", "the plug-in stump.IsNeither is neither trees nor a network"),
        ("Nothing", "cannot be loaded"),
    ],
)
def test_what_a_predictor_does_wrong_is_one_sentence(tmp_path: Path, traces: str, kind: str, complaint: str) -> None:
    package(tmp_path, f"[foretail.predictors]\nbad = stump:{kind}\n", stump=STUMP)
    assert_one_sentence(train(tmp_path, traces, "predictor=bad"), complaint)
    if kind == "Raises":
        done = train(tmp_path, traces, "predictor=bad", "--debug")
        assert 'raise RuntimeError("no licence")' in done.stderr


@pytest.mark.parametrize(
    ("entry_points", "complaint"),
    [
        (
            "random_forest = stump:Stump",
            "the package guest offers random_forest in foretail.predictors, which Foretail",
        ),
        ("My-Stump = stump:Stump", "the package guest offers 'My-Stump' in foretail.predictors, which is not a name"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, traces: str, entry_points: str, complaint: str) -> None:
    package(tmp_path, f"[foretail.predictors]\n{entry_points}\n", stump=STUMP)
    assert_one_sentence(train(tmp_path, traces, "predictor=mlp"), complaint)


def test_two_packages_with_one_name_are_refused(tmp_path: Path, traces: str) -> None:
    package(tmp_path, "[foretail.predictors]\nmine = stump:Stump\n", stump=STUMP)
    (tmp_path / "guest-1.0.dist-info").rename(tmp_path / "other-1.0.dist-info")
    (tmp_path / "other-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    package(tmp_path, "[foretail.predictors]\nmine = stump:Raises\n", stump=STUMP)
    assert_one_sentence(train(tmp_path, traces, "predictor=mine"), "both offer mine in foretail.predictors")


@pytest.mark.nightly
def test_a_target_is_an_option_of_export(tmp_path: Path) -> None:
    offered = (
        "[foretail.targets]\nmy_table = table:Table\nfails = table:Fails\nwrong = table:Other\nnone = table:Nothing\n"
    )
    package(tmp_path, offered, table=TARGET)
    paper_forest(trees=2, depth=2).ensemble.save(tmp_path / "model.json")
    export = ("export", "model=model.json", "hydra.run.dir=run")
    done = foretail(tmp_path, *export, "target=my_table")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run/my_table/certificate.json").read_text())["target"] == "my_table"
    for target, complaint in (
        ("fails", "the plug-in table.Fails fails in render: KeyError: 'queue'"),
        ("wrong", "wrong of the package guest is not a Target of that name"),
        ("none", "none of the package guest cannot be loaded from table:Nothing"),
        ("p5", "target = p5 is unknown: choose from c, p4, onnx, sonic, fails, my_table, none, wrong"),
    ):
        assert_one_sentence(foretail(tmp_path, *export, f"target={target}"), complaint)


@pytest.mark.nightly
def test_a_demand_predictor_is_an_option_and_travels_in_its_file(tmp_path: Path) -> None:
    package(tmp_path, "[foretail.demand_predictors]\ntwice = twice:Twice\n", twice=DEMAND)
    tiny = ["nodes=4", "degree=2", "steps=12", "warm_up=6", "trusts=[2,4]", "tracking.enabled=false"]
    command = ["demand", "demand_predictor=[twice]", *tiny, "hydra.run.dir=run"]
    done = foretail(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "run/predictors").rglob("twice.json")
    assert json.loads(file.read_text())["parameters"] == {"factor": 2.0}
    assert_one_sentence(foretail(tmp_path, "export", f"model={file}"), "the demand predictor twice has no target")
    wrong = foretail(tmp_path, *command, "demand_predictor.twice.factor=9")
    assert_one_sentence(wrong, "the plug-in twice.Twice breaks a rule: predict must be finite, not nan")
    assert wrong.returncode == cli.EXIT_BAD_INPUT


@pytest.mark.nightly
def test_a_workload_is_collected_by_its_name(tmp_path: Path) -> None:
    package(tmp_path, "[foretail.workloads]\nsteady = steady:Steady\n", steady=of_page("Steady"))
    slots = ("slotted.ports=4", "slotted.buffer_per_port=5", "slotted.slots=200", "hydra.run.dir=run")
    collect = ("collect", "source=slotted", "slotted.workload=steady", *slots)
    done = foretail(tmp_path, *collect, "slotted.settings={far: 2}")
    assert done.returncode == 0, done.stderr
    (manifest,) = (tmp_path / "outputs/store").rglob("manifest.json")
    assert json.loads(manifest.read_text())["scenario"]["workload"] == {"name": "steady", "far": 2}
    wrong = foretail(tmp_path, *collect, "slotted.settings={far: 9}")
    assert_one_sentence(wrong, "the plug-in steady.Steady breaks a rule: port must be in [0, 4), not [9]")
    unknown = foretail(tmp_path, *collect, "slotted.workload=stedy")
    assert_one_sentence(unknown, "workload stedy is unknown: choose from poisson_bursts", "steady")


@pytest.mark.nightly
def test_a_scheduler_is_an_option_with_its_settings(tmp_path: Path) -> None:
    shifts = of_page("Shifts").replace("shift =", "assert self.step != 9, 'no licence'\n        shift =")
    package(tmp_path, "[foretail.schedulers]\nshifts = shifts:Shifts\n", shifts=shifts)
    np.save(tmp_path / "demand.npy", ring(6, 2).demand)
    schedule = ("schedule", "demand=demand.npy", "degree=2", "scheduler=shifts", "hydra.run.dir=run")
    done = foretail(tmp_path, *schedule, "scheduler_settings={step: 1}", "outputs=[json,c,p4]")
    assert done.returncode == 0, done.stderr
    found = result(tmp_path)
    assert (found["scheduler"], found["k"], found["period_slots"]) == ("shifts", None, 1)
    assert found["theta_single_hop"] == 0.5, "one of the two uplinks carries the ring"
    for overrides, complaint in (
        (("scheduler_settings={step: 6}",), "the plug-in shifts.Shifts breaks a rule: a schedule sends to a node"),
        (("scheduler_settings={step: 9}",), "the plug-in shifts.Shifts fails in matchings: AssertionError: no licence"),
        (("k=3",), "k means nothing to scheduler=shifts"),
        (
            ("scheduler=shift",),
            "scheduler = shift is unknown: choose from vermilion, round_robin, mars, expander, opera, shifts",
        ),
    ):
        assert_one_sentence(foretail(tmp_path, *schedule, *overrides), complaint)


@pytest.mark.nightly
def test_a_threshold_rule_is_an_option_with_its_settings(tmp_path: Path, traces: str) -> None:
    package(tmp_path, "[foretail.threshold_rules]\nprecise = precise:Precise\n", precise=of_page("Precise"))
    chosen = {}
    for precision in (0.2, 1.0):
        maximise = ("operating_point.maximise=precise", f"operating_point.settings={{precision: {precision}}}")
        done = train(tmp_path, traces, "predictor=random_forest", *maximise)
        assert done.returncode == 0, done.stderr
        chosen[precision] = result(tmp_path)["threshold_probability"]
    assert chosen[0.2] < chosen[1.0], "who may be wrong more often predicts more drops"
    again = train(tmp_path, traces, "predictor=random_forest", *maximise)
    assert again.returncode == 0
    assert result(tmp_path)["reused"] is True
    (tmp_path / "precise.py").write_text(of_page("Precise") + "\n# of another version\n")
    assert train(tmp_path, traces, "predictor=random_forest", *maximise).returncode == 0
    assert result(tmp_path)["reused"] is False, "another source is another rule"
    for overrides, complaint in (
        (("operating_point.maximise=precis",), "operating_point.maximise = precis is unknown: choose from f1"),
        (("operating_point.settings={beta: 2}",), "operating_point.settings means nothing to operating_point.maximise"),
    ):
        assert_one_sentence(train(tmp_path, traces, *overrides), complaint)
