"""Which labels to learn from: other victim rules, runs of other policies; and drift in service.

Every score that Foretail reports is by the labels of tail victims, a rule picked beforehand: where the arrival counts,
it takes the arrival itself whenever its own queue is the longest, so its labels depend least on what arrives later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, PAPER_FEATURES, training_columns
from foretail.features.dataset.schema import Victim
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import Rows, read_rows
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.data.inputs import feature_inputs
from foretail.pipelines.runs.result import Table
from foretail.pipelines.training.scores import JudgedSide, side_push_outs
from foretail.sim_bridge.open_loop.push_outs import Freedom
from foretail_studies.predictors.relabelling import relabelled


def kolmogorov_smirnov(expected: NDArray[np.int32], actual: NDArray[np.int32]) -> float:
    """The largest distance of the two empirical distribution functions, in [0, 1].

    They are of one feature: int32[rows] and int32[others], at least one each, else ForetailError.
    """
    _require_rows(expected, actual)
    values = np.union1d(expected, actual)
    below = [np.searchsorted(np.sort(rows), values, side="right") / len(rows) for rows in (expected, actual)]
    return float(np.abs(below[0] - below[1]).max())


def population_stability_index(expected: NDArray[np.int32], actual: NDArray[np.int32], bins: int = 10) -> float:
    """Sum over bins of (a - e) ln(a / e), shares e and a of the two sets: at least 0, by custom large above 0.25.

    Bins end at quantiles of `expected`; half a row is added to each, so that none is empty. Errors as
    :func:`kolmogorov_smirnov`.
    """
    _require_rows(expected, actual)
    edges = np.unique(np.quantile(expected, np.arange(1, bins) / bins, method="inverted_cdf"))
    shares = []
    for values in (expected, actual):
        counts = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1) + 0.5
        shares.append(counts / counts.sum())
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def _require_rows(expected: NDArray[np.int32], actual: NDArray[np.int32]) -> None:
    if not len(expected) or not len(actual):
        raise ForetailError(
            f"{len(expected)} rows cannot be compared with {len(actual)}: collect longer runs, or more of them"
        )


LQD = "lqd"
VICTIMS: tuple[Victim, ...] = get_args(Victim)
FREEDOMS: tuple[Freedom, ...] = get_args(Freedom)
REGIONS = ("whole", "asked")
SCORES = ("precision", "recall", "f1", "average_precision")

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class LabelStudy:
    """Every figure of the study; each list has one mapping per row of its table."""

    #: by victim rule and region: drops, how many of them are none by the tail rule, scores of a predictor that learns
    #: and is scored by this rule, and F1 of the same predictor by tail labels
    victims: Records
    assignments: Records  #: by truth and region: scores of the predictor that learnt tail labels
    policies: Records  #: by policy of the training and of the test runs and by region: scores
    drift: Records  #: by region and feature: how far the training rows are from what a deployed predictor sees
    #: by training rows and region: scores of predictors of the paper's features on what they see when deployed
    served: Records

    def document(self) -> dict[str, Any]:
        return dict(vars(self))

    def tables(self) -> list[Table]:
        """One table for each list that is not empty."""
        return [
            Table.of_rows(title, [{name.replace("_", " "): cell for name, cell in row.items()} for row in rows])
            for title, rows in (
                ("Victim rules", self.victims),
                ("Best assignment of push-outs", self.assignments),
                ("Labels beside other policies", self.policies),
                ("Features between training and service", self.drift),
                ("Training rows of the paper's features, scored in service", self.served),
            )
            if rows
        ]


def label_study(
    runs: Mapping[str, splits.Split],
    make: Callable[[], TreePredictor],
    names: Sequence[str],
    *,
    deployed: str | None = None,
) -> LabelStudy:
    """Compare labels by training on them.

    ForetailError when there are no runs under LQD, they are no whole traces with tail victims, or the deployed policy
    never asks.

    Parameters
    ----------
    runs : traces by the policy that moved the packets, ``lqd`` among them, split alike: train, validation and test
    make : a predictor that is not trained yet
    names : its features
    deployed : the policy among `runs` that asked a predictor of real features
    """
    if LQD not in runs:
        raise ForetailError(f"the label study needs runs under lqd beside {', '.join(runs)}: collect them")
    if deployed is not None and deployed not in runs:
        raise ForetailError(f"the label study has no runs under {deployed}: name one of {', '.join(runs)}")
    study = _Study(make, names, runs[LQD])
    victims = [one for victim in VICTIMS for one in study.victim_rule(victim)]
    assignments = study.assignments()
    policies = study.policies(runs)
    drift: Records = []
    served: Records = []
    if deployed is not None:
        service = _Study(make, PAPER_FEATURES, runs[LQD])
        drift = _drift(runs[LQD], runs[deployed])
        served = service.served(runs[deployed])
    return LabelStudy(victims, assignments, policies, drift, served)


class _Study:
    """One kind of predictor on the runs under LQD."""

    def __init__(self, make: Callable[[], TreePredictor], names: Sequence[str], split: splits.Split) -> None:
        datasets = [selection.dataset for side in splits.SIDES for selection in getattr(split, side)]
        self.make, self.names, self.split = make, names, split
        self.inputs: tuple[FeatureInput, ...] = feature_inputs(names, datasets)
        self.ports = max(switch.ports for dataset in datasets for switch in dataset.manifest.switches)
        push_outs = side_push_outs(split.test)
        if push_outs is None:
            raise ForetailError("the label study needs whole traces with tail victims: split by run")
        self.push_outs = push_outs
        self.rows = self.read(split)

    def read(self, split: splits.Split, own_queues: bool = False) -> dict[str, Rows]:
        columns = training_columns(self.names, own_queues)
        return {side: read_rows(getattr(split, side), columns) for side in splits.SIDES}

    def train(self, rows: Mapping[str, Rows]) -> Ensemble:
        """At the operating point with the best F1 where Credence asks."""
        ensemble = self.make().fit(rows["train"].x, rows["train"].lqd_drop).to_ensemble(self.inputs)
        validation = rows["validation"]
        point = choose_operating_point(ensemble, validation.x, validation.lqd_drop, validation.asked)
        return ensemble.with_threshold(point.threshold)

    def judged(self, ensemble: Ensemble, rows: Rows) -> JudgedSide:
        return JudgedSide(rows.lqd_drop, rows.asked, ensemble.exceeds(rows.x), ensemble.probability(rows.x))

    def by_region(self, side: JudgedSide) -> dict[str, dict[str, Any]]:
        scores = side.scores(self.ports)
        return {region: {name: scores[region][name] for name in SCORES} for region in REGIONS}

    def victim_rule(self, victim: Victim) -> Records:
        places = [[feature.name for feature in FEATURES].index(name) for name in self.names]
        rows: dict[str, Rows] = {}
        for side in splits.SIDES:
            under = [relabelled(selection.dataset, victim) for selection in getattr(self.split, side)]
            rows[side] = Rows(
                np.concatenate([one.features[:, places] for one in under]),
                np.concatenate([one.lqd_drop for one in under]),
                np.concatenate([one.asked for one in under]),
            )
        ensemble = self.train(rows)
        test, is_asked = rows["test"], rows["test"].asked
        own = self.by_region(self.judged(ensemble, test))
        by_tail = self.by_region(self.judged(ensemble, self.rows["test"]))
        records: Records = []
        for region in REGIONS:
            drops = test.lqd_drop if region == "whole" or is_asked is None else test.lqd_drop & is_asked
            moved = int(np.count_nonzero(drops & ~self.rows["test"].lqd_drop))
            records.append(
                {"victim": victim, "region": region, "drops": int(np.count_nonzero(drops)), "not by tail": moved}
                | own[region]
                | {"f1 by tail": by_tail[region]["f1"]}
            )
        return records

    def assignments(self) -> Records:
        """Scores of the predictor that learned tail labels, by each truth that LQD could have made."""
        judged = self.judged(self.train(self.rows), self.rows["test"])
        truths = {"tail": judged.lqd_drop} | {
            f"best in its {freedom}": self.push_outs.assign(judged.probability, freedom) for freedom in FREEDOMS
        }
        return [
            {"truth": truth, "region": region} | self.by_region(replace(judged, lqd_drop=labels))[region]
            for truth, labels in truths.items()
            for region in REGIONS
        ]

    def policies(self, runs: Mapping[str, splits.Split]) -> Records:
        """Every policy's predictor on every policy's test runs."""
        ensembles: dict[str, Ensemble] = {}
        tests: dict[str, Rows] = {}
        for policy, split in runs.items():
            sides = self.rows if policy == LQD else self.read(split)
            ensembles[policy], tests[policy] = self.train(sides), sides["test"]
        records: Records = []
        for trained, ensemble in ensembles.items():
            for tested, rows in tests.items():
                by_region = self.by_region(self.judged(ensemble, rows))
                records += [
                    {"trained on": trained, "tested on": tested, "region": region} | by_region[region]
                    for region in REGIONS
                ]
        return records

    def served(self, deployed: splits.Split) -> Records:
        """Predictors of three kinds of training rows, on what the deployed policy's predictor saw."""
        in_service = self.read(deployed, own_queues=True)
        really_asked = np.concatenate([_really_asked(selection) for selection in deployed.test])
        test = replace(in_service["test"], asked=really_asked)
        training = {
            "shadow Credence": self.rows,
            "LQD's own queues": self.read(self.split, own_queues=True),
            "in service": in_service,
        }
        records: Records = []
        for rows_of, rows in training.items():
            ensemble = self.train(rows)
            by_region = self.by_region(self.judged(ensemble, test))
            records += [{"training rows": rows_of, "region": region} | by_region[region] for region in REGIONS]
        return records


