"""DCQCN over RDMA, marks as of RED, and RDMA beside TCP. Costs half a minute of CPU time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from tests.examples import draws
from tests.scenarios import settings
from tests.sim_bridge.test_headers import compiled, run

SEGMENT = 1400
LINE_BYTES_PER_NS = 1.25 * SEGMENT / (SEGMENT + 42)  #: payload on a link of 10 Gbit/s
MILLISECOND = 1_000_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("dcqcn_check.cpp"), tmp_path_factory.mktemp("dcqcn") / "dcqcn_check")


# ---- the law ------------------------------------------------------------------------------------------------------


class SlowDcqcn:
    """The sender of DCQCN, whose timers run one by one."""

    def __init__(
        self,
        line: float,
        gain: float,
        alpha_ns: int,
        increase_ns: int,
        increase_bytes: int,
        fast_rounds: int,
        additive_bps: float,
        hyper_bps: float,
    ) -> None:
        self.line, self.gain, self.fast_rounds = line, gain, fast_rounds
        self.alpha_ns, self.increase_ns, self.increase_bytes = alpha_ns, increase_ns, increase_bytes
        self.additive, self.hyper = additive_bps / 8e9, hyper_bps / 8e9
        self.rate = self.target = line
        self.alpha = 1.0
        self.limited = False
        self.next_decay = self.next_increase = 0
        self.timer_rounds = self.byte_rounds = self.bytes = 0

    def tick(self, now: int) -> None:
        while self.limited and min(self.next_decay, self.next_increase) <= now:
            if self.next_decay <= self.next_increase:
                self.alpha *= 1 - self.gain
                self.next_decay += self.alpha_ns
            else:
                self.timer_rounds += 1
                self.increase()
                self.next_increase += self.increase_ns

    def increase(self) -> None:
        if max(self.timer_rounds, self.byte_rounds) < self.fast_rounds:
            added = 0.0
        elif min(self.timer_rounds, self.byte_rounds) > self.fast_rounds:
            added = self.hyper
        else:
            added = self.additive
        self.target = min(self.target + added, self.line)
        self.rate = (self.rate + self.target) / 2

    def happens(self, now: int, sent_bytes: int) -> float:
        """What leaves, or a notification where nothing does; returns the rate after it."""
        self.tick(now)
        if sent_bytes == 0:
            self.limited = True
            self.target, self.rate = self.rate, max(self.rate * (1 - self.alpha / 2), min(self.additive, self.line))
            self.alpha = (1 - self.gain) * self.alpha + self.gain
            self.next_decay, self.next_increase = now + self.alpha_ns, now + self.increase_ns
            self.timer_rounds = self.byte_rounds = self.bytes = 0
        elif self.limited:
            self.bytes += sent_bytes
            while self.bytes >= self.increase_bytes:
                self.bytes -= self.increase_bytes
                self.byte_rounds += 1
                self.increase()
        return self.rate


GAPS_NS = st.one_of(st.integers(0, 3_000), st.integers(0, 200_000), st.sampled_from([55_000, 110_000, 40_000_000]))


@examples(max_examples=draws(100), deadline=None)
@given(
    events=st.lists(st.tuples(GAPS_NS, st.sampled_from([0, 0, 1, 1400, 1400, 20_000])), max_size=80),
    gain=st.sampled_from([1 / 256, 1 / 16, 0.5, 1.0]),
    alpha_ns=st.sampled_from([1_000, 55_000, 300_000]),
    increase_ns=st.sampled_from([1_000, 55_000, 300_000]),
    increase_bytes=st.sampled_from([1_000, 3_000, 30_000, 10_000_000]),
    fast_rounds=st.sampled_from([1, 2, 5]),
    additive_bps=st.sampled_from([40e6, 1e9, 20e9]),
)
def test_the_rate_is_that_of_timers_that_tick_one_by_one(
    program: Path,
    events: Sequence[tuple[int, int]],
    gain: float,
    alpha_ns: int,
    increase_ns: int,
    increase_bytes: int,
    fast_rounds: int,
    additive_bps: float,
) -> None:
    numbers = (gain, alpha_ns, increase_ns, increase_bytes, fast_rounds, additive_bps, 3 * additive_bps)
    slow = SlowDcqcn(LINE_BYTES_PER_NS, *numbers)
    times = np.cumsum([gap for gap, _ in events]).tolist()
    happened = [(time, size) for time, (_, size) in zip(times, events, strict=True)]
    lines = "".join(f"{time} {size}\n" for time, size in happened)
    rates = [float(line) for line in run(program, "law", *map(repr, (LINE_BYTES_PER_NS, *numbers)), source=lines).split()]
    assert rates == pytest.approx([slow.happens(*event) for event in happened], rel=1e-9)


def test_a_notification_halves_the_rate_and_five_rounds_bring_it_back(program: Path) -> None:
    """Fast recovery halves the distance to the rate from before; additive increase goes beyond it."""
    numbers = map(repr, (1.0, 1 / 256, 55_000, 55_000, 10**7, 5, 40e6, 400e6))
    moments = [(0, 0), (54_999, 1), (55_000, 1), (110_000, 1), (220_000, 1), (275_000, 1), (10**9, 1)]
    lines = "".join(f"{time} {size}\n" for time, size in moments)
    rates = [float(line) for line in run(program, "law", *numbers, source=lines).split()]
    assert rates == pytest.approx([0.5, 0.5, 0.75, 0.875, 1 - 2**-5, 1 - 2**-6, 1.0])


# ---- marks --------------------------------------------------------------------------------------------------------


def require_binomial(marked: int, packets: int, probability: float) -> None:
    """Within five standard deviations, which chance leaves once in two million times."""
    deviation = math.sqrt(packets * probability * (1 - probability))
    assert abs(marked - packets * probability) <= 5 * deviation + 1e-9


@pytest.mark.parametrize("probability", [0.01, 0.3, 1.0])
@pytest.mark.parametrize(("seed", "switch"), [(0, 0), (1, 0), (1, 1), (2**40, 5)])
def test_the_share_of_marks_rises_with_the_queue(program: Path, probability: float, seed: int, switch: int) -> None:
    packets, first, full = 20_000, 10_000, 50_000
    queues = [0, 9_999, 10_000, 20_000, 35_000, 49_999, 50_000, 10**6]
    numbers = (seed, switch, first, full, probability, packets)
    marked = [int(line) for line in run(program, "marks", *map(str, (*numbers, *queues))).split()]
    for queue, found in zip(queues, marked, strict=True):
        share = 0.0 if queue <= first else 1.0 if queue >= full else probability * (queue - first) / (full - first)
        require_binomial(found, packets, share)


def test_switches_and_seeds_draw_apart(program: Path) -> None:
    """Two switches, and two seeds, mark other packets: counts of single packets agree as often as chance has it."""

    def drawn(seed: int, switch: int) -> list[str]:
        return run(program, "marks", *map(str, (seed, switch, 1, 1001, 1.0, 1, *[501] * 1000))).split()

    base = drawn(1, 0)
    for other in (drawn(1, 1), drawn(2, 0), drawn(0, 0)):
        require_binomial(sum(a == b for a, b in zip(base, other, strict=True)), 1000, 0.5)


def star(sizes: Sequence[Sequence[int]], **changes: Any) -> dict[str, Any]:
    """Senders 0, 1 and so on of a star, each with messages one after the other, to the server behind them."""
    alone: dict[str, Any] = {
        "topology__leaves": 1,
        "topology__spines": 0,
        "topology__servers_per_leaf": len(sizes) + 1,
        "topology__buffer_bytes_per_port_per_gbps": 30_000,
        "background__load": 0.0,
        "background__destinations": "other_servers",
        "incast__queries_per_second_per_server": 0.0,
        "incast__responders": "other_servers",
        "incast__fan_in": 1,
        "transport__name": "roce",
        "transport__rdma__control": "dcqcn",
        "policy__name": "cs",
        "drain_ns": 1000 * MILLISECOND,
    }
    rows = [(sender, size) for sender, own in enumerate(sizes) for size in own]
    listed = {
        "start_ns": [0] * len(rows),
        "latest_ns": [10**9] * len(rows),
        "size_bytes": [size for _, size in rows],
        "source": [sender for sender, _ in rows],
        "destination": [len(sizes)] * len(rows),
        "connection": [sender for sender, _ in rows],
        "after": [[] for _ in rows],
        "gap_ns": [0] * len(rows),
    }
    return {**settings(**(alone | changes)), "messages": listed}
