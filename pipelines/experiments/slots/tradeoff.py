"""``foretail evaluate experiment=tradeoff``: what Credence sends when predictions are right, and when they are wrong.

A point is one sequence of arrivals with one predictor: perfect predictions, a model, or none, where other rules run.
Consistency is what is sent when nobody inverts predictions, robustness the least that is sent when somebody may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foretail.configs.schema.experiments.packets import PredictionTradeoff
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.features.catalog import FEATURES, feature
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.scoring.operating_point import threshold_probability
from foretail.pipelines.comparison.predictions import check_inputs
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases, tracked_experiment
from foretail.pipelines.experiments.slots.experiment import FLIP_SEED
from foretail.pipelines.experiments.slots.tradeoff_figures import draw_flips, draw_thresholds, draw_worst_cases
from foretail.pipelines.experiments.slots.tradeoff_tables import curves_of, judged, summary_of, tables_of, violations
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store, code_digest
from foretail.pipelines.runs.zeros import say_if_unasked
from foretail.pipelines.tracking.loading import load_model
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads import Workload, workload_of
from foretail.sim_bridge.arrivals.workloads.lower_bounds import LowerBound
from foretail.sim_bridge.open_loop.dataset import labelled_records
from foretail.sim_bridge.open_loop.slotted import Labelled, Predicted, Predictions, flipped, labelled, perfect
from foretail.sim_bridge.open_loop.slotted_dataset import AVERAGE_SHIFT, SLOT_NS, arrivals_in_bytes, slotted_run
from foretail.sim_bridge.open_loop.worst_cases.search import search
from foretail.sim_bridge.policies import SlotParameters

POINT, SEARCH_POINT = "tradeoff", "tradeoff_search"
RULES, PERFECT = "rules", "perfect"
SEARCH_SEED = 1
GUARANTEES = (
    "Line OPT / 1.707: LQD by the theorem of Antoniadis et al., and Credence with perfect predictions, which then "
    "sends what LQD sends. Line OPT / N: Credence with any predictions (Lemma 2 of its paper, no counterexample so "
    "far) and Complete Sharing",
    "Not drawn: Lemma 1, Theorem 1 and Theorem 2 of Credence, the bounds in eta, have counterexamples (findings.md); "
    "of Dynamic Thresholds and FollowLQD no factor with a constant is known",
)


@dataclass(frozen=True)
class TradeoffCase:
    """Arrivals of one workload and seed, and who predicts: ``rules`` (nobody), ``perfect``, or the name of a model."""

    workload: str
    seed: int
    predictor: str


@dataclass(frozen=True)
class SearchCase:
    """A small switch for which the worst arrivals and predictions are sought."""

    ports: int
    buffer: int


def tradeoff_experiment(config: EvaluateConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment that ``config.size`` chooses of ``config.tradeoff``, draw it and track it."""
    sweep, store = config.tradeoff[config.size], Store(config.store_dir)
    models = _models(config, sweep, store)
    settings = {
        "experiment": sweep.experiment,
        "size": config.size,
        "tradeoff": asdict(sweep),
        "models": {name: model.sha256 for name, model in models.items()},
    }
    return tracked_experiment(config, settings, lambda: _result(config, sweep, models, run_dir))


