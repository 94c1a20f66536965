"""Cells in which a prediction can win anything, by what policies without one leave of LQD's packets.

A cell is a workload on a switch, and differs from a base cell in one parameter; or arrivals that were recorded. A
threshold has one alpha for all cells, or one for the cell, each chosen on training seeds. A predictor is learned for
every cell. Packets of cells in which they have several sizes are counted in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.core.settings import require_seeds, seed_setting, setting
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.features.records import FlowClass, Records
from foretail.models.drop.thresholds.adaptive_threshold import mean_log_sent, search_threshold, starting_rule
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval, paired_difference
from foretail.pipelines.data.collecting import made_runs
from foretail.pipelines.data.simulation import driver_config, simulator_of
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.arrivals.files import PACKET_BYTES, Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOAD_KINDS, Workload, workload_of
from foretail.sim_bridge.open_loop.baselines import ALPHAS, Baseline
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, labelled_records, slotted_run
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import compare_replays, replay_of
from foretail.sim_bridge.open_loop.slotted import compare
from foretail_studies.families import require_apart

LARGEST_BYTES = 1500
"""Size of the larger packets where packets have two sizes."""
CELL_BYTES = 256
"""Size of a cell of the features."""


@dataclass(frozen=True)
class InSlots:
    """Packets of one size, in slots."""

    workload: Workload
    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    slots: int  #: with arrivals, of a run

    def batches(self, seed: int) -> Iterator[Slotted]:
        """The arrivals of a seed."""
        return self.workload.batches(self.ports, self.buffer, self.slots, seed)

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.in_slots(self.batches(seed), self.ports, self.buffer, cell_bytes=CELL_BYTES)

    def depends_on(self) -> dict[str, Any]:
        """Everything that the arrivals depend on beside their seed."""
        numbers = asdict(self)
        numbers["workload"] = [WORKLOAD_KINDS.name(self.workload), numbers["workload"]]
        return {**numbers, "plugin": source_sha256(type(self.workload))}

    def sent_with_perfect_predictions(self, seed: int) -> int:
        """Return the packets that Credence sends with perfect predictions."""
        return compare(self.batches(seed), self.ports, self.buffer, ["credence"], threads=1).sent


@dataclass(frozen=True)
class TwoSizes(InSlots):
    """The same packets, but each has the least or the largest size, at random; their mean is that of one size."""

    least_bytes: int  #: of a packet

    def __post_init__(self) -> None:
        """Raise ForetailError on a size that leaves no such mean."""
        if not 20 <= self.least_bytes < PACKET_BYTES:
            raise ForetailError(f"least_bytes is {self.least_bytes}: give 20 to {PACKET_BYTES - 1}, the mean less one")

    def described(self, seed: int) -> Run:
        """The switch, whose buffer and ports hold and send as many packets of the mean size as in slots."""
        run = slotted_run(self.workload, self.ports, self.buffer // self.ports, self.slots, seed, cell_bytes=CELL_BYTES)
        return replace(run, scenario={**run.scenario, "packet_bytes": [self.least_bytes, LARGEST_BYTES]})

    def records(self, seed: int) -> list[Records]:
        """The arrivals of a seed, in bytes."""
        draw = np.random.default_rng(seed)
        share = (PACKET_BYTES - self.least_bytes) / (LARGEST_BYTES - self.least_bytes)
        parts = list(arrivals_in_bytes(self.batches(seed)))
        for part in parts:
            part["size_bytes"] = np.where(draw.random(len(part)) < share, LARGEST_BYTES, self.least_bytes)
        return parts

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.in_bytes(self.described(seed), self.records(seed))

    def sent_with_perfect_predictions(self, seed: int) -> int:
        """Return the bytes that Credence sends with perfect predictions."""
        run = self.described(seed)
        replay = replay_of("credence", run)
        for records in labelled_records(run, self.records(seed)):
            replay.feed(records, records["lqd_drop"].astype(np.uint8))
        return int(replay.finish()["transmitted_bytes"])


@dataclass(frozen=True)
class Recorded:
    """Arrivals at all leaves of a network whose senders reacted to LQD; here nobody reacts."""

    config: CollectConfig  #: how they are recorded, unless the store has them

    def dataset(self, seed: int) -> Dataset:
        """The recorded arrivals of a seed."""
        (made,) = made_runs(replace(self.config, seeds=[seed], jobs=1))
        return Dataset.open(made.path)

    def run(self, seed: int) -> KnownRun:
        """The arrivals of a seed."""
        return KnownRun.of(self.dataset(seed))

    def depends_on(self) -> dict[str, Any]:
        """Everything that the arrivals depend on beside their seed."""
        ((_, policy),) = self.config.policy.items()
        return simulator_of(self.config).depends_on(driver_config(self.config.scenario, policy, 1, trace=True))

    def sent_with_perfect_predictions(self, seed: int) -> int:
        """Return the bytes of data that Credence sends with perfect predictions."""
        dataset = self.dataset(seed)
        drops = [batch["lqd_drop"][batch["flow_class"] != FlowClass.CONTROL] for batch in dataset.arrivals()]
        return compare_replays(dataset, (), np.concatenate(drops).astype(np.bool_), threads=1).sent


Traffic = InSlots | Recorded
"""Arrivals of a cell, and its switch."""
POLICY = "learned"
"""Which asks a learned predictor about every packet."""
SEED = 1
"""Seed of the search."""


@dataclass(frozen=True)
class Learning:
    """On what predictors learn, and how long."""

    train_seeds: Sequence[int]
    trials: int  #: adaptive thresholds that are tried


Sent = Callable[[int], int]
"""Packets or bytes that a predictor sends on a seed."""
Predictor = Callable[[Traffic, Learning], Sent]
"""Learns on a cell."""


def perfect_predictions(traffic: Traffic, learning: Learning) -> Sent:
    """Credence that is told which packets LQD drops."""
    return traffic.sent_with_perfect_predictions


def learned(traffic: Traffic, learning: Learning) -> Sent:
    """The adaptive threshold to which a search leads from the best alpha."""
    runs = [traffic.run(seed) for seed in learning.train_seeds]
    alpha = max(ALPHAS, key=lambda one: mean_log_sent(runs, "dt", None, alpha=[one]))
    start = starting_rule(runs, POLICY, alpha, SEED)
    scorer = search_threshold(runs, start, policy=POLICY, trials=learning.trials, seed=SEED).rule.scorer()
    return lambda seed: traffic.run(seed).sent(POLICY, scorer)


PREDICTORS: dict[str, Predictor] = {"told": perfect_predictions, "predictor": learned}
"""Predictors that are measured on each cell beside policies without one, by name."""


LEFT = {
    "dt_fixed": "DT, one alpha",
    "dt_tuned": "DT, own alpha",
    "predictor": "predictor",
    "abm_tuned": "ABM, own alpha",
    "harmonic": "Harmonic",
    "cs": "CS",
}
"""Columns of the summary, and the policies behind them."""
TRANSFER, GAP, PAYS, NOTHING = "alpha", "gap", "pays", "nothing"


@dataclass(frozen=True)
class Bounds:
    """From where on something is said of a cell, in % of LQD's packets."""

    least_transfer: float = 0.5  #: what one alpha leaves beyond the cell's own
    least_left: float = 0.5  #: what the cell's own alpha leaves
    least_won: float = 0.5  #: what a predictor sends beyond the cell's own alpha
    most_lost: float = 0.1  #: what always accepting leaves


