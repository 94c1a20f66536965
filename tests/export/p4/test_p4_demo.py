from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.p4.bmv2 import SimpleSwitch, compile_p4
from foretail.export.p4.demo import ANSWER, ARRIVAL, ETHERTYPE, QUEUE, STATUSES, TOTALS, DemoSwitch, render_demo
from foretail.export.p4.encoding import score_bits
from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.text import render_p4
from foretail.export.passes import with_votes
from foretail.features.catalog import PAPER_FEATURES, VIRTUAL_FEATURES, feature
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from tests.export.p4.bmv2 import needs_p4_tools, register
from tests.forests import stump

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
CELL_BYTES, AVERAGE_SHIFT, PACKETS = 256, 15, 10_000
GBPS = 10**9
FRAME = bytes(12) + ETHERTYPE.to_bytes(2, "big")


def inputs(cell_bytes: int = CELL_BYTES, average_shift: int = AVERAGE_SHIFT) -> tuple[FeatureInput, ...]:
    return tuple(
        FeatureInput(name, feature(name).params(cell_bytes, average_shift), feature(name).bits)
        for name in VIRTUAL_FEATURES
    )


def ensemble_of(features: tuple[FeatureInput, ...]) -> Ensemble:
    trees = tuple(stump((0.0, 1.0), feature=i) for i in range(len(features)))
    return with_votes(Ensemble(features, trees, Fraction(1, 2)))


FOUR_PORTS = DemoSwitch(100_000, (10 * GBPS,) * 4)


# -- what the program says ----------------------------------------------------------------------------------------


@given(st.integers(1, 800_000), st.integers(0, 256), st.integers(1, 65_535))
@example(10_000, 38, 65_535)
@example(400_000, 0, 1)
@example(799_999, 256, 65_535)  # prime to 8000
def test_a_packet_takes_as_long_as_its_rate_says(mbps: int, overhead: int, size: int) -> None:
    switch = DemoSwitch(100_000, (mbps * 10**6,), wire_overhead_bytes=overhead)
    text = render_demo(ensemble_of(inputs()), switch)["drop_predictor_demo.p4"]
    constants = re.search(r"0: rate\((\d+), (\d+), (\d+), (\d+)\);", text)
    assert constants is not None
    slope, offset, reciprocal, shift = map(int, constants.groups())
    product = (size * slope + offset) * reciprocal
    assert product < 1 << 64
    assert product >> shift == -((size + overhead) * 8000 // -mbps)


# -- what it refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"port_rates_bps": (GBPS,) * 9}, "has 9 ports: its program writes out every port, give it 1 to 8"),
        ({"port_rates_bps": ()}, "has 0 ports"),
        ({"port_rates_bps": (GBPS, 999)}, "a rate of port_rates_bps is 999: use 1000 to"),
        ({"buffer_bytes": 0}, "buffer_bytes is 0: use 1 to"),
        ({"buffer_bytes": 1 << 23}, "holds more than 65536 packets of 64 bytes: use a smaller buffer"),
        ({"smallest_packet_bytes": 0}, "smallest_packet_bytes is 0: use 1 to 65535"),
        ({"wire_overhead_bytes": -1}, "wire_overhead_bytes is -1: use 0 to 256"),
    ],
)
def test_a_switch_outside_the_bounds_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ForetailError, match=re.escape(message)):
        replace(FOUR_PORTS, **changes)  # type: ignore[arg-type]


def refusal(features: tuple[FeatureInput, ...] | None = None, switch: DemoSwitch = FOUR_PORTS, name: str = "p") -> str:
    with pytest.raises(ForetailError) as caught:
        render_demo(ensemble_of(inputs() if features is None else features), switch, name)
    return str(caught.value)


