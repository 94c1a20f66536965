"""The benchmark at its small size: 30 simulations, five seconds of CPU time, and the native network."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import FLOW_FEATURES
from foretail.features.dataset.schema import traffic_sha256
from foretail.models import zoo
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import Lineage, UsedDataset
from foretail.pipelines.data.collecting import run_in, workload_in
from foretail.pipelines.settings.compose import compose_policy, compose_settings
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.benchmark import adaptive, frozen_tracks, track
from foretail_studies.benchmark.frozen_tracks import ACCEPT, LQD, traffic_of
from foretail_studies.benchmark.track import (
    CLOSED_LOOP,
    DEMAND,
    OPEN_LOOP,
    FrozenRun,
    Score,
    Track,
    best_of,
    frozen_runs,
    guard_percent,
    reference_runs,
    require_frozen,
)
from foretail_studies.families import DEFAULT, Condition, Costs, Rule, SharingCase
from tests.composed import experiment_settings, foretail, run_of

REFERENCE, RULE, OTHER = (Rule(name, DEFAULT) for name in ("lqd_last", "mine", "other"))
WHERE = Condition("family", "condition")


def costs_of(runs: dict[tuple[Condition, Rule], list[float]]) -> Costs:
    """What was measured if rules cost so much, seed by seed."""
    costs = Costs()
    for (where, rule), found in runs.items():
        for seed, cost in enumerate(found):
            case = SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
            costs.add(case, {"cost": cost, "flows_sha256": f"{where} {seed}"})
    return costs


@pytest.mark.slow
def test_a_policy_has_a_score_beside_the_tuned_threshold(store: str, tmp_path: Path) -> None:
    result = run_of("benchmark", tmp_path, "size=small", "tracking=off", "model=dt_alpha_4", store)
    document = result.document()
    assert document["version"] == "benchmark-1-small"
    assert (document["judged"], document["tuned_threshold"]) == ("dt_alpha_4", "dt_alpha_16")
    rows = result.shown.rows
    assert set(rows["rule"]) == {"dt_alpha_4", "dt_alpha_16", "lqd_last"}
    held_out = rows[rows["held_out"]].set_index("rule")["cost"]
    assert document["score"] == pytest.approx(100 * (held_out["dt_alpha_4"] / held_out["lqd_last"] - 1))
    assert document["low"] < document["score"] < document["high"]
    assert document["scores"]["lqd_last"]["score"] == 0
    assert document["reference_runs"] == frozen_runs("small")
    assert "dt_alpha_4 costs" in result.verdict()[0]
    assert "the tuned threshold dt_alpha_16" in result.verdict()[0]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_policy_in_python_costs_what_the_same_rule_costs_in_trees(tmp_path: Path) -> None:
    """Dynamic Thresholds with alpha 2 that spare last packets: decided live, and compiled; the second run is reused."""
    file = tmp_path / "rule.py"
    file.write_text(
        "FEATURES = ('pressure', 'message_left')\n"
        "def decide(rows):\n    return (rows[:, 0] > 136) & (rows[:, 1] > 17)\n"
    )
    rule = "{message_left: 17, fill: 255, pressure: 136, first_rtt_more: 0, last_pressure: 255, far: 254, far_less: 0}"
    given = ("size=small", "tracking=off", f"+sharing_rules.mine={rule}", f"store_dir={tmp_path / 'store'}")
    for time in ("first", "second"):
        result = run_of("benchmark", tmp_path / time, *given, f"model={file}:decide")
        costs = result.shown.rows.pivot_table(index=["family", "condition"], columns="rule", values="cost")
        assert (costs["rule.py:decide"] == costs["learned mine"]).all()
        document = result.document()
        assert (document["judged"], document["score"]) == (
            "rule.py:decide",
            document["scores"]["learned mine"]["score"],
        )
        assert any("Python" in note for note in result.shown.notes)
    assert result.shown.notes[3].startswith("24 simulations, 24 of them in the store")
    with pytest.raises(ForetailError, match=r"rule\.py:decide decides in Python, which only the native network asks"):
        run_of("benchmark", tmp_path / "ns3", *given, f"model={file}:decide", "network=ns3")


def test_another_seed_or_simulator_is_not_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FrozenRun("small", "family", True, "condition", 0, "family condition 0", 2.0)
    costs = costs_of({(WHERE, REFERENCE): [2.0]})
    measured = list(reference_runs(costs, REFERENCE, "small", {"family"}))
    assert measured == [right]
    for wrong, message in (
        (replace(right, seed=1), "(with seed 1 is not measured|with seed 0 is not part of it)"),
        (replace(right, held_out=False), "judges or trains where it did the other"),
        (replace(right, flows_sha256="others"), "has other traffic"),
        (replace(right, cost=2.5), "comes to 2.0 and not 2.5 under the reference"),
    ):
        monkeypatch.setattr(track, "frozen_runs", lambda size, version, wrong=wrong: [wrong])
        with pytest.raises(ForetailError, match=f"{message}, so this is not benchmark-1: leave its"):
            require_frozen(measured, "small")
    monkeypatch.setattr(track, "frozen_runs", lambda size, version: [right])
    require_frozen(measured, "small")
    with pytest.raises(ForetailError, match="with seed 7 is not part of it"):
        require_frozen([*measured, replace(right, seed=7)], "small")


def test_a_family_counts_once_however_many_conditions_it_has() -> None:
    wheres = [Condition("one", "a"), Condition("one", "b"), Condition("two", "a")]
    changes = dict(zip(wheres, (0.1, 0.3, -0.4), strict=True))
    costs = costs_of(
        {(where, REFERENCE): [1.5, 2.0] for where in wheres}
        | {(where, RULE): [1.5 * math.exp(change), 2.0 * math.exp(change)] for where, change in changes.items()}
    )
    score = Score.of(costs, wheres, RULE, REFERENCE)
    assert score.over_seeds.mean == pytest.approx(-0.1)
    assert score.over_seeds.low == pytest.approx(-0.1)  # both seeds say the same
    assert score.over_families.mean == pytest.approx(-0.1)
    assert (score.over_families.low, score.over_families.high) == pytest.approx(
        stats.t.interval(0.95, 1, loc=-0.1, scale=stats.sem([0.2, -0.4]))
    )
    assert score.failed == [wheres[1]]  # e^0.3 is 35 % more


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=12, unique=True), st.integers(1, 30))
def test_the_guard_is_the_lower_end_of_a_one_sided_interval(ratios: list[float], conditions: int) -> None:
    costs = costs_of({(WHERE, REFERENCE): [1.0] * len(ratios), (WHERE, RULE): ratios})
    guard = guard_percent(costs, WHERE, RULE, REFERENCE, conditions)
    logs = np.log(ratios)
    low = logs.mean() + stats.t.ppf(0.05 / conditions, len(logs) - 1) * stats.sem(logs)
    assert guard == pytest.approx(100 * math.expm1(low), abs=1e-6)


def test_the_best_rule_is_chosen_on_the_other_seeds() -> None:
    """On seed 2 the rule that is best on seeds 0 and 1 is the worse one: that is its regret, and no more."""
    costs = costs_of({(WHERE, RULE): [1.0, 1.0, 5.0], (WHERE, OTHER): [2.0, 2.0, 2.0]})
    chosen = {0: OTHER, 1: OTHER, 2: RULE}  # by the geometric mean of the other two
    logs = {rule: costs.logs(WHERE, rule) for rule in (RULE, OTHER)}
    regret = costs.regret(WHERE, RULE, [RULE, OTHER])
    assert regret.mean == pytest.approx(np.mean([logs[RULE][seed] - logs[best][seed] for seed, best in chosen.items()]))
    least = min(np.mean(list(of_rule.values())) for of_rule in logs.values())
    floor = np.mean([logs[best][seed] for seed, best in chosen.items()]) - least
    assert costs.noise_floor(WHERE, [RULE, OTHER]) == pytest.approx(floor)


VERSIONS = {CLOSED_LOOP: "benchmark", OPEN_LOOP: "benchmark_open_loop", DEMAND: "benchmark_demand"}
SMALL = ("size=small", "tracking=off", "jobs=1")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"store_dir={tmp_path_factory.mktemp('tracks') / 'store'}"


def always_accepts(folder: Path) -> Path:
    """A rule that drops nothing: no queue reaches its limits."""
    path = folder / "accept.json"
    SharingRule(message_left=-1, fill=255, pressure=255, first_rtt_pressure=255).ensemble(cell_bytes=256).save(path)
    return path


@pytest.mark.slow
def test_lqd_wins_everything_back_and_always_accepting_nothing(store: str, tmp_path: Path) -> None:
    result = run_of("benchmark_open_loop", tmp_path, *SMALL, store, "model=dt_alpha_4")
    document, rows = result.document(), result.shown.rows
    assert document["version"] == "open-loop-1-small"
    assert (document["judged"], document["tuned_threshold"]) == ("dt_alpha_4", "dt_alpha_16")
    assert set(rows["rule"]) == {"dt_alpha_4", LQD, ACCEPT, "cs", "dt_alpha_16"}
    assert set(rows.loc[rows["rule"] == LQD, "percent"]) == {100.0}
    assert set(rows.loc[rows["rule"] == ACCEPT, "percent"]) == {0.0}
    own = rows[rows["held_out"] & (rows["rule"] == "dt_alpha_4")]
    assert document["score"] == pytest.approx(own["percent"].mean())  # one held-out family
    assert document["low"] < document["score"] < document["high"]
    assert document["scores"][LQD]["score"] == 100
    assert document["reference_runs"] == frozen_runs("small", OPEN_LOOP)
    assert "dt_alpha_4 scores" in result.verdict()[0]
    assert "dt_alpha_16, the best without a prediction" in result.verdict()[1]


@pytest.mark.slow
def test_a_function_makes_a_rule_on_each_calibration_run(store: str, tmp_path: Path) -> None:
    file, rule = tmp_path / "way.py", zoo.rule(zoo.names()[3])
    file.write_text(
        "from foretail.models import zoo\n"
        "def make(packets, ports, buffer):\n"
        "    assert (packets.port < ports).all() and packets.slot.is_monotonic_increasing and buffer == 80\n"
        f"    return zoo.rule({rule.name!r})\n"
    )
    given = (*SMALL, store, "ways=[own_trees,alphas]", "calibration=[591]", f"model={file}:make")
    result = run_of("benchmark_adaptive", tmp_path, *given)
    rows, document = result.shown.rows, result.document()
    own = rows[rows["way"] == f"{file}:make"]
    assert set(own["condition"]) == {"load_80", "load_60"}
    traffic = traffic_of(experiment_settings("benchmark_adaptive", *given))
    for row in own.to_dict("records"):
        one = traffic[Condition(row["family"], row["condition"])]
        arrivals = list(workload_in(one).batches(one.ports, one.buffer, one.slots, row["seed"]))
        run = KnownRun.in_slots(arrivals, one.ports, one.buffer)
        assert (row["sent"], row["sent_by_lqd"]) == (run.sent("learned", rule.scorer()), run.lqd)
    assert document["reference_runs"] == frozen_runs("small", OPEN_LOOP)
    (first, *others) = document["ways"]
    assert first["worst"] == pytest.approx(own["gain_percent"].mean())
    assert {one["way"] for one in others} == {"own_trees", "alphas"}
    assert (first["recommended"] == "yes") == (first["worst"] >= adaptive.WORST)


@pytest.mark.slow
def test_a_policy_in_python_sends_what_the_same_threshold_sends(store: str, tmp_path: Path) -> None:
    """Dynamic Thresholds with alpha 4 at 8 ports of 10 packets, each of four cells, decided live."""
    file = tmp_path / "rule.py"
    file.write_text(
        "FEATURES = ('queue', 'occupancy')\ndef decide(rows):\n    return rows[:, 0] >= 4 * (320 - rows[:, 1])\n"
    )
    result = run_of("benchmark_open_loop", tmp_path / "own", *SMALL, store, f"model={file}:decide")
    own = result.document()
    assert own["judged"] == "rule.py:decide"
    assert any("Python" in note for note in result.shown.notes)
    other = run_of("benchmark_open_loop", tmp_path / "other", *SMALL, store, "model=dt_alpha_4").document()
    assert own["scores"]["rule.py:decide"] == other["scores"]["dt_alpha_4"]


@pytest.mark.slow
def test_the_oracle_carries_all_that_the_oracle_carries(store: str, tmp_path: Path) -> None:
    result = run_of("benchmark_demand", tmp_path, *SMALL, store, "model=moving_average", "+parameters.window=3")
    document, rows = result.document(), result.shown.rows
    assert document["version"] == "demand-1-small"
    assert document["judged"] == "moving_average, window 3"
    assert set(rows.loc[rows["rule"] == "oracle", "percent"]) == {100.0}
    assert document["scores"]["oracle"]["low"] == document["scores"]["oracle"]["high"] == 100
    assert document["tuned_threshold"] in ("last_value", "moving_average of 2")
    assert document["reference_runs"] == frozen_runs("small", DEMAND)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", ["small", "full"])
def test_every_run_of_the_reference_is_frozen(version: str, size: str) -> None:
    settings = experiment_settings(VERSIONS[version], f"size={size}", "tracking=off")
    wanted = {
        (family, condition, seed, one.held_out)
        for family, one in settings.families.items()
        for condition in one.conditions
        for seed in settings.seeds
    }
    frozen = frozen_runs(size, version)
    assert {(run.family, run.condition, run.seed, run.held_out) for run in frozen} == wanted
    require_frozen(frozen, size, version)
    with pytest.raises(ForetailError, match=f"so this is not {version}: leave its"):
        require_frozen([replace(frozen[0], cost=frozen[0].cost + 1), *frozen[1:]], size, version)


def test_a_model_that_was_given_a_held_out_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = experiment_settings("benchmark_open_loop", *SMALL)
    overrides = ["source=slotted", *settings.shared, *settings.families["on_off"].overrides("load_60")]
    traffic = traffic_sha256(run_in(compose_settings(CollectConfig, overrides, "here").slotted, settings.seeds[1]))
    lineage = Lineage(("run",), (UsedDataset("mine", "train", "content", traffic),))
    monkeypatch.setattr(frozen_tracks, "lineages", lambda: [lineage])
    with pytest.raises(ForetailError, match=r"on_off load_60 on seed 602 is not a held-out run: .* of mine"):
        run_of("benchmark_open_loop", tmp_path, *SMALL, f"model={always_accepts(tmp_path)}")


def test_matrices_on_which_predictors_learn_judge_nobody(tmp_path: Path) -> None:
    overrides = '["collectives=[hybrid_parallel]","noise=0","placed_at_random=false"]'
    same = [f"families.{family}.conditions.usual={overrides}" for family in ("hybrid", "data")]
    with pytest.raises(ForetailError, match="data usual on seed 601 is not a held-out run"):
        run_of("benchmark_demand", tmp_path, *SMALL, *same)


@st.composite
def measured(draw: st.DrawFn) -> dict[Condition, dict[str, dict[int, float]]]:
    """Percents of three rules in two families of one or two conditions each, on two to five seeds."""
    seeds = range(draw(st.integers(2, 5)))
    wheres = [Condition("a", "1"), Condition("b", "1"), Condition("b", "2")][: draw(st.integers(2, 3))]
    percent = st.floats(-200, 200).map(lambda value: round(value, 3))
    return {
        where: {rule: {seed: draw(percent) for seed in seeds} for rule in ("mine", "floor", "tuned")}
        for where in wheres
    }


@given(measured())
def test_a_score_is_the_mean_over_families_with_an_interval_over_seeds(
    percents: dict[Condition, dict[str, dict[int, float]]],
) -> None:
    found = Track("v", "full", percents, {"a", "b"}, [], "floor", "tuned", "a share")
    score = found.score("mine")
    seeds = sorted(next(iter(percents.values()))["mine"])
    families = {
        family: [[of["mine"][seed] for where, of in percents.items() if where.family == family] for seed in seeds]
        for family in ("a", "b")
    }
    by_seed = [(sum(families["a"][i]) + sum(families["b"][i]) / len(families["b"][i])) / 2 for i in range(len(seeds))]
    assert score.over_seeds.mean == pytest.approx(np.mean(by_seed), abs=1e-9)
    half = stats.t.ppf(0.975, len(seeds) - 1) * stats.sem(by_seed)
    assert score.over_seeds.high == pytest.approx(np.mean(by_seed) + half, abs=1e-6)
    for where, of in percents.items():
        less = np.array([of["mine"][seed] - of["floor"][seed] for seed in seeds])
        high = less.mean() + stats.t.ppf(1 - 0.05 / len(percents), len(less) - 1) * stats.sem(less)
        guard = found.guard(where, "mine")
        assert guard is not None
        assert guard == pytest.approx(high, abs=1e-6)
        assert (where in score.failed) == (guard < 0)
    best = best_of(percents, list(percents), ["mine", "tuned"])
    means = {rule: found.score(rule).over_seeds.mean or 0.0 for rule in ("mine", "tuned")}
    assert means[best] == max(means.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=nobody"], "nobody"),
        (["reference=nobody"], "nobody"),
        (["track=nobody"], "track=nobody is unknown: choose from closed_loop, open_loop, adaptive, demand"),
        (["track=open_loop", "model=lqd_last"], "lqd_last is no policy of arrivals in slots"),
        (["track=open_loop", "families.on_off.held_out=false"], "families needs one with held_out=false and one with"),
        (["track=adaptive", "model=dt_alpha_4"], "model=dt_alpha_4 makes no rule on a calibration run"),
        (["track=adaptive", "calibration=[601]"], "seed 601 is among calibration and seeds"),
        (["track=demand", "model=nobody"], "nobody is unknown"),
        (["track=demand", "training_seeds=[601]"], "seed 601 is among training_seeds and seeds"),
        (["track=demand", "+parameters.window=3"], "parameters belong to no predictor"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = foretail(tmp_path, "benchmark", "size=small", "tracking=off", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


@pytest.mark.parametrize("track", ["benchmark", "benchmark_open_loop"])
@pytest.mark.parametrize("model", ["credence", "learned"])
def test_a_policy_that_asks_has_to_be_given_whom(track: str, model: str, store: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=f"model={model} asks a predictor and there is none: give model=MODEL"):
        run_of(track, tmp_path, *SMALL, store, f"model={model}")


@pytest.mark.nightly
def test_what_survives_of_a_tag_stands_beside_limits_and_rules_by_hand(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", f"store_dir={tmp_path / 'store'}", "jobs=1")
    result = run_of("message_end", tmp_path, *given)
    rows = result.shown.rows.set_index("told by")
    kinds = ["sender", "tree 0.3, all flows", "tree 0.3, 16 entries", "tree of sizes 0.3", "by hand", "sent 20"]
    assert list(rows.index) == [*kinds, "never", "always", "nobody"]
    assert rows.loc["tree 0.3, 16 entries", "bits"] == 512
    assert (rows.loc["sender", "change"], rows.loc["sender", "survives"]) == (0, 100)
    assert rows.loc["nobody", "survives"] == 0
    assert rows.loc["nobody", "change"] == pytest.approx(rows.loc["sender", "gain"])
    agreement = {row["by"]: row for row in result.document()["agreement"]}
    assert (agreement["always"]["told"], agreement["always"]["found"], agreement["never"]["told"]) == (1, 1, 0)
    assert agreement["by hand"]["right"] > 0.7
    tree, by_hand = (Ensemble.load(tmp_path / name) for name in ("tree.json", "by_hand.json"))
    assert [one.name for one in tree.features] == ["short_packet", "left_like_last"]
    said = by_hand.exceeds([[1, 9, 255], [0, 9, 255], [0, 9, 17], [0, 9, 18]])
    assert [one.name for one in by_hand.features] == list(FLOW_FEATURES)
    assert said.tolist() == [True, False, True, False]
    assert re.fullmatch(r"dt_2_sparing: .* % of the tag's gain survives with the tree, .*so far\.", result.verdict()[0])


def test_only_rules_that_spare_are_told(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.touch()
    policy = compose_policy("dt_alpha_2", "spared")
    policy.message_end = str(library)
    with pytest.raises(ForetailError, match="message_end is for a policy that spares the last packets of a message"):
        policy.check("policy.dt")