def summary_of(rows: pd.DataFrame, predictors: Iterable[str]) -> pd.DataFrame:
    """A row for each cell: what each policy leaves, in % of LQD's packets, with its interval over seeds."""
    records = []
    for cell, some in rows.groupby("cell", sort=False):
        by_name = some.groupby(_names(some))
        left = {name: dict(zip(own["seed"], 100 * own["left"], strict=True)) for name, own in by_name}
        tuned = some[some["chosen"] == "tuned"].drop_duplicates("policy").set_index("policy")["setting"]
        row = {"cell": cell, **{name: some[name].iloc[0] for name in ("base", "axis", "value")}}
        row |= {f"{policy}_setting": tuned[policy] for policy in tuned.index}
        learned = some[some["policy"] == "predictor"]["setting"]
        row["predictor_setting"] = learned.iloc[0]
        for name in dict.fromkeys((*LEFT, "abm_fixed", "best_tuned", *predictors)):
            row |= mean_interval(list(left[name].values())).columns(name)
        row |= paired_difference(left["dt_fixed"], left["dt_tuned"]).columns("transfer")
        row |= paired_difference(left["dt_tuned"], left["predictor"]).columns("won")
        records.append(row)
    return pd.DataFrame(records)


def _names(rows: pd.DataFrame) -> pd.Series:
    return rows["policy"] + rows["chosen"].map(lambda chosen: f"_{chosen}" if chosen else "")


