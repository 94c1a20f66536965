"""Congestion control of ours: the laws against their equilibria over one bottleneck, then as senders in ns-3."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from foretail.features.records import OCCUPANCY_DTYPE, Records, read_records
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.ns3.messages import Message, Piece, assigned, collective, columns, halves, pieces
from tests.examples import draws
from tests.refusals import refusing
from tests.scenarios import settings
from tests.sim_bridge.buffer.test_headers import compiled, run
from tests.sim_bridge.packets.paused_runs import GBPS, MILLISECOND, PACKET_BYTES, finished, needed_headroom, total

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


@pytest.mark.slow
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


@pytest.mark.parametrize(("queue", "window"), POWER_STATES)
def test_hpcc_settles_a_little_below_a_full_link(simulated: Simulated, queue: float, window: float) -> None:
    """A window of 0.95 bandwidth-delay products and the 0.0005 that a flow adds, and no queue."""
    time, queues, windows = simulated("hpcc", 300, queue, window).T
    settled = time > 200
    assert windows[settled].mean() == pytest.approx(0.9505, abs=0.004)
    assert queues[settled].mean() < 0.004


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


PACED = ["theta_powertcp", "timely", "powertcp", "hpcc"]


# Two flows and an incast of 16, against the time that their bytes take: after its first cut theta-PowerTCP only adds,
# and so does TIMELY, whose rates the steep first gradient cuts to almost nothing (thesis, section 2.3.2). HPCC leaves a
# twentieth of the link.
LATE = {"theta_powertcp": (1.15, 1.1), "timely": (2.7, 2.1), "powertcp": (1.1, 1.15), "hpcc": (1.13, 1.18)}
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
    least = 0.8 if name == "hpcc" else 0.9  # with N = 100 its windows meet slowly
    assert query.flows["fct_ns"].min() > least * query.flows["fct_ns"].max()
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


flows_and_spines = st.tuples(st.integers(0, 40), st.integers(1, 20))


def loads(found: list[Piece], spines: int) -> list[int]:
    total = [0] * spines
    for _, spine, size_bytes in found:
        total[spine] += size_bytes
    return total


@given(flows_and_spines, st.integers(1, 10**9), st.data())
def test_every_spine_gets_what_spraying_gives_it(sizes: tuple[int, int], size_bytes: int, data: st.DataObject) -> None:
    flows, spines = sizes
    found = pieces(flows, spines, size_bytes, first_spine=data.draw(st.integers(0, spines - 1)))
    of_flow: Counter[int] = Counter()
    for piece in found:
        assert piece.size_bytes > 0
        of_flow[piece.flow] += piece.size_bytes
    assert of_flow == Counter(dict.fromkeys(range(flows), size_bytes))  # no byte is lost or doubled
    most, least = max(loads(found, spines)), min(loads(found, spines))
    rounded = flows % spines // math.gcd(flows % spines, spines)
    assert most - least <= rounded  # a byte for each part
    assert most < flows * size_bytes / spines + max(rounded, 1)


@given(flows_and_spines, st.sampled_from([1, 7, 1000]))
def test_equal_cuts_add_r_times_s_minus_g_over_g_subflows(sizes: tuple[int, int], scale: int) -> None:
    flows, spines = sizes
    size_bytes = spines * scale  # so that no part is rounded away
    left = flows % spines
    common = math.gcd(left, spines)
    found = pieces(flows, spines, size_bytes)
    assert len(found) - flows == left * (spines - common) // common
    assert sum(number > 1 for number in Counter(piece.flow for piece in found).values()) <= left


def fewest_by_integer_program(flows: int, spines: int, *, count_cut_flows: bool) -> int:
    """The fewest parts, or flows that are cut, with which all spines get the same; a flow is one.

    Variables: the share of flow i on spine j, whether it is there, and whether flow i is cut.
    """
    cells = flows * spines
    of_flow, of_spine = np.kron(np.eye(flows), np.ones(spines)), np.kron(np.ones(flows), np.eye(spines))
    rows: list[list[npt.NDArray[Any]]] = [
        [of_flow, 0 * of_flow, np.zeros((flows, flows))],  # a flow is whole
        [of_spine, 0 * of_spine, np.zeros((spines, flows))],  # spines get the same
        [np.eye(cells), -np.eye(cells), np.zeros((cells, flows))],  # a share is where it is
        [0 * of_flow, of_flow, -spines * np.eye(flows)],  # a flow with two parts is cut
    ]
    high = np.repeat([1, flows / spines, 0, 1], [flows, spines, cells, flows])
    low = np.where(np.arange(len(high)) < flows + spines, high, -np.inf)
    counted = np.repeat([0, not count_cut_flows, count_cut_flows], [cells, cells, flows])
    found = milp(
        counted,
        integrality=np.repeat([0, 1], [cells, cells + flows]),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.block(rows), low, high),
    )
    assert found.success
    return round(float(found.fun))


@pytest.mark.parametrize(("flows", "spines"), [(1, 2), (1, 3), (2, 3), (3, 4), (2, 4), (5, 3), (5, 4), (3, 5), (4, 6)])
def test_an_integer_program_cuts_as_few_flows_but_makes_fewer_parts(flows: int, spines: int) -> None:
    parts = fewest_by_integer_program(flows, spines, count_cut_flows=False)
    assert parts == flows + spines - math.gcd(flows, spines) <= len(pieces(flows, spines, spines))
    assert fewest_by_integer_program(flows, spines, count_cut_flows=True) == flows % spines


def test_known_cases() -> None:
    assert len(pieces(3, 4, 12)) == 12
    assert len(pieces(6, 16, 16)) == 48
    assert pieces(4, 4, 9, first_spine=3) == [(0, 3, 9), (1, 0, 9), (2, 1, 9), (3, 2, 9)]
    assert pieces(1, 2, 5) == [(0, 0, 2), (0, 1, 3)]
    assert pieces(1, 4, 2) == [(0, 1, 1), (0, 3, 1)]  # no part without a byte
    assert pieces(0, 4, 5) == []


test_what_cannot_be_assigned_is_refused = refusing(
    (lambda: pieces(3, 0, 5), "spines = 0 is too small: give at least 1"),
    (lambda: assigned([Message(0, 1, 5, 0, 2, 0)], 0, 2), "spines = 0 is too small: give at least 1"),
    (lambda: pieces(-1, 4, 5), "flows = -1 is too small: give at least 0"),
    (lambda: pieces(3, 4, 0), "size_bytes = 0 is too small"),
    (lambda: pieces(3, 4, 5, first_spine=4), "first_spine = 4 is not one of 4 spines: give 0 to 3"),
)


def exchange(kind: str, servers: int, size_bytes: int, **given_: int) -> list[Message]:
    return collective(
        kind,
        [list(range(servers))],
        size_bytes,
        **({"repeat": 1, "compute_ns": 0, "seed": 1} | given_),
        traffic_ns=1000,
    )


def test_all_to_all_keeps_its_flows_whole_and_loads_both_ends_of_every_spine_evenly() -> None:
    """The thesis's network: 16 spines and 16 servers below each leaf."""
    below, spines = 16, 16
    messages = exchange("all_to_all", 64, 63 * 1600)
    found = assigned(messages, spines, below)
    assert len(found) == 64 * 63
    inside = [message for message in found if message.source // below == message.destination // below]
    assert {message.spine for message in inside} == {-1}
    for end in ("source", "destination"):
        load = Counter((getattr(message, end) // below, message.spine) for message in found if message.spine >= 0)
        assert set(load.values()) == {16 * 48 // 16}
        assert len(load) == 4 * 16


def test_a_ring_of_four_channels_has_sixteen_subflows_a_server() -> None:
    ring = [leaf * 16 for leaf in range(16)]
    messages = collective("ring", [ring], 4 * 1_000_000, repeat=2, compute_ns=5, traffic_ns=1000, seed=1, channels=4)
    assert len(messages) == 2 * 16 * 4
    found = assigned(messages, 16, 16)
    assert len(found) == 2 * 16 * 16
    of_server = [message for message in found if message.source == 0 and message.round == 0]
    assert sorted(message.spine for message in of_server) == list(range(16))
    assert {message.size_bytes for message in of_server} == {250_000}
    later = next(message for message in found if message.round == 1)
    waits_for = [found[place] for place in later.after]
    assert len(waits_for) == 16  # all pieces of what it received
    assert {message.destination for message in waits_for} == {later.source}
    ends = {(message.connection, message.source, message.destination, message.spine) for message in found}
    assert len(ends) == len({message.connection for message in found})  # a connection keeps its spine


def test_parts_that_differ_by_a_byte_are_one_batch_and_steps_are_several() -> None:
    uneven = assigned(exchange("all_to_all", 16, 1_000), 4, 4)  # 15 parts of 66 or 67 bytes
    assert len(uneven) == 16 * 15
    ring = collective("ring_all_reduce", [[0, 4, 8, 12]], 4_000, repeat=1, compute_ns=0, traffic_ns=9, seed=1)
    found = assigned(ring, 4, 4)
    assert len(found) == 4 * len(ring)  # each step sends one flow, which takes all four spines
    assert {message.size_bytes for message in found} == {250}


def test_a_permutation_is_between_halves_and_drawn_by_its_seed() -> None:
    servers = list(range(20))
    drawn = {seed: halves(servers, seed) for seed in (1, 2)}
    assert drawn[1][:10] == drawn[2][:10] == servers[:10]
    assert drawn[1] != drawn[2]
    messages = collective("permutation", [drawn[1]], 50, repeat=1, compute_ns=0, traffic_ns=9, seed=1)
    assert [message.source for message in messages] == list(range(10))
    assert sorted(message.destination for message in messages) == list(range(10, 20))


SERVER_BPS, UPLINK_BPS, BUFFER_BYTES_PER_GBPS = 40 * GBPS, 10 * GBPS, 10_000


def shared_buffer(servers: int, uplinks: int) -> int:
    """Bytes of a leaf in :func:`steady_state` without headroom."""
    whole = BUFFER_BYTES_PER_GBPS * (servers * SERVER_BPS + uplinks * UPLINK_BPS) // GBPS
    return whole - servers * needed_headroom(0, SERVER_BPS) - uplinks * needed_headroom(0, UPLINK_BPS)


def steady_state(
    folder: Path, servers: int, uplinks: int, *, lossy: bool = True, **changes: Any
) -> tuple[float, float]:
    """Median bytes of lossy and of lossless packets in a leaf whose servers send far more than its uplinks carry.

    So there is a lossless queue at the port of each server, and a lossy one at each uplink. Links have no delay: a
    queue goes on as soon as it may.
    """
    pairs = [(source, servers + source) for source in range(servers)] * (2 * uplinks * lossy)
    messages = [Message(0, 10**9, 20_000_000, *pair, number) for number, pair in enumerate(pairs)]
    usual: dict[str, Any] = {
        "topology__spines": uplinks,
        "topology__servers_per_leaf": servers,
        "topology__server_link_bps": SERVER_BPS,
        "topology__spine_link_bps": UPLINK_BPS,
        "topology__link_delay_ns": 0,
        "topology__buffer_bytes_per_port_per_gbps": BUFFER_BYTES_PER_GBPS,
        "background__load": 0.0,
        "incast__queries_per_second_per_server": 5_000.0,
        "incast__fan_in": servers,
        "incast__burst_fraction": 2.0,
        "incast__connect_ahead_ns": 0,
        "transport__name": "roce",
        "traffic_ns": 4 * MILLISECOND,
        "drain_ns": 0,
        "occupancy_interval_ns": 1000,
        "queues__count": 3,
        "queues__scheduler": "deficit_round_robin",  # packet by packet answers would wait in a queue of their own
        "queues__background": 1,
        "queues__incast": 2,
        "queues__lossless": [2],
        "pfc__xon_offset_bytes": 0,
        "messages": columns(messages),
    }
    folder.mkdir()
    _, summary = finished(settings(**(usual | changes)), folder)
    assert total(summary, "lossless", "drops", "packets") == 0
    samples = read_records(folder / "occupancy.bin", OCCUPANCY_DTYPE)
    samples = samples[(samples["switch"] == 0) & (samples["time_ns"] > 3 * MILLISECOND)]
    lossless = samples["lossless_bytes"]
    return float(np.median(samples["occupancy_bytes"] - lossless)), float(np.median(lossless))


alphas = st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0])


@examples(max_examples=draws(60), deadline=None)
@given(
    servers=st.integers(3, 6),
    uplinks=st.integers(1, 3),
    lossy_alpha=alphas,
    lossless_alpha=alphas,
    lossy_share=st.sampled_from([0.5, 0.8]),
)
def test_queues_of_sonic_stay_at_their_closed_forms(
    servers: int,
    uplinks: int,
    lossy_alpha: float,
    lossless_alpha: float,
    lossy_share: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Equations 5.7 and 5.8, within two packets for each queue."""
    shared = shared_buffer(servers, uplinks)
    lossy_pool = int(lossy_share * shared)
    lossy, lossless = steady_state(
        tmp_path_factory.mktemp("run") / "run",
        servers,
        uplinks,
        policy__name="sonic",
        policy__egress_lossy_pool_bytes=lossy_pool,
        policy__ingress_alphas=[1000.0, 1000.0, lossless_alpha],
        policy__egress_alphas=[1000.0, lossy_alpha, 1000.0],
    )
    x, y = (n * alpha / (1 + n * alpha) for n, alpha in ((servers, lossless_alpha), (uplinks, lossy_alpha)))
    assert abs(lossy - lossy_pool * y) < 2 * PACKET_BYTES * uplinks
    assert abs(lossless - (shared * x - lossy_pool * x * y)) < 2 * PACKET_BYTES * servers


def test_alphas_of_sonic_at_egress_are_those_at_ingress_unless_given(tmp_path: Path) -> None:
    alphas = [4.0, 0.25, 0.5]
    once = steady_state(tmp_path / "once", 3, 1, policy__name="sonic", policy__ingress_alphas=alphas)
    both: dict[str, Any] = {"policy__ingress_alphas": alphas, "policy__egress_alphas": alphas}
    assert once == steady_state(tmp_path / "twice", 3, 1, policy__name="sonic", **both)


@examples(max_examples=draws(40), deadline=None)
@given(servers=st.integers(3, 5), uplinks=st.integers(1, 2), lossy_alpha=alphas, lossless_alpha=alphas)
def test_classes_of_reverie_share_the_buffer_as_their_alphas(
    servers: int, uplinks: int, lossy_alpha: float, lossless_alpha: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Theorems 10 and 11, within two packets for each lossless queue and three for each lossy one, which gives way to
    them; how many queues there are does not matter.

    Averages are short and the buffer is large, so that every queue counts as congested.
    """
    shared = shared_buffer(servers, uplinks)
    reverie: dict[str, Any] = {"policy__name": "reverie", "policy__alpha": lossy_alpha, "pfc__alpha": lossless_alpha}
    reverie |= {"policy__low_pass_ns": 200}
    lossy, lossless = steady_state(tmp_path_factory.mktemp("run") / "run", servers, uplinks, **reverie)
    both = 1 + lossy_alpha + lossless_alpha
    assert abs(lossless - lossless_alpha * shared / both) < 2 * PACKET_BYTES * servers
    assert abs(lossy - lossy_alpha * shared / both) < 3 * PACKET_BYTES * uplinks
    idle, slack = shared - lossy - lossless, 2 * PACKET_BYTES * (servers + uplinks)
    assert shared / both - slack < idle < shared / (1 + min(lossy_alpha, lossless_alpha)) + slack
    folder = tmp_path_factory.mktemp("run") / "run"
    no_lossy, alone = steady_state(folder, servers, uplinks, lossy=False, **reverie)
    assert no_lossy < PACKET_BYTES
    assert abs(alone - lossless_alpha * shared / (1 + lossless_alpha)) < 3 * PACKET_BYTES * servers
