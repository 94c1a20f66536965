"""The choice of a policy under TCP, by short simulations of the same traffic on another seed.

A replay says nothing under TCP, because a dropped packet comes back. So every policy of a library is simulated for a
short time in each condition, the one with the least cost J is chosen, and judged on other seeds of longer traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.models import zoo
from foretail.pipelines.comparison.statistics import change_text, mean_interval
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.predictors import LEARNED
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT
from foretail_studies.benchmark.closed_loop import BenchmarkSettings, Field
from foretail_studies.families import Condition, Costs, Rule, SharingPlan, measure_rules, require_apart

SLOT_BPS = 10_000_000_000
"""Rate of a link whose slots last as long as averages of the zoo assume."""
BAD_PERCENT = 5.0
"""Rise of J over the tuned threshold at which a condition counts as bad."""


@dataclass
class ChosenTcpSettings(BenchmarkSettings):
    """Policies that are chosen by short simulations, judged on other seeds of the held-out conditions."""

    calibration: list[int] = setting(MISSING, "Seeds of the short simulations.", at_least=1)
    calibration_ns: list[int] = setting(MISSING, "Lengths of their traffic, shortest first.", at_least=1_000_000)
    zoo: int = setting(16, "The first rules of the zoo that belong to the library.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a seed that both chooses and judges, and on a model, which is not chosen."""
        super().check(where)
        require_apart(calibration=self.calibration, seeds=self.seeds)
        if self.model is not None:
            raise ForetailError("model is judged by foretail benchmark: leave it out")


def show(settings: ChosenTcpSettings, run: Run) -> Shown:
    """Simulate every policy for a short time and as long as the benchmark, and compare the chosen ones."""
    field = Field.of(settings, run.store)
    tuned, lqd = field.thresholds[0], field.reference
    sharing = [rule for rule in field.others if rule.policy == LEARNED]
    thresholds = [tuned, *(rule for rule in field.others if rule.policy != LEARNED)]
    of_zoo = [Rule(LEARNED, name) for name in zoo.names()[: settings.zoo]]
    rules = [lqd, *thresholds, *of_zoo, *sharing]
    short = {length: Costs() for length in settings.calibration_ns}
    long = Costs()
    for plan in _plans(field.plan, settings, run.store):
        everywhere = dict.fromkeys(plan.scenarios, rules)
        for length, costs in short.items():
            cut = {where: replace(one, traffic_ns=min(length, one.traffic_ns)) for where, one in plan.scenarios.items()}
            shorter = replace(plan, scenarios=cut)
            measure_rules(settings.experiment, settings, shorter, costs, everywhere, settings.calibration)
        measure_rules(settings.experiment, settings, plan, long, everywhere, settings.seeds)
    libraries = {
        "thresholds": thresholds,
        "rules of the zoo": of_zoo,
        "thresholds and zoo": [*thresholds, *of_zoo],
        "thresholds and sharing rules": [*thresholds, *sharing],
        "all of them": rules[1:],
    }
    rows = pd.DataFrame(
        [
            {"family": where.family, "condition": where.condition, "way": way, "rule": str(rule), "seed": seed}
            | {"cost": math.exp(log), "cost_of_dt": math.exp(of_dt[seed]), "cost_of_lqd": math.exp(of_lqd[seed])}
            for where in long.runs
            for of_dt, of_lqd in [(long.logs(where, tuned), long.logs(where, lqd))]
            for way, rule in _chosen(where, libraries, short, long, settings, [lqd, tuned, *sharing]).items()
            for seed, log in long.logs(where, rule).items()
        ]
    )
    summary = {str(way): _summarised(some, str(tuned), str(lqd)) for way, some in rows.groupby("way", sort=False)}
    note = (
        f"Geometric means over {len(long.runs)} held-out conditions with 95 % intervals over them; J is a cost. The "
        f"choice uses seeds {', '.join(map(str, settings.calibration))}, seeds {', '.join(map(str, settings.seeds))} "
        "judge; in hindsight the judging seeds choose."
    )
    verdict = [
        f"Chosen by simulations of {max(settings.calibration_ns) / 1e6:g} ms among {name}: J is "
        f"{summary[_way(name, max(settings.calibration_ns))][f'J against {tuned}, %']} against {tuned}."
        for name in libraries
    ]
    ways = ({"chosen among": way, **row} for way, row in summary.items())
    table = Table.of_rows("Policies that are chosen under TCP", ways, note)
    return Shown(rows, [table], notes=[long.note], verdict=verdict)


def _plans(plan: SharingPlan, settings: ChosenTcpSettings, store: Store) -> list[SharingPlan]:
    """The held-out conditions by the rate of their links, with the rules of the zoo in the units of that rate.

    The rates of arrivals that a rule reads are averages over 32 slots. So the faster a link is, the shorter they are.
    """
    held_out = {where: one for where, one in plan.scenarios.items() if settings.families[where.family].held_out}
    asking = compose_policy(LEARNED, "zoo")
    plans = []
    for rate in sorted({one.topology.server_link_bps for one in held_out.values()}):
        shift = round(AVERAGE_SHIFT - math.log2(rate / SLOT_BPS))
        scenarios = {
            where: replace(one, features=replace(one.features, average_shift=shift))
            for where, one in held_out.items()
            if one.topology.server_link_bps == rate
        }
        cell_bytes = plan.cell_bytes
        made = {
            Rule(LEARNED, name): asking.ask(export_to_store(zoo.rule(name).ensemble(cell_bytes, shift), store).library)
            for name in zoo.names()[: settings.zoo]
        }
        plans.append(replace(plan, scenarios=scenarios, rules={**plan.rules, **made}))
    return plans


def _way(library: str, length_ns: int) -> str:
    return f"{library}, {length_ns / 1e6:g} ms"


def _chosen(
    where: Condition,
    libraries: Mapping[str, Sequence[Rule]],
    short: Mapping[int, Costs],
    long: Costs,
    settings: ChosenTcpSettings,
    beside: Sequence[Rule],
) -> dict[str, Rule]:
    """The policy of each way in a condition."""
    fixed = {str(rule): rule for rule in beside}
    by_length = {
        _way(name, length): costs.best(where, rules, settings.calibration)
        for name, rules in libraries.items()
        for length, costs in short.items()
    }
    hindsight = {f"{name}, in hindsight": long.best(where, rules, settings.seeds) for name, rules in libraries.items()}
    return {**fixed, **by_length, **hindsight}


def _summarised(rows: pd.DataFrame, tuned: str, lqd: str) -> dict[str, Cell]:
    """The cost of a way against tuned DT's and LQD's, bad conditions, and the worst."""
    logs = rows.assign(**{of: np.log(rows["cost"] / rows[of]) for of in ("cost_of_dt", "cost_of_lqd")})
    means = logs.groupby(["family", "condition"])[["cost_of_dt", "cost_of_lqd"]].mean()
    percents = 100 * np.expm1(means["cost_of_dt"])
    return {
        f"J against {tuned}, %": change_text(mean_interval(means["cost_of_dt"].tolist())),
        f"J against {lqd}, %": change_text(mean_interval(means["cost_of_lqd"].tolist())),
        f"conditions above +{BAD_PERCENT:g} %": int((percents > BAD_PERCENT).sum()),
        "worst condition, %": float(percents.max()),
        "policies chosen": rows["rule"].nunique(),
    }


CHOSEN_TCP = FunctionExperiment(ChosenTcpSettings, show)
