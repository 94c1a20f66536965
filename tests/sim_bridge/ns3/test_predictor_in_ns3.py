"""A compiled predictor inside the switch: bit-exact against model and scikit-learn, refused when it does not fit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.export.c.build import compile_library, find_compiler, predictor_abi
from foretail.export.c.target import C
from foretail.export.target import ExportResult, export
from foretail.features.catalog import (
    COUNTER_BITS,
    COUNTERS,
    PAPER_FEATURES,
    SWITCH_FEATURES,
    counter_params,
    feature,
    training_columns,
)
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, read_records
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge._native import Replay, counter_names, interval_counters
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.open_loop.replay import RunReplay, queues_of
from tests.scenarios import settings
from tests.sim_bridge.packets.paused_runs import total
from tests.sim_bridge.slow_models.counters import Packet, counters_before

CELL_BYTES, AVERAGE_SHIFT = 256, 15
Simulate = Callable[..., DriverRun]
Library = Callable[..., str]


class Trained(NamedTuple):
    forest: RandomForest
    ensemble: Ensemble
    exported: ExportResult


def inputs(names: tuple[str, ...], cell_bytes: int = CELL_BYTES) -> list[FeatureInput]:
    return [FeatureInput(n, feature(n).params(cell_bytes, AVERAGE_SHIFT), feature(n).bits) for n in names]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A trace of LQD."""
    path = tmp_path_factory.mktemp("labelled") / "dataset"
    collect_dataset(settings(trace=True, traffic_ns=10_000_000), path, scenario=settings(), simulate=run_driver)
    return Dataset.open(path)


def trained(labelled: Dataset, names: tuple[str, ...], out: Path) -> Trained:
    rows = labelled.frame([*training_columns(names, own_queues=False), "lqd_drop", "shadow_asked"])
    x, y = rows.iloc[:, : len(names)].to_numpy(), rows["lqd_drop"].to_numpy()
    forest = RandomForest(seed=1).fit(x, y)
    ensemble = forest.to_ensemble(inputs(names))
    point = choose_operating_point(ensemble, x, y, rows["shadow_asked"].to_numpy())
    exported = export(ensemble.with_threshold(point.threshold), C(), out)
    return Trained(forest, exported.ensemble, exported)


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("names", "traffic_ns", "least"),
    [
        ((*SWITCH_FEATURES, "first_rtt"), 4_000_000, 10_000),
        pytest.param((*SWITCH_FEATURES, "first_rtt"), 24_000_000, 100_000, marks=pytest.mark.nightly),
        pytest.param(PAPER_FEATURES, 24_000_000, 100_000, marks=pytest.mark.nightly),
    ],
)
def test_every_decision_in_ns3_is_the_models(
    labelled: Dataset, tmp_path: Path, names: tuple[str, ...], traffic_ns: int, least: int
) -> None:
    model = trained(labelled, names, tmp_path / "export")
    document = settings(
        trace=True,
        seed=2,
        traffic_ns=traffic_ns,
        policy__name="credence",
        policy__predictor="library",
        policy__library=str(model.exported.file(".so")),
    )
    run = collect_dataset(document, tmp_path / "credence", scenario=settings(), simulate=run_driver)
    rows = Dataset.open(tmp_path / "credence").frame([*names, "asked", "score", "accepted"])
    asked = rows[rows["asked"].to_numpy(bool)]
    assert len(asked) == sum(node["asked"] for node in run.summary["switches"]) >= least
    assert not rows.loc[~rows["asked"].to_numpy(bool), "score"].notna().any()

    x = asked[list(names)].to_numpy()
    score = asked["score"].to_numpy(np.int64)
    drop = ~asked["accepted"].to_numpy(bool)
    np.testing.assert_array_equal(score, model.ensemble.score(x))
    np.testing.assert_array_equal(drop, score > model.ensemble.default_tau)
    assert drop.any()
    assert not drop.all()

    scikit_learn = model.forest.forest_
    x32 = x.astype(np.float32)
    votes = np.zeros(len(x), np.int64)
    assert model.ensemble.vote_bits is not None
    for tree in scikit_learn.estimators_:
        share = tree.tree_.value[:, 0, :]
        probability = share[:, 1] / share.sum(axis=1)
        vote = np.array([round(Fraction(p) * 2**model.ensemble.vote_bits) for p in probability.tolist()], np.int64)
        votes += vote[tree.apply(x32)]
    np.testing.assert_array_equal(score, votes)
    exact_threshold = float(model.ensemble.threshold) / len(scikit_learn.estimators_)
    np.testing.assert_array_equal(drop, scikit_learn.predict_proba(x32)[:, 1] > exact_threshold)