def _result(
    config: EvaluateConfig, sweep: PredictionTradeoff, models: Mapping[str, Ensemble], run_dir: Path
) -> ExperimentResult:
    """Measure what the store lacks, and write tables and figures into the run folder."""
    code = code_digest("features", "models", "sim_bridge")
    switch = {name: getattr(sweep, name) for name in ("ports", "buffer_per_port", "slots")}
    measured = measure_cases(
        sweep.experiment,
        POINT,
        [
            TradeoffCase(workload, seed, predictor)
            for workload in sweep.workloads
            for seed in sweep.seeds
            for predictor in (RULES, PERFECT, *models)
        ],
        config,
        name=lambda case: f"{case.workload} seed={case.seed} {case.predictor}",
        depends_on=lambda case: {
            **switch,
            "arrivals": _arrivals_key(sweep, case.workload),
            "seed": case.seed,
            "flip_seed": FLIP_SEED + case.seed,
            "predictor": models[case.predictor].sha256 if case.predictor in models else case.predictor,
            **_settings_of(sweep, case.predictor),
            "code": code,
        },
        measure=partial(_measured, sweep=sweep, models=dict(models)),
    )
    sought = measure_cases(
        f"{sweep.experiment}: search",
        SEARCH_POINT,
        [SearchCase(ports, ports * sweep.search_buffer_per_port) for ports in sweep.search_ports],
        config,
        name=lambda case: f"worst predictions N={case.ports} B={case.buffer}",
        depends_on=lambda case: {**asdict(case), **_search_settings(sweep), "code": code},
        measure=partial(_worst, sweep=sweep),
    )
    rows = judged(measured.rows(lambda case, found: found), _proofs(sweep))
    searched = sought.rows(lambda case, found: found)
    curves = curves_of(rows)
    below = violations(rows, searched, sweep.ports)
    told_to = rows[rows["threshold"].isna() & (rows["flip_probability"] == 0)].groupby("predictor")
    sums = {name: told_to[name].sum().astype(int).to_dict() for name in ("asked", "predicted_drops")}
    say_if_unasked({model: (sums["asked"][model], sums["predicted_drops"][model]) for model in models})
    stem, own = sweep.experiment, {name: threshold_probability(model) for name, model in models.items()}
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": curves,
        f"{stem}.parquet": rows,
        f"{stem}_search.csv": searched,
        **figure_files(stem, draw_worst_cases(curves, searched, sweep.ports)),
        **figure_files(f"{stem}_flips", draw_flips(curves)),
        **(figure_files(f"{stem}_thresholds", draw_thresholds(curves, own)) if models else {}),
    }
    return ExperimentResult(
        stem,
        {
            "seeds": sweep.seeds,
            "models": {
                name: {"ensemble_sha256": model.sha256, "threshold_probability": own[name]}
                for name, model in models.items()
            },
            "rows": plain(rows.to_dict("records")),
            "curves": plain(curves.to_dict("records")),
            "summary": plain(summary_of(curves).to_dict("records")),
            "search": plain(searched.to_dict("records")),
            "violations": below,
        },
        tables_of(curves, searched),
        write_files(run_dir, files),
        (
            f"Seeds {', '.join(map(str, sweep.seeds))}, brackets are 95 % t intervals; {measured.note}; the search: "
            f"{sought.note}",
            *GUARANTEES,
            f"Points below these lines: {below['below_lqd_ratio']} and {below['below_ports']}",
            "DT has the alpha of the grid that sends most of these very seeds, which favours it; a model keeps the "
            "threshold that it came with",
        ),
    )


def _models(config: EvaluateConfig, sweep: PredictionTradeoff, store: Store) -> dict[str, Ensemble]:
    """The models by the names of their lines; ForetailError for one that cannot be asked here, or has seen a seed."""
    addresses = config.models if config.model is None else [config.model]
    shift = AVERAGE_SHIFT if sweep.features.average_shift is None else sweep.features.average_shift
    models: dict[str, Ensemble] = {}
    for given in addresses:
        model = load_model(given, config.tracking, store)
        for item in model.features:
            if feature(item.name).state == "real":
                raise ForetailError(
                    f"the model {given} reads feature {item.name}, the switch's own queues, which its own answers "
                    "change: train with features=switch or features=virtual"
                )
        check_inputs(model, sweep.features.cell_bytes, shift, f"tradeoff.{config.size}.features gives")
        refuse_seen(model, given, config, sweep, store)
        models[_name_of(given, addresses)] = model
    return models


