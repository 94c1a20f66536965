"""The map, and the best single setting of each policy: settings of policies, judged by the cost J."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import ASKING, DT_PREDICTED, require_tunable
from foretail.core.errors import ForetailError
from foretail.core.settings import require_within, setting
from foretail.pipelines.comparison.statistics import PairedDifference, change_text, mean_interval
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.runs.notes import say_if_unasked
from foretail.pipelines.runs.result import Table
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.policies import PUSHING_OUT
from foretail.sim_bridge.policy_settings import NUMBERS, policy_words, takes_alpha
from foretail_studies.engines.bootstrap import mean_over_groups
from foretail_studies.families import CS, DEFAULT, LQD, Condition, Costs, Families, Rule, SharingPlan, measure_rules

DECIDED_PERCENT = 5.0
"""Half width of a 95 % interval below which a comparison is decided; one with a single sign is decided too."""
EQUAL_PERCENT = 5.0
"""Difference of costs below which settings count as equally good."""


@dataclass
class MapSettings(SimulatedPointSettings, Families):
    """Policies with many settings under families of conditions, judged by their cost J.

    Settings are chosen on the training families and frozen; the others only judge them.
    """

    policies: dict[str, dict[str, list[float]]] = setting(
        MISSING, "Values of each parameter by policy; all their combinations are tried beside the policy's defaults."
    )
    model: str | None = setting(None, "Model, as in export, that the policies in asking ask; null asks no model.")
    asking: list[str] = setting(["credence"], "With model, the policies that ask it.", one_of=(*ASKING, DT_PREDICTED))
    seeds: list[int] = setting(MISSING, "Traffic seeds of every setting.", at_least=1, at_most=2**30)
    most_seeds: int = setting(
        30, "Most seeds: further ones follow while a comparison with LQD or CS is undecided.", at_least=1, at_most=1000
    )
    give_up_ratio: float = setting(
        2.0,
        "Ratio of a setting's J to the best J of its policy above which it gets no further seeds.",
        above=1,
        at_most=100,
    )

    judges: ClassVar[bool] = True
    """True if held-out families judge the settings."""

    def check(self, where: str) -> None:
        """Raise ForetailError on families, policies or seeds that cannot be compared."""
        super().check(where)
        if not self.training():
            raise ForetailError("families has none with held_out=false, on which settings are chosen: add one")
        if self.judges and not self.held_out():
            raise ForetailError("families has none with held_out=true, which judge the settings: add one")
        for needed in ("lqd", "cs"):
            if needed not in self.policies:
                raise ForetailError(f"policies lacks {needed}, to which all are compared: add {needed}: {{}}")
        for name, values in self.policies.items():
            require_tunable("policies", name, values)
            for parameter, numbers in values.items():
                for number in numbers:
                    require_within(f"policies.{name}.{parameter}", number, NUMBERS[parameter].metadata)
        if self.most_seeds < len(self.seeds):
            raise ForetailError(f"most_seeds = {self.most_seeds} is less than the {len(self.seeds)} seeds: raise it")


@dataclass(frozen=True)
class Race:
    """A finished race."""

    settings: MapSettings
    plan: SharingPlan
    costs: Costs
    frozen: Mapping[str, Rule]  #: by policy: its best setting over the training families
    contenders: Mapping[Condition, Sequence[Rule]]  #: those with further seeds, all with the same

    def training(self) -> list[Condition]:
        """The conditions of the training families."""
        return [where for where in self.plan.scenarios if where.family in self.settings.training()]

    def hindsight(self, where: Condition, policy: str) -> Rule:
        """The policy's best setting in this very condition, of those that ran on all first seeds."""
        return self.costs.best(where, self.plan.settings_of(policy), self.settings.seeds)


