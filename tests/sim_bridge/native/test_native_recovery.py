"""How senders of the native network repair losses: as ns-3 or as Linux.

Costs a second for each drawn setting, and no compiler: the network runs in this process. Beside the emulator it takes
two minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.records import Records
from foretail.sim_bridge.emulator.emulator import EMULATOR, run_emulator, why_not_here
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from tests.examples import draws
from tests.scenarios import MILLISECOND, settings
from tests.sim_bridge.native.drawn_settings import TCP, drawn_settings

SEGMENT = 1400
LEAST_RTO_NS = 10 * MILLISECOND
SENDERS = 8
HOUR_NS = 3_600_000 * MILLISECOND


def messages(rows: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Messages of (source, destination, bytes), each on a connection of its own, that all start after 1 ms."""
    count = range(len(rows))
    columns: dict[str, list[Any]] = {
        "start_ns": [MILLISECOND for _ in count],
        "latest_ns": [HOUR_NS for _ in count],
        "source": [source for source, _, _ in rows],
        "destination": [destination for _, destination, _ in rows],
        "size_bytes": [size for _, _, size in rows],
        "connection": list(count),
        "after": [[] for _ in count],
        "gap_ns": [0 for _ in count],
    }
    return {f"messages__{name}": column for name, column in columns.items()}


def star_of(servers: int) -> dict[str, Any]:
    """A single switch."""
    return {
        "topology__leaves": 1,
        "topology__spines": 0,
        "topology__servers_per_leaf": servers,
        "background__destinations": "other_servers",
        "incast__responders": "other_servers",
    }


def flows_of(recovery: str, rows: list[tuple[int, int, int]], **changes: Any) -> Records:
    """What becomes of messages at a star without other traffic."""
    document = settings(
        **messages(rows),
        **{
            **star_of(SENDERS + 1),
            "background__load": 0.0,
            "incast__queries_per_second_per_server": 0.0,
            "transport__name": "newreno",
            "transport__mark_bytes": 0,
            "transport__slow_start": True,
            "transport__recovery": recovery,
            "policy__name": "cs",
        }
        | changes,
    )
    network = NativeNetwork(document)
    network.advance()
    flows = network.flows()
    assert (flows["fct_ns"] >= 0).all()
    return flows


@pytest.mark.parametrize("segments", [1, 2, 10, 22])
def test_without_a_loss_a_flow_takes_its_ideal_time_and_a_handshake(segments: int) -> None:
    times = {}
    for recovery in ("ns3", "linux"):
        (flow,) = flows_of(recovery, [(0, 1, segments * SEGMENT)])
        assert flow["retransmissions"] == flow["timeouts"] == 0
        times[recovery] = flow["fct_ns"]
    assert abs(times["linux"] - times["ns3"]) <= 1  # ns-3 sends one ns after the application


def test_a_lost_tail_is_repaired_before_the_timeout() -> None:
    """All send twenty segments at once into a buffer of thirty, so that the ends of all bursts are lost."""
    rows = [(sender, SENDERS, 20 * SEGMENT) for sender in range(SENDERS)]
    buffer = {"topology__buffer_bytes_per_port_per_gbps": 500}
    as_ns3, as_linux = (flows_of(recovery, rows, **buffer) for recovery in ("ns3", "linux"))
    assert (as_ns3["timeouts"] > 0).mean() > 0.5
    assert (as_linux["timeouts"] > 0).mean() < 0.3
    assert as_linux["retransmissions"].sum() > 50
    quick = as_linux["timeouts"] == 0
    assert (as_linux["fct_ns"][quick] < LEAST_RTO_NS).all()


def test_a_lost_last_segment_waits_two_round_trips_and_no_timeout() -> None:
    """The second burst finds the buffer full; of its last segments nothing arrives that tells of the loss."""
    rows = [(0, SENDERS, 22 * SEGMENT), (1, SENDERS, 22 * SEGMENT), (2, SENDERS, 3 * SEGMENT)]
    flows = flows_of("linux", rows, topology__buffer_bytes_per_port_per_gbps=300)
    assert flows["retransmissions"].sum() > 0
    assert flows["timeouts"].sum() == 0
    assert flows["fct_ns"].max() < MILLISECOND


