"""A rule that is chosen for traffic from the zoo, judged on other runs of workloads that trained no rule.

``zoo`` searches a rule on each of many drawn workloads and keeps those that together send most. ``chosen`` draws other
workloads: a rule is chosen on one run, the calibration run, and judged on others.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.core.settings import setting, share_setting
from foretail.export.c.target import C
from foretail.export.p4.target import P4, REPORT
from foretail.export.target import export
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold, search_threshold, starting_rule
from foretail.pipelines.comparison.choosing import ACCEPT, SEARCHED, Candidate, choose, library, measured
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import workload_of
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.benchmark.frozen_tracks import open_loop_scores
from foretail_studies.families import Families
from foretail_studies.predictors.loop import swapped
from foretail_studies.predictors.promise import BUFFER_PER_PORT, PORTS, drawn_traffic, drawn_workloads

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

CODE = (__name__,)
"""The code behind a measurement: this module, with all that it imports."""
PROOF = ("method", "votes_by", "order", "boxes", "ir_sha256")
"""Parts of the proof of an export that a rule's certificate keeps."""
BAD = -0.2
"""Percent below the better of tuned DT and always accepting at which a workload counts as bad."""


@dataclass(frozen=True)
class DrawnWorkload:
    """A workload of the slotted model and its switch."""

    workload: str  #: its name, which says all of it
    kind: str  #: name of the kind of workload
    settings: str  #: of it, in YAML
    ports: int
    buffer: int  #: packets
    slots: int
    draw: int  #: seed by which it was drawn

    def arrivals(self, seed: int) -> Slotted:
        """Return the packets of one seed."""
        workload = workload_of(self.kind, yaml.safe_load(self.settings))
        return Slotted.joined(workload.batches(self.ports, self.buffer, self.slots, seed))

    def run(self, seed: int) -> KnownRun:
        """Return the run of one seed."""
        return KnownRun.in_slots([self.arrivals(seed)], self.ports, self.buffer, condition=self.workload)


def drawn(count: int, draw: int, slots: int) -> list[DrawnWorkload]:
    """Return workloads of a draw, as ``promise`` draws them."""
    workloads = []
    for name, overrides in drawn_workloads(count, draw, slots).items():
        given = dict(one.removeprefix("slotted.").split("=", 1) for one in overrides)
        ports = int(given["ports"])
        buffer = ports * int(given["buffer_per_port"])
        workloads.append(
            DrawnWorkload(name, given["workload"], given["settings"], ports, buffer, int(given["slots"]), draw)
        )
    return workloads


# -- the zoo -----------------------------------------------------------------------------------------------------------


ZOO_DRAW = 1
"""Seed by which the workloads of the zoo were drawn."""


@dataclass
class ZooSettings(PointSettings, Families):
    """Rules that are searched on drawn workloads, and the choice of those that are kept.

    Those that are kept are scored on the held-out families of the benchmark.
    """

    workloads: int = setting(48, "Drawn workloads, on each of which a rule is searched.", at_least=1)
    draw: int = setting(ZOO_DRAW, "Seed by which they are drawn.", at_least=0)
    slots: int = setting(20_000, "Slots of a workload; rare bursts last up to ten times as long.", at_least=1000)
    seeds: list[int] = setting([1, 2], "Seeds of the runs on which a rule is searched.")
    judging: list[int] = setting([3], "Seeds of the runs on which rules are compared, to keep some of them.")
    trials: int = setting(200, "Rules that a search tries.", at_least=24)
    rules: int = setting(16, "Rules that are kept.", at_least=1)
    scoring: list[int] = setting(MISSING, "Seeds of the runs that score the rules that are kept.", at_least=1)
    certificates: bool = setting(True, "Export every kept rule as C and P4, proven, for its certificate.")


