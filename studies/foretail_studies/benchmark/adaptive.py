"""The adaptive track: a rule may be made on calibration runs of the condition that is judged; all else is frozen.

The conditions and the runs that judge are those of the open-loop track. A way to make a rule sees the arrivals of one
calibration run, whose seed judges nothing. It makes a rule for each of five such runs, because one training may be
lucky.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.network.sources import SlottedTraffic
from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError, users_code
from foretail.core.settings import setting
from foretail.features.catalog import CELL_BYTES
from foretail.models import zoo
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.scorers import scorer_of
from foretail.pipelines.comparison.choosing import choose
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.data.collecting import workload_in
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.predictors import untrained
from foretail.pipelines.training.sending import NothingToLearn, train_on_runs
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, Slotted
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.python_policies import is_function
from foretail_studies.benchmark.frozen_tracks import ACCEPT, LQD, RUN, frozen_arrivals, recovered, traffic_of
from foretail_studies.benchmark.track import (
    ADAPTIVE,
    OPEN_LOOP,
    Score,
    by_family,
    frozen_of,
    named,
    percents_of,
    require_frozen,
)
from foretail_studies.families import Families, require_apart
from foretail_studies.predictors.chosen import drawn, on_zoo

TUNED = "tuned DT"
ALPHAS, ZOO, SEARCH, OWN_TREES, DRAWN_TREES = "alphas", "zoo", "zoo_and_search", "own_trees", "drawn_trees"
WAYS = (ALPHAS, ZOO, SEARCH, OWN_TREES, DRAWN_TREES)
"""The alpha of DT and the rule of the zoo that send most on the calibration run, the second with a search on it too;
trees that train on runs of the condition; and trees that train on drawn workloads, whatever the condition."""
WORST = -0.2
"""Percent of packets below tuned DT that the worst of all trainings of a recommended way may send."""


@dataclass
class AdaptiveSettings(PointSettings, Families):
    """Ways to make a rule on a calibration run, judged on frozen arrivals of the same condition."""

    model: str | None = setting(
        None,
        "What is judged: FILE.py:FUNCTION, which gets the packets of a calibration run as a DataFrame of slot and "
        "port, the ports and the buffer, and returns trees or a rule. null judges only the ways of the benchmark.",
    )
    ways: list[str] = setting(list(WAYS), "Ways of the benchmark that stand beside it.", one_of=WAYS)
    seeds: list[int] = setting(MISSING, "Seeds of the arrivals that judge.", at_least=1, at_most=2**30)
    calibration: list[int] = setting(MISSING, "Seeds of the calibration runs: a training for each.", at_least=1)
    trials: int = setting(100, "Rules that a search on a calibration run tries.", at_least=24)
    trees: list[str] = setting(MISSING, "Overrides of foretail train for the trees.")
    workloads: int = setting(12, "Drawn workloads of a training of the trees that train on such.", at_least=3)
    slots: int = setting(20_000, "Slots of a drawn workload; rare bursts last up to ten times as long.", at_least=1000)

    def check(self, where: str) -> None:
        """Raise ForetailError on a calibration run that judges, without a family that judges, and on another model."""
        super().check(where)
        self.require_both_sides()
        require_apart(calibration=self.calibration, seeds=self.seeds)
        if self.model is not None and not is_function(self.model):
            raise ForetailError(
                f"model={self.model} makes no rule on a calibration run: give FILE.py:FUNCTION, or judge it with "
                "track=open_loop"
            )


@dataclass(frozen=True)
class AdaptiveCase:
    """A training of a way, judged on all conditions."""

    way: str
    training: int  #: seed of the calibration runs; 0 for policies that are not trained


Made = tuple[str, Scorer | None, Mapping[str, Any]]
"""A policy of the switch, the rule or model that it asks, and its parameters."""


def _cases(settings: AdaptiveSettings) -> list[AdaptiveCase]:
    own = [] if settings.model is None else [settings.model]
    fixed = [AdaptiveCase(policy, 0) for policy in (LQD, ACCEPT, TUNED)]
    return [*fixed, *(AdaptiveCase(way, seed) for way in [*own, *settings.ways] for seed in settings.calibration)]


def _judge(case: AdaptiveCase, so_far: SoFar, settings: AdaptiveSettings) -> list[dict[str, Any]]:
    """Packets that a way sends on every condition and seed; LQD on the training families too, whose runs are frozen."""
    fixed: dict[str, Made] = {
        LQD: (LQD, None, {}),
        ACCEPT: (ACCEPT, None, {}),
        TUNED: ("dt", None, {"alpha": [zoo.tuned_alpha()]}),
    }
    rows = []
    for where, traffic in traffic_of(settings).items():
        if settings.families[where.family].held_out:
            policy, scorer, parameters = fixed.get(case.way) or _made(case, settings, traffic)
        elif case.way == LQD:
            policy, scorer, parameters = fixed[LQD]
        else:
            continue
        for seed in settings.seeds:
            batches, digest = frozen_arrivals(workload_in(traffic), traffic.ports, traffic.buffer, traffic.slots, seed)
            run = KnownRun.in_slots(batches, traffic.ports, traffic.buffer)
            sent = run.sent(policy, scorer, **parameters)
            rows.append(
                {
                    "family": where.family,
                    "condition": where.condition,
                    "seed": seed,
                    "sent": sent,
                    "arrivals_sha256": digest,
                }
            )
        so_far(f"{where}")
    return rows


def _made(case: AdaptiveCase, settings: AdaptiveSettings, traffic: SlottedTraffic) -> Made:
    """Return the policy, rule or model that a way makes on the calibration run of a condition."""
    if case.way == DRAWN_TREES:
        return _trees_of_drawn(case.training, settings.workloads, settings.slots, tuple(settings.trees))
    if case.way == OWN_TREES:
        runs = [_run(traffic, case.training + 10_000 * part) for part in range(3)]
        return _trained(settings.trees, runs[:2], runs[2:], f"{traffic}, {case.training}")
    sample = _arrivals(traffic, case.training)
    if case.way not in WAYS:
        return _users(case.way, sample, traffic)
    trials = settings.trials if case.way == SEARCH else 0
    choice = choose(sample, traffic.ports, traffic.buffer, trials=trials)
    return ("dt", None, {"alpha": [choice.dt.alpha]}) if case.way == ALPHAS else ("learned", choice.rule.scorer(), {})


def _arrivals(traffic: SlottedTraffic, seed: int) -> Slotted:
    return Slotted.joined(workload_in(traffic).batches(traffic.ports, traffic.buffer, traffic.slots, seed))


def _run(traffic: SlottedTraffic, seed: int) -> KnownRun:
    return KnownRun.in_slots([_arrivals(traffic, seed)], traffic.ports, traffic.buffer, condition=f"{traffic}")


def _users(model: str, sample: Slotted, traffic: SlottedTraffic) -> Made:
    """The rule that a user's function makes; ForetailError if it returns none."""
    file, _, name = model.rpartition(":")
    with users_code(lambda reason: ForetailError(f"{model} failed: {reason}")):
        made = runpy.run_path(file)[name](
            pd.DataFrame({"slot": sample.slot, "port": sample.port}), traffic.ports, traffic.buffer
        )
    ensemble = made.ensemble() if hasattr(made, "ensemble") else made
    if not hasattr(ensemble, "trees"):
        raise ForetailError(f"{model} returns {type(made).__name__}: return an Ensemble, or a rule of foretail.api.zoo")
    return "learned", scorer_of(ensemble), {}


