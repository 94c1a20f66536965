"""A threshold on a queue that adapts to what the switch sees, and the direct search of its numbers.

Dynamic Thresholds (Choudhury and Hahne, 1998) accept while the queue is shorter than alpha times the free buffer. In
logarithms that is one bound on ``pressure``. Here the bound also moves with the queue's share of the buffer, the number
of active queues, and what arrives for the queue and for the switch; two tests choose one of three such rules, so that
bursts, incasts and a steady load can have their own. Twenty-three numbers in all. They are searched by CMA-ES (Hansen,
*The CMA Evolution Strategy: A Tutorial*, 2016) for the packets that are sent. Trees then learn the rule, since a switch
holds trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from foretail.features.catalog import CELL_BYTES, FEATURES, feature
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.sim_bridge._native import Scorer, adaptive_terms, adaptive_tests, adaptive_threshold
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT
from foretail.sim_bridge.open_loop.known import KnownRun

TERMS = tuple(adaptive_terms())
"""Features whose value, or the logarithm of it in eighths of octaves, has a weight."""
TESTS = tuple(adaptive_tests())
"""Features that choose the set of weights: the first set up to a cut of the first, then the second up to one of the
second, else the third."""
SETS = 3
_OF_SET = 1 + len(TERMS)
_UNIT = 256  # of a weight in fixed point
SPREAD = np.array([16.0] + [0.3] * len(TERMS))
"""Within which a bound, in eighths of octaves, and weights are searched."""
_CUT_SPREAD = 0.7  # of cuts, in octaves
_TERM_MOST = 1 << 10


@dataclass(frozen=True)
class AdaptiveThreshold:
    """The rule, by its numbers.

    Examples
    --------
    >>> from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold
    >>> AdaptiveThreshold.dynamic_thresholds(16.0, (100.0, 1000.0)).numbers[0]
    160.0
    """

    #: of each set a bound in eighths of octaves and a weight for each term, then the two cuts as logarithms to base 2
    numbers: tuple[float, ...]
    #: what each term but the first is counted from, in eighths of octaves, so that weights do not move the bound
    centres: tuple[float, ...] = (0.0,) * len(TERMS)

    @classmethod
    def dynamic_thresholds(
        cls, alpha: float, cuts: Sequence[float], centres: Sequence[float] = (0.0,) * len(TERMS)
    ) -> AdaptiveThreshold:
        """Return Dynamic Thresholds with this alpha in every set; `cuts` in the units of the two tests."""
        one = [128 + 8 * math.log2(alpha), 1.0] + [0.0] * (len(TERMS) - 1)
        return cls((*(one * SETS), *(math.log2(max(cut, 1.0)) for cut in cuts)), tuple(centres))

    def scorer(self) -> Scorer:
        """Return what a run asks: a packet is dropped where the margin, in 1/256 eighths of octaves, is above 0."""
        return adaptive_threshold(self.fixed())

    def fixed(self) -> list[int]:
        """Return the numbers as a switch has them, in fixed point: what a scorer and the policy ``chosen`` take."""
        fixed, cuts = self._fixed()
        return [*fixed.ravel().tolist(), *cuts]

    def ensemble(self, cell_bytes: int = CELL_BYTES, average_shift: int = AVERAGE_SHIFT) -> Ensemble:
        """Return the same decisions as trees, whose exact sum is the margin: one for each term, exact for every input.

        A tree finds the set, then the step of its term's logarithm, by halves.

        Parameters
        ----------
        cell_bytes, average_shift : units of the features, see :meth:`~foretail.features.catalog.Feature.params`
        """
        fixed, cuts = self._fixed()
        items = [feature(name) for name, _ in TERMS]
        names = [item.name for item in items]
        trees = []
        for place, (item, (_, is_logarithm)) in enumerate(zip(items, TERMS, strict=True)):
            steps = _steps_of(item.bits, is_logarithm)
            sets: list[Rule] = []
            for bound, *weights in fixed.tolist():
                offset = -bound if place == 0 else 0
                sets.append(_ladder(item.name, [(first, weights[place] * value + offset) for first, value in steps]))
            rule: Rule = sets[-1]
            for test, cut, below in reversed(list(zip(TESTS, cuts, sets[:-1], strict=True))):
                rule = (test, cut, below, rule) if cut < (1 << feature(test).bits) - 1 else below
            trees.append(tree_of_rule((TERMS[0][0], 0, 0.0, rule), names))
        inputs = tuple(FeatureInput.of(item.name, cell_bytes, average_shift) for item in items)
        return Ensemble(
            inputs,
            tuple(trees),
            Fraction(0),
            output="logit",
            origin={"kind": "adaptive_threshold", "policy": "learned"},
        )

    def _fixed(self) -> tuple[NDArray[np.int64], list[int]]:
        """The bound and the weights of each set in fixed point, int64[SETS, 1 + terms], and the cuts of the tests."""
        sets = np.array(self.numbers[: SETS * _OF_SET]).reshape(SETS, _OF_SET)
        sets[:, 0] += sets[:, 1:] @ np.array(self.centres)
        fixed = np.round(np.clip(sets, -_TERM_MOST, _TERM_MOST) * _UNIT).astype(np.int64)
        return fixed, [round(2 ** min(max(cut, 0.0), 24.0)) for cut in self.numbers[SETS * _OF_SET :]]


def _steps_of(bits: int, is_logarithm: bool) -> list[tuple[int, int]]:
    """The values of a term with the first input of each: of the logarithm in eighths of octaves, or all inputs."""
    if not is_logarithm:
        return [(value, value) for value in range(1 << bits)]
    steps = []
    for octave in range(bits + 1):
        for eighth in range(8):
            first = ((8 + eighth) << octave) + 7 >> 3  # the least value whose logarithm is this, of the input plus 1
            if first <= 1 << bits and (first << 3 >> octave) & 7 == eighth and first >> octave == 1:
                steps.append((first - 1, 8 * octave + eighth))
    return steps


def _ladder(name: str, steps: Sequence[tuple[int, int]]) -> Rule:
    """Return the rule with a value from each first input on; equal neighbours are one."""
    merged = [steps[0], *(step for before, step in pairwise(steps) if step[1] != before[1])]
    if len(merged) == 1:
        return float(merged[0][1])
    half = len(merged) // 2
    return name, merged[half][0] - 1, _ladder(name, merged[:half]), _ladder(name, merged[half:])


@dataclass(frozen=True)
class Searched:
    """Result of a search."""

    rule: AdaptiveThreshold  #: the best
    worth: float  #: its worth on the runs, as :func:`mean_log_sent`
    start: float  #: that of the rule from which the search started
    trials: int  #: rules that were tried


def mean_log_sent(runs: Sequence[KnownRun], policy: str, scorer: Scorer | None, **parameters: object) -> float:
    """Return the mean over conditions of the mean logarithm of what is sent over what LQD sends; 0 is LQD's."""
    return mean_log([run.condition for run in runs], [log_sent(run, policy, scorer, **parameters) for run in runs])


