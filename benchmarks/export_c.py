"""Nanoseconds per prediction of exported C, against other tree compilers and onnxruntime, in one run.

Forests of scikit-learn are trained on an ns-3 trace under LQD and tried on the trace of another seed, in the order of
arrival, and on rows uniform over the cells of the forest's grid, where branches cannot be predicted. The peers' C is
generated in an environment of its own (``export_c_peers.py``; made in the user's cache by ``pip install`` of PEERS),
and one process calls every library through function pointers, interleaved, by its thread's CPU clock. Ours is compiled
with ``-O3``, and the peers' C with each of OPTIONS, of which the fastest counts in every case; tl2cgen knows the
training rows too, and marks its branches by them. The first four virtual features are what the paper's forest reads in
an LQD run.

A peer is compared when its decisions are the model's, but for rows whose sum is so close to the threshold that the
order of adding decides (ties); their number stands beside it. The small size takes the peers only where their
environment is there already, and needs no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.export.c.build import find_compiler, vector_widths
from foretail.export.c.forms import tune
from foretail.export.c.shapes import HotBox
from foretail.export.c.target import candidates, render_c
from foretail.export.c.text import Batch, Single
from foretail.export.passes import lower
from foretail.features.catalog import VIRTUAL_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.rounding import framework_sum, rounding_bound
from foretail.pipelines.data.inputs import feature_inputs
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.stages.collect import collect

PEERS = (
    "tl2cgen==1.0.0",
    "m2cgen==0.10.0",
    "lleaves==1.3.0",
    "llvmlite==0.44.0",
    "emlearn==0.23.2",
    "treelite==4.8.1",
    "scikit-learn==1.9.1",
    "skl2onnx==1.20.0",
    "onnx==1.23.2",
    "onnxruntime==1.31.1",
    "numpy==2.4.6",
)
INPUTS = VIRTUAL_FEATURES[:4]
SCENARIO = {"small": ["scenario=tiny"], "full": ["scenario=leafspine_small", "scenario.traffic_ns=20000000"]}
NO_PEERS = "no peers: their environment is not there, a run of the full size makes it. Ratios are to our branches"
FLAGS = ("-fPIC", "-shared", "-w")
OPTIONS = ("-O3", "-O2", "-O3 -march=native")
CASES = tuple((call, rows) for call in ("single", "batch") for rows in ("trace", "cells"))
DEFAULT = "default"
FORMS: tuple[tuple[str, Single | Literal["auto"], Batch | Literal["auto"], str], ...] = (
    ("branches, rows", "branches", "rows", ""),
    ("bitvector, lanes", "bitvector", "lanes", ""),
    (DEFAULT, "auto", "auto", ""),
    ("default, AVX2", "auto", "auto", "-DP_VECTOR=256"),
)

# Every library's adapter: `single` and `batch` decide, 1 is drop.
_OURS = """#include "{folder}/p.h"
int64_t single(const void *x) {{ return p_score((const int64_t *)x) > P_DEFAULT_TAU; }}
void batch(const void *x, size_t rows, int64_t *out) {{
  size_t i;
  p_score_batch((const int64_t *)x, rows, out);
  for (i = 0; i < rows; ++i) out[i] = out[i] > P_DEFAULT_TAU;
}}
"""
_THEIRS = """#include <stddef.h>
#include <stdint.h>
{code}
int64_t single(const void *row) {{ {type} *x = ({type} *)row; {call}; return r[1] > r[0]; }}
void batch(const void *all, size_t rows, int64_t *out) {{
  size_t i;
  {batch}for (i = 0; i < rows; ++i) out[i] = {one};
}}
"""
_ONE = "single(({type} *)all + 4 * i)"
_PEERS = {
    "tl2cgen": ("d", '#include "tl2cgen/main.c"', "union Entry", "double r[2] = {0, 0}; predict(x, 1, r)", "", _ONE),
    "m2cgen": ("d", '#include "m2cgen.c"', "double", "double r[2]; score(x, r)", "", _ONE),
    "lleaves": (
        "d",
        "void forest_root(double *rows, double *out, int first, int end); static double sums[1 << 20];",
        "double",
        "double r[2] = {HALF}; forest_root(x, r + 1, 0, 1)",
        "forest_root((double *)all, sums, 0, (int)rows); ",
        "sums[i] > HALF",
    ),
    "emlearn": ("f", '#include "emlearn.h"', "float", "float r[2]; eml_predict_proba(x, 4, r, 2)", "", _ONE),
}
"""Libraries: what each reads, its code, the type of an input, and how it predicts one row and many."""


@dataclass(frozen=True)
class Size:
    """A forest, and how often so many rows are timed."""

    trees: int
    depth: int
    rows: int
    rounds: int

    @property
    def name(self) -> str:
        return f"{self.trees}x{self.depth}"


FORESTS = {
    "small": (Size(4, 4, 2_000, 3), Size(8, 6, 2_000, 3)),
    "full": (Size(4, 4, 100_000, 41), Size(8, 6, 50_000, 31), Size(32, 8, 20_000, 15), Size(128, 8, 10_000, 9)),
}


@dataclass(frozen=True)
class Speed:
    """Nanoseconds per row, decisions that are not the model's, and ties among these, of one library in one case."""

    median: float
    minimum: float
    wrong: int
    tied: int