@cache
def _trees_of_drawn(draw: int, workloads: int, slots: int, overrides: tuple[str, ...]) -> Made:
    """Return trees that train on workloads drawn by a seed, on runs 1 and 2 of each; run 3 chooses their threshold."""
    cases = drawn(workloads, draw, slots)
    runs, judges = ([case.run(seed) for case in cases for seed in seeds] for seeds in ((1, 2), (3,)))
    return _trained(overrides, runs, judges, f"{draw}, {workloads}, {slots}")


def _trained(overrides: Sequence[str], runs: Sequence[KnownRun], judges: Sequence[KnownRun], name: str) -> Made:
    """Return trees for the packets sent; the policy that always accepts where no packet is better dropped."""
    config = compose_settings(TrainConfig, list(overrides), "trees")
    predictor, trainer = config.predictor, config.trainer
    try:
        made = train_on_runs(
            config.objective,
            lambda: untrained(predictor, trainer),
            runs,
            judges,
            [FeatureInput.of(one, CELL_BYTES, AVERAGE_SHIFT) for one in config.features.names],
            rows=tuple(f"{name}, {place}" for place in range(len(runs))),
        )
    except NothingToLearn:
        return ACCEPT, None, {}
    return "learned", scorer_of(made.best.model), {}


def _show(rows: pd.DataFrame, settings: AdaptiveSettings) -> Shown:
    """Verify the frozen runs, and show every way with all of its trainings."""
    lqd = rows[rows["way"] == LQD]
    reference = frozen_of(lqd, settings.size, settings.held_out(), "arrivals_sha256", "sent")
    require_frozen(reference, settings.size, OPEN_LOOP)
    of_dt = rows[rows["way"] == TUNED][[*RUN, "sent"]].rename(columns={"sent": "sent_by_dt"})
    rows = recovered(rows, "way").fillna({"recovered_percent": 0.0}).merge(of_dt, on=RUN)
    rows["gain_percent"] = 100 * np.log(rows["sent"] / rows["sent_by_dt"])
    trained = rows[rows["training"] > 0].groupby("way", sort=False)
    summary = pd.DataFrame([_summary(str(way), some) for way, some in trained])
    trainings = len(settings.calibration)
    columns = {
        "way": "way",
        "score": "score, %",
        "gain": f"sent, over {TUNED}, %",
        "trainings": f"each of {trainings} trainings",
        "worst_condition": "worst condition of all trainings, %",
        "recommended": "recommended",
    }
    notes = (
        "A score is the share of what always accepting loses against LQD that a way wins back: the mean over held-out "
        f"families, with its 95 % interval over {len(settings.seeds)} seeds.",
        f"Sent is a mean over {rows.groupby(RUN[:2]).ngroups} held-out conditions with its interval over them. A way "
        f"is recommended if the worst of its {trainings} trainings sends no more than {-WORST} % less than {TUNED}.",
    )
    title = f"{named(ADAPTIVE, settings.size)}: rules that are made on a calibration run of each condition"
    verdict = [
        f"{row['way']}: {row['gain']} % more packets sent than {TUNED}, the worst of {trainings} trainings "
        f"{row['worst']:+.2f} %{', so it is not recommended' if row['recommended'] == 'no' else ''}."
        for row in summary.to_dict("records")
    ]
    details = {
        "version": named(ADAPTIVE, settings.size),
        "judged": settings.model,
        "ways": summary.drop(columns=["gain", "trainings"]).to_dict("records"),
        "reference_runs": reference,
    }
    return Shown(rows, [Table.of_frame(title, summary, columns)], notes=notes, verdict=verdict, details=details)