def _drift(lqd: splits.Split, deployed: splits.Split) -> Records:
    """Real features of the test runs: as trained on, and as a deployed predictor saw them on the same flows."""
    shadow, own = training_columns(PAPER_FEATURES, False), training_columns(PAPER_FEATURES, True)
    floor = read_rows(lqd.validation, shadow)
    by_shadow, by_own, seen = read_rows(lqd.test, shadow), read_rows(lqd.test, own), read_rows(deployed.test, own)
    really_asked = np.concatenate([_really_asked(selection) for selection in deployed.test])
    records: Records = []
    for region in REGIONS:
        for place, name in enumerate(PAPER_FEATURES):
            values = {
                kind: rows.x[:, place] if region == "whole" else rows.x[is_asked, place]
                for kind, rows, is_asked in (
                    ("shadow", by_shadow, by_shadow.asked),
                    ("own queues", by_own, by_own.asked),
                    ("other seeds", floor, floor.asked),
                    ("seen", seen, really_asked),
                )
            }
            records.append(
                {"region": region, "feature": name}
                | {
                    f"{short} {kind}": distance(values[kind], values["seen" if kind != "other seeds" else "shadow"])
                    for kind in ("shadow", "own queues", "other seeds")
                    for short, distance in (("KS", kolmogorov_smirnov), ("PSI", population_stability_index))
                }
            )
    return records


def _really_asked(selection: splits.Selection) -> Any:
    is_asked = selection.frame(["asked"])["asked"]
    if is_asked.isna().any():
        raise ForetailError(f"{selection.dataset.path} asked no predictor: name runs of a Credence with a predictor")
    return is_asked.to_numpy(np.bool_)
