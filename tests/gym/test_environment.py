"""The environments decide as the native simulators do, packet for packet, and keep Gymnasium's contract."""

from __future__ import annotations

import copy
import itertools
import math
import pickle  # noqa: TID251 - of an environment, to another process
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import ARRIVAL_DTYPE, FlowClass
from foretail.gym import ACCEPT, DROP, BufferEnv, BufferVectorEnv, FromDatasets, FromFile, Generated, Reward, Traffic
from foretail.gym.traffic import Episode, RecordedEpisode, SlottedEpisode
from foretail.models.ensemble.ensemble import Ensemble
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.replay import replay_of
from tests.docs.pages import ROOT
from tests.examples import draws
from tests.sim_bridge.slow_models.bytes import Geometry, Packet
from tests.strategies import SlottedArrivals, byte_arrivals, slotted_arrivals, small_ensembles
from tests.traces import RUN, write_bursts

LENGTHS = ("queue", "threshold")
VIRTUAL = ("threshold", "thresholds_sum", "threshold_max", "queues_over_share", "since_push_out", "arrival_rate")
EVERY = tuple(feature.name for feature in FEATURES)
Rule = Callable[[dict[str, int], dict[str, Any], int], int]


@dataclass(frozen=True)
class Given(Traffic):
    """Episodes that a test has made."""

    made: tuple[Episode, ...]
    has_bytes: bool = False

    def episode(self, seed: int) -> Episode:
        return self.made[seed % len(self.made)]


def in_slots(case: SlottedArrivals) -> SlottedEpisode:
    arrivals = Slotted(np.array(case.slot, np.int64), np.array(case.port, np.int32))
    return SlottedEpisode(arrivals, case.ports, case.buffer, cell_bytes=256, average_shift=5)


def native(policy: str, case: SlottedArrivals, predictions: NDArray[np.uint8] | None = None) -> dict[str, Any]:
    slot, port = np.array(case.slot, np.int64), np.array(case.port, np.int32)
    return slotted(policy, case.ports, case.buffer, slot, port, predictions, features=True)


def play(env: BufferEnv, names: Sequence[str], rule: Rule, sizes: Sequence[int]) -> tuple[list[bool], float, list[int]]:
    """Whether each packet was lost, what was earned in total, and the positions of the packets that asked."""
    observation, info = env.reset(seed=0)
    lost, earned, asked, over = [], 0.0, [], False
    while not over:
        asked.append(info["arrival"])
        action = rule(dict(zip(names, observation.tolist(), strict=True)), info, sizes[info["arrival"]])
        observation, reward, over, _, info = env.step(action)
        lost.append(info["lost"] > 0)
        earned += reward
    assert not observation.any()
    return lost, earned, asked


def always(observed: dict[str, int], info: dict[str, Any], size: int) -> int:
    return ACCEPT


def credence(predicts_drop: Callable[[dict[str, int], dict[str, Any]], bool]) -> Rule:
    """Algorithm 1, from what the environment shows."""

    def rule(observed: dict[str, int], info: dict[str, Any], size: int) -> int:
        if not info["exposed"]:
            return ACCEPT
        if observed["queue"] + size > observed["threshold"]:
            return DROP
        return DROP if predicts_drop(observed, info) else ACCEPT

    return rule


@settings(max_examples=draws(200))
@given(case=slotted_arrivals().filter(lambda case: bool(case.slot)))
def test_credence_with_the_labels_is_the_native_one(case: SlottedArrivals) -> None:
    run = native("credence", case, native("lqd", case)["lqd_drop"])
    env = BufferEnv(Given((in_slots(case),)), features=LENGTHS, labels=True)
    rule = credence(lambda observed, info: info["lqd_drop"])
    lost, earned, _ = play(env, LENGTHS, rule, [1] * len(case.slot))
    assert lost == (run["outcome"] != 0).tolist()
    assert earned == run["transmitted"]


@settings(max_examples=draws(100))
@given(case=slotted_arrivals().filter(lambda case: bool(case.slot)), ensemble=small_ensembles(VIRTUAL))
def test_credence_with_a_stored_predictor_is_the_native_one(case: SlottedArrivals, ensemble: Ensemble) -> None:
    """The features are those of the virtual LQD, so the native run can have all predictions beforehand."""
    stored = Ensemble.from_json(ensemble.to_json())
    chosen = [EVERY.index(name) for name in VIRTUAL]
    predictions = stored.exceeds(native("lqd", case)["features"][:, chosen])
    run = native("credence", case, predictions.view(np.uint8))
    names = ("queue", *VIRTUAL)
    rule = credence(lambda observed, _: bool(stored.exceeds(np.array([[observed[name] for name in VIRTUAL]]))[0]))
    lost, earned, _ = play(BufferEnv(Given((in_slots(case),)), features=names), names, rule, [1] * len(case.slot))
    assert lost == (run["outcome"] != 0).tolist()
    assert earned == run["transmitted"]


