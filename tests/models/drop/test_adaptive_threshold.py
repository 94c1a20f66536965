"""The adaptive threshold against its formula in slow Python, the search of its numbers, and the rules of the zoo.

Some seconds. The tests of the study ``zoo`` prove the C of its rules again.
"""

from __future__ import annotations

import math
from fractions import Fraction
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import CELL_BYTES, FEATURES
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import (
    SETS,
    TERMS,
    TESTS,
    AdaptiveThreshold,
    log_sent,
    mean_log,
    mean_log_sent,
    search_threshold,
    starting_rule,
)
from foretail.models.ensemble.scorers import asking_policy, scorer_of
from foretail.pipelines.settings.predictors import rule_of
from foretail.sim_bridge._native import adaptive_threshold
from foretail.sim_bridge.arrivals.workloads import Incast, PoissonBursts
from foretail.sim_bridge.open_loop.known import KnownRun

NAMES = [feature.name for feature in FEATURES]
BITS = {feature.name: feature.bits for feature in FEATURES}
OF_SET = 1 + len(TERMS)


def slow_logarithm(value: int) -> int:
    """Eighths of octaves: the place of the highest bit, and the three bits below it."""
    octave = int(math.log2(Fraction(1 << value.bit_length() - 1)))
    return 8 * octave + math.floor(8 * Fraction(value, 1 << octave)) - 8


def slow_round(number: float) -> int:
    """The nearest 256th of a number that is kept within 1024, halves to the even one, in 256ths."""
    return round(256 * Fraction(min(max(number, -1024.0), 1024.0)))


def slow_margin(rule: AdaptiveThreshold, row: dict[str, int]) -> int:
    """The sum of the weighted terms less the bound, in 256ths, of the set that the two tests choose."""
    if row["pressure"] == 0:
        return 0
    first, second = (round(2 ** min(max(cut, 0.0), 24.0)) for cut in rule.numbers[-2:])
    if row["arrival_rate"] <= first:
        chosen = 0
    elif row["arrivals_rate_slow"] <= second:
        chosen = 1
    else:
        chosen = 2
    bound, *weights = rule.numbers[chosen * OF_SET : (chosen + 1) * OF_SET]
    # numpy adds these up in an order of its own; the numbers below are such that every order gives the same
    moved = bound + sum(weight * centre for weight, centre in zip(weights, rule.centres, strict=True))
    score = 0
    for weight, (name, logarithm) in zip(weights, TERMS, strict=True):
        score += slow_round(weight) * (slow_logarithm(row[name] + 1) if logarithm else row[name])
    return score - slow_round(moved)


def eighths(low: int, high: int) -> st.SearchStrategy[float]:
    """Numbers whose products and sums are exact, with halves of a 256th among them."""
    return st.integers(low * 512, high * 512).map(lambda number: number / 512)


@st.composite
def rules(draw: st.DrawFn) -> AdaptiveThreshold:
    of_sets = [
        [draw(eighths(-2000, 2000)), *draw(st.lists(eighths(-4, 4), min_size=len(TERMS), max_size=len(TERMS)))]
        for _ in range(SETS)
    ]
    cuts = draw(st.lists(st.floats(-3, 30), min_size=2, max_size=2))
    centres = draw(st.lists(st.integers(0, 192).map(float), min_size=len(TERMS), max_size=len(TERMS)))
    return AdaptiveThreshold((*(number for one in of_sets for number in one), *cuts), tuple(centres))


@st.composite
def rows(draw: st.DrawFn, rule: AdaptiveThreshold) -> dict[str, int]:
    """Values of any size, and of tests those beside the cut."""
    row = {}
    for name in {name for name, _ in TERMS} | set(TESTS):
        value = draw(
            st.integers(0, BITS[name]).map(lambda bits: (1 << bits) - 1) | st.integers(0, (1 << BITS[name]) - 1)
        )
        if name in TESTS and draw(st.booleans()):
            cut = round(2 ** min(max(rule.numbers[-2 + TESTS.index(name)], 0.0), 24.0))
            value = cut + draw(st.integers(-1, 1))
        row[name] = min(max(value, 0), (1 << BITS[name]) - 1)
    return row


@given(st.data())
def test_the_margin_is_that_of_the_slow_formula_in_all_three_sets_and_that_of_the_trees(data: st.DataObject) -> None:
    rule = data.draw(rules())
    drawn = data.draw(st.lists(rows(rule), min_size=1, max_size=20))
    x = np.zeros((len(drawn), len(FEATURES)), np.int32)
    for number, row in enumerate(drawn):
        for name, value in row.items():
            x[number, NAMES.index(name)] = value
    margins = rule.scorer().margins(x).tolist()
    assert margins == [slow_margin(rule, row) for row in drawn]
    trees = rule.ensemble()
    of_trees = trees.exact_sum(x[:, [NAMES.index(item.name) for item in trees.features]])
    assert [Fraction(int(one), 1 << trees.scale_bits) for one in of_trees] == margins


def test_numbers_are_those_of_one_rule() -> None:
    numbers = AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).fixed()
    with pytest.raises(ForetailError, match="there are numbers of several rules, or of none: give one"):
        adaptive_threshold(numbers * 2)


@pytest.fixture(scope="module")
def runs() -> list[KnownRun]:
    """Two runs of one condition and one of another."""
    incast, bursts = Incast(fan_in=5, background_load=0.6), PoissonBursts(load=0.3)
    made = [(incast, "incast", 1), (incast, "incast", 2), (bursts, "bursts", 1)]
    return [
        KnownRun.in_slots(workload.batches(8, 80, 1500, seed=seed), 8, 80, condition=condition)
        for workload, condition, seed in made
    ]


