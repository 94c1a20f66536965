"""Drop predictors from their settings, of which ``_target_`` names the class that checks the others; sharing rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.configs.schema.training import Trainer
from foretail.core.errors import ForetailError
from foretail.core.plugins import FAILURES, named, running
from foretail.core.settings import limits_of, require_given
from foretail.models.drop.predictor import DropPredictor
from foretail.models.drop.sharing_rule import HIGHEST, SharingRule
from foretail.models.drop.weights import checked_drop_weight

LEARNED = "learned"
"""The policy that asks a sharing rule."""


def rule_of(values: Mapping[str, int]) -> SharingRule:
    """The sharing rule with these numbers, by their names in settings."""
    more = min(values["pressure"] + values["first_rtt_more"], HIGHEST)
    others = {name: values.get(name, default) for name, default in RULE_DEFAULTS.items()}
    return SharingRule(values["message_left"], values["fill"], values["pressure"], more, **others)


def _parameters(predictor: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in predictor.items() if name not in ("_target_", "name")}


def predictor_class(predictor: Mapping[str, Any]) -> type[DropPredictor]:
    """The class that ``predictor._target_`` names; ForetailError when there is none, or its packages are missing."""
    module, _, name = str(predictor.get("_target_", "")).rpartition(".")
    try:
        kind = getattr(import_module(module), name) if module else None
    except (ForetailError, MemoryError):
        raise
    except ModuleNotFoundError as error:
        raise ForetailError(
            f"predictor._target_ = {module}.{name} cannot be loaded, because Python finds no module {error.name}: "
            f"install its package, or name its folder in PYTHONPATH, as in PYTHONPATH=. foretail train ..."
        ) from error
    except FAILURES as error:  # an import runs whatever the module does
        raise ForetailError(
            f"predictor._target_ = {module}.{name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, DropPredictor)):
        raise ForetailError(f"predictor._target_ = {module}.{name} is not a DropPredictor: name a subclass of it")
    return kind


def untrained(predictor: Mapping[str, Any], trainer: Trainer) -> DropPredictor:
    """The predictor of the settings, not trained yet; it takes of `trainer` what it knows."""
    kind = predictor_class(predictor)
    given = _parameters(predictor)
    device = kind.device_here() if trainer.device == "auto" else trainer.device
    around: dict[str, Any] = {**asdict(trainer), "device": device}
    given |= {name: value for name, value in around.items() if name in limits_of(kind)}
    with running(kind, "its constructor"):
        return kind(**given)


def check_predictor(config: TrainConfig) -> None:
    """Raise ForetailError on settings that the predictor or its trainer cannot have."""
    predictor = config.predictor
    kind = predictor_class(predictor)
    if not (hasattr(kind, "to_ensemble") or hasattr(kind, "to_network")):
        raise ForetailError(
            f"{named(kind)} is neither trees nor a network, so it has no form to be saved in: subclass TreePredictor "
            f"or NetworkPredictor"
        )
    limits = limits_of(kind)
    if not isinstance(predictor.get("name"), str):
        raise ForetailError("predictor.name is missing, by which results are told apart: give predictor.name=my_name")
    require_given(_parameters(predictor), limits, predictor["name"], "predictor.")
    if config.trainer.device == "cuda" and "device" not in limits:
        raise ForetailError(
            f"trainer.device={config.trainer.device} is for XGBoost and PyTorch, and {predictor['name']} is neither: "
            "set trainer.device=cpu"
        )
    checked_drop_weight(config.drop_weight)
