"""The emulator's event loop and network under a fake clock. Costs the build of one program: 15 s of CPU."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sim_bridge.buffer.test_headers import ROOM, compiler, run
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, run_bytes

pytestmark = pytest.mark.slow

ACCEPTED = 0
DELAY_NS, OVERHEAD = 3000, 2
STAR = ("1", "0", "4")
# The others are first in the file of their own definitions, which then shows that they compile alone.
HEADERS = (
    *(f"emulator/{name}.hpp" for name in ("event_loop", "frame", "hosts/hosts")),
    *("packets/network/leaf_spine.h", "emulator/main.cc", "emulator/control/own_control.hpp"),
    *(f"packets/racks/{name}.h" for name in ("fabric", "rack_logs")),
)


@dataclass(frozen=True)
class Sent:
    """A packet of a host: clock ns, hosts, bytes."""

    time: int
    source: int
    destination: int
    size: int


@dataclass(frozen=True)
class Told:
    """What the program says: for each kind of event packet -> time, and figures by name."""

    sent: dict[int, int]
    due: dict[int, int]
    written: dict[int, int]
    order: list[int]  # of the packets that were handed over
    figures: dict[str, int]


Check = Callable[..., Told]


def json_include() -> str:
    spec = importlib.util.find_spec("nlohmann_json")
    assert spec is not None
    assert spec.submodule_search_locations
    return f"{spec.submodule_search_locations[0]}/include"


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    program = tmp_path_factory.mktemp("emulator_check") / "emulator_check"
    sources = [Path(__file__).with_name("emulator_check.cpp"), *(ROOM / "packets" / "settings").glob("*.cc")]
    sources.append(ROOM / "buffer" / "policies" / "policies.cpp")
    flags = ("-std=c++20", "-O0", "-Wall", "-Wextra", f"-I{ROOM}", "-isystem", json_include())
    run(compiler("CXX", "c++", "g++", "clang++"), *flags, *sources, "-o", program, "-ldl")

    def told(network: tuple[str, str, str], policy: str, buffer: int, factor: int, step: int, sent: list[Sent]) -> Told:
        lines = "".join(f"{one.time} {one.source} {one.destination} {one.size}\n" for one in sent)
        printed = run(program, *network, policy, str(buffer), str(factor), str(step), source=lines)
        words = [(what, int(packet), int(number)) for what, packet, number in map(str.split, printed.splitlines())]
        kinds = {kind: {p: t for what, p, t in words if what == kind} for kind in ("sent", "due", "written")}
        figures = {what: number for what, _, number in words if what not in kinds}
        return Told(**kinds, order=[p for what, p, _ in words if what == "written"], figures=figures)

    return told


def duration(size: int) -> int:
    """Of a packet on a link of 10 Gbit/s."""
    return -(-(size + OVERHEAD) * 8 // 10)


def slow_star(sent: list[Sent], starts: dict[int, int], policy: str, buffer: int) -> dict[int, int]:
    """When each packet reaches its host, packet -> virtual ns: links first in, first out, and the slow switch."""
    free = [0] * 4
    arrivals = []
    for packet in sorted(range(len(sent)), key=lambda one: (starts[one], one)):
        one = sent[packet]
        free[one.source] = max(free[one.source], starts[packet]) + duration(one.size)
        arrivals.append((free[one.source] + DELAY_NS, packet))
    arrivals.sort()
    assert len({time for time, _ in arrivals}) == len(arrivals), "two arrivals at once: draw other packets"
    rows = [Packet(row, time, sent[p].destination, sent[p].size) for row, (time, p) in enumerate(arrivals)]
    outcome = run_bytes(policy, Geometry(buffer, (10**10,) * 4, OVERHEAD), rows)
    gone = [0] * 4
    due = {}
    for row, (time, packet) in enumerate(arrivals):
        if outcome.outcome[row] != ACCEPTED:
            continue
        port = sent[packet].destination
        gone[port] = max(gone[port], time) + duration(sent[packet].size)
        due[packet] = gone[port] + DELAY_NS
    return due


def bursts(seed: int, packets: int, factor: int) -> list[Sent]:
    """Three hosts that send to the fourth, and some to each other, faster than a link."""
    draw = random.Random(seed)
    times = sorted(draw.randrange(300 * packets) * factor for _ in range(packets))
    found = []
    for time in times:
        source = draw.randrange(4)
        others = [host for host in range(4) if host != source]
        destination = 3 if source != 3 and draw.random() < 0.7 else draw.choice(others)
        found.append(Sent(time, source, destination, draw.randrange(41, 1441)))
    return found


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("policy", ["cs", "lqd", "dt"])
def test_every_packet_is_due_when_the_slow_network_says(check: Check, policy: str) -> None:
    sent = bursts(seed=8, packets=200, factor=7)
    told = check(STAR, policy, 256, 7, 0, sent)
    assert told.sent == {packet: one.time // 7 for packet, one in enumerate(sent)}
    expected = slow_star(sent, told.sent, policy, 4 * 10 * 256)
    assert told.due == expected
    assert 0 < len(expected) < len(sent), "nothing was dropped, or all"
    assert told.written == {packet: due * 7 for packet, due in expected.items()}
    assert told.figures["late_max"] == 0


@pytest.mark.parametrize("step_ns", [50, 900, 40_000])
def test_a_late_loop_changes_no_decision_on_what_it_read(check: Check, step_ns: int) -> None:
    sent = bursts(seed=6, packets=150, factor=20)
    told = check(STAR, "lqd", 512, 20, step_ns, sent)
    assert any(told.sent[packet] > one.time // 20 for packet, one in enumerate(sent))
    assert told.due == slow_star(sent, told.sent, "lqd", 4 * 10 * 512)
    late = sorted(told.written[packet] - due * 20 for packet, due in told.due.items())
    assert late[0] >= 0
    # The loop looks at the clock once for its lateness; `written` has that look.
    assert told.figures["late_max"] == late[-1]
    for name, share in (("late_p50", 0.5), ("late_p99", 0.99)):
        exact = late[int(share * len(late))]
        assert exact <= told.figures[name] <= exact * 1.13 + 1


def test_who_is_read_again_at_once_may_have_waited_since_the_look_before(check: Check) -> None:
    sent = [Sent(100 * i, 0, 1, 1440) for i in range(200)]
    told = check(STAR, "cs", 5120, 1, 700, sent)
    waited = max(told.sent[packet] - one.time for packet, one in enumerate(sent))
    assert waited > 10 * 700
    assert told.figures["waiting_max"] >= waited


def test_packets_are_handed_over_in_the_order_of_their_times(check: Check) -> None:
    sent = bursts(seed=3, packets=300, factor=1)
    told = check(STAR, "cs", 5120, 1, 50_000, sent)
    assert told.order == sorted(told.due, key=lambda packet: told.due[packet])


def test_an_idle_leaf_spine_takes_four_links_between_leaves_and_two_below_one(check: Check) -> None:
    sent = [Sent(i * 100_000, source, to, 1440) for i, (source, to) in enumerate([(0, 1), (0, 2), (3, 0), (5, 4)])]
    told = check(("3", "2", "2"), "cs", 5120, 1, 0, sent)
    link = duration(1440) + DELAY_NS
    assert told.due == {0: 2 * link, 1: 100_000 + 4 * link, 2: 200_000 + 4 * link, 3: 300_000 + 2 * link}


def test_a_run_in_its_stride_allocates_nothing(check: Check) -> None:
    once = bursts(seed=4, packets=400, factor=1)
    end = once[-1].time + 1_000_000
    sent = [Sent(one.time + end * round_, one.source, one.destination, one.size) for round_ in range(4) for one in once]
    assert check(STAR, "lqd", 512, 1, 0, sent).figures["allocated"] == 0
