"""Learn a buffer policy in the closed loop, and export it as C.

The network is the demo's second one: long flows that fill shallow buffers, and bursts of answers. The policy is linear
in four features of the arriving packet, and drops it where its score is above 0. The cross-entropy method draws
weights, keeps the best quarter by the cost J over a few seeds, and draws the next ones around them. A tree of
scikit-learn learns what the best policy answers; the tree becomes C, which is proven to decide as the tree does.

The C then decides in the network on seeds that no step before has seen, beside Complete Sharing, which accepts whatever
fits, Longest Queue Drop, and Dynamic Thresholds with the alpha that is cheapest on seeds of training. The sharing rule
of ``foretail demo`` reads the same tags of senders, ``message_left`` and ``first_rtt``; the others read none. Run it
with ``python examples/closed_loop/learn_policy.py``, which takes seven minutes of CPU time. ``--size small`` takes
seconds and learns nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from foretail.api import C, FeatureInput, Policy, driver_config, export
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.scenario import Scenario
from foretail.features.catalog import feature
from foretail.gym import ClosedLoopVectorEnv
from foretail.models.ensemble.frontends import from_sklearn
from foretail.pipelines.comparison.cost import run_cost
from foretail.pipelines.comparison.statistics import change_text, paired_difference
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.predictors import rule_of
from foretail.sim_bridge.native.network import NativeNetwork

FEATURES = ("pressure", "fill", "message_left", "first_rtt")
HIGHEST = np.array([(1 << feature(name).bits) - 1 for name in FEATURES])
ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DEMONSTRATED = {"message_left": 17, "fill": 229, "pressure": 136, "first_rtt_more": 40}
"""The sharing rule of ``foretail demo``."""

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How much is simulated."""

    training_ns: int  #: time during which flows start, in episodes of training
    traffic_ns: int  #: the same in runs that are compared
    policies: int  #: drawn in a generation
    generations: int
    seeds: int  #: on which each policy is judged, others in every generation
    held_out: int  #: seeds of the comparison


SIZES = {
    "small": Size(1_000_000, 1_000_000, policies=4, generations=1, seeds=1, held_out=2),
    "full": Size(5_000_000, 10_000_000, policies=20, generations=8, seeds=3, held_out=40),
}


def scenario_of(traffic_ns: int) -> Scenario:
    """The demo's second network."""
    overrides = ["scenario=elephants", "policy=lqd", f"scenario.traffic_ns={traffic_ns}"]
    return compose_settings(EvaluateConfig, overrides, "the example").scenario


def document(traffic_ns: int, policy: Policy, seed: int, library: Path | None = None) -> dict[str, Any]:
    """The settings of one run."""
    return driver_config(scenario_of(traffic_ns), policy, seed, trace=False, library=library)