def regimes(summary: pd.DataFrame, bounds: Bounds) -> pd.DataFrame:
    """The summary with what is said of each cell: by whole intervals, so nothing where there is none."""
    verdicts = {
        TRANSFER: summary["transfer_low"] >= bounds.least_transfer,
        GAP: summary["dt_tuned_low"] >= bounds.least_left,
        PAYS: summary["won_low"] >= bounds.least_won,
        NOTHING: summary["cs_high"] <= bounds.most_lost,
    }
    words = [", ".join(name for name, holds in verdicts.items() if holds[place]) for place in summary.index]
    return summary.assign(**verdicts, best_gap=summary["best_tuned_low"] >= bounds.least_left, regime=words)


def tables_of(summary: pd.DataFrame, rows: pd.DataFrame, predictors: Iterable[str]) -> list[Table]:
    """Return the tables of what is left by cell, and of the intervals that matter for the verdict."""
    left = summary.assign(alpha=summary["dt_setting"].str.removeprefix("alpha ").astype(float))
    numbers = list(dict.fromkeys((*LEFT, *predictors)))
    left[numbers] = left[numbers].round(2)
    titles = {"cell": "cell", "dt_fixed": "DT, one", "dt_tuned": "own", "alpha": "own alpha"}
    titles |= {"predictor": "predictor", "abm_tuned": "ABM, own", "harmonic": "Harm.", "cs": "CS"}
    titles |= {name: name for name in predictors}
    fixed = rows[rows["chosen"] == "fixed"].drop_duplicates("policy")
    one = "; ".join(
        f"{str(policy).upper()} {alpha}" for policy, alpha in zip(fixed["policy"], fixed["setting"], strict=True)
    )
    note = (
        f"One alpha for all cells: {one}; told: Credence told what LQD drops. Means over {rows['seed'].nunique()} test "
        "seeds"
    )
    intervals = [
        {
            "cell": row["cell"],
            "one alpha - own": _text(row, "transfer"),
            "DT, own alpha": _text(row, "dt_tuned"),
            "best policy": _text(row, "best_tuned"),
            "predictor wins": _text(row, "won"),
            "closes, %": _closed(row),
            "by": row["predictor_setting"],
            "where": row["regime"],
        }
        for _, row in summary.iterrows()
    ]
    meaning = (
        f"{TRANSFER}: one alpha for all cells does not transfer; {GAP}: the cell's own alpha leaves a gap; {PAYS}: "
        f"a predictor that was learned for the cell wins; {NOTHING}: nothing is lost by always accepting; best policy: "
        "of DT, ABM, Harmonic and CS on the cell's training seeds; predictor wins: over the cell's own alpha; closes: "
        "share of what that leaves"
    )
    return [
        Table.of_frame("Left of LQD's packets, %", left, titles, note),
        Table.of_rows("The same with 95 % intervals", intervals, meaning),
    ]


def _text(row: pd.Series, name: str) -> str:
    mean, high = float(row[name]), row[f"{name}_high"]
    return f"{mean:.2f}" if pd.isna(high) else f"{mean:.2f} \u00b1{high - mean:.2f}"


