"""The rules of the zoo are what their certificates say; the tests of the study ``zoo`` prove the C again. 5 seconds."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import yaml

from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import CELL_BYTES, FEATURES
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import TERMS
from foretail.models.ensemble.scorers import asking_policy, scorer_of
from foretail.pipelines.settings.predictors import rule_of
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.known import KnownRun


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
