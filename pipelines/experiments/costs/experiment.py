"""``foretail search experiment=drop_costs``: what drops cost, measured, and trees that learn it, for ``learned``.

Runs of the training families are forked at drawn arrivals. The labels of each run are a dataset of the store. Trees
learn what a drop gains; J on other seeds chooses from which gain on they drop. No held-out family is simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foretail.configs.schema.studies import DropCosts, SearchConfig
from foretail.export.p4.profile import load_profile
from foretail.export.switch_cost import SwitchCost, switch_cost
from foretail.features.catalog import feature
from foretail.features.dataset.manifest import Run, traffic_sha256
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.writer import write_drop_costs
from foretail.features.errors import ForetailError
from foretail.models.drop.cost_trees import fit_cost_trees
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.mlflow.registered import ENSEMBLE_FILE, RegisteredModel
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.data.collecting import DATASET, collect_runs
from foretail.pipelines.data.simulation import Ns3, dataset_code
from foretail.pipelines.experiments.costs import labels
from foretail.pipelines.experiments.costs.branching import (
    BANDS,
    STRATA,
    Branching,
    FlipCase,
    LabelledRun,
    drawn_arrivals,
    measured_branches,
    parts,
    require_losses,
)
from foretail.pipelines.experiments.costs.labels import SIGNAL_COLUMNS, cost_labels, gains, signal_to_noise
from foretail.pipelines.experiments.frame import Here, measure_cases
from foretail.pipelines.experiments.search.rules import LEARNED, Simulations
from foretail.pipelines.experiments.sharing.plan import Condition, Rule, SharingPlan
from foretail.pipelines.experiments.sharing.race import CS, Costs
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Key, Store, file_digest
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, tracked
from foretail.sim_bridge.ns3.driver import DriverRun

BRANCHES, COSTS = "drop_cost_branches", "drop_costs"
"""Folders of the store: costs of branches, and the labels of a run as a dataset."""
SWITCH_PORTS = 32


@dataclass(frozen=True)
class Candidate:
    """The trees with a limit, on the validation seeds."""

    drops_above: float | None  #: log J that a drop must gain; None: Complete Sharing, which asks nobody
    dropped_share: float | None  #: of the arrivals that the labelled ones stand for
    cost: float  #: J, geometric mean over conditions and seeds
    less_sharing: PairedDifference  #: log J less that of Complete Sharing, mean over conditions, paired by seed


@dataclass(frozen=True)
class DropCostResult:
    """What drops cost, and the trees that learned it."""

    labelled: pd.DataFrame  #: every label, with its run
    strata: pd.DataFrame  #: signal and noise of each stratum
    by_hold: pd.DataFrame  #: the same of single and of held flips
    candidates: tuple[Candidate, ...]  #: the cheapest of the trees first, then the others, then Complete Sharing
    ensemble: Ensemble  #: the first of them
    switch: SwitchCost  #: of the trees in a switch of 32 ports
    datasets: tuple[Path, ...]  #: of the labels, one per run
    points: int  #: of branches
    reused: int  #: so many of them were in the store
    files: tuple[Path, ...]
    tracked: Mapping[str, Any] | None  #: run in MLflow, or None
    registered: RegisteredModel | None  #: its version in the registry

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "strata": plain(self.strata.to_dict("records")),
            "by_hold": plain(self.by_hold.to_dict("records")),
            "candidates": plain([asdict(one) for one in self.candidates]),
            "ensemble_sha256": self.ensemble.sha256,
            "switch": asdict(self.switch),
            "datasets": self.datasets,
            "points": self.points,
            "reused": self.reused,
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
            "registered": None if self.registered is None else asdict(self.registered),
        }

    def verdict(self) -> list[str]:
        """How noisy labels are, and what the trees are worth where nothing was learned."""
        best, sharing = self.candidates[0], self.candidates[-1]
        single = self.by_hold.iloc[0]
        return [
            f"A single decision turned moves log J by {single['spread']:.2g}, chaos alone by {single['chaos']:.2g} "
            f"(standard deviations, {single['flips']} flips).",
            f"On the validation seeds the trees have J {best.cost:.3g}, Complete Sharing {sharing.cost:.3g}.",
        ]

    def tables(self) -> list[Table]:
        """Signal and noise, and the candidates."""
        return [
            Table(
                "What a drop costs: log J where it is dropped less where it is accepted",
                (
                    *(name.replace("_", " ") for name in ("hold", *STRATA)),
                    *(c.replace("_", " ") for c in SIGNAL_COLUMNS),
                ),
                tuple(_stratum(row) for row in self.strata.to_dict("records")),
                (
                    f"{self.points:,} points of branches, {self.reused:,} of them in the store",
                    "chaos: standard deviation of a label by chaos alone; signal to noise: what is left over chaos",
                ),
            ),
            Table(
                "Trees that learned it, on the validation seeds",
                ("drop if it gains more than", "arrivals dropped, %", "J", "against sharing all, %", "low", "high"),
                tuple(_candidate(one) for one in self.candidates),
                (
                    f"the trees: {self.switch.table_entries} P4 table entries, {self.switch.tcam_bits} TCAM bits, "
                    f"{self.switch.feature_bits} bits of registers",
                    *(f"file: {path}" for path in self.files),
                ),
            ),
        ]


def drop_cost_search(config: SearchConfig, run_dir: Path) -> DropCostResult:
    """Label, learn and choose; what the store has is not simulated again."""
    settings, where = config.drop_costs[config.size], f"sharing.{config.size}"
    sweep = replace(config.sharing[config.size], experiment="tune")  # no held-out family
    ns3, store = Ns3(config.ns3_prefix), Store(config.store_dir)
    plan = SharingPlan.of(sweep, where, ns3)
    wheres = _conditions(settings, plan, f"drop_costs.{config.size}")
    plan = replace(plan, scenarios={condition: plan.scenarios[condition] for condition in wheres})
    cells = {scenario.features.cell_bytes for scenario in plan.scenarios.values()}
    if len(cells) > 1:
        raise ForetailError(f"{where} has cells of {sorted(cells)} bytes, and trees have one unit: give all the same")
    cell_bytes = cells.pop()
    run = tracked(config.tracking, store, asdict(config), f"drop costs {config.size}")
    with run if config.tracking.enabled else nullcontext() as logged:
        measured = _label(config, settings, plan, store, ns3)
        labelled = pd.concat([frame for _, _, frame in measured.runs], ignore_index=True)
        trees = _trees(settings, labelled, cell_bytes)
        simulations = Simulations(Here(config.store_dir, config.jobs), plan, store, Costs(), cell_bytes)
        candidates, ensemble = _candidates(settings, trees, labelled, simulations, wheres)
        strata = signal_to_noise(labelled.assign(held=labelled["hold_ns"] > 0), ["held", *STRATA])
        by_hold = signal_to_noise(labelled.assign(held=labelled["hold_ns"] > 0), ["held"])
        run_dir.mkdir(parents=True, exist_ok=True)
        ensemble.save(run_dir / ENSEMBLE_FILE)
        files = (
            *write_files(run_dir, {"drop_costs.csv": labelled, "signal_to_noise.csv": strata}),
            run_dir / ENSEMBLE_FILE,
        )
        where_tracked, registered = None, None
        if logged is not None:
            where_tracked = address(logged)
            registered = _log(config, settings, logged, measured, candidates, ensemble, files)
    return DropCostResult(
        labelled,
        strata,
        by_hold,
        candidates,
        ensemble,
        switch_cost(ensemble, SWITCH_PORTS, load_profile("v1model")),
        tuple(dataset.path for _, dataset, _ in measured.runs),
        measured.points,
        measured.reused,
        files,
        where_tracked,
        registered,
    )


def _conditions(settings: DropCosts, plan: SharingPlan, where: str) -> list[Condition]:
    if not settings.conditions:
        return [next(one) for _, one in groupby(plan.scenarios, key=lambda condition: condition.family)]
    known = {str(condition): condition for condition in plan.scenarios}
    for name in settings.conditions:
        if name not in known:
            raise ForetailError(f"{where}.conditions names {name}, which is none of training: {', '.join(known)}")
    return [known[name] for name in settings.conditions]


@dataclass(frozen=True)
class _Measured:
    """What was measured."""

    runs: Sequence[tuple[LabelledRun, Dataset, pd.DataFrame]]
    points: int
    reused: int


def _label(config: SearchConfig, settings: DropCosts, plan: SharingPlan, store: Store, ns3: Ns3) -> _Measured:
    """Draw arrivals of every run, measure branches and keep the labels as datasets."""
    policies = compose_policies(settings.policies, "drop_costs.policies")
    scenarios = {
        condition: replace(scenario, traffic_ns=min(scenario.traffic_ns, settings.traffic_ns))
        for condition, scenario in plan.scenarios.items()
    }
    branching = Branching(scenarios, policies, settings.repeats, settings.repeat_ns, ns3, plan.code)
    drawn: dict[tuple[LabelledRun, int], pd.DataFrame] = {}
    traces: dict[LabelledRun, Dataset] = {}
    cases: list[FlipCase] = []
    for condition, scenario in scenarios.items():
        for name, policy in policies.items():
            for collected in collect_runs(scenario, policy, settings.seeds, store, ns3, config.jobs):
                run = LabelledRun(condition.family, condition.condition, name, collected.seed)
                whole = DriverRun.open(collected.path / "run")
                drops = sum(n for reason, n in collected.counters.items() if reason.startswith("data_drops."))
                require_losses(run, whole.flows(), drops)
                traces[run] = Dataset.open(collected.path)
                for hold_ns, count in ((0, settings.flips), (whole.summary["base_rtt_ns"], settings.held_flips)):
                    if count:
                        rows = drawn_arrivals(traces[run], count, [settings.seed, run.seed, int(hold_ns > 0)])
                        drawn[run, hold_ns] = rows
                        cases += parts(run, hold_ns, rows, settings.flips_per_point)
    found = measure_cases(
        "drop costs",
        BRANCHES,
        cases,
        Here(config.store_dir, config.jobs),
        name=str,
        depends_on=branching.depends_on,
        measure=partial(measured_branches, plan=branching),
    )
    kept: list[tuple[LabelledRun, Dataset, pd.DataFrame]] = []
    for run, trace in traces.items():
        mine = [
            (case, one, e.digest)
            for case, one, e in zip(cases, found.found, found.entries, strict=True)
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
                "code": [file_digest(Path(labels.__file__)), dataset_code()],
            },
        )
        described = Run(**{field.name: getattr(trace.manifest, field.name) for field in fields(Run)})
        write = partial(_write, described, labelled)
        kept.append((run, Dataset.open(store.get_or_build(key, write).path / DATASET), labelled.assign(**asdict(run))))
    return _Measured(kept, len(cases), sum(entry.reused for entry in found.entries))


def _write(run: Run, labelled: pd.DataFrame, folder: Path) -> None:
    write_drop_costs(folder / DATASET, run, labelled)


def _trees(settings: DropCosts, labelled: pd.DataFrame, cell_bytes: int) -> Ensemble:
    chosen = [feature(name) for name in settings.features]
    inputs = [FeatureInput(one.name, one.params(cell_bytes, 0), one.bits) for one in chosen]
    return fit_cost_trees(
        labelled[settings.features].to_numpy(np.int32),
        gains(labelled, settings.clip_percent),
        inputs,
        trees=settings.trees,
        depth=settings.depth,
        learning_rate=settings.learning_rate,
        fewest_rows=settings.fewest_flips,
        seed=settings.seed,
    )


def _candidates(
    settings: DropCosts,
    trees: Ensemble,
    labelled: pd.DataFrame,
    simulations: Simulations,
    wheres: Sequence[Condition],
) -> tuple[tuple[Candidate, ...], Ensemble]:
    """The trees with each limit and Complete Sharing, on the validation seeds; and the best trees."""
    predicted = trees.float_sum(labelled[settings.features].to_numpy(np.int32))
    single = (labelled["hold_ns"] == 0).to_numpy()
    stands_for = labelled["arrivals"].to_numpy(float)[single]
    order = np.argsort(-predicted[single], kind="stable")
    above = np.cumsum(stands_for[order]) / stands_for.sum()
    limits = {0.0}
    for share in settings.drop_shares:
        place = min(int(np.searchsorted(above, share)), len(order) - 1)
        limits.add(float(predicted[single][order][place]))
    limited = {
        Rule(LEARNED, f"above {limit:.6g}"): (limit, trees.with_threshold(Fraction(limit))) for limit in sorted(limits)
    }
    tried = {**{rule: tree for rule, (_, tree) in limited.items()}, CS: None}
    levels = simulations.levels(tried, wheres, settings.validation_seeds)

    def candidate(rule: Rule, limit: float | None) -> Candidate:
        share = None if limit is None else float(stands_for[predicted[single] > limit].sum() / stands_for.sum())
        less = simulations.costs.family_difference(wheres, rule, CS)
        return Candidate(limit, share, math.exp(levels[rule]), less)

    ranked = sorted(limited, key=lambda rule: levels[rule])
    found = [candidate(rule, limited[rule][0]) for rule in ranked]
    return (*found, candidate(CS, None)), limited[ranked[0]][1]


def _log(
    config: SearchConfig,
    settings: DropCosts,
    logged: TrackedRun,
    measured: _Measured,
    candidates: Sequence[Candidate],
    ensemble: Ensemble,
    files: Sequence[Path],
) -> RegisteredModel | None:
    """Log datasets, figures and the model, and register it."""
    for run, dataset, _ in measured.runs:
        manifest = dataset.manifest
        logged.log_dataset(
            str(run),
            manifest.content_sha256,
            traffic_sha256(manifest),
            str(dataset.path),
            manifest.rows,
            manifest.drops,
            "train",
        )
    logged.log_metrics({"validation/cost": candidates[0].cost, "validation/cost_of_sharing": candidates[-1].cost})
    for path in files:
        logged.log_file(path)
    logged.log_model(ensemble)
    description = (
        f"Trees on measured costs of drops for policy learned: {len(measured.runs)} runs under "
        f"{', '.join(settings.policies)}, seeds {', '.join(map(str, settings.seeds))}; "
        f"J {candidates[0].cost:.3g} on the validation seeds."
    )
    tags = {"ensemble_sha256": ensemble.sha256, "features": ",".join(item.name for item in ensemble.features)}
    return register_trained(config.tracking, address(logged), description, tags)


def _stratum(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    return (
        "one RTT" if row["held"] else "once",
        str(row["flow_class"]),
        list(BANDS)[int(row["fill_band"])],
        int(row["first_rtt"]),
        "yes" if row["accepted"] else "no",
        *(None if pd.isna(row[name]) else row[name] for name in SIGNAL_COLUMNS),
    )


def _candidate(one: Candidate) -> tuple[Cell, ...]:
    low, mean, high = (
        None if x is None else 100 * math.expm1(x)
        for x in (one.less_sharing.low, one.less_sharing.mean, one.less_sharing.high)
    )
    if one.drops_above is None:
        return ("(shares all)", None, one.cost, mean, low, high)
    return (one.drops_above, 100 * (one.dropped_share or 0.0), one.cost, mean, low, high)
