"""Settings of a stage from overrides as they are written on the command line, inside another stage."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import hydra
from hydra.core.global_hydra import GlobalHydra

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.plugins import register_guests
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.stages import STAGES, register
from foretail.features.errors import ForetailError
from foretail.pipelines.errors import BAD_INPUT, sentence
from foretail.pipelines.settings.validation import StageConfig, typed


def compose_settings(schema: type[StageConfig], overrides: Sequence[str], where: str) -> StageConfig:
    """Return the checked settings of the stage of `schema`.

    Parameters
    ----------
    schema : class of the stage's settings
    overrides : sequence of str
        ``name=value``, as after ``foretail STAGE``.
    where : str
        The setting that holds them, for errors.

    Raises
    ------
    ForetailError
        When the stage would refuse them.
    """
    stage = next(name for name, kind in STAGES.items() if kind is schema)
    register(stage)
    register_guests(overrides)
    try:
        if GlobalHydra.instance().is_initialized():
            return typed(hydra.compose(stage, list(overrides)), schema)
        with hydra.initialize_config_module("foretail.configs", version_base="1.3"):
            return typed(hydra.compose(stage, list(overrides)), schema)
    except BAD_INPUT as error:
        reason = sentence(error, ()).rstrip(".")
        raise ForetailError(f"{where} = {shlex.join(overrides)}: {reason}") from None


def compose_policies(names: Sequence[str], where: str) -> dict[str, Policy]:
    """Buffer policies of the group ``policy``; `where` is the setting that names them, for errors."""
    return compose_settings(EvaluateConfig, [f"policy=[{','.join(names)}]", "baselines=[]", "model=any"], where).policy
