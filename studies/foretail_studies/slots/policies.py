"""Generated arrivals in slots under several policies.

A case is one sequence of arrivals with one share of inverted predictions. Shown are the exact offline optimum over
every policy, against the ratios that are proven, and Figure 14 of the Credence paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.policies import OF_ARRIVALS, PolicyParameters, require_distinct_policies
from foretail.configs.schema.scenario import Rules
from foretail.core.errors import ForetailError
from foretail.core.settings import part, seed_setting, setting, share_setting
from foretail.features.dataset import schema as manifest
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, LowerBound
from foretail.sim_bridge.builds import native_policy, policy_identity
from foretail.sim_bridge.open_loop.slotted import compare, flipped
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.figures import draw_lines

FLIP_SEED = 2**32
"""Added to a point's seed for its flips, which must not be the random numbers that made its arrivals."""
LQD_RATIO = 1.707
"""Competitive ratio of LQD, proven by Antoniadis et al. (ICALP 2021)."""
SENT = "transmitted_"
"""Begins the columns with what each policy sent."""
SWITCH = ["workload", "ports", "buffer"]


@dataclass
class SlotSettings(PointSettings):
    """Generated arrivals under several policies: every workload, switch, flip probability and seed is a point."""

    workloads: list[str] = setting(
        MISSING, "Workloads by their names in foretail.sim_bridge.arrivals.workloads, with their defaults."
    )
    ports: list[int] = setting(MISSING, "Number N of ports of the switch.", at_least=1, at_most=32_768)
    buffer_per_port: list[int] = setting(
        MISSING, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=2**24
    )
    flip_probabilities: list[float] = share_setting([0.0], "Shares of perfect predictions that are inverted.")
    seeds: list[int] = seed_setting([1], "Seeds of arrivals and flips.")
    slots: int = setting(MISSING, "Number of slots with arrivals.", at_least=1, at_most=2**40)
    policies: list[str] = setting(MISSING, "Policies beside LQD; HEADER.hpp:TYPE is one of your own.")
    rules: Rules = part(Rules, "Rules of LQD.")
    parameters: PolicyParameters = part(PolicyParameters, "Parameters of the policies.")

    def check(self, where: str) -> None:
        """Raise ForetailError on unknown workloads, policies that are there twice, and several queues per port."""
        super().check(where)
        require_distinct_policies("policies", self.policies)
        for name in self.workloads:
            if name not in WORKLOADS:
                raise ForetailError(f"workloads = {name} is unknown: choose from {', '.join(WORKLOADS)}")
        if self.parameters.count > 1:
            raise ForetailError(
                "parameters gives a port several queues, but generated arrivals have one: set parameters.queues=1 and "
                "one number in parameters.alpha"
            )


@dataclass
class CredenceSettings(SlotSettings):
    """The same for an experiment on Credence."""

    def check(self, where: str) -> None:
        """Raise ForetailError when the policy is missing that the experiment is about."""
        super().check(where)
        if "credence" not in self.policies:
            raise ForetailError(f"policies lacks credence, which {self.experiment} is about: add it")


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


def slot_experiment(
    settings: type[SlotSettings], show: Callable[[pd.DataFrame, SlotSettings], Shown], *, optimum: bool
) -> PointExperiment[SlotSettings, SlotCase]:
    """The experiment that shows these points in its own way; `optimum`: the exact offline optimum is computed too."""
    return PointExperiment(
        settings=settings,
        kind="slots",
        cases=cases_of,
        name=lambda case: case.name,
        measure=partial(counts_of, optimum=optimum),
        rows=row_of,
        show=show,
        code=("sim_bridge",),
        varied=("workloads", "ports", "buffer_per_port", "flip_probabilities", "seeds", "policies"),
        depends_on=lambda case, settings: {
            "workload": asdict(WORKLOADS[case.workload]()),
            "policies": sorted(policy_identity(policy) for policy in settings.policies),
            "optimum": optimum,
        },
        tracks_points=True,
    )


def cases_of(settings: SlotSettings) -> Iterator[SlotCase]:
    """The cases, each once: where nothing is random, the first seed stands for all."""
    for policy in settings.policies:
        native_policy(policy)  # what does not compile is said before anything has run
    for workload in settings.workloads:
        for ports in settings.ports:
            for per_port in settings.buffer_per_port:
                for probability in settings.flip_probabilities:
                    random = probability not in (0.0, 1.0) or not issubclass(WORKLOADS[workload], LowerBound)
                    for seed in settings.seeds if random else settings.seeds[:1]:
                        case = SlotCase(workload, ports, per_port * ports, settings.slots, seed, probability)
                        WORKLOADS[workload]().batches(case.ports, case.buffer, case.slots, case.seed)
                        yield case


