"""Packets that Credence sends when predictions are right, and when they are wrong.

A point is one sequence of arrivals with one predictor: perfect predictions, a model, or none, where other rules run.
Consistency is what is sent when nobody inverts predictions, robustness the least that is sent when somebody may.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.scenario import FeatureArithmetic
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.core.settings import part, seed_setting, setting, share_setting
from foretail.features.catalog import FEATURES, feature
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY, asking_policy, scorer_of
from foretail.models.mlflow.registry import NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.scoring.operating_point import at_probability, threshold_probability
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.experiment.declaration import PointExperiment, Shown, axes
from foretail.pipelines.exporting.network import check_inputs
from foretail.pipelines.runs.notes import say_if_unasked
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import load_model
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, SLOT_NS, Slotted, slots_shift
from foretail.sim_bridge.arrivals.workloads import LowerBound, Workload, workload_of
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, labelled_records, slotted_run
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.scores import SENT
from foretail.sim_bridge.open_loop.slotted import Labelled, Predicted, Predictions, flipped, labelled, perfect
from foretail.sim_bridge.policy_settings import SlotParameters
from foretail_studies.slots.policies import FLIP_SEED, LQD_RATIO

LINE_COLUMNS = ["predictor", "policy", "alpha", "threshold", "flip_probability"]
"""Columns that distinguish one way to decide from another; NaN where a column does not apply."""
TABLE_RULES = {
    "lqd": "LQD",
    "dt": "DT, best alpha",
    "followlqd": "FollowLQD",
    "cs": "CS",
    "always accept": "always accept",
}
"""Beside the predictors, and their titles."""
_ROUNDING = 1e-12


def judged(rows: pd.DataFrame, proofs: Collection[str]) -> pd.DataFrame:
    """The rows with what LQD and the optimum send of the same arrivals, and whether these are those of a proof."""
    place = ["workload", "seed"]
    for name in ("lqd", "optimum"):
        sent = rows[rows["policy"] == name].set_index(place)["sent"].rename(name)
        rows = rows.join(sent, on=place)
        rows[f"percent_of_{name}"] = 100 * rows["sent"] / rows[name]
    numbers = dict.fromkeys(("asked", "predicted_drops", "alpha", "threshold", "flip_probability"), "float64")
    return rows.assign(proof=rows["workload"].isin(list(proofs))).astype(numbers)


def curves_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds with 95 % intervals; of DT the best alpha of every workload is marked."""
    made: list[dict[str, Any]] = []
    for values, group in rows.groupby(["workload", "proof", *LINE_COLUMNS], sort=False, dropna=False):
        row = dict(zip(["workload", "proof", *LINE_COLUMNS], values, strict=True))
        for name in ("lqd", "optimum"):
            percents = group[f"percent_of_{name}"].tolist()
            row |= mean_interval(percents).columns(f"of_{name}")
            row[f"least_of_{name}"] = min(percents)
        made.append(row | {name: group[name].mean() for name in ("arrivals", "sent", "asked", "predicted_drops")})
    curves = pd.DataFrame(made)
    of_dt = curves[curves["policy"] == "dt"]
    best = of_dt.groupby("workload")["sent"].idxmax()
    return curves.assign(shown=(curves["policy"] != "dt") | curves.index.isin(best))


def is_rule(curves: pd.DataFrame, policy: str) -> pd.Series:
    """Return a mask of the rows of a rule without predictions, as it is shown."""
    return (curves["policy"] == policy) & curves["shown"]


def at_own_threshold(curves: pd.DataFrame, predictor: str, flip: float | None = None) -> pd.DataFrame:
    """Credence with a predictor at its own threshold: at every flip, or at one."""
    own_threshold = curves[(curves["predictor"] == predictor) & curves["threshold"].isna()]
    return own_threshold if flip is None else own_threshold[own_threshold["flip_probability"] == flip]


