"""Nona: jobs placed by a queueing model of the link that they share, beside what its thesis prints.

The cluster has 80 servers and a link of 10 Gbit/s, as there. It does not print the rate of a server (here 10^12
operations per second), nor the rates of jobs (here as many of every kind), and its graph of GPT2 comes from a profile
that is not public in it; the job of its Figure 2.1 at an eighth of its bytes stands in, which too gains from two
servers. Background jobs are left out. Factors over an overloaded link grow with the length of the run.
"""

from __future__ import annotations

import numpy as np

from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.circuits.demand import placed_demand, with_other_rates
from foretail.sim_bridge.circuits.schedules import vermilion
from foretail.sim_bridge.circuits.throughput import single_hop
from foretail.sim_bridge.inference_jobs import (
    ARCHITECTURES,
    Cluster,
    DrawnPlacements,
    FairShare,
    JobClass,
    JobGraph,
    JobTimes,
    Model,
    RandomServers,
    Scheduler,
    apart,
    run_jobs,
    together,
)
from foretail_studies.systems.system import System, change_percent, published

OPERATIONS_PER_S = 1e12
CLUSTER = Cluster(80, OPERATIONS_PER_S, 10e9)
LOADS = (0.1, 0.3, 0.5, 0.7)
"""Of the servers."""
USUAL_LOAD = 0.5
JOBS = {"small": 400, "medium": 20_000}
RIVALS = {
    "random": "Random",
    "apart": "Opportunistic",
    "fair": "Spark",
    "fair_spreads": "Spark that spreads",
    "nona_usual": "Nona for 50 % load",
    "together": "one server a job",
}
_LINK = "completion time of the {} placement, link, %"
RACKS, UPLINKS = 16, 4


def branches(share: float) -> JobGraph:
    """The job of Figure 2.1, with a share of its bytes; what its long tasks send on is a number each."""
    ms = OPERATIONS_PER_S / 1000
    sizes = {(0, 1): share * 200e6, (0, 2): share * 20e6, (1, 3): 8.0, (2, 3): 8.0}
    return JobGraph((ms, 10 * ms, 10 * ms, ms), sizes)


def _model(load: float) -> Model:
    graphs = [architecture().contracted() for architecture in ARCHITECTURES.values()]
    graphs.append(branches(1 / 8))
    operations = sum(sum(graph.operations) for graph in graphs)
    rate = load * CLUSTER.servers * OPERATIONS_PER_S / operations
    return Model(CLUSTER, tuple(JobClass(graph, rate) for graph in graphs))


def _figure() -> dict[str, float]:
    """The share of the link in the completion time of the two placements of Figure 2.1, at 80 Gbit/s."""
    model = Model(Cluster(2, OPERATIONS_PER_S, 80e9), (JobClass(branches(1.0), 1e-9),))
    measured = {}
    for name, placement in (("first", (0, 1, 0, 0)), ("second", (0, 0, 1, 0))):
        (choice,) = model.choices
        chances = np.array([float(other == placement) for other in choice.placements])
        ms = 1000 * float(model.completion_s([chances])[0])
        measured[_LINK.format(name)] = 100 * (ms - 12) / ms
    return measured


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    measured = _figure()
    for name, architecture in ARCHITECTURES.items():
        graph = architecture()
        measured[f"tasks of {name}"] = len(graph.operations)
        measured[f"tasks of {name}, contracted"] = len(graph.contracted().operations)
    jobs = JOBS[size]
    usual = _model(USUAL_LOAD).optimum()
    factors: dict[str, list[float]] = {}
    for load in LOADS:
        model = _model(load)
        schedulers: dict[str, Scheduler] = {
            "nona": DrawnPlacements(model.choices, model.optimum()),
            "nona_usual": DrawnPlacements(model.choices, usual),
            "together": DrawnPlacements(model.choices, together(model.choices)),
            "apart": DrawnPlacements(model.choices, apart(model.choices)),
            "random": RandomServers(),
            "fair": FairShare(),
            "fair_spreads": FairShare(spreads=True),
        }
        times: dict[str, JobTimes] = {}
        for name, scheduler in schedulers.items():
            so_far(f"{name}, {100 * load:g} %")
            times[name] = run_jobs(CLUSTER, model.classes, scheduler, jobs, seed)
            for statistic, of in (("mean", np.mean), ("p99", lambda values: np.percentile(values, 99))):
                ours, theirs = (float(of(times[who].completion_s)) for who in ("nona", name))
                factors.setdefault(f"{name} {statistic}", []).append(theirs / ours)
        half = run_jobs(CLUSTER, model.classes, schedulers["random"], jobs // 2, seed)
        factors.setdefault("longer", []).append(times["random"].completion_s.mean() / half.completion_s.mean())
    for rival in RIVALS:
        for statistic in ("mean", "p99"):
            measured[_factor(statistic, rival)] = max(factors[f"{rival} {statistic}"])
    measured["mean completion time, Spark over Nona, least over loads"] = min(factors["fair mean"])
    measured["mean completion time of Random, of a run twice as long over this, 50 % load"] = factors["longer"][2]
    return measured | _scheduled(seed)


def _scheduled(seed: int) -> dict[str, float]:
    """What Vermilion loses by rates of jobs that are wrong by up to 40 %."""
    model = _model(USUAL_LOAD)
    homes = np.random.default_rng(seed).dirichlet(np.ones(RACKS), len(model.classes))
    probabilities = apart(model.choices)
    demand, predicted = (
        placed_demand(Model(CLUSTER, classes), probabilities, homes, CLUSTER.link_bps).scaled_to(UPLINKS)
        for classes in (model.classes, with_other_rates(model.classes, 0.4, seed))
    )
    right, wrong = (single_hop(demand, vermilion(of, UPLINKS, 3, seed=seed).capacity) for of in (demand, predicted))
    return {
        "throughput of Vermilion on the racks": right,
        "throughput of Vermilion for rates wrong by up to 40 %, change in %": change_percent(wrong, right),
    }


_TASKS = {
    "tasks of AlexNet": 23,
    "tasks of AlexNet, contracted": 1,
    "tasks of VGG16": 41,
    "tasks of VGG16, contracted": 1,
    "tasks of ResNet18": 71,
    "tasks of ResNet18, contracted": 10,
    "tasks of DenseNet121": 429,
    "tasks of DenseNet121, contracted": 4,
}


def _factors(statistic: str, **by_rival: float) -> dict[str, float]:
    return {_factor(statistic, rival): value for rival, value in by_rival.items()}


def _factor(statistic: str, rival: str) -> str:
    return f"{statistic} completion time, {RIVALS[rival]} over Nona, most over loads"


NONA = System(
    "Nona",
    "Pit-Claudel's thesis",
    (
        *published("Table 2.2", _TASKS),
        *published("section 2.2.1", {_LINK.format("first"): 60, _LINK.format("second"): 15}),
        *published("section 2.5.2", _factors("mean", random=202, apart=180, fair=56, fair_spreads=56)),
        *published("section 2.1", _factors("p99", random=119, apart=21, fair=77, fair_spreads=77)),
        *published("section 2.5.4, a bound", {_factor("mean", "nona_usual"): 1.15}),
    ),
    _measure,
    {"small": (1, 2), "medium": (1, 2, 3)},
)