def refuse_seen(model: Ensemble, given: str, config: EvaluateConfig, sweep: PredictionTradeoff, store: Store) -> None:
    """Raise ForetailError when the model trained, or got its threshold, on one of the seeds of a shown workload."""
    uri = tracking_uri(config.tracking.uri, store.folder.parent)
    if not store_exists(uri):
        return
    try:
        origin = lineage(model.sha256, uri)
    except NoLineage:  # what the command says of the model at its end
        return
    for used in origin.datasets:
        for name in sweep.workloads:
            for seed in sweep.seeds:
                of_seed = f"{used.name} ".partition(f"-{seed} ")
                if used.context != "test" and of_seed[1] and of_seed[0].split(" (")[0] == sweep.parameters(name)[0]:
                    raise ForetailError(
                        f"{given} learned from {used.name}, and seed {seed} is to be shown: give other "
                        f"tradeoff.{config.size}.seeds"
                    )


def _name_of(given: str, addresses: list[str]) -> str:
    """What a model is called: its alias, file or folder where that is unique, else all of its address."""
    short = [_short(other) for other in addresses]
    name = _short(given)
    return name if short.count(name) == 1 and name not in (RULES, PERFECT) else given


def _short(given: str) -> str:
    path = Path(given)
    return given.rpartition("@")[2] if "@" in given else path.parent.name if path.name == "ensemble.json" else path.name


def _workload(sweep: PredictionTradeoff, name: str) -> Workload:
    return workload_of(*sweep.parameters(name))


def _arrivals_key(sweep: PredictionTradeoff, name: str) -> dict[str, Any]:
    workload = _workload(sweep, name)
    return {"name": sweep.parameters(name)[0], **asdict(workload), "plugin": source_sha256(type(workload))}


def _settings_of(sweep: PredictionTradeoff, predictor: str) -> dict[str, Any]:
    if predictor == RULES:
        return {"alphas": sorted(sweep.alphas)}
    flips = {"flips": sorted(sweep.flip_probabilities)}
    if predictor == PERFECT:
        return flips
    return {**flips, "thresholds": sorted(sweep.thresholds), "features": asdict(sweep.features)}


def _search_settings(sweep: PredictionTradeoff) -> dict[str, int]:
    return {"seed": SEARCH_SEED, "restarts": sweep.search_restarts, "steps": sweep.search_steps}


def _proofs(sweep: PredictionTradeoff) -> set[str]:
    """Names of workloads that are sequences of proofs."""
    return {name for name in sweep.workloads if isinstance(_workload(sweep, name), LowerBound)}


def _measured(
    case: TradeoffCase, so_far: SoFar, sweep: PredictionTradeoff, models: Mapping[str, Ensemble]
) -> list[dict[str, Any]]:
    """One row per policy, threshold and flip: packets sent, questions, and answers to drop."""
    workload, buffer = _workload(sweep, case.workload), sweep.ports * sweep.buffer_per_port

    def batches() -> Iterator[Slotted]:
        for batch in workload.batches(sweep.ports, buffer, sweep.slots, case.seed):
            so_far("")
            yield batch

    if case.predictor == RULES:
        return list(_rules(_joined(batches()), sweep, buffer))
    answers: dict[float | None, Predictions]
    if case.predictor == PERFECT:
        traffic = _labelled(labelled(batches(), sweep.ports, buffer))
        answers = {None: perfect}
    else:
        model = models[case.predictor]
        traffic, probability, own = _asked(model, workload, batches(), sweep, case.seed)
        answers = {None: _constant(own)}
        answers |= {threshold: _constant(probability > threshold) for threshold in sorted(sweep.thresholds)}
    rows = []
    for threshold, predictions in answers.items():
        for flip in sorted(sweep.flip_probabilities) if threshold is None else (0.0, 1.0):
            so_far(f"{case.predictor}, flips {flip:g}")
            told = flipped(flip, FLIP_SEED + case.seed, predictions)(traffic).drop
            rows.append(_row("credence", traffic.arrivals, sweep, buffer, told, threshold=threshold, flip=flip))
    return rows


