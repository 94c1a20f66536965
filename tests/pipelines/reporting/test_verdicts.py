"""What runs come to, in two sentences: made of the figures of their documents, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretail.pipelines.comparison.cost import RunCost
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.policy_runs import PolicyRun
from foretail.pipelines.comparison.predictions import PredictionScores, Source
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, FlowSummary
from foretail.pipelines.data.collecting import CollectedRun
from foretail.pipelines.promotion.gate import Check
from foretail.pipelines.promotion.promoting import PromoteResult
from foretail.pipelines.stages.collect import CollectResult
from foretail.sim_bridge.open_loop.scores import worth_in_words


def run(policy: str, seed: int, incast_p95: float) -> PolicyRun:
    summary = FlowSummary(10, 0, 1.0, incast_p95, incast_p95, False, 0.0, 0, 0)
    return PolicyRun(
        policy=policy,
        seed=seed,
        path=Path("nowhere"),
        flows_sha256="0" * 64,
        flows=dict.fromkeys((*FLOW_GROUPS, "all"), summary),
        never_started=0,
        queries=None,
        rounds=None,
        cost=RunCost(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1e9),
        occupancy={"p99": 0.5},
        counters={},
        asked=None,
        predicted_drops=None,
        reused=False,
        seconds=1.0,
        cpu_seconds=1.0,
        packets_per_cpu_second=None,
    )


def compared(**slowdowns: list[float]) -> FlowsResult:
    runs = [run(policy, seed, value) for policy, values in slowdowns.items() for seed, value in enumerate(values)]
    return FlowsResult(tuple(runs), ("lqd",), None)


def test_a_lossless_packet_that_is_lost_is_the_first_sentence() -> None:
    whole = compared(lqd=[4.0], dt=[3.0])
    counters = {"pauses": 2, "paused_ns": 5, "pausable_ns": 10, "lossless_drops": 1_234}
    runs = tuple(replace(one, counters=counters) if one.policy == "dt" else one for one in whole.runs)
    first, *others = replace(whole, runs=runs).verdict()
    assert first.startswith("Lossless queues lost packets (Dynamic Thresholds 1,234): raise scenario.pfc.headroom_byt")
    assert others == whole.verdict()


@pytest.mark.parametrize(
    ("asking", "accepting", "verdict"),
    [
        ([5.0, 6.0, 5.5], [9.0, 10.0, 9.6], "so predictions help here"),
        ([9.0, 10.0, 9.6], [5.0, 6.0, 5.5], "so predictions do harm here"),
        ([5.0, 9.0, 5.5], [9.0, 5.0, 5.6], "not a difference that these seeds can tell from chance"),
    ],
)
def test_a_comparison_says_what_predictions_are_worth(
    asking: list[float], accepting: list[float], verdict: str
) -> None:
    found = compared(lqd=[4.0] * 3, credence=asking, credence_accept=accepting, dt=[3.0] * 3)
    first, second = found.verdict()
    assert first.startswith("Dynamic Thresholds has the lowest p95 slowdown of incast flows, 3; LQD")
    assert verdict in second
    assert "(3 seeds" in second
    assert "tell from chance" not in first  # one less than LQD in every seed
    noisy = compared(lqd=[4.0, 9.0, 5.0], dt=[5.0, 2.0, 6.0]).verdict()[0]
    assert noisy.endswith(
        "LQD, which Credence imitates, has 6 (which is not a difference that these seeds can tell from chance)."
    )
    mean = found.differences("slowdown.incast.p95", "credence_accept")["credence"].mean
    assert f"{mean:+.3g} [" in second


def test_seeds_that_the_model_has_seen_are_shown_apart() -> None:
    found = replace(compared(lqd=[4.0] * 3, credence=[9.0, 5.0, 5.0]), seen=(1, 2))
    assert found.verdict()[0] == "The model was trained or tuned on seed 1, 2: what it does there is shown apart."
    assert found.verdict()[1].endswith("Credence is next with 9.")
    titles = [table.title for table in found.tables()]
    assert titles[:3:2] == ["Policies", "Policies, on runs that the model has seen"]
    document = found.document()
    assert document["seen_seeds"] == (1, 2)
    means = [document["means"], document["seen"]["means"]]
    assert [mean["slowdown.incast.p95"]["credence"].mean for mean in means] == [9, 5]
    assert "all of these seeds, which flatters it" in replace(found, seen=(0, 1, 2)).verdict()[0]


def test_a_collection_says_what_a_model_that_learns_nothing_is_right_on() -> None:
    def made(rows: int, drops: int) -> CollectedRun:
        return CollectedRun(1, Path("nowhere"), "0" * 64, rows, drops, 0, False, 1.0, {}, None, None)

    assert CollectResult((made(1000, 2), made(1000, 8))).verdict() == [
        "LQD drops 10 of 2,000 packets, 0.5 %, in 2 datasets.",
        "A predictor that never drops is right on 99.5 % of them: judge one by F1.",
    ]
    assert CollectResult((made(1000, 400),)).verdict()[-1].endswith("lower the load, or send smaller bursts.")
    assert CollectResult((made(1000, 0),)).verdict() == [
        "LQD drops none of the 1,000 packets of 1 dataset, so there is nothing to learn."
    ]


def test_a_comparison_says_what_it_cannot_tell() -> None:
    assert compared(lqd=[1.0]).verdict() == []
    (first,) = compared(lqd=[2.0], dt=[3.0]).verdict()
    assert first.startswith("LQD has the lowest")
    assert "Dynamic Thresholds is next with 3" in first
    assert "add credence_accept to policy" in compared(lqd=[2.0], credence=[3.0]).verdict()[1]
    one = compared(credence=[2.0], credence_accept=[3.0])
    assert "one seed cannot tell" in one.verdict()[1]
    empty = replace(one, runs=tuple(replace(each, flows=one.runs[0].flows) for each in one.runs))
    assert len(empty.verdict()) == 2


def test_the_worth_of_predictions_never_stands_alone() -> None:
    assert worth_in_words(0.6, 98.9) == (
        "Deciding in the switch, under Credence, the predictor sends 98.9 % of what LQD sends and recovers 60 % of "
        "what always accepting loses against it."
    )
    assert worth_in_words(-1.0, 90.0, decides=False).startswith("Credence with these predictions sends 90 %")
    assert "always accepting loses nothing there" in worth_in_words(None, 100.0)
    assert worth_in_words(None, None).startswith("LQD sends nothing")
    tuned = [{"title": "DT, alpha 64", "recovered_loss": -11_645.0, "sent_percent_of_lqd": 100.1}]
    of_nothing = worth_in_words(95_915.0, 99.61, tuned)
    assert "recovers" not in of_nothing  # a share of next to nothing
    assert of_nothing.endswith(
        "DT, alpha 64, chosen without a predictor on the runs that trained the model, sends 100.1 %: the predictor "
        "loses 0.49 % of LQD's packets: take DT, alpha 64."
    )
    assert "is worth nothing there" in worth_in_words(0.6, 100.104, tuned)
    assert "the predictor gains 0.2 % of LQD's packets." in worth_in_words(0.6, 100.3, tuned)


@pytest.mark.parametrize(
    ("tuned", "best"), [(99.9, "DT, alpha 16 sends most, 99.9 %"), (98.0, "Credence sends most, 99 %")]
)
def test_a_policy_sends_most_only_if_no_tuned_one_sends_more(tuned: float, best: str) -> None:
    worth = PredictionScores(Source("model"), "bytes", 100, 90, 95, 99, 1.0, 0.7, 99.0, {"whole": {}, "asked": {}})
    baseline = {"title": "DT, alpha 16", "recovered_loss": 0.9, "sent_percent_of_lqd": tuned}
    assert best in worth.verdict({"lqd": 100, "dt": 97, "credence": 99}, [baseline], "other runs")[0]


def test_a_gate_that_refuses_says_what_failed() -> None:
    checks = (Check("asked_f1", True, "F1 is 0.7"), Check("tuned_baseline", False, "R is less than that of DT"))
    refused = PromoteResult({"held_out": [{}, {}]}, checks, None, (), (), {}).verdict()
    assert refused == [
        "The gate refused the model for tuned_baseline.",
        "On 2 held-out runs, R is less than that of DT.",
    ]
