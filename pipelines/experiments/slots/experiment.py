"""``foretail evaluate experiment=...``: sweeps of policies over generated arrivals in the slotted model.

Every point of a sweep is one sequence of arrivals with one share of inverted predictions, and an entry of the store:
a sweep that was stopped goes on where it was, and one that is repeated computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.experiments.packets import SlotExperiment
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.features.dataset.manifest import Rules
from foretail.models.mlflow.tracking import TrackedRun
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases
from foretail.pipelines.experiments.slots.figures import CAPTIONS, draw
from foretail.pipelines.experiments.slots.tables import EXACT, LQD_RATIO, SENT, conclusion, plain_rows, tables_of
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.store import Store, code_digest
from foretail.pipelines.tracking.runs import address, tracked
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS
from foretail.sim_bridge.arrivals.workloads.lower_bounds import LowerBound
from foretail.sim_bridge.guest_policies import native_policy, policy_identity
from foretail.sim_bridge.open_loop.slotted import compare, flipped

POINT = "slots"
FLIP_SEED = 2**32
"""Added to a point's seed for its flips, which must not be the random numbers that made its arrivals."""


@dataclass(frozen=True)
class SlotCase:
    """One sequence of arrivals and one share of inverted predictions."""

    workload: str  #: name in ``WORKLOADS``; its parameters are the defaults
    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    slots: int  #: slots with arrivals
    seed: int  #: of the arrivals and, shifted, of the flips
    flip_probability: float  #: share of perfect predictions that is inverted

    @property
    def name(self) -> str:
        """For progress and tracking."""
        return f"{self.workload} N={self.ports} B={self.buffer} seed={self.seed} p={self.flip_probability:.12g}"


