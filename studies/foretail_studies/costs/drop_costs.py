"""Costs of drops, measured, and trees that learn them, for the policy ``learned``.

Runs of the training families divide at drawn arrivals. The labels of each run are a dataset of the store. Trees
learn what a drop gains; J on other seeds chooses from which gain on they drop. No held-out family is simulated here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import POLICIES, Policy
from foretail.core.code import code_digest
from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError
from foretail.core.settings import positive_share, setting
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run as DescribedRun
from foretail.features.dataset.schema import traffic_sha256
from foretail.features.dataset.writer import write_drop_costs
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, percent_change
from foretail.pipelines.data.collecting import DATASET, collect_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown, measure_cases
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Key, Store
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.settings.predictors import LEARNED
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail_studies.costs.labels import (
    BANDS,
    SIGNAL_COLUMNS,
    STRATA,
    Branching,
    FlipCase,
    LabelledRun,
    cost_labels,
    drawn_arrivals,
    fit_cost_trees,
    gains,
    measured_branches,
    parts,
    require_losses,
    signal_to_noise,
)
from foretail_studies.families import CS, Condition, Families, Rule, SharingPlan, require_apart
from foretail_studies.search.trials import Simulations, cost_in_switch


@dataclass
class CostSettings(SimulatedPointSettings, Families):
    """Costs of decisions, measured by branches of runs, and trees that learn them, for the policy ``learned``.

    At sampled arrivals a run divides: a branch accepts, another drops. Their costs J differ by what the drop costs,
    and by chaos. Runs are those of conditions of the training families.
    """

    model: str | None = setting(None, "Model, as in export, for policies without a library, such as learned.")
    conditions: list[str] = setting(
        [],
        "Training conditions as FAMILY CONDITION, such as loss_based load_60; an empty list means the "
        "first condition of each family.",
    )
    policies: list[str] = setting(
        MISSING,
        "Policies whose decisions are flipped, such as cs or dt_alpha_2, or learned, which asks model; none "
        "that pushes out.",
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds of the labelled runs.", at_least=1, at_most=2**30)
    traffic_ns: int = setting(
        MISSING, "Traffic time of labelled runs, shortened because every branch runs to their end.", at_least=1
    )
    flips: int = setting(
        MISSING, "Number of arrivals of a run at which one decision is flipped.", at_least=1, at_most=100_000
    )
    held_flips: int = setting(
        MISSING,
        "Number of arrivals from which on decisions are flipped for one base round trip, for that port and flow class.",
        at_least=0,
        at_most=100_000,
    )
    repeats: int = setting(
        2, "Number of runs with each decision; a single one does not show chaos.", at_least=1, at_most=100
    )
    flips_per_point: int = setting(
        MISSING, "Number of flips that one process simulates, which is what a killed command repeats.", at_least=1
    )
    columns: list[str] = setting(MISSING, "Columns of a trace that the trees read.")
    trees: int = setting(4, "Number of trees of the regression.", at_least=1, at_most=64)
    depth: int = setting(4, "Depth of each tree.", at_least=1, at_most=8)
    learning_rate: float = positive_share(0.5, "Share of each tree that counts.")
    fewest_flips: int = setting(20, "Fewest flips in a leaf.", at_least=1)
    drop_shares: list[float] = positive_share(
        MISSING, "Shares of arrivals that the trees may drop, beside all whose drop they predict to be cheaper."
    )
    validation_seeds: list[int] = setting(
        MISSING, "Traffic seeds on which J chooses among these shares, none of seeds.", at_least=1, at_most=2**30
    )
    seed: int = setting(1, "Seed of the drawn arrivals and of the trees.", at_least=0, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on ns-3, on policies that decide no arrival, and on seeds that have two roles."""
        super().check(where)
        if self.network.name == "ns3":
            raise ForetailError("network=ns3 has no branches, which measure what drops cost: use network=native")
        for name in self.policies:
            policy = POLICIES.get(name.split("_")[0])
            if policy is not None and policy.pushes_out:
                raise ForetailError(f"policies names {name}, which pushes out: name one that decides arrivals")
        known = {one.name: one for one in FEATURES}
        for name in self.columns:
            if name not in known:
                raise ForetailError(f"columns names {name}, which no switch has: choose from {', '.join(known)}")
            if known[name].averaged:
                raise ForetailError(
                    f"columns names {name}, an average over a time that networks differ in: name others"
                )
        require_apart(validation_seeds=self.validation_seeds, seeds=self.seeds)


BRANCHES, COSTS = "drop_cost_branches", "drop_costs"
"""Folders of the store: costs of branches, and the labels of a run as a dataset."""


