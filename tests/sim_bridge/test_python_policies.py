"""Policies in Python: what a file has to say, and sentences about every fault. Under a second."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge.python_policies import PythonPolicy


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
