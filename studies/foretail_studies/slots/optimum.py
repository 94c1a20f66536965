"""Small switches, exactly: the best online policy, what a wrong prediction costs, and the worst cases of a search.

How much of what thresholds leave of LQD's packets an online policy without push-out could win, exactly.

The processes are small Markov chains, so that value iteration finds the best policy that knows the queues and the past,
and the best that also knows what comes next. No predictor does better than that.

What a wrong prediction can cost Credence against LQD, decided for small switches; see docs/reports.

Each point is a policy on a switch: the least number of packets per wrong prediction that bounds LQD's lead on all
sequences of arrivals and predictions, with a cycle that reaches it and potentials that prove it.

Short sequences on which a policy, or a published claim about it, does badly: the worst that a search finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.core.errors import ForetailError
from foretail.core.settings import setting, share_setting
from foretail.pipelines.experiment.declaration import PointExperiment, Shown, axes
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.builds import policy_identity
from foretail.sim_bridge.policies import is_guest, policy_name
from foretail_studies.engines.error_graph import NEVER, Policy, explore, least_cost, longest_walks, theorem_weights
from foretail_studies.engines.online_optimum import (
    MarkovArrivals,
    Switch,
    WholeBursts,
    best_alpha,
    bursts,
    improved,
    on_off,
    rate_of,
)
from foretail_studies.engines.worst_cases import OBJECTIVES, SWITCHES, TITLES, WorstCase, objective_of, search

ON_OFF, BURSTS, WHOLE = "on_off", "bursts", "whole"
KIND_TITLES = {ON_OFF: "on-off sources", BURSTS: "bursts over background", WHOLE: "whole-buffer bursts"}
SENDERS = 2
"""Inputs that take part in a burst."""
WHOLE_SLOTS = 2
"""Slots of a burst of a whole buffer, and packets of buffer per port of its switch."""
LEAST_WIN = 0.5
"""Percent of LQD's packets that a policy has to win to be worth having."""
SHORT = 4
"""A short burst is this part of a long one; both are as likely."""
POLICIES = {
    "lqd": "LQD",
    "cs": "CS",
    "dt": "best DT",
    "queues": "queues alone",
    "past": "queues and past",
    "ahead": "also packets ahead",
}
"""Titles of policies; the best ones by what they know."""
ONLINE_OPTIMUM_NOTE = (
    "Queues alone: a policy that sees nothing else, a local optimum; queues and past: the optimum that also knows "
    "which sources are on, or how long a burst has lasted; also packets ahead: one that knows all packets of the slot, "
    "or how long a burst still lasts. Of whole bursts the past tells that too, and the queues alone were not tried. "
    "On and long: the mean on-time and the longest burst, in slots; over: background."
)