def predictors_of(curves: pd.DataFrame) -> list[str]:
    """Perfect predictions and the models, in the order of the settings."""
    return [name for name in dict.fromkeys(curves["predictor"]) if name != "rules"]


def summary_of(curves: pd.DataFrame) -> pd.DataFrame:
    """Consistency and robustness of every rule, and of every predictor at every threshold, in % of the optimum.

    Consistency is the mean over the workloads that are no proof, with predictions as they are. Robustness is the least
    of any workload and seed, with predictions as they are, and with all inverted.
    """
    ways: list[tuple[str, str, float | None, pd.DataFrame]] = [
        ("rules", title, None, curves[is_rule(curves, policy)])
        for policy, title in {**TABLE_RULES, "always drop": "always drop"}.items()
    ]
    for alpha in sorted(float(value) for value in curves["alpha"].dropna().unique()):
        ways.append(("dt", f"DT, alpha {alpha:g}", None, curves[curves["alpha"] == alpha]))
    for predictor in predictors_of(curves):
        mine = curves[(curves["predictor"] == predictor) & curves["flip_probability"].isin([0, 1])]
        ways.append((predictor, predictor, None, mine[mine["threshold"].isna()]))
        for threshold in sorted(float(value) for value in mine["threshold"].dropna().unique()):
            ways.append((predictor, f"{predictor} > {threshold:g}", threshold, mine[mine["threshold"] == threshold]))
    made = []
    for predictor, way, limit, group in ways:
        inverted = group["flip_probability"] == 1
        right = group[~inverted & ~group["proof"]]
        row = {"predictor": predictor, "way": way, "threshold": limit}
        row |= {"consistency": right["of_optimum"].mean(), "consistency_of_lqd": right["of_lqd"].mean()}
        for name, told_so in (("robustness", group[~inverted]), ("inverted", group[inverted])):
            least = told_so["least_of_optimum"].to_numpy()
            worst = None if not len(least) else told_so.iloc[int(least.argmin())]
            row[name] = None if worst is None else worst["least_of_optimum"]
            row[f"{name}_with"] = None if worst is None else worst["workload"]
        made.append(row)
    return pd.DataFrame(made)


def violations(rows: pd.DataFrame, ports: int) -> dict[str, int]:
    """How many points send less than the guarantees that are drawn: OPT / 1.707 and OPT / N."""
    credence = rows["policy"].isin(["credence", "always accept", "always drop"])
    exact = (rows["predictor"] == "perfect") & (rows["flip_probability"] == 0)
    few = rows["sent"] * (1 + _ROUNDING)
    return {
        "below_lqd_ratio": int((((rows["policy"] == "lqd") | exact) & (few * LQD_RATIO < rows["optimum"])).sum()),
        "below_ports": int(((credence | (rows["policy"] == "cs")) & (few * ports < rows["optimum"])).sum()),
    }


def _by_workload(curves: pd.DataFrame) -> Table:
    """Table of the packets of every workload that each policy sends."""
    rows = []
    for workload, group in curves.groupby("workload", sort=False):
        rules = {name: group[is_rule(group, name)].iloc[0] for name in (*TABLE_RULES, "optimum")}
        others = {title: rules[name] for name, title in TABLE_RULES.items() if name != "lqd"}
        others |= {name: at_own_threshold(group, name, 0.0).iloc[0] for name in predictors_of(curves)}
        rows.append(
            {
                "workload": str(workload),
                "arrivals": int(rules["lqd"]["arrivals"]),
                "LQD sends": int(rules["lqd"]["sent"]),
                "% of OPT": float(rules["lqd"]["of_optimum"]),
                "OPT": float(rules["optimum"]["of_lqd"]),
                "alpha": float(rules["dt"]["alpha"]),
                **{title: _text(row, "lqd") for title, row in others.items()},
            }
        )
    note = "Means over seeds; OPT, the rules and the predictors are in % of LQD, alpha is that of DT"
    return Table.of_rows(f"{SENT}, with predictions as they are", rows, note)


