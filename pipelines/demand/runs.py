"""The runs of demand that ``foretail demand`` trains on and scores: generated, of datasets, or of logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import (
    DemandSequence,
    Racks,
    SequenceSplit,
    carried_demand,
    is_etalon,
    logged_demand,
    offered_demand,
    refuse_large,
    split_sequences,
)
from foretail.features.records import FLOW_DTYPE, read_records
from foretail.features.rows.splits import SIDES, listed_sides
from foretail.pipelines.data.inputs import open_datasets, split_datasets
from foretail.sim_bridge.circuits.demand import JOBS, mixed, repeated

DATASETS, LOGS = "datasets", "logs"
GENERATED_INTERVAL_NS = 1
"""Generated demand has no time, only steps."""
GENERATED_STEPS = 24


def demand_runs(config: DemandConfig) -> dict[str, SequenceSplit]:
    """The runs by workload."""
    if config.logs:
        return {LOGS: _of_logs(config)}
    if config.interval_ns is not None:  # generated demand has none
        return {DATASETS: _of_datasets(config, config.interval_ns)}
    seeds = config.split.all_seeds
    return {
        name: _split({seed: generated(name, seed, config) for seed in seeds}, config.split)
        for name in config.collectives
    }


def _split(runs: Mapping[int, DemandSequence], split: Split) -> SequenceSplit:
    """The split of runs that have these numbers."""
    if split.name == "drawn":
        return split_sequences(tuple(runs.values()), split.validation_fraction, split.test_fraction, split.seed)
    sides = listed_sides(split.train, split.validation, split.test, runs)
    return SequenceSplit(**{side: tuple(runs[number] for number in sorted(of)) for side, of in sides.items()})


def _of_datasets(config: DemandConfig, interval_ns: int) -> SequenceSplit:
    split = split_datasets(config.split, open_datasets(config.datasets))
    return SequenceSplit(
        **{side: tuple(_recorded(item.dataset, config, interval_ns) for item in getattr(split, side)) for side in SIDES}
    )


def _of_logs(config: DemandConfig) -> SequenceSplit:
    steps = Steps(config.interval_ns, config.uplink_bps, config.steps, config.racks)
    runs = read_demand_logs([Path(path) for path in config.logs], steps)
    try:
        return _split(dict(enumerate(runs, 1)), config.split)
    except ForetailError as error:
        hint = "" if config.split.name == "drawn" else ", or give split=drawn"
        raise ForetailError(f"of the logs' runs, numbered 1 to {len(runs)}, {error}{hint}") from None


def generated(name: str, seed: int, config: DemandConfig) -> DemandSequence:
    """The collectives of one run; two that are mixed are placed and disturbed each on its own."""
    jobs = name.split("+")
    run, steps = f"{name}, seed {seed}", GENERATED_STEPS if config.steps is None else config.steps
    refuse_large(run, steps, config.nodes)
    parts = [
        repeated(
            JOBS[job](config.nodes, config.degree, config.job_seed),
            steps,
            GENERATED_INTERVAL_NS,
            run,
            len(jobs) * seed + position,
            placed_at_random=config.placed_at_random,
            noise=config.noise,
        )
        for position, job in enumerate(jobs)
    ]
    return parts[0] if len(parts) == 1 else mixed(parts[0], parts[1], config.mixture_period_steps, run)


def _recorded(dataset: Dataset, config: DemandConfig, interval_ns: int) -> DemandSequence:
    if is_etalon(dataset):
        if config.uplink_bps is None or config.demand != "carried":
            raise ForetailError(
                f"{dataset.path} is a packet log of Etalon, which knows no flows and no uplinks of one rate: give "
                "demand=carried and uplink_bps=..."
            )
        return logged_demand(dataset, config.uplink_bps, interval_ns, config.steps)
    if config.uplink_bps is not None:
        raise ForetailError(f"{dataset.path} is an ns-3 run and knows its uplinks: leave uplink_bps out")
    if config.demand == "carried":
        return carried_demand(dataset, interval_ns, config.steps)
    dataset.require_trace()
    flows = read_records(dataset.path / "run" / "flows.bin", FLOW_DTYPE)
    run = f"{dataset.path.name}, seed {dataset.manifest.seed}"
    return offered_demand(flows, Racks.of_trace(dataset), interval_ns, config.steps, run)
