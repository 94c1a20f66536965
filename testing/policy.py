"""The contract of buffer policies, of Foretail's own and of those in a C++ header of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.features.records import Outcome
from foretail.models.drop.parameters_contract import holds
from foretail.sim_bridge._native import Replay, SlottedRun
from foretail.sim_bridge.builds import GuestPolicy, native_policy
from foretail.sim_bridge.policies import POLICIES

PORTS, BUFFER_PACKETS, BUFFER_BYTES = 8, 64, 60_000
_PORT_RATE_BPS = 10**9

KEPT = (Outcome.ACCEPTED, Outcome.PREDICTED)
EMPTY = "a packet at an empty switch must be accepted, unless a predictor says drop"

Columns = dict[str, NDArray[Any]]


def check_policy(policy: str) -> None:
    """Run the contract of a buffer policy.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    policy : str
        ``HEADER.hpp:TYPE``, which is compiled, or a name of ``POLICIES``.
    """
    assert isinstance(policy, str), f"a policy must be a text, HEADER.hpp:TYPE, not a {type(policy).__name__}"
    with holds("a policy must be HEADER.hpp:TYPE"):
        known = policy in POLICIES or GuestPolicy.of(policy) is not None
    assert known, f"{policy} must be HEADER.hpp:TYPE"
    with holds("the header must compile"):
        native = native_policy(policy)
    pushes_out = policy in POLICIES and POLICIES[policy].pushes_out
    for seed in (1, 2):
        with holds("decide must answer every arrival"):
            _check_slots(native, _slots(seed), pushes_out)
            _check_bytes(native, _bytes(seed), pushes_out)


def _check_slots(native: str, arrivals: Columns, pushes_out: bool) -> None:
    columns, sent = _run_slots(native, [arrivals])
    outcome = columns["outcome"]
    assert np.array_equal(_run_slots(native, [arrivals])[0]["outcome"], outcome), (
        "the same arrivals, the same decisions"
    )
    cut = len(outcome) // 3
    parts = [{name: values[part] for name, values in arrivals.items()} for part in (slice(cut), slice(cut, None))]
    in_parts, sent_in_parts = _run_slots(native, parts)
    assert sent_in_parts == sent, "arrivals in batches must give the same decisions"
    if not pushes_out:  # whose later drops an earlier batch does not show
        assert np.array_equal(in_parts["outcome"], outcome), "arrivals in batches must give the same decisions"
    assert np.count_nonzero(outcome == Outcome.ACCEPTED) == sent, "what is accepted must be sent, and nothing else"
    lengths, last = np.zeros(PORTS, np.int64), 0
    for slot, port, result in zip(arrivals["slot"].tolist(), arrivals["port"].tolist(), outcome.tolist(), strict=True):
        lengths, last = np.maximum(lengths - (slot - last), 0), slot
        if pushes_out:
            continue
        if lengths.sum() == 0:
            assert result in KEPT, EMPTY
        lengths[port] += result == Outcome.ACCEPTED
        assert lengths.sum() <= BUFFER_PACKETS, "the buffer must never hold more than it can"


def _check_bytes(native: str, arrivals: Columns, pushes_out: bool) -> None:
    columns, sent = _run_bytes(native, arrivals)
    again, _ = _run_bytes(native, arrivals)
    assert np.array_equal(columns["outcome"], again["outcome"]), "the same arrivals, the same decisions, in bytes too"
    accepted = (columns["outcome"] == Outcome.ACCEPTED) & (arrivals["data"] == 1)
    assert arrivals["size_bytes"][accepted].sum() == sent, "what is accepted must be sent, in bytes too"
    if not pushes_out:
        first = int(np.argmax(arrivals["data"]))
        assert columns["outcome"][first] in KEPT, EMPTY


def _run_slots(native: str, batches: list[Columns]) -> tuple[Columns, int]:
    run = SlottedRun(native, PORTS, BUFFER_PACKETS)
    columns = [run.feed(batch["slot"], batch["port"], batch["predictions"], batch["first_rtt"]) for batch in batches]
    sent: int = run.finish()["transmitted"]
    return {"outcome": np.concatenate([part["outcome"] for part in columns])}, sent


def _run_bytes(native: str, arrivals: Columns) -> tuple[Columns, int]:
    replay = Replay(
        native,
        [(BUFFER_BYTES, [_PORT_RATE_BPS] * PORTS)],
        wire_overhead_bytes=20,
    )
    columns: Columns = replay.feed(*arrivals.values())
    sent: int = replay.finish()["transmitted_bytes"]
    return columns, sent


def _slots(seed: int) -> Columns:
    """Bursts to one port, or to two or three that fill the buffer together, and pauses in which it runs empty."""
    random = np.random.default_rng(seed)
    slots, ports = [], []
    for burst, (start, hot) in enumerate(_bursts(random)):
        rows, others = int(random.integers(200, 400)), burst % 3
        slots.append(start + np.sort(random.integers(0, 60, rows)))
        hottest = (hot + random.integers(0, 1 + others, rows)) % PORTS
        share = 0.9 if others else 0.5
        ports.append(np.where(random.random(rows) < share, hottest, random.integers(0, PORTS, rows)))
    rows = sum(map(len, slots))
    return {
        "slot": np.concatenate(slots).astype(np.int64),
        "port": np.concatenate(ports).astype(np.int32),
        "predictions": (random.random(rows) < 0.3).astype(np.uint8),
        "first_rtt": (random.random(rows) < 0.3).astype(np.uint8),
    }


def _bytes(seed: int) -> Columns:
    """The same in bytes and nanoseconds, with packets of every size and one in ten for control."""
    slots, random = _slots(seed), np.random.default_rng(seed + 100)
    rows = len(slots["slot"])
    return {
        "time_ns": np.sort(slots["slot"] * 8000 + random.integers(0, 8000, rows)),
        "switch": np.zeros(rows, np.int16),
        "port": slots["port"].astype(np.int16),
        "size_bytes": random.integers(64, 1501, rows).astype(np.int32),
        "data": (random.random(rows) >= 0.1).astype(np.uint8),
        "first_rtt": slots["first_rtt"],
        "predictions": slots["predictions"],
    }


def _bursts(random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Start and hottest port of each burst."""
    for burst in range(20):
        yield burst * 400 + int(random.integers(0, 40)), int(random.integers(0, PORTS))