def _rules(traffic: Slotted, sweep: PredictionTradeoff, buffer: int) -> Iterator[dict[str, Any]]:
    """What needs no model: the optimum, LQD and drop-tail rules, and Credence with one answer to everything."""
    optimum = late_qd(sweep.ports, buffer, traffic.slot, traffic.port)["transmitted"]
    yield {**_empty("optimum"), "arrivals": len(traffic), "sent": optimum}
    for policy in ("lqd", "followlqd", "cs"):
        yield _row(policy, traffic, sweep, buffer)
    for alpha in sorted(sweep.alphas):
        yield _row("dt", traffic, sweep, buffer, alpha=alpha)
    for name, answer in (("always accept", 0), ("always drop", 1)):
        told = np.full(len(traffic), answer, np.uint8)
        yield _row("credence", traffic, sweep, buffer, told) | {"policy": name}


def _row(
    policy: str,
    traffic: Slotted,
    sweep: PredictionTradeoff,
    buffer: int,
    told: NDArray[np.uint8] | None = None,
    *,
    alpha: float | None = None,
    threshold: float | None = None,
    flip: float | None = None,
) -> dict[str, Any]:
    used = SlotParameters().alpha if alpha is None else [alpha]
    ran = slotted(policy, sweep.ports, buffer, traffic.slot, traffic.port, told, labels=False, alpha=used)
    row = {**_empty(policy), "arrivals": len(traffic), "sent": ran["transmitted"]}
    if told is not None:
        asked = ran["asked"].view(np.bool_)
        row |= {"asked": int(np.count_nonzero(asked)), "predicted_drops": int(np.count_nonzero(told[asked]))}
    return row | {"alpha": alpha, "threshold": threshold, "flip_probability": flip}


def _empty(policy: str) -> dict[str, Any]:
    names = ("asked", "predicted_drops", "alpha", "threshold", "flip_probability")
    return {"policy": policy, **dict.fromkeys(names)}


def _asked(
    model: Ensemble, workload: Workload, batches: Iterator[Slotted], sweep: PredictionTradeoff, seed: int
) -> tuple[Labelled, NDArray[np.float64], NDArray[np.bool_]]:
    """The arrivals, the model's probability of each and its own decision, from features as a dataset has them."""
    shift = sweep.features.average_shift
    run = slotted_run(
        workload,
        sweep.ports,
        sweep.buffer_per_port,
        sweep.slots,
        seed,
        cell_bytes=sweep.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
    )
    columns = [[item.name for item in FEATURES].index(item.name) for item in model.features]
    parts, probability, own = [], [], []
    for records in labelled_records(run, arrivals_in_bytes(batches)):
        x = records["features"][:, columns]
        arrivals = Slotted(records["time_ns"] // SLOT_NS, records["port"].astype(np.int32))
        parts.append(Labelled(arrivals, np.ascontiguousarray(records["lqd_drop"])))
        probability.append(model.probability(x))
        own.append(model.exceeds(x))
    return _labelled(iter(parts)), np.concatenate(probability), np.concatenate(own)


def _joined(batches: Iterator[Slotted]) -> Slotted:
    parts = [*batches]
    if not parts:
        raise ForetailError("the workload sends no packet: raise the slots of the experiment, or its load")
    return Slotted(np.concatenate([part.slot for part in parts]), np.concatenate([part.port for part in parts]))


def _labelled(batches: Iterator[Labelled]) -> Labelled:
    parts = [*batches]
    return Labelled(_joined(part.arrivals for part in parts), np.concatenate([part.lqd_drop for part in parts]))


def _constant(drop: NDArray[np.bool_]) -> Predictions:
    return lambda batch: Predicted(drop.view(np.uint8))


def _worst(case: SearchCase, so_far: SoFar, sweep: PredictionTradeoff) -> dict[str, Any]:
    """The worst arrivals and predictions that a search finds for Credence against the optimum."""
    so_far("")
    settings = _search_settings(sweep)
    worst = search("credence", case.ports, case.buffer, **settings)
    optimum, credence = worst.counts["opt"], worst.counts["credence"]
    return {
        "slots": worst.slots,
        "predictions": worst.predictions,
        "optimum": optimum,
        "sent": credence,
        "percent_of_optimum": 100 * credence / optimum,
    }
