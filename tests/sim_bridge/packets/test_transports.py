"""Congestion control of ours: the laws against their equilibria over one bottleneck, then as senders in ns-3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from foretail.features.records import Records
from foretail.sim_bridge.ns3.driver import run_driver
from tests.scenarios import settings
from tests.sim_bridge.buffer.test_headers import compiled, run

Simulated = Callable[..., npt.NDArray[np.float64]]
RATE_BPS, BASE_RTT_NS = 100e9, 80e3  # 714 segments: single packets do not matter
POWER_STATES = [(0.0, 0.25), (0.0, 2.0), (0.5, 1.5), (1.5, 0.5)]  # queue and window, in bandwidth-delay products


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """Runs a law: rows of time in base round trips, queue and windows in bandwidth-delay products."""
    source = Path(__file__).with_name("congestion_check.cpp")
    program = compiled(tmp_path_factory.mktemp("congestion_check") / "congestion_check", source)

    def simulate(
        law: str,
        rounds: int,
        queue: float,
        *windows: float,
        rate_bps: float = RATE_BPS,
        base_rtt_ns: float = BASE_RTT_NS,
    ) -> npt.NDArray[np.float64]:
        arguments = map(str, (rate_bps, base_rtt_ns, rounds, queue, *windows))
        return np.array([line.split() for line in run(program, law, *arguments).splitlines()], dtype=np.float64)

    return simulate


@pytest.mark.parametrize(("law", "rounds"), [("powertcp", 40), ("theta_powertcp", 120)])
@pytest.mark.parametrize(("queue", "window"), POWER_STATES)
def test_power_settles_at_its_equilibrium(
    simulated: Simulated, law: str, rounds: int, queue: float, window: float
) -> None:
    """Theorem 1 of the thesis with beta = 0.01 bandwidth-delay products: window 1.01 and queue 0.01 of them."""
    time, queues, windows = simulated(law, rounds + 60, queue, window).T
    settled = time > rounds
    assert windows[settled].mean() == pytest.approx(1.01, abs=0.004)
    assert queues[settled].mean() == pytest.approx(0.01, abs=0.004)
    assert np.ptp(windows[settled]) < 0.01


def test_theta_powertcp_only_adds_while_the_link_is_idle(simulated: Simulated) -> None:
    time, queues, windows = simulated("theta_powertcp", 40, 0.0, 0.25).T
    assert np.all(queues == 0)
    per_round = np.diff(windows[(time > 2) & (time == np.round(time))])
    np.testing.assert_allclose(per_round, 0.9 * 0.01, atol=1e-5)  # gamma beta


@pytest.mark.parametrize("senders", [2, 16])
def test_timely_rides_its_lower_threshold(simulated: Simulated, senders: int) -> None:
    rows = simulated("timely", 3000, 0.0, *[1 / senders] * senders, rate_bps=10e9, base_rtt_ns=27_000)
    rtt_us = 27 * (1 + rows[rows[:, 0] > 1000, 1])
    assert rtt_us.max() < 100  # T_high is 500: only the gradient holds it
    assert np.percentile(rtt_us, 99) > 50  # T_low: below it the rate only grows


def test_timely_leaves_round_trips_above_its_upper_threshold(simulated: Simulated) -> None:
    time, queue = simulated("timely", 300, 0.0, *[1.0] * 16, rate_bps=10e9, base_rtt_ns=27_000).T[:2]
    rtt_us = 27 * (1 + queue)
    drained_by = time[rtt_us > 500].max()
    assert drained_by < 1.5 * queue.max()  # the time that the bottleneck needs, and little more
    assert rtt_us[time > drained_by + 20].max() < 100


def jain(rates: npt.NDArray[np.float64]) -> float:
    """1 when all are equal, 1 / n when one has all."""
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


@pytest.mark.parametrize("law", ["powertcp", "theta_powertcp"])
def test_windows_become_fair(simulated: Simulated, law: str) -> None:
    windows = simulated(law, 500, 0.0, 0.7, 0.2, 0.1)[:, 2:]
    assert jain(windows[0]) < 0.65
    assert jain(windows[-1]) > 0.97
    assert windows[-1].sum() == pytest.approx(1.01, abs=0.01)


# ---- in ns-3 ------------------------------------------------------------------------------------------------------

PACED = ["theta_powertcp", "timely", "powertcp"]
# Two flows and an incast of 16, against the time that their bytes take: after its first cut theta-PowerTCP only adds,
# and so does TIMELY, whose rates the steep first gradient cuts to almost nothing (thesis, section 2.3.2).
LATE = {"theta_powertcp": (1.15, 1.1), "timely": (2.7, 2.1), "powertcp": (1.1, 1.15)}
BASE_RTT_US, BDP_BYTES = 27, 27e3 * 10 / 8


@dataclass(frozen=True)
class Query:
    """A query of long responses that is alone in the network, on servers with links of 10 Gbit/s."""

    flows: Records
    time_us: npt.NDArray[np.float64]  # of the queue's samples, since the start of the flows
    queue_bytes: npt.NDArray[np.float64]  # in the longest queue of all
    dropped: int

    @property
    def last_us(self) -> float:
        return float(self.flows["fct_ns"].max()) / 1000

    @property
    def ideal_us(self) -> float:
        """All bytes over one link, headers included."""
        return float(self.flows["size_bytes"].sum()) * 1442 / 1400 * 8 / 10_000

    def mean_queue_bytes(self, since_us: float) -> float:
        last = float(self.flows["fct_ns"].min()) / 1000 - BASE_RTT_US
        return float(self.queue_bytes[(self.time_us >= since_us) & (self.time_us < last)].mean())


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Query]:
    def query(name: str, fan_in: int, response_bytes: int, spine_link_bps: int = 160_000_000_000) -> Query:
        servers = max(4, fan_in)
        seed, queries_per_second = {4: (20, 8.0), 16: (15, 2.0)}[servers]  # that make one query
        document = settings(
            seed=seed,
            topology__spines=1,
            topology__servers_per_leaf=servers,
            topology__spine_link_bps=spine_link_bps,
            background__load=0.0,
            incast__queries_per_second_per_server=queries_per_second,
            incast__fan_in=fan_in,
            incast__burst_fraction=fan_in * response_bytes * 1e9 / (5120 * (servers * 10_000_000_000 + spine_link_bps)),
            traffic_ns=20_000_000,
            occupancy_interval_ns=5_000,
            policy__name="cs",
            transport__name=name,
        )
        run = run_driver(document, tmp_path_factory.mktemp("run"))
        flows, samples = run.flows(), run.occupancy()
        assert run.summary["completed_flows"] == len(flows) == fan_in
        times = np.unique(samples["time_ns"])
        return Query(
            flows,
            (times - flows["start_ns"][0]) / 1000,
            samples["longest_bytes"].reshape(len(times), -1).max(axis=1).astype(float),
            sum(why["packets"] for node in run.summary["switches"] for why in node["data_drops"].values()),
        )

    return query


@pytest.mark.ns3
@pytest.mark.parametrize("name", PACED)
def test_a_flow_alone_fills_its_link(ask: Callable[..., Query], name: str) -> None:
    query = ask(name, 1, 4_000_000)
    assert query.last_us < 1.01 * query.ideal_us
    assert query.queue_bytes.max() < 2 * 1440


@pytest.mark.ns3
@pytest.mark.parametrize("name", ["theta_powertcp", "powertcp"])
def test_a_slow_link_inside_the_network_is_filled_with_a_short_queue(ask: Callable[..., Query], name: str) -> None:
    query = ask(name, 1, 2_000_000, spine_link_bps=5_000_000_000)
    assert query.last_us < 1.2 * 2 * query.ideal_us
    assert query.queue_bytes.max() > 0.3 * BDP_BYTES
    assert query.mean_queue_bytes(since_us=20 * BASE_RTT_US) < 0.1 * BDP_BYTES


@pytest.mark.ns3
@pytest.mark.parametrize("name", PACED)
def test_two_flows_share_their_link(ask: Callable[..., Query], name: str) -> None:
    query = ask(name, 2, 2_000_000)
    assert query.last_us < LATE[name][0] * query.ideal_us
    assert query.flows["fct_ns"].min() > 0.9 * query.flows["fct_ns"].max()
    assert query.queue_bytes.max() > 0.8 * BDP_BYTES  # both start at line rate
    assert query.mean_queue_bytes(since_us=10 * BASE_RTT_US) < 0.1 * BDP_BYTES


@pytest.mark.ns3
@pytest.mark.parametrize("name", PACED)
def test_an_incast_drains(ask: Callable[..., Query], name: str) -> None:
    query = ask(name, 16, 500_000)
    assert query.dropped == 0
    assert query.queue_bytes.max() > 8 * BDP_BYTES
    assert query.mean_queue_bytes(since_us=80 * BASE_RTT_US) < 0.75 * BDP_BYTES  # about a packet of each flow
    assert query.last_us < LATE[name][1] * query.ideal_us


@pytest.mark.ns3
@pytest.mark.parametrize("name", PACED)
def test_losses_are_repaired_and_marks_ignored(tmp_path: Path, name: str) -> None:
    run = run_driver(settings(transport__name=name, policy__name="dt", traffic_ns=1_500_000), tmp_path)
    flows, nodes = run.flows(), run.summary["switches"]
    assert run.summary["completed_flows"] == run.summary["flows"] > 30
    assert sum(node["data_drops"]["over_threshold"]["packets"] for node in nodes) > 0
    assert flows["retransmissions"].sum() > 0
    assert np.all(flows["fct_ns"] >= flows["ideal_fct_ns"])
    assert sum(node["marked"] for node in nodes) == 0