def test_the_worth_of_a_rule_is_a_mean_over_conditions(runs: list[KnownRun]) -> None:
    rule = AdaptiveThreshold.dynamic_thresholds(1.0, (50.0, 50.0)).scorer()
    logs = [math.log(run.sent("learned", rule) / run.sent("lqd")) for run in runs]
    assert [log_sent(run, "learned", rule) for run in runs] == pytest.approx(logs)
    assert mean_log_sent(runs, "learned", rule) == pytest.approx(((logs[0] + logs[1]) / 2 + logs[2]) / 2)
    assert mean_log([run.condition for run in runs], logs) == pytest.approx(mean_log_sent(runs, "learned", rule))
    assert mean_log_sent(runs, "lqd", None) == 0
    assert mean_log_sent(runs, "dt", None, alpha=[1.0]) < 0


def test_cuts_and_centres_of_the_start_are_quantiles_of_what_it_sees(runs: list[KnownRun]) -> None:
    start = starting_rule(runs, "learned", 2.0, seed=1)
    plain = AdaptiveThreshold.dynamic_thresholds(2.0, (1.0, 1.0)).scorer()
    seen = np.concatenate([run.visited("learned", plain, rows=2000, seed=1).features for run in runs])
    column = {name: seen[:, NAMES.index(name)] for name in NAMES}
    assert start.numbers[:-2] == AdaptiveThreshold.dynamic_thresholds(2.0, (1.0, 1.0)).numbers[:-2]
    assert start.numbers[-2] == pytest.approx(math.log2(np.quantile(column["arrival_rate"], 0.8)))
    assert start.numbers[-1] == pytest.approx(math.log2(np.quantile(column["arrivals_rate_slow"], 0.3)))
    assert start.centres[0] == 0  # pressure is a logarithm itself
    assert start.centres[1:] == pytest.approx([8 * math.log2(1 + np.median(column[name])) for name, _ in TERMS[1:]])
    # with weights of zero the centres move nothing, so the start sends what Dynamic Thresholds do
    assert [run.sent("learned", start.scorer()) for run in runs] == [run.sent("learned", plain) for run in runs]


def test_a_search_is_the_same_on_one_thread_and_on_two_and_never_below_its_start(runs: list[KnownRun]) -> None:
    runs = runs[:2]
    start = starting_rule(runs, "learned", 0.5, seed=1)
    reports: list[float] = []
    one, two = (
        search_threshold(
            runs,
            start,
            policy="learned",
            trials=150,
            seed=7,
            jobs=jobs,
            report=lambda share, words: reports.append(share),
        )
        for jobs in (1, 2)
    )
    assert one == two
    assert one.start == pytest.approx(mean_log_sent(runs, "learned", start.scorer()))
    assert one.worth == pytest.approx(mean_log_sent(runs, "learned", one.rule.scorer()))
    assert one.worth > one.start
    assert one.rule.centres == start.centres
    assert abs(one.trials - 150) <= 6 * 7  # whole generations of twelve in seven steps
    assert reports[: len(reports) // 2] == sorted(reports[: len(reports) // 2])
    assert reports[-1] == 1
    other = search_threshold(runs, start, policy="learned", trials=150, seed=8)
    assert other.rule != one.rule


def test_every_rule_has_the_trees_of_its_certificate() -> None:
    for one in map(zoo.rule, zoo.names()):
        trees = one.ensemble()
        assert trees.sha256 == one.certificate["ensemble_sha256"]
        assert sum(len(tree.leaves) for tree in trees.trees) == one.certificate["leaves"]
        assert one.certificate["c"]["ir_sha256"] == one.certificate["p4"]["ir_sha256"]


def test_numbers_and_trees_of_a_rule_send_the_same() -> None:
    run = KnownRun.in_slots(PoissonBursts(load=0.4).batches(8, 200, 2000, seed=1), 8, 200)
    for one in map(zoo.rule, zoo.names()):
        trees = one.ensemble()
        assert run.sent("learned", one.scorer()) == run.sent(asking_policy(trees), scorer_of(trees))


@pytest.mark.slow
def test_the_p4_of_a_rule_is_proven_again_and_has_the_size_of_its_certificate(tmp_path: Path) -> None:
    one = zoo.rule(zoo.names()[0])
    result = export(one.ensemble(), P4(), tmp_path / "rule")
    assert {name: getattr(result.certificate, name) for name in one.certificate["p4"]} == one.certificate["p4"]
    assert result.report["chosen"]["rows"] == one.certificate["p4_rows"]


def test_no_rule_drops_for_an_empty_queue_and_an_unknown_name_is_refused() -> None:
    row = np.full((1, len(FEATURES)), 255, np.int32)
    row[0, [feature.name for feature in FEATURES].index(TERMS[0][0])] = 0
    assert not any(zoo.rule(name).scorer().margins(row)[0] > 0 for name in zoo.names())
    with pytest.raises(ForetailError, match="no rule best: foretail zoo lists them"):
        zoo.rule("best")


def test_the_rules_for_tcp_are_those_of_the_benchmark() -> None:
    document = resources.files("foretail_studies.benchmark").joinpath("benchmark.yaml").read_text("utf-8")
    (numbers,) = (
        one["sizes"]["full"]["sharing_rules"]
        for one in yaml.safe_load_all(document)
        if one["declaration"].endswith("BENCHMARK") and "like" in one
    )
    for name, rule in zoo.sharing_rules().items():
        assert rule_of(RULE_DEFAULTS | numbers[name.replace("_", " ")]) == rule
        assert zoo.ensemble(name) == rule.ensemble(CELL_BYTES)
