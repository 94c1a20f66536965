"""Etalon's packet logs: what is written is read again, in order of arrival, and labelled as LQD would; or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, Records
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import LAYOUTS, Reading
from foretail.sim_bridge.imports.etalon.survey import Survey
from foretail.sim_bridge.open_loop import dataset as open_loop_dataset
from foretail.sim_bridge.open_loop.dataset import longest_stay_ns, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import replay_of
from foretail_studies.circuits.circuit_use import circuit_use
from tests.etalon_logs import (
    DAY_NS,
    EVENT_DTYPE,
    HEADER_BYTES,
    PACKET_DTYPE,
    emulate,
    write_etalon_log,
)
from tests.examples import draws
from tests.traces import RUN

RACKS = 4
NO_EVENTS = np.empty(0, EVENT_DTYPE)
SHOW = Reading(day_ns=None)


@st.composite
def logged(draw: st.DrawFn, racks: int = RACKS, most: int = 40) -> Records:
    """Packets in order of departure, with any latency that the emulator could have measured."""
    count = draw(st.integers(1, most))
    packets = np.zeros(count, PACKET_DTYPE)

    def column(low: int, high: int) -> Any:
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    packets["time_ns"] = 10**7 + np.cumsum(column(0, 20_000))
    packets["circuit"] = column(0, 1)
    packets["latency_us"] = column(0, 500) + np.where(packets["circuit"] != 0, 30, 10)
    packets["circuit"][0], packets["latency_us"][0] = 0, 10  # some packet was fast
    packets["source"] = column(1, racks)
    packets["destination"] = (packets["source"] - 1 + column(1, racks - 1)) % racks + 1
    for name in ("source_host", "destination_host"):
        packets[name] = column(1, 16)
    for name in ("source_port", "destination_port"):
        packets[name] = column(0, 3) * 20_000 + 77
    packets["payload_bytes"] = column(0, 4) * 2237
    packets["voq"] = column(0, 50)
    return packets


def read(path: Path, reading: Reading = SHOW) -> tuple[Survey, Records]:
    log = EtalonLog.open(path, reading)
    survey = log.survey()
    return survey, np.concatenate([np.empty(0, ARRIVAL_DTYPE), *log.arrivals(survey)])


@given(
    packets=logged(),
    record_bytes=st.sampled_from(sorted(LAYOUTS)),
    time_dilation=st.sampled_from((1, 3, 20)),
    latency_dilated=st.booleans(),
    chunk=st.sampled_from((1, 3, 1 << 16)),
)
@settings(max_examples=draws(25))
def test_what_is_written_is_read_in_order_of_arrival(
    packets: Records,
    record_bytes: int,
    time_dilation: int,
    latency_dilated: bool,
    chunk: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("etalon") / "log"
    write_etalon_log(
        path,
        packets,
        NO_EVENTS,
        record_bytes=record_bytes,
        time_dilation=time_dilation,
        latency_dilated=latency_dilated,
    )
    reading = Reading(time_dilation=time_dilation, latency_dilated=latency_dilated, racks=RACKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretail.sim_bridge.imports.etalon.records.CHUNK_RECORDS", chunk)
        survey, arrivals = read(path, reading)
    in_ns = packets["time_ns"] - packets["latency_us"].astype(np.int64) * 1000
    order = np.argsort(in_ns, kind="stable")
    expected = packets[order]
    np.testing.assert_array_equal(arrivals["time_ns"], (in_ns - in_ns.min())[order])
    np.testing.assert_array_equal(arrivals["size_bytes"], expected["payload_bytes"] + 52)
    np.testing.assert_array_equal(arrivals["switch"], expected["source"] - 1)
    ports = [
        [rack for rack in range(1, RACKS + 1) if rack != source].index(destination)
        for source, destination in zip(expected["source"], expected["destination"], strict=True)
    ]
    assert arrivals["port"].tolist() == ports
    np.testing.assert_array_equal(
        arrivals["flow_class"] == FlowClass.BACKGROUND, expected["payload_bytes"] > 0, "pure ACKs are control"
    )
    names = ["source", "destination", "source_host", "destination_host", "source_port", "destination_port"]
    flows = {(*row[names].tolist(), int(flow)) for row, flow in zip(expected, arrivals["flow"], strict=True)}
    assert len(flows) == len(set(arrivals["flow"].tolist())) == len({flow[:-1] for flow in flows})
    assert survey.voq_packets == (int(packets["voq"].max()) if record_bytes == 116 else None)
    assert survey.circuit_packets == np.count_nonzero(packets["circuit"])
    assert sum(survey.voqs.values()) == len(packets)


@pytest.fixture(scope="module")
def emulated() -> tuple[Records, Records]:
    return emulate(racks=RACKS, weeks=6, load=0.9, voq_packets=50, seed=1)


def log_of(folder: Path, packets: Records, events: Records, **settings: Any) -> Path:
    write_etalon_log(folder / "log", packets, events, **settings)
    return folder / "log"


def test_days_and_weeks_come_from_the_events(tmp_path: Path, emulated: tuple[Records, Records]) -> None:
    packets, events = emulated
    survey, _ = read(log_of(tmp_path, packets, events), Reading())
    assert (survey.day_ns, survey.week_ns, survey.racks) == (DAY_NS, (RACKS - 1) * 200_000, RACKS)
    assert len(survey.voqs) == RACKS * (RACKS - 1)
    assert survey.circuit_share(1, 2) == pytest.approx(0.9 / (RACKS - 1), rel=0.15)
    assert survey.circuit_share(1, 1) == 0


def test_a_log_before_the_switch_has_its_arrivals_as_they_are(tmp_path: Path) -> None:
    packets = np.zeros(3, PACKET_DTYPE)
    packets["time_ns"], packets["source"], packets["destination"] = (10, 10, 50), 1, (2, 3, 2)
    packets["payload_bytes"] = 100
    _, arrivals = read(log_of(tmp_path, packets, NO_EVENTS), Reading(position="before"))
    assert arrivals["time_ns"].tolist() == [0, 0, 40]


THRESHOLD = [feature.name for feature in FEATURES].index("threshold")


def geometry(buffer_bytes: int, *rates_bps: int) -> Any:
    return replace(
        RUN,
        scenario={"topology": {"wire_overhead_bytes": 0}},
        switches=tuple(SwitchGeometry(RACKS - 1, buffer_bytes, (rate,) * (RACKS - 1)) for rate in rates_bps),
    )


@given(packets=logged(most=120), least=st.integers(1, 40), buffer_bytes=st.sampled_from((9000, 20_000, 60_000)))
@settings(max_examples=draws(40))
def test_labels_do_not_depend_on_the_windows(
    packets: Records, least: int, buffer_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    _, arrivals = read(log_of(folder, packets, NO_EVENTS), Reading(racks=RACKS))
    assume((arrivals["flow_class"] != FlowClass.CONTROL).any())
    run = geometry(buffer_bytes, 10**10, 10**9, 10**10, 10**10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_loop_dataset, "WINDOW_ARRIVALS", least)
        write_open_loop_dataset(folder / "dataset", run, np.array_split(arrivals, 5))
    dataset = Dataset.open(folder / "dataset")
    at_once = replay_of("lqd", run, features=True).feed(arrivals)
    data = arrivals["flow_class"] != FlowClass.CONTROL
    rows = dataset.frame()
    np.testing.assert_array_equal(rows["lqd_drop"], at_once["lqd_drop"][data] != 0)
    np.testing.assert_array_equal(rows["lqd_drop"], at_once["outcome"][data] != Outcome.ACCEPTED)
    np.testing.assert_array_equal(rows["threshold"], at_once["features"][data, THRESHOLD])
    assert (rows["fate_time_ns"] <= rows["time_ns"] + longest_stay_ns(run)).all()
    assert dataset.manifest.control_rows == np.count_nonzero(~data)


def test_late_push_outs_are_labelled(tmp_path: Path, emulated: tuple[Records, Records]) -> None:
    packets, events = emulated
    _, arrivals = read(log_of(tmp_path, packets, events))
    run = geometry(300_000, *[2 * 10**10] * RACKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_loop_dataset, "WINDOW_ARRIVALS", 16)
        counters = write_open_loop_dataset(tmp_path / "dataset", run, [arrivals])
    at_once = replay_of("lqd", run, features=True).feed(arrivals)
    data = arrivals["flow_class"] != FlowClass.CONTROL
    assert counters["data_drops.pushed_out"] == np.count_nonzero(at_once["outcome"][data] == Outcome.PUSHED_OUT) > 20
    rows = Dataset.open(tmp_path / "dataset").frame(["lqd_drop"])
    np.testing.assert_array_equal(rows["lqd_drop"], at_once["lqd_drop"][data] != 0)


def bytes_of(change: Callable[[Records], None]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        records = np.frombuffer(content, LAYOUTS[116]).copy()
        change(records)
        return records.tobytes()

    return changed


def _no_stamp(records: Records) -> None:
    records["stamp"][1000] = 0


def _not_ip(records: Records) -> None:
    records["packet"][np.flatnonzero(records["type"] == 0)[200], 0] = 0x60


def _negative(records: Records) -> None:
    records["latency_us"][np.flatnonzero(records["type"] == 0)[200]] = -1


def _far_rack(records: Records) -> None:
    records["packet"][np.flatnonzero(records["type"] == 0)[200], 14] = 0


def _inside(records: Records) -> None:
    at = np.flatnonzero(records["type"] == 0)[200]
    records["packet"][at, 14] = records["packet"][at, 18]


def _lost_down(records: Records) -> None:
    down = np.flatnonzero(records["type"] == 2)[20]
    records[down] = records[down - 1]


def _twice_down(records: Records) -> None:
    up = np.flatnonzero((records["type"] == 1) & (records["source"] == 1) & (records["destination"] == 2))
    records["type"][up[2]] = 2


def _ect1(records: Records) -> None:
    packets = records["type"] == 0
    records["packet"][packets, 1] |= 1
    records["latency_us"][packets] += 30


def _only_events(records: Records) -> None:
    records["type"] = 1
    records["source"] = np.arange(len(records)) // 250 % 250 + 1
    records["destination"] = np.arange(len(records)) % 250 + 1


def _long_voq(records: Records) -> None:
    records["voq"][np.flatnonzero(records["type"] == 0)[200]] = 400


@pytest.mark.parametrize(
    ("damage", "reading", "complaint"),
    [
        (lambda content: b"", Reading(), "is empty"),
        (lambda content: content[:-1], Reading(), "is truncated: .* end 115 bytes into a record of 116"),
        (lambda content: content[4:], Reading(), "does not begin with records of 112 or 116 bytes"),
        (lambda content: b"hello world\n" * 100, Reading(), "does not begin with records of 112 or 116 bytes"),
        (lambda content: content, Reading(record_bytes=112), "its records have 116: set etalon.record_bytes=116"),
        (lambda content: content + content, Reading(), "earlier than one before it: the log holds several runs"),
        (bytes_of(_no_stamp), Reading(), "record 1000 of the log .* has no time"),
        (bytes_of(_not_ip), Reading(), "is no IPv4 packet"),
        (bytes_of(_negative), Reading(), "has a negative latency"),
        (bytes_of(_far_rack), Reading(), "set etalon.racks"),
        (bytes_of(_inside), Reading(), "stays inside its rack"),
        (bytes_of(_lost_down), Reading(), "go up twice without going down"),
        (bytes_of(_twice_down), Reading(), "go down twice without going up"),
        (bytes_of(_ect1), Reading(), "circuit packets outside the time of their circuit"),
        (bytes_of(_only_events), Reading(day_ns=None), "contains no packet|go up twice"),
        (bytes_of(_long_voq), Reading(voq_packets=50), "has a VOQ of 400 packets"),
        (lambda content: content, Reading(time_dilation=10), "keeps a circuit up for 360 us .* not for 180"),
        (lambda content: content, Reading(latency_dilated=True), "less than its propagation delay"),
        (lambda content: content, Reading(packet_delay_ns=10, circuit_delay_ns=40_000), "us on the circuit"),
        (lambda content: content, Reading(racks=3), "outside 1 to 3.*set etalon.racks"),
    ],
)
def test_a_log_that_is_none_is_refused(
    tmp_path: Path,
    emulated: tuple[Records, Records],
    damage: Callable[[bytes], bytes],
    reading: Reading,
    complaint: str,
) -> None:
    path = log_of(tmp_path, *emulated)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ForetailError, match=complaint) as caught:
        read(path, reading)
    assert str(path) in str(caught.value)


def test_dilated_latencies_are_noticed(tmp_path: Path, emulated: tuple[Records, Records]) -> None:
    path = log_of(tmp_path, *emulated, latency_dilated=True)
    with pytest.raises(ForetailError, match=r"set etalon\.latency_dilated=true"):
        read(path, Reading())
    assert len(read(path, Reading(latency_dilated=True))[1]) == len(emulated[0])


def test_a_missing_log_and_two_racks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"the log .* cannot be read"):
        EtalonLog.open(tmp_path / "nowhere", Reading())
    packets, events = emulate(racks=3, weeks=2, load=0.5, voq_packets=50, seed=1)
    between = (packets["source"] < 3) & (packets["destination"] < 3)
    ups = (events["source"] < 3) & (events["destination"] < 3)
    path = log_of(tmp_path, packets[between], events[ups])
    with pytest.raises(ForetailError, match="names only 2 racks"):
        read(path)
    assert read(path, Reading(racks=3))[0].racks == 3


def test_times_need_no_nanoseconds(tmp_path: Path) -> None:
    packets = np.zeros(2, PACKET_DTYPE)
    packets["time_ns"], packets["source"], packets["destination"] = (1000, 3000), 1, 3
    packets["latency_us"] = 10
    path = log_of(tmp_path, packets, NO_EVENTS, time_dilation=1)
    records = np.fromfile(path, LAYOUTS[116])
    for record, text in zip(records, (b"1580000000.000001", b"1580000000.000003"), strict=True):
        record["stamp"] = np.frombuffer(text.ljust(17, b"\0") + b"\0garbage behind", np.uint8)
    records.tofile(path)
    _, arrivals = read(path, Reading(time_dilation=1))
    assert arrivals["time_ns"].tolist() == [0, 2000]


WEEK_NS = 400_000
CIRCUIT, PACKET = 1, 0


def pair_log(folder: Path, packets: list[tuple[int, int, int, int, int]], weeks: int = 4) -> EtalonLog:
    """A log of rack 1's circuit to rack 2; a packet is logged ns, latency us, bytes, by circuit, destination."""
    rows = np.zeros(len(packets), PACKET_DTYPE)
    for row, (time_ns, latency_us, size, circuit, destination) in zip(rows, packets, strict=True):
        row["time_ns"], row["latency_us"], row["circuit"] = time_ns, latency_us, circuit
        row["payload_bytes"] = size - HEADER_BYTES
        row["source"], row["destination"], row["voq"] = 1, destination, 7
        row["source_host"] = row["destination_host"] = 1
    ups = [(week * WEEK_NS + shift, up, 1, 2) for week in range(weeks) for shift, up in ((0, 1), (DAY_NS, 0))]
    write_etalon_log(folder / "log", rows, np.array(ups, EVENT_DTYPE))
    return EtalonLog.open(folder / "log", Reading(racks=3))