def race(settings: MapSettings, plan: SharingPlan) -> Race:
    """Measure what the store lacks, first seeds first."""
    costs, seeds = Costs(), settings.seeds

    def measure(rules: Mapping[Condition, Sequence[Rule]], seed: int) -> None:
        measure_rules(f"{settings.experiment}, seed {seed}", settings, plan, costs, rules, [seed])

    for seed in seeds:
        measure({where: still_running(settings, plan, costs, where) for where in plan.scenarios}, seed)
    frozen = frozen_settings(settings, plan, costs)
    contenders = {where: _contenders(settings, plan, costs, where, frozen) for where in plan.scenarios}
    for seed in seeds:  # a frozen setting was given up in some conditions
        measure(contenders, seed)
    for seed in range(max(seeds) + 1, max(seeds) + 1 + settings.most_seeds - len(seeds)):
        undecided = {
            where: rules
            for where, rules in contenders.items()
            if any(_is_open(costs.difference(where, rule, to)) for to in (LQD, CS) for rule in rules if rule != to)
        }
        if not settings.judges or not undecided:
            break
        measure(undecided, seed)
    return Race(settings, plan, costs, frozen, contenders)


def still_running(settings: MapSettings, plan: SharingPlan, costs: Costs, where: Condition) -> list[Rule]:
    """The rules but those that cost far more than another setting of their policy; a default always runs."""
    if where not in costs.runs:
        return list(plan.rules)
    ran = list(next(iter(costs.runs[where].values())))
    running = []
    for policy in plan.policies:
        rules = [rule for rule in plan.settings_of(policy) if len(costs.runs[where][rule]) == len(ran)]
        least = min(costs.level(where, rule, ran) for rule in rules)
        far = least + math.log(settings.give_up_ratio)
        running += [rule for rule in rules if rule.setting == DEFAULT or costs.level(where, rule, ran) <= far]
    return running


def frozen_settings(settings: MapSettings, plan: SharingPlan, costs: Costs) -> dict[str, Rule]:
    """By policy, the setting with the least mean of log J against LQD over the conditions of the training families."""
    training = [where for where in plan.scenarios if where.family in settings.training()]

    def against_lqd(rule: Rule) -> float:
        """On the seeds that the rule has: one that was given up in a condition is not out of the others."""
        return float(np.mean([costs.difference(where, rule, LQD).mean for where in training]))

    return {policy: min(plan.settings_of(policy), key=against_lqd) for policy in plan.policies}


def _contenders(
    settings: MapSettings, plan: SharingPlan, costs: Costs, where: Condition, frozen: Mapping[str, Rule]
) -> list[Rule]:
    """Return the default, the frozen setting and the best setting in hindsight of every policy."""
    contenders: list[Rule] = []
    for policy in plan.policies:
        rules = plan.settings_of(policy)
        contenders += [rules[0], frozen[policy], costs.best(where, rules, settings.seeds)]
    return list(dict.fromkeys(contenders))


def _is_open(difference: PairedDifference) -> bool:
    if difference.low is None or difference.high is None:
        return True
    narrow = (difference.high - difference.low) / 2 <= math.log1p(DECIDED_PERCENT / 100)
    return not narrow and difference.low <= 0 <= difference.high


NO_MATTER, THRESHOLD, LQD_PAYS, OPEN = (
    "sharing everything is as good as anything",
    "a tuned threshold is enough",
    "the goal of LQD pays",
    "not decided by these seeds",
)
MEANS = (
    *("timeouts_percent", "p99_short", "p99_long", "p99_query", "query_timeouts"),
    *("goodput_bps", "asked", "predicted_drops"),
)
"""Flows with a timeout, slowdowns, timeouts per query, and packets about which a predictor was asked, or said drop."""


def rows_of(race: Race) -> pd.DataFrame:
    """One row per condition and rule, with means over seeds of what a run measured.

    ``held_out``: no setting was chosen on the family. ``frozen`` and ``hindsight``: the policy's best setting over the
    training families, and in this condition. ``cost``: J, geometric mean over seeds. ``regret``: J over the least J of
    the condition, less 1; the rule with the least J is chosen on the other seeds. Both with 95 % intervals as ``_low``
    and ``_high``, missing with one seed. ``noise_floor``: what the regret of the best would seem to be if it were
    chosen on the seeds that judge.
    """
    rows: list[dict[str, Any]] = []
    for where, rules in race.costs.runs.items():
        contenders = race.contenders[where]
        floor = race.costs.noise_floor(where, contenders)
        for rule, runs in rules.items():
            level = mean_interval(list(race.costs.logs(where, rule).values()))
            rows.append(
                {
                    "family": where.family,
                    "held_out": race.settings.families[where.family].held_out,
                    "condition": where.condition,
                    "policy": rule.policy,
                    "setting": rule.setting,
                    "frozen": rule == race.frozen[rule.policy],
                    "hindsight": rule == race.hindsight(where, rule.policy),
                    "seeds": len(runs),
                    **level.columns("cost", math.exp),
                    **race.costs.regret(where, rule, contenders).columns("regret", math.expm1),
                    "noise_floor": None if floor is None else math.expm1(floor),
                    **{name: mean_interval([run[name] for run in runs.values()]).mean for name in MEANS},
                }
            )
    numbers = {column: np.float64 for column in rows[0] if column.startswith(("cost", "regret", "noise"))}
    return pd.DataFrame(rows).astype(numbers)  # what one seed does not tell is NaN


