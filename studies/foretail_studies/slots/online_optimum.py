"""How much of what thresholds leave of LQD's packets an online policy without push-out could win, exactly.

The processes are small Markov chains, so that value iteration finds the best policy that knows the queues and the past,
and the best that also knows what comes next. No predictor does better than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import setting
from foretail.models.scoring.figure_style import BLACK, MARKERS, panels, styled, with_legend
from foretail.pipelines.experiment.cases import axes
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
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

ON_OFF, BURSTS, WHOLE = "on_off", "bursts", "whole"
TITLES = {ON_OFF: "on-off sources", BURSTS: "bursts over background", WHOLE: "whole-buffer bursts"}
SENDERS = 2
"""Inputs that take part in a burst."""
WHOLE_SLOTS = 2
"""Slots of a burst of a whole buffer, and packets of buffer per port of its switch."""
SHORT = 4
"""A short burst is this part of a long one; both are as likely."""
KNOWING = {"queues": "queues alone", "past": "queues and past", "ahead": "also packets ahead"}
"""The best policies, by what they know."""
POLICIES = {"lqd": "LQD", "cs": "CS", "dt": "best DT", **KNOWING}
CAPTION = (
    "What the best policies without push-out leave of LQD's packets, by what they know, against what Dynamic "
    "Thresholds leave with the best alpha; a marker for each process. Below the line a policy sends more than DT."
)
NOTE = (
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
    backgrounds: list[float] = setting(
        MISSING, "Probabilities that an input without a burst sends a packet.", at_least=0, at_most=1
    )
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
    least_win: float = setting(
        0.5, "What a policy has to win to be worth having, in % of LQD's packets.", at_least=0, at_most=100
    )


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


def measured(case: Process, so_far: SoFar, settings: OnlineOptimumSettings) -> dict[str, float]:
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


def rows_of(case: Process, sent: Mapping[str, float], settings: OnlineOptimumSettings) -> Iterator[dict[str, Any]]:
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


def show(rows: pd.DataFrame, settings: OnlineOptimumSettings) -> Shown:
    """What each policy leaves, by process and by kind."""
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
            Table.of_frame("The same, medians by switch", groups.round(3), {**switches, **columns}, NOTE),
        ],
        {"": Drawn(draw(left), CAPTION, left.reset_index())},
        verdict=verdict(left, settings),
    )


def verdict(left: pd.DataFrame, settings: OnlineOptimumSettings) -> list[str]:
    """What there is to win over the best threshold, by what is known."""
    wins = left["dt"] - left["past"]
    sentences = [
        f"Over the best threshold, the best online policy that knows the past wins {wins.median():.2g} % of LQD's "
        f"packets at the median of {len(left)} processes and {wins.max():.2g} % at most: at least "
        f"{settings.least_win:g} % in {int((wins >= settings.least_win).sum())} of them."
    ]
    for kind, some in left[left["dt"] > settings.least_win].groupby("kind", sort=False):
        closed = 100 * (1 - some["past"] / some["dt"])
        sentences.append(
            f"{TITLES[str(kind)].capitalize()}: where the best threshold leaves more than {settings.least_win:g} %, in "
            f"{len(some)}, that policy closes {round(closed.median())} % of it at the median [{round(closed.min())}, "
            f"{round(closed.max())}]."
        )
    return sentences


@styled
def draw(left: pd.DataFrame) -> Figure:
    """What the best policies leave against what DT leaves, a panel for each kind of arrivals."""
    kinds = list(dict.fromkeys(left["kind"]))
    figure, row = panels(len(kinds), inches=(3.6 * len(kinds) + 1.4, 3.6), sharex=True, sharey=True)
    most = float(np.ceil(2 * max(0.0, left["dt"].max())) / 2)
    for axes_of, kind in zip(row, kinds, strict=True):
        some = left[left["kind"] == kind]
        axes_of.plot([0, most], [0, most], color=BLACK, linewidth=0.9, label="as DT")
        for place, (one, title) in enumerate(KNOWING.items()):
            face = "none" if place else "C0"
            axes_of.plot(some["dt"], some[one], MARKERS[place], color=f"C{place}", markerfacecolor=face, label=title)
        axes_of.set(
            title=TITLES[kind],
            xlabel="left by the best DT, %",
            ylabel="left of LQD's packets, %" if axes_of is row[0] else "",
        )
    return with_legend(figure, row[0], title="knows")


ONLINE_OPTIMUM = PointExperiment(
    settings=OnlineOptimumSettings,
    kind="online_optimum",
    cases=processes,
    name=lambda case: case.name,
    measure=measured,
    rows=rows_of,
    show=show,
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
        "least_win",
    ),
)
