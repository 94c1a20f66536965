"""RC3: TCP that fills idle capacity from the end of a flow at lower priorities, against TCP alone.

Mittal's thesis, chapter 2. Ten routers have one host each, not ten; a link between routers carries what even traffic at
the rate of the hosts brings. The mean round trip over pairs is that of the thesis. Flows begin with a handshake, for
the thesis prints a mean of 0.076 s, two round trips. In slow start windows grow by half a packet per packet, as where
ns-3 acknowledges every other one; rows say what doubling windows give. The thesis does not print its flow sizes: ours
are Pareto with shape 1 from 4 KB to 6 MB, with which the mean of TCP at 30 % load is the one that it prints. The sender
is not the native TCP, see studies/foretail_studies/engines/schedulers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.pipelines.runs.points import SoFar
from foretail_studies.engines.schedulers import (
    EDGES,
    Completions,
    Flows,
    HostNetwork,
    expected_reduction,
    internet2,
    poisson_flows,
    run_flows,
)
from foretail_studies.systems.system import Published, System, change_percent, published

GIGABIT, MILLISECOND = 1_000_000_000, 1_000_000
SHARE_OF_FLOWS = {"small": 0.01, "medium": 0.7}
SEGMENT_BYTES = 1460
LEAST_BYTES, MOST_BYTES = 4_000, 6_000_000


def _flows(hosts: HostNetwork, load: float, flows: int, seed: int) -> Flows:
    return poisson_flows(
        hosts,
        load=load,
        flows=flows,
        seed=seed,
        loaded_ports=hosts.core,
        shape=1.0,
        least_bytes=LEAST_BYTES,
        most_bytes=MOST_BYTES,
    )


@dataclass(frozen=True)
class Scene:
    """A row of the thesis."""

    words: str
    flows: int
    reductions: tuple[float, float]  #: of the mean FCT by RC3 as printed, by flows and by bytes, in %
    load: float = 0.3
    rate_bps: int = GIGABIT
    round_trip_ns: int = 40 * MILLISECOND
    uneven: bool = False  #: core links have rates drawn from 0.5 to 2 times that of the others
    source: str = "Figure 2.8"  #: of the reductions

    def draw(self, size: str, seed: int) -> tuple[HostNetwork, Flows]:
        """Network and flows."""
        hosts = internet2(
            1,
            edge_bps=self.rate_bps,
            host_bps=self.rate_bps,
            with_host_ports=True,
            mean_round_trip_ns=self.round_trip_ns,
        )
        if self.uneven:
            drawn = np.random.default_rng(seed).uniform(0.5, 2, len(hosts.core)) * self.rate_bps
            rates = np.where(hosts.core, drawn.astype(np.int64), hosts.network.rate_bps)
            hosts = replace(hosts, network=replace(hosts.network, rate_bps=rates))
        flows = max(int(self.flows * SHARE_OF_FLOWS[size]), 60)
        return hosts, _flows(hosts, self.load, flows, seed)

    def run(self, hosts: HostNetwork, flows: Flows, *, fills: bool | NDArray[np.bool_], **settings: Any) -> Completions:
        """Run the flows with buffers of a round trip."""
        timeout_ns = max(GIGABIT, 3 * self.round_trip_ns)
        settings = {"growth": 0.5, "timeout_ns": timeout_ns} | settings
        return run_flows(hosts, flows, fills=fills, buffer_ns=self.round_trip_ns, **settings)


_PARTIAL = "change of mean FCT in %, flows of 4 packets, half of the switches without priorities"
_WINDOWS = {f"change of mean FCT in %, initial window of {window}": window for window in (10, 50)}
_TENTH = "change of mean FCT in %, a tenth of the flows with RC3"
DEFAULT = Scene("30 % load", 24_000, (43.54, 74.35), source="Table 2.1")
SCENES = (
    Scene("10 % load", 12_000, (45.56, 78.36), 0.1),
    Scene("50 % load", 30_000, (41.44, 64.88), 0.5),
    Scene("100 Mbit/s, 40 ms", 6_000, (33.98, 36.05), rate_bps=GIGABIT // 10),
    Scene("100 Mbit/s, 400 ms", 12_000, (40.29, 77.62), rate_bps=GIGABIT // 10, round_trip_ns=400 * MILLISECOND),
    Scene("1 Gbit/s, 400 ms", 36_000, (42.45, 84.17), round_trip_ns=400 * MILLISECOND),
    Scene("uneven core links", 24_000, (45.35, 73.89), uneven=True, source="Table 2.1"),
)


def _changes(words: str, flows: Flows, rc3: Completions, tcp: Completions) -> Iterator[tuple[str, float]]:
    yield f"change of mean FCT in %, {words}", change_percent(rc3.mean_s(), tcp.mean_s())
    by_bytes = [one.mean_s(flows.size_bytes) for one in (rc3, tcp)]
    yield f"change of mean FCT by bytes in %, {words}", change_percent(*by_bytes)


def _default(size: str, seed: int) -> Iterator[tuple[str, float]]:
    """The default scene, and variants of RC3 and TCP in it."""
    hosts, flows = DEFAULT.draw(size, seed)
    run = partial(DEFAULT.run, hosts, flows)
    tcp, rc3 = run(fills=False), run(fills=True)
    for name, one in (("TCP", tcp), ("RC3", rc3)):
        yield f"mean FCT in s, {name}", one.mean_s()
        yield f"mean FCT by bytes in s, {name}", one.mean_s(flows.size_bytes)
    yield from _changes(DEFAULT.words, flows, rc3, tcp)
    yield "unfinished flows", float((tcp.fct_ns < 0).sum() + (rc3.fct_ns < 0).sum())
    kernel = run(fills=True, edges=EDGES["kernel"])
    yield from _changes("edges of the kernel against the text", flows, kernel, rc3)
    tenth, half = np.random.default_rng(seed).random(len(flows.source)) < 0.1, flows.source % 2 == 0
    without = run(fills=True, fifo=hosts.network.owner % 2 == 1)
    variants = {words: (run(fills=False, first_window=window), tcp.fct_ns >= 0) for words, window in _WINDOWS.items()}
    variants[_TENTH] = run(fills=tenth), tenth
    variants["change of mean FCT in %, TCP beside half of the hosts with RC3"] = run(fills=half), ~half
    variants[_PARTIAL] = without, flows.size_bytes <= 4 * SEGMENT_BYTES
    for words, (variant, those) in variants.items():
        yield words, change_percent(float(variant.fct_ns[those].mean()), float(tcp.fct_ns[those].mean()))
    doubling = [run(fills=fills, growth=1.0) for fills in (True, False)]
    yield from _changes("windows that double", flows, *doubling)
    yield from _model(hosts, flows, *doubling)


def _model(hosts: HostNetwork, flows: Flows, rc3: Completions, tcp: Completions) -> Iterator[tuple[str, float]]:
    """The model of section 2.2 beside what is measured, without the handshake that it does not have."""
    round_trip_ns = hosts.round_trip_ns(flows.source, flows.destination)
    packets = -(-flows.size_bytes // SEGMENT_BYTES)
    for low, high in ((9, 64), (65, 512), (513, 4096)):
        those = (packets >= low) & (packets <= high)
        if not those.any():
            continue
        fct = [float((one.fct_ns - round_trip_ns)[those].mean()) for one in (rc3, tcp)]
        available = (1 - DEFAULT.load) * DEFAULT.rate_bps * round_trip_ns[those] / 8e9 / SEGMENT_BYTES
        yield f"change of FCT in %, {low} to {high} packets, measured", change_percent(*fct)
        for name, whole in (("model", False), ("model, whole round trips", True)):
            expected = [
                expected_reduction(int(n), available_packets=float(room), whole=whole)
                for n, room in zip(packets[those], available, strict=True)
            ]
            yield f"change of FCT in %, {low} to {high} packets, {name}", -float(np.mean(expected))


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    if size not in SHARE_OF_FLOWS:
        raise ForetailError(f"RC3 has no size {size}: choose small or medium")
    so_far(DEFAULT.words)
    measured = dict(_default(size, seed))
    for scene in SCENES:
        so_far(scene.words)
        hosts, flows = scene.draw(size, seed)
        rc3, tcp = (scene.run(hosts, flows, fills=fills) for fills in (True, False))
        measured |= dict(_changes(scene.words, flows, rc3, tcp))
    return measured


RC3 = System(
    "RC3",
    "Mittal's thesis",
    (
        *published(
            "Table 2.1",
            {
                "mean FCT in s, TCP": 0.135,
                "mean FCT by bytes in s, TCP": 0.443,
                "mean FCT in s, RC3": 0.076,
                "mean FCT by bytes in s, RC3": 0.114,
            },
        ),
        *(
            Published(f"change of mean FCT {of}in %, {scene.words}", -value, scene.source, change=True)
            for scene in (DEFAULT, *SCENES)
            for of, value in zip(("", "by bytes "), scene.reductions, strict=True)
        ),
        *published("Section 2.4.1", dict(zip(_WINDOWS, (-13, -24), strict=True)), change=True),
        *published("Section 2.4.1, 0.126 s to 0.078 s", {_TENTH: change_percent(0.078, 0.126)}, change=True),
        *published("Section 2.5, 6 to 7", {_PARTIAL: 6.5}, change=True),
    ),
    _measure,
    {"small": (1, 2), "medium": (1, 2, 3)},
)