def packets_of_week(week: int) -> list[tuple[int, int, int, int, int]]:
    """Full packets by the circuit, one more than the week's number, and what must not count as such."""
    start = week * WEEK_NS
    return [
        *((start + 40_000 + 1_000 * i, 40, 9000, CIRCUIT, 2) for i in range(week + 1)),
        (start + 100_000, 45, HEADER_BYTES, CIRCUIT, 2),  # an acknowledgement
        (start + 110_000, 40, 9000, CIRCUIT, 3),  # to another rack
        (start + 250_000, 20, 9000, PACKET, 2),
        (start + 260_000, 500, 900, PACKET, 2),  # too small for a latency
    ]


def test_use_and_latency_are_those_of_the_pairs_data_packets(tmp_path: Path) -> None:
    log = pair_log(tmp_path, [packet for week in range(4) for packet in packets_of_week(week)])
    found = circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=0)
    # A day carries 1.8 MB, a packet is half a percent of that; the fourth week has no end.
    assert (found.weeks, found.p50_us, found.p99_us, found.longest_voq) == (3, 40, 40, 7)
    used = (found.least_percent, found.utilisation_percent, found.most_percent)
    assert used == pytest.approx((0.5, 1.0, 1.5))
    assert found.packet_gbps == pytest.approx(3 * 9900 * 8 / (3 * WEEK_NS))


def test_weeks_at_either_end_do_not_count(tmp_path: Path) -> None:
    log = pair_log(tmp_path, [packet for week in range(4) for packet in packets_of_week(week)])
    found = circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=1)
    assert found.weeks == 1
    assert found.utilisation_percent == found.least_percent == found.most_percent == pytest.approx(1.0)


def test_a_log_without_such_weeks_or_packets_is_refused(tmp_path: Path) -> None:
    log = pair_log(tmp_path, packets_of_week(0))
    with pytest.raises(ForetailError, match="no whole week between circuits from rack 1 to rack 2"):
        circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=2)
    with pytest.raises(ForetailError, match="no whole week between circuits from rack 1 to rack 3"):
        circuit_use(log, 1, 3, circuit_bps=80_000_000_000, skipped_weeks=0)
    only_late = pair_log(tmp_path, packets_of_week(3))
    with pytest.raises(ForetailError, match="no data from rack 1 to rack 2"):
        circuit_use(only_late, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=0)
