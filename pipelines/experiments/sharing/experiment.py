"""``foretail evaluate experiment=sharing_map``, and ``experiment=tune``: settings of policies, judged by cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, tracked_experiment
from foretail.pipelines.experiments.sharing import tables
from foretail.pipelines.experiments.sharing.figures import CAPTIONS, draw_map, draw_settings
from foretail.pipelines.experiments.sharing.plan import DEFAULT, Rule, SharingPlan
from foretail.pipelines.experiments.sharing.race import Race, race
from foretail.pipelines.experiments.sharing.verdicts import conclusion, rows_of, verdicts_of
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.runs.zeros import say_if_unasked
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.policies import policy_words, takes_alpha


def sharing_experiment(config: EvaluateConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment that ``config.size`` chooses of ``config.sharing``, draw it and track it."""
    sweep, where = config.sharing[config.size], f"sharing.{config.size}"
    plan = SharingPlan.of(sweep, where, Ns3(config.ns3_prefix))
    if config.model is not None:
        store = Store(config.store_dir)
        plan = plan.with_model(predictor_to_store(load_predictor(config.model, config.tracking, store), store).library)
    settings = {"experiment": plan.sweep.experiment, "size": config.size, "sharing": asdict(plan.sweep)}
    return tracked_experiment(config, settings, lambda: _result(config, plan, run_dir))


def _result(config: EvaluateConfig, plan: SharingPlan, run_dir: Path) -> ExperimentResult:
    finished = race(config, plan)
    rows, verdicts, name = rows_of(finished), verdicts_of(finished), plan.sweep.experiment
    frame = pd.DataFrame([asdict(row) for row in rows])
    if plan.library is not None:
        about_packets = [name for name in plan.sweep.asking if not takes_alpha(plan.rules[Rule(name, DEFAULT)].name)]
        asking = {policy: frame[frame["policy"] == policy] for policy in about_packets}
        say_if_unasked(
            {name: (int(one["asked"].sum()), int(one["predicted_drops"].sum())) for name, one in asking.items()}
        )
    shown = [tables.settings(finished)]
    if name == "sharing_map":
        asked = [tables.against(frame, policy) for policy in plan.sweep.asking] if plan.library is not None else []
        shown = [tables.regrets(frame), *asked, tables.families(verdicts), *shown]
    frozen = {policy: rule.setting for policy, rule in finished.frozen.items()}
    return ExperimentResult(
        name,
        {
            "rows": plain([asdict(row) for row in rows]),
            "families": {one.family: one.sentence for one in verdicts},
            "verdicts": plain([asdict(one) for one in verdicts]),
            "settings": frozen,
        },
        shown,
        write_files(
            run_dir,
            {
                f"{name}.csv": frame,
                **figure_files(f"{name}.map", draw_map(frame), ("svg", "png")),
                **figure_files(f"{name}.settings", draw_settings(frame), ("svg", "png")),
            },
        ),
        (
            f"Cost J: geometric mean of the mean slowdowns of queries, of short and of long flows. Regret: J over the "
            f"least J of the condition, less 1, paired by seed. Seeds from {plan.sweep.seeds[0]} on, up to "
            f"{plan.sweep.most_seeds}; the best of a condition is chosen on the same seeds, which favours it.",
            f"{finished.costs.points:,} simulations, {finished.costs.reused:,} of them in the store",
        ),
        conclusion=conclusion(finished, verdicts) if name == "sharing_map" else _chosen(finished),
        captions={f"{name}.{kind}": caption for kind, caption in CAPTIONS.items()},
    )


def _chosen(finished: Race) -> list[str]:
    tuned = [rule for rule in finished.frozen.values() if len(finished.plan.settings_of(rule.policy)) > 1]
    named = ", ".join(f"{policy_words(rule.policy)} {rule.setting}" for rule in tuned)
    return [f"The best single settings over the training families: {named}."] if tuned else []
