"""Policies that are watched while another one decides: what is said of them against their own runs.

Costs a second for each drawn setting, and no compiler.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.flows import evaluate_policies
from foretail.pipelines.comparison.policy_runs import Simulation, simulate
from foretail.pipelines.data.simulation import simulator_of
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.policies import KNOW_PRIORITIES, POLICIES
from foretail_studies.networks.differences import first_difference
from tests.composed import stage_settings
from tests.examples import draws
from tests.scenarios import settings
from tests.sim_bridge.native.drawn_settings import drawn_settings

OTHERS: tuple[dict[str, Any], ...] = (
    *(
        {"name": name}
        for name in ("lqd", "cs", "cp", "harmonic", "occamy", "followlqd", "guarded", "credence_artifact")
    ),
    *({"name": name, "alpha": alpha} for name in ("dt", "abm", "reverie") for alpha in (0.5, 64.0)),
    {"name": "credence"},
    {"name": "credence", "flip_probability": 0.001},
    {"name": "guarded", "flip_probability": 0.2},
)


def watched(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The policies of OTHERS with the other settings of a document's policy, and that policy itself."""
    own, knows = document["policy"], KNOW_PRIORITIES if document["queues"]["count"] > 1 else POLICIES
    return [own, *({**own, "flip_probability": 0.0, **changes} for changes in OTHERS if changes["name"] in knows)]


def check(document: dict[str, Any], folder: Path) -> list[bool]:
    """Return which of the watched policies decided alike, after a comparison of each with its own run."""
    policies = watched(document)
    documents = [{**document, "watched": policies}, *({**document, "policy": policy} for policy in policies)]
    runs = []
    for number, one in enumerate(documents):
        (folder / str(number)).mkdir()
        runs.append(run_native(one, folder / str(number)))
    together, *alone = runs
    summaries = together.take_watched()
    assert first_difference({"with others": together, "alone": alone[0]}) is None
    assert together.settings() == alone[0].settings()
    for summary, own in zip(summaries, alone, strict=True):
        if summary is not None:
            together.summary.update(summary)
            assert first_difference({"as another": together, "alone": own}) is None
    return [summary is not None for summary in summaries]


@examples(max_examples=draws(6), deadline=None)
@given(number=st.integers(0, 2**32 - 1), burst=st.sampled_from([0.05, 0.2, 0.5, None]))
def test_a_policy_that_is_alike_has_the_bytes_of_its_own_run(
    number: int, burst: float | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = drawn_settings(number)
    document["trace"] = False
    if burst is not None:
        document["incast"]["burst_fraction"] = burst
    alike = check(document, tmp_path_factory.mktemp("runs"))
    if document["policy"]["name"] not in ("lqd", "occamy"):
        assert alike[0], "a policy decides as itself"
    for policy, is_alike in zip(watched(document), alike, strict=True):
        # Occamy does more than decide arrivals, so that nobody can watch it.
        assert not (is_alike and policy["name"] == "occamy")


def test_where_nothing_is_dropped_most_policies_are_alike(tmp_path: Path) -> None:
    document = settings(policy__name="dt", policy__alpha=64.0, incast__burst_fraction=0.1, background__load=0.1)
    alike = check(document, tmp_path)
    named = {json.dumps(changes): is_alike for changes, is_alike in zip(OTHERS, alike[1:], strict=True)}
    assert {name for name, is_alike in named.items() if not is_alike} == {'{"name": "occamy"}'}


def test_a_policy_that_cannot_be_made_fails_alone(tmp_path: Path) -> None:
    calm = ("scenario=tiny", "scenario.background.load=0.1", "scenario.incast.burst_fraction=0.2")
    config = stage_settings(TrainConfig, *calm, "scenario.queues.count=2", f"store_dir={tmp_path}")
    simulator = simulator_of(config)
    names = ("dt", "credence_artifact", "cs")
    made = [Simulation.of(name, config.scenario, Policy(name=name), 11, None, simulator) for name in names]
    store = Store(tmp_path)
    simulate(made[0], store, simulator, lambda done, words: None, others=made)
    with pytest.raises(ForetailError, match="knows one queue per port"):
        simulate(made[1], store, simulator, lambda done, words: None, others=made)
    assert store.has(made[0].key)
    assert not store.has(made[2].key), "nobody was watched"


def test_a_run_that_goes_back_still_knows_who_differs() -> None:
    document = settings(policy__name="dt", policy__alpha=8.0, traffic_ns=2_000_000)
    document["watched"] = watched(document)
    whole, divided = NativeNetwork(copy.deepcopy(document)), NativeNetwork(document)
    expected = whole.finish()
    start = divided.snapshot()
    divided.advance(1_900_000)
    divided.restore(start)
    summary = divided.finish()
    assert summary["watched"] == expected["watched"]
    assert {one["differs"] for one in summary["watched"]} == {False, True}


@pytest.mark.ns3
def test_ns3_watches_nobody(tmp_path: Path) -> None:
    document = settings(policy__name="dt")
    with pytest.raises(ForetailError, match="setting 'watched' is not simulated by ns-3: run it in the native"):
        run_driver({**document, "watched": [document["policy"]]}, tmp_path)


def test_a_comparison_simulates_policies_once_that_decide_alike(tmp_path: Path) -> None:
    policies = {
        "lqd": Policy(name="lqd"),
        "dt": Policy(name="dt", alpha=0.05),
        "dt_tuned": Policy(name="dt", alpha=16),
        "cs": Policy(name="cs"),
        "followlqd": Policy(name="followlqd"),
    }
    calm = ("scenario=tiny", "scenario.background.load=0.1", "scenario.incast.burst_fraction=0.2")
    results = []
    for folder, jobs in (("one", 1), ("two", 2)):
        config = stage_settings(TrainConfig, *calm, f"store_dir={tmp_path / folder}", f"jobs={jobs}")
        results.append(evaluate_policies(config, config.scenario, policies, [11, 12]))
    together, at_once = results
    assert {run.decided_as for run in together.runs if run.policy == "dt"} == {None}
    assert {run.decided_as for run in together.runs if run.policy in ("lqd", "cs", "followlqd")} == {"dt_tuned"}
    alone = {
        name: evaluate_policies(config, config.scenario, {name: policy}, [11, 12]) for name, policy in policies.items()
    }
    assert all(run.reused for result in alone.values() for run in result.runs)
    config = stage_settings(TrainConfig, *calm, f"store_dir={tmp_path / 'alone'}")
    for name, policy in policies.items():
        own = evaluate_policies(config, config.scenario, {name: policy}, [11, 12])
        for result in (together, at_once):
            runs = [run for run in result.runs if run.policy == name]
            assert [run.metrics() for run in runs] == [run.metrics() for run in own.runs]
            assert [run.counters for run in runs] == [run.counters for run in own.runs]
    notes = [note for table in together.tables() for note in table.notes]
    assert any(note.endswith("as dt_tuned on some seeds: lqd, cs, followlqd") for note in notes)
