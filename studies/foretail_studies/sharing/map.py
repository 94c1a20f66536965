"""The map, and the best single setting of each policy: settings of policies, judged by the cost J."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import pandas as pd

from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.families.conditions import DEFAULT, Rule, SharingPlan
from foretail.pipelines.runs.zeros import say_if_unasked
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.policy_settings import policy_words, takes_alpha
from foretail_studies.sharing import tables
from foretail_studies.sharing.figures import CAPTIONS, draw_map, draw_settings
from foretail_studies.sharing.race import MapSettings, Race, race
from foretail_studies.sharing.verdicts import conclusion, rows_of, verdicts_of


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
    shown = [tables.settings(finished)]
    if settings.judges:
        asked = [tables.against(frame, policy) for policy in settings.asking] if plan.library is not None else []
        shown = [tables.regrets(frame), *asked, tables.families(verdicts), *shown]
    figures = {"": draw_map(frame), "settings": draw_settings(frame)}
    return Shown(
        frame,
        shown,
        {name: Drawn(figure, CAPTIONS[name]) for name, figure in figures.items()},
        frames={f"{settings.experiment}.csv": frame},
        notes=(
            f"Cost J: geometric mean of the mean slowdowns of queries, of short and of long flows. Regret: J over the "
            f"least J of the condition, less 1, paired by seed; the best rule is chosen on the other seeds. Seeds from "
            f"{settings.seeds[0]} on, up to {settings.most_seeds}. {_noise(frame)}",
            finished.costs.note,
        ),
        verdict=conclusion(finished, verdicts) if settings.judges else _chosen(finished),
        details={
            "families": {one.family: one.sentence for one in verdicts},
            "verdicts": [asdict(one) for one in verdicts],
            "settings": {policy: rule.setting for policy, rule in finished.frozen.items()},
        },
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


def _chosen(finished: Race) -> list[str]:
    tuned = [rule for rule in finished.frozen.values() if len(finished.plan.settings_of(rule.policy)) > 1]
    named = ", ".join(f"{policy_words(rule.policy)} {rule.setting}" for rule in tuned)
    return [f"The best single settings over the training families: {named}."] if tuned else []