def _by_flips(curves: pd.DataFrame) -> Table:
    flips = sorted(at_own_threshold(curves, "perfect")["flip_probability"].unique())
    return _wide(
        curves, f"{SENT}, by the share of predictions that are inverted", flips, "flip_probability", at_own_threshold
    )


def _by_threshold(curves: pd.DataFrame) -> Iterator[Table]:
    thresholds = sorted(curves["threshold"].dropna().unique())
    if not thresholds:
        return

    def at_thresholds(group: pd.DataFrame, predictor: str) -> pd.DataFrame:
        return group[(group["predictor"] == predictor) & group["threshold"].notna() & (group["flip_probability"] == 0)]

    title = f"{SENT}, by the probability from which a model drops"
    yield _wide(curves, title, thresholds, "threshold", at_thresholds)


def _wide(
    curves: pd.DataFrame, title: str, values: list[float], along: str, chosen: Callable[..., pd.DataFrame]
) -> Table:
    """A row per workload and predictor, a column per value."""
    rows: list[tuple[Cell, ...]] = []
    for workload, group in curves.groupby("workload", sort=False):
        for predictor in predictors_of(curves):
            shares = chosen(group, predictor).set_index(along)["of_lqd"]
            if len(shares):
                rows.append((str(workload), predictor, *(float(shares[value]) for value in values)))
    return Table(title, ("workload", "predictor", *(f"{value:g}" for value in values)), tuple(rows))


def _table_summary(curves: pd.DataFrame) -> Table:
    columns = {
        "way": "who decides",
        "consistency": "consistency",
        "consistency_of_lqd": "the same, % of LQD",
        "robustness": "robustness",
        "robustness_with": "on",
        "inverted": "all inverted",
        "inverted_with": "on",
    }
    note = (
        "Consistency: mean over the workloads that are no proof; robustness: the least of any workload and seed, with "
        "predictions as they are, then with all inverted"
    )
    return Table.of_frame("Consistency and robustness, % of the optimum", summary_of(curves), columns, note)


def _text(row: pd.Series, of: str) -> str:
    interval = PairedDifference.of_columns(row, f"of_{of}")
    return interval_text(interval if interval.low != interval.high else replace(interval, low=None), "", digits=4)


RULES, PERFECT = "rules", "perfect"
GUARANTEES = (
    "Line OPT / 1.707: LQD by the theorem of Antoniadis et al., and Credence with perfect predictions, which then "
    "sends what LQD sends. Line OPT / N: Credence with any predictions (Lemma 2 of its paper, no counterexample so "
    "far) and Complete Sharing",
    "Not drawn: Lemma 1, Theorem 1 and Theorem 2 of Credence, the bounds in eta, have counterexamples (findings.md); "
    "of Dynamic Thresholds and FollowLQD no factor with a constant is known",
)