def _summary(way: str, rows: pd.DataFrame) -> dict[str, Any]:
    """The score of a way, and its gain over tuned DT: over conditions, of each training, and at worst."""
    shares = rows.groupby(RUN)["recovered_percent"].mean().rename("percent").reset_index()
    percents = percents_of(shares.assign(rule=way))
    over_seeds = Score.of_families(by_family({where: of[way] for where, of in percents.items()}), []).over_seeds
    gains = rows.groupby([*RUN[:2], "training"])["gain_percent"].mean().unstack()
    of_trainings = gains.mean(axis=0)
    return {
        "way": way,
        "score": interval_text(over_seeds, ""),
        "gain": interval_text(mean_interval(gains.mean(axis=1).tolist())),
        "trainings": ", ".join(f"{gain:+.2f}" for gain in of_trainings),
        "gain_percent": float(of_trainings.mean()),
        "worst": float(of_trainings.min()),
        "worst_condition": float(gains.min().min()),
        "recommended": "yes" if of_trainings.min() >= WORST else "no",
    }


ADAPTIVE_TRACK: PointExperiment[AdaptiveSettings, AdaptiveCase] = PointExperiment(
    settings=AdaptiveSettings,
    kind="adaptive",
    cases=_cases,
    name=lambda case: f"{case.way}, training {case.training}",
    measure=_judge,
    show=_show,
    code=(__name__, "models.drop"),  # predictors are imported by their names in settings
    varied=("model", "ways", "calibration"),
    depends_on=lambda case, settings: {
        **on_zoo(case, settings),
        "file": file_digest(Path(case.way.rpartition(":")[0])) if is_function(case.way) else None,
    },
)
