"""The cache of what is compiled on the user's machine, and policies in Python."""

from __future__ import annotations

import copy
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge.builds import cached, is_cached
from foretail.sim_bridge.python_policies import PythonPolicy


def test_of_several_that_miss_the_same_file_one_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    together, built = threading.Barrier(4), []

    def build(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.3)  # long enough for the others to miss the file
        (folder / "program").write_text("built")

    def job(_: int) -> Path:
        together.wait(60)
        return cached("programs", "program", ["sources"], build)

    with ThreadPoolExecutor(4) as jobs:
        found = list(jobs.map(job, range(4)))
    assert len(built) == 1
    assert {path.read_text() for path in found} == {"built"}


def test_a_build_that_fails_leaves_nothing_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "program").write_text("half")
        raise ValueError("no compiler")

    for _ in range(2):
        with pytest.raises(ValueError, match="no compiler"):
            cached("programs", "program", ["sources"], fail)
        assert not is_cached("programs", "program", ["sources"])
    place = cached("programs", "program", ["sources"], lambda folder: (folder / "program").touch())
    assert place.is_file()
    assert is_cached("programs", "program", ["sources"])


def test_a_function_of_a_file_reads_its_features(tmp_path: Path) -> None:
    file = tmp_path / "half.py"
    file.write_text("FEATURES = ['fill', 'queue']\ndef decide(rows):\n    return rows[:, 0] > 127\n")
    policy = PythonPolicy.of(f"{file}:decide")
    assert policy is not None
    assert (policy.name, policy.features) == ("half.py:decide", ("fill", "queue"))
    again = copy.copy(policy)  # as another process gets it
    assert again == policy
    assert again.decide(np.array([[127, 0], [128, 0]])).tolist() == [False, True]
    before = policy.sha256
    file.write_text(file.read_text().replace("127", "128"))
    assert PythonPolicy(file, "decide").sha256 != before


@pytest.mark.parametrize("name", ["dt_alpha_8", "rule.hpp:Rule", "models:/foretail-drop@x", "half.py", "x.py:a:b"])
def test_other_names_are_of_others(name: str) -> None:
    assert PythonPolicy.of(name) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, r"the policy .*rule\.py cannot be read \(No such file or directory\): name a file"),
        ("FEATURES = ('fill',)\n", r"rule\.py has no decide: define it"),
        ("FEATURES = ('fill',)\ndecide = 3\n", r"rule\.py:decide is no function: give one that"),
        ("def decide(rows): ...\n", r"rule\.py has no FEATURES: name what the policy sees"),
        ("FEATURES = 'fill'\ndef decide(rows): ...\n", r"FEATURES of rule\.py are 'fill': give a tuple of names"),
        ("FEATURES = 7\ndef decide(rows): ...\n", r"FEATURES of rule\.py are 7: give a tuple of names"),
        ("FEATURES = ('nothing',)\ndef decide(rows): ...\n", "unknown feature 'nothing': choose from"),
        ("FEATURES = ()\ndef decide(rows): ...\n", "no features chosen"),
        ("import no_such_module\n", r"rule\.py fails \(ModuleNotFoundError: No module named 'no_such_module'\): make"),
        ("def decide(rows\n", r"rule\.py fails \(SyntaxError: .*\): make it run with this Python"),
        ("raise SystemExit(0)\n", r"rule\.py fails \(SystemExit: 0\): make it run"),
        ("class Stop(BaseException): ...\nraise Stop('now')\n", r"rule\.py fails \(Stop: now\): make it run"),
        ("class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute\n", r"rule\.py fails \(Mute\): "),
    ],
)
def test_every_fault_is_one_sentence(text: str | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ForetailError, match=words):
        PythonPolicy.of(f"{file}:decide")


def test_a_fresh_policy_shares_nothing_with_another(tmp_path: Path) -> None:
    file = tmp_path / "drawn.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport numpy as np\n"
        "FEATURES = ('fill',)\n@dataclass\nclass Drops:\n    share: float\n"
        "DROPS, DRAW = Drops(0.5), np.random.default_rng(1)\n"
        "def decide(rows):\n    return DRAW.random(len(rows)) < DROPS.share\n"
    )
    policy = PythonPolicy.of(f"{file}:decide")
    assert policy is not None
    rows = np.zeros((20, 1), np.int32)
    first = [policy.fresh().decide(rows).tolist() for _ in range(2)]
    assert first[0] == first[1]
    own = policy.decide(rows).tolist()
    assert own == first[0]
    assert policy.decide(rows).tolist() != own


def test_files_that_a_policy_opens_below_its_folder_are_part_of_its_hash(tmp_path: Path) -> None:
    file, data, other = tmp_path / "weighed.py", tmp_path / "data" / "weights.npy", tmp_path / "other.txt"
    data.parent.mkdir()
    np.save(data, np.array([100]))
    other.write_text("not read")
    (tmp_path / "helper.py").write_text("LIMIT = 1\n")
    text = (
        "from pathlib import Path\nimport sys\nimport numpy as np\nsys.path.insert(0, str(Path(__file__).parent))\n"
        "import helper\nsys.path.pop(0)\nsys.modules.pop('helper')\n"
        "WEIGHTS = np.load(Path(__file__).parent / 'data' / 'weights.npy')\nFEATURES = ('fill',)\n"
        "def decide(rows):\n    return rows[:, 0] > WEIGHTS[0]\n"
    )
    file.write_text(text)

    def judged() -> tuple[str, list[bool]]:
        policy = PythonPolicy.of(f"{file}:decide")
        assert policy is not None
        return policy.sha256, policy.decide(np.array([[50], [150]], np.int32)).tolist()

    first = judged()
    assert judged() == first
    other.write_text("changed")
    assert judged() == first
    np.save(data, np.array([10]))
    changed = judged()
    assert (changed[0] != first[0], changed[1]) == (True, [True, True])
    (tmp_path / "helper.py").write_text("LIMIT = 22222\n")
    assert judged()[0] != changed[0]
    file.write_text(text.replace("WEIGHTS = ", "def weights(): return ").replace("WEIGHTS[0]", "weights()[0]"))
    with pytest.raises(ForetailError, match=r"opens weights.npy while it decides, so that a stored result would not"):
        judged()
    file.write_text("FEATURES = ('fill',)\ndef decide(rows):\n    return rows[:, 0] > 9\n")
    assert judged()[0] == hashlib.sha256(file.read_bytes()).hexdigest()