LIBRARY = """
#include "predictor.h"
static const char *const names[] = {NAMES};
static const char *const params[] = {PARAMS};
static const foretail_predictor_info_t info = {VERSION, sizeof names / sizeof *names, names, params, 0, "none"};
const foretail_predictor_info_t *foretail_predictor_info(void) { return &info; }
int64_t foretail_predictor_score(const int64_t *x) { return SCORE; }
void foretail_predictor_score_batch(const int64_t *x, size_t rows, int64_t *out) {
  for (size_t i = 0; i < rows; ++i) out[i] = foretail_predictor_score(x + i * info.n_features);
}
"""


def library(
    folder: Path,
    version: int = 1,
    names: str = '"threshold"',
    params: str = '"cell_bytes=256"',
    score: str = "x[0] > 500",
) -> Path:
    """A predictor library that claims what it is told to."""
    (folder / "predictor.h").write_text(predictor_abi())
    claims = {"VERSION": str(version), "NAMES": names, "PARAMS": params, "SCORE": score}
    text = LIBRARY
    for place, claim in claims.items():
        text = text.replace(place, claim)
    (folder / "fake.c").write_text(text)
    compile_library(folder / "fake.c", folder / "fake.so")
    return folder / "fake.so"


def run_with(path: Path, folder: Path, **changes: Any) -> Any:
    wanted = {"policy__name": "credence", "policy__predictor": "library", "policy__library": str(path)}
    return run_driver(settings(**(wanted | changes)), folder)


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("policy", "some"),
    [
        (
            "credence",
            ("threshold_rank", "threshold_gradient", "arrival_rate", "threshold_headroom", "since_any_push_out"),
        ),
        ("learned", ("arrival_rate", "arrivals_rate", "arrivals_rate_slow", "queue_share", "active_queues", "gap")),
    ],
)
def test_what_is_read_without_a_trace_is_what_a_trace_records(
    policy: str, some: tuple[str, ...], tmp_path: Path
) -> None:
    """Without one a switch keeps only what the library asks for."""
    (tmp_path / "library").mkdir()
    names, params = (
        ", ".join(f'"{text}"' for text in texts)
        for texts in (some, (feature(name).params(CELL_BYTES, AVERAGE_SHIFT) for name in some))
    )
    score = "(3 * x[0] + x[1] + 5 * x[2] + 7 * x[3] + x[4]) % 10 == 0"
    fake = library(tmp_path / "library", names=names, params=params, score=score)
    runs = []
    for trace in (False, True):
        (tmp_path / str(trace)).mkdir()
        runs.append(run_with(fake, tmp_path / str(trace), trace=trace, policy__name=policy))
    blind, traced = runs
    np.testing.assert_array_equal(blind.flows(), traced.flows())
    if policy == "learned":  # these features need no virtual LQD, which a trace has, and so nobody counts deficits
        assert sum(node.pop("threshold_deficits") for node in traced.summary["switches"]) > 0
        assert sum(node.pop("threshold_deficits") for node in blind.summary["switches"]) == 0
    assert blind.summary["switches"] == traced.summary["switches"]
    assert sum(node["data_drops"]["predicted"]["packets"] for node in blind.summary["switches"]) > 100


@pytest.mark.ns3
def test_guards_in_ns3_are_those_of_a_replay(tmp_path: Path) -> None:
    """The same answers, the same decisions; with another guard, others."""
    guards: dict[str, Any] = {"spares_first_rtt": 1, "drop_budget_bytes": 4000, "answers_needed": 2}
    fake = library(tmp_path, score="x[0] % 3 != 0")
    changes = {f"policy__{name}": value for name, value in guards.items()}
    document = settings(
        trace=True,
        traffic_ns=6_000_000,
        policy__name="guarded",
        policy__predictor="library",
        policy__library=str(fake),
        **changes,
    )
    run = collect_dataset(document, tmp_path / "guarded", scenario=settings(), simulate=run_driver)
    dataset = Dataset.open(tmp_path / "guarded")
    records = np.concatenate(list(dataset.arrivals()))
    frame = dataset.frame(["asked", "score", "accepted"])
    data = records["flow_class"] != FlowClass.CONTROL
    told = np.zeros(len(records), np.uint8)
    told[data] = frame["score"].fillna(0).to_numpy(np.int64) > 0

    def outcomes(**chosen: Any) -> Any:
        manifest = dataset.manifest
        replay = Replay(
            "guarded",
            [(s.buffer_bytes, list(s.port_rates_bps)) for s in manifest.switches],
            wire_overhead_bytes=document["topology"]["wire_overhead_bytes"],
            counting=manifest.rules.counting,
            tie=manifest.rules.tie,
            victim=manifest.rules.victim,
            rtt_ns=run.summary["base_rtt_ns"],
            **(guards | chosen),
        )
        return RunReplay(replay, queues_of(manifest)).feed(records, told)

    seen = outcomes()
    np.testing.assert_array_equal(seen["asked"][data], frame["asked"].to_numpy(bool))
    np.testing.assert_array_equal(seen["outcome"][data] == Outcome.ACCEPTED, frame["accepted"].to_numpy(bool))
    for other in ({"spares_first_rtt": 0}, {"drop_budget_bytes": 2**30}, {"answers_needed": 1}):
        assert (outcomes(**other)["outcome"] != seen["outcome"]).any(), other