def _search(case: DrawnWorkload, so_far: SoFar, settings: ZooSettings) -> dict[str, Any]:
    runs = [case.run(seed) for seed in settings.seeds]
    thresholds = [Candidate(f"{alpha:g}", "threshold", "dt", alpha=alpha) for alpha in ALPHAS]
    logs = measured(runs, thresholds)
    best = logs.best(range(len(thresholds)))
    start = starting_rule(runs, "learned", ALPHAS[best], seed=1)
    one = search_threshold(runs, start, policy="learned", trials=settings.trials, seed=1)
    return {
        "numbers": list(one.rule.numbers),
        "centres": list(one.rule.centres),
        "alpha": ALPHAS[best],
        "dt": float(logs.values[:, best].mean()),
        "sent": one.worth,
    }


def _zoo_rows(case: DrawnWorkload, searched: Mapping[str, Any], settings: ZooSettings) -> dict[str, Any]:
    return {
        "numbers": json.dumps(searched["numbers"]),
        "centres": json.dumps(searched["centres"]),
        "alpha": searched["alpha"],
        "gain_percent": 100 * (searched["sent"] - searched["dt"]),
    }


def _thresholds() -> list[Candidate]:
    """Dynamic Thresholds in octaves of pressure with every alpha, as rules."""
    rules = {f"threshold_{alpha:g}": AdaptiveThreshold.dynamic_thresholds(alpha, (1.0, 1.0)) for alpha in ALPHAS}
    return [Candidate(name, "rule", "learned", rule) for name, rule in rules.items()]


def greedy(values: NDArray[np.float64], count: int) -> list[int]:
    """Return columns of float64[workloads, rules], in turn the one that raises the mean of the best most."""
    best, order = np.full(len(values), -np.inf), []
    for _ in range(min(count, values.shape[1])):
        means = [
            np.maximum(best, values[:, place]).mean() if place not in order else -np.inf
            for place in range(values.shape[1])
        ]
        order.append(int(np.argmax(means)))
        best = np.maximum(best, values[:, order[-1]])
    return order


def _show_zoo(rows: pd.DataFrame, settings: ZooSettings) -> Shown:
    """Keep rules, and write them as the file of the zoo."""
    workloads = [DrawnWorkload(*row) for row in rows[list(DrawnWorkload.__dataclass_fields__)].itertuples(index=False)]
    searched = [
        AdaptiveThreshold(tuple(json.loads(numbers)), tuple(json.loads(centres)))
        for numbers, centres in zip(rows["numbers"], rows["centres"], strict=True)
    ]
    kinds: dict[str, int] = {}
    candidates, trained_on = _thresholds(), {}
    for one, rule in zip(workloads, searched, strict=True):
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
        name = f"{one.kind}_{kinds[one.kind]}"
        candidates.append(Candidate(name, "rule", "learned", rule))
        trained_on[name] = {
            "workload": one.kind,
            "settings": yaml.safe_load(one.settings),
            "ports": one.ports,
            "buffer": one.buffer,
            "slots": one.slots,
            "seeds": settings.seeds,
            "trials": settings.trials,
        }
    beside = [Candidate(f"dt {alpha:g}", "threshold", "dt", alpha=alpha) for alpha in ALPHAS]
    logs = measured(
        [one.run(seed) for one in workloads for seed in settings.judging], [*candidates, *beside], settings.jobs
    )
    of_workloads = logs.values.reshape(len(workloads), len(settings.judging), -1).mean(axis=1)
    order = greedy(of_workloads[:, : len(candidates)], settings.rules)
    alphas = of_workloads[:, len(candidates) :].mean(axis=0)
    alpha = ALPHAS[int(np.argmax(alphas))]
    means = [
        100 * float(of_workloads[:, order[: size + 1]].max(axis=1).mean() - alphas.max()) for size in range(len(order))
    ]
    best = {one.name: one.rule for one in (candidates[place] for place in order) if one.rule is not None}
    scores = open_loop_scores(settings, settings.scoring, [rule.scorer() for rule in best.values()])
    entries = [
        {
            "name": name,
            "numbers": rule.numbers,
            "centres": rule.centres,
            "trained_on": trained_on.get(name, {}),
            "score_percent": round(score, 2),
            "certificate": certificate(rule) if settings.certificates else {},
        }
        for (name, rule), score in zip(best.items(), scores, strict=True)
    ]
    sizes = pd.DataFrame(
        {"rules": range(1, len(order) + 1), "adds": [candidates[p].name for p in order], "gain_percent": means}
    )
    table = Table.of_frame(
        "What each rule adds",
        sizes,
        {"rules": "rules", "adds": "the last one", "gain_percent": f"best of them over DT, alpha {alpha:g}, %"},
        f"means over {len(workloads)} training workloads, in hindsight, on runs that searched no rule",
    )
    document = {"version": 1, "tuned_alpha": alpha, "rules": entries}
    return Shown(rows, [table], details={"zoo": document}, verdict=[f"{len(order)} rules, of {len(candidates)}."])


