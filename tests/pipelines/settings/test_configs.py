"""Every config composes into its typed schema, from the installed package, in any folder."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from importlib import resources
from typing import Any

import numpy as np
import pytest

from foretail.configs import schema
from foretail.configs.schema.model_stages import PromoteConfig, TrainConfig
from foretail.configs.schema.packet_stages import DemoConfig, EvaluateConfig
from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.configs.schema.stages import STAGES
from foretail.features.catalog import (
    FEATURE_GROUPS,
)
from foretail.models.drop.sharing_rule import SharingRule
from foretail.pipelines.experiment.catalog import declared, experiments, listed, sizes_of
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.settings.predictors import predictor_class
from foretail.pipelines.settings.validation import typed
from foretail.sim_bridge.policies import POLICIES
from tests.composed import composed, experiment_settings, options

pytestmark = pytest.mark.slow


def test_mlflow_gets_the_settings_that_differ_and_the_features() -> None:
    promote = typed(composed("promote", "model=runs:/x", "to=champion", "f1_margin=0.5"), PromoteConfig)
    assert differing(promote) == {"model": "runs:/x", "f1_margin": 0.5}
    for group in ("paper", "switch"):
        config = typed(composed("train", f"features={group}"), TrainConfig)
        assert differing(config)["features.names"] == list(FEATURE_GROUPS[group])


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_composes_and_is_valid(stage: str) -> None:
    assert isinstance(typed(composed(stage), STAGES[stage]), STAGES[stage])


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, option)
        for group in ("scenario", "features", "predictor", "split", "tracking")
        for option in options(group)
    ],
)
def test_every_option_of_train_composes_and_is_valid(group: str, option: str) -> None:
    typed(composed("train", f"{group}={option}"), TrainConfig)


@pytest.mark.parametrize("policy", [*options("policy"), *POLICIES])
def test_every_policy_composes_under_its_own_name(policy: str) -> None:
    config = typed(
        composed("evaluate", f"policy=[lqd,{policy}]" if policy != "lqd" else "policy=[lqd]", "baselines=[lqd]"),
        EvaluateConfig,
    )
    assert policy in config.policy


@pytest.mark.parametrize("size", options("demonstration/size"))
def test_every_size_of_the_demo_composes_and_is_valid(size: str) -> None:
    typed(composed("demo", f"size={size}"), DemoConfig)


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", experiments())
def test_every_experiment_composes_in_every_size_and_its_file_begins_with_its_command(experiment: str) -> None:
    one = listed(experiment)
    assert one.example.split()[:3] == ["foretail", "run", experiment]
    assert one.sentence.endswith((".", "?"))
    assert {"small", "full"} <= set(sizes_of(experiment))
    for size in sizes_of(experiment):
        assert experiment_settings(experiment, f"size={size}").size == size


@pytest.mark.parametrize("gate", options("experiment"))
def test_every_gate_composes_with_the_stage_of_its_first_lines(gate: str) -> None:
    text = (resources.files("foretail.configs") / "experiment" / f"{gate}.yaml").read_text(encoding="utf-8")
    command = text.splitlines()[1].removeprefix("# foretail ").split()
    assert f"experiment={gate}" in command
    typed(composed(command[0], f"experiment={gate}"), STAGES[command[0]])


def test_the_help_of_every_field_is_a_whole_sentence() -> None:
    modules = [
        importlib.import_module(f"{schema.__name__}.{found.name}") for found in pkgutil.iter_modules(schema.__path__)
    ]
    kinds = {kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)}
    kinds |= {declared(name).settings for name in experiments()}
    assert len(kinds) > 10
    for kind in kinds:
        for field in dataclasses.fields(kind):
            meaning = field.metadata.get("doc", "")
            assert re.fullmatch(r"[A-Z0-9].*\.", meaning), (
                f"{kind}.{field.name} needs a whole sentence, not {meaning!r}"
            )


@pytest.mark.parametrize("predictor", options("predictor"))
def test_predictor_settings_are_the_predictors_parameters(predictor: str) -> None:
    settings: dict[str, Any] = dict(composed("train", f"predictor={predictor}").predictor)
    parameters = predictor_class(settings)().parameters()
    assert settings.pop("name") in (predictor, "boosted_trees")
    assert settings.pop("_target_")
    assert settings.keys() == parameters.keys() - {"arrivals", "device", "jobs", "rows_in_memory"}
    if predictor != "boosted_forest":  # the same class with other settings
        assert settings == {name: parameters[name] for name in settings}


def test_websearch_has_the_mean_of_the_paper() -> None:
    background = composed("collect").scenario.background
    size, cumulative = np.array(background.size_bytes), np.array(background.cumulative)
    mean = np.sum((size[1:] + size[:-1]) / 2 * np.diff(cumulative))
    assert mean == pytest.approx(1_711_222.5)


def test_a_sharing_rule_has_the_same_defaults_in_settings() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(SharingRule)}
    assert {name: default for name, default in defaults.items() if default is not dataclasses.MISSING} == RULE_DEFAULTS
