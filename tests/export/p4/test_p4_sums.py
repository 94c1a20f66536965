"""Fewer stages for the sum of votes: trees in groups, and tau taken off the first vote. Costs 10 CPU seconds."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.folder import encoded
from foretail.export.p4.encoding import Encoding, groups, leaf_rows, score_bits, sum_part
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import TNA, V1MODEL, load_profile
from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.proof import ProofError
from foretail.export.target import export, prove_files
from foretail.models.ensemble.ensemble import Ensemble
from tests.examples import draws
from tests.export.p4.p4_texts import everything, small_ensemble, texts_of
from tests.export.p4.slow_p4 import run_slowly
from tests.forests import Trained, forests, paper_forest

TOFINO = load_profile("tofino")


def with_tau(text: str, tau: int, bits: int) -> str:
    """The text with another parameter of the default action of table decide."""
    text, count = re.subn(r"set_tau\(\d+w0x[0-9a-f]+\)", f"set_tau({bits}w{tau & ((1 << bits) - 1):#x})", text)
    assert count == 1
    return text


@settings(max_examples=draws(15))
@given(trained=forests(max_trees=7, max_depth=3), decision=st.sampled_from(("leaf_rows", "groups", "product")))
def test_any_tau_is_compared_with_the_sum_of_any_forest(trained: Trained, decision: str) -> None:
    lowered = lower(trained.ensemble)
    ensemble, texts = lowered.ensemble, texts_of(lowered.ensemble, "auto", decision, profile="tofino")
    assert prove_files(lowered, P4(profile="tofino"), encoded(texts))[0].method == "cells"
    bits, sums = score_bits(ensemble, TNA), ensemble.score(trained.rows)
    half, near = 1 << (bits - 1), int(sums[0])
    if bits > TOFINO.largest_integer_bits:
        return  # is proven for its tau, and refused by the profile
    for tau in (-half, half - 1, near, near - 1, int(sums.max()), int(sums.min()) - 1):
        changed = with_tau(texts["p.p4"], tau, bits)
        for row, total in zip(trained.rows[:5], sums[:5].tolist(), strict=True):
            inputs = {f"f_{f.name}": int(v) for f, v in zip(ensemble.features, row, strict=True)}
            assert run_slowly(changed, inputs) == (total, total > tau)


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
    for stumps, early in ((0, True), (5, True), (6, False)):
        ensemble = small_ensemble(stumps)
        encoding = leaf_rows(ensemble, 32, TNA)
        assert encoding.early_tau == early
        assert not leaf_rows(ensemble, 32, V1MODEL).early_tau
        assert not replace(encoding, banked=True).early_tau, "two banks share an adder"
        text = texts_of(ensemble, "auto", "leaf_rows", profile="tofino")["p.p4"]
        assert ("excess" in text, "margin" in text) == (early, not early)
        chosen = plan(ensemble, TOFINO, decision="leaf_rows").chosen
        assert chosen.stages == 2 + stumps.bit_length() + (1 if early else 2)
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