def certificate(rule: AdaptiveThreshold) -> dict[str, Any]:
    """Export a rule as C and as P4, each proven equal to its trees, and return what that took."""
    trees = rule.ensemble()
    with TemporaryDirectory() as folder:
        in_c = export(trees, C(), Path(folder) / "c").certificate
        in_p4 = export(trees, P4(), Path(folder) / "p4").certificate
        plan = json.loads((Path(folder) / "p4" / REPORT).read_text())["chosen"]
    return {
        "ensemble_sha256": trees.sha256,
        "leaves": sum(len(tree.leaves) for tree in trees.trees),
        "c": {name: getattr(in_c, name) for name in PROOF},
        "p4": {name: getattr(in_p4, name) for name in PROOF},
        "p4_rows": plan["rows"],
        "p4_tcam_bits": plan["tcam_bits"],
        "p4_stages": plan["stages"],
    }


ZOO: PointExperiment[ZooSettings, DrawnWorkload] = PointExperiment(
    settings=ZooSettings,
    kind="zoo",
    cases=lambda settings: drawn(settings.workloads, settings.draw, settings.slots),
    name=lambda case: case.workload,
    measure=_search,
    rows=_zoo_rows,
    show=_show_zoo,
    code=CODE,
    varied=("workloads", "draw", "slots", "judging", "rules", "shared", "families", "scoring", "certificates"),
)


# -- what a choice is worth --------------------------------------------------------------------------------------------


@dataclass
class ChosenSettings(PointSettings):
    """Ways to choose a rule on one run of a workload, judged on other runs."""

    draws: list[int] = setting([3, 4, 5], "Seeds by which the workloads are drawn; none of them trained a rule.")
    each: int = setting(24, "Workloads of a draw.", at_least=1)
    slots: int = setting(20_000, "Slots of a workload; rare bursts last up to ten times as long.", at_least=1000)
    calibration: int = setting(10, "Seed of the run on which a rule is chosen.")
    seeds: list[int] = setting([11, 12, 13], "Seeds of the runs on which it is judged.")
    windows: int = setting(10, "Windows of the calibration run.", at_least=1)
    trials: int = setting(200, "Rules that a search on the calibration run tries.", at_least=24)
    sizes: list[int] = setting([8], "Sizes of smaller libraries: the first rules of the zoo.")


SHOWN = {
    "sent": "sent, % of LQD",
    "gain": "over tuned DT, %",
    "share": "of DT's distance to LQD, %",
    "bad": f"workloads below {BAD} %",
    "worst": "worst, %",
}
"""Columns of :func:`summarised`, and their titles."""
DT, HINDSIGHT = "tuned DT", "best rule in hindsight"
ZOO_WAY, SEARCH_WAY = "rules of the zoo", "zoo and search"