@settings(max_examples=draws(100))
@given(case=slotted_arrivals().filter(lambda case: bool(case.slot)), seed=st.integers(0, 2**32 - 1))
def test_observations_are_the_native_features(case: SlottedArrivals, seed: int) -> None:
    drop = (np.random.default_rng(seed).random(len(case.slot)) < 0.2).astype(np.uint8)
    env = BufferEnv(Given((in_slots(case),)), features=EVERY)
    seen, _ = env.reset(seed=0)
    rows = []
    for action in drop:
        rows.append(seen)
        seen = env.step(action)[0]
    # what is dropped on purpose never arrives at the real queues of a switch that accepts everything
    kept = drop == 0
    virtual = [i for i, feature in enumerate(FEATURES) if feature.state != "real"]
    np.testing.assert_array_equal(np.array(rows)[:, virtual], native("cs", case)["features"][:, virtual])
    slot, port = np.array(case.slot, np.int64)[kept], np.array(case.port, np.int32)[kept]
    alone = slotted("cs", case.ports, case.buffer, slot, port, features=True)["features"]
    lengths = [EVERY.index("queue"), EVERY.index("occupancy")]
    np.testing.assert_array_equal(np.array(rows)[kept][:, lengths], alone[:, lengths])


@settings(max_examples=draws(100))
@given(case=byte_arrivals().filter(lambda case: any(packet.data for packet in case[1])))
@pytest.mark.parametrize("policy", ["cs", "credence"])
@pytest.mark.parametrize("unit", ["packets", "bytes"])
def test_in_bytes_it_is_the_replay(policy: str, unit: Any, case: tuple[Geometry, list[Packet]]) -> None:
    geometry, packets = case
    run = replace(
        RUN,
        switches=(SwitchGeometry(geometry.ports, geometry.buffer, geometry.rates_bps),),
        scenario={"topology": {"wire_overhead_bytes": geometry.overhead}},
        cell_bytes=1,
    )
    records = np.zeros(len(packets), ARRIVAL_DTYPE)
    records["time_ns"] = [packet.time_ns for packet in packets]
    records["port"] = [packet.port for packet in packets]
    records["size_bytes"] = [packet.size for packet in packets]
    records["first_rtt"] = [packet.first_rtt for packet in packets]
    records["flow_class"] = [FlowClass.BACKGROUND if packet.data else FlowClass.CONTROL for packet in packets]
    records["lqd_drop"] = np.arange(len(packets)) % 3 == 0  # any labels will do
    replay = replay_of(policy, run)
    data = records["flow_class"] != FlowClass.CONTROL
    outcome = replay.feed(records, np.ascontiguousarray(records["lqd_drop"]))["outcome"]
    traffic = Given((RecordedEpisode(run, 0, records),), has_bytes=True)
    env = BufferEnv(traffic, LENGTHS, Reward(unit=unit), labels=True)
    rule = always if policy == "cs" else credence(lambda observed, info: info["lqd_drop"])
    lost, earned, asked = play(env, LENGTHS, rule, records["size_bytes"].tolist())
    assert asked == np.flatnonzero(data).tolist()
    assert lost == (outcome[data] != 0).tolist()
    assert earned == replay.finish()[f"transmitted_{unit}"]