def test_a_lost_retransmission_is_repaired_without_a_timeout() -> None:
    """Packets are lost at random beside those that find the buffer full, and so are some that are sent again."""
    changes = {
        "policy__name": "credence",
        "policy__flip_probability": 0.02,
        "topology__buffer_bytes_per_port_per_gbps": 600,
    }
    rows = [(sender, SENDERS, 300 * SEGMENT) for sender in range(4)]
    as_ns3, as_linux = (flows_of(recovery, rows, **changes) for recovery in ("ns3", "linux"))
    assert as_ns3["timeouts"].sum() > 2
    assert as_linux["retransmissions"].sum() > as_ns3["retransmissions"].sum() > 100
    assert as_linux["timeouts"].sum() == 0
    assert as_linux["fct_ns"].max() < LEAST_RTO_NS < as_ns3["fct_ns"].max()


def test_marks_alone_shrink_the_window_and_repeat_nothing() -> None:
    rows = [(sender, SENDERS, 400 * SEGMENT) for sender in range(2)]
    changes = {"transport__name": "dctcp", "transport__mark_bytes": 43_200}
    as_ns3, as_linux = (flows_of(recovery, rows, **changes) for recovery in ("ns3", "linux"))
    assert as_linux["retransmissions"].sum() == 0
    assert np.allclose(as_linux["fct_ns"].mean(), as_ns3["fct_ns"].mean(), rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lqd", pytest.param("dt", marks=pytest.mark.nightly)])
def test_flows_take_as_long_as_in_the_emulator(policy: str, tmp_path: Path) -> None:
    executable = EMULATOR.build()
    if (reason := why_not_here(executable)) is not None:
        pytest.skip(reason)
    document = settings(
        **star_of(8),
        transport__name="newreno",
        transport__mark_bytes=0,
        transport__slow_start=True,
        transport__recovery="linux",
        incast__queries_per_second_per_server=500.0,
        policy__name=policy,
        traffic_ns=2 * MILLISECOND,
        drain_ns=40 * MILLISECOND,
    )
    network = NativeNetwork(document)
    network.advance()
    emulation = {"factor": 4000, "control": "reno", "background_control": "reno", "lateness_share": 0.1}
    asked = document | {"emulation": {**emulation, "tail_loss_probes": True}}
    run = run_emulator(asked, tmp_path, executable=executable)
    if not run.is_valid:
        pytest.skip(f"the emulation was late: {run.why_invalid}")
    times = np.array([flows["fct_ns"] for flows in (run.flows(), network.flows())], float)
    times = times[:, ((times >= 0) & (times < LEAST_RTO_NS)).all(axis=0)]
    assert times.shape[1] > 0.8 * len(run.flows())
    assert abs(np.log(times[0] / times[1]).mean()) < np.log(1.1)


@examples(max_examples=draws(25), deadline=None)
@given(number=st.integers(0, 2**32 - 1))
def test_every_flow_that_starts_is_delivered(number: int) -> None:
    """Without drops at random, under which a timeout of two minutes may come up too often for an hour."""
    document = drawn_settings(number, TCP[number % len(TCP)])
    document["transport"]["recovery"] = "linux"
    document["policy"]["flip_probability"] = 0.0
    network = NativeNetwork({**document, "drain_ns": HOUR_NS, "trace": False})
    network.advance()
    flows = network.flows()
    assert (flows["fct_ns"][flows["start_ns"] >= 0] > 0).all()


def test_the_ns3_driver_refuses_it_by_name(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"'transport\.recovery' = linux is not simulated by ns-3: run it in the"):
        run_driver(settings(transport__recovery="linux"), tmp_path)


@pytest.mark.parametrize("transport", ["powertcp", "irn"])
def test_it_is_that_of_a_tcp(transport: str) -> None:
    with pytest.raises(ForetailError, match=f"'transport.recovery' must be ns3 with {transport}, not"):
        NativeNetwork(settings(transport__recovery="linux", transport__name=transport))


def test_another_recovery_is_one_sentence() -> None:
    with pytest.raises(ForetailError, match=r"setting 'transport\.recovery' is 'bsd'") as refused:
        NativeNetwork(settings(transport__recovery="bsd"))
    assert "\n" not in str(refused.value)