Speeds = dict[tuple[str, str, str], Speed]
"""By library, call and rows."""


def main(size: str) -> None:
    """Print, for every forest, times and ratios to the fastest peer that decides as the model does."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretail"
    python = _peer_environment(cache, install=size == "full")
    training, trial = _traces(cache, SCENARIO[size])
    x, y = _rows(training)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        forests = FORESTS[size]
        chosen = [_write_forest(folder, forest, training, x, y, _rows(trial)[0]) for forest in forests]
        if python is not None:
            parameters = [{"name": one.name, "rounds": one.rounds, "parameters": _parameters(one)} for one in forests]
            (folder / "forests.json").write_text(json.dumps(parameters))
            script = Path(__file__).with_name("export_c_peers.py")
            _run([str(python), str(script), str(folder)], "the peers' tools")
        harness = folder / "harness"
        source = Path(__file__).with_name("export_c_harness.c")
        _run([*find_compiler(), "-O2", "-o", str(harness), str(source), "-ldl"], "the compiler")
        console = Console(width=140)
        console.print(
            f"{platform.processor() or platform.machine()}, vectors of {vector_widths()} bits, {' '.join(FLAGS)}; "
            + (", ".join(PEERS) if python else NO_PEERS)
        )
        for forest, tuned in zip(forests, chosen, strict=True):
            console.print(_table(forest, _measure(folder, forest, harness, with_peers=python is not None), tuned))


def _peer_environment(cache: Path, *, install: bool) -> Path | None:
    """Return the interpreter of the peers' environment, made now when it is not there; None when that is not wanted."""
    folder = cache / f"export-c-peers-{hashlib.sha256(' '.join(PEERS).encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        if not install:
            return None
        venv.create(folder, clear=True, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", *PEERS], "pip")
        (folder / "complete").touch()
    return python


def _traces(cache: Path, scenario: list[str]) -> tuple[Dataset, Dataset]:
    """Return the datasets of two seeds, from a store in the cache."""
    overrides = [*scenario, "seeds=[1,2]", f"store_dir={cache / 'benchmarks'}"]
    config = compose_settings(CollectConfig, overrides, "the benchmark")
    first, second = (Dataset.open(run.path) for run in collect(config, cache).runs)
    return first, second


def _rows(dataset: Dataset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    frame = dataset.frame([*INPUTS, "lqd_drop"])
    return frame[list(INPUTS)].to_numpy(np.int64), frame["lqd_drop"].to_numpy(np.bool_)


def _parameters(size: Size) -> dict[str, int | str]:
    return {"n_estimators": size.trees, "max_depth": size.depth, "max_features": "sqrt", "random_state": 1}


def _write_forest(
    folder: Path,
    size: Size,
    training: Dataset,
    x: npt.NDArray[np.int64],
    y: npt.NDArray[np.bool_],
    trial: npt.NDArray[np.int64],
) -> str:
    """Train, write our code in every form, and the rows with the model's decisions; return what is chosen and why."""
    to = folder / size.name
    to.mkdir()
    forest = RandomForest(trees=size.trees, depth=size.depth, seed=1).fit(x, y)
    nodes = {f"threshold_{i}": tree.tree_.threshold for i, tree in enumerate(forest.forest_.estimators_)}
    np.savez(to / "nodes.npz", **nodes)
    model = forest.to_ensemble(feature_inputs(INPUTS, [training])).with_visits([x])  # as foretail train
    rows = {"trace": trial[: size.rows], "cells": Cells.of(model).sample(size.rows, np.random.default_rng(1))}
    for name, points in rows.items():
        np.ascontiguousarray(points, np.int64).tofile(to / f"{name}.rows")
        model.exceeds(points).astype(np.int64).tofile(to / f"{name}.truth")
        ties = np.abs(framework_sum(model, points) - float(model.threshold)) <= rounding_bound(model)
        ties.astype(np.int64).tofile(to / f"{name}.ties")
    voted = lower(model).ensemble
    for index, (_, single, batch, options) in enumerate(FORMS):
        code = to / f"ours_{index}"
        code.mkdir()
        for file, text in render_c(voted, "p", shape=single, batch=batch).items():
            (code / file).write_text(text)
        _compile(to, f"ours_{index}", _OURS.format(folder=code), "-O3", *options.split())
    tuning = tune(candidates(voted, "p", "auto", "auto"), x[: size.rows])
    default = render_c(voted, "p")["p.h"].partition("One prediction: ")[2].partition(".\n")[0]
    box = HotBox.of(voted)
    assert box is not None
    train, test = (np.mean(np.all((box.low <= one) & (one <= box.high), axis=1)) for one in (x, trial))
    inside = f"in the hot box {train:.1%} of the training rows (at least {box.inside:.1%}), {test:.1%} of the trace"
    return f"default: {default}; {inside}; tuned on the trace: {tuning.single}, {tuning.batch}"


def _measure(folder: Path, size: Size, harness: Path, *, with_peers: bool) -> Speeds:
    """Compile the peers' code, time all libraries in one process, and add onnxruntime's times."""
    to = folder / size.name
    peers = _PEERS if with_peers else {}
    libraries = []
    for peer, (kind, code, type_, call, batch, one) in peers.items():
        text = _THEIRS.format(code=code, type=type_, call=call, batch=batch, one=one.format(type=type_))
        includes = ["-I" + (folder / "emlearn_includes.txt").read_text(), f"-I{to}", f"-DHALF={size.trees / 2}"]
        objects = [str(to / "lleaves.o"), "-lm"] if peer == "lleaves" else []
        for index, options in enumerate(OPTIONS if not objects else OPTIONS[:1]):
            _compile(to, f"{peer}_{index}", text, *options.split(), *includes, *objects)
            libraries.append(f"{peer}_{index}:{kind}")
    libraries += [f"ours_{index}:i" for index in range(len(FORMS))]
    command = [str(harness), str(to), str(size.rounds), str(size.rows), *libraries]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    titles = {f"ours_{index}": title for index, (title, *_) in enumerate(FORMS)}
    speeds: Speeds = {}
    for line in done.stdout.splitlines():
        name, call, rows, median, minimum, wrong, tied = line.split()
        case = titles.get(name, name.partition("_")[0]), call, rows
        speed = Speed(float(median), float(minimum), int(wrong), int(tied))
        speeds[case] = min(speed, speeds.get(case, speed), key=lambda one: one.median)
    for case, figures in json.loads((to / "onnx.json").read_text()).items() if with_peers else ():
        call, rows = case.split()
        speeds["onnxruntime", call, rows] = Speed(**figures)
    return speeds


def _table(size: Size, speeds: Speeds, chosen: str) -> Table:
    """Times of all libraries; ratios of ours to the fastest peer that differs from the model by ties only."""
    ours = [title for title, *_ in FORMS]
    names = dict.fromkeys(name for name, _, _ in speeds)
    wrong = {name: sum(speeds[name, call, rows].wrong for call, rows in CASES) for name in names}
    tied = {name: sum(speeds[name, call, rows].tied for call, rows in CASES) for name in names}
    for title in ours:
        if wrong[title]:
            raise SystemExit(f"{title} decides {wrong[title]} rows of {size.name} otherwise than the model")
    table = Table(
        title=f"{size.trees} trees of depth {size.depth}: ns per prediction, median (minimum) of {size.rounds} rounds "
        f"of {size.rows:,} rows; {chosen}"
    )
    table.add_column("")
    for call, rows in CASES:
        table.add_column(f"{call}, {rows}", justify="right")
    table.add_column("wrong decisions (ties)", justify="right")
    for name in names:
        cells = [speeds[name, call, rows] for call, rows in CASES]
        times = (f"{cell.median:,.2f} ({cell.minimum:,.2f})" for cell in cells)
        table.add_row(name, *times, f"{wrong[name]} ({tied[name]})")
    table.add_section()
    peers = [name for name in names if name not in ours and wrong[name] == tied[name]]
    for title in ours:
        ratios = []
        for call, rows in CASES:
            theirs = {name: speeds[name, call, rows] for name in peers or ours[:1]}
            fastest = min(theirs, key=lambda name: theirs[name].median)
            ratio = speeds[title, call, rows].median / theirs[fastest].median
            ratios.append(f"{ratio:.2f} ({fastest})" if peers else f"{ratio:.2f}")
        table.add_row(f"{title} / {'fastest peer' if peers else ours[0]}", *ratios, "")
    return table


def _compile(to: Path, name: str, code: str, *options: str) -> None:
    source = to / f"{name}_adapter.c"
    source.write_text(code)
    _run([*find_compiler(), *FLAGS, "-o", str(to / f"{name}.so"), str(source), *options], "the compiler")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"{what} failed ({done.returncode})")
