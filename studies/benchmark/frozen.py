"""What every run of a version has to find again: the traffic of its conditions, and what the reference rule costs there.

``python -m foretail.studies.benchmark.frozen RESULT.json...`` writes them from runs of a new version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pandas as pd

from foretail.core.errors import ForetailError
from foretail.pipelines.families.conditions import Rule
from foretail.pipelines.families.costs import Costs

VERSION = "benchmark-1"
COLUMNS = ["size", "family", "condition", "seed", "flows_sha256", "cost"]
KEY = ["family", "condition", "seed"]


@dataclass(frozen=True)
class Frozen:
    """The frozen runs of the reference rule in one size."""

    runs: pd.DataFrame  #: with `COLUMNS`; the cost is exact

    @classmethod
    def of(cls, size: str) -> Frozen:
        """Those of a size, which came with the package."""
        with resources.files(__package__).joinpath(f"{VERSION}.csv").open(encoding="utf-8") as file:
            runs = pd.read_csv(file, float_precision="round_trip")
        return cls(runs[runs["size"] == size])

    def require(self, costs: Costs, reference: Rule) -> None:
        """Raise ForetailError unless every frozen run was measured, with the same traffic and the same cost."""
        measured = pd.DataFrame(runs_of(costs, reference)).set_index(KEY)
        for frozen in self.runs.itertuples():
            key = (frozen.family, frozen.condition, frozen.seed)
            run = measured.loc[key] if key in measured.index else None
            what = (
                "is not measured"
                if run is None
                else "has other flows"
                if run["flows_sha256"] != frozen.flows_sha256
                else f"costs {run['cost']!r} and not {frozen.cost!r}"
                if run["cost"] != frozen.cost
                else None
            )
            if what is not None:
                raise ForetailError(
                    f"{frozen.family} {frozen.condition} with seed {frozen.seed} {what} under {reference}, so a score "
                    f"would not be one of {VERSION}: use its settings as they are, and a Foretail that has {VERSION}"
                )


def runs_of(costs: Costs, rule: Rule) -> Iterator[dict[str, object]]:
    """What was measured of a rule, a row per condition and seed."""
    for where, rules in costs.runs.items():
        for seed, run in rules[rule].items():
            yield {
                "family": where.family,
                "condition": where.condition,
                "seed": seed,
                "flows_sha256": run["flows_sha256"],
                "cost": run["cost"],
            }


def main(results: list[str]) -> None:
    """Write the file of a new version, into the source tree, from what runs found."""
    frames = []
    for result in results:
        document = json.loads(Path(result).read_text(encoding="utf-8"))
        frames.append(pd.DataFrame(document["reference_runs"]).assign(size=document["size"]))
    path = Path(__file__).with_name(f"{VERSION}.csv")
    pd.concat(frames)[COLUMNS].to_csv(path, index=False, lineterminator="\n")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
