"""Replays in bytes: what every policy sends of a recorded trace, what predictions pay, which push-outs were free."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.open_loop.replay import compare_replays
from foretail.sim_bridge.policy_settings import NetworkParameters
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.packets import POLICIES
from tests.fingerprints.place import Place
from tests.fingerprints.traces import slotted_dataset
from tests.traces import write_bursts


def replayed(dataset: Dataset, parameters: str) -> Iterator[Fingerprint]:
    """Yield what policies send when a tenth of the true labels are flipped."""
    frame = dataset.frame(["lqd_drop"])
    wrong = np.random.default_rng(1).random(len(frame)) < 0.1
    told = frame["lqd_drop"].to_numpy() ^ wrong
    found = compare_replays(dataset, POLICIES, told, parameters=NetworkParameters(alpha=0.75, first_rtt_alpha=16.0))
    counts = {policy: {"packets": found.transmitted[policy], "bytes": found.scored[policy]} for policy in POLICIES}
    yield Fingerprint("sent", parameters, fingerprint(counts))
    offered = {"packets": found.arrivals, "bytes": found.arrived_bytes}
    worth = {f"{name}_bytes": count for name, count in vars(found.scores).items()}
    yield Fingerprint("predictions", parameters, fingerprint((offered, worth, found.eta, found.recovered_loss)))


def simulated(place: Place) -> Iterator[Fingerprint]:
    for policy in ("lqd", "dt"):
        parameters = parameters_text(source="ns3", recorded=policy, seed=1)
        yield from replayed(place.dataset(policy__name=policy), parameters)


def open_loop(place: Place) -> Iterator[Fingerprint]:
    for name, dataset in (
        ("bursts", write_bursts(place.folder() / "dataset", 1)),
        ("slotted incast", slotted_dataset(place, "incast")),
    ):
        yield from replayed(dataset, parameters_text(source=name, seed=1))


GROUPS = (Group("replay", "simulated", simulated, ns3=True), Group("replay", "open loop", open_loop))
