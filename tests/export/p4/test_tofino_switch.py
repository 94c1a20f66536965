"""The switch for Tofino that computes its predictor's features: its text, its registers, and what its compiler says."""

from __future__ import annotations

import re
import shutil
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.export.p4.planning import plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.text import render_p4
from foretail.export.p4.tofino import CHIPS, COMPILER, compile_for
from foretail.export.passes import lower
from foretail.features.catalog import FEATURE_GROUPS, REPORTED_EVERY, feature
from foretail.models.drop.contract import synthetic_arrivals
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from tests.forests import paper_forest
from tests.sim_bridge.slow_models.features import TrackedQueues

QUEUES = 3
WORD = 1 << 32
BUFFER = 20_000

needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"{COMPILER} not on PATH: docs/results/p4-tofino.md says how to build it"
)


def tracked_forest(names: tuple[str, ...] = FEATURE_GROUPS["tofino"], cell_bytes: int = 256) -> Ensemble:
    """A forest of features of a Tofino, on made-up values."""
    inputs = [FeatureInput(name, feature(name).params(cell_bytes, 15), feature(name).bits) for name in names]
    x, y = synthetic_arrivals(rows=5000, seed=1)
    columns = [np.minimum(x[:, i % x.shape[1]], (1 << each.bits) - 1) for i, each in enumerate(inputs)]
    return lower(RandomForest(trees=4, depth=3, seed=1).fit(np.stack(columns, axis=1), y).to_ensemble(inputs)).ensemble


def texts_for(ensemble: Ensemble, chip: str = "tofino") -> dict[str, str]:
    return render_p4(ensemble, plan(ensemble, load_profile(chip)).tables, "p")


@cache
def octaves(name: str) -> list[tuple[int, int, int]]:
    """Rows of a table of the program: value, mask and what it says."""
    text = texts_for(tracked_forest())["p_switch.p4"]
    rows = re.findall(rf"32w(\d+) &&& 32w(\d+) : set_{name}\((\d+)\);", text)
    return [(int(value), int(mask), int(label)) for value, mask, label in rows]


def looked_up(name: str, key: int) -> int:
    return next((label for value, mask, label in octaves(name) if key & mask == value), 0)


class Registers:
    """What the registers of the program do with a packet, statement by statement."""

    def __init__(self) -> None:
        self.let_in, self.sent, self.free = [0] * QUEUES, [0] * QUEUES, BUFFER
        self.longest_queue = self.longest_bytes = 0
        self.egress_sent, self.egress_unreported = [0] * QUEUES, [0] * QUEUES

    def arrive(self, queue: int, size: int) -> list[int]:
        self.let_in[queue] = (self.let_in[queue] + size) % WORD
        full_length = (self.let_in[queue] - self.sent[queue]) % WORD
        free, self.free = self.free, (self.free - size) % WORD
        longest = self.longest_bytes
        if self.longest_queue == queue or full_length > longest:
            self.longest_queue, self.longest_bytes = queue, full_length
        length = (full_length - size) % WORD
        return [length, (BUFFER - free) % WORD, max(longest - length, 0), self.pressure(length, free)]

    def pressure(self, length: int, free: int) -> int:
        return min(max(looked_up("above", length) - looked_up("below", free), 0), 255)

    def take_back(self, queue: int, size: int) -> None:
        self.let_in[queue] = (self.let_in[queue] - size) % WORD
        self.free = (self.free + size) % WORD
        self._correct(queue)

    def depart(self, queue: int, size: int) -> None:
        self.egress_sent[queue] = (self.egress_sent[queue] + size) % WORD
        self.egress_unreported[queue] = (self.egress_unreported[queue] + 1) % REPORTED_EVERY
        if self.egress_unreported[queue] == 0:
            change = (self.sent[queue] - self.egress_sent[queue]) % WORD
            self.sent[queue] = self.egress_sent[queue]
            self.free = (self.free - change) % WORD
            self._correct(queue)

    def _correct(self, queue: int) -> None:
        if self.longest_queue == queue:
            self.longest_bytes = (self.let_in[queue] - self.sent[queue]) % WORD


@given(
    st.lists(st.tuples(st.integers(0, QUEUES - 1), st.integers(64, 1500), st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_the_registers_hold_the_features(packets: list[tuple[int, int, bool]], random: object) -> None:
    registers, features = Registers(), TrackedQueues(QUEUES, BUFFER)
    queued: list[list[int]] = [[] for _ in range(QUEUES)]
    for queue, size, accepted in packets:
        assert registers.arrive(queue, size) == features.read(queue, size, [sum(sizes) for sizes in queued])
        if accepted:
            queued[queue].append(size)
        else:
            registers.take_back(queue, size)
        for other in range(QUEUES):
            if queued[other] and random.random() < 0.4:  # type: ignore[attr-defined]
                left = queued[other].pop(0)
                registers.depart(other, left)
                features.departed(other, left)


def test_the_program_reads_what_the_catalog_says() -> None:
    text = texts_for(tracked_forest())["p_switch.p4"]
    assert re.search(rf"if \(value == {REPORTED_EVERY - 1}\) {{\s+value = 0;\s+result = 1;", text)
    called = re.search(r"predictor\.apply\(([^;]*)\);", text)
    assert called
    assert [line.strip(" ,") for line in called[1].strip().splitlines()] == [
        "length[31:8]",
        "occupancy[31:8]",
        "gap[31:8]",
        "(bit<24>) pressure",
        "(bit<24>) hdr.tag.first_rtt",
        "(bit<24>) hdr.tag.message_left",
        "score",
        "drop",
    ]
    coarse = texts_for(tracked_forest(("gap_tracked", "message_left", "queue_tracked", "first_rtt"), 1024))
    assert "cells_of_gap = gap >> 10;" in coarse["p_switch.p4"]
    assert " cells_of_gap[23:0]," in coarse["p_switch.p4"]
    assert "octaves" not in coarse["p_switch.p4"]
    assert " length[23:0]" in texts_for(tracked_forest(cell_bytes=1))["p_switch.p4"]


def test_there_is_no_such_switch_for_what_ingress_does_not_know() -> None:
    assert "p_switch.p4" not in texts_for(lower(paper_forest(2, 3).ensemble).ensemble)
    inputs = [FeatureInput(name, "cell_bytes=256", 24) for name in FEATURE_GROUPS["tofino"][:4]]
    other = lower(paper_forest(2, 3).forest.to_ensemble(inputs)).ensemble  # reported by another rule
    assert "p_switch.p4" not in texts_for(other)
    assert "p_switch.p4" not in texts_for(tracked_forest(), "v1model")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_the_switch_compiles(chip: str) -> None:
    found = compile_for(chip, texts_for(tracked_forest(), chip), "p")
    assert found.program == "p_switch.p4"
    assert found.stages <= load_profile(chip).stages  # type: ignore[operator]
