"""The C of other tree compilers, and onnxruntime; runs in the environment that export_c.py makes for it.

``python export_c_peers.py FOLDER``: trains the forests again on FOLDER's rows, with the same call, weights and seed,
checks that they are the same, and writes each peer's code, and onnxruntime's decisions and times. Nothing of Foretail
is imported.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import emlearn  # type: ignore[import-not-found]
import lleaves  # type: ignore[import-not-found]
import m2cgen  # type: ignore[import-not-found]
import numpy as np
import onnxruntime
import tl2cgen  # type: ignore[import-not-found]
import treelite
from skl2onnx import to_onnx  # type: ignore[import-not-found]
from sklearn.ensemble import RandomForestClassifier

ONNX_SINGLE_ROWS = 2000


def main(folder: Path) -> None:
    """Write the code of all peers for every forest of ``forests.json``."""
    warnings.simplefilter("ignore")  # of tools that are older than the libraries they read
    sys.setrecursionlimit(100_000)
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    for forest in json.loads((folder / "forests.json").read_text()):
        to = folder / forest["name"]
        model = RandomForestClassifier(**forest["parameters"]).fit(x, y, sample_weight=np.ones(len(y)))
        theirs = np.load(to / "nodes.npz")
        for index, tree in enumerate(model.estimators_):
            if not np.array_equal(tree.tree_.threshold, theirs[f"threshold_{index}"]):
                raise SystemExit(f"tree {index} of {forest['name']} is another one in this environment")
        read = treelite.sklearn.import_model(model)
        tl2cgen.annotate_branch(read, tl2cgen.DMatrix(x.astype(np.float64)), str(to / "visits.json"), nthread=1)
        tl2cgen.generate_c_code(read, str(to / "tl2cgen"), params={"annotate_in": str(to / "visits.json")})
        (to / "lightgbm.txt").write_text(as_lightgbm(model))
        lleaves.Model(str(to / "lightgbm.txt")).compile(cache=str(to / "lleaves.o"))
        (to / "m2cgen.c").write_text(m2cgen.export_to_c(model))
        # soft votes, 8 bits per leaf: the most that emlearn offers
        emlearn.convert(model, method="inline", dtype="float", leaf_bits=8).save(file=str(to / "emlearn.h"), name="eml")
        graph = to_onnx(
            model,
            x[:1].astype(np.float32),
            options={"zipmap": False},
            target_opset={"": 17, "ai.onnx.ml": 3},
        )
        (to / "onnx.json").write_text(json.dumps(onnx_times(graph.SerializeToString(), to, forest["rounds"])))
    (folder / "emlearn_includes.txt").write_text(str(Path(emlearn.__file__).parent))


def as_lightgbm(model: RandomForestClassifier) -> str:
    """Return a forest as LightGBM's text of a regression, whose sum is that of the drop probabilities."""
    count, inputs = len(model.estimators_), model.n_features_in_
    lines = ["tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"]
    lines += [f"max_feature_idx={inputs - 1}", "objective=regression"]
    lines += ["feature_names=" + " ".join(f"x{i}" for i in range(inputs))]
    lines += ["feature_infos=" + " ".join(["[0:16777215]"] * inputs), "tree_sizes=" + " ".join(["1"] * count), ""]
    for index, tree in enumerate(estimator.tree_ for estimator in model.estimators_):
        inner, leaves = (np.flatnonzero((tree.children_left < 0) == leaf) for leaf in (False, True))
        number = np.empty(tree.node_count, int)
        number[inner], number[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
        lines += [f"Tree={index}", f"num_leaves={len(leaves)}", "num_cat=0"]
        for name, values in (
            ("split_feature", tree.feature[inner]),
            ("threshold", tree.threshold[inner]),
            ("decision_type", np.full(len(inner), 2)),
            ("left_child", number[tree.children_left[inner]]),
            ("right_child", number[tree.children_right[inner]]),
            ("leaf_value", tree.value[leaves, 0, 1]),
        ):
            lines.append(f"{name}=" + " ".join(map(str, values.tolist())))
        lines += ["shrinkage=1", "", ""]
    return "\n".join([*lines, "end of trees", "", "pandas_categorical:null", ""])


def onnx_times(graph: bytes, to: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return nanoseconds per row and wrong decisions of onnxruntime on one thread, by ``single trace`` and so on."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    result: dict[str, dict[str, float]] = {}
    for kind in ("trace", "cells"):
        rows = np.fromfile(to / f"{kind}.rows", np.int64).reshape(-1, 4).astype(np.float32)
        truth = np.fromfile(to / f"{kind}.truth", np.int64)
        ties = np.fromfile(to / f"{kind}.ties", np.int64) != 0
        differs = session.run(None, {name: rows})[0] != truth
        wrong, tied = int(np.sum(differs)), int(np.sum(differs & ties))
        singles = [{name: row[np.newaxis]} for row in rows[:ONNX_SINGLE_ROWS]]

        def batch(rows: np.ndarray = rows) -> None:
            session.run(None, {name: rows})

        def single(singles: list[dict[str, np.ndarray]] = singles) -> None:
            for row in singles:
                session.run(None, row)

        for title, work, count in (("single", single, len(singles)), ("batch", batch, len(rows))):
            spent = [_nanoseconds(work) / count for _ in range(rounds)]
            result[f"{title} {kind}"] = {
                "median": statistics.median(spent),
                "minimum": min(spent),
                "wrong": wrong,
                "tied": tied,
            }
    return result


def _nanoseconds(work: Callable[[], None]) -> float:
    start = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    work()
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) - start


if __name__ == "__main__":
    main(Path(sys.argv[1]))