@pytest.mark.ns3
def test_tau_can_be_set_for_a_run(tmp_path: Path) -> None:
    run = run_with(library(tmp_path), tmp_path, policy__tau=1)
    assert run.summary["tau"] == 1
    assert sum(node["data_drops"]["predicted"]["packets"] for node in run.summary["switches"]) == 0


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ({"version": 2}, "ABI version 2"),
        ({"names": '"crystal_ball"'}, "crystal_ball"),
        ({"names": '"incast"', "params": '""'}, "'incast', which no switch computes"),
        ({"params": '"cell_bytes=512"'}, "cell_bytes=512"),
        ({"names": '"threshold_average"', "params": '"cell_bytes=256,average_shift=9"'}, "average_shift=9"),
    ],
)
def test_a_library_that_does_not_fit_is_refused_by_name(tmp_path: Path, claims: dict[str, Any], named: str) -> None:
    with pytest.raises(ForetailError, match=named) as caught:
        run_with(library(tmp_path, **claims), tmp_path)
    assert "fake.so" in str(caught.value)
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.ns3
def test_what_is_no_predictor_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="cannot load predictor library"):
        run_with(tmp_path / "missing.so", tmp_path)
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run([*find_compiler(), "-shared", "-o", tmp_path / "empty.so", tmp_path / "empty.c"], check=True)
    with pytest.raises(ForetailError, match="lacks the symbol foretail_predictor_info"):
        run_with(tmp_path / "empty.so", tmp_path)


NAMES = [counter.name for counter in COUNTERS]
EVERY_NS = 100_000


def test_the_list_of_counters_is_that_of_the_switch() -> None:
    assert counter_names() == NAMES


@st.composite
def packets(draw: st.DrawFn) -> list[Packet]:
    times = sorted(draw(st.lists(st.integers(0, 900), max_size=30)))
    return [
        Packet(
            time,
            draw(st.integers(0, 3)),
            draw(st.integers(1, 1500)),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.integers(0, 2**32 - 1)),
            draw(st.integers(0, 5000)),
            draw(st.integers(0, 5000)),
        )
        for time in times
    ]


@given(packets(), st.integers(1, 300))
def test_counters_are_those_of_a_slow_model(came: list[Packet], every: int) -> None:
    rates, priorities, capacity = [10**9, 10**11], 2, 5000
    rows = np.array([[int(value) for value in astuple(packet)] for packet in came], np.int64).reshape(-1, 9)
    found = interval_counters(capacity, rates, priorities, every, rows)
    for packet, counters in zip(came, found.tolist(), strict=True):
        assert counters == counters_before(came, packet.queue, packet.time, capacity, rates, priorities, every)
    assert found.min(initial=0) >= 0
    assert found.max(initial=0) < 2**COUNTER_BITS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": np.zeros((1, 8), np.int64)}, "an arrival has nine columns"),
        ({"interval_ns": 0}, "must be above 0"),
        ({"rates_bps": []}, "must be above 0"),
        ({"rows": np.array([[0, 2, 1, 0, 0, 0, 0, 1, 1]])}, "outside 0 to 1"),
        ({"rows": np.array([[5, 0, 1, 0, 0, 0, 0, 1, 1], [4, 0, 1, 0, 0, 0, 0, 1, 1]])}, "never decrease"),
    ],
)
def test_what_no_switch_counts_is_refused(changes: dict[str, Any], sentence: str) -> None:
    usual = {"capacity": 10, "rates_bps": [10**9, 10**9], "priorities": 1, "interval_ns": 10}
    with pytest.raises(ForetailError, match=sentence):
        interval_counters(**{**usual, "rows": np.zeros((0, 9), np.int64), **changes})


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Dynamic Thresholds in the driver."""

    def run(**changes: Any) -> DriverRun:
        return run_driver(settings(policy__name="dt", **changes), tmp_path_factory.mktemp("run"))

    return run


@pytest.fixture(scope="module")
def library_of_counters(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The library of a tree over counters, whose leaves are what it is told."""

    def make(root: Rule, every_ns: int = EVERY_NS, name: str = "queue_load", bits: int = COUNTER_BITS) -> str:
        inputs = (FeatureInput(name, counter_params(every_ns), bits),)
        model = Ensemble(inputs, (tree_of_rule(root, [name]),), Fraction(0), output="value")
        return str(export(model, C(), tmp_path_factory.mktemp("export") / "c").file(".so"))

    return make


