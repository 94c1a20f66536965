"""``python -m foretail.sim_bridge.open_loop.worst_cases`` searches and prints what it found as a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from foretail.core.errors import ForetailError
from foretail.sim_bridge.guest_policies import native_policy
from foretail.sim_bridge.open_loop.worst_cases.objectives import OBJECTIVES, objective_of
from foretail.sim_bridge.open_loop.worst_cases.page import page, read_json, table, write_json
from foretail.sim_bridge.open_loop.worst_cases.search import worst_cases


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m foretail.sim_bridge.open_loop.worst_cases", description=__doc__)
    names = f"{', '.join(OBJECTIVES)}, or my_rule.hpp:MyRule; default: all of the first; may be repeated"
    parser.add_argument("--objective", action="append", help=names)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=16, help="sequences grown per objective and switch")
    parser.add_argument("--steps", type=int, default=4000, help="changes to each of them")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the cases to this file")
    parser.add_argument("--page", type=Path, metavar="JSON", help="print the page of the cases in this file; no search")
    given = parser.parse_args()
    if given.page is not None:
        print(page(read_json(given.page)), end="")
        return 0
    if min(given.seed + 1, given.restarts, given.steps, given.processes) < 1:
        parser.error("--seed must be at least 0, --restarts, --steps and --processes at least 1")
    try:
        for objective in given.objective or ():
            for count in objective_of(objective).counts:
                native_policy(count)  # a header compiles once, before processes start
        cases = worst_cases(
            given.objective or OBJECTIVES,
            seed=given.seed,
            restarts=given.restarts,
            steps=given.steps,
            processes=given.processes,
        )
    except ForetailError as error:
        parser.error(str(error))
    print(table(cases))
    if given.json is not None:
        write_json(given.json, cases)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
