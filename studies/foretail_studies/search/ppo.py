"""A sharing rule by reinforcement: PPO in ``foretail/ClosedLoop-v0``, its network distilled to a tree.

This is the rival of the searches in :mod:`foretail_studies.search.rules`: the training families and the reference are
theirs. Every round plays new episodes of all training conditions and is an entry of the store, so training goes on
where it was stopped. After each round a tree learns what the network answers. The tree that costs least in the whole
conditions of training, on the first seed, runs on all seeds. Held-out families are never simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import policy_name
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.figure_style import panels, styled
from foretail.pipelines.comparison.statistics import change_text, percent_change
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.families.conditions import DEFAULT, Rule, SharingPlan
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table, plain
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.settings.rules import LEARNED
from foretail_studies.search.budget import cost_in_switch, log_traffic
from foretail_studies.search.settings import PLAYED_ROUND, PLAYED_TREE, PlaySettings
from foretail_studies.search.simulations import Simulations


@dataclass
class PpoSettings(SimulatedPointSettings, Families, PlaySettings):
    """A policy that PPO learns in the training families, as a tree for policy learned."""

    rounds: int = setting(MISSING, "Number of rounds, those of earlier runs included.", at_least=1, at_most=10_000)
    reference: str = setting("lqd_last", "Policy against whose J all scores are taken.")
    seeds: list[int] = setting(MISSING, "Seeds of the best tree; the first is that of every round's tree.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a feature that is unknown or too wide."""
        super().check(where)
        PlaySettings.check(self, where)


def show(settings: PpoSettings, run: Run) -> Shown:
    """Play round by round, judge the tree of each, and run the best on all seeds."""
    reference = Rule(policy_name(settings.reference), DEFAULT)
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {settings.reference: {}})
    wheres = list(plan.scenarios)
    simulations = Simulations.of(settings, plan, wheres, run.store)
    entries = _rounds(settings, plan, run.store, simulations.cell_bytes)
    trees = {Rule(LEARNED, f"ppo_{number}"): Ensemble.load(one.path / PLAYED_TREE) for number, one in entries.items()}
    levels = simulations.levels({reference: None, **trees}, wheres, settings.seeds[:1])
    best = min(trees, key=lambda rule: levels[rule])
    simulations.levels({reference: None, best: trees[best]}, wheres, settings.seeds)
    against = simulations.costs.family_difference(wheres, best, reference)
    rows = _rows(entries, [percent_change(levels[rule] - levels[reference]) for rule in trees])
    switch, in_switch = cost_in_switch(trees[best], "the best as a tree")
    change = percent_change(against.mean)
    return Shown(
        rows,
        [_table(rows, settings.reference)],
        {"": Drawn(draw(rows, settings.reference), CAPTION, rows)},
        notes=(
            f"training: {rows['decisions'].iloc[-1]:,} decisions in {rows['simulated_s'].iloc[-1]:.3g} s of traffic",
            in_switch,
            simulations.costs.note,
        ),
        verdict=(
            f"The tree of {best.setting} is the best of {len(rows)} in the training conditions: J is "
            f"{change_text(against)} % against {settings.reference} on {len(settings.seeds)} seeds.",
        ),
        details={"best": best.setting, "against_reference": asdict(against), "switch": asdict(switch)},
        learned=Learned(
            trees[best],
            f"PPO in {len(wheres)} conditions of the training families, distilled to a tree: J {change:+.3g} % against "
            f"{settings.reference}.",
            {} if change is None else {"against_reference_percent": change},
            lambda logged: log_traffic(
                logged, {str(where): one for where, one in plan.scenarios.items()}, settings.seeds, "train"
            ),
        ),
    )


RULE_BY_PPO = FunctionExperiment(PpoSettings, show)


def _rounds(settings: PpoSettings, plan: SharingPlan, store: Store, cell_bytes: int) -> dict[int, Entry]:
    """The entries of all rounds by number, from 1."""
    try:
        from stable_baselines3 import __version__ as version
    except ImportError as error:
        raise ForetailError("Stable-Baselines3 is not installed: pip install 'foretail[rl]'") from error
    from foretail_studies.search.playing import Episodes, play_round

    episodes = Episodes(list(plan.scenarios.values()), settings)
    depends_on = {
        "scenarios": [plain(asdict(scenario)) for scenario in episodes.scenarios],
        **{field.name: getattr(settings, field.name) for field in fields(PlaySettings)},
        "code": code_digest(play_round),
        "version": version,
    }
    entries: dict[int, Entry] = {}
    with StageProgress() as progress:
        for number in range(1, settings.rounds + 1):
            progress.update(f"round {number} of {settings.rounds}", (number - 1) / settings.rounds)
            before = entries.get(number - 1)
            key = Key("ppo_round", {**depends_on, "round": number, "before": None if before is None else before.digest})
            learn = partial(
                play_round,
                episodes=episodes,
                number=number,
                before=None if before is None else before.path,
                cell_bytes=cell_bytes,
            )
            entries[number] = store.get_or_build(key, learn)
    return entries


def _rows(entries: Mapping[int, Entry], scores: Sequence[float | None]) -> pd.DataFrame:
    """A row per round; decisions and simulated seconds are of this round and all before it."""
    rows = pd.DataFrame([{"round": number, **one.document(PLAYED_ROUND)} for number, one in entries.items()])
    rows[["decisions", "simulated_s"]] = rows[["decisions", "simulated_s"]].cumsum()
    return rows.assign(score=pd.Series(scores, dtype=float), wall_s=[one.seconds for one in entries.values()])


def _table(rows: pd.DataFrame, reference: str) -> Table:
    columns = {
        "round": "round",
        "decisions": "decisions",
        "simulated_s": "simulated s",
        "mean_return": "mean return",
        "drops_percent": "network drops, %",
        "same_percent": "tree answers alike, %",
        "score": f"J of the tree against {reference}, %",
    }
    return Table.of_frame("Rounds of PPO on the training families", rows, columns)


CAPTION = (
    "Learning by simulated seconds of traffic: the mean return of the episodes of a round, which is 1 - J, and J of "
    "the tree of that round in the whole conditions of training on one seed."
)


@styled
def draw(rows: pd.DataFrame, reference: str) -> Figure:
    """The return, and the score of the tree, by simulated seconds."""
    figure, (left, right) = panels(2, inches=(3.2, 2.6))
    left.plot(rows["simulated_s"], rows["mean_return"], marker="o")
    left.set(xlabel="simulated traffic, s", ylabel="mean return of an episode")
    right.plot(rows["simulated_s"], rows["score"], marker="o")
    right.set(xlabel="simulated traffic, s", ylabel=f"J of the tree against {reference}, %")
    return figure