@pytest.mark.nightly
@pytest.mark.ns3
def test_a_log_of_counters_is_what_came(simulate: Simulate) -> None:
    run = simulate(trace=True, counters=True, features__cell_bytes=1, transport__name="cubic", transport__mark_bytes=0)
    rows = read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)
    rows = rows[rows["flow_class"] != FlowClass.CONTROL]
    logged = run.counters()
    assert logged["arrived_bytes"].sum() <= rows["size_bytes"].sum()
    assert (np.diff(logged["time_ns"]) >= 0).all() or len(np.unique(logged["switch"])) > 1
    known = [place for place, name in enumerate(NAMES) if not name.endswith(("flows", "marked"))]
    for number, node in enumerate(run.summary["switches"]):
        accepted = rows["outcome"] == Outcome.ACCEPTED
        came = [
            Packet(
                int(row["time_ns"]),
                int(row["port"]),
                int(row["size_bytes"]),
                not bool(kept),
                False,
                bool(row["first_rtt"]),
                0,
                int(row["features"][0]) + int(row["size_bytes"]) * bool(kept),
                int(row["features"][2]) + int(row["size_bytes"]) * bool(kept),
            )
            for row, kept in zip(rows[rows["switch"] == number], accepted[rows["switch"] == number], strict=True)
        ]
        of_switch = logged[logged["switch"] == number]
        for record in of_switch[:: max(len(of_switch) // 20, 1)]:
            end = int(record["time_ns"])
            slow = counters_before(
                came, int(record["queue"]), end - EVERY_NS, node["buffer_bytes"], node["port_rates_bps"], 1, EVERY_NS
            )
            assert [record["counters"][place] for place in known] == [slow[place] for place in known]
            inside = [one for one in came if end - EVERY_NS <= one.time < end and one.queue == record["queue"]]
            assert record["arrived_bytes"] == sum(one.size for one in inside)
    assert logged["counters"][:, NAMES.index("queue_dropped")].max() > 0


@pytest.mark.ns3
def test_an_alpha_that_is_always_predicted_is_a_fixed_alpha(simulate: Simulate, library_of_counters: Library) -> None:
    fixed = simulate(policy__alpha=2.0)
    predicted = simulate(policy__alpha=2.0, policy__predictor="library", policy__library=library_of_counters(1.0))
    other = simulate(policy__alpha=2.0, policy__predictor="library", policy__library=library_of_counters(-2.0))
    flows = (fixed.folder / "flows.bin").read_bytes()
    assert (predicted.folder / "flows.bin").read_bytes() == flows
    assert (other.folder / "flows.bin").read_bytes() != flows
    drops = "data_drops", "over_threshold", "packets"
    assert total(other.summary, *drops) > total(predicted.summary, *drops) == total(fixed.summary, *drops)


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"root": 7.0}, "gives the score 14, which is not an alpha: a score is twice log2(alpha)"),
        ({"root": 0.5}, "gives the score 1, which is not an alpha"),
        ({"root": 1.0, "every_ns": 10**6}, "was trained on counter 'queue_load' with 'interval_ns=1000000'"),
        ({"root": 1.0, "name": "queue"}, "wants the counter 'queue', which no switch computes"),
    ],
)
def test_a_library_of_something_else_is_refused(
    simulate: Simulate, library_of_counters: Library, made: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ForetailError) as error:
        simulate(policy__predictor="library", policy__library=library_of_counters(**made))
    assert sentence in str(error.value)


def test_a_policy_without_predicted_alphas_logs_no_counters() -> None:
    config = compose_settings(EvaluateConfig, ["scenario=tiny", "policy=abm", "baselines=[]"], "overrides")
    with pytest.raises(ForetailError, match="'counters' is for a policy whose alphas can be predicted, which abm is"):
        driver_config(config.scenario, config.policy["abm"], seed=1, trace=False, counters=True)