@pytest.mark.parametrize("name", [*PAPER_FEATURES, "threshold_rank", "arrival_rate", "ttl"])
def test_features_that_v1model_does_not_show_are_refused(name: str) -> None:
    message = refusal((*inputs(), FeatureInput(name, "", 24)))
    assert f"feature '{name}' is none that the demo program can compute: train on some of threshold," in message


# -- against sim_bridge/buffer, register by register --------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """The virtual LQD of sim_bridge/buffer on the same arrivals; every array has one row per arrival."""

    kept: NDArray[np.int64]
    events: NDArray[np.int64]
    features: NDArray[np.int64]
    totals: NDArray[np.int64]  # as TOTALS
    queues: NDArray[np.int64]  # as QUEUE, per port
    rings: list[NDArray[np.int64]]  # at the end
    dropped: NDArray[np.bool_]


@pytest.fixture(scope="module")
def reference_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("reference") / "lqd_registers"
    source = Path(__file__).with_name("lqd_registers.cpp")
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'sim_bridge'}"]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    return program


def test_the_program_that_shows_registers_follows_the_headers(reference_program: Path) -> None:
    """Also where there is no BMv2 to compare with."""
    done = subprocess.run([str(reference_program)], input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def reference(program: Path, switch: DemoSwitch, arrivals: NDArray[np.void]) -> Reference:
    rates = switch.port_rates_bps
    settings = [switch.buffer_bytes, switch.wire_overhead_bytes, CELL_BYTES.bit_length() - 1, AVERAGE_SHIFT, len(rates)]
    columns = [arrivals[field].astype(np.int64) for field in ("time_ns", "port", "size_bytes")]
    sent = np.concatenate([settings, rates, np.stack(columns, axis=1).ravel()]).astype(np.int64)
    out = subprocess.run([str(program)], input=sent.tobytes(), capture_output=True, check=True).stdout
    values = np.frombuffer(out, np.int64)
    sections = np.cumsum([1, 1, len(VIRTUAL_FEATURES), len(TOTALS.names or ())])
    width = int(sections[-1]) + len(QUEUE.names or ()) * len(rates)
    rows = len(arrivals)
    kept, events, features, totals, queues = np.split(values[: rows * width].reshape(rows, width), sections, axis=1)
    rest, rings = values[rows * width :], []
    for _ in rates:
        rings.append(rest[1 : 1 + rest[0]])
        rest = rest[1 + rest[0] :]
    return Reference(
        kept[:, 0],
        events[:, 0],
        features,
        totals,
        queues.reshape(rows, len(rates), len(QUEUE.names or ())),
        rings,
        rest == 1,
    )


def congested(switch: DemoSwitch, sizes: list[int], tick: int, seed: int) -> NDArray[np.void]:
    """Return arrivals in phases of different loads and ports, some at the same `tick`, with pauses of all lengths."""
    draw = np.random.default_rng(seed)
    ports = len(switch.port_rates_bps)
    arrivals = np.zeros(PACKETS, ARRIVAL)
    arrivals["size_bytes"] = draw.choice(sizes, PACKETS)
    mean_ns = 8e9 * np.mean(sizes) / sum(switch.port_rates_bps)
    gaps = np.zeros(PACKETS, np.int64)
    for phase in np.array_split(np.arange(PACKETS), 50):
        arrivals["port"][phase] = draw.choice(ports, len(phase), p=draw.dirichlet(np.full(ports, 0.4)))
        spread = draw.exponential(mean_ns / draw.choice([0.5, 1.2, 3.0]), len(phase))
        gaps[phase] = np.where(draw.random(len(phase)) < 0.2, 0, spread)
        gaps[phase[0]] += draw.choice([0, 0, 10**4, 10**7])
    gaps[PACKETS // 2] = 20 * 10**9  # since_push_out saturates after 17 s
    arrivals["time_ns"] = np.cumsum(gaps // tick * tick)
    arrivals["report"] = 1
    return arrivals


def trained(found: Reference) -> Ensemble:
    forest = RandomForest(trees=3, depth=4, seed=3)
    forest.fit(found.features, found.dropped)
    return with_votes(forest.to_ensemble(inputs()))


def build(folder: Path, ensemble: Ensemble, switch: DemoSwitch) -> Path:
    planned = plan(ensemble, load_profile("v1model"))
    files = render_p4(ensemble, planned.tables, "drop_predictor") | render_demo(ensemble, switch)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    return compile_p4(folder / "drop_predictor_demo.p4")


def reply(ports: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("ethernet", np.dtype((np.void, len(FRAME)))),
            ("arrival", ARRIVAL),
            ("answer", ANSWER),
            ("totals", TOTALS),
            ("queues", np.dtype((QUEUE, (ports,)))),
        ]
    )


CASES = {
    # Rates that are no divisors of 8 Gbit/s; packets so large that the longest queue may hold the one being sent alone.
    "eight ports": (
        DemoSwitch(90_000, tuple(g * GBPS for g in (1, 10, 10, 25, 25, 40, 100, 3))),
        [64, 64, 64, 65, 65, 300, 300, 576, 576, 1000, 1500, 1500, 1500, 9000, 40_000],
        1,
    ),
    # Queues of equal length, departures and arrivals at the same time, queues one byte over their share.
    "ties": (DemoSwitch(31_999, (10 * GBPS,) * 4, wire_overhead_bytes=0, smallest_packet_bytes=1000), [1000], 800),
    # Packets larger than the whole buffer.
    "one port": (DemoSwitch(20_000, (GBPS,), wire_overhead_bytes=20), [64, 1500, 9000, 30_000], 1),
}


@needs_p4_tools
@pytest.mark.parametrize("case", CASES)
def test_10_000_packets_are_answered_as_the_headers_and_the_model_do(
    case: str, reference_program: Path, tmp_path: Path
) -> None:
    switch, sizes, tick = CASES[case]
    ports = len(switch.port_rates_bps)
    arrivals = congested(switch, sizes, tick, seed=len(case))
    expected = reference(reference_program, switch, arrivals)
    pushed_out = int(np.count_nonzero(expected.dropped & (expected.kept == 1)))
    assert expected.events.max() > 1
    assert np.count_nonzero(expected.kept == 0) > 100
    assert pushed_out > 100 or ports == 1

    ensemble = trained(expected)
    with SimpleSwitch(build(tmp_path, ensemble, switch), tmp_path) as running:
        received = running.exchange([FRAME + arrival.tobytes() for arrival in arrivals])
        ring, head = register(running, "Switch.lqd.ring"), register(running, "Switch.lqd.head")
        lengths = register(running, "Switch.lqd.length")

    layout = reply(ports)
    assert {len(packet) for packet in received} == {layout.itemsize}
    out = np.frombuffer(b"".join(received), layout)
    assert np.array_equal(out["arrival"], arrivals)
    answer = out["answer"]
    assert not answer["status"].any()
    assert np.array_equal(answer["kept"], expected.kept)
    assert np.array_equal(answer["events"], expected.events)
    for i, name in enumerate(VIRTUAL_FEATURES):
        assert np.array_equal(answer[name], expected.features[:, i]), name
    for i, name in enumerate(TOTALS.names or ()):
        assert np.array_equal(out["totals"][name], expected.totals[:, i]), name
    for i, name in enumerate(QUEUE.names or ()):
        assert np.array_equal(out["queues"][name], expected.queues[:, :, i]), name
    assert lengths == expected.queues[-1, :, 0].tolist()
    for port, packets in enumerate(expected.rings):
        slots = [(head[port] + i) % switch.slots for i in range(len(packets))]
        assert [ring[port * switch.slots + slot] for slot in slots] == packets.tolist()

    score = ensemble.score(expected.features)
    assert ensemble.default_tau is not None
    assert np.array_equal(answer["score"], score)
    assert np.array_equal(answer["drop"], score > ensemble.default_tau)
    assert 0 < np.count_nonzero(answer["drop"]) < PACKETS


@pytest.fixture(scope="module")
def boosted() -> Ensemble:
    """Votes of both signs, as boosted trees have them."""
    values = [(-1.5, 0.5), (0.25, -0.75), (-2.0, 1.0)]
    trees = tuple(stump(pair, cut=20, feature=i) for i, pair in enumerate(values))
    return with_votes(Ensemble(inputs(), trees, Fraction(0), output="logit"))


@pytest.fixture(scope="module")
def boosted_program(boosted: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("boosted"), boosted, FOUR_PORTS)


@needs_p4_tools
def test_requests_that_make_no_sense_change_nothing(
    reference_program: Path, boosted_program: Path, tmp_path: Path
) -> None:
    arrivals = congested(FOUR_PORTS, [100, 1500], 1, seed=1)[:500]
    arrivals["report"] = 0
    expected = reference(reference_program, FOUR_PORTS, arrivals)
    packets: list[bytes] = []
    statuses: list[int] = []
    for i, arrival in enumerate(arrivals):
        for status, field, value in (
            ("NO_SUCH_PORT", "port", 4 + i % 252),
            ("TOO_SMALL", "size_bytes", i % 64),
            ("BAD_TIME", "time_ns", int(arrivals["time_ns"][i - 1]) - 1 if i % 2 else (1 << 62) + 1 + i),
        ):
            if value >= 0:
                wrong = arrival.copy()
                wrong[field] = value
                packets.append(FRAME + wrong.tobytes())
                statuses.append(STATUSES.index(status))
        packets.append(FRAME[:-1] + b"\0" + arrival.tobytes())  # another frame type
        packets.append(FRAME + arrival.tobytes()[:-1])  # too short
        packets.append(FRAME + arrival.tobytes() + b"what else the packet holds")
        statuses.append(STATUSES.index("ANSWERED"))
    with SimpleSwitch(boosted_program, tmp_path) as running:
        received = running.exchange(packets, replies=len(statuses))
    head = len(FRAME) + ARRIVAL.itemsize
    answers = np.frombuffer(b"".join(packet[head : head + ANSWER.itemsize] for packet in received), ANSWER)
    assert answers["status"].tolist() == statuses
    answered = answers["status"] == 0
    for i, name in enumerate(VIRTUAL_FEATURES):
        assert np.array_equal(answers[name][answered], expected.features[:, i]), name
        assert not answers[name][~answered].any()
    assert not answers["drop"][~answered].any()
    assert {packet[head + ANSWER.itemsize :] for packet in np.array(received, object)[answered]} == {
        b"what else the packet holds"
    }


@needs_p4_tools
def test_tau_turns_while_the_switch_runs(
    reference_program: Path, boosted: Ensemble, boosted_program: Path, tmp_path: Path
) -> None:
    arrivals = congested(FOUR_PORTS, [100, 1500], 1, seed=2)[:500]
    arrivals["report"] = 0
    expected = reference(reference_program, FOUR_PORTS, arrivals)
    scores = boosted.score(expected.features)
    assert scores.min() < 0 < scores.max()
    head = len(FRAME) + ARRIVAL.itemsize
    mask = (1 << score_bits(boosted)) - 1
    with SimpleSwitch(boosted_program, tmp_path) as running:
        for part, tau in zip(
            np.array_split(np.arange(len(arrivals)), 3), np.quantile(scores, [0, 0.5, 1]).astype(int), strict=True
        ):
            running.command(f"table_set_default Switch.predictor.decide Switch.predictor.set_tau {tau & mask}")
            received = running.exchange([FRAME + arrivals[i].tobytes() for i in part])
            answers = np.frombuffer(b"".join(packet[head:] for packet in received), ANSWER)
            assert np.array_equal(answers["score"], scores[part])
            assert np.array_equal(answers["drop"], scores[part] > tau)
