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
        tl2cgen.generate_c_code(treelite.sklearn.import_model(model), str(to / "tl2cgen"), params={})
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
