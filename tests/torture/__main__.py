"""``python -m tests.torture``: kill, starve and damage every command, and see whether the next run mends it.

Examples::

    python -m tests.torture --minutes 30              # goes on where the last call with this seed ended
    python -m tests.torture --only promote SIGKILL    # cases of a command, a fault or a family
    python -m tests.torture table                     # what the journal says, as in docs/design/reliability.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.torture.campaign import Campaign, rows_of
from tests.torture.cases import Outcome
from tests.torture.table import table

PLACE = Path(__file__).parents[2] / "build" / "torture"


def main() -> int:
    """Return 0 when nothing was lost, different or left behind, and no damage went unseen; else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--minutes", type=float, default=10, help="no case begins later (10)")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many in this call")
    parser.add_argument("--seed", type=int, default=1, help="draws the cases (1)")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time (2)")
    parser.add_argument("--only", nargs="+", default=[], help="commands, faults or families, as the table names them")
    parser.add_argument("--place", type=Path, default=PLACE, help="folder of journal and cases (build/torture)")
    given = parser.parse_args()
    campaign = Campaign(given.place, given.seed)
    if given.action == "table":
        print(table(rows_of(campaign.journal)))
        return 0
    given.place.mkdir(parents=True, exist_ok=True)
    campaign.prepare()
    rows = []
    for row in campaign.run(given.minutes, given.cases, given.jobs, given.only):
        rows.append(row)
        fields = {name: value for name, value in row.items() if name in Outcome.__dataclass_fields__}
        outcome = Outcome(**fields)
        wrong = [*outcome.lost, *outcome.different, *outcome.unclean, *outcome.silent, *outcome.unnamed]
        told = "; ".join(wrong) or outcome.rough or "good"
        print(f"{outcome.number}: {outcome.command}, {outcome.fault}, {outcome.moment}: {told}", flush=True)
    bad = sum(
        not Outcome(**{k: v for k, v in row.items() if k in Outcome.__dataclass_fields__}).is_good for row in rows
    )
    print(
        f"\n{table(rows)}\n\n{len(rows)} cases with seed {given.seed}, {bad} of them bad; journal: {campaign.journal}"
    )
    return int(bad > 0 or not rows)


if __name__ == "__main__":
    sys.exit(main())