def log_sent(run: KnownRun, policy: str, scorer: Scorer | None, **parameters: object) -> float:
    """Return the logarithm of what a policy sends on a run over what LQD sends."""
    return math.log(max(run.sent(policy, scorer, **parameters), 1) / max(run.lqd, 1))


def mean_log(conditions: Sequence[str], logs: Sequence[float]) -> float:
    """Return the mean of the means by condition."""
    by_condition: dict[str, list[float]] = {}
    for condition, value in zip(conditions, logs, strict=True):
        by_condition.setdefault(condition, []).append(value)
    return float(np.mean([np.mean(values) for values in by_condition.values()]))


def starting_rule(runs: Sequence[KnownRun], policy: str, alpha: float, seed: int) -> AdaptiveThreshold:
    """Return Dynamic Thresholds with alpha; cuts and centres are quantiles of what its packets see."""
    plain = AdaptiveThreshold.dynamic_thresholds(alpha, (1.0, 1.0)).scorer()
    known = [feature.name for feature in FEATURES]
    seen = np.concatenate([run.visited(policy, plain, rows=2000, seed=seed).features for run in runs])
    cuts = [
        float(np.quantile(seen[:, known.index(name)], share)) for name, share in zip(TESTS, (0.8, 0.3), strict=True)
    ]
    medians = [float(np.median(seen[:, known.index(name)])) for name, _ in TERMS]
    centres = [
        8 * math.log2(1 + value) if logarithm else 0.0 for value, (_, logarithm) in zip(medians, TERMS, strict=True)
    ]
    return AdaptiveThreshold.dynamic_thresholds(alpha, cuts, centres)


