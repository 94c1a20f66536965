"""Other people's logs as datasets of the store; the imports behind ``foretail collect source=...``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import metadata
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from foretail.configs.schema.network.sources import ArrivalsImport, ArtifactImport, EtalonImport, PcapImport
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.code import code_digest
from foretail.core.digest import file_digest
from foretail.core.reading import Reading as InputReading
from foretail.features.dataset.schema import Rules, Run, SwitchGeometry
from foretail.pipelines.runs.points import Report
from foretail.sim_bridge.arrivals.files import ArrivalFile, reported
from foretail.sim_bridge.imports.credence_artifact import write_artifact_rows
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.imports.etalon.survey import Survey
from foretail.sim_bridge.imports.pcap.log import read_captures
from foretail.sim_bridge.open_loop.dataset import (
    arrivals_in_bytes,
    longest_stay_ns,
    run_in_slots,
    write_open_loop_dataset,
)

AVERAGE_SHIFT = 15
"""About 33 us, the round trip over the emulator's packet path."""


def import_key(config: CollectConfig, log: Path | None, seed: int) -> dict[str, Any]:
    """Everything that an imported dataset depends on; files count by what is in them."""
    settings = asdict(getattr(config, config.source))
    if config.source == "pcap":
        for capture in settings["captures"]:
            capture["file"] = file_digest(Path(capture["file"]))
        settings["captures"].sort(key=itemgetter("port"))
        settings["table"] = file_digest(Path(config.pcap.table)) if config.pcap.table else None
    return {
        "source": config.source,
        "log_sha256": file_digest(log) if log else None,
        "settings": settings,
        "seed": seed,
        "code": code_digest(
            "sim_bridge.imports",
            *(["sim_bridge.arrivals"] if config.source == "arrivals" else []),
            write_open_loop_dataset,
        ),
    }


def import_log(
    config: CollectConfig, depends_on: Mapping[str, Any], log: Path | None, dataset: Path, report: Report
) -> dict[str, Any]:
    """Import a log as `dataset`; return the log, its hash, the packets by outcome and what was found in it.

    `depends_on` is what :func:`import_key` returned. Captures of egress ports alone are an import without a `log`.
    ForetailError if the log is not what its source says.
    """
    if log is None or config.source == "pcap":
        return _import_pcap(config.pcap, depends_on, log, dataset, report)
    sha256, seed = depends_on["log_sha256"], depends_on["seed"]
    if config.source == "etalon":
        return _import_etalon(config.etalon, log, sha256, seed, dataset, report)
    if config.source == "arrivals":
        return _import_arrivals(config.arrivals, log, sha256, seed, dataset, report)
    return _import_artifact(config.credence_artifact, log, sha256, seed, dataset, report)


def _import_pcap(
    settings: PcapImport, depends_on: Mapping[str, Any], path: Path | None, dataset: Path, report: Report
) -> dict[str, Any]:
    ports, rates, shift = settings.ports or 0, settings.port_rates_bps, settings.features.average_shift
    log = read_captures(
        path,
        {capture.port: Path(capture.file) for capture in sorted(settings.captures, key=attrgetter("port"))},
        Path(settings.table) if settings.table else None,
        ports,
        mtu_bytes=settings.mtu_bytes,
        sort=settings.sort,
        without_copies=settings.copies == "leave_out",
        report=lambda packets: report(0.0, f"{packets:,} packets read"),
    )
    files = depends_on["settings"]
    run = Run(
        # as of an Etalon log: nothing of the buffer
        scenario={
            "name": "pcap",
            "source": "pcap",
            "log_sha256": depends_on["log_sha256"],
            "captures_sha256": {str(capture["port"]): capture["file"] for capture in files["captures"]},
            "table_sha256": files["table"],
            "open_loop": True,
            "drops_visible": path is not None,
            "topology": {"wire_overhead_bytes": settings.wire_overhead_bytes},
        },
        policy={"name": "lqd", "fate_times": "upper_bounds"},
        seed=depends_on["seed"],
        switches=(SwitchGeometry(ports, settings.buffer_bytes or 0, tuple(rates * (ports if len(rates) == 1 else 1))),),
        rules=Rules(**asdict(settings.rules)),
        cell_bytes=settings.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
        versions={"foretail": metadata.version("foretail")},
    )
    arrivals = log.arrivals(_reporting(report, len(log.port), 0.5, 0.5, "replayed"))
    counters = write_open_loop_dataset(dataset, run, arrivals)
    return {
        "log": str(path.absolute()) if path else None,
        "log_sha256": depends_on["log_sha256"],
        "counters": counters,
        "survey": log.figures() | {"longest_stay_ns": longest_stay_ns(run)},
    }


