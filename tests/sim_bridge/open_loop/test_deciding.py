"""Replays that serve a predictor while they run, in slots and in bytes, against a slow switch. Some seconds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import scorer_of
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import compare_replays, replay_scores
from foretail.sim_bridge.open_loop.scores import Decider, Questions, sent_percent_of_lqd
from foretail.sim_bridge.open_loop.slotted import accept, compare, flipped, perfect
from tests.sim_bridge.open_loop.test_known import READ, rule_of, slow_sent
from tests.sim_bridge.slow_models.slotted import run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals, small_ensembles


def in_batches(drawn: SlottedArrivals, size: int = 7) -> list[Slotted]:
    slot, port = np.array(drawn.slot, np.int64), np.array(drawn.port, np.int32)
    return [Slotted(slot[first : first + size], port[first : first + size]) for first in range(0, len(slot), size)]


def recorded(folder: Path, drawn: SlottedArrivals) -> Dataset:
    """The packets as a dataset; the workload is only told."""
    run = slotted_run(Incast(), drawn.ports, drawn.buffer // drawn.ports, max(drawn.slot) + 1, 1, cell_bytes=256)
    write_open_loop_dataset(folder / "run", run, arrivals_in_bytes(in_batches(drawn)))
    return Dataset.open(folder / "run")


@given(
    drawn=slotted_arrivals(max_ports=5, max_buffer=12),
    model=small_ensembles(READ),
    predictions=st.sampled_from([perfect, accept, flipped(0.3, 1)]),
)
def test_in_slots_the_predictor_decides_whatever_the_predictions_are(drawn, model, predictions) -> None:  # type: ignore[no-untyped-def]
    sent, seen = slow_sent(drawn, rule_of(model))
    decider = Decider("learned", scorer_of(model))
    found = compare(in_batches(drawn), drawn.ports, drawn.buffer, ["dt"], predictions, decider=decider)
    slow = {
        name: run_slotted(name, drawn.ports, drawn.buffer, drawn.slot, drawn.port).transmitted
        for name in ("dt", "lqd", "followlqd")
    }
    assert found.transmitted == {"dt": slow["dt"], "learned": sent, "lqd": slow["lqd"]}
    assert (found.lqd, found.accept) == (slow["lqd"], slow["followlqd"])
    assert found.sent == sent
    assert found.sent_percent_of_lqd == sent_percent_of_lqd(sent, slow["lqd"])
    dropped = sum(rule_of(model)(row) for row in seen)
    assert found.questions["learned"] == Questions(len(seen), dropped)


@given(
    drawn=slotted_arrivals(max_ports=4, max_buffer=12),
    model=small_ensembles(READ),
    policy=st.sampled_from(["learned", "credence", "guarded"]),
)
@settings(max_examples=20)
def test_in_bytes_it_decides_as_in_slots(drawn: SlottedArrivals, model: Ensemble, policy: str) -> None:
    assume(drawn.slot)
    drawn = drawn._replace(buffer=-(-drawn.buffer // drawn.ports) * drawn.ports)
    decider = Decider(policy, scorer_of(model))
    wanted = ["learned", "cs", "credence", "lqd"]
    in_slots = compare(in_batches(drawn), drawn.ports, drawn.buffer, wanted, decider=decider)
    with TemporaryDirectory() as folder:
        dataset = recorded(Path(folder), drawn)
        nothing = np.zeros(len(drawn.slot), np.bool_)
        in_bytes = compare_replays(dataset, wanted, nothing, decider=decider)
        known, scores = KnownRun.of(dataset), replay_scores(dataset, nothing, decider)
    assert {name: sent.packets for name, sent in in_bytes.transmitted.items()} == in_slots.transmitted
    assert {name: sent.bytes for name, sent in in_bytes.transmitted.items()} == {
        name: 1024 * packets for name, packets in in_slots.transmitted.items()
    }
    assert in_bytes.questions == in_slots.questions
    assert in_bytes.scores == scores
    assert scores.sent_bytes == 1024 * in_slots.transmitted[policy]
    assert (scores.lqd_bytes, scores.accept_bytes) == (1024 * in_slots.lqd, 1024 * in_slots.accept)
    assert in_slots.transmitted["learned"] == slow_sent(drawn, rule_of(model))[0]
    for name in ("learned", "credence", policy):
        assert in_slots.transmitted[name] == known.sent(name, decider.scorer)
