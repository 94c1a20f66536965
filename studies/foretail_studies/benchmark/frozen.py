"""What every run of a version finds again: the traffic of its conditions, and what the reference rule costs there.

``python -m foretail_studies.benchmark.frozen RESULT...`` writes the file of a new version from its ``result.json``.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError
from foretail.pipelines.families.conditions import Rule
from foretail.pipelines.families.costs import Costs

CLOSED_LOOP, OPEN_LOOP, DEMAND = "benchmark-1", "open-loop-1", "demand-1"
"""The version of each track; its frozen runs are in the file of this name."""


@dataclass(frozen=True)
class FrozenRun:
    """A run of the reference rule."""

    size: str  #: of the experiment
    family: str
    held_out: bool  #: whether the family judges
    condition: str
    seed: int
    flows_sha256: str  #: of what was offered: flows, arrivals or matrices
    cost: float  #: exact: J; open loop, the packets that are sent; demand, the throughput of the true matrices


def frozen_runs(size: str, version: str = CLOSED_LOOP) -> list[FrozenRun]:
    """Those of a size, which come with the package."""
    with resources.files(__package__).joinpath(f"{version}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    runs = (
        FrozenRun(
            row["size"],
            row["family"],
            row["held_out"] == "True",
            row["condition"],
            int(row["seed"]),
            row["flows_sha256"],
            float(row["cost"]),
        )
        for row in rows
    )
    return [run for run in runs if run.size == size]


def named(version: str, size: str) -> str:
    """The version of a run of a size: only the full one is the benchmark."""
    return version if size == "full" else f"{version}-{size}"


def require_frozen(measured: Sequence[FrozenRun], size: str, version: str = CLOSED_LOOP) -> None:
    """Raise ForetailError unless the runs of the reference rule are the frozen ones: these, and no others."""
    found = {(run.family, run.condition, run.seed): run for run in measured}
    frozen = {(run.family, run.condition, run.seed): run for run in frozen_runs(size, version)}
    for key in frozen.keys() | found.keys():
        run, known = found.get(key), frozen.get(key)
        if run == known:
            continue
        if run is None:
            what = "is not measured"
        elif known is None:
            what = "is not part of it"
        elif run.held_out != known.held_out:
            what = "judges or trains where it did the other"
        elif run.flows_sha256 != known.flows_sha256:
            what = "has other traffic"
        else:
            what = f"comes to {run.cost!r} and not {known.cost!r} under the reference"
        raise ForetailError(
            f"{key[0]} {key[1]} with seed {key[2]} {what}, so this is not {version}: leave its families, seeds and "
            f"reference as they are, or use a Foretail that has {version}"
        )


def reference_runs(costs: Costs, reference: Rule, size: str, held_out: Collection[str]) -> Iterator[FrozenRun]:
    """What was measured of the reference rule; `held_out` names families."""
    for where, rules in costs.runs.items():
        for seed, run in rules[reference].items():
            judges = where.family in held_out
            yield FrozenRun(size, where.family, judges, where.condition, seed, run["flows_sha256"], run["cost"])


def write_frozen(results: list[dict[str, Any]], path: Path) -> None:
    """Write what experiments found of the reference rule, as their ``result.json`` have it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(FrozenRun))
        for result in results:
            writer.writerows(astuple(FrozenRun(**run)) for run in result["reference_runs"])


if __name__ == "__main__":
    documents = [json.loads(Path(result).read_text(encoding="utf-8")) for result in sys.argv[1:]]
    (version,) = {document["version"].removesuffix(f"-{document['size']}") for document in documents}
    write_frozen(documents, Path(__file__).with_name(f"{version}.csv"))
