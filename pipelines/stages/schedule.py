"""``foretail schedule``: a periodic schedule of circuits for a demand matrix, and its throughput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretail.configs.schema.network.circuits import ScheduleConfig
from foretail.core.digest import DIGEST_FILE
from foretail.core.errors import ForetailError
from foretail.core.files import staged_files, write_file
from foretail.core.summary import Summarised
from foretail.export.schedule import PlannedSchedule, render_schedule
from foretail.features.demand.matrix import DemandMatrix, read_demand
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.schedules import (
    SCHEDULER_KINDS,
    Schedule,
    consistency,
    robustness,
    single_hop_guarantee,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop

PNG, FIGURE = "png", "schedule.png"
CAPTION = (
    "Left: the node that every port reaches, by slot of the period. Right: the demand, and what the circuits of the "
    "schedule carry on average, in the same colours."
)
SLOW_NODES = 1500
"""From here on a schedule takes more than some seconds."""
EXACT_NODES, MULTI_HOP_NODES = 32, 128
"""Up to these multi_hop=auto takes the linear program and the primal-dual method, each some seconds at most."""


@dataclass(frozen=True, eq=False, repr=False)
class ScheduleResult(Summarised):
    """A schedule and what it is worth."""

    scheduler: str  #: name of what made it
    planned: PlannedSchedule  #: the schedule and its throughput
    #: least throughput on a demand of the hose model: by Vermilion's theorems, or the circuits between every pair
    single_hop_guarantee: float
    multi_hop_guarantee: float  #: likewise
    edges_per_pair: tuple[int, int]  #: fewest and most circuits of a pair of two nodes in a period
    scaled_by: float  #: the demand was multiplied by this
    predicted: bool  #: it was made for a prediction, not for the demand
    on_forecast: bool  #: the throughput is that on the forecast, because no demand was given
    files: tuple[str, ...]  #: what was written, by name in the run folder
    #: no flow has a multi-hop throughput above this; equal to the planned one when that is exact, None without it
    multi_hop_at_most: float | None = None

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        planned = self.planned
        return {
            "scheduler": self.scheduler,
            "n": planned.schedule.nodes,
            "degree": planned.schedule.degree,
            "k": planned.k,
            "l": planned.oblivious,
            "period_slots": planned.schedule.period,
            "theta_single_hop": planned.theta_single_hop,
            "theta_multi_hop": planned.theta_multi_hop,
            "theta_multi_hop_at_most": self.multi_hop_at_most,
            "single_hop_guarantee": self.single_hop_guarantee,
            "multi_hop_guarantee": self.multi_hop_guarantee,
            "edges_per_pair": self.edges_per_pair,
            "scaled_by": self.scaled_by,
            "predicted": self.predicted,
            "files": self.files,
            "captions": {FIGURE.removesuffix(".png"): CAPTION} if FIGURE in self.files else {},
        }

    def verdict(self) -> list[str]:
        """Throughput by direct circuits and over several, beside what is guaranteed."""
        multi_hop = self.planned.theta_multi_hop
        return [
            f"On direct circuits the schedule carries {self.planned.theta_single_hop:.4g} times the demand; at "
            f"least {self.single_hop_guarantee:.4g} is guaranteed.",
            "Throughput over several circuits was not computed: set multi_hop=exact or multi_hop=primal_dual."
            if multi_hop is None
            else f"Over several circuits it carries {multi_hop:.4g} times the demand; at least "
            f"{self.multi_hop_guarantee:.4g} is guaranteed.",
        ]

    def tables(self) -> list[Table]:
        """Throughput by routing, beside what is guaranteed."""
        planned, (fewest, most) = self.planned, self.edges_per_pair
        schedule = planned.schedule
        made_by = self.scheduler if planned.k is None else f"k {planned.k}, l {planned.oblivious}"
        notes = ["Throughput on the demand, not capped at 1, without the duty cycle: multiply it by the day's share."]
        if self.on_forecast:
            notes.append("No demand was given: throughput is that on the forecast.")
        if self.predicted:
            notes.append("Made for the prediction: the guarantee holds however wrong it is.")
        if self.scaled_by != 1:
            notes.append(f"The demand was scaled by {self.scaled_by:.4g} into the hose model first.")
        if planned.theta_multi_hop is None:
            notes.append("Multi-hop was not computed: multi_hop=primal_dual does.")
        elif planned.theta_multi_hop != self.multi_hop_at_most:
            notes.append(
                f"Multi-hop: a flow that sends theta was found; none sends above {self.multi_hop_at_most:.4g}."
            )
        return [
            Table(
                f"Schedule of {schedule.nodes} nodes, degree {schedule.degree}, {made_by}",
                ("routing", "theta", "guarantee", "period in slots", "edges per pair"),
                tuple(
                    (routing, theta, guarantee, schedule.period, f"{fewest} to {most}")
                    for routing, theta, guarantee in (
                        ("single-hop", planned.theta_single_hop, self.single_hop_guarantee),
                        ("multi-hop", planned.theta_multi_hop, self.multi_hop_guarantee),
                    )
                ),
                tuple(notes),
            )
        ]


def schedule(config: ScheduleConfig, run_dir: Path) -> ScheduleResult:
    """Schedule for ``config.demand``, or for ``config.prediction`` of it, and write it to the run."""
    predicted = None if config.prediction is None else read_demand(Path(config.prediction))
    if config.forecast is not None:
        predicted = _forecast(config, config.forecast)
    if config.demand is None:
        assert predicted is not None  # the settings were checked
        given = demand = predicted
    else:
        given = read_demand(Path(config.demand))
        demand = _in_hose(given, config)
    predicted = demand if predicted is None else predicted
    if predicted.nodes != demand.nodes:
        raise ForetailError(
            f"{config.prediction or config.forecast} has {predicted.nodes} nodes and {config.demand} has "
            f"{demand.nodes}: predict the demand of the same nodes"
        )
    of_vermilion = config.scheduler == "vermilion"
    k, oblivious = (config.trust, config.l) if of_vermilion else (None, None)
    settings = {"k": k, "l": oblivious, "diagonal": config.diagonal} if of_vermilion else config.scheduler_settings
    scheduler = SCHEDULER_KINDS.make(config.scheduler, settings)
    with StageProgress() as progress:
        if predicted.nodes >= SLOW_NODES:
            progress.say(f"a schedule of {predicted.nodes:,} nodes takes minutes, and the time grows faster than n^2")
        made = scheduler.schedule(predicted, config.degree, config.seed)
    theta_multi_hop, at_most = _multi_hop(demand, made, config)
    planned = PlannedSchedule(made, k, oblivious, single_hop(demand, made.capacity), theta_multi_hop)
    outputs = [output for output in config.outputs if output != PNG]
    texts = render_schedule(planned, outputs, first_port=config.p4.first_port)
    _write(run_dir, texts)
    drawn: tuple[str, ...] = ()
    if PNG in config.outputs:  # no other output waits for matplotlib
        from foretail.pipelines.demand import draw_schedule
        from foretail.pipelines.runs.points import write_files

        figure = draw_schedule(made, demand, "forecast" if config.demand is None else "demand")
        drawn = tuple(path.name for path in write_files(run_dir, {FIGURE: figure}))
    pairs = made.edges[~np.eye(made.nodes, dtype=bool)]
    floor = int(pairs.min()) / (made.period * made.degree)  # a demand of the hose model has no entry above the degree
    is_predicted = config.prediction is not None or config.forecast is not None
    on_direct, on_several = _guarantees(config.trust, config.l, is_predicted) if of_vermilion else (floor, floor)
    return ScheduleResult(
        config.scheduler,
        planned,
        max(floor, on_direct),
        on_several,
        (int(pairs.min()), int(pairs.max())),
        demand.largest_sum / given.largest_sum,
        is_predicted,
        config.demand is None,
        (*texts, *drawn),
        at_most,
    )


def _forecast(config: ScheduleConfig, forecast: str) -> DemandMatrix:
    """Forecast of a demand predictor for the step after the history."""
    from foretail.features.demand.logs import Steps, read_demand_logs  # as long as all else together
    from foretail.models.demand.predictor_file import KINDS, load

    steps = Steps(config.interval_ns, config.uplink_bps, racks=config.racks)
    runs = read_demand_logs([Path(path) for path in config.history], steps)
    if forecast.endswith(".json"):
        predictor = load(Path(forecast))
    else:
        if forecast not in KINDS.names():
            raise ForetailError(
                f"forecast={forecast} is no demand predictor: give a file that foretail demand wrote, or one of "
                f"{', '.join(KINDS.names())}"
            )
        predictor = KINDS.make(forecast).fit(runs)
    matrix = predictor.predict(runs[-1].demand, config.degree)
    if not matrix.demand.any():
        raise ForetailError(f"the forecast after {runs[-1].run} is zero: there is nothing to schedule for")
    return matrix


def _guarantees(k: int, oblivious: int, is_predicted: bool) -> tuple[float, float]:
    """Bounds that theorems promise of Vermilion, single-hop and multi-hop."""
    trust = k / oblivious
    return (0.0, robustness(trust)) if is_predicted else (single_hop_guarantee(k, oblivious), consistency(trust))


def _write(run_dir: Path, texts: Mapping[str, str]) -> None:
    """Write all files or none; ForetailError when a folder of somebody else is where files of racks go."""
    racks = run_dir / "p4"
    if racks.exists() and not (racks / DIGEST_FILE).exists() and any(name.startswith("p4/") for name in texts):
        raise ForetailError(f"{racks} is not ours: remove it or choose another run folder")
    with staged_files(run_dir) as staging:
        for name, text in texts.items():
            write_file(staging / name, text)


def _in_hose(demand: DemandMatrix, config: ScheduleConfig) -> DemandMatrix:
    try:
        demand.require_hose(config.degree)
    except ForetailError as error:
        if not config.scale:
            raise ForetailError(f"in {config.demand}, {error} with scale=true") from None
        return demand.scaled_to(config.degree)
    return demand


def _multi_hop(demand: DemandMatrix, made: Schedule, config: ScheduleConfig) -> tuple[float | None, float | None]:
    """Throughput of a flow, and what none exceeds."""
    method = config.multi_hop
    if method == "no" or (method == "auto" and demand.nodes > MULTI_HOP_NODES):
        return None, None
    exact = method == "exact" or (method == "auto" and demand.nodes <= EXACT_NODES)
    # tolerances are absolute: give a saturated matrix
    saturated, scale = demand.scaled_to(made.degree), made.degree / demand.largest_sum
    with StageProgress() as progress:
        progress.update("multi-hop throughput", 0.0, f"{'linear program' if exact else 'flow'} of {demand.nodes} nodes")
        carried = multi_hop(saturated, made.capacity, 0.0 if exact else config.epsilon)
    if exact:
        return carried.theta * scale, carried.theta * scale
    return carried.theta * scale, carried.upper_bound(saturated, made.capacity) * scale