def counts_of(case: SlotCase, so_far: SoFar, settings: SlotSettings, *, optimum: bool) -> dict[str, Any]:
    """Count the packets of a sequence that every policy sends."""

    def reported(batches: Iterator[Slotted]) -> Iterator[Slotted]:
        for batch in batches:
            so_far("")
            yield batch

    workload = WORKLOADS[case.workload]()
    compared = compare(
        reported(workload.batches(case.ports, case.buffer, case.slots, case.seed)),
        case.ports,
        case.buffer,
        sorted(settings.policies),
        flipped(case.flip_probability, FLIP_SEED + case.seed),
        rules=manifest.Rules(**asdict(settings.rules)),
        parameters=settings.parameters,
        optimum=optimum,
        threads=1,
    )
    return {
        "arrivals": compared.arrivals,
        "transmitted": compared.transmitted,
        "followlqd_without_predicted": compared.followlqd,
        "optimum": compared.optimum,
        "confusion": {name: getattr(compared.whole, name) for name in ("tp", "fp", "tn", "fn")},
    }


def row_of(case: SlotCase, counts: Mapping[str, Any], settings: SlotSettings) -> dict[str, Any]:
    """The counts of a case, and the ratios that follow from them; NaN where one has no value."""
    sent: Mapping[str, int] = counts["transmitted"]
    lqd, reduced, optimum = sent["lqd"], counts["followlqd_without_predicted"], counts["optimum"]
    eta = _quotient(lqd, reduced)
    closed_form = Confusion(**counts["confusion"]).closed_form_eta(case.ports)
    row: dict[str, Any] = {
        "buffer_per_port": case.buffer // case.ports,
        "arrivals": counts["arrivals"],
        "followlqd_without_predicted": reduced,
        **counts["confusion"],
        "eta": eta,
        "closed_form_eta": math.inf if closed_form is None else closed_form,
        **{f"{SENT}{policy}": count for policy, count in sent.items()},
        **{f"lqd_over_{policy}": _quotient(lqd, count) for policy, count in sent.items() if policy != "lqd"},
    }
    if optimum is not None:
        row["optimum"] = optimum
        row |= {f"opt_over_{policy}": _quotient(optimum, count) for policy, count in sent.items()}
    return row


def policies_of(points: pd.DataFrame, prefix: str) -> list[str]:
    """The policies that have a column with this prefix, in the order of the config schema, those from outside last."""
    run = [name.removeprefix(SENT) for name in map(str, points.columns) if name.startswith(SENT)]
    guests = [policy for policy in run if policy not in OF_ARRIVALS]
    return [policy for policy in (*OF_ARRIVALS, *guests) if f"{prefix}{policy}" in points]


def over_seeds(points: pd.DataFrame, by: str | list[str], column: str) -> dict[Any, PairedDifference]:
    """Mean and 95 % interval of a column over the seeds, by the values of other columns."""
    return {group: mean_interval(values.dropna().tolist()) for group, values in points.groupby(by)[column]}


