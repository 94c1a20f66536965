"""The runs of demand that ``foretail demand`` trains on and scores: generated, of datasets, or of logs."""

from __future__ import annotations

from foretail.configs.schema import DemandConfig
from foretail.features.dataset import Dataset
from foretail.features.demand_sequences import DemandSequence, Racks, SequenceSplit, carried_demand, offered_demand
from foretail.features.records import FLOW_DTYPE, read_records
from foretail.features.splits import SIDES, split_by_seed
from foretail.pipelines.inputs import open_datasets
from foretail.pipelines.validation import roles
from foretail.sim_bridge.fabric.sequences import JOBS, mixed, repeated

DATASETS = "datasets"
GENERATED_INTERVAL_NS = 1
"""Generated demand has no time, only steps."""


def demand_runs(config: DemandConfig) -> dict[str, SequenceSplit]:
    """The runs by workload; only datasets have an interval."""
    if config.interval_ns is None:
        sides = [seeds for _, seeds in roles(config.split)]
        return {
            name: SequenceSplit(*(tuple(_generated(name, seed, config) for seed in seeds) for seeds in sides))
            for name in config.collectives
        }
    datasets = open_datasets(config.datasets)
    found = split_by_seed(datasets, config.split.train, config.split.validation, config.split.test)
    recorded = [
        tuple(_recorded(item.dataset, config.demand, config.interval_ns, config.steps) for item in getattr(found, side))
        for side in SIDES
    ]
    return {DATASETS: SequenceSplit(*recorded)}


def _generated(name: str, seed: int, config: DemandConfig) -> DemandSequence:
    """The collectives of one run; two that are mixed are placed and disturbed each on its own."""
    jobs = name.split("+")
    run = f"{name}, seed {seed}"
    parts = [
        repeated(
            JOBS[job](config.nodes, config.degree, config.job_seed),
            config.steps,
            GENERATED_INTERVAL_NS,
            run,
            len(jobs) * seed + position,
            placed_at_random=config.placed_at_random,
            noise=config.noise,
        )
        for position, job in enumerate(jobs)
    ]
    return parts[0] if len(parts) == 1 else mixed(parts[0], parts[1], config.mixture_period_steps, run)


def _recorded(dataset: Dataset, kind: str, interval_ns: int, steps: int) -> DemandSequence:
    if kind == "carried":
        return carried_demand(dataset, interval_ns, steps)
    dataset.require_trace()
    flows = read_records(dataset.path / "run" / "flows.bin", FLOW_DTYPE)
    run = f"{dataset.path.name}, seed {dataset.manifest.seed}"
    return offered_demand(flows, Racks.of_trace(dataset), interval_ns, steps, run)
