"""The slotted model: arrivals of every workload, what every policy sends, labels, features, what predictions pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from foretail.features.dataset.schema import Rules
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, workload_of
from foretail.sim_bridge.open_loop.slotted import SlottedComparison, compare, flipped, labelled, perfect
from foretail.sim_bridge.policies import KNOW_PRIORITIES
from foretail.sim_bridge.policy_settings import SlotParameters
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.packets import POLICIES
from tests.fingerprints.place import Place

SWITCHES = ((8, 160), (16, 64))
SLOTS = 3000


def batches(workload: str, ports: int, buffer: int, seed: int = 1) -> list[Slotted]:
    """Return the arrivals in three batches or so, so that labels change after their batch."""
    settings = {"fan_in": ports // 2} if workload == "incast" else {}
    return list(workload_of(workload, settings).batches(ports, buffer, SLOTS, seed, batch_packets=10_000))


def with_classes(batch: Slotted) -> Slotted:
    """Return the arrivals with two priorities and first round trips."""
    random = np.random.default_rng(len(batch))
    first_rtt, priority = random.integers(0, 2, (2, len(batch)), np.uint8)
    return Slotted(batch.slot, batch.port, None, first_rtt, priority)


def figures(found: SlottedComparison) -> str:
    """Return the fingerprint of what a comparison says of predictions."""
    counts = (found.optimum, found.lqd, found.followlqd, found.accept)
    return fingerprint(found.eta, found.recovered_loss, counts, found.whole, found.asked)


def workloads(place: Place) -> Iterator[Fingerprint]:
    for workload in WORKLOADS:
        for ports, buffer in SWITCHES:
            arrivals = batches(workload, ports, buffer)
            parameters = parameters_text(workload=workload, N=ports, B=buffer, seed=1)
            predictions = flipped(0.1, seed=4)
            found = compare(arrivals, ports, buffer, POLICIES, predictions, optimum=True)
            yield Fingerprint("arrivals", parameters, fingerprint([vars(batch) for batch in arrivals]))
            yield Fingerprint("sent and predictions", parameters, fingerprint(found.transmitted, figures(found)))


def policies(place: Place) -> Iterator[Fingerprint]:
    """Two priorities, first round trips, and parameters other than the defaults; each policy by itself."""
    arrivals = [with_classes(batch) for batch in batches("on_off", 8, 24)]
    parameters = SlotParameters(alpha=[1.0, 0.25], first_rtt_alpha=8.0, rtt_slots=10, low_pass_slots=64)
    found = compare(arrivals, 8, 24, POLICIES, perfect, parameters=parameters, seed=2)
    for policy in POLICIES:
        yield Fingerprint("sent", parameters_text(policy=policy, priorities=2), fingerprint(found.transmitted[policy]))
    for scheduler, quanta in (("strict", []), ("deficit_round_robin", [3, 1])):
        rules = Rules("counted", "lowest_port", "tail", "lower_classes_first")
        chosen = replace(parameters, scheduler=scheduler, quanta=quanta)
        found = compare(arrivals, 8, 24, POLICIES, perfect, rules=rules, parameters=chosen, seed=2)
        sent = {policy: found.transmitted[policy] for policy in POLICIES if policy in KNOW_PRIORITIES}
        yield Fingerprint("sent", parameters_text(scheduler=scheduler, order=rules.order), fingerprint(sent))


def rules(place: Place) -> Iterator[Fingerprint]:
    arrivals = batches("on_off", 8, 80)
    for chosen in (
        Rules("counted", "lowest_port", "tail"),
        Rules("counted", "lowest_port", "tail_kept"),
        Rules("counted", "highest_port", "head"),
        Rules("uncounted", "lowest_port", "random"),
        Rules("uncounted", "highest_port", "tail"),
    ):
        parameters = parameters_text(counting=chosen.counting, tie=chosen.tie, victim=chosen.victim)
        found = list(labelled(arrivals, 8, 80, chosen, features=True, seed=3, cell_bytes=1024))
        yield Fingerprint("labels", parameters, fingerprint([batch.lqd_drop for batch in found]))
        yield Fingerprint("features", parameters, fingerprint([batch.features for batch in found]))
        told = flipped(0.05, seed=1)
        compared = compare(arrivals, 8, 80, POLICIES, told, rules=chosen, seed=3)
        yield Fingerprint("sent", parameters, fingerprint(compared.transmitted))


GROUPS = (
    Group("slotted", "workloads", workloads),
    Group("slotted", "policies", policies),
    Group("slotted", "rules", rules),
)
