"""Random ensembles of every front end, trained on a real trace, through every target: proven, and tried besides.

``make conformance`` runs the full size, 200 ensembles and a million points each; the test suite runs the small one.
Every ensemble is exported to C, P4 and ONNX, each with its proof; the points, a third of them uniform over the declared
ranges, a third over the ranges seen in training and a third beside cuts, then go through the compiled C, onnxruntime
and the framework. Where the framework decides otherwise, the exact sum must be within its rounding of the threshold;
such points are counted and listed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import C
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.passes import lower
from foretail.export.target import export
from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.models.ensemble.rounding import rounding_bound
from foretail.pipelines.runs.result import write_result
from foretail.sim_bridge.native.driver import collect_dataset
from tests.scenarios import MILLISECOND, settings

COLUMNS = (*(feature.name for feature in FEATURES), *SHADOW_COLUMNS, "port")
"""Integer columns of a trace; not all of them are features one would deploy, which does not matter here."""

Rows = NDArray[np.int64]
Decide = Callable[[Rows], NDArray[np.bool_]]


@dataclass(frozen=True)
class Case:
    """One random ensemble."""

    front_end: str
    trees: int
    depth: int
    columns: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What became of it: method and size of each proof, and the points at which the framework decides otherwise."""

    case: Case
    leaves: int
    emitted_leaves: int
    cells: int
    methods: dict[str, str]
    vote_bits: int
    order: bool
    points: int
    otherwise: int
    listed: list[list[int]]
    seconds: float


def sklearn_model(model: Any, trees: int, case: Case) -> Callable[[Rows, NDArray[np.bool_]], tuple[Any, Decide]]:
    """Return a trainer of a scikit-learn classifier."""

    def train(x: Rows, y: NDArray[np.bool_]) -> tuple[Any, Decide]:
        extra = {"n_estimators": trees} if trees else {}
        fitted = model(max_depth=case.depth, random_state=case.seed, **extra).fit(x, y)
        return fitted, lambda points: np.asarray(fitted.predict(points), np.bool_)

    return train


def trained(case: Case, x: Rows, y: NDArray[np.bool_]) -> tuple[Ensemble, Decide]:
    """Train the case with its framework and read it."""
    import xgboost
    from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    inputs = [FeatureInput(name, "", 24) for name in case.columns]
    if case.front_end == "xgboost":
        parameters = {"objective": "binary:logistic", "max_depth": case.depth, "seed": case.seed, "nthread": 1}
        booster = xgboost.train(parameters, xgboost.DMatrix(x, y), num_boost_round=case.trees)
        return from_xgboost(
            booster, inputs
        ), lambda points: np.asarray(booster.inplace_predict(points.astype(np.float32), predict_type="margin")) > 0
    kinds = {
        "random_forest": (RandomForestClassifier, case.trees),
        "extra_trees": (ExtraTreesClassifier, case.trees),
        "gradient_boosting": (GradientBoostingClassifier, case.trees),
        "tree": (DecisionTreeClassifier, 0),
    }
    model, decide = sklearn_model(*kinds[case.front_end], case)(x, y)
    return from_sklearn(model, inputs), decide


FRONT_ENDS = ("random_forest", "extra_trees", "gradient_boosting", "tree", "xgboost")


