"""Packets in ns-3 and in the native network: every arrival, flow and buffer, and the counters of the switches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from foretail.export.c.target import C
from foretail.export.target import export
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.ns3.messages import collective, columns, elephants, joined
from foretail_studies.networks.differences import OF_THE_MACHINE
from foretail_studies.networks.referees import NATIVE, RefereeCase
from tests.composed import experiment_settings
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.drawn import drawn_ensemble
from tests.fingerprints.place import Place
from tests.forests import PAPER_INPUTS
from tests.scenarios import MILLISECOND

POLICIES = (
    *("cs", "cp", "dt", "harmonic", "abm", "reverie", "occamy"),
    *("lqd", "followlqd", "credence", "credence_artifact"),
)


def seen(place: Place, parameters: str, **changes: Any) -> Iterator[Fingerprint]:
    """Yield the records of one run; its arrivals come with the labels and the features."""
    run = place.run(**changes)
    yield Fingerprint("arrivals", parameters, fingerprint(place.arrivals(**changes)))
    yield Fingerprint("flows", parameters, fingerprint(run.flows()))
    yield Fingerprint("occupancy", parameters, fingerprint(run.occupancy()))


def at_once(place: Place, **changes: Any) -> str:
    """Return one hash of all records of a run and of its counters."""
    run = place.run(**changes)
    # how long it took, and with which ns-3, is not a result
    no_result = {"ns3_version", *(name for name in run.summary if name.endswith("seconds"))}
    counters = {name: value for name, value in run.summary.items() if name not in no_result}
    return fingerprint(place.arrivals(**changes), run.flows(), run.occupancy(), counters)


def policies(place: Place) -> Iterator[Fingerprint]:
    for policy in POLICIES:
        for seed in (1, 2):
            yield from seen(place, parameters_text(policy=policy, seed=seed), policy__name=policy, seed=seed)


def transports(place: Place) -> Iterator[Fingerprint]:
    for transport in ("cubic", "newreno", "theta_powertcp", "timely", "powertcp", "hpcc"):
        for policy in ("lqd", "dt"):
            yield from seen(
                place,
                parameters_text(transport=transport, policy=policy, seed=1),
                transport__name=transport,
                policy__name=policy,
            )
    for transport, background in (("dctcp", "cubic"), ("cubic", "newreno")):
        yield from seen(
            place,
            parameters_text(transport=transport, background=background, policy="abm", seed=3),
            transport__name=transport,
            transport__background_name=background,
            policy__name="abm",
            seed=3,
        )


def rules(place: Place) -> Iterator[Fingerprint]:
    for rule, value in (
        *(("victim", victim) for victim in ("tail_kept", "head", "random")),
        ("counting", "uncounted"),
        ("tie", "highest_port"),
    ):
        found = at_once(place, **{f"rules__{rule}": value})
        yield Fingerprint("records and counters", parameters_text(policy="lqd", seed=1, **{rule: value}), found)


OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("credence, a tenth of the predictions flipped", {"policy__name": "credence", "policy__flip_probability": 0.1}),
    (
        "abm, an alpha of its own for incasts",
        {"policy__name": "abm", "policy__incast_alpha": 4.0, "queues__count": 2, "queues__incast": 1},
    ),
    (
        "lqd, incast before background, lower classes first",
        {
            "queues__count": 2,
            "queues__background": 1,
            "queues__scheduler": "strict",
            "rules__order": "lower_classes_first",
        },
    ),
    (
        "credence, deficit round robin",
        {
            "policy__name": "credence",
            "queues__count": 3,
            "queues__background": 1,
            "queues__incast": 2,
            "queues__scheduler": "deficit_round_robin",
            "queues__quantum_bytes": [1500, 3000, 1500],
        },
    ),
    ("dt, alpha 2", {"policy__name": "dt", "policy__alpha": 2.0}),
    ("anyone to anyone", {"background__destinations": "other_leaves", "incast__responders": "other_leaves"}),
    ("slow start, delayed acknowledgements", {"transport__slow_start": True, "transport__delayed_ack_segments": 2}),
    ("connections made on demand", {"incast__connect_ahead_ns": 0}),
    ("cells of 64 bytes, averages over 1 us", {"features__cell_bytes": 64, "features__average_shift": 10}),
    ("small buffers", {"topology__buffer_bytes_per_port_per_gbps": 2000}),
    ("no incasts", {"incast__queries_per_second_per_server": 0.0}),
)


def options(place: Place) -> Iterator[Fingerprint]:
    for name, changes in OPTIONS:
        yield Fingerprint("records and counters", name, at_once(place, **changes))


def messages(place: Place) -> Iterator[Fingerprint]:
    """Elephants, collectives, and queries that share connections and come in clusters, with background flows."""
    peers = [[(server + 4) % 8, (server + 1) % 8] for server in range(8)]
    traffic = 2 * MILLISECOND
    bursts = elephants(peers, 2, 100_000, 50_000, link_bps=10**10, traffic_ns=traffic, seed=1)
    ring, all_pairs = (
        collective(kind, [servers], 100_000, repeat=2, compute_ns=10_000, traffic_ns=traffic, seed=1)
        for kind, servers in (("ring_all_reduce", [0, 4, 1, 5]), ("all_to_all", [2, 6, 3]))
    )
    for name, rows in (
        ("elephants", bursts),
        ("ring all-reduce", joined(ring)),
        ("all to all", joined(all_pairs)),
        ("all at once", joined(bursts, ring, all_pairs)),
    ):
        listed = hashlib.sha256(json.dumps(columns(rows), sort_keys=True).encode()).hexdigest()
        yield Fingerprint("messages", name, listed[:24])
        for transport in ("dctcp", "cubic", "powertcp"):
            changes = {"messages": columns(rows), "transport__name": transport, "background__load": 0.3}
            yield from seen(place, f"{name}, {transport}", **changes, topology__buffer_bytes_per_port_per_gbps=1280)
    for connections, size in (("new", 4.0), ("reused", 1.0), ("reused", 4.0)):
        changes = {"incast__connections": connections, "incast__cluster_size": size, "incast__cluster_gap_ns": 50_000}
        yield from seen(place, parameters_text(connections=connections, cluster_size=size), **changes)


def exported_predictor(place: Place) -> Iterator[Fingerprint]:
    """A predictor in C inside the switch, at three thresholds: it accepts nearly all, some, nearly nothing."""
    exported = export(drawn_ensemble(PAPER_INPUTS, seed=5, narrow=10), C(), place.folder() / "export")
    for tau in (None, 0, 10**6):
        run = place.run(
            policy__name="credence",
            policy__predictor="library",
            policy__library=str(exported.file(".so")),
            policy__tau=tau,
        )
        yield Fingerprint("flows", parameters_text(tau=tau), fingerprint(run.flows()))


def scenarios(place: Place) -> Iterator[Fingerprint]:
    """The scenarios of ``foretail run referees`` in the native network, byte for byte."""
    settings = experiment_settings("referees", "size=small")
    for name in settings.scenarios:
        document = settings.document(RefereeCase(name, settings.seeds[0], NATIVE))
        run = run_native({**document, "trace": True}, place.folder())
        files = {path.name: path.read_bytes() for path in run.folder.glob("*.bin")}
        counters = {name: value for name, value in run.summary.items() if name not in OF_THE_MACHINE}
        yield Fingerprint("files and counters", name, fingerprint(files, counters))


GROUPS = (
    Group("ns3", "policies", policies, ns3=True),
    Group("ns3", "transports", transports, ns3=True),
    Group("ns3", "rules", rules, ns3=True),
    Group("ns3", "options", options, ns3=True),
    Group("ns3", "messages", messages, ns3=True),
    Group("ns3", "exported predictor", exported_predictor, ns3=True),
    Group("native", "scenarios", scenarios),
)