def _closed(row: pd.Series) -> str:
    """Return the percentage that the predictor closes of what the cell's own alpha leaves; - if that may be 0."""
    if pd.isna(row["dt_tuned_low"]) or row["dt_tuned_low"] <= 0:
        return "-"
    return interval_text(closed(row), "")


def closed(row: pd.Series) -> PairedDifference:
    """Return what the predictor wins in % of the mean that the cell's own alpha leaves."""
    mean, low, high = (100 * row[name] / row["dt_tuned"] for name in ("won", "won_low", "won_high"))
    return PairedDifference(mean, low, high, 0)


def verdict(summary: pd.DataFrame, bounds: Bounds) -> list[str]:
    """In how many cells there is something to win, and in how many a predictor wins it."""
    gaps, pays = int(summary[GAP].sum()), int(summary[PAYS].sum())
    return [
        f"The cell's own alpha leaves at least {bounds.least_left:g} % of LQD's packets in {gaps} of {len(summary)} "
        f"cells; a predictor that was learned for the cell wins at least {bounds.least_won:g} % over it in {pays}."
    ]


THRESHOLDS = ("dt", "abm")
WITHOUT_ALPHA = ("harmonic", "cs")
TRAIN, TEST = "train", "test"
RECORDED = "recorded"
"""The base of cells of recorded arrivals."""


