"""The P4 target: what is written is proven, what is changed is caught, and what does not fit is refused."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.folder import encoded
from foretail.export.p4.encoding import DECISIONS, Encoding, groups, leaf_rows, score_bits, sum_part
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import TNA, V1MODEL, load_profile
from foretail.export.p4.rows import KINDS, Intervals, Kind, Row, Rows, intervals_of, range_prefixes, rows_of
from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.proof import ProofError
from foretail.export.target import ExportResult, export, prove_files
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble
from tests.examples import draws
from tests.export.p4.p4_texts import by_boxes, everything, read_back, score_of, small_ensemble, texts_of
from tests.export.p4.slow_p4 import run_slowly
from tests.forests import Trained, forests, paper_forest, stump, stumps

ENTRIES = ("const", "runtime")
FILES = {"drop_predictor.p4", "drop_predictor_main.p4", "report.json", "certificate.json", "ensemble.json"}
RUNTIME_FILES = {"drop_predictor.commands.txt", "drop_predictor.entries.txtpb"}


@pytest.fixture(scope="module")
def trained() -> Trained:
    return paper_forest()


@pytest.fixture(scope="module")
def lowered(trained: Trained) -> Ensemble:
    return lower(trained.ensemble).ensemble


@pytest.fixture(scope="module")
def exported(trained: Trained, lowered: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    folder = tmp_path_factory.mktemp("p4") / "out"
    return export(trained.ensemble, P4(entries="runtime"), folder)


@settings(max_examples=draws(25))
@given(
    trained=forests(),
    decision=st.sampled_from(DECISIONS),
    encoding=st.sampled_from(("auto", *KINDS)),
    entries=st.sampled_from(ENTRIES),
    profile=st.sampled_from(("v1model", "tofino")),
)
def test_what_is_generated_from_any_forest_is_proven(
    trained: Trained, decision: str, encoding: str, entries: str, profile: str
) -> None:
    if profile == "tofino":
        encoding = encoding if encoding in TNA.kinds else "auto"
    lowered = lower(trained.ensemble)
    ensemble = lowered.ensemble
    texts = texts_of(ensemble, encoding, decision, entries, profile)
    certificate = prove_files(lowered, P4(), encoded(texts))[0]
    assert certificate.method == "cells"
    assert certificate.cells == Cells.of(ensemble).count, "the text adds no boundary"
    assert np.array_equal(score_of(ensemble, texts).score(trained.rows), ensemble.score(trained.rows))
    if decision == "leaf_rows":
        assert by_boxes(ensemble, read_back(ensemble, texts)).method == "boxes"


def test_an_ensemble_that_was_exported_is_proven_again_where_its_cells_are_too_many() -> None:
    # Only 53 bits tell 1/6 + 1/3 from 1/2, so that the vote of 1 is 2**53; no sum is near the threshold.
    ensemble = lower(stumps((0.0, 1 / 6), (0.0, 1 / 3), (0.0, 0.5), (0.0, 1.0), threshold=Fraction(5, 4))).ensemble
    assert ensemble.trees[3].votes is not None
    assert int(ensemble.trees[3].votes.max()) == 1 << 53
    certificate = by_boxes(ensemble, read_back(ensemble, texts_of(ensemble)))
    assert (certificate.method, certificate.votes_by, certificate.order) == ("boxes", "boxes", True)


@pytest.mark.parametrize(
    ("profile", "encoding"),
    [(name, kind) for name in ("v1model", "tofino", "tofino2") for kind in load_profile(name).architecture.kinds],
)
@pytest.mark.parametrize("decision", DECISIONS)
def test_the_text_means_the_model_read_one_input_at_a_time(decision: str, encoding: str, profile: str) -> None:
    ensemble = small_ensemble(3 if decision == "groups" else 1)
    text = texts_of(ensemble, encoding, decision, profile=profile)["p.p4"]
    for x, expected in zip(everything(ensemble), ensemble.score(everything(ensemble)).tolist(), strict=True):
        found = run_slowly(text, {"f_queue": int(x[0]), "f_table": int(x[1])})
        assert found == (expected, expected > (ensemble.default_tau or 0))


def test_inputs_above_the_declared_range_count_as_the_largest() -> None:
    narrow = small_ensemble()
    largest = np.array([[7, 7], [7, 3], [3, 7]])
    beyond = np.where(largest == 7, (1 << 24) - 1, largest)
    assert np.array_equal(score_of(narrow, texts_of(narrow)).score(beyond), narrow.score(largest))


def test_an_export_is_complete_and_consistent(exported: ExportResult, lowered: Ensemble, trained: Trained) -> None:
    folder = exported.folder
    assert {path.name for path in folder.iterdir()} == FILES | RUNTIME_FILES | {"digest.json"}
    certificate = json.loads((folder / "certificate.json").read_text())
    assert (certificate["target"], certificate["method"]) == ("p4", "cells")
    assert certificate["ir_sha256"] == lowered.sha256 == exported.ensemble.sha256
    assert certificate["model_sha256"] == trained.ensemble.sha256
    assert set(certificate["outputs"]) == {"drop_predictor.p4", "drop_predictor_main.p4"} | RUNTIME_FILES
    for name, digest in certificate["outputs"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    for path in folder.iterdir():
        assert path.suffix not in (".p4",) or path.read_text().startswith("// SPDX-License-Identifier: MIT-0\n")
        assert str(Path.cwd()) not in path.read_text()


def test_the_report_counts_what_is_in_the_text(exported: ExportResult, lowered: Ensemble) -> None:
    report = json.loads((exported.folder / "report.json").read_text())
    assert report == exported.report
    rows = {table["name"]: table["rows"] for table in report["tables"]}
    commands = [line.split()[1] for line in exported.file(".commands.txt").read_text().splitlines()]
    assert {name: commands.count(name) for name in rows} == rows
    assert len(exported.file(".entries.txtpb").read_text().splitlines()) == len(commands) == report["chosen"]["rows"]
    const = texts_of(lowered)["p.p4"]
    assert len(re.findall(r"^ {12}\S.* : \w+\(", const, re.MULTILINE)) == len(commands)
    for table in report["tables"]:
        if table["rows"]:
            ends = {"range": 2, "ternary": 1}[table["kind"]]
            assert table["tcam_bits"] == table["rows"] * ends * table["key_bits"]
            assert table["sram_bits"] == table["rows"] * table["data_bits"]
    for total in ("rows", "tcam_bits", "sram_bits"):
        assert report["chosen"][total] == sum(table[total] for table in report["tables"])
    assert report["chosen"]["longest_chain"] == 2
    assert report["chosen"]["fits"]


def test_tables_are_total_and_have_no_wildcard_ranges(lowered: Ensemble) -> None:
    for encoding, decision in product(KINDS, DECISIONS):
        text = texts_of(lowered, encoding, decision)["p.p4"]
        assert text.count("table ") - text.count("of table ") == text.count("default_action = ")
        assert "_ " not in re.sub(r"\w+_\w*", "", text), "don't care is miscompiled on ranges"


def test_the_plan_is_the_cheapest_that_fits(lowered: Ensemble) -> None:
    for profile in (load_profile("v1model"), load_profile("tofino")):
        chosen = plan(lowered, profile)
        assert not chosen.chosen.faults
        assert chosen.chosen.cost == min(c.cost for c in chosen.considered if not c.faults)
        assert {c.encoding.decision for c in chosen.considered} >= {"leaf_rows", "groups"}
        for encoding, decision in product(("auto", *profile.architecture.kinds), DECISIONS):
            assert plan(lowered, profile, encoding, decision).chosen.cost >= chosen.chosen.cost


def test_a_cheaper_plan_that_does_not_fit_is_passed_over(lowered: Ensemble) -> None:
    roomy = replace(load_profile("v1model"), tcam_blocks=1)
    first = plan(lowered, roomy)
    assert plan(lowered, replace(roomy, stages=first.chosen.stages)).chosen == first.chosen
    chosen = plan(lowered, replace(roomy, stages=first.chosen.stages - 1))
    assert chosen.chosen.stages < first.chosen.stages
    assert chosen.chosen.cost > first.chosen.cost
    assert "does not" in chosen.reason


def test_a_model_that_decides_nothing_has_no_rows(tmp_path: Path) -> None:
    base = stumps([0.0, 1.0])
    leaf = base.trees[0]
    single = type(leaf)(leaf.feature[1:2], leaf.cut[1:2], leaf.left[1:2], leaf.right[1:2], np.array([0.75]))
    ensemble = lower(Ensemble(base.features, (single, single), base.threshold)).ensemble
    found = export(ensemble, P4(), tmp_path / "out")
    assert found.report["chosen"]["rows"] == 0
    texts = {path.name: path.read_text() for path in found.folder.glob("*.p4")}
    scores = score_of(ensemble, texts, found.prefix).score(np.array([[0], [255]]))
    assert scores.tolist() == ensemble.score([[0]]).tolist() * 2


@pytest.mark.parametrize("profile", ["v1model", "tofino"])
def test_constant_trees_take_no_stages(profile: str) -> None:
    deep, flat = replace(small_ensemble().trees[0], votes=None), stump([0.5, 0.5], cut=2)
    stages = []
    for trees in ((deep,), (deep, flat), (deep, *[flat] * 20), (flat,) * 20):
        ensemble = lower(Ensemble(small_ensemble().features, trees, Fraction(1))).ensemble
        stages.append(plan(ensemble, load_profile(profile), decision="leaf_rows").chosen.stages)
        texts = texts_of(ensemble, decision="leaf_rows", profile=profile)
        assert by_boxes(ensemble, read_back(ensemble, texts)).method == "boxes"
    assert stages[1] == stages[2] == stages[0] + 1, "their sum is one term"
    assert stages[3] == 2, "tau is set, and compared"


@pytest.mark.parametrize("entries", ENTRIES)
def test_predictors_of_one_program_share_no_name_and_no_id(
    tmp_path: Path, entries: Literal["const", "runtime"]
) -> None:
    found = [
        export(small_ensemble(), P4(entries=entries, control=control), tmp_path / control, control.lower())
        for control in ("DropPredictor", "Elephants")
    ]
    ids = [set(re.findall(r"@id\((\w+)\)", one.file(".p4").read_text())) for one in found]
    assert ids[0].isdisjoint(ids[1])
    assert [len(of) for of in ids] == ([10, 10] if entries == "runtime" else [0, 0])
    text = found[1].file(".p4").read_text()
    assert "control Elephants(" in text
    assert "#ifndef ELEPHANTS_P4" in text
    with pytest.raises(ProofError, match="what the exporter does not write"):
        prove_files(
            small_ensemble(),
            P4(entries=entries),
            {p.name: p.read_bytes() for p in found[1].folder.glob("*.p4")}
            | {p.name: p.read_bytes() for p in found[1].folder.glob("*.txt*")},
        )


@pytest.mark.slow
def test_large_models_are_proven_by_boxes(tmp_path: Path) -> None:
    trained = paper_forest(trees=24, depth=6)
    ensemble = lower(trained.ensemble).ensemble
    assert Cells.of(ensemble).count > 2 * 10**7
    assert export(trained.ensemble, P4(decision="leaf_rows"), tmp_path / "rows").certificate.method == "boxes"
    with pytest.raises(ForetailError, match="too many cells to be proven"):
        export(ensemble, P4(decision="product"), tmp_path / "product")


def refused(tmp_path: Path, match: str, ensemble: Ensemble | None = None, **settings: str) -> None:
    with pytest.raises(ForetailError, match=match):
        export(ensemble or small_ensemble(), P4(**settings), tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_bad_settings_are_one_sentence_and_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="'a-b' cannot prefix names"):
        export(small_ensemble(), P4(), tmp_path / "out", "a-b")
    refused(tmp_path, "encoding is 'lpm': choose auto, range, ternary$", encoding="lpm")
    refused(tmp_path, "decision is 'bitvector': choose auto, leaf_rows, product, groups$", decision="bitvector")
    refused(tmp_path, "entries are 'none': choose const or runtime", entries="none")
    refused(tmp_path, "no P4 encoding 'range' for tna: choose auto, ternary$", encoding="range", profile="tofino")
    with pytest.raises(ForetailError, match="a run in BMv2 for v1model only, but the P4 profile tofino is for tna"):
        export(small_ensemble(), P4(bmv2=True, profile="tofino"), tmp_path / "out")
    refused(tmp_path, "'apply' cannot name a P4 control: use a capital letter", control="apply")
    for taken in ("V1Switch", "NoAction", "Register", "Prediction", "TAGGED"):
        refused(tmp_path, f"p4.control={taken} is a name of P4's libraries or of the programs around", control=taken)
    refused(tmp_path, "no P4 profile 'none': choose tofino or tofino2 or v1model", profile="none")
    with pytest.raises(ForetailError, match="no integer votes"):
        plan(stumps([0.0, 1.0]), load_profile("v1model"))


def test_profiles_of_users_are_checked(tmp_path: Path) -> None:
    text = Path(__file__).parents[3].joinpath("export/p4/profiles/tofino.yaml").read_text()
    own = tmp_path / "own.yaml"
    for old, new, match in (
        ("stages: 12", "stages: many", "is not valid"),
        (
            "stages: 12",
            "stages: 0",
            "stages of the P4 profile tofino = 0 is out of range",
        ),
        ("stages: 12\n", "", "its fields are not"),
        ("word_bits: 32", "word_bits: 128", "it must be a whole number, at least 8, at most 64"),
        ("arch: tna", "arch: psa", "no P4 architecture 'psa': choose v1model or tna"),
        ("row_cost: 500.0", "row_cost: -1.0", "row_cost of the P4 profile tofino"),
        ("row_cost: 500.0", "row_cost: [", "is not valid"),
    ):
        assert old in text
        own.write_text(text.replace(old, new))
        refused(tmp_path, match, profile=str(own))
    for nothing in ("3", "true", "", "- a"):
        own.write_text(nothing)
        refused(tmp_path, "is not valid", profile=str(own))
    own.write_text(text)
    assert load_profile(str(own)) == load_profile("tofino")


def test_a_model_that_does_not_fit_says_what_to_shrink(tmp_path: Path, lowered: Ensemble) -> None:
    own = tmp_path / "small.yaml"
    text = Path(__file__).parents[3].joinpath("export/p4/profiles/tofino.yaml").read_text()
    own.write_text(text.replace("stages: 12", "stages: 2").replace("largest_key_bits: 512", "largest_key_bits: 11"))
    refused(tmp_path, r"too large for the P4 profile tofino \(it needs \d stages of 2", lowered, profile=str(own))
    refused(tmp_path, r"feature queue takes \d+% of all bits at cell_bytes=256", lowered, profile=str(own))
    found = plan(lowered, load_profile(str(own)))
    assert found.chosen.faults
    assert found.reason.startswith("nothing fits")


@st.composite
def interval_maps(draw: st.DrawFn, max_bits: int = 8, max_labels: int = 5) -> Intervals[int]:
    bits = draw(st.integers(1, max_bits))
    top = (1 << bits) - 1
    uppers = [*sorted(draw(st.sets(st.integers(0, top - 1), max_size=12))), top]
    labels = draw(st.lists(st.integers(0, max_labels - 1), min_size=len(uppers), max_size=len(uppers)))
    return Intervals.of(bits, uppers, labels)


def table(rows: Rows[int], kind: Kind, bits: int) -> list[int]:
    """The label of every key, read row by row."""
    found = []
    for key in range(1 << bits):
        hits = [
            row
            for row in rows.rows
            if (row.first <= key <= row.second if kind == "range" else key & row.second == row.first)
        ]
        found.append(hits[0].label if hits else rows.default)
    return found


def meaning(intervals: Intervals[int]) -> list[int]:
    return [label for low, high, label in intervals.bounds() for _ in range(low, high + 1)]


@pytest.mark.parametrize("kind", KINDS)
@given(intervals=interval_maps(), data=st.data())
@settings(max_examples=draws(60))
def test_every_kind_of_rows_is_the_same_function(kind: Kind, intervals: Intervals[int], data: st.DataObject) -> None:
    top = (1 << intervals.bits) - 1
    largest = data.draw(st.sampled_from([top, top // 2, *(upper for upper in intervals.uppers)]))
    rows = rows_of(intervals, kind, largest)
    assert table(rows, kind, intervals.bits)[: largest + 1] == meaning(intervals)[: largest + 1]
    assert meaning(intervals_of(rows, kind, intervals.bits)) == table(rows, kind, intervals.bits)


@given(data=st.data(), kind=st.sampled_from(KINDS), bits=st.integers(1, 7))
def test_any_rows_are_read_as_the_function_that_they_are(data: st.DataObject, kind: Kind, bits: int) -> None:
    """Also rows that overlap, or have wildcards before other bits."""
    number = st.integers(0, (1 << bits) - 1)
    pairs = data.draw(st.lists(st.tuples(number, number), max_size=6))
    sides = [(min(pair), max(pair)) if kind == "range" else (pair[0] & pair[1], pair[1]) for pair in pairs]
    rows = Rows(tuple(Row(first, second, label % 3) for label, (first, second) in enumerate(sides)), 3)
    assert meaning(intervals_of(rows, kind, bits)) == table(rows, kind, bits)


@pytest.mark.parametrize(
    ("kind", "row"),
    [("range", Row(5, 4, 0)), ("range", Row(0, 8, 0)), ("ternary", Row(2, 1, 0)), ("ternary", Row(8, 8, 0))],
)
def test_rows_that_switches_may_read_otherwise_are_refused(kind: Kind, row: Row[int]) -> None:
    with pytest.raises(ValueError, match="of a key of 3 bits"):
        intervals_of(Rows((row,), 1), kind, 3)


def fewest_prefixes(wanted: list[int], bits: int, largest: int) -> int:
    """Rows of the smallest prefix table beside a free default, by trying all."""
    labels = sorted(set(wanted))
    prefixes = [(low, size) for size in (1 << b for b in range(bits)) for low in range(0, 1 << bits, size)]
    for count in range(len(prefixes) + 1):
        for chosen in combinations(sorted(prefixes, key=lambda p: -p[1]), count):
            for given_labels in product(labels, repeat=count + 1):
                keys = [given_labels[0]] * (1 << bits)
                for (low, size), label in zip(chosen, given_labels[1:], strict=True):  # larger ones first
                    keys[low : low + size] = [label] * size
                if keys[: largest + 1] == wanted[: largest + 1]:
                    return count
    raise AssertionError("exact rows would do")


@given(intervals=interval_maps(max_bits=3, max_labels=3), unused=st.integers(0, 3))
@settings(max_examples=draws(60))
def test_ternary_rows_are_at_most_as_many_as_the_fewest_prefixes(intervals: Intervals[int], unused: int) -> None:
    largest = max(0, (1 << intervals.bits) - 1 - unused)
    rows = rows_of(intervals, "ternary", largest)
    assert len(rows.rows) <= fewest_prefixes(meaning(intervals), intervals.bits, largest)


@given(st.integers(1, 16).flatmap(lambda b: st.tuples(st.just(b), *[st.integers(0, (1 << b) - 1)] * 2)))
def test_a_range_is_made_of_disjoint_prefixes_in_order(drawn: tuple[int, int, int]) -> None:
    bits, low, high = drawn[0], min(drawn[1:]), max(drawn[1:])
    at = low
    for value, mask in range_prefixes(low, high, bits):
        size = ((1 << bits) - 1 ^ mask) + 1
        assert (value, value % size, size & (size - 1)) == (at, 0, 0)
        at += size
    assert at == high + 1


@pytest.mark.parametrize(
    ("low", "high", "count"), [(0, 15, 1), (1, 14, 6), (1, 15, 4), (0, 14, 4), (5, 5, 1), (8, 15, 1)]
)
def test_ranges_expand_to_the_known_numbers_of_prefixes(low: int, high: int, count: int) -> None:
    assert len(range_prefixes(low, high, 4)) == count


TOFINO = load_profile("tofino")


def with_tau(text: str, tau: int, bits: int) -> str:
    """The text with another parameter of the default action of table decide."""
    text, count = re.subn(r"set_tau\(\d+w0x[0-9a-f]+\)", f"set_tau({bits}w{tau & ((1 << bits) - 1):#x})", text)
    assert count == 1
    return text


@pytest.mark.slow
def test_every_tau_of_an_integer_is_compared_as_it_is() -> None:
    ensemble = small_ensemble(3)  # with negative votes
    assert score_bits(ensemble, TNA) == 8
    for decision in ("leaf_rows", "groups", "product"):
        text, totals = (
            texts_of(ensemble, "auto", decision, profile="tofino")["p.p4"],
            ensemble.score(everything(ensemble)),
        )
        for tau in sorted({-128, -127, -1, 0, 126, 127, *totals.tolist(), *(totals - 1).tolist()}):
            changed = with_tau(text, tau, 8)
            for row, total in zip(everything(ensemble).tolist(), totals.tolist(), strict=True):
                assert run_slowly(changed, {"f_queue": row[0], "f_table": row[1]}) == (total, total > tau)


def test_tau_is_compared_early_where_the_adder_reaches_both_sums() -> None:
    for count, early in ((0, True), (5, True), (6, False)):
        ensemble = small_ensemble(count)
        encoding = leaf_rows(ensemble, 32, TNA)
        assert encoding.early_tau == early
        assert not leaf_rows(ensemble, 32, V1MODEL).early_tau
        assert not replace(encoding, banked=True).early_tau, "two banks share an adder"
        text = texts_of(ensemble, "auto", "leaf_rows", profile="tofino")["p.p4"]
        assert ("excess" in text, "margin" in text) == (early, not early)
        chosen = plan(ensemble, TOFINO, decision="leaf_rows").chosen
        assert chosen.stages == 2 + count.bit_length() + (1 if early else 2)
        verdict = [table for table in chosen.tables if table.name == "verdict"]
        assert [(table.rows, table.tcam_blocks) for table in verdict] == ([(2, 1)] if early else [])


@settings(max_examples=draws(10))
@given(trained=forests(max_trees=8, max_depth=3))
def test_groups_have_the_votes_of_their_trees(trained: Trained) -> None:
    ensemble = lower(trained.ensemble).ensemble
    trees = len(ensemble.trees)
    found = list(groups(ensemble, 32, 1 << 14, TNA))
    assert [len(one.votes) for one in found] == [size for size in (4, 2) if size < trees]
    assert all(len(plan_of(ensemble, one)) == len(one.votes) for one in found)
    assert not list(groups(ensemble, 32, 0, TNA)), "no table has room for a box"


def plan_of(ensemble: Ensemble, encoding: Encoding) -> set[str]:
    """The names of the tables of an encoding's votes."""
    return {encoding.table_name(index) for index in range(len(encoding.votes))}