def _judge(case: DrawnWorkload, so_far: SoFar, settings: ChosenSettings) -> list[dict[str, Any]]:
    judged = [case.run(seed) for seed in settings.seeds]
    sample = case.arrivals(settings.calibration)
    choice = choose(sample, case.ports, case.buffer, windows=settings.windows, trials=settings.trials)
    logs, rules = choice.logs, library()
    thresholds = [Candidate(f"DT, alpha {alpha:g}", "threshold", "dt", alpha=alpha) for alpha in ALPHAS]
    others = [Candidate(ACCEPT, "threshold", "followlqd"), Candidate(SEARCHED, "searched", "learned", choice.rule)]
    on_judged = measured(judged, [*rules, *thresholds, *others])
    of_zoo, of_dt = on_judged.places(kind="rule"), on_judged.places(policy="dt")
    tuned = f"DT, alpha {zoo.tuned_alpha():g}"
    ways = {
        ZOO_WAY: choice.of_zoo,
        **{f"first {size} rules": rules[logs.best(range(size))].name for size in settings.sizes},
        "alphas of DT": choice.dt.name,
        SEARCH_WAY: SEARCHED,
        HINDSIGHT: rules[on_judged.best(of_zoo)].name,
        "best alpha in hindsight": on_judged.candidates[on_judged.best(of_dt)].name,
        DT: tuned,
        ACCEPT: ACCEPT,
    }
    values = {
        way: (choice.name if rule == SEARCHED else rule, on_judged.values[:, on_judged.places(rule)[0]])
        for way, rule in ways.items()
    }
    lqd = [run.lqd for run in judged]
    return [
        {
            "seed": seed,
            "way": way,
            "rule": rule,
            "windows": choice.windows,
            "search_gain_percent": choice.search.gain_percent.mean if choice.search else None,
            "search_low_percent": choice.search.gain_percent.low if choice.search else None,
            "sent": round(math.exp(log) * of_lqd),
            "sent_by_lqd": of_lqd,
            "sent_by_dt": round(math.exp(values[DT][1][place]) * of_lqd),
            "sent_by_accept": round(math.exp(values[ACCEPT][1][place]) * of_lqd),
        }
        for way, (rule, logs) in values.items()
        for place, (seed, log, of_lqd) in enumerate(zip(settings.seeds, logs, lqd, strict=True))
    ]


def _show(rows: pd.DataFrame, settings: ChosenSettings) -> Shown:
    """A table of all ways over all draws and over the last one, which no setting was chosen on."""
    last = settings.draws[-1]
    summary = pd.concat(
        [summarised(rows).assign(draws="all"), summarised(rows[rows["draw"] == last]).assign(draws=f"{last}")]
    )
    columns = {"draws": "draws", "way": "chosen among", **SHOWN}
    note = (
        f"Means over workloads with 95 % intervals; bad and worst are against the better of {DT} and always accepting."
    )
    table = Table.of_frame("A rule that is chosen for the traffic", summary, columns, note)
    verdict = [
        f"{row['way']}, chosen on another run: {row['gain']} % more packets sent than {DT}; {row['bad']} workloads are "
        f"more than {-BAD} % below the better of {DT} and always accepting, at worst {row['worst']:+.2f} %."
        for row in summary.to_dict("records")
        if row["way"] in (ZOO_WAY, SEARCH_WAY) and row["draws"] == "all"
    ]
    return Shown(rows, [table], verdict=verdict)


