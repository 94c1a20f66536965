"""Sirona in C decides as the native sender, in as many words as it says; costs three compilations."""

from __future__ import annotations

import ctypes
import json
import random
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.export.balancing import sirona_header
from foretail.export.c.build import compiled_reader
from foretail.sim_bridge._native import Balancer
from tests.scenarios import settings

READER = """
#include "balancer.h"
static balancer_t flow;
uint32_t state_bytes(void) { return (uint32_t)sizeof flow; }
void start(const uint32_t *random) { balancer_start(&flow, random); }
uint32_t entropy(uint32_t packet) { return balancer_entropy(&flow, packet); }
void on_ack(uint32_t subflow, uint32_t rtt_ns, uint32_t left_ns) { balancer_on_ack(&flow, subflow, rtt_ns, left_ns); }
int on_interval(uint32_t random) { return balancer_on_interval(&flow, random); }
"""


@pytest.mark.parametrize(("subflows", "last_share"), [(1, 1.0), (16, 0.5), (5, 0.35)])
def test_c_decides_as_the_native_sender_on_random_acknowledgements(
    subflows: int, last_share: float, tmp_path: Path
) -> None:
    """The random words of C are those that the native sender drew."""
    interval_ns = 32_000
    header = sirona_header(subflows, interval_ns, last_share, "balancer")
    c = compiled_reader(tmp_path, {"balancer.h": header}, READER, "-O2")
    assert c.state_bytes() == 4 * (subflows + 2)
    for seed in range(20):
        given = {"name": "sirona", "subflows": subflows, "interval_ns": interval_ns, "last_share": last_share}
        native = Balancer(json.dumps(settings()["balancing"] | given), seed)
        words = native.entropies()
        c.start((ctypes.c_uint32 * subflows)(*words))
        draw, now, packet, moves = random.Random(seed), 1, 0, 0
        under_way: list[tuple[int, int]] = []
        for _ in range(600):
            now += draw.choice([1, 100, 900, 4_000])
            end_ns = native.interval_end_ns()
            if under_way and draw.random() < 0.5:
                subflow, sent = under_way.pop(draw.randrange(len(under_way)))
                native.acknowledged(subflow, sent, False, now)
                acknowledged: tuple[int, int] | None = (subflow, sent)
            else:
                choice = native.next(now)
                acknowledged = None
            if end_ns and now >= end_ns:
                after = native.entropies()
                moved = [i for i in range(subflows) if after[i] != words[i]]
                assert c.on_interval(after[moved[0]] if moved else 0) == len(moved)
                moves, words = moves + len(moved), after
            if acknowledged is None:
                assert (packet % subflows, c.entropy(packet) & 0xFFFFFFFF) == choice
                under_way.append((choice[0], now))
                packet += 1
            else:
                c.on_ack(acknowledged[0], now - acknowledged[1], native.interval_end_ns() - now)
            assert [c.entropy(i) & 0xFFFFFFFF for i in range(subflows)] == native.entropies()
        assert moves > 10


@pytest.mark.parametrize(
    ("subflows", "interval_ns", "last_share", "name", "sentence"),
    [
        (0, 1, 0.5, "a", "subflows = 0 is out of range: give 1 to 1024"),
        (1, 2**32, 0.5, "a", "interval_ns = 4294967296 is out of range"),
        (1, 1, 0.0, "a", "last_share = 0 is out of range"),
        (1, 1, 0.5, "a;b", "name = a;b is no C identifier"),
    ],
)
def test_a_header_of_anything_else_is_refused(
    subflows: int, interval_ns: int, last_share: float, name: str, sentence: str
) -> None:
    with pytest.raises(ForetailError, match=sentence):
        sirona_header(subflows, interval_ns, last_share, name)
