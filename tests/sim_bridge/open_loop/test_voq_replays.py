"""Replays of racks with circuits at the door of the native core; ``test_rack_traces.py`` of the stages runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge._native import Replay
from tests.sim_bridge.buffer.test_native_doors import REPLAY

RACKS: dict[str, Any] = REPLAY | {"switches": [(4000, [10**9] * 2)] * 2, "wire_overhead_bytes": 0}
SLOT = [[2, 0, 1]]
LINKS = (9, 1, 10**9, 10**9)


@pytest.mark.parametrize(
    ("voqs", "message"),
    [
        (([0, 2], [], *LINKS), "number of slots is 0, outside 1 to"),
        (([0, 2], [[2, 0, 1], [1]], *LINKS), "the slots of a schedule have different racks"),
        (([0, 2], [[3, 0, 1]], *LINKS), "rack of a slot is 3, outside -1 to 2"),
        (([0, 3], SLOT, *LINKS), "number of a rack is 3, outside 0 to 2"),
        (([2, 0], SLOT, *LINKS), "the numbers of racks must rise"),
        (([0, 2], SLOT, 0, 1, 10**9, 10**9), "day_ns is 0, outside 1 to"),
        (([0, 2], SLOT, 9, -1, 10**9, 10**9), "night_ns is -1, outside 0 to"),
        (([0, 2], SLOT, 9, 1, 0, 10**9), "packet_bps is 0, outside 1000 to"),
        (([0, 2], SLOT, 9, 1, 10**9, 2**70), "circuit_bps is not a number of 64 bits"),
        (([0], SLOT, *LINKS), "every rack has one switch"),
        (([0, 1, 2], SLOT, *LINKS), "every rack has one switch"),
    ],
)
def test_links_of_racks_that_cannot_be_are_refused_in_one_sentence(voqs: Any, message: str) -> None:
    Replay(**RACKS | {"voqs": ([0, 2], SLOT, *LINKS)})
    with pytest.raises(ForetailError, match=message) as refused:
        Replay(**RACKS | {"voqs": voqs})
    assert "\n" not in str(refused.value)


def test_a_rack_has_a_port_and_one_queue_for_every_rack() -> None:
    with pytest.raises(ForetailError, match="the switch of a rack has a port for every rack"):
        Replay(**RACKS | {"switches": [(4000, [10**9])] * 2, "voqs": ([0, 2], SLOT, *LINKS)})
    with pytest.raises(ForetailError, match="a VOQ is one queue: give queues=1"):
        Replay(**RACKS | {"queues": 2, "voqs": ([0, 2], SLOT, *LINKS)})


@pytest.mark.parametrize(("day_ns", "sent"), [(9_000, 0), (12_000, 1)])
def test_a_packet_that_no_day_has_time_for_stays_in_its_voq(day_ns: int, sent: int) -> None:
    """It takes 12 us, there is one slot, and its packet path is closed for ever."""
    replay = Replay(**RACKS | {"voqs": ([0, 1], [[1, 0]], day_ns, 0, 10**9, 10**9)})
    column = {"time_ns": np.int64, "switch_index": np.int16, "port": np.int16, "size_bytes": np.int32}
    values = (0, 0, 1, 1500)
    arrival = {name: np.array([value], kind) for (name, kind), value in zip(column.items(), values, strict=True)}
    replay.feed(**arrival, data=np.ones(1, np.uint8), first_rtt=np.zeros(1, np.uint8))
    assert replay.finish()["transmitted_packets"] == sent