def slot_experiment(config: EvaluateConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment that ``config.size`` chooses of ``config.slots``, draw it and track it."""
    sweep, store = config.slots[config.size], Store(config.store_dir)
    if not config.tracking.enabled:
        return _result(sweep, _rows(config, sweep), run_dir)
    settings = {
        "experiment": sweep.experiment,
        "size": config.size,
        "slots": asdict(sweep),
        "rules": asdict(config.rules),
        "parameters": asdict(config.parameters),
    }
    with tracked(config.tracking, store, settings, f"{sweep.experiment} {config.size}") as run:
        points = _rows(config, sweep)
        _log_points(run, points)
        result = _result(sweep, points, run_dir)
        for path in result.files:
            run.log_file(path)
    return replace(result, tracked=address(run))


def _result(sweep: SlotExperiment, points: pd.DataFrame, run_dir: Path) -> ExperimentResult:
    """Draw the points and write them and the figure into the run folder."""
    files: dict[str, pd.DataFrame | Figure] = {
        f"{sweep.experiment}.parquet": points,
        **figure_files(sweep.experiment, draw(sweep.experiment, points), ("svg", "png")),
    }
    return ExperimentResult(
        sweep.experiment,
        {"points": plain_rows(points)},
        tables_of(sweep.experiment, points),
        write_files(run_dir, files),
        (f"{len(points):,} points, {int(points['reused'].sum()):,} of them reused",),
        conclusion=conclusion(sweep.experiment, points),
        captions={sweep.experiment: CAPTIONS[sweep.experiment]},
    )


def cases_of(sweep: SlotExperiment) -> Iterator[SlotCase]:
    """The cases of a sweep, each once: where nothing is random, the first seed stands for all."""
    for workload in sweep.workloads:
        for ports in sweep.ports:
            for per_port in sweep.buffer_per_port:
                for probability in sweep.flip_probabilities:
                    random = probability not in (0.0, 1.0) or not issubclass(WORKLOADS[workload], LowerBound)
                    for seed in sweep.seeds if random else sweep.seeds[:1]:
                        yield SlotCase(workload, ports, per_port * ports, sweep.slots, seed, probability)


def depends_on(case: SlotCase, sweep: SlotExperiment, config: EvaluateConfig, code: str) -> dict[str, Any]:
    """What the counts of a point depend on; `code` is the digest of the simulator."""
    return {
        **asdict(case),
        "workload": {"name": case.workload, **asdict(WORKLOADS[case.workload]())},
        "policies": sorted(policy_identity(policy) for policy in sweep.policies),
        "predictions": {"name": "flipped", "seed": FLIP_SEED + case.seed},
        "optimum": sweep.experiment in EXACT,
        "rules": {**asdict(config.rules), "seed": config.rules_seed},
        "parameters": asdict(config.parameters),
        "code": code,
    }


def _rows(config: EvaluateConfig, sweep: SlotExperiment) -> pd.DataFrame:
    """Measure what the store lacks and return one row per case."""
    cases, code = list(cases_of(sweep)), code_digest("sim_bridge")
    for case in cases:  # what does not suit a workload, or compile, is said before anything has run
        WORKLOADS[case.workload]().batches(case.ports, case.buffer, case.slots, case.seed)
    for policy in sweep.policies:
        native_policy(policy)
    measured = measure_cases(
        sweep.experiment,
        POINT,
        cases,
        config,
        name=lambda case: case.name,
        depends_on=lambda case: depends_on(case, sweep, config, code),
        measure=partial(_counts, sweep=sweep, config=config),
    )
    entries = ({"reused": one.reused, "seconds": one.seconds, "key": one.digest} for one in measured.entries)
    return measured.rows(lambda case, counts: _row(case, counts) | next(entries))


def _counts(case: SlotCase, so_far: SoFar, sweep: SlotExperiment, config: EvaluateConfig) -> dict[str, Any]:
    def reported(batches: Iterator[Slotted]) -> Iterator[Slotted]:
        for batch in batches:
            so_far("")
            yield batch

    workload = WORKLOADS[case.workload]()
    found = compare(
        reported(workload.batches(case.ports, case.buffer, case.slots, case.seed)),
        case.ports,
        case.buffer,
        sorted(sweep.policies),
        flipped(case.flip_probability, FLIP_SEED + case.seed),
        rules=Rules(**asdict(config.rules)),
        parameters=config.parameters,
        seed=config.rules_seed,
        optimum=sweep.experiment in EXACT,
        threads=1,
    )
    return {
        "arrivals": found.arrivals,
        "transmitted": found.transmitted,
        "followlqd_without_predicted": found.followlqd,
        "optimum": found.optimum,
        "confusion": {name: getattr(found.whole, name) for name in ("tp", "fp", "tn", "fn")},
    }


def _row(case: SlotCase, counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a case, and the ratios that follow from them; NaN where one has no value."""
    sent: Mapping[str, int] = counts["transmitted"]
    lqd, reduced, optimum = sent["lqd"], counts["followlqd_without_predicted"], counts["optimum"]
    eta = _ratio(lqd, reduced)
    closed_form = Confusion(**counts["confusion"]).closed_form_eta(case.ports)
    row: dict[str, Any] = {
        "buffer_per_port": case.buffer // case.ports,
        "arrivals": counts["arrivals"],
        "followlqd_without_predicted": reduced,
        **counts["confusion"],
        "eta": eta,
        "closed_form_eta": math.inf if closed_form is None else closed_form,
        **{f"{SENT}{policy}": count for policy, count in sent.items()},
        **{f"lqd_over_{policy}": _ratio(lqd, count) for policy, count in sent.items() if policy != "lqd"},
    }
    row["eta_over_closed_form_eta"] = eta / row["closed_form_eta"]
    # Theorem 2 of Credence: eta <= closed form. A relative 1e-12 is rounding.
    row["theorem_2_violated"] = row["eta_over_closed_form_eta"] > 1 + 1e-12
    if "credence" in sent:
        # Lemma 1 of Credence: LQD / Credence <= eta, that is, Credence sends at least what FollowLQD sends of the rest.
        row["lqd_over_credence_times_eta"] = _ratio(reduced, sent["credence"])
        row["lemma_1_violated"] = reduced > sent["credence"]
    if optimum is not None:
        row["optimum"] = optimum
        row |= {f"opt_over_{policy}": _ratio(optimum, count) for policy, count in sent.items()}
        if "credence" in sent:  # Theorem 1 of Credence: OPT / Credence <= min(1.707 eta, N)
            row["credence_bound"] = min(LQD_RATIO * eta, case.ports)
            row["bound_violated"] = row["opt_over_credence"] > row["credence_bound"] * (1 + 1e-12)
    return row


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan


def _log_points(run: TrackedRun, points: pd.DataFrame) -> None:
    """A nested run per point, those that were in the store too."""
    names = [*SlotCase.__dataclass_fields__, "key"]
    for row in plain_rows(points):
        case = SlotCase(**{name: row[name] for name in SlotCase.__dataclass_fields__})
        metrics = {
            name: float(value)
            for name, value in row.items()
            if name not in (*names, "reused") and isinstance(value, (int, float))
        }
        run.log_nested(
            case.name, {name: row[name] for name in names}, metrics, tags={"reused": str(row["reused"]).lower()}
        )
