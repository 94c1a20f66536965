"""J of the policy sonic in two runs of foretail evaluate, and their difference paired by seed: gain.py RUN RUN."""

import json
import sys
from pathlib import Path

from foretail.pipelines.comparison.statistics import interval_text, mean_interval, paired_difference


def cost_by_seed(run: str) -> dict[int, float | None]:
    """The cost J of a run folder, by seed."""
    runs = json.loads((Path(run) / "result.json").read_text(encoding="utf-8"))["runs"]
    return {one["seed"]: one["metrics"]["cost"] for one in runs if one["policy"] == "sonic"}


before, after = (cost_by_seed(run) for run in sys.argv[1:3])
print("J before:", interval_text(mean_interval(list(before.values()))))
print("J after:", interval_text(mean_interval(list(after.values()))))
print("difference:", interval_text(paired_difference(after, before)))
