"""Tables of a map: regret of every rule, what the policy with a model costs against each, families, settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from foretail.pipelines.comparison.bootstrap import mean_over_groups
from foretail.pipelines.comparison.statistics import change_text
from foretail.pipelines.families.conditions import Rule
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.sharing.race import Race
from foretail_studies.sharing.verdicts import FamilyVerdict, shown

CLOSE_PERCENT = 10
"""The goal of a learned rule: at most so much regret in every held-out condition."""


def regrets(rows: pd.DataFrame) -> Table:
    """Regret of every rule that stands for its policy, over training and held-out conditions."""
    made = []
    for policy, which, part in shown(rows):
        regrets = 100 * part["regret"].dropna()
        training, held_out = (regrets[part.loc[regrets.index, "held_out"] == one] for one in (False, True))
        made.append(
            {
                "policy": policy_words(policy),
                "setting": part["setting"].iloc[0] if which == "frozen" else which,
                "mean, training": float(training.mean()) if len(training) else None,
                "worst, training": float(training.max()) if len(training) else None,
                "mean, held out": float(held_out.mean()) if len(held_out) else None,
                "median, held out": float(held_out.median()) if len(held_out) else None,
                "worst, held out": float(held_out.max()) if len(held_out) else None,
                f"within {CLOSE_PERCENT}, held out": f"{int((held_out <= CLOSE_PERCENT).sum())} of {len(held_out)}",
            }
        )
    return Table.of_rows("Regret in % of the cost J, over conditions", made)


def against(rows: pd.DataFrame, asking: str) -> Table:
    """What the policy that asks a model costs against every rule, over the held-out families."""
    own = rows[(rows["policy"] == asking) & rows["held_out"]].set_index(["family", "condition"])["cost"]
    made = []
    for policy, which, part in shown(rows[rows["held_out"] & (rows["policy"] != asking)]):
        other = part.set_index(["family", "condition"])["cost"]
        less = np.log(own.loc[other.index]) - np.log(other)
        mean = mean_over_groups([group.to_numpy() for _, group in less.groupby(level="family", sort=False)])
        made.append(
            {
                "against": policy_words(policy),
                "setting": part["setting"].iloc[0] if which == "frozen" else which,
                "%": change_text(mean),
                "cheaper in families": int((less.groupby(level="family").mean() < 0).sum()),
                "of": mean.pairs,
            }
        )
    return Table.of_rows(
        f"What {policy_words(asking)} costs with the model, held-out families",
        made,
        "95 % bootstrap intervals over families of the mean of log J over their conditions",
    )


def families(verdicts: Sequence[FamilyVerdict]) -> Table:
    """The verdict of each family."""
    return Table(
        "What each family says",
        ("family", "held out", "verdict"),
        tuple((one.family, "yes" if one.held_out else "no", one.sentence) for one in verdicts),
    )


def settings(finished: Race) -> Table:
    """The setting of each policy that was frozen, beside the one that it comes with, on the training families."""
    plan, costs, training = finished.plan, finished.costs, finished.training()

    def regret_percent(rule: Rule) -> float:
        differences = [costs.regret(where, rule, finished.contenders[where]).mean for where in training]
        return (
            float(100 * np.mean(np.expm1(np.array(differences, dtype=np.float64))))
            if None not in differences
            else float("nan")
        )

    rows = [
        (policy_words(policy), rule.setting, regret_percent(rule), regret_percent(plan.settings_of(policy)[0]))
        for policy, rule in finished.frozen.items()
    ]
    columns = ("policy", "chosen setting", "mean regret, %", "as it comes, %")
    return Table("The best single setting over the training families", columns, tuple(rows))