@dataclass
class TradeoffSettings(PointSettings):
    """Consistency against robustness of drop predictions: every workload, seed and predictor is a point."""

    workloads: dict[str, dict[str, Any]] = setting(
        MISSING,
        "Workloads by their names in figures, each as {workload: NAME, PARAMETER: VALUE}; proofs "
        "means the worst cases.",
    )
    ports: int = setting(MISSING, "Number N of ports of the switch.", at_least=2, at_most=32_767)
    buffer_per_port: int = setting(
        MISSING, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=2**20
    )
    slots: int = setting(MISSING, "Number of slots with arrivals.", at_least=1, at_most=2**40)
    seeds: list[int] = seed_setting(MISSING, "Seeds of arrivals and flips, none on which a model trained.")
    flip_probabilities: list[float] = share_setting(
        MISSING, "Shares of predictions that are inverted; 0 and 1 have to be among them."
    )
    thresholds: list[float] = setting(
        MISSING, "Probabilities above which a model drops, beside its own threshold.", above=0, at_most=1 - 2**-53
    )
    alphas: list[float] = setting(MISSING, "Alphas of DT; the best for each workload is shown.", above=0)
    models: list[str] = setting([], "Models beside each other, each as in export.")
    features: FeatureArithmetic = part(
        FeatureArithmetic, "Arithmetic of the models' features; average_shift=null means 15, which is 32 slots."
    )

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no workload, or a flip is missing that consistency or robustness needs."""
        super().check(where)
        if not self.workloads:
            raise ForetailError("workloads is empty: name at least one")
        for name, given in self.workloads.items():
            if "workload" not in given:
                raise ForetailError(f"workloads.{name} names no workload: write {{workload: NAME}}")
        if not {0.0, 1.0} <= set(self.flip_probabilities):
            raise ForetailError("flip_probabilities lacks 0 or 1, between which all is shown: add them")
        for name in self.workloads:
            workload_of(*self.parameters(name)).batches(
                self.ports, self.ports * self.buffer_per_port, self.slots, seed=1
            )

    @cached_property
    def loaded(self) -> dict[str, Ensemble]:
        """The models by the names of their lines; ForetailError for one that cannot be asked, or has seen a seed."""
        shift = AVERAGE_SHIFT if self.features.average_shift is None else self.features.average_shift
        store, models = Store(self.store_dir), dict[str, Ensemble]()
        for given in self.models:
            model = load_model(given, self.tracking, store)
            check_inputs(model, self.features.cell_bytes, shift, "features gives")
            refuse_seen(model, given, self, store)
            models[_name_of(given, self.models)] = model
        return models

    def parameters(self, name: str) -> tuple[str, dict[str, Any]]:
        """The workload of a name, and its parameters."""
        given = dict(self.workloads[name])
        return given.pop("workload"), given


@dataclass(frozen=True)
class TradeoffCase:
    """Arrivals of one workload and seed, and who predicts: ``rules`` (nobody), ``perfect``, or the name of a model."""

    workload: str
    seed: int
    predictor: str


def show(measured: pd.DataFrame, settings: TradeoffSettings) -> Shown:
    """Curves, consistency and robustness."""
    models = settings.loaded
    rows = judged(measured, _proofs(settings))
    curves = curves_of(rows)
    below = violations(rows, settings.ports)
    told_to = rows[rows["threshold"].isna() & (rows["flip_probability"] == 0)].groupby("predictor")
    sums = {name: told_to[name].sum().astype(int).to_dict() for name in ("asked", "predicted_drops")}
    say_if_unasked(
        {
            name: (sums["asked"][name], sums["predicted_drops"][name])
            for name, model in models.items()
            if not decides_live(model)  # of the others answers are not counted
        }
    )
    return Shown(
        rows,
        [_by_workload(curves), _by_flips(curves), *_by_threshold(curves), _table_summary(curves)],
        frames={f"{settings.experiment}.csv": curves},
        notes=(
            f"Seeds {', '.join(map(str, settings.seeds))}, brackets are 95 % t intervals",
            *GUARANTEES,
            f"Points below these lines: {below['below_lqd_ratio']} and {below['below_ports']}",
            "DT has the alpha of the grid that sends most of these very seeds, which favours it; a model keeps the "
            "threshold that it came with",
        ),
        details={
            "seeds": settings.seeds,
            "models": {
                name: {"ensemble_sha256": model.sha256, "threshold_probability": threshold_probability(model)}
                for name, model in models.items()
            },
            "curves": curves.to_dict("records"),
            "summary": summary_of(curves).to_dict("records"),
            "violations": below,
        },
    )


def decides_live(model: Ensemble) -> bool:
    """Return whether a model was trained to decide while the switch runs, or its answers change what it reads."""
    return POLICY in model.origin or any(feature(item.name).state == "real" for item in model.features)


def refuse_seen(model: Ensemble, given: str, settings: TradeoffSettings, store: Store) -> None:
    """Raise ForetailError when the model trained, or got its threshold, on one of the seeds of a shown workload."""
    uri = tracking_uri(settings.tracking.uri, store.folder.parent)
    if not store_exists(uri):
        return
    try:
        origin = lineage(model.sha256, uri)
    except NoLineage:  # what the command says of the model at its end
        return
    for used in origin.datasets:
        for name in settings.workloads:
            for seed in settings.seeds:
                of_seed = f"{used.name} ".partition(f"-{seed} ")
                if used.context != "test" and of_seed[1] and of_seed[0].split(" (")[0] == settings.parameters(name)[0]:
                    raise ForetailError(
                        f"{given} learned from {used.name}, and seed {seed} is to be shown: give other seeds"
                    )


def _name_of(given: str, addresses: list[str]) -> str:
    """Return a model's name: its alias, file or folder where that is unique, else all of its address."""
    short = [_short(other) for other in addresses]
    name = _short(given)
    return name if short.count(name) == 1 and name not in (RULES, PERFECT) else given