def shown(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each policy, which setting it has (``default``, ``frozen`` or ``hindsight``), and a row per condition."""
    for policy, part in rows.groupby("policy", sort=False):
        yield str(policy), DEFAULT, part[part["setting"] == DEFAULT]
        if part["setting"].nunique() > 1:
            for which in ("frozen", "hindsight"):
                yield str(policy), which, part[part[which]]


@dataclass(frozen=True)
class FamilyVerdict:
    """Verdict of a family."""

    family: str
    held_out: bool
    verdict: str  #: one of four
    sentence: str


def verdicts_of(race: Race) -> list[FamilyVerdict]:
    """A verdict per family."""
    by_family: dict[str, list[Condition]] = {}
    for where in race.plan.scenarios:
        by_family.setdefault(where.family, []).append(where)
    return [_verdict(race, name, conditions) for name, conditions in by_family.items()]


def _verdict(race: Race, name: str, conditions: Sequence[Condition]) -> FamilyVerdict:
    close = math.log1p(EQUAL_PERCENT / 100)
    frozen = list(race.frozen.values())
    tuned = [rule for rule in frozen if race.settings.policies.get(rule.policy)]
    thresholds = [rule for rule in tuned if rule.policy not in PUSHING_OUT]

    def less(rule: Rule, other: Rule) -> PairedDifference:
        return race.costs.family_difference(conditions, rule, other)

    def no_worse(rule: Rule, than: Sequence[Rule]) -> bool:
        differences = [less(rule, other) for other in than if other != rule]
        return all(one.high is not None and one.high <= close for one in differences)

    lqd_cs = less(LQD, CS)
    enough = [rule for rule in thresholds if no_worse(rule, [LQD, CS])]
    if no_worse(CS, frozen):
        verdict, sentence = NO_MATTER, f"{NO_MATTER}: no rule is more than {EQUAL_PERCENT:g} % cheaper"
    elif enough:
        cheapest = min(enough, key=lambda rule: less(rule, CS).mean or 0.0)
        verdict, sentence = THRESHOLD, f"{THRESHOLD}: {cheapest} costs {change_text(less(cheapest, CS))} against CS"
    elif _below(lqd_cs) and all(_below(less(LQD, rule)) for rule in thresholds):
        verdict, sentence = LQD_PAYS, f"{LQD_PAYS}: it costs {change_text(lqd_cs)} against CS"
    else:
        verdict, sentence = OPEN, f"{OPEN}: LQD costs {change_text(lqd_cs)} against CS"
    if verdict == LQD_PAYS and race.plan.library is not None:
        for policy in race.settings.asking:
            if (recovered := _recovered(race, conditions, policy)) is not None:
                sentence += f"; {policy_words(policy)} with the model recovers {recovered:.0f} % of that"
    return FamilyVerdict(name, race.settings.families[name].held_out, verdict, sentence)


def _recovered(race: Race, conditions: Sequence[Condition], policy: str) -> float | None:
    """Return the part that the policy saves of what LQD saves against Complete Sharing, %."""
    difference = race.costs.family_difference(conditions, Rule(policy, DEFAULT), CS).mean
    lqd = race.costs.family_difference(conditions, LQD, CS).mean
    return None if difference is None or not lqd else 100 * difference / lqd


def _below(difference: PairedDifference) -> bool:
    """Return True if the whole interval is below 0."""
    return difference.high is not None and difference.high < 0


def conclusion(verdicts: Sequence[FamilyVerdict]) -> list[str]:
    """How many families say what."""
    counts = {words: sum(one.verdict == words for one in verdicts) for words in (NO_MATTER, THRESHOLD, LQD_PAYS, OPEN)}
    counted = ", ".join(f"{words} in {count}" for words, count in counts.items() if count)
    return [f"Of {len(verdicts)} families: {counted}."]


CLOSE_PERCENT = 10
"""The goal of a learned rule: at most so much regret in every held-out condition."""


def regrets_table(rows: pd.DataFrame) -> Table:
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


def rivals_table(rows: pd.DataFrame, asking: str) -> Table:
    """Table of the cost of the policy that asks a model against every rule, over the held-out families."""
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


def families_table(verdicts: Sequence[FamilyVerdict]) -> Table:
    """The verdict of each family."""
    return Table(
        "What each family says",
        ("family", "held out", "verdict"),
        tuple((one.family, "yes" if one.held_out else "no", one.sentence) for one in verdicts),
    )


def settings_table(finished: Race) -> Table:
    """The setting of each policy that was frozen, beside the one that it comes with, on the training families."""
    plan, costs, training = finished.plan, finished.costs, finished.training()

    def regret_percent(rule: Rule) -> float:
        logs = [costs.regret(where, rule, finished.contenders[where]).mean for where in training]
        return math.nan if None in logs else float(100 * np.mean(np.expm1(np.array(logs, np.float64))))

    rows = [
        (policy_words(policy), rule.setting, regret_percent(rule), regret_percent(plan.settings_of(policy)[0]))
        for policy, rule in finished.frozen.items()
    ]
    columns = ("policy", "chosen setting", "mean regret, %", "as it comes, %")
    return Table("The best single setting over the training families", columns, tuple(rows))


@dataclass
class TuneSettings(MapSettings):
    """Policies with many settings under the training families alone."""

    judges: ClassVar[bool] = False


def show(settings: MapSettings, run: Run) -> Shown:
    """Race all settings, and show what each costs."""
    families = settings.families if settings.judges else settings.training()
    plan = SharingPlan.of(settings, settings.shared, families, settings.policies)
    if settings.model is not None:
        predictor = load_predictor(settings.model, settings.tracking, run.store)
        plan = plan.with_model(settings.asking, predictor_to_store(predictor, run.store).library)
    finished = race(settings, plan)
    verdicts, frame = verdicts_of(finished), rows_of(finished)
    if plan.library is not None:
        _say_unasked(settings, plan, frame)
    shown = [settings_table(finished)]
    if settings.judges:
        rivals = [rivals_table(frame, policy) for policy in settings.asking] if plan.library is not None else []
        shown = [regrets_table(frame), *rivals, families_table(verdicts), *shown]
    return Shown(
        frame,
        shown,
        frames={f"{settings.experiment}.csv": frame},
        notes=(
            f"Cost J: geometric mean of the mean slowdowns of queries, of short and of long flows. Regret: J over the "
            f"least J of the condition, less 1, paired by seed; the best rule is chosen on the other seeds. Seeds from "
            f"{settings.seeds[0]} on, up to {settings.most_seeds}. {_noise(frame)}",
            finished.costs.note,
        ),
        verdict=conclusion(verdicts),
    )


SHARING_MAP = FunctionExperiment(MapSettings, show)
TUNE = FunctionExperiment(TuneSettings, show)


def _say_unasked(settings: MapSettings, plan: SharingPlan, frame: pd.DataFrame) -> None:
    """Say which policies never asked the model about a packet."""
    about_packets = [name for name in settings.asking if not takes_alpha(plan.rules[Rule(name, DEFAULT)].name)]
    asking = {policy: frame[frame["policy"] == policy] for policy in about_packets}
    say_if_unasked({name: (int(one["asked"].sum()), int(one["predicted_drops"].sum())) for name, one in asking.items()})


def _noise(frame: pd.DataFrame) -> str:
    """The noise floor of regrets as a sentence."""
    floors = 100 * frame.drop_duplicates(["family", "condition"])["noise_floor"].dropna()
    if not len(floors):
        return "One seed tells no regret."
    return f"Noise floor of a regret: {floors.mean():.1f} % in the mean over conditions, {floors.max():.1f} % at most."