@dataclass(frozen=True)
class Labelled:
    """Runs with the labels of their drawn arrivals."""

    runs: Sequence[tuple[LabelledRun, Dataset, pd.DataFrame]]
    points: int  #: of branches
    reused: int  #: so many of them were in the store

    @property
    def frame(self) -> pd.DataFrame:
        """All labels, with their runs."""
        return pd.concat([frame for _, _, frame in self.runs], ignore_index=True)

    def log(self, run: TrackedRun) -> None:
        """Name the datasets as what a run in MLflow was given."""
        for one, dataset, _ in self.runs:
            manifest = dataset.manifest
            run.log_dataset(
                str(one),
                manifest.content_sha256,
                traffic_sha256(manifest),
                str(dataset.path),
                manifest.rows,
                manifest.drops,
                "train",
            )


@dataclass(frozen=True)
class Learning:
    """Everything with which labels are collected and trees tried: conditions of training families, and the store."""

    settings: CostSettings
    plan: SharingPlan  #: all conditions that are simulated
    conditions: Sequence[Condition]  #: those that are labelled
    simulations: Simulations
    store: Store

    @classmethod
    def of(cls, settings: CostSettings, store: Store) -> Learning:
        """Compose it; ForetailError on unknown conditions, or cells of several sizes."""
        plan = SharingPlan.of(settings, settings.shared, settings.training(), {CS.policy: {}})
        named = conditions_of(settings.conditions, plan, "conditions")
        conditions = named or [next(one) for _, one in groupby(plan.scenarios, key=lambda condition: condition.family)]
        return cls(settings, plan, conditions, Simulations(settings, plan, store), store)

    def labelled(self, policies: Mapping[str, Policy]) -> Labelled:
        """Draw arrivals of every run under these policies, measure branches and keep the labels as datasets."""
        settings, plan = self.settings, self.plan
        scenarios = {
            condition: replace(whole, traffic_ns=min(whole.traffic_ns, settings.traffic_ns))
            for condition, whole in ((condition, plan.scenarios[condition]) for condition in self.conditions)
        }
        branching = Branching(scenarios, policies, settings.repeats, plan.simulators, plan.code)
        drawn: dict[tuple[LabelledRun, int], pd.DataFrame] = {}
        traces: dict[LabelledRun, Dataset] = {}
        cases: list[FlipCase] = []
        for condition, scenario in scenarios.items():
            for name, policy in policies.items():
                for collected in collect_runs(settings, scenario, policy, settings.seeds):
                    run = LabelledRun(condition.family, condition.condition, name, collected.seed)
                    whole = PacketRun.open(collected.path / "run")
                    drops = sum(n for reason, n in collected.counters.items() if reason.startswith("data_drops."))
                    require_losses(run, whole.flows(), drops)
                    traces[run] = Dataset.open(collected.path)
                    for hold_ns, count in ((0, settings.flips), (whole.summary["base_rtt_ns"], settings.held_flips)):
                        if count:
                            rows = drawn_arrivals(traces[run], count, [settings.seed, run.seed, int(hold_ns > 0)])
                            drawn[run, hold_ns] = rows
                            cases += parts(run, hold_ns, rows, settings.flips_per_point)
        measured = measure_cases(
            "drop costs",
            BRANCHES,
            cases,
            settings,
            name=str,
            depends_on=branching.depends_on,
            measure=partial(measured_branches, plan=branching),
        )
        labelled_runs: list[tuple[LabelledRun, Dataset, pd.DataFrame]] = []
        for run, trace in traces.items():
            mine = [
                (case, one, e.digest)
                for case, one, e in zip(cases, measured.measurements, measured.entries, strict=True)
                if case.run == run
            ]
            frames = [
                cost_labels(
                    rows,
                    [branch for case, one, _ in mine if case.hold_ns == hold for branch in one],
                    hold,
                    settings.repeats,
                )
                for (of_run, hold), rows in drawn.items()
                if of_run == run
            ]
            labelled = pd.concat(frames).sort_values(["arrival", "hold_ns"], ignore_index=True)
            key = Key(
                COSTS,
                {
                    "trace": trace.manifest.content_sha256,
                    "points": [digest for _, _, digest in mine],
                    "code": [file_digest(Path(inspect.getfile(cost_labels))), code_digest(write_drop_costs)],
                },
            )
            described = DescribedRun(**{one.name: getattr(trace.manifest, one.name) for one in fields(DescribedRun)})
            entry = self.store.get_or_build(key, partial(_write, described, labelled))
            labelled_runs.append((run, Dataset.open(entry.path / DATASET), labelled.assign(**asdict(run))))
        return Labelled(labelled_runs, len(cases), measured.reused)

    def trees(self, labelled: pd.DataFrame) -> Ensemble:
        """Trees whose sum is what dropping gains, from labels."""
        settings = self.settings
        return fit_cost_trees(
            labelled[settings.columns].to_numpy(np.int32),
            gains(labelled),
            [FeatureInput.of(name, self.simulations.cell_bytes) for name in settings.columns],
            trees=settings.trees,
            depth=settings.depth,
            learning_rate=settings.learning_rate,
            fewest_rows=settings.fewest_flips,
            seed=settings.seed,
        )

    def candidates(self, trees: Ensemble, labelled: pd.DataFrame) -> tuple[list[dict[str, Any]], Ensemble]:
        """The trees with each limit and Complete Sharing, on the validation seeds, as rows; and the best trees.

        J is the geometric mean over conditions and seeds; the limit is what a drop has to gain, in log J.
        """
        settings, simulations = self.settings, self.simulations
        predicted = trees.float_sum(labelled[settings.columns].to_numpy(np.int32))
        single = (labelled["hold_ns"] == 0).to_numpy()
        stands_for = labelled["arrivals"].to_numpy(float)[single]
        order = np.argsort(-predicted[single], kind="stable")
        above = np.cumsum(stands_for[order]) / stands_for.sum()
        limits = {0.0}
        for share in settings.drop_shares:
            place = min(int(np.searchsorted(above, share)), len(order) - 1)
            limits.add(float(predicted[single][order][place]))
        limited = {
            Rule(LEARNED, f"above {limit:.6g}"): (limit, trees.with_threshold(Fraction(limit)))
            for limit in sorted(limits)
        }
        tried = {**{rule: tree for rule, (_, tree) in limited.items()}, CS: None}
        levels = simulations.levels(tried, self.conditions, settings.validation_seeds)

        def candidate(rule: Rule) -> dict[str, Any]:
            limit = limited[rule][0] if rule in limited else None
            dropped = None if limit is None else stands_for[predicted[single] > limit].sum() / stands_for.sum()
            less = simulations.costs.family_difference(self.conditions, rule, CS)
            return {
                "drop if it gains more than": "(shares all)" if limit is None else limit,
                "arrivals dropped, %": None if dropped is None else 100 * float(dropped),
                "J": math.exp(levels[rule]),
                "against sharing all, %": percent_change(less.mean),
                "low": percent_change(less.low),
                "high": percent_change(less.high),
            }

        ranked = sorted(limited, key=lambda rule: levels[rule])
        return [candidate(rule) for rule in (*ranked, CS)], limited[ranked[0]][1]


