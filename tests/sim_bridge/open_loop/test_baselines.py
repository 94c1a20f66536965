"""Tuned policies without a predictor, against replays of each alone. Costs 5 s."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.baselines import CANDIDATES, Baseline, best_of, tuned, worth_of
from foretail.sim_bridge.open_loop.replay import bytes_sent, compare_replays
from foretail.sim_bridge.open_loop.slotted import compare, packets_sent
from foretail.sim_bridge.policy_settings import NetworkParameters, SlotParameters
from tests.traces import write_bursts


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = tmp_path_factory.mktemp("baselines")
    return [write_bursts(folder / f"run-{seed}", seed) for seed in (1, 2, 3)]


def alone(dataset: Dataset, one: Baseline) -> int:
    parameters = NetworkParameters() if one.alpha is None else NetworkParameters(alpha=one.alpha)
    nothing = np.zeros(dataset.manifest.rows, np.bool_)
    return compare_replays(dataset, [one.policy], nothing, parameters=parameters).transmitted[one.policy].bytes


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