def _short(given: str) -> str:
    path = Path(given)
    return given.rpartition("@")[2] if "@" in given else path.parent.name if path.name == "ensemble.json" else path.name


def _workload(settings: TradeoffSettings, name: str) -> Workload:
    return workload_of(*settings.parameters(name))


def _arrivals_key(settings: TradeoffSettings, name: str) -> dict[str, Any]:
    workload = _workload(settings, name)
    return {"name": settings.parameters(name)[0], **asdict(workload), "plugin": source_sha256(type(workload))}


def _proofs(settings: TradeoffSettings) -> set[str]:
    """Names of workloads that are sequences of proofs."""
    return {name for name in settings.workloads if isinstance(_workload(settings, name), LowerBound)}


def _measured(case: TradeoffCase, so_far: SoFar, settings: TradeoffSettings) -> list[dict[str, Any]]:
    """One row per policy, threshold and flip: packets sent, questions, and answers to drop."""
    models = settings.loaded
    workload, buffer = _workload(settings, case.workload), settings.ports * settings.buffer_per_port

    def batches() -> Iterator[Slotted]:
        for batch in workload.batches(settings.ports, buffer, settings.slots, case.seed):
            so_far("")
            yield batch

    if case.predictor == RULES:
        return list(_rules(_joined(batches()), settings, buffer))
    if case.predictor in models and decides_live(models[case.predictor]):
        return list(_served(models[case.predictor], _joined(batches()), settings, case.seed))
    answers: dict[float | None, Predictions]
    if case.predictor == PERFECT:
        traffic = _labelled(labelled(batches(), settings.ports, buffer))
        answers = {None: perfect}
    else:
        model = models[case.predictor]
        traffic, probability, own = _asked(model, workload, batches(), settings, case.seed)
        answers = {None: _constant(own)}
        answers |= {threshold: _constant(probability > threshold) for threshold in sorted(settings.thresholds)}
    rows = []
    for threshold, predictions in answers.items():
        for flip in sorted(settings.flip_probabilities) if threshold is None else (0.0, 1.0):
            so_far(f"{case.predictor}, flips {flip:g}")
            drops = flipped(flip, FLIP_SEED + case.seed, predictions)(traffic).drop
            rows.append(_row("credence", traffic.arrivals, settings, buffer, drops, threshold=threshold, flip=flip))
    return rows


def _rules(traffic: Slotted, settings: TradeoffSettings, buffer: int) -> Iterator[dict[str, Any]]:
    """Yield rows without a model: the optimum, LQD and drop-tail rules, and Credence with one answer to everything."""
    optimum = late_qd(settings.ports, buffer, traffic.slot, traffic.port)["transmitted"]
    yield {"policy": "optimum", "arrivals": len(traffic), "sent": optimum}
    for policy in ("lqd", "followlqd", "cs"):
        yield _row(policy, traffic, settings, buffer)
    for alpha in sorted(settings.alphas):
        yield _row("dt", traffic, settings, buffer, alpha=alpha)
    for name, answer in (("always accept", 0), ("always drop", 1)):
        answers = np.full(len(traffic), answer, np.uint8)
        yield _row("credence", traffic, settings, buffer, answers) | {"policy": name}