@dataclass
class OnlineOptimumSettings(PointSettings):
    """The optimal online policy on small Markov processes: each of them is a point."""

    ports: list[int] = setting(MISSING, "Number N of ports of the switch.", at_least=2, at_most=4)
    buffer_per_port: list[int] = setting(
        MISSING, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=16
    )
    loads: list[float] = setting(
        MISSING,
        "Shares of the time that an on-off source is on.",
        above=0,
        at_most=0.95,
    )
    mean_on_slots: list[float] = setting(MISSING, "Mean on-times of a source, in slots.", at_least=1)
    bursts_per_buffer: list[float] = setting(
        MISSING, "Longest bursts, in slots for each packet of the buffer.", above=0, at_most=8
    )
    backgrounds: list[float] = share_setting(MISSING, "Probabilities that an input without a burst sends a packet.")
    whole_ports: list[int] = setting(
        MISSING, "Ports of the switches for bursts of a whole buffer, 2 packets per port.", at_least=2, at_most=16
    )
    whole_loads: list[float] = setting(MISSING, "Shares of slots in which such a burst goes on.", above=0, at_most=0.95)
    alphas: list[float] = setting(
        [0.25, 0.33, 0.5, 0.67, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
        "Alphas of DT, the best of which is taken for each process.",
        above=0,
    )
    tolerance: float = setting(1e-6, "Error of a rate, in packets per slot.", above=0, at_most=0.01)


@dataclass(frozen=True)
class Process:
    """Arrivals at a small switch."""

    #: ``on_off``; ``bursts`` of two inputs over background; or ``whole``, bursts of all inputs and of a whole buffer
    kind: str
    ports: int  #: of the switch, and inputs
    buffer: int  #: of the switch, in packets
    slots: float  #: mean on-time of a source, or length of a long burst, in slots; that of a mean pause of ``bursts``
    load: float  #: share of the time that a source is on or a whole burst goes on, or probability of background

    @property
    def name(self) -> str:
        """For progress and tables."""
        slots = "on" if self.kind == ON_OFF else "long"
        load = "over" if self.kind == BURSTS else "load"
        return f"{self.kind} {self.ports}x{self.buffer} {slots}={self.slots:g} {load}={self.load:g}"

    def arrivals(self, *, ahead: bool) -> MarkovArrivals:
        """The chain, with what a policy knows of it."""
        if self.kind == ON_OFF:
            return on_off(self.ports, self.load, self.slots, ahead=ahead)
        long = round(self.slots)
        lengths = {max(1, long // SHORT): 0.5, long: 0.5}
        return bursts(self.ports, SENDERS, lengths, long, self.load, ahead=ahead)


def processes(settings: OnlineOptimumSettings) -> Iterator[Process]:
    """All of them."""
    for ports in settings.ports:
        for buffer in (ports * one for one in settings.buffer_per_port):
            sources = [float(slots) for slots in settings.mean_on_slots]
            longest = dict.fromkeys(float(max(2, round(share * buffer))) for share in settings.bursts_per_buffer)
            yield from axes(Process, [ON_OFF], [ports], [buffer], sources, settings.loads)
            yield from axes(Process, [BURSTS], [ports], [buffer], longest, settings.backgrounds)
    for ports in settings.whole_ports:
        yield from axes(Process, [WHOLE], [ports], [ports * WHOLE_SLOTS], [float(WHOLE_SLOTS)], settings.whole_loads)


def online_optimum_measured(case: Process, so_far: SoFar, settings: OnlineOptimumSettings) -> dict[str, float]:
    """Packets per slot that each policy sends, and the alpha of DT."""
    if case.kind == WHOLE:
        return _measured_whole(case, so_far, settings)
    switch = Switch(case.ports, case.buffer)
    past, tolerance = case.arrivals(ahead=False), settings.tolerance
    so_far("thresholds")
    alpha, of_dt = best_alpha(past, switch, settings.alphas, tolerance)
    so_far("queues alone")
    starts = (switch.dynamic_thresholds(alpha), switch.complete_sharing)
    of_queues = max(improved(past, switch, start, tolerance)[1] for start in starts)
    so_far("optimum")
    return {
        "lqd": rate_of(past, switch, switch.lqd(), tolerance).sent_per_slot,
        "cs": rate_of(past, switch, switch.complete_sharing, tolerance).sent_per_slot,
        "dt": of_dt,
        "queues": of_queues,
        "past": rate_of(past, switch, tolerance=tolerance).sent_per_slot,
        "ahead": rate_of(case.arrivals(ahead=True), switch, tolerance=tolerance).sent_per_slot,
        "alpha": alpha,
    }


def _measured_whole(case: Process, so_far: SoFar, settings: OnlineOptimumSettings) -> dict[str, float]:
    """The same for bursts of a whole buffer, where the past says how long a burst still lasts."""
    arrivals = WholeBursts(case.ports, case.buffer, round(case.slots), case.load)
    so_far("optimum")
    most = arrivals.sent_per_slot(tolerance=settings.tolerance)
    so_far("thresholds")
    of_alpha = {
        alpha: arrivals.sent_per_slot(arrivals.dynamic_thresholds(alpha), settings.tolerance)
        for alpha in [*sorted(settings.alphas), np.inf]
    }
    accept = of_alpha.pop(np.inf)
    alpha = max(of_alpha, key=lambda one: of_alpha[one])
    return {
        "lqd": arrivals.sent_per_slot(arrivals.lqd(), settings.tolerance),
        "cs": accept,
        "dt": of_alpha[alpha],
        "past": most,
        "ahead": most,
        "alpha": alpha,
    }


def online_optimum_rows_of(
    case: Process, sent: Mapping[str, float], settings: OnlineOptimumSettings
) -> Iterator[dict[str, Any]]:
    """A row for each policy: what it sends per slot, and which share of LQD's packets it leaves."""
    for policy in (one for one in POLICIES if one in sent):
        yield {
            "process": case.name,
            "policy": policy,
            "setting": f"alpha {sent['alpha']:g}" if policy == "dt" else "",
            "sent": sent[policy],
            "sent_by_lqd": sent["lqd"],
            "sent_by_accept": sent["cs"],
            "left": 1 - sent[policy] / sent["lqd"],
            "wins": (sent[policy] - sent["dt"]) / sent["lqd"],
        }


def show_online_optimum(rows: pd.DataFrame, settings: OnlineOptimumSettings) -> Shown:
    """Show the share of LQD's packets that each policy leaves, by process and by kind."""
    left = 100 * rows.pivot_table(index="process", columns="policy", values="left", sort=False)[[*POLICIES]]
    first = rows.drop_duplicates("process").set_index("process")
    left = left.join(first[["kind", "ports", "buffer", "sent_by_lqd"]])
    columns = {one: title for one, title in POLICIES.items() if one != "lqd"}
    groups = left.groupby(["kind", "ports", "buffer"], sort=False)[list(columns)].median().reset_index()
    switches = {"kind": "arrivals", "ports": "N", "buffer": "B"}
    return Shown(
        rows,
        [
            Table.of_frame("Left of LQD's packets, %", left.round(3).reset_index(), {"process": "process", **columns}),
            Table.of_frame(
                "The same, medians by switch", groups.round(3), {**switches, **columns}, ONLINE_OPTIMUM_NOTE
            ),
        ],
        frames={f"{settings.experiment}.csv": left.reset_index()},
        verdict=online_optimum_verdict(left),
    )


def online_optimum_verdict(left: pd.DataFrame) -> list[str]:
    """Return sentences on what there is to win over the best threshold, by what is known."""
    wins = left["dt"] - left["past"]
    sentences = [
        f"Over the best threshold, the best online policy that knows the past wins {wins.median():.2g} % of LQD's "
        f"packets at the median of {len(left)} processes and {wins.max():.2g} % at most: at least "
        f"{LEAST_WIN:g} % in {int((wins >= LEAST_WIN).sum())} of them."
    ]
    for kind, some in left[left["dt"] > LEAST_WIN].groupby("kind", sort=False):
        closed = 100 * (1 - some["past"] / some["dt"])
        sentences.append(
            f"{KIND_TITLES[str(kind)].capitalize()}: where the best threshold leaves more than {LEAST_WIN:g} "
            f"%, in {len(some)}, that policy closes {round(closed.median())} % of it at the median "
            f"[{round(closed.min())}, "
            f"{round(closed.max())}]."
        )
    return sentences


ONLINE_OPTIMUM = PointExperiment(
    settings=OnlineOptimumSettings,
    kind="online_optimum",
    cases=processes,
    name=lambda case: case.name,
    measure=online_optimum_measured,
    rows=online_optimum_rows_of,
    show=show_online_optimum,
    code=("foretail_studies.engines.online_optimum",),
    varied=(
        "ports",
        "buffer_per_port",
        "loads",
        "mean_on_slots",
        "bursts_per_buffer",
        "backgrounds",
        "whole_ports",
        "whole_loads",
    ),
)


VARIANTS: dict[str, dict[str, Any]] = {
    "Credence": {},
    "Credence, arrival uncounted": {"counting": "uncounted"},
    "Credence, highest port loses": {"tie": "highest_port"},
    "Credence, no safeguard": {"safeguard": "none"},
    "Credence, the paper's safeguard": {"safeguard": "paper"},
    "Credence, any load": {"any_load": True},
    "Credence, any load, no safeguard": {"any_load": True, "safeguard": "none"},
    "FollowLQD": {"answers_needed": NEVER},
    "Guarded Credence, two answers": {"answers_needed": 2},
}
"""Rows of the second table, the first of which is the policy of the first table, by how they differ from it."""
PREDICTION_ERRORS_NOTE = (
    "Cost: the least c with LQD - policy <= c times the wrong predictions, on all sequences that end with an empty "
    "switch; unbounded: no c. Proven: potentials prove it on every edge, or a cycle without an error refutes it. "
    "Theorem: LQD - policy <= wrong predictions to drop + (B - 1) times those to pass."
)


@dataclass
class PredictionErrorsSettings(PointSettings):
    """Cost of a wrong prediction: every policy on every switch is a point."""

    switches: list[str] = setting(MISSING, "Switches for Credence as ports x buffer in packets, such as 3x4.")
    variant_switches: list[str] = setting(MISSING, "Switches for its variants, written in the same way.")

    def check(self, where: str) -> None:
        """Raise ForetailError where a switch is not written so, or is too large."""
        super().check(where)
        for name, written in (("switches", self.switches), ("variant_switches", self.variant_switches)):
            for one in written:
                if not re.fullmatch(r"[0-9]{1,3}x[0-9]{1,3}", one):
                    raise ForetailError(f"{name} = {one} is no switch: write ports x buffer, such as 3x4")
                ports, buffer = map(int, one.split("x"))
                Policy(ports, buffer)


@dataclass(frozen=True)
class Point:
    """A policy on a switch."""

    variant: str  #: name in ``VARIANTS``
    ports: int  #: N
    buffer: int  #: B, in packets

    @property
    def name(self) -> str:
        """For progress and tables."""
        return f"{self.variant} {self.ports}x{self.buffer}"

    @property
    def policy(self) -> Policy:
        """With its rules."""
        return Policy(self.ports, self.buffer, **VARIANTS[self.variant])


def points(settings: PredictionErrorsSettings) -> Iterator[Point]:
    """Credence on its switches, then the variants on theirs."""
    credence, *others = VARIANTS
    for variants, switches in (([credence], settings.switches), (others, settings.variant_switches)):
        for variant in variants:
            for switch in dict.fromkeys(switches):
                yield Point(variant, *map(int, switch.split("x")))


def prediction_errors_measured(case: Point, so_far: SoFar, settings: PredictionErrorsSettings) -> dict[str, Any]:
    """The bound with its certificate, and whether the theorem's bound holds."""
    so_far("states")
    graph = explore(case.policy)
    so_far("bound")
    bound = least_cost(graph)
    if bound.cost is None or bound.potential is None:
        gains = int(graph.lead[bound.cycle].sum())
        proven = gains > 0 and not graph.wrong[bound.cycle].any()
    else:
        weight = bound.cost.denominator * graph.lead.astype(np.int64) - bound.cost.numerator * graph.wrong
        proven = graph.proves(bound.potential, weight)
    so_far("theorem")
    weight = theorem_weights(graph)
    potential, cycles = longest_walks(graph, weight)
    slots, predictions = graph.walk(bound.cycle, 1) if bound.cycle else ("", "")
    return {
        "states": len(graph.codes),
        "edges": len(graph.source),
        "cost": None if bound.cost is None else str(bound.cost),
        "proven": proven,
        "theorem": not cycles and graph.proves(potential, weight),
        "slots": slots,
        "predictions": predictions,
    }


def prediction_errors_rows_of(
    case: Point, measurement: Mapping[str, Any], settings: PredictionErrorsSettings
) -> Iterator[dict[str, Any]]:
    """A row."""
    yield {"policy": case.variant, **measurement, "cost": measurement["cost"] or "unbounded"}


def show_prediction_errors(rows: pd.DataFrame, settings: PredictionErrorsSettings) -> Shown:
    """The bounds of Credence, and of its variants."""
    credence = rows[rows["policy"] == next(iter(VARIANTS))]
    own = {"ports": "N", "buffer": "B", "cost": "cost", "states": "states", "edges": "edges"}
    proofs = {"proven": "proven", "theorem": "theorem"}
    walks = {"slots": "sequence", "predictions": "predictions"}
    tables = [
        Table.of_frame(
            "What a wrong prediction can cost Credence", credence, {**own, **proofs, **walks}, PREDICTION_ERRORS_NOTE
        )
    ]
    others = rows.drop(credence.index)
    if len(others):
        tables.append(Table.of_frame("The same for its variants", others, {"policy": "policy", **own, **proofs}))
    return Shown(
        rows,
        tables,
        verdict=prediction_errors_verdict(rows),
    )


def prediction_errors_verdict(rows: pd.DataFrame) -> list[str]:
    """Return sentences on where the theorem holds, and which policies no number bounds."""
    holds, unbounded = rows[rows["theorem"]], rows[rows["cost"] == "unbounded"]
    names = ", ".join(unbounded["policy"].drop_duplicates()) or "none"
    return [
        "LQD - policy <= wrong predictions to drop + (B - 1) times those to pass in "
        f"{len(holds)} of {len(rows)} points.",
        f"No number of packets per wrong prediction bounds: {names}.",
    ]


PREDICTION_ERRORS = PointExperiment(
    settings=PredictionErrorsSettings,
    kind="prediction_errors",
    cases=points,
    name=lambda case: case.name,
    measure=prediction_errors_measured,
    rows=prediction_errors_rows_of,
    show=show_prediction_errors,
    code=("foretail_studies.engines.error_graph",),
    varied=("switches", "variant_switches"),
)


@dataclass
class WorstCaseSettings(PointSettings):
    """Ratios that are made large, and how long the search takes."""

    objectives: list[str] = setting(
        list(OBJECTIVES), "Ratios by name, or a policy in a header, as my_rule.hpp:MyRule, whose OPT / policy is one."
    )
    seed: int = setting(0, "The same seed finds the same sequences.", at_least=0)
    restarts: int = setting(16, "Sequences that are grown for each ratio and switch.", at_least=1)
    steps: int = setting(4000, "Changes to each of them.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a ratio that is not known."""
        super().check(where)
        for name in self.objectives:
            objective_of(name)


@dataclass(frozen=True)
class SearchCase:
    """A search on one switch."""

    objective: str
    ports: int
    buffer: int


def _cases(settings: WorstCaseSettings) -> Iterable[SearchCase]:
    return (SearchCase(name, *switch) for name in settings.objectives for switch in SWITCHES)


def _measure(case: SearchCase, so_far: SoFar, settings: WorstCaseSettings) -> dict[str, Any]:
    worst = search(
        case.objective,
        case.ports,
        case.buffer,
        seed=settings.seed,
        restarts=settings.restarts,
        steps=settings.steps,
    )
    return {"slots": worst.slots, "predictions": worst.predictions, "counts": worst.counts}


def _rows(case: SearchCase, worst_cases_measured: Mapping[str, Any], settings: WorstCaseSettings) -> Mapping[str, Any]:
    worst = WorstCase(**asdict(case), **worst_cases_measured)
    return {**worst_cases_measured, "ratio": float(worst.ratio), "violates": worst.violates}


def show_worst_cases(rows: pd.DataFrame, settings: WorstCaseSettings) -> Shown:
    """The worst switch of every ratio and number of ports."""
    worst = rows.loc[rows.groupby(["objective", "ports"], sort=False)["ratio"].idxmax()]
    cells: list[tuple[Cell, ...]] = []
    for row in worst[[field.name for field in fields(WorstCase)]].to_numpy().tolist():
        case = WorstCase(*row)
        objective = objective_of(case.objective)
        claimed = objective.claimed(case.ports)
        counts = ", ".join(f"{TITLES.get(name, policy_name(name))} {count}" for name, count in case.counts.items())
        verdict = "no claim" if claimed is None else "exceeds the claim" if case.violates else "within the claim"
        proven = None if case.proven is None else str(case.proven)
        switch = (objective.text, case.ports, case.buffer, case.slots, case.predictions, counts)
        cells.append((*switch, float(case.ratio), claimed, verdict, proven))
    columns = (
        "ratio",
        "N",
        "B",
        "slots",
        "predictions",
        "counts",
        "largest",
        "claimed",
        "verdict",
        "proven",
    )
    above = sorted({objective_of(name).text for name in worst[worst["violates"]]["objective"]})
    sentence = f"{', '.join(above) or 'No ratio'} exceeds what is claimed."
    return Shown(worst.reset_index(drop=True), [Table("Worst cases", columns, tuple(cells))], verdict=[sentence])


WORST_CASES = PointExperiment(
    settings=WorstCaseSettings,
    kind="worst_cases",
    cases=_cases,
    name=lambda case: f"{case.objective}, {case.ports} ports, buffer {case.buffer}",
    measure=_measure,
    rows=_rows,
    show=show_worst_cases,
    code=("foretail_studies.engines.worst_cases",),
    varied=("objectives",),
    depends_on=lambda case, settings: {"policy": policy_identity(case.objective) if is_guest(case.objective) else None},
)
