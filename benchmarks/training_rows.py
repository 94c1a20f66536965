"""Training on many rows: in memory, streamed, with bins in files, and sampled, each in a process of its own.

The rows are those of a switch with 20 ports under LQD: incasts of a full buffer over random background, other ones in
every dataset. All ways learn from two datasets, read several times, get their threshold on a third and are scored on a
fourth.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from foretail.features.catalog import PAPER_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, Run, SwitchGeometry
from foretail.features.rows.labelled_rows import Sampling, read_rows, row_batches
from foretail.features.rows.splits import Selection, Side, Split
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.forest import RandomForest
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.training.scores import Labelled, judge_side
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, write_open_loop_dataset

PORTS, BUFFER_PACKETS, PACKET_BYTES, PORT_BPS = 20, 1000, 1000, 10**10
TRAFFIC = Incast(load=0.02, background_load=0.5, burst_fraction=1.0)
SLOTS = {"small": 25_000, "full": 500_000}
REPEATS = {"small": 2, "full": 10}
"""How often the two datasets for training are used, each with about ten packets a slot: 1 and 100 million rows."""
SEEDS = (1, 2, 3, 4)
OTHERS = 0.05
Figures = dict[str, float]


def main(size: str) -> None:
    """Print seconds, peak memory and scores of every way."""
    table = Table(title=f"training on {PORTS} ports, 4 trees of depth 4, 1 thread")
    for heading in ("", "rows", "seconds", "rows/s", "peak MB", "F1 whole", "F1 asked", "to in memory"):
        table.add_column(heading, justify="right" if heading else "left")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        with multiprocessing.get_context("spawn").Pool() as pool:
            rows, peaks = zip(*pool.starmap(_write, [(folder, seed, SLOTS[size]) for seed in SEEDS], 1), strict=True)
        written = {"rows": sum(rows), "seconds": time.monotonic() - started, "peak_mb": max(peaks)}
        table.add_row("datasets written, in a process per core", *_cells(written))
        measured = {way: _in_process(_train, way, folder, REPEATS[size]) for way in WAYS}
        f1 = measured["boosted trees, in memory"]["asked"]
        for way, figures in measured.items():
            scores = (f"{figures['whole']:.4f}", f"{figures['asked']:.4f}", f"{figures['asked'] - f1:+.4f}")
            table.add_row(way, *_cells(figures), *scores)
        table.add_row("judging the training rows", *_cells(_in_process(_judge, folder, REPEATS[size])))
    Console(width=140).print(table)


def _cells(figures: Figures) -> tuple[str, ...]:
    rows, seconds = figures["rows"], figures["seconds"]
    return f"{rows:,.0f}", f"{seconds:.1f}", f"{rows / seconds:,.0f}", f"{figures['peak_mb']:,.0f}"


def _in_process(work: Callable[..., Figures], *arguments: Any) -> Figures:
    """Call `work` in a fresh process, whose peak memory is that of nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _measured(rows: int, started: float) -> Figures:
    return {"rows": rows, "seconds": time.monotonic() - started, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _write(folder: Path, seed: int, slots: int) -> tuple[int, float]:
    """Write a dataset; return its rows and the most memory of the process so far."""
    run = Run(
        scenario={"name": "incast", "topology": {"wire_overhead_bytes": 0}},
        policy={"name": "lqd"},
        seed=seed,
        switches=(SwitchGeometry(PORTS, BUFFER_PACKETS * PACKET_BYTES, (PORT_BPS,) * PORTS),),
        rules=Rules("counted", "lowest_port", "tail"),
        cell_bytes=256,
        average_shift=15,
        versions={},
    )
    batches = TRAFFIC.batches(PORTS, BUFFER_PACKETS, slots, seed)
    arrivals = arrivals_in_bytes(batches, PACKET_BYTES, 8 * 10**9 * PACKET_BYTES // PORT_BPS)
    packets = write_open_loop_dataset(folder / str(seed), run, arrivals)["data_packets"]
    return packets, _peak_mb()


def _labelled(folder: Path, repeats: int) -> Labelled:
    one, other, validation, test = (Selection(Dataset.open(folder / str(seed), verify=False)) for seed in SEEDS)
    split = Split((one, other) * repeats, (validation,), (test,))
    return Labelled.of(split, PAPER_FEATURES, own_queues=False)


def _in_memory(predictor: TreePredictor, side: Side, columns: tuple[str, ...]) -> None:
    rows = read_rows(side, columns)
    predictor.fit(rows.x, rows.lqd_drop)


def _streamed(predictor: TreePredictor, side: Side, columns: tuple[str, ...]) -> None:
    predictor.fit_batches(lambda: row_batches(side, columns), sum(item.count() for item in side))


def _in_files(predictor: TreePredictor, side: Side, columns: tuple[str, ...]) -> None:
    predictor.set_params(rows_in_memory=1)
    _streamed(predictor, side, columns)


def _sampled(predictor: TreePredictor, side: Side, columns: tuple[str, ...]) -> None:
    sampling = Sampling(OTHERS)
    predictor.fit_batches(lambda: row_batches(side, columns, sampling), sum(item.count() for item in side))


WAYS: dict[str, tuple[type[TreePredictor], Callable[[TreePredictor, Side, tuple[str, ...]], None]]] = {
    "boosted trees, in memory": (BoostedTrees, _in_memory),
    "boosted trees, streamed": (BoostedTrees, _streamed),
    "boosted trees, streamed, bins in files": (BoostedTrees, _in_files),
    f"boosted trees, streamed, {OTHERS} of the others": (BoostedTrees, _sampled),
    f"random forest, {OTHERS} of the others": (RandomForest, _sampled),
}


def _train(way: str, folder: Path, repeats: int) -> Figures:
    labelled = _labelled(folder, repeats)
    kind, fit = WAYS[way]
    predictor, started = kind(), time.monotonic()
    fit(predictor, labelled.split.train, labelled.columns)
    measured = _measured(sum(item.count() for item in labelled.split.train), started)
    ensemble = predictor.to_ensemble(labelled.inputs)
    validation = read_rows(labelled.split.validation, labelled.columns)
    point = choose_operating_point(ensemble, validation.x, validation.lqd_drop)
    ensemble = ensemble.with_threshold(point.threshold)
    ensemble.save(folder / "ensemble.json")
    judged = judge_side(ensemble, labelled.split.test, labelled.columns).scores(labelled.ports)
    return measured | {region: float(scores["f1"] or 0) for region, scores in judged.items()}


def _judge(folder: Path, repeats: int) -> Figures:
    labelled, started = _labelled(folder, repeats), time.monotonic()
    judged = judge_side(Ensemble.load(folder / "ensemble.json"), labelled.split.train, labelled.columns)
    judged.scores(labelled.ports)
    return _measured(len(judged.lqd_drop), started)
