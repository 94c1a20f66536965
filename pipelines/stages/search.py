"""``foretail search``: drop predictors by their scores and what they cost a switch; sharing rules and alphas by cost J.

Trials never see the test runs. The trial that the budget allows and validation prefers is trained once more, as
``foretail train`` would, and that model alone is scored on the test runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

from foretail.configs.schema.experiments.studies import SEARCH_SCORES, SearchConfig
from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.errors import ForetailError
from foretail.export.p4.planning.profile import load_profile
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.costs.experiment import DropCostResult, drop_cost_search
from foretail.pipelines.experiments.costs.iteration import IterationResult, policy_iteration
from foretail.pipelines.experiments.search.alphas import AlphaSearchResult, alpha_search
from foretail.pipelines.experiments.search.rules import RuleSearchResult, rule_search
from foretail.pipelines.experiments.search.searching import (
    SearchResult,
    best_trial,
    evaluate_trials,
    front_files,
    test_best,
    tracked_search,
    trial_log,
    what_is_searched,
)
from foretail.pipelines.experiments.search.trials import open_trials
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store, canonical_json
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.search_space import Space
from foretail.pipelines.training.fitting import find_split
from foretail.pipelines.training.objective import require_runs


def search(
    config: SearchConfig, run_dir: Path
) -> SearchResult | RuleSearchResult | DropCostResult | IterationResult | AlphaSearchResult:
    """Draw and judge until there are as many trials as wanted, those of earlier runs included; test the best."""
    if config.drop_costs:
        return drop_cost_search(config, run_dir)
    if config.iterations:
        return policy_iteration(config, run_dir)
    if config.alphas:
        return alpha_search(config, run_dir)
    return rule_search(config, run_dir) if config.rules else predictor_search(config, run_dir)


def predictor_search(config: SearchConfig, run_dir: Path) -> SearchResult:
    """Draw, train and judge predictors."""
    settings, where = config.search[config.size], f"search.{config.size}"
    profile, space = load_profile(settings.p4_profile), Space.of(settings, where)
    store, ns3 = Store(config.store_dir), Ns3(config.ns3_prefix)
    base = replace(
        compose_settings(TrainConfig, settings.candidate, f"{where}.candidate"), ns3_prefix=config.ns3_prefix
    )
    if base.split.name != "by_run":
        raise ForetailError(f"{where}.candidate splits {base.split.name}: a search holds whole runs out, use by_run")
    split = find_split(replace(base, jobs=config.jobs), store, ns3)[1]
    require_runs(split.validation, "foretail search")
    searched = what_is_searched(settings, space, split)
    name = config.name or f"search-{hashlib.sha256(canonical_json(searched).encode()).hexdigest()[:12]}"
    file = Path(config.file) if config.file else store.folder.parent / "search.db"
    directions: dict[str, Literal["maximize", "minimize"]] = {
        objective: "maximize" if objective in SEARCH_SCORES else "minimize" for objective in settings.objectives
    }
    with (
        open_trials(
            file,
            name,
            searched,
            space.distributions,
            directions,
            sampler=settings.sampler,
            population=settings.population,
            batch=settings.batch,
            seed=settings.seed,
        ) as trials,
        tracked_search(config, name, trials, split, store) as run,
    ):
        log = trial_log(run, space, split)
        evaluate_trials(config, settings, trials, space, split, profile, store, log)
        finished = trials.finished()
        if all(trial.found is None for trial in finished):
            raise ForetailError(f"all {len(finished)} trials failed, the first because {finished[0].failed}")
        chosen = best_trial(finished, settings)
        tested = None if chosen is None else test_best(config, chosen, space, split, store, ns3, run)
        front = trials.front()
        files = write_files(run_dir, front_files(finished, front, chosen, space, settings))
        result = SearchResult(
            settings, name, file, space, tuple(finished), front, tested, files, None if run is None else run.run_id
        )
        if run is not None:
            for path in files:
                run.log_file(path)
            run.log_document(plain(result.document()), "search.json")
        return result
