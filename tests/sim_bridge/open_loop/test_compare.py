"""Many policies in one pass against the slow model: totals, prediction error, labels that come late, any batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, SwitchGeometry
from foretail.features.records import FlowClass
from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import scorer_of
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import Incast, PoissonBursts
from foretail.sim_bridge.open_loop.baselines import CANDIDATES, Baseline, best_of, tuned, worth_of
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import bytes_sent, compare_replays, replay_scores
from foretail.sim_bridge.open_loop.scores import Decider, Questions, sent_percent_of_lqd
from foretail.sim_bridge.open_loop.slotted import (
    Labelled,
    Predicted,
    SlottedComparison,
    accept,
    compare,
    flipped,
    in_file,
    labelled,
    packets_sent,
    perfect,
)
from foretail.sim_bridge.policies import ASKING, KNOW_PRIORITIES, OF_ARRIVALS
from foretail.sim_bridge.policy_settings import NetworkParameters, SlotParameters
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.lqd import Rules as ManifestRules
from tests.sim_bridge.slow_models.lqd import Rules as SlowRules
from tests.sim_bridge.slow_models.lqd import Settings
from tests.sim_bridge.slow_models.slotted import SlottedRun, reduced, run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals, small_ensembles
from tests.traces import RUN, make_arrivals, write_bursts, write_trace

READ = ("queue", "occupancy", "active_queues", "gap")
LATER = 1000
"""A slot that is later than any queue of these tests."""


def batches(case: SlottedArrivals, cuts: list[int] | None = None, **columns: list[int]) -> Iterator[Slotted]:
    """The case cut before the packets `cuts`."""
    for first, last in itertools.pairwise([0, *(cuts or []), len(case.slot)]):
        yield Slotted(
            np.array(case.slot[first:last], np.int64),
            np.array(case.port[first:last], np.int32),
            **{name: np.array(values[first:last], np.uint8) for name, values in columns.items()},
        )


def cuts_of(data: st.DataObject, case: SlottedArrivals) -> list[int]:
    return sorted(data.draw(st.lists(st.integers(0, len(case.slot)), max_size=4)))


def bits(data: st.DataObject, case: SlottedArrivals, highest: int = 1) -> list[int]:
    n = len(case.slot)
    return data.draw(st.lists(st.integers(0, highest), min_size=n, max_size=n))


def facts(found: SlottedComparison) -> dict[str, Any]:
    known = dict(vars(found))
    for region in ("whole", "asked"):
        agreement = known.pop(region)
        known |= {f"{region}.{name}": np.array(value).tolist() for name, value in vars(agreement).items()}
    return known


@given(
    data=st.data(),
    case=slotted_arrivals(max_ports=6, max_buffer=30),
    counting=st.sampled_from(("counted", "uncounted")),
)
def test_every_figure_is_that_of_the_slow_model(data: st.DataObject, case: SlottedArrivals, counting: str) -> None:
    told = bits(data, case)
    rules = SlowRules(counting, "lowest_port", data.draw(st.sampled_from(("tail", "head"))))
    found = compare(
        batches(case, cuts_of(data, case), prediction=told),
        case.ports,
        case.buffer,
        list(OF_ARRIVALS),
        in_file,
        rules=Rules(rules.counting, rules.tie, rules.victim),  # type: ignore[arg-type]
        threads=1,
    )
    for policy in OF_ARRIVALS:
        slow = run_slotted(policy, *case, predictions=told if policy in ASKING else None, rules=rules)
        assert found.transmitted[policy] == slow.transmitted, policy
    lqd = run_slotted("lqd", *case, rules=rules)
    follow = run_slotted(
        "followlqd", case.ports, case.buffer, *reduced(case.slot, case.port, told), rules=rules
    ).transmitted
    everything = run_slotted("followlqd", *case, rules=rules).transmitted
    assert (found.arrivals, found.lqd, found.followlqd, found.accept) == (
        len(case.slot),
        lqd.transmitted,
        follow,
        everything,
    )
    assert found.eta == (lqd.transmitted / follow if follow else None)
    lost = lqd.transmitted - everything
    assert found.sent == found.transmitted["credence"]
    assert found.recovered_loss == ((found.sent - everything) / lost if lost else None)
    assert found.sent_percent_of_lqd == (100 * found.sent / lqd.transmitted if lqd.transmitted else None)
    asks = run_slotted("credence", *case, predictions=lqd.lqd_drop, rules=rules).asked
    for agreement, rows in ((found.whole, range(len(told))), (found.asked, np.flatnonzero(asks))):
        pairs = [(told[i], lqd.lqd_drop[i]) for i in rows]
        counted = (agreement.tp, agreement.fp, agreement.tn, agreement.fn)
        assert counted == tuple(pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 0), (0, 1)))
        assert agreement.score is None


@given(data=st.data(), case=slotted_arrivals(), probability=st.sampled_from((0.0, 0.3, 1.0)))
def test_batches_make_no_difference(data: st.DataObject, case: SlottedArrivals, probability: float) -> None:
    optional = {"first_rtt": bits(data, case), "priority": bits(data, case)}
    parameters = SlotParameters(alpha=[0.5, 0.25], first_rtt_alpha=2.0)

    def run(cuts: list[int], threads: int) -> dict[str, Any]:
        return facts(
            compare(
                batches(case, cuts, **optional),
                case.ports,
                case.buffer,
                list(OF_ARRIVALS),
                flipped(probability, 5),
                parameters=parameters,
                optimum=True,
                threads=threads,
            )
        )

    whole = run([], 1)
    assert run(cuts_of(data, case), 3) == whole
    assert whole["optimum"] >= max(whole["transmitted"].values())
    if probability == 0:
        assert whole["transmitted"]["credence"] == whole["lqd"]
    slot, port = np.array(case.slot, np.int64), np.array(case.port, np.int32)
    assert whole["optimum"] == late_qd(case.ports, case.buffer, slot, port)["transmitted"]
    for policy in set(OF_ARRIVALS) & set(KNOW_PRIORITIES) - set(ASKING):
        alone = slotted(
            policy,
            case.ports,
            case.buffer,
            slot,
            port,
            first_rtt=np.array(optional["first_rtt"], np.uint8),
            priority=np.array(optional["priority"], np.uint8),
            alpha=[0.5, 0.25],
            queues=2,
            first_rtt_alpha=2.0,
        )
        assert whole["transmitted"][policy] == alone["transmitted"]


@given(data=st.data(), case=slotted_arrivals(), victim=st.sampled_from(("tail", "tail_kept", "head", "random")))
def test_labels_are_final_when_a_batch_comes_out(data: st.DataObject, case: SlottedArrivals, victim: Any) -> None:
    rules = Rules("counted", "highest_port", victim)
    given_batches = list(batches(case, cuts_of(data, case)))
    out = list(
        labelled(
            iter(given_batches),
            case.ports,
            case.buffer,
            rules,
            features=True,
            seed=9,
            average_shift=13,
        )
    )
    assert [batch.arrivals for batch in out] == given_batches
    alone = slotted(
        "lqd",
        case.ports,
        case.buffer,
        np.array(case.slot, np.int64),
        np.array(case.port, np.int32),
        tie="highest_port",
        victim=victim,
        seed=9,
        average_shift=3,
        features=True,
    )
    assert np.concatenate([batch.lqd_drop for batch in out]).tolist() == alone["lqd_drop"].tolist()
    assert np.concatenate([batch.features for batch in out if batch.features is not None]).tolist() == (
        alone["features"].tolist()
    )


def test_a_batch_comes_out_as_soon_as_lqd_has_sent_or_dropped_its_packets() -> None:
    """Four packets wait in one queue; the arrivals of a later batch push two of them out."""
    taken = []

    def source() -> Iterator[Slotted]:
        for slot, ports in ((0, [0, 0, 0, 0]), (0, [1, 1]), (LATER, [0]), (2 * LATER, [0])):
            taken.append(slot)
            yield Slotted(np.full(len(ports), slot, np.int64), np.array(ports, np.int32))

    stream = labelled(source(), 2, 4)
    assert next(stream).lqd_drop.tolist() == [0, 0, 1, 1]
    assert taken == [0, 0, LATER]
    assert next(stream).lqd_drop.tolist() == [0, 0]
    assert taken == [0, 0, LATER]
    assert [batch.lqd_drop.tolist() for batch in stream] == [[0], [0]]


def test_scores_of_a_model_are_counted_by_value() -> None:
    case = SlottedArrivals(2, 2, [0] * 6 + [1] * 6, [0, 0, 0, 1, 1, 0] * 2)

    def predict(batch: Labelled) -> Predicted:
        assert batch.features is not None
        score = batch.features[:, 0] / 4
        return Predicted((score > 0.3).astype(np.uint8), score)

    once = compare(batches(case), 2, 2, [], predict, features=True)
    assert facts(compare(batches(case, [1, 5, 9]), 2, 2, [], predict, features=True)) == facts(once)
    (batch,) = labelled(batches(case), 2, 2, features=True)
    assert batch.features is not None
    assert once.whole.score is not None
    for score, drops, rows in zip(once.whole.score, once.whole.drops, once.whole.rows, strict=True):  # type: ignore[arg-type]
        mine = batch.features[:, 0] / 4 == score
        assert (drops, rows) == (batch.lqd_drop[mine].sum(), mine.sum())


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    case = SlottedArrivals(2, 2, [0, 0], [0, 1])
    with pytest.raises(ForetailError, match="carry no predictions"):
        compare(batches(case), 2, 2, ["lqd"], in_file)
    with pytest.raises(ValueError, match="red"):
        compare(batches(case), 2, 2, ["red"])
    with pytest.raises(ValueError, match="row 1 has port 1"):
        compare(batches(case), 1, 2, ["lqd"])


GEOMETRY = Geometry(6000, (10**9,) * 4, overhead=2)


def test_policies_send_what_the_slow_model_does(tmp_path: Path) -> None:
    arrivals = make_arrivals(500, seed=7)
    records = arrivals.records
    records["port"] %= 4
    dataset = write_trace(
        tmp_path / "trace",
        arrivals,
        switches=(SwitchGeometry(4, GEOMETRY.buffer, GEOMETRY.rates_bps),) * 2,
        scenario={"topology": {"wire_overhead_bytes": GEOMETRY.overhead}},
    )
    is_data = records["flow_class"] != FlowClass.CONTROL
    told = np.zeros(len(records), np.uint8)
    told[is_data] = np.random.default_rng(1).random(np.count_nonzero(is_data)) < 0.3
    predicted = told[is_data].astype(np.bool_)
    parts: list[float] = []
    found = compare_replays(
        dataset,
        list(OF_ARRIVALS),
        predicted,
        parameters=NetworkParameters(
            alpha=0.25, first_rtt_alpha=8.0, spare_bandwidth=0.5, spares_first_rtt=0, answers_needed=1
        ),
        threads=3,
        report=parts.append,
    )
    assert list(found.transmitted) == list(OF_ARRIVALS)
    assert parts == [1.0]
    assert (found.arrivals, found.arrived_bytes) == (len(predicted), int(records["size_bytes"][is_data].sum()))
    assert found.transmitted_bytes is not None
    settings = Settings(
        alpha=(0.25,),
        first_rtt_alpha=8.0,
        rtt=1 << RUN.average_shift,
        low_pass=1 << 19,
        spare_bandwidth=0.5,
        bucket=NetworkParameters.bucket_bytes,
        spares_first_rtt=0,
        drop_budget=NetworkParameters.drop_budget_bytes,
        answers_needed=1,
        average_shift=RUN.average_shift,
    )

    def slow(policy: str, rows: np.ndarray) -> tuple[int, int]:
        packets_sent = bytes_sent = 0
        for switch in (0, 1):
            mine = np.flatnonzero((records["switch"] == switch) & rows)
            packets = [
                Packet(
                    k,
                    int(records["time_ns"][i]),
                    int(records["port"][i]),
                    int(records["size_bytes"][i]),
                    bool(is_data[i]),
                    bool(records["first_rtt"][i]),
                )
                for k, i in enumerate(mine)
            ]
            predictions = told[mine].tolist() if policy in ASKING else None
            rules = ManifestRules(RUN.rules.counting, RUN.rules.tie, RUN.rules.victim)
            run = run_bytes(policy, GEOMETRY, packets, predictions, rules, settings, RUN.cell_bytes)
            packets_sent += run.transmitted_packets
            bytes_sent += run.transmitted_bytes
        return packets_sent, bytes_sent

    for policy, sent in found.transmitted.items():
        assert (sent, found.transmitted_bytes[policy]) == slow(policy, np.ones_like(told)), policy
    assert len(set(found.transmitted_bytes.values())) > 5
    scores = replay_scores(dataset, predicted)
    assert found.scores == scores
    follow = slow("followlqd", 1 - told)[1]
    assert (scores.followlqd, scores.eta) == (follow, found.lqd / follow)
    assert scores.recovered_loss == (found.sent - found.accept) / (found.lqd - found.accept)
    assert scores.sent_percent_of_lqd == 100 * found.sent / found.lqd
    assert [found.lqd, found.accept, found.sent] == [
        found.transmitted_bytes[policy] for policy in ("lqd", "followlqd", "credence")
    ]
    for refuses in (replay_scores, lambda of, one: compare_replays(of, list(OF_ARRIVALS), one)):
        with pytest.raises(ForetailError, match=r"1 predictions do not fit the \d+ rows of .*trace"):
            refuses(dataset, predicted[:1])


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
    learned, seen = slow_run(drawn, rule_of(model))
    sent = learned.transmitted
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
    # In bytes the guard lets predictions drop 30,000 bytes of a queue at once, in slots any number of packets.
    assume(policy != "guarded" or in_slots.questions[policy].predicted_drops <= 29)
    with TemporaryDirectory() as folder:
        dataset = recorded(Path(folder), drawn)
        nothing = np.zeros(len(drawn.slot), np.bool_)
        in_bytes = compare_replays(dataset, wanted, nothing, decider=decider)
        known, scores = KnownRun.of(dataset), replay_scores(dataset, nothing, decider)
    assert in_bytes.transmitted == in_slots.transmitted
    assert in_bytes.transmitted_bytes == {name: 1024 * packets for name, packets in in_slots.transmitted.items()}
    assert in_bytes.questions == in_slots.questions
    assert in_bytes.scores == scores
    assert scores.sent == 1024 * in_slots.transmitted[policy]
    assert (scores.lqd, scores.accept) == (1024 * in_slots.lqd, 1024 * in_slots.accept)
    assert known.lqd == in_slots.lqd
    assert in_slots.transmitted["learned"] == slow_run(drawn, rule_of(model))[0].transmitted
    for name in ("learned", "credence", policy):
        assert in_slots.transmitted[name] == known.sent(name, decider.scorer)


NAMES = [feature.name for feature in FEATURES]
Rule = Callable[[dict[str, int]], bool]


def slow_run(given: SlottedArrivals, drops: Rule) -> tuple[SlottedRun, list[dict[str, int]]]:
    """Run Complete Sharing with a predictor; return what it saw, in cells of a quarter of a packet."""
    seen: list[dict[str, int]] = []

    def predictor(features: list[int]) -> bool:
        row = dict(zip(NAMES, features, strict=True))
        seen.append(row | {name: 4 * row[name] for name in ("queue", "occupancy", "gap")})
        return drops(seen[-1])

    return run_slotted("learned", *given, predictor=predictor), seen


def known(given: SlottedArrivals) -> KnownRun:
    batch = Slotted(np.array(given.slot, np.int64), np.array(given.port, np.int32))
    return KnownRun.in_slots([batch], given.ports, given.buffer)


def rule_of(model: object) -> Rule:
    names = [item.name for item in model.features]  # type: ignore[attr-defined]
    return lambda row: bool(model.exceeds(np.array([[row[name] for name in names]]))[0])  # type: ignore[attr-defined]


@given(arrivals=slotted_arrivals(max_ports=5, max_buffer=12), model=small_ensembles(READ))
def test_a_predictor_in_the_process_sees_and_sends_what_a_slow_switch_does(arrivals, model) -> None:  # type: ignore[no-untyped-def]
    slow, seen = slow_run(arrivals, rule_of(model))
    run = known(arrivals)
    assert run.sent("learned", scorer_of(model)) == slow.transmitted
    visits = run.visited("learned", scorer_of(model), rows=10**9, seed=1)
    fitting = [row for row in seen if row["occupancy"] < 4 * arrivals.buffer]
    for name in READ:
        assert visits.features[:, NAMES.index(name)].tolist() == [row[name] for row in fitting]
    assert (visits.value > 0).tolist() == [rule_of(model)(row) for row in fitting]
    assert scorer_of(model).margins(visits.features).tolist() == visits.value.tolist()


@given(
    arrivals=slotted_arrivals(max_ports=5, max_buffer=12),
    models=st.lists(small_ensembles(READ), min_size=1, max_size=3),
    data=st.data(),
)
def test_predictors_take_turns_at_their_first_arrivals(arrivals, models, data) -> None:  # type: ignore[no-untyped-def]
    later = st.lists(st.integers(0, len(arrivals.slot)), min_size=len(models) - 1, max_size=len(models) - 1)
    firsts, row_number = [0, *sorted(data.draw(later))], itertools.count()

    def drops(row: dict[str, int]) -> bool:
        number = next(row_number)
        return rule_of(models[max(turn for turn, first in enumerate(firsts) if first <= number)])(row)

    slow, _ = slow_run(arrivals, drops)
    sent = known(arrivals).sent_in_turns("learned", [scorer_of(one) for one in models], [firsts])
    assert sent == slow.transmitted


def test_turns_that_do_not_begin_at_the_first_arrival_are_refused() -> None:
    run = KnownRun.in_slots(Incast(fan_in=3).batches(8, 80, 100, seed=1), 8, 80)
    rule = AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer()
    for scorers, firsts in (([rule], [1]), ([rule, rule], [0]), ([rule, rule, rule], [0, 2, 1]), ([], [])):
        with pytest.raises(ValueError, match="each have a first arrival, from 0 on and in order"):
            run.sent_in_turns("learned", scorers, [firsts])


@given(arrivals=slotted_arrivals(max_ports=5, max_buffer=12), alpha=st.sampled_from([0.5, 1.0, 4.0, 16.0]))
def test_the_starting_rule_is_dynamic_thresholds_up_to_its_rounding(arrivals, alpha) -> None:  # type: ignore[no-untyped-def]
    """`pressure` rounds logarithms to an eighth of an octave, so the rule lies between two close alphas."""
    rule = AdaptiveThreshold.dynamic_thresholds(alpha, (50.0, 50.0)).scorer()
    visits = known(arrivals).visited("learned", rule, rows=10**9, seed=1, features=["queue", "occupancy"])
    queue = visits.features[:, NAMES.index("queue")] / 4
    free = arrivals.buffer - visits.features[:, NAMES.index("occupancy")] / 4
    dropped = visits.value > 0
    assert (queue[dropped] >= alpha * free[dropped]).all()
    assert (queue[~dropped] <= alpha * 1.3 * free[~dropped]).all()


def test_half_of_the_answers_inverted_is_neither_rule_and_none_is_the_rule() -> None:
    run = KnownRun.in_slots(Incast(fan_in=5, background_load=0.6).batches(20, 200, 4000, seed=3), 20, 200)
    rule = AdaptiveThreshold.dynamic_thresholds(16.0, (50.0, 50.0)).scorer()
    sent = [run.sent("learned", rule, inverted=share, draw=1) for share in (0.0, 0.1, 0.5, 1.0)]
    assert sent[0] == run.sent("learned", rule)
    assert sorted(sent, reverse=True) == sent
    assert len(set(sent)) == 4


def test_features_that_nobody_reads_are_zero_unless_they_are_asked_for() -> None:
    """A predictor may see more than the policy that runs or the teacher read."""
    run = KnownRun.in_slots(Incast(fan_in=5, background_load=0.6).batches(8, 80, 1000, seed=1), 8, 80)
    rule = AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer()
    more = ["queue_average", "gap", "threshold", "since_push_out"]
    for teacher in (None, rule):
        plain, wider = (
            run.visited("learned", rule, rows=500, seed=1, teacher=teacher, features=names) for names in ([], more)
        )
        assert plain.value.tolist() == wider.value.tolist()
        for place, name in enumerate(NAMES):
            if name in more:
                assert len(set(wider.features[:, place].tolist())) > 3
                assert not plain.features[:, place].any()
            else:
                assert wider.features[:, place].tolist() == plain.features[:, place].tolist()
    with pytest.raises(ForetailError, match="unknown feature 'incast'"):
        run.visited("learned", rule, rows=500, seed=1, features=["incast"])


def test_policies_without_a_question_take_no_scorer() -> None:
    run = KnownRun.in_slots(Incast(fan_in=5).batches(8, 80, 200, seed=1), 8, 80)
    with pytest.raises(ForetailError, match="asks no predictor"):
        run.sent("dt", AdaptiveThreshold.dynamic_thresholds(2.0, (50.0, 50.0)).scorer())


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = tmp_path_factory.mktemp("baselines")
    return [write_bursts(folder / f"run-{seed}", seed) for seed in (1, 2, 3)]


def alone(dataset: Dataset, one: Baseline) -> int:
    parameters = NetworkParameters() if one.alpha is None else NetworkParameters(alpha=one.alpha)
    nothing = np.zeros(dataset.manifest.rows, np.bool_)
    return compare_replays(dataset, [one.policy], nothing, parameters=parameters).scored[one.policy]


def test_each_policy_sends_what_it_sends_alone(datasets: list[Dataset]) -> None:
    assert bytes_sent(datasets[0], [one.contender for one in CANDIDATES]) == [
        alone(datasets[0], one) for one in CANDIDATES
    ]


def test_the_setting_that_sends_most_is_chosen(datasets: list[Dataset]) -> None:
    chosen = tuned(datasets[:2])
    assert sorted(one.policy for one in chosen) == ["abm", "cs", "dt", "harmonic"]
    sent = {one: sum(alone(dataset, one) for dataset in datasets[:2]) for one in CANDIDATES}
    for one in chosen:
        assert sent[one] == max(found for other, found in sent.items() if other.policy == one.policy)
    assert [sent[one] for one in chosen] == sorted((sent[one] for one in chosen), reverse=True)


def test_in_slots_each_policy_sends_what_it_sends_alone() -> None:
    batches = list(PoissonBursts(load=0.3).batches(4, 40, 800, seed=1))
    settings = [(one.policy, SlotParameters(alpha=[one.alpha or 0.5])) for one in CANDIDATES]
    sent = packets_sent(batches, 4, 40, settings)
    assert sent == [compare(batches, 4, 40, [name], parameters=own).transmitted[name] for name, own in settings]
    assert len(set(sent)) > 3
    best = best_of(CANDIDATES, sent)
    rows = worth_of(
        [CANDIDATES[place] for place in best], [sent[place] for place in best], lqd=max(sent) + 1, accept=min(sent) - 1
    )
    assert [row["sent"] for row in rows] == sorted((row["sent"] for row in rows), reverse=True)
