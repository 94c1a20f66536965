"""What drops cost, measured, and trees that learn it, for the policy ``learned``.

Runs of the training families are forked at drawn arrivals. The labels of each run are a dataset of the store. Trees
learn what a drop gains; J on other seeds chooses from which gain on they drop. No held-out family is simulated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from foretail.pipelines.comparison.statistics import percent_change
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.runs.result import Cell, Table
from foretail.studies.costs.branching import BANDS, STRATA
from foretail.studies.costs.labels import SIGNAL_COLUMNS, signal_to_noise
from foretail.studies.costs.learning import Candidate, Learning, labelled_policies
from foretail.studies.costs.settings import CostSettings
from foretail.studies.search.budget import cost_in_switch


def show(settings: CostSettings, run: Run) -> Shown:
    """Label, learn and choose; what the store has is not simulated again."""
    learning = Learning.of(settings, run.store)
    measured = learning.labelled(labelled_policies(settings, run.store))
    labelled = measured.frame
    candidates, ensemble = learning.candidates(learning.trees(labelled), labelled)
    with_held = labelled.assign(held=labelled["hold_ns"] > 0)
    strata, by_hold = signal_to_noise(with_held, ["held", *STRATA]), signal_to_noise(with_held, ["held"])
    switch, in_switch = cost_in_switch(ensemble, "the trees")
    budget = measured.budget + learning.simulations.budget
    best, sharing, single = candidates[0], candidates[-1], by_hold.iloc[0]
    return Shown(
        labelled,
        _tables(strata, candidates),
        frames={"drop_costs.csv": labelled, "signal_to_noise.csv": strata},
        notes=(
            f"{measured.points:,} points of branches, {measured.reused:,} of them in the store",
            in_switch,
            budget.sentence(),
        ),
        verdict=(
            f"A single decision turned moves log J by {single['spread']:.2g}, chaos alone by {single['chaos']:.2g} "
            f"(standard deviations, {single['flips']} flips).",
            f"On the validation seeds the trees have J {best.cost:.3g}, Complete Sharing {sharing.cost:.3g}.",
        ),
        details={
            "strata": strata.to_dict("records"),
            "by_hold": by_hold.to_dict("records"),
            "candidates": [asdict(one) for one in candidates],
            "switch": asdict(switch),
            "datasets": [dataset.path for _, dataset, _ in measured.runs],
            "points": measured.points,
            "reused": measured.reused,
            "budget": asdict(budget),
        },
        learned=Learned(
            ensemble,
            f"Trees on measured costs of drops for policy learned: {len(measured.runs)} runs under "
            f"{', '.join(settings.policies)}, seeds {', '.join(map(str, settings.seeds))}; "
            f"J {best.cost:.3g} on the validation seeds.",
            {"validation/cost": best.cost, "validation/cost_of_sharing": sharing.cost},
            measured.log,
        ),
    )


DROP_COSTS = FunctionExperiment(CostSettings, show)


def _tables(strata: pd.DataFrame, candidates: Sequence[Candidate]) -> list[Table]:
    """Signal and noise, and the candidates."""
    columns = (name.replace("_", " ") for name in ("hold", *STRATA, *SIGNAL_COLUMNS))
    return [
        Table(
            "What a drop costs: log J where it is dropped less where it is accepted",
            tuple(columns),
            tuple(_stratum(row) for row in strata.to_dict("records")),
            ("chaos: standard deviation of a label by chaos alone; signal to noise: what is left over chaos",),
        ),
        Table(
            "Trees that learned it, on the validation seeds",
            ("drop if it gains more than", "arrivals dropped, %", "J", "against sharing all, %", "low", "high"),
            tuple(candidate_cells(one) for one in candidates),
        ),
    ]


def _stratum(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    return (
        "one RTT" if row["held"] else "once",
        str(row["flow_class"]),
        list(BANDS)[int(row["fill_band"])],
        int(row["first_rtt"]),
        "yes" if row["accepted"] else "no",
        *(None if pd.isna(row[name]) else row[name] for name in SIGNAL_COLUMNS),
    )


def candidate_cells(one: Candidate) -> tuple[Cell, ...]:
    """A row of a table of candidates."""
    less = one.less_sharing
    low, mean, high = map(percent_change, (less.low, less.mean, less.high))
    if one.drops_above is None:
        return ("(shares all)", None, one.cost, mean, low, high)
    return (one.drops_above, 100 * (one.dropped_share or 0.0), one.cost, mean, low, high)
