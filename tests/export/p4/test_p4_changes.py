"""The P4 target: every change of what was written is caught by the proof, or has no effect on any input."""

from __future__ import annotations

import re

import numpy as np
import pytest

from foretail.export.folder import encoded
from foretail.export.p4.target import P4
from foretail.export.proof import ProofError
from foretail.export.target import prove_files
from tests.export.p4.p4_texts import by_boxes, everything, read_back, score_of, small_ensemble, texts_of
from tests.export.p4.slow_p4 import run_slowly

pytestmark = pytest.mark.slow

NUMBER = re.compile(r"(?<![\w.])(\d+w)?(0x[0-9a-f]+|\d+)\b")


def mutations(text: str) -> list[str]:
    """Every number changed by one, up and down; every line dropped; every two neighbouring lines swapped."""
    start = text.index("control DropPredictor")
    found = []
    for match in NUMBER.finditer(text, start):
        base = 16 if match[2].startswith("0x") else 10
        for step in (1, -1):
            value = int(match[2], base) + step
            if value >= 0:
                number = f"{value:#x}" if base == 16 else str(value)
                found.append(text[: match.start(2)] + number + text[match.end(2) :])
    lines = text.splitlines(keepends=True)
    first = text[:start].count("\n")
    for i in range(first, len(lines) - 1):
        found.append("".join([*lines[:i], *lines[i + 1 :]]))
        found.append("".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]))
    return [changed for changed in found if changed != text]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("encoding", "decision", "profile", "stumps"),
    [
        ("range", "leaf_rows", "v1model", 1),
        ("ternary", "product", "v1model", 1),
        ("ternary", "leaf_rows", "tofino", 1),
        ("ternary", "leaf_rows", "tofino", 8),  # the ninth tree adds to the first one's vote
        ("ternary", "groups", "tofino", 3),
    ],
)
def test_every_change_of_the_text_is_caught_or_has_no_effect(
    encoding: str, decision: str, profile: str, stumps: int
) -> None:
    ensemble = small_ensemble(stumps)
    texts = texts_of(ensemble, encoding, decision, profile=profile)
    inputs = everything(ensemble)
    expected = ensemble.score(inputs)
    harmless = 0
    changed_texts = mutations(texts["p.p4"])
    for changed in changed_texts:
        try:
            prove_files(ensemble, P4(), encoded({**texts, "p.p4": changed}))
        except ProofError:
            continue
        harmless += 1  # proven equal: then it must be, read one input at a time
        for x, score_there in zip(inputs, expected.tolist(), strict=True):
            found = run_slowly(changed, {"f_queue": int(x[0]), "f_table": int(x[1])})
            assert found == (score_there, score_there > (ensemble.default_tau or 0)), changed
    assert 0 < harmless < len(changed_texts) / 3


@pytest.mark.parametrize("profile", ["v1model", "tofino"])
def test_every_change_of_the_text_is_caught_by_boxes_too(profile: str) -> None:
    ensemble = small_ensemble()
    texts, inputs = texts_of(ensemble, "ternary", "leaf_rows", profile=profile), everything(ensemble)
    caught = 0
    for changed in mutations(texts["p.p4"]):
        try:
            scores = score_of(ensemble, {**texts, "p.p4": changed}).score(inputs)
        except ProofError:
            continue
        try:
            by_boxes(ensemble, read_back(ensemble, {**texts, "p.p4": changed}))
        except ProofError:
            caught += 1
            continue
        assert np.array_equal(scores, ensemble.score(inputs))
    assert caught > 20


def test_every_change_of_the_entries_is_caught_or_has_no_effect() -> None:
    ensemble = small_ensemble()
    texts = texts_of(ensemble, "range", "leaf_rows", "runtime")
    const = texts_of(ensemble, "range", "leaf_rows")
    rows = texts["p.commands.txt"].splitlines(keepends=True)
    for i in range(len(rows)):
        for kept in (rows[:i] + rows[i + 1 :], [*rows[:i], rows[i].replace("0x", "0x1"), *rows[i + 1 :]]):
            with pytest.raises(ProofError):
                prove_files(ensemble, P4(), encoded({**texts, "p.commands.txt": "".join(kept)}))
    updates = texts["p.entries.txtpb"]
    for match in re.finditer(r"\\x[0-9a-f]{2}|priority: \d+|_id: \d+", updates):
        changed = match[0][:-1] + ("0" if match[0][-1] != "0" else "1")
        whole = updates[: match.start()] + changed + updates[match.end() :]
        with pytest.raises(ProofError):
            prove_files(ensemble, P4(), encoded({**texts, "p.entries.txtpb": whole}))
    orders = {prove_files(ensemble, P4(), encoded(whole))[0].order for whole in (texts, const)}
    assert len(orders) == 1


def test_every_change_of_the_entries_for_tofino_is_caught() -> None:
    ensemble = small_ensemble()
    texts = texts_of(ensemble, "auto", "leaf_rows", "runtime", "tofino")
    target = P4(profile="tofino")
    prove_files(ensemble, target, encoded(texts))
    of_updates = re.finditer(r"\\x[0-9a-f]{2}|priority: \d+|_id: \d+", texts["p.entries.txtpb"])
    changes = [("p.entries.txtpb", match) for match in of_updates]
    changes += [("p.bfrt.json", match) for match in re.finditer(r"\d|[a-z]+_?\d*|[{\[]", texts["p.bfrt.json"])]
    for file, match in changes:
        changed = match[0][:-1] + ("0" if match[0][-1] != "0" else "1")
        whole = texts[file][: match.start()] + changed + texts[file][match.end() :]
        with pytest.raises(ProofError):  # the two files no longer agree
            prove_files(ensemble, target, encoded({**texts, file: whole}))
    for wrong in ("", "3", "[3]", "null", "[{}]", "[" * 5000, texts["p.bfrt.json"] + "x"):
        with pytest.raises(ProofError):
            prove_files(ensemble, target, encoded({**texts, "p.bfrt.json": wrong}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("in bit<24> f_queue", "inout bit<24> f_queue"),
        ("in bit<24> f_queue", "in bit<04> f_queue"),
        ("in bit<24> f_queue", f"in bit<{'9' * 5000}> f_queue"),
        ("score = v_0", "score = 8w0 ++ v_0"),
        ("apply {\n", "apply {\n        exit;\n"),
        ("const default_action = code_queue", "// const default_action = code_queue"),
        ("default_action = set_tau", "default_action = code_queue"),
        ("t_queue.apply();", "t_queue.apply(); t_queue.apply();"),
        ("#ifndef P_P4", "#ifndef score"),
        ("#endif", "#endif\ncontrol More() { apply { } }"),
        ("if (score > tau)", "if (tau > score)"),
        (": range;", ": optional;"),
        ("f_queue[2:0]", "f_queue[3:1]"),
        ("#define P_P4", "#define P_P4 1"),
        ("#ifndef P_P4\n#define P_P4\n", "#define P_P4\n#ifndef P_P4\n"),
        ("    apply {\n", "    // \\\n    apply {\n"),
        ("    apply {\n", "#if 0\n    apply {\n"),
    ],
)
def test_other_p4_is_refused(old: str, new: str) -> None:
    texts = texts_of(small_ensemble(), "range", "leaf_rows")
    assert old in texts["p.p4"]
    with pytest.raises(ProofError):
        score_of(small_ensemble(), {**texts, "p.p4": texts["p.p4"].replace(old, new, 1)})
