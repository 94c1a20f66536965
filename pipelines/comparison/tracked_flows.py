"""A comparison of policies as a run in MLflow, linked to the model that Credence asked."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict, replace

from foretail.configs.schema.packet_stages import DemoConfig, EvaluateConfig
from foretail.models.mlflow.registry import NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.mlflow.tracking import tagged_run
from foretail.pipelines.comparison.flows import HEADLINES, FlowsResult
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store, canonical_json
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.tracking.runs import tracked

COMPARISON_TAG = "comparison_sha256"


def track_flows(config: EvaluateConfig | DemoConfig, result: FlowsResult) -> FlowsResult:
    """Log a comparison once; the same comparison again names the run that it has.

    Parameters
    ----------
    config : of the stage
    result : without a predictor nothing is logged; means over seeds become metrics ``closed_loop/POLICY/METRIC``
    """
    if not config.tracking.enabled or result.predictor is None:
        return result
    store = Store(config.store_dir)
    uri = tracking_uri(config.tracking.uri, store.folder.parent)
    tag, model_sha256 = result.predictor.made_of
    compared = [[run.policy, run.seed, run.path.parent.name] for run in result.runs]
    sha256 = hashlib.sha256(canonical_json({"runs": compared, "model": model_sha256}).encode()).hexdigest()
    run_id = tagged_run(COMPARISON_TAG, sha256, uri) if store_exists(uri) else None
    if run_id is not None:
        return replace(result, tracked={"run_id": run_id, "uri": uri})
    seeds = {run.seed for run in result.runs}
    name = f"{', '.join(result.policies)} on {config.scenario.name}, {len(seeds)} seeds"
    tags = {COMPARISON_TAG: sha256, f"used_{tag}": model_sha256}
    with tracked(config.tracking, store, asdict(config), name, tags, params=differing(config)) as run:
        with suppress(NoLineage):  # a model from elsewhere
            run.uses_model(lineage(model_sha256, uri, tag).runs)
        run.log_metrics(
            {
                f"closed_loop/{policy}/{metric}": mean
                for _, metric in HEADLINES
                for policy, means in result.apart()[0].means(metric).items()
                if (mean := means.mean) is not None
            }
        )
        run.log_document(plain(result.document()), "comparison.json")
    return replace(result, tracked={"run_id": run.run_id, "uri": uri})