@settings(max_examples=draws(50))
@given(
    cases=st.lists(slotted_arrivals().filter(lambda case: bool(case.slot)), min_size=1, max_size=4),
    count=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_many_environments_are_single_ones(cases: list[SlottedArrivals], count: int, seed: int) -> None:
    traffic = Given(tuple(in_slots(case) for case in cases))
    reward = Reward(sent=2.0, dropped=-3.0, decision=-0.5)
    many = BufferVectorEnv(count, traffic, EVERY, reward, labels=True)
    single = [BufferEnv(traffic, EVERY, reward, labels=True) for _ in range(count)]
    draw = np.random.default_rng(seed)
    seen, infos = many.reset(seed=seed)
    for i, env in enumerate(single):
        alone, info = env.reset(seed=seed + i)
        assert alone.tolist() == seen[i].tolist()
        assert info == {name: infos[name][i].item() for name in info}
    over = [False] * count
    for _ in range(120):
        actions = draw.integers(0, 2, count)
        seen, rewards, ended, truncated, infos = many.step(actions)
        assert not truncated.any()
        for i, env in enumerate(single):
            if over[i]:
                alone, info = env.reset()
                expected = (alone.tolist(), 0.0, False)
            else:
                alone, earned, done, _, info = env.step(actions[i])
                expected = (alone.tolist(), earned, done)
            assert (seen[i].tolist(), rewards[i], bool(ended[i])) == expected
            assert info == {name: infos[name][i].item() for name in info}
            over[i] = bool(ended[i])
    assert many.observation_space.contains(seen)


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bursts(tmp_path_factory.mktemp("bursts") / "dataset", seed=1, bursts=3).path


@pytest.mark.parametrize("kind", ["generated", "file", "dataset"])
def test_gymnasium_finds_no_fault(kind: str, bursts: Path, tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("slot,port,first_rtt\n0,0,1\n0,1,0\n3,1,0\n", encoding="utf-8")
    traffic: dict[str, Traffic] = {
        "generated": Generated(slots=50),
        "file": FromFile(tmp_path / "arrivals.csv", ports=2, buffer=3),
        "dataset": FromDatasets([bursts]),
    }
    env = gymnasium.make("foretail/Buffer-v0", traffic=traffic[kind], features=EVERY, labels=True)
    check_env(env.unwrapped)
    many = gymnasium.make_vec("foretail/Buffer-v0", num_envs=3, traffic=traffic[kind])
    assert isinstance(many.unwrapped, BufferVectorEnv)


def test_the_vector_form_is_gymnasiums_own_of_single_ones() -> None:
    """Infos and what follows an episode included."""
    settings: dict[str, Any] = {"num_envs": 3, "traffic": Generated(slots=30), "labels": True}
    own = gymnasium.make_vec("foretail/Buffer-v0", **settings)
    theirs = gymnasium.make_vec("foretail/Buffer-v0", **settings, vectorization_mode="sync")
    draw, episodes = np.random.default_rng(1), 0
    found: tuple[Any, ...] = own.reset(seed=5)
    expected: tuple[Any, ...] = theirs.reset(seed=5)
    for _ in range(600):
        assert found[-1].keys() == expected[-1].keys()
        for name, column in expected[-1].items():
            np.testing.assert_array_equal(found[-1][name], column, name)
        for ours, their_one in zip(found[:-1], expected[:-1], strict=True):
            np.testing.assert_array_equal(ours, their_one)
        actions = draw.integers(0, 2, 3)
        found, expected = own.step(actions), theirs.step(actions)
        episodes += int(found[2].sum())
    assert episodes >= 3


def test_a_seed_determines_all_episodes() -> None:
    def episodes(seed: int) -> list[Any]:
        env = BufferEnv(Generated(slots=40))
        found: list[Any] = []
        seen, info = env.reset(seed=seed)
        for k in range(400):
            found.append((seen.tolist(), info))
            seen, _, over, _, info = env.step(k % 5 == 0)
            if over:
                seen, info = env.reset()
        return found

    assert episodes(7) == episodes(7) != episodes(8)


@pytest.mark.parametrize(
    "again", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_a_copy_plays_the_same_episodes(again: Callable[[Any], Any]) -> None:
    def episode(env: BufferEnv) -> list[float]:
        env.reset(seed=7)
        rewards: list[float] = []
        ended = False
        while not ended:
            _, reward, ended, _, _ = env.step(len(rewards) % 2)
            rewards.append(reward)
        return rewards

    env = BufferEnv(Generated(ports=4, buffer=16, slots=60), ("fill",), Reward(dropped=-1.0))
    assert episode(again(env)) == episode(env)
    many = BufferVectorEnv(2, Generated(ports=4, buffer=16, slots=60))
    assert np.array_equal(again(many).reset(seed=7)[0], many.reset(seed=7)[0])


def test_a_mask_resets_some_environments() -> None:
    many = BufferVectorEnv(3, Generated(ports=4, buffer=16, slots=60))
    first, _ = many.reset(seed=3)
    later, *_ = many.step(np.zeros(3, np.int64))
    mask = np.array([False, True, False])
    now, _ = many.reset(seed=3, options={"reset_mask": mask})
    assert np.array_equal(now, np.where(mask[:, None], first, later))
    for wrong in (np.zeros(3, np.bool_), np.ones(2, np.bool_), [0, 1, 0]):
        with pytest.raises(ForetailError, match=r"^reset_mask must be 3 booleans, at least one of them true$"):
            many.reset(options={"reset_mask": wrong})


def test_what_is_wrong_is_one_sentence(bursts: Path) -> None:
    env = BufferEnv(Generated(slots=40))
    with pytest.raises(ForetailError, match=r"^no packet waits for an action: call reset\(\) first$"):
        env.step(0)
    env.reset(seed=1)
    with pytest.raises(ForetailError, match=r"^an action must be 0 \(accept\) or 1 \(drop\), not 2$"):
        env.step(2)
    for action in (None, "1", 0.0, [[1, 0]], [1, [2]]):
        with pytest.raises(ForetailError, match=r"^an action must be 0 \(accept\) or 1 \(drop\), not "):
            env.step(action)
    for seed in (-1, 1.5, "1", True):
        with pytest.raises(ForetailError, match=r"^seed = .* is out of range: .* at least 0, or null$"):
            env.reset(seed=seed)  # type: ignore[arg-type]
        with pytest.raises(ForetailError, match=r"^seed = .* is out of range: .* at least 0, or null$"):
            BufferVectorEnv(1, Generated(slots=40)).reset(seed=[seed])  # type: ignore[list-item]
    with pytest.raises(ForetailError, match=r"^traffic must be Generated, FromFile or FromDatasets, not 'x'$"):
        BufferEnv(traffic="x")  # type: ignore[arg-type]
    with pytest.raises(ForetailError, match=r"^reward must be a foretail.gym.Reward, not None$"):
        BufferEnv(reward=None)  # type: ignore[arg-type]
    many = BufferVectorEnv(2, Generated(slots=40))
    many.reset(seed=1)
    with pytest.raises(ForetailError, match=r"^actions must be 2 whole numbers"):
        many.step([0, [1]])  # type: ignore[arg-type]
    for actions in ([0, 2], [0, -1], [0.0, 1.0], [0], [[0, 1]]):
        with pytest.raises(ForetailError, match=r"^actions must be 2 whole numbers"):
            many.step(np.array(actions))
    with pytest.raises(ForetailError, match=r"^there are 3 seeds for 2 environments: give one for each$"):
        many.reset(seed=[1, 2, 3])
    with pytest.raises(ForetailError, match=r"^unknown feature 'length'"):
        BufferEnv(features=("length",))
    with pytest.raises(ForetailError, match=r"^unknown feature 'incast'"):
        BufferEnv(features=("incast",))
    with pytest.raises(ForetailError, match=r"^packets of slotted traffic have no bytes"):
        BufferEnv(reward=Reward(unit="bytes"))
    with pytest.raises(ForetailError, match=r"^reward.unit = cells is out of range: it must be one of packets, bytes$"):
        BufferEnv(FromDatasets([bursts]), reward=Reward(unit="cells"))  # type: ignore[arg-type]
    with pytest.raises(ForetailError, match=r"^the workload has no packet in 1 slots with seed 3: set more slots$"):
        BufferEnv(Generated(PoissonBursts(load=0.001), slots=1)).reset(seed=3)
    with pytest.raises(ForetailError, match=r"^the datasets have no data packets"):
        BufferEnv(FromDatasets([])).reset()
    for count in (0, 2.0, True, "2"):
        with pytest.raises(ForetailError, match=r"^num_envs = .* is out of range: .* at least 1$"):
            BufferVectorEnv(count)  # type: ignore[arg-type]
    with pytest.raises(ForetailError, match=r"^no packets wait for actions: call reset\(\) first$"):
        BufferVectorEnv(2, Generated(slots=40)).step(np.zeros(2, np.int64))
    for name, value in itertools.product(("sent", "dropped", "decision"), (math.nan, math.inf, True, "1")):
        with pytest.raises(
            ForetailError, match=rf"^reward.{name} = .* is (not a finite|out of range: it must be a) number$"
        ):
            Reward(**{name: value})  # type: ignore[arg-type]
    for ports in (0, 10**6):  # before a workload is drawn, which would take a minute
        with pytest.raises(ForetailError, match=f"ports = {ports} is out of range"):
            BufferEnv(Generated(ports=ports))
    with pytest.raises(ForetailError, match=r"^render_mode is 'human', and there is nothing to draw: leave it out$"):
        BufferEnv(render_mode="human")


ROW = r"J +\d+\.\d{3}, against accepting [+-]\d+\.\d % \[.+\], DT [+-]\d+\.\d % \[.+\]$"


@pytest.mark.nightly
def test_the_example_learns_and_exports(tmp_path: Path) -> None:
    program = ROOT / "examples" / "closed_loop" / "learn_policy.py"
    command: list[str | Path] = [sys.executable, "-W", "error", program, "--size", "small", "--folder", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for policy in (
        "Complete Sharing \\(always accept\\)",
        r"Dynamic Thresholds, alpha \S+, tuned",
        "Longest Queue Drop",
        "the demo's sharing rule, as C",
        "learned policy, as C",
    ):
        assert re.search(rf"^{policy} +{ROW}", done.stdout, re.MULTILINE), done.stdout
    assert (tmp_path / "learned_policy" / "drop_predictor.c").exists()


@pytest.mark.nightly
def test_threads_that_share_an_environment_take_turns() -> None:
    traffic = Generated(ports=8, buffer=64, slots=200)
    many = BufferVectorEnv(64, traffic)
    many.reset(seed=1)

    def work(_: int) -> None:
        for _ in range(30):
            many.step(np.zeros(64, np.int64))
            many.reset(seed=1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert np.array_equal(many.reset(seed=1)[0], BufferVectorEnv(64, traffic).reset(seed=1)[0])
