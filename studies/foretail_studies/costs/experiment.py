"""What drops cost, measured, and trees that learn it, for the policy ``learned``.

Runs of the training families divide at drawn arrivals. The labels of each run are a dataset of the store. Trees
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
from foretail_studies.costs.branching import BANDS, STRATA
from foretail_studies.costs.labels import SIGNAL_COLUMNS, signal_to_noise
from foretail_studies.costs.learning import Candidate, Learning, labelled_policies
from foretail_studies.costs.settings import CostSettings
from foretail_studies.search.budget import cost_in_switch


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
    return [
        Table.of_rows(
            "What a drop costs: log J where it is dropped less where it is accepted",
            map(_stratum, strata.to_dict("records")),
            "chaos: standard deviation of a label by chaos alone; signal to noise: what is left over chaos",
        ),
        Table.of_rows("Trees that learned it, on the validation seeds", map(_candidate, candidates)),
    ]


def _stratum(row: Mapping[Any, Any]) -> dict[str, Cell]:
    return {
        "hold": "one RTT" if row["held"] else "once",
        "flow class": str(row["flow_class"]),
        "fill band": list(BANDS)[int(row["fill_band"])],
        "first rtt": int(row["first_rtt"]),
        "accepted": "yes" if row["accepted"] else "no",
        **{name.replace("_", " "): None if pd.isna(row[name]) else row[name] for name in SIGNAL_COLUMNS},
    }


def _candidate(one: Candidate) -> dict[str, Cell]:
    less, shares_all = one.less_sharing, one.drops_above is None
    return {
        "drop if it gains more than": "(shares all)" if shares_all else one.drops_above,
        "arrivals dropped, %": None if shares_all else 100 * (one.dropped_share or 0.0),
        "J": one.cost,
        "against sharing all, %": percent_change(less.mean),
        "low": percent_change(less.low),
        "high": percent_change(less.high),
    }