def test_trees_that_ask_alike_are_one_group() -> None:
    ensemble = small_ensemble(1)
    first, second = ensemble.trees
    four = replace(ensemble, trees=(first, second, first, second))
    (pairs,) = groups(four, 32, 1 << 14, TNA)
    alone = [part for tree in four.trees[:2] if (part := sum_part(replace(four, trees=(tree,)), 100))]
    assert sorted(len(votes.rows) for votes in pairs.votes) == sorted(len(part.boxes) for part in alone)
    apart = [sum_part(replace(four, trees=(four.trees[a], four.trees[b])), 100) for a, b in combinations(range(4), 2)]
    assert sum(len(votes.rows) for votes in pairs.votes) < 2 * max(len(part.boxes) for part in apart if part)


@pytest.mark.slow
@pytest.mark.parametrize(("trees", "stages"), [(8, 4), pytest.param(16, 5, marks=pytest.mark.nightly)])
def test_forests_take_few_stages_and_no_more_rows_than_asked(trees: int, stages: int, tmp_path) -> None:  # type: ignore[no-untyped-def]
    found = lower(paper_forest(trees, 4).ensemble, any_tau=False)
    chosen = plan(found.ensemble, TOFINO).chosen
    assert (chosen.encoding.decision, chosen.stages) == ("groups", stages)
    apart = plan(found.ensemble, TOFINO, decision="leaf_rows").chosen
    assert apart.stages == 3 + stages
    previous = stages
    for rows in (chosen.total("rows") - 1, apart.total("rows")):
        fewer = plan(found.ensemble, TOFINO, max_rows=rows).chosen
        assert not fewer.faults
        assert fewer.total("rows") <= rows
        assert fewer.stages > previous
        previous = fewer.stages
    result = export(found, P4(profile="tofino", max_rows=600), tmp_path / "out")
    assert result.certificate.method == "cells"
    assert result.report["chosen"]["rows"] <= 600
    assert {row["decision"] for row in result.report["considered"]} >= {"groups (4)", "leaf_rows"}
    with pytest.raises(ForetailError, match=r"it has \d+ rows of 10"):
        export(found, P4(profile="tofino", max_rows=10), tmp_path / "none")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("excess = s_1 |+| s_2", "excess = s_2 |+| s_2"),
        ("excess = s_1 |+| s_2", "excess = s_1 |-| s_2"),
        ("excess_0 = (int<8>) vote |-| tau", "excess_0 = (int<8>) vote |+| tau"),
        ("s_1 = excess_0 |+| v_1", "s_1 = excess_0 |+| v_2"),
        ("s_0 = v_0 + v_1", "s_0 = v_0 + tau"),
        ("8w0x80 &&& 8w0x80 : set_drop(1w0x0)", "8w0x80 &&& 8w0x80 : set_drop(1w0x1)"),
        ("8w0x0 &&& 8w0xff : set_drop", "8w0x1 &&& 8w0xff : set_drop"),
        ("default_action = set_drop(1w0x1)", "default_action = set_drop(1w0x0)"),
        ("key = { excess[7:0]", "key = { score[7:0]"),
        ("tau = (int<8>) value", "tau = (int<8>) value |-| 8w1"),
        ("    decide.apply();\n", ""),
        ("vote_1(8w0x", "vote_1(8w0x7"),
        ("c_queue_w0[0:0]", "tau[0:0]"),
    ],
)
def test_another_comparison_is_refused(old: str, new: str) -> None:
    text = texts_of(small_ensemble(3), "auto", "leaf_rows", profile="tofino")["p.p4"]
    assert old in text, text
    with pytest.raises(ProofError):
        prove_files(small_ensemble(3), P4(profile="tofino"), encoded({"p.p4": text.replace(old, new, 1)}))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("name", text) for text in ("a b", "a;", "1a", "", "a" * 70)),
        *(("params", text) for text in ("x */ y", "x\ny", "x // y", "é", 'x"')),
    ],
)
def test_names_and_params_cannot_inject_text(field: str, text: str) -> None:
    base = small_ensemble()
    object.__setattr__(base.features[0], field, text)  # past the ensemble's own door
    with pytest.raises(ForetailError, match="cannot be written into P4"):
        texts_of(base)
