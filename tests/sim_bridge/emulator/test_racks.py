"""Racks around a packet switch and a circuit switch under a fake clock, and in ns-3.

Costs the build of two programs, 30 s of CPU.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foretail.features.catalog import FEATURES
from foretail.features.records import ARRIVAL_DTYPE, Outcome, Records, read_records
from tests.sim_bridge.buffer.test_headers import ROOM, compiler, run
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.racks import SlowRacks
from tests.sim_bridge.slow_models.slotted import ACCEPTED

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


# Odd numbers, so that no two packets arrive at once.
DOCUMENT: dict[str, Any] = {
    "racks": {
        "racks": 5,
        "hosts_per_rack": 3,
        "host_bps": 39_999_000_000,
        "packet_bps": 9_970_000_000,
        "packet_delay_ns": 4_999,
        "circuit_bps": 79_300_000_000,
        "circuit_delay_ns": 30_011,
        "day_ns": 50_021,
        "night_ns": 9_973,
        "matchings": [[(rack + shift) % 5 for rack in range(5)] for shift in (1, 2, 3, 4)],
        "voq_packets": 6,
        "buffer": None,
        "resize": None,
    },
    "flows": {"source": [0, 0, 3], "destination": [1, 3, 1], "flows_per_pair": 1, "start_within_ns": 0, "seed": 1},
    "transport": {
        "name": "cubic",
        "segment_bytes": 8960,
        "initial_window_segments": 10,
        "min_rto_ns": 10**7,
        "delayed_ack_segments": 2,
    },
    "format": 1,
    "traffic_ns": 10**6,
}
RESIZED = {"packets": 20, "ahead_ns": 70_001}
NAMES = [feature.name for feature in FEATURES]
Told = dict[str, dict[int, int]]
Check = Callable[..., Told]


def compiled(folder: Path, source: str) -> Path:
    """A program that checks racks or the emulator's loop."""
    packets = ROOM / "packets"
    sources = [
        Path(__file__).with_name(f"{source}.cpp"),
        *(packets / "settings").glob("*.cc"),
        packets / "racks" / "rack_settings.cc",
        ROOM / "buffer" / "policies" / "policies.cpp",
        ROOM / "buffer" / "run.cpp",
    ]
    house = ("-std=c++20", "-O0", "-Wall", "-Wextra", f"-I{ROOM}", f"-I{Path(__file__).parent}")
    program = folder / source
    cxx = compiler("CXX", "c++", "g++", "clang++")
    run(cxx, *house, "-isystem", json_include(), *sources, "-o", program, "-ldl")
    return program


def events(printed: str) -> Told:
    """What such a program prints; of ups and downs the last, and the first under another name."""
    assert not printed.startswith("refused: "), printed
    found: Told = {}
    for what, packet, number in map(str.split, printed.splitlines()):
        found.setdefault(what, {})[int(packet)] = int(number)
        if what in ("up", "down"):
            found.setdefault(f"first_{what}", {}).setdefault(int(packet), int(number))
    return found


def lines(sent: list[tuple[int, int, int, int]]) -> str:
    return "".join(f"{' '.join(map(str, one))}\n" for one in sent)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    folder = tmp_path_factory.mktemp("racks_check")
    program = compiled(folder, "racks_check")

    def told(document: dict[str, Any], factor: int, step: int, sent: list[tuple[int, int, int, int]]) -> Told:
        (folder / "settings.json").write_text(json.dumps(document), encoding="utf-8")
        return events(run(program, folder / "settings.json", str(factor), str(step), source=lines(sent)))

    def refusal(document: dict[str, Any]) -> str:
        (folder / "settings.json").write_text(json.dumps(document), encoding="utf-8")
        return run(program, folder / "settings.json", "1", "0")

    told.refusal = refusal  # type: ignore[attr-defined] # one program, several questions
    told.trace = lambda: read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)  # type: ignore[attr-defined]
    return told