def _quotient(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan


@dataclass(frozen=True)
class Known:
    """Known bound of a policy: the words, the value for a point, and whether that bounds OPT / ALG from above."""

    words: str
    value: Callable[[Mapping[str, Any]], float]
    is_upper_bound: bool = True


KNOWN: dict[str, Known] = {
    "cs": Known("N + 1", lambda row: row["ports"] + 1),
    "dt": Known("O(N)", lambda row: row["ports"], is_upper_bound=False),
    "harmonic": Known("ln N + 2", lambda row: math.log(row["ports"]) + 2),
    "lqd": Known(f"{LQD_RATIO}", lambda row: LQD_RATIO),
    "followlqd": Known("at least (N + 1) / 2", lambda row: (row["ports"] + 1) / 2, is_upper_bound=False),
    "credence": Known(f"min({LQD_RATIO} eta, N)", lambda row: min(LQD_RATIO * row["eta"], row["ports"])),
    "guarded": Known("N", lambda row: row["ports"]),
}
"""Competitive ratios as Credence (NSDI'24) gathers them in its Table 1, and its Observation 1 for FollowLQD; that of
Guarded Credence is proven in docs/reports/theory.md.
"""


def show_competitive(points: pd.DataFrame, settings: SlotSettings) -> Shown:
    """The worst cases of every policy."""
    return Shown(points, competitive_tables(points), verdict=competitive_verdict(points))


COMPETITIVE_RATIO = slot_experiment(SlotSettings, show_competitive, optimum=True)


def competitive_verdict(points: pd.DataFrame) -> list[str]:
    """The policy whose worst case is best."""
    worst = {policy: float(points[f"opt_over_{policy}"].max()) for policy in policies_of(points, "opt_over_")}
    least = min(worst, key=lambda policy: worst[policy])
    return [f"The largest ratio of the optimum to a policy is least for {policy_words(least)}: {worst[least]:.4g}."]


def competitive_tables(points: pd.DataFrame) -> list[Table]:
    """The worst case of every policy beside what is known, and the largest ratios by workload."""
    policies = policies_of(points, "opt_over_")
    worst: list[dict[str, Cell]] = []
    for policy in policies:
        ratios = points[f"opt_over_{policy}"]
        row: dict[str, Any] = plain(points.iloc[int(ratios.argmax())].to_dict())
        known = KNOWN.get(policy)
        share = exceeded = None
        if known is not None and known.is_upper_bound:
            shares = ratios / points.apply(known.value, axis=1)
            share, exceeded = float(shares.max()), int((shares > 1 + 1e-12).sum())
        worst.append(
            {
                "policy": policy,
                "max OPT/ALG": float(ratios.max()),
                "workload": row["workload"],
                "N": int(row["ports"]),
                "B/N": int(row["buffer_per_port"]),
                "known ratio": None if known is None else known.words,
                "at this N": None if known is None else float(known.value(row)),
                "max share": share,
                "exceeded": exceeded,
            }
        )
    note = "max share: largest OPT/ALG over the known ratio, where that is an upper bound; exceeded: in so many points"
    most = points.groupby("workload", sort=False)[[f"opt_over_{policy}" for policy in policies]].max()
    titles = {"workload": "workload", **{f"opt_over_{policy}": policy for policy in policies}}
    return [
        Table.of_rows("Worst cases: the offline optimum over the policy", worst, note),
        Table.of_frame("Largest OPT/ALG by workload", most.reset_index(), titles),
    ]


FLIPS_CAPTION = (
    "How many times as much LQD sends as each policy, by the share of inverted predictions; 1 is as much as LQD. "
    "Points are means over seeds; bands are 95 % t intervals."
)


def show_flips(points: pd.DataFrame, settings: SlotSettings) -> Shown:
    """LQD over every policy."""
    return Shown(
        points, flips_tables(points), {"": Drawn(draw_flips(points), FLIPS_CAPTION)}, verdict=flips_verdict(points)
    )


FIGURE_14 = slot_experiment(CredenceSettings, show_flips, optimum=False)


def flips_verdict(points: pd.DataFrame) -> list[str]:
    """LQD over Credence with the fewest and the most inversions."""
    means = points.groupby("flip_probability")["lqd_over_credence"].mean()
    ends = [f"{means[share]:.4g} when {100 * share:g} % are inverted" for share in (means.index[0], means.index[-1])]
    return [f"LQD's throughput over that of Credence, whose predictions are right, is {' and '.join(ends)}."]


def flips_tables(points: pd.DataFrame) -> list[Table]:
    """Means over seeds by flip probability, a table per switch."""
    policies = policies_of(points, "lqd_over_")
    made = []
    for (workload, ports, buffer), group in points.groupby(SWITCH):
        columns = ["flip probability"]
        cells: dict[float, list[Cell]] = {p: [float(p)] for p in sorted(group["flip_probability"].unique())}
        for policy in policies:
            columns += [f"LQD/{policy}", "+-"]
            for p, interval in over_seeds(group, "flip_probability", f"lqd_over_{policy}").items():
                cells[p] += [
                    interval.mean,
                    None if interval.high is None else interval.high - float(interval.mean or 0),
                ]
        seeds = group["seed"].nunique()
        title = f"Throughput of LQD over that of others: {workload}, N = {ports}, B = {buffer}"
        note = f"means over {seeds} seeds with the half-width of their 95 % t interval"
        made.append(Table(title, tuple(columns), tuple(tuple(row) for row in cells.values()), (note,)))
    return made


def draw_flips(points: pd.DataFrame) -> Figure:
    """LQD over every policy by flip probability, a panel per switch."""
    rows = [
        {"switch": f"{workload}, N = {ports}, B = {buffer:,}", "policy": policy_words(policy), "flips": share}
        | {name: getattr(interval, name) for name in ("mean", "low", "high")}
        for policy in policies_of(points, "lqd_over_")
        for (workload, ports, buffer, share), interval in over_seeds(
            points, [*SWITCH, "flip_probability"], f"lqd_over_{policy}"
        ).items()
    ]
    x, y = "probability that a prediction is inverted", "throughput of LQD / that of the policy"
    return draw_lines(pd.DataFrame(rows), "switch", "policy", "flips", band=("low", "high"), xlabel=x, ylabel=y)
