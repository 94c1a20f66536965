"""Nanoseconds per prediction of exported C, against other tree compilers and onnxruntime, in one run.

Forests of scikit-learn are trained on an ns-3 trace under LQD and tried on the trace of another seed, in the order of
arrival, and on rows uniform over the cells of the forest's grid, where branches cannot be predicted. The peers' C is
generated in an environment of its own (``export_c_peers.py``; made in the user's cache by ``pip install`` of PEERS),
everything is compiled with the same flags, and one process calls every library through function pointers, interleaved,
by its thread's CPU clock. The first four virtual features are what the paper's forest reads in an LQD run.
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

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.export.c.build import find_compiler, vector_widths
from foretail.export.c.target import candidates, render_c
from foretail.export.c.text import Batch, Single
from foretail.export.c.tuning import tune
from foretail.export.passes.passes import lower
from foretail.features.catalog import VIRTUAL_FEATURES, feature
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.stages.collect import collect

PEERS = (
    "tl2cgen==1.0.0",
    "m2cgen==0.10.0",
    "emlearn==0.23.2",
    "treelite==4.8.1",
    "scikit-learn==1.9.1",
    "skl2onnx==1.20.0",
    "onnx==1.23.2",
    "onnxruntime==1.31.1",
    "numpy==2.4.6",
)
INPUTS = VIRTUAL_FEATURES[:4]
FORESTS = ((4, 4), (8, 6), (32, 8), (128, 8))
ROWS = {(4, 4): 100_000, (8, 6): 50_000, (32, 8): 20_000, (128, 8): 10_000}
ROUNDS = {(4, 4): 41, (8, 6): 31, (32, 8): 15, (128, 8): 9}
FLAGS = ("-O3", "-fPIC", "-shared", "-w")
CASES = tuple((call, rows) for call in ("single", "batch") for rows in ("trace", "cells"))
FORMS: tuple[tuple[str, Single, Batch, str], ...] = (
    ("branches, rows", "branches", "rows", ""),
    ("bitvector, lanes", "bitvector", "lanes", ""),
    ("lanes of AVX2", "bitvector", "lanes", "-DP_VECTOR=256"),
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
  for (i = 0; i < rows; ++i) out[i] = single(({type} *)all + 4 * i);
}}
"""
_PEERS = {
    "tl2cgen": ("d", '#include "tl2cgen/main.c"', "union Entry", "double r[2] = {0, 0}; predict(x, 1, r)"),
    "m2cgen": ("d", '#include "m2cgen.c"', "double", "double r[2]; score(x, r)"),
    "emlearn": ("f", '#include "emlearn.h"', "float", "float r[2]; eml_predict_proba(x, 4, r, 2)"),
}


@dataclass(frozen=True)
class Speed:
    """Nanoseconds per row, and decisions that are not the model's, of one library in one case."""

    median: float
    minimum: float
    wrong: int


Speeds = dict[tuple[str, str, str], Speed]
"""By library, call and rows."""


def main() -> None:
    """Print, for every forest, times and ratios to the fastest exact peer."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretail"
    python = _peer_environment(cache)
    training, trial = _traces(cache)
    x, y = _rows(training)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        chosen = {size: _write_forest(folder, size, training, x, y, _rows(trial)[0]) for size in FORESTS}
        parameters = [
            {"name": _name(size), "rounds": ROUNDS[size], "parameters": _parameters(size)} for size in FORESTS
        ]
        (folder / "forests.json").write_text(json.dumps(parameters))
        script = Path(__file__).with_name("export_c_peers.py")
        _run([str(python), str(script), str(folder)], "the peers' tools")
        harness = folder / "harness"
        source = Path(__file__).with_name("export_c_harness.c")
        _run([*find_compiler(), "-O2", "-o", str(harness), str(source), "-ldl"], "the compiler")
        console = Console(width=140)
        console.print(
            f"{platform.processor() or platform.machine()}, vectors of {vector_widths()} bits, {' '.join(FLAGS)}; "
            f"{', '.join(PEERS)}"
        )
        for size in FORESTS:
            console.print(_table(size, _measure(folder, size, harness), chosen[size]))


def _peer_environment(cache: Path) -> Path:
    """Return the interpreter of the peers' environment, made now when it is not there."""
    folder = cache / f"export-c-peers-{hashlib.sha256(' '.join(PEERS).encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", *PEERS], "pip")
        (folder / "complete").touch()
    return python


def _traces(cache: Path) -> tuple[Dataset, Dataset]:
    """Return the datasets of two seeds, from a store in the cache."""
    overrides = ["scenario=leafspine_small", "scenario.traffic_ns=20000000", "seeds=[1,2]"]
    config = compose_settings(CollectConfig, [*overrides, f"store_dir={cache / 'benchmarks'}"], "the benchmark")
    first, second = (Dataset.open(run.path) for run in collect(config, cache).runs)
    return first, second


