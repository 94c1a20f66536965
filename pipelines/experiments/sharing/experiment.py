"""``foretail evaluate experiment=sharing_map``, and ``experiment=tune``: settings of policies, judged by cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, tracked_experiment
from foretail.pipelines.experiments.sharing.figures import CAPTIONS, draw_map, draw_settings
from foretail.pipelines.experiments.sharing.plan import DEFAULT, Rule, SharingPlan
from foretail.pipelines.experiments.sharing.race import Race, race
from foretail.pipelines.experiments.sharing.verdicts import FamilyVerdict, conclusion, rows_of, shown, verdicts_of
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
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
    frozen = {policy: rule.setting for policy, rule in finished.frozen.items()}
    return ExperimentResult(
        name,
        {
            "rows": plain([asdict(row) for row in rows]),
            "families": {one.family: one.sentence for one in verdicts},
            "verdicts": plain([asdict(one) for one in verdicts]),
            "settings": frozen,
        },
        [_regrets(frame), _families(verdicts), _settings(finished)] if name == "sharing_map" else [_settings(finished)],
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


def _regrets(rows: pd.DataFrame) -> Table:
    """Mean and largest regret of every rule that stands for its policy, over training and held-out conditions."""
    cells: list[tuple[Cell, ...]] = []
    for policy, which, part in shown(rows):
        row: list[Cell] = [policy_words(policy), part["setting"].iloc[0] if which == "frozen" else which]
        for held_out in (False, True):
            regrets = 100 * part.loc[part["held_out"] == held_out, "regret"]
            row += [float(regrets.mean()), float(regrets.max())] if len(regrets) else [None, None]
        cells.append(tuple(row))
    columns = ("policy", "setting", "mean, training", "worst, training", "mean, held out", "worst, held out")
    return Table("Regret in % of the cost J, over conditions", columns, tuple(cells))


def _families(verdicts: Sequence[FamilyVerdict]) -> Table:
    return Table(
        "What each family says",
        ("family", "held out", "verdict"),
        tuple((one.family, "yes" if one.held_out else "no", one.sentence) for one in verdicts),
    )


def _settings(finished: Race) -> Table:
    """The setting of each policy that was frozen, beside the one that it comes with, on the training families."""
    plan, costs = finished.plan, finished.costs
    training = [where for where in plan.scenarios if not plan.sweep.families[where.family].held_out]

    def regret_percent(rule: Rule) -> float:
        found = [costs.difference(where, rule, finished.best(where)).mean for where in training]
        return float(100 * np.mean(np.expm1(np.array(found, dtype=np.float64)))) if None not in found else float("nan")

    rows = [
        (policy_words(policy), rule.setting, regret_percent(rule), regret_percent(plan.settings_of(policy)[0]))
        for policy, rule in finished.frozen.items()
    ]
    columns = ("policy", "chosen setting", "mean regret, %", "as it comes, %")
    return Table("The best single setting over the training families", columns, tuple(rows))