def changed(**racks: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["racks"] |= racks
    return document


def bursts(seed: int, packets: int, factor: int) -> list[tuple[int, int, int, int]]:
    """Hosts of the three racks with hosts that send to those of others: clock ns, hosts, bytes."""
    draw = random.Random(seed)
    found = []
    for time in sorted(draw.sample(range(700 * packets), packets)):
        source = draw.choice([0, 1, 2, 0, 1, 2, 3, 6])
        rack = draw.choice([other for other in range(3) if other != source // 3])
        found.append((time * factor, source, 3 * rack + draw.randrange(3), draw.choice([40, 1500, 8999, 9000])))
    return found


def shared(policy: str, alpha: float = 1.0) -> dict[str, Any]:
    buffer = {"policy": policy, "bytes": 90_000, "alpha": alpha, "library": None, "tau": None, "trace": True}
    return {"voq_packets": None, "buffer": buffer}


def untraced(policy: str, **changes: Any) -> dict[str, Any]:
    racks = shared(policy)
    racks["buffer"] |= {"trace": False} | changes
    return racks


POLICIES = ("cs", "dt", "lqd", "followlqd", "credence")


@pytest.mark.parametrize(
    "racks",
    [{}, {"resize": RESIZED}, {"resize": {"packets": 9, "ahead_ns": 0}}, *map(shared, POLICIES)],
    ids=["static", "ahead", "during", *POLICIES],
)
@pytest.mark.parametrize(("factor", "step"), [(7, 0), (20, 40_000)], ids=["in_time", "late"])
def test_every_packet_goes_where_and_when_the_slow_racks_say(
    check: Check, racks: dict[str, Any], factor: int, step: int
) -> None:
    document = changed(**racks)
    sent = bursts(seed=5, packets=500, factor=factor)
    told = check(document, factor, step, sent)
    starts = [(told["sent"][i], *one[1:]) for i, one in enumerate(sent)]
    slow = SlowRacks(document, starts)
    gone = [packet for packet in slow.packets if packet.number not in slow.dropped]
    assert 0 < len(slow.dropped) < len(sent) / 2
    assert 0 < sum(packet.by_circuit for packet in gone) < len(gone)
    assert told["due"] == {packet.number: packet.due for packet in gone}
    for name in ("left", "entered", "by_circuit", "waiting"):
        assert told[name] == {packet.number: getattr(packet, name) for packet in gone}, name
    assert sum(told["dropped"].values()) == len(slow.dropped)
    if document["racks"]["buffer"] is not None:
        traced_as_slow(check.trace(), slow)  # type: ignore[attr-defined]


def traced_as_slow(trace: Records, slow: SlowRacks) -> None:
    """Thresholds, labels and circuits of every arrival; under LQD the labels are what became of the packet."""
    packets = [slow.packets[number] for number in trace["flow"]]
    of = dict(zip(NAMES, trace["features"].T, strict=True))
    assert sorted(trace["flow"]) == list(range(len(slow.packets)))
    assert list(trace["time_ns"]) == [packet.entered for packet in packets]
    assert list(of["threshold"]) == [packet.threshold // 256 for packet in packets]
    assert list(trace["lqd_drop"]) == [packet.number in slow.labels for packet in packets]
    assert list(trace["outcome"] != Outcome.ACCEPTED) == [packet.number in slow.dropped for packet in packets]
    never = 2**16 - 1
    far = [never if packet.until is None else min(packet.until // 1024, never) for packet in packets]
    assert list(of["until_circuit"]) == far
    assert len(set(far)) > 20
    if slow.racks["buffer"]["policy"] == "lqd":
        assert slow.labels == slow.dropped


def test_a_larger_voq_before_its_circuit_lets_more_through_and_drops_nothing_at_teardown(check: Check) -> None:
    sent = bursts(seed=2, packets=600, factor=1)
    static, resized = (check(changed(resize=resize), 1, 0, sent) for resize in (None, RESIZED))
    assert sum(resized["dropped"].values()) < sum(static["dropped"].values())
    assert max(static["waiting"].values()) <= 6 < max(resized["waiting"].values()) <= 20


def test_the_packet_path_is_off_in_the_night_before_and_what_does_not_fit_the_day_waits(check: Check) -> None:
    document = changed(day_ns=100_000, night_ns=10_000, packet_delay_ns=0, packet_bps=10_000_000_000)
    slot = 110_000
    # From rack 0 to rack 3 the third day has the circuit: 220 to 320 us.
    to_the_voq, by_circuit = 1_801, 908
    in_the_night = (2 * slot - 9_000, 0, 6, 9000)
    too_late_in_the_day = (2 * slot + 100_000 - to_the_voq - by_circuit + 1, 1, 7, 9000)
    told = check(document, 1, 0, [in_the_night, too_late_in_the_day])
    assert told["by_circuit"] == {0: 1, 1: 0}
    assert told["left"][0] == 2 * slot + by_circuit + 30_011
    assert told["left"][1] == 2 * slot + 100_000 + 2 * 7_200  # the day's end opens the packet path again


def test_a_run_in_its_stride_allocates_nothing(check: Check) -> None:
    once = bursts(seed=4, packets=400, factor=1)
    end = once[-1][0] + 1_000_000
    sent = [(time + end * round_, *rest) for round_ in range(4) for time, *rest in once]
    for document in (DOCUMENT, changed(**untraced("credence"))):
        assert check(document, 1, 0, sent)["allocated"] == {0: 0}


@pytest.mark.parametrize(
    ("racks", "flows", "complaint"),
    [
        ({"racks": 6}, {}, "slot 0 of setting 'racks.matchings' has 5 racks, and 'racks.racks' says 6"),
        ({"voq_packets": "many"}, {}, "'racks.voq_packets' must be a whole number that 64 bits hold, not \"many\""),
        ({"resize": {"packets": 9}}, {}, "'racks.resize.ahead_ns' is missing"),
        ({"uplinks": 1}, {}, "'racks.uplinks' is unknown: leave it out"),
        ({"voq_packets": None}, {}, "one of the settings 'racks.voq_packets' and 'racks.buffer' must be null"),
        ({"buffer": shared("lqd")["buffer"]}, {}, "must be null, and not the other"),
        (shared("abm"), {}, "'racks.buffer.policy' is 'abm'"),
        (untraced("credence", library="none.so"), {}, "none.so"),
        (shared("lqd") | {"resize": RESIZED}, {}, "must be null beside 'racks.buffer'"),
        ({"matchings": []}, {}, "must have a slot"),
        ({"matchings": [[0, 2, 1, 4, 3]]}, {}, "sends from rack 0 to 0, which is no other rack"),
        ({"matchings": [[1, 2, 3, 4, 5]]}, {}, "sends from rack 4 to 5, which is no other rack"),
        ({"matchings": [[2, 2, -1, -1, -1]]}, {}, "reaches rack 2 twice"),
        ({"matchings": [[1.5, -1, -1, -1, -1]]}, {}, "sends from rack 0 to 1.5, which is no other rack"),
        ({"matchings": [[2**32 + 1, -1, -1, -1, -1]]}, {}, "sends from rack 0 to 4294967297, which is no other rack"),
        ({"matchings": [[2**64 - 1, -1, -1, -1, -1]]}, {}, "sends from rack 0 to 18446744073709551615, which is no"),
        ({"matchings": [3]}, {}, "slot 0 of setting 'racks.matchings' must be a list of racks, not 3"),
        ({"matchings": 3}, {}, "setting 'racks.matchings' must be a list"),
        ({}, {"source": [1], "destination": [1]}, "is the rack 1 that the flows come from"),
        ({}, {"source": [1], "destination": [5]}, "entry 0 of setting 'flows.destination' must be a whole number"),
        ({}, {"source": [], "destination": []}, "of at least one pair"),
        ({}, {"start_within_ns": None}, "'flows.start_within_ns' must be a whole number that 64 bits hold, not null"),
    ],
)
def test_what_is_no_fabric_is_refused_in_one_sentence(
    check: Check, racks: dict[str, Any], flows: dict[str, Any], complaint: str
) -> None:
    document = changed(**racks)
    document["flows"] |= flows
    said = check.refusal(document)  # type: ignore[attr-defined]
    assert said.startswith("refused: ")
    assert complaint in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("group", ["topology", "background", "incast", "messages", "policy", "queues", "trace", "seed"])
def test_what_means_nothing_to_racks_is_refused(check: Check, group: str) -> None:
    said = check.refusal(DOCUMENT | {group: {}})  # type: ignore[attr-defined]
    sentence = f"setting '{group}' means nothing to racks, whose hosts send the flows of 'flows': leave it out"
    assert said == f"refused: {sentence}\n"


DELAY_NS, OVERHEAD = 3000, 2
STAR = ("1", "0", "4")


@dataclass(frozen=True)
class Sent:
    """A packet of a host: clock ns, hosts, bytes."""

    time: int
    source: int
    destination: int
    size: int


@dataclass(frozen=True)
class LoopEvents:
    """Events of the program, by kind a time for each packet, and its figures by name."""

    sent: dict[int, int]
    due: dict[int, int]
    written: dict[int, int]
    order: list[int]  # of the packets that were handed over
    figures: dict[str, int]


CheckLoop = Callable[..., LoopEvents]


def json_include() -> str:
    spec = importlib.util.find_spec("nlohmann_json")
    assert spec is not None
    assert spec.submodule_search_locations
    return f"{spec.submodule_search_locations[0]}/include"


@pytest.fixture(scope="module")
def check_loop(tmp_path_factory: pytest.TempPathFactory) -> CheckLoop:
    program = compiled(tmp_path_factory.mktemp("emulator_check"), "emulator_check")

    def told(
        network: tuple[str, str, str], policy: str, buffer: int, factor: int, step: int, sent: list[Sent]
    ) -> LoopEvents:
        lines = "".join(f"{one.time} {one.source} {one.destination} {one.size}\n" for one in sent)
        printed = run(program, *network, policy, str(buffer), str(factor), str(step), source=lines)
        words = [(what, int(packet), int(number)) for what, packet, number in map(str.split, printed.splitlines())]
        kinds = {kind: {p: t for what, p, t in words if what == kind} for kind in ("sent", "due", "written")}
        figures = {what: number for what, _, number in words if what not in kinds}
        return LoopEvents(**kinds, order=[p for what, p, _ in words if what == "written"], figures=figures)

    return told


def duration(size: int) -> int:
    """Time of a packet on a link of 10 Gbit/s."""
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


def bursts_at_a_star(seed: int, packets: int, factor: int) -> list[Sent]:
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


@pytest.mark.parametrize("policy", ["cs", "lqd", "dt"])
def test_every_packet_is_due_when_the_slow_network_says(check_loop: CheckLoop, policy: str) -> None:
    sent = bursts_at_a_star(seed=8, packets=200, factor=7)
    told = check_loop(STAR, policy, 256, 7, 0, sent)
    assert told.sent == {packet: one.time // 7 for packet, one in enumerate(sent)}
    expected = slow_star(sent, told.sent, policy, 4 * 10 * 256)
    assert told.due == expected
    assert 0 < len(expected) < len(sent), "nothing was dropped, or all"
    assert told.written == {packet: due * 7 for packet, due in expected.items()}
    assert told.figures["late_max"] == 0


@pytest.mark.parametrize("step_ns", [50, 900, 40_000])
def test_a_late_loop_changes_no_decision_on_what_it_read(check_loop: CheckLoop, step_ns: int) -> None:
    sent = bursts_at_a_star(seed=6, packets=150, factor=20)
    told = check_loop(STAR, "lqd", 512, 20, step_ns, sent)
    assert any(told.sent[packet] > one.time // 20 for packet, one in enumerate(sent))
    assert told.due == slow_star(sent, told.sent, "lqd", 4 * 10 * 512)
    late = sorted(told.written[packet] - due * 20 for packet, due in told.due.items())
    assert late[0] >= 0
    # The loop looks at the clock once for its lateness; `written` has that look.
    assert told.figures["late_max"] == late[-1]
    for name, share in (("late_p50", 0.5), ("late_p99", 0.99)):
        exact = late[int(share * len(late))]
        assert exact <= told.figures[name] <= exact * 1.13 + 1


def test_packets_are_handed_over_in_the_order_of_their_times(check_loop: CheckLoop) -> None:
    sent = bursts_at_a_star(seed=3, packets=300, factor=1)
    told = check_loop(STAR, "cs", 5120, 1, 50_000, sent)
    assert told.order == sorted(told.due, key=lambda packet: told.due[packet])


def test_a_loop_in_its_stride_allocates_nothing(check_loop: CheckLoop) -> None:
    once = bursts_at_a_star(seed=4, packets=400, factor=1)
    end = once[-1].time + 1_000_000
    sent = [Sent(one.time + end * round_, one.source, one.destination, one.size) for round_ in range(4) for one in once]
    assert check_loop(STAR, "lqd", 512, 1, 0, sent).figures["allocated"] == 0