def _rows(dataset: Dataset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    frame = dataset.frame([*INPUTS, "lqd_drop"])
    return frame[list(INPUTS)].to_numpy(np.int64), frame["lqd_drop"].to_numpy(np.bool_)


def _name(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _parameters(size: tuple[int, int]) -> dict[str, int | str]:
    return {"n_estimators": size[0], "max_depth": size[1], "max_features": "sqrt", "random_state": 1}


def _write_forest(
    folder: Path,
    size: tuple[int, int],
    training: Dataset,
    x: npt.NDArray[np.int64],
    y: npt.NDArray[np.bool_],
    trial: npt.NDArray[np.int64],
) -> str:
    """Train, write our code in every form, and the rows with the model's decisions; return what tuning chooses."""
    to = folder / _name(size)
    to.mkdir()
    manifest = training.manifest
    inputs = [
        FeatureInput(n, feature(n).params(manifest.cell_bytes, manifest.average_shift), feature(n).bits) for n in INPUTS
    ]
    forest = RandomForest(trees=size[0], depth=size[1], seed=1).fit(x, y)
    nodes = {f"threshold_{i}": tree.tree_.threshold for i, tree in enumerate(forest.forest_.estimators_)}
    np.savez(to / "nodes.npz", **nodes)
    model = forest.to_ensemble(inputs)
    rows = {"trace": trial[: ROWS[size]], "cells": Cells.of(model).sample(ROWS[size], np.random.default_rng(1))}
    for name, points in rows.items():
        np.ascontiguousarray(points, np.int64).tofile(to / f"{name}.rows")
        model.exceeds(points).astype(np.int64).tofile(to / f"{name}.truth")
    voted = lower(model).ensemble
    for index, (_, single, batch, options) in enumerate(FORMS):
        code = to / f"ours_{index}"
        code.mkdir()
        for file, text in render_c(voted, "p", shape=single, batch=batch).items():
            (code / file).write_text(text)
        _compile(to, f"ours_{index}", _OURS.format(folder=code), *options.split())
    return _tuned(voted, x)


def _tuned(voted: Ensemble, rows: npt.NDArray[np.int64]) -> str:
    tuning = tune(candidates(voted, "p", "auto", "auto"), rows)
    return f"{tuning.single}, {tuning.batch}"


def _measure(folder: Path, size: tuple[int, int], harness: Path) -> Speeds:
    """Compile the peers' code, time all libraries in one process, and add onnxruntime's times."""
    to = folder / _name(size)
    includes = f"-I{(folder / 'emlearn_includes.txt').read_text()}"
    for peer, (_, code, type_, call) in _PEERS.items():
        _compile(to, peer, _THEIRS.format(code=code, type=type_, call=call), includes, f"-I{to}")
    libraries = [f"{peer}:{kind}" for peer, (kind, *_) in _PEERS.items()]
    libraries += [f"ours_{index}:i" for index in range(len(FORMS))]
    command = [str(harness), str(to), str(ROUNDS[size]), str(ROWS[size]), *libraries]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    titles = {f"ours_{index}": title for index, (title, *_) in enumerate(FORMS)}
    speeds: Speeds = {}
    for line in done.stdout.splitlines():
        name, call, rows, median, minimum, wrong = line.split()
        speeds[titles.get(name, name), call, rows] = Speed(float(median), float(minimum), int(wrong))
    for case, found in json.loads((to / "onnx.json").read_text()).items():
        call, rows = case.split()
        speeds["onnxruntime", call, rows] = Speed(*found["times"], found["wrong"])
    return speeds


def _table(size: tuple[int, int], speeds: Speeds, chosen: str) -> Table:
    """Times of all libraries; ratios of ours to the fastest peer whose decisions are all the model's."""
    ours = [title for title, *_ in FORMS]
    names = dict.fromkeys(name for name, _, _ in speeds)
    wrong = {name: sum(speeds[name, call, rows].wrong for call, rows in CASES) for name in names}
    for title in ours:
        if wrong[title]:
            raise SystemExit(f"{title} decides {wrong[title]} rows of {_name(size)} otherwise than the model")
    table = Table(
        title=f"{size[0]} trees of depth {size[1]}: ns per prediction, median (minimum) of {ROUNDS[size]} rounds of "
        f"{ROWS[size]:,} rows; tuned on the trace: {chosen}"
    )
    table.add_column("")
    for call, rows in CASES:
        table.add_column(f"{call}, {rows}", justify="right")
    table.add_column("wrong", justify="right")
    for name in names:
        cells = [speeds[name, call, rows] for call, rows in CASES]
        table.add_row(name, *(f"{cell.median:,.2f} ({cell.minimum:,.2f})" for cell in cells), str(wrong[name]))
    table.add_section()
    for title in ours:
        ratios = []
        for call, rows in CASES:
            exact = [speeds[name, call, rows] for name in names if name not in ours and not wrong[name]]
            mine = speeds[title, call, rows]
            medians, minima = min(peer.median for peer in exact), min(peer.minimum for peer in exact)
            ratios.append(f"{mine.median / medians:.2f} ({mine.minimum / minima:.2f})")
        table.add_row(f"{title} / fastest exact peer", *ratios, "")
    return table


def _compile(to: Path, name: str, code: str, *options: str) -> None:
    source = to / f"{name}_adapter.c"
    source.write_text(code)
    _run([*find_compiler(), *FLAGS, *options, "-o", str(to / f"{name}.so"), str(source)], "the compiler")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"{what} failed ({done.returncode})")


if __name__ == "__main__":
    main()
