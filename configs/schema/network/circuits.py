"""Circuits and their demand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.stage import Stage
from foretail.configs.schema.targets import CircuitEntries
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.plugins import SCHEDULER_GROUP, offered
from foretail.core.settings import (
    LARGEST_DEGREE,
    LARGEST_TRUST,
    part,
    rate_setting,
    require_distinct,
    setting,
    time_setting,
)

SCHEDULERS = ("vermilion", "round_robin", "mars", "expander", "opera")
"""Foretail's own; packages offer others."""
RACKS_OF_LOGS = "Logs of rows: number of racks, from 0 on; null means up to the largest number in them."


def require_scheduler(where: str, name: str, ours: tuple[str, ...] = SCHEDULERS) -> None:
    """Raise ForetailError unless a name is one of `ours`, or a scheduler that an installed package offers."""
    others = offered(SCHEDULER_GROUP, SCHEDULERS)
    if name not in ours and name not in others:
        raise ForetailError(f"{where} = {name} is unknown: choose from {', '.join((*ours, *others))}")


@dataclass
class ScheduleConfig(Stage):
    """``foretail schedule``: a periodic schedule of circuits for a demand matrix, and its throughput."""

    demand: str | None = setting(
        None,
        "CSV, NPY or Parquet file of the demand; a row is a source, in capacities of one uplink. Null is for a "
        "forecast, on which throughput is then computed.",
    )
    degree: int = setting(
        MISSING, "Number of uplinks of a node; k times n is a multiple of it.", at_least=1, at_most=LARGEST_DEGREE
    )
    scheduler: str = setting(
        "vermilion",
        "Scheduler that makes the schedule: vermilion, round_robin, mars, expander, opera, or one of a package.",
    )
    scheduler_settings: Any = setting(
        None, "Settings of a scheduler other than vermilion, as {NAME: VALUE}; all others keep their defaults."
    )
    k: int | None = setting(
        None,
        "Vermilion: circuits per node and period, in units of n; a larger k follows the demand more closely.",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    l: int = setting(  # noqa: E741
        1,
        "Vermilion: how many of these k connect every pair whatever the demand is; k / l is the trust in the demand.",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    seed: int = setting(1, "Seed that places the circuits that the demand leaves over.", at_least=0, at_most=2**32 - 1)
    diagonal: str = setting(
        "idle",
        "Vermilion: what circuits of a node to itself do: they idle, as the theorems assume, or serve as "
        "circuits left over.",
        one_of=("idle", "reuse"),
    )
    scale: bool = setting(False, "Scale a demand that exceeds the hose model into it, instead of refusing it.")
    multi_hop: str = setting(
        "auto",
        "How multi-hop throughput is computed: exact solves a linear program, primal_dual stops within epsilon of the "
        "largest one, no leaves it out; auto is exact up to 32 nodes, and primal_dual up to 128.",
        one_of=("auto", "exact", "primal_dual", "no"),
    )
    epsilon: float = setting(
        0.01,
        "With multi_hop=primal_dual, how much more than the flow that was found any flow may send, as a share.",
        at_least=1e-4,
        at_most=1,
    )
    prediction: str | None = setting(
        None, "File of the matrix to schedule for; null means `demand`, on which throughput is always computed."
    )
    forecast: str | None = setting(
        None,
        "Demand predictor that makes the matrix to schedule for: a file of foretail demand, or the name of a kind, "
        "which is trained on `history`.",
    )
    history: list[str] = setting(
        [], "Logs of demand as foretail demand takes them; a forecast is of the step after the last one's end."
    )
    interval_ns: int | None = setting(None, "Time of a step of a history with times or bytes.", at_least=1)
    uplink_bps: int | None = setting(None, "Rate of an uplink, for a history in bytes.", at_least=1)
    racks: int | None = setting(None, RACKS_OF_LOGS, at_least=2, at_most=1024)
    outputs: list[str] = setting(
        ["json"],
        "Files to write: JSON, a C table, P4 entries of each rack, or a figure.",
        one_of=("json", "c", "p4", "png"),
    )
    p4: CircuitEntries = part(CircuitEntries, "Settings of outputs=[p4].")

    @property
    def trust(self) -> int:
        """``k``; ForetailError when it is missing."""
        if self.k is None:
            raise ForetailError("the setting k is missing: give k=...")
        return self.k

    def check(self, where: str) -> None:
        """Raise ForetailError on an unknown scheduler, or a missing k."""
        require_scheduler("scheduler", self.scheduler)
        if self.demand is None and self.forecast is None:
            raise ForetailError("the setting demand is missing: give demand=FILE, or forecast=... with history=[...]")
        if self.forecast is not None and self.prediction is not None:
            raise ForetailError("prediction and forecast are both the matrix to schedule for: leave one of the two out")
        if (self.forecast is None) != (not self.history):
            raise ForetailError("forecast and history belong together: give both or none")
        if "k" not in self.unused():
            _ = self.trust

    def unused(self) -> Mapping[str, str]:
        """Settings that this scheduler or this way to compute throughput does not read."""
        others = ("scheduler_settings",) if self.scheduler == "vermilion" else ("k", "l", "diagonal")
        without = {"epsilon": f"multi_hop={self.multi_hop}"} if self.multi_hop in ("exact", "no") else {}
        return dict.fromkeys(others, f"scheduler={self.scheduler}") | without


@dataclass
class DemandConfig(Stage):
    """``foretail demand``: train demand predictors on runs, and score the schedules of what they predict on others."""

    demand_predictor: dict[str, dict[str, Any]] = setting(
        MISSING, "Predictors to compare, by their names in the table; the last value is always compared as well."
    )
    collectives: list[str] = setting(
        ["hybrid_parallel"],
        "Sequences of generated demand, by their names in foretail.sim_bridge.circuits.demand; A+B swings between two.",
    )
    nodes: int = setting(8, "Collectives: number of nodes n.", at_least=2, at_most=1024)
    noise: float = setting(
        0.2, "Collectives: standard deviation of an entry, relative to the entry.", at_least=0, at_most=10
    )
    placed_at_random: bool = setting(True, "Collectives: give every run an order of nodes and a first step of its own.")
    mixture_period_steps: float = setting(
        12.0, "Collectives: number of steps from A over B to A in A+B.", at_least=2, at_most=10**9
    )
    job_seed: int = setting(
        1, "Collectives: seed of a job's matrices, which are the same in all runs.", at_least=0, at_most=2**32 - 1
    )
    datasets: list[str] = setting(
        [], "Runs in ns-3 or imported packet logs of Etalon to use instead of collectives, split by their seeds."
    )
    interval_ns: int | None = time_setting(None, "Datasets and logs: duration of a step.", at_least=1)
    demand: str = setting(
        "offered",
        "Datasets: what counts as demand: what flows want to send, or the data packets that reached the uplinks.",
        one_of=("offered", "carried"),
    )
    logs: list[str] = setting(
        [], "NPY, CSV, Parquet or TXT files of demand matrices to use instead; runs are numbered from 1 for the split."
    )
    uplink_bps: int | None = rate_setting(None, "Logs in bytes, and Etalon: rate of an uplink.")
    racks: int | None = setting(None, RACKS_OF_LOGS, at_least=2, at_most=1024)
    steps: int | None = setting(
        None, "Matrices of a run; null means 24 generated ones, or all that the run has.", at_least=3, at_most=10**6
    )
    warm_up: int = setting(6, "First step that is predicted and scored.", at_least=1, at_most=10**6)
    degree: int = setting(
        4, "Number of uplinks of a node; k times n is a multiple of it.", at_least=1, at_most=LARGEST_DEGREE
    )
    trusts: list[int] = setting(
        [2, 3, 5],
        "Values of k, with l = 1, among which the validation runs choose.",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    routing: str = setting(
        "single_hop", "Routing of the throughput that counts; multi_hop is slower.", one_of=("single_hop", "multi_hop")
    )
    seed: int = setting(1, "Seed that places the circuits that the demand leaves over.", at_least=0, at_most=2**32 - 1)
    split: Split = part(Split, "Seeds of the runs to train on, to choose the trust by, and to score.")
    tracking: Tracking = part(Tracking, "Tracking in MLflow.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless there is one source of demand, and predictors to score on it."""
        if self.split.name == "by_time":
            raise ForetailError("demand is split by run: use split=by_run or split=drawn")
        for name in ("demand_predictor", "trusts"):
            if not getattr(self, name):
                raise ForetailError(f"{name} is empty: give at least one")
        for name in self.demand_predictor:
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ForetailError(f"demand_predictor {name!r} names a file: use letters, digits and _.- only")
        require_distinct("trusts", self.trusts, "name every k once")
        require_distinct("collectives", self.collectives, "name every one once")
        if self.steps is not None and self.warm_up >= self.steps:
            raise ForetailError(f"warm_up = {self.warm_up} leaves none of steps = {self.steps} to score: lower it")
        if self.datasets and self.logs:
            raise ForetailError("datasets and logs are both given: score one after the other")
        if self.datasets and self.interval_ns is None:
            raise ForetailError("datasets are cut into steps: give interval_ns=..., the time of one")
        if self.datasets or self.logs:
            return
        for name in ("interval_ns", "uplink_bps", "racks"):
            if getattr(self, name) is not None:
                raise ForetailError(f"{name} is for datasets=[...] and logs=[...], and none is given: leave it out")
        if not self.collectives:
            raise ForetailError(
                "there are no sequences of demand: give collectives=[...], datasets=[...] or logs=[...]"
            )

    def unused(self) -> Mapping[str, str]:
        """Settings that only generated demand has, where demand is given."""
        generated = ("collectives", "nodes", "noise", "placed_at_random", "mixture_period_steps", "job_seed")
        if self.datasets:
            return dict.fromkeys((*generated, "racks"), "datasets=[...]")
        return dict.fromkeys(generated, "logs=[...]") if self.logs else {}