def cases(count: int, seed: int) -> list[Case]:
    """Return `count` random cases: 1 to 64 trees, depth 1 to 8, 1 to all columns, the front ends in turn."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        front_end = FRONT_ENDS[index % len(FRONT_ENDS)]
        columns = random.choice(COLUMNS, int(random.integers(1, len(COLUMNS) + 1)), replace=False)
        trees = 1 if front_end == "tree" else int(random.integers(1, 65))
        found.append(Case(front_end, trees, int(random.integers(1, 9)), tuple(columns.tolist()), index))
    return found


def points_of(model: Ensemble, x: Rows, count: int, seed: int) -> Rows:
    """Return `count` random inputs: anywhere, where training was, beside cuts."""
    random = np.random.default_rng(seed)
    parts = []
    for index, feature in enumerate(model.features):
        largest = (1 << feature.bits) - 1
        cuts = np.concatenate([tree.cut[tree.feature == index] for tree in model.trees])
        beside = random.choice(cuts, count) + random.integers(0, 2, count) if cuts.size else np.zeros(count, np.int64)
        anywhere = random.integers(0, largest + 1, count)
        seen = random.integers(0, int(x[:, index].max()) + 1, count)
        parts.append(np.stack([anywhere, seen, beside]))
    columns = np.stack(parts, axis=2)  # [3, count, features]
    return np.ascontiguousarray(columns[np.arange(count) % 3, np.arange(count)])


def run(case: Case, dataset: Dataset, count: int, max_cells: int) -> Outcome:
    """Export the case to every target and try `count` points; a difference must be explained by rounding."""
    from foretail.export.onnx.graph import OnnxPredictor

    started = time.monotonic()
    frame = dataset.frame([*case.columns, "lqd_drop"])
    x, y = frame[list(case.columns)].to_numpy(np.int64), frame["lqd_drop"].to_numpy(np.bool_)
    model, decide = trained(case, x, y)
    with tempfile.TemporaryDirectory() as name:
        lowered = lower(model, max_cells=max_cells)
        c = export(lowered, C(), Path(name) / "c", max_cells=max_cells)
        onnx = export(lowered, Onnx(), Path(name) / "onnx", max_cells=max_cells)
        p4 = export(lowered, P4(), Path(name) / "p4", max_cells=max_cells)
        certificates = {name: exported.certificate for name, exported in (("c", c), ("p4", p4), ("onnx", onnx))}
        emitted = Ensemble.load(Path(name) / "c" / "ensemble.json")
        library = PredictorLibrary(c.file(".so"))
        graph = OnnxPredictor(onnx.file(".onnx").read_bytes())
        otherwise, listed = 0, list[list[int]]()
        for start in range(0, count, 100_000):
            points = points_of(model, x, min(100_000, count - start), case.seed * 1000 + start // 100_000)
            score = library.score(points)
            assert np.array_equal(score, emitted.score(points)), case
            assert np.array_equal(score, graph.run(points)[0]), case
            different = points[(score > library.default_tau) != decide(points)]
            otherwise += len(different)
            listed += different[: 10 - len(listed)].tolist()
            require_rounding(model, different)
    return Outcome(
        case=case,
        leaves=sum(len(tree.leaves) for tree in model.trees),
        emitted_leaves=sum(len(tree.leaves) for tree in emitted.trees),
        cells=certificates["c"].cells,
        methods={target: certificate.method for target, certificate in certificates.items()},
        vote_bits=certificates["c"].vote_bits,
        order=certificates["c"].order,
        points=count,
        otherwise=otherwise,
        listed=listed,
        seconds=time.monotonic() - started,
    )


def require_rounding(model: Ensemble, points: Rows) -> None:
    """Raise AssertionError unless every exact sum is within the framework's rounding of the threshold."""
    bound = rounding_bound(model)
    for point, total in zip(points, model.exact_sum(points) if len(points) else [], strict=True):
        away = abs(Fraction(int(total), 1 << model.scale_bits) - model.threshold)
        assert away <= bound, f"the framework decides otherwise at {point.tolist()}, {float(away)} from the threshold"


def collected(folder: Path) -> Dataset:
    """Simulate the trace."""
    collect_dataset(settings(trace=True, traffic_ns=10 * MILLISECOND), folder / "dataset", scenario=settings())
    return Dataset.open(folder / "dataset")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases, print a table and write ``outputs/conformance/result.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ensembles", type=int, default=200)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--max-cells", type=int, default=1_000_000, help="beyond, proofs are by boxes")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        dataset = collected(Path(name))
        outcomes = []
        for case in track(cases(chosen.ensembles, chosen.seed), "exporting", console=Console(stderr=True)):
            outcomes.append(run(case, dataset, chosen.points, chosen.max_cells))
            path = write_result(
                Path("outputs/conformance"), {**vars(chosen), "outcomes": [asdict(outcome) for outcome in outcomes]}
            )
    table = Table(title=f"{chosen.ensembles} ensembles, {chosen.points:,} points each, seed {chosen.seed}")
    for heading in ("front end", "ensembles", "leaves", "by cells", "by boxes", "any tau", "framework otherwise", "s"):
        table.add_column(heading, justify="left" if heading == "front end" else "right")
    for front_end in FRONT_ENDS:
        mine = [outcome for outcome in outcomes if outcome.case.front_end == front_end]
        methods = [method for outcome in mine for method in outcome.methods.values()]
        table.add_row(
            front_end,
            str(len(mine)),
            str(sum(outcome.leaves for outcome in mine)),
            str(methods.count("cells")),
            str(methods.count("boxes")),
            str(sum(outcome.order for outcome in mine)),
            str(sum(outcome.otherwise for outcome in mine)),
            f"{sum(outcome.seconds for outcome in mine):.0f}",
        )
    Console(width=120).print(table)
    print(f"result: {path}")


if __name__ == "__main__":
    main()
