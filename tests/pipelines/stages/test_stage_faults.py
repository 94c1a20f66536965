"""Missing or wrong inputs, missing tools, Ctrl-C: one sentence, the exit code, no output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from foretail.features.catalog import feature
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines import cli
from tests.composed import SIDES, foretail
from tests.forests import stump
from tests.traces import write_bursts

pytestmark = pytest.mark.slow


def assert_one_sentence(done: subprocess.CompletedProcess[str], *complaints: str) -> None:
    assert done.returncode == cli.EXIT_BAD_INPUT, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].endswith(".")
    for complaint in complaints:
        assert complaint in lines[0]


def files_below(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    assert_one_sentence(foretail(tmp_path, "train", "datasets=[nowhere]", *SIDES), "nowhere is not a dataset")
    assert files_below(tmp_path) == []


def test_settings_that_are_too_large(tmp_path: Path) -> None:
    (tmp_path / "conf" / "predictor").mkdir(parents=True)
    (tmp_path / "conf/predictor/mine.yaml").write_text(f"a: {'x' * 1_000_000}\n")
    done = foretail(tmp_path, "train", "--config-dir=conf", "predictor=mine")
    assert_one_sentence(done, "conf/predictor/mine.yaml has more than 1,000,000 bytes: name a file of settings")


def test_texts_from_outside_move_no_cursor(tmp_path: Path) -> None:
    name = "a\x1b[31m\x9b2J\u202eb"
    (tmp_path / f"{name}.csv").write_text("slot,port\n" + "0,0\n" * 2)
    done = foretail(tmp_path, "replay", f"arrivals='{name}.txt'", "ports=2", "buffer=4")
    assert_one_sentence(done, r"a\x1b[31m\x9b2J\u202eb.txt is neither .csv")
    done = foretail(
        tmp_path, "replay", f"arrivals='{name}.csv'", "ports=2", "buffer=4", "policies=[dt]", f"hydra.run.dir='{name}'"
    )
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\x9b", "\u202e"} & set(done.stdout + done.stderr)
    assert r"\x1b[31m\x9b2J\u202eb/result.json" in done.stdout


REPLAY = "replay arrivals=b.csv ports=4 buffer=12"
DEMAND = "demand nodes=4 degree=2 steps=12 warm_up=6 tracking=off"
STUDY = FeatureInput("incast", feature("incast").params(1, 5), 1)
NARROW, ODD = (FeatureInput("queue", f"cell_bytes={cell}", 24) for cell in (256, 100))
AVERAGES = [FeatureInput("queue_average", f"cell_bytes={cell},average_shift=15", 24) for cell in (1024, 100)]
MODELS = {"study": [STUDY], "mixed": [NARROW, AVERAGES[0]], "odd": [ODD, AVERAGES[1]]}
REFUSED = [
    ("replay arrivals=a.csv ports=4 buffer=12", "row 2 of a.csv (data rows count from 1) has port 4, outside 0 to 3"),
    (f"{REPLAY} predictions=column", "has no column prediction"),
    (f"{REPLAY} model=nowhere.json", "there is no model nowhere.json"),
    (f"{REPLAY} model=study.json", "reads feature incast, which slotted arrivals do not tell"),
    (f"{REPLAY} model=mixed.json", "has the arithmetic 'cell_bytes=256' where the others have 'cell_bytes=1024'"),
    (f"{REPLAY} model=odd.json", "cells of 100 bytes are no power of two"),
    ("replay datasets=[trace] model=odd.json", "the model reads feature queue with cell_bytes=100, and the dataset"),
    (f"{DEMAND} demand_predictor=[oracle]", "demand_predictor=oracle is unknown: choose from boosted_entr"),
    (f"{DEMAND} demand_predictor=[]", "the setting demand_predictor is missing"),
    (f"{DEMAND} +demand_predictor.seasonal.rank=2", "rank is unknown: seasonal takes period, longest"),
    ("demand nodes=1024 steps=1000000 tracking=off", "more than 134217728 numbers: cut it, or give steps=..."),
    ("demand nodes=4 degree=5 steps=12 warm_up=6 tracking=off", "give 1 to 4 uplinks"),
    ("demand nodes=4 degree=2 steps=12 warm_up=6 tracking.uri=sqlite:////proc/nowhere/mlflow.db", "/proc/nowhere"),
    ("schedule demand=demand.npy degree=2 k=3", "row 0 of the demand matrix sums to 3, more than the 2 uplinks"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("command", "complaint"), REFUSED)
def test_what_only_a_run_can_refuse_gets_one_sentence_and_leaves_nothing(
    tmp_path: Path, command: str, complaint: str
) -> None:
    (tmp_path / "a.csv").write_text("slot,port\n0,1\n0,4\n")
    (tmp_path / "b.csv").write_text("slot,port\n0,1\n0,1\n")
    np.save(tmp_path / "demand.npy", np.array([[0.0, 3.0], [1.0, 0.0]]))
    write_bursts(tmp_path / "trace", 1)
    for name, inputs in MODELS.items():
        trees = [stump((0.0, 1.0), cut=0, feature=number) for number in range(len(inputs))]
        Ensemble(tuple(inputs), tuple(trees), Fraction(1, 2)).save(tmp_path / f"{name}.json")
    before = files_below(tmp_path)
    assert_one_sentence(foretail(tmp_path, *command.split()), complaint)
    assert files_below(tmp_path) == before


@pytest.mark.ns3
def test_no_cpp_compiler(tmp_path: Path) -> None:
    policy = tmp_path / "my_rule.hpp"
    policy.write_text("struct MyRule {};\n", encoding="utf-8")
    command = [sys.executable, "-m", "foretail.pipelines.cli", "collect", "scenario=tiny", f"policy={policy}:MyRule"]
    environment = {**os.environ, "CXX": "no-such-c++", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert_one_sentence(done, "no-such-c++")
    assert files_below(tmp_path) == ["my_rule.hpp"]


@pytest.mark.nightly
@pytest.mark.ns3
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, cli.EXIT_INTERRUPTED), (signal.SIGTERM, cli.EXIT_TERMINATED)]
)
def test_a_stopped_run_leaves_nothing(tmp_path: Path, how: signal.Signals, code: int) -> None:
    long_run = ["collect", "scenario.traffic_ns=10_000_000_000", "seeds=[1,2]", "jobs=2"]
    with subprocess.Popen(
        [sys.executable, "-m", "foretail.pipelines.cli", *long_run], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.rglob("settings.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(list(tmp_path.rglob("settings.json"))) == 2
        process.send_signal(how)
        _, said = process.communicate(timeout=30)
    assert process.returncode == code
    assert said.splitlines()[-1] == "foretail: interrupted; only what is complete is kept."
    assert "Traceback" not in said
    assert files_below(tmp_path) == []
