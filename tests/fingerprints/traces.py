"""Datasets of ns-3, of workloads in slots and of other people's logs: their values, and the bytes of their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import SwitchGeometry
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, workload_of
from foretail.sim_bridge.imports.credence_artifact import COLUMNS, write_artifact_rows
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from tests.etalon_logs import emulate, write_etalon_log
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.place import Place
from tests.traces import ARTIFACT, RUN, write_bursts


def seen(dataset: Dataset, parameters: str) -> Iterator[Fingerprint]:
    """Yield the values of a dataset, and its content hash, which pyarrow's version moves as well."""
    manifest = dataset.manifest
    arrivals = list(dataset.arrivals()) if dataset.is_trace else []
    yield Fingerprint("values", parameters, fingerprint(dataset.frame(), arrivals))
    counts = (manifest.rows, manifest.drops, manifest.control_rows)
    yield Fingerprint("content_sha256", parameters, fingerprint(manifest.content_sha256, counts))


def simulated(place: Place) -> Iterator[Fingerprint]:
    for policy in ("lqd", "dt"):
        for seed in (1, 2):
            yield from seen(
                place.dataset(policy__name=policy, seed=seed), parameters_text(source="ns3", policy=policy, seed=seed)
            )
    for victim in ("tail_kept", "head", "random"):
        yield from seen(
            place.dataset(rules__victim=victim), parameters_text(source="ns3", policy="lqd", seed=1, victim=victim)
        )


def slotted_dataset(place: Place, workload: str, seed: int = 1) -> Dataset:
    """Return 2000 slots of a workload as a dataset: 8 ports, 20 packets of buffer for each."""
    path = place.folder() / "dataset"
    made = workload_of(workload, {"fan_in": 4} if workload == "incast" else {})
    run = slotted_run(made, 8, 20, 2000, seed, cell_bytes=1024)
    write_open_loop_dataset(path, run, arrivals_in_bytes(made.batches(8, 160, 2000, seed, batch_packets=5000)))
    return Dataset.open(path)


def slotted(place: Place) -> Iterator[Fingerprint]:
    for workload in WORKLOADS:
        yield from seen(slotted_dataset(place, workload), parameters_text(source="slotted", workload=workload, seed=1))


def made_up(place: Place) -> Iterator[Fingerprint]:
    for seed in (1, 2):
        yield from seen(write_bursts(place.folder() / "dataset", seed), parameters_text(source="bursts", seed=seed))


def etalon(place: Place) -> Iterator[Fingerprint]:
    packets, events = emulate(racks=4, weeks=6, load=0.9, voq_packets=50, seed=1)
    for record_bytes, time_dilation in ((116, 20), (112, 20), (116, 1)):
        folder = place.folder()
        write_etalon_log(folder / "log", packets, events, record_bytes=record_bytes, time_dilation=time_dilation)
        parameters = parameters_text(source="etalon", record_bytes=record_bytes, time_dilation=time_dilation)
        yield Fingerprint("log", parameters, fingerprint((folder / "log").read_bytes()))
        log = EtalonLog.open(folder / "log", Reading(record_bytes=record_bytes, time_dilation=time_dilation))
        survey = log.survey()
        run = replace(
            RUN,
            scenario={"name": "etalon", "topology": {"wire_overhead_bytes": 0}},
            switches=(SwitchGeometry(3, 60_000, (3 * 10**9,) * 3),) * survey.racks,
        )
        write_open_loop_dataset(folder / "dataset", run, log.arrivals(survey))
        yield from seen(Dataset.open(folder / "dataset"), parameters)


def artifact(place: Place) -> Iterator[Fingerprint]:
    folder = place.folder()
    random = np.random.default_rng(6)
    rows = np.concatenate([random.integers(0, 10**6, (5000, 4)), random.integers(0, 2, (5000, 1))], axis=1)
    rows[:, 0:3:2].sort(axis=1)  # no queue is longer than what the buffer holds
    text = "\n".join([" ".join(COLUMNS), *(" ".join(map(str, row)) for row in rows.tolist())]) + "\n"
    (folder / "log").write_text(text, encoding="ascii")
    write_artifact_rows(folder / "dataset", ARTIFACT, folder / "log")
    yield from seen(Dataset.open(folder / "dataset"), parameters_text(source="credence_artifact", seed=1))


GROUPS = (
    Group("datasets", "simulated", simulated, ns3=True),
    Group("datasets", "slotted", slotted),
    Group("datasets", "made up", made_up),
    Group("datasets", "etalon", etalon),
    Group("datasets", "artifact", artifact),
)