def _import_etalon(
    settings: EtalonImport, path: Path, sha256: str, seed: int, dataset: Path, report: Report
) -> dict[str, Any]:
    reading = Reading(
        record_bytes=settings.record_bytes,
        time_dilation=settings.time_dilation,
        position="before" if settings.position == "before" else "after",
        latency_dilated=settings.latency_dilated,
        racks=settings.racks,
        packet_delay_ns=settings.packet_delay_ns,
        circuit_delay_ns=settings.circuit_delay_ns,
        day_ns=settings.day_ns,
        voq_packets=settings.voq_packets,
    )
    log = EtalonLog.open(path, reading)
    survey = log.survey(_reporting(report, log.records, 0.0, 0.3, "checked"))
    rates = _port_rates(settings, survey)
    shift = settings.features.average_shift
    run = Run(
        # what the traffic depends on, and nothing of the buffer: splits keep the same traffic on one side
        scenario={
            "name": "etalon",
            "source": "etalon",
            "log_sha256": sha256,
            "record_bytes": log.layout.itemsize,
            "time_dilation": reading.time_dilation,
            "position": reading.position,
            "latency_dilated": reading.latency_dilated,
            "open_loop": True,
            "drops_visible": reading.position == "before",
            "topology": {"wire_overhead_bytes": 0},
        },
        policy={
            "name": "lqd",
            "port_rates": "configured" if settings.port_rate_bps is not None else "mean_of_packet_share_and_circuit",
            "fate_times": "upper_bounds",
        },
        seed=seed,
        switches=tuple(SwitchGeometry(len(of_rack), settings.buffer_bytes, of_rack) for of_rack in rates),
        rules=Rules(**asdict(settings.rules)),
        cell_bytes=settings.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
        versions={"foretail": metadata.version("foretail")},
    )
    guesses = (
        f"records have {log.layout.itemsize} bytes (etalon.record_bytes)",
        f"there are {survey.racks} racks (etalon.racks)",
        f"wall time is {reading.time_dilation} times virtual time (etalon.time_dilation)",
    )
    InputReading(str(path), guesses=guesses).tell()
    arrivals = log.arrivals(survey, _reporting(report, log.records, 0.3, 0.7, "replayed"))
    counters = write_open_loop_dataset(dataset, run, arrivals)
    return {
        "log": str(path.absolute()),
        "log_sha256": sha256,
        "counters": counters,
        "survey": survey.figures() | {"records": log.records, "longest_stay_ns": longest_stay_ns(run)},
    }


def _port_rates(settings: EtalonImport, survey: Survey) -> tuple[tuple[int, ...], ...]:
    """Rates of the ports of every source rack's switch: fixed, where the emulator's come and go with the circuit."""
    racks = range(1, survey.racks + 1)

    def rate(source: int, destination: int) -> int:
        if settings.port_rate_bps is not None:
            return settings.port_rate_bps
        circuit_bps = settings.circuit_link_bps * survey.circuit_share(source, destination)
        return round(settings.packet_link_bps / (survey.racks - 1) + circuit_bps)

    return tuple(tuple(rate(source, end) for end in racks if end != source) for source in racks)


def _import_artifact(
    settings: ArtifactImport, path: Path, sha256: str, seed: int, dataset: Path, report: Report
) -> dict[str, Any]:
    run = Run(
        scenario={"name": "credence_artifact", "source": "credence_artifact", "log_sha256": sha256},
        policy={"name": "lqd"},
        seed=seed,
        switches=(SwitchGeometry(settings.ports, settings.buffer_bytes, (settings.port_rate_bps,) * settings.ports),),
        rules=Rules("uncounted", "lowest_port", "tail"),
        cell_bytes=1,  # bytes
        average_shift=0,  # the artifact's averages have no shift; its feature definitions say whose they are
        versions={"foretail": metadata.version("foretail")},
    )
    write_artifact_rows(dataset, run, path, lambda rows: report(0.0, f"{rows:,} rows"))
    return {"log": str(path.absolute()), "log_sha256": sha256, "counters": {}, "survey": {}}


def _import_arrivals(
    settings: ArrivalsImport, path: Path, sha256: str, seed: int, dataset: Path, report: Report
) -> dict[str, Any]:
    assert settings.ports is not None and settings.buffer is not None  # noqa: PT018
    file, shift = ArrivalFile(path), settings.features.average_shift
    run = run_in_slots(
        {"name": "arrivals", "source": "arrivals", "log_sha256": sha256},
        settings.ports,
        settings.buffer,
        seed,
        cell_bytes=settings.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
    )
    batches = reported(file.batches(settings.ports, only_required=True), file, report)
    counters = write_open_loop_dataset(dataset, run, arrivals_in_bytes(batches))
    return {"log": str(path.absolute()), "log_sha256": sha256, "counters": counters, "survey": {}}


def _reporting(report: Report, records: int, begin: float, share: float, done: str) -> Callable[[int], None]:
    return lambda read: report(begin + share * read / records, f"{read:,} of {records:,} records {done}")
