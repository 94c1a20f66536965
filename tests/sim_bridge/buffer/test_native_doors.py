"""What the native library refuses, and the names and layouts that it shares with Python."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTERS, FEATURES
from foretail.features.records import ARRIVAL_DTYPE, COUNTER_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, PAUSE_DTYPE
from foretail.sim_bridge._native import (
    LiveRuns,
    Replay,
    SlottedRun,
    policies,
    slotted,
    tree_leaves,
)
from foretail.sim_bridge.builds import ROOM
from foretail.sim_bridge.policies import KNOW_PRIORITIES, OF_ARRIVALS, POLICIES, SEE_INGRESS
from foretail.sim_bridge.policy_settings import NATIVE, Units, heeded_settings, native_parameters, without_unit
from tests.refusals import refusing

SLOTTED: dict[str, Any] = {
    "policy": "lqd",
    "ports": 2,
    "buffer": 4,
    "slot": np.array([0, 1, 1], np.int64),
    "port": np.array([0, 1, 0], np.int32),
}
REPLAY: dict[str, Any] = {
    "policy": "lqd",
    "switches": [(4000, [10**9, 10**9]), (2000, [10**9])],
    "wire_overhead_bytes": 2,
    "counting": "counted",
    "tie": "lowest_port",
    "victim": "tail",
}
ARRIVALS: dict[str, Any] = {
    "time_ns": np.array([5, 5, 9], np.int64),
    "switch_index": np.array([0, 1, 0], np.int16),
    "port": np.array([1, 0, 1], np.int16),
    "size_bytes": np.array([64, 1500, 1], np.int32),
    "data": np.ones(3, np.uint8),
    "first_rtt": np.zeros(3, np.uint8),
}
UNKNOWN = [
    ({"policy": "red"}, f"unknown policy 'red': choose one of {', '.join(POLICIES)}"),
    ({"counting": "twice"}, "unknown counting rule 'twice': choose one of counted, uncounted"),
    ({"tie": "newest"}, "unknown tie rule 'newest': choose one of lowest_port, highest_port"),
    ({"victim": "all"}, "unknown victim rule 'all': choose one of tail, tail_kept, head, random"),
    ({"alpha": [-0.5]}, "alpha = -0.5 is out of range"),
    ({"alpha": [0.5, float("nan")], "policy": "dt"}, "alpha = nan is not a finite number"),
    ({"alpha": []}, "alpha must hold one number per queue of a port, 1 to 64"),
    ({"alpha": [0.5] * 65}, "alpha must hold one number per queue of a port, 1 to 64"),
    (
        {"alpha": [0.5] * 3, "policy": "dt", "queues": 2},
        "alpha has 3 numbers, and a port has 2 queues: give one for each",
    ),
    ({"queues": 0}, "number of queues of a port is 0, outside 1 to 64"),
    ({"order": "classes"}, "unknown order rule 'classes': choose one of longest_queue, lower_classes_first"),
    ({"scheduler": "fair"}, "unknown scheduler 'fair': choose one of round_robin, strict, deficit_round_robin"),
    ({"scheduler": "strict", "quanta": [1]}, "only deficit_round_robin has quanta, not strict"),
    ({"scheduler": "deficit_round_robin", "quanta": [0]}, "quantum is 0, outside 1 to 1073741824"),
    (
        {"scheduler": "deficit_round_robin", "queues": 2, "quanta": [1]},
        "there are 1 quanta for the 2 queues of a port: give one for each",
    ),
    *(
        ({"policy": policy, "queues": 2}, f"policy '{policy}' knows one queue per port: give it one")
        for policy in OF_ARRIVALS
        if policy not in KNOW_PRIORITIES
    ),
    ({"first_rtt_alpha": float("inf")}, "first_rtt_alpha = inf is not a finite number"),
    ({"spare_bandwidth": -0.1}, "spare_bandwidth = -0.1 is out of range"),
    ({"spare_bandwidth": "much"}, "spare_bandwidth = much is out of range: it must be a number"),
    ({"answers_needed": 1.5}, "answers_needed = 1.5 is out of range: it must be a whole number"),
    ({"bandwidth": 1}, "a run in (slots|bytes) has no setting bandwidth: choose from first_rtt_alpha, spare_bandwidth"),
    ({"tie": 3}, "tie has a value of the wrong type"),
    ({"spares_first_rtt": 2}, "spares_first_rtt = 2 is out of range"),
    ({"answers_needed": 0}, "answers_needed = 0 is out of range"),
    ({"answers_needed": 9}, "answers_needed = 9 is out of range"),
    ({"average_shift": -11}, "average_shift is -11, outside (-10|0) to 24"),
    ({"average_shift": 25}, "average_shift is 25, outside (-10|0) to 24"),
]
BEYOND = (2**63, -(2**63) - 1, 2**64, 10**100, np.uint64(2**63))
"""What no signed integer of 64 bits holds."""
TOO_LARGE = (
    r"^{0} is not a number of 64 bits: it must be -?\d+ to \d+$"
    r"|^{0} = -?\d+ is out of range: it must be a (whole )?number, .*$"
)
"""What is said of such a number, by the door itself or by the table of parameters."""


def changed(array: Any, row: int, value: int) -> Any:
    out = array.copy()
    out[row] = value
    return out


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        *UNKNOWN,
        ({"ports": 0}, "number of ports is 0, outside 1 to 32768"),
        ({"ports": 10**6}, "number of ports is 1000000, outside 1 to 32768"),
        ({"buffer": 0}, "buffer in packets is 0, outside 1 to"),
        ({"buffer": 2**62}, "buffer in packets is 4611686018427387904, outside 1 to"),
        ({"rtt_slots": 0}, "rtt_slots = 0 is out of range"),
        ({"low_pass_slots": 0}, "low_pass_slots = 0 is out of range"),
        ({"bucket_packets": -1}, "bucket_packets = -1 is out of range"),
        ({"drop_budget_packets": -1}, "drop_budget_packets = -1 is out of range"),
        ({"priority": changed(np.zeros(3, np.uint8), 1, 1)}, "row 1 has priority 1, but a port has 1 queue"),
        ({"port": changed(SLOTTED["port"], 1, 2)}, "row 1 has port 2, outside 0 to 1"),
        ({"port": changed(SLOTTED["port"], 2, -1)}, "row 2 has port -1, outside 0 to 1"),
        ({"port": SLOTTED["port"][:2]}, "slot and port differ in length"),
        ({"slot": changed(SLOTTED["slot"], 2, 0)}, "row 2 has slot 0: slots start at 0, never decrease"),
        ({"slot": changed(SLOTTED["slot"], 0, -1)}, "row 0 has slot -1: slots start at 0, never decrease"),
        ({"slot": changed(SLOTTED["slot"], 2, 2**63 - 1)}, r"row 2 has slot 9223372036854775807: .* and end at 2\^62"),
        ({"predictions": np.zeros(2, np.uint8)}, "predictions has 2 rows, but there are 3 arrivals"),
        ({"first_rtt": np.zeros(4, np.uint8)}, "first_rtt has 4 rows, but there are 3 arrivals"),
        ({"priority": np.zeros(4, np.uint8)}, "priority has 4 rows, but there are 3 arrivals"),
    ],
)
def test_slotted_refuses_in_one_sentence(bad: dict[str, Any], message: str) -> None:
    slotted(**SLOTTED)
    with pytest.raises(ForetailError, match=message):
        slotted(**SLOTTED | bad)


@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize(
    ("name", "door"),
    [
        *((name, name) for name in ("wire_overhead_bytes", "cell_bytes", "average_shift", "rtt_ns", "low_pass_ns")),
        ("artifact_cut_bytes", "artifact_cut_bytes"),
        ("bucket_bytes", "bucket_bytes"),
        ("drop_budget_bytes", "drop_budget_bytes"),
        ("buffer", "buffer of a switch, in bytes,"),
        ("rate", "port rate in bits per second"),
    ],
)
def test_replays_refuse_numbers_of_any_size_by_name(name: str, door: str, number: int) -> None:
    given = {"buffer": {"switches": [(number, [10**9])]}, "rate": {"switches": [(4000, [number])]}}
    with pytest.raises(ForetailError, match=TOO_LARGE.format(door)):
        Replay(**REPLAY | given.get(name, {name: number}))


@pytest.mark.parametrize("seed", [-1, 2**64, 10**100])
def test_seeds_have_64_bits_and_wrap_nowhere(seed: int) -> None:
    for make, settings in ((SlottedRun, RUN_SETTINGS), (Replay, REPLAY)):
        make(**settings | {"seed": 2**64 - 1})
        with pytest.raises(ForetailError, match=r"^seed is outside 0 to 2\^64 - 1$"):
            make(**settings | {"seed": seed})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        *UNKNOWN,
        ({"switches": []}, "number of switches is 0, outside 1 to 32768"),
        ({"switches": [(4000, [])]}, "number of ports is 0, outside 1 to 32768"),
        ({"switches": [(0, [10**9])]}, "buffer of a switch, in bytes, is 0, outside 1 to 1073741824"),
        ({"switches": [(2**31, [10**9])]}, "buffer of a switch, in bytes, is 2147483648, outside"),
        ({"switches": [(4000, [10**9, 0])]}, "port rate in bits per second is 0, outside 1000 to 1000000000000000"),
        ({"wire_overhead_bytes": -1}, "wire_overhead_bytes is -1, outside 0 to 256"),
        ({"cell_bytes": 100}, "cell_bytes must be a power of two"),
        ({"cell_bytes": -256}, "cell_bytes is -256, outside 0 to 65536"),
        ({"rtt_ns": 0}, "rtt_ns = 0 is out of range"),
        ({"low_pass_ns": 0}, "low_pass_ns = 0 is out of range"),
        ({"bucket_bytes": -1}, "bucket_bytes = -1 is out of range"),
        ({"drop_budget_bytes": -1}, "drop_budget_bytes = -1 is out of range"),
        ({"artifact_cut_bytes": 0}, "artifact_cut_bytes = 0 is out of range"),
    ],
)
def test_replay_refuses_its_settings_in_one_sentence(bad: dict[str, Any], message: str) -> None:
    Replay(**REPLAY)
    with pytest.raises(ForetailError, match=message):
        Replay(**REPLAY | bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"switch_index": changed(ARRIVALS["switch_index"], 1, 2)}, "row 1 has switch 2, outside 0 to 1"),
        ({"switch_index": changed(ARRIVALS["switch_index"], 0, -1)}, "row 0 has switch -1, outside 0 to 1"),
        ({"port": changed(ARRIVALS["port"], 1, 1)}, "row 1 has port 1, outside 0 to 0"),
        ({"port": changed(ARRIVALS["port"], 2, -3)}, "row 2 has port -3, outside 0 to 1"),
        ({"time_ns": changed(ARRIVALS["time_ns"], 2, 4)}, "row 2 has time 4: times start at 0, never decrease"),
        ({"time_ns": changed(ARRIVALS["time_ns"], 0, -1)}, "row 0 has time -1: times start at 0, never decrease"),
        ({"time_ns": changed(ARRIVALS["time_ns"], 2, 2**63 - 1)}, r"row 2 has time \d+: .* and end at 2\^62"),
        ({"size_bytes": changed(ARRIVALS["size_bytes"], 1, 0)}, "row 1 has no size"),
        ({"size_bytes": changed(ARRIVALS["size_bytes"], 1, -64)}, "row 1 has no size"),
        ({"data": np.ones(2, np.uint8)}, "the columns of the arrivals differ in length"),
        ({"predictions": np.ones(2, np.uint8)}, "predictions has 2 rows, but there are 3 arrivals"),
        ({"priority": np.ones(2, np.uint8)}, "priority has 2 rows, but there are 3 arrivals"),
        ({"priority": np.array([0, 0, 1], np.uint8)}, "row 2 has priority 1, but a port has 1 queue"),
    ],
)
def test_a_refused_batch_leaves_the_replay_as_it_was(bad: dict[str, Any], message: str) -> None:
    replay, untouched = Replay(**REPLAY), Replay(**REPLAY)
    with pytest.raises(ForetailError, match=message):
        replay.feed(**ARRIVALS | bad)
    after, expected = replay.feed(**ARRIVALS), untouched.feed(**ARRIVALS)
    assert set(after) == set(expected)
    for column in expected:
        np.testing.assert_array_equal(after[column], expected[column])
    assert replay.finish() == untouched.finish()


RUN_SETTINGS = {name: SLOTTED[name] for name in ("policy", "ports", "buffer")} | {"labels": True, "features": True}
BATCH = {name: SLOTTED[name] for name in ("slot", "port")}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"port": changed(BATCH["port"], 2, 7)}, "row 2 has port 7, outside 0 to 1"),
        ({"slot": changed(BATCH["slot"], 2, 0)}, "row 2 has slot 0: slots start at 0, never decrease"),
        ({"port": BATCH["port"][:2]}, "slot and port differ in length"),
        ({"predictions": np.zeros(2, np.uint8)}, "predictions has 2 rows, but there are 3 arrivals"),
        ({"priority": np.array([0, 0, 1], np.uint8)}, "row 2 has priority 1, but a port has 1 queue"),
    ],
)
def test_a_refused_batch_leaves_the_slotted_run_as_it_was(bad: dict[str, Any], message: str) -> None:
    run, untouched = SlottedRun(**RUN_SETTINGS), SlottedRun(**RUN_SETTINGS)
    with pytest.raises(ForetailError, match=message):
        run.feed(**BATCH | bad)
    np.testing.assert_equal(run.feed(**BATCH), untouched.feed(**BATCH))
    np.testing.assert_equal(run.finish(), untouched.finish())


@pytest.mark.parametrize(
    ("make", "settings", "batch", "later", "totals"),
    [
        (SlottedRun, RUN_SETTINGS, BATCH, "row 0 has slot 0: slots", {"arrivals": 3, "transmitted": 3, "dropped": 0}),
        (Replay, REPLAY, ARRIVALS, "row 0 has time 5: times", {"transmitted_bytes": 1565, "transmitted_packets": 3}),
    ],
    ids=["slots", "bytes"],
)
def test_a_run_goes_back_in_time_in_no_later_batch_and_ends_once(
    make: Any, settings: dict[str, Any], batch: dict[str, Any], later: str, totals: dict[str, int]
) -> None:
    run = make(**settings)
    run.feed(**batch)
    with pytest.raises(ForetailError, match=f"{later} start at 0, never decrease"):
        run.feed(**batch)
    ended = run.finish()
    assert ended | totals | {"threshold_deficits": 0} == ended
    with pytest.raises(ForetailError, match=r"a finished (run|replay) takes no more arrivals: begin another"):
        run.feed(**batch)
    np.testing.assert_equal(run.finish(), ended)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("slot", SLOTTED["slot"] + 0.5),
        ("port", SLOTTED["port"].astype(np.int64) + 2**32),
        ("predictions", np.full(3, 256)),
        ("slot", SLOTTED["slot"].reshape(3, 1)),
    ],
)
def test_columns_of_another_type_or_shape_are_refused_not_rounded(column: str, values: Any) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        slotted(**SLOTTED | {column: values})
    name = {"slot": "time_ns"}.get(column, column)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        Replay(**REPLAY).feed(**ARRIVALS | {name: values})


LIVE_SLOTS: dict[str, Any] = {
    "index": 0,
    "ports": 2,
    "buffer": 4,
    "slot": SLOTTED["slot"],
    "port": SLOTTED["port"],
    "cell_bytes": 256,
}
LIVE_BYTES: dict[str, Any] = {
    "index": 1,
    "buffer": 4000,
    "rates": [10**9, 10**9],
    "wire_overhead_bytes": 2,
    "time_ns": ARRIVALS["time_ns"],
    "port": ARRIVALS["port"].astype(np.int32),
    "size_bytes": ARRIVALS["size_bytes"],
    "data": ARRIVALS["data"],
    "first_rtt": ARRIVALS["first_rtt"],
    "counting": "counted",
    "tie": "lowest_port",
    "victim": "tail",
    "cell_bytes": 64,
    "average_shift": 12,
}


@pytest.mark.parametrize(
    ("begin", "bad", "message"),
    [
        ("slots", {"index": 2}, "index of a run is 2, outside 0 to 1"),
        ("slots", {"index": -1}, "index of a run is -1, outside 0 to 1"),
        ("slots", {"ports": 0}, "number of ports is 0, outside 1 to 32768"),
        ("slots", {"buffer": 0}, "buffer in packets is 0, outside 1 to"),
        ("slots", {"port": SLOTTED["port"][:2]}, "slot and port differ in length"),
        ("slots", {"port": changed(SLOTTED["port"], 2, 2)}, "row 2 has port 2, outside 0 to 1"),
        ("slots", {"slot": changed(SLOTTED["slot"], 2, 0)}, "row 2 has slot 0: slots start at 0, never decrease"),
        ("slots", {"first_rtt": np.zeros(2, np.uint8)}, "first_rtt has 2 rows, but there are 3 arrivals"),
        ("slots", {"lqd_drop": np.zeros(4, np.uint8)}, "lqd_drop has 4 rows, but there are 3 arrivals"),
        ("slots", {"victim": "all"}, "unknown victim rule 'all': choose one of tail, tail_kept, head, random"),
        ("bytes", {"rates": []}, "number of ports is 0, outside 1 to 32768"),
        ("bytes", {"cell_bytes": 0}, "cell_bytes is 0, outside 1 to 65536"),
        ("bytes", {"cell_bytes": 3}, "cell_bytes must be a power of two"),
        ("bytes", {"size_bytes": changed(ARRIVALS["size_bytes"], 1, 0)}, "row 1 has no size"),
        ("bytes", {"data": np.ones(2, np.uint8)}, "data has 2 rows, but there are 3 arrivals"),
        (
            "bytes",
            {"time_ns": changed(ARRIVALS["time_ns"], 1, 4)},
            "row 1 has time 4: times start at 0, never decrease",
        ),
    ],
)
def test_live_runs_refuse_in_one_sentence(begin: str, bad: dict[str, Any], message: str) -> None:
    runs = LiveRuns("learned", 2, ["queue"])
    good = {"slots": LIVE_SLOTS, "bytes": LIVE_BYTES}[begin]
    beginning = getattr(runs, f"begin_{begin}")
    beginning(**good)
    with pytest.raises(ForetailError, match=message):
        beginning(**good | bad)


def test_live_runs_check_what_they_are_made_of() -> None:
    with pytest.raises(ForetailError, match=r"^unknown feature 'length': choose one of queue"):
        LiveRuns("learned", 1, ["length"])
    with pytest.raises(ForetailError, match=r"^number of runs is 0, outside 1 to 1048576$"):
        LiveRuns("learned", 0, ["queue"])
    with pytest.raises(ForetailError, match=r"^unknown policy 'red'"):
        LiveRuns("red", 1, ["queue"]).begin_slots(**LIVE_SLOTS)
    with pytest.raises(ForetailError, match=r"^there are 1 answers for 2 runs$"):
        LiveRuns("learned", 2, ["queue"]).step(np.zeros(1, np.uint8))


def test_live_runs_keep_what_they_read_and_write_alive() -> None:
    runs = LiveRuns("learned", 1, ["queue"])
    runs.begin_slots(0, 2, 4, np.arange(1000), np.zeros(1000, np.int32), cell_bytes=256)
    seen = runs.columns()["features"]
    for _ in range(1000):
        runs.step(np.zeros(1, np.uint8))
    assert runs.result(0)["transmitted_packets"] == 1000
    del runs
    assert seen.tolist() == [[0]]


def test_the_largest_packet_of_the_largest_buffer_leaves_on_the_slowest_link() -> None:
    """Times must not overflow within the bounds of the door."""
    replay = Replay(**REPLAY | {"switches": [(2**30, [1000])], "wire_overhead_bytes": 256})
    one = {name: column[:1] for name, column in ARRIVALS.items()}
    replay.feed(
        **one | {"time_ns": np.array([2**62]), "port": np.zeros(1, np.int16), "size_bytes": np.array([2**30], np.int32)}
    )
    assert replay.finish()["transmitted_bytes"] == 2**30


CPP_TYPES: dict[str, Any] = {
    "std::int64_t": "<i8",
    "std::int32_t": "<i4",
    "std::int16_t": "<i2",
    "std::uint8_t": "u1",
    "FlowClass": "u1",
    "Outcome": "u1",
    "Asked": "u1",
    "FeatureVector": ("<i4", len(FEATURES)),
    "CounterVector": ("<i4", len(COUNTERS)),
    "std::array<std::uint8_t, 2>": ("u1", 2),
    "Pad<6 - (4 * feature_count + 2) % 8>": ("u1", 6 - (4 * len(FEATURES) + 2) % 8),
}
"""Formats of the members of records."""


@pytest.mark.parametrize(
    ("record", "dtype"),
    [
        ("ArrivalRecord", ARRIVAL_DTYPE),
        ("CounterRecord", COUNTER_DTYPE),
        ("FlowRecord", FLOW_DTYPE),
        ("OccupancyRecord", OCCUPANCY_DTYPE),
        ("PauseRecord", PAUSE_DTYPE),
    ],
)
def test_records_are_the_dtypes(record: str, dtype: np.dtype[np.void]) -> None:
    source = (ROOM / "buffer/records.hpp").read_text(encoding="utf-8")
    struct = re.search(rf"^struct {record} {{$(.*?)^}};$", source, re.DOTALL | re.MULTILINE)
    assert struct is not None
    members = re.findall(r"^ +(?:\[\[\w+\]\] )?(\S.*?) (\w+)(?: = .+|{});", struct[1], re.MULTILINE)
    formats = {name.replace("switch_index", "switch"): np.dtype(CPP_TYPES[kind]) for kind, name in members}
    declared = np.dtype([(name, one) for name, one in formats.items() if one.itemsize], align=True)
    assert declared.fields == dtype.fields
    assert declared.itemsize == dtype.itemsize


def native_names(policy: str) -> list[str]:
    """The names that the parameters of a policy have in C++."""
    names = {
        without_unit(name)
        for table in NATIVE.values()
        for name, one in table.items()
        if policy in one.metadata["heeding"]
    }
    if policy in SEE_INGRESS:  # which only networks run, where incast_alpha is one of the alphas
        names |= {without_unit(name) for name in heeded_settings(policy) if name != "incast_alpha"}
    return sorted(names)


def test_the_table_of_policies_is_what_their_types_say() -> None:
    table = [
        (one.name, one.asks, one.knows_priorities, one.pushes_out, native_names(one.name)) for one in POLICIES.values()
    ]
    assert [(*facts, sorted(parameters)) for *facts, parameters in policies()] == table


@pytest.mark.parametrize("units", ["slots", "bytes"])
def test_a_native_run_is_given_every_parameter_that_a_policy_reads(units: Units) -> None:
    read = {name for policy, *_, parameters in policies() if policy not in SEE_INGRESS for name in parameters}
    of_messages: set[str] = (
        {"spared"} if units == "slots" else set()
    )  # nobody says to which message a packet of slots belongs
    assert set(native_parameters(units, {})) == read - of_messages


def _stump(**changes: list[int]) -> dict[str, Any]:
    columns = {"feature": [1, -1, -1], "cut": [7, 0, 0], "left": [1, -1, -1], "right": [2, -1, -1]} | changes
    return {name: np.array(v, np.int64 if name == "cut" else np.int32) for name, v in columns.items()}


def test_a_tree_sends_each_row_to_its_leaf() -> None:
    assert tree_leaves(**_stump(), x=np.array([[9, 7], [0, 8]])).tolist() == [1, 2]


NO_TREES: tuple[dict[str, list[int]], ...] = (
    {"feature": [2, -1, -1]},
    {"left": [0, -1, -1]},
    {"right": [3, -1, -1]},
    {"right": [-1, -1, -1]},
    {"cut": [7, 0]},
    {"feature": [], "cut": [], "left": [], "right": []},
)
test_arrays_that_are_no_tree_are_refused = refusing(
    *(
        (lambda one=one: tree_leaves(**_stump(**one), x=np.array([[9, 7]])), "no tree over the columns")
        for one in NO_TREES
    )
)