def search_threshold(
    runs: Sequence[KnownRun],
    start: AdaptiveThreshold,
    *,
    policy: str,
    trials: int,
    seed: int,
    jobs: int = 1,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> Searched:
    """Search the numbers that send most on runs of one workload: all sets together, then each with the cuts, closer.

    The same runs judge every trial, so trials differ by their numbers alone. The draws depend on `seed`, not on `jobs`.

    Parameters
    ----------
    runs : training runs of a workload
    start : where the search starts, and what it never falls below
    policy : one of ``foretail.sim_bridge.policies.ASKING``, under which the rule decides
    trials : rules that are tried, about
    seed, jobs, report : of the draws, threads, called with the share done and words on it
    """
    from cmaes import CMA

    for run in runs:
        _ = run.lqd  # once, before threads ask
    steps = _steps()
    population = 12
    generations = [max(1, round(trials * share / population)) for _, share, _ in steps]
    total = sum(generations)
    tried = 0

    with ThreadPoolExecutor(jobs) as pool:

        def worths(rules: Sequence[NDArray[np.float64]]) -> list[float]:
            scorers = [AdaptiveThreshold(tuple(numbers.tolist()), start.centres).scorer() for numbers in rules]
            logs = pool.map(lambda pair: log_sent(pair[1], policy, pair[0]), product(scorers, runs))
            return [float(mean) for mean in np.mean(np.reshape(list(logs), (len(rules), len(runs))), axis=1)]

        best = np.array(start.numbers)
        (first,) = worths([best])
        worth = first
        for step, (directions, _, sigma) in enumerate(steps):
            search = CMA(np.zeros(len(directions)), sigma, seed=seed + step, population_size=population)
            centre = best.copy()
            for _ in range(generations[step]):
                drawn = [search.ask() for _ in range(population)]
                rules = [centre + one @ directions for one in drawn]
                gains = worths(rules)
                search.tell([(one, -value) for one, value in zip(drawn, gains, strict=True)])
                tried += population
                place = int(np.argmax(gains))
                if gains[place] > worth:
                    worth, best = gains[place], rules[place]
                words = f"{tried} rules tried, the best sends {100 * math.exp(worth):.3f} % of LQD"
                report(tried / (total * population), words)
    return Searched(AdaptiveThreshold(tuple(best.tolist()), start.centres), worth, first, tried)


def _steps() -> list[tuple[NDArray[np.float64], float, float]]:
    """Steps of the search, in turn: directions [moved, numbers], their share of the trials, the spread."""
    count = SETS * _OF_SET + len(TESTS)
    together = np.hstack([np.tile(np.diag(SPREAD), SETS), np.zeros((_OF_SET, len(TESTS)))])
    blocks = []
    for number in reversed(range(SETS)):
        block = np.zeros((_OF_SET + len(TESTS), count))
        block[np.arange(_OF_SET), _OF_SET * number + np.arange(_OF_SET)] = SPREAD
        block[_OF_SET + np.arange(len(TESTS)), SETS * _OF_SET + np.arange(len(TESTS))] = _CUT_SPREAD
        blocks.append(block)
    apart, closer = [(block, 0.14, 1.0) for block in blocks], [(block, 0.1, 0.4) for block in blocks]
    return [(together, 0.28, 1.0), *apart, *closer]
