"""Trials of a search: settings, what a rule costs in simulations and in a switch, and the journal of trials.

A journal of Optuna gets a line for each trial when it is known, so a killed search leaves none half done.

What is drawn depends on the seed, the number of the trial and the trials of earlier batches only: neither an
interruption nor the number of jobs changes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from omegaconf import MISSING
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import TrialState, create_trial

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError, first_line
from foretail.core.files import holding_lock
from foretail.core.settings import positive_share, setting
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.passes import lower
from foretail.features.catalog import feature
from foretail.features.dataset.schema import traffic_sha256_of
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store, canonical_json
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.predictors import LEARNED
from foretail_studies.families import Condition, Costs, Rule, SharingPlan, measure_rules

PLAYED_ROUND, PLAYED_TREE = "round.json", "ensemble.json"
"""Files of a round that was played: its account, and what it learned."""


@dataclass
class TrialSettings:
    """Settings of a search: how many trials are drawn, and where they are kept."""

    trials: int = setting(
        MISSING, "Number of trials in total, those of earlier runs included.", at_least=1, at_most=100_000
    )
    batch: int = setting(
        4, "Number of trials drawn before any of them is known, so that jobs change nothing.", at_least=1, at_most=1024
    )
    seed: int = setting(1, "Seed of the draws.", at_least=0, at_most=2**32 - 1)
    file: str | None = setting(None, "Journal file of the trials; null means search.journal beside the store.")
    name: str | None = setting(
        None, "Name of the search in that file; null makes it of all that decides its trials, so that a search resumes."
    )


@dataclass
class PlaySettings:
    """How a policy is learned by playing episodes of the closed loop."""

    observed: list[str] = setting(MISSING, "Features that the policy observes, of at most 8 bits each.")
    decisions: int = setting(MISSING, "Number of decisions of a round, rounded up.", at_least=1024)
    networks: int = setting(128, "Number of networks that are played side by side.", at_least=1, at_most=4096)
    episode_ns: int = setting(2_000_000, "Time during which flows start in an episode.", at_least=1)
    drain_ns: int = setting(20_000_000, "Time that the flows of an episode have afterwards.", at_least=0)
    discount: float = positive_share(0.9999, "Discount of rewards per decision.")
    leaves: int = setting(32, "Most leaves of the tree.", at_least=2, at_most=4096)

    def check(self, where: str) -> None:
        """Raise ForetailError on a feature that is unknown or too wide."""
        for name in self.observed:
            if feature(name).bits > 8:
                raise ForetailError(f"observed holds {name}, which has more than 8 bits: leave it out")


SWITCH_PORTS = 32
"""Ports of the switch for which costs of learned trees are computed."""


def log_traffic(run: TrackedRun, scenarios: Mapping[str, Scenario], seeds: Sequence[int], context: str) -> None:
    """Log the traffic of conditions as what a run was given: there are no rows, only simulations."""
    for name, scenario in scenarios.items():
        for seed in seeds:
            traffic = traffic_sha256_of(plain(asdict(scenario)), seed)
            run.log_dataset(f"{name}-{seed}", traffic, traffic, "simulated", 0, 0, context)


def cost_in_switch(ensemble: Ensemble, whose: str) -> tuple[int, str]:
    """Return the table entries of trees in a switch, and a note on what else they take, for any tau.

    These are of all tables of the cheapest P4 encoding for v1model, before ranges are expanded to prefixes; default
    actions are no entries. Planned, not rendered and proven: ``foretail export`` does that. Registers of features that
    share some count once. ForetailError on an input that is not a feature of a switch, or a model without an encoding.
    """
    state = dict.fromkeys(held for item in ensemble.features for held in feature(item.name).registers)
    bits = sum(SWITCH_PORTS * held.queue_bits + held.switch_bits for held in state)
    chosen = plan(lower(ensemble).ensemble, load_profile("v1model")).chosen
    entries = chosen.total("rows")
    return (
        entries,
        f"{whose}: {entries} P4 table entries, {chosen.total('tcam_bits')} TCAM bits, {bits} bits of registers",
    )


@dataclass
class Simulations:
    """Rules, each as trees, under conditions of a plan."""

    settings: PointSettings  #: how many at the same time
    plan: SharingPlan
    store: Store
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        """Raise ForetailError unless the conditions have cells of one size."""
        self.cell_bytes = self.plan.cell_bytes

    def levels(
        self, trees: Mapping[Rule, Ensemble | None], conditions: Sequence[Condition], seeds: Sequence[int]
    ) -> dict[Rule, float]:
        """Mean of log J of each rule, which asks an ensemble as policy ``learned``, or, without one, is of the plan."""
        policy = compose_policy(LEARNED, LEARNED)
        asking = {
            rule: policy.ask(export_to_store(tree, self.store).library)
            for rule, tree in trees.items()
            if tree is not None
        }
        plan = replace(self.plan, rules={**self.plan.rules, **asking})
        measure_rules("search", self.settings, plan, self.costs, {where: list(trees) for where in conditions}, seeds)
        return {rule: float(np.mean([self.costs.level(where, rule, seeds) for where in conditions])) for rule in trees}


SEARCHED, FOUND, FAILED = "searched", "found", "failed"
"""Attributes: of a study what decides its trials, of a trial what came of it."""

Distributions = Mapping[str, BaseDistribution]

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every study and trial on stderr


@dataclass(frozen=True)
class Trial:
    """A trial that was drawn, or is finished."""

    number: int  #: from 0
    values: Mapping[str, Any]  #: what was drawn, for every setting
    figures: Mapping[str, Any] | None = None  #: by name; None when it failed
    failed: str | None = None  #: why, one sentence; None when it did not


class Trials:
    """The trials of one search, opened by :func:`open_trials`, which has the same parameters."""

    def __init__(
        self,
        settings: TrialSettings,
        file: Path,
        stored: optuna.Study,
        distributions: Distributions,
        score: str,
        first: Sequence[Mapping[str, Any]],
    ) -> None:
        self.file = file
        self._stored, self._distributions, self._score = stored, dict(distributions), score
        self._batch, self._seed = settings.batch, settings.seed
        self._drawing = optuna.create_study(sampler=self._sampler_of(0))
        self._open: list[optuna.trial.Trial] = []
        finished, batch = stored.get_trials(deepcopy=False), self._batch
        for start in range(0, len(finished) - len(finished) % batch, batch):
            self._drawing.add_trials(finished[start : start + batch])
        for values in first[len(finished) - len(finished) % batch :]:
            self._drawing.enqueue_trial(dict(values))

    def finished(self) -> list[Trial]:
        """All finished trials, in order."""
        stored = self._stored.get_trials(deepcopy=False)
        return [Trial(one.number, one.params, one.user_attrs.get(FOUND), one.user_attrs.get(FAILED)) for one in stored]

    def batch(self, total: int) -> list[Trial]:
        """Return the next trials to evaluate, all below `total`; empty when there are none."""
        first = len(self._stored.get_trials(deepcopy=False))
        if first >= total:
            return []
        start = first - first % self._batch
        self._open = []
        for number in range(start, start + self._batch):
            self._drawing.sampler = self._sampler_of(number)
            self._open.append(self._drawing.ask(self._distributions))
        return [Trial(trial.number, trial.params) for trial in self._open[first - start :] if trial.number < total]

    def keep(self, trials: Sequence[Trial]) -> None:
        """Keep what became of a batch, in its order."""
        drawn = self._drawing.get_trials(deepcopy=False)
        for trial in trials:
            drawn_trial = drawn[trial.number]
            value = None if trial.figures is None else trial.figures[self._score]
            self._stored.add_trial(
                create_trial(
                    state=TrialState.FAIL if value is None else TrialState.COMPLETE,
                    value=value,
                    params=drawn_trial.params,
                    distributions=drawn_trial.distributions,
                    user_attrs={FAILED: trial.failed} if value is None else {FOUND: dict(trial.figures or {})},
                    system_attrs=drawn_trial.system_attrs,
                )
            )
        start = self._open[0].number
        finished = self._stored.get_trials(deepcopy=False)[start:]
        if len(finished) == len(self._open):
            for open_one, one in zip(self._open, finished, strict=True):
                self._drawing.tell(open_one, one.values, state=one.state)

    def _sampler_of(self, number: int) -> TPESampler:
        return TPESampler(seed=int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))


@contextmanager
def open_trials(
    settings: TrialSettings,
    store: Store,
    searched: Mapping[str, Any],
    distributions: Distributions,
    score: str,
    first: Sequence[Mapping[str, Any]],
) -> Iterator[Trials]:
    """Open the trials of a search, those of earlier runs included; nobody else can meanwhile.

    ForetailError when the file is none of Optuna, or holds another search of that name.

    Parameters
    ----------
    searched : everything that decides its trials, JSON-like
    distributions : by setting
    score : figure of a trial that is to be small
    first : values of the first trials, which nobody draws
    """
    name = settings.name or f"rules-{hashlib.sha256(canonical_json(searched).encode()).hexdigest()[:12]}"
    file = Path(settings.file) if settings.file else store.folder.parent / "search.journal"
    with holding_lock(file.with_name(f".{file.name}.lock")):
        stored = _study(file, name)
        before = stored.user_attrs.get(SEARCHED)
        if before is None:
            stored.set_user_attr(SEARCHED, dict(searched))
        elif canonical_json(before) != canonical_json(searched):
            differ = [key for key in searched if before.get(key) != searched[key]]
            raise ForetailError(
                f"{file} holds another search called {name}, with other {' and '.join(differ)}: give another name"
            )
        for trial in stored.get_trials(deepcopy=False):
            if not trial.state.is_finished():
                raise ForetailError(
                    f"trial {trial.number} of {name} in {file} was begun by another program, which did not end it: "
                    f"give another name"
                )
        yield Trials(settings, file, stored, distributions, score, first)


def _study(file: Path, name: str) -> optuna.Study:
    """The study of a name in a journal, which is made when missing; its last line goes if it was cut short."""
    try:
        content = file.read_bytes() if file.exists() else b""
        if content and not content.startswith(b'{"op_code":'):
            raise ValueError("it is no journal of Optuna")
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():  # Optuna would ignore damage of the last one
            json.loads(line)
        if whole != content:
            os.truncate(file, len(whole))
        lock = JournalFileSymlinkLock(str(file), grace_period=3)  # in seconds: that of a killed process is in the way
        storage = JournalStorage(JournalFileBackend(str(file), lock))
        return optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    except (IsADirectoryError, ValueError, LookupError, AssertionError, optuna.exceptions.OptunaError) as error:
        raise ForetailError(f"{file} cannot hold trials ({first_line(error)}): give another file") from error