def _logs(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean logarithms of what is sent over LQD's: a row for each workload, a column for each way."""
    logs = rows.assign(log=np.log(rows["sent"] / rows["sent_by_lqd"]))
    return logs.pivot_table(index="workload", columns="way", values="log", sort=False)


def summarised(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each way: sent, gain over tuned DT, share of its distance, bad workloads, the worst."""
    logs = _logs(rows)
    least = logs[[DT, ACCEPT]].max(axis=1)
    records = []
    for way in logs.columns:
        gain, against = 100 * (logs[way] - logs[DT]), 100 * (logs[way] - least)
        records.append(
            {
                "way": way,
                "workloads": len(logs),
                "sent": 100 * math.exp(logs[way].mean()),
                "gain": interval_text(mean_interval(gain.tolist())),
                "share": -gain.mean() / logs[DT].mean(),
                "bad": int((against < BAD).sum()),
                "worst": against.min(),
            }
        )
    return pd.DataFrame(records)


def on_zoo(case: object, settings: object) -> dict[str, Any]:
    """Return what a measurement takes from the file of the zoo: the numbers of its rules, and the tuned alpha."""
    return {"zoo": zoo.numbers(()), "alpha": zoo.tuned_alpha()}


CHOSEN: PointExperiment[ChosenSettings, DrawnWorkload] = PointExperiment(
    settings=ChosenSettings,
    kind="chosen",
    cases=lambda settings: [one for draw in settings.draws for one in drawn(settings.each, draw, settings.slots)],
    name=lambda case: case.workload,
    measure=_judge,
    show=_show,
    code=CODE,
    varied=("draws", "each", "slots"),
    depends_on=on_zoo,
)


# -- traffic that changes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrafficSequence:
    """Workloads that take turns on one switch."""

    sequence: str  #: its name
    draw: int  #: seed by which the switch and the workloads were drawn
    number: int  #: of the sequence in its draw
    phase_slots: int  #: slots of a turn


@dataclass
class ChangingSettings(PointSettings):
    """Rules that are chosen again and again while the traffic changes."""

    draws: list[int] = setting([3, 4, 5], "Seeds by which switches and workloads are drawn.")
    each: int = setting(8, "Sequences of a draw.", at_least=1)
    workloads: int = setting(4, "Workloads of a sequence, which take turns.", at_least=2)
    phase_slots: list[int] = setting([2000, 10_000, 50_000], "Slots of a turn.", at_least=100)
    slots: int = setting(100_000, "Slots of a sequence, about.", at_least=1000)
    every: int = setting(1000, "Slots after which a rule is chosen again.", at_least=100)
    memory: list[int] = setting([1, 4, 16], "Windows of so many slots on which it is chosen; all windows as well.")
    workloads_of_index: int = setting(
        48, "Drawn workloads, which trained the zoo, that say which rule suits which regime.", at_least=3
    )
    slots_of_index: int = setting(10_000, "Slots of such a workload; rare bursts last up to ten times as long.")
    lost: list[float] = share_setting([0.0], "Shares of packets whose records are lost.")
    late_windows: list[int] = setting([0], "Windows by which the records of a window come late.", at_least=0)
    swaps: int = setting(0, "Swaps of each sequence that are carried out in the tables of a P4 switch.", at_least=0)
    switch: str | None = setting(None, "HOST:PORT of that switch; null means one in memory.")


SEED_OF_INDEX = 101
FIXED, BY_PHASE, ALL_WINDOWS = "best fixed rule", "best rule of each turn", "all windows so far"


def sequence_arrivals(case: TrafficSequence, settings: ChangingSettings) -> tuple[list[Slotted], int, int]:
    """Return the packets of each turn, in slots of its own, with ports and buffer of the switch.

    Workloads are drawn as :func:`~foretail_studies.predictors.promise.drawn_workloads` does, on one switch.
    """
    drawing = np.random.default_rng([case.draw, case.number])
    ports, per_port = int(drawing.choice(PORTS)), int(drawing.choice(BUFFER_PER_PORT))
    workloads = [workload_of(*drawn_traffic(drawing, number % 3, ports)) for number in range(settings.workloads)]
    turns = []
    for turn in range(max(settings.workloads, settings.slots // case.phase_slots)):
        workload = workloads[turn % len(workloads)]
        parts = list(workload.batches(ports, ports * per_port, case.phase_slots, seed=1000 * case.number + turn))
        slot = np.concatenate([part.slot for part in parts] or [np.empty(0, np.int64)])
        port = np.concatenate([part.port for part in parts] or [np.empty(0, np.int32)])
        inside = slot < case.phase_slots
        turns.append(Slotted(slot[inside], port[inside]))
    return turns, ports, ports * per_port


def regime(arrivals: Slotted, ports: int, buffer: int, slots: int) -> list[float]:
    """Return eight numbers of a window: loads, the queues that an unlimited buffer would have, and the switch.

    These are the load of the switch and of its busiest port; the longest queue, the largest and the mean of their sum,
    in buffers; the share of time that a queue is not empty; the ports, and the packets of the buffer for each of them.
    """
    counts = np.zeros((ports, slots), np.int64)
    np.add.at(counts, (arrivals.port, arrivals.slot), 1)
    drift = np.cumsum(counts - 1, axis=1)
    queues = drift - np.minimum(np.minimum.accumulate(drift, axis=1), 0)
    total = queues.sum(axis=0)
    loads = [counts.mean(), counts.mean(axis=1).max()]
    lengths = [queues.max() / buffer, total.max() / buffer, total.mean() / buffer, (queues > 0).mean()]
    return [float(value) for value in (*loads, *lengths, ports, buffer / ports)]


@cache
def index_of_regimes(workloads: int, slots: int, every: int) -> ExtraTreesRegressor:
    """Return trees that say for a regime how much each rule of the zoo sends, against the mean of all rules.

    They learn on windows of workloads that trained the zoo, each with what the rules send on the whole run.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    regimes, worths = [], []
    for one in drawn(workloads, ZOO_DRAW, slots):
        arrivals = one.arrivals(SEED_OF_INDEX)
        (worth,) = measured([KnownRun.in_slots([arrivals], one.ports, one.buffer)], library()).values
        for first in range(0, one.slots - every + 1, every):
            low, high = np.searchsorted(arrivals.slot, [first, first + every])
            piece = Slotted(arrivals.slot[low:high] - first, arrivals.port[low:high])
            regimes.append(regime(piece, one.ports, one.buffer, every))
            worths.append(worth - worth.mean())
    trees = ExtraTreesRegressor(n_estimators=100, min_samples_leaf=5, random_state=1)
    return trees.fit(np.array(regimes), np.array(worths))


def _follow(case: TrafficSequence, so_far: SoFar, settings: ChangingSettings) -> list[dict[str, Any]]:
    turns, ports, buffer = sequence_arrivals(case, settings)
    slot = np.concatenate([one.slot + place * case.phase_slots for place, one in enumerate(turns)])
    port = np.concatenate([one.port for one in turns])
    run = KnownRun.in_slots([Slotted(slot, port)], ports, buffer)
    rules = library()
    scorers = [one.rule.scorer() for one in rules if one.rule is not None]

    def pieces(length: int, received: NDArray[np.bool_]) -> list[Slotted]:
        times, to = slot[received], port[received]
        rows = np.searchsorted(times, np.arange(0, len(turns) * case.phase_slots + 1, length))
        return [Slotted(times[low:high] - n * length, to[low:high]) for n, (low, high) in enumerate(pairwise(rows))]

    def sent_on(parts: Sequence[Slotted]) -> NDArray[np.float64]:
        """Packets that each rule sends on pieces of the sequence, each from an empty buffer: logarithms over LQD's."""
        return measured([KnownRun.in_slots([one], ports, buffer) for one in parts], rules).values

    def in_turns(choices: Sequence[int], length: int) -> int:
        starts = np.searchsorted(slot, np.arange(len(choices)) * length).tolist()
        return run.sent_in_turns("learned", [scorers[choice] for choice in choices], [[0, *starts[1:]]])

    drawing = np.random.default_rng([case.draw, case.number])
    index = index_of_regimes(settings.workloads_of_index, settings.slots_of_index, settings.every)
    sent = {FIXED: max(run.sent("learned", scorer) for scorer in scorers)}
    whole = sent_on(pieces(case.phase_slots, np.ones(len(slot), np.bool_)))
    sent[BY_PHASE] = in_turns(whole.argmax(axis=1).tolist(), case.phase_slots)
    costs: dict[str, float] = {}
    for lost in settings.lost:
        parts = pieces(settings.every, drawing.random(len(slot)) >= lost)
        started = time.process_time()
        windows = sent_on(parts)
        seconds = (time.process_time() - started) / len(windows)
        if "evidence_slots" not in costs:
            workload = np.arange(len(windows)) * settings.every // case.phase_slots % settings.workloads
            costs["evidence_slots"] = settings.every * _windows_needed(windows, workload)
        regimes = [regime(one, ports, buffer, settings.every) for one in parts]
        for name, values in (("", windows), ("index, ", index.predict(regimes))):
            summed = np.concatenate([np.zeros((1, len(rules))), np.cumsum(values, axis=0)])[:-1]  # before each window
            for late, windows_back in product(settings.late_windows, (*settings.memory, len(values))):
                come = np.maximum(np.arange(len(values)) - late, 0)
                choices = (summed[come] - summed[np.maximum(come - windows_back, 0)]).argmax(axis=1).tolist()
                words = name + (ALL_WINDOWS if windows_back == len(values) else f"last {windows_back} windows")
                words += f", {100 * lost:g} % lost" * (lost > 0) + f", {late} late" * (late > 0)
                sent[words] = in_turns(choices, settings.every)
                if settings.swaps and "swap_ms" not in costs:
                    changes = [rule for place, rule in enumerate(choices) if place == 0 or rule != choices[place - 1]]
                    names = [rules[rule].name for rule in changes[: settings.swaps + 1]]
                    costs |= {"records": len(slot) / len(windows), "replays_ms": 1000 * seconds}
                    costs |= {"changes": (len(changes) - 1) / len(windows), **swapped(names, run, settings.switch)}
    sent[DT], sent[ACCEPT] = run.sent("dt", None, alpha=[zoo.tuned_alpha()]), run.sent("followlqd")
    of_all = {"sent_by_lqd": run.lqd, "sent_by_dt": sent[DT], "sent_by_accept": sent[ACCEPT], **costs}
    return [{"way": way, "sent": count, **of_all} for way, count in sent.items()]


COSTS = {
    "records": "records of a window",
    "replays_ms": "replays of a window, ms of CPU",
    "changes": "changes for each window",
    "rows": "entries written in a swap",
    "entry_bytes": "their bytes",
    "swap_cpu_ms": "swap, ms of CPU",
    "swap_ms": "swap, ms",
}
"""Columns of a loop around a switch, and their titles."""


def _windows_needed(windows: NDArray[np.float64], workload: NDArray[np.int64]) -> float:
    """Return the windows of a workload after which its best rule is two standard errors above the second: the median.

    It bounds from below how long a choice by these windows takes, because it knows which two rules to compare.
    """
    needed = []
    for one in np.unique(workload):
        own = windows[workload == one]
        second, best = np.argsort(own.mean(axis=0))[-2:]
        difference = own[:, best] - own[:, second]
        needed.append((2 * difference.std() / difference.mean()) ** 2 if difference.mean() > 0 else 0.0)
    return float(np.median(needed))


def _show_changing(rows: pd.DataFrame, settings: ChangingSettings) -> Shown:
    parts = [
        summarised(some.rename(columns={"sequence": "workload"})).assign(phase=int(str(phase)))
        for phase, some in rows.groupby("phase_slots")
    ]
    summary = pd.concat(parts)
    columns = {"phase": "slots of a turn", "way": "rule", **SHOWN}
    note = f"{len(rows) // rows['way'].nunique()} sequences; a rule is chosen every {settings.every:,} slots."
    verdict = []
    for part in parts:
        phase = part["phase"].iloc[0]
        slots = rows.loc[rows["phase_slots"] == phase, "evidence_slots"].median()
        verdict.append(
            f"With turns of {phase:,} slots it takes {slots:,.0f} slots, in the median, until windows tell the best "
            "rule of a workload from the second best."
        )
    tables = [Table.of_frame("Traffic that changes", summary, columns, note)]
    if "swap_ms" in rows:
        mean = rows.drop_duplicates("sequence")[[*COSTS]].mean()
        costs = tuple((title, float(mean[name])) for name, title in COSTS.items())
        tables.append(Table("A choice", ("cost", "mean of sequences"), costs))
    return Shown(rows, tables, verdict=verdict)


CHANGING: PointExperiment[ChangingSettings, TrafficSequence] = PointExperiment(
    settings=ChangingSettings,
    kind="changing",
    cases=lambda settings: [
        TrafficSequence(f"{draw}.{number}, turns of {phase}", draw, number, phase)
        for draw in settings.draws
        for number in range(settings.each)
        for phase in settings.phase_slots
    ],
    name=lambda case: case.sequence,
    measure=_follow,
    show=_show_changing,
    code=CODE,
    varied=("draws", "each", "phase_slots"),
    depends_on=on_zoo,
)
