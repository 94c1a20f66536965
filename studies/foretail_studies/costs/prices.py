"""What one wrong drop costs under each transport: the mean over all packets that a run accepts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from foretail.pipelines.comparison.statistics import PairedDifference, interval_text
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.result import Cell, Table
from foretail_studies.costs.learning import Learning, labelled_policies
from foretail_studies.costs.settings import CostSettings

DRAWS = 2000
PER_MILLE = 1000


def show(settings: CostSettings, run: Run) -> Shown:
    """Turn single decisions of every family's runs, and set the families beside each other."""
    measured = Learning.of(settings, run.store).labelled(labelled_policies(settings, run.store))
    rows = measured.frame
    prices = {
        (str(family), str(kind)): (price(one), one)
        for (family, kind), one in rows[rows["accepted"] & (rows["hold_ns"] == 0)].groupby(
            ["family", "flow_class"], sort=False
        )
    }
    cells: list[tuple[Cell, ...]] = [
        (family, kind, len(one), interval_text(found), float(np.average(one["drop_timeouts"], weights=one["arrivals"])))
        for (family, kind), (found, one) in prices.items()
    ]
    means = {where: found.mean for where, (found, _) in prices.items() if found.mean is not None}
    dearest = max(means, key=lambda where: means[where])
    return Shown(
        rows,
        [
            Table(
                "What one drop of an accepted packet costs",
                ("transport", "flows", "flips", "J, per mille", "timeouts"),
                tuple(cells),
                (f"Means over packets as the run has them; 95 % bootstrap intervals, {DRAWS:,} draws of flips.",),
            )
        ],
        notes=(
            f"{measured.points:,} points of branches, {measured.reused:,} of them in the store",
            measured.budget.sentence(),
        ),
        verdict=(
            f"A drop is dearest of {dearest[1]} packets under {dearest[0]}: {means[dearest]:.3g} per mille of J each.",
        ),
    )


def price(flips: pd.DataFrame) -> PairedDifference:
    """By how many per mille J rises when one packet is dropped that the run accepts, and its interval.

    Parameters
    ----------
    flips : of ``cost_labels``; columns ``drop_cost``, in log J, and ``arrivals``, for how many packets a row stands
    """
    random = np.random.default_rng(0)
    cost, weight = PER_MILLE * flips["drop_cost"].to_numpy(float), flips["arrivals"].to_numpy(float)
    drawn = random.integers(len(flips), size=(DRAWS, len(flips)))
    means = (cost[drawn] * weight[drawn]).sum(axis=1) / weight[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return PairedDifference(float(np.average(cost, weights=weight)), float(low), float(high), len(flips))


DROP_PRICES = FunctionExperiment(CostSettings, show)