def labelled_policies(settings: CostSettings, store: Store) -> dict[str, Policy]:
    """The policies whose decisions are turned, by name; those that ask a predictor ask the model of the settings.

    ForetailError when one asks and there is no model, or the other way round.
    """
    policies = compose_policies(settings.policies, "policies")
    asking = [name for name, policy in policies.items() if policy.asks_exported_model]
    if not asking and settings.model is not None:
        raise ForetailError(f"policies names none that asks model={settings.model}: add one, such as learned")
    if asking and settings.model is None:
        raise ForetailError(
            f"policies names {asking[0]}, which asks a predictor, and there is none: give model=FILE or "
            "model=models:/NAME@ALIAS"
        )
    if settings.model is None:
        return policies
    predictor = predictor_to_store(load_predictor(settings.model, settings.tracking, store), store)
    return policies | {name: policies[name].ask(predictor.library) for name in asking}


def conditions_of(names: Sequence[str], plan: SharingPlan, where: str) -> list[Condition]:
    """Conditions of training families by their names; ForetailError on one that is none."""
    known = {str(condition): condition for condition in plan.scenarios}
    for name in names:
        if name not in known:
            raise ForetailError(f"{where} names {name}, which is none of training: {', '.join(known)}")
    return [known[name] for name in names]


def _write(run: DescribedRun, labelled: pd.DataFrame, folder: Path) -> None:
    write_drop_costs(folder / DATASET, run, labelled)