def _served(model: Ensemble, traffic: Slotted, settings: TradeoffSettings, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a model that decides while the switch runs, under the policy that asks it."""
    shift = settings.features.average_shift
    run = KnownRun.in_slots(
        [traffic],
        settings.ports,
        settings.ports * settings.buffer_per_port,
        cell_bytes=settings.features.cell_bytes,
        average_shift=max(slots_shift(AVERAGE_SHIFT if shift is None else shift), 0),
    )
    for threshold in (None, *sorted(settings.thresholds)):
        scorer = scorer_of(model if threshold is None else at_probability(model, threshold))
        for flip in sorted(settings.flip_probabilities) if threshold is None else (0.0, 1.0):
            sent = run.sent(asking_policy(model), scorer, inverted=flip, draw=FLIP_SEED + seed)
            row = {"policy": asking_policy(model), "arrivals": len(traffic), "sent": sent}
            yield row | {"threshold": threshold, "flip_probability": flip}


def _row(
    policy: str,
    traffic: Slotted,
    settings: TradeoffSettings,
    buffer: int,
    predictions: NDArray[np.uint8] | None = None,
    *,
    alpha: float | None = None,
    threshold: float | None = None,
    flip: float | None = None,
) -> dict[str, Any]:
    used = SlotParameters().alpha if alpha is None else [alpha]
    ran = slotted(policy, settings.ports, buffer, traffic.slot, traffic.port, predictions, labels=False, alpha=used)
    row = {"policy": policy, "arrivals": len(traffic), "sent": ran["transmitted"]}
    if predictions is not None:
        is_consulted = ran["asked"].view(np.bool_)
        row["asked"] = int(np.count_nonzero(is_consulted))
        row["predicted_drops"] = int(np.count_nonzero(predictions[is_consulted]))
    return row | {"alpha": alpha, "threshold": threshold, "flip_probability": flip}


def _asked(
    model: Ensemble, workload: Workload, batches: Iterator[Slotted], settings: TradeoffSettings, seed: int
) -> tuple[Labelled, NDArray[np.float64], NDArray[np.bool_]]:
    """The arrivals, the model's probability of each and its own decision, from features as a dataset has them."""
    shift = settings.features.average_shift
    run = slotted_run(
        workload,
        settings.ports,
        settings.buffer_per_port,
        settings.slots,
        seed,
        cell_bytes=settings.features.cell_bytes,
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
    return _labelled(parts), np.concatenate(probability), np.concatenate(own)


def _joined(batches: Iterable[Slotted]) -> Slotted:
    parts = [*batches]
    if not parts:
        raise ForetailError("the workload sends no packet: raise the slots of the experiment, or its load")
    return Slotted.joined(parts)


def _labelled(batches: Iterable[Labelled]) -> Labelled:
    parts = [*batches]
    return Labelled(_joined(group.arrivals for group in parts), np.concatenate([group.lqd_drop for group in parts]))


def _constant(drop: NDArray[np.bool_]) -> Predictions:
    return lambda batch: Predicted(drop.view(np.uint8))


TRADEOFF = PointExperiment(
    settings=TradeoffSettings,
    kind="tradeoff",
    cases=lambda settings: axes(TradeoffCase, settings.workloads, settings.seeds, (RULES, PERFECT, *settings.loaded)),
    name=lambda case: f"{case.workload} seed={case.seed} {case.predictor}",
    measure=_measured,
    show=show,
    code=("features", "models", "sim_bridge"),
    varied=("workloads", "seeds", "models"),
    depends_on=lambda case, settings: {
        "arrivals": _arrivals_key(settings, case.workload),
        "model": settings.loaded[case.predictor].sha256 if case.predictor in settings.loaded else None,
    },
)
