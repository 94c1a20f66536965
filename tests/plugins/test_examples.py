"""The examples as their readers meet them: Foretail's wheel and the guests installed outside the repository.

The nightly tests cost a wheel, which compiles the native module, and a build of each guest; the check of CatBoost
in ``make test`` takes seconds. What guests need comes from the environment of the tests: nothing is downloaded here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.composed import result_in
from tests.docs.pages import commands_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PACKAGES = ("catboost_predictor", "lightgbm_predictor", "sql_target")
CONTRACTS = """
from foretail.testing import check_policy, check_predictor, check_target
from lightgbm_predictor import LightGbm
from sql_target import Sql

check_predictor(LightGbm)
check_predictor(LightGbm(trees=30, leaves=31))
check_target(Sql)
check_policy("half_and_half.hpp:HalfAndHalf")
"""
EXACT = """
import numpy as np
from catboost_predictor import CatBoost
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.testing import check_predictor

check_predictor(CatBoost)
check_predictor(CatBoost(trees=30, depth=6))
for seed in range(12):
    draw = np.random.default_rng(seed)
    columns, bits = int(draw.integers(1, 6)), int(draw.integers(2, 24))
    x = draw.integers(0, 1 << bits, (2000, columns)).astype(np.int32)
    y = draw.random(2000) < np.where(x[:, 0] > np.median(x[:, 0]), 0.8, 0.1)
    trained = CatBoost(trees=int(draw.integers(1, 40)), depth=int(draw.integers(1, 8)), seed=seed).fit(x, y)
    ensemble = trained.to_ensemble([FeatureInput(f"f{number}", "", 24) for number in range(columns)])
    unseen = np.concatenate([draw.integers(0, 1 << 24, (4000, columns)), x, x + 1]).astype(np.int32)
    logit = trained.model_.predict(unseen.astype(np.float32), prediction_type="RawFormulaVal", thread_count=1)
    assert np.array_equal(ensemble.float_sum(unseen), logit), seed
    assert np.array_equal(ensemble.exceeds(unseen), logit > 0), seed
print("exact")
"""
SLOTS = ("slotted.ports=8", "slotted.buffer_per_port=10", "slotted.slots=1500")
SPLIT = ("split.train=[1]", "split.validation=[2]", "split.test=[3]", "operating_point.region=whole")

needs_catboost = pytest.mark.skipif(
    importlib.util.find_spec("catboost") is None, reason="no catboost: `make setup` installs it"
)
pytestmark = pytest.mark.slow


class Guest:
    """A virtual environment of its own, with what the tests run in for everything but Foretail and the guests."""

    def __init__(self, folder: Path) -> None:
        self.folder, environment = folder, folder / "environment"
        venv.create(environment, with_pip=False, symlinks=True)
        self.programs = environment / "bin"
        site = sysconfig.get_path("purelib", "venv", {"base": str(environment)})
        (Path(site) / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, *command: str | Path) -> str:
        """Run a program of the environment in its folder; what it prints."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if name not in hidden}
        done = subprocess.run(
            [self.programs / command[0], *command[1:]],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, *what: str | Path) -> None:
        """Install without dependencies, which are there, and without a network."""
        _pip("--python", self.programs / "python", "install", "--no-index", *what)


def _pip(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", *words, "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    folder = tmp_path_factory.mktemp("outside")
    _pip("wheel", "--wheel-dir", folder / "wheels", ROOT)
    found = Guest(folder)
    for package in PACKAGES:  # a build writes beside the sources
        shutil.copytree(EXAMPLES / package, folder / "sources" / package)
    found.install(*(folder / "wheels").iterdir(), *(folder / "sources" / package for package in PACKAGES))
    shutil.copy(EXAMPLES / "policy_header" / "half_and_half.hpp", folder)
    return found


def result(guest: Guest, run: str) -> dict[str, object]:
    return result_in(guest.folder / run)


@pytest.mark.nightly
def test_foretail_comes_from_the_wheel_and_the_guests_keep_their_contracts(guest: Guest) -> None:
    (guest.folder / "contracts.py").write_text(CONTRACTS)
    guest.run("python", "contracts.py")
    where = "import foretail.sim_bridge._native as n, foretail.testing as t; print(n.__file__); print(t.__file__)"
    for path in guest.run("python", "-c", where).split():
        assert Path(path).is_relative_to(guest.folder)


@pytest.mark.nightly
def test_readme_s_first_predictor_runs_outside_the_checkout(guest: Guest) -> None:
    """The wheel of ``make wheel`` is in an environment that knows nothing of the repository."""
    words = [command.words for command in commands_of(ROOT / "README.md")]
    assert [stage for stage, *_ in words] == ["collect", "collect", "train", "replay", "export", "choose"]
    said = [guest.run("foretail", *command) for command in words]
    assert "DT, alpha" in said[3]
    assert "the sample suffices" in " ".join(said[5].split())
    assert "certificate.json" in " ".join(path.name for path in guest.folder.rglob("p4/*.json"))


@needs_catboost
def test_catboost_keeps_its_contract_and_its_trees_are_the_model_to_the_last_bit(tmp_path: Path) -> None:
    (tmp_path / "exact.py").write_text(EXACT)
    variables = {**os.environ, "PYTHONPATH": str(EXAMPLES / "catboost_predictor")}
    command = [sys.executable, "exact.py"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "exact"


@pytest.mark.nightly
def test_a_guest_predictor_goes_the_whole_way_and_leaves_by_a_guest_target(guest: Guest) -> None:
    guest.run("foretail", "collect", "source=slotted", *SLOTS, "seeds=[1,2,3]", "hydra.run.dir=traces")
    train = ("train", "datasets=[traces]", *SPLIT, "features=switch", "allow_constant_features=true")
    said = guest.run("foretail", *train, "predictor=lightgbm", "predictor.leaves=6", "hydra.run.dir=run")
    assert "Scores" in said
    trained = result(guest, "run")
    assert isinstance(trained["parameters"], dict)
    assert trained["parameters"]["leaves"] == 6
    for target in ("sql", "c"):
        guest.run("foretail", "export", "model=run", f"target={target}", f"hydra.run.dir=exported_{target}")
        certificate = json.loads((guest.folder / f"exported_{target}/{target}/certificate.json").read_text())
        assert certificate["target"] == target
    query = (guest.folder / "exported_sql/sql/drop_predictor.sql").read_text()
    assert query.startswith("SELECT CASE WHEN ")


@pytest.mark.parametrize("example", [*PACKAGES, "policy_header", "torch_predictor"])
def test_every_example_says_what_it_is_in_a_few_lines(example: str) -> None:
    text = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    assert 5 <= len(text.splitlines()) <= 20
    assert all(len(line) <= 120 for line in text.splitlines())