def answers(weights: Weights, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether policies drop, each the packet of its row: float64[n, 5] and int32[n, 4]."""
    return np.asarray((weights[:, :-1] * (rows / HIGHEST)).sum(axis=1) > weights[:, -1])


def log_costs(policies: Weights, seeds: Sequence[int], traffic_ns: int) -> NDArray[np.float64]:
    """log J of every policy on every seed: float64[policies, seeds]. All episodes run side by side."""
    count = len(policies) * len(seeds)
    settings = document(traffic_ns, Policy("learned"), 1)
    env = ClosedLoopVectorEnv(settings, count, FEATURES, copy=False, autoreset=False)
    weights = np.repeat(policies, len(seeds), axis=0)
    rows, info = env.reset(seed=list(seeds) * len(policies))
    ended = np.zeros(count, np.bool_)
    while not ended.all():
        rows, _, ended, _, info = env.step(answers(weights, rows).astype(np.int64))
    return np.asarray(np.log(info["cost"]).reshape(len(policies), len(seeds)))


def learn(size: Size) -> Weights:
    """The mean of the best policies of the last generation."""
    draw = np.random.default_rng(1)
    mean, spread = np.array([0.0, 0.0, 0.0, 0.0, 0.5]), np.ones(len(FEATURES) + 1)  # it accepts all that fits
    for generation in range(size.generations):
        policies = mean + spread * draw.standard_normal((size.policies, len(mean)))
        policies[0] = mean
        seeds = range(1000 + generation * size.seeds, 1000 + (generation + 1) * size.seeds)
        scores = log_costs(policies, seeds, size.training_ns).mean(axis=1)
        best = policies[np.argsort(scores)[: max(2, size.policies // 4)]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.02
        print(f"generation {generation + 1}: J {np.exp(scores.min()):.3g} to {np.exp(scores.max()):.3g}", flush=True)
    return mean


def visited(weights: Weights, size: Size) -> NDArray[np.int32]:
    """What a policy sees while it decides: int32[n, 4], at most 200,000 rows."""
    env = ClosedLoopVectorEnv(document(size.training_ns, Policy("learned"), 1), 4, FEATURES)
    seen, ended = [env.reset(seed=1000)[0]], np.zeros(4, np.bool_)
    while not ended.any() and len(seen) < 50_000:
        rows, _, ended, _, _ = env.step(answers(weights[None, :], seen[-1]).astype(np.int64))
        seen.append(rows)
    return np.concatenate(seen)


def as_c(weights: Weights, size: Size, folder: Path) -> Path:
    """A tree that answers as the policy does where it has been, as a compiled library."""
    rows = visited(weights, size)
    drops = answers(weights[None, :], rows)
    drops[0], drops[-1] = False, True  # a tree needs an example of both
    tree = DecisionTreeClassifier(max_leaf_nodes=32, random_state=1).fit(rows, drops)
    cell_bytes = scenario_of(size.traffic_ns).features.cell_bytes
    inputs = [FeatureInput.of(name, cell_bytes) for name in FEATURES]
    made = export(from_sklearn(tree, inputs), C(), folder)
    same = (tree.predict(rows) == drops).mean()
    print(f"the tree answers {100 * same:.2f} % of {len(rows):,} packets as the policy does; C in {folder.name}/")
    return made.file(".so")


def log_cost(policy: Policy, seed: int, size: Size, library: Path | None = None) -> float:
    """log J of a run of the network."""
    settings = document(size.traffic_ns, policy, seed, library)
    network = NativeNetwork(settings)
    network.advance()
    cost = run_cost(network.flows(), network.now_ns, settings).cost
    assert cost is not None
    return float(np.log(cost))


def compare(learned: Path, rule: Path, size: Size) -> dict[str, dict[int, float]]:
    """log J by policy and seed, on seeds that nothing was learned or tuned on."""
    tuning = range(1000, 1000 + size.held_out // 2)
    dt = Policy("dt")
    by_alpha = {alpha: np.mean([log_cost(replace(dt, alpha=alpha), seed, size) for seed in tuning]) for alpha in ALPHAS}
    alpha = min(by_alpha, key=lambda one: float(by_alpha[one]))
    asking = Policy("learned", predictor="library")
    policies: Mapping[str, tuple[Policy, Path | None]] = {
        "Complete Sharing (always accept)": (Policy("cs"), None),
        f"Dynamic Thresholds, alpha {alpha:g}, tuned": (replace(dt, alpha=alpha), None),
        "Longest Queue Drop": (Policy("lqd"), None),
        "the demo's sharing rule, as C": (asking, rule),
        "learned policy, as C": (asking, learned),
    }
    held_out = range(1, 1 + size.held_out)
    return {
        name: {seed: log_cost(policy, seed, size, library) for seed in held_out}
        for name, (policy, library) in policies.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn, export, and print J with intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="full", help="How much is simulated.")
    parser.add_argument("--folder", type=Path, help="Where the C goes; a temporary folder unless given.")
    options = parser.parse_args(arguments)
    size = SIZES[options.size]
    weights = learn(size)
    print("drop above 0: " + " ".join(f"{w:+.2f} {name}" for w, name in zip(weights, FEATURES, strict=False)), end="")
    print(f" {-weights[-1]:+.2f}, with every feature from 0 to 1")
    with TemporaryDirectory() as scratch:
        rule = rule_of(DEMONSTRATED).ensemble(scenario_of(size.traffic_ns).features.cell_bytes)
        learned = as_c(weights, size, (options.folder or Path(scratch)) / "learned_policy")
        found = compare(learned, export(rule, C(), Path(scratch) / "sharing_rule").file(".so"), size)
    always, tuned, *_ = found.values()
    print(f"\nJ on {size.held_out} held-out seeds, geometric means; differences with 95 % intervals, paired by seed")
    for name, costs in found.items():
        accepting, dt = (change_text(paired_difference(costs, other)) for other in (always, tuned))
        print(f"{name:37} J {np.exp(np.mean(list(costs.values()))):6.3f}, against accepting {accepting}, DT {dt}")


if __name__ == "__main__":
    main()
