"""``foretail deploy``: put a model into a running switch, beside the one that decides, and let it decide."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.model_stages import DeployConfig
from foretail.pipelines.exporting.deploying import DeployResult, deploy_to_switch


def deploy(config: DeployConfig, run_dir: Path) -> DeployResult:
    """Prove the model's rows in the switch's program, fill the bank that does not decide, and swap by one write."""
    return deploy_to_switch(config, run_dir)