@dataclass
class PredictionMapSettings(PointSettings):
    """Share of LQD's packets that thresholds leave, cell by cell: every cell is a point."""

    bases: dict[str, dict[str, Any]] = setting(
        MISSING,
        "Base cells by name, each as {workload: NAME, ports: N, buffer_per_port: B, PARAMETER: VALUE}.",
    )
    axes: dict[str, dict[str, Any]] = setting(
        MISSING,
        "Values of parameters that a cell has in place of those of its base cell, one parameter at a time; with "
        "least_bytes packets have two sizes, this one and 1,500 bytes.",
    )
    recorded: dict[str, list[str]] = setting(
        {}, "Overrides of foretail collect that record the arrivals of further cells, by the cell's name."
    )
    slots: int = setting(MISSING, "Least number of slots with arrivals of a run.", at_least=1, at_most=2**40)
    bursts: int = setting(
        MISSING, "Least mean number of bursts, or of on-times, of a run, which may need more slots.", at_least=0
    )
    train_seeds: list[int] = seed_setting(MISSING, "Seeds on which alphas are chosen.")
    test_seeds: list[int] = seed_setting(MISSING, "Seeds on which policies are judged.")
    alphas: list[float] = setting(
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0], "Alphas of DT and ABM.", above=0
    )
    trials: int = setting(
        400, "Number of adaptive thresholds that are tried for each cell, about.", at_least=1, at_most=10**7
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on seeds that tune and judge, and on cells that no switch or workload has."""
        super().check(where)
        for role in ("train_seeds", "test_seeds"):
            require_seeds(role, getattr(self, role))
        require_apart(train_seeds=self.train_seeds, test_seeds=self.test_seeds)
        if not self.bases:
            raise ForetailError("bases is empty: name at least one cell")
        for name, given in self.bases.items():
            missing = [one for one in ("workload", "ports", "buffer_per_port") if one not in given]
            if missing:
                raise ForetailError(f"bases.{name} has no {missing[0]}: add {missing[0]}: VALUE")
        for name in self.axes:
            if name not in self.bases:
                raise ForetailError(f"axes has {name}, which is not among {', '.join(self.bases)}")
        if RECORDED in self.bases:
            raise ForetailError(f"bases.{RECORDED} has the name of cells of recorded arrivals: choose another")
        for cell in cells_of(self):
            if isinstance(traffic := traffic_of(cell, self), InSlots):
                traffic.batches(self.train_seeds[0])

    @property
    def learning(self) -> Learning:
        """Seeds on which predictors learn, and their trials."""
        return Learning(self.train_seeds, self.trials)


@dataclass(frozen=True)
class Cell:
    """A base cell, one that differs from it in a parameter, or one of recorded arrivals."""

    base: str  #: name of the base cell, or ``recorded``
    axis: str = ""  #: name of the parameter, or of the recorded arrivals; empty for the base cell
    value: float | None = None  #: of the parameter

    @property
    def name(self) -> str:
        """For progress and tables."""
        if not self.axis:
            return self.base
        return f"{self.base} {self.axis}" if self.value is None else f"{self.base} {self.axis}={self.value:g}"


def cells_of(settings: PredictionMapSettings) -> Iterator[Cell]:
    """Each base cell, those that differ from it, and those of recorded arrivals."""
    for base, given in settings.bases.items():
        yield Cell(base)
        usual = asdict(_in_slots(settings.bases[base], settings).workload) | given
        for axis, values in settings.axes.get(base, {}).items():
            yield from (Cell(base, axis, value) for value in values if value != usual.get(axis))
    yield from (Cell(RECORDED, name) for name in settings.recorded)


def traffic_of(cell: Cell, settings: PredictionMapSettings) -> Traffic:
    """The arrivals of a cell."""
    if cell.base == RECORDED:
        where = f"recorded.{cell.axis}"
        config = compose_settings(CollectConfig, settings.recorded[cell.axis], where)
        if config.source != "scenario":
            raise ForetailError(f"{where} has source={config.source}: record a scenario")
        return Recorded(replace(config, store_dir=settings.store_dir))
    varied = {} if cell.value is None else {cell.axis: cell.value}
    return _in_slots(settings.bases[cell.base] | varied, settings)


def _in_slots(given: Mapping[str, Any], settings: PredictionMapSettings) -> InSlots:
    """Arrivals in as many slots as their bursts need."""
    given = dict(given)
    ports, per_port = given.pop("ports"), given.pop("buffer_per_port")
    least_bytes = given.pop("least_bytes", None)
    workload = workload_of(given.pop("workload"), given)
    buffer = ports * per_port
    fields = asdict(workload)
    packets = fields.get("mean_on_slots") or max(1.0, fields.get("burst_fraction", 0) * buffer)  # of a burst
    needed = math.ceil(settings.bursts * packets / (fields["load"] * ports)) if "load" in fields else 0
    slots = max(settings.slots, needed)
    if least_bytes is None:
        return InSlots(workload, ports, buffer, slots)
    return TwoSizes(workload, ports, buffer, slots, least_bytes)


def candidates_of(settings: PredictionMapSettings) -> list[Baseline]:
    """All policies without a predictor, with all alphas."""
    every = [Baseline(policy, alpha) for policy in THRESHOLDS for alpha in sorted(settings.alphas)]
    return [*every, *(Baseline(policy) for policy in WITHOUT_ALPHA)]


def measured(case: Cell, so_far: SoFar, settings: PredictionMapSettings) -> dict[str, Any]:
    """Return the packets that LQD, each candidate and each predictor send, by seed."""
    traffic = traffic_of(case, settings)

    def sent(seed: int) -> list[int]:
        so_far(f"seed {seed}")
        run = traffic.run(seed)
        return [run.lqd, *(_sent(run, one) for one in candidates_of(settings))]

    seeds = {TRAIN: settings.train_seeds, TEST: settings.test_seeds}
    counts: dict[str, Any] = {role: [sent(seed) for seed in own] for role, own in seeds.items()}
    for name, predictor in PREDICTORS.items():
        so_far(name)
        sent_on = predictor(traffic, settings.learning)
        counts[name] = [sent_on(seed) for seed in settings.test_seeds]
    return counts


def _sent(run: KnownRun, one: Baseline) -> int:
    return run.sent(one.policy) if one.alpha is None else run.sent(one.policy, alpha=[one.alpha])


def rows_of(case: Cell, counts: Mapping[str, Any], settings: PredictionMapSettings) -> Iterator[dict[str, Any]]:
    """A row for each seed and candidate, and for each test seed and predictor."""
    candidates = candidates_of(settings)
    for role, seeds in ((TRAIN, settings.train_seeds), (TEST, settings.test_seeds)):
        for place, (seed, (lqd, *sent)) in enumerate(zip(seeds, counts[role], strict=True)):
            every = [(one.policy, one.alpha, count) for one, count in zip(candidates, sent, strict=True)]
            if role == TEST:
                every += [(name, None, counts[name][place]) for name in PREDICTORS]
            accept = next(count for policy, _, count in every if policy == "cs")
            for policy, alpha, count in every:
                yield {
                    "cell": case.name,
                    "role": role,
                    "seed": seed,
                    "policy": policy,
                    "alpha": alpha,
                    "sent": count,
                    "sent_by_lqd": lqd,
                    "sent_by_accept": accept,
                    "left": 1 - count / lqd,
                }


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of test seeds of what is compared: each threshold with one alpha and with the cell's own, and the rest.

    Column `chosen` says on whose training seeds: all cells' (``fixed``), the cell's (``tuned``) or nobody's. Policy
    ``best`` is that of all candidates which sends most on the cell's training seeds.
    """
    test = rows[rows["role"] == TEST]
    train = rows[rows["role"] == TRAIN].assign(log=lambda some: np.log(some["sent"] / some["sent_by_lqd"]))
    parts = [test[~test["policy"].isin(THRESHOLDS)].assign(chosen="")]
    means = train[train["policy"].isin(THRESHOLDS)].groupby(["policy", "alpha"])["log"].mean()
    fixed = {policy: means[policy].idxmax() for policy in THRESHOLDS}
    is_fixed = test["alpha"] == test["policy"].map(fixed)
    parts.append(test[is_fixed].assign(chosen="fixed"))
    by_cell = train.assign(alpha=train["alpha"].fillna(-1.0)).groupby(["cell", "policy", "alpha"], sort=False)["log"]
    for (cell, policy, alpha), _ in _largest(by_cell.mean(), ["cell", "policy"]):
        if policy in THRESHOLDS:
            own = (test["cell"] == cell) & (test["policy"] == policy) & (test["alpha"] == alpha)
            parts.append(test[own].assign(chosen="tuned"))
    for (cell, policy, alpha), _ in _largest(by_cell.mean(), ["cell"]):
        own = (test["cell"] == cell) & (test["policy"] == policy)
        own &= test["alpha"].isna() if alpha < 0 else test["alpha"] == alpha
        named = str(Baseline(policy, None if alpha < 0 else alpha))
        parts.append(test[own].assign(chosen="tuned", policy="best", setting=named))
    every = pd.concat(parts)
    alphas = every["alpha"].map(lambda alpha: "" if pd.isna(alpha) else f"alpha {alpha:g}")
    every["setting"] = every["setting"].fillna(alphas)
    order = {cell: place for place, cell in enumerate(dict.fromkeys(rows["cell"]))}
    every = every.sort_values("cell", key=lambda cells: cells.map(order), kind="stable")
    return every.drop(columns=["role", "alpha"]).reset_index(drop=True)


def _largest(means: pd.Series, by: Sequence[str]) -> Iterator[tuple[tuple[str, str, float], float]]:
    """The first of the largest values of each group, with its place."""
    for _, some in means.groupby(level=list(by), sort=False):
        place: Any = some.idxmax()
        yield place, float(some[place])


def show(rows: pd.DataFrame, settings: PredictionMapSettings) -> Shown:
    """Show what each policy leaves of each cell, and where there is something to win."""
    compared = chosen(rows)
    summary = regimes(summary_of(compared, PREDICTORS), Bounds())
    return Shown(
        compared,
        tables_of(summary, compared, PREDICTORS),
        frames={f"{settings.experiment}.csv": summary},
        verdict=verdict(summary, Bounds()),
    )


PREDICTION_MAP = PointExperiment(
    settings=PredictionMapSettings,
    kind="prediction_map",
    cases=cells_of,
    name=lambda case: case.name,
    measure=measured,
    rows=rows_of,
    show=show,
    code=(
        "sim_bridge.arrivals.workloads",
        "sim_bridge.open_loop",
        "models.drop",
        "pipelines.training.sending",
    ),
    varied=("bases", "axes", "recorded", "slots", "bursts"),
    depends_on=lambda case, settings: {
        **traffic_of(case, settings).depends_on(),
        "predictors": list(PREDICTORS),
    },
)