def show_costs(settings: CostSettings, run: Run) -> Shown:
    """Label, learn and choose; what the store has is not simulated again."""
    learning = Learning.of(settings, run.store)
    measured = learning.labelled(labelled_policies(settings, run.store))
    labelled = measured.frame
    candidates, ensemble = learning.candidates(learning.trees(labelled), labelled)
    with_held = labelled.assign(held=labelled["hold_ns"] > 0)
    strata, by_hold = signal_to_noise(with_held, ["held", *STRATA]), signal_to_noise(with_held, ["held"])
    _, in_switch = cost_in_switch(ensemble, "the trees")
    best, sharing, single = candidates[0]["J"], candidates[-1]["J"], by_hold.iloc[0]
    return Shown(
        labelled,
        _tables(strata, candidates),
        frames={"drop_costs.csv": labelled, "signal_to_noise.csv": strata},
        notes=(
            f"{measured.points:,} points of branches, {measured.reused:,} of them in the store",
            in_switch,
        ),
        verdict=(
            f"A single decision turned moves log J by {single['spread']:.2g}, chaos alone by {single['chaos']:.2g} "
            f"(standard deviations, {single['flips']} flips).",
            f"On the validation seeds the trees have J {best:.3g}, Complete Sharing {sharing:.3g}.",
        ),
        details={
            "datasets": [dataset.path for _, dataset, _ in measured.runs],
            "points": measured.points,
            "reused": measured.reused,
        },
        learned=Learned(
            ensemble,
            f"Trees on measured costs of drops for policy learned: {len(measured.runs)} runs under "
            f"{', '.join(settings.policies)}, seeds {', '.join(map(str, settings.seeds))}; "
            f"J {best:.3g} on the validation seeds.",
            {"validation/cost": best, "validation/cost_of_sharing": sharing},
            measured.log,
        ),
    )


DROP_COSTS = FunctionExperiment(CostSettings, show_costs)


def _tables(strata: pd.DataFrame, candidates: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Signal and noise, and the candidates."""
    return [
        Table.of_rows(
            "What a drop costs: log J where it is dropped less where it is accepted",
            map(_stratum, strata.to_dict("records")),
            "chaos: standard deviation of a label by chaos alone; signal to noise: what is left over chaos",
        ),
        Table.of_rows("Trees that learned it, on the validation seeds", candidates),
    ]


def _stratum(row: Mapping[Any, Any]) -> dict[str, Cell]:
    return {
        "hold": "one RTT" if row["held"] else "once",
        "flow class": str(row["flow_class"]),
        "fill band": list(BANDS)[int(row["fill_band"])],
        "first rtt": int(row["first_rtt"]),
        "accepted": "yes" if row["accepted"] else "no",
        **{name.replace("_", " "): None if pd.isna(row[name]) else row[name] for name in SIGNAL_COLUMNS},
    }


DRAWS = 2000
PER_MILLE = 1000


def show_prices(settings: CostSettings, run: Run) -> Shown:
    """Turn single decisions of every family's runs, and set the families beside each other."""
    measured = Learning.of(settings, run.store).labelled(labelled_policies(settings, run.store))
    rows = measured.frame
    prices = {
        (str(family), str(kind)): (price(one), one)
        for (family, kind), one in rows[rows["accepted"] & (rows["hold_ns"] == 0)].groupby(
            ["family", "flow_class"], sort=False
        )
    }
    cells: list[tuple[Cell, ...]] = [
        (family, kind, len(one), interval_text(cost), float(np.average(one["drop_timeouts"], weights=one["arrivals"])))
        for (family, kind), (cost, one) in prices.items()
    ]
    means = {where: cost.mean for where, (cost, _) in prices.items() if cost.mean is not None}
    dearest = max(means, key=lambda where: means[where])
    return Shown(
        rows,
        [
            Table(
                "What one drop of an accepted packet costs",
                ("transport", "flows", "flips", "J, per mille", "timeouts"),
                tuple(cells),
                (f"Means over packets as the run has them; 95 % bootstrap intervals, {DRAWS:,} draws of flips.",),
            )
        ],
        notes=(f"{measured.points:,} points of branches, {measured.reused:,} of them in the store",),
        verdict=(
            f"A drop is dearest of {dearest[1]} packets under {dearest[0]}: {means[dearest]:.3g} per mille of J each.",
        ),
    )


def price(flips: pd.DataFrame) -> PairedDifference:
    """By how many per mille J rises when one packet is dropped that the run accepts, and its interval.

    Parameters
    ----------
    flips : of ``cost_labels``; columns ``drop_cost``, in log J, and ``arrivals``, for how many packets a row stands
    """
    random = np.random.default_rng(0)
    cost, weight = PER_MILLE * flips["drop_cost"].to_numpy(float), flips["arrivals"].to_numpy(float)
    drawn = random.integers(len(flips), size=(DRAWS, len(flips)))
    means = (cost[drawn] * weight[drawn]).sum(axis=1) / weight[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return PairedDifference(float(np.average(cost, weights=weight)), float(low), float(high), len(flips))


DROP_PRICES = FunctionExperiment(CostSettings, show_prices)
